"""A finished run, opened again: its config, its data, and the model with the selected weights."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from textwrap import shorten
from typing import Any, Literal

import torch
from torch import nn

from training.config import Experiment, change_config, load_config
from training.data import Splits, open_data
from training.encodings import AbstractEncoding
from training.encodings.learned import Resampling, resampling_of, set_resampling
from training.engine.evaluation import Scores, evaluate
from training.engine.run import build_accelerator
from training.engine.run_folder import RunFolder, append_line
from training.errors import RunError
from training.models import HybridVisionTransformer, VisionTransformer
from training.models.building import build_model, build_position_encoding
from training.models.checkpoint_files import CheckpointError, read_weights
from training.parsing import ImageSize, grid_of_size


@dataclass(frozen=True)
class FinishedRun:
    """A finished run. `splits` are its data as in training; `model` has the selected weights."""

    folder: RunFolder
    experiment: Experiment
    splits: Splits
    model: VisionTransformer | HybridVisionTransformer

    def splits_at(self, image_size: ImageSize | None) -> Splits:
        """The same images at another size, normalised as they were in training.

        Resized images have other means and deviations, which the model has never seen.
        """
        if image_size is None:
            return self.splits
        normalise = self.splits.normalise
        statistics = {"mean": normalise.mean, "std": normalise.std}
        data = self.experiment.data.model_copy(update=statistics)
        return open_data(data, self.experiment.seed, image_size=image_size)


def config_of_run(path: Path) -> Experiment:
    """The config of the run in a folder, finished or not."""
    folder = RunFolder(path)
    if not folder.config.exists():
        reason = f"there is no {folder.config.name}" if path.is_dir() else "there is no such folder"
        raise RunError(f"{path} holds no run: {reason}")
    return load_config(folder.config)


def config_of_finished_run(path: Path) -> Experiment:
    """The config of the run in a folder, or `RunError` if the run has no weights yet."""
    experiment = config_of_run(path)
    weights = RunFolder(path).weights
    if not weights.exists():
        raise RunError(
            f"{path} is not finished: there is no {weights.name}; --resume goes on with it"
        )
    return experiment


def check_validation(path: Path, experiment: Experiment) -> None:
    """Raise `RunError` unless a run held out validation images and never trained on them."""
    if not experiment.data.validation:
        raise RunError(f"{path} held out no validation images (data.validation=0)")
    if experiment.selection.retrain_on_all:
        raise RunError(
            f"{path} was trained on its validation images in the end "
            "(selection.retrain_on_all=true); evaluate it with --split test"
        )


def open_finished_run(path: Path) -> FinishedRun:
    """The finished run in a folder; its model is in evaluation mode on the CPU."""
    experiment, folder = config_of_finished_run(path), RunFolder(path)
    splits = open_data(experiment.data, experiment.seed)
    model = build_model(experiment, len(splits.class_names), splits.channels, pretrained=False)
    load_weights(model, folder.weights)
    return FinishedRun(folder, experiment, splits, model.eval())


def open_trained_encoding(path: str | Path) -> AbstractEncoding:
    """The position encoding of a finished run as it was trained; needs no data set.

    `path` is the folder of the run, or its file of weights, beside which its config lies. The
    encoding is in evaluation mode on the CPU.
    """
    path = Path(path)
    folder = RunFolder(path.parent if path.is_file() else path)
    experiment = config_of_finished_run(folder.path)
    weights = path if path.is_file() else folder.weights
    with torch.random.fork_rng(devices=[]):
        encoding = build_position_encoding(experiment)
    load_weights(encoding, weights, within="encoding.")
    return encoding.eval()


def load_weights(module: nn.Module, path: Path, within: str = "") -> None:
    """Load the weights of a model from the file of a run.

    `within` is the prefix of the names in the file that belong to `module`, for a module that is a
    part of the model. `RunError` names a file that cannot be read or does not fit.
    """
    try:
        tensors, _ = read_weights(path)
    except CheckpointError as error:
        raise RunError(f"{error}; train the run again") from error
    try:
        own = {key.removeprefix(within): t for key, t in tensors.items() if key.startswith(within)}
        module.load_state_dict(own)
    except RuntimeError as error:  # torch lists every key on a line of its own
        reasons = shorten(" ".join(str(error).split()), 300, placeholder=" ...")
        raise RunError(f"{path} does not fit the config of its run: {reasons}") from error


# --- Evaluating again ----------------------------------------------------------------------

Split = Literal["validation", "test"]


def evaluate_run(
    path: Path, split: Split, *, image_size: ImageSize | None = None, batch_size: int = 256
) -> Scores:
    """Evaluate the finished run in a folder and append the scores to its ``evaluations.jsonl``."""
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
    """Evaluate a run that is open already, and append the scores to its ``evaluations.jsonl``.

    Parameters
    ----------
    run : FinishedRun
    split : {"validation", "test"}
    image_size : int or (int, int), optional
        The side of a square, or (height, width); the size of the run if not given.
    resampling : str, optional
        How a learned table is resampled to that size; as in the config of the run if not given.
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
    accelerator = build_accelerator(_evaluable_here(run.experiment))
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
    row |= {"image_size": image_size, **scores.numbers()}
    row |= {} if resampling is None else {"resampling": resampling}
    row |= {"images": scores.images, "images_per_second": scores.images_per_second}
    row |= {"peak_memory_mb": scores.peak_memory_mb, "processes": accelerator.num_processes}
    if accelerator.is_main_process:
        append_line(run.folder.evaluations, row)
    accelerator.wait_for_everyone()
    return scores


def _evaluable_here(experiment: Experiment) -> Experiment:
    """The experiment, in full precision where half precision needs a GPU that is not there."""
    if experiment.training.precision == "fp16" and not torch.cuda.is_available():
        return change_config(experiment, ["training.precision=no"])
    return experiment
