"""One emulated CUDA device for a CPU build of torch: its memory is the host's.

`install` must be called before torch is imported. From then on torch.cuda says that there is one
device; what runs on it runs torch's CPU kernels (see emulated_cuda.cpp) and is counted:

    from verification.gpu import emulated_cuda

    emulated_cuda.install()
    import torch

    with emulated_cuda.count_launches() as counts:
        torch.ones(3, device="cuda") + 1
    assert counts.launches == {"aten::fill_": 1, "aten::add": 1}
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from verification.gpu.host_compiler import build_library
from wefpe_core import WefpeError

LABEL = "cuda (emulated)"  # how every report, label and message names the device
TESTED_TORCH = "2.13.0"
_INCLUDES = ("include", "include/torch/csrc/api/include")
_FORBIDDEN = "forbidden on the emulated device: "  # the sentence of emulated_cuda.cpp

_library: ctypes.CDLL | None = None
_kernel_label = ""


class EmulationError(WefpeError, RuntimeError):
    """The emulated device cannot be installed here; the message says why."""


class SynchronisationError(WefpeError, RuntimeError):
    """A copy or a synchronisation where `forbid_synchronisation` allows none."""


@dataclass
class Counts:
    """What the device was asked to do; complete when the block of `count_launches` has ended.

    An operator counts as one launch, although some of CUDA's need several kernels. Views and
    empty tensors launch nothing. A copy is counted as a copy only, although the host waits for it.
    """

    launches: dict[str, int] = field(default_factory=dict)  # by operator
    host_to_device: int = 0
    device_to_host: int = 0
    synchronisations: int = 0

    @property
    def total(self) -> int:
        """The number of launches of all operators."""
        return sum(self.launches.values())


def is_installed() -> bool:
    return _library is not None


def install(capability: int = 80) -> None:
    """Load the emulated device; torch must not have been imported.

    Parameters
    ----------
    capability
        The compute capability that the device claims, 80 for an A100 or 90 for an H100. Code for
        Triton is generated for it.

    Raises
    ------
    EmulationError
        The capability is not known, this is not Linux, torch is imported already or is not the
        tested CPU build, or there is a real device.
    HostCompilerError
        g++ is missing or fails.
    """
    global _library
    if is_installed():
        return
    from verification.gpu.torch_cuda import properties_of, replace_torch_cuda

    properties = properties_of(capability)
    library = ctypes.CDLL(str(_built_library()), mode=ctypes.RTLD_GLOBAL)
    library.emulated_cuda_counters.restype = ctypes.c_char_p
    library.emulated_cuda_install()
    _library = library
    replace_torch_cuda(properties)


def _built_library() -> Path:
    if sys.platform != "linux":
        raise EmulationError(f"the emulated device needs Linux, and this is {sys.platform}")
    if "torch" in sys.modules:
        raise EmulationError("the emulated device must be installed before torch is imported")
    specification = find_spec("torch")
    if specification is None or not specification.submodule_search_locations:
        raise EmulationError("the emulated device needs torch, which is not installed")
    version = metadata.version("torch")
    if version.partition("+")[0] != TESTED_TORCH:
        raise EmulationError(
            f"the emulated device is tested with torch {TESTED_TORCH}, and {version} is installed"
        )
    torch = Path(specification.submodule_search_locations[0])
    if (torch / "lib" / "libtorch_cuda.so").exists():
        raise EmulationError(
            f"torch {version} is built for CUDA; the emulated device needs a CPU build"
        )
    if real_devices():
        raise EmulationError("there is a real CUDA device: nothing is emulated beside it")
    return build_library(
        "emulated_cuda",
        files("verification.gpu").joinpath("emulated_cuda.cpp").read_text("utf-8"),
        "c++",
        options=("-O1", "-std=c++20", *(f"-I{torch}/{folder}" for folder in _INCLUDES)),
        libraries=(f"-L{torch}/lib", "-lc10", "-ltorch_cpu", f"-Wl,-rpath,{torch}/lib"),
        key=version,
    )


@cache
def real_devices() -> int:
    """How many CUDA devices the driver of this machine sees; 0 if there is no driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    number = ctypes.c_int(0)
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(number)):
        return 0
    return number.value


def device_label(device: str) -> str:
    """How reports name a device of torch: `LABEL` for an emulated one."""
    return LABEL if device.partition(":")[0] == "cuda" and is_installed() else device


def set_kernel_label(label: str) -> None:
    """Say how kernels made by Triton are run, for the labels of reports."""
    global _kernel_label
    _kernel_label = label


def compiled_label(device: str) -> str:
    """How reports name compiled code on a device."""
    is_emulated = device_label(device) == LABEL and _kernel_label
    return f"compiled, {_kernel_label}" if is_emulated else "compiled"


def note() -> str:
    """The end of a sentence about this machine: empty where nothing is emulated."""
    if not is_installed():
        return ""
    kernels = f", kernels of Triton as {_kernel_label}" if _kernel_label else ""
    return f"; {LABEL}: CPU kernels of torch in the memory of the host{kernels}"


@contextmanager
def count_launches() -> Iterator[Counts]:
    """Count what happens on the device within the block; blocks may be nested."""
    before = _counters()
    counts = Counts()
    try:
        yield counts
    finally:
        for (kind, name), number in _counters().items():
            more = number - before.get((kind, name), 0)
            if not more:
                continue
            if kind == "launch":
                counts.launches[name] = more
            elif kind == "host_to_device":
                counts.host_to_device += more
            elif kind == "device_to_host":
                counts.device_to_host += more
            else:
                counts.synchronisations += more


@contextmanager
def forbid_synchronisation() -> Iterator[None]:
    """Within the block the device only takes launches, as while a CUDA graph is captured.

    Raises
    ------
    SynchronisationError
        Something was copied between host and device, or the host waited for the device. The
        message names the operator.
    """
    library = _installed()
    library.emulated_cuda_forbid(1)
    try:
        yield
    except RuntimeError as error:
        place = str(error).find(_FORBIDDEN)
        if place < 0:
            raise
        raise SynchronisationError(str(error)[place:].partition("\n")[0]) from error
    finally:
        library.emulated_cuda_forbid(0)


def count_launch(name: str) -> None:
    """Count the launch of a kernel that is not an operator of torch."""
    _installed().emulated_cuda_count(b"launch", name.encode())


def count_synchronisation(name: str) -> None:
    """Count that the host waits for the device; an error where that is forbidden."""
    if _installed().emulated_cuda_count(b"synchronisation", name.encode()):
        raise SynchronisationError(f"{_FORBIDDEN}{name} (synchronisation)")


def _installed() -> ctypes.CDLL:
    if _library is None:
        raise EmulationError("the emulated device is not installed in this process")
    return _library


def _counters() -> dict[tuple[str, str], int]:
    found = {}
    for line in _installed().emulated_cuda_counters().decode().splitlines():
        kind, name, number = line.split()
        found[kind, name] = int(number)
    return found
