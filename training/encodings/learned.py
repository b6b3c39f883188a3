"""Learned absolute positions (ViT, DeiT): a table with a row for every patch of one grid."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from backends.torch_ops import without_autocast
from training.encodings.encoding import (
    AbstractEncoding,
    checked_points,
    prefix_rows,
    working_dtype,
)
from training.encodings.grid import Grid, checked_grid
from training.encodings.options import LearnedOptions
from training.encodings.options import Resampling as Resampling
from training.encodings.size import EncodingSize
from wefpe_core.errors import InputError

# The published methods as arguments of torch's interpolation.
_METHODS: dict[Resampling, dict[str, Any]] = {
    "bicubic_antialias": {"mode": "bicubic", "align_corners": False, "antialias": True},
    "bicubic": {"mode": "bicubic", "align_corners": False},
    "bilinear_antialias": {"mode": "bilinear", "align_corners": False, "antialias": True},
    "bilinear": {"mode": "bilinear", "align_corners": False},
    "bilinear_corners": {"mode": "bilinear", "align_corners": True},
}


def resample_table(table: Tensor, grid: Grid, target: Grid, method: Resampling) -> Tensor:
    """A row-major table (height*width, dim) of `grid` on the grid `target`.

    On its own grid the table itself is returned. Otherwise it is interpolated in float64 and cast
    back once.
    """
    if grid == target:
        return table
    with without_autocast(table.device):
        image = table.to(working_dtype(table.device)).reshape(1, *grid, -1).permute(0, 3, 1, 2)
        image = F.interpolate(image, size=target, **_METHODS[method])
        return image.permute(0, 2, 3, 1).reshape(target[0] * target[1], -1).to(table.dtype)


def resampling_of(encoding: AbstractEncoding) -> Resampling | None:
    """The method by which an encoding brings its table to another grid; None without a table."""
    method: Resampling | None = getattr(getattr(encoding, "options", None), "resampling", None)
    return method


def set_resampling(encoding: AbstractEncoding, method: Resampling) -> None:
    """Change the method by which an encoding brings its learned table to another grid."""
    if resampling_of(encoding) is None:
        raise InputError(f"{encoding.name} has no learned table that could be resampled")
    if method not in _METHODS:
        raise InputError(f"there is no method {method!r}; there are {', '.join(_METHODS)}")
    owner: Any = encoding
    owner.options = owner.options.model_copy(update={"resampling": method})


class PatchTable(nn.Module):
    """One learned row per patch of a grid, and rows for class and register tokens."""

    def __init__(
        self, dim: int, grid: Grid, prefix_tokens: int, std: float, layout: str = "grid"
    ) -> None:
        super().__init__()
        self.grid = grid
        height, width = grid
        if layout == "factorised":
            self.rows = nn.Parameter(torch.empty(height, dim))
            self.columns = nn.Parameter(torch.empty(width, dim))
            self.patches = None
        else:
            self.patches = nn.Parameter(torch.empty(height * width, dim))
        self.tokens = nn.Parameter(torch.empty(prefix_tokens, dim)) if prefix_tokens else None
        for parameter in self.parameters():
            nn.init.trunc_normal_(parameter, std=std)  # cut at -2 and 2, as in timm

    def on_grid(self, grid: Grid, method: Resampling) -> Tensor:
        """The table of the patches, (height*width, dim), resampled to another grid."""
        if self.patches is not None:
            return resample_table(self.patches, self.grid, grid, method)
        height, width = self.grid
        rows = resample_table(self.rows, (height, 1), (grid[0], 1), method)
        columns = resample_table(self.columns, (1, width), (1, grid[1]), method)
        return (rows[:, None, :] + columns[None, :, :]).reshape(grid[0] * grid[1], -1)

    def load(self, patches: Tensor, grid: Grid, tokens: Tensor | None, method: Resampling) -> None:
        """Take over a pre-trained table, resampled to this grid."""
        grid = checked_grid(grid)
        if self.patches is None:
            raise InputError("a factorised table cannot take over one row per patch")
        dim = self.patches.shape[1]
        if tuple(patches.shape) != (grid[0] * grid[1], dim):
            raise InputError(
                f"the table for the grid {grid} must have the shape "
                f"{(grid[0] * grid[1], dim)}, got {tuple(patches.shape)}"
            )
        held = 0 if self.tokens is None else self.tokens.shape[0]
        given = 0 if tokens is None else tokens.shape[0]
        if given != held or (tokens is not None and tokens.shape[1] != dim):
            shape = None if tokens is None else tuple(tokens.shape)
            raise InputError(f"rows for {held} prefix tokens of {dim} are needed, got {shape}")
        with torch.no_grad():
            self.patches.copy_(resample_table(patches, grid, self.grid, method))
            if self.tokens is not None and tokens is not None:
                self.tokens.copy_(tokens)


class LearnedEncoding(AbstractEncoding):
    """A learned vector for each patch; other grids see the table resampled."""

    name = "learned"
    kind = "additive"
    summary = "learned absolute positions, resampled to other grids"
    formula = "x_i + E_i"
    options_class = LearnedOptions

    def __init__(self, size: EncodingSize, options: LearnedOptions) -> None:
        super().__init__(size)
        self.options = options
        self.positions = PatchTable(
            size.dim, size.grid, options.prefix_tokens, options.initial_std, options.layout
        )

    def additive(self, grid: Grid) -> Tensor:
        grid = checked_grid(grid)
        method = self.options.resampling
        return self.table(("patches", grid), lambda: self.positions.on_grid(grid, method))

    def additive_at(self, points: Tensor) -> Tensor:
        """The table read between its entries; beyond the outer ones the last one stands."""
        u, v = checked_points(points)
        table = self.positions.on_grid(self.size.grid, self.options.resampling).to(u.dtype)
        image = table.reshape(1, *self.size.grid, -1).permute(0, 3, 1, 2)
        places = (2.0 * torch.stack((u, v), -1) - 1.0).reshape(1, 1, -1, 2)
        method = "bicubic" if self.options.resampling.startswith("bicubic") else "bilinear"
        read = F.grid_sample(image, places, mode=method, padding_mode="border", align_corners=False)
        return read[0, :, 0].t().reshape(*u.shape, -1).to(self.dtype)

    def prefix(self, n: int) -> Tensor | None:
        tokens = self.positions.tokens
        return super().prefix(n) if tokens is None else prefix_rows(tokens, n)

    def brought_here(self, tensors: dict[str, Tensor], grid: Grid) -> dict[str, Tensor]:
        """The table, resampled as the option says."""
        patches = tensors.get("positions.patches")
        if patches is None or grid == self.size.grid:
            return tensors
        table = resample_table(patches, grid, self.size.grid, self.options.resampling)
        return {**tensors, "positions.patches": table}

    def load_table(self, patches: Tensor, grid: Grid, tokens: Tensor | None = None) -> None:
        """Take over a pre-trained table (height*width, dim) and its prefix rows."""
        self.positions.load(patches, grid, tokens, self.options.resampling)
