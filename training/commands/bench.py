"""``wefpe bench``: time backends, models, the training engine and its data beside their peers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from training.cli import NamedCommands


class BackendsByDefault(NamedCommands):
    """A group that runs ``backends`` if the first word names no benchmark."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = ["backends", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=BackendsByDefault,
    add_completion=False,
    rich_markup_mode=None,
    help="Time the backends, the models, the training engine or its data beside their peers. "
    "Without a word the backends are timed.",
)

Device = Annotated[Literal["cpu", "cuda"], typer.Option(help="Where torch runs.")]
Only = Annotated[str, typer.Option(metavar="TEXT", help="Time only what has TEXT in its name.")]
JsonFile = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Write every sample to this file.")
]
Check = Annotated[bool, typer.Option("--check", help="Exit with 1 if a promise is not kept.")]
Repeat = Annotated[int, typer.Option(min=1, metavar="N", help="Samples of each work.")]
Batch = Annotated[int, typer.Option(min=1, metavar="N", help="Images in a step.")]


@app.command()
def backends(
    points: Annotated[
        int, typer.Option(min=1, metavar="N", help="Points of fast work.")
    ] = 1_000_000,
    repeat: Repeat = 10,
    device: Device = "cpu",
    only: Only = "",
    json: JsonFile = None,
    check: Check = False,
) -> int:
    """Time the backends beside their peers, as multiples of numpy.exp.

    Samples of each work alternate with samples of the yardstick that last as long, on one thread,
    and the best of each counts. On the CPU the clock is the processor time of this process.
    """
    from verification.bench import time_backends

    return time_backends.run(
        points=points, repeat=repeat, device=device, only=only, json=json, check=check
    )


@app.command()
def models(
    batch: Batch = 64,
    repeat: Repeat = 3,
    size: Annotated[str, typer.Option(metavar="SIZE", help="The size of the ViT.")] = "tiny",
    device: Device = "cpu",
    only: Only = "",
    json: JsonFile = None,
    check: Check = False,
    compiled: Annotated[
        bool, typer.Option(help="Compile each encoding too and count its kernels: some minutes.")
    ] = True,
) -> int:
    """Time steps of a ViT with each encoding, and of timm's.

    A step is forward, cross-entropy, backward and AdamW on one batch, in float32 on one thread
    without a compiler. The steps of all entries take turns, and the best of each counts. The
    encoding alone is all it computes in one step of that batch, forward and backward. What a step
    costs beyond both is what the model does with the encoding: a bias takes attention off its
    fastest path.

    A second table counts the operators of the encoding alone, forward and backward, because each
    costs a launch on a GPU: for one layer of the model, which has a budget, and for all layers,
    beside those of the model without the optimiser. Operators are what torch dispatches; those
    that are no views launch. Counts do not depend on the machine or the batch.
    """
    from verification.bench import time_models

    return time_models.run(
        batch=batch,
        repeat=repeat,
        size=size,
        device=device,
        only=only,
        json=json,
        check=check,
        compiled=compiled,
    )


@app.command()
def training(
    batch: Batch = 64,
    steps: Annotated[int, typer.Option(min=1, metavar="N", help="Steps in an epoch.")] = 30,
    repeat: Annotated[int, typer.Option(min=1, metavar="N", help="Epochs of each work.")] = 3,
    threads: Annotated[int, typer.Option(min=1, metavar="N", help="Threads of torch.")] = 1,
    check: Check = False,
) -> int:
    """Time the training engine beside a plain loop.

    Both train a ViT of the same shape, the loop timm's, on the same augmented batches, one epoch at
    a time and in turns; the best epoch of each counts, by the clock on the wall. The share of the
    data is what preparing the batches takes alone.
    """
    from verification.bench import time_training

    return time_training.run(batch=batch, steps=steps, repeat=repeat, threads=threads, check=check)


@app.command()
def data(
    images: Annotated[
        int, typer.Option(min=20, metavar="N", help="Photographs to generate.")
    ] = 2000,
    folder: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Keep them here, and take those that are there."),
    ] = None,
    batch: Batch = 64,
    repeat: Annotated[int, typer.Option(min=1, metavar="N", help="Passes of each loader.")] = 2,
    check: Check = False,
) -> int:
    """Time reading JPEGs beside timm's loader.

    The photographs have 500 x 375 pixels; 1 and 2 workers read them. Both loaders cut random
    windows of 224 x 224, flip and normalise, on the CPU and by turns; the best pass of each counts,
    by the clock on the wall. Processor time counts all threads and processes, and depends less on
    what else the machine does. The memory that a listed file takes is measured with 100,000 files.
    """
    from verification.bench import time_data

    return time_data.run(images=images, folder=folder, batch=batch, repeat=repeat, check=check)
