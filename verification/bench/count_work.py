"""Parameters and multiplications of a model: what papers print beside accuracies."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode


@dataclass(frozen=True)
class ModelWork:
    """Learned parameters, and multiply-additions of one image in a forward pass."""

    parameters: int
    macs: int
    name: str = ""

    @property
    def is_kept(self) -> None:
        """Nothing is promised."""
        return None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def work_of(model: nn.Module, channels: int, size: int, name: str = "") -> ModelWork:
    """The work of a model for one square image, by torch's counter; two operations are one MAC.

    It counts products of matrices and convolutions, also those of attention, and neither additions
    nor what acts on single numbers. The fused attention of a CPU would not be counted, so the plain
    one is taken.
    """
    images = torch.zeros(1, channels, size, size)
    was_training = model.training
    model.eval()
    try:
        with (
            FlopCounterMode(display=False) as counter,
            sdpa_kernel(SDPBackend.MATH),
            torch.no_grad(),
        ):
            model(images)
    finally:
        model.train(was_training)
    learned = sum(p.numel() for p in model.parameters() if p.requires_grad)
    return ModelWork(learned, counter.get_total_flops() // 2, name)
