"""What is drawn and written about a run: its curves, as a picture, and a page in Markdown.

The analyses of several runs use the same curves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from training.config import Experiment
from training.engine.run_folder import SEARCH, RunFolder, training_rows, write_whole
from training.engine.verification import describe
from training.figure_style import BLUE, GREEN, ORANGE, figure_settings, new_figure
from training.metrics import Metric, metric_of
from wefpe_core.reporting import markdown_table

# --- The page ------------------------------------------------------------------------------

_SELECTION = {
    "validation": "The weights are those that did best on images held out of training.",
    "last": "The weights are those of the last epoch.",
}
_TWO_PHASES = (
    "The number of epochs was searched on images held out of training. The weights are those of "
    "the final training on all images, after that number of epochs."
)
_TEST = "The test set was opened once, after everything else."


def write_report(folder: RunFolder, experiment: Experiment, result: Mapping[str, Any]) -> None:
    """Write ``report.md``: the result, how it was made, curves, epochs, and where the files are."""
    trainings = folder.trainings()
    metric, memory = metric_of(result, "test_"), result["peak_memory_mb"]
    validated = result[f"validation_{metric.name}"]
    validation = "not used"
    if SEARCH in trainings:
        validation = f"in the search only, which found {result['epochs']} epochs"
    elif validated is not None:
        validation = f"{validated:.2%}, epoch {result['selected_epoch']}"
    options = experiment.position_encoding.options
    where = result["circumstances"]
    facts = {
        f"test {metric.title}": (
            f"{result[f'test_{metric.name}']:.2%} of {result['test_images']:,} images"
        ),
        f"validation {metric.title}": validation,
        "learned parameters": f"{result['parameters']:,}",
        "training": f"{result['epochs']} epochs, {result['training_seconds']:.1f} s",
        "throughput": throughput_text(result),
        "peak memory": "not known" if memory is None else f"{memory:,.0f} MB",
        "seed": str(result["seed"]),
        "encoding options": ", ".join(f"{k}={v}" for k, v in options.items()) or "defaults",
        "device": where["device"],
        "verification": describe(result.get("verification")),
        "processes, threads": f"{where['processes']}, {where['threads']}",
    }
    title = f"{experiment.model.name}, {experiment.position_encoding.name}, {experiment.data.name}"
    selection = _TWO_PHASES if SEARCH in trainings else _SELECTION[experiment.selection.by]
    paragraphs = [f"# {title}", markdown_table(["", ""], facts.items()), f"{selection} {_TEST}"]
    for name, training in trainings.items():
        paragraphs += [f"## {name}"] if name else []
        if training.curves.exists():
            paragraphs.append(f"![curves]({_link(training.curves, folder)})")
        paragraphs.append(_epoch_table(training, metric))
    loaded = [each.pretrained for each in trainings.values() if each.pretrained.exists()]
    if loaded:
        text = loaded[-1].read_text(encoding="utf-8").rstrip()
        paragraphs += ["## Pre-trained weights", f"```\n{text}\n```"]
    learned = _learned_table(folder, experiment)
    if learned:
        paragraphs += ["## What the encoding learned", learned]
    logs = ", ".join(f"`{_link(each.log, folder)}`" for each in trainings.values())
    paragraphs.append(f"Effective config: `{folder.config.name}`; every step: {logs}.")
    write_whole(folder.report, "\n\n".join(each.rstrip() for each in paragraphs) + "\n")


def throughput_text(result: Mapping[str, Any]) -> str:
    """Images a second in training and in the test; results of earlier versions do not have them."""
    found = {kind: result.get(f"{kind}_images_per_second") for kind in ("training", "test")}
    parts = [f"{kind} {rate:,.0f} images/s" for kind, rate in found.items() if rate]
    return ", ".join(parts) or "not known"


def _learned_table(folder: RunFolder, experiment: Experiment) -> str:
    """The numbers that the encoding learned, by the letters of the paper; "" if there are none."""
    from training.engine.finished_run import open_trained_encoding  # which uses this module
    from training.models.building import build_position_encoding

    if not folder.weights.exists():
        return ""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        start = build_position_encoding(experiment).learned_numbers()
        end = open_trained_encoding(folder.path).learned_numbers()
    first = "in the config" if experiment.model.checkpoint else "at the start"
    rows = [(name, _numbers_text(start[name]), _numbers_text(end[name])) for name in end]
    return markdown_table(("number", first, "learned"), rows) if rows else ""


def _numbers_text(numbers: Tensor) -> str:
    """A number, or several: heads of a layer side by side, layers apart."""
    if numbers.ndim == 2:
        rows = [_numbers_text(row) for row in numbers]
        if len(set(rows)) == 1 and len(rows) > 1:
            return f"{rows[0]} in each layer"
        return rows[0] if len(rows) == 1 else "; ".join(rows)
    return " ".join(f"{float(number):.4g}" for number in numbers.detach().reshape(-1))


def _epoch_table(training: RunFolder, metric: Metric) -> str:
    headings = ("epoch", "training loss", f"training {metric.title}", f"validation {metric.title}")
    rows = [
        (
            str(row["epoch"]),
            f"{row['loss']:.4f}",
            f"{row[metric.name]:.2%}",
            f"{row['validation'][metric.name]:.2%}" if "validation" in row else "",
        )
        for row in training_rows(training.log)
        if row["kind"] == "epoch"
    ]
    return markdown_table(headings, rows)


def _link(path: Path, folder: RunFolder) -> str:
    """A path as links in the page have it: relative to the folder of the run."""
    return path.relative_to(folder.path).as_posix()


# --- Curves of a log -----------------------------------------------------------------------

Row = Mapping[str, Any]
Quantity = Literal[
    "step_loss",
    "loss",
    "accuracy",
    "validation_loss",
    "validation_accuracy",
    "relative_error",
    "validation_relative_error",
    "gap",
    "rate",
    "tau_imag",
    "omega1",
    "omega3_real",
]


class Curve(NamedTuple):
    """Values over epochs; a step is a fraction of an epoch."""

    epochs: tuple[float, ...]
    values: tuple[float, ...]


# The kind of rows that hold a quantity, and how to read it from a row; shares in per cent.
_READ: dict[Quantity, tuple[str, Callable[[Row], float]]] = {
    "step_loss": ("step", lambda row: row["loss"]),
    "loss": ("epoch", lambda row: row["loss"]),
    "accuracy": ("epoch", lambda row: 100.0 * row["accuracy"]),
    "validation_loss": ("epoch", lambda row: row["validation"]["loss"]),
    "validation_accuracy": ("epoch", lambda row: 100.0 * row["validation"]["accuracy"]),
    "relative_error": ("epoch", lambda row: 100.0 * row["relative_error"]),
    "validation_relative_error": (
        "epoch",
        lambda row: 100.0 * row["validation"]["relative_error"],
    ),
    "gap": ("epoch", lambda row: 100.0 * (row["accuracy"] - row["validation"]["accuracy"])),
    "rate": ("step", lambda row: row["rate"]),
    "tau_imag": ("epoch", lambda row: row["encoding"]["tau_imag"]),
    "omega1": ("epoch", lambda row: row["encoding"]["omega1"]),
    "omega3_real": ("epoch", lambda row: row["encoding"]["omega3_real"]),
}


def read_curve(rows: Sequence[Row], quantity: Quantity) -> Curve:
    """A quantity over the epochs, from the rows that have it; the curve may be empty."""
    kind, read = _READ[quantity]
    found = []
    for row in rows:
        if row["kind"] == kind:
            try:
                found.append((float(row["epoch"]), float(read(row))))
            except KeyError:  # a run without validation images, an encoding without a lattice
                continue
    epochs, values = zip(*found, strict=True) if found else ((), ())
    return Curve(epochs, values)


def kept_epoch(rows: Sequence[Row]) -> int | None:
    """The epoch whose weights are kept: the last one marked as best, else the last one."""
    epochs = [row for row in rows if row["kind"] == "epoch"]
    best = [row["epoch"] for row in epochs if row.get("is_best")]
    return max(best) if best else (epochs[-1]["epoch"] if epochs else None)


class Band(NamedTuple):
    """The mean, least and largest value of several curves, at the epochs they all have."""

    epochs: tuple[float, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


def band_of(curves: Sequence[Curve]) -> Band:
    """The mean and the range of some curves; curves without points are left out."""
    known = [dict(zip(curve.epochs, curve.values, strict=True)) for curve in curves if curve.epochs]
    if not known:
        return Band((), (), (), ())
    epochs = sorted(set.intersection(*(set(each) for each in known)))
    columns = [[each[epoch] for each in known] for epoch in epochs]
    return Band(
        tuple(epochs),
        tuple(sum(column) / len(column) for column in columns),
        tuple(min(column) for column in columns),
        tuple(max(column) for column in columns),
    )


def draw_band(panel: Any, curves: Sequence[Curve], **style: Any) -> None:
    """Draw the mean as a line and the range as a shade behind it.

    A line of one point would be invisible, so a single point is a mark with a bar. Without any
    points nothing is drawn.
    """
    band = band_of(curves)
    if not band.epochs:
        return
    if len(band.epochs) == 1:
        style = style | {"marker": style.get("marker") or "o"}
    [line] = panel.plot(band.epochs, band.mean, **style)
    colour = line.get_color()
    if len(curves) > 1 and len(band.epochs) == 1:
        panel.vlines(band.epochs, band.low, band.high, color=colour, linewidth=0.8)
    elif len(curves) > 1:
        panel.fill_between(band.epochs, band.low, band.high, color=colour, alpha=0.18, linewidth=0)


# --- The picture of a run ------------------------------------------------------------------


def draw_curves(folder: RunFolder) -> list[Path]:
    """Draw loss, accuracy, learning rate and, where it is learned, the lattice of each training.

    A run with two phases gets a picture in the folder of each phase. Returns the pictures; a
    training without a finished epoch has none.
    """
    pictures = []
    for training in folder.trainings().values():
        rows = training_rows(training.log)
        if any(row["kind"] == "epoch" for row in rows):
            with figure_settings():
                figure_of_training(rows).savefig(training.curves, dpi=130)
            pictures.append(training.curves)
    return pictures


def figure_of_training(rows: Sequence[Row]) -> Any:
    """The figure of one training, from the rows of its log."""
    has_lattice = bool(read_curve(rows, "tau_imag").epochs)
    count = 4 if has_lattice else 3
    figure = new_figure(3.4 * count, 2.8)
    axes = figure.subplots(1, count)
    _draw_loss(axes[0], rows)
    _draw_accuracy(axes[1], rows)
    draw_band(axes[2], [read_curve(rows, "rate")], color=BLUE)
    axes[2].set(title="learning rate")
    if has_lattice:
        _draw_lattice(axes[3], rows)
    for panel in axes:
        panel.set(xlabel="epoch")
        panel.grid()
    return figure


def _draw_loss(panel: Any, rows: Sequence[Row]) -> None:
    draw_band(panel, [read_curve(rows, "step_loss")], color=BLUE, alpha=0.3)
    draw_band(panel, [read_curve(rows, "loss")], color=BLUE, label="training")
    draw_band(panel, [read_curve(rows, "validation_loss")], color=ORANGE, label="validation")
    is_error = read_curve(rows, "relative_error").epochs
    panel.set(title="loss" if is_error else "cross-entropy")
    panel.legend()


def _draw_accuracy(panel: Any, rows: Sequence[Row]) -> None:
    is_error = bool(read_curve(rows, "relative_error").epochs)
    own: Quantity = "relative_error" if is_error else "accuracy"
    of_validation: Quantity = "validation_relative_error" if is_error else "validation_accuracy"
    draw_band(panel, [read_curve(rows, own)], color=BLUE, label="training")
    found = read_curve(rows, of_validation)
    if found.epochs:
        draw_band(panel, [found], color=ORANGE, label="validation")
        kept = kept_epoch(rows)
        assert kept is not None
        value = dict(zip(found.epochs, found.values, strict=True))[kept]
        panel.plot(kept, value, "o", color=ORANGE)
        panel.annotate(f"{value:.1f}", (kept, value), ha="right", va="bottom")
        panel.margins(y=0.12)
    title = "relative L2 error in %" if is_error else "accuracy in % (training: augmented images)"
    panel.set(title=title)
    panel.legend()


_LATTICE: tuple[tuple[Quantity, str, str], ...] = (
    ("tau_imag", "Im τ", "-"),
    ("omega1", "ω1", "--"),
    ("omega3_real", "Re ω3", ":"),
)


def _draw_lattice(panel: Any, rows: Sequence[Row]) -> None:
    for quantity, label, line in _LATTICE:
        curve = read_curve(rows, quantity)
        if quantity == "tau_imag" or max(curve.values) != min(curve.values):
            draw_band(panel, [curve], color=GREEN, linestyle=line, label=label)
    panel.set(title="learned lattice")
    panel.legend()
