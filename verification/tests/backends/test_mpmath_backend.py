"""The ground truth against formulas it does not use, to the digits it promises.

Theta quotients, the Jacobian form, the differential equation, sigma's addition theorem and
closed forms from the gamma function judge it here; certified balls do in `test_flint_backend`.
"""

import math
import random
import sys
from fractions import Fraction

import numpy as np
import pytest
from mpmath import mp

from backends import mpmath_backend, mpmath_rows
from backends.exact_reduction import exact_number, reduce_exactly
from backends.mpmath_backend import MpmathBackend
from wefpe_core import (
    InputError,
    InputTypeError,
    Lattice,
    LatticeError,
    PrecisionError,
    get_backend,
)

DPS = 50
LATTICES = {
    "square": Lattice(1, 1j),
    "lemniscatic": Lattice.lemniscatic(),
    "hexagonal": Lattice.equianharmonic(),
    "tall": Lattice(0.5, 12j),
    "thin": Lattice.from_tau(0.45 + 1e-3j),
    "skewed": Lattice(1.5, 11.625 + 1.25j),
    "unreduced": Lattice(3 + 7.5j, 1 + 3j),
    "rotated": Lattice(0.6 - 0.8j, 1.1 + 1.2j),
}
POINTS = [0.31 + 0.17j, -0.2 + 0.45j, 0.01j, 0.7, 2.5 - 3.25j]

every_lattice = pytest.mark.parametrize("lattice", LATTICES.values(), ids=LATTICES)


@pytest.fixture
def backend():
    return MpmathBackend(DPS)


@pytest.fixture(autouse=True)
def global_precision_untouched():
    before = mp.dps
    yield
    assert mp.dps == before


def assert_digits(got, want, digits, *, terms=()):
    """Equal to `digits` decimal digits of the largest of the values and `terms`."""
    with mp.workdps(2 * digits + 20):
        scale = max(abs(mp.mpmathify(value)) for value in (got, want, *terms))
        error = abs(mp.mpmathify(got) - want)
        assert error <= scale * mp.mpf(10) ** -digits, mp.nstr(error / scale, 3)


def reduced(z, lattice):
    """Exact reduced argument and reduced full periods as mpmath numbers (working precision)."""

    def number(value):
        return mp.mpc(*(mp.mpf(x.numerator) / x.denominator for x in value))

    a, b = (2 * number(half) for half in lattice.reduced()[0].exact)
    exact = exact_number(z)
    assert exact is not None
    return number(reduce_exactly(exact, lattice)[0]), a, b


def theta_quotient(z, lattice):
    """wp by theta functions of reduced arguments, where mpmath's are reliable (DLMF 23.6.5)."""
    z, a, b = reduced(z, lattice)
    q, v = mp.expjpi(b / a), mp.pi * z / a
    c3, c4 = mp.jtheta(3, 0, q), mp.jtheta(4, 0, q)
    quotient = c3 * c4 * mp.jtheta(2, v, q) / mp.jtheta(1, v, q)
    return (mp.pi / a) ** 2 * ((c3**4 + c4**4) / 3 + quotient**2)


# --- Against other formulas ----------------------------------------------------------------


@pytest.mark.parametrize("dps", [15, 50, 100])
@every_lattice
def test_wp_is_the_theta_quotient_dlmf_23_6_5(lattice, dps):
    for z in POINTS:
        wp, wp_prime = MpmathBackend(dps).wp_and_prime(z, lattice)
        with mp.workdps(dps + 30):
            # At its zeros wp is as accurate as the product of its slope with the argument.
            slope = wp_prime * reduced(z, lattice)[0]
            assert_digits(wp, theta_quotient(z, lattice), dps, terms=[slope])


@pytest.mark.parametrize("name", ["square", "hexagonal", "tall", "skewed", "rotated"])
def test_wp_is_the_jacobian_form_dlmf_23_6_21(backend, name):
    lattice = LATTICES[name].reduced()[0]
    e1, e2, e3 = backend.roots(lattice)
    for z in POINTS[:4]:
        wp = backend.wp(z, lattice)
        with mp.workdps(DPS + 10):
            m, root = (e2 - e3) / (e1 - e3), mp.sqrt(e1 - e3)
            sn = mp.ellipfun("sn", root * z, m=m)
            assert_digits(wp, e3 + (e1 - e3) / sn**2, DPS - 5, terms=[e1])


@pytest.mark.parametrize("dps", [15, 50, 100, 300])
def test_wp_satisfies_its_differential_equation_dlmf_23_3_10(dps):
    backend = MpmathBackend(dps)
    for lattice in LATTICES.values():
        g2, g3 = backend.invariants(lattice)
        for z in POINTS[:2]:
            p, dp = backend.wp_and_prime(z, lattice)
            with mp.workdps(dps + 10):
                terms = [4 * p**3, g2 * p, g3]
                assert_digits(dp**2, terms[0] - terms[1] - g3, dps - 1, terms=terms)


@every_lattice
def test_zeta_differentiates_to_minus_wp_dlmf_23_2_7(lattice):
    backend = MpmathBackend(90)
    z, a = Fraction(3, 10), lattice.reduced()[0].omega1
    with mp.workdps(100):
        z = mp.mpc(a) * (mp.mpf(3) / 10 + mp.mpf(1) / 7 * 1j)
        h = mp.mpf(2) ** -100 * mp.mpc(a)  # central difference: an error of h^2, sixty digits
        difference = (backend.zeta(z + h, lattice) - backend.zeta(z - h, lattice)) / (2 * h)
        wp = backend.wp(z, lattice)
        assert_digits(-difference, wp, 50, terms=[1 / z**2])


@every_lattice
def test_sigma_has_its_addition_theorem_dlmf_23_10_3(backend, lattice):
    u, v = 0.3125 + 0.125j, -0.1875 + 0.4375j
    su, sv, s_sum, s_difference = (backend.sigma(z, lattice) for z in (u, v, u + v, u - v))
    wp_u, wp_v = backend.wp(u, lattice), backend.wp(v, lattice)
    with mp.workdps(DPS + 10):
        quotient = s_sum * s_difference / (su * sv) ** 2
        assert_digits(quotient, wp_v - wp_u, DPS - 2, terms=[wp_u, wp_v])


@every_lattice
def test_sigma_and_zeta_grow_by_quasi_periods_dlmf_23_2_11(backend, lattice):
    z, eta = 0.3125 + 0.125j, backend.quasi_periods(lattice)
    for omega, eta_k in zip((lattice.omega1, lattice.omega3), eta, strict=True):
        with mp.workdps(DPS + 20):
            moved = mp.mpc(z) + 2 * mp.mpc(omega)
        zetas = backend.zeta(z, lattice), backend.zeta(moved, lattice)
        sigmas = backend.sigma(z, lattice), backend.sigma(moved, lattice)
        with mp.workdps(DPS + 20):
            assert_digits(zetas[1] - zetas[0], 2 * eta_k, DPS - 3, terms=zetas)
            factor = -mp.exp(2 * eta_k * (mp.mpc(z) + omega))
            # The exponent is rounded to DPS digits, whatever its size.
            lost = max(0, int(mp.log10(abs(eta_k * omega) + 1))) + 2
            assert_digits(sigmas[1] / sigmas[0], factor, DPS - lost)


@every_lattice
def test_green_is_its_definition_with_the_constant_of_the_lattice(backend, lattice):
    z = 0.3125 + 0.125j
    sigma, eta1 = backend.sigma(z, lattice), backend.quasi_periods(lattice)[0]
    green = backend.green(z, lattice)
    with mp.workdps(DPS + 10):
        omega1, omega3, z = mp.mpc(lattice.omega1), mp.mpc(lattice.omega3), mp.mpc(z)
        area = 4 * (mp.conj(omega1) * omega3).imag
        constant = eta1 / omega1 - mp.pi / area * mp.conj(omega1) / omega1
        terms = [mp.log(abs(sigma)), (constant * z**2).real / 2, mp.pi / (2 * area) * abs(z) ** 2]
        assert_digits(green, -terms[0] + terms[1] + terms[2], DPS - 2, terms=terms)


def test_green_becomes_minus_log_at_the_origin(backend):
    z = 2.0**-120
    with mp.workdps(DPS):
        assert_digits(backend.green(z, LATTICES["rotated"]), 120 * mp.log(2), DPS)


@pytest.mark.parametrize("dps", [15, 50, 100])
def test_the_lemniscatic_half_period_is_a_gamma_value_dlmf_23_5(dps):
    backend = MpmathBackend(dps)
    lattice = backend.lattice_from_invariants(1, 0)
    with mp.workdps(dps + 10):
        omega1 = mp.gamma(mp.mpf(1) / 4) ** 2 / (4 * mp.sqrt(mp.pi))
        assert_digits(lattice.omega1, omega1, dps)
        assert_digits(lattice.omega3, 1j * omega1, dps)
        eta1, eta3 = backend.quasi_periods(lattice)
        assert_digits(eta1, mp.pi / (4 * omega1), dps - 1)
        assert_digits(eta3, -1j * eta1, dps - 1)
        assert_digits(backend.roots(lattice)[0], mp.mpf(1) / 2, dps - 1)


def test_the_equianharmonic_half_period_is_a_gamma_value_dlmf_23_5(backend):
    lattice = backend.lattice_from_invariants(0, 1)
    with mp.workdps(DPS + 10):
        omega1 = mp.gamma(mp.mpf(1) / 3) ** 3 / (4 * mp.pi)
        assert_digits(lattice.omega1, omega1, DPS)
        assert_digits(lattice.omega3, omega1 * mp.expjpi(mp.mpf(1) / 3), DPS)


# --- Exact arguments -----------------------------------------------------------------------


def test_a_million_periods_away_nothing_is_lost(backend):
    lattice = LATTICES["skewed"]  # dyadic, so that the shift below is exact in doubles
    z, shift = 0.3125 + 0.125j, 2 * 10**6 * lattice.omega1 - 2 * 10**5 * lattice.omega3
    assert backend.wp_and_prime(z + shift, lattice) == backend.wp_and_prime(z, lattice)
    assert backend.green(z + shift, lattice) == backend.green(z, lattice)


@pytest.mark.parametrize("distance", [2.0**-40, 2.0**-400, 2.0**-1070])
def test_next_to_a_pole_the_relative_error_is_small(backend, distance):
    p, dp = backend.wp_and_prime(distance, LATTICES["square"])
    with mp.workdps(DPS):
        digits = min(DPS, int(-math.log10(distance) * 4))  # the next term is of fourth order
        assert_digits(p, 1 / mp.mpf(distance) ** 2, digits)
        assert_digits(dp, -2 / mp.mpf(distance) ** 3, digits)


def test_a_number_is_read_exactly_whatever_its_type():
    third = Fraction(1, 3)
    with mp.workdps(40):
        wide = mp.mpc(-1, 1) / 3
    for value, expected in [
        (np.float32(0.1), (float(np.float32(0.1)), 0)),
        (np.complex64(0.1 - 0.2j), (float(np.float32(0.1)), -float(np.float32(0.2)))),
        (np.int8(-3), (-3, 0)),
        (third, (third, 0)),
        (np.longdouble(1) / 3, (Fraction(*(np.longdouble(1) / 3).as_integer_ratio()), 0)),
        (wide, (exact_part(wide.real), exact_part(wide.imag))),
        (mp.mpf(-1.5), (-1.5, 0)),
    ]:
        assert exact_number(value) == tuple(map(Fraction, expected))


def exact_part(value):
    mantissa, exponent = value.man_exp
    return abs(int(mantissa)) * Fraction(2) ** int(exponent) * (-1 if value < 0 else 1)


def test_reduction_is_exact_and_lands_in_the_cell():
    rng = random.Random(7)
    for lattice in LATTICES.values():
        w1, w3 = lattice.reduced()[0].exact
        for _ in range(20):
            z = exact_number(complex(rng.gauss(0, 1e9), rng.gauss(0, 1e9)))
            assert z is not None
            z_r, m, n = reduce_exactly(z, lattice)
            assert z_r.re + 2 * m * w1.re + 2 * n * w3.re == z.re
            assert z_r.im + 2 * m * w1.im + 2 * n * w3.im == z.im
            norm = w1.re**2 + w1.im**2
            height = (w1.re * w3.im - w1.im * w3.re) / norm
            re = (z_r.re * w1.re + z_r.im * w1.im) / (2 * norm)
            im = (z_r.im * w1.re - z_r.re * w1.im) / (2 * norm)
            assert -1 < 2 * re <= 1
            assert -height < 2 * im <= height


# --- Values that are exact -----------------------------------------------------------------


@every_lattice
def test_at_a_lattice_point_there_is_one_documented_value(backend, lattice):
    with mp.workdps(40):
        pole = 6 * mp.mpc(lattice.omega1) - 10 * mp.mpc(lattice.omega3)
    for value in (*backend.wp_and_prime(pole, lattice), backend.zeta(pole, lattice)):
        assert mp.isinf(value.real)
        assert mp.isnan(value.imag)
    assert backend.sigma(pole, lattice) == 0
    assert backend.green(pole, lattice) == mp.inf


@pytest.mark.parametrize(
    "z", [math.nan, math.inf, complex(0, -math.inf), mp.mpc(mp.nan, 1), np.float32("nan")]
)
def test_nan_and_infinity_give_nan(backend, z):
    lattice = LATTICES["square"]
    for value in (*backend.wp_and_prime(z, lattice), backend.zeta(z, lattice)):
        assert mp.isnan(value.real)
        assert mp.isnan(value.imag)
    assert mp.isnan(backend.sigma(z, lattice))
    assert mp.isnan(backend.green(z, lattice))
    assert all(mp.isnan(value) for value in backend.lattice_sum(z, lattice, 1, 1))


@every_lattice
def test_wp_prime_is_exactly_zero_at_half_periods(backend, lattice):
    with mp.workdps(40):
        w1, w3 = mp.mpc(lattice.omega1), mp.mpc(lattice.omega3)
        halves = [w1, w3, w1 + w3, 3 * w1 - 2 * w3]
    assert backend.wp_prime(halves, lattice) == [0, 0, 0, 0]


def test_on_the_symmetry_lines_values_are_exactly_real_or_imaginary(backend):
    lattice = Lattice(1.25, 2j)
    p, dp = backend.wp_and_prime([0.3, 0.3j, 1.25 + 0.3j], lattice)
    assert [value.imag for value in p] == [0, 0, 0]
    assert [dp[0].imag, dp[1].real, dp[2].real] == [0, 0, 0]


def test_parity_holds_to_the_last_bit(backend):
    lattice = LATTICES["rotated"]
    for z in POINTS:
        p, dp = backend.wp_and_prime(z, lattice)
        with mp.workdps(DPS):
            assert backend.wp_and_prime(-z, lattice) == (p, -dp)
            assert backend.zeta(-z, lattice) == -backend.zeta(z, lattice)


# --- The lattice ---------------------------------------------------------------------------


@every_lattice
def test_constants_obey_their_laws_dlmf_23_2_14_and_23_3_4(backend, lattice):
    roots, (eta1, eta3) = backend.roots(lattice), backend.quasi_periods(lattice)
    g2, g3 = backend.invariants(lattice)
    with mp.workdps(DPS + 20):
        products = [eta1 * mp.mpc(lattice.omega3), eta3 * mp.mpc(lattice.omega1)]
        assert_digits(products[0] - products[1], 0.5j * mp.pi, DPS - 2, terms=products)
        assert_digits(sum(roots), 0, DPS - 1, terms=roots)
        e1, e2, e3 = roots
        assert_digits(2 * (e1**2 + e2**2 + e3**2), g2, DPS - 2, terms=[e**2 for e in roots])
        assert_digits(4 * e1 * e2 * e3, g3, DPS - 2, terms=[e**3 for e in roots])


@every_lattice
def test_roots_belong_to_the_basis_given(backend, lattice):
    w1, w3 = lattice.omega1, lattice.omega3
    with mp.workdps(40):
        halves = [mp.mpc(w1), mp.mpc(w1) + mp.mpc(w3), mp.mpc(w3)]
    assert list(backend.roots(lattice)) == backend.wp(halves, lattice)


@pytest.mark.parametrize("name", ["lemniscatic", "hexagonal", "skewed", "rotated", "unreduced"])
def test_invariants_lead_back_to_the_reduced_basis(backend, name):
    lattice = LATTICES[name]
    g2, g3 = backend.invariants(lattice)
    g2 = mp.mpc(g2.real, 0.125)  # complex: the canonical basis, whatever the lattice was
    again = backend.lattice_from_invariants(g2, g3)
    assert backend.lattice_from_invariants(g2, g3) == again
    tau = complex(again.omega3) / complex(again.omega1)
    assert abs(tau) > 1 - sys.float_info.epsilon
    assert abs(tau.real) < 0.5 + sys.float_info.epsilon
    h2, h3 = backend.invariants(again)
    assert_digits(h2, g2, DPS - 2, terms=[g3 ** (2 / 3)])
    assert_digits(h3, g3, DPS - 2, terms=[g2 ** (3 / 2)])


@pytest.mark.parametrize(("g2", "g3"), [(4, 1), (4, -1), (1, 1), (-2, 0.5), (3.5, -1e-9), (3, 2)])
def test_real_invariants_give_the_basis_of_the_core(backend, g2, g3):
    ours, core = backend.lattice_from_invariants(g2, g3), Lattice.from_invariants(g2, g3)
    assert complex(ours.omega1) == core.omega1
    assert complex(ours.omega3) == core.omega3
    for got, want in zip(backend.invariants(ours), (g2, g3), strict=True):
        assert_digits(got, want, DPS - 2, terms=[1])


@pytest.mark.parametrize(
    ("g2", "g3"),
    [
        (3, 1),
        (0, 0),
        (3 * 2.0**200, 2.0**300),
        (12, -8),
        (mp.nan, 1),
        (1, mp.inf),
        (3 + mp.mpf(2) ** -170, 1),
    ],
)
def test_invariants_of_no_lattice_are_refused(backend, g2, g3):
    with pytest.raises(LatticeError, match=r"discriminant|finite"):
        backend.lattice_from_invariants(g2, g3)


# --- The inverse ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["square", "lemniscatic", "hexagonal", "skewed", "rotated"])
def test_inverse_wp_solves_and_keeps_to_its_region(backend, name):
    lattice, rng = LATTICES[name], random.Random(3)
    frame = lattice.reduced()[0]
    for size in (1e-3, 1, 1, 1, 30, 1e12):
        w = complex(rng.gauss(0, size), rng.gauss(0, size))
        z = backend.inverse_wp(w, lattice)
        p, dp = backend.wp_and_prime(z, lattice)
        with mp.workdps(DPS + 20):
            assert_digits(p, w, DPS, terms=[z * dp])
            ratio = z / (2 * mp.mpc(frame.omega1))
            r = ratio.imag / mp.mpc(frame.tau).imag
        assert 0 <= r <= 0.5
        assert abs(ratio.real) <= 0.5


def test_on_the_edges_of_its_region_inverse_wp_prefers_positive_real_parts(backend):
    lattice = Lattice(1.25, 2j)
    for z in (0.5, 0.5 + 2j, 0.75j, 1.25 + 0.75j):
        for start in (z, -z):
            back = backend.inverse_wp(backend.wp(start, lattice), lattice)
            assert_digits(back, z, DPS - 1)


@every_lattice
def test_inverse_wp_of_a_root_is_the_half_period(backend, lattice):
    for root in backend.roots(lattice):
        z = backend.inverse_wp(root, lattice)
        with mp.workdps(DPS + 10):
            twice = 2 * z
            # As near to a lattice point as rounding its half can bring it.
            residue = reduced(twice, lattice)[0]
            assert abs(residue) <= abs(twice) * mp.mpf(10) ** -DPS


@pytest.mark.parametrize("name", ["hexagonal", "rotated", "unreduced", "thin"])
def test_inverse_wp_next_to_a_root_is_resolved(backend, name):
    lattice = LATTICES[name]
    for root in backend.roots(lattice):
        w = complex(root) * (1 + 2.0**-50)  # a double: another number than the root
        z = backend.inverse_wp(w, lattice)
        assert_digits(backend.wp(z, lattice), w, DPS - 1)


def test_inverse_wp_at_a_double_zero_and_at_infinity(backend):
    square = LATTICES["square"]
    assert backend.inverse_wp(0, square) == 1 + 1j
    for infinite in (math.inf, complex(math.inf, math.nan), mp.mpc(mp.inf, mp.nan), -mp.inf):
        assert backend.inverse_wp(infinite, square) == 0
    assert mp.isnan(backend.inverse_wp(mp.nan, square))


# --- Series and addition -------------------------------------------------------------------


def test_lattice_sum_is_the_series_as_written(backend):
    lattice, z = LATTICES["skewed"], 0.75 + 0.25j
    p, dp = backend.lattice_sum(z, lattice, 3, 2)
    with mp.workdps(DPS + 10):
        want, slope = 1 / mp.mpc(z) ** 2, -2 / mp.mpc(z) ** 3
        for m in range(-3, 4):
            for n in range(-2, 3):
                omega = 2 * m * mp.mpc(lattice.omega1) + 2 * n * mp.mpc(lattice.omega3)
                if omega:
                    want += 1 / (z - omega) ** 2 - 1 / omega**2
                    slope += -2 / (z - omega) ** 3
        assert_digits(p, want, DPS)
        assert_digits(dp, slope, DPS)


def test_lattice_sum_has_poles_in_its_box_only(backend):
    lattice = LATTICES["square"]
    inside, outside = backend.lattice_sum([4 - 2j, 8], lattice, 2, 1)[0]
    assert mp.isinf(inside.real)
    assert mp.isfinite(outside)


@pytest.mark.parametrize("bad", [0, -1, True, 1.5])
def test_truncations_are_positive_integers(backend, bad):
    with pytest.raises(InputError, match="n_max"):
        backend.lattice_sum(0.5, LATTICES["square"], 2, bad)


@pytest.mark.parametrize("name", ["square", "hexagonal", "skewed", "unreduced", "rotated"])
@pytest.mark.parametrize("distance", [0.25, 2.0**-40, 0], ids=["apart", "close", "equal"])
def test_addition_and_duplication_dlmf_23_10_1(backend, name, distance):
    lattice = LATTICES[name]
    u = 0.3125 + 0.125j
    v = u + distance
    values = [*backend.wp_and_prime(u, lattice), *backend.wp_and_prime(v, lattice)]
    p, dp = backend.add(*values, lattice)
    want, slope = backend.wp_and_prime(u + v, lattice)
    # The arguments carry DPS digits; terms of the formula exceed its result by some tens.
    assert_digits(p, want, DPS - 3, terms=values[::2])
    assert_digits(dp, slope, DPS - 3, terms=values[1::2])


def test_addition_knows_infinity(backend):
    lattice, infinity = LATTICES["rotated"], mp.mpc(mp.inf, mp.nan)
    p, dp = backend.wp_and_prime(0.3 + 0.1j, lattice)
    assert backend.add(p, dp, infinity, infinity, lattice) == (p, dp)
    assert backend.add(infinity, infinity, p, dp, lattice) == (p, dp)
    half = backend.wp_and_prime(lattice.omega1, lattice)
    with mp.workdps(DPS):
        opposite = -dp
    for sums in (
        backend.add(p, dp, p, opposite, lattice),
        backend.add(*half, *half, lattice),
        backend.add(infinity, infinity, infinity, infinity, lattice),
    ):
        assert all(mp.isinf(value.real) and mp.isnan(value.imag) for value in sums)
    assert all(mp.isnan(value.real) for value in backend.add(p, mp.nan, p, dp, lattice))


# --- Shapes, kinds, precision --------------------------------------------------------------


def test_shapes_follow_the_argument(backend):
    lattice = LATTICES["square"]
    scalar = backend.wp(0.5 + 0.25j, lattice)
    assert isinstance(scalar, mp.mpc)
    nested = backend.wp([[0.5 + 0.25j], (0.3, 0.4)], lattice)
    assert nested[0] == [scalar]
    assert [len(row) for row in nested] == [1, 2]
    array = np.full((2, 1, 3), 0.5 + 0.25j)
    array.flags.writeable = False
    p, dp = backend.wp_and_prime(array, lattice)
    assert p.shape == dp.shape == (2, 1, 3)
    assert p.dtype == object
    assert (p == scalar).all()
    assert backend.green(np.array([[0.5, 0.25]], dtype=np.float32), lattice).shape == (1, 2)
    assert backend.zeta(np.empty((0, 2)), lattice).shape == (0, 2)
    assert backend.sigma(np.array(0.5), lattice).shape == ()
    assert backend.sigma([], lattice) == []
    objects = np.array([mp.mpf("0.5"), 1, Fraction(1, 3)], dtype=object)
    assert backend.wp(objects, lattice).shape == (3,)


def test_values_to_add_broadcast(backend):
    lattice = LATTICES["square"]
    p, dp = backend.wp_and_prime(np.array([[0.3], [0.4j]]), lattice)
    q, dq = backend.wp_and_prime(np.array([0.2, 0.5j, 0.1]), lattice)
    total = backend.add(p, dp, q, dq, lattice)
    assert total[0].shape == total[1].shape == (2, 3)
    assert total[0][1, 2] == backend.add(p[1, 0], dp[1, 0], q[2], dq[2], lattice)[0]
    assert (
        backend.add(list(q), list(dq), q[0], dq[0], lattice)[1][1]
        == (backend.add(q[1], dq[1], q[0], dq[0], lattice)[1])
    )
    with pytest.raises(InputError, match="broadcast"):
        backend.add(q, dq, q[:2], dq[:2], lattice)
    with pytest.raises(InputError, match="lengths"):
        backend.add(list(q), list(dq), list(q[:2]), list(dq[:2]), lattice)


@pytest.mark.parametrize("bad", [True, np.True_, "0.5", None, [0.5, "x"], np.array([True])])
def test_what_is_no_number_is_refused_by_name(backend, bad):
    with pytest.raises(InputTypeError, match=r"True|0\.5|None|x"):
        backend.wp(bad, LATTICES["square"])


def test_an_exponent_beyond_reason_is_refused(backend):
    with pytest.raises(InputError, match="exponent"):
        backend.wp(mp.ldexp(1, 10**9), LATTICES["square"])


@pytest.mark.parametrize("bad", [0, -3, True, 15.0, "15"])
def test_digits_are_a_positive_integer(bad):
    with pytest.raises(InputError, match="dps"):
        MpmathBackend(bad)


def test_only_a_lattice_of_numbers_will_do(backend):
    with pytest.raises(InputError, match="Lattice"):
        backend.wp(0.5, (1, 1j))


def test_a_lattice_of_tensors_is_left_to_the_torch_backend(backend):
    class Tensor:  # what a lattice knows a tensor by; importing torch takes seconds
        requires_grad = True

    with pytest.raises(LatticeError, match="backend of their library"):
        backend.wp(0.5, Lattice(Tensor(), Tensor()))


def test_the_caller_s_precision_is_neither_read_nor_needed(backend):
    lattice, z = LATTICES["rotated"], 0.31 + 0.17j
    with mp.workdps(5):
        coarse = [*backend.wp_and_prime(z, lattice), backend.inverse_wp(z, lattice)]
    with mp.workdps(200):
        fine = [*backend.wp_and_prime(z, lattice), backend.inverse_wp(z, lattice)]
        assert coarse == fine
        assert type(coarse[0] + mp.mpf(1)) is mp.mpc


def test_more_digits_refine_fewer():
    lattice, z = LATTICES["hexagonal"], 0.31 + 0.17j
    coarse, fine = (MpmathBackend(dps).wp_and_prime(z, lattice) for dps in (20, 200))
    for few, many in zip(coarse, fine, strict=True):
        assert_digits(few, many, 20)


def test_the_registry_serves_it():
    backend = get_backend("mpmath", dps=17)
    assert isinstance(backend, MpmathBackend)
    assert backend.dps == 17


@pytest.mark.parametrize(
    ("method", "function"),
    [("wp", "wp_and_prime_rows"), ("zeta", "zeta_rows"), ("sigma", "sigma_rows")],
)
@pytest.mark.parametrize("sabotaged", [0, 1], ids=["low", "high"])
def test_one_spoiled_precision_is_noticed(backend, monkeypatch, method, function, sabotaged):
    rows = getattr(mpmath_rows, function)
    bits = backend._precisions.working_bits[sabotaged]

    def spoiled(table, point):
        values = rows(table, point)
        wrong = table.ctx.mpf(10) ** (2 - DPS) if table.bits == bits else 0
        return tuple(value + value * wrong for value in values)

    monkeypatch.setattr(mpmath_backend, function, spoiled)
    with pytest.raises(PrecisionError, match=r"0\.3\+0\.1j"):
        getattr(backend, method)(0.3 + 0.1j, Lattice(1, 1j))


def test_a_spoiled_constant_is_noticed(backend, monkeypatch):
    lattice = Lattice(1, 1.125j)

    class Spoiled(mpmath_rows.RowTable):
        def __init__(self, frame, bits):
            super().__init__(frame, bits)
            if bits == min(backend._precisions.working_bits):
                self.e2 *= 1 + self.ctx.mpf(10) ** (5 - DPS)

    mpmath_rows.row_table.cache_clear()
    monkeypatch.setattr(mpmath_rows, "RowTable", Spoiled)
    with pytest.raises(PrecisionError):
        backend.wp(0.3, lattice)
    mpmath_rows.row_table.cache_clear()
