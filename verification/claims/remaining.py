"""F32-F38: theta functions, resolution, notation, small formulas, translation, arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath
import numpy as np

from training.study.pair_statistics import explained_by_distance, pair_values, patch_pairs
from verification.claims import exact
from verification.claims.claim import Claim, Finding, Verdict, judge_parts, judge_readings
from verification.claims.decay import ALPHAS, GRID, LATTICES, SCALES, encoding_gram
from verification.claims.learnable import softplus
from verification.claims.paper_listing import LISTING, Array, HalfPeriods, box_points, grid_points
from wefpe_core import Lattice

# --- F32 ------------------------------------------------------------------------------------

Evaluator = Callable[[Array, HalfPeriods], Array]


def theta_quotient(z: Array, periods: HalfPeriods) -> Array:
    """wp by DLMF 23.6.5 in plain double precision, for a square lattice and z in its cell."""
    q, v = math.exp(-math.pi), np.pi * z / (2 * periods[0])
    theta1 = sum((-1) ** n * q ** (n * (n + 1)) * np.sin((2 * n + 1) * v) for n in range(6))
    theta4 = 1 + 2 * sum((-1) ** n * q ** (n * n) * np.cos(2 * n * v) for n in range(1, 6))
    at_zero2 = sum(q ** (n * (n + 1)) for n in range(6))  # theta2/(2 q^1/4), as theta1 above
    at_zero3 = 1 + 2 * sum(q ** (n * n) for n in range(1, 6))
    theta2, theta3 = 2 * q**0.25 * at_zero2, at_zero3
    quotient = theta2 * theta3 * theta4 / (2 * q**0.25 * theta1)
    scale = (math.pi / (2 * periods[0].real)) ** 2
    return scale * (quotient**2 - (theta2**4 + theta3**4) / 3)


def theta_stability(evaluate: Evaluator = theta_quotient) -> Finding:
    """F32: errors of a plain theta quotient and of the paper's sum, in double precision."""
    z = grid_points(14, LISTING, 0.5)
    reference = exact.reference()
    true = np.array([complex(reference.wp(complex(x), Lattice(*LISTING))) for x in z])
    theta = float((np.abs(evaluate(z, LISTING) - true) / (1 + np.abs(true))).max())
    lattice_sum = float((np.abs(exact.box_sum(z, LISTING)[0] - true) / (1 + np.abs(true))).max())
    figures = {
        "theta quotient, largest error": theta,
        "12x12 sum, largest error": lattice_sum,
        "terms of the theta series": 6.0 + 5.0,
        "terms of the sum": float(box_points(LISTING).size),
    }
    evidence = (
        f"on a 14x14 grid (alpha=0.5) a plain theta quotient of eleven terms errs by at most "
        f"{theta:.1g}, the sum of {figures['terms of the sum']:.0f} terms by {lattice_sum:.1g}; "
        "whether training with it was unstable cannot be computed from the paper"
    )
    # Unstable in the numerical sense: less accurate than the sum it was dropped for.
    return Finding(judge_parts(theta < 1e-12, theta > lattice_sum), evidence, figures)


# --- F33-F36 --------------------------------------------------------------------------------


def resolution(sizes: tuple[int, ...] = (14, 24, 56)) -> Finding:
    """F33: errors of the fixed 12x12 sum on growing grids, and the size of what it sums."""
    figures: dict[str, float] = {}
    absolute, relative, largest = [], [], []
    for size in sizes:
        z = grid_points(size, LISTING, 1.0)
        p, dp = exact.wp_and_prime(z, LISTING)
        error = np.abs(exact.box_sum(z, LISTING)[0] - p)
        absolute.append(float(error.max()))
        relative.append(float((error / np.abs(p)).max()))
        largest.append(float(np.abs(dp).max()))
        figures |= {
            f"{size}x{size}: absolute error": absolute[-1],
            f"{size}x{size}: relative error": relative[-1],
            f"{size}x{size}: largest wp'": largest[-1],
        }
    growth = math.log(largest[-1] / largest[0]) / math.log(sizes[-1] / sizes[0])
    figures["growth exponent of wp'"] = growth
    evidence = (
        f"absolute error {', '.join(f'{e:.3g}' for e in absolute)}, relative error "
        f"{', '.join(f'{e:.2g}' for e in relative)}, largest |wp'| "
        f"{', '.join(f'{x:.4g}' for x in largest)} on {', '.join(f'{n}²' for n in sizes)}: it "
        f"grows like the grid to the power {growth:.2f}"
    )
    parts = (
        max(absolute) < 1.25 * min(absolute),
        max(relative) < 1.25 * min(relative),
        max(largest) < 1.25 * min(largest),
    )
    return Finding(judge_parts(*parts), evidence, figures)


def normalised_range(pixels: int = 224, patch: int = 16) -> Finding:
    """F34: u = (j+1/2)/(W/P), with W the patches of L165 or the pixels."""
    patches = pixels // patch
    largest = {
        "W in pixels": (patches - 0.5) / (pixels / patch),
        "W in patches": (patches - 0.5) / (patches / patch),
    }
    figures = {f"largest u, {name}": value for name, value in largest.items()}
    evidence = "the largest u of a row is " + ", ".join(
        f"{value:.4f} with {name}" for name, value in largest.items()
    )
    return Finding(judge_readings(*(u <= 1 for u in largest.values())), evidence, figures)


# alpha_learn from the number reported, for each meaning the symbol can have.
READINGS: dict[str, Callable[[float], float]] = {
    "softplus(α_learn)": lambda w: math.log(math.expm1(w)),
    "0.1 + softplus(α_learn), as in the scripts": lambda w: math.log(math.expm1(w - 0.1)),
    "α_learn itself": lambda w: w,
}


def learned_value(
    value: float = 1.085, readings: dict[str, Callable[[float], float]] = READINGS
) -> Finding:
    """F35: one learned number, for a symbol the paper does not define."""
    parameters = {name: inverse(value) for name, inverse in readings.items()}
    spread = max(parameters.values()) - min(parameters.values())
    figures = {f"α_learn if ω2' is {name}": v for name, v in parameters.items()}
    figures["spread"] = spread
    evidence = f"ω2' = {value} means α_learn = " + ", ".join(
        f"{v:.3f} (ω2' is {name})" for name, v in parameters.items()
    )
    return Finding(Verdict.AMBIGUOUS if spread > 1e-3 else Verdict.TRUE, evidence, figures)


def small_formulas() -> Finding:
    """F36: softplus, sigmoid, LayerNorm and the hybrid sum as printed."""
    rng = np.random.default_rng(36)
    x = rng.normal(0, 5, 200)
    naive = np.log(1 + np.exp(x))
    normal = rng.normal(3, 2, 192)
    normal = (normal - normal.mean()) / normal.std()
    gate = 1 / (1 + np.exp(-x))
    first, second = rng.normal(0, 1, (2, x.size))
    hybrid = gate * first + (1 - gate) * second
    middle, reach = (first + second) / 2, np.abs(first - second) / 2 * (1 + 1e-12)
    figures = {
        "softplus, error": float(np.abs(naive - [softplus(a) for a in x]).max()),
        "softplus, smallest value": float(naive.min()),
        "sigmoid outside [0, 1]": float(np.sum((gate < 0) | (gate > 1))),
        "sigmoid is softplus', error": float(
            abs(
                mpmath.diff(lambda a: mpmath.log(1 + mpmath.exp(a)), 0.7) - 1 / (1 + math.exp(-0.7))
            )
        ),
        "LayerNorm, mean": float(abs(normal.mean())),
        "LayerNorm, variance - 1": float(abs(normal.var() - 1)),
        "hybrid outside its two parts": float(np.sum(np.abs(hybrid - middle) > reach)),
    }
    evidence = (
        f"softplus agrees to {figures['softplus, error']:.0e} and stays above "
        f"{figures['softplus, smallest value']:.1e}; the sigmoid stays in [0, 1] and "
        f"the hybrid between its parts; LayerNorm gives "
        f"mean {figures['LayerNorm, mean']:.0e} and variance 1 to "
        f"{figures['LayerNorm, variance - 1']:.0e}"
    )
    holds = (
        figures["softplus, error"] < 1e-13
        and figures["softplus, smallest value"] > 0
        and figures["sigmoid outside [0, 1]"] == 0
        and figures["hybrid outside its two parts"] == 0
        and figures["sigmoid is softplus', error"] < 1e-12
        and max(figures["LayerNorm, mean"], figures["LayerNorm, variance - 1"]) < 1e-12
    )
    return Finding(Verdict.TRUE if holds else Verdict.FALSE, evidence, figures)


# --- F37, F38 -------------------------------------------------------------------------------

GramOf = Callable[[HalfPeriods, float, float, int | None], Array]


def translation_invariance(gram_of: GramOf = encoding_gram) -> Finding:
    """F37: how much of f_i·f_j depends on the offset j - i alone."""
    by_offset, by_distance = [], []
    for periods in LATTICES.values():
        for alpha in ALPHAS:
            for scale in SCALES:
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


def _explained_by_offset(gram: Array, size: int = 14) -> float:
    """R² of the inner products of pairs given the signed offset between the patches."""
    pairs = patch_pairs((size, size))
    rows, columns = (np.divmod(p, size) for p in (pairs.first, pairs.second))
    key = (columns[0] - rows[0]) * (2 * size) + (columns[1] - rows[1]) + size
    _, group = np.unique(key, return_inverse=True)
    values = pair_values(gram, pairs)
    means = np.bincount(group, values) / np.bincount(group)
    return float(1 - (values - means[group]).var() / values.var())


def grid_arithmetic(fine: int = 384, coarse: int = 224, patch: int = 16) -> Finding:
    """F38: the ratio of resolutions behind the fine-tuning argument; accuracies are not checked."""
    ratio = (fine / coarse) ** 2
    figures = {
        "patches per side, fine": fine / patch,
        "patches per side, coarse": coarse / patch,
        "ratio of areas": ratio,
    }
    evidence = (
        f"{fine}/{patch} = {fine / patch:g} and {coarse}/{patch} = {coarse / patch:g} patches per "
        f"side, ratio of areas {ratio:.3f}; the accuracy tables need training runs"
    )
    holds = (fine / patch).is_integer() and (coarse / patch).is_integer() and ratio > 2
    return Finding(Verdict.TRUE if holds else Verdict.FALSE, evidence, figures)


CLAIMS = (
    Claim(
        "F32",
        "L197",
        "Theta functions are mathematically better but unstable, so the lattice sum is used.",
        "In double precision a plain theta quotient is some eleven digits more accurate than the "
        "sum; instability in training is not documented.",
        theta_stability,
    ),
    Claim(
        "F33",
        "L298",
        "With M and N fixed the accuracy is consistent whatever the resolution.",
        "The absolute error is; the relative error is not, and the values themselves grow with "
        "the square (wp) and cube (wp') of the grid size.",
        resolution,
    ),
    Claim(
        "F34",
        "L294 against L165-L167",
        "u = (j+0.5)/(W/P) lies in [0, 1].",
        "It does if W counts pixels; L165 defines W as the number of patches.",
        normalised_range,
    ),
    Claim(
        "F35",
        "L228, L255, L511, L1082",
        "The learned half-period is ω2' ≈ 1.085.",
        "ω3, ω3' and ω2' are used for it without definition; name one symbol and its map.",
        learned_value,
    ),
    Claim(
        "F36",
        "L224, L228, L234, L1118-L1124",
        "Softplus is positive, the sigmoid gate lies in [0, 1], LayerNorm and hybrid as printed.",
        "As printed.",
        small_formulas,
    ),
    Claim(
        "F37",
        "L112, L122",
        "Double periodicity aligns with translational invariance.",
        "Inner products of the encodings depend on where a pair lies far more than on its offset.",
        translation_invariance,
    ),
    Claim(
        "F38",
        "L298-L300",
        "Going from 224 to 384 pixels, 14 to 24 patches, exceeds an area ratio of 2.",
        "True: 2.94. The accuracy figures are not checkable by computation alone.",
        grid_arithmetic,
    ),
)
