"""F23-F25, F28, F37: the distance-decay theorem, its lemmas, and translation invariance."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np

from training.study.pair_statistics import (
    explained_by_distance,
    mean_by_distance,
    pair_values,
    patch_pairs,
    spearman,
)
from verification.claims import ground_truth
from verification.claims.claim import Claim, Finding, Verdict, judge_parts
from verification.claims.numpy_listing import (
    ALPHA_SCALE,
    GRID,
    LEMNISCATIC,
    LISTING,
    PLACEHOLDER,
    PUBLISHED_RECTANGLE,
    SIZE,
    Array,
    HalfPeriods,
    projected,
)

LATTICES = {
    "2.622": LISTING,
    "1.854": LEMNISCATIC,
    "(1, i)": PLACEHOLDER,
    "2.622 x 0.755i": PUBLISHED_RECTANGLE,
}
ALPHAS = (1.0, 0.5, 0.4, 0.25)
SCALES = (0.03, 0.15, 0.5, 1.0)


# --- F23 ------------------------------------------------------------------------------------

# Inner products of all patches for a lattice, alpha, scale and a seed; None gives the expectation.
GramOf = Callable[[HalfPeriods, float, float, int | None], Array]


def encoding_gram(periods: HalfPeriods, alpha: float, scale: float, seed: int | None) -> Array:
    """p_i·p_j of the encoding.

    Without a seed it is f_i·f_j, which is the expectation over random projections up to a
    constant; with a seed, it is that of `projected`.
    """
    features = ground_truth.compressed_features(SIZE, periods, alpha, scale)
    if seed is None:
        return features @ features.T
    encoding = projected(features, np.random.default_rng(seed))
    return encoding @ encoding.T


def distance_decay(gram_of: GramOf = encoding_gram, projections: int = 5) -> Finding:
    """F23: is S(d) strictly decreasing, in any of the configurations?"""
    pairs = patch_pairs(GRID)
    steps = pairs.distances.size - 1
    rises, explained = [], []
    for periods, alpha, scale in product(LATTICES.values(), ALPHAS, SCALES):
        for seed in (None, *range(projections)):
            gram = gram_of(periods, alpha, scale, seed)
            rises.append(int(np.sum(np.diff(mean_by_distance(gram, pairs)) >= 0)))
            if seed is None:
                explained.append(explained_by_distance(gram, pairs))
    decreasing = sum(count == 0 for count in rises)
    example = gram_of(LISTING, 0.5, ALPHA_SCALE, None)
    curve = mean_by_distance(example, pairs)
    lowest = int(np.argmin(curve))
    figures = {
        "configurations": float(len(rises)),
        "strictly decreasing": float(decreasing),
        "steps between distances": float(steps),
        "fewest rising steps": float(min(rises)),
        "most rising steps": float(max(rises)),
        "R² of distance, smallest": min(explained),
        "R² of distance, largest": max(explained),
        "example S(1)": float(curve[0]),
        "example S at its minimum": float(curve[lowest]),
        "example distance of the minimum": float(pairs.distances[lowest]),
        "example S at the largest distance": float(curve[-1]),
        "example Spearman": spearman(pairs.distances, curve),
        **_one_distance_four_offsets(gram_of(PUBLISHED_RECTANGLE, 0.5, ALPHA_SCALE, None)),
    }
    evidence = (
        f"S(d) is strictly decreasing in {decreasing} of {len(rises)} configurations (14x14, "
        f"{steps} steps of distance, {min(rises)} to {max(rises)} of them upward); listing's "
        f"lattice, alpha=0.5: S(1) = {curve[0]:.4f}, minimum {curve[lowest]:.4f} at d="
        f"{pairs.distances[lowest]:.2f}, S({pairs.distances[-1]:.2f}) = {curve[-1]:.4f}, Spearman "
        f"{figures['example Spearman']:.2f}; at d=5 on the published rectangle S is "
        + ", ".join(f"{figures[f'd=5, offset {o}']:.4f}" for o in OFFSETS)
        + f" for offsets {', '.join(OFFSETS)}"
    )
    if decreasing == len(rises):
        return Finding(Verdict.TRUE, evidence, figures)
    return Finding(Verdict.PARTLY if decreasing else Verdict.FALSE, evidence, figures)


OFFSETS = {"(0, 5)": (0, 5), "(5, 0)": (5, 0), "(4, 3)": (4, 3), "(4, -3)": (4, -3)}


def _one_distance_four_offsets(gram: Array) -> dict[str, float]:
    """Mean inner product for four offsets (columns, rows) of length 5."""
    by_patch = gram.reshape(SIZE, SIZE, SIZE, SIZE)  # row, column, row, column
    figures = {}
    for name, (columns, rows) in OFFSETS.items():
        i, j = np.mgrid[:SIZE, :SIZE].reshape(2, -1)
        inside = (i + rows >= 0) & (i + rows < SIZE) & (j + columns < SIZE)
        i, j = i[inside], j[inside]
        figures[f"d=5, offset {name}"] = float(by_patch[i, j, i + rows, j + columns].mean())
    return figures


# --- F24, F25, F28 --------------------------------------------------------------------------


def map_preserves_distance(step_ratios: tuple[float, ...] = (1.0, 2.0)) -> Finding:
    """F24: is |z1 - z2| an increasing function of the grid distance, for these step ratios?"""
    figures, holds = {}, []
    column, row = np.meshgrid(np.arange(SIZE), np.arange(SIZE))
    squared = (column**2 + row**2).ravel()
    order = np.argsort(squared, kind="stable")
    for ratio in step_ratios:
        mapped = (column**2 + (ratio * row) ** 2).ravel()[order]
        distances = squared[order]
        # Every nearer offset must be mapped nearer: compare with the largest value before.
        highest = np.maximum.accumulate(mapped)
        start = np.searchsorted(distances, distances)  # the first offset of equal length
        violated = np.sum((start > 0) & (mapped <= highest[np.maximum(start - 1, 0)]))
        figures[f"violations, step ratio {ratio:g}"] = float(violated)
        figures[f"|dz| of (3, 0), step ratio {ratio:g}"] = 3.0
        figures[f"|dz| of (0, 2), step ratio {ratio:g}"] = 2 * ratio
        holds.append(int(violated) == 0)
    evidence = "; ".join(
        f"step ratio {ratio:g}: {figures[f'violations, step ratio {ratio:g}']:.0f} of "
        f"{squared.size} offsets out of order, (3, 0) goes to 3 and (0, 2) to {2 * ratio:g}"
        for ratio in step_ratios
    )
    return Finding(judge_parts(*holds), evidence, figures)


# The sign of h' claimed for the signs of the two arguments; 0 where nothing is claimed.
SignRule = Callable[[Array, Array], Array]


def printed_sign_rule(first: Array, second: Array) -> Array:
    """The lemma of L915-L917, with b, d > 0."""
    return first * second


def tanh_product(rule: SignRule = printed_sign_rule, samples: int = 20_000) -> Finding:
    """F25: the sign of the derivative of tanh(α(a+bt)) tanh(α(c+dt)) against the rule."""
    rng = np.random.default_rng(25)
    a, c = rng.uniform(-3, 3, (2, samples))
    b, d, alpha = rng.uniform(0.1, 2, (3, samples))
    a[:3], c[:3] = (-2, 2, 0.5), (-2, -0.5, -2)
    b[:3] = d[:3] = alpha[:3] = 1
    first, second = alpha * a, alpha * c  # t = 0; shifting t is choosing other a and c
    slope = alpha * (
        b * np.tanh(second) / np.cosh(first) ** 2 + d * np.tanh(first) / np.cosh(second) ** 2
    )
    claimed = rule(np.sign(first), np.sign(second))
    wrong = (claimed != 0) & (np.sign(slope) != claimed)
    kinds = {
        "both positive": (first > 0) & (second > 0),
        "both negative": (first < 0) & (second < 0),
        "opposite": first * second < 0,
    }
    figures = {
        f"{name}: cases against the rule, %": 100 * float(wrong[chosen].mean())
        for name, chosen in kinds.items()
    }
    figures |= {
        "h' at a=c=-2": float(slope[0]),
        "h' at a=2, c=-0.5": float(slope[1]),
        "h' at a=0.5, c=-2": float(slope[2]),
    }
    evidence = (
        f"b=d=α=1: h' = {slope[0]:.3f} at a=c=-2, {slope[1]:.4f} at (2, -0.5), {slope[2]:.4f} at "
        "(0.5, -2); cases against the rule: "
        + ", ".join(
            f"{figures[f'{name}: cases against the rule, %']:.0f} % ({name})" for name in kinds
        )
    )
    return Finding(Verdict.FALSE if wrong.any() else Verdict.TRUE, evidence, figures)


MEAN_CASES: tuple[tuple[str, HalfPeriods, float], ...] = (
    ("2.622, alpha=1", LISTING, 1.0),
    ("2.622, alpha=0.5", LISTING, 0.5),
    ("2.622, alpha=0.4", LISTING, 0.4),
    ("2.622 x 0.755i, alpha=1", PUBLISHED_RECTANGLE, 1.0),
)


def mean_of_features(
    cases: tuple[tuple[str, HalfPeriods, float], ...] = MEAN_CASES,
) -> Finding:
    """F28: the mean of each feature over the grid, before and after tanh."""
    figures, vanishes, shown = {}, [], []
    for name, periods, alpha in cases:
        raw = ground_truth.raw_features(SIZE, periods, alpha)
        mean = raw.mean(axis=0)
        squeezed = np.tanh(ALPHA_SCALE * raw).mean(axis=0)
        for k in range(4):
            figures[f"{name}: mean of feature {k + 1}"] = float(mean[k])
        figures[f"{name}: largest mean after tanh"] = float(np.abs(squeezed).max())
        # Zero by symmetry means zero up to the rounding of the largest value.
        vanishes.append(bool(np.abs(mean).max() < 1e-12 * np.abs(raw).max()))
        shown.append(f"({', '.join(f'{m:+.3f}' for m in np.round(mean, 3) + 0)}) for {name}")
    evidence = "means of the four features: " + "; ".join(shown)
    return Finding(judge_parts(*vanishes), evidence, figures)


# --- F37 ------------------------------------------------------------------------------------


def translation_invariance(gram_of: GramOf = encoding_gram) -> Finding:
    """F37: how much of f_i·f_j depends on the offset j - i alone."""
    by_offset, by_distance = [], []
    for periods, alpha, scale in product(LATTICES.values(), ALPHAS, SCALES):
        gram = gram_of(periods, alpha, scale, None)
        by_offset.append(_explained_by_offset(gram))
        by_distance.append(explained_by_distance(gram, patch_pairs(GRID)))
    figures = {
        "R² of the offset, smallest": min(by_offset),
        "R² of the offset, largest": max(by_offset),
        "R² of the distance, largest": max(by_distance),
    }
    evidence = (
        f"over {len(by_offset)} settings the offset explains R² = {min(by_offset):.3f} to "
        f"{max(by_offset):.3f} of the inner products, the distance at most {max(by_distance):.3f}; "
        "a translation-invariant encoding would give 1"
    )
    return Finding(Verdict.TRUE if min(by_offset) > 0.999 else Verdict.FALSE, evidence, figures)


def _explained_by_offset(gram: Array) -> float:
    """R² of the inner products of pairs given the signed offset between the patches."""
    pairs = patch_pairs(GRID)
    first, second = (np.divmod(patch, SIZE) for patch in (pairs.first, pairs.second))
    key = (second[0] - first[0]) * (2 * SIZE) + (second[1] - first[1]) + SIZE
    _, group = np.unique(key, return_inverse=True)
    values = pair_values(gram, pairs)
    means = np.bincount(group, values) / np.bincount(group)
    return float(1 - (values - means[group]).var() / values.var())


CLAIMS = (
    Claim(
        "F23",
        "L288, L897-L899, distance-decay theorem",
        "The expected inner product of two encodings is a function S(d) of the grid distance, "
        "strictly decreasing for d > 0.",
        "It is neither. What decreases provably is the Green function of the torus, in every "
        "row and column offset up to half a period.",
        distance_decay,
    ),
    Claim(
        "F24",
        "L288, L908-L913, lemma on the coordinate map",
        "|z1 - z2| is an increasing function of the grid distance, in general too.",
        "Only if ω1/W = ω3'/H; otherwise it is not a function of the distance at all.",
        map_preserves_distance,
    ),
    Claim(
        "F25",
        "L915-L917, tanh lemma",
        "The derivative of tanh(α(a+bt))·tanh(α(c+dt)) has the sign of the product of the two "
        "arguments' signs (α, b, d > 0).",
        "Both arguments positive: h' > 0; both negative: h' < 0; opposite signs: no conclusion.",
        tanh_product,
    ),
    Claim(
        "F28",
        "L987",
        "By symmetry the means of the features over the grid vanish.",
        "Exactly so for α = 1 on a square grid and square lattice; not for α = 0.5 or 0.4, nor on "
        "rectangles.",
        mean_of_features,
    ),
    Claim(
        "F37",
        "L112, L122",
        "Double periodicity aligns with translational invariance.",
        "Inner products of the encodings depend on where a pair lies far more than on its offset.",
        translation_invariance,
    ),
)
