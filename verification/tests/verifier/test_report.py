"""The command `wefpe verify`: what it prints, writes and refuses."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from backends.numpy_backend import NumpyBackend
from training import cli
from verification import cases, judge, laws, oracle, precision_page, second_opinion, verifier
from verification.functions import FUNCTIONS, LINES
from verification.html_page import Bar, PageSection, PageTable, html_page
from verification.measure import Point, Row
from verification.subjects import DTYPES, numpy_subject, subjects_here
from wefpe_core import Lattice, registry

# Arrays, single numbers and, if numba is there, compiled code, in one or two formats each.
NUMPY_DTYPES = sum(len(subject.dtypes) for subject in subjects_here(["numpy"])[0])
SMALL = ["--size", "small", "--backend", "numpy", "--function", "green"]


@pytest.fixture
def _no_second_opinion(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the same in every run, and the slowest part of a small one."""
    monkeypatch.setattr(second_opinion, "agreements", lambda count: ([], []))


pytestmark = pytest.mark.usefixtures("_no_second_opinion")


def verify(options: list[str]) -> int:
    return cli.main(["verify", *options])


def failures_of(capsys: pytest.CaptureFixture[str]) -> list[str]:
    lines = capsys.readouterr().out.splitlines()
    return [line for line in lines if line.startswith("FAILS ")]


def test_the_report_of_a_sound_backend_ends_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(SMALL) == 0
    output = capsys.readouterr().out
    assert output.startswith("PASS ")
    assert re.search(r"green +\d\.\d\d/6 +holds", output)
    assert re.search(r"laws of DLMF 23 +\d+\.\d\d/64 +holds", output)
    assert "FAILS" not in output
    rows = len(cases.REGIONS) * NUMPY_DTYPES + len(laws.LAWS)
    assert f"{rows} rows measured, 0 failures" in output


def test_the_report_names_the_row_and_the_point_of_a_sabotaged_backend(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """NumPy's Green function with its sign flipped, and nothing else."""
    green = NumpyBackend.green
    monkeypatch.setattr(NumpyBackend, "green", lambda self, z, lattice: -green(self, z, lattice))
    monkeypatch.setattr(precision_page, "find_spec", lambda name: None)  # no pictures
    assert verify([*SMALL, "--output", str(tmp_path)]) == 1
    failures = json.loads((tmp_path / "report.json").read_text("utf-8"))["failures"]
    assert len(failures) == len(cases.REGIONS) * NUMPY_DTYPES
    printed = capsys.readouterr().out
    assert printed.startswith("FAIL ")
    assert f"\nFAILS {failures[0]}\n" in printed
    assert printed.count("\nFAILS ") == 10
    assert f"and {len(failures) - 10} more failures" in printed
    of_arrays = [line for line in failures if line.startswith("numpy complex")]
    assert len(of_arrays) == len(cases.REGIONS) * len(DTYPES)
    for line in of_arrays:
        match = re.fullmatch(
            r"numpy (complex\d+) green, ([\w -]+): (\S+) eps .* "
            r"worst at (.*), (Lattice\(.*\))",
            line,
        )
        assert match, line
        dtype, region, size, point, lattice = match.groups()
        assert region in cases.REGIONS
        # What is printed pastes back: the same point of the same lattice has the same error.
        z, made = eval(point), eval(lattice, {"Lattice": Lattice, "complex": complex})
        (reference,) = oracle.green(z, made)
        value = numpy_subject().evaluate("green", np.array([z], dtype), lattice=made)[0][0]
        error = reference.error_of(value.item()) / np.finfo(dtype).eps
        assert f"{error:.3g}" == size


def test_a_broken_law_fails_the_report_though_no_row_does(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """zeta is not measured here, but the laws use it."""
    zeta = NumpyBackend.zeta
    monkeypatch.setattr(NumpyBackend, "zeta", lambda self, z, lattice: zeta(self, z, lattice) + 1)
    assert verify(SMALL) == 1
    failures = failures_of(capsys)
    assert failures
    assert all(re.match(r"FAILS numpy, .* 23\.2", line) for line in failures)


def test_the_files_hold_what_was_measured_and_ask_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib", reason="the report extra is not installed")
    monkeypatch.setattr(precision_page, "TIMED_POINTS", 100)
    options = ["--size", "small", "--backend", "numpy", "--function", "wp_and_prime"]
    assert verify([*options, "--output", str(tmp_path / "new" / "folder")]) == 0
    folder = tmp_path / "new" / "folder"
    known = json.loads((folder / "report.json").read_text("utf-8"))
    assert known["failures"] == []
    assert len(known["rows"]) == 2 * (len(cases.REGIONS) + 1) * NUMPY_DTYPES  # and the hardest
    for row in known["rows"]:
        point = row["worst_at"].partition(", Lattice")[0]
        assert isinstance(eval(point), complex)
    page = (folder / "report.html").read_text("utf-8")
    markdown = (folder / "report.md").read_text("utf-8")
    for row in known["rows"]:
        assert f"{row['largest']:.2f}" in page
        assert f"{row['largest']:.2f}" in markdown
    assert page.count("<svg") == 6  # error maps, distance to the pole, truncation, time
    references = re.findall(r"""(?:src|href)\s*=\s*["']([^"']*)""", page)
    assert all(reference.startswith(("#", "data:")) for reference in references)
    assert "url(http" not in page


GREEN = ["--size", "small", "--dtype", "complex64", "--function", "green"]


def test_what_is_required_and_skipped_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch", reason="the torch extra is not installed")
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device, so nothing is skipped")
    options = [*GREEN, "--backend", "torch"]
    assert verify(options) == 0
    assert "skipped cuda: torch sees no CUDA device" in capsys.readouterr().out
    assert verify([*options, "--require", "torch,cuda"]) == 1
    assert "required, but skipped: cuda" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "required"),
    [
        (["--backend", "numpy"], ["torch", "cuda"]),
        (["--device", "cpu"], ["cuda"]),
    ],
)
def test_what_is_required_and_left_out_by_the_options_is_a_failure(
    options: list[str], required: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify([*GREEN, *options, "--require", ",".join(required)]) == 1
    printed = capsys.readouterr().out
    for name in required:
        assert f"required, but skipped: {name}: nothing is measured on it" in printed


@pytest.mark.parametrize(
    "options",
    [
        ["--backend", "numpy", "--function", "gradient"],
        ["--backend", "numpy", "--function", "gradient", "--require", "torch"],
        ["--function", "gradient", "--dtype", "complex64"],
    ],
)
def test_a_run_that_would_measure_nothing_is_refused(
    options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(["--size", "small", *options]) == 2
    first, last = capsys.readouterr().err.splitlines()
    assert "looking for backends" in first  # without a terminal progress is told in lines
    assert "nothing to measure" in last


def test_progress_is_told_at_once_and_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([100.0, 101.0, 129.0, 131.0, 132.0])
    plan = verifier.Plan(verifier.SIZES["small"], "small")
    with verifier._progress(plan) as progress:
        monkeypatch.setattr(verifier, "time", SimpleNamespace(monotonic=lambda: next(clock)))
        bar = progress.add_task("imports", total=None)
        progress.update(bar, total=4)
        progress.update(bar, description="wp, numpy")
        progress.advance(bar, 2)
        progress.update(bar, description="zeta, numpy")
        progress.update(bar, description="sigma, numpy")
    lines = re.sub(r"after \d+ s", "after s", capsys.readouterr().err).splitlines()
    assert [line.strip() for line in lines] == [
        "0 % after s: imports",
        "50 % after s: zeta, numpy",
    ]


def test_a_function_is_also_named_by_its_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--backend", "numpy", "--dtype", "complex64", "--size", "small"]
    words = ["--function", "wp_prime", "--function", "wp_and_prime", "--function", "wp"]
    assert verify([*options, *words, "--output", str(tmp_path / "report")]) == 0
    report = json.loads((tmp_path / "report" / "report.json").read_text("utf-8"))
    assert {row["function"] for row in report["rows"]} == {"wp", "wp_prime"}
    capsys.readouterr()
    assert verify(["--function", "zetta"]) == 2
    assert one_line(capsys).endswith("; did you mean zeta?")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--function", "nonesuch"], ["nonesuch", *FUNCTIONS]),
        (["--backend", "nonesuch"], ["nonesuch", "numpy", "torch"]),
        (["--device", "tpu"], ["tpu", "cpu", "cuda"]),
        (["--dtype", "float16"], ["float16", *DTYPES]),
        (["--size", "huge"], ["huge", *verifier.SIZES]),
        (["--require", "torch,gpu"], ["gpu", "torch", "cuda", "flint"]),
    ],
)
def test_an_unknown_choice_is_refused_with_the_known_ones(
    options: list[str], named: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(options) == 2
    error = one_line(capsys)
    for word in named:
        assert word in error


def test_a_backend_that_is_not_installed_is_refused_with_what_installs_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_is_installed", lambda row: row.name != "flint")
    assert verify(["--backend", "flint"]) == 2
    assert "pip install 'wefpe[flint]'" in one_line(capsys)


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    streams = capsys.readouterr()
    assert streams.out == ""
    (line,) = streams.err.splitlines()
    return line


def test_an_output_folder_that_cannot_be_written_is_refused_before_any_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("measured although the result cannot be written")

    monkeypatch.setattr(verifier, "measure", work)
    file = tmp_path / "file"
    file.touch()
    assert verify([*SMALL, "--output", str(file / "folder")]) == 2
    assert str(file / "folder") in one_line(capsys)


def test_a_damaged_file_is_named_in_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged() -> Any:
        raise judge.DamagedFileError("baselines.json: 'numpy / wp': 'x' is not an error in eps")

    monkeypatch.setattr(verifier, "load_baselines", damaged)
    assert verify(SMALL) == 2
    assert "baselines.json: 'numpy / wp'" in one_line(capsys)


def test_help_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(["--help"]) == 0
    text = capsys.readouterr().out
    for option in ("backend", "function", "device", "dtype", "size", "output", "require", "record"):
        assert f"--{option}" in text


def test_a_page_shows_text_as_text() -> None:
    table = PageTable(["<a>", "b"], [["<i>1</i>", "1,000"]], ["good"], prose=True)
    bars = PageTable(["c"], [[Bar("<b>", 0.25)], [Bar("2", 1.0, is_good=False)]], folded="<f>")
    page = html_page("a & b", [PageSection("<h>", "<note>", [table, bars])], "x < y")
    for text in ("<a>", "<i>", "<h>", "<note>", "x < y", "<b>", "<f>"):
        assert text not in page
    assert '<td class="bar" style="--share: 25.0%">&lt;b&gt;</td>' in page
    assert '<td class="bar bad" style="--share: 100.0%">2</td>' in page
    assert "<details><summary>&lt;f&gt;</summary>" in page
    assert "<title>a &amp; b</title>" in page
    assert '<td class="number" data-heading="b">1,000</td>' in page
    assert '<tr class="good">' in page


def test_the_summary_fits_80_columns_and_25_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every function of several backends; the errors are made up."""

    def measured(subject: Any, **place: Any) -> list[Row]:
        values = FUNCTIONS[place["function"]].values
        points: list[tuple[Point, Lattice]] = [((0.5 + 0.25j,), Lattice(1.0, 1.0j))]
        return [
            Row(
                *(subject.label, place["dtype"], value, place["family"], place["region"]),
                errors=np.array([0.25]),
                points=points,
                contract=subject.contract,
            )
            for value in values
        ]

    monkeypatch.setattr(verifier, "measure", measured)
    monkeypatch.setattr(verifier, "measure_hardest", lambda jobs: [])
    monkeypatch.setattr(verifier, "law_residuals", lambda subject, ceiling: [])
    assert verify([]) == 0
    lines = capsys.readouterr().out.splitlines()
    begin = next(i for i, line in enumerate(lines) if "function" in line and "verdict" in line)
    end = next(i for i, line in enumerate(lines) if i > begin and not line.strip())
    assert len(set(LINES.values())) < end - begin <= 25
    assert all(len(line) <= 80 for line in lines[begin:end])


# --- The page on a narrow screen ------------------------------------------------------------------

_SUBJECTS = ("numpy", "torch", "jax", "flint", "mpmath", "mine")
_HEX = "complex(float.fromhex('-0x1.4c6beaabd3702p+19'), float.fromhex('0x1.0000000000000p+0'))"


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A page with tables as wide as those of a report, in a window of 400 pixels."""
    pytest.importorskip("fcntl", reason="the browser is driven by the pipes of Unix")
    from verification.tests.browser import Browser, find_browser

    program = find_browser()
    if program is None:
        pytest.skip("no Chromium or Chrome is on the path")
    bars = [Bar("123.45/256", 0.5)] * len(_SUBJECTS)
    matrix = PageTable(["function", *_SUBJECTS], [["gradients of Jacobi functions", *bars]] * 3)
    facts = PageTable(["", ""], [["versions", "torch 2.13.0+cpu, " * 9]], prose=True)
    points = PageTable(["what", "worst point", "error"], [["wp", _HEX, "1.25"]], prose=True)
    text = html_page("A report", [PageSection("Tables", tables=[facts, matrix, points])], "A note")
    folder = tmp_path_factory.mktemp("narrow")
    (folder / "report.html").write_text(text, encoding="utf-8")
    with Browser(program, folder / "profile") as browser:
        browser.resize(400, 900)
        browser.open(folder / "report.html")
        yield browser


def test_only_tables_of_numbers_are_wider_than_a_telephone(narrow: Any) -> None:
    assert narrow.evaluate("document.documentElement.scrollWidth") == 400
    wide = "[...document.querySelectorAll('.wide')].map(d => d.scrollWidth > d.clientWidth)"
    assert narrow.evaluate(wide) == [False, True, False]


def test_the_names_of_rows_stay_where_a_table_is_moved_sideways(narrow: Any) -> None:
    narrow.evaluate("document.querySelectorAll('.wide')[1].scrollLeft = 200")
    name = narrow.evaluate(
        "document.querySelectorAll('.wide')[1].querySelector('td').getBoundingClientRect().toJSON()"
    )
    assert 0 <= name["left"] < name["right"] <= 160
