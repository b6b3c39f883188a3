"""Run the PTX of a kernel on the host, on the memory of the emulated device."""

from __future__ import annotations

import ctypes
import platform
import struct
from dataclasses import dataclass, field
from importlib.util import find_spec

from verification.gpu import emulated_cuda, triton_driver
from verification.gpu.emulated_cuda import EmulationError
from verification.gpu.host_compiler import build_library
from verification.gpu.ptx import Module, parse
from verification.gpu.ptx_operands import bits, parameter_offsets
from verification.gpu.ptx_to_c import translate
from verification.gpu.triton_driver import Kernel, Launch

# Values are computed as the instructions say: nothing is contracted, reassociated or assumed.
_OPTIONS = (
    *("-O1", "-ffp-contract=off", "-frounding-math", "-fno-unsafe-math-optimizations"),
    *("-fno-strict-aliasing", "-w"),
)
_LIBRARIES = ("-lm",)
_FORMATS = {"f32": "f", "f64": "d"}
_SIZES = {8: "B", 16: "H", 32: "I", 64: "Q"}


@dataclass(frozen=True)
class Arithmetic:
    """How far from the kind case the instructions are; 0 is the kind case."""

    perturbation: int = 0  # a seed: approximate instructions are as wrong as the PTX ISA allows
    fusion: int = 0  # a seed: which sums absorb a product, instead of those that LLVM chose

    @property
    def label(self) -> str:
        """How the rows of a report are named."""
        unkind = ["perturbed"] if self.perturbation else []
        unkind += ["fused at random"] if self.fusion else []
        return ", ".join(["PTX on the host", *unkind])


@dataclass
class PtxOnTheHost:
    """A runner for `triton_driver.install`."""

    arithmetic: Arithmetic = field(default_factory=Arithmetic)
    _loaded: dict[tuple[str, bool], tuple[Module, ctypes.CDLL]] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return self.arithmetic.label

    def __call__(self, kernel: Kernel, launch: Launch) -> None:
        module, library = self._load(kernel)
        for name in ("perturbation", "fusion"):
            ctypes.c_uint64.in_dll(library, name).value = getattr(self.arithmetic, name)
        threads = module.kernel.threads or kernel.threads
        memory = kernel.shared_memory
        failed = library.launch(_packed(module, launch), *launch.grid, threads, memory)
        if failed:
            reason = "out of memory" if failed == 1 else "the threads of a block do not meet"
            raise EmulationError(f"{kernel.name}: {reason}")

    def _load(self, kernel: Kernel) -> tuple[Module, ctypes.CDLL]:
        may_fuse = bool(self.arithmetic.fusion)
        known = (kernel.ptx, may_fuse)
        if known not in self._loaded:
            ptx = kernel.compiled_again(enable_fp_fusion=False) if may_fuse else kernel.ptx
            module = parse(ptx)
            # x86-64 processors since 2013 have fused multiply-adds, without which fma is slow.
            fast = ("-mfma",) if platform.machine() == "x86_64" else ()
            source = translate(module, may_fuse)
            path = build_library("ptx", source, "c", (*_OPTIONS, *fast), libraries=_LIBRARIES)
            self._loaded[known] = module, ctypes.CDLL(str(path))
        return self._loaded[known]


def install_device(arithmetic: Arithmetic | None = None, capability: int = 80) -> None:
    """Install the emulated device; where Triton is installed, its kernels run as PTX on the host.

    Unkind arithmetic needs Triton: without it MissingDependencyError is raised.
    """
    if arithmetic is None and find_spec("triton") is None:
        emulated_cuda.install(capability)
    else:
        triton_driver.install(PtxOnTheHost(arithmetic or Arithmetic()), capability)


def _packed(module: Module, launch: Launch) -> bytes:
    """The parameters of a kernel as the block of bytes that it reads them from."""
    parameters, offsets = module.kernel.parameters, parameter_offsets(module.kernel)
    # Triton adds pointers to scratch memory, which kernels without scratch do not read.
    missing = len(parameters) - len(launch.arguments)
    if not 0 <= missing <= 2:
        raise EmulationError(
            f"{module.kernel.name} takes {len(parameters)} parameters, not {len(launch.arguments)}"
        )
    block = bytearray()
    for (kind, name), value in zip(parameters, (*launch.arguments, *[0] * missing), strict=True):
        block += bytes(offsets[name] - len(block))
        if kind in _FORMATS:
            block += struct.pack(f"<{_FORMATS[kind]}", value)
        else:
            block += struct.pack(f"<{_SIZES[bits(kind)]}", int(value) % 2 ** bits(kind))
    return bytes(block)
