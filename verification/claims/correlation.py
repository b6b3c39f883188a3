"""F26-F27: the correlation of wp with itself, and of its parts with each other."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from training.study.pair_statistics import patch_pairs
from verification.claims import ground_truth
from verification.claims.claim import Claim, Finding, Verdict, judge_parts
from verification.claims.numpy_listing import (
    ALPHA_SCALE,
    GRID,
    LISTING,
    PRINTED_HALF_PERIOD,
    SIZE,
    Array,
    HalfPeriods,
    compressed,
    features,
    grid_points,
)

# --- F26 ------------------------------------------------------------------------------------


class Correlation(NamedTuple):
    """E[f(z) conj f(z+s)] for one shift, and how much it depends on the grid."""

    shift: float  # in periods
    horizontal: float
    vertical: float
    noise: float


PlaneFunction = Callable[[Array], Array]


def autocorrelation(function: PlaneFunction, a: complex, b: complex, nodes: int) -> Array:
    """The autocorrelation over a period rectangle, for all shifts by multiples of the spacing.

    Midpoints of squares lie symmetrically about the poles, so the sums tend to the principal
    value; `nodes` is their number along the longer side.
    """
    spacing = max(abs(a), abs(b)) / nodes
    across, up = (round(abs(period) / spacing) for period in (a, b))
    u, v = np.meshgrid((np.arange(across) + 0.5) / across, (np.arange(up) + 0.5) / up)
    power = np.abs(np.fft.fft2(function(u * a + v * b))) ** 2
    return np.fft.ifft2(power) / power.size


def correlations(function: PlaneFunction, periods: HalfPeriods, nodes: int) -> list[Correlation]:
    """At shifts of 1/8 to 1/2 of a period, with the error quadratic in the spacing extrapolated."""
    a, b = 2 * complex(periods[0]), 2 * complex(periods[1])
    grids = [autocorrelation(function, a, b, nodes // k) for k in (1, 2, 4)]

    def extrapolated(eighths: int, axis: int) -> tuple[float, float]:
        fine, middle, coarse = (
            grid.take(eighths * grid.shape[axis] // 8, axis).flat[0].real for grid in grids
        )
        value = (4 * fine - middle) / 3
        return float(value), float(abs(value - (4 * middle - coarse) / 3))

    result = []
    for eighths in (1, 2, 3, 4):
        horizontal, noise = extrapolated(eighths, 1)
        vertical, other = extrapolated(eighths, 0)
        result.append(Correlation(eighths / 8, horizontal, vertical, max(noise, other)))
    return result


Law = Callable[[list[Correlation]], bool]


def cosine_of_increasing_angle(values: list[Correlation]) -> bool:
    """eq:weierstrass_correlation_decay: it falls with |s|, and is the same in both directions."""
    alike = all(abs(c.horizontal - c.vertical) <= 2 * c.noise + 1e-12 for c in values)
    falls = all(
        second.horizontal < first.horizontal - (first.noise + second.noise)
        for first, second in pairwise(values)
    )
    return alike and falls


def constant_off_the_lattice(values: list[Correlation]) -> bool:
    """The correlation is the same for every shift, within the resolution of the grid."""
    noise = max(c.noise for c in values)
    numbers = [x for c in values for x in (c.horizontal, c.vertical)]
    return max(numbers) - min(numbers) <= 2 * noise


def predicted_constant(periods: HalfPeriods) -> tuple[float, float]:
    """|G2*|² - (pi/A)² and G2* itself, which is eta1/omega1 made periodic (for real omega1)."""
    eta1, _ = ground_truth.reference().quasi_periods(ground_truth.lattice_of(periods))
    area = ground_truth.cell_area(periods)
    g2_star = float(eta1.real) / periods[0].real - math.pi / area
    return g2_star**2 - (math.pi / area) ** 2, g2_star


RECTANGLE: HalfPeriods = (2.0, 1.0j)


def wp_of(periods: HalfPeriods) -> PlaneFunction:
    return lambda z: ground_truth.wp_and_prime(z, periods)[0]


def autocorrelation_of_wp(
    function: Callable[[HalfPeriods], PlaneFunction] = wp_of,
    law: Law = cosine_of_increasing_angle,
    nodes: int = 256,
) -> Finding:
    """F26: the mean of wp(z) conj wp(z+s) over the cell, by shift."""
    square = correlations(function(LISTING), LISTING, nodes)
    rectangle = correlations(function(RECTANGLE), RECTANGLE, nodes)
    constant, _ = predicted_constant(LISTING)
    other, g2_star = predicted_constant(RECTANGLE)
    mean = _mean(function(RECTANGLE), nodes)
    figures = {"predicted, square": constant, "predicted, rectangle": other}
    for c in square:
        figures[f"square, shift {c.shift:g}"] = c.horizontal
        figures[f"square, shift {c.shift:g}, change with the grid"] = c.noise
    for c in rectangle:
        figures[f"rectangle, shift {c.shift:g}"] = c.horizontal
        figures[f"rectangle, shift {c.shift:g}, vertical"] = c.vertical
    figures |= {"rectangle, mean": mean, "rectangle, predicted mean": -g2_star}
    evidence = (
        "E[wp(z) conj wp(z+s)] for s = 1/8, 1/4, 3/8, 1/2 of a period: "
        + ", ".join(f"{c.horizontal:.5f}" for c in square)
        + f" (2.622 square; |G2*|²-(π/A)² = {constant:.6f}), "
        + ", ".join(f"{c.horizontal:.5f}" for c in rectangle)
        + f" (rectangle (2, i); {other:.6f})"
    )
    holds = law(square) and law(rectangle)
    return Finding(Verdict.TRUE if holds else Verdict.FALSE, evidence, figures)


def _mean(function: PlaneFunction, nodes: int) -> float:
    """Principal value of the mean over the cell of the rectangle (2, i)."""
    u, v = (np.arange(nodes) + 0.5) / nodes, (np.arange(nodes // 2) + 0.5) / (nodes // 2)
    return float(np.mean(function(4 * u[None, :] + 2j * v[:, None])).real)


# --- F27 ------------------------------------------------------------------------------------

# Values of the product of the real parts of 1/z² while the second point moves away.
MovingProduct = Callable[[Array], Array]


def printed_example(t: Array) -> Array:
    """Re(1/z1²) Re(1/z2²) for z1 = 1, z2 = it: the distance grows with t."""
    return (1 / 1.0**2) * ((1 / (1j * t)) ** 2).real


FeaturesAt = Callable[[Array], Array]


def listing_features(z: Array) -> Array:
    return compressed(features(*ground_truth.wp_and_prime(z, LISTING)), ALPHA_SCALE)


def cross_terms(
    features_at: FeaturesAt = listing_features, product: MovingProduct = printed_example
) -> Finding:
    """F27: do cross terms die out with distance, do far points decorrelate?"""
    values = features_at(grid_points(SIZE, LISTING, 0.5))
    factors = {
        alpha: _cross_factor(features_at(grid_points(SIZE, LISTING, alpha))) for alpha in (1.0, 0.5)
    }
    dies_out = all(f[-1] < f[:-1].max() * math.exp(-3) for f in factors.values())
    cell = grid_points(SIZE, LISTING, 1.0)
    here = features_at(cell)
    shifts = {"half a period": PRINTED_HALF_PERIOD, "a period": 2 * PRINTED_HALF_PERIOD}
    apart = {
        name: float(np.corrcoef(here.ravel(), features_at(cell + shift).ravel())[0, 1])
        for name, shift in shifts.items()
    }
    t = np.linspace(1, 3, 21)
    derivative = float(np.diff(product(t)).max())
    whole, quarter = (
        float(np.mean(f[:, 0] * f[:, 3]) / math.sqrt(np.mean(f[:, 0] ** 2) * np.mean(f[:, 3] ** 2)))
        for f in (here, values)
    )
    figures = {
        **{f"cross factor at d=1, alpha={a:g}": float(f[0]) for a, f in factors.items()},
        **{f"cross factor at d=18.38, alpha={a:g}": float(f[-1]) for a, f in factors.items()},
        **{f"correlation at {name}": value for name, value in apart.items()},
        "largest step of Re(1/z1²)Re(1/z2²)": derivative,
        "E[Re wp Im wp'], scaled, alpha=1": whole,
        "E[Re wp Im wp'], scaled, alpha=0.5": quarter,
    }
    evidence = (
        f"the factor ε(d) of the cross terms goes from {factors[1.0][0]:.1g} at d=1 to "
        f"{factors[1.0][-1]:.3f} at the largest distance (14x14, alpha=1), from "
        f"{factors[0.5][0]:.3f} to {factors[0.5][-1]:.3f} with alpha=0.5; features one period "
        f"apart correlate with {apart['a period']:.6f}; Re(1/z1²)Re(1/z2²) changes by up to "
        f"{derivative:+.3f} per step when z2=it leaves z1=1; E[Re wp Im wp'] = {whole:.0e} on the "
        f"whole cell, {quarter:.2f} of its bound on the quarter"
    )
    parts = (dies_out, abs(apart["a period"]) < 0.1, derivative < 0)
    return Finding(judge_parts(*parts), evidence, figures)


def _cross_factor(values: Array) -> Array:
    """For each distance the largest |E[f_k g_l]| / sqrt(E[f_k²] E[g_l²]) over k != l."""
    pairs = patch_pairs(GRID)
    counts = np.bincount(pairs.group)
    first = np.concatenate([pairs.first, pairs.second])
    second = np.concatenate([pairs.second, pairs.first])
    group = np.tile(pairs.group, 2)
    squares = [
        np.bincount(group, values[first, k] ** 2) / (2 * counts) for k in range(4)
    ]  # the same for both ends, since every pair occurs in both orders
    factors = [
        np.abs(np.bincount(group, values[first, k] * values[second, m]) / (2 * counts))
        / np.sqrt(squares[k] * squares[m])
        for k in range(4)
        for m in range(4)
        if k != m
    ]
    return np.max(factors, axis=0)


CLAIMS = (
    Claim(
        "F26",
        "L930-L934, eq:weierstrass_correlation_decay",
        "E[Re wp(z1) Re wp(z2) + Im wp(z1) Im wp(z2)] = K cos θ(|z1-z2|), θ strictly increasing.",
        "Over the torus it is the constant |G2*|² - (π/A)² for every shift off the lattice, and "
        "infinite on it: every Fourier coefficient of wp but the mean has modulus π/A.",
        autocorrelation_of_wp,
    ),
    Claim(
        "F27",
        "L940-L955, L965-L983 (eq:derivative_of_correlation)",
        "Cross terms fall off like e^(-λd), far values become independent, and the derivative of "
        "the product of real parts of 1/z² in the distance is negative.",
        "Periodic functions cannot decorrelate: one period apart the correlation is 1. "
        "Cauchy-Schwarz gives ε ≤ 1 only; the parity argument holds on domains symmetric under "
        "z → -z.",
        cross_terms,
    ),
)
