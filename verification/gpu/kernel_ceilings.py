"""What compiled code for a GPU costs, without a GPU: registers, spills, parameters, launches.

The functions are compiled as ``get_backend("torch", compile=True)`` does for the emulated device;
ptxas, the assembler of NVIDIA that Triton brings, then reports on every kernel. The figures are
compared with the ceilings of kernel_ceilings.toml.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from verification.gpu import emulated_cuda
from verification.gpu.ptx import parse
from verification.gpu.torch_cuda import MODELS
from verification.gpu.triton_driver import Kernel, kernels
from verification.judge import DamagedFileError
from wefpe_core import Lattice, get_backend

CEILINGS = "kernel_ceilings.toml"
POINTS = 100_000  # Inductor tries larger blocks for more points
FUNCTIONS = ("wp_and_prime", "zeta", "sigma", "green")
DTYPES = ("complex128", "complex64")

Figures = dict[str, int]


class Usage(NamedTuple):
    """What ptxas says of a kernel."""

    spilled_bytes: int  # stored to memory because the registers do not suffice
    registers: int  # of a thread


def cases() -> dict[str, Callable[[], object]]:
    """Calls by name; each returns when its kernels are launched."""
    import torch

    from backends.torch_operators import values_at_coordinates

    backend, lattice = get_backend("torch", compile=True), Lattice(1.0, 0.25 + 1.5j)

    def forward(function: str, dtype: str) -> Callable[[], object]:
        z = torch.randn(POINTS, dtype=getattr(torch, dtype), device="cuda")
        return lambda: getattr(backend, function)(z, lattice)

    def backward(dtype: str) -> Callable[[], object]:
        z = torch.randn(POINTS, dtype=getattr(torch, dtype), device="cuda", requires_grad=True)
        ones = torch.ones(POINTS, dtype=z.dtype, device="cuda")
        return lambda: torch.autograd.grad(backend.wp(z, lattice), z, ones)

    def on_learned_lattice(function: str) -> Callable[[], object]:
        """The table of an encoding and its gradient, by the kernels of the project itself."""
        coordinates = torch.rand(POINTS, 2, dtype=torch.float64, device="cuda")
        omega = torch.tensor([1.0, 0.0, 0.25, 1.5], dtype=torch.float64, device="cuda")
        omega.requires_grad_()
        ones = torch.ones_like(values_at_coordinates(function, coordinates, omega))
        return lambda: torch.autograd.grad(
            values_at_coordinates(function, coordinates, omega), omega, ones
        )

    known = {f"{f} {dtype}": forward(f, dtype) for f in FUNCTIONS for dtype in DTYPES}
    known |= {f"wp and its derivative {dtype}": backward(dtype) for dtype in DTYPES}
    return known | {
        f"{f} and its gradient on a learned lattice": on_learned_lattice(f)
        for f in ("wp_and_prime", "green")
    }


def measure(run: Callable[[], object]) -> Figures:
    """The figures of one call, after a first one that compiles its kernels."""
    run()
    before = {key: kernel.launches for key, kernel in kernels.items()}
    with emulated_cuda.count_launches() as counts:
        run()
    launched = {kernel.family for key, kernel in kernels.items() if kernel.launches > before[key]}
    if not launched:
        raise emulated_cuda.EmulationError("the call launches no kernel of Triton")
    candidates = [kernel for kernel in kernels.values() if kernel.family in launched]
    figures = {
        "kernels": sum(n for name, n in counts.launches.items() if name.startswith("triton::")),
        "launches": counts.total,
        "copies": counts.host_to_device + counts.device_to_host,
        "synchronisations": counts.synchronisations,
        "float64_parameters": max(map(_float64_parameters, candidates)),
    }
    for capability in MODELS:
        # On a GPU Inductor times several block sizes; one that spills does not win.
        leanest: dict[Any, Usage] = {}
        for kernel in candidates:
            used = usage(kernel, capability)
            leanest[kernel.family] = min(leanest.get(kernel.family, used), used)
        figures[f"sm_{capability}_spilled_bytes"] = max(u.spilled_bytes for u in leanest.values())
        figures[f"sm_{capability}_registers"] = max(u.registers for u in leanest.values())
    return figures


def _float64_parameters(kernel: Kernel) -> int:
    """How many parameters are double precision in code that is not; 0 in code that is."""
    module = parse(kernel.ptx)
    is_double = re.search(r"\bfma\.rn\.f64\b", kernel.ptx)
    return 0 if is_double else sum(kind == "f64" for kind, _ in module.kernel.parameters)


def usage(kernel: Kernel, capability: int) -> Usage:
    """Compile a kernel for a capability and let ptxas report on it."""
    from triton import knobs

    ptx = kernel.compiled_again(capability)
    architecture = re.search(r"\.target (sm_\w+)", ptx)
    if architecture is None:
        raise emulated_cuda.EmulationError(f"{kernel.name}: the PTX names no target")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "kernel.ptx")
        source.write_text(ptx, encoding="utf-8")
        # The options that Triton passes.
        options = ("-v", "--regAllocOptLevel=2", f"--gpu-name={architecture[1]}")
        command = [knobs.nvidia.ptxas.path, *options, str(source), "-o", f"{folder}/kernel.cubin"]
        log = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    return read_log(log, kernel.name)


def read_log(log: str, name: str) -> Usage:
    """The figures of a kernel in the report of ptxas."""
    part = log.partition(f"Compiling entry function '{name}'")[2]
    spilled = re.search(r"(\d+) bytes spill stores", part)
    registers = re.search(r"Used (\d+) registers", part)
    if spilled is None or registers is None:
        raise emulated_cuda.EmulationError(f"ptxas does not report on {name}: {log:.500}")
    return Usage(int(spilled[1]), int(registers[1]))


def load_ceilings() -> Mapping[str, Figures]:
    source = files("verification.gpu").joinpath(CEILINGS)
    try:
        known = tomllib.loads(source.read_text("utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise DamagedFileError(f"{source}: {error}") from error
    for case, figures in known.items():
        for name, value in figures.items():
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise DamagedFileError(f"{source}: {case}.{name} = {value!r} is not a ceiling")
    return known


def ceiling_of(name: str, measured: int) -> int:
    """A ceiling a little above what was measured; counts are exact and get no margin."""
    if name.endswith("registers"):
        return min(-(-(measured + 8) // 8) * 8, 255)  # a GPU hands them out in eights
    return measured + measured // 8 if name.endswith("bytes") else measured


def problems(case: str, measured: Figures, ceilings: Mapping[str, Figures]) -> Iterator[str]:
    """One line for each figure above its ceiling or without one."""
    for name, value in measured.items():
        ceiling = ceilings.get(case, {}).get(name)
        if ceiling is None:
            yield f"{case}: {name} has no ceiling in {CEILINGS}"
        elif value > ceiling:
            yield f"{case}: {name} {value}, above the ceiling of {ceiling}"


def write_ceilings(measured: Mapping[str, Figures], path: Path) -> None:
    lines = [
        "# What compiled kernels may cost at most: the figures of `wefpe gpu kernels`, with some",
        "# margin for registers and spilled bytes. `wefpe gpu kernels --record` writes them anew.",
    ]
    for case, figures in measured.items():
        lines += ["", f'["{case}"]']
        lines += [f"{name} = {ceiling_of(name, value)}" for name, value in figures.items()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def as_row(case: str, measured: Figures, ceilings: Mapping[str, Figures]) -> list[str]:
    """Cells for a table: measured figures, each with its ceiling."""
    known: Mapping[str, Any] = ceilings.get(case, {})
    return [case, *(f"{value} / {known.get(name, '-')}" for name, value in measured.items())]
