"""The heat kernel of the torus: against mpmath's other sum, and the laws that it keeps."""

from __future__ import annotations

import math

import numpy as np
import pytest

from backends.exact_reduction import reduced_frame
from backends.mpmath_heat import log_by_places, log_by_waves
from backends.mpmath_precision import context, magnitude
from verification.judge import load_contracts
from verification.oracle_heat import reference
from wefpe_core import Lattice, get_backend
from wefpe_core._exact import exact_complex
from wefpe_core.errors import UnsupportedFunctionError

LATTICES = [
    Lattice(1, 1j),
    Lattice(0.5, 0.25 + 0.9j),
    Lattice.equianharmonic(),
    Lattice(2, 0.7 + 0.3j),  # not reduced
    Lattice(0.3, 30j),
]
EPS = np.finfo(np.float64).eps
RESIDUAL = load_contracts()["laws"]["residual"]["complex128"]["largest"]
BY_QUADRATURE = load_contracts()["laws"]["green from heat"]["complex128"]["largest"]
CEILING = load_contracts()["accuracy"]["log_heat"]["complex128"]["largest"]
ARRAYS = ["numpy", "torch"]
every_lattice = pytest.mark.parametrize("lattice", LATTICES, ids=lambda lattice: f"{lattice.tau:g}")


def area(lattice: Lattice) -> float:
    return 4.0 * (lattice.omega1.conjugate() * lattice.omega3).imag


def cases(lattice: Lattice, count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    s, r = rng.uniform(-1.5, 1.5, (2, count))
    times = np.exp(rng.uniform(math.log(2e-3), math.log(50.0), count)) * area(lattice) / 6.0
    return 2 * (s * lattice.omega1 + r * lattice.omega3), times


@every_lattice
@pytest.mark.parametrize("share", [0.3, 0.9, 1.1, 3.0])
def test_both_sums_of_mpmath_agree(lattice, share):
    frame, ctx = reduced_frame(lattice), context(160)
    time = exact_complex(share * area(lattice) / (2.0 * math.pi))
    place = exact_complex(0.37 + 0.21j)
    assert time is not None
    assert place is not None
    width, point = time.re * frame.scale**2 / frame.norm, frame.reduce(place)
    first, second = (f(ctx, point, width, frame) for f in (log_by_places, log_by_waves))
    assert magnitude(first - second) < -120


@every_lattice
@pytest.mark.parametrize("name", ARRAYS)
def test_values_keep_their_contract_where_the_sums_change_places(name, lattice):
    backend = get_backend(name)
    z = (0.31 + 0.17j) * lattice.omega1
    heights = (1.0, lattice.reduced()[0].tau.imag ** 2)
    for share in (1e-3, 0.3, *(x * (1 + d) for x in heights for d in (-1e-9, 1e-9)), 3.0, 1e4):
        t = share * abs(2 * lattice.reduced()[0].omega1) ** 2 / (2.0 * math.pi)
        for answer, function in zip(
            reference(z, complex(t), lattice), ("heat", "log_heat"), strict=True
        ):
            got = complex(np.asarray(getattr(backend, function)(z, t, lattice)))
            assert answer.error_of(got) <= CEILING * EPS, (function, share)


def test_it_strictly_decreases_up_to_half_a_period_on_rectangles():
    backend, rng = get_backend("numpy"), np.random.default_rng(7)
    for _ in range(50):
        height = math.exp(rng.uniform(-1.0, 1.0))
        lattice = Lattice.rectangular(0.5, 0.5 * height)
        x, y = np.sort(rng.uniform(0.0, 0.5, (2, 20, 2)), -1)
        y = y * height
        # Beyond t = 1 the differences are below eps of K.
        t = np.exp(rng.uniform(math.log(1e-4), math.log(0.4 * min(1.0, height**2)), 20))
        near, right, down = (
            backend.log_heat(z, t, lattice)
            for z in (x[:, 0] + 1j * y[:, 0], x[:, 1] + 1j * y[:, 0], x[:, 0] + 1j * y[:, 1])
        )
        assert np.isfinite(near).all()
        assert (near > right).all()
        assert (near > down).all()


@every_lattice
@pytest.mark.parametrize("name", ARRAYS)
def test_it_is_positive_even_and_doubly_periodic(name, lattice):
    backend = get_backend(name)
    z, t = cases(lattice, 200)

    def values(function: str, z: np.ndarray) -> np.ndarray:
        return np.asarray(getattr(backend, function)(*map(backend.from_numpy, (z, t)), lattice))

    value = values("log_heat", z)
    floor = 1.0 + np.abs(value) + np.abs(np.log(t)) + abs(math.log(area(lattice)))
    for moved in (-z, z + 2 * lattice.omega1, z - 6 * lattice.omega3):
        # The sum with a period is rounded, and log K has the slope |z|/t.
        slack = np.abs(moved) * (abs(lattice.omega1) + abs(lattice.omega3)) / t
        change = np.abs(value - values("log_heat", moved))
        assert (change <= RESIDUAL * EPS * (floor + slack)).all()
    assert (values("heat", z)[value > -700.0] > 0.0).all()


@every_lattice
def test_its_integral_over_a_cell_is_1(lattice):
    reduced = lattice.reduced()[0]
    count = 8 * math.ceil(2.0 * reduced.tau.imag) + 40
    # The sum over a grid is exact up to the waves that the grid cannot tell from a constant.
    s, r = np.meshgrid(np.arange(40) / 40, np.arange(count) / count)
    z = 2 * (s * reduced.omega1 + r * reduced.omega3)
    for share in (0.2, 1.0, 5.0):
        t = share * abs(reduced.omega1) ** 2
        mean = get_backend("numpy").heat(z, t, lattice).mean()
        assert abs(mean * area(lattice) - 1.0) <= RESIDUAL * EPS


@every_lattice
def test_its_integral_over_time_is_the_green_function(lattice):
    backend = get_backend("numpy")
    first, second = (lattice.reduced()[0].omega1 * x for x in (0.8 + 0.3j, 0.3 - 0.5j))
    x, step = np.linspace(
        -9.0, 7.0 + 2.0 * math.log(lattice.reduced()[0].tau.imag), 4001, retstep=True
    )
    t = np.exp(x) * abs(lattice.reduced()[0].omega1) ** 2
    change = backend.heat(first, t, lattice) - backend.heat(second, t, lattice)
    integral = math.pi * step * (change * t).sum()
    wanted = backend.green(first, lattice) - backend.green(second, lattice)
    assert abs(integral - wanted) <= BY_QUADRATURE * EPS


@pytest.mark.parametrize("name", ["numpy", "torch", "mpmath"])
def test_it_is_nan_where_there_is_no_time_or_place(name):
    backend = get_backend(name)
    z = backend.from_numpy(np.array([0.3, math.nan, 0.3, 0.3, 0.3, 0.3]) + 0j)
    t = backend.from_numpy(np.array([0.1, 0.1, 0.0, -1.0, math.nan, 1j]))
    value = np.asarray(backend.to_numpy(backend.log_heat(z, t, LATTICES[1])))
    assert np.isnan(value).tolist() == [False, *[True] * 5]


def test_precision_and_shape_follow_the_point():
    backend, lattice = get_backend("numpy"), LATTICES[0]
    assert backend.heat(np.complex64(0.3), 0.1, lattice).dtype == np.float32
    assert backend.heat(np.full((3, 1), 0.3), np.ones(4), lattice).shape == (3, 4)
    assert np.ndim(backend.log_heat(0.3 + 0.1j, 0.1, lattice)) == 0
    # Far away K underflows, and its logarithm does not.
    assert backend.heat(1.0, 1e-5, lattice) == 0.0
    assert math.isclose(backend.log_heat(1.0, 1e-5, lattice), -5e4, rel_tol=1e-3)


def test_a_backend_that_lacks_it_says_so():
    pytest.importorskip("flint", reason="the flint extra is not installed")
    with pytest.raises(UnsupportedFunctionError, match="heat"):
        get_backend("flint").heat(0.3, 0.1, LATTICES[0])


# --- Derivatives ---------------------------------------------------------------------------------


def torch_case(lattice: Lattice, share: float):
    torch = pytest.importorskip("torch", reason="the torch extra is not installed")
    z = torch.tensor([0.31 + 0.2j, -0.4 + 0.13j], dtype=torch.complex128, requires_grad=True)
    t = torch.tensor(share * area(lattice) / 6.0, dtype=torch.float64, requires_grad=True)
    omegas = [
        torch.tensor(complex(w), dtype=torch.complex128).requires_grad_()
        for w in (lattice.omega1, lattice.omega3)
    ]
    return torch, z, t, omegas


def on_lattice_of_tensors(z, t, omega1, omega3):
    return get_backend("torch").log_heat(z, t, Lattice(omega1, omega3))


@pytest.mark.parametrize("share", [0.05, 0.8, 4.0])
def test_gradients_in_place_time_and_lattice(share):
    torch, z, t, omegas = torch_case(LATTICES[3], share)
    assert torch.autograd.gradcheck(on_lattice_of_tensors, (z, t, *omegas))


@pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize("share", [0.05, 0.8, 4.0])
def test_torch_differentiates_it_on_numbers_in_every_mode(share):
    torch, z, t, _ = torch_case(LATTICES[1], share)

    def value(t):
        return get_backend("torch").log_heat(z.detach(), t, LATTICES[1]).sum()

    (by_theorem,) = torch.autograd.grad(value(t), t)
    for plain in (torch.func.grad(value)(t.detach()), torch.func.jacfwd(value)(t.detach())):
        assert abs(plain - by_theorem) <= RESIDUAL * EPS * abs(by_theorem)


@pytest.mark.slow
def test_second_gradients_in_place_time_and_lattice():
    torch, z, t, omegas = torch_case(LATTICES[1], 0.8)
    assert torch.autograd.gradgradcheck(on_lattice_of_tensors, (z[:1], t, *omegas))


@pytest.mark.parametrize("share", [0.05, 0.8, 4.0])
def test_it_solves_the_heat_equation(share):
    lattice = LATTICES[1]
    torch, z, t, _ = torch_case(lattice, share)
    backend = get_backend("torch")
    x, y = (part.detach().clone().requires_grad_() for part in (z.real, z.imag))
    times = t.detach().expand(2).clone().requires_grad_()

    def slope(value, variable):
        return torch.autograd.grad(value.sum(), variable, create_graph=True)[0]

    value = backend.heat(torch.complex(x, y), times, lattice)
    parts = [0.5 * slope(slope(value, side), side) for side in (x, y)]
    change = slope(value, times)
    terms = sum(part.abs() for part in parts) + value / times
    assert ((change - sum(parts)).abs() <= RESIDUAL * EPS * terms).all()


@pytest.mark.slow
@pytest.mark.nightly  # minutes: generates code for both forms of the sum
@pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:Torchinductor does not support code generation for complex")
def test_it_compiles_without_a_break():
    torch, z, t, omegas = torch_case(LATTICES[1], 0.8)
    backend = get_backend("torch")

    def value(z, t, omega1, omega3):
        return backend.log_heat(z, t, Lattice(omega1, omega3)) + backend.heat(z, t, LATTICES[0])

    compiled = torch.compile(value, fullgraph=True)(z, t, *omegas)
    wanted = value(z, t, *omegas)
    assert ((compiled - wanted).abs() <= RESIDUAL * EPS * (1.0 + wanted.abs())).all()
