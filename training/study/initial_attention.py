"""Attention of an untrained ViT-Ti/16: what one patch looks at, and how local that is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from training.encodings.size import Grid
from training.models import VisionTransformer
from training.randomness import derived_seed
from training.study.attention_models import read_photographs
from training.study.encoding_choice import DEPTH, DIM, GRID, HEADS, EncodingChoice, check_patch
from training.study.pair_statistics import is_undefined, ranks, spearman
from wefpe_core.errors import InputError

Numbers = npt.NDArray[np.float64]
Segments = npt.NDArray[np.int64]

_DIGITS = 12  # decimals of attention in units of uniform attention; the rest is rounding


@dataclass(frozen=True)
class Locality:
    """Statistics of the attention of one query over the patches of a grid.

    Attributes
    ----------
    spearman
        The rank correlation of distance and attention: -1 if attention falls with every step away,
        NaN if it is the same everywhere.
    query_rank
        The rank of the query among the patches by the attention that it gives them. The first is
        1; patches with equal attention share the mean of their ranks.
    relative_distance
        The mean distance weighted by attention, over that of equal weights: 0 if all attention
        goes to the query itself, 1 for uniform attention.
    max_over_min
        The largest over the smallest attention.
    relative_entropy
        The entropy over that of uniform attention: 1 if uniform, 0 if all goes to one patch.
    largest_row, largest_column
        The patch with the largest attention; None if it is the same everywhere.
    """

    spearman: float
    query_rank: float
    relative_distance: float
    max_over_min: float
    relative_entropy: float
    largest_row: int | None
    largest_column: int | None

    @property
    def query_is_largest(self) -> bool | None:
        """Whether the query gives itself more than any other patch; None if all get the same."""
        return None if self.largest_row is None else self.query_rank == 1.0


def distances_from(query: tuple[int, int], grid: Grid) -> Numbers:
    """The Euclidean distance of every patch from the query, in patches, (height, width)."""
    rows, columns = np.indices(grid)
    distances: Numbers = np.hypot(rows - query[0], columns - query[1])
    return distances


def locality(attention: Numbers, query: tuple[int, int]) -> Locality:
    """The statistics of an attention map (height, width) of patches; it need not sum to 1."""
    check_patch(query, attention.shape)
    weights = attention / attention.sum()
    distances = distances_from(query, attention.shape)
    # Values that differ only by rounding are equal and have no order.
    ordered = np.round(weights * weights.size, _DIGITS).ravel()
    row: int | None = None
    column: int | None = None
    if not is_undefined(ordered):
        row, column = divmod(int(ordered.argmax()), weights.shape[1])
    return Locality(
        spearman=spearman(distances.ravel(), ordered),
        query_rank=1.0 + float(ranks(-ordered)[query[0] * weights.shape[1] + query[1]]),
        relative_distance=float((weights * distances).sum() / distances.mean()),
        max_over_min=float(weights.max() / weights.min()) if weights.min() > 0 else float("inf"),
        relative_entropy=relative_entropy(weights),
        largest_row=row,
        largest_column=column,
    )


def relative_entropy(weights: Numbers) -> float:
    """The entropy of a map over that of a uniform one: 1 if uniform, 0 if all is in one patch."""
    shares = weights[weights > 0] / weights.sum()
    return float(-(shares * np.log(shares)).sum() / np.log(weights.size))


SEGMENTS = 6


def segments_of(rows: Numbers, grid: Grid, count: int = SEGMENTS) -> Segments:
    """The patches in at most `count` groups with like rows, numbered from 1, (height, width).

    Groups are merged as Ward does, from single patches on. Rows that differ by rounding only
    are one group.
    """
    from scipy.cluster.hierarchy import fcluster, linkage

    scaled = np.round(rows * rows.shape[1], _DIGITS)
    if len(rows) == 1 or np.all(scaled == scaled[0]):
        return np.ones(grid, dtype=np.int64)
    groups = fcluster(linkage(scaled, "ward"), count, "maxclust")
    return np.asarray(groups, dtype=np.int64).reshape(grid)


def coherence(segments: Segments) -> float:
    """How much oftener neighbours share a segment than any two patches do; 1 is chance.

    Neighbours are patches side by side or one above the other. NaN without any.
    """
    pairs = (segments[:, 1:] == segments[:, :-1], segments[1:] == segments[:-1])
    neighbours = np.concatenate([each.ravel() for each in pairs])
    sizes = np.unique(segments, return_counts=True)[1]
    total = segments.size
    if not neighbours.size:
        return float("nan")
    of_any = (sizes * (sizes - 1)).sum() / (total * (total - 1))
    return float(neighbours.mean() / of_any) if of_any else float("nan")


# --- Measuring -----------------------------------------------------------------------------

Start = Literal["timm", "authors"]
PATCH = 16
# How the weights of the model start. In the published scripts the projection of attention keeps
# torch's default, which is Xavier's, convolutions are set in the same way, and patches are
# normalised.
STARTS: Mapping[Start, Mapping[str, Any]] = {
    "timm": {"weight_init": "trunc_normal", "patch_norm": False},
    "authors": {"weight_init": "xavier", "patch_norm": True},
}


@dataclass(frozen=True)
class InitialAttention:
    """The attention of one query in the first block, for one encoding and one seed."""

    label: str
    seed: int
    heads: Numbers  # (heads, height, width); each head sums to 1 over the patches
    query: tuple[int, int]
    segments: Segments  # patches with like attention, the mean of the heads, (height, width)

    @property
    def mean(self) -> Numbers:
        mean: Numbers = self.heads.mean(axis=0)
        return mean

    @property
    def locality(self) -> Locality:
        return locality(self.mean, self.query)


def measure(
    choices: Sequence[EncodingChoice],
    grid: Grid = GRID,
    seeds: Sequence[int] = (0, 1, 2),
    *,
    query: tuple[int, int] | None = None,
    image: str = "zero",
    start: Start = "timm",
    progress: Callable[[str], None] = lambda text: None,
) -> list[InitialAttention]:
    """The attention of the query for every encoding and seed: all seeds of the first, and so on.

    Each seed draws the weights of a model, the same for all encodings, and those of the encodings.
    The image is "zero" (of normalised pixels), "noise" (normal, another for each seed), or the path
    of a photograph. The query is the middle patch by default.
    """
    query = (grid[0] // 2, grid[1] // 2) if query is None else query
    check_patch(query, grid)
    if start not in STARTS:
        raise InputError(f"start must be one of {', '.join(STARTS)}, got {start!r}")
    if not choices or not seeds:
        raise InputError("initial attention needs an encoding and a seed")
    pixels = _pixels(image, grid)
    found: dict[tuple[str, int], InitialAttention] = {}
    for seed in seeds:
        progress(f"seed {seed}")
        model = _model(grid, seed, start)
        images = pixels(seed)
        for choice in choices:
            model.encoding = choice.build(grid, seed)
            rows = _attention(model, images)
            heads = rows[:, query[0] * grid[1] + query[1]].reshape(-1, *grid)
            segments = segments_of(rows.mean(axis=0), grid)
            found[choice.label, seed] = InitialAttention(choice.label, seed, heads, query, segments)
    return [found[choice.label, seed] for choice in choices for seed in seeds]


def _model(grid: Grid, seed: int, start: Start) -> VisionTransformer:
    """A ViT-Ti/16, whose weights depend on the seed and not on the encoding."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived_seed(seed, "weights", "model"))
        model = VisionTransformer(
            EncodingChoice("none").build(grid),
            dim=DIM,
            depth=DEPTH,
            num_heads=HEADS,
            patch_size=PATCH,
            num_classes=0,
            **STARTS[start],
        )
    return model.double().eval()


@torch.no_grad()
def _attention(model: VisionTransformer, images: Tensor) -> Numbers:
    """Attention of patches in each head of the first block, (heads, patches, patches).

    No other block is computed. Rows sum to 1 over the patches.
    """
    maps: list[Tensor] = []
    with model.encoding.shared_pass():
        tokens, grid = model.embed(images)
        block: Any = model.blocks[0]
        block.attn(block.norm1(tokens), model.encoding, grid, maps)
    rows = maps[0][0, :, model.n_prefix :, model.n_prefix :]
    of_patches: Numbers = (rows / rows.sum(dim=-1, keepdim=True)).numpy()
    return of_patches


def _pixels(image: str, grid: Grid) -> Callable[[int], Tensor]:
    """The image for each seed, (1, 3, height, width), in normalised pixels."""
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
