"""The size of the model an encoding is made for, and what can be judged from it without torch."""

from __future__ import annotations

import numbers
from typing import Any, NamedTuple

from wefpe_core.errors import InputError

Grid = tuple[int, int]  # (height, width) in patches, row-major

# Distance from an integer, in periods, that counts as none: beyond what rounding leaves of one.
_ON_LATTICE = 2.0**-40


class EncodingSize(NamedTuple):
    """The model an encoding is made for; `grid` is the one it is trained on."""

    dim: int
    depth: int
    num_heads: int
    grid: Grid

    @property
    def head_dim(self) -> int:
        return self.dim // self.num_heads

    @classmethod
    def checked(cls, dim: Any, depth: Any, num_heads: Any, grid: Any) -> EncodingSize:
        """The size, or InputError if the numbers cannot be those of a transformer."""
        for name, value in (("dim", dim), ("depth", depth), ("num_heads", num_heads)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise InputError(f"{name} must be a positive integer, got {value!r}")
        if dim % num_heads:
            raise InputError(f"dim={dim} is not divisible by num_heads={num_heads}")
        return cls(dim, depth, num_heads, two_positive_integers(grid, (numbers.Integral,)))


def two_positive_integers(grid: Any, integers: tuple[type[Any], ...]) -> Grid:
    """`grid` as (height, width), or InputError; `integers` are the types that count as such."""
    try:
        height, width = grid
    except (TypeError, ValueError):
        raise InputError(f"grid must be (height, width) in patches, got {grid!r}") from None
    for name, value in (("height", height), ("width", width)):
        if not isinstance(value, integers) or isinstance(value, bool) or value < 1:
            raise InputError(f"grid {name} must be a positive integer, got {value!r} in {grid!r}")
    # The sizes of a graph being traced stay as they are: as plain integers they would be fixed.
    height, width = (int(n) if isinstance(n, numbers.Integral) else n for n in (height, width))
    return height, width


def is_integer(value: float) -> bool:
    """Whether a coordinate in periods is a whole number, up to rounding."""
    return abs(value - round(value)) <= _ON_LATTICE


def refuse_poles(grid: Grid, alpha_u: float, alpha_v: float, is_centred: bool = False) -> None:
    """Raise InputError if a patch centre lies on a lattice point, where wp is infinite.

    The centres are alpha_u*u and alpha_v*v full periods from 0, whatever the lattice is. On a
    centred grid they are as far from its middle, which is half a period from 0 both ways.
    """

    def on_poles(count: int, alpha: float) -> list[int]:
        start = 0.5 * (1.0 - alpha) if is_centred else 0.0
        return [k for k in range(count) if is_integer(start + alpha * (k + 0.5) / count)]

    if 0.0 < alpha_u <= 1.0 or 0.0 < alpha_v <= 1.0:  # whatever the grid, which may be symbolic
        return
    height, width = grid
    rows, columns = on_poles(height, alpha_v), on_poles(width, alpha_u)
    if rows and columns:
        raise InputError(
            f"alpha_u={alpha_u:g}, alpha_v={alpha_v:g} put the patch in row {rows[0]}, column "
            f"{columns[0]} of the grid {grid} on a pole of wp; choose other values (up to 1 no "
            "patch is on a pole)"
        )
