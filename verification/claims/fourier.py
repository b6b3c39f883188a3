"""F17-F18, F32: the row sums with csch², the Fourier series derived from them, theta functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np

from verification.claims import ground_truth
from verification.claims.background import ROUNDING
from verification.claims.claim import Claim, Finding, Verdict, judge_parts
from verification.claims.numpy_listing import (
    LISTING,
    Array,
    HalfPeriods,
    box_points,
    grid_points,
)
from wefpe_core import Lattice

PRINTED_SIGN = -1  # of L1042-L1048


def row_sum(z: Any, m: int, a: Any, b: Any) -> Any:
    """Sum over n of (z - m a - i n b)^-2, term by term with extrapolation."""
    x = z - m * a
    return x**-2 + mpmath.nsum(
        lambda n: (x - mpmath.mpc(0, n * b)) ** -2 + (x + mpmath.mpc(0, n * b)) ** -2,
        [1, mpmath.inf],
    )


def csch_rows(sign: int = PRINTED_SIGN) -> Finding:
    """F17: the closed form of a row against its sum, and all rows together against wp."""
    with mpmath.workdps(ground_truth.DIGITS):
        a, b = mpmath.mpf("2.3"), mpmath.mpf("1.7")
        z = mpmath.mpc("0.4", "0.3")

        def closed(x: Any) -> Any:
            return sign * (mpmath.pi / b) ** 2 * mpmath.csch(mpmath.pi * x / b) ** 2

        direct, origin = row_sum(z, 1, a, b), row_sum(mpmath.mpc(0), 1, a, b)
        # Row 0 by the csc² series of eq:csc_series, whose double pole at 0 leaves 1/3.
        total = -((mpmath.pi / b) ** 2) * (mpmath.csc(mpmath.mpc(0, -1) * mpmath.pi * z / b) ** 2)
        total += (mpmath.pi / b) ** 2 / 3
        for m in range(1, 40):
            total += closed(z - m * a) + closed(z + m * a) - 2 * closed(m * a)
        true = ground_truth.reference().wp(z, Lattice(a / 2, mpmath.mpc(0, b / 2)))
        x = mpmath.mpf("0.7")
        series = 4 * mpmath.nsum(lambda k: k * mpmath.exp(-2 * k * x), [1, mpmath.inf])
        figures = {
            "row, direct sum, real part": float(direct.real),
            "row, closed form, real part": float(closed(z - a).real),
            "row, relative error": float(abs(closed(z - a) / direct - 1)),
            "row at 0, direct sum": float(origin.real),
            "row at 0, closed form": float(closed(-a).real),
            "all rows minus wp": float(abs(total - true)),
            "csc(-ix) = i csch x, error": float(
                abs(mpmath.csc(mpmath.mpc(0, -x)) - mpmath.mpc(0, 1) * mpmath.csch(x))
            ),
            "csch² series, error": float(abs(series - mpmath.csch(x) ** 2)),
        }
    evidence = (
        f"a=2.3, b=1.7, z=0.4+0.3i, row m=1: direct sum {complex(direct):.7f}, closed form "
        f"{complex(closed(z - a)):.7f}; sum of 1/ω² {float(origin.real):.7f}, closed form "
        f"{figures['row at 0, closed form']:.7f}; all rows added miss wp by "
        f"{figures['all rows minus wp']:.2g}"
    )
    holds = figures["row, relative error"] < ROUNDING and figures["all rows minus wp"] < ROUNDING
    return Finding(Verdict.TRUE if holds else Verdict.FALSE, evidence, figures)


Series = Callable[[Any, Any, Any], Any]
TERMS = 60  # far more than forty digits need, because the nome is at most 0.07 here


def printed_fourier_series(z: Any, omega1: Any, omega3: Any) -> Any:
    """eq:fourier_exact."""
    q = mpmath.expjpi(omega3 / omega1)
    scale = (mpmath.pi / omega1) ** 2
    e4 = 1 + 240 * mpmath.fsum(_divisor_cubes(k) * q ** (2 * k) for k in range(1, TERMS))
    cosines = mpmath.fsum(
        k * q**k / (1 - q ** (2 * k)) * mpmath.cos(k * mpmath.pi * z / omega1)
        for k in range(1, TERMS)
    )
    return -scale / 3 * e4 + scale * cosines


def _divisor_cubes(k: int) -> int:
    return sum(d**3 for d in range(1, k + 1) if k % d == 0)


def dlmf_fourier_series(z: Any, omega1: Any, omega3: Any) -> Any:
    """DLMF 23.8.1, with eta1 through the Eisenstein series E2."""
    q = mpmath.expjpi(omega3 / omega1)
    scale = (mpmath.pi / omega1) ** 2
    weights = [k * q ** (2 * k) / (1 - q ** (2 * k)) for k in range(1, TERMS)]
    cosines = mpmath.fsum(
        w * mpmath.cos(k * mpmath.pi * z / omega1) for k, w in enumerate(weights, start=1)
    )
    pole = mpmath.csc(mpmath.pi * z / (2 * omega1)) ** 2 / 4
    return scale * (pole - (1 - 24 * mpmath.fsum(weights)) / 12 - 2 * cosines)


def shifted_fourier_series(z: Any, omega1: Any, omega3: Any) -> Any:
    """wp(z + omega3): where the weights k q^k/(1 - q^2k) of the paper belong."""
    q = mpmath.expjpi(omega3 / omega1)
    scale = (mpmath.pi / omega1) ** 2
    e2 = 1 - 24 * mpmath.fsum(k * q ** (2 * k) / (1 - q ** (2 * k)) for k in range(1, TERMS))
    cosines = mpmath.fsum(
        k * q**k / (1 - q ** (2 * k)) * mpmath.cos(k * mpmath.pi * z / omega1)
        for k in range(1, TERMS)
    )
    return -scale * (e2 / 12 + 2 * cosines)


POINTS = (0.5 + 0.4j, 1.7 - 0.6j, 0.02 + 0.01j)


def fourier_series(series: Series = printed_fourier_series) -> Finding:
    """F18: the series against wp on two lattices, at three points, one of them near the pole."""
    rectangles: tuple[HalfPeriods, ...] = (LISTING, (1.0, 1.25j))
    backend = ground_truth.reference()
    errors, shifted = [], 0.0
    with mpmath.workdps(ground_truth.DIGITS):
        for periods in rectangles:
            w1, w3 = (mpmath.mpc(w) for w in periods)
            lattice = Lattice(*periods)
            for z in map(mpmath.mpc, POINTS):
                true = backend.wp(z, lattice)
                errors.append(float(abs(series(z, w1, w3) - true) / abs(true)))
            z = mpmath.mpc(POINTS[0])
            gap = shifted_fourier_series(z, w1, w3) - backend.wp(z + w3, lattice)
            shifted = max(shifted, float(abs(gap)))
        w1, w3 = (mpmath.mpc(w) for w in LISTING)
        first = complex(series(mpmath.mpc(POINTS[0]), w1, w3))
        near_pole = complex(series(mpmath.mpc("1e-12"), w1, w3))
        true_first = complex(backend.wp(POINTS[0], Lattice(*LISTING)))
    figures = {
        "smallest relative error": min(errors),
        "largest relative error": max(errors),
        "value at 0.5+0.4i, real part": first.real,
        "wp at 0.5+0.4i, real part": true_first.real,
        "value at 1e-12, real part": near_pole.real,
        "series for wp(z + omega3), error": shifted,
    }
    evidence = (
        f"listing's lattice, z=0.5+0.4i: wp = {true_first:.6f}, series {first:.6f}; at z=1e-12, "
        f"next to the pole, the series is {near_pole.real:.4g}; relative errors "
        f"{min(errors):.2g} to {max(errors):.2g}; with factor -2 and E2 the same cosines give "
        f"wp(z+ω3) to {shifted:.0e}"
    )
    return Finding(Verdict.TRUE if max(errors) < ROUNDING else Verdict.FALSE, evidence, figures)


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
    reference = ground_truth.reference()
    true = np.array([complex(reference.wp(complex(x), Lattice(*LISTING))) for x in z])
    theta = float((np.abs(evaluate(z, LISTING) - true) / (1 + np.abs(true))).max())
    lattice_sum = float(
        (np.abs(ground_truth.box_sum(z, LISTING)[0] - true) / (1 + np.abs(true))).max()
    )
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


CLAIMS = (
    Claim(
        "F17",
        "L1039-L1048",
        "The row m of the lattice sum is -(π²/b²)(csch²(π(z-ma)/b) - csch²(πma/b)).",
        "The sign is +: (π/(ib))² csc²(πx/(ib)) = +(π/b)² csch²(πx/b).",
        csch_rows,
    ),
    Claim(
        "F18",
        "L1052 (eq:fourier_series), L1071 (eq:fourier_exact)",
        "wp is a constant with E4 plus (π/ω1)² Σ k q^k/(1-q^2k) cos(kπz/ω1).",
        "wp = (π/ω1)² [csc²(πz/2ω1)/4 - E2/12 - 2 Σ k q^2k/(1-q^2k) cos(kπz/ω1)] (DLMF 23.8.1); "
        "without the csc² term there is no pole.",
        fourier_series,
    ),
    Claim(
        "F32",
        "L197",
        "Theta functions are mathematically better but unstable, so the lattice sum is used.",
        "In double precision a plain theta quotient is some eleven digits more accurate than the "
        "sum; instability in training is not documented.",
        theta_stability,
    ),
)
