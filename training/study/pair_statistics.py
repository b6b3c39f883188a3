"""How a quantity of pairs of patches depends on their distance. NumPy only.

All pairs of different patches count once. A statistic that is not defined, such as a correlation
with a constant, is NaN. The claims use this module where there is no torch and no scipy.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from training.encodings.size import Grid
from wefpe_core.errors import InputError

Array = npt.NDArray[Any]

# The spread of a constant after rounding, relative to its size.
_CONSTANT = 1e-12


class Pairs(NamedTuple):
    """All pairs of different patches: their indices and distances."""

    first: Array
    second: Array
    squared: Array
    distances: Array  # the distinct distances in patches, ascending
    group: Array  # for each pair, the index of its distance among them


@lru_cache(maxsize=8)
def patch_pairs(grid: Grid) -> Pairs:
    """The pairs of a grid (height, width), patches numbered row by row."""
    height, width = grid
    if height * width < 2:
        raise InputError(f"a grid of {height}x{width} has no pair of patches: nothing to compare")
    row, column = np.divmod(np.arange(height * width), width)
    first, second = np.triu_indices(height * width, 1)
    squared = (row[first] - row[second]) ** 2 + (column[first] - column[second]) ** 2
    distinct, group = np.unique(squared, return_inverse=True)
    return Pairs(first, second, squared, np.sqrt(distinct), group)


def pair_values(matrix: Array, pairs: Pairs) -> Array:
    """The entries of a symmetric matrix that belong to the pairs."""
    return matrix[pairs.first, pairs.second]


def is_undefined(values: Array) -> bool:
    """Whether there is nothing to correlate: a value is not finite, or all are equal."""
    if values.size < 2 or not np.isfinite(values).all():
        return True
    return bool(np.ptp(values) <= _CONSTANT * np.abs(values).max())


def mean_by_distance(matrix: Array, pairs: Pairs) -> Array:
    """S(d): the mean over the pairs at each distance."""
    values = pair_values(matrix, pairs)
    return np.bincount(pairs.group, values) / np.bincount(pairs.group)


def explained_by_distance(matrix: Array, pairs: Pairs) -> float:
    """R² of the entries given the distance: 1 if they depend on it alone."""
    values = pair_values(matrix, pairs)
    if is_undefined(values):
        return np.nan
    residual = values - mean_by_distance(matrix, pairs)[pairs.group]
    return float(1 - residual.var() / values.var())


def pearson(first: Array, second: Array) -> float:
    if is_undefined(first) or is_undefined(second):
        return np.nan
    return float(np.corrcoef(first, second)[0, 1])


def ranks(values: Array) -> Array:
    """Ranks from 0; equal values share the mean of their ranks."""
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    after = np.cumsum(counts)
    return (after - (counts + 1) / 2)[group]


def spearman(first: Array, second: Array) -> float:
    if is_undefined(first) or is_undefined(second):
        return np.nan
    return pearson(ranks(first), ranks(second))


def share_of_decreasing_steps(curve: Array) -> float:
    """The paper's monotonicity: the share of steps along the curve that go down."""
    if is_undefined(curve):
        return np.nan
    return float((np.diff(curve) < 0).mean())


def bootstrapped_pearson(
    matrix: Array, pairs: Pairs, rng: np.random.Generator, resamples: int
) -> Array:
    """Pearson's coefficient of distance and entry for resampled patches.

    Patches are drawn with replacement, not pairs: all pairs of a patch depend on it, and pairs
    drawn one by one would count as independent. Pairs of a patch with itself are left out.
    """
    values, distance = pair_values(matrix, pairs), np.sqrt(pairs.squared)
    if is_undefined(values) or is_undefined(distance):
        return np.full(resamples, np.nan)
    count = len(matrix)
    drawn = rng.multinomial(count, np.full(count, 1 / count), size=resamples).astype(float)
    # Moments are sums over i, j of w_i w_j K_ij. Centring first keeps digits from cancelling.
    x, y = distance - distance.mean(), values - values.mean()
    weight, *sums = (
        _quadratic(drawn, _symmetric(each, pairs, count))
        for each in (np.ones_like(x), x, y, x * x, y * y, x * y)
    )
    mean_x, mean_y, xx, yy, xy = (total / np.maximum(weight, 1) for total in sums)
    spread = (xx - mean_x**2) * (yy - mean_y**2)
    # A draw with a single patch or a single distance has no correlation.
    usable = (weight > 0) & (spread > (_CONSTANT * x.var()) * y.var())
    return np.where(usable, (xy - mean_x * mean_y) / np.sqrt(np.where(usable, spread, 1.0)), np.nan)


def _symmetric(values: Array, pairs: Pairs, count: int) -> Array:
    matrix = np.zeros((count, count))
    matrix[pairs.first, pairs.second] = values
    return matrix + matrix.T


def _quadratic(weights: Array, matrix: Array) -> Array:
    return ((weights @ matrix) * weights).sum(axis=1)


def interval(samples: Array, coverage: float = 0.95) -> tuple[float, float]:
    """The middle share of the samples that are defined; NaN if none is."""
    samples = samples[np.isfinite(samples)]
    if not samples.size:
        return np.nan, np.nan
    tail = 50 * (1 - coverage)
    low, high = np.percentile(samples, [tail, 100 - tail])
    return float(low), float(high)


def cosine_matrix(vectors: Array) -> Array:
    """Cosines of all rows; NaN for rows of zeros, which have no direction."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = vectors / np.where(length > 0, length, np.nan)
    return unit @ unit.T
