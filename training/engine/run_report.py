"""A page about a finished run, for people."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from training.config import Experiment
from training.engine.run_folder import SEARCH, RunFolder, training_rows, write_whole
from training.figure_style import BLUE, GREEN, ORANGE, figure_settings, new_figure

_SELECTION = {
    "validation": "The weights are those that did best on images held out of training.",
    "last": "The weights are those of the last epoch.",
}
_PARTS = (
    "The number of epochs was searched on images held out of training; the weights are those of "
    "the final training, on all images, after so many."
)
_TEST = "The test set was opened once, after everything else."


def write_report(folder: RunFolder, experiment: Experiment, result: Mapping[str, Any]) -> None:
    """Write ``report.md``: result, circumstances, curves and epochs, where everything lies."""
    accuracy = result["validation_accuracy"]
    found = "not used" if accuracy is None else f"{accuracy:.2%}, epoch {result['selected_epoch']}"
    where = result["circumstances"]
    trainings = folder.trainings()
    if SEARCH in trainings:
        found = f"in the search only, which found {result['epochs']} epochs"
    options = experiment.position_encoding.options
    lines = [
        f"# {experiment.model.name}, {experiment.position_encoding.name}, {experiment.data.name}",
        "",
        "| | |",
        "|---|---|",
        f"| test accuracy | {result['test_accuracy']:.2%} of {result['test_images']:,} images |",
        f"| validation accuracy | {found} |",
        f"| learned parameters | {result['parameters']:,} |",
        f"| training | {result['epochs']} epochs, {result['training_seconds']:.1f} s |",
        f"| peak memory | {result['peak_memory_mb']:,.0f} MB |",
        f"| seed | {result['seed']} |",
        f"| encoding options | {', '.join(f'{k}={v}' for k, v in options.items()) or 'defaults'} |",
        f"| device | {where['device']} |",
        f"| processes, threads | {where['processes']}, {where['threads']} |",
        "",
        f"{_PARTS if SEARCH in trainings else _SELECTION[experiment.selection.by]} {_TEST}",
        "",
    ]
    for name, part in trainings.items():
        lines += [f"## {name}", ""] if name else []
        lines += _training(part, folder)
    loaded = [part.pretrained for part in trainings.values() if part.pretrained.exists()]
    if loaded:
        text = loaded[-1].read_text(encoding="utf-8").rstrip()
        lines += ["## Pre-trained weights", "", "```", text, "```", ""]
    logs = ", ".join(f"`{_inside(part.log, folder)}`" for part in trainings.values())
    lines += [f"Effective config: `{folder.config.name}`; every step: {logs}.", ""]
    write_whole(folder.report, "\n".join(lines))


def _training(part: RunFolder, folder: RunFolder) -> list[str]:
    """The curves and the epochs of one training."""
    lines = [f"![curves]({_inside(part.curves, folder)})", ""] if part.curves.exists() else []
    lines += [
        "| epoch | training loss | training accuracy | validation accuracy |",
        "|---|---|---|---|",
    ]
    for row in training_rows(part.log):
        if row["kind"] == "epoch":
            shown = f"{row['validation']['accuracy']:.2%}" if "validation" in row else ""
            lines.append(
                f"| {row['epoch']} | {row['loss']:.4f} | {row['accuracy']:.2%} | {shown} |"
            )
    return [*lines, ""]


def _inside(path: Path, folder: RunFolder) -> str:
    """A path as links in the report have it."""
    return path.relative_to(folder.path).as_posix()


# The quantities a log holds, as curves over the epochs, and how a curve is drawn.

Row = Mapping[str, Any]
Quantity = Literal[
    "step_loss",
    "loss",
    "accuracy",
    "validation_loss",
    "validation_accuracy",
    "gap",
    "rate",
    "tau_imag",
    "omega1",
    "omega3_real",
]


class Curve(NamedTuple):
    """Values over epochs; within an epoch those are fractions."""

    epochs: tuple[float, ...]
    values: tuple[float, ...]


# Which rows hold a quantity, and how it is read from them; shares as per cent.
_READ: dict[Quantity, tuple[str, Callable[[Row], float]]] = {
    "step_loss": ("step", lambda row: row["loss"]),
    "loss": ("epoch", lambda row: row["loss"]),
    "accuracy": ("epoch", lambda row: 100.0 * row["accuracy"]),
    "validation_loss": ("epoch", lambda row: row["validation"]["loss"]),
    "validation_accuracy": ("epoch", lambda row: 100.0 * row["validation"]["accuracy"]),
    "gap": ("epoch", lambda row: 100.0 * (row["accuracy"] - row["validation"]["accuracy"])),
    "rate": ("step", lambda row: row["rate"]),
    "tau_imag": ("epoch", lambda row: row["encoding"]["tau_imag"]),
    "omega1": ("epoch", lambda row: row["encoding"]["omega1"]),
    "omega3_real": ("epoch", lambda row: row["encoding"]["omega3_real"]),
}


def read_curve(rows: Sequence[Row], quantity: Quantity) -> Curve:
    """A quantity over the epochs, from the rows that have it; perhaps no points at all."""
    kind, read = _READ[quantity]
    found = []
    for row in rows:
        if row["kind"] == kind:
            try:
                found.append((float(row["epoch"]), float(read(row))))
            except KeyError:  # no validation images, no lattice
                continue
    epochs, values = zip(*found, strict=True) if found else ((), ())
    return Curve(epochs, values)


def kept_epoch(rows: Sequence[Row]) -> int | None:
    """Number of the epoch whose weights are kept: the last called best, or the last of all."""
    epochs = [row for row in rows if row["kind"] == "epoch"]
    best = [row["epoch"] for row in epochs if row.get("is_best")]
    return max(best) if best else (epochs[-1]["epoch"] if epochs else None)


class Band(NamedTuple):
    """Mean, least and largest value of several curves, where all of them have a point."""

    epochs: tuple[float, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


def band_of(curves: Sequence[Curve]) -> Band:
    """The mean and the range of some curves, over the epochs all of them have."""
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
    """The mean as a line and the range as a shade behind it; nothing if there are no points.

    A line of one point would not be seen: it is a mark with a bar.
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


# The curves of a run, drawn from its log.


def draw_curves(folder: RunFolder) -> list[Path]:
    """Draw loss, accuracy, learning rate and, where it is learned, the lattice.

    The search and the final training of a run in two parts stand in their own folders, and each
    gets a picture. Returns the pictures; a training without a finished epoch has none.
    """
    pictures = []
    for part in folder.trainings().values():
        rows = training_rows(part.log)
        if any(row["kind"] == "epoch" for row in rows):
            with figure_settings():
                figure_of_training(rows).savefig(part.curves, dpi=130)
            pictures.append(part.curves)
    return pictures


def figure_of_training(rows: Sequence[Row]) -> Any:
    """The figure of one training."""
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
    panel.set(title="cross-entropy")
    panel.legend()


def _draw_accuracy(panel: Any, rows: Sequence[Row]) -> None:
    draw_band(panel, [read_curve(rows, "accuracy")], color=BLUE, label="training")
    found = read_curve(rows, "validation_accuracy")
    if found.epochs:
        draw_band(panel, [found], color=ORANGE, label="validation")
        kept = kept_epoch(rows)
        assert kept is not None
        value = dict(zip(found.epochs, found.values, strict=True))[kept]
        panel.plot(kept, value, "o", color=ORANGE)
        panel.annotate(f"{value:.1f}", (kept, value), ha="right", va="bottom")
        panel.margins(y=0.12)
    panel.set(title="accuracy in % (training: augmented images)")
    panel.legend()


def _draw_lattice(panel: Any, rows: Sequence[Row]) -> None:
    for quantity, label, line in _LATTICE:
        curve = read_curve(rows, quantity)
        if quantity == "tau_imag" or max(curve.values) != min(curve.values):
            draw_band(panel, [curve], color=GREEN, linestyle=line, label=label)
    panel.set(title="learned lattice")
    panel.legend()


_LATTICE: tuple[tuple[Quantity, str, str], ...] = (
    ("tau_imag", "Im τ", "-"),
    ("omega1", "ω1", "--"),
    ("omega3_real", "Re ω3", ":"),
)
