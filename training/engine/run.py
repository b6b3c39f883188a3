"""A whole run: from a config to a folder with weights, curves and one number on the test set.

What is selected is selected on images held out of training; the test set is opened once, after
the last decision. With ``selection.retrain_on_all`` the run has two parts, as VTAB-1k prescribes:
``search`` chooses the number of epochs on the validation images, ``final`` trains anew on all of
them for so many.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator, DistributedType
from rich.console import Console
from torch import nn

from training.augmentation import Augmentation, Normalisation
from training.config import (
    Experiment,
    config_hash,
    differences,
    dump_toml,
    load_config,
)
from training.data import BatchPlan, ImageSource, Splits, TrainingFeed, open_data
from training.engine import checkpoints
from training.engine.environment import circumstances, peak_memory_mb
from training.engine.logs import Display, JsonLines, Listener, TensorBoard
from training.engine.run_folder import FINAL, SEARCH, RunFolder, write_whole
from training.engine.run_report import draw_curves, write_report
from training.engine.trainer import Position, Trainer
from training.errors import RunError
from training.models import LoadReport
from training.models.building import build_model, check_before_run

_SUPPORTED = (DistributedType.NO, DistributedType.MULTI_CPU, DistributedType.MULTI_GPU)


@dataclass(frozen=True)
class Part:
    """One training within a run."""

    title: str
    folder: RunFolder
    train: ImageSource
    validation: ImageSource | None
    epochs: int


def build_accelerator(experiment: Experiment) -> Accelerator:
    """The processes and devices of this run, as the launcher set them up."""
    has_gpu = torch.cuda.is_available()
    if experiment.training.precision == "fp16" and not has_gpu:
        raise RunError("training.precision='fp16' needs a GPU; 'bf16' and 'no' also run on a CPU")
    if experiment.training.threads:
        torch.set_num_threads(experiment.training.threads)
    accelerator = Accelerator(mixed_precision=experiment.training.precision, cpu=not has_gpu)
    if accelerator.distributed_type not in _SUPPORTED:
        raise RunError(
            f"{accelerator.distributed_type.value} is not supported: a checkpoint would hold one "
            "process's share of the model. Launch with plain data parallelism (torchrun, or "
            "accelerate launch without FSDP or DeepSpeed)"
        )
    return accelerator


def open_folder(experiment: Experiment, path: Path, *, resume: bool) -> RunFolder:
    """Claim a folder for a run, or find the run in it that is to go on.

    Raises
    ------
    RunError
        There is a run already and `resume` is false, or it is one of another config; the message
        names the keys that differ.
    """
    folder = RunFolder(path)
    if folder.is_free():  # also after a start that failed, which the command may have caused
        write_whole(folder.config, dump_toml(experiment))
        return folder
    if not folder.config.exists():
        raise RunError(f"{path} is not empty and holds no run; choose another --folder")
    if not resume:
        raise RunError(f"{path} holds a run already; --resume goes on with it")
    before = load_config(folder.config)
    if config_hash(before) != config_hash(experiment):
        changed = "; ".join(differences(before, experiment))
        raise RunError(f"{path} holds a run of another config: {changed}")
    return folder


def run(
    experiment: Experiment, path: Path, *, resume: bool = False, console: Console | None = None
) -> dict[str, Any]:
    """Train, select, test once, draw; returns what `result.json` holds.

    A finished run is not repeated: its result is returned.
    """
    console = console or Console(stderr=True)
    check_before_run(experiment)
    accelerator = build_accelerator(experiment)
    splits = open_data(experiment.data, experiment.seed)
    is_main = accelerator.is_main_process
    with accelerator.main_process_first():
        folder = open_folder(experiment, path, resume=resume) if is_main else RunFolder(path)
    with folder.locked() if is_main else nullcontext():
        result = folder.read_result()
        if result is None:
            result = _train_and_test(experiment, folder, splits, accelerator, console)
        else:
            _say(accelerator, console, f"{path} is finished: nothing to do")
        if is_main and not folder.report.exists():
            draw_curves(folder)
            write_report(folder, experiment, result)
        accelerator.wait_for_everyone()
    accelerator.end_training()
    return result


def _train_and_test(
    experiment: Experiment,
    folder: RunFolder,
    splits: Splits,
    accelerator: Accelerator,
    console: Console,
) -> dict[str, Any]:
    position, trainer = Position(), None
    for part in parts(experiment, folder, splits):
        epochs = position.best_epoch or part.epochs  # the final part follows the search
        trainer = _trainer(experiment, part, splits.normalise, epochs, accelerator, console)
        _say(accelerator, console, f"{part.title}: {part.train.description}, {epochs} epochs")
        position = trainer.fit()
    assert trainer is not None
    if accelerator.is_main_process:  # first: a damaged test image must not cost them
        checkpoints.save_weights(trainer.best_model, folder.weights)
    scores = trainer.evaluate(splits.open_test())
    result = {
        "config_hash": config_hash(experiment),
        "seed": experiment.seed,
        "encoding": experiment.position_encoding.name,
        "epochs": position.epoch,
        "selected_epoch": trainer.selected_epoch,
        "validation_accuracy": trainer.selected_accuracy,
        "test_accuracy": scores.accuracy,
        "test_loss": scores.loss,
        "test_images": scores.images,
        "parameters": count_parameters(trainer.plain_model),
        "training_seconds": position.seconds,
        "peak_memory_mb": peak_memory_mb(),
        "circumstances": circumstances(accelerator),
    }
    if accelerator.is_main_process:
        folder.write_result(result)
    accuracy = f"test accuracy {scores.accuracy:.2%} of {scores.images:,} images"
    _say(accelerator, console, f"{accuracy}; report, curves and weights are in {folder.path}")
    return result


def parts(experiment: Experiment, folder: RunFolder, splits: Splits) -> Sequence[Part]:
    """The trainings of a run, in order."""
    epochs, by_validation = experiment.training.epochs, experiment.selection.by == "validation"
    if by_validation and splits.validation is None:
        raise RunError(
            "selection.by='validation' needs validation images: set data.validation above 0, or "
            "selection.by='last'"
        )
    if not experiment.selection.retrain_on_all:
        return [Part("training", folder, splits.train, splits.validation, epochs)]
    if not by_validation:
        raise RunError("selection.retrain_on_all=true needs selection.by='validation'")
    return [
        Part(SEARCH, folder.part(SEARCH), splits.train, splits.validation, epochs),
        Part(FINAL, folder.part(FINAL), splits.train_and_validation, None, epochs),
    ]


def _trainer(
    experiment: Experiment,
    part: Part,
    normalise: Normalisation,
    epochs: int,
    accelerator: Accelerator,
    console: Console,
) -> Trainer:
    part.folder.path.mkdir(parents=True, exist_ok=True)
    share, pieces = (
        experiment.training.batch_size // accelerator.num_processes,
        experiment.training.accumulation,
    )
    if share < pieces:
        raise RunError(
            f"training.accumulation={pieces} parts of the {share} images of each of "
            f"{accelerator.num_processes} processes would leave some empty"
        )
    plan = BatchPlan(
        size=len(part.train),
        batch_size=experiment.training.batch_size,
        seed=experiment.seed,
        rank=accelerator.process_index,
        processes=accelerator.num_processes,
    )
    augmentation = Augmentation(
        experiment.augmentation,
        normalise,
        classes=len(part.train.class_names),
        warmup_epochs=experiment.schedule.warmup_epochs,
    )
    feed = TrainingFeed(part.train, plan, augmentation, accelerator.device)

    def note_loaded(report: LoadReport) -> None:
        _say(accelerator, console, str(report))
        if accelerator.is_main_process:
            write_whole(part.folder.pretrained, f"{report}\n")

    model = build_model(
        experiment, len(part.train.class_names), part.train.channels, on_load=note_loaded
    )
    listeners: list[Listener] = [JsonLines(part.folder), Display(console, part.title)]
    if experiment.logging.tensorboard:
        listeners.append(TensorBoard(part.folder))
    return Trainer(
        experiment,
        model,
        feed,
        part.validation,
        part.folder,
        epochs=epochs,
        accelerator=accelerator,
        listeners=listeners,
    )


def count_parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def _say(accelerator: Accelerator, console: Console, text: str) -> None:
    if accelerator.is_main_process:
        console.print(text, highlight=False, markup=False)
