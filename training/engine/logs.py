"""What a run logs while it trains: lines of JSON, trackers, and a display on the terminal.

The trainer tells its listeners what happens. Each listener does one thing with it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from torch import nn

from training.encodings.learned_lattice import key_prefixes, modules_with_lattice
from training.engine.run_folder import FINAL, SEARCH, RunFolder, append_line
from training.metrics import metric_of

Row = Mapping[str, Any]
_PROJECT = "wefpe"  # what trackers file runs under, unless their environment says otherwise


class Listener:
    """Is told what happens in a training. A subclass overrides the events it needs."""

    def started(self, total_steps: int, step: int) -> None:
        """Training begins after `step`, which is above 0 for a run that is resumed."""

    def stepped(self, step: int) -> None:
        """A step is done."""

    def logged(self, row: Row) -> None:
        """There are new numbers: a row of kind "step" or "epoch"."""

    def said(self, text: str) -> None:
        """There is a message for the user."""

    def finished(self) -> None:
        """Training has ended, or was stopped by an error."""


class JsonLines(Listener):
    """Appends every row to ``log.jsonl``.

    Before the first one it appends what is known about the backend, as a row of kind
    "verification"; so does a run that is resumed.
    """

    def __init__(self, folder: RunFolder, verification: Row | None = None) -> None:
        self._path = folder.log
        self._first = verification
        self._step = 0

    def started(self, total_steps: int, step: int) -> None:
        self._step = step

    def logged(self, row: Row) -> None:
        if self._first:
            append_line(self._path, {"kind": "verification", "step": self._step, **self._first})
            self._first = None
        append_line(self._path, row)


class Tracker(Listener):
    """Sends the numbers of every row to a service, through accelerate's interface to it.

    Whatever goes wrong with the service turns the tracker off with one line, and training goes on.

    Parameters
    ----------
    name : {"tensorboard", "wandb", "mlflow"}
    folder : RunFolder
        TensorBoard's files are here, and the names under which the others know this training, so
        that a run that is resumed goes on there too.
    config : mapping
        The config by dotted keys, for the services that show it beside the numbers.
    say : callable
        Tells the user why a tracker is off.
    """

    def __init__(
        self, name: str, folder: RunFolder, config: Mapping[str, Any], say: Callable[[str], object]
    ) -> None:
        self._name, self._folder, self._config, self._say = name, folder, config, say
        self._tracker: Any = None

    def started(self, total_steps: int, step: int) -> None:
        self._try(self._start, step)

    def logged(self, row: Row) -> None:
        numbers = {
            f"{row['kind']}/{name}": value
            for name, value in flat_numbers(row)
            if name not in ("step", "epoch")
        }
        if self._tracker is not None:
            self._try(self._tracker.log, numbers, row["step"])

    def finished(self) -> None:
        if self._tracker is not None:
            self._try(self._tracker.finish)

    def _try(self, action: Callable[..., object], *arguments: object) -> None:
        try:
            action(*arguments)
        except Exception as error:  # of a library that is missing, of a network, of an account
            self._tracker = None
            reason = next(iter(str(error).splitlines()), "") or type(error).__name__
            self._say(f"the tracker {self._name} is off, and training goes on: {reason}")

    def _start(self, step: int) -> None:
        from accelerate.tracking import LOGGER_TYPE_TO_CLASS

        make = LOGGER_TYPE_TO_CLASS[self._name]
        path, names = self._folder.path, self._folder.read_trackers()
        title = f"{path.parent.name}-{path.name}" if path.name in (SEARCH, FINAL) else path.name
        known = names.get(self._name)
        if self._name == "tensorboard":  # without the steps that a resumed run repeats
            folder = self._folder.tensorboard
            tracker = make(folder.name, str(folder.parent), purge_step=step + 1)
        elif self._name == "wandb":
            again = {} if known is None else {"id": known, "resume": "allow"}
            tracker = make(_PROJECT, name=title, dir=str(path), **again)
        else:  # a server that does not answer holds a run up for seconds, not for minutes
            os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
            tracker = make(_PROJECT, run_id=known, run_name=title)
        if hasattr(tracker, "start"):  # older versions of accelerate start when they are made
            tracker.start()
        self._tracker = tracker
        if self._name == "tensorboard":
            return
        if known is None:
            run = tracker.tracker
            own = run.id if self._name == "wandb" else run.info.run_id
            self._folder.write_trackers(names | {self._name: own})
            tracker.store_init_configuration(dict(self._config))


def flat_numbers(row: Row, prefix: str = "") -> list[tuple[str, float]]:
    """The numbers of a nested row, with names such as ``validation/loss``."""
    found: list[tuple[str, float]] = []
    for name, value in row.items():
        if isinstance(value, Mapping):
            found += flat_numbers(value, f"{prefix}{name}/")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            found.append((prefix + name, float(value)))
    return found


class Display(Listener):
    """Shows a progress bar on a terminal, and prints a line for each epoch anywhere."""

    def __init__(self, console: Console, title: str) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("[bold]{task.description}[/]"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[numbers]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._title = title
        self._task: Any = None

    def started(self, total_steps: int, step: int) -> None:
        self._task = self._progress.add_task(
            self._title, total=total_steps, completed=step, numbers=""
        )
        self._progress.start()

    def stepped(self, step: int) -> None:
        self._progress.update(self._task, completed=step)

    def logged(self, row: Row) -> None:
        if row["kind"] == "step":
            metric = metric_of(row)
            self._progress.update(
                self._task,
                numbers=f"epoch {row['epoch']:.1f}  loss {row['loss']:.3f}  "
                f"{metric.title} {row[metric.name]:.1%}  rate {row['rate']:.2g}  "
                f"{row['images_per_second']:.0f} images/s",
            )
        else:
            self._console.print(epoch_line(row), highlight=False, soft_wrap=True)

    def said(self, text: str) -> None:
        self._console.out(text, highlight=False)

    def finished(self) -> None:
        self._progress.stop()


def epoch_line(row: Row) -> str:
    """The line that is printed for an epoch."""
    metric = metric_of(row)
    text = f"epoch {row['epoch']:>4}  training loss {row['loss']:.3f}, "
    text += f"{metric.title} {row[metric.name]:.1%}"
    if "validation" in row:
        text += f"  validation {row['validation'][metric.name]:.2%}"
        text += " (best)" if row["is_best"] else ""
    return f"{text}  {row['seconds']:.1f} s"


# --- The state of the encoding -------------------------------------------------------------


def encoding_state(model: nn.Module) -> dict[str, float]:
    """The half-periods, tau and the scalar parameters of the encoding of a model, by name.

    These few numbers show what a learned encoding has become. If there are several lattices, the
    names of the first have no prefix; those of the others begin with the name of their module.
    """
    encoding: Any = getattr(model, "encoding", None)
    if encoding is None:
        return {}
    state = {
        name: float(parameter.detach())
        for name, parameter in encoding.named_parameters()
        if parameter.numel() == 1
    }
    if not state:  # no scalar is learned
        return {}
    owners = modules_with_lattice(encoding)
    for name, prefix in key_prefixes(owners).items():
        lattice = owners[name].lattice()
        state[f"{prefix}omega1"] = lattice.omega1.real
        state[f"{prefix}omega3_real"] = lattice.omega3.real
        state[f"{prefix}omega3_imag"] = lattice.omega3.imag
        state[f"{prefix}tau_imag"] = lattice.tau.imag
    return state
