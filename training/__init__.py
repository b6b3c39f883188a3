"""Positional encodings, models and experiments built on the verified backends."""
