"""A lattice evaluates its own functions, and foreign packages of our names are named."""

from __future__ import annotations

import subprocess
import sys
from inspect import cleandoc
from pathlib import Path

import mpmath
import numpy as np
import pytest

import wefpe_core
from wefpe_core import InputTypeError, Lattice, get_backend

ROOT = str(Path(wefpe_core.__file__).parents[1])
LATTICE = Lattice(1.0, 0.3 + 0.9j)
NAMES = ("wp", "wp_prime", "wp_and_prime", "zeta", "sigma", "green", "inverse_wp")


@pytest.mark.parametrize("name", NAMES)
def test_functions_of_a_lattice_are_those_of_the_backend(name):
    z = np.array([0.25, 0.5 + 0.25j])
    got, want = getattr(LATTICE, name)(z), getattr(get_backend("numpy"), name)(z, LATTICE)
    assert (np.array(got) == np.array(want)).all()
    assert complex(np.ravel(getattr(LATTICE, name)(0.25))[0]) == np.ravel(np.array(got))[0]
    with mpmath.workdps(25):
        number = mpmath.mpf("0.25")
        want = getattr(get_backend("mpmath", dps=25), name)(number, LATTICE)
        assert getattr(LATTICE, name)(number) == want


def test_tensors_are_evaluated_by_torch_with_gradients():
    torch = pytest.importorskip("torch")
    z = torch.tensor([0.25 + 0.5j], dtype=torch.complex128, requires_grad=True)
    values = [LATTICE.wp(z), get_backend("torch").wp(z, LATTICE)]
    got, want = (torch.autograd.grad(value.real.sum(), z)[0] for value in values)
    assert (got == want).all()
    height = torch.tensor(1.2, dtype=torch.float64, requires_grad=True)
    learned = Lattice(1.0, 1j * height)
    for constant in (learned.g2, learned.g3, learned.j):
        assert constant.requires_grad
    assert isinstance(learned.wp(0.5), torch.Tensor)
    with pytest.raises(InputTypeError, match="different libraries"):
        learned.wp(mpmath.mpf("0.5"))


def test_constants_of_a_lattice_are_attributes():
    assert (LATTICE.g2, LATTICE.g3) == get_backend("numpy").invariants(LATTICE)
    assert LATTICE.j == get_backend("numpy").klein_j(LATTICE.tau)
    of_mpmath = Lattice(mpmath.mpf(1), mpmath.mpc(0, 1))
    assert of_mpmath.j == Lattice(1, 1j).j == get_backend("numpy").klein_j(1j)


def test_a_lattice_draws_itself():
    pytest.importorskip("matplotlib")
    assert "ζ" in LATTICE.plot("zeta").axes[0].get_title()


# --- Foreign packages ----------------------------------------------------------------------------


def run(code, folder):
    """Run `code` where the packages in `folder` come before ours."""
    start = f"import sys; sys.path[:0] = [{str(folder)!r}, {ROOT!r}]\n"
    # The finder of an installation in place would lend our modules to the foreign package.
    start += "sys.meta_path = [each for each in sys.meta_path if 'editable' not in str(each)]\n"
    command = [sys.executable, "-P", "-c", start + cleandoc(code)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("file", ["training.py", "training/__init__.py"])
@pytest.mark.parametrize("use", ["wefpe.encodings", "wefpe.plot", "wefpe.Lattice(1, 1j).plot()"])
def test_a_foreign_package_called_training_is_named(tmp_path, file, use):
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).touch()
    code = f"""
        import wefpe
        try:
            {use}
        except wefpe.WefpeError as error:
            print(error)
    """
    done = run(code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"the package 'training' found at {tmp_path / file} is not wefpe's" in done.stdout


@pytest.mark.parametrize("file", ["{}.py", "{}/__init__.py"])
@pytest.mark.parametrize(
    ("package", "words"),
    [("training", []), ("verification", ["claims"]), ("verification", ["verify", "--quick"])],
)
def test_the_command_names_a_foreign_package(tmp_path, package, words, file):
    pytest.importorskip("typer")
    file = tmp_path / file.format(package)
    file.parent.mkdir(exist_ok=True)
    file.touch()
    code = f"""
        from wefpe.__main__ import main
        sys.argv[1:] = {words}
        sys.exit(main())
    """
    done = run(code, tmp_path)
    assert done.returncode == 2
    assert f"the package {package!r} found at {file} is not wefpe's" in done.stderr
    assert "Traceback" not in done.stderr
