"""A Triton driver for the emulated device: kernels are compiled for a GPU and launched here.

Triton compiles for the target as far as PTX, which nothing here assembles but
`verification.gpu.kernel_ceilings`. A launch, by Inductor or by ``kernel[grid](...)``, is counted;
then the PTX of the kernel runs on the host, or nothing runs if only the code is of interest.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol

from verification.gpu import emulated_cuda
from verification.gpu.host_compiler import cache_folder
from verification.gpu.torch_cuda import MODELS, WARP
from wefpe_core.errors import import_optional

TESTED_TRITON = "3.7.1"  # the version that torch 2.13.0 asks for
_MAX_THREADS = 1024  # of a block


class Launch(NamedTuple):
    """What a kernel is launched with; pointers are addresses in the memory of the host."""

    grid: tuple[int, int, int]
    arguments: tuple[int | float, ...]


@dataclass(eq=False)
class Kernel:
    """A kernel that Triton compiled."""

    name: str
    source: Any  # Triton's, from which it can be compiled for another target
    options: dict[str, Any]
    ptx: str
    launches: int = 0

    @property
    def family(self) -> tuple[Any, ...]:
        """Equal for kernels that differ in constants, such as the block size, alone."""
        return self.source.fn, *self.source.signature.items()

    @property
    def threads(self) -> int:
        return WARP * int(self.options["num_warps"])

    @property
    def shared_memory(self) -> int:
        return int(self.options["shared"])

    def compiled_again(self, capability: int | None = None, **options: Any) -> str:
        """The PTX of the same kernel with other options or for another device."""
        import triton
        from triton import knobs
        from triton.backends.compiler import GPUTarget

        arch = capability or self.options["target"].arch
        same = {name: self.options[name] for name in ("num_warps", "num_stages")}
        with knobs.compilation.scope():
            knobs.compilation.listener = None  # this is no other kernel
            compiled = triton.compile(
                self.source, target=GPUTarget("cuda", arch, WARP), options=same | options
            )
        return str(compiled.asm["ptx"])


class Runner(Protocol):
    """Runs a kernel."""

    @property
    def label(self) -> str:
        """How the rows of a report are named where it was used."""

    def __call__(self, kernel: Kernel, launch: Launch) -> None: ...


kernels: dict[str, Kernel] = {}  # by Triton's hash, in the order of compilation


def install(run: Runner | None, capability: int = 80) -> None:
    """Install the emulated device with a Triton driver.

    Parameters
    ----------
    run
        Runs a kernel; None if launches are counted only, which leaves the results undefined.
    capability
        As in `emulated_cuda.install`.
    """
    # Code for a device that does not exist stays out of the caches of real ones.
    for variable, folder in (
        ("TORCHINDUCTOR_CACHE_DIR", "inductor"),
        ("TRITON_CACHE_DIR", "triton"),
    ):
        os.environ[variable] = str(cache_folder() / folder)
    import_optional("triton", purpose="compiled code for a GPU", extra=None)
    version = metadata.version("triton")
    if version != TESTED_TRITON:
        raise emulated_cuda.EmulationError(
            f"the driver is tested with triton {TESTED_TRITON}, and {version} is installed"
        )
    emulated_cuda.install(capability)
    emulated_cuda.set_kernel_label(run.label if run else "not run")
    from triton import knobs
    from triton.runtime.driver import driver

    knobs.compilation.listener = _remember
    driver.set_active(_driver(run, capability))
    _shorten_compilation(is_run_here=run is not None)
    _adapt_inductor()


def _remember(
    *, src: Any, metadata: dict[str, Any], metadata_group: dict[str, str], **_: Any
) -> None:
    """Triton tells of a kernel that it has compiled or found in its cache."""
    (ptx,) = (path for name, path in metadata_group.items() if name.endswith(".ptx"))
    text = Path(ptx).read_text(encoding="utf-8")
    kernels.setdefault(metadata["hash"], Kernel(metadata["name"], src, dict(metadata), text))


def _shorten_compilation(is_run_here: bool) -> None:
    """Leave out two steps of Triton that change no value and take most of its time.

    These are ptxas, whose code nothing here runs, and, if the PTX is run on the host, the pass that
    arranges accesses to memory for a GPU.
    """
    from triton import knobs
    from triton.backends.nvidia.compiler import passes

    if is_run_here:
        passes.ttgpuir.add_coalesce = lambda manager: None
    key = f"without ptxas{' and coalescing' if is_run_here else ''}"  # for the caches of Triton

    def without_assembler(backend: Any = None, stages: Any = None, *_: Any) -> Any:
        if stages is None:  # Triton asks for the key
            return key, key
        stages["cubin"] = lambda ptx, metadata: b""
        return None

    knobs.runtime.add_stages_inspection_hook = without_assembler


def _driver(run: Runner | None, capability: int) -> Any:
    from triton.backends.nvidia.driver import CudaDriver, GPUDriver

    class Launcher:
        """Called with the grid, what Triton passes to every launcher, and the arguments."""

        def __init__(self, source: Any, metadata: Any) -> None:
            self._kernel = kernels[metadata.hash]
            self._kinds = tuple(source.signature.values())

        def __call__(self, x: int, y: int, z: int, *rest: Any) -> None:
            values = rest[-len(self._kinds) :] if self._kinds else ()
            self._kernel.launches += 1
            emulated_cuda.count_launch(f"triton::{self._kernel.name}")
            if run is not None and x * y * z:
                run(self._kernel, Launch((x, y, z), _plain(self._kernel.name, self._kinds, values)))

    class EmulatedDriver(CudaDriver):  # type: ignore[misc]
        """A subclass because Inductor replaces a driver of any other kind."""

        def __init__(self) -> None:
            GPUDriver.__init__(self)
            self.launcher_cls = Launcher
            self.utils = SimpleNamespace(
                # Registers and spills are measured elsewhere, by ptxas itself.
                load_binary=lambda name, binary, shared, device: (name, name, 0, 0, _MAX_THREADS),
                get_device_properties=lambda device: {
                    "max_shared_mem": MODELS[capability].shared_memory,
                    "multiprocessor_count": MODELS[capability].processors,
                },
            )

    return EmulatedDriver()


def _plain(name: str, kinds: Sequence[Any], values: Sequence[Any]) -> tuple[int | float, ...]:
    """The arguments that reach the kernel: those that are not compiled in, tensors as addresses."""
    found: list[int | float] = []
    for kind, value in zip(kinds, values, strict=True):
        if kind == "constexpr":
            continue
        if hasattr(value, "data_ptr"):
            if value.device.type != "cuda":
                raise ValueError(
                    f"Pointer argument cannot be accessed from Triton (cpu tensor?), in {name}"
                )
            found.append(value.data_ptr())
        elif isinstance(value, (int, float)):
            found.append(value)
        else:
            raise emulated_cuda.EmulationError(f"{name}: cannot pass {value!r:.80} to a kernel")
    return tuple(found)


def _adapt_inductor() -> None:
    """Let Inductor launch through the driver, and choose without timing."""
    import torch
    from torch._inductor import config
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    config.compile_threads = 1  # other processes would not know the device
    config.use_static_triton_launcher = False  # it would load the binary into a GPU
    config.autotune_local_cache = False  # a block size that was not timed is not remembered,
    config.fx_graph_cache = False  # nor a graph, which would remember it too
    # Where Inductor would time several block sizes, the first is taken.
    CachingAutotuner.benchmark_all_configs = lambda self, *args, **kwargs: {  # type: ignore[method-assign]
        launcher: float(order) for order, launcher in enumerate(self.launchers)
    }
    torch.version.cuda = "13.0"
    torch._C._dynamo.guards._empty_strided_cuda = (  # type: ignore[attr-defined]
        lambda size, stride, dtype: torch.empty_strided(size, stride, dtype=dtype, device="cuda")
    )
