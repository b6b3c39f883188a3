"""Encodings side by side: the same config and seeds, paired differences, controls."""
