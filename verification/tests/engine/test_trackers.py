"""Trackers: what they are sent, where a resumed run goes on, and that none can stop a training.

wandb and MLflow are stand-ins with the calls that accelerate makes; the files of TensorBoard are
read back.
"""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

pytest.importorskip("accelerate")

from accelerate import PartialState

from training.config import ConfigError, config_hash, flat_table, load_config
from training.engine.logs import Tracker
from training.engine.run import run
from training.engine.run_folder import RunFolder
from verification.tests.training_runs import TINY

ROWS = (
    {"kind": "step", "step": 3, "epoch": 0.5, "loss": 2.5, "encoding": {"tau_imag": 1.0}},
    {"kind": "epoch", "step": 6, "epoch": 1, "loss": 2.25, "validation": {"accuracy": 0.25}},
)
NUMBERS = {
    3: {"step/loss": 2.5, "step/encoding/tau_imag": 1.0},
    6: {"epoch/loss": 2.25, "epoch/validation/accuracy": 0.25},
}


@pytest.fixture(autouse=True)
def state() -> None:
    PartialState()  # which the accelerator of a run makes


def track(name: str, path: Path, *, step: int = 0) -> list[str]:
    """Send some rows to a tracker; returns what was said to the user."""
    said: list[str] = []
    tracker = Tracker(name, RunFolder(path), flat_table(load_config("digits")), said.append)
    tracker.started(6, step)
    for row in ROWS:
        tracker.logged(row)
    tracker.finished()
    return said


def fake_wandb(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> list[Any]:
    """A stand-in for wandb; returns the list of calls it will get."""
    calls: list[Any] = []
    run = SimpleNamespace(
        id="run7",
        log=lambda values, step: calls.append(("log", step, values)),
        finish=lambda: calls.append("finish"),
    )

    def init(**options):
        calls.append(("init", options))
        return run

    module: Any = ModuleType("wandb")
    module.init = init
    module.config = SimpleNamespace(update=lambda values, **_: calls.append(("config", values)))
    for name, value in changes.items():
        setattr(module, name, value)
    monkeypatch.setitem(sys.modules, "wandb", module)
    return calls


def test_wandb_gets_the_numbers_and_the_config(tmp_path, monkeypatch):
    calls = fake_wandb(monkeypatch)
    path = tmp_path / "mine"
    assert track("wandb", path) == []
    (_, options), (_, config), *logged, end = calls
    assert options == {"project": "wefpe", "name": "mine", "dir": str(path)}
    assert config["training.epochs"] == load_config("digits").training.epochs
    assert logged == [("log", step, numbers) for step, numbers in NUMBERS.items()]
    assert end == "finish"


def test_a_resumed_run_goes_on_in_wandb(tmp_path, monkeypatch):
    calls = fake_wandb(monkeypatch)
    for _ in range(2):
        track("wandb", tmp_path / "run" / "final")
    first, second = (call[1] for call in calls if call[0] == "init")
    assert first["name"] == "run-final"
    assert "id" not in first
    assert (second["id"], second["resume"]) == ("run7", "allow")
    assert len([call for call in calls if call[0] == "config"]) == 1


def test_mlflow_gets_the_numbers_and_goes_on_in_its_run(tmp_path, monkeypatch):
    calls: list[Any] = []

    def start_run(**options):
        calls.append(("start", options["run_id"], options["run_name"]))
        return SimpleNamespace(info=SimpleNamespace(run_id="abc"))

    module: Any = ModuleType("mlflow")
    module.search_experiments = lambda **_: [SimpleNamespace(experiment_id="1")]
    module.start_run = start_run
    module.end_run = lambda: calls.append("end")
    module.log_params = lambda values: calls.append(("config", len(values)))
    module.log_metrics = lambda values, step: calls.append(("log", step, values))
    limits = SimpleNamespace(MAX_PARAM_VAL_LENGTH=6000, MAX_PARAMS_TAGS_PER_BATCH=1000)
    module.utils = SimpleNamespace(validation=limits)
    monkeypatch.setitem(sys.modules, "mlflow", module)
    for _ in range(2):
        assert track("mlflow", tmp_path / "run") == []
    logged = [("log", step, numbers) for step, numbers in NUMBERS.items()]
    count = len(flat_table(load_config("digits")))
    assert calls == [
        *(("start", None, "run"), ("config", count), *logged, "end"),
        *(("start", "abc", "run"), *logged, "end"),
    ]


def test_tensorboard_has_the_numbers_without_those_that_are_repeated(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert track("tensorboard", tmp_path) == []
    assert track("tensorboard", tmp_path, step=3) == []  # resumed: step 6 comes again
    found = EventAccumulator(str(tmp_path / "tensorboard"))
    found.Reload()
    for step, numbers in NUMBERS.items():
        for name, value in numbers.items():
            events = [(event.step, event.value) for event in found.Scalars(name)]
            assert (step, value) in events
    assert [event.step for event in found.Scalars("epoch/loss")] == [6]


# --- What goes wrong -------------------------------------------------------------------------


def fails(*_: object, **__: object) -> None:
    raise ValueError("no API key\nconfigure it with ...")


def test_a_tracker_that_cannot_log_in_is_off(tmp_path, monkeypatch):
    fake_wandb(monkeypatch, init=fails)
    [said] = track("wandb", tmp_path)
    assert said == "the tracker wandb is off, and training goes on: no API key"


@pytest.mark.parametrize(("chosen", "tries"), [(None, "2"), ("5", "5")])
def test_a_server_that_does_not_answer_is_not_waited_for_long(tmp_path, monkeypatch, chosen, tries):
    name = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"
    monkeypatch.setenv(name, chosen or "")  # so that it is put back
    if chosen is None:
        monkeypatch.delenv(name)
    seen = []
    module: Any = ModuleType("mlflow")
    module.search_experiments = lambda **_: seen.append(os.environ.get(name)) or fails()
    monkeypatch.setitem(sys.modules, "mlflow", module)
    [said] = track("mlflow", tmp_path)
    assert "the tracker mlflow is off" in said
    assert seen == [tries]


def test_a_tracker_that_fails_later_is_off_from_then_on(tmp_path, monkeypatch):
    run = SimpleNamespace(id="x", log=fails, finish=fails)
    fake_wandb(monkeypatch, init=lambda **_: run)
    [said] = track("wandb", tmp_path)
    assert "wandb is off" in said


def test_a_run_without_its_trackers_ends_as_any_other(tmp_path, monkeypatch):
    for name in ("wandb", "mlflow"):
        monkeypatch.setitem(sys.modules, name, None)  # as if it were not installed
    overrides = [*TINY, "training.epochs=1", "training.threads=0"]
    config = load_config("digits", [*overrides, 'logging.trackers=["wandb", "mlflow"]'])
    console = Console(record=True, file=io.StringIO(), width=300)
    result = run(config, tmp_path / "run", console=console)
    said = console.export_text().splitlines()
    assert len([line for line in said if line.startswith("the tracker wandb is off")]) == 1
    assert len([line for line in said if line.startswith("the tracker mlflow is off")]) == 1
    assert result["config_hash"] == config_hash(load_config("digits", overrides))


@pytest.mark.parametrize(
    ("text", "said"), [('["wandb", "wandb"]', "twice"), ('["wanbd"]', "wandb"), ("[3]", "wandb")]
)
def test_wrong_trackers_are_refused(text, said):
    with pytest.raises(ConfigError, match=said) as caught:
        load_config("digits", [f"logging.trackers={text}", "training.epochs=0"])
    assert "logging.trackers" in str(caught.value)
    assert "training.epochs" in str(caught.value)  # all mistakes together
