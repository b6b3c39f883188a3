"""Where position tables are computed: in the widest real dtype of the device, never autocast."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

_WITHOUT_FLOAT64 = ("mps",)


def working_dtype(device: torch.device) -> torch.dtype:
    """float64, or float32 on devices that have no float64."""
    return torch.float32 if device.type in _WITHOUT_FLOAT64 else torch.float64


def scalar(value: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A number on the device, written there: a copy from the host would make a GPU wait for it."""
    return torch.full((), value, dtype=dtype, device=device)


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    if not torch.amp.autocast_mode.is_autocast_available(device.type):
        return nullcontext()
    return torch.autocast(device.type, enabled=False)
