"""The curves of a run, drawn from its log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from training.engine.run_folder import RunFolder, training_rows

_TRAINING, _VALIDATION, _LATTICE = (
    "#0072b2",
    "#d55e00",
    "#009e73",
)  # told apart by colour-blind eyes


def draw_curves(folder: RunFolder) -> Path | None:
    """Draw loss, accuracy, learning rate and, where it is learned, the lattice; None if no rows.

    The search and the final training of a run in two parts stand in their own folders, and each
    gets a picture.
    """
    for part in ("search", "final"):
        if folder.part(part).log.exists():
            draw_curves(folder.part(part))
    rows = training_rows(folder.log)
    steps = [row for row in rows if row["kind"] == "step"]
    epochs = [row for row in rows if row["kind"] == "epoch"]
    if not epochs:
        return None
    # Not pyplot: a figure of its own leaves the user's settings and windows alone.
    from matplotlib.figure import Figure

    learned = [row for row in epochs if "tau_imag" in row["encoding"]]
    figure = Figure(figsize=(4.2 * (4 if learned else 3), 3.4), layout="constrained")
    axes = figure.subplots(1, 4 if learned else 3)
    _draw_loss(axes[0], steps, epochs)
    _draw_accuracy(axes[1], epochs)
    axes[2].plot([r["epoch"] for r in steps], [r["rate"] for r in steps], color=_TRAINING)
    axes[2].set(title="learning rate")
    if learned:
        _draw_lattice(axes[3], learned)
    for panel in axes:
        panel.set(xlabel="epoch")
        panel.grid(alpha=0.3)
    figure.savefig(folder.curves, dpi=110)
    return folder.curves


def _draw_loss(panel: Any, steps: list[dict[str, Any]], epochs: list[dict[str, Any]]) -> None:
    numbers = [row["epoch"] for row in epochs]
    panel.plot(
        [row["epoch"] for row in steps], [row["loss"] for row in steps], color=_TRAINING, alpha=0.3
    )
    panel.plot(numbers, [row["loss"] for row in epochs], color=_TRAINING, label="training")
    if "validation" in epochs[0]:
        losses = [row["validation"]["loss"] for row in epochs]
        panel.plot(numbers, losses, color=_VALIDATION, label="validation")
    panel.set(title="cross-entropy")
    panel.legend()


def _draw_accuracy(panel: Any, epochs: list[dict[str, Any]]) -> None:
    numbers = [row["epoch"] for row in epochs]
    panel.plot(numbers, [100.0 * r["accuracy"] for r in epochs], color=_TRAINING, label="training")
    if "validation" in epochs[0]:
        found = [100.0 * row["validation"]["accuracy"] for row in epochs]
        panel.plot(numbers, found, color=_VALIDATION, label="validation")
        # The epoch whose weights were kept: the last one called best, or the last of all.
        best = max((i for i, row in enumerate(epochs) if row["is_best"]), default=len(found) - 1)
        panel.plot(numbers[best], found[best], "o", color=_VALIDATION)
        panel.annotate(f"{found[best]:.1f}", (numbers[best], found[best]), ha="right", va="bottom")
        panel.margins(y=0.12)
    panel.set(title="accuracy in % (training: augmented images)")
    panel.legend()


def _draw_lattice(panel: Any, epochs: list[dict[str, Any]]) -> None:
    numbers = [row["epoch"] for row in epochs]
    for name, style in (("tau_imag", "-"), ("omega1", "--"), ("omega3_real", ":")):
        values = [row["encoding"][name] for row in epochs]
        if name == "tau_imag" or max(values) != min(values):
            panel.plot(numbers, values, style, color=_LATTICE, label=_LABELS[name])
    panel.set(title="learned lattice")
    panel.legend()


_LABELS = {"tau_imag": "Im τ", "omega1": "ω1", "omega3_real": "Re ω3"}
