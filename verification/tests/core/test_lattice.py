"""`Lattice`: constructors, value semantics, the canonical reduced basis, and what is refused.

Exact statements are checked in exact arithmetic (`fractions`); values that come out of a series
are compared with mpmath, rounded once to double precision.
"""

from __future__ import annotations

import cmath
import copy
import math
import pickle
from collections.abc import Callable
from fractions import Fraction
from itertools import product
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verification.tests.strategies import SkewedLattice, lattices, skewed_lattices
from wefpe_core import Lattice, LatticeError, get_backend

INF, NAN = math.inf, math.nan
U = 2.0**-53  # half an eps: what one rounding moves a double by, relatively


def rounded(value: Any) -> complex:
    """An mpmath number as the nearest double in each part."""
    return complex(float(mpmath.re(value)), float(mpmath.im(value)))


# --- Constructors --------------------------------------------------------------------------


def test_half_periods_are_kept_and_tau_is_their_ratio() -> None:
    lattice = Lattice(1.5 - 0.25j, 0.75 + 1.125j)
    assert (lattice.omega1, lattice.omega3) == (1.5 - 0.25j, 0.75 + 1.125j)
    assert lattice.tau == (0.75 + 1.125j) / (1.5 - 0.25j)
    assert not lattice.holds_tensors


def test_full_periods_are_halved() -> None:
    assert Lattice.from_periods(3.0, 1 + 2j) == Lattice(1.5, 0.5 + 1j)


def test_from_tau_has_full_periods_one_and_tau() -> None:
    assert Lattice.from_tau(0.25 + 1.5j) == Lattice(0.5, 0.125 + 0.75j)


def test_from_tau_keeps_the_product_of_tau_and_omega1_exactly() -> None:
    """The double nearest to the product has another ratio; tau here is the ratio itself."""
    w1, w3 = Lattice.from_tau(0.1 + 1.1j, omega1=0.7 + 0.3j).exact
    tau_re, tau_im, x, y = map(Fraction, (0.1, 1.1, 0.7, 0.3))
    assert w1 == (x, y)
    assert w3 == (tau_re * x - tau_im * y, tau_re * y + tau_im * x)


def test_a_rectangle_has_a_real_and_an_imaginary_half_period() -> None:
    assert Lattice.rectangular(1.25, 0.75) == Lattice(1.25, 0.75j)


def forty_digits(numerator: int, denominator: int) -> Any:
    with mpmath.workdps(40):
        return mpmath.mpf(numerator) / denominator


MANTISSA, EXPONENT = forty_digits(1, 3).man_exp
NO_DOUBLES = {
    "forty digits": (forty_digits(1, 3), Fraction(int(MANTISSA), 2**-EXPONENT)),
    "fraction": (Fraction(1, 3), Fraction(1, 3)),
    "integer": (2**53 + 1, Fraction(2**53 + 1)),
    "long double": (np.longdouble("0.1"), Fraction(*np.longdouble("0.1").as_integer_ratio())),
}


@pytest.mark.parametrize("case", NO_DOUBLES)
def test_constructors_take_numbers_as_exact(case: str) -> None:
    """Whatever the precision mpmath happens to have, and in which arithmetic numbers multiply."""
    number, exact = NO_DOUBLES[case]
    zero = Fraction(0)
    assert Lattice.rectangular(number, number).exact == ((exact, zero), (zero, exact))
    assert Lattice.from_periods(number, 1j).exact == ((exact / 2, zero), (zero, Fraction(1, 2)))
    with mpmath.workdps(5):
        assert Lattice.rectangular(number, number).exact == ((exact, zero), (zero, exact))


def test_periods_of_mpmath_numbers_are_shown_as_mpmath_numbers() -> None:
    """With all digits, and beyond the range of doubles."""
    huge = mpmath.mpf(10) ** 400
    lattice = Lattice.from_periods(huge, mpmath.mpc(1, 4) * huge)
    assert (lattice.omega1, lattice.omega3) == (huge / 2, mpmath.mpc(1, 4) * huge / 2)
    third = forty_digits(1, 3)
    lattice = Lattice.rectangular(third, third)
    assert (lattice.omega1.real, lattice.omega3.imag) == (third, third)
    assert not repr(lattice).endswith("rounded>")


def test_a_half_period_may_be_a_double_though_the_period_is_none() -> None:
    assert Lattice.from_periods(2**1024, 1j).omega1 == 2.0**1023


@pytest.mark.parametrize("g2", [1.0, 0.25, 4, 3.7, 1e-3, 1e20, 7e-21, 1e300, 5e-324])
def test_lemniscatic_half_period_is_correctly_rounded_dlmf_23_5_iii(g2: float) -> None:
    with mpmath.workdps(40):
        gamma = mpmath.gamma(mpmath.mpf(1) / 4)
        omega = gamma**2 / (4 * mpmath.sqrt(mpmath.pi)) / mpmath.root(mpmath.mpf(g2), 4)
        want = float(omega)
    lattice = Lattice.lemniscatic(g2)
    assert (lattice.omega1, lattice.omega3) == (want, want * 1j)


@pytest.mark.parametrize("g3", [1.0, 4, 0.3, 1e-12, 1e20, 1e300])
def test_equianharmonic_half_periods_are_correctly_rounded_dlmf_23_5_v(g3: float) -> None:
    with mpmath.workdps(40):
        gamma = mpmath.gamma(mpmath.mpf(1) / 3)
        omega = gamma**3 / (4 * mpmath.pi) / mpmath.root(mpmath.mpf(g3), 6)
        want = rounded(omega), rounded(omega * mpmath.expjpi(mpmath.mpf(1) / 3))
    lattice = Lattice.equianharmonic(g3)
    assert (lattice.omega1, lattice.omega3) == want


def test_a_negative_g2_turns_the_square_by_45_degrees() -> None:
    """The lemniscate constant 2.62205755... is the half-period for g2 = -1, and for g2 = 1/4."""
    diagonal = Lattice.lemniscatic(-1.0)
    assert diagonal.omega1 == Lattice.lemniscatic(0.25).omega1
    assert diagonal.omega3 == diagonal.omega1 * (0.5 + 0.5j)


@pytest.mark.parametrize(
    ("g2", "g3", "omega1", "tau"),
    [
        (1.0, 0.1, 1.7529253, 1.1618j),
        (1.0, -0.1, 2.0365487, 1j / 1.1618),
        (4.0, 1.0, 1.2256947, 1.2211j),
        (0.0, 1.0, 1.5299540, 0.5 + 0.8660j),
        (1.0, 1.0, 1.4343015, 0.5 + 0.9866j),
        (-1.0, 0.0, 2.6220576, 0.5 + 0.5j),
        (0.0, -1.0, 2.6499581, 0.5 + 0.2887j),
    ],
)
def test_known_half_periods(g2: float, g3: float, omega1: float, tau: complex) -> None:
    """Eight and five digits, as they are usually quoted: equal when rounded alike."""
    lattice = Lattice.from_invariants(g2, g3)
    assert round(lattice.omega1.real, 7) == omega1
    assert lattice.omega1.imag == 0
    assert lattice.tau.real == tau.real
    assert round(lattice.tau.imag, 4) == round(tau.imag, 4)


def random_invariants(kind: str, count: int) -> list[tuple[complex, complex]]:
    """Invariants of every shape and of scales from 1e-20 to 1e20, with a literal seed.

    Scaling the lattice by c multiplies them by c^-4 and c^-6.
    """
    rng = np.random.default_rng(23031)
    pairs = []
    for _ in range(count):
        g2, g3 = rng.normal(size=2) if kind != "complex" else rng.normal(size=(2, 2)) @ (1, 1j)
        if kind == "nearly degenerate":
            # 4(x-e)^2 (x+2e) has g2 = 12 e^2, g3 = -8 e^3; a little beside it.
            e = rng.choice([-1.0, 1.0]) * rng.uniform(0.5, 2)
            off = rng.choice([-1.0, 1.0]) * 10.0 ** rng.uniform(-13, -2)
            g2, g3 = 12 * e * e * (1 + off), -8 * e**3
        scale = 10.0 ** rng.uniform(-20 / 6, 20 / 6)
        pairs.append((complex(g2 * scale**4), complex(g3 * scale**6)))
    return pairs


KINDS = ["real", "nearly degenerate", "complex"]


@pytest.mark.parametrize("kind", KINDS)
def test_half_periods_from_invariants_are_correctly_rounded(kind: str) -> None:
    """The mpmath backend finds them by Carlson's integrals, the core by the AGM."""
    backend = get_backend("mpmath", dps=40)
    for g2, g3 in random_invariants(kind, 60):
        got, want = Lattice.from_invariants(g2, g3), backend.lattice_from_invariants(g2, g3)
        assert (got.omega1, got.omega3) == (rounded(want.omega1), rounded(want.omega3)), (g2, g3)


@pytest.mark.parametrize("kind", KINDS)
def test_invariants_lead_to_half_periods_and_back(kind: str) -> None:
    """To what rounding the half-periods costs, in units of the invariants of a tall lattice.

    In those units (4 pi^4/3 over period^4, 8 pi^6/27 over period^6) the invariants are E4 and E6.
    A relative change d of a period changes them by at most 4|E4| + 2|tau dE4/dtau| and
    6|E6| + 2|tau dE6/dtau| times d; with dE4/dtau = (2 pi i/3)(E2 E4 - E6) and
    dE6/dtau = pi i (E2 E6 - E4^2) the largest values over reduced lattices are reached at the
    hexagonal one (E2 = 1.103, E4 = 0, E6 = 2.881): below 13 and 38. d is at most U.
    """
    backend = get_backend("numpy")
    for g2, g3 in random_invariants(kind, 300):
        lattice = Lattice.from_invariants(g2, g3)
        back2, back3 = (complex(g) for g in backend.invariants(lattice))
        period = 2 * abs(complex(lattice.reduced()[0].omega1))
        unit2, unit3 = 4 * math.pi**4 / 3 / period**4, 8 * math.pi**6 / 27 / period**6
        # One more U for each of them: the backend rounds its answer.
        assert abs(back2 - g2) <= U * (13 * unit2 + abs(g2)), (g2, g3)
        assert abs(back3 - g3) <= U * (38 * unit3 + abs(g3)), (g2, g3)


@pytest.mark.parametrize("kind", ["real", "nearly degenerate"])
def test_real_invariants_give_a_real_half_period_and_re_tau_0_or_half_dlmf_23_5(kind: str) -> None:
    for g2, g3 in random_invariants(kind, 300):
        w1, w3 = Lattice.from_invariants(g2, g3).exact
        discriminant = Fraction(g2.real) ** 3 - 27 * Fraction(g3.real) ** 2
        assert w1.im == 0 < w1.re
        assert w3.im > 0
        assert 2 * w3.re == (0 if discriminant > 0 else w1.re), (g2, g3)


def test_the_real_half_period_is_the_smallest_one() -> None:
    for g2, g3 in random_invariants("real", 100):
        lattice = Lattice.from_invariants(g2, g3)
        w1, w3 = complex(lattice.omega1), complex(lattice.omega3)
        for m, n in product(range(-4, 5), repeat=2):
            vector = m * w1 + n * w3
            if vector.imag == 0 < vector.real:
                assert vector.real >= w1.real


def test_complex_invariants_give_the_reduced_basis_up_to_rounding() -> None:
    for g2, g3 in random_invariants("complex", 100):
        tau = Lattice.from_invariants(g2, g3).tau
        # The half-periods are rounded, and the quotient of them once more.
        assert abs(tau.real) <= 0.5 + 4 * U * abs(tau)
        assert abs(tau) >= 1 - 4 * U


@pytest.mark.parametrize(
    ("g2", "g3"),
    [(0.0, 1.0), (0.0, -1.0), (0.0, 2.7), (1.0, 1.0), (-3.0, 0.2), (-1.0, 0.0), (1.0, -4.0)],
)
@pytest.mark.parametrize("steps", [(0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, -1)])
def test_a_last_bit_does_not_flip_re_tau_from_half_to_minus_half(
    g2: float, g3: float, steps: tuple[int, int]
) -> None:
    """Negative discriminant: Re tau is 1/2 by symmetry, and rounding noise has no say."""
    here = Lattice.from_invariants(g2, g3)
    moves = zip((g2, g3), steps, strict=True)
    there = Lattice.from_invariants(
        *(math.nextafter(g, math.copysign(INF, k)) if k else g for g, k in moves)
    )
    for lattice in (here, there):
        assert 2 * lattice.omega3.real == lattice.omega1.real
    # A last bit of g2 or g3 moves the periods by about as much of themselves.
    assert abs(here.omega1 - there.omega1) <= 4 * 2 * U * abs(here.omega1)
    assert abs(here.omega3 - there.omega3) <= 4 * 2 * U * abs(here.omega3)


@pytest.mark.parametrize("angle", [0.1, 0.7, 1.3, 2.2, 3.0, -0.4, -1.9])
@pytest.mark.parametrize(
    ("g2", "g3", "re_tau"), [(0.0, 1.0, 0.5), (1.0, 0.0, 0.0)], ids=["hexagonal", "square"]
)
def test_symmetric_lattices_take_the_documented_basis_however_they_are_turned(
    angle: float, g2: float, g3: float, re_tau: float
) -> None:
    """Six (four) half-periods are shortest: omega1 is the one farthest right, Re tau not -1/2.

    Which of them is longer by rounding noise must not decide.
    """
    lattice = Lattice.from_invariants(g2 * cmath.exp(1j * angle), g3 * cmath.exp(1j * angle))
    assert abs(lattice.tau.real - re_tau) <= 4 * U
    turn = cmath.exp(1j * math.pi / 3) if re_tau else 1j
    others = [complex(lattice.omega1) * turn**k for k in range(1, 6 if re_tau else 4)]
    assert all(lattice.omega1.real > other.real for other in others)


# --- A value, like a number ----------------------------------------------------------------

WHOLE = Lattice(1.25, 0.5 + 1.75j)


@pytest.mark.parametrize("name", ["omega1", "omega3", "tau", "_omega1", "anything"])
def test_a_lattice_cannot_be_changed(name: str) -> None:
    lattice = Lattice(1.25, 0.5 + 1.75j)
    with pytest.raises(AttributeError, match=name):
        setattr(lattice, name, 1.0)
    with pytest.raises(AttributeError, match=name):
        delattr(lattice, name)
    assert lattice == WHOLE


def test_equal_half_periods_make_equal_lattices_whatever_their_type() -> None:
    same = [
        Lattice(np.float64(1.25), np.complex64(0.5 + 1.75j)),
        Lattice(np.array(1.25), np.array(0.5 + 1.75j)),
        Lattice(mpmath.mpf("1.25"), mpmath.mpc("0.5", "1.75")),
        Lattice(Fraction(5, 4), 0.5 + 1.75j),
        Lattice.from_periods(2.5, 1 + 3.5j),
    ]
    for lattice in same:
        assert lattice == WHOLE
        assert hash(lattice) == hash(WHOLE)
    assert len({WHOLE, *same}) == 1


def test_another_basis_or_the_last_bit_makes_another_lattice() -> None:
    assert Lattice(1.25, 1.75 + 1.75j) != WHOLE
    assert Lattice(math.nextafter(1.25, 2), 0.5 + 1.75j) != WHOLE
    assert WHOLE != (1.25, 0.5 + 1.75j)


EVERY_MAKER: dict[str, Callable[[], Lattice]] = {
    "two half-periods": lambda: Lattice(0.1 - 0.3j, 0.7 + 1.1j),
    "numpy scalars": lambda: Lattice(np.float32(0.1), np.complex128(0.3 + 0.9j)),
    "integers": lambda: Lattice(-2, 1 - 3j),
    "mpmath numbers": lambda: Lattice(mpmath.mpf(1) / 3, mpmath.mpc(-1, 2) / 7),
    "tau": lambda: Lattice.from_tau(0.1 + 1.1j),
    "tau and omega1": lambda: Lattice.from_tau(0.2 + 1.1j, omega1=0.8 + 0.6j),
    "full periods": lambda: Lattice.from_periods(0.1, 0.3 + 0.7j),
    "full periods, mpmath": lambda: Lattice.from_periods(mpmath.mpf(1) / 3, mpmath.mpc(1, 2) / 7),
    "full periods, rounded": lambda: Lattice.from_periods(Fraction(1, 3), 1j),
    "invariants": lambda: Lattice.from_invariants(1.3 - 0.2j, 0.7j),
    "rectangle": lambda: Lattice.rectangular(0.1, 0.7),
    "reduced": lambda: Lattice(0.1 - 0.3j, 12.7 + 1.1j).reduced()[0],
}
every_maker = pytest.mark.parametrize("maker", EVERY_MAKER)


@every_maker
@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda lattice: pickle.loads(pickle.dumps(lattice))]
)
def test_copies_and_pickles_are_equal(maker: str, duplicate: Callable[[Lattice], Lattice]) -> None:
    lattice = EVERY_MAKER[maker]()
    twin = duplicate(lattice)
    assert twin == lattice
    assert hash(twin) == hash(lattice)
    assert (twin.omega1, twin.omega3) == (lattice.omega1, lattice.omega3)
    assert twin.reduced() == lattice.reduced()


@every_maker
def test_repr_evaluates_to_an_equal_lattice_or_says_that_it_is_rounded(maker: str) -> None:
    names = {"Lattice": Lattice, "mpf": mpmath.mpf, "mpc": mpmath.mpc, "Fraction": Fraction}
    lattice = EVERY_MAKER[maker]()
    if repr(lattice).startswith("<"):
        assert repr(lattice).endswith(", rounded>")
        assert Lattice(complex(lattice.omega1), complex(lattice.omega3)) != lattice
    else:
        assert eval(repr(lattice), names) == lattice


def test_mpmath_numbers_are_kept_to_the_last_bit() -> None:
    with mpmath.workdps(60):
        omega1, omega3 = -mpmath.sqrt(2), mpmath.mpc(-1, -3) / 7
        lattice = Lattice(omega1, omega3)
        for kept, given_ in zip(lattice.exact, (omega1, omega3), strict=True):
            assert mpmath.mpf(kept.re.numerator) / kept.re.denominator == mpmath.re(given_)
            assert mpmath.mpf(kept.im.numerator) / kept.im.denominator == mpmath.im(given_)
        assert (lattice.omega1, lattice.omega3) == (omega1, omega3)
    # sqrt(2) to sixty digits is no double: nothing was rounded on the way.
    assert lattice.exact[0].re != Fraction(-math.sqrt(2))


@pytest.mark.parametrize("number", [Fraction(1, 3), 2**53 + 1, np.longdouble("0.1")])
def test_numbers_that_are_no_doubles_are_kept_exactly_or_refused(number: Any) -> None:
    """Half-periods are taken as exact, so rounding one in silence is not an option."""
    try:
        lattice = Lattice(number, 1j)
    except LatticeError:
        return
    exact = Fraction(*number.as_integer_ratio())
    assert lattice.exact[0] == (exact, Fraction(0))


# --- The reduced basis ---------------------------------------------------------------------


def assert_reduced(lattice: Lattice) -> None:
    """The matrix has determinant 1 and maps the basis; tau is in the domain; all exactly."""
    reduced, ((p, q), (r, s)) = lattice.reduced()
    assert all(isinstance(entry, int) for entry in (p, q, r, s))
    assert p * s - q * r == 1
    (x1, y1), (x3, y3) = lattice.exact
    w1, w3 = reduced.exact
    assert w1 == (p * x1 + q * x3, p * y1 + q * y3)
    assert w3 == (r * x1 + s * x3, r * y1 + s * y3)
    norm = w1.re**2 + w1.im**2
    dot = w1.re * w3.re + w1.im * w3.im
    assert -norm < 2 * dot <= norm
    assert w3.re**2 + w3.im**2 >= norm
    # Of the shortest vectors, w1 is the one farthest right, then the one farthest up.
    assert (w1.re, w1.im) == max(shortest_vectors(reduced))


def shortest_vectors(reduced: Lattice) -> list[tuple[Fraction, Fraction]]:
    (x1, y1), (x3, y3) = reduced.exact
    around = [
        (m * x1 + n * x3, m * y1 + n * y3)
        for m, n in product(range(-2, 3), repeat=2)
        if (m, n) != (0, 0)
    ]
    least = min(x * x + y * y for x, y in around)
    return [(x, y) for x, y in around if x * x + y * y == least]


@given(case=skewed_lattices())
def test_every_basis_has_the_same_reduced_basis(case: SkewedLattice) -> None:
    assert_reduced(case.original)
    assert_reduced(case.skewed)
    reduced, matrix = case.skewed.reduced()
    assert reduced == case.original.reduced()[0]
    assert reduced.reduced() == (reduced, ((1, 0), (0, 1)))
    assert case.skewed.reduced() == (reduced, matrix)


@given(lattice=lattices(), exponent=st.integers(-900, 900))
def test_reduction_does_not_depend_on_scale(lattice: Lattice, exponent: int) -> None:
    w1, w3 = (complex(w) * 2.0**exponent for w in (lattice.omega1, lattice.omega3))
    assert Lattice(w1, w3).reduced()[1] == lattice.reduced()[1]


TIES = {
    "square": (1, 1j),
    "square on its corner": (1 + 1j, -1 + 1j),
    "turned square": (3 + 4j, -4 + 3j),
    "rhombus with |tau| = 1": (25, 7 + 24j),
    "rhombus with |tau| = 1, leaning left": (25, -7 + 24j),
    "rhombus standing up": (7 + 24j, -25),
    "Re tau = 1/2": (2, 1 + 4j),
    "Re tau = -1/2": (2, -1 + 4j),
    "turned, Re tau = 1/2": (2j, -4 + 1j),
    "nearly hexagonal": (1024, 512 + 887j),
    "nearly hexagonal, other side": (1024, 512 + 886j),
}


@pytest.mark.parametrize("tie", TIES)
def test_ties_are_broken_the_same_way_from_every_basis(tie: str) -> None:
    w1, w3 = TIES[tie]
    expected = Lattice(w1, w3).reduced()[0]
    small = range(-3, 4)
    for p, q, r, s in product(small, repeat=4):
        if p * s - q * r == 1:
            lattice = Lattice(p * w1 + q * w3, r * w1 + s * w3)
            assert_reduced(lattice)
            assert lattice.reduced()[0] == expected


def test_the_tie_of_re_tau_goes_to_plus_one_half() -> None:
    for re in (-0.5, 0.5, 1.5, -3.5):
        assert Lattice(1, re + 2j).reduced()[0].tau == 0.5 + 2j


@pytest.mark.parametrize(
    "lattice",
    [
        Lattice.from_tau(0.3 + 1e-12j),
        Lattice.from_tau(math.sqrt(2) + 1e-12j),
        Lattice.from_tau(1e-12j),
        Lattice(1.0, 0.1 + 1e-300j),
        Lattice(1.0, 1e300 + 1j),
        Lattice(1e200, 1e200j),
        Lattice(1e200, 0.7e200 + 1e188j),
        Lattice(1e-200 + 1e-201j, 1e200j),
        Lattice(5e-324, 5e-324j),
        Lattice(1.7e308, 1.7e308j),
        Lattice(1.7e308, 1.7e308 + 5e-324j),
    ],
    ids=repr,
)
def test_extreme_lattices_reduce_exactly(lattice: Lattice) -> None:
    assert_reduced(lattice)


# --- Refusals ------------------------------------------------------------------------------

BAD_HALF_PERIODS: dict[str, tuple[tuple[Any, Any], list[str]]] = {
    "collinear": ((1, 2), ["omega1=1,", "omega3=2"]),
    "collinear, turned": ((1 + 2j, -2 - 4j), ["1+2j", "-2-4j"]),
    "collinear at 1e-300": ((1e-300 + 1e-300j, 3e-300 + 3e-300j), ["1e-300", "3e-300"]),
    "collinear to the last bit": ((0.1 + 0.3j, 2 * (0.1 + 0.3j)), ["0.1+0.3j", "0.2+0.6j"]),
    "negatively oriented": ((1, 0.5 - 2j), ["omega1=1,", "0.5-2j"]),
    "zero omega1": ((0, 1j), ["omega1", "got 0"]),
    "zero omega3": ((1, 0.0), ["omega3", "got 0.0"]),
    "zero mpf": ((mpmath.mpf(0), 1j), ["omega1", "0.0"]),
    "NaN": ((NAN, 1j), ["omega1", "nan"]),
    "NaN imaginary part": ((1, complex(1, NAN)), ["omega3", "nanj"]),
    "infinite": ((INF, 1j), ["omega1", "inf"]),
    "minus infinity": ((1, complex(0, -INF)), ["omega3", "-infj"]),
    "infinite mpf": ((mpmath.inf, 1j), ["omega1", "inf"]),
    "NaN mpc": ((1, mpmath.mpc(0, "nan")), ["omega3", "nan"]),
    "NaN of NumPy": ((np.float32(NAN), 1j), ["omega1", "nan"]),
    "beyond every double": ((10**400, 1j), ["omega1"]),
    "beyond what Python prints": ((10**5000, 1j), ["omega1", "thousands of digits"]),
    "below what Python prints": ((1j, Fraction(-1, 10**5000)), ["omega3", "thousands of digits"]),
    "bool": ((True, 1j), ["omega1", "True"]),
    "NumPy bool": ((1, np.bool_(True)), ["omega3", "True"]),
    "string": (("1", 1j), ["omega1", "'1'"]),
    "None": ((1, None), ["omega3", "None"]),
    "list": (([1.5], 1j), ["omega1", "[1.5]"]),
    "tuple": ((1, (0, 1)), ["omega3", "(0, 1)"]),
    "array": ((np.array([1.0, 2.0]), 1j), ["omega1", "array([1., 2.])"]),
    "lattice": ((WHOLE, 1j), ["omega1", "1.75j"]),
}


@pytest.mark.parametrize("case", BAD_HALF_PERIODS)
def test_what_spans_no_lattice_is_refused_and_named(case: str) -> None:
    half_periods, fragments = BAD_HALF_PERIODS[case]
    with pytest.raises(LatticeError) as caught:
        Lattice(*half_periods)
    for fragment in fragments:
        assert fragment in str(caught.value)


BAD_CONSTRUCTIONS: dict[str, tuple[Callable[[], Lattice], list[str]]] = {
    "real tau": (lambda: Lattice.from_tau(0.5), ["tau", "tau=0.5"]),
    "tau below": (lambda: Lattice.from_tau(0.5 - 2j), ["tau", "0.5-2j"]),
    "zero tau": (lambda: Lattice.from_tau(0), ["tau", "got 0"]),
    "NaN tau": (lambda: Lattice.from_tau(complex(NAN, 1)), ["tau", "nan+1j"]),
    "string tau": (lambda: Lattice.from_tau("1j"), ["tau", "'1j'"]),
    "zero omega1 of tau": (lambda: Lattice.from_tau(1j, omega1=0.0), ["omega1", "got 0.0"]),
    "product beyond doubles": (lambda: Lattice.from_tau(1e200j, omega1=1e200), ["1e+200"]),
    "product below doubles": (lambda: Lattice.from_tau(1e-200j, omega1=1e-200), ["1e-200"]),
    "zero period": (lambda: Lattice.from_periods(0, 1j), ["got 0"]),
    "infinite period": (lambda: Lattice.from_periods(1, complex(0, INF)), ["inf"]),
    "period beyond doubles": (lambda: Lattice.from_periods(10**400, 1j), ["omega1"]),
    "period below doubles": (lambda: Lattice.from_periods(1, 5e-324j), ["omega3"]),
    "bool period": (lambda: Lattice.from_periods(True, 1j), ["period1", "True"]),
    "flat rectangle": (lambda: Lattice.rectangular(1, 0), ["omega3_imag", "got 0"]),
    "negative rectangle": (lambda: Lattice.rectangular(-1.5, 1), ["omega1", "-1.5"]),
    "negative height": (lambda: Lattice.rectangular(1, -2.5), ["omega3_imag", "-2.5"]),
    "complex rectangle": (lambda: Lattice.rectangular(1 + 2j, 1), ["omega1", "1+2j"]),
    "imaginary height": (lambda: Lattice.rectangular(1, 2j), ["omega3_imag", "2j"]),
    "NaN rectangle": (lambda: Lattice.rectangular(NAN, 1), ["omega1", "nan"]),
    "infinite rectangle": (lambda: Lattice.rectangular(1, INF), ["omega3", "inf"]),
    "rectangle beyond doubles": (lambda: Lattice.rectangular(1, 10**400), ["omega3"]),
    "bool rectangle": (lambda: Lattice.rectangular(1, True), ["omega3_imag", "True"]),
    "string rectangle": (lambda: Lattice.rectangular("2", 1), ["omega1", "'2'"]),
    "NaN invariant": (lambda: Lattice.from_invariants(NAN, 1), ["g2", "nan"]),
    "infinite invariant": (lambda: Lattice.from_invariants(1, INF), ["g3", "inf"]),
    "bool invariant": (lambda: Lattice.from_invariants(1, False), ["g3", "False"]),
    "string invariant": (lambda: Lattice.from_invariants("4", 0), ["g2", "'4'"]),
    "integer beyond doubles": (lambda: Lattice.from_invariants(10**400, 1), ["g2"]),
    "mpf beyond doubles": (lambda: Lattice.from_invariants(mpmath.mpf("1e400"), 1), ["g2"]),
    "no invariants": (lambda: Lattice.from_invariants(0, 0), ["g2=0j", "g3=0j"]),
    "no g2": (lambda: Lattice.lemniscatic(0.0), ["g2=0j"]),
    "no g3": (lambda: Lattice.equianharmonic(0.0), ["g3=0j"]),
}


@pytest.mark.parametrize("case", BAD_CONSTRUCTIONS)
def test_other_constructors_refuse_and_name_too(case: str) -> None:
    construct, fragments = BAD_CONSTRUCTIONS[case]
    with pytest.raises(LatticeError) as caught:
        construct()
    for fragment in fragments:
        assert fragment in str(caught.value)


SCALES = [10.0**k for k in (-100, -50, -20, -7, -1, 0, 1, 7, 20, 50, 100)]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("e", [1.0, -1.0, 0.37, 1 + 2j])
def test_a_zero_discriminant_is_refused_at_every_scale_dlmf_23_3_4(
    scale: float, e: complex
) -> None:
    """Two equal roots e, e, -2e: g2 = 12 e^2 and g3 = -8 e^3, up to their rounding."""
    root = e * math.sqrt(scale)
    g2, g3 = 12 * root**2, -8 * root**3
    with pytest.raises(LatticeError, match="discriminant") as caught:
        Lattice.from_invariants(g2, g3)
    assert repr(complex(g2)) in str(caught.value)
    assert repr(complex(g3)) in str(caught.value)


# g2, g3 and the discriminant of a curve whose roots nearly coincide.
NEAR_ZERO = (49165897836, -2098041524375336, -48355932635136)


def exact_invariants_with_roots(d: Fraction) -> tuple[Fraction, Fraction]:
    """Of the roots 1 + d, 1 - d and -2."""
    return 4 * (3 + d * d), -8 * (1 - d * d)


@pytest.mark.parametrize("kind", [int, Fraction, mpmath.mpf])
def test_a_discriminant_near_zero_is_decided_exactly(kind: Any) -> None:
    g2, g3, discriminant = NEAR_ZERO
    assert g2**3 - 27 * g3**2 == discriminant
    lattice = Lattice.from_invariants(kind(g2), kind(g3))
    assert lattice.tau.real == 0.5  # the discriminant is negative
    got = get_backend("mpmath").invariants(lattice)
    for value, want in zip(got, (g2, g3), strict=True):
        assert abs(value / want - 1) < 2**-50
    same = get_backend("mpmath", dps=15).lattice_from_invariants(g2, g3)
    assert abs(complex(same.omega3) - lattice.omega3) <= abs(lattice.omega3) * 2**-49
    with pytest.raises(LatticeError, match="to the precision of doubles"):
        Lattice.from_invariants(float(g2), float(g3))


@pytest.mark.parametrize("k", [5, 20, 60, 300])
def test_roots_that_nearly_coincide_keep_the_digits_of_the_periods(k: int) -> None:
    """The long half-period is log(24/d)/sqrt(12) up to terms of the order d, the other is short."""
    lattice = Lattice.from_invariants(*exact_invariants_with_roots(Fraction(1, 10**k)))
    with mpmath.workdps(30):
        want = (mpmath.log(24) + k * mpmath.log(10)) / mpmath.sqrt(12)
        error = abs(lattice.omega1 - want) / want
        assert error <= mpmath.mpf(10) ** -k + mpmath.mpf(2) ** -53
        assert abs(lattice.omega3 - 1j * mpmath.pi / mpmath.sqrt(12)) <= 10 ** -min(k, 15.6)
    with pytest.raises(LatticeError, match="is zero for"):
        Lattice.from_invariants(*exact_invariants_with_roots(Fraction(0)))


@pytest.mark.parametrize("scale", SCALES)
def test_a_small_discriminant_is_not_a_zero_one(scale: float) -> None:
    """A relative 1e-12 is far above rounding, and no scale hides it."""
    root = math.sqrt(scale)
    lattice = Lattice.from_invariants(12 * root**2 * (1 + 1e-12), -8 * root**3)
    assert lattice.tau.imag > 0


# --- Tensors -------------------------------------------------------------------------------


def test_a_lattice_of_tensors_keeps_them_and_has_no_exact_numbers() -> None:
    torch = pytest.importorskip("torch", reason="the torch extra is not installed")
    omega1 = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
    omega3 = torch.tensor(0.5 + 1.5j, dtype=torch.complex128)
    lattice = Lattice(omega1, omega3)
    assert lattice.holds_tensors
    assert lattice.omega1 is omega1
    assert lattice.omega3 is omega3
    assert lattice.tau.requires_grad
    for inspect in (lambda: lattice.exact, lattice.reduced):
        with pytest.raises(LatticeError, match="tensors"):
            inspect()


def test_tensors_are_not_inspected() -> None:
    """Meta tensors have no data: reading one would raise."""
    torch = pytest.importorskip("torch", reason="the torch extra is not installed")
    omega = torch.empty((), dtype=torch.complex128, device="meta")
    height = torch.empty((), dtype=torch.float64, device="meta")
    made = [
        Lattice(omega, omega),
        Lattice(1.0, omega),
        Lattice(omega, 1j),
        Lattice.from_tau(omega),
        Lattice.from_tau(1j, omega1=omega),
        Lattice.from_periods(omega, omega),
        Lattice.rectangular(1.0, height),
        Lattice.rectangular(height, height),
    ]
    for lattice in made:
        assert lattice.holds_tensors
        assert lattice == lattice
        assert len({lattice}) == 1


def test_tensor_lattices_are_equal_only_to_themselves() -> None:
    torch = pytest.importorskip("torch", reason="the torch extra is not installed")
    omega1, omega3 = torch.tensor(1.0), torch.tensor(1j)
    assert Lattice(omega1, omega3) != Lattice(omega1, omega3)
    assert Lattice(omega1, omega3) != Lattice(1.0, 1j)


def test_a_copied_tensor_lattice_holds_equal_tensors() -> None:
    torch = pytest.importorskip("torch", reason="the torch extra is not installed")
    lattice = Lattice(torch.tensor(1.0), torch.tensor(0.5 + 1j))
    for twin in (copy.deepcopy(lattice), pickle.loads(pickle.dumps(lattice))):
        assert torch.equal(twin.omega1, lattice.omega1)
        assert torch.equal(twin.omega3, lattice.omega3)


def test_a_bad_number_beside_a_tensor_is_refused() -> None:
    torch = pytest.importorskip("torch", reason="the torch extra is not installed")
    for bad in (True, "1", None, NAN, INF, 0.0):
        with pytest.raises(LatticeError, match="omega1"):
            Lattice(bad, torch.tensor(1j))


def test_invariants_as_tensors_are_sent_to_the_torch_backend() -> None:
    torch = pytest.importorskip("torch", reason="the torch extra is not installed")
    with pytest.raises(LatticeError, match="lattice_from_invariants"):
        Lattice.from_invariants(torch.tensor(1.0), 0.0)


def test_tau_of_numbers_is_a_python_number() -> None:
    assert isinstance(Lattice(1, 2j).tau, complex)
    assert cmath.isfinite(Lattice(1e-300, 1e-300j).tau)
