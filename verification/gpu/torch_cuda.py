"""The Python side of the emulated device: torch.cuda says that there is one."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

from verification.gpu import emulated_cuda

WARP = 32


class Model(NamedTuple):
    """The published figures of a GPU that code generators ask for."""

    processors: int
    memory: int
    shared_memory: int  # of a block, at most


MODELS = {
    80: Model(processors=108, memory=40 << 30, shared_memory=166_912),  # A100
    90: Model(processors=132, memory=80 << 30, shared_memory=232_448),  # H100
}


class EmulatedStream:
    """The one stream of the device. Work on it is done when it is submitted."""

    stream_id = device_index = cuda_stream = 0
    device_type = 1

    def synchronize(self) -> None:
        emulated_cuda.count_synchronisation("cudaStreamSynchronize")

    def query(self) -> bool:
        return True


def properties_of(capability: int) -> SimpleNamespace:
    """What torch.cuda.get_device_properties answers."""
    if capability not in MODELS:
        known = ", ".join(map(str, MODELS))
        raise emulated_cuda.EmulationError(f"capability {capability} is not one of {known}")
    model = MODELS[capability]
    return SimpleNamespace(
        name=emulated_cuda.LABEL,
        major=capability // 10,
        minor=capability % 10,
        warp_size=WARP,
        regs_per_multiprocessor=65_536,
        max_threads_per_multi_processor=2048,
        max_threads_per_block=1024,
        shared_memory_per_block=49_152,
        shared_memory_per_block_optin=model.shared_memory,
        shared_memory_per_multiprocessor=model.shared_memory + 1024,
        L2_cache_size=40 << 20,
        is_integrated=0,
        gcnArchName="",
        uuid="0",
        pci_bus_id=0,
        multi_processor_count=model.processors,
        total_memory=model.memory,
    )


def replace_torch_cuda(properties: SimpleNamespace) -> None:
    """Replace the functions of torch.cuda that would ask the CUDA library."""
    import torch
    from torch._dynamo.device_interface import CudaInterface

    stream = EmulatedStream()
    # Random numbers come from the generator of the host, whose state is kept and seeded elsewhere.
    answers: dict[str, Callable[..., Any]] = {
        "is_available": lambda: True,
        "_is_compiled": lambda: True,
        "is_initialized": lambda: False,
        "init": lambda: None,
        "_lazy_init": lambda: None,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "_exchange_device": lambda device: 0,
        "_maybe_exchange_device": lambda device: 0,
        "get_device_properties": lambda device=None: properties,
        "get_device_capability": lambda device=None: (properties.major, properties.minor),
        "get_device_name": lambda device=None: properties.name,
        "is_bf16_supported": lambda including_emulation=True: True,
        "current_stream": lambda device=None: stream,
        "default_stream": lambda device=None: stream,
        "synchronize": lambda device=None: emulated_cuda.count_synchronisation(
            "cudaDeviceSynchronize"
        ),
        "manual_seed": lambda seed: None,
        "manual_seed_all": lambda seed: None,
        "get_rng_state": lambda device="cuda": torch.zeros(16, dtype=torch.uint8),
        "set_rng_state": lambda state, device="cuda": None,
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)
        if name in vars(CudaInterface):
            setattr(CudaInterface, name, staticmethod(answer))
    for name in ("exchange_device", "maybe_exchange_device", "get_raw_stream"):
        setattr(CudaInterface, name, staticmethod(lambda device: 0))
    low_level: dict[str, Callable[..., Any]] = {
        "_cuda_getDevice": lambda: 0,
        "_cuda_getCurrentRawStream": lambda device: 0,
    }
    for name, answer in low_level.items():
        setattr(torch._C, name, answer)
    torch.UntypedStorage.to = _storage_to  # type: ignore[method-assign]


def _storage_to(self: Any, *, device: Any, non_blocking: bool = False) -> Any:
    """A copy of a storage on a device; a CPU build of torch makes none for CUDA."""
    import torch

    if torch.device(device) == self.device:
        return self
    made = torch.empty(self.nbytes(), dtype=torch.uint8, device=device).untyped_storage()
    return made.copy_(self, non_blocking)
