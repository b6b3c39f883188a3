"""F11-F13: terms and tails of the lattice sum, and the error bound drawn from them."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import mpmath
import numpy as np

from verification.claims import ground_truth
from verification.claims.claim import Claim, Finding, Verdict, judge_parts
from verification.claims.numpy_listing import (
    LEMNISCATIC,
    LISTING,
    PLACEHOLDER,
    PRINTED_HALF_PERIOD,
    Array,
    HalfPeriods,
)

BOX = 12  # M_search = N_search of L220


# --- Single terms and their sum -------------------------------------------------------------


def printed_term_factor(r: float) -> float:
    """First inequality of eq:trunc_bound: |T| is at most this times 2|z|/|w|³, r = |z|/|w|."""
    return 1.0


def printed_tail_density(area: float) -> float:
    """L216: the sum of |w|^-3 over |w| > R is about this over R."""
    return 1.0


def worst_term_factor(r: float) -> float:
    """The largest |T|/(2|z|/|w|³) over all directions of z, by evaluating the term (w = 1)."""
    z = r * np.exp(1j * np.linspace(0, 2 * np.pi, 3601))
    return float(np.abs(1 / (z - 1) ** 2 - 1).max() / (2 * r))


def cube_tail(half_period: float, radius_in_periods: float) -> float:
    """Sum of |w|^-3 over the points of a square lattice outside a disk.

    The whole sum is 4 zeta(3/2) beta(3/2) in units of the period; the disk is subtracted.
    """
    with mpmath.workdps(25):
        quarter = mpmath.mpf(1) / 4
        beta = (mpmath.zeta(1.5, quarter) - mpmath.zeta(1.5, 3 * quarter)) / 8
        whole = 4 * mpmath.zeta(1.5) * beta
    limit = math.floor(radius_in_periods)
    m, n = np.mgrid[-limit : limit + 1, -limit : limit + 1]
    squared = (m**2 + n**2).ravel()
    inside = squared[(squared > 0) & (squared <= radius_in_periods**2)]
    return float(whole - math.fsum(inside**-1.5)) / (2 * half_period) ** 3


def terms_and_tails(
    term_factor: Callable[[float], float] = printed_term_factor,
    tail_density: Callable[[float], float] = printed_tail_density,
) -> Finding:
    """F11: the size of one term, and of the sum over the far ones."""
    factors = {r: worst_term_factor(r) for r in (1e-6, 0.25, 0.5)}
    area, radius = ground_truth.cell_area(LISTING), 12 * 2 * PRINTED_HALF_PERIOD
    tail = cube_tail(PRINTED_HALF_PERIOD, 12)
    density = tail * radius
    figures = {f"largest |T| |w|³/(2|z|) at |z/w|={r:g}": f for r, f in factors.items()}
    figures |= {
        "tail of |w|^-3 beyond 12 periods": tail,
        "2 pi / (A R)": 2 * math.pi / (area * radius),
        "tail times R": density,
    }
    parts = {
        "leading behaviour": abs(factors[1e-6] - 1) < 1e-5,
        # The sampled directions include the worst one; the slack is rounding.
        "term inequality": all(f <= term_factor(r) * (1 + 1e-9) for r, f in factors.items()),
        "tail ~ density/R": abs(density / tail_density(area) - 1) < 0.05,
    }
    wrong = [name for name, holds in parts.items() if not holds]
    evidence = (
        f"|T| reaches {factors[0.25]:.3g} and {factors[0.5]:.3g} times 2|z|/|w|³ at |z/w| = 0.25 "
        f"and 0.5 ({factors[1e-6]:.6f} in the limit); the tail of |w|^-3 beyond R = {radius:.2f} "
        f"is {tail:.7f} = {density:.4f}/R (2π/(A R) = {figures['2 pi / (A R)']:.7f}); "
        f"not holding: {', '.join(wrong) or 'nothing'}"
    )
    return Finding(judge_parts(*parts.values()), evidence, figures)


def printed_cube_bound(radius: float, half_period: float) -> float:
    """Second inequality of eq:trunc_bound without its factor 2|z|."""
    return radius**-2


TAIL_CASES = (  # half-period of a square lattice, radius in periods
    (PRINTED_HALF_PERIOD, 2.5),
    (PRINTED_HALF_PERIOD, 30 / (2 * PRINTED_HALF_PERIOD)),
    (PRINTED_HALF_PERIOD, 12.0),
    (PRINTED_HALF_PERIOD, 100.0),
    (1.0, 15.0),
    (0.1, 150.0),
)


def sum_of_cubes(bound: Callable[[float, float], float] = printed_cube_bound) -> Finding:
    """F12: the sum of |w|^-3 over |w| > R against 1/R²."""
    figures, ratios = {}, []
    for half_period, periods in TAIL_CASES:
        radius = 2 * half_period * periods
        ratios.append(cube_tail(half_period, periods) / bound(radius, half_period))
        figures[f"omega1={half_period:.4g}, R={radius:.4g}"] = ratios[-1]
    # Twice the lattice, twice the radius: by what power of two does each side change?
    figures["degree of the sum"] = math.log2(cube_tail(2.0, 15.0) / cube_tail(1.0, 15.0))
    figures["degree of the bound"] = math.log2(bound(60.0, 2.0) / bound(30.0, 1.0))
    evidence = (
        "sum over bound: "
        + ", ".join(f"{r:.4g} at {name}" for name, r in zip(figures, ratios, strict=False))
        + f"; doubling all lengths scales the sum by 2^{figures['degree of the sum']:.2f}, "
        f"the bound by 2^{figures['degree of the bound']:.2f}"
    )
    holds = all(ratio <= 1 for ratio in ratios)
    return Finding(Verdict.TRUE if holds else Verdict.FALSE, evidence, figures)


# --- The error of the 25 x 25 box ------------------------------------------------------------


class BoxError(NamedTuple):
    """The truncation errors at the points of a cell."""

    z: Array
    wp: Array
    wp_prime: Array


LATTICES: dict[str, HalfPeriods] = {
    "2.622 square": LISTING,
    "1.854 square": LEMNISCATIC,
    "(1, i)": PLACEHOLDER,
    "(0.5, 0.5i)": (0.5, 0.5j),
    "(0.1, 0.1i)": (0.1, 0.1j),
    "2.622 x 0.3i": (PRINTED_HALF_PERIOD, 0.3j),
    "hexagonal": (1.0, complex(0.5, math.sqrt(0.75))),
    "(0.3, 0.15+0.3i)": (0.3, 0.15 + 0.3j),
}


@cache
def box_error(periods: HalfPeriods, size: int = 40) -> BoxError:
    """Errors of the sum over |m|, |n| <= 12 on the closed cell, short of its corners."""
    u, v = np.meshgrid(np.linspace(0.002, 0.998, size), np.linspace(0.002, 0.998, size))
    z = (2 * (u * periods[0] + v * periods[1])).ravel()
    wp, wp_prime = ground_truth.wp_and_prime(z, periods)
    box_wp, box_prime = ground_truth.box_sum(z, periods, BOX)
    return BoxError(z, np.abs(wp - box_wp), np.abs(wp_prime - box_prime))


def radii(periods: HalfPeriods) -> tuple[float, float]:
    """Distance from 0 of the nearest point of the box's edge, and of its farthest corner."""
    a, b = 2 * complex(periods[0]), 2 * complex(periods[1])
    inscribed = BOX * min(abs(a), abs(b), abs(a + b), abs(a - b))
    return inscribed, BOX * max(abs(a + b), abs(a - b))


ErrorBound = Callable[[Array, HalfPeriods], Array]


def printed_error_bound(z: Array, periods: HalfPeriods) -> Array:
    """eq:trunc_bound, with the smaller radius: the reading that favours the paper."""
    return 2 * np.abs(z) / radii(periods)[0] ** 2


def truncation_bound(
    bound: ErrorBound = printed_error_bound, stated_radius: float = 30.0, factor: float = 1e-3
) -> Finding:
    """F13: the bound on eight lattices, the radius 30, and the error 1e-3 |z|."""
    figures: dict[str, float] = {}
    ratios: dict[str, float] = {}
    for name, periods in LATTICES.items():
        error, (inner, outer) = box_error(periods), radii(periods)
        printed = error.wp / (2 * np.abs(error.z))
        ratios[name] = float((error.wp / bound(error.z, periods)).max())
        figures |= {
            f"{name}: error / bound": ratios[name],
            f"{name}: max error": float(error.wp.max()),
            f"{name}: max error / |z|": float((error.wp / np.abs(error.z)).max()),
            f"{name}: max error of the derivative": float(error.wp_prime.max()),
            f"{name}: ratio with the corner's radius": float((printed * outer**2).max()),
            f"{name}: ratio with radius 30": float((printed * 30**2).max()),
        }
    inner, outer = radii(LISTING)
    figures |= {"radius of the box, inscribed": inner, "radius of the box, corner": outer}
    own = [figures[f"{name}: max error / |z|"] for name in ("2.622 square", "1.854 square")]
    violated = [name for name, ratio in ratios.items() if ratio > 1]
    evidence = (
        "error over bound: "
        + ", ".join(f"{ratio:.3g} ({name})" for name, ratio in ratios.items())
        + f"; violated on {len(violated)} of {len(ratios)} lattices; the box reaches R = "
        f"{inner:.2f} (corner {outer:.2f}), stated {stated_radius:g}; error {own[0]:.2g}|z| on the "
        f"listing's lattice, {own[1]:.2g}|z| for g2=1, "
        f"{figures['(1, i): max error / |z|']:.3g}|z| on (1, i)"
    )
    parts = (
        not violated,
        any(abs(stated_radius / radius - 1) < 0.1 for radius in (inner, outer)),
        max(own) <= factor,
    )
    return Finding(judge_parts(*parts), evidence, figures)


CLAIMS = (
    Claim(
        "F11",
        "L210 (eq:asymptotic_behavior), L213-L216 (eq:truncation_error), L217 (first ≤)",
        "|T| ≈ 2|z|/|w|³, used as an upper bound; the sum of |w|^-3 over |w| > R is about 1/R.",
        "|T| ≤ 2|z|/|w|³ · (1-r/2)/(1-r)² with r = |z|/|w|, attained at z = r w; the sum is "
        "2π/(A R) + O(R^-2), A the area of the cell.",
        terms_and_tails,
    ),
    Claim(
        "F12",
        "L217-L219, eq:trunc_bound, second ≤",
        "The sum of 2|z|/|w|³ over |w| > R is at most 2|z|/R².",
        "It is 2|z|·2π/(A R) to leading order, A the area of the cell: one power of R less, and "
        "at most 2|z|(2π/A)(1/R + 2.5δ/R²), δ the covering radius.",
        sum_of_cubes,
    ),
    Claim(
        "F13",
        "L217-L220, eq:trunc_bound",
        "|E| ≤ 2|z|/R_max²; M = N = 12 gives R_max ≈ 30 and an error of at most 1e-3 |z|.",
        "|E| ≤ 9.45 κ |z|²/(A R²) on a reduced lattice (R = 12.5 Im τ |2ω1|, κ ≤ 1.006 in the "
        "central cell); R is 62.9 to 89.0, and the error 6e-5 |z| on the listing's lattice.",
        truncation_bound,
    ),
)
