"""``pytest -p verification.gpu.plugin``: the tests marked `cuda` run on the emulated device.

Where Triton is installed, the kernels that it compiles run as PTX on the host.
"""

from __future__ import annotations

from importlib.util import find_spec

from verification.gpu import emulated_cuda


def pytest_load_initial_conftests() -> None:
    """Install the device before any conftest can import torch."""
    if find_spec("triton") is None:
        emulated_cuda.install()
        return
    from verification.gpu.ptx_host import PtxOnTheHost
    from verification.gpu.triton_driver import install

    install(PtxOnTheHost())
