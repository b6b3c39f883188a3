"""The figures of `training.analyses.initial_attention`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from training.figure_style import BLUE, PLAIN_MAP, new_figure

if TYPE_CHECKING:
    from training.analyses.initial_attention import InitialAttention

Map = npt.NDArray[np.float64]

_TITLES = {
    "spearman": "Spearman of distance\nand attention",
    "query_rank": "place of the query\namong the patches",
    "relative_distance": "mean distance /\nthat of uniform",
    "max_over_min": "largest / smallest\nattention",
    "relative_entropy": "entropy /\nthat of uniform",
}
# What uniform attention has, as a line to compare with; Spearman's has none, 0 stands for it.
_UNIFORM = {
    "spearman": 0.0,
    "relative_distance": 1.0,
    "max_over_min": 1.0,
    "relative_entropy": 1.0,
}
_ON_LOG_SCALE = ("query_rank", "max_over_min")


def draw_maps(found: Sequence[InitialAttention]) -> Any:
    """The mean over heads: a strip for each encoding, a map for each seed."""
    strips: dict[str, list[tuple[str, Map]]] = {}
    for each in found:
        strips.setdefault(each.label, []).append((f"seed {each.seed}", each.mean))
    return _draw_strips(strips, found[0].query)


def draw_heads(found: Sequence[InitialAttention]) -> Any:
    """The heads of the first seed: a strip for each encoding, a map for each head."""
    strips = {
        each.label: [(f"head {number}", head) for number, head in enumerate(each.heads)]
        for each in found
        if each.seed == found[0].seed
    }
    return _draw_strips(strips, found[0].query)


def _draw_strips(strips: Mapping[str, Sequence[tuple[str, Map]]], query: tuple[int, int]) -> Any:
    """Each strip has colours of its own: what is flat would show nothing beside what is not."""
    longest = max(map(len, strips.values()))
    across = 1 if len(strips) <= 3 else 2
    down = -(-len(strips) // across)
    figure = new_figure(max(1.0 * longest + 0.9, 2.6) * across + 0.2, 1.5 * down)
    figure.get_layout_engine().set(w_pad=0.08)  # subfigures forget the labels of colour bars
    parts = figure.subfigures(down, across, squeeze=False).flatten()
    for part, (label, maps) in zip(parts, strips.items(), strict=False):
        part.suptitle(label, fontsize=8)
        _draw_strip(part, maps, query)
    return figure


def _draw_strip(part: Any, maps: Sequence[tuple[str, Map]], query: tuple[int, int]) -> None:
    from matplotlib.ticker import MaxNLocator

    panels = part.subplots(1, len(maps), squeeze=False)[0]
    scaled = [values * values.size for _, values in maps]
    low, high = min(m.min() for m in scaled), max(m.max() for m in scaled)
    if high - low < 1e-9:  # uniform to rounding: its noise is nothing to see
        low, high = 0.5, 1.5
    for panel, (name, _), values in zip(panels, maps, scaled, strict=True):
        image = panel.imshow(values, cmap=PLAIN_MAP, vmin=low, vmax=high)
        _mark(panel, query)
        panel.set_xticks([])
        panel.set_yticks([])
        panel.set_xlabel(name, fontsize=7)
    bar = part.colorbar(image, ax=list(panels), shrink=0.85, pad=0.02, aspect=12)
    bar.ax.tick_params(labelsize=6, length=2)
    bar.locator = MaxNLocator(3)
    bar.formatter = "{x:g}"
    bar.update_ticks()


def _mark(panel: Any, query: tuple[int, int]) -> None:
    """A frame around the query that is seen on light and dark."""
    x = query[1] + np.array([-0.5, -0.5, 0.5, 0.5, -0.5])
    y = query[0] + np.array([-0.5, 0.5, 0.5, -0.5, -0.5])
    panel.plot(x, y, color="white", lw=1.6)
    panel.plot(x, y, color="black", lw=0.7)


def draw_statistics(found: Sequence[InitialAttention]) -> Any:
    """A row for each encoding, a panel for each statistic, a dot for each seed, a bar the mean."""
    labels = list(dict.fromkeys(each.label for each in found))
    longest = max(map(len, labels))
    figure = new_figure(6.6 + 0.055 * longest, 0.9 + 0.26 * len(labels))
    panels = figure.subplots(1, len(_TITLES), sharey=True)
    for panel, (name, title) in zip(panels, _TITLES.items(), strict=True):
        for y, label in enumerate(labels):
            values = [getattr(each.locality, name) for each in found if each.label == label]
            panel.plot(values, [y] * len(values), "o", color=BLUE, alpha=0.5)
            panel.plot(np.mean(values), y, "|", color=BLUE, markersize=11, markeredgewidth=1.6)
        uniform = _UNIFORM.get(name, (found[0].mean.size + 1) / 2.0)
        panel.axvline(uniform, color="0.5", linewidth=0.8, linestyle="--")
        if name in _ON_LOG_SCALE:
            panel.set_xscale("log")
        panel.set_title(title, fontsize=7.5)
        panel.grid(axis="x")
    panels[0].set_yticks(range(len(labels)), labels)
    panels[0].set_ylim(len(labels) - 0.4, -0.6)
    panels[0].set_xlim(-1.08, 1.08)
    return figure
