"""Where the emulated CUDA device is installed, and where not; each test starts a process."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from verification.gpu import emulated_cuda
from verification.gpu.torch_cuda import properties_of

pytest.importorskip("torch", reason="the torch extra is not installed")


def run_python(source: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", dedent(source)], capture_output=True, text=True, check=False
    )


def test_torch_imported_before_it_is_refused():
    result = run_python(
        """
        import torch
        from verification.gpu import emulated_cuda
        emulated_cuda.install()
        """
    )
    assert "EmulationError: the emulated device must be installed before torch" in result.stderr


REFUSALS = {
    "another torch": ("emulated_cuda.TESTED_TORCH = '1.0'", "tested with torch 1.0"),
    "a real device": ("emulated_cuda.real_devices = lambda: 1", "there is a real CUDA device"),
    "no compiler": (
        "os.environ['XDG_CACHE_HOME'] = '/nonexistent'; os.environ['PATH'] = ''",
        "compiled by g++, which is not installed",
    ),
}


def test_an_unknown_capability_is_refused():
    with pytest.raises(emulated_cuda.EmulationError, match="capability 75 is not one of 80, 90"):
        properties_of(75)


@pytest.mark.parametrize("reason", REFUSALS)
def test_it_is_not_installed_where_it_would_mislead(reason):
    change, message = REFUSALS[reason]
    result = run_python(
        f"""
        import os
        from verification.gpu import emulated_cuda
        {change}
        emulated_cuda.install()
        """
    )
    assert result.returncode == 1
    assert message in result.stderr


def test_the_example_of_the_docs_runs():
    page = (Path(__file__).parents[3] / "docs" / "gpu.md").read_text("utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    result = run_python(example)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == ["{'aten::fill_': 1, 'aten::sin': 1} 2", "0 0 0"]


@pytest.mark.slow
def test_the_command_counts_launches_copies_and_waits():
    pytest.importorskip("triton", reason="Triton is not installed")
    result = run_python("from training.cli import main; main(['gpu', 'count', '--size', 'micro'])")
    assert result.returncode == 0, result.stderr
    rows = dict(re.findall(r"^ (\w[\w ]*?)  +([\d,]+)  +0  +0  +0 ", result.stdout, re.MULTILINE))
    assert "cuda (emulated)" in result.stdout
    assert 0 < int(rows["weierstrass"]) < int(rows["the model itself"].replace(",", ""))
