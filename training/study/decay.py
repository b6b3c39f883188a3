"""Decay of interaction with distance: the paper's table 1 and its figure, for any encoding."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from training.encodings.grid import Grid
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
from training.study.analysis import DASH, Analysis
from training.study.decay_measures import (
    PROTOCOLS,
    Array,
    Pairs,
    Protocol,
    curve_of,
    explained_by_distance,
    interaction_matrix,
    pair_values,
    patch_pairs,
    pearson,
    share_of_decreasing_steps,
    spearman,
)
from training.study.decay_table import (
    NULLS,
    DecayRow,
    csv_rows,
    decay_markdown,
    decay_rows,
    null_meaning,
)
from training.study.encoding_choice import GRID, Subject
from wefpe_core.errors import InputError, did_you_mean

# Figures of decay with distance: all encodings side by side, and one of them in detail.

_BARS = ("explained", "monotone")
_SCATTERED = 3000  # points of a scatter plot that still show single pairs


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
    limit = min(largest, 2.5)  # next to a pole a curve may leave all others pale
    image = axis.pcolormesh(
        edges,
        np.arange(len(rows) + 1) - 0.5,
        np.ma.masked_invalid(strips),
        cmap=SIGNED_MAP,
        vmin=-limit,
        vmax=limit,
        rasterized=True,  # thousands of cells would make a heavy SVG with seams
    )
    for number, row in enumerate(rows):
        if not np.isfinite(row.standardised).any():
            # Biases and rotations have nothing that content could be added to.
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
    _dashes(axis, raw, 0.0)
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
    _dashes(axis, heights, 0.03 * top)
    axis.set_xlim(0, top)
    axis.set_xlabel(label)
    axis.grid(axis="x")
    axis.set_axisbelow(True)


def _dashes(axis: Any, values: Array, x: float) -> None:
    """Mark what is not defined, so that it is not read as 0."""
    for place in np.flatnonzero(~np.isfinite(values)):
        axis.text(x, place, DASH, va="center")


# --- One encoding -----------------------------------------------------------------------------


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
    """An exponential decay to a limit is a straight line here."""
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


DRAWN_ALONE = "the encoding alone, nothing mapped"  # of the figures in detail
# What the interaction of each kind is, as the label of an axis.
QUANTITIES = {
    "additive": "cosine of two positions",
    "rotary": "cosine of two rotations",
    "bias": "attention bias, mean of the heads",
    "none": "interaction",
}


def decay_analysis(
    subjects: Sequence[Subject],
    grid: Grid = GRID,
    seeds: Sequence[int] = (0, 1, 2, 3, 4),
    *,
    protocols: Sequence[str] = tuple(PROTOCOLS),
    resamples: int = 200,
    details: Sequence[str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Analysis:
    """Every subject and the nulls under each protocol; `details` names those drawn in full.

    By default only the first subject is, as it starts from the first seed. `progress` is called
    with what is being done.
    """
    seeds, protocols = tuple(dict.fromkeys(seeds)), tuple(dict.fromkeys(protocols))
    if not seeds or resamples < 1:
        raise InputError(f"at least 1 seed and resample are needed, got {seeds} and {resamples}")
    if not protocols:
        raise InputError(f"no protocol is named; there are {', '.join(PROTOCOLS)}")
    for name in protocols:
        if name not in PROTOCOLS:
            raise InputError(
                f"unknown protocol {name!r}; there are {', '.join(PROTOCOLS)}"
                + did_you_mean(name, PROTOCOLS)
            )
    chosen = _chosen(subjects, details)
    rows = decay_rows(
        subjects, grid, seeds, protocols=protocols, resamples=resamples, progress=progress
    )
    if progress is not None:
        progress("drawing")
    figures = {"decay_compared": comparison_figure(_shown(rows), patch_pairs(grid))}
    for number, subject in enumerate(chosen, start=1):
        encoding = subject.build(grid, seeds[0])
        figures[f"decay_{number}_{_file_name(subject.label)}"] = detail_figure(
            interaction_matrix(encoding, grid),
            patch_pairs(grid),
            f"{subject.label}, seed {seeds[0]}: {DRAWN_ALONE}",
            QUANTITIES[encoding.kind],
        )
    return Analysis(
        name="decay",
        title="Interaction of patches and their distance",
        caption=_caption(rows, grid, seeds, resamples, [subject.label for subject in chosen]),
        figures=figures,
        numbers={
            "grid": list(grid),
            "seeds": list(seeds),
            "resamples": resamples,
            "pairs": int(patch_pairs(grid).first.size),
            "protocols": {name: PROTOCOLS[name].meaning for name in protocols},
            "nulls": dict(NULLS),
            "rows": csv_rows(rows),
            "curves": _curves(rows, grid),
        },
        tables={"decay": csv_rows(rows)},
        markdown=decay_markdown(rows),
    )


def _chosen(subjects: Sequence[Subject], details: Sequence[str] | None) -> list[Subject]:
    if details is None:
        return list(subjects[:1])
    known = {subject.label: subject for subject in subjects}
    for label in details:
        if label not in known:
            raise InputError(f"{label!r} is to be drawn, but is not among {', '.join(known)}")
    return [known[label] for label in details]


def _shown(rows: Sequence[DecayRow]) -> list[DecayRow]:
    """The rows of one protocol: ours if it was asked for."""
    names = list(dict.fromkeys(row.protocol for row in rows))
    shown = "ours" if "ours" in names else names[0]
    return [row for row in rows if row.protocol == shown]


def _curves(rows: Sequence[DecayRow], grid: Grid) -> dict[str, Any]:
    """S(d) in deviations of all pairs, which the first panel shows."""
    curves = {row.encoding: row.standardised.tolist() for row in _shown(rows)}
    return {"distances": patch_pairs(grid).distances.tolist(), "standardised": curves}


def _file_name(label: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "_", label).strip("_")


def _caption(
    rows: Sequence[DecayRow],
    grid: Grid,
    seeds: Sequence[int],
    resamples: int,
    details: Sequence[str],
) -> str:
    protocols = [PROTOCOLS[name] for name in dict.fromkeys(row.protocol for row in rows)]
    first = (
        f"Interaction of all pairs of patches of a {grid[0]}x{grid[1]} grid, for encodings as they "
        f"start (width 192, 3 heads). {_mean_of(seeds)}. Encodings: {_encodings(rows)}. "
        "Interaction is the cosine of two rows of an added table; the expected product of two "
        "turned random contents over their mean lengths, in the first layer, for rotary encodings; "
        "the bias of the first layer, averaged over heads and both directions, for biases."
    )
    parts = [first, _caption_of_comparison(PROTOCOLS[_shown(rows)[0].protocol], resamples)]
    if details:
        parts.append(_caption_of_details(details, seeds[0]))
    meanings = "; ".join(f"{protocol.name}: {protocol.meaning}" for protocol in protocols)
    parts.append(f"Protocols of the table: {meanings}.")
    return " ".join(parts)


def _mean_of(seeds: Sequence[int]) -> str:
    numbers = ", ".join(map(str, seeds))
    return f"Mean of the seeds {numbers}" if len(seeds) > 1 else f"Seed {numbers}"


def _encodings(rows: Sequence[DecayRow]) -> str:
    """Every label; nulls with what they stand for."""
    labels = list(dict.fromkeys(row.encoding for row in rows))
    nulls = [f"{label} ({null_meaning(label)})" for label in labels if null_meaning(label)]
    others = [label for label in labels if not null_meaning(label)]
    return "; ".join([*others, f"nulls, which make no claim to decay: {', '.join(nulls)}"])


def _caption_of_comparison(shown: Protocol, resamples: int) -> str:
    means = "the means at each distance" if shown.bins is None else "the means of the bins"
    steps = "one distance to the next" if shown.bins is None else "one bin to the next"
    what = "content plus the encoding" if shown.adds_content else "the encoding alone"
    return (
        f"The comparison shows the protocol {shown.name}, of {what}. (a) Mean at each distance, in "
        "deviations of all pairs from their mean; (b) Pearson's coefficient with the distance over "
        f"all pairs, with the middle 95 % of {resamples} resamplings of the patches for each seed, "
        f"and over {means}; (c) the share of the variance over pairs that distance explains; (d) "
        f"the share of steps from {steps} that go down (a curve without trend: 50 %). Bars of "
        "nulls are lighter."
    )


def _caption_of_details(labels: Sequence[str], seed: int) -> str:
    return (
        f"In detail, whatever the protocols: {', '.join(labels)}, {DRAWN_ALONE}, seed {seed}. (a) "
        "A sample of the pairs, and the mean at each distance; (b) all pairs, counted in cells, "
        "with that mean; (c) the mean minus its lowest value on a log scale, where an exponential "
        "decay to a limit would be a straight line; the limit, the lowest mean, is chosen by the "
        "data; (d) the change of the mean from each distance to the next, per patch."
    )
