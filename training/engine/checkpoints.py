"""Checkpoints that are whole or absent: safetensors and JSON, nothing that could run code.

A checkpoint is a folder ``step-00001200`` with the tensors in ``*.safetensors`` and, written last,
``state.json``, which lists the size and the SHA-256 of each. It is written under another name,
flushed to the disk and renamed; a process killed at any moment leaves the earlier ones as they
were and at most an unfinished folder, which the next save removes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from training.errors import DamagedCheckpointError, RunError

Tensors = Mapping[str, Mapping[str, Tensor]]  # file stem -> name -> tensor

_STATE = "state.json"
_UNFINISHED = ".unfinished-"


@dataclass(frozen=True)
class Checkpoint:
    """What a run needs to go on: groups of tensors by name, and plain numbers."""

    step: int
    tensors: Tensors
    state: Mapping[str, Any]


def folder_name(step: int) -> str:
    return f"step-{step:08d}"


def saved_steps(folder: Path) -> list[int]:
    """Steps of the finished checkpoints in a folder, oldest first."""
    names = [path.name for path in folder.glob("step-*") if path.is_dir()]
    return sorted(int(name.removeprefix("step-")) for name in names if name[5:].isdigit())


def save(folder: Path, checkpoint: Checkpoint, keep: int) -> Path:
    """Write a checkpoint and remove all but the last `keep`.

    Raises
    ------
    RunError
        It could not be written (a full disk, say). The earlier ones are untouched.
    """
    target = folder / folder_name(checkpoint.step)
    unfinished = folder / f"{_UNFINISHED}{target.name}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for left_over in folder.glob(f"{_UNFINISHED}*"):
            shutil.rmtree(left_over)
        unfinished.mkdir()
        _write(unfinished, checkpoint)
        if target.exists():  # a damaged one of the same step, passed over when resuming
            shutil.rmtree(target)
        unfinished.rename(target)
        _flush(folder)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise RunError(
            f"cannot save the checkpoint {target}: {error}; earlier checkpoints are untouched, "
            "and the run can be resumed from them"
        ) from error
    for step in saved_steps(folder)[:-keep]:
        shutil.rmtree(folder / folder_name(step))
    return target


def _write(folder: Path, checkpoint: Checkpoint) -> None:
    files = {}
    for stem, tensors in checkpoint.tensors.items():
        path = folder / f"{stem}.safetensors"
        _save(tensors, path)
        files[path.name] = {"bytes": path.stat().st_size, "sha256": _digest(path)}
    state = {"step": checkpoint.step, "files": files, **checkpoint.state}
    path = folder / _STATE
    path.write_text(json.dumps(state, indent=1) + "\n", encoding="utf-8")
    _flush(path)
    _flush(folder)


def _save(tensors: Mapping[str, Tensor], path: Path) -> None:
    save_file(storable(tensors), path)
    # safetensors keeps others from reading; who may, the folder says.
    path.chmod(path.parent.stat().st_mode & 0o666)
    _flush(path)


def storable(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Packed copies: safetensors refuses tensors that share memory or have gaps."""
    return {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def save_weights(model: nn.Module, path: Path) -> None:
    """Write the weights of a model, whole or not at all."""
    unfinished = path.with_name(f"{_UNFINISHED}{path.name}")
    try:
        _save(model.state_dict(), unfinished)
        unfinished.replace(path)
    except (OSError, SafetensorError) as error:
        unfinished.unlink(missing_ok=True)
        raise RunError(f"cannot save {path}: {error}") from error


def load(folder: Path, step: int) -> Checkpoint:
    """Read a checkpoint and check every byte of it.

    Raises
    ------
    DamagedCheckpointError
        A file is missing, cut short or changed; the message names it.
    """
    path = folder / folder_name(step)
    try:
        state = json.loads((path / _STATE).read_text(encoding="utf-8"))
        files = state.pop("files")
        for name, written in files.items():
            size = (path / name).stat().st_size
            if size != written["bytes"]:
                raise DamagedCheckpointError(
                    f"{path / name} has {size:,} bytes instead of {written['bytes']:,}"
                )
            if _digest(path / name) != written["sha256"]:
                raise DamagedCheckpointError(f"{path / name} is not what was written")
        tensors = {Path(name).stem: load_file(path / name) for name in files}
        return Checkpoint(state.pop("step"), tensors, state)
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise DamagedCheckpointError(f"{path} cannot be read: {error}") from error


def load_latest(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """The newest checkpoint that is whole, and what was wrong with newer ones."""
    problems: list[str] = []
    for step in reversed(saved_steps(folder)):
        try:
            return load(folder, step), problems
        except DamagedCheckpointError as error:
            problems.append(str(error))
    return None, problems


def flat(mapping: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """``{a: {b: tensor}}`` as ``{"a/b": tensor}``, which is what a file can hold."""
    return {f"{a}/{b}": tensor for a, inner in mapping.items() for b, tensor in inner.items()}


def nested(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """The inverse of `flat`."""
    result: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        outer, _, inner = name.rpartition("/")
        result.setdefault(outer, {})[inner] = tensor
    return result
