"""``wefpe gpu``: the code for GPUs on an emulated CUDA device."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table

from training.cli import NamedCommands
from verification.gpu.ptx_host import Arithmetic, install_device

app = typer.Typer(
    cls=NamedCommands, add_completion=False, rich_markup_mode=None, no_args_is_help=True
)

_OTHER_OPTIONS = {"allow_extra_args": True, "ignore_unknown_options": True}


@app.callback()
def gpu() -> None:
    """Run the code for GPUs on a device that is emulated on the host; see docs/gpu.md."""


@app.command(context_settings=_OTHER_OPTIONS)
def verify(
    context: typer.Context,
    perturb: Annotated[
        int,
        typer.Option(
            metavar="SEED",
            min=0,
            help="Let approximate instructions of the PTX be as wrong as they may be; 0 does not.",
        ),
    ] = 0,
    fuse: Annotated[
        int,
        typer.Option(
            metavar="SEED", min=0, help="Fuse products and sums of the PTX at random; 0 does not."
        ),
    ] = 0,
) -> int:
    """Run wefpe verify where torch sees the emulated device.

    It takes all options of wefpe verify. Rows of this device are named "cuda (emulated)", and
    `--require cuda` still asks for a real one. Operators of torch run its CPU kernels. Where Triton
    is installed, the functions of points are kernels that it compiles, and these run as PTX on the
    host; `--compiled NAME` adds rows of what torch.compile makes of a function.
    """
    install_device(Arithmetic(perturb, fuse) if perturb or fuse else None)
    from training.cli import main

    return main(["verify", *context.args])


@app.command()
def count(
    size: Annotated[
        str, typer.Option(metavar="SIZE", help="The model whose encodings and step are counted.")
    ] = "tiny",
) -> int:
    """Count launches, copies and waits of a training step.

    They are counted for each encoding, on the emulated device. Kernels of Triton are compiled and
    counted, not executed.
    """
    from verification.gpu import emulated_cuda, triton_driver

    triton_driver.install(run=None)
    from training.models.vit import VIT_SIZES
    from verification.bench import count_models, time_models
    from wefpe_core.errors import InputError

    if size not in VIT_SIZES:
        raise InputError(f"--size {size}: the sizes are {', '.join(VIT_SIZES)}")

    def counted(work: Callable[[], object]) -> dict[str, int]:
        work()  # what is compiled or made once
        with emulated_cuda.count_launches() as counts:
            work()
        return {
            "launches": counts.total,
            "to device": counts.host_to_device,
            "to host": counts.device_to_host,
            "waits": counts.synchronisations,
        }

    console = Console(stderr=True)
    with console.status("counting") as status:
        rows = time_models.count(
            time_models.ENTRIES,
            size=size,
            device="cuda",
            compiled=False,
            count_device=counted,
            tell=status.update,
        )
    table = count_models.device_table(rows)
    assert table is not None
    label = emulated_cuda.device_label("cuda")
    table.title = f"Launches, copies and waits of a step on {label}: the encoding alone"
    Console().print(table)
    problems = [f"{row.name}: {row.problem}" for row in rows if row.problem]
    print(*problems, sep="\n", end="\n" if problems else "")
    return 1 if problems else 0


@app.command()
def kernels(
    record: Annotated[
        bool,
        typer.Option("--record", help="Make what is measured the new ceilings (in the checkout)."),
    ] = False,
) -> int:
    """Compile the functions for two GPUs and judge the kernels.

    The table shows each figure and its ceiling: kernels and launches of one call, double-precision
    parameters of single-precision code, and for sm_80 and sm_90 what ptxas reports of the registers
    and spilled bytes, with the leanest of the block sizes that Inductor would try. The exit code is
    1 if a figure is above its ceiling.
    """
    from verification.gpu import kernel_ceilings, triton_driver

    ceilings = {} if record else kernel_ceilings.load_ceilings()
    triton_driver.install(run=None)
    cases = kernel_ceilings.cases()
    measured = {
        case: kernel_ceilings.measure(run)
        for case, run in track(cases.items(), "compiling", console=Console(stderr=True))
    }
    if record:
        path = Path(kernel_ceilings.__file__).with_name(kernel_ceilings.CEILINGS)
        kernel_ceilings.write_ceilings(measured, path)
        print(f"ceilings written to {path}")
        ceilings = kernel_ceilings.load_ceilings()
    table = Table(title="Kernels for cuda (emulated): measured / ceiling", box=box.SIMPLE_HEAD)
    for heading in ("call", *next(iter(measured.values()))):
        table.add_column(heading.replace("_", " "), overflow="fold")
    failures: list[str] = []
    for case, figures in measured.items():
        table.add_row(*kernel_ceilings.as_row(case, figures, ceilings))
        failures += kernel_ceilings.problems(case, figures, ceilings)
    Console(width=None if sys.stdout.isatty() else 150).print(table)
    print(*(f"FAILS {failure}" for failure in failures), sep="\n", end="\n" if failures else "")
    print(f"{len(measured)} calls measured, {len(failures)} failures")
    return 1 if failures else 0
