"""Values at coordinates that move with a lattice: digits, gradients, and what they cost."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the torch extra is not installed")

from backends.constants import DOUBLE, SINGLE
from backends.evaluation import Evaluation, evaluation_program
from backends.torch_operators import values_at_coordinates
from verification import oracle
from verification.judge import load_contracts
from wefpe_core import Lattice
from wefpe_core.accuracy import in_eps

# Square, oblique, and bases of which the first or the second period is far from the shortest.
HALF_PERIODS = [
    (1.854, 1.854j),
    (1.3, 0.4 + 0.9j),
    (1.0, 0.35j),
    (1.0, 0.93 + 0.11j),
    (0.7, 5.6 + 0.8j),
]
REFERENCES: dict[str, Any] = {
    "wp_and_prime": oracle.wp_and_prime,
    "zeta": oracle.zeta_of_tensors,
    "sigma": oracle.sigma,
    "green": oracle.green,
}
NAMES = {"wp_and_prime": ("wp", "wp_prime")}


def some_coordinates() -> Any:
    """Patches of a grid, displacements of another, and points next to periods and half-periods."""
    rng = np.random.default_rng(11)
    patches = 2.0 * (rng.integers(0, 14, (12, 2)) + 0.5) / 14
    displacements = 0.8 * (1.0 + rng.integers(-13, 13, (8, 2))) / 14 + 0.01
    next_to = rng.integers(-2, 3, (12, 2)) + rng.choice([1e-3, -1e-5, 3e-7], (12, 2))
    return np.concatenate([patches, displacements, next_to])


@pytest.mark.parametrize("half_periods", HALF_PERIODS, ids=str)
@pytest.mark.parametrize(
    ("function", "dtype"),
    [
        *((function, "float64") for function in REFERENCES),
        *((function, "float32") for function in ("wp_and_prime", "green")),
    ],
)
def test_coordinates_are_exact_numbers(function, half_periods, dtype):
    omega = torch.tensor(half_periods, dtype=torch.complex128)
    omega = torch.view_as_real(omega).flatten().to(getattr(torch, dtype))
    w1, w3 = torch.view_as_complex(omega.double().reshape(2, 2)).tolist()
    lattice = Lattice(w1, w3)
    coordinates = torch.tensor(some_coordinates(), dtype=omega.dtype)
    found = values_at_coordinates(function, coordinates, omega).double()
    found = found.unsqueeze(1) if function == "green" else found
    contracts = load_contracts()[
        "accuracy_of_tensor_lattices" if dtype == "float64" else "accuracy"
    ]
    complex_name = {"float64": "complex128", "float32": "complex64"}[dtype]
    for (s, t), values in zip(coordinates.tolist(), found.movedim(-1, 0).tolist(), strict=True):
        with mpmath.workdps(60):
            z = mpmath.mpf(s) * mpmath.mpc(w1) + mpmath.mpf(t) * mpmath.mpc(w3)
            references = REFERENCES[function](z, lattice)
        names = NAMES.get(function, (function,))
        for name, value, reference in zip(names, values, references, strict=True):
            got = complex(*value) if len(value) == 2 else value[0]
            error = in_eps(reference.error_of(got), complex_name)
            assert error <= contracts[name][complex_name]["largest"], (name, s, t)


def moving(half_periods: tuple[complex, complex]) -> Any:
    """Points for every function, with a time each, and their half-periods, all with gradients."""
    points = [[0.31, 0.22, 0.05], [1.4, -0.63, 0.4], [0.9, 2.2, 3.0]]
    omega = torch.view_as_real(torch.tensor(half_periods, dtype=torch.complex128)).flatten()
    return torch.tensor(points, dtype=torch.float64).requires_grad_(), omega.requires_grad_()


@pytest.mark.parametrize("half_periods", HALF_PERIODS[1:4:2], ids=str)
@pytest.mark.parametrize("function", [*REFERENCES, "log_heat"])
def test_gradients_in_coordinates_and_half_periods(function, half_periods):
    def values(points, omega):
        points = points if function == "log_heat" else points[:, :2]
        return values_at_coordinates(function, points, omega)

    assert torch.autograd.gradcheck(values, moving(half_periods))


@pytest.mark.parametrize("function", ["green", "log_heat"])
def test_gradients_in_coordinates_are_those_of_the_series(function):
    """By theorem, and by torch's own operators, whatever else is differentiated with them."""
    points, omega = (x.detach() for x in moving(HALF_PERIODS[1]))
    points = points if function == "log_heat" else points[:, :2]

    def total(points, omega):
        return values_at_coordinates(function, points, omega).sum()

    plain = torch.func.grad(total, argnums=(0, 1))(points, omega)
    for moved in ((True, False), (False, True), (True, True)):
        given = [x.clone().requires_grad_(m) for x, m in zip((points, omega), moved, strict=True)]
        wanted = [x for x, m in zip(given, moved, strict=True) if m]
        found = torch.autograd.grad(total(*given), wanted)
        expected = [x for x, m in zip(plain, moved, strict=True) if m]
        for got, want in zip(found, expected, strict=True):
            assert torch.allclose(got, want, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("function", ["wp_and_prime", "green"])
def test_single_precision_reduces_coordinates_without_compensated_sums(function):
    """They are more than half of what it does at points z."""
    counts = {}
    for points_are in ("z", "coordinates"):
        for precision in (SINGLE, DOUBLE):
            which = Evaluation(precision, function, points_are, 0, table_has_slopes=False)
            counts[points_are, precision.name] = len(evaluation_program(which).statements)
    assert counts["coordinates", "float32"] < 0.5 * counts["z", "float32"]
    assert counts["coordinates", "float32"] <= counts["coordinates", "float64"]
    assert counts["coordinates", "float64"] < counts["z", "float64"]


@pytest.mark.parametrize("function", ["wp_and_prime", "zeta", "inverse_wp"])
def test_points_without_a_gradient_have_no_slopes(function):
    """A learned lattice alone: the gradient is the same, and a third of the memory is saved."""
    points = torch.tensor([[0.3, 0.2], [0.5, -0.7], [1.9, 2.1]], dtype=torch.float64)
    parts = torch.tensor([1.0, -0.25, 0.5, 1.5], dtype=torch.float64, requires_grad=True)
    table = torch.ops.wefpe.prepare(parts.detach(), True)
    how = (function, "z")
    of_all = torch.ops.wefpe.evaluate(points, parts, table, *how, 3, False)
    of_lattice = torch.ops.wefpe.evaluate(points, parts, table, *how, 2, False)
    assert torch.equal(of_lattice[0], of_all[0])
    assert torch.equal(of_lattice[1], of_all[1][1:])
    gradients = [torch.autograd.grad(v.sum(), parts)[0] for v, _ in (of_all, of_lattice)]
    assert torch.equal(*gradients)
    z = points.clone().requires_grad_()  # whoever asks for the points later gets them
    values, _ = torch.ops.wefpe.evaluate(z, parts, table, *how, 2, False)
    (late,) = torch.autograd.grad(values.sum(), z)
    values, _ = torch.ops.wefpe.evaluate(z, parts, table, *how, 1, False)
    assert torch.equal(late, torch.autograd.grad(values.sum(), z)[0])
