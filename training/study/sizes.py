"""Runs at other image sizes, from the ``scores.csv`` of ``wefpe analyse resolution``."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from training.engine.evaluation import Scores
from training.figure_style import figure_settings
from training.markdown import markdown_table
from training.study.resolution import SizeScore, draw_scores, size_order
from training.study.statistics import Accuracies, points, starred, summarise, too_few_seeds


def scores_of_csv(text: str) -> list[SizeScore]:
    """The scores as the analysis had them."""
    return [
        SizeScore(
            label=row["label"],
            seed=int(row["seed"]),
            method=row["resampling"],
            size=(int(row["height"]), int(row["width"])),
            is_trained=row["is_trained_size"] == "True",
            scores=Scores(float(row["loss"]), float(row["accuracy"]), int(row["images"])),
        )
        for row in csv.DictReader(io.StringIO(text))
    ]


def sizes_markdown(found: Sequence[SizeScore]) -> str:
    """A row for each encoding, a column for each size; the first encoding is the reference."""
    sizes = sorted({each.size for each in found}, key=size_order)
    own = {each.size for each in found if each.is_trained}
    columns = {size: _accuracies(found, size) for size in sizes}
    reference = found[0].curve
    summaries = {
        size: {row.label: row for row in summarise(accuracies, reference)}
        for size, accuracies in columns.items()
    }
    headings = ["encoding", "seeds"]
    headings += [f"{h} × {w}{' (training)' if (h, w) in own else ''}" for h, w in sizes]
    lines = []
    for curve in dict.fromkeys(each.curve for each in found):
        here = [summaries[size].get(curve) for size in sizes]
        seeds = {len(row.seeds) for row in here if row is not None}
        cells = [f"`{curve}`", " to ".join(map(str, sorted(seeds)))]
        for row in here:
            if row is None:
                cells.append("")
            else:
                difference = starred(row)
                cells.append(points(row.mean) + (f" ({difference})" if difference else ""))
        lines.append(cells)
    legend = (
        f"Test accuracy in per cent, and in brackets minus `{reference}`, paired by seed, over "
        "the seeds both have; * where Student's 95 % interval leaves out 0."
    )
    legend += too_few_seeds(row for rows in summaries.values() for row in rows.values())
    return f"{markdown_table(headings, lines)}\n\n{legend}\n"


def _accuracies(found: Sequence[SizeScore], size: tuple[int, int]) -> Accuracies:
    accuracies: dict[str, dict[int, float]] = {}
    for each in found:
        if each.size == size:
            accuracies.setdefault(each.curve, {})[each.seed] = each.scores.accuracy
    return accuracies


def draw_sizes(path: Path, found: Sequence[SizeScore]) -> None:
    """The figure of the analysis."""
    with figure_settings():
        draw_scores(found).savefig(path, dpi=130, metadata={"Software": None})
