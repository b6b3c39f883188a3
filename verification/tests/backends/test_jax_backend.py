"""The JAX backend: transformations, precisions, lattices of arrays, and errors."""

from __future__ import annotations

import inspect

import pytest

jax = pytest.importorskip("jax", reason="jax is not installed")

import jax.numpy as jnp
import numpy as np

from verification.functions import FUNCTIONS
from verification.judge import judge, load_contracts
from verification.measure import measure
from verification.oracle_family import by_backend
from verification.subjects import jax_subjects
from wefpe_core import AbstractBackend, InputError, InputTypeError, Lattice, get_backend
from wefpe_core.accuracy import in_eps

pytestmark = pytest.mark.slow  # it compiles

OBLIQUE = Lattice(1.0, 0.25 + 1.125j)
Z = np.array([0.3 + 0.2j, -0.7 + 0.4j, 5.25 - 3.5j])


@pytest.fixture(autouse=True)
def double_precision():
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


def largest_ratio(number: int, dtype: str, function: str) -> float:
    """The largest error over its ceiling; 0 is the lattice of numbers, 1 that of arrays."""
    subject, family = jax_subjects()[number], "oblique"
    rows = [
        row
        for region in FUNCTIONS[function].regions[:2]
        for row in measure(
            subject, dtype=dtype, function=function, family=family, region=region, count=4
        )
    ]
    return max(row.largest / row.ceiling for row in judge(rows, load_contracts()))


@pytest.mark.parametrize("dtype", ["complex128", "complex64"])
def test_values_keep_the_contracts(dtype):
    assert largest_ratio(0, dtype, "wp_and_prime") <= 1


@pytest.mark.parametrize("tau", [28.5j, 0.5 + 0.25j / 28, 1 + 1j / 28.5])
def test_lambda_keeps_its_contract_where_the_nome_is_below_the_normal_numbers(tau):
    """XLA's code for CPUs takes these for 0; lambda or its inverse is 16 times the nome."""
    argument = np.array([tau], np.complex64)
    smallest = np.finfo(np.float32).tiny
    (value,) = np.asarray(get_backend("jax").modular_lambda(jnp.asarray(argument)))
    (want,) = by_backend("modular_lambda")(complex(argument[0]), OBLIQUE)
    assert min(abs(want.value), 1 / abs(want.value)) / 16 < smallest
    ceiling = load_contracts()["accuracy"]["modular_lambda"]["complex64"]["largest"]
    assert in_eps(want.error_of(complex(value)), "complex64") <= ceiling


def test_gradients_in_z_and_the_lattice_keep_the_contracts():
    assert largest_ratio(1, "complex128", "gradient") <= 1


@pytest.mark.parametrize("number", [0, 1])
def test_the_heat_kernel_keeps_its_contract(number):
    assert largest_ratio(number, "complex128", "heat") <= 1


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("function", ["log_sigma", "modified_zeta", "wp_derivative_3"])
def test_functions_without_slopes_by_theorem_keep_their_contracts(number, function):
    assert largest_ratio(number, "complex128", function) <= 1


def test_a_jax_backend_offers_every_function_of_the_report():
    """So that no row is missing beside those of NumPy and torch."""
    methods = inspect.getmembers(AbstractBackend, inspect.isfunction)
    optional = {name for name, method in methods if "not_offered(" in inspect.getsource(method)}
    assert {"heat", "ellipj", "klein_j"} <= optional
    backend = type(get_backend("jax"))
    lacking = {n for n in optional if getattr(backend, n) is getattr(AbstractBackend, n)}
    assert not lacking


@pytest.mark.slow
def test_the_second_derivative_is_that_of_the_differential_equation():
    backend, lattice, z = get_backend("jax"), Lattice(1.0, 0.3 + 0.9j), jnp.asarray(0.3 + 0.2j)
    with jax.disable_jit():  # compiling takes longer
        slope = jax.grad(lambda z: backend.wp(z, lattice), holomorphic=True)
        found = jax.grad(slope, holomorphic=True)(z)
    g2, _ = backend.invariants(lattice)
    want = 6 * backend.wp(z, lattice) ** 2 - g2 / 2
    assert abs(found - want) < 1e-13 * abs(want)


def test_jit_and_vmap_give_the_values_of_the_plain_call():
    backend = get_backend("jax")

    def wp(z):
        return backend.wp(z, OBLIQUE)

    plain = np.asarray(wp(jnp.asarray(Z)))
    want = get_backend("numpy").wp(Z, OBLIQUE)
    ceiling = load_contracts()["encodings"]["backends"]["float64"]["largest"]
    for got in (plain, jax.jit(wp)(Z), jax.vmap(wp)(jnp.asarray(Z))):
        assert got.dtype == np.complex128
        assert np.max(np.abs(np.asarray(got) - want) / np.abs(want)) <= ceiling * 2.0**-52


def test_without_x64_everything_is_single_precision():
    jax.config.update("jax_enable_x64", False)
    backend = get_backend("jax")
    assert backend.capabilities.dtypes == ("complex64",)
    assert backend.zeta(Z, OBLIQUE).dtype == np.complex64


def test_a_pole_is_infinite_and_does_not_spoil_gradients():
    backend = get_backend("jax")
    z = jnp.asarray([0.0, 0.3 + 0.2j])
    p = np.asarray(backend.wp(z, OBLIQUE))
    assert np.isinf(p[0].real)
    assert np.isnan(p[0].imag)

    def loss(z):
        return backend.wp(z, OBLIQUE).real[1]

    assert np.isfinite(np.asarray(jax.grad(loss)(z))).all()


def test_gradients_by_m_are_finite_where_the_nome_vanishes():
    u = 0.5 - 0.25j

    def sn(m):
        return get_backend("jax").ellipj(u, m)[0]

    got = jax.grad(sn, holomorphic=True)(jnp.asarray(1.0 + 0j))
    want = (u - np.sinh(u) * np.cosh(u)) / (4 * np.cosh(u) ** 2)  # DLMF 22.10.7
    assert abs(got - want) < 1e-14 * abs(want)


def test_what_is_no_array_of_numbers_is_refused():
    backend = get_backend("jax")
    with pytest.raises(InputTypeError, match="bool"):
        backend.wp(jnp.asarray([True]), OBLIQUE)
    with pytest.raises(InputTypeError, match="cannot make an array"):
        backend.wp("z", OBLIQUE)


def test_half_periods_of_another_library_are_refused():
    torch = pytest.importorskip("torch")
    lattice = Lattice(torch.tensor(1.0 + 0j), torch.tensor(1.0j))
    with pytest.raises(InputError, match="JAX arrays"):
        get_backend("jax").wp(Z, lattice)


def test_the_periods_of_a_rhomb_of_arrays_tie_and_are_reduced_all_the_same():
    omega1 = 0.5821498314451647 + 0.8130815295825913j
    lattice = Lattice(omega1, -omega1.conjugate())
    arrays = Lattice(jnp.asarray(lattice.omega1), jnp.asarray(lattice.omega3))
    z, backend = jnp.asarray([0.3 + 0.2j]), get_backend("jax")
    want = np.asarray(backend.wp(z, lattice))
    ceiling = load_contracts()["accuracy_of_tensor_lattices"]["wp"]["complex128"]["largest"]
    errors = np.abs(np.asarray(backend.wp(z, arrays)) - want) / np.abs(want)
    assert np.max(errors) <= ceiling * np.finfo(np.float64).eps
