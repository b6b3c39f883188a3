"""Certified balls: they contain what the other backends compute, and they are small.

Skipped, by name, where python-flint is not installed.
"""

import math
import random
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest
from mpmath import mp

flint = pytest.importorskip(
    "flint", reason="python-flint is not installed: pip install 'wefpe[flint]'"
)

from backends import flint_backend
from backends.flint_backend import FlintBackend, midpoints, radii
from backends.mpmath_backend import MpmathBackend
from wefpe_core import (
    InputError,
    InputTypeError,
    Lattice,
    LatticeError,
    PrecisionError,
    get_backend,
)

DIGITS = 40
LATTICES = {
    "square": Lattice(1, 1j),
    "hexagonal": Lattice.equianharmonic(),
    "tall": Lattice(0.5, 12j),
    "thin": Lattice.from_tau(0.45 + 1e-3j),
    "flat": Lattice.from_tau(1e-3j),
    "skewed": Lattice(1.5, 11.625 + 1.25j),
    "unreduced": Lattice(3 + 7.5j, 1 + 3j),
    "rotated": Lattice(0.6 - 0.8j, 1.1 + 1.2j),
}
FUNCTIONS = ["wp", "wp_prime", "zeta", "sigma", "green"]

every_lattice = pytest.mark.parametrize("name", LATTICES)


@pytest.fixture
def backend():
    return FlintBackend(DIGITS)


@pytest.fixture
def oracle():
    return MpmathBackend(DIGITS + 15)


@pytest.fixture(autouse=True)
def global_precision_untouched():
    before = flint.ctx.prec, mp.dps
    yield
    assert (flint.ctx.prec, mp.dps) == before


def points(lattice):
    """Generic points, near poles, at half-periods, a million periods away."""
    rng = random.Random(11)
    w1, w3 = complex(lattice.omega1), complex(lattice.omega3)
    generic = [rng.uniform(-1, 1) * w1 + rng.uniform(-1, 1) * w3 for _ in range(4)]
    near_poles = [1e-12 * w1, 2 * w1 - 1e-12j * w1, 4 * w3 - 2 * w1 + 1e-12 * w3]
    halves = [w1, w3, w1 + w3, 3 * w1 - w3]
    return generic + near_poles + halves + [z + 2e6 * (w1 - w3) for z in generic[:2]]


def assert_contains(ball, value, digits=DIGITS + 15):
    """The ball meets the interval an mpmath number of so many digits stands for."""
    with flint.ctx.workdps(3 * DIGITS + 50):
        value = flint.acb(value)
        rounding = abs(value) * flint.arb(10) ** -digits
        assert not abs(flint.acb(ball) - value) > rounding, (ball, value)


# --- Containment ---------------------------------------------------------------------------


def test_the_containment_check_can_fail(backend, oracle):
    lattice, z = LATTICES["rotated"], 0.3125 + 0.125j
    value = oracle.wp(z, lattice)
    with mp.workdps(DIGITS + 20), pytest.raises(AssertionError):
        assert_contains(backend.wp(z, lattice), value + value * mp.mpf(10) ** -DIGITS)


@every_lattice
@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_ground_truth_lies_in_the_ball(backend, oracle, name, function):
    lattice = LATTICES[name]
    for z in points(lattice):
        ball = getattr(backend, function)(z, lattice)
        assert ball.is_finite()
        assert_contains(ball, getattr(oracle, function)(z, lattice))


@every_lattice
def test_the_constants_of_the_lattice_lie_in_their_balls(backend, oracle, name):
    lattice = LATTICES[name]
    for method in ("invariants", "roots", "quasi_periods"):
        got, want = (getattr(b, method)(lattice) for b in (backend, oracle))
        for ball, value in zip(got, want, strict=True):
            assert_contains(ball, value)


@every_lattice
def test_inverse_wp_lies_in_its_ball_and_on_the_same_branch(backend, oracle, name):
    lattice, rng = LATTICES[name], random.Random(5)
    size = max(map(abs, midpoints(backend.roots(lattice))))
    for factor in (1e-3, 1, 1, 1, 30, 1e12):
        w = factor * size * complex(rng.gauss(0, 1), rng.gauss(0, 1))
        assert_contains(backend.inverse_wp(w, lattice), oracle.inverse_wp(w, lattice))


def test_on_the_edges_inverse_wp_agrees_with_the_ground_truth(backend, oracle):
    lattice = Lattice(1.25, 2j)
    for z in (0.5, -0.5 + 2j, -0.75j, 1.25 + 0.75j):
        w = complex(oracle.wp(z, lattice))  # rounded along the symmetry line, so still on it
        assert_contains(backend.inverse_wp(w, lattice), oracle.inverse_wp(w, lattice), DIGITS)


def test_wp_at_its_zeros_is_small_to_scale(backend, oracle):
    for name in ("hexagonal", "skewed", "rotated"):
        lattice = LATTICES[name]
        zero = complex(oracle.inverse_wp(0, lattice))
        ball = backend.wp(zero, lattice)
        assert_contains(ball, oracle.wp(zero, lattice))
        largest = max(map(abs, midpoints(backend.roots(lattice))))
        assert radii(ball) < 10.0**-DIGITS * largest


def test_the_series_and_the_addition_formula_contain_the_ground_truth(backend, oracle):
    lattice, u, v = LATTICES["rotated"], 0.3125 + 0.125j, -0.1875 + 0.4375j
    for got, want in zip(
        backend.lattice_sum(u, lattice, 3, 2), oracle.lattice_sum(u, lattice, 3, 2), strict=True
    ):
        assert_contains(got, want)
    for w in (v, u, u + 2.0**-30):  # apart, equal, close
        total = backend.add(
            *backend.wp_and_prime(u, lattice), *backend.wp_and_prime(w, lattice), lattice
        )
        for got, want in zip(total, oracle.wp_and_prime(u + w, lattice), strict=True):
            assert_contains(got, want)
            assert radii(got) < 10.0 ** (12 - DIGITS) * abs(midpoints(got))


def test_wp_is_flint_s_own_function(backend):
    lattice, z = Lattice.from_tau(0.25 + 1.25j), 0.3125 + 0.125j
    with flint.ctx.workdps(60):
        argument, tau = flint.acb(z.real, z.imag), flint.acb(0.25, 1.25)
        own = argument.elliptic_p(tau), argument.elliptic_zeta(tau), argument.elliptic_sigma(tau)
        ours = [getattr(backend, f)(z, lattice) for f in ("wp", "zeta", "sigma")]
        assert all(a.overlaps(b) for a, b in zip(ours, own, strict=True))
        # wp' by the duplication of sigma, another formula (DLMF 23.10.18).
        doubled = -(2 * argument).elliptic_sigma(tau) / own[2] ** 4
        assert backend.wp_prime(z, lattice).overlaps(doubled)


def test_flint_s_zeta_grows_by_twice_its_half_period_value_dlmf_23_2_11():
    tau, z = flint.acb(0.25, 1.25), flint.acb(0.3125, 0.125)
    for period in (flint.acb(1), tau):
        growth = (z + period).elliptic_zeta(tau) - z.elliptic_zeta(tau)
        assert growth.overlaps(2 * (period / 2).elliptic_zeta(tau))
        assert not growth.overlaps((period / 2).elliptic_zeta(tau))


# --- Radii ---------------------------------------------------------------------------------


@pytest.mark.parametrize("digits", [5, 30, 100])
def test_radii_keep_the_promise_relative_to_the_scale(digits):
    backend = FlintBackend(digits)
    for lattice in LATTICES.values():
        period = 2 * abs(complex(lattice.reduced()[0].omega1))
        for z in points(lattice):
            with flint.ctx.workdps(digits + 20):
                part = flint.arb(10) ** -digits
                wp, wp_prime = backend.wp_and_prime(z, lattice)
                floor, size = flint.arb(period), abs(flint.acb(z.real, z.imag))
                assert wp.rad() <= part * (abs(wp) + size * abs(wp_prime) + floor**-2)
                zeta, sigma = backend.zeta(z, lattice), backend.sigma(z, lattice)
                assert zeta.rad() <= 2 * part * (abs(zeta) + floor**-1)
                assert sigma.rad() <= 2 * part * abs(sigma)


def test_a_ball_goes_in_and_a_ball_as_wide_comes_out(backend):
    lattice, z = LATTICES["rotated"], 0.3125 + 0.125j
    w = backend.wp(z, lattice)
    assert not w.is_exact()
    back = backend.inverse_wp(w, lattice)
    assert back.overlaps(flint.acb(z)) or (-back).overlaps(flint.acb(z))
    assert backend.wp(back, lattice).overlaps(w)
    wide = flint.acb(flint.arb(0.3125, 2.0**-20), flint.arb(0.125))
    ball = backend.wp(wide, lattice)
    assert 2.0**-20 < radii(ball) < 2.0**-10
    assert ball.overlaps(w)
    exact = flint.fmpq(1, 3)
    assert backend.wp(exact, lattice).overlaps(backend.wp(Fraction(1, 3), lattice))


def test_midpoints_and_radii_are_python_numbers_of_the_same_shape(backend):
    balls = backend.wp(np.array([[0.5, 0.25j]]), LATTICES["square"])
    assert midpoints(balls).shape == radii(balls).shape == (1, 2)
    assert isinstance(midpoints(balls[0, 0]), complex)
    assert isinstance(radii([balls[0, 0]])[0], float)
    assert radii(flint.acb(1)) == 0
    assert radii(backend.wp(0, LATTICES["square"])) == math.inf
    third = flint.acb(1) / 3
    assert flint.arb(radii(third)) > third.rad()


def test_too_little_precision_is_an_error_not_a_wide_ball(backend, monkeypatch):
    monkeypatch.setattr(flint_backend, "_GUARD_BITS", -60)
    monkeypatch.setattr(flint_backend, "_DOUBLINGS", 1)
    with pytest.raises(PrecisionError, match=r"40 digits.*0\.3"):
        backend.wp(0.3, LATTICES["rotated"])


# --- Exact values, shapes, kinds -----------------------------------------------------------


@every_lattice
def test_a_lattice_point_gives_what_is_documented(backend, name):
    lattice = LATTICES[name]
    with mp.workdps(40):
        pole = 4 * mp.mpc(lattice.omega1) - 6 * mp.mpc(lattice.omega3)
        half = 3 * mp.mpc(lattice.omega1) + 4 * mp.mpc(lattice.omega3)
    for value in (*backend.wp_and_prime(pole, lattice), backend.zeta(pole, lattice)):
        assert not value.is_finite()
        assert value.real == flint.arb.pos_inf()
        assert value.imag.is_nan()
    assert backend.sigma(pole, lattice) == 0
    assert backend.green(pole, lattice) == flint.arb.pos_inf()
    assert backend.wp_prime(half, lattice) == 0


def test_nan_and_infinities(backend):
    lattice = LATTICES["square"]
    for z in (math.nan, complex(1, math.inf), mp.mpc(mp.nan, 0), flint.acb("nan")):
        values = [getattr(backend, function)(z, lattice) for function in FUNCTIONS]
        assert all(value.real.is_nan() for value in values)
        assert all(value.real.is_nan() for value in backend.lattice_sum(z, lattice, 1, 1))
    assert backend.inverse_wp(complex(math.inf, math.nan), lattice) == 0
    assert backend.inverse_wp(backend.wp(0, lattice), lattice) == 0
    assert not backend.inverse_wp(math.nan, lattice).is_finite()
    assert not backend.lattice_sum(2 - 4j, lattice, 1, 2)[0].is_finite()


def test_inverse_wp_of_an_exact_root_is_a_ball_around_the_half_period(backend):
    ball = backend.inverse_wp(0, LATTICES["square"])  # wp has its double zero there
    assert ball.contains(flint.acb(1, 1))
    assert radii(ball) < 10.0**-DIGITS * 2


def test_addition_knows_infinity(backend):
    lattice = LATTICES["rotated"]
    p, dp = backend.wp_and_prime(0.3 + 0.1j, lattice)
    infinity = backend.wp_and_prime(0, lattice)
    assert all(
        a.overlaps(b) for a, b in zip(backend.add(p, dp, *infinity, lattice), (p, dp), strict=True)
    )
    assert all(
        a.overlaps(b) for a, b in zip(backend.add(*infinity, p, dp, lattice), (p, dp), strict=True)
    )
    for total in (
        backend.add(p, dp, p, -dp, lattice),
        backend.add(*infinity, *infinity, lattice),
        backend.add(p, math.nan, p, dp, lattice),
    ):
        assert not any(value.is_finite() for value in total)


def test_shapes_follow_the_argument(backend):
    lattice = LATTICES["square"]
    assert isinstance(backend.wp(0.5, lattice), flint.acb)
    assert isinstance(backend.green(0.5, lattice), flint.arb)
    nested = backend.zeta([0.5, (0.25, 0.3j)], lattice)
    assert isinstance(nested, list)
    assert len(nested[1]) == 2
    p, dp = backend.wp_and_prime(np.full((2, 3), np.complex64(0.5j)), lattice)
    assert p.shape == dp.shape == (2, 3)
    assert p.dtype == object
    assert backend.sigma(np.empty((0, 2)), lattice).shape == (0, 2)
    assert backend.add(p, dp, p[0], dp[0], lattice)[1].shape == (2, 3)


@pytest.mark.parametrize("bad", [True, "0.5", None, [0.5, "x"], np.array([True])])
def test_what_is_no_number_is_refused_by_name(backend, bad):
    with pytest.raises(InputTypeError, match=r"True|0\.5|None|x"):
        backend.wp(bad, LATTICES["square"])


@pytest.mark.parametrize("bad", [0, -3, True, 15.0, "15"])
def test_digits_are_a_positive_integer(bad):
    with pytest.raises(InputError, match="digits"):
        FlintBackend(bad)


def test_only_a_lattice_of_numbers_will_do(backend):
    class Tensor:
        requires_grad = True

    with pytest.raises(InputError, match="Lattice"):
        backend.wp(0.5, (1, 1j))
    with pytest.raises(LatticeError, match="backend of their library"):
        backend.wp(0.5, Lattice(Tensor(), Tensor()))


def test_a_lattice_from_invariants_is_the_core_s(backend):
    assert backend.lattice_from_invariants(4, 1) == Lattice.from_invariants(4, 1)
    balls = backend.invariants(Lattice.lemniscatic())
    lattice = backend.lattice_from_invariants(balls[0].real, 0)
    assert abs(lattice.omega1 - Lattice.lemniscatic().omega1) <= 4 * math.ulp(2.0)


def test_the_registry_serves_it():
    backend = get_backend("flint", digits=17)
    assert isinstance(backend, FlintBackend)
    assert backend.digits == 17


def test_threads_do_not_disturb_each_other_s_precision() -> None:
    """`flint.ctx` belongs to the process: unguarded, one thread restores what another has set."""
    lattice, z = Lattice(1, 0.3 + 1.1j), 0.3 + 0.2j
    before = flint.ctx.prec
    backends = {digits: get_backend("flint", digits=digits) for digits in (20, 150, 600)}

    def worst(digits: int) -> float:
        values = [backends[digits].wp(z, lattice) for _ in range(60)]
        return max(float(value.rad().log() / flint.arb(10).log()) for value in values)

    tasks = list(backends) * 4
    with ThreadPoolExecutor(6) as pool:
        for digits, exponent in zip(tasks, pool.map(worst, tasks), strict=True):
            assert exponent <= 1 - digits
    assert flint.ctx.prec == before
