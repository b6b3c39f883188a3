"""Lattices that conjugation maps to themselves: symmetric to the bit, real where theory says so."""

from typing import Any

import numpy as np
import pytest

from backends.mirrors import has_mirrors
from wefpe_core import Lattice, get_backend

LATTICES = {
    "square": Lattice.lemniscatic(),
    "square on its corner": Lattice.lemniscatic(-1.0),
    "hexagonal": Lattice.equianharmonic(),
    "hexagonal, turned": Lattice.equianharmonic(-1.0),
    "rectangular": Lattice(1.25, 1.75j),
    "first period imaginary": Lattice(1j, -2.0),
    "rhombic": Lattice.from_invariants(1.0, 0.2),
    "rhombic, turned": Lattice.from_invariants(1.0, -0.2),
    "rhombic, g2 < 0": Lattice.from_invariants(-2.0, 0.7),
    "rhombic, tall": Lattice(1.0, 0.5 + 3.0j),
    "rhombic, flat": Lattice(1.0, 0.5 + 0.2j),
}
# Even, odd.
PARITY = {
    "wp": 1,
    "green": 1,
    "wp_prime": -1,
    "zeta": -1,
    "sigma": -1,
    "modified_zeta": -1,
    "modified_sigma": -1,
}
SUBJECTS: dict[str, Any] = {
    "numpy": lambda: get_backend("numpy"),
    "numba": lambda: get_backend("numpy", compile=True),
    "torch": lambda: get_backend("torch"),
}


@pytest.fixture(params=["numpy", "torch", pytest.param("numba", marks=pytest.mark.slow)])
def evaluate(request: pytest.FixtureRequest) -> Any:
    if request.param == "numba":
        pytest.importorskip("numba")
    if request.param == "torch":
        pytest.importorskip("torch")
    backend = SUBJECTS[request.param]()
    is_torch = request.param == "torch"

    def values(function: str, z: np.ndarray, lattice: Lattice) -> np.ndarray:
        points = backend.from_numpy(z) if is_torch else z
        return np.asarray(getattr(backend, function)(points, lattice))

    return values


def _size(lattice: Lattice) -> float:
    return 2 * abs(complex(lattice.reduced()[0].omega1))


@pytest.mark.parametrize("name", LATTICES)
@pytest.mark.parametrize("dtype", ["complex128", "complex64"])
def test_the_conjugate_argument_has_the_conjugate_value_bit_for_bit(
    evaluate: Any, name: str, dtype: str
) -> None:
    lattice = LATTICES[name]
    assert has_mirrors(lattice)
    rng = np.random.default_rng(20)
    z = (_size(lattice) * (rng.uniform(-2, 2, 200) + 1j * rng.uniform(-2, 2, 200))).astype(dtype)
    for function, parity in PARITY.items():
        here = evaluate(function, z, lattice)
        np.testing.assert_array_equal(evaluate(function, z.conj(), lattice), here.conj(), function)
        np.testing.assert_array_equal(evaluate(function, -z, lattice), parity * here, function)


def _lines(lattice: Lattice, dtype: str) -> Any:
    """Points of lines of symmetry, and whether these are horizontal; no lattice points."""
    size = _size(lattice)
    x = size * np.linspace(0.0312, 2.41, 61)
    a, b = (2 * complex(w) for w in (lattice.reduced()[0].exact))
    vectors = [m * a + n * b for m in range(-3, 4) for n in range(-3, 4)]
    width = min(v.real for v in vectors if v.imag == 0 and v.real > 0)
    height = min(v.imag for v in vectors if v.real == 0 and v.imag > 0)
    yield x + 0j, True
    yield 1j * x, False
    if dtype == "complex128":  # in which half of a double and sums of two are exact
        yield x + 0.5j * height, True
        yield x + 1j * height, True
        yield 0.5 * width + 1j * x, False
        yield width + 1j * x, False


@pytest.mark.parametrize("name", LATTICES)
@pytest.mark.parametrize("dtype", ["complex128", "complex64"])
def test_on_every_line_of_symmetry_a_part_is_exactly_zero(
    evaluate: Any, name: str, dtype: str
) -> None:
    lattice = LATTICES[name]
    for z, is_horizontal in _lines(lattice, dtype):
        z = z.astype(dtype)
        np.testing.assert_array_equal(evaluate("wp", z, lattice).imag, 0)
        slope = evaluate("wp_prime", z, lattice)
        np.testing.assert_array_equal(slope.imag if is_horizontal else slope.real, 0)
        assert np.all(slope != 0)
        if np.all(z.imag == 0) or np.all(z.real == 0):
            for function in ("zeta", "sigma"):
                value = evaluate(function, z, lattice)
                np.testing.assert_array_equal(value.imag if is_horizontal else value.real, 0)


@pytest.mark.parametrize(
    "lattice",
    [
        Lattice(1.0, 1.0j),
        Lattice(1 - 1j, 1 + 1j),
        Lattice(1.0, 0.5 + 0.625j),
        Lattice(1.0, 0.5 + 1.25j),
        Lattice(1 - 0.75j, 1 + 0.75j),
        Lattice(1j, -1.5 + 0.5j),
    ],
)
def test_periodicity_holds_to_the_bit_in_the_cells_dlmf_23_2_9(
    evaluate: Any, lattice: Lattice
) -> None:
    """Few-bit periods and points, so that their sums are exact; off the edges of the cells.

    (On an edge two lattice points are equally near, and rounding chooses.)
    """
    assert has_mirrors(lattice)
    rng = np.random.default_rng(20)
    a, b = (2 * complex(w) for w in lattice.reduced()[0].exact)
    s, t = rng.uniform(-0.49, 0.49, (2, 500))
    z = s * a + t * b
    z = (np.round(1024 * z.real) + 1j * np.round(1024 * z.imag)) / 1024
    for function in ("wp", "wp_prime", "green", "modified_zeta"):
        here = evaluate(function, z, lattice)
        for period in (a, b, a + b, 1000 * b - 77 * a):
            there = evaluate(function, z + period, lattice)
            np.testing.assert_array_equal(there, here, function)


def test_the_reference_writes_zeros_too() -> None:
    reference = get_backend("mpmath", dps=20)
    for lattice in LATTICES.values():
        for function, parity in PARITY.items():
            real, imaginary = (getattr(reference, function)(z, lattice) for z in (0.7, 0.7j))
            if function == "green":
                continue
            assert real.imag == 0, function
            assert (imaginary.imag if parity > 0 else imaginary.real) == 0, function
        assert all(g.imag == 0 for g in reference.invariants(lattice))


def test_gradients_do_not_lose_what_is_zero_on_the_lines() -> None:
    """On the real line Im wp is 0 and its derivative across is not; in both orders."""
    torch = pytest.importorskip("torch")
    lattice = Lattice.from_invariants(1.0, -0.2)
    backend = get_backend("torch")
    z = torch.tensor([0.7, 0.3j, -0.4, 0.2 + 0.1j], dtype=torch.complex128, requires_grad=True)
    assert torch.autograd.gradcheck(lambda z: backend.wp(z, lattice), (z,))
    assert torch.autograd.gradgradcheck(lambda z: backend.wp(z, lattice), (z,))


def test_other_lattices_run_the_kernel_itself() -> None:
    lattice = Lattice(1.0, 0.3 + 1.1j)
    assert not has_mirrors(lattice)
