"""Attention rollout: how much of each token reaches each other through all layers.

After S. Abnar and W. Zuidema, Quantifying Attention Flow in Transformers (ACL 2020): the mean over
heads, half of it and half identity for the residual path, multiplied over the layers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from wefpe_core.errors import InputError

Numbers = npt.NDArray[np.float64]


def rollout(layers: Sequence[Tensor]) -> Tensor:
    """The rollout (batch, tokens, tokens) of attention maps (batch, heads, tokens, tokens).

    Row i says of which tokens of the first layer token i of the last is made; rows sum to 1.
    """
    if not layers:
        raise InputError("a rollout needs the attention of one layer at least")
    total: Tensor | None = None
    for attention in layers:
        mean = attention.to(torch.float64).mean(dim=1)
        mixed = 0.5 * mean + 0.5 * torch.eye(mean.shape[-1], dtype=mean.dtype, device=mean.device)
        mixed = mixed / mixed.sum(dim=-1, keepdim=True)
        total = mixed if total is None else mixed @ total
    assert total is not None
    return total


def map_of_rollout(rolled: Tensor, grid: tuple[int, int], *, pooling: str) -> Numbers:
    """The patches what the head sees is made of, (batch, height, width), each summing to 1.

    That is the row of the class token, or with mean pooling the mean of the rows of the patches.
    Columns of prefix tokens are left out.
    """
    first = rolled.shape[-1] - grid[0] * grid[1]
    row = rolled[:, 0] if pooling == "token" else rolled[:, first:].mean(dim=1)
    patches = row[:, first:]
    patches = patches / patches.sum(dim=-1, keepdim=True)
    maps: Numbers = patches.reshape(-1, *grid).cpu().numpy()
    return maps


def share_in_centre(weights: Numbers) -> float:
    """Share of a map in the middle half of height and width; patches cut by its edge in part."""
    height, width = weights.shape
    covered = _middle(height)[:, None] * _middle(width)[None, :]
    return float((weights * covered).sum() / weights.sum())


def _middle(count: int) -> Numbers:
    """How much of each of `count` equal stretches lies in the middle half of them all."""
    edges = np.arange(count + 1) / count
    inside = np.clip(edges, 0.25, 0.75)
    covered: Numbers = np.diff(inside) * count
    return covered


def map_correlation(one: Numbers, other: Numbers) -> float:
    """Pearson's correlation of two maps, on the finer grid if theirs differ; NaN if one is flat."""
    if one.shape != other.shape:
        finer = max(one.shape, other.shape, key=lambda shape: shape[0] * shape[1])
        one, other = (_resized(each, finer) for each in (one, other))
    if np.ptp(one) == 0 or np.ptp(other) == 0:
        return float("nan")
    return float(np.corrcoef(one.ravel(), other.ravel())[0, 1])


def _resized(weights: Numbers, shape: tuple[int, ...]) -> Numbers:
    image = torch.from_numpy(weights)[None, None]
    resized = torch.nn.functional.interpolate(image, size=shape, mode="bilinear")
    values: Numbers = resized[0, 0].numpy()
    return values
