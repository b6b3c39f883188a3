"""``pytest -p verification.gpu.plugin``: the tests marked `cuda` run on the emulated device.

Where Triton is installed, the kernels that it compiles run as PTX on the host.
"""

from __future__ import annotations

from verification.gpu.ptx_host import install_device


def pytest_load_initial_conftests() -> None:
    """Install the device before any conftest can import torch."""
    install_device()
