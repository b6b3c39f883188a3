"""Published weights as they are: a model whose shape the weights tell, with their own head.

timm's files of weights have a ``config.json`` beside them that says how images were prepared.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from training.config.schema import HUB_PREFIX
from training.models.checkpoint_files import CheckpointError, hub_checkpoint, read_weights
from training.models.pretrained import POSITIONS, load_checkpoint, split_positions
from training.models.vit import VisionTransformer, encoding_by_name

_HEAD_WIDTH = 64  # of one head of attention, in every published size
_IMAGENET_MEAN, _IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Preparation:
    """What is done to images before a model sees them."""

    image_size: int
    crop_share: float = 0.9  # side of the middle that is cut out / shorter side of the whole
    interpolation: Literal["bilinear", "bicubic"] = "bicubic"
    mean: tuple[float, ...] = _IMAGENET_MEAN
    std: tuple[float, ...] = _IMAGENET_STD

    @property
    def resize(self) -> int:
        """The shorter side of an image before its middle is cut out, rounded as timm does."""
        return math.floor(self.image_size / self.crop_share)

    def __str__(self) -> str:
        return (
            f"shorter side to {self.resize}, middle of {self.image_size} x {self.image_size}, "
            f"{self.interpolation}, mean {self.mean}, std {self.std}"
        )


def open_published(
    source: str | Path, *, num_heads: int | None = None
) -> tuple[VisionTransformer, Preparation, bool]:
    """A model with published weights and their head, in evaluation mode.

    The weights tell width, depth, patch size, tokens, pooling, factors of branches, classes and
    the size of the images. They do not tell the number of heads, which is one for each 64 channels
    unless `num_heads` is given. The last result says whether a ``config.json`` beside the weights
    told the preparation; else it is the usual one.
    """
    if isinstance(source, str) and source.startswith(HUB_PREFIX):
        repository = source.removeprefix(HUB_PREFIX)
        source = hub_checkpoint(repository)
        hub_checkpoint(repository, "config.json")
    weights, path = read_weights(source)
    for name in ("patch_embed.proj.weight", "head.weight", POSITIONS):
        if name not in weights:
            raise CheckpointError(
                f"{path} has no {name}: it is no vision transformer with a head and a learned "
                "table of positions (a finished run is scored by wefpe evaluate)"
            )
    model = _model_for(weights, path, num_heads)
    load_checkpoint(model, path, head="keep")
    patch = model.patch_embed.patch_size
    usual = Preparation(model.encoding.size.grid[0] * patch)
    told = path.with_name("config.json")
    if not told.is_file():
        return model.eval(), usual, False
    return model.eval(), _told(usual, told), True


def _model_for(
    weights: Mapping[str, Tensor], path: Path, num_heads: int | None
) -> VisionTransformer:
    dim, channels, patch_size, _ = weights["patch_embed.proj.weight"].shape
    depth = len({name.split(".")[1] for name in weights if name.startswith("blocks.")})
    if num_heads is None:
        num_heads, rest = divmod(dim, _HEAD_WIDTH)
        if rest:
            raise CheckpointError(
                f"{path}: {dim} channels are no multiple of {_HEAD_WIDTH}; say how many heads"
            )
    grid = split_positions(weights, path).grid
    registers = weights["reg_token"].shape[1] if "reg_token" in weights else 0
    shape: dict[str, Any] = {
        "dim": dim,
        "depth": depth,
        "num_heads": num_heads,
        "patch_size": patch_size,
    }
    has_token = "cls_token" in weights
    encoding = encoding_by_name(
        "learned",
        image_size=(grid[0] * patch_size, grid[1] * patch_size),
        n_prefix=has_token + registers,
        **shape,
    )
    hidden = weights.get("blocks.0.mlp.fc1.weight")
    return VisionTransformer(
        encoding,
        **shape,
        num_classes=len(weights["head.weight"]),
        in_channels=channels,
        class_token=has_token,
        register_tokens=registers,
        pooling="token" if has_token and "fc_norm.weight" not in weights else "mean",
        mlp_ratio=4.0 if hidden is None else hidden.shape[0] / dim,
        patch_norm="patch_embed.norm.weight" in weights,
        layer_scale=1.0 if "blocks.0.ls1.gamma" in weights else 0.0,
    )


def _told(usual: Preparation, path: Path) -> Preparation:
    """The preparation that timm's config.json tells, the usual one where it does not."""
    try:
        told: Any = json.loads(path.read_text(encoding="utf-8"))
        told = told.get("pretrained_cfg", told)
        found: dict[str, Any] = {}
        if "input_size" in told:
            found["image_size"] = int(told["input_size"][-1])
        if "crop_pct" in told:
            found["crop_share"] = float(told["crop_pct"])
        if told.get("interpolation") in ("bilinear", "bicubic"):
            found["interpolation"] = told["interpolation"]
        found |= {key: tuple(map(float, told[key])) for key in ("mean", "std") if key in told}
        return replace(usual, **found)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise CheckpointError(f"{path} does not tell how to prepare images: {error}") from error
