"""Patch coordinates. A grid is always (height, width) in patches, row-major."""

from __future__ import annotations

import numbers
from typing import Any, NamedTuple

import torch
from torch import Tensor

from wefpe_core.errors import InputError

Grid = tuple[int, int]


def checked_grid(grid: Any) -> Grid:
    """`grid` as two positive integers, or InputError."""
    try:
        height, width = grid
    except (TypeError, ValueError):
        raise InputError(f"grid must be (height, width) in patches, got {grid!r}") from None
    for name, value in (("height", height), ("width", width)):
        is_whole = isinstance(value, (numbers.Integral, torch.SymInt))
        if not is_whole or isinstance(value, bool) or value < 1:
            raise InputError(f"grid {name} must be a positive integer, got {value!r} in {grid!r}")
    return int(height), int(width)


def patch_indices(grid: Grid, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Column x and row y of every patch, counted from 0; each of shape (height*width,)."""
    height, width = grid
    rows = torch.arange(height, dtype=dtype, device=device)
    columns = torch.arange(width, dtype=dtype, device=device)
    x = columns[None, :].expand(height, width).reshape(-1)
    y = rows[:, None].expand(height, width).reshape(-1)
    return x, y


def patch_centres(grid: Grid, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """u = (column + 1/2)/width and v = (row + 1/2)/height of every patch."""
    height, width = grid
    x, y = patch_indices(grid, dtype, device)
    return (x + 0.5) / width, (y + 0.5) / height


class Offsets(NamedTuple):
    """The (2H-1)(2W-1) displacements between patches of a grid, and who has which.

    `first` and `second` name one pair of patches for each displacement ``second - first``, as
    near to the middle of the grid as it can be; `pairs` is the displacement of every pair:
    ``pairs[i, j]`` is the number of patch j minus patch i.
    """

    dx: Tensor  # columns to the right, (n,)
    dy: Tensor  # rows down, (n,)
    first: Tensor  # (n,)
    second: Tensor  # (n,)
    pairs: Tensor  # (N, N)


def grid_offsets(grid: Grid, device: torch.device) -> Offsets:
    height, width = grid
    across = torch.arange(1 - width, width, device=device)
    down = torch.arange(1 - height, height, device=device)
    shape = (2 * height - 1, 2 * width - 1)
    dx = across[None, :].expand(shape).reshape(-1)
    dy = down[:, None].expand(shape).reshape(-1)
    row = torch.div(height - 1 - dy, 2, rounding_mode="floor")
    column = torch.div(width - 1 - dx, 2, rounding_mode="floor")
    first = row * width + column
    x, y = patch_indices(grid, torch.int64, device)
    pairs = (y[None, :] - y[:, None] + (height - 1)) * shape[1]
    pairs = pairs + (x[None, :] - x[:, None] + (width - 1))
    return Offsets(dx=dx, dy=dy, first=first, second=first + dy * width + dx, pairs=pairs)


# Distance from an integer, in periods, that counts as none: beyond what rounding leaves of one.
_ON_LATTICE = 2.0**-40


def is_integer(value: float) -> bool:
    """Whether a coordinate in periods is a whole number, up to rounding."""
    return abs(value - round(value)) <= _ON_LATTICE


def refuse_poles(grid: Grid, alpha_u: float, alpha_v: float, is_centred: bool = False) -> None:
    """InputError if a patch centre lies on a lattice point, where wp is infinite.

    The centres are alpha_u*u and alpha_v*v full periods from 0, whatever the lattice is; or
    half a period further from the middle, if that is how the grid lies.
    """

    def on_poles(count: int, alpha: float) -> list[int]:
        start = 0.5 * (1.0 - alpha) if is_centred else 0.0
        return [k for k in range(count) if is_integer(start + alpha * (k + 0.5) / count)]

    height, width = grid
    rows, columns = on_poles(height, alpha_v), on_poles(width, alpha_u)
    if rows and columns:
        raise InputError(
            f"alpha_u={alpha_u:g}, alpha_v={alpha_v:g} put the patch in row {rows[0]}, column "
            f"{columns[0]} of the grid {grid} on a pole of wp; choose other values (up to 1 none "
            "is hit)"
        )


def coincident_offsets(offsets: Offsets, grid: Grid, alpha_u: float, alpha_v: float) -> Tensor:
    """Which of the displacements are 0 or whole periods.

    Those are few, so they are compared with on the device; nothing is copied to it.
    """
    height, width = grid
    return _is_whole(offsets.dx, width, alpha_u) & _is_whole(offsets.dy, height, alpha_v)


def _is_whole(steps: Tensor, count: int, alpha: float) -> Tensor:
    """Whether so many of `count` steps are whole periods, of which alpha lie on the grid."""
    whole = [k for k in range(1 - count, count) if is_integer(alpha * k / count)]
    return torch.stack([steps == k for k in whole]).any(0)
