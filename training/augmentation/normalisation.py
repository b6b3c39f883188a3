"""The part of the way from stored bytes to the model in which nothing is random."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from wefpe_core import InputError


class Normalisation:
    """(x - mean) / std for each channel of pixels x from 0 to 1, at `size` (height, width).

    Parameters
    ----------
    mean, std : tuple of float
        One for each channel, or one for all of them.
    size : (int, int)
        Images of another size are resized to it by bilinear interpolation.
    channels : int
    """

    def __init__(
        self,
        mean: tuple[float, ...],
        std: tuple[float, ...],
        *,
        size: tuple[int, int],
        channels: int,
    ) -> None:
        self.mean = _per_channel("mean", mean, channels)
        self.std = _per_channel("std", std, channels)
        if not all(deviation > 0 for deviation in self.std):
            raise InputError(f"data.std must be above 0, got {self.std}")
        self.size = size
        self.channels = channels
        self._numbers: dict[torch.device, tuple[Tensor, Tensor]] = {}

    def __call__(self, images: Tensor) -> Tensor:
        """Normalised float32 (n, channels, *size) from uint8 images."""
        return self.standardised(self.resized(unit_range(images)))

    def resized(self, images: Tensor) -> Tensor:
        """Float images at the size of the model."""
        if images.shape[-2:] == self.size:
            return images
        shrinks = images.shape[-2] > self.size[0] or images.shape[-1] > self.size[1]
        return functional.interpolate(
            images, size=list(self.size), mode="bilinear", antialias=shrinks
        )

    def standardised(self, images: Tensor) -> Tensor:
        """Float images from 0 to 1, normalised in place."""
        if images.device not in self._numbers:
            self._numbers[images.device] = tuple(  # type: ignore[assignment]
                torch.tensor(numbers, dtype=torch.float32, device=images.device).view(-1, 1, 1)
                for numbers in (self.mean, self.std)
            )
        mean, std = self._numbers[images.device]
        return images.sub_(mean).div_(std)


def unit_range(images: Tensor) -> Tensor:
    """New float32 images from 0 to 1, made from uint8 images; fields are copied as they are."""
    if images.is_floating_point():
        return images.clone()
    return images.to(torch.float32).div_(255)


def _per_channel(name: str, numbers: tuple[float, ...], channels: int) -> tuple[float, ...]:
    if len(numbers) == 1:
        return numbers * channels
    if len(numbers) != channels:
        raise InputError(
            f"data.{name} must have one number or one for each of {channels} channels, "
            f"got {len(numbers)}"
        )
    return numbers
