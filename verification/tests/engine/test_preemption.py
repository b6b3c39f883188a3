"""Runs that are asked to stop: a checkpoint, an exit code, and the same bits after resuming."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

pytest.importorskip("accelerate")
psutil = pytest.importorskip("psutil")  # which accelerate brings

from training.cli import main
from training.config import load_config
from training.engine import preemption
from training.engine.checkpoints import saved_steps
from training.engine.preemption import PARENT, StopRequest
from training.engine.run import run
from training.engine.trainer import Trainer
from training.errors import PREEMPTED, PreemptedError
from verification.tests.training_runs import (
    TINY,
    assert_same_bits,
    environment,
    result,
    train_apart,
    train_command,
    weights,
)

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows sends no such signals")
QUIET = Console(quiet=True)
SHORT = (*TINY, "training.epochs=2", "training.threads=0", "checkpoint.every_steps=0")
STEPS = 6  # of an epoch


def short_run(path: Path, *overrides: str) -> dict[str, Any]:
    return run(load_config("digits", [*SHORT, *overrides]), path, resume=True, console=QUIET)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("undisturbed") / "run"
    short_run(path)
    return path


def signal_in_step(monkeypatch: pytest.MonkeyPatch, step: int, number: int) -> None:
    """Let a signal reach this process during a step of a training, once."""
    original, sent = Trainer._train_step, list[int]()

    def train_step(self, batch):
        if self.progress.step == step - 1 and not sent:
            sent.append(number)
            signal.raise_signal(number)
        return original(self, batch)

    monkeypatch.setattr(Trainer, "_train_step", train_step)


# --- The request -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", preemption.SIGNALS)
def test_a_signal_is_noted_and_its_handler_comes_back(name):
    number = getattr(signal, name)
    before = signal.getsignal(number)
    with StopRequest() as request:
        assert request.reason == ""
        signal.raise_signal(number)
        assert request.reason == name
    assert signal.getsignal(number) is before


def test_a_thread_leaves_the_handlers_alone():
    before, seen = signal.getsignal(signal.SIGTERM), []

    def enter():
        with StopRequest():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [before]


def test_the_end_of_the_parent_is_a_request(monkeypatch):
    monkeypatch.setattr(preemption, "_SECONDS_BETWEEN_LOOKS", 0.01)
    parent = [4321]
    monkeypatch.setattr(os, "getppid", lambda: parent[0])
    monkeypatch.setenv(PARENT, "4321")
    with StopRequest() as request:
        time.sleep(0.05)
        assert request.reason == ""
        parent[0] = 1
        deadline = time.monotonic() + 5.0
        while not request.reason:
            assert time.monotonic() < deadline
            time.sleep(0.01)


# --- Runs ------------------------------------------------------------------------------------


# In an epoch, in the last step of one, and in the last step of all.
@pytest.mark.parametrize(("step", "saved"), [(2, 2), (STEPS, STEPS), (2 * STEPS, None)])
def test_a_run_asked_to_stop_saves_and_goes_on_with_the_same_bits(
    undisturbed, tmp_path, monkeypatch, step, saved
):
    path = tmp_path / "run"
    signal_in_step(monkeypatch, step, signal.SIGUSR1)
    if saved is None:  # what is left is the test, which is done
        short_run(path)
    else:
        with pytest.raises(PreemptedError, match=f"SIGUSR1 after step {saved}, .*--resume"):
            short_run(path)
        assert saved_steps(path / "checkpoints")[-1] == saved
        assert not (path / "result.json").exists()
        short_run(path)
    assert_same_bits(weights(path), weights(undisturbed))
    assert result(path) == result(undisturbed)


def test_both_phases_of_a_run_can_be_stopped(tmp_path, monkeypatch):
    path, phases = tmp_path / "run", ("selection.retrain_on_all=true", "training.epochs=1")
    with monkeypatch.context() as patch:
        signal_in_step(patch, 2, signal.SIGTERM)
        with pytest.raises(PreemptedError):
            short_run(path, *phases)
    assert saved_steps(path / "search" / "checkpoints") == [2]
    with monkeypatch.context() as patch:
        signal_in_step(patch, 1, signal.SIGTERM)  # of the final phase
        with pytest.raises(PreemptedError):
            short_run(path, *phases)
    assert saved_steps(path / "final" / "checkpoints") == [1]
    assert short_run(path, *phases)["epochs"] == 1


def test_the_command_ends_with_the_documented_code(tmp_path, monkeypatch, capsys):
    signal_in_step(monkeypatch, 2, signal.SIGTERM)
    assert main(["train", "digits", *SHORT, "--folder", str(tmp_path / "run")]) == PREEMPTED == 75
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("wefpe train: stopped by SIGTERM after step 2")


def test_checkpoints_by_the_clock_change_nothing_else(undisturbed, tmp_path):
    path = tmp_path / "run"
    short_run(path, "checkpoint.every_minutes=1e-9", "checkpoint.keep=99")
    assert saved_steps(path / "checkpoints") == list(range(1, 2 * STEPS + 1))
    assert_same_bits(weights(path), weights(undisturbed))
    assert result(path) == result(undisturbed)
    path = tmp_path / "seldom"
    short_run(path, "checkpoint.every_minutes=60.0", "checkpoint.keep=99")
    assert saved_steps(path / "checkpoints") == [STEPS, 2 * STEPS]


@pytest.mark.slow
def test_a_signal_to_one_of_two_processes_stops_both(tmp_path):
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    path, long = tmp_path / "run", ("training.epochs=6", "checkpoint.every_steps=0")
    command = train_command(path, *long, launcher=launcher)
    process = subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 120
        while not (path / "log.jsonl").exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        ranks = [
            child
            for child in psutil.Process(process.pid).children()
            if child.environ().get("RANK") == "1"
        ]
        [child] = ranks
        child.send_signal(signal.SIGUSR1)
        _, said = process.communicate(timeout=120)
    finally:
        process.kill()
    assert "wefpe train: stopped by SIGUSR1 after step" in said
    assert "wefpe train: stopped by a request to another process after step" in said
    assert saved_steps(path / "checkpoints")
    assert not (path / "result.json").exists()
    train_apart(path, *long, launcher=launcher)
    assert result(path)["epochs"] == 6
