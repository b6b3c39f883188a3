"""Attention rolled out over the layers, on photographs or test images.

After S. Abnar and W. Zuidema, Quantifying Attention Flow in Transformers (ACL 2020): the mean over
heads, half of it and half identity for the residual path, multiplied over the layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Annotated, Any

import numpy as np
import torch
import typer
from torch import Tensor

from training.augmentation import Normalisation
from training.figure_style import PLAIN_MAP, figure_settings, in_lines, new_figure
from training.parsing import (
    ImageSize,
    grid_of_size,
    height_and_width,
    read_image_size,
    size_text,
)
from training.study.analysis import (
    Analysis,
    AnalysisCommand,
    Options,
    Progress,
    ReadBy,
    Row,
    silent,
)
from training.study.attention_models import AttentionModel, Source, open_models, read_photographs
from training.study.initial_attention import Numbers, relative_entropy
from training.study.run_groups import runs_text
from wefpe_core.errors import InputError

# --- Measuring -----------------------------------------------------------------------------


def rollout(layers: Sequence[Tensor]) -> Tensor:
    """The rollout (batch, tokens, tokens) of attention maps (batch, heads, tokens, tokens).

    Row i says how much each token of the first layer contributes to token i of the last; rows sum
    to 1.
    """
    if not layers:
        raise InputError("a rollout needs the attention of one layer at least")
    total: Tensor | None = None
    for attention in layers:
        mean = attention.to(torch.float64).mean(dim=1)
        mixed = 0.5 * mean + 0.5 * torch.eye(mean.shape[-1], dtype=mean.dtype, device=mean.device)
        mixed = mixed / mixed.sum(dim=-1, keepdim=True)
        total = mixed if total is None else mixed @ total
    assert total is not None
    return total


def map_of_rollout(rolled: Tensor, grid: tuple[int, int], *, pooling: str) -> Numbers:
    """How much each patch contributes to what the head sees, (batch, height, width); sums are 1.

    That is the row of the class token, or with mean pooling the mean of the rows of the patches.
    The columns of prefix tokens are left out.
    """
    first = rolled.shape[-1] - grid[0] * grid[1]
    row = rolled[:, 0] if pooling == "token" else rolled[:, first:].mean(dim=1)
    patches = row[:, first:]
    patches = patches / patches.sum(dim=-1, keepdim=True)
    maps: Numbers = patches.reshape(-1, *grid).cpu().numpy()
    return maps


def share_in_centre(weights: Numbers) -> float:
    """The share of a map in the middle half of height and width; its edge may cut patches."""
    height, width = weights.shape
    covered = _middle(height)[:, None] * _middle(width)[None, :]
    return float((weights * covered).sum() / weights.sum())


def _middle(count: int) -> Numbers:
    """For `count` equal parts of a line, the share of each that lies in the line's middle half."""
    edges = np.arange(count + 1) / count
    inside = np.clip(edges, 0.25, 0.75)
    covered: Numbers = np.diff(inside) * count
    return covered


def map_correlation(one: Numbers, other: Numbers) -> float:
    """Pearson's correlation of two maps, on the finer grid if theirs differ; NaN if one is flat."""
    if one.shape != other.shape:
        finer = max(one.shape, other.shape, key=lambda shape: shape[0] * shape[1])
        one, other = (_resized(each, finer) for each in (one, other))
    if np.ptp(one) == 0 or np.ptp(other) == 0:
        return float("nan")
    return float(np.corrcoef(one.ravel(), other.ravel())[0, 1])


def _resized(weights: Numbers, shape: tuple[int, ...]) -> Numbers:
    image = torch.from_numpy(weights)[None, None]
    resized = torch.nn.functional.interpolate(image, size=shape, mode="bilinear")
    values: Numbers = resized[0, 0].numpy()
    return values


@dataclass(frozen=True)
class ShownImage:
    """An image as each model sees it, before it is normalised."""

    name: str
    seen: tuple[Tensor, ...]  # uint8 (channels, height, width), one for each model


@dataclass(frozen=True)
class RolloutMap:
    """The rollout and the answer of one model for one image."""

    model: str
    image: str
    weights: Numbers  # (height, width), sums to 1
    predicted: str
    probability: float


def _test_pictures(models: Sequence[AttentionModel], count: int) -> list[ShownImage]:
    """The first test images of the first run, which all models must be able to see."""
    runs = [model.run for model in models if model.run is not None]
    if not runs:
        raise InputError("published weights come without test images: name photographs")
    splits = runs[0].splits
    strange = [m.label for m in models if m.normalise.channels != splits.channels]
    if strange:
        raise InputError(
            f"{strange[0]} does not take the images of {runs[0].folder.path}: it has other "
            "channels; name photographs"
        )
    test = splits.open_test()
    if not 0 < count <= len(test):
        raise InputError(f"there are {len(test)} test images, not {count}")
    stored = test.fetch(torch.arange(count))
    labels = [test.class_names[int(label)] for label in test.labels[:count]]
    return [
        ShownImage(f"test image {number}: {label}", (image,) * len(models))
        for number, (image, label) in enumerate(zip(stored, labels, strict=True))
    ]


@torch.no_grad()
def maps_of(
    model: AttentionModel, place: int, pictures: Sequence[ShownImage], size: ImageSize
) -> list[RolloutMap]:
    """The maps of one model, the `place`-th, over all pictures."""
    own = model.normalise
    at_size = Normalisation(own.mean, own.std, size=height_and_width(size), channels=own.channels)
    batch = torch.cat([at_size(picture.seen[place][None]) for picture in pictures])
    logits, attention = model.model(batch, return_attention=True)
    grid = grid_of_size(size, model.patch_size)
    maps = map_of_rollout(rollout(attention), grid, pooling=model.model.pooling)
    best = logits.softmax(dim=-1).max(dim=-1)
    names = model.class_names
    return [
        RolloutMap(
            model.label,
            picture.name,
            weights,
            names[int(number)] if names else f"class {int(number)}",
            float(probability),
        )
        for picture, weights, probability, number in zip(
            pictures, maps, best.values, best.indices, strict=True
        )
    ]


def map_rows(found: Sequence[RolloutMap]) -> list[Row]:
    """A row for each model and image."""
    return [
        {
            "model": each.model,
            "image": each.image,
            "predicted": each.predicted,
            "probability": each.probability,
            "grid": " x ".join(map(str, each.weights.shape)),
            "relative_entropy": relative_entropy(each.weights),
            "share_in_centre": share_in_centre(each.weights),
            "largest_over_uniform": float(each.weights.max() * each.weights.size),
        }
        for each in found
    ]


def correlation_rows(labels: Sequence[str], found: Sequence[RolloutMap]) -> list[Row]:
    """A row for each pair of models and image."""
    maps = {(each.model, each.image): each.weights for each in found}
    images = dict.fromkeys(each.image for each in found)
    return [
        {
            "one": one,
            "other": other,
            "image": image,
            "correlation": map_correlation(maps[one, image], maps[other, image]),
        }
        for one, other in combinations(labels, 2)
        for image in images
    ]


# --- Figure --------------------------------------------------------------------------------

_SIDE = 1.75  # inches
_LINE = 28  # characters in a line above a panel
_UNIT = (0.0, 1.0, 1.0, 0.0)  # images and maps fill the same square, whatever their grids are


def draw_maps(
    pictures: Sequence[ShownImage], labels: Sequence[str], found: Sequence[RolloutMap]
) -> Any:
    """A row for each image: the image and the map of each model, on one scale of colours.

    Maps stand beside the image. Over it, the brightness of the image would be taken for theirs.
    """
    maps = {(each.model, each.image): each for each in found}
    height, width = _finest(pictures[0]).shape[-2:]
    names = [in_lines(label, _LINE) for label in labels]
    side = _SIDE * min(max(height / width, 0.5), 2.0)
    tall = (side + 0.3) * len(pictures) + 0.13 * max(name.count("\n") + 1 for name in names)
    figure = new_figure(_SIDE * (len(labels) + 1) + 0.6, tall)
    grid = figure.subplots(len(pictures), len(labels) + 1, squeeze=False)
    for number, (row, picture) in enumerate(zip(grid, pictures, strict=True)):
        _draw_image(row[0], _finest(picture))
        row[0].set_title(_short(picture.name), fontsize=7)
        mine = [maps[label, picture.name] for label in labels]
        scaled = [each.weights * each.weights.size for each in mine]
        low, high = min(m.min() for m in scaled), max(m.max() for m in scaled)
        for panel, each, values, name in zip(row[1:], mine, scaled, names, strict=True):
            image = panel.imshow(
                values, cmap=PLAIN_MAP, vmin=low, vmax=high, extent=_UNIT, aspect="auto"
            )
            panel.set_box_aspect(height / width)
            answer = f"{_short(each.predicted)}, {each.probability:.0%}"
            panel.set_title(answer if number else f"{name}\n{answer}", fontsize=7)
        bar = figure.colorbar(image, ax=list(row), shrink=0.85, pad=0.015, aspect=14)
        bar.ax.tick_params(labelsize=6, length=2)
        for panel in row:
            panel.set_xticks([])
            panel.set_yticks([])
    return figure


def _finest(picture: ShownImage) -> Tensor:
    """The largest version of the image that a model sees, in colour if there is one."""
    return max(picture.seen, key=lambda seen: (seen.shape[-2] * seen.shape[-1], seen.shape[0]))


def _draw_image(panel: Any, pixels: Tensor) -> None:
    height, width = pixels.shape[-2:]
    image = pixels.permute(1, 2, 0).numpy() / 255.0
    if image.shape[-1] == 1:
        image = image.repeat(3, axis=-1)
    panel.imshow(image, extent=_UNIT, aspect="auto")
    panel.set_box_aspect(height / width)


def _short(text: str) -> str:
    return text if len(text) <= _LINE else f"{text[: _LINE - 1]}…"


# --- The analysis --------------------------------------------------------------------------


def _read_channels(name: str, text: str) -> tuple[float, ...]:
    """One number for all channels, or one for each of the three."""
    least = 0.0 if name == "mean" else 1e-6  # images are divided by the standard deviation
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if len(numbers) not in (1, 3) or not all(least <= number <= 1 for number in numbers):
        raise InputError(f"--{name} is a number from 0 to 1, or three, as in 0.5, got {text!r}")
    return numbers


def rollout_analysis(
    models: Annotated[
        Sequence[Source],
        ReadBy(str, is_repeated=True),
        typer.Argument(
            help="Folders of finished runs, files of weights in timm's names, or "
            "hf-hub:OWNER/NAME. Several stand side by side.",
            metavar="MODEL",
        ),
    ],
    images: Options.Images = None,
    *,
    test_images: Annotated[
        int, typer.Option(min=1, metavar="N", help="How many test images of the run to show.")
    ] = 4,
    image_size: Annotated[
        ImageSize | None,
        ReadBy(read_image_size),
        typer.Option(
            metavar="PIXELS|HEIGHTxWIDTH",
            help="Scale photographs to cover this size and cut out the middle. The default is the "
            "size of each model's training.",
        ),
    ] = None,
    mean: Annotated[
        Sequence[float],
        ReadBy(partial(_read_channels, "mean")),
        typer.Option(
            metavar="NUMBERS",
            help="What is subtracted from pixels for models from files of weights, one number or "
            "three. A run has its own. The default is 0.5.",
        ),
    ] = (0.5,),
    std: Annotated[
        Sequence[float],
        ReadBy(partial(_read_channels, "std")),
        typer.Option(
            metavar="NUMBERS",
            help="What the differences from the mean are divided by, one number or three. The "
            "default is 0.5.",
        ),
    ] = (0.5,),
    progress: Progress = silent,
) -> Analysis:
    """Attention rolled out over the layers, with entropy, share in the centre and correlations."""
    photographs = None if images is None else read_photographs(images)
    if photographs is not None and not photographs:
        raise InputError("no photograph is named")
    opened = open_models(models, mean=mean, std=std)
    sizes = [image_size or model.normalise.size for model in opened]
    for model, size in zip(opened, sizes, strict=True):
        grid_of_size(size, model.patch_size)
    if photographs is None:
        pictures = _test_pictures(opened, test_images)
    else:
        pictures = [
            ShownImage(
                photograph.name,
                tuple(
                    photograph.fitted(size, model.normalise.channels)
                    for model, size in zip(opened, sizes, strict=True)
                ),
            )
            for photograph in photographs
        ]
    found = []
    for place, model in enumerate(opened):
        progress(model.label)
        found += maps_of(model, place, pictures, sizes[place])
    labels = [model.label for model in opened]
    with figure_settings():
        figure = draw_maps(pictures, labels, found)
    return Analysis(
        name="rollout",
        title="Attention rollout",
        caption=_caption(opened, sizes, pictures, is_photograph=photographs is not None),
        figures={"rollout": figure},
        numbers={"maps": map_rows(found), "correlations": correlation_rows(labels, found)},
        tables={"maps": map_rows(found), "correlations": correlation_rows(labels, found)},
    )


_POOLED = {
    "token": "the row of the class token",
    "mean": "the mean of the rows of the patches, which are pooled by their mean",
}


def _caption(
    models: Sequence[AttentionModel],
    sizes: Sequence[ImageSize],
    pictures: Sequence[ShownImage],
    *,
    is_photograph: bool,
) -> str:
    where = "photographs" if is_photograph else "the first test images of the first run's data"
    first = (
        "Attention rollout (Abnar and Zuidema): the mean of the attention over heads, half of it "
        f"and half identity, multiplied over the layers; over {len(pictures)} images ({where}). "
        "Columns of prefix tokens are left out. Above each map stand the class that the model "
        "names and its probability. Colours: the share of a patch in units of a uniform map, on "
        "one scale for each image. The centre is the middle half of height and width, a quarter of "
        "the image."
    )
    parts = [first]
    for model, size in zip(models, sizes, strict=True):
        numbers = model.normalise
        mean, std = (", ".join(f"{x:.4g}" for x in xs) for xs in (numbers.mean, numbers.std))
        height, width = grid_of_size(size, model.patch_size)
        parts.append(
            f"{model.label}: {_POOLED[model.model.pooling]}; {size_text(size)} pixels, "
            f"{height}x{width} patches, normalised with mean {mean} and deviation {std}."
        )
    runs = [(model.label, model.run.experiment) for model in models if model.run is not None]
    if runs:
        parts.append(runs_text(runs))
    return " ".join(parts)


COMMAND = AnalysisCommand(rollout_analysis)
