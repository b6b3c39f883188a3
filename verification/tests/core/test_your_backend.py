"""docs/your_backend.md, taken at its word: a wheel of its text, verified and trained with."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "your_backend.md").read_text(encoding="utf-8")

pytestmark = [pytest.mark.slow, pytest.mark.packaging]


def block(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)
    return found


def installed(directory: Path, module: str) -> Path:
    """The interpreter of a new environment that holds a wheel of this module, and what is here."""
    source = directory / "source"
    source.mkdir(parents=True)
    (source / "pyproject.toml").write_text(block("toml"), encoding="utf-8")
    (source / "wefpe_mine.py").write_text(module, encoding="utf-8")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    wheel = (*pip, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir")
    subprocess.run([*wheel, directory, source], check=True)
    environment = directory / "environment"
    venv.create(environment, with_pip=False)
    scripts = Path(sysconfig.get_path("scripts", "venv", vars={"base": str(environment)}))
    python = scripts / ("python.exe" if sys.platform == "win32" else "python")
    install = ("install", "--quiet", "--no-deps", "--no-index")
    (built,) = directory.glob("*.whl")
    subprocess.run([*pip, "--python", python, *install, built], check=True)
    # Layered over the environment of the tests, which has wefpe and all it needs.
    site = Path(sysconfig.get_path("purelib", "venv", vars={"base": str(environment)}))
    here = [str(ROOT), *(path for path in sys.path if path.endswith("site-packages"))]
    lines = [f"import site; site.addsitedir({path!r})" for path in here]
    (site / "layer.pth").write_text("\n".join(lines), encoding="utf-8")
    shutil.rmtree(source)
    return python


def wefpe(python: Path, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [str(python), "-m", "training.cli", *words]
    environment = os.environ | {"COLUMNS": "200"}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=cwd, env=environment
    )


VERIFY = ("verify", "--backend", "mine", "--size", "small", "--function", "wp_and_prime")


RUN = ("train", "digits", "--folder", "run", "training.epochs=1", "data.train_images=64")
FIXED = ("position_encoding.backend=mine", "position_encoding.options.learnable=false")


@pytest.fixture
def receipts(tmp_path, monkeypatch) -> str:
    """A folder of receipts for the test alone."""
    monkeypatch.setenv("WEFPE_RECEIPTS", str(tmp_path / "receipts"))
    return str(tmp_path / "receipts")


def test_the_backend_of_the_page_is_verified_and_trains(tmp_path, receipts):
    python = installed(tmp_path, block("python"))
    listed = wefpe(python, "backends", cwd=tmp_path)
    assert re.search(r"mine\b", listed.stdout), listed.stdout + listed.stderr
    verified = wefpe(python, *VERIFY, cwd=tmp_path)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    trained = wefpe(python, *RUN, *FIXED, cwd=tmp_path)
    assert trained.returncode == 0, trained.stdout + trained.stderr
    record = json.loads((tmp_path / "run" / "result.json").read_text("utf-8"))["verification"]
    assert record["status"] == "verified"
    (entry,) = record["evaluators"]
    assert entry["backend"] == "mine"
    assert entry["receipt"] in "".join(path.name for path in Path(receipts).iterdir())
    again = wefpe(python, "verify", "run", cwd=tmp_path)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "eps" in again.stdout
    refused = wefpe(python, *RUN[:3], "other", FIXED[0], cwd=tmp_path)
    assert refused.returncode == 2
    assert "not differentiable in the lattice" in refused.stdout + refused.stderr


def test_a_coefficient_wrong_in_the_seventh_digit_is_found_and_not_trained_with(tmp_path, receipts):
    sabotaged = block("python").replace("THIRD = 1.0 / 3.0", "THIRD = 0.3333334")
    assert sabotaged != block("python")
    python = installed(tmp_path, sabotaged)
    verified = wefpe(python, *VERIFY, cwd=tmp_path)
    assert verified.returncode == 1, verified.stdout + verified.stderr
    assert "above the ceiling" in verified.stdout
    refused = wefpe(python, *RUN, *FIXED, cwd=tmp_path)
    assert refused.returncode == 2
    assert "verification='require' and mine on cpu" in refused.stdout + refused.stderr
    assert not (tmp_path / "run").exists()
