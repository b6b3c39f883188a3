"""Published weights on a folder of images, with the head they came with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from accelerate import Accelerator

from training.augmentation import Normalisation
from training.data.encoded import Reading, worker_count
from training.data.folders import open_class_folder
from training.engine.evaluation import Scores, evaluate
from training.errors import DataError, DataNotFoundError
from training.models.published import open_published
from training.parsing import grid_of_size


def score_published(
    weights: str | Path,
    images: Path,
    changes: Mapping[str, Any] | None = None,
    *,
    num_heads: int | None = None,
    batch_size: int = 64,
    workers: int | None = None,
    damaged: Literal["stop", "blank"] = "stop",
    say: Callable[[str], object] = lambda line: None,
) -> tuple[Scores, Mapping[str, str]]:
    """The scores of published weights on a folder of class folders, and the damaged images.

    `changes` are fields of `training.models.published.Preparation` that replace those of the
    weights. The classes of the folder must be as many as the head has.
    """
    if not images.is_dir():
        raise DataNotFoundError(f"{images} is not a folder")
    model, preparation, is_told = open_published(weights, num_heads=num_heads)
    preparation = replace(preparation, **dict(changes or {}))
    grid_of_size(preparation.image_size, model.patch_embed.patch_size)
    guessed = "" if is_told else " (guessed: there is no config.json beside the weights)"
    say(f"images: {preparation}{guessed}")
    reading = Reading(
        preparation.image_size,
        preparation.resize,
        preparation.interpolation,
        damaged,
        worker_count(workers),
    )
    source = open_class_folder(images / "val" if (images / "val").is_dir() else images, reading)
    classes = model.head.out_features
    if classes != len(source.class_names):
        raise DataError(
            f"the head of {weights} has {classes} classes, {source.description} "
            f"{len(source.class_names)}: their labels would not be the same"
        )
    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    size = (preparation.image_size, preparation.image_size)
    normalise = Normalisation(preparation.mean, preparation.std, size=size, channels=3)
    model = model.to(accelerator.device)
    return evaluate(model, source, normalise, batch_size, accelerator), source.damaged
