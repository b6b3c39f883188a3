"""``wefpe evaluate``: the weights of a finished run on images of any size."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console


def evaluate(
    folder: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
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
    batch_size: Annotated[int, typer.Option(min=1, help="Images at a time.")] = 256,
) -> int:
    """Evaluate the selected weights of a run.

    Every evaluation is appended to evaluations.jsonl in the folder. The result of the run itself
    stays what it was: the test set counts once.
    """
    from training.engine.finished_run import evaluate_run
    from training.parsing import read_image_size

    size = None if image_size is None else read_image_size(image_size)
    began = time.perf_counter()
    scores = evaluate_run(folder, split, image_size=size, batch_size=batch_size)
    seconds = time.perf_counter() - began
    found = f"{split} accuracy {scores.accuracy:.2%}, loss {scores.loss:.4f}"
    Console().print(f"{found}, {scores.images:,} images, {seconds:.1f} s", highlight=False)
    return 0
