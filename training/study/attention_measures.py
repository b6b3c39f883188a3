"""How local the attention of one patch is: numbers about its row over the patches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from training.encodings.grid import Grid
from training.study.decay_measures import is_undefined, ranks, spearman
from wefpe_core.errors import InputError

Numbers = npt.NDArray[np.float64]

_DIGITS = 12  # of attention in units of uniform attention


@dataclass(frozen=True)
class Locality:
    """Statistics of the attention of one query over the patches of a grid.

    Attributes
    ----------
    spearman
        Rank correlation of distance and attention: -1 if attention falls with every step away, NaN
        if it is the same everywhere.
    query_rank
        Place of the query among the patches by the attention it gives them, 1 the first; patches
        with equal attention share the mean of their places.
    relative_distance
        Mean distance weighted by attention over that of equal weights: 0 if all goes to the query
        itself, 1 for uniform attention.
    max_over_min
        Largest over smallest attention.
    relative_entropy
        Entropy over that of uniform attention: 1 if uniform, 0 if all goes to one patch.
    largest_row, largest_column
        Where the attention is largest; None if it is the same everywhere.
    """

    spearman: float
    query_rank: float
    relative_distance: float
    max_over_min: float
    relative_entropy: float
    largest_row: int | None
    largest_column: int | None

    @property
    def query_is_largest(self) -> bool | None:
        """Whether the query gives itself more than any other patch; None if all get the same."""
        return None if self.largest_row is None else self.query_rank == 1.0


def distances_from(query: tuple[int, int], grid: Grid) -> Numbers:
    """Euclidean distance of every patch from the query, in patches, (height, width)."""
    rows, columns = np.indices(grid)
    distances: Numbers = np.hypot(rows - query[0], columns - query[1])
    return distances


def locality(attention: Numbers, query: tuple[int, int]) -> Locality:
    """The statistics of an attention map (height, width) of patches; it need not sum to 1."""
    check_query(query, attention.shape)
    weights = attention / attention.sum()
    distances = distances_from(query, attention.shape)
    # What differs by rounding only is equal, and has no order.
    ordered = np.round(weights * weights.size, _DIGITS).ravel()
    row: int | None = None
    column: int | None = None
    if not is_undefined(ordered):
        row, column = divmod(int(ordered.argmax()), weights.shape[1])
    return Locality(
        spearman=spearman(distances.ravel(), ordered),
        query_rank=1.0 + float(ranks(-ordered)[query[0] * weights.shape[1] + query[1]]),
        relative_distance=float((weights * distances).sum() / distances.mean()),
        max_over_min=float(weights.max() / weights.min()) if weights.min() > 0 else float("inf"),
        relative_entropy=relative_entropy(weights),
        largest_row=row,
        largest_column=column,
    )


def check_query(query: tuple[int, int], grid: tuple[int, ...]) -> None:
    """Refuse a grid with nothing to compare, and a query outside of it."""
    height, width = grid
    if height * width < 2:
        raise InputError("a grid of one patch has no distances: nothing to compare")
    if not (0 <= query[0] < height and 0 <= query[1] < width):
        raise InputError(f"the query {query} is not one of the {height} x {width} patches")


def relative_entropy(weights: Numbers) -> float:
    """Entropy of a map over that of a uniform one: 1 if uniform, 0 if all is in one patch."""
    shares = weights[weights > 0] / weights.sum()
    return float(-(shares * np.log(shares)).sum() / np.log(weights.size))


# Attention rollout: how much of each token reaches each other through all layers.
#
# After S. Abnar and W. Zuidema, Quantifying Attention Flow in Transformers (ACL 2020): the mean
# over heads, half of it and half identity for the residual path, multiplied over the layers.


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
