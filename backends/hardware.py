"""What a device is called that a backend runs on, without importing a library that is not asked."""

from __future__ import annotations


def hardware_of(backend: str, device: str) -> str:
    """The name of a device besides the processor, as receipts record it; "" for the processor."""
    if device == "cpu":
        return ""
    if backend == "torch":
        from backends.torch_devices import device_model

        return device_model(device)
    return device
