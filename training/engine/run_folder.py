"""The folder of a run: what it holds, and the rule that nothing in it is overwritten.

``config.toml`` (the effective config), ``pretrained.txt`` (what was loaded of a file of weights),
``log.jsonl`` (appended), ``checkpoints/``, ``weights.safetensors`` (selected, at the end),
``evaluations.jsonl`` (appended), ``result.json`` (written once), ``tensorboard/``, and for people
``curves.png`` and ``report.md``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from training.errors import RunError

# The parts of a run that searches for the number of epochs before its last training.
SEARCH, FINAL = "search", "final"
_LOCK = ".lock"


class RunFolder:
    """Paths and appended files of a run; only the main process writes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.toml"
        self.pretrained = path / "pretrained.txt"
        self.log = path / "log.jsonl"
        self.checkpoints = path / "checkpoints"
        self.weights = path / "weights.safetensors"
        self.evaluations = path / "evaluations.jsonl"
        self.result = path / "result.json"
        self.tensorboard = path / "tensorboard"
        self.curves = path / "curves.png"
        self.report = path / "report.md"

    def part(self, name: str) -> RunFolder:
        """A run within this one, such as the search for the number of epochs before the last."""
        return RunFolder(self.path / name)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out; `RunError` if one is at work here."""
        try:
            with FileLock(self.path / _LOCK, timeout=0):
                yield
        except Timeout as error:
            raise RunError(f"{self.path} is being trained by another process") from error

    def is_free(self) -> bool:
        """Whether nothing is here but, perhaps, what a run writes before it begins to train."""
        if not self.path.exists():
            return True
        if self.config.exists():
            begun = (self, *(self.part(name) for name in (SEARCH, FINAL)))
            return not any(each.log.exists() or each.checkpoints.exists() for each in begun)
        hidden = (_LOCK, _unfinished(self.config).name)
        return all(path.name in hidden for path in self.path.iterdir())

    def trainings(self) -> dict[str, RunFolder]:
        """Where the logs of this run are: of its parts by name, or its own under no name."""
        begun = {name: self.part(name) for name in (SEARCH, FINAL)}
        begun = {name: part for name, part in begun.items() if part.log.exists()}
        return begun or {"": self}

    def read_result(self) -> dict[str, Any] | None:
        """The result of a finished run, None for one that is not finished."""
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


def append_line(path: Path, row: Mapping[str, Any]) -> None:
    """Append one JSON object as a line, on the disk when this returns."""
    text = json.dumps(row) + "\n"
    with path.open("a+b") as file:
        # A line cut short by a crash would swallow this one: begin on a line of its own.
        if file.tell() > 0:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                text = "\n" + text
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a log; a line cut short by a crash is passed over."""
    if not path.exists():
        return
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            yield row


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a reader finds the old one or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = _unfinished(path)
    with unfinished.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)


def _unfinished(path: Path) -> Path:
    return path.with_name(f".unfinished-{path.name}")


def training_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a log in order, each step and epoch once.

    A run that was killed and resumed repeats the steps after its last checkpoint; they are the
    same, and the later line counts.
    """
    rows = {(row.get("kind"), row.get("step")): row for row in read_lines(path)}
    return sorted(rows.values(), key=lambda row: (row["step"], row["kind"] == "epoch"))
