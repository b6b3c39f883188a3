"""timm beside every torch: torchvision, which it imports, may not load."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from training.models.vit import VIT_SIZES
from wefpe_core.errors import import_optional

_declarations: list[Any] = []  # operators live as long as the library object that defines them


def import_timm() -> Any:
    """The module timm, also where ``import timm`` dies in torchvision.

    timm imports torchvision, whose compiled part does not load beside every torch: "operator
    torchvision::nms does not exist". Then two operators are missing that timm never calls, and
    declaring them is enough.

    Raises
    ------
    MissingDependencyError
        timm is not installed.

    Examples
    --------
    >>> timm = import_timm()  # doctest: +SKIP
    >>> timm.create_model("vit_tiny_patch16_224", dynamic_img_size=True)  # doctest: +SKIP
    """
    try:
        import torchvision  # type: ignore[import-not-found, unused-ignore] # noqa: F401
    except RuntimeError:
        if not _declarations:
            library = torch.library.Library("torchvision", "DEF")
            for name in ("nms", "qnms"):
                library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            _declarations.append(library)
    except ModuleNotFoundError:
        pass  # what is said of timm below is what the reader needs
    return import_optional("timm", purpose="wefpe.import_timm", extra="timm")


def timm_vit(size: str, num_classes: int) -> nn.Module:
    """timm's vision transformer in a size of `VIT_SIZES`."""
    shape = VIT_SIZES[size]
    model: nn.Module = import_timm().models.vision_transformer.VisionTransformer(
        img_size=shape["image_size"],
        patch_size=shape["patch_size"],
        embed_dim=shape["dim"],
        depth=shape["depth"],
        num_heads=shape["num_heads"],
        num_classes=num_classes,
    )
    return model
