"""The weights of a finished run, loaded again and evaluated."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import torch

from training.configuration import Experiment, change_config
from training.data.image_sizes import ImageSize, grid_of_size
from training.encodings.resampling import Resampling, resampling_of, set_resampling
from training.engine.evaluation import evaluate
from training.engine.finished_run import FinishedRun, check_validation, open_finished_run
from training.engine.metrics import Scores
from training.engine.run_folder import append_line
from training.engine.runs import build_accelerator

Split = Literal["validation", "test"]


def evaluate_run(
    path: Path, split: Split, *, image_size: ImageSize | None = None, batch_size: int = 256
) -> Scores:
    """Scores of a finished run on a split, appended to its ``evaluations.jsonl``."""
    return evaluate_opened(
        open_finished_run(path), split, image_size=image_size, batch_size=batch_size
    )


def evaluate_opened(
    run: FinishedRun,
    split: Split,
    *,
    image_size: ImageSize | None = None,
    resampling: Resampling | None = None,
    batch_size: int = 256,
) -> Scores:
    """The same of a run that is open already.

    Parameters
    ----------
    run : FinishedRun
    split : {"validation", "test"}
    image_size : int or (int, int), optional
        A square, or (height, width); that of the run if not given.
    resampling : str, optional
        How a learned table is brought to that size, if not as the config of the run says.
    batch_size : int
    """
    if image_size is not None:
        grid_of_size(image_size, run.model.patch_embed.patch_size)
    splits = run.splits_at(image_size)
    if split == "test":
        source = splits.open_test()
    else:
        check_validation(run.folder.path, run.experiment)
        assert splits.validation is not None
        source = splits.validation
    accelerator = build_accelerator(_able(run.experiment))
    model = run.model.to(accelerator.device)
    usual = resampling_of(model.encoding)
    if resampling is not None:
        set_resampling(model.encoding, resampling)
    try:
        scores = evaluate(model, source, splits.normalise, batch_size, accelerator)
    finally:
        if resampling is not None and usual is not None:
            set_resampling(model.encoding, usual)
    row: dict[str, Any] = {"when": datetime.now(UTC).isoformat(timespec="seconds"), "split": split}
    row |= {"image_size": image_size, "accuracy": scores.accuracy, "loss": scores.loss}
    row |= {} if resampling is None else {"resampling": resampling}
    append_line(run.folder.evaluations, row | {"images": scores.images})
    return scores


def _able(experiment: Experiment) -> Experiment:
    """The experiment as this machine can evaluate it: half precision needs a GPU."""
    if experiment.training.precision == "fp16" and not torch.cuda.is_available():
        return change_config(experiment, ["training.precision=no"])
    return experiment
