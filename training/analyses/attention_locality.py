"""How local the attention of one patch is: numbers about its row over the patches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from training.encodings.grid import Grid
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
        Where the attention is largest.
    """

    spearman: float
    query_rank: float
    relative_distance: float
    max_over_min: float
    relative_entropy: float
    largest_row: int
    largest_column: int


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
    row, column = np.unravel_index(int(weights.argmax()), weights.shape)
    positive = weights[weights > 0]
    entropy = float(-(positive * np.log(positive)).sum())
    return Locality(
        spearman=rank_correlation(distances.ravel(), ordered),
        query_rank=float(_ranks(-ordered)[query[0] * weights.shape[1] + query[1]]),
        relative_distance=float((weights * distances).sum() / distances.mean()),
        max_over_min=float(weights.max() / weights.min()) if weights.min() > 0 else float("inf"),
        relative_entropy=entropy / float(np.log(weights.size)),
        largest_row=int(row),
        largest_column=int(column),
    )


def check_query(query: tuple[int, int], grid: tuple[int, ...]) -> None:
    """Refuse a grid with nothing to compare, and a query outside of it."""
    height, width = grid
    if height * width < 2:
        raise InputError("a grid of one patch has no distances: nothing to compare")
    if not (0 <= query[0] < height and 0 <= query[1] < width):
        raise InputError(f"the query {query} is not one of the {height} x {width} patches")


def rank_correlation(x: Numbers, y: Numbers) -> float:
    """Spearman's coefficient; NaN if one of the two is constant."""
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    return float(np.corrcoef(_ranks(x), _ranks(y))[0, 1])


def _ranks(values: Numbers) -> Numbers:
    """Places from 1 in ascending order, equal values sharing the mean of theirs."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: Numbers = (last - (counts - 1) / 2.0)[which]
    return ranks
