"""Where the tests of the emulated CUDA device can run."""

from __future__ import annotations

import shutil
import sys

import pytest

from verification.gpu import emulated_cuda


@pytest.fixture(autouse=True)
def _host_compiler() -> None:
    if sys.platform != "linux" or shutil.which("g++") is None:
        pytest.skip("the emulated device is built by g++ on Linux")


@pytest.fixture
def on_emulated_device() -> None:
    if not emulated_cuda.is_installed():
        pytest.skip("the device here is real: it counts nothing and runs its own code")
