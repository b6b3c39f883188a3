"""The folder of a run: what it holds, and the rule that nothing in it is overwritten.

======================  ==========================================================================
``config.toml``         the effective config, every key with its value
``pretrained.txt``      what was loaded from a file of weights, if the config names one
``log.jsonl``           a line for each logged step and each epoch, appended
``checkpoints/``        what a run that was stopped resumes from
``weights.safetensors`` the selected weights, written at the end
``result.json``         the result on the test set, written once
``evaluations.jsonl``   later evaluations of the weights, appended
``tensorboard/``        the numbers of the log for TensorBoard
``trackers.json``       the names under which other trackers know the training
``curves.png``          the curves of the log
``report.md``           a page about the run
======================  ==========================================================================

A run with ``selection.retrain_on_all`` trains in two phases, each with a log and checkpoints in a
folder of its own, ``search/`` and ``final/``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from training.config import Experiment, config_hash, load_config
from training.config.schema import WEIGHTS
from training.errors import RunError

SEARCH, FINAL = "search", "final"  # the phases of a run that is trained again on all images
_LOCK = ".lock"


class RunFolder:
    """The files of a run. Only the main process writes them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.toml"
        self.pretrained = path / "pretrained.txt"
        self.log = path / "log.jsonl"
        self.checkpoints = path / "checkpoints"
        self.weights = path / WEIGHTS
        self.evaluations = path / "evaluations.jsonl"
        self.result = path / "result.json"
        self.tensorboard = path / "tensorboard"
        self.trackers = path / "trackers.json"
        self.curves = path / "curves.png"
        self.report = path / "report.md"

    def phase(self, name: str) -> RunFolder:
        """The folder of a phase of this run, `SEARCH` or `FINAL`."""
        return RunFolder(self.path / name)

    def trainings(self) -> dict[str, RunFolder]:
        """Where the logs of this run are: by phase, or under "" for a run without phases."""
        begun = {name: self.phase(name) for name in (SEARCH, FINAL)}
        begun = {name: phase for name, phase in begun.items() if phase.log.exists()}
        return begun or {"": self}

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out; `RunError` if one of them is training here.

        Nothing but the lock is written into the folder without holding it.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(self.path / _LOCK, timeout=0):
                yield
        except Timeout as error:
            raise RunError(f"another process is training in {self.path}") from error

    def is_free(self) -> bool:
        """Whether the folder holds nothing but what a run writes before it begins to train."""
        if not self.path.exists():
            return True
        if self.config.exists():
            begun = (self, self.phase(SEARCH), self.phase(FINAL))
            return not any(each.log.exists() or each.checkpoints.exists() for each in begun)
        hidden = (_LOCK, _unfinished(self.config).name)
        return all(path.name in hidden for path in self.path.iterdir())

    def read_result(self) -> dict[str, Any] | None:
        """The result of a finished run; None if the run is not finished."""
        if not self.result.exists():
            return None
        try:
            result: dict[str, Any] = json.loads(self.result.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RunError(f"{self.result} cannot be read: {error}") from error
        return result

    def write_result(self, result: Mapping[str, Any]) -> None:
        """Write the result, once."""
        if self.result.exists():
            raise RunError(f"{self.result} exists: the test set is evaluated once")
        write_whole(self.result, json.dumps(result, indent=1) + "\n")

    def read_trackers(self) -> dict[str, str]:
        """The name under which each tracker knows the training in this folder, if it does."""
        if not self.trackers.exists():
            return {}
        names: dict[str, str] = json.loads(self.trackers.read_text(encoding="utf-8"))
        return names

    def write_trackers(self, names: Mapping[str, str]) -> None:
        write_whole(self.trackers, json.dumps(names, indent=1) + "\n")


def same_config(folder: RunFolder, experiment: Experiment) -> bool:
    """Whether the run in a folder is a run of this experiment.

    The config saved in the folder is loaded and its hash computed now. A hash recorded in the
    folder would not do: earlier versions of wefpe computed it in another way.
    """
    return config_hash(load_config(folder.config)) == config_hash(experiment)


# --- Files that are appended to or replaced --------------------------------------------------


def append_line(path: Path, row: Mapping[str, Any]) -> None:
    """Append one JSON object as a line, which is on the disk when this returns."""
    text = json.dumps(row) + "\n"
    with path.open("a+b") as file:
        # After a line cut short by a crash, start a new one, so that only the former is lost.
        if file.tell() > 0:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                text = "\n" + text
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a log, without lines that a crash cut short or damaged."""
    if not path.exists():
        return
    for line in path.read_bytes().split(b"\n"):
        try:
            row = json.loads(line.decode())  # a UnicodeDecodeError is a ValueError too
        except ValueError:
            continue
        if isinstance(row, dict):
            yield row


def training_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a log in order, each step and epoch once.

    A run that was killed and resumed repeats the steps after its last checkpoint. They are the
    same steps, and their later lines count.
    """
    rows = {
        (row.get("kind"), row.get("step")): row
        for row in read_lines(path)
        if row.get("kind") != "verification"
    }
    return sorted(rows.values(), key=lambda row: (row["step"], row["kind"] == "epoch"))


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a reader finds the old one or the new one, never a part of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = _unfinished(path)
    with unfinished.open("w", encoding="utf-8", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)


def _unfinished(path: Path) -> Path:
    return path.with_name(f".unfinished-{path.name}")
