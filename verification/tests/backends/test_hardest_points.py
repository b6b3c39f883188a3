"""Points where backends once broke a promise: found by search, out of range, next to the pole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest

from verification import gradients, search
from verification.judge import DamagedFileError, load_contracts
from verification.subjects import (
    Subject,
    numpy_subject,
    scalar_subject,
    tensor_lattice_subject,
    torch_subject,
)
from wefpe_core import Lattice, get_backend
from wefpe_core.accuracy import in_eps

torch = pytest.importorskip("torch")

SUBJECTS = {
    "numpy": numpy_subject,
    "numpy scalar": scalar_subject,
    "torch": lambda: torch_subject("cpu"),
    "torch tensors": lambda: tensor_lattice_subject("cpu"),
}


@pytest.mark.parametrize("dtype", ["complex128", "complex64"])
@pytest.mark.parametrize("name", SUBJECTS)
def test_contracts_hold_at_the_points_that_searches_found(name: str, dtype: str) -> None:
    subject = SUBJECTS[name]()
    contracts = load_contracts()[subject.contract]
    rows = search.hardest_rows(subject, "wp_and_prime", dtype, search.hardest_points())
    assert {row.function for row in rows} == {"wp", "wp_prime"}
    for row in rows:
        if dtype in contracts[row.function] and dtype in subject.dtypes:
            assert row.worst <= contracts[row.function][dtype]["largest"], row.worst_place


def test_a_search_finds_larger_errors_than_its_starting_points() -> None:
    found = search.climb(numpy_subject(), "wp_and_prime", "complex64", "wp_prime", seconds=3)
    assert 1.0 < found.error <= load_contracts()["accuracy"]["wp_prime"]["complex64"]["largest"]


def test_a_search_notices_a_broken_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = numpy_subject()
    evaluate = Subject.evaluate

    def wrong(self: Subject, *arguments: Any, **options: Any) -> Any:
        p, dp = evaluate(self, *arguments, **options)
        return p, dp * (1 + 1e-14)

    monkeypatch.setattr(Subject, "evaluate", wrong)
    (found,) = search.search(
        [subject], ["wp_and_prime"], ["complex128"], {"accuracy": {"wp_prime": _CEILING}}, 0.0
    )
    assert found.point.error > 10
    assert not found.is_kept


_CEILING = {"complex128": {"largest": 4.0}}


def test_points_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "points.json"
    lattice = Lattice(0.1 + 0.2j, -0.3 + 1 / 3 * 1j)
    points = [
        search.HardPoint("numpy", "complex128", "wp", error, lattice, complex(0.1, error))
        for error in (1.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0)
    ]
    search.record(points[:2], path)
    search.record(points[2:], path)
    assert search.hardest_points(path) == tuple(points[1:])
    path.write_text(json.dumps({"points": [{"omega1": [1, 0]}]}))
    search.hardest_points.cache_clear()
    with pytest.raises(DamagedFileError, match=r"points\[0\].*omega3"):
        search.hardest_points(path)


def _error(got: Any, want: Any, dtype: str = "complex128") -> float:
    return in_eps(float(abs(mpmath.mpc(complex(got)) - want) / abs(want)), dtype)


@pytest.mark.parametrize(
    ("z", "half_period", "dtype"),
    [
        (1e140, 1e170, "complex128"),
        (1e120 + 1e119j, 1e200, "complex128"),
        (1e-100, 1e-99, "complex128"),
        (1e15, 1e25, "complex64"),
        (1e-11, 1e-10, "complex64"),
    ],
)
@pytest.mark.parametrize("name", ["numpy", "torch", "torch tensors"])
def test_squares_of_the_period_do_not_leave_the_range(
    name: str, z: complex, half_period: float, dtype: str
) -> None:
    subject, lattice = SUBJECTS[name](), Lattice(half_period, half_period * 1j)
    point = np.array([z], dtype)
    (wp,) = subject.evaluate("wp", point, lattice=lattice)
    with mpmath.workdps(40):
        # A lattice of tensors has half-periods of the dtype.
        exact = complex(np.array(half_period, dtype))
        reference = Lattice(exact, exact * 1j) if name == "torch tensors" else lattice
        want = get_backend("mpmath", dps=30).wp(complex(point[0]), reference)
        assert _error(wp[0], want, dtype) <= load_contracts()["accuracy"]["wp"][dtype]["largest"]


@pytest.mark.parametrize("dtype", ["complex128", "complex64"])
@pytest.mark.parametrize("turn", [1.0, 0.6 - 0.8j, -0.3 + 1.2j])
def test_tensors_and_numbers_have_one_reduced_basis(turn: complex, dtype: str) -> None:
    rng = np.random.default_rng(8)
    for tau in (1j, *np.exp(1j * rng.uniform(1.1, 2.0, 20))):
        omegas = [complex(x) for x in np.array([turn, turn * tau], dtype)]
        w = (rng.normal(size=20) + 1j * rng.normal(size=20)).astype(dtype)
        expected = get_backend("numpy").inverse_wp(w, Lattice(*omegas))
        tensors = Lattice(*(torch.tensor(omega, dtype=getattr(torch, dtype)) for omega in omegas))
        found = get_backend("torch").inverse_wp(torch.from_numpy(w), tensors)
        # Other bases give other solutions, most of them farther away.
        assert np.max(np.abs(found.numpy() - expected)) < abs(turn) / 8


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_lattices_of_tensors_of_any_size(size: float) -> None:
    subject = SUBJECTS["torch tensors"]()
    lattice, z = Lattice(size, 0.3 * size + 0.9j * size), np.array([0.2 * size + 0.1j * size])
    for function in ("zeta", "sigma", "green"):
        (value,) = subject.evaluate(function, z, lattice=lattice)
        want = getattr(get_backend("mpmath", dps=30), function)(complex(z[0]), lattice)
        assert (
            _error(value[0], want)
            <= load_contracts()[subject.contract][function]["complex128"]["largest"]
        )


@pytest.mark.parametrize("name", ["numpy", "torch"])
def test_sigma_and_green_on_the_smallest_lattices(name: str) -> None:
    subject, lattice = SUBJECTS[name](), Lattice(1e-310, 1e-310j)
    z = np.array([3e-311 + 1e-311j])
    (sigma,), (green,) = (subject.evaluate(f, z, lattice=lattice) for f in ("sigma", "green"))
    backend = get_backend("mpmath", dps=30)
    # A subnormal number has few bits: half a unit in the last place of 3e-311 is 8e-14 of it.
    assert abs(sigma[0] - complex(backend.sigma(complex(z[0]), lattice))) < 1e-323
    ceiling = load_contracts()["accuracy"]["green"]["complex128"]["largest"]
    assert _error(green[0], backend.green(complex(z[0]), lattice)) <= ceiling


@pytest.mark.parametrize("distance", [1e-2, 1e-4, 1e-7, 1e-11])
@pytest.mark.parametrize("lattice", [Lattice(1.0, 1.0j), Lattice(1.0, 0.3 + 0.9j)])
def test_derivatives_in_the_lattice_are_relatively_exact_at_the_pole(
    lattice: Lattice, distance: float
) -> None:
    z = distance * np.exp(1j * np.array([0.1, 1.3, 2.9, 4.4]))
    found = gradients.evaluate(tensor_lattice_subject("cpu"), z, lattice, 1)
    contracts = load_contracts()["accuracy_of_tensor_lattices"]
    for k, point in enumerate(z):
        references = gradients.reference(complex(point), lattice, 1)
        for name, values, reference in zip(gradients.names(1), found, references, strict=True):
            ceiling = contracts[name]["complex128"]["largest"]
            assert _error(values[k], reference.value) <= ceiling
