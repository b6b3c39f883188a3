"""The encodings an analysis looks at: chosen by name, built for one model shape from one seed.

Importing this module imports no torch; building an encoding does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from training.encodings.registry import parse_encoding_label
from training.encodings.size import Grid
from wefpe_core.errors import InputError

if TYPE_CHECKING:
    from training.encodings import AbstractEncoding

# ViT-Ti/16 at 224 x 224 pixels, the model that the paper analyses.
GRID: Grid = (14, 14)
DIM, DEPTH, HEADS = 192, 12, 3
MOST_PATCHES = 4096  # the matrix of all their pairs takes 134 MB
USUAL = ("weierstrass", "learned", "sincos2d")
# Encodings without a claim to decay or structure, and what they are. A measure that cannot tell
# an encoding from these says nothing about it.
NULLS: Mapping[str, str] = {
    "none": "no position",
    "learned": "a random table",
    "weierstrass:function=powers,features=2": (
        "LayerNorm of a random linear map of tanh of the centred (u, v), in place of ℘"
    ),
    "sincos2d": "fixed sines and cosines",
}


@dataclass(frozen=True)
class EncodingChoice:
    """An encoding by its label, such as ``weierstrass:fidelity=paper,alpha_u=0.4``."""

    label: str

    def build(self, grid: Grid = GRID, seed: int = 0) -> AbstractEncoding:
        """The encoding as it starts from this seed, in float64."""
        import torch

        from training.encodings import build_encoding

        named = parse_encoding_label(self.label)
        options = named.options
        if named.name == "weierstrass_hybrid":
            # There are no pretrained positions here, so its table starts at random.
            options = {"table": "fresh"} | options
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            encoding = build_encoding(
                named.name, dim=DIM, depth=DEPTH, num_heads=HEADS, grid=grid, **options
            )
        return encoding.double().eval()


def choose_encodings(labels: Sequence[str | EncodingChoice], grid: Grid) -> list[EncodingChoice]:
    """The encodings of these labels, each once and each built, so that mistakes show at once."""
    texts = (label if isinstance(label, str) else label.label for label in labels)
    choices = [EncodingChoice(text) for text in dict.fromkeys(text.strip() for text in texts)]
    if not choices:
        raise InputError("no encoding is named")
    for choice in choices:
        choice.build(grid)
    return choices


def is_same_encoding(one: str, other: str) -> bool:
    """Whether two labels name one encoding, whatever the order of their options."""
    first, second = parse_encoding_label(one), parse_encoding_label(other)
    return (first.name, first.options) == (second.name, second.options)


def nulls_beside(choices: Sequence[EncodingChoice]) -> list[str]:
    """The nulls that are not among these encodings."""
    return [
        null for null in NULLS if not any(is_same_encoding(null, each.label) for each in choices)
    ]


def null_meaning(label: str) -> str:
    """What an encoding stands for as a null; empty for the others."""
    meanings = (meaning for null, meaning in NULLS.items() if is_same_encoding(null, label))
    return next(meanings, "")


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


def read_patch(text: str) -> tuple[int, int]:
    """The row and the column of a patch from ``7x7``, counted from 0."""
    row, _, column = text.lower().partition("x")
    if not (row.isdecimal() and column.isdecimal()):
        raise InputError(f"a patch is ROWxCOLUMN, counted from 0, as in 7x7, got {text!r}")
    return int(row), int(column)


def check_patch(patch: tuple[int, int], grid: tuple[int, ...]) -> None:
    """Refuse a grid with nothing to compare, and a patch outside of it."""
    height, width = grid
    if height * width < 2:
        raise InputError("a grid of one patch has no distances: nothing to compare")
    if not (0 <= patch[0] < height and 0 <= patch[1] < width):
        raise InputError(
            f"patch {patch[0]}x{patch[1]} is not in a grid of {height} x {width} patches"
        )
