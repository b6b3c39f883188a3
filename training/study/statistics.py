"""Paired statistics of a few seeds.

Runs of two encodings with the same seed share the training images, their order and augmentation,
and the weights of the model at the start, so that differences do not depend on what the seed draws.
With five seeds no interval is exact: the bootstrap's is too narrow, and Student's assumes a normal
distribution. Both are given.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich import box
from rich.markup import escape
from rich.table import Table

from training.figure_style import BLUE, ORANGE, figure_settings, in_lines, new_figure
from training.metrics import ACCURACY, Metric, metric_of
from wefpe_core.errors import InputError
from wefpe_core.reporting import markdown_table

Accuracies = Mapping[str, Mapping[int, float]]  # label -> seed -> test accuracy, or test error

FEWEST = 3  # seeds of an interval; two say too little about the spread
_FEWEST_TO_RESAMPLE = 5  # with three, the bootstrap's interval is the whole range


@dataclass(frozen=True)
class Interval:
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0.0 or self.high < 0.0


@dataclass(frozen=True)
class Summary:
    """The metric of an encoding, and its difference from the reference over common seeds."""

    label: str
    seeds: tuple[int, ...]
    mean: float
    deviation: float | None  # standard deviation of the sample; None for one seed
    difference: float | None  # None for the reference itself
    bootstrap: Interval | None
    student: Interval | None


def summarise(accuracies: Accuracies, reference: str) -> list[Summary]:
    """Every encoding in the order given, compared with the reference."""
    if reference not in accuracies:
        raise InputError(f"the reference {reference!r} is not among {', '.join(accuracies)}")
    base = accuracies[reference]
    summaries = []
    for label, found in accuracies.items():
        values = np.array(list(found.values()))
        shared = [seed for seed in found if seed in base]
        differences = np.array([found[seed] - base[seed] for seed in shared])
        is_compared = label != reference and len(shared) > 0
        pairs = len(shared) if is_compared else 0
        summaries.append(
            Summary(
                label,
                tuple(found),
                mean=float(values.mean()) if len(values) else float("nan"),
                deviation=float(values.std(ddof=1)) if len(values) > 1 else None,
                difference=float(differences.mean()) if is_compared else None,
                bootstrap=bootstrap_interval(differences) if pairs >= _FEWEST_TO_RESAMPLE else None,
                student=student_interval(differences) if pairs >= FEWEST else None,
            )
        )
    return summaries


def bootstrap_interval(differences: Sequence[float] | np.ndarray) -> Interval:
    """The percentile interval of the mean, from 10,000 resamples that are always the same."""
    from scipy.stats import bootstrap

    options: dict[str, Any] = {"n_resamples": 10_000, "method": "percentile"}
    found = bootstrap((differences,), np.mean, rng=np.random.default_rng(0), **options)
    return Interval(*map(float, found.confidence_interval))


def student_interval(differences: Sequence[float] | np.ndarray) -> Interval:
    """The mean plus and minus Student's quantile for 95 % times its standard error."""
    from scipy.stats import t

    values = np.asarray(differences, dtype=float)
    half = t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5
    return Interval(float(values.mean() - half), float(values.mean() + half))


# --- Rows of runs --------------------------------------------------------------------------

_TEST = "test_"
RUNS = "runs.csv"  # the file of the rows, in the folder of a comparison
COLUMNS = (  # those named after the accuracy are named after the error where runs have one
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


def columns_of(metric: Metric, columns: Iterable[str] = COLUMNS) -> list[str]:
    """The columns of rows whose runs are judged by this metric."""
    return [column.replace(ACCURACY.name, metric.name) for column in columns]


def runs_csv(results: Iterable[Mapping[str, Any]]) -> str:
    """The text of ``runs.csv``: a line for each finished run, from its result or its row."""
    rows: list[dict[str, Any]] = []
    for result in results:
        machine = result.get("circumstances", {})
        rows.append({"torch": machine.get("versions", {}).get("torch", "")} | machine | result)
    # Objects, or pandas would make floats of integers in columns with gaps.
    metrics = {metric_of(row, _TEST) for row in rows} or {ACCURACY}
    if len(metrics) > 1:
        raise InputError("runs with different metrics cannot be in one table")
    table = pd.DataFrame(rows, columns=columns_of(metrics.pop()), dtype=object)
    return table.to_csv(index=False, lineterminator="\n")


def rows_of_csv(text: str) -> list[dict[str, str]]:
    """The rows of a file as dictionaries, with every number as it was written."""
    return list(csv.DictReader(io.StringIO(text)))


def accuracies_of_csv(text: str) -> dict[str, dict[int, float]]:
    """Label -> seed -> test accuracy or error, from the text of ``runs.csv``."""
    found: dict[str, dict[int, float]] = {}
    for row in rows_of_csv(text):
        value = float(row[_TEST + metric_of(row, _TEST).name])
        found.setdefault(row["encoding"], {})[int(row["seed"])] = value
    return found


def metric_of_csv(text: str) -> Metric:
    """The metric of the rows of a ``runs.csv``."""
    rows = rows_of_csv(text)
    return metric_of(rows[0], _TEST) if rows else ACCURACY


# --- Tables --------------------------------------------------------------------------------


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
    is_sure = row.student is not None and row.student.excludes_zero
    return points(row.difference, signed=True) + (" *" if is_sure else "")


def summary_markdown(
    summaries: Sequence[Summary], reference: str, metric: Metric = ACCURACY
) -> str:
    """The table for a page."""
    headings = ["encoding", "seeds", f"test {metric.title} %", "deviation", "difference"]
    headings += ["bootstrap 95 %", "Student 95 %"]
    rows = (
        (f"`{row.label}`", *_numbers(row), interval_text(row.bootstrap), interval_text(row.student))
        for row in summaries
    )
    legend = _legend(f"`{reference}`", summaries, metric)
    if any(row.bootstrap is not None for row in summaries):
        legend += " The bootstrap's is too narrow for so few."
    return f"{markdown_table(headings, rows)}\n{legend}\n"


def summary_table(summaries: Sequence[Summary], reference: str, metric: Metric = ACCURACY) -> Table:
    """The table for a terminal: it is narrower, and breaks long labels into lines."""
    caption = escape(_legend(reference, summaries, metric))
    table = Table(caption=caption, box=box.SIMPLE_HEAD, caption_justify="left", pad_edge=False)
    table.add_column("encoding", overflow="fold")
    for heading in ("seeds", "test %", "deviation", "difference", "Student 95 %"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in summaries:
        table.add_row(*map(escape, (row.label, *_numbers(row), interval_text(row.student))))
    return table


def _numbers(row: Summary) -> tuple[str, ...]:
    return str(len(row.seeds)), points(row.mean), points(row.deviation), starred(row)


def _legend(reference: str, summaries: Sequence[Summary], metric: Metric) -> str:
    text = (
        f"Differences from {reference} are paired by seed, over the seeds both have, in percentage "
        "points; * where Student's interval leaves out 0."
    )
    text += " Below 0 is better: they are errors." if metric.is_error else ""
    return text + too_few_seeds(summaries)


def too_few_seeds(summaries: Iterable[Summary]) -> str:
    """A sentence for legends of tables in which an interval is missing."""
    if any(row.difference is not None and row.student is None for row in summaries):
        return f" There is no interval of fewer than {FEWEST} seeds."
    return ""


# --- Picture -------------------------------------------------------------------------------

_LONGEST = 46  # characters of a name on one line


def draw_comparison(
    path: Path,
    summaries: Sequence[Summary],
    accuracies: Accuracies,
    reference: str,
    metric: Metric = ACCURACY,
) -> None:
    """Left: the metric of every run. Right: differences with their Student intervals.

    The mark of a difference without an interval is hollow.
    """
    with figure_settings():
        _figure(summaries, accuracies, reference, metric).savefig(path, dpi=130)


def _figure(
    summaries: Sequence[Summary], accuracies: Accuracies, reference: str, metric: Metric
) -> Any:
    rows = range(len(summaries))
    figure = new_figure(8.0, 1.1 + 0.36 * len(summaries))
    left, right = figure.subplots(1, 2, sharey=True)
    for y, summary in zip(rows, summaries, strict=True):
        values = [100.0 * value for value in accuracies[summary.label].values()]
        left.plot(values, [y] * len(values), "o", color=BLUE, alpha=0.45, markersize=5)
        left.plot(100.0 * summary.mean, y, "|", color=BLUE, markersize=16, markeredgewidth=2)
        if summary.difference is not None:
            face = "white" if summary.student is None else ORANGE
            mark = {"color": ORANGE, "markerfacecolor": face, "markersize": 5, "zorder": 3}
            right.plot(100.0 * summary.difference, y, "D", **mark)
        if summary.student is not None:
            ends = [100.0 * summary.student.low, 100.0 * summary.student.high]
            right.plot(ends, [y, y], color=ORANGE)
    left.set_yticks(rows, [in_lines(summary.label, _LONGEST) for summary in summaries])
    left.set_ylim(len(summaries) - 0.4, -0.6)  # the first on top, and room for its marks
    left.set(title=f"test {metric.title} %, each seed and the mean")
    right.axvline(0.0, color="0.4", linewidth=1)
    right.set(title=f"minus {in_lines(reference, _LONGEST)},\npaired, 95 % (Student)")
    for panel in (left, right):
        panel.grid(axis="x")
    return figure
