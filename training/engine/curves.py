"""The quantities a log holds, as curves over the epochs, and how a curve is drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

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
