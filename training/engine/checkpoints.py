"""Checkpoints that are whole or absent: safetensors and JSON, nothing that could run code.

A checkpoint is a folder ``step-00001200`` with the tensors in ``*.safetensors`` and, written last,
``state.json``, which has the size and the SHA-256 of each file, and the SHA-256 of all else that it
says. The folder is written under another name, flushed to the disk and renamed. A process killed at
any moment leaves the earlier checkpoints as they were and at most an unfinished folder, which the
next save removes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from training.errors import CheckpointFormatError, DamagedCheckpointError, RunError

# The format of state.json. Raise it with every change that an older version would misread.
# Folders made before formats were counted have no such key; their layout is that of format 1.
FORMAT = 1

_STATE = "state.json"
_DIGEST = "sha256"  # of all else in state.json; older checkpoints do not have it
_UNFINISHED = ".unfinished-"


@dataclass(frozen=True)
class Checkpoint:
    """What a run needs to go on."""

    step: int
    tensors: Mapping[str, Mapping[str, Tensor]]  # name of the file -> name -> tensor
    state: Mapping[str, Any]  # plain numbers, as JSON has them


def folder_name(step: int) -> str:
    return f"step-{step:08d}"


def saved_steps(folder: Path) -> list[int]:
    """The steps of the finished checkpoints in a folder, oldest first."""
    names = [path.name for path in folder.glob("step-*") if path.is_dir()]
    return sorted(int(name.removeprefix("step-")) for name in names if name[5:].isdigit())


# --- Writing -------------------------------------------------------------------------------


def save(folder: Path, checkpoint: Checkpoint, keep: int) -> Path:
    """Write a checkpoint and remove all but the last `keep`.

    Raises
    ------
    RunError
        The checkpoint could not be written, for example because the disk is full. The earlier
        ones are untouched.
    """
    target = folder / folder_name(checkpoint.step)
    unfinished = folder / f"{_UNFINISHED}{target.name}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for left_over in folder.glob(f"{_UNFINISHED}*"):
            shutil.rmtree(left_over)
        unfinished.mkdir()
        _write_files(unfinished, checkpoint)
        if target.exists():  # a damaged one of the same step, passed over when resuming
            shutil.rmtree(target)
        unfinished.rename(target)
        _flush_folder(folder)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise RunError(
            f"cannot save the checkpoint {target}: {error}; earlier checkpoints are untouched, "
            "and the run can be resumed from them"
        ) from error
    for step in saved_steps(folder)[:-keep]:
        shutil.rmtree(folder / folder_name(step))
    return target


def save_weights(model: nn.Module, path: Path) -> None:
    """Write the weights of a model, whole or not at all."""
    unfinished = path.with_name(f"{_UNFINISHED}{path.name}")
    try:
        _write_tensors(model.state_dict(), unfinished)
        unfinished.replace(path)
    except (OSError, SafetensorError) as error:
        unfinished.unlink(missing_ok=True)
        raise RunError(f"cannot save {path}: {error}") from error


def packed_copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Contiguous copies on the CPU: safetensors refuses tensors that share memory or have gaps."""
    return {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }


def _write_files(folder: Path, checkpoint: Checkpoint) -> None:
    files = {}
    for stem, tensors in checkpoint.tensors.items():
        path = folder / f"{stem}.safetensors"
        _write_tensors(tensors, path)
        files[path.name] = {"bytes": path.stat().st_size, "sha256": _sha256(path)}
    state = {"format": FORMAT, "step": checkpoint.step, "files": files, **checkpoint.state}
    state = json.loads(json.dumps(state))  # as a reader will find it
    path = folder / _STATE
    text = json.dumps({**state, _DIGEST: _digest(state)}, indent=1)
    path.write_text(text + "\n", encoding="utf-8", newline="\n")
    _flush_file(path)
    _flush_folder(folder)


def _write_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    save_file(packed_copies(tensors), path)
    # safetensors lets only the owner read its files; the rights of the folder count instead.
    path.chmod(path.parent.stat().st_mode & 0o666)
    _flush_file(path)


def _flush_file(path: Path) -> None:
    """Return when the file is on the disk."""
    with path.open("r+b") as file:  # Windows flushes only what is open for writing
        os.fsync(file.fileno())


def _flush_folder(path: Path) -> None:
    """Return when the names in the folder are on the disk; Windows cannot be asked for that."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest(state: Mapping[str, Any]) -> str:
    """The SHA-256 of what a state says, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


# --- Reading -------------------------------------------------------------------------------


def load_latest(
    folder: Path, check: Callable[[Checkpoint], object] | None = None
) -> tuple[Checkpoint | None, list[str]]:
    """The newest checkpoint that is whole, and what was wrong with newer ones.

    `check` raises a `ValueError` if a checkpoint lacks what the caller needs, which is a damage
    like any other.
    """
    problems: list[str] = []
    for step in reversed(saved_steps(folder)):
        try:
            checkpoint = load(folder, step)
            if check is not None:
                check(checkpoint)
            return checkpoint, problems
        except DamagedCheckpointError as error:
            problems.append(str(error))
        except ValueError as error:
            reason = " ".join(str(error).split())
            problems.append(f"{folder / folder_name(step) / _STATE}: {reason}")
    return None, problems


def load(folder: Path, step: int) -> Checkpoint:
    """Read a checkpoint and check every byte of it.

    Raises
    ------
    DamagedCheckpointError
        A file is missing, cut short or changed; the message names it.
    CheckpointFormatError
        A newer version wrote the checkpoint in a format that this one does not know.
    """
    path = folder / folder_name(step)
    try:
        state = json.loads((path / _STATE).read_text(encoding="utf-8"))
        digest = state.pop(_DIGEST, None)
        if digest is not None and digest != _digest(state):
            raise DamagedCheckpointError(f"{path / _STATE} has changed since it was saved")
        _check_format(state.pop("format", FORMAT), path / _STATE)
        files = state.pop("files")
        for name, expected in files.items():
            size = (path / name).stat().st_size
            if size != expected["bytes"]:
                raise DamagedCheckpointError(
                    f"{path / name} has {size:,} bytes instead of {expected['bytes']:,}"
                )
            if _sha256(path / name) != expected["sha256"]:
                raise DamagedCheckpointError(
                    f"the bytes of {path / name} have changed since it was saved"
                )
        tensors = {Path(name).stem: load_file(path / name) for name in files}
        return Checkpoint(state.pop("step"), tensors, state)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        raise DamagedCheckpointError(f"{path} cannot be read: {error}") from error


def _check_format(found: Any, path: Path) -> None:
    if not isinstance(found, int) or found < 1:
        raise DamagedCheckpointError(f"{path} has the format {found!r}, which is no number from 1")
    if found > FORMAT:
        raise CheckpointFormatError(
            f"{path} has format {found}; this version of wefpe reads formats up to {FORMAT}. "
            "Resume the run with the version of wefpe that wrote it or a later one, or train in "
            "another folder"
        )


# --- Names of tensors ----------------------------------------------------------------------


def flatten(mapping: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """``{a: {b: tensor}}`` as ``{"a/b": tensor}``, which is what a file can hold."""
    return {f"{a}/{b}": tensor for a, inner in mapping.items() for b, tensor in inner.items()}


def unflatten(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """The inverse of `flatten`."""
    result: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        outer, _, inner = name.rpartition("/")
        result.setdefault(outer, {})[inner] = tensor
    return result
