"""Patch coordinates. A grid is always (height, width) in patches, row-major."""

from __future__ import annotations

import math
import numbers
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from training.encodings.size import Grid as Grid
from training.encodings.size import is_integer, two_positive_integers

if TYPE_CHECKING:
    from training.encodings.options import MovedPlaces


def checked_grid(grid: Any) -> Grid:
    """`grid` as two positive integers, also those of a graph being traced, or InputError."""
    return two_positive_integers(grid, (numbers.Integral, torch.SymInt))


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


def moved_places(u: Tensor, v: Tensor, options: MovedPlaces) -> tuple[Tensor, Tensor]:
    """Shares of the image moved at random, and stretched from its middle by axis and together."""
    drawn = 2.0 * torch.rand(5, dtype=u.dtype, device=u.device) - 1.0
    shifts = options.shift * drawn[:2]
    factors = torch.exp(
        math.log(options.jitter) * drawn[2:4] + math.log(options.rescale) * drawn[4]
    )
    x, y = (2.0 * u - 1.0 + shifts[0]) * factors[0], (2.0 * v - 1.0 + shifts[1]) * factors[1]
    return 0.5 * (x + 1.0), 0.5 * (y + 1.0)


def whole_waves(count: int, side: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """`count` whole numbers of waves over a side: 1 to half as many as patches, again and again.

    More waves than that look like fewer on the patches of the side.
    """
    return 1 + torch.arange(count, dtype=dtype, device=device) % max(side // 2, 1)


class Offsets(NamedTuple):
    """The (2H-1)(2W-1) displacements between patches of a grid, and the pairs that have them.

    `first` and `second` name one pair of patches for each displacement ``second - first``, as
    near to the middle of the grid as possible. ``pairs[i, j]`` is the number of the displacement
    of patch j from patch i.
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


def coincident_offsets(offsets: Offsets, grid: Grid, alpha_u: float, alpha_v: float) -> Tensor:
    """Which of the displacements are 0 or whole periods.

    There are few such numbers of steps, so each is compared on the device; no table is copied
    to it.
    """
    height, width = grid
    return _is_whole(offsets.dx, width, alpha_u) & _is_whole(offsets.dy, height, alpha_v)


def _is_whole(steps: Tensor, count: int, alpha: float) -> Tensor:
    """Which steps are whole periods, where `count` steps are alpha periods."""
    if 0.0 < alpha <= 1.0:  # whatever the count, which may be symbolic
        return steps == 0
    whole = [k for k in range(1 - count, count) if is_integer(alpha * k / count)]
    # Not a reduction over a stack of them, which no compiler fuses with what uses the result.
    return reduce(torch.logical_or, (steps == k for k in whole))
