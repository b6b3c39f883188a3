"""Numbers of models and data sets by their names, and what follows from them for a config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from training.data.datasets import DATASETS

if TYPE_CHECKING:
    from training.config.schema import Experiment

# dim, depth, heads, patch size, image size
VIT_SIZES: Mapping[str, Mapping[str, int]] = {
    name: dict(zip(("dim", "depth", "num_heads", "patch_size", "image_size"), numbers, strict=True))
    for name, numbers in {
        "micro": (64, 4, 4, 4, 32),  # trains on a CPU
        "tiny": (192, 12, 3, 16, 224),
        "small": (384, 12, 6, 16, 224),
        "base": (768, 12, 12, 16, 224),
        "large": (1024, 24, 16, 16, 224),
    }.items()
}
DHVT = "dhvt_tiny"


class ModelShape(NamedTuple):
    """Width, number of blocks, number of heads and patch size of a model."""

    dim: int
    depth: int
    num_heads: int
    patch_size: int


DHVT_SHAPE = ModelShape(dim=192, depth=12, num_heads=4, patch_size=4)


def model_shape(config: Experiment) -> ModelShape:
    """The shape of the model: that of its name, where the config does not say otherwise."""
    model = config.model
    if model.name == DHVT:
        named = DHVT_SHAPE
    else:
        numbers: dict[str, Any] = dict(VIT_SIZES[model.name.removeprefix("vit_")])
        named = ModelShape(*(numbers[field] for field in ModelShape._fields))
    chosen = {field: getattr(model, field) for field in ModelShape._fields}
    return named._replace(**{key: value for key, value in chosen.items() if value is not None})


def image_size(config: Experiment) -> int | None:
    """Side of the images the model sees, or None if only the data can tell."""
    return config.data.image_size or DATASETS[config.data.name].size
