"""The training loop: steps, epochs, selection on the validation images, checkpoints.

No random state is carried from step to step. The batch, its augmentation and the dropout of a step
follow from the seed and the number of the step (`training.randomness`). A checkpoint therefore
holds tensors and counters only, and a run that was killed and resumed ends with the same bits as
one that was not.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from accelerate import Accelerator
from pydantic import BaseModel, ConfigDict, Field
from safetensors.torch import save_file
from torch import Tensor, nn

from training.config import Experiment
from training.data import Batch, ImageSource, TrainingFeed
from training.data.sources import metric_of_source
from training.engine import checkpoints
from training.engine.checkpoints import Checkpoint
from training.engine.evaluation import Scores, ScoreSums, batch_sums, evaluate
from training.engine.logs import Listener, encoding_state
from training.engine.losses import open_teacher, target_loss, teacher_loss
from training.engine.optimization import (
    OptimizerState,
    build_optimizer,
    moving_average,
    optimizer_state,
    parameter_groups,
    rate_factor,
    restore_optimizer,
    set_rate,
)
from training.engine.preemption import Agreement, StopRequest
from training.engine.run_folder import RunFolder
from training.errors import NonFiniteError, PreemptedError, RunError
from training.randomness import derived_seed


@dataclass
class TrainingProgress:
    """How far a training has come, and the best epoch it has found."""

    step: int = 0
    epoch: int = 0  # finished epochs
    batch: int = 0  # finished batches of the present epoch
    best_epoch: int = 0
    # On the validation images, of whatever metric the run has. Checkpoints have these names.
    best_accuracy: float = -1.0
    last_accuracy: float | None = None
    seconds: float = 0.0  # of training, summed over interruptions

    __pydantic_config__ = ConfigDict(extra="forbid")


class SavedOptimizer(BaseModel):
    """What an optimiser keeps besides tensors; nothing in most."""

    model_config = ConfigDict(strict=True)

    numbers: dict[str, dict[str, Any]] = Field(default_factory=dict)
    groups: list[dict[str, float]] = Field(default_factory=list)


class SavedState(BaseModel):
    """What the state of a checkpoint must hold for a training to go on."""

    model_config = ConfigDict(strict=True)

    position: TrainingProgress
    sums: dict[Literal["epoch", "recent"], list[float]]
    scaler: dict[str, Any] | None
    threads: int = 0  # 0 in checkpoints that do not say
    optimizer: SavedOptimizer = Field(default_factory=SavedOptimizer)


class Trainer:
    """Trains one model on one set of images.

    Parameters
    ----------
    experiment
        The config.
    model
        On any device; `accelerator` moves it, and wraps it for several processes.
    feed
        The batches of the training set.
    validation
        Evaluated after every epoch, if there are any such images. ``selection.by`` of the config
        says whether the weights that did best on them or the last weights are selected.
    folder
        Where logs and checkpoints go. Training resumes from checkpoints found there.
    epochs
        How many epochs to train; the schedule is always that of the config.
    listeners
        Told of what is logged; on the main process only.
    verification
        What is known about the backend of this run; every checkpoint records it.
    """

    def __init__(
        self,
        experiment: Experiment,
        model: nn.Module,
        feed: TrainingFeed,
        validation: ImageSource | None,
        folder: RunFolder,
        *,
        epochs: int,
        accelerator: Accelerator,
        listeners: Sequence[Listener] = (),
        verification: Mapping[str, Any] | None = None,
    ) -> None:
        self.experiment, self.feed, self.validation = experiment, feed, validation
        self.folder, self.epochs, self.accelerator = folder, epochs, accelerator
        self.verification = dict(verification or {})
        self.listeners = listeners if accelerator.is_main_process else ()
        self.unwrapped_model = model.to(accelerator.device)
        options = experiment.optimizer
        groups = parameter_groups(model, options.decay, options.layer_decay)
        self.parameter_names = [name for group in groups for name in group.names]
        optimizer = build_optimizer(groups, options)
        self._group_keys = {key for group in optimizer.param_groups for key in group}
        classes, channels = feed.augmenter.classes, feed.augmenter.normalise.channels
        self.teacher = open_teacher(experiment.distillation, classes, channels, accelerator.device)
        self.average = moving_average(model, experiment.training.ema_decay)
        self._piece_seed: int | None = None  # of what follows the position table in a pass
        encoding: Any = model.encoding
        self._draws_once = encoding.draws_in_training and (
            experiment.training.accumulation > 1 or accelerator.num_processes > 1
        )
        if self._draws_once:  # after the average was copied: it needs no hook
            following: Any = model.pos_drop
            following.register_forward_pre_hook(self._after_position)
        if experiment.training.compile:
            # A hook that sets a seed is no part of a graph.
            model.compile(fullgraph=not self._draws_once)
        self.model, self.optimizer = accelerator.prepare(model, optimizer)
        self.progress = TrainingProgress()
        self._damaged: set[str] = set()  # images that have been reported
        self.best_weights: dict[str, Tensor] = {}  # on the CPU; empty until some are selected
        self.metric = metric_of_source(feed.source)
        self.epoch_sums = ScoreSums(accelerator, self.metric)
        self.recent_sums = ScoreSums(accelerator, self.metric)
        self.guard = DivergenceGuard(accelerator, feed, folder)
        self._stop_request = StopRequest()
        self._agreement = Agreement(accelerator)
        self._saved_at, self._saved_step = time.perf_counter(), -1

    @property
    def _selects_best(self) -> bool:
        return self.validation is not None and self.experiment.selection.by == "validation"

    @property
    def selected_epoch(self) -> int:
        return self.progress.best_epoch if self._selects_best else self.progress.epoch

    @property
    def selected_value(self) -> float | None:
        """The metric of the selected weights on the validation images, if there are any."""
        return self.progress.best_accuracy if self._selects_best else self.progress.last_accuracy

    @property
    def evaluated_model(self) -> nn.Module:
        """The model that is evaluated and selected: the moving average, if there is one."""
        if self.average is None:
            return self.unwrapped_model
        averaged: nn.Module = self.average.module
        return averaged

    # --- The loop --------------------------------------------------------------------------

    def fit(self, stop_request: StopRequest | None = None) -> TrainingProgress:
        """Train to the end, or until no epoch of `patience` was better on the validation images.

        Returns how far it came. `evaluated_model` then has the selected weights. `stop_request` is
        asked after every step; if there is a reason to stop, training saves a checkpoint and raises
        `PreemptedError`.
        """
        self._stop_request = stop_request or self._stop_request
        self._resume()
        self._notify("started", self.epochs * len(self.feed), self.progress.step)
        try:
            while not self._is_over():
                self._train_epoch()
                self._end_epoch()
                if not self._is_over():  # else what is left is the test
                    self._pause_if_asked()
        finally:
            self._notify("finished")
        if self._selects_best and self.progress.best_epoch < self.progress.epoch:
            self.evaluated_model.load_state_dict(self.best_weights)
        return self.progress

    def _is_over(self) -> bool:
        selection, progress = self.experiment.selection, self.progress
        if progress.epoch >= self.epochs:
            return True
        if not selection.patience or not self._selects_best:
            return False
        is_late = progress.epoch >= selection.patience_from
        return is_late and progress.epoch - progress.best_epoch >= selection.patience

    def _train_epoch(self) -> None:
        self.model.train()
        progress = self.progress
        every_log = self.experiment.logging.every_steps
        every_save = self.experiment.checkpoint.every_steps
        began, seconds_before, logged_step = time.perf_counter(), progress.seconds, progress.step
        logged_at = began
        for batch in self.feed.epoch(progress.epoch, start=progress.batch):
            rate = self._train_step(batch)
            progress.step += 1
            progress.batch += 1
            now = time.perf_counter()
            progress.seconds = seconds_before + now - began
            self._notify("stepped", progress.step)
            if progress.step % every_log == 0:
                images = (progress.step - logged_step) * self.experiment.training.batch_size
                self._log_step(rate, images / (now - logged_at))
                logged_step, logged_at = progress.step, time.perf_counter()
            is_last = progress.batch == len(self.feed)
            if not is_last:  # else the end of the epoch saves
                if every_save and progress.step % every_save == 0:
                    self._save()
                self._pause_if_asked()

    def _train_step(self, batch: Batch) -> float:
        """Take one step of the optimiser; returns the learning rate."""
        options, progress = self.experiment.training, self.progress
        epoch = progress.epoch + progress.batch / len(self.feed)
        factor = rate_factor(self.experiment.schedule, options.epochs, epoch)
        set_rate(self.optimizer, factor)
        n = len(batch.labels)
        for number, piece in enumerate(batch.split(options.accumulation)):
            # The dropout of a position table is drawn alike for all parts of a global batch. The
            # first part of the first process goes on from there, as a batch in one part does.
            rank, seed = self.accelerator.process_index, self.experiment.seed
            torch.manual_seed(derived_seed(seed, "model", progress.step, 0, 0))
            if (number, rank) != (0, 0):
                self._piece_seed = derived_seed(seed, "model", progress.step, number, rank)
                if not self._draws_once:
                    self._after_position()
            is_last = number == options.accumulation - 1
            with nullcontext() if is_last else self.accelerator.no_sync(self.model):
                logits = self.model(piece.images)
                loss = target_loss(logits.float(), piece.targets, options)
                if self.teacher is not None:
                    loss = torch.lerp(
                        loss, self._teacher_loss(logits, piece), self.experiment.distillation.share
                    )
                self.accelerator.backward(loss * (len(piece.labels) / n))
            # The right answer for a mixture is the class with the larger share.
            is_mixed = piece.targets.ndim == 2
            labels = piece.targets.argmax(dim=-1) if is_mixed else piece.labels
            sums = batch_sums(loss * len(labels), logits, labels)
            self.epoch_sums.add(sums)
            self.recent_sums.add(sums)
            self.guard.note_loss(loss, progress.step)
        if options.clip_norm:
            self.accelerator.clip_grad_norm_(self.model.parameters(), options.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.average is not None:
            self.average.update_parameters(self.unwrapped_model)
        return self.experiment.optimizer.learning_rate * factor

    def _teacher_loss(self, logits: Tensor, piece: Batch) -> Tensor:
        assert self.teacher is not None
        with torch.no_grad(), self.accelerator.autocast():
            taught = self.teacher(piece.images)
        return teacher_loss(logits.float(), taught.float(), self.experiment.distillation)

    def _after_position(self, *_: object) -> None:
        """Before the rest of a model draws: a part of a batch has a seed of its own."""
        if self._piece_seed is not None:
            torch.manual_seed(self._piece_seed)
            self._piece_seed = None

    def _end_epoch(self) -> None:
        """Evaluate on the validation images, select, log and save a checkpoint."""
        progress = self.progress
        self.guard.check(self.unwrapped_model, progress.step)
        progress.epoch, progress.batch = progress.epoch + 1, 0
        scores = self.epoch_sums.read()
        self.epoch_sums.reset()
        row: dict[str, Any] = {
            "kind": "epoch",
            "step": progress.step,
            "epoch": progress.epoch,
            **scores.numbers(),
            "seconds": progress.seconds,
            "encoding": encoding_state(self.unwrapped_model),
        }
        if self.validation is not None:
            found = self.evaluate(self.validation)
            row["validation"] = found.numbers()
            progress.last_accuracy = found.value
            is_best = not progress.best_epoch or self.metric.is_better(
                found.value, progress.best_accuracy
            )
            row["is_best"] = is_best and self._selects_best
            if is_best:
                progress.best_epoch, progress.best_accuracy = progress.epoch, found.value
                if self._selects_best:
                    self.best_weights = checkpoints.packed_copies(self.evaluated_model.state_dict())
        self._report_damaged()
        if self._damaged:
            row["damaged_images"] = len(self._damaged)
        self._notify("logged", row)
        self._save()

    def _report_damaged(self) -> None:
        """Name the images that this process has found to be damaged since the last report."""
        damaged = dict(self.feed.source.damaged)
        if self.validation is not None:
            damaged |= self.validation.damaged
        for name in sorted(damaged.keys() - self._damaged):
            self._notify("said", f"{name} is damaged and blank from now on: {damaged[name]}")
        if damaged.keys() - self._damaged:
            self._notify("said", f"{len(damaged):,} damaged images so far")
        self._damaged |= damaged.keys()

    def evaluate(self, source: ImageSource) -> Scores:
        """The scores of `evaluated_model` on some images."""
        normalise, size = self.feed.augmenter.normalise, self.experiment.training.batch_size
        return evaluate(self.evaluated_model, source, normalise, size, self.accelerator)

    # --- Logs ------------------------------------------------------------------------------

    def _notify(self, event: str, *details: Any) -> None:
        """Call the method `event` of every listener."""
        for listener in self.listeners:
            getattr(listener, event)(*details)

    def _log_step(self, rate: float, images_per_second: float) -> None:
        self.guard.check_losses()
        scores = self.recent_sums.read()
        self.recent_sums.reset()
        row = {
            "kind": "step",
            "step": self.progress.step,
            "epoch": self.progress.epoch + self.progress.batch / len(self.feed),
            **scores.numbers(),
            "rate": rate,
            "images_per_second": images_per_second,
            "encoding": encoding_state(self.unwrapped_model),
        }
        self._notify("logged", row)

    # --- Checkpoints -----------------------------------------------------------------------

    def _pause_if_asked(self) -> None:
        """Save a checkpoint if the clock says so, and stop if this was asked for.

        A checkpoint of this step that is there already is not saved again.
        """
        minutes = self.experiment.checkpoint.every_minutes
        is_due = 0.0 < 60.0 * minutes <= time.perf_counter() - self._saved_at
        is_due, stop = self._agreement.any([is_due, bool(self._stop_request.reason)])
        if (is_due or stop) and self._saved_step != self.progress.step:
            self._save()
        if stop:
            reason = self._stop_request.reason or "a request to another process"
            raise PreemptedError(
                f"stopped by {reason} after step {self.progress.step}, whose checkpoint is saved; "
                "the same command with --resume goes on",
                reason,
            )

    def _save(self) -> None:
        self.guard.check(self.unwrapped_model, self.progress.step)
        # Every process takes part in summing; only the main one writes.
        sums = {"epoch": self.epoch_sums.state(), "recent": self.recent_sums.state()}
        if self.accelerator.is_main_process:
            kept = optimizer_state(self.optimizer, self.parameter_names, self._group_keys)
            tensors = {
                "model": self.unwrapped_model.state_dict(),
                "optimizer": checkpoints.flatten(kept.tensors),
            }
            if self.average is not None:
                tensors["average"] = self.average.state_dict()
            if self.best_weights:
                tensors["best"] = self.best_weights
            scaler = getattr(self.accelerator, "scaler", None)
            state = {
                "position": asdict(self.progress),
                "sums": sums,
                "verification": self.verification,
                "scaler": None if scaler is None else scaler.state_dict(),
                "threads": torch.get_num_threads(),
                "optimizer": {"numbers": kept.numbers, "groups": kept.groups},
            }
            checkpoints.save(
                self.folder.checkpoints,
                Checkpoint(self.progress.step, tensors, state),
                keep=self.experiment.checkpoint.keep,
            )
        self.accelerator.wait_for_everyone()
        self._saved_at, self._saved_step = time.perf_counter(), self.progress.step

    def _resume(self) -> None:
        """Go on from the newest checkpoint that is whole, if the folder has any."""
        checkpoint, problems = checkpoints.load_latest(self.folder.checkpoints, self._checked_state)
        for problem in problems:
            self._notify("said", f"passed over a damaged checkpoint: {problem}")
        if checkpoint is None:
            if problems:
                raise RunError(
                    f"every checkpoint in {self.folder.checkpoints} is damaged; "
                    "remove the folder to start again from the beginning"
                )
            return
        self.unwrapped_model.load_state_dict(checkpoint.tensors["model"])
        saved = self._checked_state(checkpoint).optimizer
        restore_optimizer(
            self.optimizer,
            self.parameter_names,
            OptimizerState(
                checkpoints.unflatten(checkpoint.tensors["optimizer"]), saved.numbers, saved.groups
            ),
        )
        if self.average is not None:
            self.average.load_state_dict(checkpoint.tensors["average"])
        state = self._checked_state(checkpoint)
        if state.scaler is not None:
            self.accelerator.scaler.load_state_dict(state.scaler)
        self.best_weights = dict(checkpoint.tensors.get("best", {}))
        self.progress = state.position
        self.epoch_sums.restore(state.sums["epoch"])
        self.recent_sums.restore(state.sums["recent"])
        self._notify(
            "said", f"resumed after step {self.progress.step} (epoch {self.progress.epoch})"
        )
        threads = torch.get_num_threads()
        if state.threads not in (0, threads):
            self._notify(
                "said",
                f"with {threads} threads instead of {state.threads}: sums are rounded in another "
                "order, so the run will not end with the bits of one that was not stopped",
            )

    def _checked_state(self, checkpoint: Checkpoint) -> SavedState:
        """The state of a checkpoint; a `ValueError` if it lacks what this training needs."""
        needed = ["model", "optimizer", *(["average"] if self.average is not None else [])]
        missing = [name for name in needed if name not in checkpoint.tensors]
        if missing:
            raise ValueError(f"it names no {', '.join(missing)}")
        return SavedState.model_validate(dict(checkpoint.state))


# --- What the trainer uses -------------------------------------------------------------------


class DivergenceGuard:
    """Stops a run whose loss or weights are infinite or not a number.

    Asking the device at every step would make it wait. The guard notes on the device which loss
    was the first bad one, and reads that note only when something is logged or saved.
    """

    _ADVICE = (
        "Lower optimizer.learning_rate or training.clip_norm and train in another folder. The "
        "checkpoints in this folder were saved before that step"
    )

    def __init__(self, accelerator: Accelerator, feed: TrainingFeed, folder: RunFolder) -> None:
        self._accelerator, self._feed, self._folder = accelerator, feed, folder
        self._first_bad_step = torch.full((), -1, dtype=torch.int64, device=accelerator.device)

    def note_loss(self, loss: Tensor, step: int) -> None:
        is_first = ~torch.isfinite(loss.detach()) & (self._first_bad_step < 0)
        self._first_bad_step = torch.where(is_first, step, self._first_bad_step)

    def check(self, model: nn.Module, step: int) -> None:
        """Check losses and weights, before weights are evaluated, selected or saved.

        The last step may have spoiled the weights; the loss would show it one step later.
        """
        self.check_losses()
        tensors = [t for t in model.state_dict().values() if t.is_floating_point()]
        if not torch.isfinite(nn.utils.get_total_norm(tensors)):
            raise NonFiniteError(f"the weights after step {step} are not finite. {self._ADVICE}")

    def check_losses(self) -> None:
        """Raise if a loss of any process was not finite; its batch is saved first."""
        bad = self._accelerator.gather(self._first_bad_step[None])
        bad = bad[bad >= 0]
        if len(bad) == 0:
            return
        step = int(bad.min())
        path = self._folder.path / f"not-finite-step-{step}.safetensors"
        if int(self._first_bad_step) == step:
            batch = self._feed.batch(*divmod(step, len(self._feed)))
            tensors = {"images": batch.images, "targets": batch.targets, "indices": batch.indices}
            save_file({name: t.cpu().contiguous() for name, t in tensors.items()}, path)
        self._accelerator.wait_for_everyone()
        raise NonFiniteError(
            f"the loss of step {step} is not finite; its batch is in {path}. {self._ADVICE}"
        )
