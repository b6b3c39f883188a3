"""Three ways to measure decay with distance, by name: ours, the paper's text, the authors' script.

They differ in what is compared (the encoding, or random content plus the encoding), in how pairs
are gathered (by distance, or in bins of relative distance), and in an affine map of the result.
The module needs NumPy only, as long as no encoding is measured: the claims use it without torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from training.encodings.size import Grid
from training.study.encoding_choice import DIM, EncodingChoice, null_meaning, nulls_beside
from training.study.pair_statistics import (
    Array,
    Pairs,
    bootstrapped_pearson,
    cosine_matrix,
    explained_by_distance,
    interval,
    is_undefined,
    mean_by_distance,
    pair_values,
    patch_pairs,
    pearson,
    share_of_decreasing_steps,
    spearman,
)
from wefpe_core.errors import InputError

if TYPE_CHECKING:
    from training.encodings import AbstractEncoding

RANGE = (6.0, 20.0)  # the authors map the smallest and the largest cosine to these
PRINTED_BINS = 80
# Means that differ by less than this share of the range of their values count as equal. Where
# a symmetry makes them equal, rounding would otherwise look like a curve.
_FLAT = 1e-9


class Bins(NamedTuple):
    """Edges of relative distance from 0 to 100; whether the last bin includes its right edge."""

    edges: Array
    is_last_closed: bool


# np.linspace(0, 100, 80) makes 79 bins. Half-open, they lose the two longest pairs of a square.
SCRIPT_BINS = Bins(np.linspace(0, 100, PRINTED_BINS), is_last_closed=False)
TEXT_BINS = Bins(np.linspace(0, 100, PRINTED_BINS + 1), is_last_closed=True)


class Binned(NamedTuple):
    """Mean similarity at each distance, or in the non-empty bins of relative distance."""

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
    if is_undefined(values):  # a constant cannot be mapped to a range
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
    if not binned.means.size:  # on a grid with one distance half-open bins are empty
        return DecayTable(*(np.nan,) * 5)
    first, last = float(binned.means[0]), float(binned.means[-1])
    return DecayTable(
        correlation=pearson(binned.centres, binned.means),
        initial=first,
        final=last,
        # A percentage of a number that is not positive has no meaning.
        decay=100 * (first - last) / first if first > 0 else np.nan,
        monotone=100 * share_of_decreasing_steps(binned.means),
    )


class Protocol(NamedTuple):
    """One way to measure."""

    name: str
    meaning: str
    adds_content: bool  # compare content plus position, which needs a table
    bins: Bins | None  # None: pairs are gathered by distance, and nothing is mapped


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
    """What a protocol finds for one matrix; NaN where a number is not defined."""

    raw: float  # Pearson, over all pairs
    spearman: float  # over all pairs
    binned: float  # Pearson, over the means
    monotone: float  # % of the steps between means that go down
    explained: float  # R² of the entries given the distance
    initial: float  # the first mean
    final: float  # the last mean
    decay: float  # % of the first mean
    least: float  # the least and the most of the means: the paper's "relative upper bound range"
    most: float


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
    """The curve, or a constant if it varies only by rounding."""
    if curve.means.size and np.ptp(curve.means) <= _FLAT * reach:
        return Binned(curve.centres, np.full_like(curve.means, curve.means.mean()))
    return curve


def standardised_curve(matrix: Array, pairs: Pairs) -> Array:
    """S(d) in standard deviations of all pairs from their mean, whatever the unit of the quantity.

    Its mean square over the pairs is the R² of the distance. It is NaN where all pairs are equal.
    """
    values = pair_values(matrix, pairs)
    if is_undefined(values):
        return np.full(pairs.distances.shape, np.nan)
    return (curve_of(matrix, pairs, PROTOCOLS["ours"]).means - values.mean()) / values.std()


def measure(matrix: Array, pairs: Pairs, protocol: Protocol) -> Decay:
    """All statistics of one matrix under one protocol."""
    values, distance = pair_values(matrix, pairs), np.sqrt(pairs.squared)
    curve = curve_of(matrix, pairs, protocol)
    table, means = table_of(curve), curve.means
    return Decay(
        raw=pearson(distance, values),
        spearman=spearman(distance, values),
        binned=table.correlation,
        monotone=table.monotone,
        explained=explained_by_distance(matrix, pairs),
        initial=table.initial,
        final=table.final,
        decay=table.decay,
        least=float(means.min()) if means.size else np.nan,
        most=float(means.max()) if means.size else np.nan,
    )


# --- How strongly an encoding lets two patches interact ----------------------------------------


def interaction_matrix(encoding: AbstractEncoding, grid: Grid) -> Array:
    """The interaction of all patches of the grid, a symmetric (N, N) matrix defined by its kind.

    - additive: the cosine of the rows of the table;
    - rotary: E<R_i x, R_j x> / sqrt(E|R_i x|² E|R_j x|²) over random contents x without a preferred
      direction, in the first layer, averaged over heads. Such expectations are traces, so nothing
      is sampled. Where R keeps lengths (RoPE) this is E<R_i x, R_j x>/|x|². FoPE does not keep
      them, and dividing by the mean lengths leaves the agreement of directions, as a cosine does;
    - bias: the bias of the first layer, averaged over heads and both directions. Its unit is a
      logit, not a cosine;
    - none: 1 for all pairs.

    The interaction of a patch with itself is on the diagonal and enters no statistic.
    """
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
    """The table that is added to the patches, (N, dim); None if the encoding adds nothing."""
    table = encoding.additive(grid)
    return None if table is None else table.detach().double().numpy()


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


# --- Measured over seeds ---------------------------------------------------------------------


@dataclass(frozen=True)
class DecayRow:
    """One encoding under one protocol, over seeds."""

    encoding: str
    kind: str
    protocol: str
    null: str  # what a null stands for; empty for other encodings
    seeds: int
    mean: Decay
    deviation: Decay  # standard deviation over the seeds; NaN for one seed
    low: float  # with `high`: 95 % of the raw coefficients of resampled patches, all seeds pooled
    high: float
    standardised: Array  # S(d) in standard deviations of all pairs, mean over the seeds


def measured_rows(
    choice: EncodingChoice,
    grid: Grid,
    seeds: Sequence[int],
    protocols: Sequence[str] = tuple(PROTOCOLS),
    resamples: int = 200,
) -> list[DecayRow]:
    """One encoding under each protocol."""
    pairs = patch_pairs(grid)
    seeds = tuple(dict.fromkeys(seeds))  # a seed named twice is one draw
    matrices: dict[str, list[Array]] = {name: [] for name in protocols}
    for seed in seeds:
        encoding = choice.build(grid, seed)
        alone = interaction_matrix(encoding, grid)
        for name, found in matrices.items():
            adds_content = PROTOCOLS[name].adds_content
            found.append(fused_cosines(encoding, grid, seed) if adds_content else alone)
    rows = []
    for name, found in matrices.items():
        values = np.array([measure(matrix, pairs, PROTOCOLS[name]) for matrix in found])
        # The patches that are drawn depend on the seed alone: they are the same for all encodings.
        resampled = [
            bootstrapped_pearson(matrix, pairs, np.random.default_rng([seed, 2]), resamples)
            for matrix, seed in zip(found, seeds, strict=True)
        ]
        deviation = (
            values.std(axis=0, ddof=1) if len(seeds) > 1 else np.full(values.shape[1], np.nan)
        )
        curves = [standardised_curve(matrix, pairs) for matrix in found]
        rows.append(
            DecayRow(
                choice.label,
                encoding.kind,
                name,
                null_meaning(choice.label),
                len(seeds),
                Decay(*values.mean(axis=0).tolist()),
                Decay(*deviation.tolist()),
                *interval(np.concatenate(resampled)),
                np.mean(curves, axis=0),
            )
        )
    return rows


def fused_cosines(encoding: AbstractEncoding, grid: Grid, seed: int) -> Array:
    """Cosines of content plus position.

    The authors' script adds a table. Without a position it compares content with content. For
    rotations and biases it is not defined.
    """
    patches = grid[0] * grid[1]
    if encoding.kind in ("rotary", "bias"):
        return np.full((patches, patches), np.nan)
    table = position_table(encoding, grid)
    if table is None:
        table = np.zeros((patches, DIM))
    # The generator differs from that of the weights, so that content and weights are independent.
    return cosine_matrix(content_fused(table, np.random.default_rng([seed, 1])))


def decay_rows(
    choices: Sequence[EncodingChoice],
    grid: Grid,
    seeds: Sequence[int],
    *,
    protocols: Sequence[str] = tuple(PROTOCOLS),
    resamples: int = 200,
    progress: Callable[[str], None] = lambda label: None,
) -> list[DecayRow]:
    """All encodings, and after them the nulls that are not among them."""
    patch_pairs(grid)  # refuses a grid without pairs before any work
    rows = []
    for choice in [*choices, *map(EncodingChoice, nulls_beside(choices))]:
        progress(choice.label)
        rows += measured_rows(choice, grid, seeds, protocols, resamples)
    return rows
