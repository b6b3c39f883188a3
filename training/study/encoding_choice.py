"""The encodings an analysis looks at: built by name, for one model shape, from one seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from training.encodings import AbstractEncoding, build_encoding
from training.encodings.grid import Grid
from training.encodings.registry import parse_encoding_label
from wefpe_core.errors import InputError

# ViT-Ti/16 at 224: what the paper analyses.
GRID: Grid = (14, 14)
DIM, DEPTH, HEADS = 192, 12, 3
MOST_PATCHES = 4096  # all pairs of which take 134 MB


@dataclass(frozen=True)
class Subject:
    """An encoding as typed, and how to build it."""

    label: str

    def build(self, grid: Grid = GRID, seed: int = 0) -> AbstractEncoding:
        """The encoding at its start, in float64, from this seed."""
        named = parse_encoding_label(self.label)
        options = named.options
        if named.name == "weierstrass_hybrid":
            # Nothing is loaded into it here; its table starts at random.
            options = {"table": "fresh"} | options
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            encoding = build_encoding(
                named.name, dim=DIM, depth=DEPTH, num_heads=HEADS, grid=grid, **options
            )
        return encoding.double().eval()


def read_subjects(labels: Sequence[str], grid: Grid) -> list[Subject]:
    """Every label once, each tried out, so that mistakes show before any work."""
    subjects = [Subject(label) for label in dict.fromkeys(label.strip() for label in labels)]
    if not subjects:
        raise InputError("no encoding is named")
    for subject in subjects:
        subject.build(grid)
    return subjects


def read_grid(text: str, *, smallest: int = 2) -> Grid:
    """A grid from ``14x14`` or ``14`` (height x width in patches)."""
    height, _, width = text.lower().partition("x")
    try:
        grid = int(height), int(width or height)
    except ValueError:
        raise InputError(f"a grid is HEIGHTxWIDTH in patches, as in 14x14, got {text!r}") from None
    if min(grid) < 1 or grid[0] * grid[1] < smallest:
        raise InputError(f"a grid of {text} has fewer than {smallest} patches: nothing to compare")
    if grid[0] * grid[1] > MOST_PATCHES:
        raise InputError(f"a grid of {text} has more than {MOST_PATCHES} patches: too many pairs")
    return grid


def read_place(text: str, grid: Grid) -> tuple[int, int]:
    """Row and column of a patch from ``7x7``, counted from 0."""
    row, _, column = text.lower().partition("x")
    if not (row.isdecimal() and column.isdecimal()):
        raise InputError(f"a patch is ROWxCOLUMN, counted from 0, as in 7x7, got {text!r}")
    place = int(row), int(column)
    if place[0] >= grid[0] or place[1] >= grid[1]:
        raise InputError(f"patch {text} is not in a grid of {grid[0]} x {grid[1]} patches")
    return place
