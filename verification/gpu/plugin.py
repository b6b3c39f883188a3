"""``pytest -p verification.gpu.plugin``: the tests marked `cuda` run on the emulated device."""

from __future__ import annotations

from verification.gpu import emulated_cuda


def pytest_load_initial_conftests() -> None:
    """Install the device before any conftest can import torch."""
    emulated_cuda.install()
