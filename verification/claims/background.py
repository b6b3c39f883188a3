"""F6-F10: expansions, differential equation, group law, addition formula, Lipschitz lemma."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np

from verification.claims import ground_truth
from verification.claims.claim import Claim, Finding, Verdict, judge_parts
from verification.claims.numpy_listing import LISTING, HalfPeriods, grid_points
from wefpe_core import Lattice

OBLIQUE = Lattice(1.0, 0.3 + 0.9j)
SEED = 20250826
# Identities are judged at forty digits: anything above this is not a rounding error.
ROUNDING = 1e-30

LaurentCoefficients = Callable[[Any, Any], dict[int, Any]]


def printed_laurent(g2: Any, g3: Any) -> dict[int, Any]:
    """eq:laurent_expansion, by power of z."""
    return {-2: 1, 2: g2 / 20, 4: g3 / 28, 6: g2**2 / 1200}


def laurent_order(coefficients: LaurentCoefficients) -> float:
    """The order of the remainder of wp; 8 if every coefficient up to z⁶ is right."""
    backend = ground_truth.reference()
    with mpmath.workdps(ground_truth.DIGITS):
        terms = coefficients(*backend.invariants(OBLIQUE))
        h = mpmath.mpf(2) ** -9
        first, second = (
            abs(backend.wp(z, OBLIQUE) - sum(c * z**k for k, c in terms.items()))
            for z in (h, 2 * h)
        )
        return float(mpmath.log(second / first, 2))


def expansions(
    laurent: LaurentCoefficients = printed_laurent, *, finitely_many_poles: bool = True
) -> Finding:
    """F6: each of the textbook statements of appendices B and C."""
    figures = {
        "order of the Laurent remainder": laurent_order(laurent),
        "differential equation, residual": _differential_equation(20),
        "Cauchy formula, error": _cauchy_formula(),
        "Cauchy-Riemann, residual": _cauchy_riemann(),
        "csc² series, error": _csc_series(),
        "cotangent, symmetric sum, error": _cotangent(left=1, right=1),
        "cotangent, lopsided sum, error": _cotangent(left=1, right=2),
    }
    for box in (2, 4, 8):
        figures[f"poles with |m|, |n| <= {box}"] = float(_poles(box))
    poles_grow = figures["poles with |m|, |n| <= 8"] > figures["poles with |m|, |n| <= 4"]
    parts = {
        "Laurent": abs(figures["order of the Laurent remainder"] - 8) < 0.1,
        "differential equation": figures["differential equation, residual"] < ROUNDING,
        "Cauchy": figures["Cauchy formula, error"] < ROUNDING,
        "Cauchy-Riemann": figures["Cauchy-Riemann, residual"] < 1e-15,
        "csc²": figures["csc² series, error"] < 1e-20,
        "definition of meromorphic": poles_grow != finitely_many_poles,
    }
    wrong = [name for name, holds in parts.items() if not holds]
    evidence = (
        f"Laurent remainder of order {figures['order of the Laurent remainder']:.3f}, differential "
        f"equation to {figures['differential equation, residual']:.0e}, Cauchy formula to "
        f"{figures['Cauchy formula, error']:.0e}; {_poles(2)}, {_poles(4)}, {_poles(8)} poles "
        f"of wp in growing boxes; the cotangent sum misses by "
        f"{figures['cotangent, lopsided sum, error']:.4f} unless summed symmetrically; "
        f"not holding: {', '.join(wrong) or 'nothing'}"
    )
    return Finding(judge_parts(*parts.values()), evidence, figures)


def _differential_equation(count: int) -> float:
    backend, rng = ground_truth.reference(), np.random.default_rng(SEED)
    worst = 0.0
    for _ in range(count):
        lattice = Lattice.from_tau(complex(rng.uniform(-0.5, 0.5), rng.uniform(0.9, 2)))
        z = complex(*rng.uniform(0.1, 0.45, 2))
        p, dp = backend.wp_and_prime(z, lattice)
        g2, g3 = backend.invariants(lattice)
        with mpmath.workdps(ground_truth.DIGITS):
            residual = abs(dp**2 - 4 * p**3 + g2 * p + g3) / abs(dp) ** 2
            worst = max(worst, float(residual))
    return worst


def _cauchy_formula() -> float:
    """First derivative at 0.5 from a circle; the trapezoidal rule converges geometrically."""
    backend, centre, radius, nodes = (
        ground_truth.reference(),
        mpmath.mpf("0.5"),
        mpmath.mpf("0.05"),
        48,
    )
    with mpmath.workdps(ground_truth.DIGITS):
        total = mpmath.mpc(0)
        for k in range(nodes):
            direction = mpmath.expjpi(mpmath.mpf(2 * k) / nodes)
            total += backend.wp(centre + radius * direction, OBLIQUE) / direction
        return float(abs(total / nodes / radius - backend.wp_prime(centre, OBLIQUE)))


def _cauchy_riemann() -> float:
    backend, z, h = ground_truth.reference(), mpmath.mpc("0.5", "0.3"), mpmath.mpf(10) ** -10
    with mpmath.workdps(ground_truth.DIGITS):
        step_x, step_y = (
            (backend.wp(z + d, OBLIQUE) - backend.wp(z - d, OBLIQUE)) / (2 * h)
            for d in (h, mpmath.mpc(0, h))
        )
        return float(abs(step_x.real - step_y.imag) + abs(step_y.real + step_x.imag))


def _csc_series() -> float:
    with mpmath.workdps(ground_truth.DIGITS):
        z = mpmath.mpc("0.3", "0.2")
        total = z**-2 + mpmath.nsum(lambda n: (z - n) ** -2 + (z + n) ** -2, [1, mpmath.inf])
        return float(abs(total - (mpmath.pi / mpmath.sin(mpmath.pi * z)) ** 2))


def _cotangent(*, left: int, right: int) -> float:
    """How far the sum of 1/(z-n), n from -left*N to right*N, is from pi cot(pi z)."""
    z, size = 0.3, 200_000
    n = np.arange(-left * size, right * size + 1)
    return abs(float(np.sum(1 / (z - n))) - float(np.pi / np.tan(np.pi * z)))


def _poles(box: int) -> int:
    """Lattice points of a box at which the evaluated wp is infinite."""
    m, n = np.mgrid[-box : box + 1, -box : box + 1]
    values, _ = ground_truth.wp_and_prime(2.0 * m + 2.0j * n, (1.0, 1.0j))
    return int(np.sum(np.isinf(values)))


Laurent = dict[int, Fraction]


def _product(f: Laurent, g: Laurent) -> Laurent:
    result: Laurent = {}
    for i, a in f.items():
        for j, b in g.items():
            result[i + j] = result.get(i + j, Fraction(0)) + a * b
    return result


def constant_terms_of_the_proof() -> tuple[Fraction, Fraction, Fraction]:
    """Constant terms of wp'², -4wp³ and g3 in units of g3, by exact series algebra."""
    wp = {-2: Fraction(1), 4: Fraction(1, 28)}  # g2 contributes to no constant term
    prime = {k - 1: k * c for k, c in wp.items()}
    cube = _product(wp, _product(wp, wp))
    return _product(prime, prime)[0], -4 * cube[0], Fraction(1)


PRINTED_CONSTANT_TERMS = (Fraction(-4, 7), Fraction(3, 7), Fraction(1))


def constant_term(
    printed: tuple[Fraction, Fraction, Fraction] = PRINTED_CONSTANT_TERMS,
) -> Finding:
    """F7: the constant term of the auxiliary function, as printed and as derived."""
    derived, total = constant_terms_of_the_proof(), sum(printed)
    figures = {
        "printed sum / g3": float(total),
        "derived sum / g3": float(sum(derived)),
        **{f"derived term {k + 1}": float(term) for k, term in enumerate(derived)},
    }
    evidence = (
        f"the printed terms ({', '.join(map(str, printed))})·g3 add up to {total}·g3; the series "
        f"gives ({', '.join(map(str, derived))})·g3, sum {sum(derived)}"
    )
    holds = total == 0 and printed == derived
    return Finding(Verdict.TRUE if holds else Verdict.FALSE, evidence, figures)


def group_law(slope_factor: float = 1.0, cases: int = 30) -> Finding:
    """F8: x3 = factor * slope² - x1 - x2 and y3 = slope (x1 - x3) - y1 against wp(z1 + z2)."""
    backend, square = ground_truth.reference(), Lattice.lemniscatic()
    z = [0.7 + 0.3j, 0.4 - 0.9j, *ground_truth.random_points(2 * cases - 2, (1.8, 1.8j), SEED)]
    g2, g3 = backend.invariants(square)
    errors, off_curve, first = [], [], (0j, 0j)
    for z1, z2 in zip(z[::2], z[1::2], strict=True):
        with mpmath.workdps(ground_truth.DIGITS):
            x1, y1 = backend.wp_and_prime(complex(z1), square)
            x2, y2 = backend.wp_and_prime(complex(z2), square)
            true = backend.wp_and_prime(mpmath.mpc(complex(z1)) + mpmath.mpc(complex(z2)), square)
            slope = (y2 - y1) / (x2 - x1)
            x3 = slope_factor * slope**2 - x1 - x2
            y3 = slope * (x1 - x3) - y1
            errors.append(float((abs(x3 - true[0]) + abs(y3 - true[1])) / (1 + abs(true[0]))))
            off_curve.append(float(abs(y3**2 - 4 * x3**3 + g2 * x3 + g3)))
        if len(errors) == 1:
            first = complex(true[0]), complex(x3)
    figures = {
        "smallest error": min(errors),
        "largest error": max(errors),
        "first example, distance from the curve": off_curve[0],
        "first example, true x3, real part": first[0].real,
        "first example, given x3, real part": first[1].real,
    }
    evidence = (
        f"at z1=0.7+0.3i, z2=0.4-0.9i wp(z1+z2) = {first[0]:.6f}, the law gives {first[1]:.6f}, "
        f"off the curve by {off_curve[0]:.3g}; errors of {len(errors)} sums lie between "
        f"{min(errors):.2g} and {max(errors):.2g}"
    )
    return Finding(Verdict.TRUE if max(errors) < ROUNDING else Verdict.FALSE, evidence, figures)


Hypothesis = Callable[[complex, complex, Callable[[complex], bool]], bool]


def printed_hypothesis(z1: complex, z2: complex, in_lattice: Callable[[complex], bool]) -> bool:
    """thm:addition_formula: z1 and z2 differ modulo the lattice."""
    return not in_lattice(z1 - z2)


def addition_formula(hypothesis: Hypothesis = printed_hypothesis) -> Finding:
    """F9: the formula wherever its hypothesis admits it, also at poles and for sums that are 0."""
    backend, square = ground_truth.reference(), Lattice(1.0, 1.0j)

    def in_lattice(z: complex) -> bool:
        return (z.real / 2).is_integer() and (z.imag / 2).is_integer()

    generic = [(0.25 + 0.5j, 0.75 + 0.125j), (0.5 + 0.75j, 1.125 + 0.25j), (0.125j, 0.375 + 1.25j)]
    special = [(0.25 + 0.5j, -0.25 - 0.5j), (0.25 + 0.5j, 1.75 + 1.5j), (0.5 + 0.25j, 2.0 + 2.0j)]
    worst, broken = 0.0, 0
    for z1, z2 in generic + special:
        if not hypothesis(z1, z2, in_lattice):
            continue
        p1, dp1 = backend.wp_and_prime(z1, square)
        p2, dp2 = backend.wp_and_prime(z2, square)
        with mpmath.workdps(ground_truth.DIGITS):
            if not mpmath.isfinite(p1 + p2) or p1 == p2:
                broken += 1
                continue
            right = -p1 - p2 + ((dp1 - dp2) / (p1 - p2)) ** 2 / 4
            worst = max(worst, float(abs(right - backend.wp(z1 + z2, square)) / abs(right)))
    figures = {"largest error": worst, "admitted pairs without a value": float(broken)}
    evidence = (
        f"the formula holds to {worst:.0e}; its hypothesis admits {broken} of {len(special)} "
        "special pairs (z2 ≡ -z1, or a lattice point) where the right side has no value"
    )
    return Finding(judge_parts(worst < ROUNDING, broken == 0), evidence, figures)


def lipschitz(periods: HalfPeriods = LISTING, size: int = 14) -> Finding:
    """F10: difference quotients on the square that the patches span, against max |wp'|."""
    corners = grid_points(size, periods, 1.0)
    x = np.linspace(corners.real.min(), corners.real.max(), 57)
    y = np.linspace(corners.imag.min(), corners.imag.max(), 57)
    z = (x[None, :] + 1j * y[:, None]).ravel()
    p, dp = ground_truth.wp_and_prime(z, periods)
    constant = float(np.abs(dp).max())  # the square is convex and free of poles
    sample = np.random.default_rng(SEED).integers(0, z.size, (2, 20_000))
    i, j = sample[:, sample[0] != sample[1]]
    quotient = float((np.abs(p[i] - p[j]) / np.abs(z[i] - z[j])).max())
    figures = {"largest quotient": quotient, "max slope of the square": constant}
    for n in (14, 24, 56):
        values = ground_truth.wp_and_prime(grid_points(n, periods, 1.0), periods)[1]
        figures[f"max slope on {n}x{n} patches"] = float(np.abs(values).max())
    figures["distance from a mean value"] = _mean_value_gap(periods)
    constants = ", ".join(f"{figures[f'max slope on {n}x{n} patches']:.4g}" for n in (14, 24, 56))
    evidence = (
        f"largest quotient {quotient:.4g}, below max |wp'| = {constant:.4g}; the constant is "
        f"{constants} on 14², 24², 56² patches; no mean value theorem stands behind it: on one "
        f"segment the quotient stays {figures['distance from a mean value']:.3g} away from every "
        "value of wp'"
    )
    return Finding(Verdict.TRUE if quotient <= constant else Verdict.FALSE, evidence, figures)


def _mean_value_gap(periods: HalfPeriods) -> float:
    """Distance of one difference quotient of wp from the values of wp' on its segment."""
    z1, z2 = 0.2 * periods[0] + 0.2 * periods[1], 1.2 * periods[0] + 0.5 * periods[1]
    p, _ = ground_truth.wp_and_prime(np.array([z1, z2]), periods)
    _, dp = ground_truth.wp_and_prime(z1 + (z2 - z1) * np.linspace(0, 1, 4001), periods)
    return float(np.abs(dp - (p[1] - p[0]) / (z2 - z1)).min())


CLAIMS = (
    Claim(
        "F6",
        "L725, L730-L805 (eq:laurent_expansion, eq:weierstrass_ode), L1013-L1023 (eq:csc_series)",
        "Laurent expansion, differential equation, Cauchy, Liouville, cotangent and csc² series; "
        "a meromorphic function has finitely many singularities.",
        "All hold (the cotangent sum symmetrically); but poles need only be locally finite: wp "
        "has one at every lattice point.",
        expansions,
    ),
    Claim(
        "F7",
        "L825, proof of thm:weierstrass_ode",
        "The constant term is -4g3/7 + 3g3/7 + g3 = 0.",
        "It is -4g3/7 - 3g3/7 + g3 = 0, because 4wp³ is subtracted; the printed sum is 6g3/7.",
        constant_term,
    ),
    Claim(
        "F8",
        "L853-L856, eq:group_law_x",
        "x3 = ((y2-y1)/(x2-x1))² - x1 - x2 on y² = 4x³ - g2 x - g3.",
        "x3 = ((y2-y1)/(x2-x1))²/4 - x1 - x2; y3 is right once x3 is.",
        group_law,
    ),
    Claim(
        "F9",
        "L859-L865, thm:addition_formula",
        "The addition formula holds for z1 ≢ z2 modulo the lattice.",
        "It needs z1 ≢ ±z2 and z1, z2 ≢ 0.",
        addition_formula,
    ),
    Claim(
        "F10",
        "L901-L906, Lipschitz lemma",
        "wp is Lipschitz on every compact set without lattice points, by the mean value theorem.",
        "True, by bounding wp' on paths in a larger compact set; there is no mean value theorem "
        "for complex functions, and the constant grows like the cube of the grid size.",
        lipschitz,
    ),
)
