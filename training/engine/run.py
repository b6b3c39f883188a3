"""A whole run: from a config to a folder with weights, curves and one number on the test set.

Weights are selected on images held out of training, and the test set is opened once, after the last
decision. With ``selection.retrain_on_all`` the run has two phases, as VTAB-1k prescribes:
``search`` finds the best number of epochs on the validation images, and ``final`` trains a new
model on all images for that many epochs.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from contextlib import ExitStack
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
    flat_table,
    load_config,
)
from training.data import BatchPlan, ImageSource, Splits, TrainingFeed, open_data
from training.data.encoded import crop_share
from training.engine import checkpoints
from training.engine.logs import Display, JsonLines, Listener, Tracker
from training.engine.optimization import check_optimizer
from training.engine.preemption import StopRequest
from training.engine.run_folder import FINAL, SEARCH, RunFolder, same_config, write_whole
from training.engine.run_report import draw_curves, write_report
from training.engine.trainer import Trainer
from training.engine.verification import Verifier, consult
from training.errors import RunError
from training.models import LoadReport
from training.models.building import build_model, check_before_run
from wefpe_core.reporting import git_commit, package_versions, processor_name

_SUPPORTED = (DistributedType.NO, DistributedType.MULTI_CPU, DistributedType.MULTI_GPU)
_PACKAGES = ("wefpe", "torch", "numpy", "accelerate")


def run(
    experiment: Experiment,
    path: Path,
    *,
    resume: bool = False,
    console: Console | None = None,
    verify: Verifier | None = None,
) -> dict[str, Any]:
    """Train, select, test once and draw the curves; returns what ``result.json`` holds.

    A finished run is not repeated: its result is returned. If the config requires a backend that is
    verified, `verify` measures one that is not; without it the run is refused.
    """
    check_before_run(experiment)
    check_optimizer(experiment.optimizer)
    accelerator = build_accelerator(experiment)
    is_main = accelerator.is_main_process
    console = (console or Console(stderr=True)) if is_main else Console(quiet=True)
    folder = RunFolder(path)
    verification: dict[str, Any] = {}
    if not folder.result.exists():
        # Each machine has receipts of its own; its first process measures, the others read.
        with accelerator.local_main_process_first():
            device = accelerator.device.type
            verification = consult(experiment, device, verify=verify, say=console.out)
    splits = open_data(experiment.data, experiment.seed)
    with ExitStack() as stack:
        with accelerator.main_process_first():
            if is_main:
                check_folder(folder, experiment, resume=resume)
                stack.enter_context(folder.locked())
                claim_folder(folder, experiment, resume=resume)
        result = folder.read_result()
        if result is None:
            result = _train_and_test(experiment, folder, splits, accelerator, console, verification)
        else:
            console.out(f"{path} is finished: nothing to do", highlight=False)
        if is_main and not folder.report.exists():
            draw_curves(folder)
            write_report(folder, experiment, result)
        accelerator.wait_for_everyone()
    accelerator.end_training()
    return result


def check_machine(experiment: Experiment) -> None:
    """Raise `RunError` if this machine cannot do what a config asks for."""
    if experiment.training.precision == "fp16" and not torch.cuda.is_available():
        raise RunError("training.precision='fp16' needs a GPU; 'bf16' and 'no' also run on a CPU")


def build_accelerator(experiment: Experiment) -> Accelerator:
    """The processes and devices of this run, as the launcher set them up."""
    check_machine(experiment)
    has_gpu = torch.cuda.is_available()
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


def check_folder(folder: RunFolder, experiment: Experiment, *, resume: bool) -> None:
    """Raise `RunError` unless a folder is free or holds the run that is to be resumed.

    If it holds a run of another config, the message names the keys that differ. Nothing is
    written, so this may be asked without holding the lock.
    """
    path = folder.path
    if folder.is_free():
        return
    if not folder.config.exists():
        raise RunError(f"{path} is not empty and holds no run; choose another --folder")
    if not resume:
        raise RunError(f"{path} holds a run already; --resume goes on with it")
    if not same_config(folder, experiment):
        changed = "; ".join(differences(load_config(folder.config), experiment))
        raise RunError(f"{path} holds a run of another config: {changed}")


def claim_folder(folder: RunFolder, experiment: Experiment, *, resume: bool) -> None:
    """Write the config of a new run; the caller holds the lock of the folder."""
    check_folder(folder, experiment, resume=resume)  # again: now nobody else can change it
    if folder.is_free():  # also after a start that failed and left its config
        write_whole(folder.config, dump_toml(experiment))


def _train_and_test(
    experiment: Experiment,
    folder: RunFolder,
    splits: Splits,
    accelerator: Accelerator,
    console: Console,
    verification: dict[str, Any],
) -> dict[str, Any]:
    epochs = experiment.training.epochs
    with StopRequest() as stop_request:
        for phase in _phases(experiment, folder, splits):
            trainer = _build_trainer(
                experiment, phase, splits.normalise, epochs, accelerator, console, verification
            )
            description = f"{phase.title}: {phase.train.description}, {epochs} epochs"
            console.out(description, highlight=False)
            progress = trainer.fit(stop_request)
            epochs = progress.best_epoch or epochs  # the final phase takes what the search found
    if accelerator.is_main_process:  # before the test: a damaged test image must not cost them
        checkpoints.save_weights(trainer.evaluated_model, folder.weights)
    test = splits.open_test()
    scores = trainer.evaluate(test)
    model = trainer.unwrapped_model
    result = {
        "config_hash": config_hash(experiment),
        "seed": experiment.seed,
        "encoding": experiment.position_encoding.name,
        "verification": verification,
        "metric": trainer.metric.name,
        "epochs": progress.epoch,
        "selected_epoch": trainer.selected_epoch,
        f"validation_{trainer.metric.name}": trainer.selected_value,
        f"test_{trainer.metric.name}": scores.value,
        "test_top5": scores.top5,
        "test_loss": scores.loss,
        "test_images": scores.images,
        "damaged_test_images": len(test.damaged),
        "parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "training_seconds": progress.seconds,
        "training_images_per_second": (
            progress.step * experiment.training.batch_size / progress.seconds
        ),
        "test_images_per_second": scores.images_per_second,
        "peak_memory_mb": scores.peak_memory_mb,
        "circumstances": _environment_facts(accelerator),
    }
    if accelerator.is_main_process:
        folder.write_result(result)
    found = f"test {trainer.metric.title} {scores.value:.2%} of {scores.images:,} images"
    console.out(f"{found}; report, curves and weights are in {folder.path}", highlight=False)
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
    verification: dict[str, Any],
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
        repeats=experiment.augmentation.repeats,
    )
    classes = len(phase.train.class_names)
    augmenter = Augmenter(
        experiment.augmentation,
        normalise,
        classes=classes,
        warmup_epochs=experiment.schedule.warmup_epochs,
        crop_share=crop_share(experiment.data),
    )
    feed = TrainingFeed(phase.train, plan, augmenter, accelerator.device)

    def record_loaded(report: LoadReport) -> None:
        console.out(str(report), highlight=False)
        if accelerator.is_main_process:
            write_whole(phase.folder.pretrained, f"{report}\n")

    model = build_model(experiment, classes, phase.train.channels, on_load=record_loaded)
    listeners: list[Listener] = [
        JsonLines(phase.folder, verification),
        Display(console, phase.title),
    ]
    wanted = ["tensorboard"] if experiment.logging.tensorboard else []
    listeners += [
        Tracker(name, phase.folder, flat_table(experiment), console.out)
        for name in (*wanted, *experiment.logging.trackers)
    ]
    return Trainer(
        experiment,
        model,
        feed,
        phase.validation,
        phase.folder,
        epochs=epochs,
        accelerator=accelerator,
        listeners=listeners,
        verification=verification,
    )
