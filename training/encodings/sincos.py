"""Fixed 2-D sine-cosine positions, in the four published conventions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from training.encodings.encoding import AbstractEncoding, EncodingSize, prefix_rows
from training.encodings.grid import Grid, checked_grid, patch_indices
from training.encodings.options import option
from wefpe_core.errors import InputError


@dataclass(frozen=True, kw_only=True)
class SinCosOptions:
    """Options of `sincos2d`."""

    convention: Literal["mae", "big_vision", "timm", "wef_authors"] = option(
        "mae",
        "frequencies and order of channels: mae [sin x, cos x, sin y, cos y]; big_vision the same "
        "with exponents i/(m-1) (also MoCo v3, SimpleViT); timm [sin y, sin x, cos y, cos x]; "
        "wef_authors interleaved",
    )
    temperature: float = option(10000.0, "ratio of the slowest to the fastest period", above=0.0)
    scale: float = option(1.0, "factor before the table (for controls of equal strength)", above=0)
    class_token: Literal["zero", "learned"] | None = option(
        None, "position of the class token; unset: learned for wef_authors, zero otherwise"
    )


class SinCosEncoding(AbstractEncoding):
    r"""Sines and cosines of column and row times geometric frequencies.

    With m = dim/4, :math:`f_i = T^{-i/m}` (big_vision: :math:`T^{-i/(m-1)}`), on integer columns x
    and rows y.
    """

    name = "sincos2d"
    kind = "additive"
    summary = "fixed sines and cosines of column and row"
    formula = "x_i + [sin(x f), cos(x f), sin(y f), cos(y f)]"
    options_class = SinCosOptions

    def __init__(self, size: EncodingSize, options: SinCosOptions) -> None:
        super().__init__(size)
        if size.dim % 4:
            raise InputError(f"sincos2d needs dim divisible by 4, got {size.dim}")
        if options.convention == "big_vision" and size.dim < 8:
            raise InputError(f"sincos2d of big_vision needs dim of at least 8, got {size.dim}")
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

    def _make(self, grid: Grid) -> Tensor:
        options, m = self.options, self.size.dim // 4
        steps = m - 1 if options.convention == "big_vision" else m
        exponents = torch.arange(m, dtype=self.working_dtype, device=self.device) / steps
        frequencies = options.temperature**-exponents
        x, y = patch_indices(grid, self.working_dtype, self.device)
        angle_x, angle_y = x[:, None] * frequencies, y[:, None] * frequencies
        along_x, along_y = ((torch.sin(angle), torch.cos(angle)) for angle in (angle_x, angle_y))
        if options.convention == "timm":
            parts = [along_y[0], along_x[0], along_y[1], along_x[1]]
        else:
            parts = [*along_x, *along_y]
        if options.convention == "wef_authors":
            table = torch.stack(parts, dim=-1).flatten(1)
        else:
            table = torch.cat(parts, dim=-1)
        return (options.scale * table).to(self.dtype)

    def prefix(self, n: int) -> Tensor | None:
        rows = self.class_encoding
        return super().prefix(n) if rows is None else prefix_rows(rows, n)
