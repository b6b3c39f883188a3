"""The functions without objects, the backend that an argument chooses, and the doors of `wefpe`."""

from __future__ import annotations

import inspect

import mpmath
import numpy as np
import pytest

import wefpe
from verification.tests.core.test_layering import libraries_imported_by
from wefpe_core import AbstractBackend, InputTypeError, Lattice, get_backend, special
from wefpe_core.dispatch import backend_for
from wefpe_core.errors import MissingDependencyError

NOT_FUNCTIONS = {
    *("capabilities", "contracts", "from_numpy", "to_numpy"),
    "lattice_from_invariants",  # it returns a lattice
}


def test_every_function_of_a_backend_is_there():
    methods = {name for name in dir(AbstractBackend) if not name.startswith("_")} - NOT_FUNCTIONS
    functions = {name for name, value in vars(special).items() if inspect.isfunction(value)}
    assert {name for name in functions if name[0] != "_"} - {"backend_for"} == methods


def test_half_periods_stand_in_the_place_of_the_lattice():
    backend, lattice = get_backend("numpy"), Lattice(1.0, 0.3 + 1.2j)
    z = np.array([0.3, 0.2 + 0.1j])
    assert (special.wp(z, 1.0, 0.3 + 1.2j) == backend.wp(z, lattice)).all()
    assert special.sigma_k(2, 0.3, omega1=1.0, omega3=0.3 + 1.2j) == backend.sigma_k(
        2, 0.3, lattice
    )
    assert special.invariants(1.0, 0.3 + 1.2j) == backend.invariants(lattice)
    assert special.wp_derivative(0.3, 1.0, 0.3 + 1.2j, 4) == backend.wp_derivative(0.3, lattice, 4)
    assert list(inspect.signature(special.sigma_k).parameters) == ["k", "z", "omega1", "omega3"]


def test_functions_without_a_lattice_are_those_of_the_backend():
    backend = get_backend("numpy")
    assert special.ellipj(0.7, 0.5) == backend.ellipj(0.7, 0.5)
    assert special.jtheta(3, 0.2, nome=0.1) == backend.jtheta(3, 0.2, nome=0.1)
    assert special.ellipk.__doc__ == AbstractBackend.ellipk.__doc__


def test_too_many_arguments_are_refused_by_name():
    with pytest.raises(TypeError, match="too many positional arguments"):
        special.ellipk(0.5, 1.0)
    with pytest.raises(TypeError, match="omega3"):
        special.wp(0.3, 1.0)


def test_numbers_and_arrays_go_to_numpy():
    for value in (1, 0.5, 1j, np.float32(1), np.ones(2), [1.0, 2.0], (1, [2j])):
        assert backend_for(value).name == "numpy"


def test_numbers_of_mpmath_are_evaluated_at_the_precision_of_mpmath():
    with mpmath.workdps(40):
        for value in (mpmath.mpf(1), mpmath.mpc(1j), [mpmath.mpf(1)], (0.5, [mpmath.mpf(1)])):
            assert backend_for(value) is get_backend("mpmath", dps=40)
        assert backend_for(np.array([mpmath.mpf(1)], dtype=object)).name == "mpmath"
        expected = mpmath.ellipk(mpmath.mpf("0.3"))
        assert abs(special.ellipk(mpmath.mpf("0.3")) - expected) < mpmath.mpf(10) ** -38


def test_tensors_go_to_torch_also_in_a_lattice_or_a_subclass():
    torch = pytest.importorskip("torch")
    omega = torch.tensor(1.2, requires_grad=True)

    class Marked(torch.Tensor):  # type: ignore[name-defined,misc]
        pass

    for value in (omega, torch.nn.Parameter(omega), Lattice(1.0, 1j * omega), torch.ones(2)):
        assert backend_for(0.5, value).name == "torch"
    assert backend_for(torch.ones(2).as_subclass(Marked)).name == "torch"
    special.wp(0.3, 1.0, 1j * omega).real.backward()
    assert torch.isfinite(omega.grad)


def test_balls_go_to_flint():
    flint = pytest.importorskip("flint")
    assert backend_for(flint.acb(1)).name == "flint"


def test_numbers_of_two_libraries_are_refused():
    torch = pytest.importorskip("torch")
    with pytest.raises(InputTypeError, match="different libraries: mpmath, torch"):
        backend_for(torch.ones(1), mpmath.mpf(1))


def test_the_doors_import_no_library_and_open():
    assert libraries_imported_by("import wefpe; wefpe.Lattice(1.0, 1.0j)") == set()
    assert wefpe.special is special
    with pytest.raises(AttributeError, match="module 'wefpe' has no attribute 'nothing'"):
        _ = wefpe.nothing


@pytest.mark.parametrize("name", sorted(wefpe._LAZY))
def test_a_lazy_door_leads_to_what_is_there(name):
    pytest.importorskip("torch")
    module, attribute = wefpe._LAZY[name]
    found = getattr(wefpe, name)
    assert (found.__name__ == module) if attribute is None else (found.__name__ == attribute)
    assert name in dir(wefpe)


@pytest.mark.parametrize("name", ["attach", "build_vit", "import_timm"])
def test_a_name_that_needs_torch_says_so(name, monkeypatch):
    def absent(module):
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr(wefpe, "import_own", absent)
    with pytest.raises(MissingDependencyError, match=rf"wefpe\.{name} needs torch, .* run: "):
        getattr(wefpe, name)
