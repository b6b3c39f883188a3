"""What another grid does to tables of positions: ``wefpe encodings --resolution``.

A function of the place in the image is evaluated anew on any grid: at the same places it has the
same values. A learned table has to be resampled, which loses part of it.
"""

from __future__ import annotations

from typing import NamedTuple, get_args

import torch
from rich import box
from rich.table import Table
from torch import Tensor

from training.encodings import build_encoding
from training.encodings.grid import Grid
from training.encodings.learned import Resampling, resample_table

SMALL: Grid = (14, 14)
LARGE: Grid = (24, 24)
_FUNCTIONS = ("weierstrass", "weierstrass_fourier")
_ALPHA = 0.5


class Change(NamedTuple):
    """The norm of the change of a table over the norm of the table."""

    name: str
    by: str
    change: float


def measured_changes(seed: int = 0) -> list[Change]:
    """The functions, in float64, and a random table by each method of resampling."""
    height, width = SMALL
    changes = []
    for name in _FUNCTIONS:
        tables = []
        # The two grids share no patch centre. A grid of 24 that covers 24/14 times as much does.
        for grid, alpha in ((SMALL, _ALPHA), (LARGE, _ALPHA * LARGE[0] / height)):
            torch.manual_seed(seed)
            encoding = build_encoding(
                name, dim=192, depth=12, num_heads=3, grid=grid, alpha_u=alpha
            ).double()
            with torch.no_grad():
                table = encoding.eval().additive(grid)
            assert table is not None
            tables.append(table.reshape(*grid, -1)[:height, :width])
        changes.append(Change(name, "evaluated at 24 x 24", relative_change(*tables)))
    generator = torch.Generator().manual_seed(seed)
    table = torch.randn(height * width, 192, generator=generator, dtype=torch.float64)
    for method in get_args(Resampling):
        there = resample_table(table, SMALL, LARGE, method)
        back = resample_table(there, LARGE, SMALL, method)
        changes.append(Change("learned", f"{method} and back", relative_change(table, back)))
    return changes


def relative_change(before: Tensor, after: Tensor) -> float:
    return float((after - before).norm() / before.norm())


def resolution_table() -> Table:
    """`measured_changes` to be printed."""
    title = "From 14 x 14 to 24 x 24 patches: relative change of what stands at the same places"
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("encoding")
    table.add_column("by")
    table.add_column("change", justify="right")
    for name, by, change in measured_changes():
        table.add_row(name, by, f"{change:.1e}" if change < 1e-3 else f"{100 * change:.1f} %")
    return table
