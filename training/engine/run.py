"""A whole run: from a config to a folder with weights, curves and one number on the test set.

Weights are selected on images held out of training, and the test set is opened once, after the last
decision. With ``selection.retrain_on_all`` the run has two phases, as VTAB-1k prescribes:
``search`` finds the best number of epochs on the validation images, and ``final`` trains a new
model on all images for that many epochs.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator, DistributedType
from rich.console import Console

from training.augmentation import Augmenter, Normalisation
from training.config import (
    Experiment,
    config_hash,
    differences,
    dump_toml,
    load_config,
)
from training.data import BatchPlan, ImageSource, Splits, TrainingFeed, open_data
from training.engine import checkpoints
from training.engine.logs import Display, JsonLines, Listener, TensorBoard
from training.engine.run_folder import FINAL, SEARCH, RunFolder, same_config, write_whole
from training.engine.run_report import draw_curves, write_report
from training.engine.trainer import Trainer
from training.errors import RunError
from training.models import LoadReport
from training.models.building import build_model, check_before_run
from wefpe_core.reporting import git_commit, package_versions, peak_memory_mb, processor_name

_SUPPORTED = (DistributedType.NO, DistributedType.MULTI_CPU, DistributedType.MULTI_GPU)
_PACKAGES = ("wefpe", "torch", "numpy", "accelerate")


def run(
    experiment: Experiment, path: Path, *, resume: bool = False, console: Console | None = None
) -> dict[str, Any]:
    """Train, select, test once and draw the curves; returns what ``result.json`` holds.

    A finished run is not repeated: its result is returned.
    """
    check_before_run(experiment)
    accelerator = build_accelerator(experiment)
    splits = open_data(experiment.data, experiment.seed)
    is_main = accelerator.is_main_process
    console = (console or Console(stderr=True)) if is_main else Console(quiet=True)
    with accelerator.main_process_first():
        folder = open_folder(experiment, path, resume=resume) if is_main else RunFolder(path)
    with folder.locked() if is_main else nullcontext():
        result = folder.read_result()
        if result is None:
            result = _train_and_test(experiment, folder, splits, accelerator, console)
        else:
            console.out(f"{path} is finished: nothing to do", highlight=False)
        if is_main and not folder.report.exists():
            draw_curves(folder)
            write_report(folder, experiment, result)
        accelerator.wait_for_everyone()
    accelerator.end_training()
    return result


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
    """Claim a folder for a new run, or find the run in it that is to be resumed.

    Raises
    ------
    RunError
        The folder holds a run and `resume` is false, or a run of another config. The message
        then names the keys that differ.
    """
    folder = RunFolder(path)
    if folder.is_free():  # also after a start that failed and left its config
        write_whole(folder.config, dump_toml(experiment))
        return folder
    if not folder.config.exists():
        raise RunError(f"{path} is not empty and holds no run; choose another --folder")
    if not resume:
        raise RunError(f"{path} holds a run already; --resume goes on with it")
    if not same_config(folder, experiment):
        changed = "; ".join(differences(load_config(folder.config), experiment))
        raise RunError(f"{path} holds a run of another config: {changed}")
    return folder


def _train_and_test(
    experiment: Experiment,
    folder: RunFolder,
    splits: Splits,
    accelerator: Accelerator,
    console: Console,
) -> dict[str, Any]:
    epochs = experiment.training.epochs
    for phase in _phases(experiment, folder, splits):
        trainer = _build_trainer(experiment, phase, splits.normalise, epochs, accelerator, console)
        description = f"{phase.title}: {phase.train.description}, {epochs} epochs"
        console.out(description, highlight=False)
        progress = trainer.fit()
        epochs = progress.best_epoch or epochs  # the final phase takes what the search found
    if accelerator.is_main_process:  # before the test: a damaged test image must not cost them
        checkpoints.save_weights(trainer.evaluated_model, folder.weights)
    scores = trainer.evaluate(splits.open_test())
    model = trainer.unwrapped_model
    result = {
        "config_hash": config_hash(experiment),
        "seed": experiment.seed,
        "encoding": experiment.position_encoding.name,
        "epochs": progress.epoch,
        "selected_epoch": trainer.selected_epoch,
        "validation_accuracy": trainer.selected_accuracy,
        "test_accuracy": scores.accuracy,
        "test_loss": scores.loss,
        "test_images": scores.images,
        "parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "training_seconds": progress.seconds,
        "peak_memory_mb": _peak_memory_mb(),
        "circumstances": _environment_facts(accelerator),
    }
    if accelerator.is_main_process:
        folder.write_result(result)
    accuracy = f"test accuracy {scores.accuracy:.2%} of {scores.images:,} images"
    console.out(f"{accuracy}; report, curves and weights are in {folder.path}", highlight=False)
    return result


def _environment_facts(accelerator: Accelerator) -> dict[str, Any]:
    """What a reader has to know to repeat a run, or to judge how far bits may differ."""
    return {
        "commit": git_commit(Path(__file__).parent),
        "versions": package_versions(_PACKAGES),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": processor_name(),
        "device": str(accelerator.device),
        "processes": accelerator.num_processes,
        "threads": torch.get_num_threads(),
    }


def _peak_memory_mb() -> float | None:
    """Of the GPU where there is one, else of this process; None where the system does not tell."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 1e6
    return peak_memory_mb()


@dataclass(frozen=True)
class Phase:
    """One training within a run."""

    title: str
    folder: RunFolder
    train: ImageSource
    validation: ImageSource | None


def _phases(experiment: Experiment, folder: RunFolder, splits: Splits) -> Sequence[Phase]:
    """The trainings of a run, in order; at least one."""
    by_validation = experiment.selection.by == "validation"
    if by_validation and splits.validation is None:
        raise RunError(
            "selection.by='validation' needs validation images: set data.validation above 0, or "
            "selection.by='last'"
        )
    if not experiment.selection.retrain_on_all:
        return [Phase("training", folder, splits.train, splits.validation)]
    if not by_validation:
        raise RunError("selection.retrain_on_all=true needs selection.by='validation'")
    return [
        Phase(SEARCH, folder.phase(SEARCH), splits.train, splits.validation),
        Phase(FINAL, folder.phase(FINAL), splits.train_and_validation, None),
    ]


def _build_trainer(
    experiment: Experiment,
    phase: Phase,
    normalise: Normalisation,
    epochs: int,
    accelerator: Accelerator,
    console: Console,
) -> Trainer:
    phase.folder.path.mkdir(parents=True, exist_ok=True)
    share = experiment.training.batch_size // accelerator.num_processes
    pieces = experiment.training.accumulation
    if share < pieces:
        raise RunError(
            f"training.accumulation={pieces} parts of the {share} images of each of "
            f"{accelerator.num_processes} processes would leave some parts empty"
        )
    plan = BatchPlan(
        size=len(phase.train),
        batch_size=experiment.training.batch_size,
        seed=experiment.seed,
        rank=accelerator.process_index,
        processes=accelerator.num_processes,
    )
    classes = len(phase.train.class_names)
    augmenter = Augmenter(
        experiment.augmentation,
        normalise,
        classes=classes,
        warmup_epochs=experiment.schedule.warmup_epochs,
    )
    feed = TrainingFeed(phase.train, plan, augmenter, accelerator.device)

    def record_loaded(report: LoadReport) -> None:
        console.out(str(report), highlight=False)
        if accelerator.is_main_process:
            write_whole(phase.folder.pretrained, f"{report}\n")

    model = build_model(experiment, classes, phase.train.channels, on_load=record_loaded)
    listeners: list[Listener] = [JsonLines(phase.folder), Display(console, phase.title)]
    if experiment.logging.tensorboard:
        listeners.append(TensorBoard(phase.folder))
    return Trainer(
        experiment,
        model,
        feed,
        phase.validation,
        phase.folder,
        epochs=epochs,
        accelerator=accelerator,
        listeners=listeners,
    )
