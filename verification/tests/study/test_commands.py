"""``wefpe analyse``: every command, its mistakes, the page of all, and what the docs show."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("accelerate")
pytest.importorskip("matplotlib")

from PIL import Image

from training.cli import main
from training.commands.analyse import summaries
from training.study import gallery as gallery_module
from training.study.analyse_decay import decay_markdown, usual_encodings
from training.study.analysis import PageInputs, load_analysis
from training.study.decay_measures import decay_rows
from training.study.encoding_choice import GRID, EncodingChoice, check_patch, read_patch
from wefpe_core import InputError

DOCS = Path(__file__).parents[3] / "docs"
SMALL = ("training.epochs=1", "model.depth=1", "model.dim=16", "model.num_heads=2")


@pytest.fixture(scope="module")
def gallery(tmp_path_factory) -> Path:
    """The folder of ``analyse all`` for two encodings, with runs as small as they get."""
    folder = tmp_path_factory.mktemp("gallery") / "all"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gallery_module, "SHORT_RUN", (*gallery_module.SHORT_RUN[2:], *SMALL))
        words = ["all", "-e", "weierstrass", "-e", "learned", "--grid", "3x4", "--seeds", "0,1"]
        assert main(["analyse", *words, "--output", str(folder)]) == 0
    return folder


def commands() -> set[str]:
    return set(summaries())


@pytest.mark.slow
@pytest.mark.nightly
def test_the_page_shows_every_analysis_and_needs_no_other_file(gallery: Path) -> None:
    page = (gallery / "index.html").read_text("utf-8")
    sections = re.findall(r'<section id="([^"]+)"', page)
    assert set(sections) == commands() - {"all"}
    assert page.count("data:image/png;base64,") >= len(sections)
    sources = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert all(source.startswith(("data:image/png", "#")) for source in sources)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted(commands() - {"all"}))
def test_each_analysis_has_pictures_numbers_and_a_caption(gallery: Path, name: str) -> None:
    suffixes = {path.suffix for path in (gallery / name).iterdir()}
    assert {".png", ".svg", ".json", ".txt"} <= suffixes
    caption = (gallery / name / "caption.txt").read_text("utf-8")
    assert len(caption.split()) > 25


@pytest.mark.slow
@pytest.mark.nightly
def test_nothing_unfinished_is_left(gallery: Path) -> None:
    assert [path.name for path in gallery.parent.iterdir()] == ["all"]
    assert (gallery / "runs").is_dir()


@pytest.mark.slow
@pytest.mark.nightly
def test_the_runs_of_the_gallery_serve_the_other_commands(
    gallery: Path, tmp_path: Path, monkeypatch
) -> None:
    order = [each for each in gallery_module._in_order() if each[1].is_of_runs]
    monkeypatch.setattr(gallery_module, "_in_order", lambda: order)  # the gallery has the others
    run = str(gallery / "runs" / "digits-0")
    for words in (
        ["curves", run],
        ["lattice", run],
        ["resolution", run, "--size", "8x12"],
        ["rollout", run, "--test-images", "1"],
        ["all", "--run", run, "-e", "weierstrass", "--grid", "2x3", "--seeds", "0"],
    ):
        assert main(["analyse", *words, "-o", str(tmp_path / words[0])]) == 0, words
    assert (tmp_path / "all" / "index.html").exists()
    assert not (tmp_path / "all" / "runs").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["surfac"], "did you mean surface"),
        (["surface", "-e", "learnd"], "did you mean learned"),
        (["surface", "-e", "learned"], "no lattice"),
        (["surface", "--grid", "1x1"], "fewer than 2 patches"),
        (["surface", "--half-periods", "1"], "two numbers"),
        (["relative", "-e", "weierstrass:features=3"], "features"),
        (["decay", "--protocol", "author"], "did you mean authors"),
        (["decay", "--seeds", "4-1"], "goes upwards"),
        (["decay", "--seeds", "0-99999999999"], "at most 10000 seeds"),
        (["decay", "--seeds", "99999999999999999999"], "63 bits"),
        (["decay", "--seeds", "²"], "must be numbers"),
        (["attention-init", "--query", "²x3"], "ROWxCOLUMN"),
        (["rollout", "missing", "--mean", "a"], "--mean"),
        (["rollout", "missing", "--std", "0"], "--std"),
        (["relative", "-e", "none"], "no table"),
        (["all", "-e", "combined"], "no one interaction"),
        (["all", "-e", "weierstrass", "-e", "weierstrass:projection=mlp"], "one experiment"),
        (["all", "-i", "missing.png"], "missing.png"),
        (["decay", "--grid", "1"], "fewer than 2 patches"),
        (["decay", "-e", "combined"], "no one interaction"),
        (["structure", "-e", "sincos"], "did you mean sincos2d"),
        (["attention-init", "--query", "9x9", "--grid", "3x3"], "not in a grid"),
        (["attention-init", "--query", "9"], "ROWxCOLUMN"),
        (["attention-init", "--image", "missing.jpg"], "missing.jpg"),
        (["attention-init", "--start", "author"], "author"),
        (["rollout", "missing"], "missing does not exist"),
        (["rollout"], "MODEL"),
        (["resolution", "missing"], "missing"),
        (["curves", "missing"], "missing"),
        (["lattice", "missing"], "missing"),
        (["all", "--run", "missing"], "missing"),
        (["all", "-e", "weierstrass_hybrid"], "table"),
    ],
)
def test_mistakes_are_one_line_and_write_nothing(
    words: list[str], message: str, tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["analyse", *words]) == 2
    said = capsys.readouterr().err.strip()
    assert message in said
    assert len(said.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", sorted(commands()))
def test_an_output_that_exists_is_refused_before_any_work(
    name: str, tmp_path: Path, capsys
) -> None:
    needs = [str(tmp_path)] if name in ("rollout", "resolution", "curves", "lattice") else []
    assert main(["analyse", name, *needs, "-o", str(tmp_path)]) == 2
    assert "exists" in capsys.readouterr().err


def test_a_failure_on_the_way_leaves_nothing(tmp_path: Path, monkeypatch, capsys) -> None:
    def broken(*_, **__):
        raise InputError("broken on purpose")

    structure = load_analysis("structure")
    monkeypatch.setattr(gallery_module, "short_experiments", lambda choices: [])
    monkeypatch.setattr(
        gallery_module, "_in_order", lambda: [("structure", replace(structure, analyse=broken))]
    )
    words = ["all", "-e", "learned", "--grid", "2x2", "-o", str(tmp_path / "out")]
    assert main(["analyse", *words]) == 2
    assert "broken on purpose" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_encodings_without_a_table_go_without_the_analysis_of_tables() -> None:
    for label, has_table in (("rope_axial", False), ("learned", True)):
        inputs = PageInputs([EncodingChoice(label)], (3, 4), [0], {})
        assert (load_analysis("relative").page_arguments(inputs) is not None) == has_table


def test_the_help_of_all_analyses_imports_none_of_them() -> None:
    code = (
        "import sys\n"
        "from training.cli import main\n"
        "assert main(['analyse', '--help']) == 0\n"
        "heavy = ('torch', 'matplotlib', 'pandas', 'scipy', 'jinja2')\n"
        "print([name for name in heavy if name in sys.modules], file=sys.stderr)"
    )
    root = Path(gallery_module.__file__).parents[2]
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    assert result.stderr.strip() == "[]"
    for name, summary in summaries().items():
        assert f"{name} " in result.stdout
        assert summary.endswith(".")


def test_the_docs_are_made_from_what_the_analyses_name(tmp_path, monkeypatch) -> None:
    surface = load_analysis("surface")
    small = replace(surface, docs_arguments={"grid": (2, 3)})
    monkeypatch.setattr(gallery_module, "_in_order", lambda: [("surface", small)])
    assert main(["docs", "analyses", str(tmp_path)]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["surface.png"]
    with Image.open(tmp_path / "surface.png") as picture:
        assert picture.width == 1000


def test_places_are_read() -> None:
    assert read_patch("0x3") == (0, 3)
    check_patch((0, 3), (2, 4))
    for text in ("2x0", "0x4", "x", "1", "-1x0"):
        with pytest.raises(InputError):
            check_patch(read_patch(text), (2, 4))


def test_the_table_of_decay_in_the_docs_is_the_one_computed() -> None:
    shown = (DOCS / "analyses" / "decay.md").read_text("utf-8")
    subjects = [EncodingChoice(label) for label in ("weierstrass", "learned", "weierstrass_green")]
    assert all(label in usual_encodings() for label in ("weierstrass", "learned"))
    computed = decay_markdown(decay_rows(subjects, GRID, range(5)))
    rows = [line for line in computed.splitlines() if line.startswith("| `")]
    assert len(rows) >= 12
    assert [row for row in rows if row not in shown] == []


def test_the_docs_have_their_pictures_and_name_every_command() -> None:
    page = (DOCS / "analyses.md").read_text("utf-8")
    for target in re.findall(r"\]\((analyses/[^)]+)\)", page):
        assert (DOCS / target).exists(), target
    for name in summaries():
        assert f"wefpe analyse {name}" in page
