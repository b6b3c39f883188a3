"""Two processes that share a batch take the steps of one process."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch
from rich.console import Console

pytest.importorskip("accelerate")

from training.config import load_config
from training.engine.run import run
from training.engine.run_folder import training_rows
from verification.tests.training_runs import (
    TINY,
    WITHOUT_DROPOUT,
    environment,
    train_apart,
    weights,
)

TWO = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


@pytest.mark.slow
def test_two_gloo_processes_equal_one(tmp_path):
    train_apart(tmp_path / "one", *WITHOUT_DROPOUT)
    train_apart(tmp_path / "two", *WITHOUT_DROPOUT, launcher=TWO)
    losses = [
        [row["loss"] for row in training_rows(tmp_path / name / "log.jsonl")]
        for name in ("one", "two")
    ]
    # Sums of float32 in another order, through 18 steps.
    torch.testing.assert_close(*map(torch.tensor, losses), rtol=2e-4, atol=0)
    one, two = weights(tmp_path / "one"), weights(tmp_path / "two")
    for name, tensor in one.items():
        other = two[name]
        if name.endswith("qkv.bias"):
            # Softmax does not feel a bias of the keys: its gradient is rounding that Adam enlarges.
            tensor, other = (torch.cat(each.chunk(3)[::2]) for each in (tensor, other))
        torch.testing.assert_close(other, tensor, rtol=0, atol=1e-4, msg=name)


@pytest.mark.slow
def test_two_gloo_processes_evaluate_as_one(tmp_path):
    path = tmp_path / "run"
    config = load_config("digits", [*TINY, "training.epochs=2"])
    trained = run(config, path, console=Console(quiet=True))
    words = ["-m", "training.cli", "evaluate", str(path), "--split", "test", "--batch-size", "101"]
    done = subprocess.run(
        [sys.executable, *TWO, *words],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    [said] = done.stdout.splitlines()
    assert said.startswith(f"test accuracy {trained['test_accuracy']:.2%}, ")
    assert "images/s, peak memory" in said
    [line] = (path / "evaluations.jsonl").read_text().splitlines()
    row = json.loads(line)
    assert (row["accuracy"], row["images"]) == (trained["test_accuracy"], 360)
    assert row["loss"] == pytest.approx(trained["test_loss"], rel=1e-6)
    assert row["processes"] == 2
    assert row["images_per_second"] > 0.0
    assert row["peak_memory_mb"] > 0.0
