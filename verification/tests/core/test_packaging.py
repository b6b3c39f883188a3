"""The wheel, built from a copy of the tree and installed into an environment with nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from email.parser import HeaderParser
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("wefpe", "wefpe_core", "backends", "training", "verification")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

# The group keeps these tests on one xdist worker, so that the wheel is built once.
pytestmark = pytest.mark.packaging


def run(*command: object) -> str:
    result = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


class Installation(NamedTuple):
    wheel: Path
    python: Path


@pytest.fixture(scope="module")
def installation(tmp_path_factory) -> Installation:
    """Build the wheel and install it, alone, into a new virtual environment."""
    directory = tmp_path_factory.mktemp("packaging")
    source = directory / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for package in PACKAGES:  # a copy, so that no build or egg-info directory appears in the tree
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, source / package, ignore=ignored)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    said = run(*pip, "wheel", "--verbose", "--no-deps", "--wheel-dir", directory, source)
    assert "is absent from the `packages` configuration" not in said
    (wheel,) = directory.glob("*.whl")
    environment = directory / "environment"
    venv.create(environment, with_pip=False)
    scripts = Path(sysconfig.get_path("scripts", "venv", vars={"base": str(environment)}))
    python = scripts / ("python.exe" if sys.platform == "win32" else "python")
    run(*pip, "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel)
    return Installation(wheel, python)


SHIPPED = (".py", ".toml", ".json", ".j2", ".html", ".c", ".cpp")


def shipped_files() -> set[str]:
    """Every module, type marker and table of the packages, except the tests."""
    files = [
        path.relative_to(ROOT)
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.suffix in SHIPPED or path.name == "py.typed"
    ]
    return {file.as_posix() for file in files if file.parts[:2] != ("verification", "tests")}


def test_the_wheel_holds_the_packages_and_nothing_else(installation):
    names = set(zipfile.ZipFile(installation.wheel).namelist())
    metadata = {name for name in names if name.startswith(f"wefpe-{PROJECT['version']}.dist-info/")}
    assert names - metadata == shipped_files()
    assert {f"{package}/py.typed" for package in PACKAGES} <= names
    assert any(name.endswith("/LICENSE") for name in metadata)


def test_the_wheel_requires_no_torch_unless_asked(installation):
    with zipfile.ZipFile(installation.wheel) as archive:
        (path,) = (name for name in archive.namelist() if name.endswith("dist-info/METADATA"))
        metadata = HeaderParser().parsestr(archive.read(path).decode())
    assert metadata["Name"] == "wefpe"
    assert metadata["License-Expression"] == "MIT"
    required = metadata.get_all("Requires-Dist", [])
    assert {line for line in required if "extra ==" not in line} == set(PROJECT["dependencies"])


def test_the_core_works_with_no_other_package_installed(installation):
    code = """
import sys
import wefpe_core
from wefpe_core import bounds, identities

assert wefpe_core.__file__.startswith(sys.prefix)
assert wefpe_core.Lattice.lemniscatic(g2=1.0).omega1 == 1.8540746773013719
assert wefpe_core.available_backends() == ()
for name in ("numpy", "mpmath", "torch", "flint"):
    try:
        wefpe_core.get_backend(name)
    except wefpe_core.BackendUnavailableError as error:
        print(error)
"""
    messages = run(installation.python, "-I", "-c", code)
    for install in ("numpy", "mpmath", "wefpe[torch]", "wefpe[flint]"):
        assert f"pip install '{install}'" in messages


def test_a_backend_works_from_the_wheel(installation):
    # The libraries are borrowed from the environment of the tests; a path appended like this
    # serves no .pth file, so a checkout installed in place there is not found.
    libraries = sysconfig.get_path("platlib")
    code = f"""
import sys
sys.path.append({libraries!r})
import backends.numpy_backend
from wefpe_core import Lattice, get_backend

assert backends.__file__.startswith(sys.prefix)
wp = get_backend("numpy").wp
assert wp(0.3 + 0.1j, Lattice(1, 1j)) == wp(-0.3 - 0.1j, Lattice(1, 1j))
"""
    run(installation.python, "-I", "-c", code)


def test_the_report_starts_from_the_wheel(installation):
    libraries = sysconfig.get_path("platlib")
    code = f"""
import runpy
import sys
sys.path.append({libraries!r})
sys.argv[1:] = ["--help"]
runpy.run_module("verification", run_name="__main__")
"""
    assert "wefpe verify" in run(installation.python, "-I", "-c", code)
