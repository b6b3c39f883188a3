"""``wefpe gpu``: the code for GPUs on an emulated CUDA device."""

from __future__ import annotations

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
def verify(context: typer.Context) -> int:
    """Run wefpe verify where torch sees the emulated device; takes all of its options.

    Rows of this device are named "cuda (emulated)": they are results of the CPU kernels of torch,
    and `--require cuda` still asks for a real one.
    """
    emulated_cuda.install()
    from training.cli import main

    return main(["verify", *context.args])
