"""Attention of one patch before any training.

The paper says that it is local. Maps and statistics show whether it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from training.encodings import available_encodings
from training.figure_style import BLUE, PLAIN_MAP, figure_settings, new_figure
from training.study.analysis import (
    DASH,
    Analysis,
    AnalysisCommand,
    Options,
    Progress,
    Row,
    silent,
)
from training.study.encoding_choice import GRID, HEADS, USUAL, choose_encodings
from training.study.initial_attention import (
    SEGMENTS,
    InitialAttention,
    Numbers,
    Start,
    coherence,
    locality,
    measure,
)
from wefpe_core.reporting import markdown_table

# --- Tables --------------------------------------------------------------------------------

_HEADINGS = {
    "spearman": "Spearman of distance",
    "query_rank": "place of the query",
    "relative_distance": "mean distance / uniform",
    "max_over_min": "largest / smallest",
    "relative_entropy": "entropy / uniform",
    "coherence": "coherence of segments",
}


def table_rows(found: Sequence[InitialAttention]) -> list[Row]:
    """A row for each encoding and seed, and one for each of its heads."""
    rows: list[Row] = []
    for each in found:
        heads = {"mean": each.mean} | dict(enumerate(each.heads))
        coherent = coherence(each.segments)
        for head, attention in heads.items():
            found_here = locality(attention, each.query)
            row = {"encoding": each.label, "seed": each.seed, "head": head} | asdict(found_here)
            row |= {"query_is_largest": found_here.query_is_largest}
            rows.append(row | {"coherence": coherent if head == "mean" else None})
    return rows


def summaries(found: Sequence[InitialAttention]) -> list[dict[str, Any]]:
    """For each encoding the mean and the range of every statistic over the seeds.

    `query_is_largest` counts the seeds in which the query itself gets the most, out of the
    `seeds_ordered` in which attention differs at all. It is None if attention differs in none.
    """
    result = []
    for label in dict.fromkeys(each.label for each in found):
        mine = [each for each in found if each.label == label]
        seeds = [each.locality for each in mine]
        largest = [each.query_is_largest for each in seeds if each.query_is_largest is not None]
        row: dict[str, Any] = {"encoding": label}
        row |= {"query_is_largest": sum(largest) if largest else None}
        row |= {"seeds_ordered": len(largest)}
        for name in _HEADINGS:
            values = [_statistic(each, name) for each in mine]
            # A statistic that is not defined for one seed is not defined for their mean.
            for end, number in (("", np.mean), ("_low", np.min), ("_high", np.max)):
                value = float(number(values))
                row[name + end] = None if math.isnan(value) else value
        result.append(row)
    return result


def _statistic(attention: InitialAttention, name: str) -> float:
    if name == "coherence":
        return coherence(attention.segments)
    value: float = getattr(attention.locality, name)
    return value


def locality_markdown(rows: Sequence[Row]) -> str:
    """Mean and range of every statistic, a line for each encoding."""
    headings = ["encoding", "largest at the query", *_HEADINGS.values()]
    lines = []
    for row in rows:
        largest = row["query_is_largest"]
        cells = [f"`{row['encoding']}`"]
        cells.append(DASH if largest is None else f"{largest} of {row['seeds_ordered']}")
        for name in _HEADINGS:
            low, mean, high = (row[name + end] for end in ("_low", "", "_high"))
            text = DASH if mean is None else f"{mean:.3g} ({low:.3g} to {high:.3g})"
            cells.append(text)
        lines.append(cells)
    return markdown_table(headings, lines)


# --- Figures -------------------------------------------------------------------------------

_TITLES = {
    "spearman": "Spearman of distance\nand attention",
    "query_rank": "place of the query\namong the patches",
    "relative_distance": "mean distance /\nthat of uniform",
    "max_over_min": "largest / smallest\nattention",
    "relative_entropy": "entropy /\nthat of uniform",
    "coherence": "coherence of\nsegments",
}
# The values of uniform attention, drawn as lines. Its Spearman is not defined; 0 stands for it.
_UNIFORM = {
    "spearman": 0.0,
    "relative_distance": 1.0,
    "max_over_min": 1.0,
    "relative_entropy": 1.0,
    "coherence": 1.0,
}
_ON_LOG_SCALE = ("query_rank", "max_over_min")


def draw_maps(found: Sequence[InitialAttention]) -> Any:
    """The mean over heads: a strip for each encoding with a map for each seed."""
    strips: dict[str, list[tuple[str, Numbers]]] = {}
    for each in found:
        strips.setdefault(each.label, []).append((f"seed {each.seed}", each.mean))
    return _draw_strips(strips, found[0].query)


def draw_heads(found: Sequence[InitialAttention]) -> Any:
    """The heads of the first seed: a strip for each encoding with a map for each head."""
    strips = {
        f"{each.label}, seed {each.seed}": [
            (f"head {number}", head) for number, head in enumerate(each.heads)
        ]
        for each in found
        if each.seed == found[0].seed
    }
    return _draw_strips(strips, found[0].query)


def _draw_strips(
    strips: Mapping[str, Sequence[tuple[str, Numbers]]], query: tuple[int, int]
) -> Any:
    """Each strip has its own scale of colours, or a flat map would show nothing beside others."""
    longest = max(map(len, strips.values()))
    across = 1 if len(strips) <= 3 else 2
    down = -(-len(strips) // across)
    figure = new_figure(max(1.0 * longest + 0.9, 2.6) * across + 0.2, 1.5 * down)
    figure.get_layout_engine().set(w_pad=0.08)  # the layout leaves no room for colour bar labels
    parts = figure.subfigures(down, across, squeeze=False).flatten()
    for part, (label, maps) in zip(parts, strips.items(), strict=False):
        part.suptitle(label, fontsize=8)
        _draw_strip(part, maps, query)
    return figure


def _draw_strip(part: Any, maps: Sequence[tuple[str, Numbers]], query: tuple[int, int]) -> None:
    from matplotlib.ticker import MaxNLocator

    panels = part.subplots(1, len(maps), squeeze=False)[0]
    scaled = [values * values.size for _, values in maps]
    low, high = min(m.min() for m in scaled), max(m.max() for m in scaled)
    if high - low < 1e-9:  # uniform but for rounding, which is not worth showing
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
    """A frame around the query that can be seen on light and dark ground."""
    x = query[1] + np.array([-0.5, -0.5, 0.5, 0.5, -0.5])
    y = query[0] + np.array([-0.5, 0.5, 0.5, -0.5, -0.5])
    panel.plot(x, y, color="white", lw=1.6)
    panel.plot(x, y, color="black", lw=0.7)


def draw_segments(found: Sequence[InitialAttention]) -> Any:
    """Patches with like attention in one colour: a strip for each encoding, a map for each seed."""
    strips: dict[str, list[InitialAttention]] = {}
    for each in found:
        strips.setdefault(each.label, []).append(each)
    longest = max(map(len, strips.values()))
    across = 1 if len(strips) <= 3 else 2
    down = -(-len(strips) // across)
    figure = new_figure(max(0.8 * longest, 2.6) * across + 0.2, 1.2 * down)
    parts = figure.subfigures(down, across, squeeze=False).flatten()
    for part, (label, mine) in zip(parts, strips.items(), strict=False):
        part.suptitle(label, fontsize=8)
        for panel, each in zip(part.subplots(1, len(mine), squeeze=False)[0], mine, strict=True):
            panel.imshow(each.segments, cmap="tab10", vmin=0.5, vmax=10.5)
            panel.set_xlabel(f"seed {each.seed}: {coherence(each.segments):.2f}", fontsize=6.5)
            panel.set_xticks([])
            panel.set_yticks([])
    return figure


def draw_statistics(found: Sequence[InitialAttention]) -> Any:
    """A row for each encoding and a panel for each statistic; dots are seeds, bars their mean."""
    labels = list(dict.fromkeys(each.label for each in found))
    longest = max(map(len, labels))
    figure = new_figure(7.8 + 0.055 * longest, 0.9 + 0.26 * len(labels))
    panels = figure.subplots(1, len(_TITLES), sharey=True)
    for panel, (name, title) in zip(panels, _TITLES.items(), strict=True):
        for y, label in enumerate(labels):
            values = [_statistic(each, name) for each in found if each.label == label]
            panel.plot(values, [y] * len(values), "o", color=BLUE, alpha=0.5)
            panel.plot(np.mean(values), y, "|", color=BLUE, markersize=11, markeredgewidth=1.6)
        uniform = _UNIFORM.get(name, (found[0].mean.size + 1) / 2.0)
        panel.axvline(uniform, color="0.5", linewidth=0.8, linestyle="--")
        if name in _ON_LOG_SCALE and _ranges_over_decades(found, name):
            panel.set_xscale("log")
        else:
            panel.locator_params(axis="x", nbins=3)
            panel.ticklabel_format(axis="x", useOffset=False)
        panel.tick_params(axis="x", labelsize=6.5)
        panel.set_title(title, fontsize=7.5)
        panel.grid(axis="x")
    panels[0].set_yticks(range(len(labels)), labels)
    panels[0].set_ylim(len(labels) - 0.4, -0.6)
    panels[0].set_xlim(-1.08, 1.08)
    return figure


def _ranges_over_decades(found: Sequence[InitialAttention], name: str) -> bool:
    """Whether a log scale has ticks that can be told apart: values differ by a factor of 4."""
    values = [_statistic(each, name) for each in found]
    return bool(np.max(values) > 4 * np.min(values))


# --- The analysis --------------------------------------------------------------------------

_STARTS_IN_WORDS = {
    "timm": "weights start as in timm (linear layers of deviation 0.02)",
    "authors": "weights start as in the published scripts (Xavier, patches normalised)",
}


def initial_attention_analysis(
    encodings: Options.Encodings = None,
    grid: Options.GridShape = GRID,
    seeds: Options.Seeds = range(5),
    *,
    query: Options.Query = None,
    image: Annotated[
        str,
        typer.Option(metavar="zero|noise|PHOTO", help="zero, noise, or the path of a photograph."),
    ] = "zero",
    start: Annotated[Start, typer.Option(help="How the weights of the model start.")] = "timm",
    progress: Progress = silent,
) -> Analysis:
    """Maps of the attention of one patch before any training, and how local they are.

    Each seed draws the weights of a model, the same for all encodings, and those of the encodings.
    """
    usual = dict.fromkeys((*USUAL, *available_encodings()))
    choices = choose_encodings(list(usual) if encodings is None else encodings, grid)
    seeds = tuple(dict.fromkeys(seeds))
    found = measure(choices, grid, seeds, query=query, image=image, start=start, progress=progress)
    with figure_settings():
        figures = {
            "maps": draw_maps(found),
            "heads": draw_heads(found),
            "segments": draw_segments(found),
            "statistics": draw_statistics(found),
        }
    height, width = grid
    at = found[0].query
    shown = f"a {image} image"
    if image not in ("zero", "noise"):
        shown = f"the photograph {Path(image).name} (normalised by mean and deviation 0.5)"
    caption = (
        f"Attention from patch (row {at[0]}, column {at[1]}) to the {height} x {width} patches in "
        f"the first block of a ViT-Ti/16 without any training, mean of {HEADS} heads (and each for "
        f"seed {seeds[0]}), class token left out, for {shown}; seeds "
        f"{', '.join(map(str, seeds))}; {_STARTS_IN_WORDS[start]}. "
        f"Encodings: {', '.join(dict.fromkeys(each.label for each in found))}. "
        "Colours: attention in units of uniform attention. Statistics: Spearman's rank correlation "
        "of distance and attention (-1 local, 0 not); place of the query itself among the patches "
        "(1 first; largest at the query means place 1, not defined if all attention is equal); "
        "mean distance over that of uniform attention; largest over smallest attention; entropy "
        "over that of uniform attention. Segments: the patches in at most "
        f"{SEGMENTS} groups with like attention (Ward), each with its coherence, how much oftener "
        "neighbours share a segment than any two patches do (1: chance). Where no position is "
        "added to the tokens, the patches of a zero image are all alike; with the start of the "
        "published scripts they are all zero."
    )
    return Analysis(
        name="attention-init",
        title="Attention before training",
        caption=caption,
        figures=figures,
        numbers={
            "grid": list(grid),
            "query": list(at),
            "image": image,
            "start": start,
            "seeds": list(seeds),
            "encodings": summaries(found),
        },
        tables={"locality": table_rows(found), "summary": summaries(found)},
        markdown=locality_markdown(summaries(found)),
    )


COMMAND = AnalysisCommand(
    initial_attention_analysis,
    docs_arguments={"start": "authors"},
    docs_files={
        "attention-init.md": "attention-init.md",
        "attention-init.png": "statistics.png",
        "attention-segments.png": "segments.png",
    },
)
