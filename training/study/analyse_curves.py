"""Loss, accuracy and learning rate of runs over training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any

import pandas as pd
import typer

from training.engine.run_report import Curve, Quantity, draw_band, kept_epoch, read_curve
from training.figure_style import curve_style, figure_settings, new_figure
from training.study.analysis import Analysis, AnalysisCommand, Options, ReadBy, Row
from training.study.run_groups import TrainingLog, group_trainings, read_trainings, runs_text

Groups = Mapping[str, Sequence[TrainingLog]]

_PANELS: tuple[tuple[Quantity, str], ...] = (
    ("loss", "training loss"),
    ("validation_loss", "validation loss"),
    ("validation_accuracy", "validation accuracy in %"),
    ("validation_relative_error", "validation error (relative L2) in %"),
    ("rate", "learning rate"),
    ("gap", "training minus validation accuracy,\nin points"),
)
_OF_EPOCHS: tuple[Quantity, ...] = (
    "loss",
    "accuracy",
    "validation_loss",
    "validation_accuracy",
    "relative_error",
    "validation_relative_error",
    "gap",
)
_OF_SEEDS = (
    "Lines are means over seeds, and shades reach from the least to the largest value; a curve of "
    "one point is a mark with a bar. "
)
_CAPTION = (
    "Curves that are equal in all runs are one in grey. The training loss and accuracy are means "
    "over the steps of each epoch, with weights that still change, on augmented images, with "
    "dropout and label smoothing where the config has them, so that the gap between training and "
    "validation accuracy can be negative."
)


def epoch_rows(label: str, trainings: Sequence[TrainingLog]) -> list[Row]:
    """A row for each epoch of each training."""
    rows: list[Any] = []
    for training in trainings:
        curves = {name: read_curve(training.rows, name) for name in _OF_EPOCHS}
        series = {name: pd.Series(c.values, c.epochs) for name, c in curves.items() if c.values}
        table = pd.DataFrame(series).rename_axis("epoch").reset_index()
        first = {"label": label, "seed": training.experiment.seed}
        rows += [first | row for row in table.to_dict("records")]
    return rows


def summary(label: str, trainings: Sequence[TrainingLog]) -> dict[str, Any]:
    """The last values of the trainings of one label: their means and ranges."""
    result: dict[str, Any] = {"label": label, "runs": len(trainings)}
    result["kept_epochs"] = " ".join(str(kept_epoch(each.rows)) for each in trainings)
    for name in _OF_EPOCHS:
        last = [c.values[-1] for c in _curves(trainings, name) if c.values]
        if last:
            result[f"last_{name}"] = sum(last) / len(last)
            result[f"last_{name}_range"] = max(last) - min(last)
    best = [max(c.values) for c in _curves(trainings, "validation_accuracy") if c.values]
    if best:
        result["best_validation_accuracy"] = sum(best) / len(best)
    return result


def reached_rows(
    label: str, trainings: Sequence[TrainingLog], accuracies: Sequence[float]
) -> list[Row]:
    """The first epoch after which each training has these accuracies in per cent, or None."""
    rows: list[Row] = []
    for training in trainings:
        curve = read_curve(training.rows, "validation_accuracy")
        for accuracy in accuracies:
            pairs = zip(curve.epochs, curve.values, strict=True)
            first = next((epoch for epoch, value in pairs if value >= accuracy), None)
            seed = training.experiment.seed
            rows.append({"label": label, "seed": seed, "accuracy": accuracy, "epoch": first})
    return rows


def _curves(trainings: Sequence[TrainingLog], quantity: Quantity) -> list[Curve]:
    return [read_curve(each.rows, quantity) for each in trainings]


# --- Figure --------------------------------------------------------------------------------


def draw_groups(groups: Groups, reached: Mapping[str, Sequence[Row]] = MappingProxyType({})) -> Any:
    """Panels with a curve for each label, and one legend for all.

    Crosses are where runs reach the accuracies that were asked for.
    """
    shown = [p for p in _PANELS if any(c.epochs for g in groups.values() for c in _curves(g, p[0]))]
    figure = new_figure(6.6, 2.35 * ((len(shown) + 1) // 2) + 0.3 + 0.13 * len(groups))
    panels = figure.subplots((len(shown) + 1) // 2, 2, squeeze=False).flatten()
    for panel, (quantity, title) in zip(panels, shown, strict=False):
        bands = [_curves(trainings, quantity) for trainings in groups.values()]
        styles: list[dict[str, Any]] = [curve_style(n) | {"marker": ""} for n in range(len(bands))]
        if len(bands) > 1 and len({curve for band in bands for curve in band}) == 1:
            # Equal curves would hide one another: one in grey stands for them.
            bands, styles = bands[:1], [{"color": "0.3"}]
            title += " of all runs"
        for band, style in zip(bands, styles, strict=True):
            draw_band(panel, band, **style)
        if quantity == "validation_accuracy":
            _mark_reached(panel, reached)
        panel.set(title=title, xlabel="epoch")
        panel.grid()
        if quantity == "gap":
            panel.axhline(0.0, color="0.4", linewidth=0.8)
    for panel in panels[len(shown) :]:
        panel.set_axis_off()
    _add_legend(figure, groups)
    return figure


def _mark_reached(panel: Any, reached: Mapping[str, Sequence[Row]]) -> None:
    for number, rows in enumerate(reached.values()):
        found = [(row["epoch"], row["accuracy"]) for row in rows if row["epoch"] is not None]
        colour = curve_style(number)["color"]
        for epoch, accuracy in found:
            panel.plot(epoch, accuracy, "x", color=colour)
    for accuracy in {row["accuracy"] for rows in reached.values() for row in rows}:
        panel.axhline(accuracy, color="0.6", linewidth=0.6, linestyle=":")


def _add_legend(figure: Any, groups: Groups) -> None:
    from matplotlib.lines import Line2D

    lines = []
    for number, (label, trainings) in enumerate(groups.items()):
        style: dict[str, Any] = curve_style(number) | {"marker": ""}
        count = f" ({len(trainings)} seeds)" if len(trainings) > 1 else ""
        lines.append(Line2D([], [], label=label + count, **style))
    columns = 2 if max(map(len, groups)) < 40 and len(groups) > 1 else 1
    figure.legend(handles=lines, loc="outside lower center", ncols=columns)


# --- The analysis --------------------------------------------------------------------------


def curves_analysis(
    runs: Options.Runs,
    reach: Annotated[
        Sequence[float] | None,
        ReadBy(float, is_repeated=True),
        typer.Option(
            metavar="PERCENT",
            help="Mark where each run first reaches this validation accuracy. Repeat the option "
            "for each.",
        ),
    ] = None,
) -> Analysis:
    """Losses, validation accuracy, learning rate and generalisation gap over the epochs.

    Runs may still be going on. Those that differ only in the seed become one curve with a range. A
    run in two parts gives a curve for each.
    """
    groups = group_trainings(read_trainings(runs))
    labelled = [(label, each.experiment) for label, group in groups.items() for each in group]
    summaries = [summary(label, each) for label, each in groups.items()]
    has_seeds = any(len(group) > 1 for group in groups.values())
    reached = {label: reached_rows(label, each, reach or ()) for label, each in groups.items()}
    with figure_settings():
        figure = draw_groups(groups, reached)
    tables: dict[str, Sequence[Row]] = {
        "epochs": [row for label, each in groups.items() for row in epoch_rows(label, each)],
        "summary": summaries,
    }
    if reach:
        tables["reached"] = [row for rows in reached.values() for row in rows]
    return Analysis(
        name="curves",
        title="Training dynamics",
        caption=f"{_OF_SEEDS if has_seeds else ''}{_CAPTION} {runs_text(labelled)}",
        figures={"curves": figure},
        numbers={"trainings": summaries},
        tables=tables,
    )


COMMAND = AnalysisCommand(curves_analysis)
