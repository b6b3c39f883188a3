"""``wefpe evaluate``: the weights of a finished run on images of any size."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console


def evaluate(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished run.")],
    split: Annotated[
        Literal["validation", "test"], typer.Option(help="Which images of the run's data.")
    ] = "validation",
    image_size: Annotated[
        str | None,
        typer.Option(
            metavar="PIXELS|HEIGHTxWIDTH",
            help="Resize the images to this, as in 48 or 32x48; theirs if not given.",
        ),
    ] = None,
    batch_size: Annotated[
        int, typer.Option(min=1, metavar="N", help="Images at a time, of all processes together.")
    ] = 256,
) -> int:
    """Evaluate the selected weights of a run, on one device or on many.

    On many, each process takes a share of every batch: torchrun -m training.cli evaluate ...
    Every evaluation is appended to evaluations.jsonl in the folder. The result of the run itself
    stays what it was: the test set counts once.
    """
    from accelerate import PartialState

    from training.engine.finished_run import evaluate_run
    from training.parsing import read_image_size

    size = None if image_size is None else read_image_size(image_size)
    scores = evaluate_run(folder, split, image_size=size, batch_size=batch_size)
    found = f"{split} {scores.metric.title} {scores.value:.2%}, "
    found += "" if scores.top5 is None else f"top-5 {scores.top5:.2%}, "
    found += f"loss {scores.loss:.4f}, {scores.images:,} images, {scores.seconds:.1f} s"
    found += f", {scores.images_per_second:,.0f} images/s"
    if scores.peak_memory_mb is not None:
        found += f", peak memory {scores.peak_memory_mb:,.0f} MB"
    if PartialState().is_main_process:
        Console(soft_wrap=True).print(found, highlight=False)
    return 0
