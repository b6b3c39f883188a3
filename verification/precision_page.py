"""The report as files: JSON, Markdown, and one HTML page with pictures."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import mpmath
import numpy as np

from verification import oracle
from verification.bench import time_backends
from verification.bench.backend_entries import EAGER, ENTRIES
from verification.html_page import Bar, PageSection, PageTable, html_page
from verification.measure import Row
from verification.precision_report import (
    AGREEMENT_HEADINGS,
    BOUND_HEADINGS,
    HEADINGS,
    YARDSTICK,
    PrecisionReport,
    WorstError,
    agreement_rows,
    as_json,
    as_markdown,
    bound_rows,
    cells,
    error_table,
    facts_of,
    hex_point,
    law_rows,
)
from wefpe_core import Lattice, bounds, get_backend
from wefpe_core.accuracy import in_eps
from wefpe_core.errors import missing_dependency
from wefpe_core.receipts import Receipt, write_receipt

TIMED_POINTS = 50_000
NO_PICTURES = missing_dependency("a picture", "matplotlib", "report")
_NUMPY = ("numpy", "complex128")  # the rows whose errors are drawn
MAP_LATTICE = Lattice(1.0, 0.3 + 0.9j)
TRUNCATION_LATTICES = {
    "half-periods 1.854 and 1.854i": Lattice(1.8540746773013719, 1.8540746773013719j),
    "half-periods 0.1 and 0.1i": Lattice(0.1, 0.1j),
}
_BLUE, _ORANGE, _GREEN = (
    "#0072b2",
    "#d55e00",
    "#009e73",
)  # colours that the colour-blind can tell apart


def write_files(
    report: PrecisionReport,
    rows: Sequence[Row],
    folder: Path,
    receipts: Sequence[Receipt],
    *,
    map_side: int,
) -> str:
    """Write the report in three forms, and its receipts; what was written, for people.

    The page comes last: it alone takes time, for pictures and measurements of speed.
    """
    (folder / "report.json").write_text(as_json(report, receipts) + "\n", encoding="utf-8")
    (folder / "report.md").write_text(as_markdown(report, receipts), encoding="utf-8")
    for receipt in receipts:
        write_receipt(receipt, folder)
    title = f"wefpe: precision report: {report.verdict}"
    page = html_page(title, sections(report, rows, receipts, map_side), report.summary)
    (folder / "report.html").write_text(page, encoding="utf-8")
    count = f"{len(receipts)} receipts" if len(receipts) != 1 else "1 receipt"
    return f"report.json, report.md, report.html, {count}"


def sections(
    report: PrecisionReport, rows: Sequence[Row], receipts: Sequence[Receipt], map_side: int
) -> list[PageSection]:
    mark = {"PASS": "good", "FAIL": "bad", "INCOMPLETE": "warn"}[report.verdict]
    facts = [["verdict", report.verdict], *map(list, facts_of(report, receipts).items())]
    summary = [PageTable(["", ""], facts, [mark] + [""] * (len(facts) - 1), prose=True)]
    if problems := [[failure] for failure in report.failures]:
        summary.append(PageTable(["failures"], problems, ["bad"] * len(problems), prose=True))
    if skips := [[skip.name, skip.reason] for skip in report.skipped]:
        folded = f"{len(skips)} skipped"
        summary.append(PageTable(["skipped", "why"], skips, prose=True, folded=folded))
    headings, lines = error_table(report.judged)
    bars = [[*words, *map(_bar, worst)] for words, worst in lines]
    agreements = PageTable(AGREEMENT_HEADINGS, agreement_rows(report.agreements), prose=True)
    limits = PageTable(BOUND_HEADINGS, bound_rows(report.agreements), prose=True)
    laws = PageTable(*law_rows(report.laws))
    every_row = PageTable(
        [*HEADINGS[:-1], "worst point", HEADINGS[-1]],
        [
            [*cells(row)[:-1], hex_point(*row.worst.worst_place), cells(row)[-1]]
            for row in report.judged
        ],
        ["good" if row.passes else "bad" for row in report.judged],
        prose=True,
        folded=f"{len(report.judged):,} rows, each with its worst point",
    )
    note = f"{_BAR_NOTE} {YARDSTICK}."
    found = [
        PageSection("Summary", "", summary),
        PageSection("Largest errors and their ceilings", note, [PageTable(headings, bars)]),
        *([] if report.interrupted else _picture_sections(report, rows, map_side)),
        PageSection("Laws of DLMF chapter 23", tables=[laws]),
        PageSection("The oracle against other formulas", _ORACLE_NOTE, [agreements]),
        PageSection("Errors of truncated series and their bounds", _BOUND_NOTE, [limits]),
        PageSection("Every row", tables=[every_row]),
    ]
    # An interrupted run may not have come to some of them.
    return [each for each in found if not each.tables or any(t.rows for t in each.tables)]


def _bar(worst: WorstError | None) -> str | Bar:
    return "" if worst is None else Bar(str(worst), min(worst.share, 1.0), worst.passes)


def _picture_sections(
    report: PrecisionReport, rows: Sequence[Row], map_side: int
) -> list[PageSection]:
    """The pictures, or a sentence that says why there are none."""
    if find_spec("matplotlib") is None:
        return [PageSection("Pictures", f"There are none: {NO_PICTURES}.")]
    return [
        PageSection("Where the errors are", pictures=error_map(map_side), caption=_MAP_CAPTION),
        *_distance_section(rows, report),
        PageSection("Truncated lattice sums", pictures=truncation(), caption=_SUM_CAPTION),
        PageSection("Time", pictures=timing_bars(timing_ratios()), caption=_TIME_CAPTION),
    ]


def _distance_section(rows: Sequence[Row], report: PrecisionReport) -> list[PageSection]:
    near = [
        row
        for row in rows
        if (row.subject, row.dtype) == _NUMPY
        and row.region == "pole at 0"
        and row.function in ("wp", "wp_prime")
    ]
    if not near:
        return []
    ceiling = max(row.ceiling for row in report.judged if row.worst in near)
    pictures = error_against_distance(near, ceiling)
    return [PageSection("Towards the pole", pictures=pictures, caption=_POLE_CAPTION)]


def timing_ratios() -> dict[str, float]:
    """Quick ratios to numpy.exp on few points; `wefpe bench` measures them with care."""
    wanted = ("numpy: wp, wp'", "numpy: zeta", "numpy: sigma", EAGER)
    entries = [entry for entry in ENTRIES if entry.name in wanted]
    timings = [
        time_backends.measure(entry, TIMED_POINTS, repeat=5, device="cpu") for entry in entries
    ]
    return {timing.name: timing.ratio for timing in timings if not timing.problem}


# --- Pictures ------------------------------------------------------------------------------


def new_figure(height: float = 3.6) -> tuple[Any, Any]:
    """A figure made without the global state of pyplot, and its axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.4, height), layout="constrained")
    return figure, figure.subplots()


def error_map(points_per_side: int) -> list[Any]:
    """Scaled errors of the NumPy backend over one period cell."""
    lattice = MAP_LATTICE
    s = (np.arange(points_per_side) + 0.5) / points_per_side
    z = 2 * complex(lattice.omega1) * s[None, :] + 2 * complex(lattice.omega3) * s[:, None]
    values = get_backend("numpy").wp_and_prime(z, lattice)
    errors = np.empty((2, *z.shape))
    for place in np.ndindex(z.shape):
        for k, reference in enumerate(oracle.wp_and_prime(complex(z[place]), lattice)):
            errors[k][place] = in_eps(reference.error_of(values[k][place].item()), "complex128")
    pictures = []
    for error, name in zip(errors, ("℘", "℘′"), strict=True):
        figure, axis = new_figure()
        image = axis.pcolormesh(z.real, z.imag, error, cmap="cividis", vmin=0, rasterized=True)
        axis.set(title=f"{name}, largest {error.max():.2f} eps", xlabel="Re z", ylabel="Im z")
        axis.set_aspect("equal")
        figure.colorbar(image, ax=axis, label="scaled error, eps")
        pictures.append(figure)
    return pictures


def error_against_distance(rows: Sequence[Row], ceiling: float) -> list[Any]:
    """Errors next to the pole at 0, over the distance in shortest periods."""
    figure, axis = new_figure()
    colours = {"wp": _BLUE, "wp_prime": _ORANGE}
    for name, colour in colours.items():
        chosen = [row for row in rows if row.function == name]
        distances = [
            abs(point[0]) / abs(2 * complex(lattice.reduced()[0].omega1))
            for row in chosen
            for point, lattice in row.points
        ]
        errors = np.concatenate([row.errors for row in chosen])
        axis.semilogx(distances, errors, ".", ms=3, color=colour, label=name.replace("_", " "))
    axis.axhline(ceiling, color="black", lw=1, ls="--", label="ceiling")
    axis.set(xlabel="distance to the pole, shortest periods", ylabel="scaled error, eps")
    axis.legend()
    return [figure]


def truncation(sizes: Sequence[int] = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)) -> list[Any]:
    """The error of the truncated lattice sum, its proven bound, and the bound the paper prints."""
    pictures = []
    for title, lattice in TRUNCATION_LATTICES.items():
        figure, axis = new_figure()
        z = 0.9 * (complex(lattice.omega1) + complex(lattice.omega3))
        backend = get_backend("mpmath", dps=20)
        with mpmath.workdps(20):
            truth = backend.wp(z, lattice)
            errors = [abs(backend.lattice_sum(z, lattice, m, m)[0] - truth) for m in sizes]
        proven = [
            bounds.paired_sum_bound(z, lattice.omega1, lattice.omega3, m_max=m, n_max=m).wp
            for m in sizes
        ]
        # 2|z|/R^2 with R the radius of the largest disk in the box, the paper's kindest reading
        printed = [2 * abs(z) / (2 * m * abs(complex(lattice.omega1))) ** 2 for m in sizes]
        axis.loglog(sizes, proven, "-", color=_BLUE, label="proven bound")
        axis.loglog(sizes, [float(e) for e in errors], "o", color="black", label="error of ℘")
        axis.loglog(sizes, printed, "--", color=_ORANGE, label="bound of the paper, 2|z|/R²")
        axis.set(title=title, xlabel="M = N", ylabel="|error|")
        axis.legend()
        pictures.append(figure)
    return pictures


def timing_bars(ratios: dict[str, float]) -> list[Any]:
    figure, axis = new_figure(height=0.6 + 0.4 * len(ratios))
    names = list(ratios)[::-1]
    axis.barh(names, [ratios[name] for name in names], color=_GREEN)
    for i, name in enumerate(names):
        axis.text(ratios[name], i, f" {ratios[name]:.3g}", va="center")
    axis.set(xlabel="time per point, multiples of numpy.exp", xscale="log")
    axis.margins(x=0.15)
    return [figure]


# --- Captions ------------------------------------------------------------------------------

_BAR_NOTE = (
    "Each cell has the error, its ceiling, and a bar that is full at the ceiling. The error is"
)
_MAP_CAPTION = (
    "Scaled error of the NumPy backend in complex128 over one period cell of "
    f"{MAP_LATTICE!r}; the corners are poles."
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
_BOUND_NOTE = (
    "The error of a truncated series, as the oracle finds it, over the bound that "
    "wefpe_core.bounds proves for it. More than 1 would refute the bound; far less would show "
    "that it is of little use."
)
_ORACLE_NOTE = (
    "The oracle sums rows of the lattice in mpmath at two precisions. Theta functions and balls "
    "of Arb are other formulas in other code; differences are in units of the scale above."
)
_TIME_CAPTION = (
    f"{TIMED_POINTS:,} points, all threads torch takes, this run; nox -s bench is more careful."
)
