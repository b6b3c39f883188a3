"""A comparison as a picture: every seed, the mean, and the paired differences."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from training.comparison.statistics import Accuracies, Summary
from training.figure_style import BLUE, ORANGE, figure_settings, in_lines, new_figure

_LONGEST = 46  # characters of a name on one line


def draw_comparison(
    path: Path, summaries: Sequence[Summary], accuracies: Accuracies, reference: str
) -> None:
    """Left: test accuracy of every run. Right: differences with their Student intervals.

    A difference of too few seeds for an interval is hollow.
    """
    with figure_settings():
        _figure(summaries, accuracies, reference).savefig(path, dpi=130)


def _figure(summaries: Sequence[Summary], accuracies: Accuracies, reference: str) -> Any:
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
    left.set(title="test accuracy %, each seed and the mean")
    right.axvline(0.0, color="0.4", linewidth=1)
    right.set(title=f"minus {in_lines(reference, _LONGEST)},\npaired, 95 % (Student)")
    for panel in (left, right):
        panel.grid(axis="x")
    return figure
