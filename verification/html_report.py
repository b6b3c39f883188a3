"""The report as files: JSON, Markdown and one HTML page with pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from verification import bench, bench_entries, figures
from verification.measure import Row
from verification.page import (
    Section,
    html_figure,
    html_page,
    html_paragraph,
    html_table,
)
from verification.report import (
    AGREEMENT_HEADINGS,
    HEADINGS,
    YARDSTICK,
    Report,
    agreement_rows,
    as_json,
    as_markdown,
    cells,
    hex_point,
    law_rows,
    row_of,
    summary_table,
)

TIMED_POINTS = 50_000
_NUMPY = ("numpy", "complex128")  # whose errors are drawn


def write(report: Report, rows: Sequence[Row], folder: Path, *, map_side: int) -> None:
    (folder / "report.json").write_text(as_json(report) + "\n", encoding="utf-8")
    (folder / "report.md").write_text(as_markdown(report), encoding="utf-8")
    page = html_page(
        "wefpe: precision report", sections(report, rows, map_side), note=_note(report)
    )
    (folder / "report.html").write_text(page, encoding="utf-8")


def _note(report: Report) -> str:
    return "; ".join(f"{key}: {value}" for key, value in report.circumstances.items())


def sections(report: Report, rows: Sequence[Row], map_side: int) -> list[Section]:
    headings, laws = law_rows(report.laws)
    problems = [[failure] for failure in report.failures]
    skips = [[skip.name, skip.reason] for skip in report.skipped]
    summary = html_paragraph(report.summary)
    if problems:
        summary += html_table(["failures"], problems, ["bad"] * len(problems))
    if skips:
        summary += html_table(["skipped", "why"], skips)
    marks = ["good" if verdict.passes else "bad" for verdict in report.verdicts]
    every_row = (
        [*cells(verdict)[:-1], hex_point(*verdict.worst.worst_place), cells(verdict)[-1]]
        for verdict in report.verdicts
    )
    return [
        Section("Summary", summary),
        Section(
            "Largest errors",
            html_paragraph(YARDSTICK)
            + html_table(*summary_table([row_of(verdict) for verdict in report.verdicts])),
        ),
        Section("Where the errors are", html_figure(figures.error_map(map_side), _MAP_CAPTION)),
        *_distance_section(rows, report),
        Section("Truncated lattice sums", html_figure(figures.truncation(), _SUM_CAPTION)),
        Section("Laws of DLMF chapter 23", html_table(headings, laws)),
        Section(
            "The oracle against other formulas",
            html_paragraph(_ORACLE_NOTE)
            + html_table(AGREEMENT_HEADINGS, agreement_rows(report.agreements)),
        ),
        Section("Time", html_figure(figures.timing_bars(timing_ratios()), _TIME_CAPTION)),
        Section(
            "Every row", html_table([*HEADINGS[:-1], "worst point", HEADINGS[-1]], every_row, marks)
        ),
    ]


def _distance_section(rows: Sequence[Row], report: Report) -> list[Section]:
    near = [
        row
        for row in rows
        if (row.subject, row.dtype) == _NUMPY
        and row.region == "pole at 0"
        and row.function in ("wp", "wp_prime")
    ]
    if not near:
        return []
    ceiling = max(v.ceiling for v in report.verdicts if v.worst in near)
    figure = figures.error_against_distance(near, ceiling)
    return [Section("Towards the pole", html_figure(figure, _POLE_CAPTION))]


def timing_ratios() -> dict[str, float]:
    """Quick ratios to numpy.exp on few points; `nox -s bench` has the careful ones."""
    wanted = ("numpy: wp, wp'", "numpy: zeta", "numpy: sigma", bench_entries.EAGER)
    entries = [entry for entry in bench_entries.ENTRIES if entry.name in wanted]
    timings = [bench.measure(entry, TIMED_POINTS, repeat=5, device="cpu") for entry in entries]
    return {timing.name: timing.ratio for timing in timings if not timing.problem}


_MAP_CAPTION = (
    "Scaled error of the NumPy backend in complex128 over one period cell of "
    f"{figures.MAP_LATTICE!r}; the corners are poles."
)
_POLE_CAPTION = (
    "Scaled error of the NumPy backend next to the pole at 0, all lattice families. Flat to the "
    "left: no digits are lost however near the pole."
)
_SUM_CAPTION = (
    "Error of the paper's truncated series at z = 0.9 (omega1 + omega3), our proven bound and the "
    "bound printed in the paper. The printed one is not homogeneous: on a small lattice it lies "
    "below the error."
)
_ORACLE_NOTE = (
    "The oracle sums rows of the lattice in mpmath at two precisions. Theta functions and balls "
    "of Arb are other formulas in other code; differences are in units of the scale above."
)
_TIME_CAPTION = (
    f"{TIMED_POINTS:,} points, all threads torch takes, this run; nox -s bench is more careful."
)
