"""docs/your_backend.md, taken at its word: a wheel of its text, verified and trained with."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "your_backend.md").read_text(encoding="utf-8")

_LONGEST = 110  # lines of a transcript are cut there

pytestmark = [pytest.mark.slow, pytest.mark.packaging]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)


def block(language: str) -> str:
    (found,) = blocks(language)
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


def run(python: Path, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A command of the page, with what it prints for people and for programs in one."""
    program = {"wefpe": ["-m", "training.cli"], "python": []}[words[0]]
    environment = os.environ | {"COLUMNS": "80"}
    return subprocess.run(
        [str(python), *program, *words[1:]],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        cwd=cwd,
        env=environment,
    )


def transcript(shown: str, python: Path, cwd: Path) -> str:
    """The commands of a block of the page, run here, each with what it printed."""
    found = []
    for line in shown.splitlines():
        if not line.startswith("$ "):
            continue
        words = shlex.split(line[2:])
        found.append(line)
        if words[0] == "pip":  # `installed` does the same without an index of packages
            continue
        done = run(python, *words, cwd=cwd)
        found += [_cut(text.rstrip()) for text in done.stdout.splitlines()]
        found += [f"[exit code {done.returncode}]"] if done.returncode else []
    return "\n".join(found) + "\n"


def _cut(line: str) -> str:
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


# What differs from machine to machine: lines about it and its progress, ids, days, places, and
# figures that are measured. Ceilings, counts and verdicts stay.
_ABOUT_THE_MACHINE = ("versions:", "platform:", "processor:", "commit:", "size:", "receipts are")
_MEASURED = (
    (r"; worst at.*", ""),
    (r"\b[0-9a-f]{16}\b", "ID"),
    (r"\d{4}-\d\d-\d\d", "DAY"),
    (r"\d+\.\d+(e[+-]?\d+)?%?|\b\d+(\.\d+)?e[+-]?\d+|\binf\b|\d+%", "FIGURE"),
    (r"\b\d{4,}(?=/)|FIGURE[^;]*…$", "FIGURE"),
    (r"row \d+, column \d+", "PATCH"),
    (r"[ ─]+", " "),
)


def without_figures(text: str) -> list[str]:
    lines = []
    for line in text.splitlines():
        if line.startswith(_ABOUT_THE_MACHINE) or re.match(r" *\d+ % after ", line):
            continue
        for pattern, name in _MEASURED:
            line = re.sub(pattern, name, line)
        lines.append(line.strip())
    return [line for line in lines if line]


def assert_is_shown(found: str, shown: str, cwd: Path) -> None:
    kept = cwd / "transcript.txt"
    kept.write_text(found, encoding="utf-8")
    assert without_figures(found) == without_figures(shown), f"docs/your_backend.md is not {kept}"


FIXED = "position_encoding.backend=mine"


@pytest.fixture
def receipts(tmp_path, monkeypatch) -> Path:
    """A folder of receipts for the test alone."""
    folder = tmp_path / "receipts"
    monkeypatch.setenv("WEFPE_RECEIPTS", str(folder))
    return folder


def test_the_backend_of_the_page_is_verified_and_trains(tmp_path, receipts):
    python = installed(tmp_path, block("python"))
    listed = run(python, "wefpe", "backends", cwd=tmp_path)
    assert re.search(r"mine\b", listed.stdout), listed.stdout
    shown = blocks("console")[0]
    assert_is_shown(transcript(shown, python, tmp_path), shown, tmp_path)
    record = json.loads((tmp_path / "run" / "result.json").read_text("utf-8"))["verification"]
    assert record["status"] == "verified"
    (entry,) = record["evaluators"]
    assert entry["backend"] == "mine"
    assert entry["receipt"] in "".join(path.name for path in receipts.iterdir())
    refused = run(python, "wefpe", "train", "digits", "--folder", "other", FIXED, cwd=tmp_path)
    assert refused.returncode == 2
    assert "not differentiable in the lattice" in refused.stdout


def test_a_coefficient_wrong_in_the_seventh_digit_is_found_and_not_trained_with(tmp_path, receipts):
    sabotaged = block("python").replace("THIRD = 1.0 / 3.0", "THIRD = 0.3333334")
    assert sabotaged != block("python")
    python = installed(tmp_path, sabotaged)
    shown = blocks("console")[1]
    found = transcript(shown, python, tmp_path)
    assert_is_shown(found, shown, tmp_path)
    assert "above the ceiling" in found
    assert "verification='require' and mine on cpu" in found
    assert not (tmp_path / "run").exists()
