"""F1-F5: the half-periods the paper prints, and what lattices they make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np

from verification.claims import ground_truth, numpy_listing
from verification.claims.claim import Claim, Finding, Verdict, judge_parts, judge_readings
from verification.claims.numpy_listing import HalfPeriods
from wefpe_core import Lattice

PRINTED = "2.62205755429212"  # a string, so that rounding adds no digit to what is printed
LAST_DIGIT = 5e-15  # half a unit of the last printed decimal
SAME = 1e-12  # two numbers computed in double precision that are meant to be equal


def printed_formula() -> Any:
    """eq:exact_half_period."""
    return mpmath.gamma(mpmath.mpf(1) / 4) ** 2 / (2 * mpmath.sqrt(2 * mpmath.pi))


def listing_comment() -> Any:
    """The comment above the constant in the listing."""
    return mpmath.gamma(mpmath.mpf(1) / 4) ** 2 / mpmath.sqrt(2 * mpmath.pi)


def true_half_period(g2: Any) -> Any:
    """Real half-period of y² = 4x³ - g2 x, g2 > 0, by the arithmetic-geometric mean."""
    return mpmath.pi / (2 * mpmath.agm(1, mpmath.sqrt(0.5))) / mpmath.root(g2, 4)


def half_period_by_integral(g2: Any) -> Any:
    """The same number as the integral of dx/y from the largest root, x = e1 + s²."""
    e1 = mpmath.sqrt(g2) / 2
    return mpmath.quad(
        lambda s: 1 / mpmath.sqrt((e1 + s**2) * (2 * e1 + s**2)), [0, 1, 4, mpmath.inf]
    )


def square_g2(half_period: Any) -> float:
    """g2 of the square lattice with this half-period, from the ground truth."""
    g2, _ = ground_truth.reference().invariants(
        Lattice(half_period, half_period * mpmath.mpc(0, 1))
    )
    return float(g2.real)


def half_period(
    formula: Callable[[], Any] = printed_formula, number: str = PRINTED, g2: float = 1.0
) -> Finding:
    """F1: formula and number against the arithmetic-geometric mean and the integral."""
    with mpmath.workdps(ground_truth.DIGITS):
        true, integral = true_half_period(g2), half_period_by_integral(g2)
        agreement = max(abs(integral - true), mpmath.eps)
        value = formula()
        formula_gap, number_gap = abs(value - true), abs(mpmath.mpf(number) - true)
        holds = formula_gap < mpmath.mpf(10) ** -30 and number_gap < LAST_DIGIT
        g2_obtained = square_g2(mpmath.mpf(number))
        figures = {
            "true half-period": float(true),
            "integral minus AGM": float(abs(integral - true)),
            "formula": float(value),
            "number minus formula": float(abs(mpmath.mpf(number) - value)),
            "ratio to the true one": float(value / true),
            "g2 obtained": g2_obtained,
            "g2 of twice the number": square_g2(2 * mpmath.mpf(number)),
        }
        evidence = (
            f"the half-period for g2={g2:g} is {mpmath.nstr(true, 16)} (AGM and integral agree to "
            f"{mpmath.nstr(agreement, 1)}); the printed {number} is "
            f"{mpmath.nstr(value / true, 10)} times that and gives g2 = {g2_obtained:.10f}"
        )
    return Finding(Verdict.TRUE if holds else Verdict.FALSE, evidence, figures)


def comment_on_the_constant(
    formula: Callable[[], Any] = listing_comment, number: str = PRINTED, g2: float = 1.0
) -> Finding:
    """F2: the comment against the number it stands above, and against the half-period."""
    with mpmath.workdps(ground_truth.DIGITS):
        value, true = formula(), true_half_period(g2)
        figures = {
            "comment": float(value),
            "comment / number in the code": float(value / mpmath.mpf(number)),
            "comment / half-period": float(value / true),
            "g2 of that lattice": square_g2(value),
        }
        verdict = judge_parts(
            abs(value - mpmath.mpf(number)) < LAST_DIGIT, abs(value - true) < LAST_DIGIT
        )
    evidence = (
        f"the comment's formula is {figures['comment']:.15f}: "
        f"{figures['comment / number in the code']:.6f} times the number below it and "
        f"{figures['comment / half-period']:.6f} times the half-period; "
        f"its lattice has g2 = {figures['g2 of that lattice']:.8f}"
    )
    return Finding(verdict, evidence, figures)


Constructor = Callable[[float, float], HalfPeriods]
NON_LEMNISCATIC = ((1.0, 0.1), (1.0, -0.1), (4.0, 1.0), (0.0, 1.0), (1.0, 1.0))


def _invariants(periods: HalfPeriods) -> tuple[complex, complex]:
    g2, g3 = ground_truth.reference().invariants(Lattice(*periods))
    return complex(g2), complex(g3)


def _has_invariants(periods: HalfPeriods, g2: float, g3: float) -> bool:
    got = _invariants(periods)
    scale = abs(g2) + abs(g3)
    return abs(got[0] - g2) < SAME * scale and abs(got[1] - g3) < SAME * scale


def placeholder_periods(constructor: Constructor = numpy_listing.half_periods) -> Finding:
    """F3: the lattice made for g3 != 0, against the invariants that were asked for."""
    right = [_has_invariants(constructor(g2, g3), g2, g3) for g2, g3 in NON_LEMNISCATIC]
    obtained = _invariants(constructor(1.0, 0.1))
    figures = {"g2 obtained": obtained[0].real, "g3 obtained": obtained[1].real}
    for g2, g3 in NON_LEMNISCATIC:
        figures[f"omega1 for ({g2:g}, {g3:g})"] = Lattice.from_invariants(g2, g3).omega1.real
    # z is mapped by the same half-periods, so the features change only by a power of the scale.
    here = ground_truth.raw_features(14, constructor(1.0, 0.1), 1.0)
    default = ground_truth.raw_features(14, constructor(1.0, 0.0), 1.0)
    figures["features of wp, ratio"] = _ratio(here[:, :2], default[:, :2])
    figures["features of its derivative, ratio"] = _ratio(here[:, 2:], default[:, 2:])
    evidence = (
        f"{sum(right)} of {len(right)} requests with g3 != 0 give a lattice with those invariants; "
        f"(1, 0.1) gives g2 = {obtained[0].real:.6f}, g3 = {obtained[1].real:.2g} where omega1 "
        f"should be {figures['omega1 for (1, 0.1)']:.7f}; on a 14x14 grid wp is "
        f"{figures['features of wp, ratio']:.6f} and wp' "
        f"{figures['features of its derivative, ratio']:.6f} times the default's"
    )
    return Finding(judge_parts(*right), evidence, figures)


def _ratio(values: Any, others: Any) -> float:
    return float(np.linalg.norm(values) / np.linalg.norm(others))


def use_of_g2(constructor: Constructor = numpy_listing.half_periods) -> Finding:
    """F4: half-periods for g3 = 0 and several g2, among them a small and harmless one."""
    requests = (1.0, 5.0, 1e-3)
    right, refused = [], 0
    for g2 in requests:
        try:
            right.append(_has_invariants(constructor(g2, 0.0), g2, 0.0))
        except numpy_listing.RefusedInvariantsError:
            refused += 1
            right.append(False)
    with mpmath.workdps(ground_truth.DIGITS):
        figures = {
            "true omega1 for g2=5": float(true_half_period(5)),
            "omega1 of the constructor for g2=5": constructor(5.0, 0.0)[0].real,
            "refused": float(refused),
            "right": float(sum(right)),
        }
    evidence = (
        f"g2=5 gives omega1 = {figures['omega1 of the constructor for g2=5']:.8f} (true "
        f"{figures['true omega1 for g2=5']:.8f}); {sum(right)} of g2 = 1, 5, 0.001 are right and "
        f"{refused} refused, though the discriminant is as far from 0 as g2³ itself each time"
    )
    return Finding(judge_parts(*right), evidence, figures)


def lemniscatic_case(g2_values: tuple[float, ...] = (1.0, -1.0)) -> Finding:
    """F5: is the curve degenerate for g3 = 0, and is (real half-period, i times it) a basis?"""
    figures = {}
    square, generated = [], []
    for g2 in g2_values:
        lattice = Lattice.lemniscatic(g2)
        tau = lattice.reduced()[0].tau
        square.append(abs(tau - 1j) < SAME)
        real = _smallest_real_half_period(lattice)
        generated.append(_has_invariants((real, real * 1j), g2, 0.0))
        figures[f"reduced tau, distance from i, g2={g2:g}"] = abs(tau - 1j)
        figures[f"real half-period, g2={g2:g}"] = real
        figures[f"g2 of (w, iw), g2={g2:g}"] = _invariants((real, real * 1j))[0].real
    discriminants = [g2**3 for g2 in g2_values]
    degenerate = all(d == 0 for d in discriminants)
    figures["smallest |discriminant|"] = min(abs(d) for d in discriminants)
    evidence = (
        f"the discriminant is g2³ (here {', '.join(f'{d:g}' for d in discriminants)}), so the "
        f"curve is {'singular' if degenerate else 'regular'}; the lattice is square for "
        f"{sum(square)} of {len(square)} g2; the real half-period and i times it generate it for "
        f"{sum(generated)} of {len(generated)}"
    )
    return Finding(judge_readings(degenerate, all(square), all(generated)), evidence, figures)


def _smallest_real_half_period(lattice: Lattice) -> float:
    """Half of the shortest lattice vector on the real axis."""
    m, n = np.mgrid[-2:3, -2:3].reshape(2, -1)
    points = 2 * m * complex(lattice.omega1) + 2 * n * complex(lattice.omega3)
    real = points.real[(np.abs(points.imag) < SAME) & (points.real > SAME)]
    return float(real.min() / 2)


CLAIMS = (
    Claim(
        "F1",
        "L842-L849, eq:exact_half_period",
        "For g2 = 1, g3 = 0 the real half-period is Γ(1/4)²/(2√(2π)) ≈ 2.62205755429212.",
        "It is Γ(1/4)²/(4√π) = 1.854074677301372; in general that times g2^(-1/4), g2 > 0.",
        half_period,
    ),
    Claim(
        "F2",
        "L597, comment in the listing",
        "The exact value of omega1 is Γ(1/4)²/√(2π).",
        "That is 5.244115…, twice the number in the next line; the half-period is Γ(1/4)²/(4√π).",
        comment_on_the_constant,
    ),
    Claim(
        "F3",
        "L604-L611, listing; L536, ablation",
        "For g3 ≠ 0 (the non-lemniscatic setting) the half-periods 1 and i serve.",
        "(1, i) is square, so g3 = 0 again; periods come from g2 and g3 by the AGM.",
        placeholder_periods,
    ),
    Claim(
        "F4",
        "L591-L603, listing",
        "The calculator takes g2, and |g2³ - 27 g3²| > 1e-8 sorts out degenerate curves.",
        "omega1 scales like g2^(-1/4); the test must be relative to |g2|³ + 27 |g3|².",
        use_of_g2,
    ),
    Claim(
        "F5",
        "L834-L840, eq:lemniscatic_curve",
        "For g3 = 0 the curve degenerates to the lemniscatic case; the period lattice is square.",
        "The curve is regular (discriminant g2³) and the lattice square; for g2 < 0 it is turned "
        "by 45°, so the real half-period and i times it do not generate it.",
        lemniscatic_case,
    ),
)
