"""The loop: steps, epochs, selection on the validation set, checkpoints.

Nothing random is carried from step to step. The batch, its augmentation and the dropout of a step
follow from the seed and the number of the step (`training.randomness`), so a checkpoint holds
tensors and counters only, and a run that is killed and resumed does what it would have done.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from safetensors.torch import save_file
from torch import Tensor, nn

from training.config import Experiment
from training.data import Batch, ImageSource, TrainingFeed
from training.encodings.lattice import learns_lattice, modules_with_lattice
from training.engine import checkpoints
from training.engine.checkpoints import Checkpoint
from training.engine.evaluation import Scores, ScoreSums, batch_sums, evaluate
from training.engine.logs import Listener, encoding_state
from training.engine.optimization import (
    build_optimizer,
    moving_average,
    parameter_groups,
    rate_factor,
    set_rate,
)
from training.engine.run_folder import RunFolder
from training.errors import NonFiniteError, RunError
from training.randomness import derived_seed

# A run stops as soon as its loss or its weights are not finite, without asking at every step.

_ADVICE = (
    "Lower optimizer.learning_rate or training.clip_norm and train in another folder; the "
    "checkpoints here are from before it"
)


class FiniteGuard:
    """Notes on the device which loss was the first that is not finite, and is asked later."""

    def __init__(self, accelerator: Accelerator, feed: TrainingFeed, folder: RunFolder) -> None:
        self._accelerator, self._feed, self._folder = accelerator, feed, folder
        self._first_bad_step = torch.full((), -1, dtype=torch.int64, device=accelerator.device)

    def note(self, loss: Tensor, step: int) -> None:
        is_first = ~torch.isfinite(loss.detach()) & (self._first_bad_step < 0)
        self._first_bad_step = torch.where(is_first, step, self._first_bad_step)

    def check_losses(self) -> None:
        """Stop if a loss was not finite, in any process; its batch is saved."""
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
            f"the loss of step {step} is not finite; its batch is in {path}. {_ADVICE}"
        )

    def check_weights(self, model: nn.Module, step: int) -> None:
        """Stop if the last step spoiled the weights, which the loss would show a step later."""
        tensors = [t for t in model.state_dict().values() if t.is_floating_point()]
        if not torch.isfinite(nn.utils.get_total_norm(tensors)):
            raise NonFiniteError(f"the weights after step {step} are not finite. {_ADVICE}")


# The model, compiled: all of it but the elliptic functions of a lattice that is learned.


def compile_model(model: nn.Module) -> None:
    """Compile a model with an encoding, in place.

    Preparing a lattice takes thousands of operations on single numbers. They gain nothing by being
    compiled, and torch's compiler did not finish their derivatives in nine minutes; so they
    stay outside, and the graph has a gap there. (The Fourier-like series has a lattice too, but
    evaluates no elliptic function on it: its owner has no ``values``.)
    """
    encoding: Any = model.encoding
    gaps = [
        owner
        for owner in modules_with_lattice(encoding).values()
        if learns_lattice(owner) and hasattr(owner, "values")
    ]
    for owner in gaps:
        owner.values = torch.compiler.disable(owner.values)
    model.compile(fullgraph=not gaps)


@dataclass
class Position:
    """Where a run is, and what it has found."""

    step: int = 0
    epoch: int = 0  # finished ones
    batch: int = 0  # finished ones of the present epoch
    best_epoch: int = 0
    best_accuracy: float = -1.0
    last_accuracy: float | None = None  # on the validation images
    seconds: float = 0.0  # of training, over all parts of a run that was interrupted


class Trainer:
    """Trains one model on one set of images.

    Parameters
    ----------
    experiment
        The config.
    model
        On any device; it is moved, and wrapped for several processes, by `accelerator`.
    feed
        The batches of the training set.
    validation
        Evaluated after every epoch, if there are any such images. Whether the best weights on
        them or the last ones are chosen is ``selection.by`` of the config.
    folder
        Where logs and checkpoints go. Checkpoints found there are resumed from.
    epochs
        How many epochs to train; the schedule is always that of the config.
    listeners
        Told of what is logged; on the main process only.
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
    ) -> None:
        self.experiment, self.feed, self.validation = experiment, feed, validation
        self.folder, self.epochs, self.accelerator = folder, epochs, accelerator
        self.listeners = listeners if accelerator.is_main_process else ()
        self.plain_model = model.to(accelerator.device)
        groups = parameter_groups(model, experiment.optimizer.decay)
        self.parameter_names = [name for group in groups for name in group.names]
        optimizer = build_optimizer(groups, experiment.optimizer)
        self.average = moving_average(model, experiment.training.ema_decay)
        if experiment.training.compile:
            compile_model(model)
        self.model, self.optimizer = accelerator.prepare(model, optimizer)
        self.at = Position()
        self.best_weights: dict[str, Tensor] = {}  # on the CPU; none before they are selected
        self.epoch_sums, self.recent_sums = ScoreSums(accelerator), ScoreSums(accelerator)
        self.guard = FiniteGuard(accelerator, feed, folder)

    @property
    def _selects(self) -> bool:
        return self.validation is not None and self.experiment.selection.by == "validation"

    @property
    def selected_epoch(self) -> int:
        return self.at.best_epoch if self._selects else self.at.epoch

    @property
    def selected_accuracy(self) -> float | None:
        """Of the selected weights on the validation images, if there are any."""
        return self.at.best_accuracy if self._selects else self.at.last_accuracy

    @property
    def best_model(self) -> nn.Module:
        """The weights that are evaluated: the moving average, if there is one."""
        if self.average is None:
            return self.plain_model
        averaged: nn.Module = self.average.module
        return averaged

    # --- The loop --------------------------------------------------------------------------

    def fit(self) -> Position:
        """Train to the end, or until the validation accuracy has not grown for `patience` epochs.

        Returns where it ended. The weights chosen are then in `best_model`.
        """
        self._resume()
        steps = self.epochs * len(self.feed)
        self._tell("started", steps, self.at.step)
        try:
            while self.at.epoch < self.epochs and not self._is_out_of_patience():
                self._train_epoch()
                self._end_epoch()
        finally:
            self._tell("finished")
        if self._selects and self.at.best_epoch < self.at.epoch:
            self.best_model.load_state_dict(self.best_weights)
        return self.at

    def _train_epoch(self) -> None:
        self.model.train()
        every_log = self.experiment.logging.every_steps
        every_save = self.experiment.checkpoint.every_steps
        began, before, recent_step = time.perf_counter(), self.at.seconds, self.at.step
        recent_began = began
        for batch in self.feed.epoch(self.at.epoch, start=self.at.batch):
            rate = self._train_step(batch)
            self.at.step += 1
            self.at.batch += 1
            now = time.perf_counter()
            self.at.seconds = before + now - began
            self._tell("stepped", self.at.step)
            if self.at.step % every_log == 0:
                images = (self.at.step - recent_step) * self.experiment.training.batch_size
                self._log_step(rate, images / (now - recent_began))
                recent_step, recent_began = self.at.step, time.perf_counter()
            is_last = self.at.batch == len(self.feed)
            if every_save and self.at.step % every_save == 0 and not is_last:
                self._save()

    def _train_step(self, batch: Batch) -> float:
        options = self.experiment.training
        epoch = self.at.epoch + self.at.batch / len(self.feed)
        factor = rate_factor(self.experiment.schedule, options.epochs, epoch)
        set_rate(self.optimizer, factor)
        n = len(batch.labels)
        for number, part in enumerate(batch.split(options.accumulation)):
            rank = self.accelerator.process_index
            torch.manual_seed(
                derived_seed(self.experiment.seed, "model", self.at.step, number, rank)
            )
            waits = number < options.accumulation - 1
            with self.accelerator.no_sync(self.model) if waits else nullcontext():
                logits = self.model(part.images)
                loss = F.cross_entropy(
                    logits.float(), part.targets, label_smoothing=options.label_smoothing
                )
                self.accelerator.backward(loss * (len(part.labels) / n))
            # Of a mixture the class with the larger share is the right answer.
            is_soft = part.targets.is_floating_point()
            self._note(loss, logits, part.targets.argmax(dim=-1) if is_soft else part.labels)
        if options.clip_norm:
            self.accelerator.clip_grad_norm_(self.model.parameters(), options.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.average is not None:
            self.average.update_parameters(self.plain_model)
        return self.experiment.optimizer.learning_rate * factor

    def _note(self, loss: Tensor, logits: Tensor, labels: Tensor) -> None:
        found = batch_sums(loss * len(labels), logits, labels)
        for sums in (self.epoch_sums, self.recent_sums):
            sums.add(found)
        self.guard.note(loss, self.at.step)

    def _end_epoch(self) -> None:
        self._check_finite()
        self.at.epoch, self.at.batch = self.at.epoch + 1, 0
        scores = self.epoch_sums.read()
        self.epoch_sums.reset()
        row: dict[str, Any] = {
            "kind": "epoch",
            "step": self.at.step,
            "epoch": self.at.epoch,
            **_numbers(scores),
            "seconds": self.at.seconds,
            "encoding": encoding_state(self.plain_model),
        }
        if self.validation is not None:
            found = self.evaluate(self.validation)
            row["validation"] = _numbers(found)
            self.at.last_accuracy = found.accuracy
            is_best = found.accuracy > self.at.best_accuracy
            row["is_best"] = is_best and self._selects  # of what is going to be selected
            if is_best:
                self.at.best_epoch, self.at.best_accuracy = self.at.epoch, found.accuracy
                if self._selects:
                    self.best_weights = checkpoints.storable(self.best_model.state_dict())
        self._tell("logged", row)
        self._save()

    def _is_out_of_patience(self) -> bool:
        selection = self.experiment.selection
        if not selection.patience or not self._selects:
            return False
        is_late = self.at.epoch >= selection.patience_from
        return is_late and self.at.epoch - self.at.best_epoch >= selection.patience

    def evaluate(self, source: ImageSource) -> Scores:
        """Scores of the weights to be selected."""
        normalise, size = self.feed.augmentation.normalise, self.experiment.training.batch_size
        return evaluate(self.best_model, source, normalise, size, self.accelerator)

    # --- Logs ------------------------------------------------------------------------------

    def _tell(self, event: str, *details: Any) -> None:
        for listener in self.listeners:
            getattr(listener, event)(*details)

    def _log_step(self, rate: float, images_per_second: float) -> None:
        self.guard.check_losses()
        scores = self.recent_sums.read()
        self.recent_sums.reset()
        epoch = self.at.epoch + self.at.batch / len(self.feed)
        row = {"kind": "step", "step": self.at.step, "epoch": epoch, **_numbers(scores)}
        row |= {"rate": rate, "images_per_second": images_per_second}
        row |= {"encoding": encoding_state(self.plain_model)}
        self._tell("logged", row)

    def _check_finite(self) -> None:
        """Before weights are evaluated, selected or saved."""
        self.guard.check_losses()
        self.guard.check_weights(self.plain_model, self.at.step)

    # --- Checkpoints -----------------------------------------------------------------------

    def _optimizer_tensors(self) -> dict[str, Tensor]:
        state = self.optimizer.state_dict()["state"]
        return checkpoints.flat({self.parameter_names[i]: inner for i, inner in state.items()})

    def _save(self) -> None:
        self._check_finite()
        sums = {"epoch": self.epoch_sums.state(), "recent": self.recent_sums.state()}
        if self.accelerator.is_main_process:
            tensors = {
                "model": self.plain_model.state_dict(),
                "optimizer": self._optimizer_tensors(),
            }
            if self.average is not None:
                tensors["average"] = self.average.state_dict()
            if self.best_weights:
                tensors["best"] = self.best_weights
            scaler = getattr(self.accelerator, "scaler", None)
            state = {
                "position": asdict(self.at),
                "sums": sums,
                "scaler": None if scaler is None else scaler.state_dict(),
            }
            checkpoint = Checkpoint(self.at.step, tensors, state)
            checkpoints.save(
                self.folder.checkpoints, checkpoint, keep=self.experiment.checkpoint.keep
            )
        self.accelerator.wait_for_everyone()

    def _resume(self) -> None:
        checkpoint, problems = checkpoints.load_latest(self.folder.checkpoints)
        for problem in problems:
            self._tell("said", f"passed over a damaged checkpoint: {problem}")
        if checkpoint is None:
            if problems:
                raise RunError(
                    f"no checkpoint in {self.folder.checkpoints} is whole; "
                    "remove the folder to start anew"
                )
            return
        self.plain_model.load_state_dict(checkpoint.tensors["model"])
        indices = {name: i for i, name in enumerate(self.parameter_names)}
        moments = checkpoints.nested(checkpoint.tensors["optimizer"])
        self.optimizer.load_state_dict(
            {
                "state": {indices[name]: inner for name, inner in moments.items()},
                "param_groups": self.optimizer.state_dict()["param_groups"],
            }
        )
        if self.average is not None:
            self.average.load_state_dict(checkpoint.tensors["average"])
        if checkpoint.state["scaler"] is not None:
            self.accelerator.scaler.load_state_dict(checkpoint.state["scaler"])
        self.best_weights = dict(checkpoint.tensors.get("best", {}))
        self.at = Position(**checkpoint.state["position"])
        self.epoch_sums.restore(checkpoint.state["sums"]["epoch"])
        self.recent_sums.restore(checkpoint.state["sums"]["recent"])
        self._tell("said", f"resumed after step {self.at.step} (epoch {self.at.epoch})")


def _numbers(scores: Scores) -> dict[str, float]:
    return {"loss": scores.loss, "accuracy": scores.accuracy}
