"""Analyses of runs: curves and lattices from logs written by hand, other sizes of a small run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, get_args

import pytest

pytest.importorskip("torch", reason="the torch extra is not installed")
pytest.importorskip("accelerate", reason="the training extra is not installed")

import torch
from rich.console import Console

from training.config import dump_toml, load_config
from training.encodings import build_encoding
from training.encodings.learned import Resampling, set_resampling
from training.engine.finished_run import open_finished_run
from training.engine.logs import encoding_state
from training.engine.run import run
from training.engine.run_folder import training_rows
from training.engine.run_report import Curve, band_of, kept_epoch, read_curve
from training.errors import RunError
from training.study.analyse_curves import curves_analysis
from training.study.analyse_lattice import (
    lattice_analysis,
    learns_a_lattice,
    read_paths,
)
from training.study.analyse_resolution import resolution_analysis, sizes_of
from training.study.analysis import write_analysis
from training.study.run_groups import encoding_label, label_runs, read_trainings
from verification.tests.training_runs import TINY
from wefpe_core import InputError

Row = dict[str, Any]
LEARNED = ("position_encoding.name=learned", "position_encoding.options={}")

# --- Logs written by hand ------------------------------------------------------------------------


def step_row(step: int, loss: float, tau: complex, omega1: float = 2.0) -> Row:
    state = {"omega1": omega1, "omega3_real": (omega1 * tau).real}
    state |= {"omega3_imag": (omega1 * tau).imag, "tau_imag": tau.imag}
    row: Row = {"kind": "step", "step": step, "epoch": step / 4, "loss": loss, "accuracy": 0.1}
    return row | {"rate": 0.001 * step, "encoding": state}


def epoch_row(number: int, loss: float, validation: float | None, **more: object) -> Row:
    row: Row = {"kind": "epoch", "step": 4 * number, "epoch": number, "loss": loss, "encoding": {}}
    row |= {"accuracy": 0.2 * number, "seconds": 1.0} | more
    if validation is not None:
        row |= {"validation": {"loss": 2 * loss, "accuracy": validation}, "is_best": False}
    return row


def write_run(path: Path, rows: list[Row], *overrides: str) -> Path:
    path.mkdir(parents=True)
    config = load_config("digits", overrides)
    (path / "config.toml").write_text(dump_toml(config))
    (path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def resumed() -> list[Row]:
    """Killed after step 6 and resumed from step 4: steps 5 and 6 are there twice."""
    return [
        step_row(2, 2.5, 1.1j),
        step_row(4, 2.0, 1.2j),
        epoch_row(1, 2.25, 0.5),
        step_row(5, 9.0, 9.0j),
        step_row(6, 9.0, 9.0j),
        step_row(5, 1.8, 1.3j),
        step_row(6, 1.6, 0.1 + 1.4j),
        step_row(8, 1.5, 0.25 + 1.5j),
        epoch_row(2, 1.75, 0.75),
    ]


def test_of_repeated_rows_the_later_ones_count(tmp_path):
    rows = training_rows(write_run(tmp_path / "run", resumed()) / "log.jsonl")
    assert read_curve(rows, "step_loss") == Curve((0.5, 1.0, 1.25, 1.5, 2), (2.5, 2, 1.8, 1.6, 1.5))
    assert read_curve(rows, "loss") == Curve((1, 2), (2.25, 1.75))
    assert read_curve(rows, "validation_accuracy").values == (50.0, 75.0)
    assert read_curve(rows, "gap").values == pytest.approx((-30.0, -35.0))
    assert read_curve(rows, "rate").values == (0.002, 0.004, 0.005, 0.006, 0.008)
    assert read_curve([epoch_row(1, 2.0, None)], "gap") == Curve((), ())


def test_the_epoch_that_is_kept():
    assert kept_epoch([]) is None
    rows = [epoch_row(number, 1.0, 0.5) for number in (1, 2, 3)]
    assert kept_epoch(rows) == 3
    rows[0]["is_best"] = rows[1]["is_best"] = True
    assert kept_epoch(rows) == 2


def test_mean_and_range_where_all_curves_have_points():
    band = band_of([Curve((1, 2, 3), (1.0, 5.0, 9.0)), Curve((1, 2), (3.0, 1.0)), Curve((), ())])
    assert band.epochs == (1, 2)
    assert (band.mean, band.low, band.high) == ((2.0, 3.0), (1.0, 1.0), (3.0, 5.0))


def test_runs_that_differ_only_in_the_seed_are_one_curve(tmp_path):
    log = [epoch_row(1, 2.0, 0.5), epoch_row(2, 1.0, 0.7)]
    other = [epoch_row(1, 4.0, 0.3), epoch_row(2, 2.0, 0.6)]
    paths = [
        write_run(tmp_path / "a0", log, "seed=0"),
        write_run(tmp_path / "a1", other, "seed=1"),
        write_run(tmp_path / "b0", log, *LEARNED),
    ]
    analysis = curves_analysis(paths)
    wef, rival = analysis.tables["summary"]
    assert (wef["label"], wef["runs"]) == ("weierstrass:projection=mlp", 2)
    assert (wef["last_loss"], wef["last_loss_range"]) == (1.5, 1.0)
    assert wef["best_validation_accuracy"] == pytest.approx(65.0)
    assert (rival["label"], rival["runs"]) == ("learned", 1)
    assert "weierstrass:projection=mlp: seeds 0, 1; learned: seed 0" in analysis.caption
    assert "Data: digits." in analysis.caption
    assert "differ in" not in analysis.caption
    assert len(analysis.tables["epochs"]) == 6
    names = {path.name for path in write_analysis(analysis, tmp_path / "out")}
    assert {"curves.png", "epochs.csv", "summary.csv", "curves.json"} <= names


def test_where_runs_reach_an_accuracy_is_a_table_and_a_mark(tmp_path):
    log = [epoch_row(1, 2.0, 0.5), epoch_row(2, 1.5, 0.7), epoch_row(3, 1.0, 0.6)]
    slow = [epoch_row(1, 4.0, 0.3), epoch_row(2, 2.0, 0.4), epoch_row(3, 2.0, 0.55)]
    paths = [write_run(tmp_path / "a0", log), write_run(tmp_path / "a1", slow, "seed=1")]
    plain = curves_analysis(paths)
    assert "reached" not in plain.tables
    accuracies = [
        row["validation_accuracy"] for row in plain.tables["epochs"] if row["seed"] in (0, 1)
    ]
    wanted = sorted(accuracies)[-2]  # of both runs the second highest: only one has more
    analysis = curves_analysis(paths, [wanted, 101.0])
    found = {(row["seed"], row["accuracy"]): row["epoch"] for row in analysis.tables["reached"]}
    by_seed = {
        seed: [
            row["epoch"]
            for row in plain.tables["epochs"]
            if row["seed"] == seed and row["validation_accuracy"] >= wanted
        ]
        for seed in (0, 1)
    }
    for seed, epochs in by_seed.items():
        assert found[seed, wanted] == (min(epochs) if epochs else None)
        assert found[seed, 101.0] is None
    [panel] = [
        each for each in analysis.figures["curves"].axes if "accuracy in %" in each.get_title()
    ]
    crosses = [line for line in panel.lines if line.get_marker() == "x"]
    assert len(crosses) == sum(bool(epochs) for epochs in by_seed.values())


def test_runs_that_differ_in_more_than_the_encoding_are_named_by_data_and_folder(tmp_path):
    runs = {
        tmp_path / "short": load_config("digits", ["training.epochs=3"]),
        tmp_path / "long": load_config("digits", ["training.epochs=9"]),
        tmp_path / "none": load_config(
            "digits", ["position_encoding.name=none", "position_encoding.options={}"]
        ),
    }
    name = "weierstrass:projection=mlp"
    labels = [f"{name} (digits, short)", f"{name} (digits, long)", "none (digits, none)"]
    assert list(label_runs(runs).values()) == labels
    matched = load_config("digits", [*LEARNED, "position_encoding.scale_match=0.8"])
    assert encoding_label(matched) == "learned:scale_match=0.8"


def test_what_runs_differ_in_is_in_the_caption(tmp_path):
    log = [epoch_row(1, 2.0, 0.5)]
    one = write_run(tmp_path / "a", log)
    other = write_run(tmp_path / "b", log, *LEARNED, "data.name=shapes", "logging.every_steps=3")
    caption = curves_analysis([one, other]).caption
    assert "Data: digits and shapes." in caption
    assert "Besides encoding and seed the runs differ in data.name." in caption
    assert "learned (shapes, b): seed 0" in caption


def test_encodings_the_label_does_not_tell_apart_have_their_folders(tmp_path):
    fixed = ("position_encoding.options.learnable=false",)
    runs = {
        tmp_path / "x" / "run": load_config("digits", fixed),
        tmp_path / "y" / "run": load_config("digits", [*fixed, "position_encoding.backend=numpy"]),
        tmp_path / "z": load_config("digits", LEARNED),
    }
    *alike, learned = label_runs(runs).values()
    assert learned == "learned"
    name = "weierstrass:projection=mlp,learnable=false"
    assert alike == [f"{name} ({tmp_path / folder / 'run'})" for folder in "xy"]


def test_one_experiment_with_one_seed_twice_is_refused(tmp_path):
    log = resumed()
    paths = [write_run(tmp_path / name, log) for name in ("a", "b")]
    for analyse in (curves_analysis, lattice_analysis):
        with pytest.raises(InputError, match=r"/a and .*/b are runs of one experiment"):
            analyse(paths)
    runs = dict.fromkeys(paths, load_config("digits"))
    with pytest.raises(InputError, match=r"/a and .*/b are runs of one experiment"):
        label_runs(runs)


def test_a_curve_of_one_point_is_seen(tmp_path):
    paths = [
        write_run(tmp_path / "a0", [epoch_row(1, 2.0, 0.5)]),
        write_run(tmp_path / "a1", [epoch_row(1, 3.0, 0.5)], "seed=1"),
        write_run(tmp_path / "b", [epoch_row(1, 1.0, 0.5), epoch_row(2, 1.0, 0.5)], *LEARNED),
    ]
    panel = curves_analysis(paths).figures["curves"].axes[0]
    alone, line = panel.lines
    assert (list(alone.get_ydata()), alone.get_marker()) == ([2.5], "o")
    assert line.get_marker() == ""
    [bar] = panel.collections
    assert bar.get_segments()[0][:, 1].tolist() == [2.0, 3.0]


def test_curves_that_are_equal_in_all_runs_are_one(tmp_path):
    first = epoch_row(1, 2.0, 0.5)
    paths = [
        write_run(tmp_path / "a", [first, epoch_row(2, 1.0, 0.7)]),
        write_run(tmp_path / "b", [first, epoch_row(2, 1.0, 0.6)], *LEARNED),
    ]
    loss, _, accuracy = curves_analysis(paths).figures["curves"].axes[:3]
    assert [list(line.get_ydata()) for line in loss.lines] == [[2.0, 1.0]]
    assert loss.get_title() == "training loss of all runs"
    assert len(accuracy.lines) == 2
    assert accuracy.get_title() == "validation accuracy in %"


def test_a_run_in_two_parts_gives_two_curves(tmp_path):
    path = write_run(tmp_path / "run", [])
    (path / "log.jsonl").unlink()
    for part, validation in (("search", 0.5), ("final", None)):
        (path / part).mkdir()
        row = json.dumps(epoch_row(1, 1.0, validation))
        (path / part / "log.jsonl").write_text(row)
    labels = [row["label"] for row in curves_analysis([path]).tables["summary"]]
    assert labels == [f"weierstrass:projection=mlp, {part}" for part in ("search", "final")]
    # While the final training has no epoch yet, the search is what there is.
    (path / "final" / "log.jsonl").write_text(json.dumps(step_row(2, 2.5, 1j)))
    assert [each.part for each in read_trainings([path])] == ["search"]


def test_what_is_no_run_or_has_no_epoch_is_refused(tmp_path):
    for analyse in (curves_analysis, lattice_analysis, resolution_analysis):
        with pytest.raises(RunError, match="holds no run"):
            analyse([tmp_path])
        with pytest.raises(InputError, match="no run is named"):
            analyse([])
    begun = write_run(tmp_path / "begun", [step_row(2, 2.5, 1j)])
    for analyse in (curves_analysis, lattice_analysis):
        with pytest.raises(RunError, match="no finished epoch"):
            analyse([begun])
    with pytest.raises(RunError, match="begun is not finished"):
        resolution_analysis([begun])


# --- The learned lattice -------------------------------------------------------------------------


def test_the_path_of_the_lattice_is_that_of_the_log(tmp_path):
    path = write_run(tmp_path / "run", resumed())
    [training] = read_trainings([path])
    [found] = read_paths("x", training)
    assert found.label == "x"
    assert found.steps == (0, 2, 4, 5, 6, 8)
    assert found.tau[0] == pytest.approx(1j, abs=1e-7)  # the square lattice of g2 = 1
    assert found.tau[1:] == pytest.approx([1.1j, 1.2j, 1.3j, 0.1 + 1.4j, 0.25 + 1.5j])
    assert found.omega1 == pytest.approx((1.854074677, 2, 2, 2, 2, 2))


def test_patches_and_poles_of_the_cell(tmp_path):
    [training] = read_trainings([write_run(tmp_path / "run", resumed())])
    [found] = read_paths("x", training)
    # 4 x 4 patches over half a period: the first is an eighth of omega1 and omega3 away from 0.
    assert found.points(-1)[0] == pytest.approx(0.125 * (2 + 2 * (0.25 + 1.5j)))
    assert found.points(-1)[-1] == pytest.approx(0.875 * (2 + 2 * (0.25 + 1.5j)))
    assert found.distance_to_pole(0) == pytest.approx(0.125 * 2**0.5, abs=1e-7)


def test_the_analysis_of_a_lattice_is_written(tmp_path):
    analysis = lattice_analysis([write_run(tmp_path / "run", resumed())])
    [ends] = analysis.numbers["trainings"]
    assert ends["tau_end"] == pytest.approx([0.25, 1.5])
    assert ends["length_of_path"] == pytest.approx(0.3 + abs(0.1 + 0.1j) + abs(0.15 + 0.1j))
    assert len(analysis.tables["lattices"]) == 6
    for text in ("4x4 patches", "Data: digits.", "weierstrass:projection=mlp: seed 0"):
        assert text in analysis.caption
    names = {path.name for path in write_analysis(analysis, tmp_path / "out")}
    assert {"learned_lattice.png", "period_cells.svg", "lattices.csv"} <= names


def test_of_a_run_in_two_parts_the_last_lattice_is_shown(tmp_path):
    path = write_run(tmp_path / "run", [])
    (path / "log.jsonl").unlink()
    for part, rows in (("search", resumed()[:3]), ("final", resumed())):
        (path / part).mkdir()
        (path / part / "log.jsonl").write_text("\n".join(map(json.dumps, rows)))
    [ends] = lattice_analysis([path]).numbers["trainings"]
    assert (ends["label"].endswith(", final"), ends["steps"]) == (True, 8)


def test_encodings_that_learn_no_lattice_are_refused(tmp_path):
    log = [epoch_row(1, 1.0, 0.5)]
    learned = write_run(tmp_path / "a", log, *LEARNED)
    with pytest.raises(InputError, match="learned has no lattice"):
        lattice_analysis([learned])
    square = step_row(4, 1.0, 1j, 2.62205755429212)
    path = write_run(tmp_path / "b", [square, *log], "position_encoding.options.fidelity=authors")
    with pytest.raises(InputError, match=r"fidelity=authors is not learned"):
        lattice_analysis([path])


BOTH = (
    "position_encoding.name=combined",
    "position_encoding.options={parts = 'weierstrass+weierstrass_green'}",
)


def test_the_state_of_an_encoding_has_every_lattice():
    class Model(torch.nn.Module):
        def __init__(self, name: str, **options: Any) -> None:
            super().__init__()
            self.encoding = build_encoding(
                name, dim=16, depth=1, num_heads=2, grid=(4, 4), **options
            )

    names = {"omega1", "omega3_real", "omega3_imag", "tau_imag"}
    alone = encoding_state(Model("weierstrass"))
    assert {key for key in alone if key.startswith(("omega", "tau"))} == names
    assert not any(key.endswith(".omega1") for key in alone)
    model = Model("combined", parts="learned+weierstrass+weierstrass_green:g2=2.0+sincos2d")
    both = encoding_state(model)
    parts: Any = model.encoding.parts
    first, second = parts[1].lattice(), parts[2].lattice()
    assert (both["omega1"], both["parts.2.omega1"]) == (first.omega1.real, second.omega1.real)
    assert both["omega1"] != both["parts.2.omega1"]
    assert {key for key in both if "omega" in key or "tau" in key} == {
        f"{prefix}{name}" for prefix in ("", "parts.2.") for name in names
    }
    assert encoding_state(Model("sincos2d")) == {}


def two_lattices() -> list[Row]:
    rows = resumed()
    for row in rows:
        state = row["encoding"]
        state |= {f"parts.1.{key}": 2 * value for key, value in state.items()}
    return rows


def test_every_lattice_of_a_combined_encoding_is_shown(tmp_path):
    analysis = lattice_analysis([write_run(tmp_path / "run", two_lattices(), *BOTH)])
    one, other = analysis.numbers["trainings"]
    assert one["label"].endswith(", lattice 1")
    assert other["label"].endswith(", lattice 2")
    assert (one["omega1_end"], other["omega1_end"]) == (2.0, 4.0)
    assert all(f"{each['label']}: seed 0" in analysis.caption for each in (one, other))
    # A log that has the first only, as they once were.
    [alone] = lattice_analysis([write_run(tmp_path / "old", resumed(), *BOTH)]).tables.values()
    assert {row["label"] for row in alone} == {one["label"]}


@pytest.mark.parametrize(
    ("overrides", "is_learned"),
    [
        ((), True),
        (("position_encoding.options.fidelity=paper",), True),
        (("position_encoding.options={fidelity = 'paper', learnable = false}",), False),
        (("position_encoding.options.fidelity=authors",), False),
        (("position_encoding.options.learnable=false",), False),
        (("position_encoding.options={function = 'powers'}",), False),
        (("optimizer.encoding_rate=0.0",), False),
        (("position_encoding.name=weierstrass_fourier", "position_encoding.options={}"), True),
        (BOTH, True),
        ((BOTH[0], "position_encoding.options={parts = 'learned+sincos2d'}"), False),
        (LEARNED, False),
    ],
)
def test_a_lattice_that_is_learned_can_be_shown_and_no_other(tmp_path, overrides, is_learned):
    """So that `analyse all` does not fail after all the work."""
    assert learns_a_lattice(load_config("digits", overrides)) == is_learned
    path = write_run(tmp_path / "run", resumed(), *overrides)
    if is_learned:
        assert lattice_analysis([path]).numbers["trainings"]
    else:
        with pytest.raises(InputError, match=r"no lattice|not learned"):
            lattice_analysis([path])


# --- Other image sizes ---------------------------------------------------------------------------

SHAPES = (
    *TINY,
    "data.name=shapes",
    "model.patch_size=4",
    "training.epochs=1",
    "training.threads=0",
)


@pytest.fixture(scope="module")
def shapes_runs(tmp_path_factory) -> list[Path]:
    folder = tmp_path_factory.mktemp("shapes")
    paths = []
    for name, overrides in (("wef", ()), ("table", LEARNED)):
        paths.append(folder / name)
        run(load_config("digits", [*SHAPES, *overrides]), paths[-1], console=Console(quiet=True))
    return paths


def test_runs_are_evaluated_at_squares_and_rectangles(shapes_runs, tmp_path):
    told: list[str] = []
    analysis = resolution_analysis(
        shapes_runs, [12, (16, 24)], methods=["bilinear"], progress=told.append
    )
    assert told[:3] == ["wef at 12 x 12", "wef at 16 x 16", "wef at 16 x 24"]
    caption = analysis.caption
    assert "Data: shapes. weierstrass:projection=mlp: seed 0; learned: seed 0." in caption
    assert "16 x 16 pixels of training" in caption
    rows = analysis.tables["scores"]
    assert len(rows) == 3 + 3 * 2  # the learned table by two methods
    assert {row["images"] for row in rows} == {64}
    for path, label in zip(shapes_runs, ("weierstrass:projection=mlp", "learned"), strict=True):
        recorded = training_rows(path / "log.jsonl")[-1]["validation"]["accuracy"]
        own = [r["accuracy"] for r in rows if r["label"] == label and r["is_trained_size"]]
        assert set(own) == {recorded}
    evaluated = [
        json.loads(line) for line in (shapes_runs[1] / "evaluations.jsonl").read_text().splitlines()
    ]
    sizes = [(row["image_size"], row["resampling"]) for row in evaluated]
    assert sizes == [
        (12, "bicubic_antialias"),
        (12, "bilinear"),
        (16, "bicubic_antialias"),  # nothing is resampled: once
        ([16, 24], "bicubic_antialias"),
        ([16, 24], "bilinear"),
    ]
    changes = {row["size"]: row["change"] for row in analysis.tables["retained"]}
    assert changes["16 x 16"] == 0.0
    assert {"resolution.png", "scores.csv"} <= {
        each.name for each in write_analysis(analysis, tmp_path / "out")
    }


def test_each_method_of_resampling_gives_another_model(shapes_runs):
    opened = open_finished_run(shapes_runs[1])
    images = torch.rand(2, 1, 24, 24)
    logits = []
    with torch.no_grad():
        for method in get_args(Resampling):
            set_resampling(opened.model.encoding, method)
            logits.append(opened.model(images))
    distinct = {tuple(each.flatten().tolist()) for each in logits}
    # Against aliasing there is nothing to do on a finer grid, so that those two pairs agree
    # up to rounding at most.
    assert len(distinct) >= 3
    with pytest.raises(InputError, match="no learned table"):
        set_resampling(open_finished_run(shapes_runs[0]).model.encoding, "bilinear")
    with pytest.raises(InputError, match="'nearest'"):
        set_resampling(opened.model.encoding, "nearest")  # type: ignore[arg-type]


def test_the_usual_sizes_follow_those_of_training(shapes_runs):
    opened = open_finished_run(shapes_runs[0])
    assert sizes_of(opened, None) == [(12, 12), (16, 16), (16, 24), (24, 24), (32, 32)]
    assert sizes_of(opened, [8]) == [(8, 8), (16, 16)]


def test_sizes_and_runs_that_cannot_be_are_refused_before_any_evaluation(shapes_runs, tmp_path):
    path = tmp_path / "copy"
    shutil.copytree(shapes_runs[0], path, ignore=shutil.ignore_patterns("evaluations.jsonl"))
    with pytest.raises(InputError, match=r"18 x 16 pixels.*patches of 4"):
        resolution_analysis([path], [16, (18, 16)])
    with pytest.raises(InputError, match="no method 'nearest'"):
        resolution_analysis([path], methods=["nearest"])  # type: ignore[list-item]
    with pytest.raises(InputError, match="split"):
        resolution_analysis([path], split="training")  # type: ignore[arg-type]
    (path / "weights.safetensors").unlink()
    with pytest.raises(RunError, match="copy is not finished"):
        resolution_analysis([shapes_runs[0], path])
    assert not (path / "evaluations.jsonl").exists()
    text = (path / "config.toml").read_text().replace("validation = 64", "validation = 0")
    text = text.replace('by = "validation"', 'by = "last"')
    (path / "config.toml").write_text(text)
    (path / "weights.safetensors").touch()
    with pytest.raises(RunError, match="held out no validation images"):
        resolution_analysis([path])


def test_many_seeds_are_one_curve_but_too_many_experiments_are_refused(tmp_path: Path) -> None:
    from training.config import dump_toml, load_config
    from training.study.run_groups import check_runs

    def written(name: str, *overrides: str) -> Path:
        (tmp_path / name).mkdir()
        config = load_config("digits", overrides)
        (tmp_path / name / "config.toml").write_text(dump_toml(config), encoding="utf-8")
        return tmp_path / name

    seeds = [written(f"seed{n}", f"seed={n}") for n in range(30)]
    assert len(check_runs(seeds, finished=False)) == 30
    others = [written(f"epochs{n}", f"training.epochs={n}") for n in range(31, 60)]
    with pytest.raises(InputError, match="29 experiments are more"):
        check_runs(others, finished=False)
