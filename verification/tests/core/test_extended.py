"""The fifty-digit decimals against mpmath, and what they say about lattices.

Fifty digits are what `wefpe_core.extended` promises (it computes with twenty more), so one unit
in the fiftieth digit is the tolerance throughout: ``UNIT``.
"""

from __future__ import annotations

import decimal
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from itertools import permutations, product
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given

from verification import cases
from verification.tests.strategies import SkewedLattice, skewed_lattices
from wefpe_core import Lattice, get_backend
from wefpe_core.extended import (
    DIGITS,
    PI,
    ExtendedComplex,
    arithmetic_geometric_mean,
    extended_precision,
    nearer,
)
from wefpe_core.lattice_constants import cubic_roots, lattice_constants

UNIT = mpmath.mpf(10) ** -DIGITS
WORKING_DIGITS = 90  # of mpmath: more than the decimals have, so that it is exact beside them


def to_mpmath(value: Any) -> Any:
    """A decimal or a pair of decimals as an mpmath number, rounded to its current precision."""
    if isinstance(value, Decimal):
        return mpmath.mpf(str(value))
    return mpmath.mpc(str(value.re), str(value.im))


def relative_error(got: Any, want: Any, scale: Any = None) -> Any:
    with mpmath.workdps(WORKING_DIGITS):
        return abs(to_mpmath(got) - want) / (abs(want) if scale is None else scale)


def random_numbers(count: int, decades: float) -> list[complex]:
    """Complex doubles of every phase, their moduli spread over 10**(-decades)..10**decades."""
    rng = np.random.default_rng(50)
    phases = np.exp(2j * np.pi * rng.random(count))
    return [complex(z) for z in 10.0 ** rng.uniform(-decades, decades, count) * phases]


def test_pi_has_fifty_digits() -> None:
    with mpmath.workdps(WORKING_DIGITS):
        assert relative_error(PI, +mpmath.pi) <= UNIT


# --- Elementary functions ------------------------------------------------------------------


@extended_precision
def exp_of(z: complex) -> ExtendedComplex:
    return ExtendedComplex.of(z).exp()


@extended_precision
def sqrt_of(z: complex) -> ExtendedComplex:
    return ExtendedComplex.of(z).sqrt()


@pytest.mark.parametrize(
    "z",
    [
        0j,
        1 + 0j,
        -0.5 + 3.0j,
        2.5 - 3.141592653589793j,
        -40 + 1.5707963267948966j,
        600 - 700j,
        -5000 + 0.1j,
        1e-30 + 1e-30j,
        1 + 1e6j,
        -2 - 1e15j,
        -2.3e6 + 1j,  # e^-2300000 is 10^-998878, close to the end of the exponent range
    ],
)
def test_exp_has_fifty_digits(z: complex) -> None:
    with mpmath.workdps(WORKING_DIGITS):
        assert relative_error(exp_of(z), mpmath.exp(mpmath.mpc(z))) <= UNIT


def test_exp_of_random_numbers_has_fifty_digits() -> None:
    for z in random_numbers(100, 2.0):
        with mpmath.workdps(WORKING_DIGITS):
            assert relative_error(exp_of(z), mpmath.exp(mpmath.mpc(z))) <= UNIT, z


@pytest.mark.parametrize("z", [-1e7 + 1j, -1e200 - 3j, -1e308 + 0j])
def test_exp_underflows_to_zero_without_an_exception(z: complex) -> None:
    """The nome of a lattice as tall as that is zero for every purpose."""
    assert complex(exp_of(z)) == 0


@pytest.mark.parametrize("z", [0j, 4 + 0j, -4 + 0j, 2j, -2j, -1 + 1e-60j, -1 - 1e-60j])
def test_square_roots_are_the_principal_ones(z: complex) -> None:
    got = sqrt_of(z)
    with mpmath.workdps(WORKING_DIGITS):
        assert relative_error(got, mpmath.sqrt(mpmath.mpc(z)), scale=1) <= UNIT
    assert got.re >= 0


def test_square_roots_of_random_numbers_have_fifty_digits() -> None:
    for z in random_numbers(200, 150.0):
        with mpmath.workdps(WORKING_DIGITS):
            assert relative_error(sqrt_of(z), mpmath.sqrt(mpmath.mpc(z))) <= UNIT, z


def test_the_small_part_of_a_square_root_has_fifty_digits_too() -> None:
    """Computed as a quotient, not as a difference: no cancellation beside either axis."""
    for z in (1 + 1e-40j, -1 + 1e-40j, -1 - 1e-40j, 1e20 - 1e-20j):
        got = sqrt_of(z)
        with mpmath.workdps(2 * WORKING_DIGITS):
            want = mpmath.sqrt(mpmath.mpc(z))
            assert relative_error(got.re, want.real) <= UNIT
            assert relative_error(got.im, want.imag) <= UNIT


@extended_precision
def agm_of(a: complex, b: complex) -> ExtendedComplex:
    x, y = ExtendedComplex.of(a), ExtendedComplex.of(b)
    return arithmetic_geometric_mean(x, nearer(x, y))


@pytest.mark.parametrize("b", [1.0, 1.4142135623730951, 1e-30, 1e30, 1j, 0.3 - 2j, 1e-12 + 1e12j])
def test_agm_has_fifty_digits(b: complex) -> None:
    """b in the right half-plane, on its edge, and of very different size."""
    with mpmath.workdps(WORKING_DIGITS):
        assert relative_error(agm_of(1, b), mpmath.agm(1, mpmath.mpc(b))) <= UNIT


def test_agm_of_random_numbers_is_symmetric_and_homogeneous() -> None:
    """Whichever sign the second number comes with, the root nearer to the mean is taken."""
    values = random_numbers(40, 3.0)
    for a, b in zip(values[::2], values[1::2], strict=True):
        first = agm_of(a, b)
        with mpmath.workdps(WORKING_DIGITS):
            sign = 1 if abs(a - b) <= abs(a + b) else -1
            want = mpmath.mpc(a) * mpmath.agm(1, sign * mpmath.mpc(b) / mpmath.mpc(a))
            assert relative_error(first, want) <= UNIT, (a, b)
            assert relative_error(agm_of(a, -b), want) <= UNIT, (a, b)


@extended_precision
def roots_of(g2: complex, g3: complex) -> list[ExtendedComplex]:
    return cubic_roots(ExtendedComplex.of(g2), ExtendedComplex.of(g3))


def invariants_to_try() -> Iterable[tuple[complex, complex]]:
    values = random_numbers(60, 4.0)
    yield from zip(values[::2], values[1::2], strict=True)
    # One of the two zero; real with three and with one real root; sizes far apart.
    yield from [(1, 0), (0, 1), (-1, 0), (0, -1j), (4, 1), (4, -1), (1, 1), (1e20, 1), (1, 1e20)]


def test_cubic_roots_are_mpmath_s_dlmf_23_3_3() -> None:
    for g2, g3 in invariants_to_try():
        got = roots_of(g2, g3)
        with mpmath.workdps(WORKING_DIGITS):
            coefficients = [4, 0, -mpmath.mpmathify(g2), -mpmath.mpmathify(g3)]
            # Which coefficient comes first depends on the version of mpmath.
            leading_first = abs(mpmath.polyroots([1, -2])[0] - 2) < 1
            coefficients = coefficients if leading_first else coefficients[::-1]
            want = mpmath.polyroots(coefficients, maxsteps=500, extraprec=400)
            scale = max(abs(root) for root in want)
            # In whichever order: the best matching of the two sets decides.
            error = min(
                max(relative_error(x, y, scale) for x, y in zip(got, order, strict=True))
                for order in permutations(want)
            )
        assert error <= UNIT, (g2, g3)


@pytest.mark.parametrize("off", [1e-4, -1e-9, 1e-13])
def test_cubic_roots_that_nearly_coincide_solve_their_equation(off: float) -> None:
    """Their distance is the square root of `off`, which costs half its digits, not fifty."""
    g2, g3 = 12.0 * (1 + off), -8.0
    for root in roots_of(g2, g3):
        with mpmath.workdps(WORKING_DIGITS):
            x = to_mpmath(root)
            residual = abs(4 * x**3 - g2 * x - g3)
            assert residual <= UNIT * (4 * abs(x) ** 3 + abs(g2 * x) + abs(g3))


# --- Constants of lattices -----------------------------------------------------------------

FAMILY_LATTICES = [
    pytest.param(lattice, id=f"{family}-{k}")
    for family, members in cases.FAMILIES.items()
    for k, lattice in enumerate(members)
]
EXTREME_LATTICES = [
    pytest.param(Lattice(1.0, 1e4j), id="very tall"),
    pytest.param(Lattice(1e-9, 1j), id="a nome that underflows"),
    pytest.param(Lattice.from_tau(0.3 + 1e-9j), id="very thin"),
    pytest.param(Lattice(1e150, 0.5e150 + 1e150j), id="huge"),
    pytest.param(Lattice(1e-150j, -1e-150), id="tiny"),
]


def shortest_period(lattice: Lattice) -> Any:
    return 2 * abs(mpmath.mpc(complex(lattice.reduced()[0].omega1)))


@pytest.mark.parametrize("lattice", FAMILY_LATTICES + EXTREME_LATTICES)
def test_constants_are_those_of_the_ground_truth(lattice: Lattice) -> None:
    """To a unit in the fiftieth digit of |value| + period^-k; each side may be off by half."""
    known = lattice_constants(lattice)
    backend = get_backend("mpmath", dps=DIGITS)
    g2, g3 = backend.invariants(lattice)
    want = {
        "g2": (known.g2, g2, 4),
        "g3": (known.g3, g3, 6),
        **{
            f"e{k}": (got, root, 2)
            for k, got, root in zip((1, 2, 3), known.roots, backend.roots(lattice), strict=True)
        },
        **{
            f"eta{k}": (got, eta, 1)
            for k, got, eta in zip(
                (1, 3), (known.eta1, known.eta3), backend.quasi_periods(lattice), strict=True
            )
        },
    }
    period = shortest_period(lattice)
    for name, (got, value, degree) in want.items():
        with mpmath.workdps(WORKING_DIGITS):
            error = relative_error(got, value, abs(value) + period**-degree)
        assert error <= UNIT, name


@pytest.mark.parametrize("lattice", FAMILY_LATTICES)
def test_constants_of_the_reduced_basis_are_those_of_the_reduced_lattice(lattice: Lattice) -> None:
    known, reduced = lattice_constants(lattice), lattice_constants(lattice.reduced()[0])
    assert set(known.roots) == set(reduced.roots)
    assert (known.period1, known.period3) == (reduced.period1, reduced.period3)
    assert (known.g2, known.g3) == (reduced.g2, reduced.g3)
    assert known.reduced_eta3 == reduced.reduced_eta3 == reduced.eta3


def test_roots_follow_the_basis_given_dlmf_23_3_9() -> None:
    """All six orders occur, one for each invertible matrix of parities."""
    original = Lattice(1.0, 0.25 + 1.125j)
    w1, w3 = complex(original.omega1), complex(original.omega3)
    backend = get_backend("mpmath", dps=DIGITS)
    orders = set()
    small = range(-2, 3)
    for p, q, r, s in product(small, repeat=4):
        parities = (p % 2, q % 2, r % 2, s % 2)
        if p * s - q * r != 1 or parities in orders:
            continue
        orders.add(parities)
        lattice = Lattice(p * w1 + q * w3, r * w1 + s * w3)
        halves = (lattice.omega1, -(lattice.omega1 + lattice.omega3), lattice.omega3)
        for got, half in zip(lattice_constants(lattice).roots, halves, strict=True):
            assert relative_error(got, backend.wp(half, lattice)) <= UNIT
    assert len(orders) == 6


@given(case=skewed_lattices())
def test_quasi_periods_are_additive_in_the_basis_dlmf_23_2_11(case: SkewedLattice) -> None:
    """eta of p omega1 + q omega3 is p eta1 + q eta3; Legendre's relation holds in every basis."""
    before, after = lattice_constants(case.original), lattice_constants(case.skewed)
    (p, q), (r, s) = case.matrix
    with mpmath.workdps(WORKING_DIGITS):
        eta1, eta3 = to_mpmath(before.eta1), to_mpmath(before.eta3)
        for got, (m, n) in ((after.eta1, (p, q)), (after.eta3, (r, s))):
            scale = abs(m * eta1) + abs(n * eta3)
            assert relative_error(got, m * eta1 + n * eta3, scale) <= UNIT
        w1, w3 = mpmath.mpc(case.skewed.omega1), mpmath.mpc(case.skewed.omega3)
        left = to_mpmath(after.eta1) * w3 - to_mpmath(after.eta3) * w1
        scale = abs(to_mpmath(after.eta1) * w3) + abs(to_mpmath(after.eta3) * w1)
        assert abs(left - mpmath.mpc(0, mpmath.pi / 2)) <= UNIT * scale  # DLMF 23.2.14


def test_the_caller_s_decimal_context_is_neither_read_nor_changed() -> None:
    lattice = Lattice(1.0, 0.1 + 1.2345j)
    want = lattice_constants(lattice)
    lattice_constants.cache_clear()
    with decimal.localcontext() as context:
        context.prec = 5
        context.rounding = decimal.ROUND_UP
        context.traps[decimal.Inexact] = True
        got = lattice_constants(lattice)
        assert (context.prec, context.rounding) == (5, decimal.ROUND_UP)
        assert Lattice.from_invariants(1.0, 0.1).tau.real == 0
    assert got == want


def test_exact_numbers_become_decimals_without_losing_digits() -> None:
    @extended_precision
    def third() -> ExtendedComplex:
        return ExtendedComplex.of(1 + 0j) * Fraction(1, 3)

    assert abs(third().re * 3 - 1) <= Decimal(10) ** -DIGITS
