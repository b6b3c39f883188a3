"""Colours, by the functions of kornia that agree with Pillow's; images are floats from 0 to 1."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from training.augmentation.draws import Draws
from wefpe_core import BackendUnavailableError


def changes_colour(options: Any) -> bool:
    return bool(
        options.brightness
        or options.contrast
        or options.saturation
        or options.hue
        or options.grayscale
    )


def coloured(images: Tensor, options: Any, draws: Draws) -> Tensor:
    """Brightness, contrast, saturation and hue changed, in this order, and some made grey."""
    color, enhance = _kornia()

    def factors(purpose: str, most: float) -> Tensor:
        (chance,) = draws.uniform(purpose, 1)
        low = max(0.0, 1 - most)
        return (low + (1 + most - low) * chance).to(images.device, images.dtype)

    if options.brightness:
        images = enhance.adjust_brightness_accumulative(
            images, factors("brightness", options.brightness)
        )
    if options.contrast:
        images = enhance.adjust_contrast_with_mean_subtraction(
            images, factors("contrast", options.contrast)
        )
    if options.saturation:
        images = enhance.adjust_saturation_with_gray_subtraction(
            images, factors("saturation", options.saturation)
        )
    if options.hue:
        (chance,) = draws.uniform("hue", 1)
        angle = (2 * chance - 1) * options.hue * 2 * math.pi
        images = enhance.adjust_hue(images, angle.to(images.device, images.dtype))
    if options.grayscale:
        (chance,) = draws.uniform("grayscale", 1)
        is_grey = (chance < options.grayscale).to(images.device)
        images = torch.where(is_grey[:, None, None, None], color.rgb_to_grayscale(images), images)
    return images


def _kornia() -> tuple[Any, Any]:
    """Its colour modules; imported at the first use, which takes a second."""
    try:
        from kornia import color, enhance
    except ImportError as error:
        raise BackendUnavailableError(
            "changes of colour need kornia: pip install 'wefpe[training]'"
        ) from error
    return color, enhance
