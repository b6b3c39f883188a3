"""The foundation of analyses, and those of the functions themselves: surface and relative."""

from __future__ import annotations

import csv
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from training.cli import main
from training.encodings import available_encodings
from training.figure_style import curve_style, new_figure
from training.plot.functions import portrait
from training.study.analyse_relative import leading_components, recovery, relative_analysis
from training.study.analyse_surface import read_lattice, surface_analysis
from training.study.analysis import Analysis, write_analysis
from training.study.encoding_choice import EncodingChoice, choose_encodings, read_grid
from training.study.gallery import gallery_html
from training.study.structure_measures import (
    bilinear_fit,
    ordered_pairs,
    safe_difference,
    textbook_difference,
)
from wefpe_core import InputError, Lattice, LatticeError, get_backend


def some_analysis(**changes) -> Analysis:
    figure = new_figure(2, 2)
    figure.subplots().plot([0, 1], [0, 1])
    fields = {
        "name": "example",
        "title": "An <example>",
        "caption": "Seed 0 & grid 2 x 2.",
        "figures": {"one": figure},
        "numbers": {"finite": 1.0, "not": math.nan, "inside": [math.inf, 2]},
        "tables": {"rows": [{"a": 1, "b": 2.5}, {"a": 3, "c": "x"}]},
    }
    return Analysis(**(fields | changes))


# --- Writing ---------------------------------------------------------------------------------


def test_an_analysis_is_written_as_pictures_numbers_tables_and_caption(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "here"
    written = some_analysis(markdown="| a |\n|---|\n| 1 |")
    names = [path.name for path in write_analysis(written, folder)]
    assert names == ["caption.txt", "example.json", "example.md", "one.png", "one.svg", "rows.csv"]
    assert (folder / "example.md").read_text().endswith("2 x 2.\n\n| a |\n|---|\n| 1 |\n")
    numbers = json.loads((folder / "example.json").read_text())
    assert numbers["not"] is None
    assert numbers["inside"] == [None, 2]
    assert numbers["finite"] == 1.0
    assert numbers["caption"] == "Seed 0 & grid 2 x 2."
    rows = list(csv.DictReader((folder / "rows.csv").read_text().splitlines()))
    assert rows == [{"a": "1", "b": "2.5", "c": ""}, {"a": "3", "b": "", "c": "x"}]
    assert (folder / "one.png").read_bytes().startswith(b"\x89PNG")


def test_the_same_analysis_gives_the_same_files(tmp_path: Path) -> None:
    for name in ("first", "second"):
        write_analysis(some_analysis(), tmp_path / name)
    for path in (tmp_path / "first").iterdir():
        assert path.read_bytes() == (tmp_path / "second" / path.name).read_bytes(), path.name


def test_a_folder_that_exists_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("mine")
    with pytest.raises(InputError, match="exists"):
        write_analysis(some_analysis(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_nothing_half_written_stays_when_writing_fails(tmp_path: Path) -> None:
    class Broken:
        def savefig(self, path, **_):
            Path(path).write_bytes(b"half")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_analysis(some_analysis(figures={"one": Broken()}), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_the_gallery_is_one_file_without_references_and_escapes_text() -> None:
    page = gallery_html([some_analysis()], "Made of <these>")
    assert "An &lt;example&gt;" in page
    assert "Made of &lt;these&gt;" in page
    assert "<example>" not in page
    sources = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert sources
    assert all(s.startswith(("data:image/png;base64,", "#")) for s in sources)


def test_no_two_of_the_first_curves_look_alike() -> None:
    seen = {tuple(curve_style(number).values()) for number in range(28)}
    assert len(seen) == 28


# --- Encodings -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", available_encodings())
def test_every_encoding_is_built_twice_the_same_and_leaves_the_seed_alone(name: str) -> None:
    import torch

    torch.manual_seed(5)
    want = torch.rand(3)
    torch.manual_seed(5)
    first, second = (EncodingChoice(name).build((4, 6), seed=1) for _ in range(2))
    assert torch.equal(torch.rand(3), want)
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert a.dtype == torch.float64
        assert torch.equal(a, b)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([], "no encoding"),
        (["learnd"], "did you mean learned"),
        (["weierstrass:features=3"], "features"),
        (["weierstrass:fidelity"], "option=value"),
        (["sincos2d:colour=1"], "colour"),
    ],
)
def test_mistakes_in_encodings_are_named(labels: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        choose_encodings(labels, (4, 4))


@pytest.mark.parametrize(
    ("text", "grid"), [("14x14", (14, 14)), ("7", (7, 7)), ("2X3", (2, 3)), ("4x", (4, 4))]
)
def test_grids_are_read(text: str, grid: tuple[int, int]) -> None:
    assert read_grid(text) == grid


@pytest.mark.parametrize("text", ["", "x", "1", "1x1", "0x4", "-2x3", "3x3x3", "a", "999x999"])
def test_grids_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(InputError):
        read_grid(text)


# --- Surface ---------------------------------------------------------------------------------


@pytest.mark.parametrize("omega3", [1j, 0.3 + 0.9j, -0.4 + 2j])
@pytest.mark.parametrize("name", ["wp", "wp_prime"])
def test_marks_of_a_portrait_are_where_the_functions_say(name: str, omega3: complex) -> None:
    lattice = Lattice(1.0, omega3)
    shown = portrait(name, lattice, side=40)
    backend = get_backend("numpy")
    assert len(shown.zeros) >= 1
    # A double zero is found to the square root of the precision.
    assert np.abs(getattr(backend, name)(shown.zeros, lattice)).max() < 1e-6
    assert len(shown.poles) >= 4
    for pole in shown.poles:
        assert abs(backend.wp(pole + 1e-5, lattice)) > 1e9


@pytest.mark.parametrize("omega3", [0.02j, 30j, 0.4 + 25j])
def test_every_pole_of_a_long_window_is_marked(omega3: complex) -> None:
    shown = portrait("wp", Lattice(1.0, omega3), side=20)
    left, right = shown.z.real.min(), shown.z.real.max()
    low, high = shown.z.imag.min(), shown.z.imag.max()
    steps = np.arange(-80, 81)
    every = (2 * steps[:, None] + 2 * omega3 * steps[None, :]).ravel()
    inside = (left < every.real) & (every.real < right) & (low < every.imag) & (every.imag < high)
    assert len(shown.poles) == inside.sum() >= 4


@pytest.mark.parametrize("text", ["1,1e-9j", "1e-200,1e-200j", "1e200,1e200j"])
def test_lattices_that_cannot_be_drawn_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="be drawn"):
        portrait("wp", read_lattice(text), side=20)


def test_surface_shows_the_patches_of_its_encoding() -> None:
    analysis = surface_analysis(EncodingChoice("weierstrass"), grid=(3, 5))
    assert analysis.numbers["tau"] == pytest.approx([0.0, 1.0], abs=1e-6)
    assert "3 x 5 patches" in analysis.caption
    assert "1.8541" in analysis.caption


def test_half_periods_are_read_and_checked() -> None:
    assert read_lattice("1, 0.3+0.9i").omega3 == 0.3 + 0.9j
    with pytest.raises(InputError, match="two numbers"):
        read_lattice("1")
    with pytest.raises(LatticeError):
        read_lattice("1,2")


# --- Relative --------------------------------------------------------------------------------


def test_the_printed_formula_fails_where_the_safe_one_does_not() -> None:
    lattice = Lattice(1.0, 1.0j)
    backend = get_backend("numpy")
    z = np.array([0.3 + 0.4j])
    p, dp = backend.wp_and_prime(z, lattice)
    opposite, d_opposite = backend.wp_and_prime(-z, lattice)
    want = backend.wp(-2 * z, lattice)
    with np.errstate(all="ignore"):
        printed = textbook_difference(p, dp, opposite, d_opposite)
    assert not np.isfinite(printed).all()
    assert abs(safe_difference(p, dp, opposite, d_opposite, lattice) - want) < 1e-13 * abs(want)


def test_errors_grow_with_what_is_thrown_away() -> None:
    found = recovery(EncodingChoice("weierstrass").build((6, 6)), (6, 6))
    medians = [float(np.median(error)) for error in found.errors.values()]
    eps = np.finfo(float).eps
    assert medians[0] < 8 * eps
    assert medians[1] < 8 * eps
    assert 1e-9 < medians[2] < 1e-6  # float32
    assert 1e-4 < medians[4] < 1e-1  # bfloat16 features
    assert (found.condition >= 1 - 1e-12).all()


def test_a_bilinear_function_is_explained_and_noise_is_not() -> None:
    rng = np.random.default_rng(0)
    features = rng.standard_normal((30, 3))
    pairs = ordered_pairs(30)
    form = rng.standard_normal((3, 3))
    bilinear = np.einsum("na,ab,nb->n", features[pairs[0]], form, features[pairs[1]])
    assert bilinear_fit(features, pairs, bilinear + 2.0) == pytest.approx(1.0, abs=1e-12)
    noise = rng.standard_normal(pairs[0].size)
    # 16 coefficients on 870 points of noise explain 2 %, which the adjustment takes off.
    assert abs(bilinear_fit(features, pairs, noise)) < 0.03


def test_a_fit_without_freedom_or_without_anything_to_explain_says_nothing() -> None:
    rng = np.random.default_rng(0)
    for count, width in ((3, 3), (2, 1)):
        pairs = ordered_pairs(count)
        features = rng.standard_normal((count, width))
        assert math.isnan(bilinear_fit(features, pairs, rng.standard_normal(pairs[0].size)))
    pairs = ordered_pairs(9)
    assert math.isnan(bilinear_fit(rng.standard_normal((9, 1)), pairs, np.ones(pairs[0].size)))


def test_leading_components_leave_out_what_does_not_vary() -> None:
    table = np.outer(np.arange(10.0), np.ones(7)) + 3.0
    components = leading_components(table)
    assert components.shape == (10, 1)
    assert components.std() == pytest.approx(1.0)


def test_relative_leaves_out_encodings_without_a_table() -> None:
    subjects = [EncodingChoice("weierstrass"), EncodingChoice("rope_axial")]
    analysis = relative_analysis(subjects, grid=(4, 4))
    assert [row["encoding"] for row in analysis.tables["bilinear"]] == ["weierstrass"]
    assert "left out: rope_axial" in analysis.caption
    assert "4 x 4" in analysis.caption
    with pytest.raises(InputError, match="no table"):
        relative_analysis([EncodingChoice("none"), EncodingChoice("rope1d")], grid=(4, 4))


@pytest.mark.parametrize(
    ("source", "message"),
    [("sincos2d", "needs weierstrass"), ("weierstrass:features=2", "four features")],
)
def test_relative_says_what_it_needs(source: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        relative_analysis([EncodingChoice("learned")], source=EncodingChoice(source), grid=(4, 4))


def test_relative_refuses_a_query_outside_the_grid() -> None:
    with pytest.raises(InputError, match="patch 9x9"):
        relative_analysis([EncodingChoice("learned")], grid=(4, 4), query=(9, 9))


# --- Command line ----------------------------------------------------------------------------


def test_the_command_writes_a_folder_once(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["analyse", "relative", "--grid", "3x4", "-e", "weierstrass"]) == 0
    assert (tmp_path / "analyses" / "relative" / "relative.png").exists()
    capsys.readouterr()
    assert main(["analyse", "relative", "--grid", "3x4"]) == 2
    assert "exists" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (OSError(28, "No space left on device", "here"), "No space left on device: 'here'"),
        (MemoryError("931 GiB"), "not enough memory: 931 GiB"),
    ],
)
def test_what_the_machine_refuses_is_one_line(raised, said, tmp_path, monkeypatch, capsys) -> None:
    import training.study.analyse_surface as module

    def broken(*_, **__):
        raise raised

    monkeypatch.setattr(module, "portrait", broken)
    assert main(["analyse", "surface", "-o", str(tmp_path / "out")]) == 2
    message = capsys.readouterr().err
    assert said in message
    assert len(message.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_an_interruption_says_so(tmp_path, monkeypatch, capsys) -> None:
    import training.study.analyse_surface as module

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "portrait", interrupted)
    assert main(["analyse", "surface", "-o", str(tmp_path / "out")]) == 130
    assert "interrupted" in capsys.readouterr().err


def test_a_place_that_cannot_hold_a_folder_is_refused_before_work(tmp_path, capsys) -> None:
    (tmp_path / "file").write_text("")
    assert main(["analyse", "decay", "-o", str(tmp_path / "file" / "out")]) == 2
    assert "cannot be made" in capsys.readouterr().err


def test_without_an_analysis_the_help_is_shown(capsys) -> None:
    assert main(["analyse"]) == 2
    assert capsys.readouterr().err.startswith("Usage: wefpe analyse")
