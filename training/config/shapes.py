"""Numbers that follow from several keys: the shape of the model, the size of the images."""

from __future__ import annotations

from typing import Any, NamedTuple

from training.config.schema import Experiment

# Pixels of a side, where all images of a data set are equal squares.
NATIVE_SIZES = {"cifar100": 32, "cifar10": 32, "digits": 8, "shapes": 16}
# Where that is fixed; the validation images among them.
TRAINING_IMAGES = {
    "cifar100": 50_000,
    "cifar10": 50_000,
    "digits": 1437,
    "shapes": 2048,
    "vtab": 1000,
}
GREY = ("digits", "shapes")
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
    return config.data.image_size or NATIVE_SIZES.get(config.data.name)
