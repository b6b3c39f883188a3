"""The benchmark of the engine runs and judges; its figures are for quiet machines."""

from __future__ import annotations

import pytest

pytest.importorskip("accelerate")

from training import cli
from verification.bench import time_training

WORDS = ["bench", "training", "--batch", "4", "--steps", "2", "--repeat", "1"]


def test_it_prints_every_figure(capsys):
    assert cli.main(WORDS) == 0
    text = capsys.readouterr().out
    assert "a step of the engine" in text
    assert "% of a step" in text
    assert "timm" in text


def test_check_fails_where_a_promise_is_broken(monkeypatch):
    monkeypatch.setattr(time_training, "AT_MOST", 0.0)
    assert cli.main([*WORDS, "--check"]) == 1
