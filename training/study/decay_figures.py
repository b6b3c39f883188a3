"""Figures of decay with distance: all encodings side by side, and one of them in detail."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from training.figure_style import (
    BLACK,
    BLUE,
    ORANGE,
    PLAIN_MAP,
    SIGNED_MAP,
    SKY,
    figure_settings,
    new_figure,
)
from training.study.analysis import DASH
from training.study.decay_measures import PROTOCOLS, DecayRow, curve_of
from training.study.pair_statistics import (
    Array,
    Pairs,
    explained_by_distance,
    pair_values,
    pearson,
    share_of_decreasing_steps,
    spearman,
)

# --- Figure of all encodings, a line for each ------------------------------------------------

_BARS = ("explained", "monotone")
_SCATTERED = 3000  # in a scatter plot of more points single pairs cannot be seen


def comparison_figure(rows: Sequence[DecayRow], pairs: Pairs) -> Any:
    """A line for each encoding: its curve, its correlations, what distance explains, its steps.

    All rows are of one protocol.
    """
    protocol = PROTOCOLS[rows[0].protocol]
    is_binned = protocol.bins is not None
    rows = sorted(rows, key=lambda row: bool(row.null))  # the nulls last, in their order
    is_null = [bool(row.null) for row in rows]
    with figure_settings():
        figure = new_figure(10.2, 1.5 + 0.23 * len(rows))
        axes = figure.subplots(1, 4, sharey=True, width_ratios=[1.5, 1.35, 0.8, 0.8])
        _draw_curves(figure, axes[0], rows, pairs)
        _draw_correlations(axes[1], rows, "means of bins" if is_binned else "means by distance")
        explained, steps = ([getattr(row.mean, name) for row in rows] for name in _BARS)
        _draw_bars(axes[2], explained, is_null, "R² of distance", 1.0)
        _draw_bars(axes[3], steps, is_null, "decreasing steps, %", 100.0)
        axes[3].axvline(50, color=BLACK, lw=0.8, ls=":")
        for axis, letter, title in zip(
            axes,
            "abcd",
            (
                "mean interaction by distance",
                "correlation",
                "explained",
                "steps of bins" if is_binned else "monotonicity",
            ),
            strict=True,
        ):
            axis.set_title(f"({letter}) {title}", loc="left")
            axis.tick_params(axis="y", length=0)
            axis.axhline(is_null.count(False) - 0.5, color=BLACK, lw=0.8)
        axes[0].set_yticks(
            range(len(rows)), [row.encoding + (" (null)" if row.null else "") for row in rows]
        )
        axes[0].set_ylim(len(rows) - 0.5, -0.5)
        figure.legend(*axes[1].get_legend_handles_labels(), loc="outside lower right", ncols=3)
        what = "content plus the encoding" if protocol.adds_content else "the encoding alone"
        figure.suptitle(f"protocol {protocol.name}: {what}", fontsize=8.5)
    return figure


def _draw_curves(figure: Any, axis: Any, rows: Sequence[DecayRow], pairs: Pairs) -> None:
    distances = pairs.distances
    inner = (distances[:-1] + distances[1:]) / 2
    edges = np.concatenate([[distances[0] - 0.5], inner, [distances[-1] + 0.5]])
    strips = np.array([row.standardised for row in rows])
    largest = float(np.nanmax(np.abs(strips))) if np.isfinite(strips).any() else 1.0
    limit = min(largest, 2.5)  # a curve next to a pole would make all others pale
    image = axis.pcolormesh(
        edges,
        np.arange(len(rows) + 1) - 0.5,
        np.ma.masked_invalid(strips),
        cmap=SIGNED_MAP,
        vmin=-limit,
        vmax=limit,
        rasterized=True,  # as vectors, thousands of cells make a large SVG with seams
    )
    for number, row in enumerate(rows):
        if not np.isfinite(row.standardised).any():
            # Content can be added to tables, but not to biases and rotations.
            has_table = row.kind not in ("rotary", "bias")
            is_defined = has_table or not PROTOCOLS[row.protocol].adds_content
            text = "constant" if is_defined else "not defined"
            axis.text(edges.mean(), number, text, ha="center", va="center", fontsize=7)
    axis.set_xlabel("distance in patches")
    extend = "both" if largest > limit else "neither"
    bar = figure.colorbar(image, ax=axis, location="bottom", shrink=0.9, aspect=30, extend=extend)
    bar.set_label("deviations from the mean of all pairs")


def _draw_correlations(axis: Any, rows: Sequence[DecayRow], means: str) -> None:
    places = np.arange(len(rows))
    raw = np.array([row.mean.raw for row in rows])
    binned = np.array([row.mean.binned for row in rows])
    low = np.array([row.low for row in rows])
    high = np.array([row.high for row in rows])
    for place, a, b in zip(places, raw, binned, strict=True):
        axis.plot([a, b], [place, place], color="0.75", lw=1.0, zorder=1)
    bars = {"color": BLUE, "lw": 3.5, "alpha": 0.4, "zorder": 2}
    axis.hlines(places, low, high, label="95 % of resampled patches", **bars)
    axis.plot(raw, places, "o", color=BLUE, ms=4.5, label="all pairs", zorder=3)
    axis.plot(binned, places, "D", color=ORANGE, mfc="none", ms=4.5, label=means, zorder=3)
    _mark_undefined(axis, raw, 0.0)
    axis.axvline(0, color=BLACK, lw=0.8)
    ends = np.concatenate([binned, raw, high, [0.0]])
    axis.set_xlim(-1.05, max(0.3, float(np.nanmax(ends)) + 0.1))
    axis.set_xlabel("Pearson, with distance")
    axis.grid(axis="x")


def _draw_bars(
    axis: Any, values: Sequence[float], is_null: Sequence[bool], label: str, top: float
) -> None:
    heights = np.array(values)
    colours = [SKY if null else BLUE for null in is_null]
    axis.barh(np.arange(len(heights)), np.nan_to_num(heights), height=0.6, color=colours)
    _mark_undefined(axis, heights, 0.03 * top)
    axis.set_xlim(0, top)
    axis.set_xlabel(label)
    axis.grid(axis="x")
    axis.set_axisbelow(True)


def _mark_undefined(axis: Any, values: Array, x: float) -> None:
    """Draw a dash for a value that is not defined, so that it is not read as 0."""
    for place in np.flatnonzero(~np.isfinite(values)):
        axis.text(x, place, DASH, va="center")


# --- Figure of one encoding ----------------------------------------------------------------


def detail_figure(matrix: Array, pairs: Pairs, title: str, quantity: str) -> Any:
    """The paper's four panels: sample and means, all pairs, log scale, rate of change."""
    with figure_settings():
        figure = new_figure(9.0, 6.2)
        axes = figure.subplots(2, 2)
        curve = curve_of(matrix, pairs, PROTOCOLS["ours"]).means
        _draw_sample(axes[0, 0], matrix, pairs, curve)
        _draw_all_pairs(figure, axes[0, 1], matrix, pairs, curve)
        _draw_log(axes[1, 0], pairs.distances, curve)
        _draw_rate(axes[1, 1], pairs.distances, curve)
        for axis in axes.flat:
            axis.set_xlabel("distance in patches")
            axis.set_xlim(0, pairs.distances[-1] + 0.5)
        for axis in axes[0]:
            axis.set_ylabel(quantity)
        figure.suptitle(title)
    return figure


def _draw_sample(axis: Any, matrix: Array, pairs: Pairs, curve: Array) -> None:
    values, distance = pair_values(matrix, pairs), np.sqrt(pairs.squared)
    count = min(_SCATTERED, values.size)
    chosen = np.random.default_rng(0).choice(values.size, count, replace=False)
    sample = "all pairs" if count == values.size else f"{count} of {values.size} pairs"
    axis.plot(distance[chosen], values[chosen], ".", color="0.6", ms=2, label=sample)
    axis.plot(pairs.distances, curve, "o-", color=ORANGE, ms=2.5, label="mean by distance")
    raw, rank = pearson(distance, values), spearman(distance, values)
    axis.set_title(f"(a) Pearson {_text(raw)}, Spearman {_text(rank)}", loc="left")
    axis.legend(loc="best", markerscale=2)


def _draw_all_pairs(figure: Any, axis: Any, matrix: Array, pairs: Pairs, curve: Array) -> None:
    from matplotlib.colors import LogNorm

    values, distance = pair_values(matrix, pairs), np.sqrt(pairs.squared)
    # Columns one patch wide: narrower ones would be empty between the distances of the grid.
    columns = np.arange(0.5, distance.max() + 1)
    *_, image = axis.hist2d(
        distance, values, bins=(columns, 40), cmap=PLAIN_MAP, norm=LogNorm(vmin=1), cmin=1
    )
    figure.colorbar(image, ax=axis, label="pairs")
    axis.plot(pairs.distances, curve, color=ORANGE, lw=1.2)
    explained = explained_by_distance(matrix, pairs)
    axis.set_title(f"(b) all pairs: distance explains R² = {_text(explained)}", loc="left")


def _draw_log(axis: Any, distances: Array, curve: Array) -> None:
    """The mean on a log scale, where an exponential decay to a limit is a straight line."""
    height = curve - curve.min()
    above = height > 1e-9 * max(float(height.max()), 1e-300)
    axis.set_ylabel("mean minus its lowest value")
    if above.sum() < 3:
        axis.set_title("(c) log scale: constant", loc="left")
        return
    x, y = distances[above], np.log(height[above])
    slope, offset = np.polyfit(x, y, 1)
    axis.semilogy(x, height[above], "o", color=BLUE, ms=3)
    axis.semilogy(x, np.exp(offset + slope * x), "--", color=ORANGE, label="straight line fitted")
    fit = _text(pearson(x, y) ** 2)
    axis.set_title(f"(c) log scale: a straight line has R² = {fit}", loc="left")
    axis.legend(loc="best")


def _draw_rate(axis: Any, distances: Array, curve: Array) -> None:
    axis.set_ylabel("change of the mean per patch")
    down = share_of_decreasing_steps(curve)
    if not math.isfinite(down):
        axis.set_title("(d) rate of change: constant", loc="left")
        return
    rate = np.diff(curve) / np.diff(distances)
    middle = (distances[:-1] + distances[1:]) / 2
    for chosen, colour, marker, name in (
        (rate < 0, BLUE, "v", "falls"),
        (rate > 0, ORANGE, "^", "rises"),
    ):
        axis.vlines(middle[chosen], 0, rate[chosen], color=colour, lw=0.8)
        axis.plot(middle[chosen], rate[chosen], marker, color=colour, ms=3.5, label=name)
    axis.axhline(0, color=BLACK, lw=0.8)
    axis.set_title(
        f"(d) rate of change: {100 * down:.0f} % of {rate.size} steps go down", loc="left"
    )
    axis.legend(loc="best")


def _text(value: float) -> str:
    return f"{value:.2f}" if math.isfinite(value) else DASH
