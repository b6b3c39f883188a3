"""A comparison as a picture: every seed, the mean, and the paired differences."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from training.comparison.statistics import Accuracies, Summary

_BLUE, _ORANGE = "#0072b2", "#d55e00"


def draw_comparison(
    path: Path, summaries: Sequence[Summary], accuracies: Accuracies, reference: str
) -> None:
    """Left: test accuracy of every run. Right: differences with their Student intervals."""
    from matplotlib.figure import Figure

    rows = range(len(summaries))
    figure = Figure(figsize=(9.5, 1.3 + 0.42 * len(summaries)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for y, summary in zip(rows, summaries, strict=True):
        values = [100.0 * value for value in accuracies[summary.label].values()]
        left.plot(values, [y] * len(values), "o", color=_BLUE, alpha=0.45, markersize=5)
        left.plot(100.0 * summary.mean, y, "|", color=_BLUE, markersize=16, markeredgewidth=2)
        if summary.difference is not None:
            right.plot(100.0 * summary.difference, y, "D", color=_ORANGE, markersize=5)
        if summary.student is not None:
            ends = [100.0 * summary.student.low, 100.0 * summary.student.high]
            right.plot(ends, [y, y], color=_ORANGE)
    left.set_yticks(rows, [summary.label for summary in summaries])
    left.invert_yaxis()
    left.set(title="test accuracy %, each seed and the mean")
    right.axvline(0.0, color="0.4", linewidth=1)
    right.set(title=f"minus {reference}, paired, 95 % (Student)")
    for panel in (left, right):
        panel.grid(axis="x", alpha=0.3)
    figure.savefig(path, dpi=110)
