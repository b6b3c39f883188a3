"""Fixed 2-D sine-cosine positions, in the four published conventions and a periodic one."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from training.encodings.encoding import AbstractEncoding, checked_points, prefix_rows
from training.encodings.grid import (
    Grid,
    checked_grid,
    patch_centres,
    patch_indices,
    whole_waves,
)
from training.encodings.options import SinCosOptions
from training.encodings.size import EncodingSize


class SinCosEncoding(AbstractEncoding):
    r"""Sines and cosines of column and row times geometric frequencies.

    With m = dim/4, :math:`f_i = T^{-i/m}` (big_vision: :math:`T^{-i/(m-1)}`), on integer columns x
    and rows y. The convention "periodic" has whole numbers of waves over the image instead.
    """

    name = "sincos2d"
    kind = "additive"
    summary = "fixed sines and cosines of column and row"
    formula = "x_i + [sin(x f), cos(x f), sin(y f), cos(y f)]"
    options_class = SinCosOptions

    def __init__(self, size: EncodingSize, options: SinCosOptions) -> None:
        super().__init__(size)
        self.options = options
        learned = options.class_token or (
            "learned" if options.convention == "wef_authors" else "zero"
        )
        self.class_encoding = None
        if learned == "learned":
            self.class_encoding = nn.Parameter(torch.empty(1, size.dim))
            nn.init.trunc_normal_(self.class_encoding, std=0.02)

    def additive(self, grid: Grid) -> Tensor:
        grid = checked_grid(grid)
        return self.table(("patches", grid), lambda: self._make(grid), depends_on=())

    def additive_at(self, points: Tensor) -> Tensor:
        u, v = checked_points(points)
        height, width = self.size.grid
        return self._of(u, v, u * width - 0.5, v * height - 0.5)

    def _make(self, grid: Grid) -> Tensor:
        dtype, device = self.working_dtype, self.device
        return self._of(*patch_centres(grid, dtype, device), *patch_indices(grid, dtype, device))

    def _of(self, u: Tensor, v: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """The table at shares u, v of the image, which are columns x and rows y."""
        options, m = self.options, self.size.dim // 4
        dtype, device = self.working_dtype, u.device
        if options.convention == "periodic":
            x, y = 2.0 * math.pi * u, 2.0 * math.pi * v
            height, width = self.size.grid
            along, down = (whole_waves(m, side, dtype, device) for side in (width, height))
        else:
            steps = m - 1 if options.convention == "big_vision" else m
            exponents = torch.arange(m, dtype=dtype, device=device) / steps
            along = down = options.temperature**-exponents
        angle_x, angle_y = x[..., None] * along, y[..., None] * down
        along_x, along_y = ((torch.sin(angle), torch.cos(angle)) for angle in (angle_x, angle_y))
        if options.convention == "timm":
            parts = [along_y[0], along_x[0], along_y[1], along_x[1]]
        else:
            parts = [*along_x, *along_y]
        if options.convention == "wef_authors":
            table = torch.stack(parts, dim=-1).flatten(-2)
        else:
            table = torch.cat(parts, dim=-1)
        return (options.scale * table).to(self.dtype)

    def prefix(self, n: int) -> Tensor | None:
        rows = self.class_encoding
        return super().prefix(n) if rows is None else prefix_rows(rows, n)
