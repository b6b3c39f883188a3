"""A comparison as CSV (a row for each run) and as a table (a row for each encoding)."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table

from training.comparison.statistics import FEWEST, Interval, Summary
from training.markdown import markdown_table

RUNS = "runs.csv"  # the rows of a comparison, in its folder
COLUMNS = (
    "encoding",
    "seed",
    "test_accuracy",
    "validation_accuracy",
    "selected_epoch",
    "epochs",
    "parameters",
    "training_seconds",
    "config_hash",
    "commit",
    "torch",
    "processor",
    "threads",
)


def runs_csv(results: Iterable[Mapping[str, Any]]) -> str:
    """One line for each finished run, from its result."""
    return rows_csv(map(_row_of_result, results))


def _row_of_result(result: Mapping[str, Any]) -> dict[str, Any]:
    where = result.get("circumstances", {})
    known = {name: where[name] for name in ("commit", "processor", "threads") if name in where}
    return {**result, **known, "torch": where.get("versions", {}).get("torch", "")}


def rows_csv(rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows as a file has them."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def rows_of_csv(text: str) -> list[dict[str, str]]:
    """The rows of a file, every number as it was written."""
    return list(csv.DictReader(io.StringIO(text)))


def accuracies_of_csv(text: str, column: str = "test_accuracy") -> dict[str, dict[int, float]]:
    """Label -> seed -> accuracy, from what `runs_csv` wrote."""
    found: dict[str, dict[int, float]] = {}
    for row in rows_of_csv(text):
        found.setdefault(row["encoding"], {})[int(row["seed"])] = float(row[column])
    return found


def points(value: float | None, signed: bool = False) -> str:
    """An accuracy in per cent, or a difference in percentage points."""
    if value is None:
        return ""
    return f"{100.0 * value:+.2f}" if signed else f"{100.0 * value:.2f}"


def interval_text(interval: Interval | None) -> str:
    if interval is None:
        return ""
    return f"[{points(interval.low, signed=True)}, {points(interval.high, signed=True)}]"


def starred(row: Summary) -> str:
    """The difference from the reference; an asterisk where Student's interval leaves out 0."""
    sure = row.student is not None and row.student.excludes_zero
    return points(row.difference, signed=True) + (" *" if sure else "")


def summary_markdown(summaries: Sequence[Summary], reference: str) -> str:
    """The table of a page."""
    headings = ["encoding", "seeds", "test accuracy %", "deviation", "difference"]
    headings += ["bootstrap 95 %", "Student 95 %"]
    rows = (
        (f"`{row.label}`", *_numbers(row), interval_text(row.bootstrap), interval_text(row.student))
        for row in summaries
    )
    legend = _legend(f"`{reference}`", summaries)
    if any(row.bootstrap is not None for row in summaries):
        legend += " The bootstrap's is too narrow for so few."
    return f"{markdown_table(headings, rows)}\n\n{legend}\n"


def summary_table(summaries: Sequence[Summary], reference: str) -> Table:
    """The table of a terminal: narrower, and it breaks labels rather than cutting them."""
    caption = escape(_legend(reference, summaries))
    table = Table(caption=caption, box=box.SIMPLE_HEAD, caption_justify="left", pad_edge=False)
    table.add_column("encoding", overflow="fold")
    for heading in ("seeds", "test %", "deviation", "difference", "Student 95 %"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in summaries:
        table.add_row(*map(escape, (row.label, *_numbers(row), interval_text(row.student))))
    return table


def _numbers(row: Summary) -> tuple[str, ...]:
    return str(len(row.seeds)), points(row.mean), points(row.deviation), starred(row)


def _legend(reference: str, summaries: Sequence[Summary]) -> str:
    text = (
        f"Differences from {reference} are paired by seed, over the seeds both have, in percentage "
        "points; * where Student's interval leaves out 0."
    )
    return text + too_few_seeds(summaries)


def too_few_seeds(summaries: Iterable[Summary]) -> str:
    """A sentence for legends where an interval is missing."""
    if any(row.difference is not None and row.student is None for row in summaries):
        return f" There is no interval of fewer than {FEWEST} seeds."
    return ""
