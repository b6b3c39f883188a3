"""Elliptic integrals, modular functions, the elliptic logarithm and degenerate lattices."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verification.judge import load_contracts
from verification.oracle_family import midpoints
from verification.tests.strategies import reduced_taus
from wefpe_core import (
    AbstractBackend,
    DegenerateLattice,
    DegenerateLatticeError,
    InputError,
    Lattice,
    LatticeError,
    UnsupportedFunctionError,
    get_backend,
)

NUMPY = get_backend("numpy")
EPS = float(np.finfo(np.float64).eps)
LAWS = load_contracts()["laws"]["residual"]["complex128"]["largest"] * EPS
K_CEILING = load_contracts()["accuracy"]["ellipk"]["complex128"]["largest"] * EPS


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20)


def residual(*terms: Any) -> float:
    """The largest modulus of a sum that should vanish, over the sum of the moduli."""
    return float(np.max(np.abs(sum(terms)) / sum(np.abs(term) for term in terms)))


def largest_error(got: Any, want: Any) -> float:
    return float(np.max(np.abs(got - want) / np.abs(want)))


def cut_plane(rng: np.random.Generator, count: int = 100) -> Any:
    """Complex numbers of many sizes, away from the cut by a part in a hundred."""
    turn = np.exp(0.99j * np.pi * rng.uniform(-1, 1, count))
    return 10.0 ** rng.uniform(-3, 3, count) * turn


# --- Laws of the integrals -------------------------------------------------------------------


def test_legendre_relation(rng):
    m = np.concatenate([rng.random(100), rng.uniform(-3, 3, 200) + 1j * rng.uniform(-3, 3, 200)])
    k, e, k1, e1 = NUMPY.ellipk(m), NUMPY.ellipe(m), NUMPY.ellipk(1 - m), NUMPY.ellipe(1 - m)
    assert residual(e * k1, e1 * k, -k * k1, np.full(300, -np.pi / 2)) < LAWS


def test_carlson_homogeneity_symmetry_and_duplication(rng):
    x, y, z = (cut_plane(rng) for _ in range(3))
    value, other = NUMPY.elliprf(x, y, z), NUMPY.elliprd(x, y, z)
    assert residual(value, -NUMPY.elliprf(z, x, y)) < LAWS
    assert residual(value, -2.0 * NUMPY.elliprf(4 * x, 4 * y, 4 * z)) < LAWS
    assert residual(other, -8.0 * NUMPY.elliprd(4 * x, 4 * y, 4 * z)) < LAWS
    a, b, c = np.sqrt(x), np.sqrt(y), np.sqrt(z)
    moved = ((a + b) * (a + c), (a + b) * (b + c), (a + c) * (b + c))
    assert residual(value, -2 * NUMPY.elliprf(*moved)) < LAWS
    # DLMF 19.21.9
    assert residual(other, NUMPY.elliprd(y, z, x), NUMPY.elliprd(z, x, y), -3 / (a * b * c)) < LAWS


def test_special_cases_of_carlson(rng):
    x, y = cut_plane(rng), cut_plane(rng)
    p, r = 10.0 ** rng.uniform(-3, 3, 100), rng.random(100) + 0.1
    assert residual(NUMPY.elliprf(x, x, x), -1 / np.sqrt(x)) < LAWS
    assert residual(NUMPY.elliprd(x, x, x), -1 / (x * np.sqrt(x))) < LAWS
    assert residual(NUMPY.elliprc(x, y), -NUMPY.elliprf(x, y, y)) < LAWS
    assert residual(NUMPY.elliprj(x, y, p, p), -NUMPY.elliprd(x, y, p)) < LAWS
    assert residual(NUMPY.elliprc(0.0, r), -np.pi / (2 * np.sqrt(r))) < LAWS
    assert residual(NUMPY.elliprc(1.0, 1 + r**2), -np.arctan(r) / r) < LAWS


def test_legendres_integrals_are_carlsons(rng):
    n, m, phi = rng.random(100), rng.random(100), rng.uniform(-1.5, 1.5, 100)
    s, c = np.sin(phi), np.cos(phi)
    numbers = (c * c, 1 - m * s * s, np.ones(100))
    f = s * NUMPY.elliprf(*numbers)
    assert residual(NUMPY.ellipkinc(phi, m), -f) < LAWS
    assert residual(NUMPY.ellipeinc(phi, m), -f, m * s**3 / 3 * NUMPY.elliprd(*numbers)) < LAWS
    third = n * s**3 / 3 * NUMPY.elliprj(*numbers, 1 - n * s * s)
    assert residual(NUMPY.ellippiinc(n, phi, m), -f, -third) < LAWS
    assert residual(NUMPY.ellippi(n, m), -NUMPY.ellippiinc(n, np.pi / 2, m)) < LAWS
    assert residual(NUMPY.ellippi(0.0, m), -NUMPY.ellipk(m)) < LAWS
    assert residual(NUMPY.ellipkinc(phi + 2 * np.pi, m), -f, -4 * NUMPY.ellipk(m)) < LAWS


# --- Second opinions -------------------------------------------------------------------------


def test_real_integrals_against_scipy(rng):
    special = pytest.importorskip("scipy.special")
    m = np.concatenate([rng.random(300), -(10.0 ** rng.uniform(-6, 6, 100))])
    phi = rng.uniform(-10, 10, 400)
    x, y, z, p = 10.0 ** rng.uniform(-4, 4, (4, 400))
    calls = {
        "ellipk": (m,),
        "ellipe": (m,),
        "ellipkinc": (phi, m),
        "ellipeinc": (phi, m),
        "elliprf": (x, y, z),
        "elliprd": (x, y, z),
        "elliprj": (x, y, z, p),
        "elliprc": (x, y),
    }
    for name, arguments in calls.items():
        got = getattr(NUMPY, name)(*arguments)
        assert (got.imag == 0).all(), name
        assert largest_error(got.real, getattr(special, name)(*arguments)) < LAWS, name
    # Cauchy's principal values, which have zeros.
    assert largest_error(NUMPY.elliprc(x, -y).real, special.elliprc(x, -y)) < LAWS
    got, want = NUMPY.elliprj(x, y, z, -p), special.elliprj(x, y, z, -p)
    assert (got.imag == 0).all()
    scale = np.abs(want) + NUMPY.elliprj(x, y, z, p).real
    assert np.max(np.abs(got.real - want) / scale) < LAWS


CALLS: dict[str, tuple[Any, ...]] = {
    "ellipk": (0.25 - 2.5j,),
    "ellipe": (-3.0 + 0.25j,),
    "ellipkinc": (1.25 + 0.5j, 0.5 + 2.0j),
    "ellipeinc": (4.0 - 0.75j, -0.5 + 1.0j),
    "ellippi": (0.25 + 1.0j, 0.5 - 0.125j),
    "ellippiinc": (0.25 + 0.5j, 1.0, 0.5 - 0.125j),
    "elliprf": (1.0j, -2.0, 0.5),
    "elliprd": (1.0, 2.0j, -3.0 + 0.5j),
    "elliprj": (1.0, 2.0 + 1.0j, 3.0, -1.0 + 1.0j),
    "elliprc": (1.0j, 2.0 - 4.0j),
    "klein_j": (0.3125 + 0.25j,),
    "dedekind_eta": (3.25 + 0.25j,),
    "modular_lambda": (-2.25 + 0.125j,),
}
ON_THE_CUT = {
    "ellipk": (2.0,),
    "ellipe": (2.0,),
    "ellipkinc": (1.25, 2.0),
    "ellipeinc": (1.25, 2.0),
    "ellippi": (2.0, 0.5),
    "elliprf": (-1.0, 2.0, 3.0),
    "elliprd": (-1.0, 2.0, 3.0),
}


@pytest.mark.parametrize("name", CALLS)
def test_arb_agrees(name):
    pytest.importorskip("flint")
    want = complex(getattr(get_backend("flint"), name)(*CALLS[name]).mid())
    assert abs(getattr(NUMPY, name)(*CALLS[name]) - want) < LAWS * abs(want)
    exact = getattr(get_backend("mpmath", dps=20), name)(*CALLS[name])
    assert abs(complex(exact) - want) < 2 * EPS * abs(want)


@pytest.mark.parametrize("name", ON_THE_CUT)
def test_a_cut_has_one_side_whatever_the_sign_of_zero(name):
    arguments = ON_THE_CUT[name]
    want = complex(getattr(get_backend("mpmath", dps=20), name)(*arguments))
    for zero in (0.0, -0.0):
        got = getattr(NUMPY, name)(*(complex(x, zero) for x in arguments))
        assert abs(got - want) < LAWS * abs(want)


def test_complex_third_kind_against_arb(rng):
    pytest.importorskip("flint")
    truth = get_backend("flint")
    refused = 0
    for numbers in np.stack([cut_plane(rng, 60) for _ in range(4)], axis=1).tolist():
        got = complex(NUMPY.elliprj(*numbers))
        turns = np.abs(np.angle(numbers[:3]) - np.angle(numbers[3]))
        if turns.max() >= np.pi:
            refused += 1
            assert np.isnan(got.real)
            continue
        want = complex(truth.elliprj(*numbers).mid())
        slack = 1 + 1 / np.min(np.pi - turns)  # next to the edge of the domain
        assert abs(got - want) < LAWS * slack * abs(want)
    assert 0 < refused < 60


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("elliprj", (0.0, 1 + 0.75j, 1.0, -0.5 - 0.125j)),  # mpmath would take a minute
        ("elliprj", (-1 + 1j, -2 - 1j, -0.5 + 2j, -0.25 - 1j)),
        ("ellippi", (1.5 + 0.125j, -0.75j)),
        ("ellippiinc", (1.5 + 0.5j, 0.5 + 2j, 0.25 - 1j)),
    ],
)
def test_the_reference_of_the_complex_third_kind_is_that_of_arb(name, arguments):
    pytest.importorskip("flint")
    ball = getattr(get_backend("flint", digits=40), name)(*arguments)
    got = getattr(get_backend("mpmath", dps=30), name)(*arguments)
    (want,) = midpoints([ball])
    with mpmath.workdps(40):
        assert abs(got - want) <= 1e-29 * abs(want)


@pytest.mark.parametrize("numbers", [(1, 2, 3, -2), (-1, 2, 3, 1), (-1, 2 + 1j, 3, -2)])
def test_the_reference_takes_the_side_of_a_cut_that_mpmath_takes(numbers):
    with mpmath.workdps(30):
        want = mpmath.elliprj(*numbers)
        want = want.real if numbers[0] > 0 else want  # the principal value
    got = get_backend("mpmath", dps=25).elliprj(*numbers)
    assert abs(got - want) <= 1e-24 * abs(want)


# --- Modular laws ----------------------------------------------------------------------------


@given(reduced_taus(), st.integers(-4, 4), st.integers(-4, 4))
def test_modular_transformations(tau, first, second):
    moved = -1 / (tau + first) + second
    factor = (tau + first) ** 2
    condition = 1 + abs(moved) / moved.imag  # what a relative change of tau causes
    j = NUMPY.klein_j(tau)
    allowed = LAWS * condition * abs(tau) * (abs(j) + 1728)
    assert abs(j - NUMPY.klein_j(moved)) < allowed
    for k in (4, 6, 10):
        form, image = NUMPY.eisenstein(k, tau), NUMPY.eisenstein(k, moved)
        size = abs(factor) ** (k // 2) * (1 + abs(form))
        assert abs(image - form * factor ** (k // 2)) < LAWS * k * condition * size
    ratio = NUMPY.dedekind_eta(moved) / NUMPY.dedekind_eta(tau) / np.sqrt(-1j * (tau + first))
    assert abs(ratio**24 - 1) < 24 * LAWS * condition


@given(reduced_taus())
def test_laws_of_forms_and_lambda(tau):
    e2, e4, e6 = (NUMPY.eisenstein(k, tau) for k in (2, 4, 6))
    delta = NUMPY.dedekind_eta(tau) ** 24
    assert abs(e4**3 - e6**2 - 1728 * delta) < LAWS * (1 + abs(e4) ** 3 + abs(e6) ** 2)
    assert abs(NUMPY.eisenstein(8, tau) - e4**2) < LAWS * (1 + abs(e4) ** 2)
    assert abs(NUMPY.eisenstein(14, tau) - e4**2 * e6) < LAWS * (1 + abs(e4**2 * e6))
    inverted = NUMPY.eisenstein(2, -1 / tau) / tau**2
    assert abs(e2 - inverted - 6j / (np.pi * tau)) < LAWS * (abs(e2) + 2)
    m = NUMPY.modular_lambda(tau)
    assert abs(NUMPY.modular_lambda(-1 / tau) + m - 1) < LAWS * (1 + abs(m))
    if abs(tau.real) < 0.5 and tau.imag < 2:  # further up, 1 - m has no digits of m
        assert abs(1j * NUMPY.ellipk(1 - m) / NUMPY.ellipk(m) - tau) < LAWS * abs(tau)


@given(st.floats(-5, 5), st.floats(0, 2))
def test_inverse_of_j(size, turn):
    j = complex(10.0**size * np.exp(1j * np.pi * turn))
    tau = complex(NUMPY.inverse_klein_j(j))
    assert -0.5 < tau.real <= 0.5 + EPS
    assert abs(tau) >= 1 - 16 * EPS
    e4, e6 = NUMPY.eisenstein(4, tau), NUMPY.eisenstein(6, tau)
    slope = 2 * np.pi * abs(e4**2 * e6 / NUMPY.dedekind_eta(tau) ** 24)
    assert abs(NUMPY.klein_j(tau) - j) < LAWS * (abs(j) + abs(tau) * slope)
    assert abs(NUMPY.klein_j(Lattice.from_j(j).tau) - j) < LAWS * (abs(j) + abs(tau) * slope)


def test_special_values_of_the_inverse():
    assert Lattice.from_j(1728).tau == 1j
    assert complex(NUMPY.inverse_klein_j(-1e5)).real == 0.5
    assert complex(NUMPY.inverse_klein_j(1e5)).real == 0.0
    with pytest.raises(LatticeError, match="finite"):
        Lattice.from_j(float("nan"))


@pytest.mark.parametrize("name", ["numpy", "torch", "mpmath", "flint"])
def test_eisenstein_series_are_the_invariants(name):
    pytest.importorskip(name)
    lattice = Lattice(1.25, 0.25 + 0.875j)
    (g2, g3), eta1 = NUMPY.invariants(lattice), NUMPY.quasi_periods(lattice)[0]
    for k, want in ((4, g2 / 60), (6, g3 / 140), (2, eta1 / 1.25)):
        value = get_backend(name).eisenstein_series(k, lattice)
        assert abs(complex(value.mid() if name == "flint" else value) - want) < 4 * EPS * abs(want)


@pytest.mark.parametrize("k", [0, 3, 34, 4.0, True])
def test_weights_out_of_range(k):
    with pytest.raises(InputError, match="even integer"):
        NUMPY.eisenstein(k, 1j)


# --- What has no value -----------------------------------------------------------------------


def test_poles_are_complex_infinity_and_nan_stays_nan():
    poles = [
        NUMPY.ellipk(1.0),
        NUMPY.ellippi(1.0, 0.5),
        NUMPY.ellippi(0.5, 1.0),
        NUMPY.elliprf(0.0, 0.0, 1.0),
        NUMPY.elliprd(1.0, 2.0, 0.0),
        NUMPY.elliprj(1.0, 2.0, 3.0, 0.0),
        NUMPY.elliprc(1.0, 0.0),
        NUMPY.klein_j(200j),
    ]
    assert all(np.isposinf(value.real) and np.isnan(value.imag) for value in poles)
    assert NUMPY.ellipe(1.0) == 1.0
    for bad in (np.nan, np.inf, -np.inf, complex(0, np.inf)):
        for name, arguments in CALLS.items():
            assert np.isnan(getattr(NUMPY, name)(bad, *arguments[1:])), (name, bad)
    assert np.isnan(NUMPY.klein_j([0.0, 1.0, -1j, 0.25 + 0j])).all()
    # Too far apart for the steps of the duplication: refused, not wrong.
    assert np.isnan(NUMPY.elliprj(1e-30, 1e-30, 1e-30, 1.0))


@pytest.mark.parametrize("is_compiled", [False, True])
def test_real_parameters_up_to_one_have_a_mean_of_their_own(is_compiled):
    """It agrees with mpmath over the whole range, and with the other mean beyond 1."""
    backend = get_backend("numpy", compile=is_compiled)
    edge = 2.0**-53
    m = np.array([0.0, 1e-300, 0.5, 1 - edge, -edge, -1.0, -1e10, -1e308])
    truth = np.array([complex(x) for x in get_backend("mpmath", dps=30).ellipk(m)])
    assert largest_error(backend.ellipk(m), truth) <= K_CEILING
    single = backend.ellipk(m[:-1].astype(np.float32))
    assert single.dtype == np.complex64
    assert np.isfinite(single[[0, 1, 2, 4, 5, 6]]).all()
    assert np.isposinf(backend.ellipk(np.array([1.0, 0.5]))[0].real)
    assert np.isnan(backend.ellipk(np.array([np.nan, -np.inf]))).all()
    beyond = backend.ellipk(np.array([0.5, 2.0]))
    assert largest_error(beyond, NUMPY.ellipk(np.array([0.5, 2.0 + 0j]))) <= LAWS
    assert backend.ellipk(np.zeros((2, 3))[:, ::2]).shape == (2, 2)


def test_precision_and_shape_follow_the_arguments():
    assert NUMPY.ellipk(np.float32(0.5)).dtype == np.complex64
    assert NUMPY.elliprf(np.float32(1), np.float32(2), 3.0).dtype == np.complex128
    assert NUMPY.ellipkinc(np.ones((3, 1)), np.zeros(4)).shape == (3, 4)


def test_a_backend_need_not_offer_them():
    class Bare(type(NUMPY)):  # type: ignore[misc]
        name = "bare"
        ellipk = AbstractBackend.ellipk

    with pytest.raises(UnsupportedFunctionError, match="backend 'bare' does not offer ellipk"):
        Bare().ellipk(0.5)


# --- Gradients -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [n for n in CALLS if n not in ("ellippiinc", "elliprj", "elliprc")]
)
def test_gradients_are_derivatives(name):
    torch = pytest.importorskip("torch")
    truth, arguments = get_backend("mpmath", dps=30), CALLS[name]
    leaves = [torch.tensor(x, dtype=torch.complex128, requires_grad=True) for x in arguments]
    value = getattr(get_backend("torch"), name)(*leaves)
    for place, gradient in enumerate(torch.autograd.grad(value.real, leaves)):
        x = arguments[place]
        step = 2.0**-30
        above, below = (
            getattr(truth, name)(*arguments[:place], x + sign * step, *arguments[place + 1 :])
            for sign in (1, -1)
        )
        want = complex(above - below) / (2 * step)
        # The error of the difference is the third derivative times 2^-60.
        scale = abs(want) + abs(complex(value.detach())) / abs(x)
        assert abs(complex(gradient.conj()) - want) < LAWS * scale, place


def test_real_gradients_are_finite_where_the_function_is_smooth():
    torch = pytest.importorskip("torch")
    backend = get_backend("torch")
    m = torch.tensor([0.0, 0.5, -3.0], dtype=torch.float64, requires_grad=True)
    phi = torch.tensor([0.0, 1.5, 5.0], dtype=torch.float64, requires_grad=True)
    for name, arguments in (
        ("ellipk", (m,)),
        ("ellipe", (m,)),
        ("ellippi", (m, m)),
        ("ellipkinc", (phi, m)),
        ("ellipeinc", (phi, m)),
        ("ellippiinc", (m, phi, m)),
    ):
        value = getattr(backend, name)(*arguments).real.sum()
        for gradient in torch.autograd.grad(value, set(arguments)):
            assert torch.isfinite(gradient).all(), name
    (slope,) = torch.autograd.grad(backend.ellipk(m).real.sum(), m)
    assert abs(float(slope[0]) - np.pi / 8) < LAWS


# --- The elliptic logarithm ------------------------------------------------------------------


@pytest.mark.parametrize("name", ["numpy", "torch", "mpmath", "flint"])
def test_the_point_with_that_derivative(name):
    pytest.importorskip(name)
    lattice = Lattice(1.0, 0.25 + 0.875j)
    z = np.array([0.25 + 0.25j, -0.25 - 0.25j, 0.125 - 0.625j, -0.375 + 0.25j])
    p, dp = NUMPY.wp_and_prime(z, lattice)
    found = get_backend(name).inverse_wp(p, lattice, wp_prime=dp)
    numbers = np.array([complex(x.mid() if name == "flint" else x) for x in found])
    # These z are next to 0 already, so they are the points themselves.
    assert largest_error(numbers, z) < LAWS


def test_logarithm_of_a_curve():
    y = np.array([24**0.5, -(24**0.5)])
    z = NUMPY.abel_jacobi(2.0, y, 4.0, 0.0)
    assert largest_error(NUMPY.wp_prime(z, Lattice.from_invariants(4.0, 0.0)), y) < LAWS
    assert NUMPY.abel_jacobi(np.inf, np.inf, 4.0, 0.0) == 0
    assert np.isnan(NUMPY.abel_jacobi(2.0, np.nan, 4.0, 0.0))


@pytest.mark.parametrize("lattice", [Lattice(1.0, 1.25j), Lattice.from_invariants(4, -3)])
def test_smallest_real_solution(lattice):
    omega = complex(lattice.omega1).real
    z = np.array([0.125, 0.5, 0.75, 0.875]) * omega
    w = NUMPY.wp(z, lattice).real
    found = NUMPY.inverse_wp_real(w, lattice)
    assert (found.imag == 0).all()
    assert largest_error(found, z) < LAWS
    truth = get_backend("mpmath", dps=20).inverse_wp_real(w, lattice)
    assert largest_error(found, np.array([complex(x) for x in truth])) < LAWS
    below = NUMPY.wp(omega, lattice).real - 0.5
    assert np.isnan(NUMPY.inverse_wp_real([below, 1j, np.nan], lattice)).all()
    assert NUMPY.inverse_wp_real(np.inf, lattice) == 0


def test_a_lattice_that_is_not_real_is_refused():
    with pytest.raises(LatticeError, match="complex conjugate"):
        NUMPY.inverse_wp_real(3.0, Lattice(1.0, 0.25 + 0.875j))


# --- Degenerate lattices ---------------------------------------------------------------------

TRIGONOMETRIC: Any = Lattice.degenerate(12, 8)
LIMITS: list[Any] = [
    TRIGONOMETRIC,
    Lattice.degenerate(12, -8),
    Lattice.degenerate(0, 0),
    DegenerateLattice(0.25 + 2j),
]


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("name", ["numpy", "torch"])
def test_limits_against_mpmath(limit, name, rng):
    pytest.importorskip(name)
    backend, truth = get_backend(name), get_backend("mpmath", dps=20)
    z = np.concatenate([rng.normal(size=20) + 1j * rng.normal(size=20), [1e-9, 3 + 8j, -30.0]])
    found = (*backend.wp_and_prime(z, limit), backend.zeta(z, limit), backend.sigma(z, limit))
    exact = (*truth.wp_and_prime(z, limit), truth.zeta(z, limit), truth.sigma(z, limit))
    want = [np.array([complex(x) for x in values]) for values in exact]
    slopes = (want[1], 6 * want[0] ** 2 - limit.invariants[0] / 2, -want[0], want[3] * want[2])
    size = abs(limit.kappa)
    floors = (size**2, size**3, size, 0.0)
    for got, value, slope, floor in zip(found, want, slopes, floors, strict=True):
        usable = (np.abs(value) < 1e300) & (np.abs(value) > 1e-300)
        scale = (np.abs(value) + np.abs(z * slope) + floor)[usable]
        assert np.max(np.abs(np.asarray(got) - value)[usable] / scale) < 6 * EPS
    assert np.isposinf(complex(backend.wp(0.0, limit)).real)
    assert complex(backend.sigma(0.0, limit)) == 0


@pytest.mark.parametrize("limit", [limit for limit in LIMITS if limit.omega1 is not None])
def test_limits_are_limits(limit):
    far = Lattice(limit.omega1, limit.omega1 * 12j)  # its other period is far away
    z = np.array([0.25 + 0.125j, 0.5 - 0.25j])
    assert largest_error(NUMPY.wp(z, limit), NUMPY.wp(z, far)) < LAWS
    assert largest_error(NUMPY.sigma(z, limit), NUMPY.sigma(z, far)) < LAWS
    for got, want in zip(NUMPY.invariants(limit), NUMPY.invariants(far), strict=True):
        assert abs(got - want) < LAWS * abs(want)


def test_invariants_of_limits():
    assert TRIGONOMETRIC.roots == (2, -1, -1)
    assert Lattice.degenerate(0, 0).omega1 is None
    assert get_backend("mpmath").invariants(LIMITS[1]) == (12, -8)
    with pytest.raises(LatticeError, match="not zero"):
        Lattice.degenerate(12, 7)
    with pytest.raises(LatticeError, match="range of doubles"):
        Lattice.degenerate(float("nan"), 0)


@pytest.mark.parametrize("name", ["numpy", "torch", "mpmath", "flint"])
def test_what_has_no_limit_says_so(name):
    pytest.importorskip(name)
    backend = get_backend(name)
    for call in (
        lambda: backend.green(1.0, TRIGONOMETRIC),
        lambda: backend.inverse_wp(1.0, TRIGONOMETRIC),
        lambda: backend.quasi_periods(TRIGONOMETRIC),
        lambda: backend.eisenstein_series(4, TRIGONOMETRIC),
        lambda: backend.lattice_sum(1.0, TRIGONOMETRIC, 2, 2),
    ):
        with pytest.raises(DegenerateLatticeError, match="kappa_squared"):
            call()


@pytest.mark.parametrize("distance", [1e-15, 1e-12, 1e-8, 1e-4, 0.1, 0.2499, 0.2501, 0.5])
@pytest.mark.parametrize("direction", [-1, 1, 1j, 0.6 - 0.8j])
def test_ellipe_and_its_slope_next_to_one(distance, direction):
    """E' = (E - K)/(2m); where E is a sum of two terms, their slopes cancel at 1."""
    torch = pytest.importorskip("torch")
    ceiling = (
        load_contracts()["accuracy_of_tensor_lattices"]["ellipe by m"]["complex128"]["largest"]
        * EPS
    )
    m = torch.tensor([1 + distance * direction], dtype=torch.complex128, requires_grad=True)
    value = get_backend("torch").ellipe(m)
    (slope,) = torch.autograd.grad(value.real.sum(), m)
    with mpmath.workdps(40):
        exact = mpmath.mpmathify(complex(m.detach()[0]))
        e, k = mpmath.ellipe(exact), mpmath.ellipk(exact)
        want = (e - k) / (2 * exact)
        assert abs(mpmath.mpmathify(complex(value.detach()[0])) - e) <= 6 * EPS * (
            abs(e) + abs(want)
        )
        second = mpmath.diff(lambda t: (mpmath.ellipe(t) - mpmath.ellipk(t)) / (2 * t), exact)
        scale = abs(want) + abs(exact * second)
        assert abs(mpmath.mpmathify(complex(slope[0]).conjugate()) - want) <= ceiling * scale
