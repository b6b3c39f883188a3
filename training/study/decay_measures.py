"""Three ways to measure decay with distance, by name: ours, the paper's text, the authors' script.

They differ in what is compared (the encoding, or random content plus the encoding), in how pairs
are gathered (by distance, or in bins of relative distance), and in an affine map of the result.
NumPy only: the claims use it where there is no torch.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wefpe_core.errors import InputError

if TYPE_CHECKING:
    from training.encodings import AbstractEncoding
    from training.encodings.grid import Grid


# How a quantity of pairs of patches depends on their distance. NumPy only.
#
# All pairs of different patches count once. A statistic that is not defined, as a correlation with
# something constant, is NaN.

Array = npt.NDArray[Any]

# Spread, relative to the largest value, that rounding leaves of a constant.
_CONSTANT = 1e-12


class Pairs(NamedTuple):
    """All pairs of different patches: indices, squared distance, and its rank."""

    first: Array
    second: Array
    squared: Array
    distances: Array  # the distinct distances in patches, ascending
    group: Array  # for each pair, the position of its distance among them


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
    """Whether there is nothing to correlate: not all finite, or constant up to rounding."""
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
    """Ranks from 0; equal values share the mean of theirs."""
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

    Patches are drawn with replacement, not pairs: the pairs of a patch share it, and drawn one
    by one they would pass for independent. Pairs of a patch with itself are left out.
    """
    values, distance = pair_values(matrix, pairs), np.sqrt(pairs.squared)
    if is_undefined(values) or is_undefined(distance):
        return np.full(resamples, np.nan)
    count = len(matrix)
    drawn = rng.multinomial(count, np.full(count, 1 / count), size=resamples).astype(float)
    # Moments are sums over i, j of w_i w_j K_ij; centred first, so that little cancels.
    x, y = distance - distance.mean(), values - values.mean()
    weight, *sums = (
        _quadratic(drawn, _symmetric(each, pairs, count))
        for each in (np.ones_like(x), x, y, x * x, y * y, x * y)
    )
    mean_x, mean_y, xx, yy, xy = (total / np.maximum(weight, 1) for total in sums)
    spread = (xx - mean_x**2) * (yy - mean_y**2)
    # A draw of one patch only, or of one distance only, has no correlation.
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


RANGE = (6.0, 20.0)  # to which the authors map the cosines, smallest to largest
PRINTED_BINS = 80
# Means that differ by less than this share of the range of what they average are equal: where
# a symmetry makes them so, rounding would otherwise pass for a curve.
_FLAT = 1e-9


class Bins(NamedTuple):
    """Edges of relative distance from 0 to 100, and whether the last bin has its right edge."""

    edges: Array
    is_last_closed: bool


# np.linspace(0, 100, 80) makes 79 bins; half-open ones lose the two longest pairs of a square.
SCRIPT_BINS = Bins(np.linspace(0, 100, PRINTED_BINS), is_last_closed=False)
TEXT_BINS = Bins(np.linspace(0, 100, PRINTED_BINS + 1), is_last_closed=True)


class Binned(NamedTuple):
    """Mean similarity at each distance, or of the non-empty bins of relative distance."""

    centres: Array
    means: Array


def binned_similarity(
    matrix: Array,
    pairs: Pairs,
    bounds: tuple[float, float] = RANGE,
    bins: Bins = SCRIPT_BINS,
) -> Binned:
    """The entries of all pairs, mapped to `bounds`, averaged in bins of relative distance."""
    values = pair_values(matrix, pairs)
    if is_undefined(values):  # cannot be mapped to a range
        strength = np.full(values.shape, np.nan)
    else:
        unit = (values - values.min()) / (values.max() - values.min())
        strength = bounds[0] + (bounds[1] - bounds[0]) * unit
    distance = np.sqrt(pairs.squared)
    relative = 100 * distance / distance.max()
    last = bins.edges.size - 2
    bin_of = np.digitize(relative, bins.edges) - 1
    if bins.is_last_closed:
        bin_of = np.minimum(bin_of, last)
    inside = bin_of <= last
    count = np.bincount(bin_of[inside], minlength=last + 1)
    total = np.bincount(bin_of[inside], strength[inside], minlength=last + 1)
    filled = count > 0
    centres = (bins.edges[:-1] + bins.edges[1:]) / 2
    return Binned(centres[filled], total[filled] / count[filled])


class DecayTable(NamedTuple):
    """The rows of the paper's table 1 that a run produces."""

    correlation: float
    initial: float
    final: float
    decay: float  # in %
    monotone: float  # in % of the steps between bins


def table_of(binned: Binned) -> DecayTable:
    if not binned.means.size:  # half-open bins of a grid with one distance hold nothing
        return DecayTable(*(np.nan,) * 5)
    first, last = float(binned.means[0]), float(binned.means[-1])
    return DecayTable(
        correlation=pearson(binned.centres, binned.means),
        initial=first,
        final=last,
        # A percentage of something that is not positive would say nothing.
        decay=100 * (first - last) / first if first > 0 else np.nan,
        monotone=100 * share_of_decreasing_steps(binned.means),
    )


class Protocol(NamedTuple):
    """One way to measure."""

    name: str
    meaning: str
    adds_content: bool  # compare content plus position, which needs a table
    bins: Bins | None  # None: by distance, and nothing is mapped


PROTOCOLS = {
    protocol.name: protocol
    for protocol in (
        Protocol(
            "ours",
            "the encoding alone, all pairs, mean for each distance, nothing mapped",
            adds_content=False,
            bins=None,
        ),
        Protocol(
            "paper",
            "as the text says: the encoding alone, mapped to [6, 20], 80 bins of distance",
            adds_content=False,
            bins=TEXT_BINS,
        ),
        Protocol(
            "authors",
            "as the published script does: N(0, 1) content plus the encoding, mapped to [6, 20], "
            "79 half-open bins of distance",
            adds_content=True,
            bins=SCRIPT_BINS,
        ),
    )
}


class Decay(NamedTuple):
    """What a protocol finds for one matrix; NaN where something is not defined."""

    raw: float  # Pearson, over all pairs
    spearman: float  # over all pairs
    binned: float  # Pearson, over the means
    monotone: float  # % of the steps between means that go down
    explained: float  # R² of the entries given the distance
    initial: float  # the first mean
    final: float  # the last mean
    decay: float  # % of the first mean


def curve_of(matrix: Array, pairs: Pairs, protocol: Protocol) -> Binned:
    """Mean against distance, as the protocol gathers it."""
    if protocol.bins is None:
        values = pair_values(matrix, pairs)
        return _flattened(
            Binned(pairs.distances, mean_by_distance(matrix, pairs)), float(np.ptp(values))
        )
    curve = binned_similarity(matrix, pairs, bins=protocol.bins)
    return _flattened(curve, RANGE[1] - RANGE[0])


def _flattened(curve: Binned, reach: float) -> Binned:
    """The curve, or a constant if it varies by rounding only."""
    if curve.means.size and np.ptp(curve.means) <= _FLAT * reach:
        return Binned(curve.centres, np.full_like(curve.means, curve.means.mean()))
    return curve


def standardised_curve(matrix: Array, pairs: Pairs) -> Array:
    """S(d) in deviations of all pairs from their mean, to compare quantities of any unit.

    Its mean square over the pairs is the R² of the distance. NaN where all pairs are equal.
    """
    values = pair_values(matrix, pairs)
    if is_undefined(values):
        return np.full(pairs.distances.shape, np.nan)
    return (curve_of(matrix, pairs, PROTOCOLS["ours"]).means - values.mean()) / values.std()


def measure(matrix: Array, pairs: Pairs, protocol: Protocol) -> Decay:
    """All statistics of one matrix under one protocol."""
    values, distance = pair_values(matrix, pairs), np.sqrt(pairs.squared)
    table = table_of(curve_of(matrix, pairs, protocol))
    return Decay(
        raw=pearson(distance, values),
        spearman=spearman(distance, values),
        binned=table.correlation,
        monotone=table.monotone,
        explained=explained_by_distance(matrix, pairs),
        initial=table.initial,
        final=table.final,
        decay=table.decay,
    )


def resampled_raw(matrix: Array, pairs: Pairs, resamples: int, seed: int) -> Array:
    """Raw Pearson coefficients of resampled patches, the same draws for every encoding."""
    return bootstrapped_pearson(matrix, pairs, np.random.default_rng([seed, 2]), resamples)


# How strongly an encoding lets two patches interact: one symmetric N x N matrix for each kind.
#
# - additive: the cosine of the rows of the table;
# - rotary: E<R_i x, R_j x> / sqrt(E|R_i x|² E|R_j x|²) over random contents x without a preferred
#   direction, in the first layer, averaged over heads. Such expectations are traces, so nothing is
#   sampled. Where R keeps lengths (RoPE) this is E<R_i x, R_j x>/|x|²; FoPE does not, and dividing
#   by the mean lengths leaves the part that is agreement of direction, as a cosine does;
# - bias: the bias of the first layer, averaged over heads and both directions. Its unit is a
#   logit, not a cosine;
# - none: 1 for all pairs.
#
# What a patch has to do with itself stands on the diagonal and in no statistic.


def interaction_matrix(encoding: AbstractEncoding, grid: Grid) -> Array:
    """The interaction of all patches of the grid, (N, N), by the definition of its kind."""
    if encoding.kind == "additive":
        table = position_table(encoding, grid)
        assert table is not None
        return cosine_matrix(table)
    if encoding.kind == "rotary":
        return _rotary(encoding, grid)
    if encoding.kind == "bias":
        bias = encoding.bias(grid, 0)
        assert bias is not None
        mean: Array = bias.detach().double().numpy().mean(axis=0)
        return (mean + mean.T) / 2
    if encoding.kind == "combined":
        raise InputError(
            "combined has no one interaction, since its parts act in different places; name them "
            "one by one"
        )
    return np.ones((grid[0] * grid[1],) * 2)


def position_table(encoding: AbstractEncoding, grid: Grid) -> Array | None:
    """What is added to the patches, (N, dim); None if the encoding adds nothing."""
    table = encoding.additive(grid)
    return None if table is None else table.detach().double().numpy()


def cosine_matrix(vectors: Array) -> Array:
    """Cosines of all rows; NaN for rows of zeros, which have no direction."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = vectors / np.where(length > 0, length, np.nan)
    return unit @ unit.T


def content_fused(table: Array, rng: np.random.Generator) -> Array:
    """The authors' vectors: content of N(0, 1), drawn for each patch, plus the position."""
    return rng.standard_normal(table.shape) + table


def _rotary(encoding: AbstractEncoding, grid: Grid) -> Array:
    """Frobenius cosines of the maps R_i: E<Ax, Bx> is tr(AᵀB) times a constant."""
    import torch

    size, patches = encoding.size, grid[0] * grid[1]
    basis = torch.eye(size.head_dim, dtype=torch.float64)
    tokens = basis[:, None, None].expand(-1, size.num_heads, patches, -1)
    turned = encoding.rotate(tokens, tokens, grid, 0)[0].detach().numpy()
    maps = turned.transpose(1, 2, 0, 3).reshape(size.num_heads, patches, -1)
    return np.mean([cosine_matrix(head) for head in maps], axis=0)
