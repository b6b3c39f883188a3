"""Numbers that follow from several keys: the shape of the model, the size of the images."""

from __future__ import annotations

from typing import Any, NamedTuple

from training.config.schema import Experiment
from training.data.datasets import DATASETS

DHVT = "dhvt_tiny"


class ModelShape(NamedTuple):
    """Width, blocks, heads and patches of a model."""

    dim: int
    depth: int
    num_heads: int
    patch_size: int


def model_shape(config: Experiment) -> ModelShape:
    """The shape of the model: that of its name, where the config does not say otherwise."""
    from training.models import VIT_SIZES

    model = config.model
    if model.name == DHVT:
        named = ModelShape(dim=192, depth=12, num_heads=4, patch_size=4)
    else:
        numbers: dict[str, Any] = dict(VIT_SIZES[model.name.removeprefix("vit_")])
        named = ModelShape(*(numbers[field] for field in ModelShape._fields))
    chosen = {field: getattr(model, field) for field in ModelShape._fields}
    return named._replace(**{key: value for key, value in chosen.items() if value is not None})


def image_size(config: Experiment) -> int | None:
    """Side of the images the model sees, or None if only the data can tell."""
    return config.data.image_size or DATASETS[config.data.name].size
