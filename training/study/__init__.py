"""Analyses of encodings and of trained models: what the paper shows, for any encoding.

Each module has one function that computes numbers and one that makes an `Analysis` of them, with
figures, tables and a caption. ``wefpe analyse`` writes them.
"""
