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

from training.analyses.analysis import DASH, Analysis, Row
from training.analyses.attention_locality import Locality, check_query, locality
from training.analyses.initial_attention_figures import draw_heads, draw_maps, draw_statistics
from training.analyses.photographs import read_photographs
from training.analyses.subjects import DEPTH, DIM, GRID, HEADS, Subject
from training.encodings.grid import Grid
from training.figure_style import figure_settings
from training.markdown import markdown_table
from training.models import VisionTransformer
from training.models.position_hooks import shared_tables
from training.randomness import derived_seed
from wefpe_core.errors import InputError

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
    with shared_tables(model.encoding):
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
