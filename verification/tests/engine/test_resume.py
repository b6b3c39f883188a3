"""A run that is killed and resumed is the run that was not: every bit, every logged number."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

pytest.importorskip("accelerate")

from training.engine.run_folder import training_rows
from verification.tests.training_runs import (
    assert_same_bits,
    environment,
    result,
    train_apart,
    train_command,
    weights,
    without_clocks,
)

pytestmark = pytest.mark.slow

STEPS = 18  # of the whole run: 3 epochs of 6


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    train_apart(folder)
    return folder


# The end of a process without a chance to clean up, at the first use of a file after the event.
DIES = """
import os, pathlib, runpy, sys

folder, event = pathlib.Path(sys.argv[1]), sys.argv[2]
sys.argv[:3] = ["training.cli"]

def die(name, arguments):
    if name in ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"):
        if any(folder.glob(event)):
            os._exit(77)

sys.addaudithook(die)
runpy.run_module("training.cli", run_name="__main__")
"""


def kill_when(folder: Path, event: str) -> None:
    """Start the run, which dies when a file or folder named by `event` exists."""
    words = train_command(folder)
    assert words[1:3] == ["-m", "training.cli"]
    command = [words[0], "-c", DIES, str(folder), event, *words[3:]]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True)
    assert done.returncode == 77, done.stdout + done.stderr


# At the very start; between checkpoints; while one is written; between epochs.
@pytest.mark.parametrize(
    "event",
    [
        "config.toml",
        "checkpoints/.unfinished-*",
        "checkpoints/step-00000004",
        "checkpoints/.unfinished-*/model.safetensors",
        "checkpoints/step-*/best.safetensors",
        "checkpoints/step-00000016",
    ],
)
def test_killed_and_resumed_equals_undisturbed(undisturbed, tmp_path, event):
    folder = tmp_path / "run"
    kill_when(folder, event)
    assert not (folder / "result.json").exists()
    train_apart(folder)
    assert_same_bits(weights(folder), weights(undisturbed))
    assert result(folder) == result(undisturbed)
    logs = [
        [without_clocks(row) for row in training_rows(each / "log.jsonl")]
        for each in (folder, undisturbed)
    ]
    assert logs[0] == logs[1]
    assert logs[0][-1]["step"] == STEPS


def test_killed_again_and_again(undisturbed, tmp_path):
    folder = tmp_path / "run"
    for step in (4, 12):
        kill_when(folder, f"checkpoints/step-{step:08d}")
    train_apart(folder)
    assert_same_bits(weights(folder), weights(undisturbed))


def test_another_seed_gives_other_weights(undisturbed, tmp_path):
    # Or the comparisons above would prove nothing.
    train_apart(tmp_path / "run", "seed=1")
    with pytest.raises(AssertionError):
        assert_same_bits(weights(tmp_path / "run"), weights(undisturbed))
