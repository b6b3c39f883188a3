"""Whole small runs: what they leave behind, what they refuse, and how they stop."""

from __future__ import annotations

import io
import json
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

pytest.importorskip("accelerate")

from accelerate import Accelerator

from training.cli import main
from training.config import dump_toml, load_config
from training.data import built_in, open_data
from training.engine import checkpoints
from training.engine.finished_run import evaluate_run, open_finished_run
from training.engine.run import run
from training.engine.run_folder import RunFolder, read_lines, same_config, training_rows
from training.errors import CheckpointFormatError, NonFiniteError, RunError
from training.models.checkpoint_files import CheckpointError
from verification.tests.training_runs import TINY, WITHOUT_DROPOUT

QUIET = Console(quiet=True)
Rows = list[dict[str, Any]]
SHORT = (*TINY, "training.epochs=2", "training.threads=0")


def short_run(path: Path, *overrides: str, resume: bool = False) -> dict[str, Any]:
    return run(load_config("digits", [*SHORT, *overrides]), path, resume=resume, console=QUIET)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("finished") / "run"
    short_run(path)
    return path


def test_a_run_leaves_what_it_promises(finished):
    folder = RunFolder(finished)
    for path in (folder.config, folder.log, folder.weights, folder.result, folder.report):
        assert path.stat().st_size > 0
    assert folder.curves.read_bytes().startswith(b"\x89PNG")
    result = folder.read_result()
    assert result is not None
    assert result["test_images"] == 360
    assert result["epochs"] == 2
    epochs = [row for row in training_rows(folder.log) if row["kind"] == "epoch"]
    assert [row["epoch"] for row in epochs] == [1, 2]
    assert epochs[-1]["encoding"]["tau_imag"] != epochs[0]["encoding"]["tau_imag"]  # it learns
    best = max(epochs, key=lambda row: row["validation"]["accuracy"])
    assert result["validation_accuracy"] == best["validation"]["accuracy"]
    report = folder.report.read_text()
    assert f"{result['test_accuracy']:.2%}" in report
    assert "![curves](curves.png)" in report
    assert f"\n| 2 | {epochs[-1]['loss']:.4f} |" in report
    rate = 12 * 32 / result["training_seconds"]  # steps, and images of each
    assert result["training_images_per_second"] == pytest.approx(rate)
    assert f"training {rate:,.0f} images/s, test {result['test_images_per_second']:,.0f}" in report
    assert f"{result['peak_memory_mb']:,.0f} MB" in report


def test_the_effective_config_is_saved(finished):
    assert load_config(finished / "config.toml") == load_config("digits", SHORT)


def test_evaluating_again_gives_the_recorded_number_and_appends(finished):
    recorded = RunFolder(finished).read_result()
    assert recorded is not None
    for count in (1, 2):
        scores = evaluate_run(finished, "test", batch_size=100 * count)
        assert scores.accuracy == recorded["test_accuracy"]
        assert scores.images == 360
        lines = (finished / "evaluations.jsonl").read_text().splitlines()
        assert len(lines) == count
    assert RunFolder(finished).read_result() == recorded


def test_a_finished_run_is_not_repeated(finished):
    before = (finished / "weights.safetensors").stat().st_mtime_ns
    assert short_run(finished, resume=True) == RunFolder(finished).read_result()
    assert (finished / "weights.safetensors").stat().st_mtime_ns == before


def test_a_folder_with_a_run_is_not_overwritten(finished):
    with pytest.raises(RunError, match="--resume"):
        short_run(finished)


def test_a_run_of_another_config_is_not_resumed(finished):
    with pytest.raises(RunError, match=r"optimizer\.learning_rate was 0\.003, is 0\.004"):
        short_run(finished, "optimizer.learning_rate=0.004", resume=True)


def test_a_run_begun_before_formats_were_counted_is_resumed(tmp_path):
    # The folder was written by the last version without formats, stopped after epoch 1 of 2.
    path = tmp_path / "run"
    shutil.copytree(Path(__file__).parent / "run_without_format", path)
    before = (path / "log.jsonl").read_text()
    result = run(load_config(path / "config.toml"), path, resume=True, console=QUIET)
    assert (path / "log.jsonl").read_text().startswith(before)
    *_, third, fourth, epoch = training_rows(path / "log.jsonl")
    # That version went on with these numbers, on one machine: others round differently.
    assert third["loss"] == pytest.approx(2.4045040607452393, rel=1e-5)
    assert fourth["loss"] == pytest.approx(2.4404449462890625, rel=1e-5)
    assert epoch["validation"]["loss"] == pytest.approx(2.402520179748535, rel=1e-5)
    assert epoch["encoding"]["tau_imag"] == pytest.approx(0.9974254360807715, rel=1e-6)
    assert result["epochs"] == 2


def test_a_run_of_a_newer_format_is_not_resumed(tmp_path):
    path = tmp_path / "run"
    shutil.copytree(Path(__file__).parent / "run_without_format", path)
    state = path / "checkpoints" / "step-00000002" / "state.json"
    state.write_text(json.dumps(json.loads(state.read_text()) | {"format": 7}))
    before = (path / "log.jsonl").read_text()
    with pytest.raises(CheckpointFormatError, match="has format 7"):
        run(load_config(path / "config.toml"), path, resume=True, console=QUIET)
    assert (path / "log.jsonl").read_text() == before


def test_the_config_of_a_folder_counts_and_not_a_hash_of_an_earlier_version(tmp_path, finished):
    path = tmp_path / "run"
    shutil.copytree(finished, path)
    recorded = json.loads((path / "result.json").read_text()) | {"config_hash": "0123456789abcdef"}
    (path / "result.json").write_text(json.dumps(recorded))
    folder = RunFolder(path)
    assert same_config(folder, load_config("digits", SHORT))
    assert short_run(path, resume=True) == recorded
    assert same_config(folder, load_config("digits", [*SHORT, "logging.every_steps=7"]))
    assert not same_config(folder, load_config("digits", [*SHORT, "seed=1"]))


def test_a_folder_with_other_files_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(RunError, match="not empty"):
        short_run(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_the_test_set_is_opened_once_and_last(tmp_path, monkeypatch):
    opened = []
    digits = built_in.digits

    def watched(part):
        if part == "test":
            opened.append((tmp_path / "run" / "log.jsonl").read_text().count('"epoch", "step"'))
        return digits(part)

    monkeypatch.setattr(built_in, "digits", watched)
    short_run(tmp_path / "run")
    assert opened == [2]  # once, when both epochs had been logged


def test_retraining_on_all_searches_first_and_tests_once(tmp_path):
    result = short_run(tmp_path / "run", "selection.retrain_on_all=true", "training.epochs=3")
    search = training_rows(tmp_path / "run" / "search" / "log.jsonl")
    final = training_rows(tmp_path / "run" / "final" / "log.jsonl")
    validated = [row["validation"]["accuracy"] for row in search if row["kind"] == "epoch"]
    assert result["epochs"] == 1 + validated.index(max(validated))
    assert [row["epoch"] for row in final if row["kind"] == "epoch"][-1] == result["epochs"]
    assert all("validation" not in row for row in final)
    assert final[-1]["step"] == result["epochs"] * ((192 + 64) // 32)  # on all images
    assert_report_shows_both_parts(tmp_path / "run", search, final)


def assert_report_shows_both_parts(path: Path, search: Rows, final: Rows) -> None:
    report = (path / "report.md").read_text()
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]*)\)", report)
    assert pictures == ["search/curves.png", "final/curves.png"]
    assert all((path / picture).read_bytes().startswith(b"\x89PNG") for picture in pictures)
    before, after = report.split("## final")
    for text, rows in ((before, search), (after, final)):
        epochs = [row for row in rows if row["kind"] == "epoch"]
        shown = re.findall(r"^\| (\d+) \| ([\d.]+) \|", text, flags=re.MULTILINE)
        assert shown == [(str(row["epoch"]), f"{row['loss']:.4f}") for row in epochs]


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_its_batch(tmp_path):
    with pytest.raises(NonFiniteError, match="the loss of step") as caught:
        short_run(
            tmp_path / "run",
            "optimizer.learning_rate=1e30",
            "training.clip_norm=0.0",
            "checkpoint.every_steps=3",
        )
    [path] = (tmp_path / "run").glob("not-finite-step-*.safetensors")
    assert str(path) in str(caught.value)
    batch = load_file(path)
    assert batch["images"].shape == (32, 1, 8, 8)
    assert torch.isfinite(batch["images"]).all()
    assert not (tmp_path / "run" / "result.json").exists()


def test_weights_that_are_not_finite_are_neither_saved_nor_selected(tmp_path):
    # One step, whose loss is still good, in an epoch of one batch.
    with pytest.raises(NonFiniteError, match="the weights after step 1 are not finite"):
        short_run(
            tmp_path / "run",
            "optimizer.learning_rate=1e38",
            "schedule.warmup_epochs=0",
            "training.clip_norm=0.0",
            "training.ema_decay=0.0",
            "training.batch_size=192",
        )
    assert not (tmp_path / "run" / "checkpoints").exists()
    assert not (tmp_path / "run" / "log.jsonl").exists()


def test_a_start_that_failed_does_not_claim_its_folder(tmp_path, finished):
    weights = finished / "weights.safetensors"
    overrides = ("model.positions=replace", f"model.checkpoint={weights}")
    with pytest.raises(CheckpointError, match="another architecture"):
        short_run(tmp_path / "run", *overrides, "model.depth=3")
    short_run(tmp_path / "run", *overrides)
    report = (tmp_path / "run" / "report.md").read_text()
    assert f"{weights}: " in report  # what was loaded is said
    assert "missing" not in report
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / ".unfinished-config.toml").write_text("se")
    short_run(tmp_path / "other")


def test_two_processes_do_not_train_in_one_folder(tmp_path):
    path = tmp_path / "run"
    path.mkdir()
    with RunFolder(path).locked(), pytest.raises(RunError, match="another process"):
        short_run(path)
    short_run(path)


def test_who_does_not_hold_the_lock_writes_nothing(tmp_path):
    path = tmp_path / "run"
    path.mkdir()
    (path / "config.toml").write_text("seed = 7\n")  # as a run that has just begun has it
    with RunFolder(path).locked():
        before = {each.name: each.stat().st_mtime_ns for each in path.iterdir()}
        with pytest.raises(RunError, match="another process"):
            short_run(path, "seed=8")
        assert {each.name: each.stat().st_mtime_ns for each in path.iterdir()} == before
    assert (path / "config.toml").read_text() == "seed = 7\n"


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(RunError, match="not empty and holds no run"):
        short_run(tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["letter.txt"]


def interrupted(path: Path) -> list[Path]:
    """A run that was stopped before its result; returns the folders of its checkpoints."""
    short_run(path)
    for name in ("result.json", "weights.safetensors", "report.md"):
        (path / name).unlink()
    return sorted((path / "checkpoints").glob("step-*"))


def signed(state: dict[str, Any]) -> str:
    """A state.json that another version might have written: whole, and with other keys."""
    state = {key: each for key, each in state.items() if key != "sha256"}
    return json.dumps({**state, "sha256": checkpoints._digest(state)})


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda text: text.replace('"best_accuracy": 0.', '"best_accuracy": 8.'), "has changed"),
        (lambda text: signed({**json.loads(text), "position": {"stop": 3}}), "position.stop"),
        (lambda text: signed({**json.loads(text), "sums": {"epoch": "all"}}), "sums.epoch"),
        (lambda text: signed({**json.loads(text), "files": {}}), "names no model, optimizer"),
        (lambda text: signed({**json.loads(text), "files": []}), "cannot be read"),
        (lambda text: "[1, 2]", "cannot be read"),
    ],
    ids=["a bit", "a key", "a type", "no tensors", "no table of files", "no table"],
)
def test_a_state_that_is_not_what_was_saved_is_passed_over(tmp_path, damage, said):
    path = tmp_path / "run"
    *_, last = interrupted(path)
    want = json.loads((last / "state.json").read_text())["position"]["best_accuracy"]
    text = (last / "state.json").read_text()
    assert damage(text) != text
    (last / "state.json").write_text(damage(text))
    console = Console(record=True, quiet=False, file=io.StringIO(), width=300)
    result = run(load_config("digits", [*SHORT]), path, resume=True, console=console)
    shown = console.export_text()
    assert "passed over a damaged checkpoint" in shown
    assert said in shown.replace("\n", " ")
    assert result["validation_accuracy"] == want


def test_other_threads_are_said_to_round_otherwise(tmp_path):
    path = tmp_path / "run"
    threads = torch.get_num_threads()
    interrupted(path)
    try:
        console = Console(record=True, file=io.StringIO(), width=300)
        config = load_config("digits", [*SHORT, f"training.threads={threads + 1}"])
        run(config, path, resume=True, console=console)
    finally:
        torch.set_num_threads(threads)
    assert f"with {threads + 1} threads instead of {threads}" in console.export_text()


def test_lines_of_a_log_that_are_no_text_are_left_out(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"step": 1}\n\xff\xfe{"step": 2}\n{"s\xe9": 3}\n{"step": 4}\n')
    assert [row["step"] for row in read_lines(path)] == [1, 4]


def test_a_report_that_is_missing_is_written_again(tmp_path, finished):
    path = tmp_path / "run"
    shutil.copytree(finished, path)
    for name in ("report.md", "curves.png"):
        (path / name).unlink()
    short_run(path, resume=True)
    assert (path / "report.md").read_text() == (finished / "report.md").read_text()
    assert (path / "curves.png").exists()


def test_validation_images_it_was_trained_on_say_nothing(tmp_path):
    short_run(tmp_path / "run", "selection.retrain_on_all=true")
    with pytest.raises(RunError, match="--split test"):
        evaluate_run(tmp_path / "run", "validation")
    assert evaluate_run(tmp_path / "run", "test").images == 360


def test_what_was_trained_in_half_precision_is_evaluated_on_any_machine(tmp_path, finished):
    path = tmp_path / "run"
    shutil.copytree(finished, path)
    config = load_config(path / "config.toml", ["training.precision=fp16"])
    (path / "config.toml").write_text(dump_toml(config))
    assert evaluate_run(path, "test").images == 360


def test_parts_of_a_batch_that_would_be_empty_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(Accelerator, "num_processes", 2)
    with pytest.raises(RunError, match=r"training\.accumulation=32 parts of the 16 images"):
        short_run(tmp_path / "run", "training.accumulation=32")


def test_accumulation_takes_the_same_steps(tmp_path):
    losses = []
    for parts in (1, 4):
        short_run(tmp_path / str(parts), *WITHOUT_DROPOUT, f"training.accumulation={parts}")
        rows = training_rows(tmp_path / str(parts) / "log.jsonl")
        losses.append(torch.tensor([row["loss"] for row in rows]))
    torch.testing.assert_close(*losses, rtol=2e-4, atol=0)


def test_patience_ends_a_run_that_does_not_learn(tmp_path):
    result = short_run(
        tmp_path / "run",
        "optimizer.learning_rate=1e-12",
        "training.epochs=9",
        "selection.patience=2",
        "selection.patience_from=4",
    )
    assert result["selected_epoch"] == 1
    assert result["epochs"] == 4


# --- Commands ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["digitz"], "digits"),
        (["digits", "training.epoch=3"], "training.epoch"),
        (["digits", "selection.by=test"], "test set is read once"),
        (["digits", "data.name=vtab"], "data.path"),
        (["digits", "training.precision=fp16"], "GPU"),
        (["digits", "training.batch_size=4000"], "training.batch_size=4000"),
        (["digits", "--unknown"], "--unknown"),
    ],
)
def test_what_cannot_be_trained_is_one_line_and_code_2(tmp_path, capsys, arguments, said):
    folder = tmp_path / "run"
    if torch.cuda.is_available() and said == "GPU":
        pytest.skip("this machine has a GPU, where fp16 works")
    assert main(["train", *arguments, "--folder", str(folder)]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error
    assert not list(folder.glob("checkpoints/*"))


def test_the_configs_are_listed(capsys):
    assert main(["train", "--list"]) == 0
    assert "digits" in capsys.readouterr().out


def test_every_key_is_printed_with_its_default(capsys):
    assert main(["train", "--keys"]) == 0
    printed = tomllib.loads(capsys.readouterr().out)
    assert main(["train", "default", "--show"]) == 0
    assert printed == tomllib.loads(capsys.readouterr().out)


def test_the_effective_config_shown_can_be_saved(capsys):
    name = "a/long/" * 20
    words = ["digits", "data.name=folder", "data.image_size=32", f"data.path={name}"]
    assert main(["train", *words, "--show"]) == 0
    assert tomllib.loads(capsys.readouterr().out)["data"]["path"] == name


def test_the_effective_config_is_shown(capsys):
    assert main(["train", "digits", "training.epochs=7", "--show"]) == 0
    assert "epochs = 7" in capsys.readouterr().out


def test_evaluate_says_what_is_missing(tmp_path, capsys):
    assert main(["evaluate", str(tmp_path)]) == 2
    assert "config.toml" in capsys.readouterr().err


def test_evaluate_takes_squares_and_rectangles(finished, capsys):
    for typed, written in (("12", 12), ("8x12", [8, 12])):
        assert main(["evaluate", str(finished), "--image-size", typed]) == 0
        row = json.loads((finished / "evaluations.jsonl").read_text().splitlines()[-1])
        assert (row["image_size"], row["split"], row["images"]) == (written, "validation", 64)
        assert f"{row['accuracy']:.2%}" in capsys.readouterr().out


def test_evaluate_refuses_sizes_that_do_not_fit(finished, capsys):
    before = (finished / "evaluations.jsonl").read_text()
    for typed, found in (("9", "9 x 9 pixels.*patches of 2"), ("8by12", "HEIGHTxWIDTH")):
        assert main(["evaluate", str(finished), "--image-size", typed]) == 2
        assert re.search(found, capsys.readouterr().err)
    assert (finished / "evaluations.jsonl").read_text() == before


def test_images_made_smaller_are_normalised_as_in_training(finished):
    run = open_finished_run(finished)
    smaller = run.splits_at((6, 8))
    assert smaller.train.size == (6, 8)
    assert smaller.normalise.mean == run.splits.normalise.mean
    assert smaller.normalise.std == run.splits.normalise.std
    # The statistics of the smaller images would be others.
    own = open_data(run.experiment.data.model_copy(update={"image_size": 6}), 0)
    assert own.normalise.std != run.splits.normalise.std


def test_evaluate_prints_the_accuracy(finished, capsys):
    assert main(["evaluate", str(finished), "--split", "test"]) == 0
    accuracy = json.loads((finished / "result.json").read_text())["test_accuracy"]
    said = capsys.readouterr().out
    assert f"{accuracy:.2%}" in said
    assert "images/s, peak memory" in said
    row = json.loads((finished / "evaluations.jsonl").read_text().splitlines()[-1])
    assert row["images_per_second"] > 0.0
    assert row["peak_memory_mb"] > 0.0
