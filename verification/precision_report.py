"""One run of the verifier: what was measured, judged and skipped; as text, Markdown and JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from verification.functions import FUNCTIONS, LINES
from verification.judge import JudgedRow
from verification.laws import LAWS
from verification.measure import Point
from verification.second_opinion import BOUND, Agreement
from verification.subjects import Skip
from wefpe_core import Lattice
from wefpe_core.receipts import Fingerprint, Receipt
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
    interrupted: str = ""  # how far the run came, if it was interrupted
    # By backend and device, what decided the values when the run began: see `fingerprint`.
    decided_by: Mapping[tuple[str, str], Fingerprint] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """One word: an interrupted run cannot pass."""
        if self.failures:
            return "FAIL"
        return "INCOMPLETE" if self.interrupted else "PASS"

    @property
    def failures(self) -> list[str]:
        """One line for each thing that is wrong; there is none if the run passes."""
        found = [describe_failure(v) for v in self.judged if not v.passes]
        found += [
            f"{r.subject}, {r.law}: {r.largest:.3g} eps, above the ceiling of {r.ceiling:g}"
            for r in self.laws
            if not r.holds
        ]
        found += [a.problem for a in self.agreements if not a.holds]
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
        end = f"; {self.interrupted}" if self.interrupted else ""
        return f"{self.count} rows measured, {failures} failures{skips}{end}"


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


class WorstError(NamedTuple):
    """The row of several that is nearest to its ceiling."""

    largest: float
    ceiling: float
    passes: bool

    @classmethod
    def of(cls, rows: Iterable[JudgedRow | LawResidual]) -> WorstError | None:
        found = [
            cls(row.largest, row.ceiling, row.passes if isinstance(row, JudgedRow) else row.holds)
            for row in rows
        ]
        return max(found, key=lambda worst: (not worst.passes, worst.share), default=None)

    @property
    def share(self) -> float:
        return self.largest / self.ceiling if math.isfinite(self.largest) else math.inf

    def __str__(self) -> str:
        error = f"{self.largest:.2f}" if self.largest < 100 else f"{self.largest:.0f}"
        return f"{error}/{self.ceiling:g}"


def error_table(
    judged: Sequence[JudgedRow],
) -> tuple[list[str], list[tuple[list[str], list[WorstError | None]]]]:
    """Headings, and for each value and dtype two words and the worst error of each subject."""
    subjects = list(dict.fromkeys(row.subject for row in judged))
    order = [value for function in FUNCTIONS.values() for value in function.values]
    pooled: dict[tuple[int, str], list[JudgedRow]] = {}
    for row in judged:
        pooled.setdefault((order.index(row.function), row.dtype), []).append(row)
    lines = [
        (
            [order[value], dtype],
            [WorstError.of(r for r in group if r.subject == subject) for subject in subjects],
        )
        for (value, dtype), group in sorted(pooled.items())
    ]
    return ["value", "dtype", *subjects], lines


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
        if a.source != BOUND
    ]


BOUND_HEADINGS = ("truncated series", "points", "largest error/bound", "verdict")


def bound_rows(agreements: Sequence[Agreement]) -> list[list[str]]:
    return [
        [a.function, f"{a.points:,}", f"{a.largest:.3f}", "holds" if a.holds else "FAILS"]
        for a in agreements
        if a.source == BOUND
    ]


def receipt_lines(receipts: Iterable[Receipt]) -> dict[str, str]:
    """The id of each receipt, by backend and device."""
    return {f"{receipt.backend} {receipt.device}": receipt.id for receipt in receipts}


def facts_of(report: PrecisionReport, receipts: Sequence[Receipt]) -> dict[str, str]:
    """What a reader has to know first, besides the verdict."""
    ids = ", ".join(f"{place} {found}" for place, found in receipt_lines(receipts).items())
    why = "none, since the run was interrupted" if report.interrupted else "none"
    facts = dict(report.setting)
    facts["size"] += f", {facts.pop('seconds')} s"
    return facts | {"receipts": ids or why}


def as_markdown(report: PrecisionReport, receipts: Sequence[Receipt] = ()) -> str:
    headings, lines = error_table(report.judged)
    errors = [[*words, *("" if w is None else str(w) for w in worst)] for words, worst in lines]
    skips = [f"- {skip.name}: {skip.reason}" for skip in report.skipped]
    folded = [f"<details><summary>{len(skips)} skipped</summary>\n", *skips, "\n</details>\n"]
    parts = [
        f"# Precision report: {report.verdict}\n",
        f"{report.summary}.\n",
        *(f"- **{failure}**\n" for failure in report.failures),
        markdown_table(("", ""), facts_of(report, receipts).items()),
        *(folded if skips else ()),
        f"## Largest errors\n\nError/ceiling, in eps: {YARDSTICK}.\n",
        markdown_table(headings, errors),
        "## Laws of DLMF chapter 23\n",
        markdown_table(*law_rows(report.laws)),
        "## The oracle against other formulas\n",
        markdown_table(AGREEMENT_HEADINGS, agreement_rows(report.agreements)),
        "## Errors of truncated series and their bounds\n",
        markdown_table(BOUND_HEADINGS, bound_rows(report.agreements)),
        "## Every row\n",
        markdown_table(HEADINGS, map(cells, report.judged)),
    ]
    return "\n".join(parts)


def as_json(report: PrecisionReport, receipts: Sequence[Receipt] = ()) -> str:
    return json.dumps(
        {
            "verdict": report.verdict,
            "circumstances": dict(report.setting),
            "receipts": receipt_lines(receipts),
            "summary": report.summary,
            "interrupted": report.interrupted,
            "failures": report.failures,
            "skipped": {skip.name: skip.reason for skip in report.skipped},
            "rows": [row_of(row) for row in report.judged],
            "laws": [vars(residual) | {"holds": residual.holds} for residual in report.laws],
            "oracle": [vars(a) | {"holds": a.holds} for a in report.agreements],
        },
        indent=1,
    )


# --- The terminal ----------------------------------------------------------------------------

_MOST_FAILURES = 10  # that are printed; the files have them all
_MOST_COLUMNS = 5  # of backends side by side in 80 columns
_COLOURS = {"PASS": "green", "FAIL": "red", "INCOMPLETE": "yellow"}


def print_report(
    report: PrecisionReport,
    console: Console,
    receipts: Sequence[Receipt] = (),
    group: Callable[[str], str] = str,
) -> None:
    """A line for each function, a column for each backend; the files have the details.

    `group` gives the column that the rows of a subject belong to.
    """
    colour = _COLOURS[report.verdict]
    verdict = f"[bold {colour}]{report.verdict}[/] {report.summary}"
    console.print(verdict, highlight=False, soft_wrap=True)
    for key, value in facts_of(report, receipts).items():
        console.print(f"{key}: {escape(value)}", highlight=False, soft_wrap=True)
    for skip in report.skipped:
        line = f"skipped {skip.name}: {escape(skip.reason)}"
        console.print(line, highlight=False, soft_wrap=True)
    console.print("largest scaled error/ceiling in eps, over all dtypes and forms:")
    columns = list(dict.fromkeys(group(row.subject) for row in report.judged))
    for start in range(0, len(columns), _MOST_COLUMNS):
        console.print(_function_table(report, columns[start : start + _MOST_COLUMNS], group))
    for failure in report.failures[:_MOST_FAILURES]:
        console.print(f"[bold red]FAILS[/] {escape(failure)}", soft_wrap=True, highlight=False)
    left = len(report.failures) - _MOST_FAILURES
    if left > 0:
        console.print(f"and {left} more failures, which --output writes down", highlight=False)


def _function_table(
    report: PrecisionReport, columns: Sequence[str], group: Callable[[str], str]
) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("function")
    for column in columns:
        table.add_column(column, justify="right", overflow="fold")
    table.add_column("verdict")
    rows: dict[str, list[JudgedRow | LawResidual]] = {line: [] for line in LINES.values()}
    line_of = {value: LINES[name] for name, each in FUNCTIONS.items() for value in each.values}
    for row in report.judged:
        rows[line_of[row.function]].append(row)
    rows["laws of DLMF 23"] = list(report.laws)
    for name, found in rows.items():
        worst = [
            WorstError.of(row for row in found if group(row.subject) == column)
            for column in columns
        ]
        known = [each for each in worst if each is not None]
        if known:
            marked = (_marked(each) for each in worst)
            table.add_row(name, *marked, _verdict(all(each.passes for each in known)))
    opinions = [a for a in report.agreements if a.source != BOUND]
    limits = [a for a in report.agreements if a.source == BOUND]
    for name, rested in (("the oracle", opinions), ("truncation bounds", limits)):
        if rested:
            table.add_row(name, *("" for _ in columns), _verdict(all(a.holds for a in rested)))
    return table


def _marked(worst: WorstError | None) -> str:
    if worst is None:
        return ""
    return str(worst) if worst.passes else f"[bold red]{worst}[/]"


def _verdict(holds: bool) -> str:
    return "[green]holds[/]" if holds else "[bold red]FAILS[/]"
