"""The comparison of encodings: arms, seeds, paired statistics, tables, and a sweep that goes on."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from scipy import stats

pytest.importorskip("accelerate")
psutil = pytest.importorskip("psutil")  # which accelerate brings

from training.cli import main
from training.config import change_config, dump_toml, load_config
from training.engine.checkpoints import saved_steps
from training.engine.run import run as train_here
from training.errors import PREEMPTED, RunError
from training.models.building import build_position_encoding
from training.parsing import parse_seeds
from training.study import compare as sweep_module
from training.study.compare import Sweep, control_arms, parse_arm, parse_arms
from training.study.statistics import (
    accuracies_of_csv,
    bootstrap_interval,
    runs_csv,
    student_interval,
    summarise,
    summary_markdown,
    summary_table,
)
from verification.tests.encoding_cases import table_of
from verification.tests.training_runs import (
    TINY,
    assert_same_bits,
    environment,
    weights,
    without_clocks,
)
from wefpe_core.errors import InputError


def test_an_arm_is_an_encoding_with_options():
    arm = parse_arm("weierstrass:fidelity=authors,alpha_u=0.3")
    config = change_config(load_config("cifar100_cpu"), arm.overrides)
    assert config.position_encoding.name == "weierstrass"
    assert config.position_encoding.options == {"fidelity": "authors", "alpha_u": 0.3}


def test_all_encodings_that_do_not_exist_are_named_at_once():
    with pytest.raises(InputError, match="several encodings are wrong") as caught:
        parse_arms(["weierstras", "learned", "lerned"])
    assert "did you mean weierstrass?" in str(caught.value)
    assert "did you mean learned?" in str(caught.value)


def test_options_of_the_config_stay_with_its_encoding():
    base = load_config("digits", ["position_encoding.options.alpha_u=0.3"])
    same = change_config(base, parse_arm("weierstrass:g3=0.2").overrides)
    assert same.position_encoding.options == {"projection": "mlp", "alpha_u": 0.3, "g3": 0.2}
    config = change_config(base, parse_arm("learned:scale_match=0.5").overrides)
    assert config.position_encoding.options == {}
    assert config.position_encoding.scale_match == 0.5


def test_another_encoding_starts_from_its_defaults():
    base = load_config("digits", ["position_encoding.name=learned"])
    base = change_config(base, ["position_encoding.scale_match=0.8"])
    config = change_config(base, parse_arm("sincos2d").overrides)
    assert config.position_encoding.scale_match is None
    fixed = ["position_encoding.options.learnable=false", "position_encoding.backend=numpy"]
    config = change_config(load_config("digits", fixed), parse_arm("learned").overrides)
    assert config.position_encoding.backend == "torch"


def test_an_interrupted_comparison_begins_no_further_run(tmp_path, monkeypatch):
    begun = []

    def train(planned, jobs, device, children):
        begun.append(planned.title)
        time.sleep(0.2)
        return "failed"

    class Interrupted(Console):
        def print(self, *texts, **options):
            if "seed" in texts[0]:
                raise KeyboardInterrupt

    monkeypatch.setattr(sweep_module, "_train_apart", train)
    sweep = Sweep(load_config("digits"), parse_arms(["none", "learned", "fope"]), (0,), tmp_path)
    with pytest.raises(KeyboardInterrupt):
        sweep.train(jobs=1, console=Interrupted())
    assert "fope, seed 0" not in begun
    assert begun[0] == "none, seed 0"


def test_runs_at_a_time_have_a_gpu_each(tmp_path, monkeypatch):
    used: list[str] = []
    held: set[str] = set()

    def run_child(self, command, output, environment):
        device = environment["CUDA_VISIBLE_DEVICES"]
        assert device not in held
        held.add(device)
        used.append(device)
        time.sleep(0.02)
        held.remove(device)
        return 1

    monkeypatch.setattr(sweep_module.Children, "run", run_child)
    sweep = Sweep(load_config("digits"), parse_arms(["none", "learned"]), range(4), tmp_path)
    said = io.StringIO()
    sweep.train(jobs=3, console=Console(file=said, width=300), devices=["4", "GPU-b", "6"])
    assert set(used) == {"4", "GPU-b", "6"}
    assert len(used) == 8
    assert said.getvalue().count("FAILED: exit code 1") == 8


def test_more_runs_than_gpus_share_them(tmp_path, monkeypatch):
    used: list[str] = []

    def run_child(self, command, output, environment):
        used.append(environment["CUDA_VISIBLE_DEVICES"])
        time.sleep(0.05)
        return 1

    monkeypatch.setattr(sweep_module.Children, "run", run_child)
    sweep = Sweep(load_config("digits"), parse_arms(["none"]), range(4), tmp_path)
    sweep.train(jobs=4, console=Console(quiet=True), devices=["0", "1"])
    assert sorted(used) == ["0", "0", "1", "1"]


@pytest.mark.parametrize(
    ("named", "count", "expected"),
    [(None, 2, ["0", "1"]), ("3, 5", 2, ["3", "5"]), ("", 0, []), ("0,-1,1", 1, ["0"])],
)
def test_the_gpus_that_torch_sees_are_named_as_the_environment_names_them(
    monkeypatch, named, count, expected
):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    if named is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    assert sweep_module.visible_gpus() == expected


def test_an_arm_says_what_becomes_of_pretrained_positions():
    base = load_config("vtab_svhn_cpu", ["model.checkpoint=a/b.safetensors"])
    assert base.model.positions == "hybrid"
    config = change_config(base, parse_arm("learned:positions=resample").overrides)
    assert (config.position_encoding.name, config.model.positions) == ("learned", "resample")


@pytest.mark.parametrize(
    ("text", "said"), [("lerned", "lerned"), ("learned:x", "option=value"), ("learned:=3", "=3")]
)
def test_a_wrong_arm_is_named(text, said):
    with pytest.raises(InputError, match=said):
        parse_arm(text)


def test_an_arm_counts_once():
    with pytest.raises(InputError, match="twice"):
        parse_arms(["learned", "none", "learned"])


def test_the_controls_have_the_scale_and_the_parameters_of_the_encoding():
    base = load_config("digits")
    encodings = [
        build_position_encoding(change_config(base, arm.overrides))
        for arm in (parse_arm("weierstrass"), *control_arms(base))
    ]
    tables = [table_of(e, e.size.grid) for e in encodings]
    scales = [float(table.square().mean().sqrt()) for table in tables]
    np.testing.assert_allclose(scales[1:3], scales[0], rtol=0.01)
    names = [{n: p.shape for n, p in e.named_parameters()} for e in (encodings[0], encodings[3])]
    lattice = {"lattice_parameter.alpha_learn"}  # plain coordinates have none
    assert names[0].keys() - names[1].keys() <= lattice
    assert names[1].items() <= names[0].items()


@pytest.mark.parametrize(
    ("text", "seeds"), [("0,1,2", (0, 1, 2)), ("0-3", (0, 1, 2, 3)), ("5, 7-8", (5, 7, 8))]
)
def test_seeds(text, seeds):
    assert parse_seeds(text) == seeds


def test_a_range_of_seeds_goes_upwards():
    with pytest.raises(InputError, match="upwards, got '4-0'"):
        parse_seeds("1,4-0")


def test_a_comparison_is_not_put_into_the_folder_of_a_run(tmp_path):
    (tmp_path / "config.toml").write_text("")
    with pytest.raises(RunError, match="single run"):
        Sweep(load_config("digits"), parse_arms(["none"]), (0,), tmp_path)


@pytest.mark.parametrize("text", ["", "a", "1,1", "0-2,2", "1-", "-1"])
def test_wrong_seeds(text):
    with pytest.raises(InputError, match="seed"):
        parse_seeds(text)


# --- Statistics ----------------------------------------------------------------------------

DIFFERENCES = np.array([0.012, 0.004, 0.019, -0.003, 0.008])


def test_the_student_interval_is_scipys():
    want: Any = stats.ttest_1samp(DIFFERENCES, 0.0).confidence_interval(0.95)
    got = student_interval(DIFFERENCES)
    np.testing.assert_allclose([got.low, got.high], [want.low, want.high], rtol=1e-12)


def test_the_bootstrap_interval_is_scipys_to_its_noise():
    want = stats.bootstrap(
        (DIFFERENCES,), np.mean, method="percentile", n_resamples=200_000, rng=1
    ).confidence_interval
    got = bootstrap_interval(DIFFERENCES)
    np.testing.assert_allclose([got.low, got.high], [want.low, want.high], atol=3e-4)


def test_differences_are_paired_by_seed():
    # The seeds differ far more than the encodings; only pairing sees the difference.
    base = {0: 0.30, 1: 0.50, 2: 0.70, 3: 0.60, 4: 0.40}
    other = {4: 0.411, 3: 0.612, 2: 0.711, 1: 0.509, 0: 0.310, 9: 0.05}
    first, second = summarise({"base": base, "other": other}, "base")
    assert first.difference is None
    assert second.difference == pytest.approx(np.mean([0.011, 0.012, 0.011, 0.009, 0.010]))
    assert second.student is not None
    assert second.bootstrap is not None
    assert second.student.excludes_zero
    assert second.bootstrap.low > 0.008
    assert second.seeds == (4, 3, 2, 1, 0, 9)
    assert "+1.06 *" in summary_markdown([first, second], "base")


@pytest.mark.parametrize("seeds", [1, 2, 3, 4, 5])
def test_too_few_seeds_have_no_interval(seeds):
    accuracies = {"base": dict.fromkeys(range(seeds), 0.5), "other": dict.fromkeys(range(9), 0.6)}
    base, other = summarise(accuracies, "base")
    assert other.difference == pytest.approx(0.1)
    assert (other.student is not None) == (seeds >= 3)
    assert (other.bootstrap is not None) == (seeds >= 5)
    assert ("fewer than 3 seeds" in summary_markdown([base, other], "base")) == (seeds < 3)


def test_an_unknown_reference_is_named():
    with pytest.raises(InputError, match="nobody"):
        summarise({"a": {0: 0.5}}, "nobody")


# --- A sweep -------------------------------------------------------------------------------

SMALL = [*TINY, "training.epochs=1", "data.train_images=64", "checkpoint.every_steps=0"]


@pytest.mark.slow
def test_a_sweep_keeps_what_is_finished_and_goes_on_after_a_crash(tmp_path, capsys):
    folder = tmp_path / "sweep"
    words = ["digits", *SMALL, "-e", "learned", "-e", "none", "--folder", str(folder)]
    assert main(["compare", *words, "--seeds", "0"]) == 0
    finished = folder / "learned-seed0" / "result.json"
    before = finished.stat().st_mtime_ns
    # As a crash of the second run would leave it.
    (folder / "none-seed0" / "result.json").unlink()
    assert main(["compare", *words, "--seeds", "0,1", "--jobs", "2"]) == 0
    assert finished.stat().st_mtime_ns == before
    with (folder / "runs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["encoding"], row["seed"]) for row in rows] == [
        ("learned", "0"),
        ("none", "0"),
        ("learned", "1"),
        ("none", "1"),
    ]
    accuracy = json.loads(finished.read_text())["test_accuracy"]
    assert float(rows[0]["test_accuracy"]) == accuracy
    page = (folder / "comparison.md").read_text()
    assert "`none` | 2 |" in page
    assert re.search(r"Training: learned [\d,]+ images/s, [\d,]+ MB; none ", page)
    assert (folder / "comparison.png").stat().st_size > 5000

    capsys.readouterr()
    changed = [*words, "optimizer.learning_rate=0.01", "--table-only"]
    assert main(["compare", *changed]) == 2
    assert "another config" in capsys.readouterr().err


def test_the_page_of_a_comparison_stands_alone(tmp_path):
    base = load_config("digits", ["training.epochs=3"])
    sweep = Sweep(base, parse_arms(["weierstrass", "learned"]), (0, 1), tmp_path / "sweep")
    for planned in sweep.planned:
        planned.folder.path.mkdir(parents=True)
        planned.folder.config.write_text(dump_toml(planned.experiment))
        versions = {"torch": "2.13.0" if planned.seed else "2.12.1"}
        where = {"versions": versions, "processor": "a | b", "commit": None}
        planned.folder.write_result(
            {"test_accuracy": 0.5, "seed": planned.seed, "circumstances": where}
        )
    sweep.write_tables()
    page = (tmp_path / "sweep" / "comparison.md").read_text()
    assert page.startswith(f"# {base.model.name} on digits: 2 encodings\n\n| encoding |")
    [picture] = re.findall(r"!\[.+\]\((.+)\)", page)
    assert (tmp_path / "sweep" / picture).read_bytes().startswith(b"\x89PNG")
    assert "| `training.epochs` | 3 |" in page
    assert "| `model.patch_norm` | true |" in page
    assert "`seed`" not in page
    assert "position_encoding" not in page
    assert "| torch | 2.12.1; 2.13.0 |" in page
    assert "| processor | a \\| b |" in page
    assert "| commit | not known |" in page


def test_a_sweep_checks_every_config_before_the_first_run(tmp_path, capsys):
    words = ["digits", "-e", "learned", "-e", "weierstrass:alfa=1", "--folder", str(tmp_path / "x")]
    assert main(["compare", *words]) == 2
    assert "alfa" in capsys.readouterr().err
    assert main(["compare", *words, "-e", "rope_axial:beta=2"]) == 2
    error = capsys.readouterr().err
    assert "alfa" in error
    assert "beta" in error
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["cifar100_cpu", "data.path={folder}"], "cifar-100"),
        (["cifar100_cpu", "data.path={folder}/nothing"], "data.path"),
        (["digits", "data.train_images=100", "training.precision=fp16"], "needs a GPU"),
    ],
)
def test_what_would_end_every_run_is_said_once_before_the_first(tmp_path, capsys, words, said):
    if torch.cuda.is_available() and "GPU" in said:
        pytest.skip("this machine has a GPU, where fp16 works")
    (tmp_path / "empty").mkdir()
    words = [word.format(folder=tmp_path / "empty") for word in words]
    assert main(["compare", *words, "verification=off", "--folder", str(tmp_path / "x")]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert said in line
    assert not (tmp_path / "x").exists()


def test_an_unfinished_run_of_another_config_is_named_before_the_first(tmp_path):
    config = load_config("digits", ["seed=0", "position_encoding.name=none", "model.depth=1"])
    path = tmp_path / "none-seed0"
    path.mkdir()
    (path / "config.toml").write_text(dump_toml(config))
    (path / "log.jsonl").write_text("")
    sweep = Sweep(load_config("digits"), parse_arms(["learned", "none"]), (0,), tmp_path)
    with pytest.raises(RunError, match=r"none-seed0 holds a run of another config: .*model\.depth"):
        sweep.check()


# --- Killed, submitted, preempted ------------------------------------------------------------

LONG = [*SMALL, "training.epochs=2000", "checkpoint.every_steps=0"]


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows sends no such signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_comparison_that_is_killed_takes_its_runs_along(tmp_path, number):
    words = ["digits", *LONG, "-e", "none", "--seeds", "0", "--folder", str(tmp_path / "sweep")]
    process = subprocess.Popen(
        [sys.executable, "-m", "training.cli", "compare", *words],
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    run = tmp_path / "sweep" / "none-seed0"
    wait_until(lambda: saved_steps(run / "checkpoints"), process)
    [child] = psutil.Process(process.pid).children()
    process.send_signal(number)
    _, said = process.communicate(timeout=120)
    child.wait(timeout=60)  # psutil: a process that is not ours, so until it has gone
    output = (tmp_path / "sweep" / "output" / "none-seed0.txt").read_text()
    assert re.search(r"wefpe train: stopped by .* after step \d+", output)
    if number == signal.SIGTERM:
        assert process.returncode == PREEMPTED
        assert "wefpe compare: stopped by SIGTERM" in said


def wait_until(happened: Callable[[], object], process: Any = None, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert process is None or process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_without_a_cluster_nothing_is_submitted(tmp_path, monkeypatch, capsys):
    pytest.importorskip("submitit", reason="the slurm extra is not installed")
    monkeypatch.setenv("PATH", str(tmp_path))
    for command in ("train", "compare"):
        words = [command, "digits", "--slurm", "--folder", str(tmp_path / "x")]
        assert main(words) == 2
        assert "there is no sbatch here" in one_line(capsys)
        assert main([*words[:2], "--slurm-option", "partition=gpu"]) == 2
        assert "needs --slurm" in one_line(capsys)
    assert not (tmp_path / "x").exists()


def test_without_submitit_the_extra_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "submitit", None)
    assert main(["train", "digits", "--slurm", "--folder", str(tmp_path / "x")]) == 2
    assert "pip install 'wefpe[slurm]'" in one_line(capsys)


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    [line] = capsys.readouterr().err.splitlines()
    return line


def test_a_job_is_submitted_with_its_options(tmp_path, monkeypatch, capsys):
    pytest.importorskip("submitit", reason="the slurm extra is not installed")
    for name in ("sbatch", "srun"):
        program = tmp_path / name
        program.write_text(f"#!{shutil.which('bash')}\necho Submitted batch job 4711\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    folder = tmp_path / "runs" / "mine"
    words = ["digits", "seed=3", "--slurm", "--folder", str(folder)]
    options = ["partition=gpu", "timeout_min=90", "gpus_per_node=2"]
    options = [word for option in options for word in ("--slurm-option", option)]
    assert main(["train", *words, *options]) == 0
    assert "job 4711 will train in" in capsys.readouterr().out
    script = (tmp_path / "runs" / "jobs" / "4711" / "4711_submission.sh").read_text()
    for line in ("job-name=mine", "partition=gpu", "time=90", "gpus-per-node=2", "requeue"):
        assert f"#SBATCH --{line}\n" in script
    assert "#SBATCH --signal=USR2@" in script
    assert load_config(tmp_path / "runs" / "jobs" / "mine.toml").seed == 3
    assert main(["train", *words, "--slurm-option", "partitoin=gpu"]) == 2
    assert "partitoin" in one_line(capsys)
    assert main(["train", *words, "--slurm-option", "gpu"]) == 2
    assert "name=value" in one_line(capsys)


@pytest.mark.slow
def test_a_preempted_comparison_on_a_cluster_ends_with_the_rows_of_an_uninterrupted_one(tmp_path):
    pytest.importorskip("submitit", reason="the slurm extra is not installed")
    overrides = [*TINY, "training.epochs=24", "checkpoint.every_steps=0", "model.depth=1"]
    base, arms = load_config("digits", overrides), parse_arms(["none", "learned"])
    calm, preempted = (Sweep(base, arms, (0,), tmp_path / name) for name in ("calm", "preempted"))
    for each in calm.planned:
        train_here(each.experiment, each.folder.path, console=Console(quiet=True))
    waiting = threading.Thread(
        target=preempted.train_on_cluster,
        kwargs={
            "options": {"timeout_min": 60},
            "console": Console(quiet=True),
            "cluster": "local",
        },
    )
    waiting.start()
    for each in preempted.planned:
        folder = each.folder.path
        wait_until(partial(saved_steps, folder / "checkpoints"))
        [task] = [
            process
            for process in psutil.Process().children(recursive=True)
            if str(folder / ".lock") in [file.path for file in process.open_files()]
        ]
        task.send_signal(signal.SIGUSR2)
    waiting.join(timeout=300)
    assert not waiting.is_alive()
    logs = [path.read_text() for path in (tmp_path / "preempted" / "jobs").glob("*/*_log.out")]
    assert len(logs) == 2
    for log in logs:
        assert "stopped by SIGUSR2 after step" in log
        assert "Requeued job" in log
    assert rows_without_clocks(preempted) == rows_without_clocks(calm)
    for each in preempted.planned:
        folder = each.folder.path
        assert_same_bits(weights(folder), weights(tmp_path / "calm" / folder.name))


def rows_without_clocks(sweep: Sweep) -> list[dict[str, Any]]:
    sweep.write_tables()
    with (sweep.path / "runs.csv").open() as file:
        rows = [without_clocks(row) for row in csv.DictReader(file)]
    assert len(rows) == len(sweep.planned)
    return rows


@pytest.mark.slow
def test_the_tasks_of_a_job_are_the_processes_of_a_run(tmp_path):
    pytest.importorskip("submitit", reason="the slurm extra is not installed")
    sweep = Sweep(load_config("digits", SMALL), parse_arms(["none"]), (0,), tmp_path / "sweep")
    options = {"tasks_per_node": 2, "timeout_min": 60}
    sweep.train_on_cluster(options=options, console=Console(quiet=True), cluster="local")
    [planned] = sweep.planned
    result = planned.folder.read_result()
    assert result is not None
    assert result["circumstances"]["processes"] == 2


def test_a_sweep_without_the_reference_has_no_table(tmp_path):
    sweep = Sweep(load_config("digits"), parse_arms(["none"]), (0,), tmp_path)
    with pytest.raises(RunError, match="none"):
        sweep.write_tables()


# --- Tables from rows ------------------------------------------------------------------------

ROW = {"epochs": 6, "config_hash": "x", "circumstances": {"commit": "c0ffee", "threads": 1}}


def rows_of(accuracies):
    return [
        ROW | {"encoding": label, "seed": seed, "test_accuracy": value}
        for label, found in accuracies.items()
        for seed, value in found.items()
    ]


def test_rows_survive_the_way_through_a_file():
    given = {"learned": {0: 0.381, 1: 0.379}, "weierstrass:alpha_u=1,g3=0.1": {0: 0.4}}
    text = runs_csv(rows_of(given))
    assert "c0ffee" in text
    assert accuracies_of_csv(text) == given


def test_published_tables_come_from_the_rows_alone(tmp_path, capsys):
    given = {"learned": {0: 0.30, 1: 0.40}, "none": {0: 0.25, 1: 0.35}}
    (tmp_path / "scratch").mkdir()
    (tmp_path / "scratch" / "runs.csv").write_text(runs_csv(rows_of(given)))
    assert main(["results", str(tmp_path)]) == 0
    table = (tmp_path / "scratch.md").read_text()
    assert table == summary_markdown(summarise(given, "learned"), "learned")
    assert "| `none` | 2 | 30.00 |" in table
    assert "-5.00" in table
    assert (tmp_path / "scratch.png").read_bytes().startswith(b"\x89PNG")


def test_long_names_leave_room_in_a_narrow_terminal():
    long = "weierstrass:function=powers,features=2"
    console = Console(width=80)
    with console.capture() as shown:
        accuracies = {long: {0: 0.3, 1: 0.4, 2: 0.5}, "none": {0: 0.2, 1: 0.1, 2: 0.3}}
        console.print(summary_table(summarise(accuracies, long), long))
    rows = [row.split() for row in shown.get().splitlines()]
    assert ["none", "3", "20.00", "10.00", "-20.00", "[-44.84,", "+4.84]"] in rows
    assert long in shown.get().replace("\n", "")


def test_rows_that_cannot_be_read_are_named(tmp_path, capsys):
    assert main(["results", str(tmp_path)]) == 2
    assert "no folder with runs.csv" in capsys.readouterr().err
    (tmp_path / "a").mkdir()
    for text, said in (("", "no rows"), ("encoding,seed\nx,1\n", "test_accuracy")):
        (tmp_path / "a" / "runs.csv").write_text(text)
        assert main(["results", str(tmp_path)]) == 2
        assert said in capsys.readouterr().err
