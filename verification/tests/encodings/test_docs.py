"""docs/encodings.md tells of every encoding, its pictures can be drawn, its figures hold."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the torch extra is not installed")

from training.cli import main
from training.encodings import describe_encoding
from training.study.draw_encodings import measured_changes
from verification.tests.encoding_cases import NAMES

DOCS = Path(__file__).parents[3] / "docs"
PNG = b"\x89PNG\r\n\x1a\n"
LARGEST_PICTURE = 60_000  # bytes
# Their heads look elsewhere at the start, or the bias of a patch on itself has a rule of its own.
NOT_AT_HOME = ("weierstrass_relative", "weierstrass_heat", "relative_table", "gaussian", "lookhere")


def page() -> str:
    return (DOCS / "encodings.md").read_text(encoding="utf-8")


def sections() -> dict[str, str]:
    """The text of each encoding by its name."""
    parts = re.split(r"^(?:### `(\w+)`|## .*)$", page(), flags=re.MULTILINE)
    pairs = zip(parts[1::2], parts[2::2], strict=True)
    return {name: text for name, text in pairs if name}


def test_the_docs_have_a_section_for_each_encoding_in_their_order():
    assert list(sections()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_section_has_the_formula_some_words_and_the_picture(name):
    text, known = sections()[name], describe_encoding(name)
    assert f"```\n{known.formula}\n```" in text
    assert f"![{name}: {known.summary}](encodings/{name}.png)" in text
    assert len(text.split()) > 30
    picture = (DOCS / "encodings" / f"{name}.png").read_bytes()
    assert picture.startswith(PNG)
    assert len(picture) <= LARGEST_PICTURE


def test_no_picture_is_left_over():
    assert {path.stem for path in (DOCS / "encodings").iterdir()} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_pictures_show_a_section_through_finite_maps(name):
    draw = pytest.importorskip("training.study.draw_encodings")
    picture = draw.picture_of(name)
    for panel in (*picture.panels, picture.section):
        assert np.isfinite(panel.values).all()
        assert panel.title
    assert picture.section.values.shape == draw.GRID
    if name not in NOT_AT_HOME:  # at home a patch is as near as it gets
        assert picture.section.values.max() == picture.section.values[draw.MARKED]


def test_the_command_draws_what_it_is_asked_for(tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="the report extra is not installed")
    assert main(["encodings", "none", "weierstrass_green", "--draw", str(tmp_path / "new")]) == 0
    paths = sorted((tmp_path / "new").iterdir())
    assert [path.name for path in paths] == ["none.png", "weierstrass_green.png"]
    assert all(path.read_bytes().startswith(PNG) for path in paths)
    assert capsys.readouterr().out.splitlines() == [str(path) for path in paths]


def test_the_command_prints_what_another_grid_changes(capsys):
    assert main(["encodings", "--resolution"]) == 0
    printed = capsys.readouterr().out
    changes = measured_changes()
    for name, by, change in changes:
        row = next(line for line in printed.splitlines() if name in line and by in line)
        shown = f"{100 * change:.1f} %" if change > 1e-3 else f"{change:.1e}"
        assert shown in row
        if name == "learned":  # the others are rounding, which may differ between machines
            assert f"| `learned` | `{by.removesuffix(' and back')}` and back | {shown} |" in page()


def test_functions_do_not_change_with_the_grid_and_tables_do():
    for name, _, change in measured_changes():
        if name == "learned":
            assert change > 0.05
        else:
            assert change <= 8 * 2.0**-52
