"""What a type checker knows of the values of a backend: the assertions on types are for mypy."""

from __future__ import annotations

from typing import Any, assert_type

import pytest

from wefpe_core import AbstractBackend, Lattice, get_backend

LATTICE = Lattice(1.0, 1.0j)


def test_numpy_gives_arrays() -> None:
    pytest.importorskip("numpy")
    from numpy import ndarray
    from numpy.typing import NDArray

    backend = get_backend("numpy")
    assert_type(backend, AbstractBackend[NDArray[Any]])
    wp, wp_prime = backend.wp_and_prime([0.25, 0.5], LATTICE)
    assert_type(wp, NDArray[Any])
    assert_type(wp_prime, NDArray[Any])
    assert_type(backend.green(0.25, LATTICE), NDArray[Any])
    assert isinstance(wp, ndarray)


def test_torch_gives_tensors() -> None:
    pytest.importorskip("torch")
    from torch import Tensor

    backend = get_backend("torch", compile=False)
    assert_type(backend, AbstractBackend[Tensor])
    assert_type(backend.invariants(LATTICE), tuple[Tensor, Tensor])
    wp = backend.wp(0.25, LATTICE)
    assert_type(wp, Tensor)
    assert isinstance(wp, Tensor)


def test_a_name_known_only_at_run_time_gives_values_of_any_type() -> None:
    pytest.importorskip("mpmath")
    name: str = "mpmath"
    assert_type(get_backend(name), AbstractBackend[Any])
    assert_type(get_backend("mpmath", dps=30), AbstractBackend[Any])
