"""Colours of float images from 0 to 1, changed as Pillow changes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from training.randomness import Draws

if TYPE_CHECKING:
    from training.config.schema import Augmentation


def coloured(images: Tensor, options: Augmentation, draws: Draws) -> Tensor:
    """Change brightness, contrast, saturation and hue, in this order, and make some images grey."""

    def factors(purpose: str, most: float) -> Tensor:
        (chance,) = draws.uniform(purpose, 1)
        low = max(0.0, 1 - most)
        drawn = low + (1 + most - low) * chance
        return drawn.to(images.device, images.dtype)[:, None, None, None]

    if options.brightness:
        images = (images * factors("brightness", options.brightness)).clamp_(0, 1)
    if options.contrast:
        mean = (_grey(images) if images.shape[1] == 3 else images).mean((1, 2, 3), keepdim=True)
        images = _blended(images, mean, factors("contrast", options.contrast))
    if options.saturation:
        images = _blended(images, _grey(images), factors("saturation", options.saturation))
    if options.hue:
        (chance,) = draws.uniform("hue", 1)
        sixths = (2 * chance - 1) * options.hue * 6
        images = hue_turned(images, sixths.to(images.device, images.dtype))
    if options.grayscale:
        (chance,) = draws.uniform("grayscale", 1)
        is_grey = (chance < options.grayscale).to(images.device)
        images = torch.where(is_grey[:, None, None, None], _grey(images), images)
    return images


def _grey(images: Tensor) -> Tensor:
    """Brightness (n, 1, height, width) of colours, by the weights of ITU-R BT.601."""
    red, green, blue = images.unbind(1)
    return red.mul(0.299).add_(green, alpha=0.587).add_(blue, alpha=0.114)[:, None]


def _blended(images: Tensor, others: Tensor, factors: Tensor) -> Tensor:
    return (images * factors + others * (1 - factors)).clamp_(0, 1)


def hue_turned(images: Tensor, sixths: Tensor) -> Tensor:
    """Move the hues by `sixths` (n,) of the circle; the largest and smallest of R, G, B stay.

    One formula does what a conversion to HSV and back does, in a third of the time.
    """
    red, green, blue = images.unbind(1)
    value, smallest = images.amax(1), images.amin(1)
    chroma = value - smallest
    divisor = torch.where(chroma > 0, chroma, 1)  # grey has no hue: any number will do
    hue = torch.where(
        value == red,
        (green - blue) / divisor,
        torch.where(value == green, (blue - red) / divisor + 2, (red - green) / divisor + 4),
    )
    places = torch.tensor([5.0, 3.0, 1.0], device=images.device, dtype=images.dtype)
    distance = (hue + sixths[:, None, None])[:, None] + places[:, None, None]
    distance.remainder_(6)
    ramp = torch.minimum(distance, 4 - distance).clamp_(0, 1)
    return torch.sub(value[:, None], ramp.mul_(chroma[:, None]), out=ramp)
