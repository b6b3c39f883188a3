"""``wefpe score``: published weights with their own head, on a folder of class folders."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

PerChannel = Annotated[str | None, typer.Option(metavar="R,G,B", help="Of pixels from 0 to 1.")]


def score(
    weights: Annotated[
        str,
        typer.Argument(
            metavar="WEIGHTS", help="A file of weights with timm's names, or hf-hub:OWNER/NAME."
        ),
    ],
    images: Annotated[
        Path,
        typer.Argument(
            metavar="IMAGES", help="A folder of class folders, or one with such a folder val/."
        ),
    ],
    image_size: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="PIXELS", help="Side of what the model sees; that of the weights."
        ),
    ] = None,
    crop_pct: Annotated[
        float | None,
        typer.Option(
            min=0.01, max=1.0, metavar="SHARE", help="Share of the shorter side that is cut out."
        ),
    ] = None,
    interpolation: Annotated[
        Literal["bilinear", "bicubic"] | None, typer.Option(help="How images are resized.")
    ] = None,
    mean: Annotated[
        str | None, typer.Option(metavar="R,G,B", help="Of pixels from 0 to 1.")
    ] = None,
    std: Annotated[str | None, typer.Option(metavar="R,G,B", help="Of pixels from 0 to 1.")] = None,
    heads: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Heads of attention; one for each 64 channels."),
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, metavar="N", help="Images at a time.")] = 64,
    workers: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Threads that decode; one for each core.")
    ] = None,
    damaged: Annotated[
        Literal["stop", "blank"],
        typer.Option(help="An image that cannot be decoded: stop, or count it as a grey one."),
    ] = "stop",
) -> int:
    """Score published ImageNet weights: top-1, top-5 and loss.

    The classes are the folders in alphabetical order, as ImageNet's are. A config.json beside the
    weights, as timm's have, says how images are prepared; options win over it.
    """
    from training.engine.scoring import score_published
    from training.parsing import read_numbers

    chosen = {
        "image_size": image_size,
        "crop_share": crop_pct,
        "interpolation": interpolation,
        "mean": None if mean is None else read_numbers("--mean", mean),
        "std": None if std is None else read_numbers("--std", std),
    }
    console = Console(highlight=False, soft_wrap=True)
    began = time.perf_counter()
    scores, damaged_images = score_published(
        weights,
        images,
        {key: value for key, value in chosen.items() if value is not None},
        num_heads=heads,
        batch_size=batch_size,
        workers=workers,
        damaged=damaged,
        say=console.print,
    )
    seconds = time.perf_counter() - began
    for name, reason in sorted(damaged_images.items()):
        console.print(f"{name} is damaged and was blank: {reason}")
    top5 = "" if scores.top5 is None else f", top-5 {scores.top5:.2%}"
    console.print(
        f"top-1 {scores.accuracy:.2%}{top5}, loss {scores.loss:.4f}, {scores.images:,} images "
        f"({len(damaged_images):,} damaged), {scores.images / seconds:.0f} images/s"
    )
    return 0
