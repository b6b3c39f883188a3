"""Learned tables on another grid, by the published methods, each by name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import torch.nn.functional as F  # noqa: N812 - torch's own name
from torch import Tensor

from training.encodings.encoding import AbstractEncoding
from training.encodings.grid import Grid
from training.encodings.precision import without_autocast, working_dtype
from wefpe_core.errors import InputError

Resampling = Literal[
    "bicubic_antialias", "bicubic", "bilinear_antialias", "bilinear", "bilinear_corners"
]

_METHODS: dict[str, dict[str, Any]] = {
    "bicubic_antialias": {"mode": "bicubic", "align_corners": False, "antialias": True},
    "bicubic": {"mode": "bicubic", "align_corners": False},
    "bilinear_antialias": {"mode": "bilinear", "align_corners": False, "antialias": True},
    "bilinear": {"mode": "bilinear", "align_corners": False},
    "bilinear_corners": {"mode": "bilinear", "align_corners": True},
}

RESAMPLING_MEANING = (
    "how the table is brought to another grid: bicubic_antialias (timm), bicubic (DeiT, "
    "Hugging Face), bilinear (the WEF-PE scripts), bilinear_corners (ViT, big_vision)"
)


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
    """By which method an encoding brings its learned table to another grid; None without one."""
    method: Resampling | None = getattr(getattr(encoding, "options", None), "resampling", None)
    return method


def set_resampling(encoding: AbstractEncoding, method: Resampling) -> None:
    """Let an encoding with a learned table resample it by another method from now on."""
    if resampling_of(encoding) is None:
        raise InputError(f"{encoding.name} has no learned table that could be resampled")
    if method not in _METHODS:
        raise InputError(f"there is no method {method!r}; there are {', '.join(_METHODS)}")
    owner: Any = encoding
    owner.options = replace(owner.options, resampling=method)
    encoding.drop_tables()  # those made by the method before
