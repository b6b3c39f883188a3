"""Experiments as TOML files: a complete default, short files of differences, overrides."""

from training.configuration.schema import Experiment as Experiment
