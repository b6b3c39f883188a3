"""Where the emulated CUDA device is installed, and where not; each test starts a process."""

from __future__ import annotations

import subprocess
import sys
from textwrap import dedent

import pytest

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
