"""F30: relative positions from absolute encodings by the addition formula."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from training.study.structure_measures import (
    bilinear_fit,
    ordered_pairs,
    safe_difference,
    scaled_error,
    textbook_difference,
)
from verification.claims import ground_truth
from verification.claims.claim import Claim, Finding, judge_parts
from verification.claims.numpy_listing import (
    ALPHA_SCALE,
    LISTING,
    PLACEHOLDER,
    Array,
    HalfPeriods,
    compressed,
    features,
    grid_points,
)

# wp(zj - zi) from (wp, wp') at zi and zj.
Difference = Callable[[Array, Array, Array, Array, HalfPeriods], Array]


def printed_formula(pi: Array, dpi: Array, pj: Array, dpj: Array, periods: HalfPeriods) -> Array:
    return textbook_difference(pi, dpi, pj, dpj)


def safe_formula(pi: Array, dpi: Array, pj: Array, dpj: Array, periods: HalfPeriods) -> Array:
    return safe_difference(pi, dpi, pj, dpj, ground_truth.lattice_of(periods))


def _pairs(size: int) -> tuple[Array, Array]:
    i, j = np.triu_indices(size * size, 1)
    return i, j


def relative_errors(
    size: int, periods: HalfPeriods, alpha: float, difference: Difference
) -> tuple[Array, Array]:
    """Scaled error of wp(zj - zi) for all pairs, and which textbook denominators vanish."""
    z = grid_points(size, periods, alpha)
    p, dp = ground_truth.wp_and_prime(z, periods)
    i, j = _pairs(size)
    got = difference(p[i], dp[i], p[j], dp[j], periods)
    want, _ = ground_truth.wp_and_prime(z[j] - z[i], periods)
    error = scaled_error(got, want, p[i], p[j])
    degenerate = np.abs(p[j] - p[i]) <= 1e-10 * (np.abs(p[i]) + np.abs(p[j]))
    return error, degenerate


def best_bilinear(alpha: float, size: int = 14) -> float:
    """R² of Re wp(zj - zi) by the best bilinear form of the compressed features."""
    z = grid_points(size, LISTING, alpha)
    f = compressed(features(*ground_truth.wp_and_prime(z, LISTING)), ALPHA_SCALE)
    i, j = ordered_pairs(size * size)
    target = ground_truth.wp_and_prime(z[j] - z[i], LISTING)[0].real
    return bilinear_fit(f, (i, j), target)


def pairs_lost_to_saturation(periods: HalfPeriods, alpha: float, size: int = 14) -> float:
    """% of pairs with a feature that float32 stores as exactly ±1, so that f is lost."""
    values = compressed(ground_truth.raw_features(size, periods, alpha)).astype(np.float32)
    lost = (np.abs(values) == 1).any(axis=1)
    i, j = _pairs(size)
    return 100 * float((lost[i] | lost[j]).mean())


def relative_position(difference: Difference = printed_formula) -> Finding:
    """F30: the formula on every pair of the grid, and what attention can make of it."""
    figures: dict[str, float] = {}
    broken, ordinary = 0, 0.0
    for size, alpha in ((14, 1.0), (24, 1.0), (14, 0.5)):
        error, degenerate = relative_errors(size, LISTING, alpha, difference)
        label = f"{size}x{size}, alpha={alpha:g}"
        wrong = int(np.sum(error[degenerate] > 1e-6))
        figures[f"{label}: pairs 0/0 in the printed formula"] = float(degenerate.sum())
        figures[f"{label}: of them wrong"] = float(wrong)
        figures[f"{label}: largest error of the others"] = float(error[~degenerate].max())
        figures[f"{label}: median error"] = float(np.median(error))
        broken += wrong
        ordinary = max(ordinary, float(error[~degenerate].max()))
    fits = {alpha: best_bilinear(alpha) for alpha in (1.0, 0.5, 0.4)}
    figures |= {f"bilinear R², alpha={alpha:g}": fit for alpha, fit in fits.items()}
    for name, periods in (("2.622", LISTING), ("(1, i)", PLACEHOLDER)):
        figures[f"{name}: pairs lost to tanh, %"] = pairs_lost_to_saturation(periods, 1.0)
    undefined = [int(v) for k, v in figures.items() if "0/0" in k]
    evidence = (
        f"the formula is 0/0 on {undefined[0]} pairs of 14² and {undefined[1]} of 24² with alpha=1 "
        f"({broken} values wrong), {undefined[2]} with alpha=0.5; "
        f"elsewhere it errs by at most {ordinary:.0e}; a bilinear form of the features explains R² "
        f"= {fits[1.0]:.3f}, {fits[0.5]:.3f}, {fits[0.4]:.3f} of Re wp(zj-zi) (alpha 1, 0.5, 0.4); "
        f"tanh in float32 loses {figures['2.622: pairs lost to tanh, %']:.0f} % of the pairs, "
        f"{figures['(1, i): pairs lost to tanh, %']:.0f} % on (1, i)"
    )
    parts = (ordinary < 1e-6, broken == 0, min(fits.values()) > 0.9)
    return Finding(judge_parts(*parts), evidence, figures)


CLAIMS = (
    Claim(
        "F30",
        "L280-L284",
        "By the addition formula the model derives wp(zj-zi) from any two absolute encodings, and "
        "attention can use it directly.",
        "The algebra is exact, but 0/0 for mirror-image patches (use the second quotient there); "
        "logits are bilinear in the features and the formula is rational, so attention cannot "
        "form it: a relative bias must be computed.",
        relative_position,
    ),
)
