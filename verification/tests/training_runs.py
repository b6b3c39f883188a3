"""Small runs for the tests of the training layer, as experiments and as processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

# A run of seconds with all that carries state: dropout, mixup, an average, a learned lattice.
TINY = (
    "verification=off",  # what receipts do to a run is tested in test_verification.py
    "data.train_images=192",
    "data.validation=64",
    "model.dim=16",
    "model.depth=2",
    "model.num_heads=2",
    "model.dropout=0.1",
    "model.drop_path=0.1",
    "training.epochs=3",
    "training.batch_size=32",
    "training.ema_decay=0.9",
    "training.threads=1",
    "schedule.warmup_epochs=1",
    "selection.by=validation",
    "augmentation.mixup_alpha=0.3",
    "augmentation.mix_probability=0.6",
    "checkpoint.every_steps=4",
    "logging.every_steps=3",
    "logging.tensorboard=false",
)
# Without dropout of tokens, because its masks depend on how a batch is divided. That of the
# position table stays: it is drawn once for all parts.
WITHOUT_DROPOUT = (
    "model.dropout=0.0",
    "model.drop_path=0.0",
    "training.ema_decay=0.0",
)


def train_command(folder: Path, *overrides: str, launcher: Sequence[str] = ()) -> list[str]:
    module = ["-m", "training.cli", "train", "digits", *TINY, *overrides]
    return [sys.executable, *launcher, *module, "--folder", str(folder), "--resume"]


def environment() -> dict[str, str]:
    """The environment of this process with one thread and the packages of this checkout first."""
    here = str(Path(__file__).resolve().parents[2])
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": here}


def train_apart(folder: Path, *overrides: str, launcher: Sequence[str] = ()) -> None:
    """Train in a process of its own; a failure shows its output."""
    command = train_command(folder, *overrides, launcher=launcher)
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "weights.safetensors")


def assert_same_bits(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name


def without_clocks(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of a log or a result without what depends on the time and the machine."""
    clocks = {"seconds", "images_per_second", "training_seconds", "training_images_per_second"}
    clocks |= {"test_images_per_second", "peak_memory_mb", "circumstances"}
    return {key: value for key, value in row.items() if key not in clocks}


def result(folder: Path) -> dict[str, Any]:
    return without_clocks(json.loads((folder / "result.json").read_text()))
