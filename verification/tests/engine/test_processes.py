"""Two processes that share a batch take the steps of one process."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("accelerate")

from training.engine.run_folder import training_rows
from verification.tests.training_runs import WITHOUT_DROPOUT, train_apart, weights

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
        torch.testing.assert_close(two[name], tensor, rtol=0, atol=5e-4, msg=name)
