"""How local the attention of one patch is: numbers about its row over the patches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from training.analyses.decay_statistics import is_undefined, ranks, spearman
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
