"""``wefpe gpu``: the code for GPUs on an emulated CUDA device."""

from __future__ import annotations

from typing import Annotated

import typer

from verification.gpu import emulated_cuda

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
)

_OTHER_OPTIONS = {"allow_extra_args": True, "ignore_unknown_options": True}


@app.callback()
def gpu() -> None:
    """Run the code for GPUs on a device that is emulated on the host; see docs/gpu.md."""


@app.command(context_settings=_OTHER_OPTIONS)
def verify(
    context: typer.Context,
    ptx: Annotated[
        bool,
        typer.Option("--ptx", help="Run compiled functions as PTX on the host; needs Triton."),
    ] = False,
    perturb: Annotated[
        int,
        typer.Option(
            metavar="SEED",
            min=0,
            help="Let approximate instructions of the PTX be as wrong as they may be.",
        ),
    ] = 0,
    fuse: Annotated[
        int,
        typer.Option(metavar="SEED", min=0, help="Fuse multiplications and additions at random."),
    ] = 0,
) -> int:
    """Run wefpe verify where torch sees the emulated device; takes all of its options.

    Rows of this device are named "cuda (emulated)": they are results of the CPU kernels of torch,
    and `--require cuda` still asks for a real one. With --ptx the rows of compiled functions (see
    --compiled of wefpe verify) are results of the code that a GPU would run.
    """
    if ptx:
        from verification.gpu.ptx_host import Arithmetic, PtxOnTheHost
        from verification.gpu.triton_driver import install

        install(PtxOnTheHost(Arithmetic(perturb, fuse)))
    elif perturb or fuse:
        raise typer.BadParameter("--perturb and --fuse change the PTX, so they need --ptx")
    else:
        emulated_cuda.install()
    from training.cli import main

    return main(["verify", *context.args])
