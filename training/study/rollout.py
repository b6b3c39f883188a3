"""Attention rollout on photographs or test images, of one model or of several side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from training.augmentation import Normalisation
from training.figure_style import PLAIN_MAP, figure_settings, new_figure
from training.parsing import ImageSize, grid_of_size, height_and_width, size_text
from training.study.analysis import Analysis, Row
from training.study.attention_measures import (
    map_correlation,
    map_of_rollout,
    relative_entropy,
    rollout,
    share_in_centre,
)
from training.study.attention_models import AttentiveModel, Source, open_models, read_photographs
from training.study.run_groups import runs_text
from wefpe_core.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor


# The figure of `training.study.rollout`.

_SIDE = 1.75  # inches
_LINE = 28  # letters above a panel
_UNIT = (0.0, 1.0, 1.0, 0.0)  # images and maps fill the same square, whatever their grids


def draw_maps(
    pictures: Sequence[Picture], labels: Sequence[str], found: Sequence[RolloutMap]
) -> Any:
    """A row for each image: the image, then the map of each model, in colours of one scale.

    Maps stand beside the image, not over it: its light and dark would be taken for theirs.
    """
    maps = {(each.model, each.image): each for each in found}
    height, width = _finest(pictures[0]).shape[-2:]
    names = [_lines(label) for label in labels]
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


def _finest(picture: Picture) -> Tensor:
    """The image as the model with the largest one sees it, in colour if one of those does."""
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


def _lines(text: str) -> str:
    return "\n".join(text[start : start + _LINE] for start in range(0, len(text), _LINE))


_POOLED = {
    "token": "the row of the class token",
    "mean": "the mean of the rows of the patches, which are pooled by their mean",
}


@dataclass(frozen=True)
class Picture:
    """An image as each model sees it, before it is normalised."""

    name: str
    seen: tuple[Tensor, ...]  # uint8 (channels, height, width), one for each model


@dataclass(frozen=True)
class RolloutMap:
    """What one model makes of one image."""

    model: str
    image: str
    weights: npt.NDArray[np.float64]  # (height, width), sums to 1
    predicted: str
    probability: float


def rollout_analysis(
    sources: Sequence[Source],
    images: Sequence[Path] | None = None,
    *,
    test_images: int = 4,
    image_size: ImageSize | None = None,
    mean: Sequence[float] = (0.5,),
    std: Sequence[float] = (0.5,),
    progress: Callable[[str], None] | None = None,
) -> Analysis:
    """Rollout maps over images, with their entropy, share in the centre and correlations.

    Parameters
    ----------
    sources : sequence of str or Path
        Folders of finished runs, files of weights in timm's names, or ``hf-hub:owner/name``.
    images : sequence of Path, optional
        Photographs; by default the first test images of the data of the first run.
    test_images : int
        How many of those.
    image_size : int or (int, int), optional
        Size in pixels photographs are shown in; by default that of each model's training. They are
        scaled to cover it and cut to the middle, so that nothing is distorted.
    mean, std : sequence of float
        Normalisation of models from files of weights; a run has its own.
    progress : callable, optional
        Told which model is at work.

    Raises
    ------
    InputError
        A file is missing or no image, patches do not fit, or a model has no attention to roll out.
    """
    photographs = None if images is None else read_photographs(images)
    if photographs is not None and not photographs:
        raise InputError("no photograph is named")
    models = open_models(sources, mean=mean, std=std)
    sizes = [image_size or model.normalise.size for model in models]
    for model, size in zip(models, sizes, strict=True):
        grid_of_size(size, model.patch_size)
    if photographs is None:
        pictures = _test_pictures(models, test_images)
    else:
        pictures = [
            Picture(
                photograph.name,
                tuple(
                    photograph.fitted(size, model.normalise.channels)
                    for model, size in zip(models, sizes, strict=True)
                ),
            )
            for photograph in photographs
        ]
    found = []
    for place, model in enumerate(models):
        if progress is not None:
            progress(model.label)
        found += maps_of(model, place, pictures, sizes[place])
    labels = [model.label for model in models]
    with figure_settings():
        figure = draw_maps(pictures, labels, found)
    return Analysis(
        name="rollout",
        title="Attention rollout",
        caption=_caption(models, sizes, pictures, is_photograph=photographs is not None),
        figures={"rollout": figure},
        numbers={"maps": map_rows(found), "correlations": correlation_rows(labels, found)},
        tables={"maps": map_rows(found), "correlations": correlation_rows(labels, found)},
    )


def _test_pictures(models: Sequence[AttentiveModel], count: int) -> list[Picture]:
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
        Picture(f"test image {number}: {label}", (image,) * len(models))
        for number, (image, label) in enumerate(zip(stored, labels, strict=True))
    ]


@torch.no_grad()
def maps_of(
    model: AttentiveModel, place: int, pictures: Sequence[Picture], size: ImageSize
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


def _caption(
    models: Sequence[AttentiveModel],
    sizes: Sequence[ImageSize],
    pictures: Sequence[Picture],
    *,
    is_photograph: bool,
) -> str:
    where = "photographs" if is_photograph else "the first test images of the first run's data"
    first = (
        "Attention rollout (Abnar and Zuidema): attention as mean over heads, half of it and half "
        f"identity, multiplied over the layers; over {len(pictures)} images ({where}). Columns of "
        "prefix tokens are left out. Above each map stand the class the model names and the "
        "probability it gives it. Colours: share of a patch in units of a uniform map, one scale "
        "for each image. The centre is the middle half of height and width, a quarter of the image."
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
    runs = {model.label: [model.run.experiment] for model in models if model.run is not None}
    if runs:
        parts.append(runs_text(runs))
    return " ".join(parts)
