"""Three ways to measure decay with distance, by name: ours, the paper's text, the authors' script.

They differ in what is compared (the encoding, or random content plus the encoding), in how pairs
are gathered (by distance, or in bins of relative distance), and in an affine map of the result.
NumPy only: the claims use it where there is no torch.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from training.analyses.decay_statistics import (
    Array,
    Pairs,
    bootstrapped_pearson,
    explained_by_distance,
    is_undefined,
    mean_by_distance,
    pair_values,
    pearson,
    share_of_decreasing_steps,
    spearman,
)

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
