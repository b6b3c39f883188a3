"""Parts of normalised images set to 0, the mean colour: random erasing and cutout."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from training.augmentation.draws import Draws
from training.augmentation.geometry import random_boxes

# The usual ranges of random erasing: share of the area, width / height.
ERASE_SCALE = (0.02, 0.33)
ERASE_RATIO = (0.3, 3.3)


def erased(images: Tensor, options: Any, draws: Draws) -> Tensor:
    """One box of each image, with the probability given, in place."""
    if not options.erase_probability:
        return images
    height, width = images.shape[-2:]
    top, left, tall, wide = random_boxes(
        draws, "erase", ERASE_SCALE, ERASE_RATIO, aspect=width / height
    )
    (chance,) = draws.uniform("erase or not", 1)
    is_erased = chance < options.erase_probability
    tall, wide = (tall * height).round() * is_erased, (wide * width).round()
    # Rounding may push a box over the edge by a pixel.
    top = torch.minimum((top * height).round(), height - tall)
    left = torch.minimum((left * width).round(), width - wide)
    return _blanked(images, top, top + tall, left, left + wide)


def cut_out(images: Tensor, options: Any, draws: Draws) -> Tensor:
    """One square of each image, in place; its centre is any pixel, so it may be cut by an edge."""
    side = options.cutout
    if not side:
        return images
    height, width = images.shape[-2:]
    top = draws.integers("cutout rows", height) - side // 2
    left = draws.integers("cutout columns", width) - side // 2
    return _blanked(images, top, top + side, left, left + side)


def _blanked(images: Tensor, top: Tensor, bottom: Tensor, left: Tensor, right: Tensor) -> Tensor:
    height, width = images.shape[-2:]
    rows, columns = torch.arange(height), torch.arange(width)
    in_rows = (rows >= top[:, None]) & (rows < bottom[:, None])
    in_columns = (columns >= left[:, None]) & (columns < right[:, None])
    is_kept = ~(in_rows[:, None, :, None] & in_columns[:, None, None, :])
    return images.mul_(is_kept.to(images.device))
