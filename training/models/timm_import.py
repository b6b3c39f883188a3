"""timm beside a torch without CUDA."""

from __future__ import annotations

from typing import Any

import torch

_declarations: list[Any] = []  # they live as long as their library object


def import_timm() -> Any:
    """The module timm.

    It imports torchvision, whose wheel does not load beside every torch: its compiled part is
    missing then, and with it two operators timm never calls. Declaring them is enough.
    """
    try:
        import torchvision  # type: ignore[import-not-found, unused-ignore] # noqa: F401
    except RuntimeError:
        if not _declarations:
            library = torch.library.Library("torchvision", "DEF")
            for name in ("nms", "qnms"):
                library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            _declarations.append(library)
    import timm  # type: ignore[import-not-found, unused-ignore]

    return timm
