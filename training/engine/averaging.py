"""The exponential moving average of the weights."""

from __future__ import annotations

from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


def moving_average(model: nn.Module, decay: float) -> AveragedModel | None:
    """A copy of the model that follows it, or None for a decay of 0.

    Buffers are averaged as well, which matters where batch normalisation keeps its statistics.
    """
    if decay == 0.0:
        return None
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay), use_buffers=True)
    return average.requires_grad_(False).eval()
