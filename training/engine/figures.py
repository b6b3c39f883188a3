"""The curves of a run, drawn from its log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from training.engine.curves import Quantity, Row, draw_band, kept_epoch, read_curve
from training.engine.run_folder import RunFolder, training_rows
from training.figure_style import BLUE, GREEN, ORANGE, figure_settings, new_figure


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
