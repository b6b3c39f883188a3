"""Derivatives of wp, log sigma, Haldane's zeta and sigma, Laurent coefficients, in every backend.

Their accuracy has rows in the report; here are the laws they keep, their values at the ends of
their domain, and what is refused.
"""

import math
from typing import Any

import mpmath
import numpy as np
import pytest
from mpmath import mp

from verification.judge import load_contracts
from wefpe_core import (
    AbstractBackend,
    InputError,
    Lattice,
    UnsupportedFunctionError,
    available_backends,
    get_backend,
)
from wefpe_core.backend import LARGEST_ORDER

NUMPY, EXACT = get_backend("numpy"), get_backend("mpmath", dps=40)
LATTICES = {
    "square": Lattice(1, 1j),
    "rhombic": Lattice(1, 0.5 + 1.1j),
    "rotated": Lattice(0.6 - 0.8j, 1.1 + 1.2j),
    "tall": Lattice(0.5, 6j),
    "unreduced": Lattice(3 + 7.5j, 1 + 3j),
}
every_lattice = pytest.mark.parametrize("lattice", LATTICES.values(), ids=LATTICES)
every_backend = pytest.mark.parametrize("name", ["numpy", "torch", "flint", "mpmath"])
POINTS = [0.3 + 0.2j, -0.4 + 0.7j, 1.7 - 2.6j]
FUNCTIONS = ("log_sigma", "modified_zeta", "modified_sigma")
RESIDUAL = load_contracts()["laws"]["residual"]["complex128"]["largest"] * 2**-52


def backend_named(name: str) -> AbstractBackend[Any]:
    if name not in available_backends():
        pytest.skip(f"the extra of {name} is not installed")
    return get_backend(name)


def as_complex(value: Any) -> complex:
    return complex(value.mid() if hasattr(value, "mid") else value)


@every_lattice
def test_derivatives_are_those_of_the_one_before(lattice: Lattice) -> None:
    """By central differences in forty digits, for the truth; the others are measured against it."""
    z, step = mp.mpc(0.3, 0.2), mp.ldexp(1, -40)
    for n in range(1, 9):
        with mpmath.workdps(40):
            above, below = (EXACT.wp_derivative(z + s * step, lattice, n - 1) for s in (1, -1))
            want = EXACT.wp_derivative(z, lattice, n)
            third = EXACT.wp_derivative(z, lattice, n + 2)
            error = abs((above - below) / (2 * step) - want)
            assert error <= abs(third) * step**2 + abs(above) / step * mp.mpf(10) ** -38


@every_lattice
def test_the_first_derivatives_are_wp_and_its_derivative(lattice: Lattice) -> None:
    z = np.array(POINTS)
    for n, want in enumerate(NUMPY.wp_and_prime(z, lattice)):
        assert np.all(abs(NUMPY.wp_derivative(z, lattice, n) - want) <= 8 * 2**-52 * abs(want))


@every_lattice
def test_haldane_s_functions_have_their_periods(lattice: Lattice) -> None:
    """The quasi-periods of the modified sigma are written down with A and L alone."""
    with mpmath.workdps(40):
        w1, w3 = (mp.mpc(w) for w in (lattice.omega1, lattice.omega3))
        area = 4 * mpmath.im(mpmath.conj(w1) * w3)
        for m, n in ((1, 0), (0, 1), (1, 1), (2, 0), (-1, 2)):
            period = 2 * (m * w1 + n * w3)
            for z in map(mp.mpc, POINTS):
                moved, here = (EXACT.modified_zeta(x, lattice) for x in (z + period, z))
                assert abs(moved - here) <= abs(here) * mp.mpf(10) ** -35
                moved, here = (EXACT.modified_sigma(x, lattice) for x in (z + period, z))
                sign = -1 if m % 2 or n % 2 else 1
                factor = sign * mpmath.exp(mp.pi * mpmath.conj(period) * (z + period / 2) / area)
                assert abs(moved - factor * here) <= abs(moved) * mp.mpf(10) ** -30


@every_lattice
def test_the_modified_sigma_is_the_green_function(lattice: Lattice) -> None:
    z = np.array(POINTS)
    area = 4 * (lattice.omega1.conjugate() * lattice.omega3).imag
    got = np.log(abs(NUMPY.modified_sigma(z, lattice)))
    want = math.pi * abs(z) ** 2 / (2 * area) - NUMPY.green(z, lattice)
    assert np.all(abs(got - want) <= RESIDUAL * (1 + abs(want)))


@every_lattice
def test_log_sigma_is_a_logarithm_of_sigma_and_goes_further(lattice: Lattice) -> None:
    z = np.array(POINTS)
    sigma, logarithm = NUMPY.sigma(z, lattice), NUMPY.log_sigma(z, lattice)
    scale = 1 + abs(z * NUMPY.zeta(z, lattice))
    assert np.all(abs(np.exp(logarithm) - sigma) <= RESIDUAL * abs(sigma) * scale)
    assert np.all((-math.pi < logarithm.imag) & (logarithm.imag <= math.pi))
    far = 1000.25 * complex(lattice.omega1)
    assert not np.isfinite(NUMPY.sigma(far, lattice))
    want = complex(EXACT.log_sigma(far, lattice))
    assert abs(NUMPY.log_sigma(far, lattice).real - want.real) <= 16 * 2**-52 * abs(want)


def test_log_sigma_is_real_for_positive_and_pi_i_more_for_negative_numbers() -> None:
    for x in (0.3, 0.9, 1.7):
        plus, minus = (NUMPY.log_sigma(s * x, Lattice(1, 1j)) for s in (1, -1))
        assert plus.imag == 0
        assert minus == plus + 1j * math.pi


@every_backend
@every_lattice
def test_laurent_coefficients_sum_to_wp(name: str, lattice: Lattice) -> None:
    backend = backend_named(name)
    coefficients = [as_complex(c) for c in backend.laurent_coefficients(lattice, 30)]
    assert len(coefficients) == 30
    z = 0.2 * complex(lattice.reduced()[0].omega1)
    total = z**-2 + sum(c * z ** (2 * k) for k, c in enumerate(coefficients, 1))
    assert abs(total - complex(EXACT.wp(z, lattice))) <= RESIDUAL * abs(total)


@every_backend
def test_poles_zeros_and_nan(name: str) -> None:
    backend, lattice = backend_named(name), Lattice(1, 1j)
    for z in (0.0, 2 + 2j):
        assert as_complex(backend.log_sigma(z, lattice)).real == -math.inf
        assert as_complex(backend.modified_sigma(z, lattice)) == 0
        for pole in (backend.modified_zeta(z, lattice), backend.wp_derivative(z, lattice, 2)):
            assert as_complex(pole).real == math.inf
            assert math.isnan(as_complex(pole).imag)
    for bad in (math.nan, math.inf):
        for function in FUNCTIONS:
            assert math.isnan(as_complex(getattr(backend, function)(bad, lattice)).real)
        assert math.isnan(as_complex(backend.wp_derivative(bad, lattice, 3)).real)


@every_backend
@pytest.mark.parametrize("n", [-1, LARGEST_ORDER + 1, 1.5, True, "2"])
def test_an_order_that_there_is_not_is_refused(name: str, n: Any) -> None:
    with pytest.raises(InputError, match="integer from 0 to 20"):
        backend_named(name).wp_derivative(0.3, Lattice(1, 1j), n)


@every_backend
@pytest.mark.parametrize("count", [0, -1, 2.0, True])
def test_a_count_that_is_none_is_refused(name: str, count: Any) -> None:
    with pytest.raises(InputError, match="count must be a positive integer"):
        backend_named(name).laurent_coefficients(Lattice(1, 1j), count)


def test_a_backend_that_lacks_a_function_says_so() -> None:
    """Backends of others need not offer what came later."""
    lacking: Any = type("Lacking", (AbstractBackend,), {"name": "lacking"})
    lacking.__abstractmethods__ = frozenset()
    backend = lacking()
    for function in FUNCTIONS:
        with pytest.raises(UnsupportedFunctionError, match=f"'lacking' does not offer {function}"):
            getattr(backend, function)(0.3, Lattice(1, 1j))


@pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")  # of torch.func
@pytest.mark.parametrize("function", [*FUNCTIONS, "wp_derivative"])
def test_torch_differentiates_them_in_z_and_in_the_lattice(function: str) -> None:
    torch = pytest.importorskip("torch")
    backend = backend_named("torch")
    options = (3,) if function == "wp_derivative" else ()
    z = torch.tensor([0.3 + 0.2j, -0.4 + 0.7j], dtype=torch.complex128, requires_grad=True)
    omegas = torch.tensor([1.0, 0.3 + 1.2j], dtype=torch.complex128, requires_grad=True)

    def value(z, omegas):
        lattice = Lattice(omegas[0], omegas[1])
        return getattr(backend, function)(z, lattice, *options)

    assert torch.autograd.gradcheck(value, (z, omegas))
    assert torch.autograd.gradgradcheck(value, (z, omegas))


def test_the_slope_of_log_sigma_is_zeta() -> None:
    torch = pytest.importorskip("torch")
    backend, lattice = backend_named("torch"), Lattice(1, 0.3 + 1.2j)
    z = torch.tensor(POINTS, dtype=torch.complex128, requires_grad=True)
    (got,) = torch.autograd.grad(backend.log_sigma(z, lattice).real.sum(), z)
    want = backend.zeta(z.detach(), lattice).conj()
    assert (got - want).abs().max() <= RESIDUAL * want.abs().max()
