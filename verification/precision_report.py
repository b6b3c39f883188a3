"""One run of the verifier: what was measured, judged and skipped; as text, Markdown and JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from verification.functions import FUNCTIONS
from verification.judge import JudgedRow
from verification.laws import LAWS
from verification.measure import Point
from verification.second_opinion import Agreement
from verification.subjects import Skip
from wefpe_core import Lattice
from wefpe_core.reporting import markdown_table

YARDSTICK = (
    "|got - want| / (|f| + |z_r f'| + p^-k) in eps of the dtype, with z_r the exact argument "
    "minus its nearest lattice point and p the shortest period; want from mpmath at two precisions"
)
HEADINGS = (
    *("backend", "dtype", "value", "region", "points", "p99.9", "largest", "baseline", "ceiling"),
    *("worst in", "verdict"),
)


@dataclass(frozen=True)
class LawResidual:
    """How well the values of a backend obey one law, in eps of the sum of absolute terms."""

    law: str
    subject: str
    largest: float
    ceiling: float

    @property
    def holds(self) -> bool:
        return self.largest <= self.ceiling


@dataclass(frozen=True)
class PrecisionReport:
    """Everything the printed, Markdown, JSON and HTML forms are made of."""

    setting: Mapping[str, str]  # what a reader has to know to repeat or distrust the figures
    judged: Sequence[JudgedRow]
    laws: Sequence[LawResidual]
    agreements: Sequence[Agreement]
    loose: Sequence[str]
    skipped: Sequence[Skip]
    required: Sequence[str] = field(default_factory=tuple)

    @property
    def failures(self) -> list[str]:
        """One line for each thing that is wrong; there is none if the run passes."""
        found = [describe_failure(v) for v in self.judged if not v.passes]
        found += [
            f"{r.subject}, {r.law}: {r.largest:.3g} eps, above the ceiling of {r.ceiling:g}"
            for r in self.laws
            if not r.holds
        ]
        found += [
            f"the oracle and {a.source} differ on {a.function} by {a.largest:.2g}"
            for a in self.agreements
            if not a.holds
        ]
        found += [f"contract too loose: {text}" for text in self.loose]
        found += [
            f"required, but skipped: {skip.name}: {skip.reason}"
            for skip in self.skipped
            if skip.name in self.required
        ]
        return found

    @property
    def count(self) -> int:
        return len(self.judged) + len(self.laws) + len(self.agreements)

    @property
    def summary(self) -> str:
        failures = len(self.failures)
        skips = f", {len(self.skipped)} skipped" if self.skipped else ""
        return f"{self.count} rows measured, {failures} failures{skips}"


def cells(row: JudgedRow) -> list[str]:
    """A row of the table, in the order of `HEADINGS`."""
    baseline = "" if row.baseline is None else f"{row.baseline:.2f}"
    return [
        *(row.subject, row.dtype, row.function, row.region),
        *(f"{row.count:,}", f"{row.p999:.2f}", f"{row.largest:.2f}"),
        *(baseline, f"{row.ceiling:g}", row.worst.family),
        "holds" if row.passes else "FAILS",
    ]


def hex_point(point: Point, lattice: Lattice) -> str:
    """A point and its lattice in numbers that can be pasted back exactly."""

    def number(z: complex) -> str:
        return f"complex(float.fromhex('{z.real.hex()}'), float.fromhex('{z.imag.hex()}'))"

    arguments = "".join(f"{number(z)}, " for z in point)
    halves = (complex(lattice.omega1), complex(lattice.omega3))
    return f"{arguments}Lattice({', '.join(map(number, halves))})"


def describe_failure(row: JudgedRow) -> str:
    return (
        f"{row.subject} {row.dtype} {row.function}, {row.region}: "
        f"{row.largest:.3g} eps (99.9 %: {row.p999:.3g}), {'; '.join(row.problems)}; "
        f"worst at {hex_point(*row.worst.worst_place)}"
    )


def row_of(row: JudgedRow) -> dict[str, Any]:
    """A judged row as report.json holds it."""
    names = ("subject", "dtype", "function", "region", "count", "largest", "p999", "ceiling")
    known = {name: getattr(row, name) for name in (*names, "p999_ceiling", "baseline")}
    return known | {
        "family": row.worst.family,
        "worst_at": hex_point(*row.worst.worst_place),
        "problems": row.problems,
    }


def summary_table(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Headings and lines: the largest error of each value over all regions, by backend."""
    subjects = list(dict.fromkeys(row["subject"] for row in rows))
    order = [value for function in FUNCTIONS.values() for value in function.values]
    pooled: dict[tuple[int, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        pooled.setdefault((order.index(row["function"]), row["dtype"]), []).append(row)
    lines = []
    for (value, dtype), group in sorted(pooled.items()):
        largest = {
            subject: max((r["largest"] for r in group if r["subject"] == subject), default=None)
            for subject in subjects
        }
        cells = ["" if x is None else f"{x:.2f}" for x in largest.values()]
        lines.append([order[value], dtype, f"{sum(r['count'] for r in group):,}", *cells])
    return ["value", "dtype", "values", *subjects], lines


def law_rows(laws: Sequence[LawResidual]) -> tuple[list[str], list[list[str]]]:
    """Headings and rows: a line for each law, a column for each backend."""
    subjects = list(dict.fromkeys(r.subject for r in laws))
    known = {(r.law, r.subject): r for r in laws}
    rows = [
        [law, *(f"{known[law, s].largest:.2f}" for s in subjects), f"{known[law, s0].ceiling:g}"]
        for law in LAWS
        if subjects and (s0 := subjects[0])
    ]
    return ["law", *subjects, "ceiling"], rows


AGREEMENT_HEADINGS = ("function", "against", "points", "largest difference", "verdict")


def agreement_rows(agreements: Sequence[Agreement]) -> list[list[str]]:
    return [
        [a.function, a.source, f"{a.points:,}", f"{a.largest:.1e}", "holds" if a.holds else "FAILS"]
        for a in agreements
    ]


def as_markdown(report: PrecisionReport) -> str:
    headings, rows = law_rows(report.laws)
    parts = [
        "# Precision report\n",
        "\n".join(f"- {key}: {value}" for key, value in report.setting.items()) + "\n",
        *(f"- skipped {skip.name}: {skip.reason}\n" for skip in report.skipped),
        f"{report.summary}.\n",
        *(f"- **{failure}**\n" for failure in report.failures),
        f"## Largest errors\n\n{YARDSTICK}.\n",
        markdown_table(*summary_table([row_of(row) for row in report.judged])),
        "## Laws of DLMF chapter 23\n",
        markdown_table(headings, rows),
        "## The oracle against other formulas\n",
        markdown_table(AGREEMENT_HEADINGS, agreement_rows(report.agreements)),
        "## Every row\n",
        markdown_table(HEADINGS, map(cells, report.judged)),
    ]
    return "\n".join(parts)


def as_json(report: PrecisionReport) -> str:
    return json.dumps(
        {
            "circumstances": dict(report.setting),
            "summary": report.summary,
            "failures": report.failures,
            "skipped": {skip.name: skip.reason for skip in report.skipped},
            "rows": [row_of(row) for row in report.judged],
            "laws": [vars(residual) | {"holds": residual.holds} for residual in report.laws],
            "oracle": [vars(a) | {"holds": a.holds} for a in report.agreements],
        },
        indent=1,
    )


def print_report(report: PrecisionReport, console: Console) -> None:
    for key, value in report.setting.items():
        console.print(f"[bold]{key}[/]: {escape(value)}", highlight=False, soft_wrap=True)
    for skip in report.skipped:
        console.print(f"[yellow]skipped[/] {skip.name}: {escape(skip.reason)}")
    rows = [cells(row) for row in report.judged]
    console.print(_table("Scaled error in eps", HEADINGS, rows, caption=YARDSTICK))
    headings, laws = law_rows(report.laws)
    console.print(_table("Laws of DLMF 23: residual over the absolute terms, eps", headings, laws))
    oracle = agreement_rows(report.agreements)
    console.print(_table("The oracle against other formulas", AGREEMENT_HEADINGS, oracle))
    for failure in report.failures:
        console.print(f"[bold red]FAILS[/] {escape(failure)}", soft_wrap=True, highlight=False)
    console.print(("[green]" if not report.failures else "[red]") + report.summary)


def _table(
    title: str, headings: Sequence[str], rows: Sequence[Sequence[str]], caption: str | None = None
) -> Table:
    table = Table(title=title, caption=caption, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in headings:
        is_number = heading in ("points", "p99.9", "largest", "baseline", "ceiling")
        table.add_column(heading, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        marks = {"holds": "[green]holds[/]", "FAILS": "[bold red]FAILS[/]"}
        table.add_row(*(marks.get(cell, escape(cell)) for cell in row))
    return table
