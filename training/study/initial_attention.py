"""Attention of an untrained ViT-Ti/16: is it local before any learning, as the paper says?"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from training.encodings.grid import Grid
from training.figure_style import BLUE, PLAIN_MAP, figure_settings, new_figure
from training.markdown import markdown_table
from training.models import VisionTransformer
from training.randomness import derived_seed
from training.study.analysis import DASH, Analysis, Row
from training.study.attention_measures import Locality, check_query, locality
from training.study.attention_models import read_photographs
from training.study.encoding_choice import DEPTH, DIM, GRID, HEADS, Subject
from wefpe_core.errors import InputError

# The figures of `training.study.initial_attention`.

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


Start = Literal["timm", "authors"]
PATCH = 16
# How the weights of the model begin. The published scripts leave the projection of attention at
# torch's default, which is Xavier's, set convolutions likewise, and normalise the patches.
STARTS: Mapping[Start, Mapping[str, Any]] = {
    "timm": {"weight_init": "trunc_normal", "patch_norm": False},
    "authors": {"weight_init": "xavier", "patch_norm": True},
}
_STARTS_IN_WORDS = {
    "timm": "weights start as in timm (linear layers of deviation 0.02)",
    "authors": "weights start as in the published scripts (Xavier, patches normalised)",
}


@dataclass(frozen=True)
class InitialAttention:
    """What one query looks at in the first block, by one encoding and one seed."""

    label: str
    seed: int
    heads: npt.NDArray[np.float64]  # (heads, height, width), over the patches, each sums to 1
    query: tuple[int, int]

    @property
    def mean(self) -> npt.NDArray[np.float64]:
        mean: npt.NDArray[np.float64] = self.heads.mean(axis=0)
        return mean

    @property
    def locality(self) -> Locality:
        return locality(self.mean, self.query)


def initial_attention_analysis(
    subjects: Sequence[Subject],
    grid: Grid = GRID,
    seeds: Sequence[int] = (0, 1, 2),
    *,
    query: tuple[int, int] | None = None,
    image: str = "zero",
    start: Start = "timm",
    progress: Callable[[str], None] | None = None,
) -> Analysis:
    """Maps of the attention of one patch before training, and how local they are.

    Parameters
    ----------
    subjects : sequence of Subject
        Encodings as typed.
    grid : (int, int)
        In patches of 16 pixels.
    seeds : sequence of int
        Each draws the weights of a model, the same for all encodings, and of the encodings.
    query : (int, int), optional
        Row and column of the patch that looks; the middle if not given.
    image : str
        "zero" (of normalised pixels), "noise" (normal, drawn anew by each seed), or a photograph.
    start : {"timm", "authors"}
        How the weights of the model start.
    progress : callable, optional
        Told which seed is at work.
    """
    seeds = tuple(dict.fromkeys(seeds))
    found = measure(subjects, grid, seeds, query=query, image=image, start=start, progress=progress)
    with figure_settings():
        figures = {
            "maps": draw_maps(found),
            "heads": draw_heads(found),
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
        "over that of uniform attention. Where no position is added to the tokens, the "
        "patches of a zero image are all alike, and with the start of the published scripts zero."
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


def measure(
    subjects: Sequence[Subject],
    grid: Grid = GRID,
    seeds: Sequence[int] = (0, 1, 2),
    *,
    query: tuple[int, int] | None = None,
    image: str = "zero",
    start: Start = "timm",
    progress: Callable[[str], None] | None = None,
) -> list[InitialAttention]:
    """The attention of the query for every encoding and seed, encodings first."""
    query = (grid[0] // 2, grid[1] // 2) if query is None else query
    check_query(query, grid)
    if start not in STARTS:
        raise InputError(f"start must be one of {', '.join(STARTS)}, got {start!r}")
    if not subjects or not seeds:
        raise InputError("initial attention needs an encoding and a seed")
    pixels = _pixels(image, grid)
    found: dict[tuple[str, int], InitialAttention] = {}
    for seed in seeds:
        if progress is not None:
            progress(f"seed {seed}")
        model = _model(grid, seed, start)
        images = pixels(seed)
        for subject in subjects:
            model.encoding = subject.build(grid, seed)
            heads = _query_rows(model, images, query)
            found[subject.label, seed] = InitialAttention(subject.label, seed, heads, query)
    return [found[subject.label, seed] for subject in subjects for seed in seeds]


def _model(grid: Grid, seed: int, start: Start) -> VisionTransformer:
    """A ViT-Ti/16; with one seed its weights are the same whatever the encoding."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived_seed(seed, "weights", "model"))
        model = VisionTransformer(
            Subject("none").build(grid),
            dim=DIM,
            depth=DEPTH,
            num_heads=HEADS,
            patch_size=PATCH,
            num_classes=0,
            **STARTS[start],
        )
    return model.double().eval()


@torch.no_grad()
def _query_rows(
    model: VisionTransformer, images: Tensor, query: tuple[int, int]
) -> npt.NDArray[np.float64]:
    """What the query looks at, by head; only the first block is asked."""
    tokens, grid = model.embed(images)
    block: Any = model.blocks[0]
    maps: list[Tensor] = []
    with model.encoding.shared_pass():
        block.attn(block.norm1(tokens), model.encoding, grid, maps)
    first = model.n_prefix
    rows = maps[0][0, :, first + query[0] * grid[1] + query[1], first:]
    rows = rows / rows.sum(dim=-1, keepdim=True)
    heads: npt.NDArray[np.float64] = rows.reshape(-1, *grid).numpy()
    return heads


def _pixels(image: str, grid: Grid) -> Callable[[int], Tensor]:
    """The image a model sees, (1, 3, height, width) in normalised pixels, as a function of seed."""
    height, width = grid[0] * PATCH, grid[1] * PATCH
    if image == "zero":
        return lambda seed: torch.zeros(1, 3, height, width, dtype=torch.float64)
    if image == "noise":

        def noise(seed: int) -> Tensor:
            drawn = torch.Generator().manual_seed(derived_seed(seed, "image"))
            return torch.randn(1, 3, height, width, generator=drawn, dtype=torch.float64)

        return noise
    [photograph] = read_photographs([Path(image)])
    pixels = photograph.fitted((height, width), 3)[None].double() / 255.0
    return lambda seed: (pixels - 0.5) / 0.5


def table_rows(found: Sequence[InitialAttention]) -> list[Row]:
    """A row for each encoding and seed, and one for each of its heads."""
    rows: list[Row] = []
    for each in found:
        first = {"encoding": each.label, "seed": each.seed}
        rows.append(first | {"head": "mean"} | _columns(each.locality))
        for number, head in enumerate(each.heads):
            rows.append(first | {"head": number} | _columns(locality(head, each.query)))
    return rows


def _columns(found: Locality) -> dict[str, Any]:
    """All of it; None where something is not defined."""
    values = asdict(found) | {"query_is_largest": found.query_is_largest}
    return {name: _or_none(value) for name, value in values.items()}


def _or_none(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def summaries(found: Sequence[InitialAttention]) -> list[dict[str, Any]]:
    """For each encoding the mean and the range of every statistic over the seeds.

    `query_is_largest` counts seeds, out of `seeds_ordered`, in which attention is not the same
    everywhere; None if it is in all.
    """
    result = []
    for label in dict.fromkeys(each.label for each in found):
        mine = [each.locality for each in found if each.label == label]
        largest = [m.query_is_largest for m in mine if m.query_is_largest is not None]
        row: dict[str, Any] = {"encoding": label}
        row |= {
            "query_is_largest": sum(largest) if largest else None,
            "seeds_ordered": len(largest),
        }
        for name in STATISTICS:
            values = [getattr(m, name) for m in mine]
            # Not defined for one seed is not defined for their mean.
            row[name] = _or_none(float(np.mean(values)))
            row[f"{name}_low"] = _or_none(float(np.min(values)))
            row[f"{name}_high"] = _or_none(float(np.max(values)))
        result.append(row)
    return result


def locality_markdown(rows: Sequence[Row]) -> str:
    """Mean and range of every statistic, a line for each encoding."""
    headings = ["encoding", "largest at the query", *(_HEADINGS[name] for name in STATISTICS)]
    lines = []
    for row in rows:
        largest = row["query_is_largest"]
        cells = [f"`{row['encoding']}`"]
        cells.append(DASH if largest is None else f"{largest} of {row['seeds_ordered']}")
        for name in STATISTICS:
            low, mean, high = (row[name + end] for end in ("_low", "", "_high"))
            text = DASH if mean is None else f"{mean:.3g} ({low:.3g} to {high:.3g})"
            cells.append(text)
        lines.append(cells)
    return markdown_table(headings, lines)


STATISTICS = ("spearman", "query_rank", "relative_distance", "max_over_min", "relative_entropy")
_HEADINGS = {
    "spearman": "Spearman of distance",
    "query_rank": "place of the query",
    "relative_distance": "mean distance / uniform",
    "max_over_min": "largest / smallest",
    "relative_entropy": "entropy / uniform",
}
