"""What torch calls the hardware that it runs on."""

from __future__ import annotations

import torch


def device_model(device: str) -> str:
    """The model of a GPU; the name of the device itself where torch knows no model."""
    if device.startswith("cuda") and torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return device
