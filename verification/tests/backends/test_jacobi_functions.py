"""Theta functions, Jacobi's functions and sigma1 to sigma3 in every backend: laws and edges."""

from __future__ import annotations

import cmath
import math
from typing import Any

import mpmath
import numpy as np
import pytest
import scipy.special
import torch
from hypothesis import assume, given, settings, strategies

from verification import oracle_jacobi
from verification.judge import load_contracts
from wefpe_core import InputError, Lattice, UnsupportedFunctionError, get_backend
from wefpe_core.accuracy import in_eps
from wefpe_core.jacobi_functions import JACOBI_KINDS, MAX_DERIVATIVE, JacobiFunctions

NUMPY = get_backend("numpy")
TORCH = get_backend("torch")
BY_M = load_contracts()["accuracy_of_tensor_lattices"]["cn by m"]["complex128"]["largest"]
TRUTH = get_backend("mpmath", dps=25)
FLINT = get_backend("flint", digits=25)
LAWS = load_contracts()["laws"]["residual"]["complex128"]["largest"]
VALUES = load_contracts()["accuracy"]["sn"]["complex128"]["largest"]

small = strategies.floats(-3, 3, allow_subnormal=False)
points = strategies.builds(complex, small, small)
parameters = strategies.builds(complex, small, small)
ratios = strategies.builds(
    complex, strategies.floats(-2, 2, allow_subnormal=False), strategies.floats(0.05, 2)
)


few_examples = settings(max_examples=10, deadline=None)


def holds(*terms: complex) -> bool:
    """Whether the terms add up to 0, up to the error that laws may have."""
    size = sum(map(abs, terms))
    return abs(sum(terms)) <= LAWS * 2.0**-52 * (size + 1e-200)


def as_array(backend, values):
    array = np.array(values)
    return torch.from_numpy(array) if backend is TORCH else array


# --- Laws -----------------------------------------------------------------------------------------


@few_examples
@given(points, parameters)
def test_squares_add_up_to_one(u, m):
    sn, cn, dn, _ = map(complex, NUMPY.ellipj(u, m))
    assert holds(sn**2, cn**2, -1)
    assert holds(dn**2, m * sn**2, -1)


@few_examples
@given(points, parameters)
def test_amplitude_has_the_sine_and_the_cosine(u, m):
    sn, cn, _, am = map(complex, NUMPY.ellipj(u, m))
    condition = 1 + abs(am)  # an error of am of one eps of its size
    assert abs(cmath.sin(am) - sn) <= LAWS * 2.0**-52 * condition * (1 + abs(sn))
    assert abs(cmath.cos(am) - cn) <= LAWS * 2.0**-52 * condition * (1 + abs(cn))


@few_examples
@given(points, points, parameters)
def test_addition(u, v, m):
    s1, c1, d1, _ = map(complex, NUMPY.ellipj(u, m))
    s2, c2, d2, _ = map(complex, NUMPY.ellipj(v, m))
    total = complex(TRUTH.jacobi("sn", mpmath.mpc(u) + mpmath.mpc(v), m))
    denominator = 1 - m * s1**2 * s2**2
    size = 1 + abs(m * s1**2 * s2**2)
    assume(abs(denominator) > 1e-3 * size)
    left, right = total * denominator, s1 * c2 * d2 + s2 * c1 * d1
    scale = (abs(s1 * c2 * d2) + abs(s2 * c1 * d1) + abs(total) * size) * (
        1 + (abs(u) + abs(v)) * sum(map(abs, (s1, s2, c1, c2, d1, d2, m)))
    )
    assert abs(left - right) <= LAWS * 2.0**-52 * scale


@few_examples
@given(points, ratios)
def test_quasi_periods_of_theta(z, tau):
    factor = cmath.exp(-1j * math.pi * tau - 2j * z)
    signs = {1: (-1, -1), 2: (-1, 1), 3: (1, 1), 4: (1, -1)}
    for n, (along_pi, along_tau) in signs.items():
        value = complex(TRUTH.jtheta(n, z, tau))
        with mpmath.workdps(30):
            moved = complex(TRUTH.jtheta(n, mpmath.mpc(z) + mpmath.pi, tau))
            up = complex(TRUTH.jtheta(n, mpmath.mpc(z) + mpmath.pi * mpmath.mpc(tau), tau))
        assert moved == pytest.approx(along_pi * value, rel=1e-12)
        assert up == pytest.approx(along_tau * factor * value, rel=1e-9)


@few_examples
@given(ratios)
def test_jacobis_identity(tau):
    t2, t3, t4 = (complex(NUMPY.jtheta(n, 0.0, tau)) for n in (2, 3, 4))
    # The derivatives in tau count, where the functions change fast.
    assert abs(t3**4 - t2**4 - t4**4) <= LAWS * 2.0**-52 * (1 + 1 / tau.imag) * sum(
        abs(t) ** 4 for t in (t2, t3, t4)
    )


@few_examples
@given(points, ratios)
def test_modular_transformation(z, tau):
    """DLMF 20.7.30 to 20.7.33 and 20.7.26 to 20.7.29 with Arb's and our own values."""
    for n in (1, 2, 3, 4):
        ours, arb = NUMPY.jtheta(n, z, tau), complex(FLINT.jtheta(n, z, tau).mid())
        slopes = [complex(FLINT.jtheta(n, z, tau, k).mid()) for k in (1, 2)]
        scale = abs(arb) + abs(z * slopes[0]) + math.pi / 4 * abs(tau * slopes[1])
        assume(1e-280 < scale < 1e300)
        assert in_eps(abs(ours - arb) / scale, "complex128") <= VALUES


@few_examples
@given(points, ratios, strategies.integers(1, 4))
def test_heat_equation_in_torch(z, tau, n):
    """The gradient in tau is the second derivative in z: theta_zz = -(4i/pi) theta_tau."""
    x = torch.tensor(tau, dtype=torch.complex128, requires_grad=True)
    point = torch.tensor(z, dtype=torch.complex128)
    value = TORCH.jtheta(n, point, x)
    assume(bool(torch.isfinite(value.real)) and abs(value.item()) > 1e-280)
    (gradient,) = torch.autograd.grad(value.real, x)
    bend = complex(NUMPY.jtheta(n, z, tau, 2))
    slope = gradient.conj().item()
    scale = abs(bend) + sum(
        abs(complex(FLINT.jtheta(n, z, tau, k).mid())) * (1 + abs(z)) ** (4 - k)
        for k in (1, 2, 3, 4)
    )
    assert abs(1j * math.pi / 4 * -bend - slope) <= 1e-12 * scale / tau.imag**2


@few_examples
@given(points, parameters)
def test_gradients_of_ellipj(u, m):
    """sn' = cn dn and so on, by autograd."""
    x = torch.tensor(u, dtype=torch.complex128, requires_grad=True)
    parameter = torch.tensor(m, dtype=torch.complex128)
    sn, cn, dn, _ = (value.item() for value in TORCH.ellipj(x, parameter))
    for k, slope in enumerate((cn * dn, -sn * dn, -m * sn * cn, dn)):
        (gradient,) = torch.autograd.grad(TORCH.ellipj(x, parameter)[k].real, x)
        size = (1 + abs(m)) * (1 + abs(sn)) * (1 + abs(cn)) * (1 + abs(dn)) * (1 + abs(u))
        assert abs(gradient.conj().item() - slope) <= LAWS * 2.0**-52 * size * 4


@pytest.mark.parametrize("m", [1e-12, 0.4, 1 - 1e-12, -3.0, 0.3 + 1j])
@pytest.mark.parametrize("u", [1e-9, 0.9 + 0.2j])
def test_gradients_in_m_agree_with_differences(u, m):
    h = min(abs(m), abs(1 - m)) * mpmath.mpf("1e-12")
    parameter = torch.tensor(m, dtype=torch.complex128, requires_grad=True)
    point = torch.tensor(u, dtype=torch.complex128)
    for k in range(4):
        (gradient,) = torch.autograd.grad(TORCH.ellipj(point, parameter)[k].real, parameter)
        with mpmath.workdps(40):
            truth = get_backend("mpmath", dps=40)
            up, down = (truth.ellipj(u, mpmath.mpmathify(m) + d)[k] for d in (h, -h))
            want = complex((up - down) / (2 * h))
        value = complex(TRUTH.ellipj(u, m)[k])
        # An error of eps of the value itself is not excluded, though next to 0 it is much larger
        # than the derivative in m, which begins with u^3.
        assert abs(gradient.conj().item() - want) <= LAWS * 2.0**-52 * (abs(want) + abs(value))


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e300, 0.0, 1e-80])
def test_one_bad_point_leaves_the_gradients_of_others(bad):
    m = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    tau = torch.tensor(0.3 + 0.9j, dtype=torch.complex128, requires_grad=True)
    u = torch.tensor([0.3 + 0.2j, bad], dtype=torch.complex128, requires_grad=True)
    for value, parameter in (
        (TORCH.ellipj(u, m)[0], m),
        (TORCH.ellipj(u, m)[3], m),
        (TORCH.jacobi("cs", u, m), m),
        (TORCH.jtheta(1, u, tau, 1), tau),
        (TORCH.log_jtheta(1, u, tau), tau),
    ):
        for gradient in torch.autograd.grad(value[0].real, (u, parameter)):
            assert torch.isfinite(torch.view_as_real(gradient + 0j)).all()


@few_examples
@given(points, strategies.sampled_from([0.3 + 0.9j, 1j, -0.4 + 0.2j]), strategies.integers(1, 3))
def test_sigma_k_is_within_its_contracts(z, omega3, k):
    """The reference is the definition, by sigma at z + omega_k."""
    lattice = Lattice(1.0, omega3)
    tensors = Lattice(*(torch.tensor(w + 0j, dtype=torch.complex128) for w in (1.0, omega3)))
    point = torch.tensor(z, dtype=torch.complex128)
    reference = oracle_jacobi.sigmas(z, lattice)[k - 1]
    for got, contract in (
        (NUMPY.sigma_k(k, z, lattice).item(), "accuracy"),
        (TORCH.sigma_k(k, point, tensors).item(), "accuracy_of_tensor_lattices"),
    ):
        ceiling = load_contracts()[contract][f"sigma{k}"]["complex128"]["largest"]
        assert in_eps(reference.error_of(got), "complex128") <= ceiling


@pytest.mark.parametrize("k", [1, 2, 3])
def test_sigma_k_belongs_to_a_root(k):
    lattice, z = Lattice(1.0, -0.4 + 0.2j), 0.3 + 0.2j
    ratio = complex(TRUTH.sigma_k(k, z, lattice) / TRUTH.sigma(z, lattice))
    wp, root = complex(TRUTH.wp(z, lattice)), complex(TRUTH.roots(lattice)[k - 1])
    assert holds(ratio**2, -wp, root)


# --- Backends among each other --------------------------------------------------------------------


@pytest.mark.parametrize("m", [0.0, 0.3, 0.5, 0.8, 1.0])
@pytest.mark.parametrize(
    "backend",
    [
        NUMPY,
        TORCH,
        pytest.param(get_backend("numpy", compile=True), marks=pytest.mark.slow),
    ],
)
def test_real_values_are_real_and_those_of_scipy(backend, m):
    u = np.linspace(-5, 5, 101)
    given_u = as_array(backend, u)
    for value, want in zip(backend.ellipj(given_u, m), scipy.special.ellipj(u, m), strict=True):
        value = np.asarray(value)
        assert value.dtype == np.complex128
        assert (value.imag == 0).all()
        assert np.abs(value.real - want).max() < 1e-13  # SciPy's own error


@pytest.mark.parametrize("m", [0.0, 1.0, 0.3, -2.0, 3.0, 0.3 + 0.8j, 1e9])
def test_backends_agree_on_all_twelve(m):
    u = 0.4 + 0.3j if abs(m) < 1e6 else (0.4 + 0.3j) * 1e-5
    point, parameter = (torch.tensor(x, dtype=torch.complex128) for x in (u, m))
    for kind in JACOBI_KINDS:
        want = complex(FLINT.jacobi(kind, u, m).mid())
        for got in (
            NUMPY.jacobi(kind, u, m),
            NUMPY.jacobi(kind, np.array([u]), np.array([m]))[0],
            TORCH.jacobi(kind, point, m).item(),
            TORCH.jacobi(kind, point, parameter).item(),
            complex(TRUTH.jacobi(kind, u, m)),
        ):
            assert abs(complex(got) - want) <= 2 * VALUES * 2.0**-52 * abs(want)


@pytest.mark.parametrize("nome", [0.3, -0.3, 0.2 + 0.4j, 1e-300, 0.0, 0.97j])
@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_nome_either_way(n, nome):
    z = 0.4 + 0.1j
    want = complex(TRUTH.jtheta(n, z, nome=nome))
    values = (NUMPY.jtheta(n, z, nome=nome), NUMPY.jtheta(n, [z], nome=np.array([nome]))[0])
    slope, bend = (complex(TRUTH.jtheta(n, z, nome=nome, derivative=k)) for k in (1, 2))
    scale = abs(want) + abs(z * slope) + abs(bend) / 4
    for value in values:
        assert abs(value - want) <= VALUES * 2.0**-52 * scale
    if nome:
        tau = cmath.log(nome) / (1j * math.pi)
        assert NUMPY.jtheta(n, z, tau) == pytest.approx(want, rel=1e-10)


def test_logarithm_where_the_value_overflows():
    z, tau = 400j, 0.1 + 1j
    assert np.isinf(NUMPY.jtheta(3, z, tau).real)
    want = complex(TRUTH.log_jtheta(3, z, tau))
    for got in (NUMPY.log_jtheta(3, z, tau), NUMPY.log_jtheta(3, np.array(z), np.array(tau))):
        assert got == pytest.approx(want, rel=1e-12)
    assert NUMPY.log_jtheta(1, 0.0, tau) == complex("-inf")


def test_broadcasting_and_precision():
    u, m = np.zeros((3, 1), np.complex64), np.zeros(2, np.float32)
    assert NUMPY.ellipj(u, m)[0].shape == (3, 2)
    assert NUMPY.ellipj(u, m)[3].dtype == np.complex64
    assert NUMPY.ellipj(u, 0.3)[0].dtype == np.complex64
    assert TORCH.jtheta(1, torch.zeros(4), 1j).dtype == torch.complex64
    assert NUMPY.ellipj(0.3, 0.5)[0].shape == ()


# --- Edges ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", [NUMPY, TORCH, TRUTH, FLINT], ids=lambda b: b.name)
def test_bad_input_is_named(backend):
    for bad in (0, 5, 1.0, True, "1"):
        with pytest.raises(InputError, match="n must be an integer from 1 to 4"):
            backend.jtheta(bad, 0.3, 1j)
        with pytest.raises(InputError, match="k must be an integer from 1 to 3"):
            backend.sigma_k(bad if bad != 1.0 else 0, 0.3, Lattice(1.0, 1.0j))
    with pytest.raises(InputError, match="derivative must be an integer from 0 to 4"):
        backend.jtheta(1, 0.3, 1j, MAX_DERIVATIVE + 1)
    for tau in (1.0, 0.3 - 1j, complex("nan"), complex("inf+1j")):
        with pytest.raises(InputError, match="tau must be finite"):
            backend.jtheta(1, 0.3, tau)
    for nome in (1.0, -1.0, 2j, math.nan):
        with pytest.raises(InputError, match="nome must be less than 1"):
            backend.jtheta(1, 0.3, nome=nome)
    for given_both in ({}, {"tau": 1j, "nome": 0.1}):
        with pytest.raises(InputError, match="either tau or nome"):
            backend.log_jtheta(1, 0.3, **given_both)
    with pytest.raises(InputError, match="no Jacobi function 'ss'"):
        backend.jacobi("ss", 0.3, 0.5)


@pytest.mark.parametrize("backend", [NUMPY, TORCH], ids=lambda b: b.name)
def test_special_values(backend):
    u = as_array(backend, [0.0, math.nan, math.inf, 0.3])
    for m in (0.3, as_array(backend, [0.3] * 4)):
        ns = np.asarray(backend.jacobi("ns", u, m))
        assert np.isinf(ns[0].real)
        assert np.isnan(ns[0].imag)
        assert np.isnan(ns[1:3]).all()
        assert ns[3] == pytest.approx(complex(TRUTH.jacobi("ns", 0.3, 0.3)), rel=1e-14)
        sn, cn, dn, am = (np.asarray(value)[0] for value in backend.ellipj(u, m))
        assert (sn, am) == (0, 0)
        assert (cn, dn) == pytest.approx((1, 1), rel=1e-15)
    nan_m = np.asarray(backend.jacobi("sn", as_array(backend, 0.3), math.nan))
    assert np.isnan(nan_m)
    taus = as_array(backend, [1j, 1.0 + 0j, -1j, complex("nan")])
    theta = np.asarray(backend.jtheta(3, as_array(backend, 0.3), taus))
    assert np.isfinite(theta[0])
    assert np.isnan(theta[1:]).all()


def test_limits_are_exact_far_out():
    """tanh and sech have no period along the real axis, however large u."""
    sn, cn, _, am = NUMPY.ellipj(np.array([600.0, -600.0]), 1.0)
    assert sn.tolist() == [1, -1]
    assert cn[0].real == pytest.approx(2 * math.exp(-600), rel=1e-13)
    assert am.real == pytest.approx([math.pi / 2, -math.pi / 2], rel=1e-15)


@pytest.mark.parametrize("u", [0.5, 20.0, 60.0, 200.0 + 0.5j, 320.0])
def test_gradients_in_m_at_one_are_right_far_out(u: complex) -> None:
    """d cn/dm = (sinh cosh - u) sinh/(4 cosh^2) and that of dn -(sinh cosh + u) sinh/(4 cosh^2)."""
    m = torch.ones(1, dtype=torch.complex128, requires_grad=True)
    _, cn, dn, _ = TORCH.ellipj(torch.tensor([u], dtype=torch.complex128), m)
    with mpmath.workdps(40):
        x = mpmath.mpmathify(u)
        sinh, cosh = mpmath.sinh(x), mpmath.cosh(x)
        wants = [(s * sinh * cosh - x) * sinh / (4 * cosh**2) for s in (1, -1)]
        scale = abs(x * mpmath.cosh(x))  # the derivative of both in u, nearly
        for value, want in zip((cn, dn), wants, strict=True):
            (slope,) = torch.autograd.grad(value.real.sum(), m, retain_graph=True)
            error = abs(mpmath.mpmathify(complex(slope[0]).conjugate()) - want)
            assert in_eps(float(error / (abs(want) + scale)), "complex128") <= BY_M


def test_quotients_of_functions_that_underflow():
    """At m = 1 cn and dn are both sech, so cd is 1 where they are too small for a double, too."""
    u = np.array([-1570.75 + 1.5j, 800.0])
    for m in (1.0, np.ones(2)):
        for kind in ("cd", "dc"):
            assert np.abs(NUMPY.jacobi(kind, u, m) - 1).max() <= VALUES * 2.0**-52
        assert NUMPY.jacobi("cn", u, m).tolist() == [0, 0]
    parameter = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
    for kind in ("cd", "cn", "nc"):
        value = TORCH.jacobi(kind, torch.tensor([0.25, 800.0], dtype=torch.float64), parameter)
        (gradient,) = torch.autograd.grad(value[0].real, parameter)
        assert torch.isfinite(gradient)


def test_values_on_the_cut_of_k_do_not_depend_on_the_side():
    for m in (2.0, -1.5):
        sides = [complex(NUMPY.jacobi("sn", 0.3 + 0.2j, complex(m, y))) for y in (0.0, -0.0)]
        assert sides[0] == sides[1]
        assert sides[0] == pytest.approx(complex(TRUTH.jacobi("sn", 0.3 + 0.2j, m)), rel=1e-14)


def test_a_backend_need_not_offer_them():
    class Bare(JacobiFunctions[Any]):
        name = "bare"

    backend = Bare()
    for call in (
        lambda: backend.jtheta(1, 0.3, 1j),
        lambda: backend.log_jtheta(1, 0.3, 1j),
        lambda: backend.ellipj(0.3, 0.5),
        lambda: backend.jacobi("sn", 0.3, 0.5),
        lambda: backend.jacobi_am(0.3, 0.5),
        lambda: backend.sigma_k(1, 0.3, Lattice(1.0, 1.0j)),
    ):
        with pytest.raises(UnsupportedFunctionError, match="backend 'bare' does not offer"):
            call()


def test_balls_about_zero_are_not_taken_for_zero():
    """A ball that contains 0 is not known to be 0: it needs more digits."""
    assert complex(FLINT.jtheta(1, 1e-144, 0.5j).mid()) == pytest.approx(
        complex(TRUTH.jtheta(1, 1e-144, 0.5j)), rel=1e-15
    )
