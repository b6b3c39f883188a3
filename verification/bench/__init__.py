"""Benchmarks: the backends beside their peers, the models by encoding, the training engine."""
