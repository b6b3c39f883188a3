"""A comparison as CSV (a row for each run) and as Markdown (a row for each encoding)."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from training.comparison.statistics import Interval, Summary

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


def runs_csv(rows: Iterable[Mapping[str, Any]]) -> str:
    """One line for each finished run, from its result."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        where = row.get("circumstances", {})
        known = {name: where[name] for name in ("commit", "processor", "threads") if name in where}
        writer.writerow({**row, **known, "torch": where.get("versions", {}).get("torch", "")})
    return text.getvalue()


def accuracies_of_csv(text: str, column: str = "test_accuracy") -> dict[str, dict[int, float]]:
    """Label -> seed -> accuracy, from what `runs_csv` wrote."""
    found: dict[str, dict[int, float]] = {}
    for row in csv.DictReader(io.StringIO(text)):
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


def summary_markdown(summaries: Sequence[Summary], reference: str) -> str:
    """The table people read; an asterisk where Student's interval leaves out 0."""
    headings = ["encoding", "seeds", "test accuracy %", "deviation", f"minus {reference}"]
    headings += ["bootstrap 95 %", "Student 95 %"]
    lines = [f"| {' | '.join(headings)} |", "|---" * len(headings) + "|"]
    for row in summaries:
        difference = points(row.difference, signed=True)
        if row.student is not None and row.student.excludes_zero:
            difference += " *"
        cells = (
            f"`{row.label}`",
            str(len(row.seeds)),
            points(row.mean),
            points(row.deviation),
            difference,
            interval_text(row.bootstrap),
            interval_text(row.student),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", _LEGEND, ""])


_LEGEND = (
    "Differences are paired by seed, in percentage points; * where Student's interval leaves out 0."
)
