"""Where the pixels go, and which of them are erased.

Shifts and flips move stored bytes; windows and rotations are one interpolation of float images;
erasing and cutout act on normalised images, where 0 is the mean colour.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from training.randomness import Draws

if TYPE_CHECKING:
    from training.config.schema import Augmentation

# Tops, lefts, heights and widths, as fractions of the images.
Boxes = tuple[Tensor, Tensor, Tensor, Tensor]

# The usual ranges of random erasing: share of the area, width / height.
ERASE_SCALE = (0.02, 0.33)
ERASE_RATIO = (0.3, 3.3)


def shifted_and_flipped(images: Tensor, options: Augmentation, draws: Draws) -> Tensor:
    """Move each uint8 image by up to the padding in every direction, then mirror some of them.

    The pixels that move in are black. One gather of bytes does the padding, the cropping at a
    random place and the flipping.
    """
    padding = options.crop_padding
    if not (padding or options.flip or options.vertical_flip):
        return images
    n, channels, height, width = images.shape
    rows, columns = torch.arange(height).expand(n, -1), torch.arange(width).expand(n, -1)
    # Each pixel of the result is traced back to its origin, so the last step comes first.
    if options.flip:
        (chance,) = draws.uniform("flip", 1)
        columns = torch.where(chance[:, None] < options.flip, width - 1 - columns, columns)
    if options.vertical_flip:
        (chance,) = draws.uniform("vertical flip", 1)
        rows = torch.where(chance[:, None] < options.vertical_flip, height - 1 - rows, rows)
    if padding:
        rows = rows + draws.integers("crop rows", 2 * padding + 1)[:, None]
        columns = columns + draws.integers("crop columns", 2 * padding + 1)[:, None]
        images = functional.pad(images, (padding,) * 4)
        height, width = images.shape[-2:]
    index = (rows[:, :, None] * width + columns[:, None, :]).view(n, 1, -1)
    moved = images.flatten(2).gather(2, index.to(images.device).expand(-1, channels, -1))
    return moved.view(n, channels, rows.shape[1], columns.shape[1])


def random_windows(aspect: Tensor | float, options: Augmentation, draws: Draws) -> Boxes:
    """The windows of ``random_resized_crop``, for images of these ratios of width to height."""
    crop = options.random_resized_crop
    assert crop is not None
    return random_boxes(draws, "random resized crop", crop.scale, crop.ratio, aspect=aspect)


def random_places(aspect: Tensor, share: float, draws: Draws) -> Boxes:
    """Squares at random places, for images of these ratios of width to height.

    `share` is the side of a square divided by the shorter side of the image.
    """
    down, right = draws.uniform("random crop", 2)
    height, width = share * aspect.clamp(max=1), share * (1 / aspect).clamp(max=1)
    return down * (1 - height), right * (1 - width), height, width


def warped(
    images: Tensor,
    size: tuple[int, int],
    options: Augmentation,
    draws: Draws,
    *,
    are_windows: bool = False,
) -> Tensor:
    """Stretch a random window of each float image, turned by a random angle, to `size`.

    All of it is one interpolation. Only a rotation makes the window reach beyond the image; the
    result is black there. With `are_windows` the images are such windows already and are only
    turned.
    """
    n = len(images)
    height, width = size
    top = left = torch.zeros(n, dtype=torch.float64)
    tall = wide = torch.ones(n, dtype=torch.float64)
    if options.random_resized_crop is not None and not are_windows:
        aspect = images.shape[-1] / images.shape[-2]
        top, left, tall, wide = random_windows(aspect, options, draws)
    angle = torch.zeros(n, dtype=torch.float64)
    if options.rotation:
        (chance,) = draws.uniform("rotation", 1)
        angle = (2 * chance - 1) * math.radians(options.rotation)
    cosine, sine = angle.cos(), angle.sin()
    # Six numbers for each image map x and y of a pixel of the result to x and y in the image, all
    # from -1 to 1. Pixels are square, so a rotation takes the ratio of the sides into account.
    numbers = torch.stack(
        (
            *(wide * cosine, -wide * sine * height / width, 2 * left + wide - 1),
            *(tall * sine * width / height, tall * cosine, 2 * top + tall - 1),
        )
    )
    numbers = numbers.to(images.device, images.dtype)[:, :, None, None]
    x, y = _centres(width, images), _centres(height, images)[:, None]
    # Not functional.affine_grid: it takes 0.8 ms for 64 grids of 32 x 32, this takes 0.2 ms
    # because it adds rows and columns before it fills the plane.
    grid = torch.stack(
        (
            (numbers[0] * x + numbers[2]) + numbers[1] * y,
            (numbers[3] * x + numbers[5]) + numbers[4] * y,
        ),
        dim=-1,
    )
    # Edges are repeated, or half a dark pixel would frame every window at the edge of an image.
    result = functional.grid_sample(images, grid, padding_mode="border", align_corners=False)
    if options.rotation:
        result.mul_((grid.abs().amax(dim=-1) <= 1)[:, None])
    return result


def _centres(count: int, images: Tensor) -> Tensor:
    """Coordinates of the centres of `count` pixels that reach from -1 to 1."""
    places = torch.arange(count, device=images.device, dtype=images.dtype)
    return (2 * places + 1) / count - 1


def random_boxes(
    draws: Draws,
    purpose: str,
    scale: tuple[float, float],
    ratio: tuple[float, float],
    *,
    aspect: Tensor | float,
) -> Boxes:
    """Boxes (top, left, height, width) within an image, as fractions of its height and width.

    Areas are uniform within `scale`, places are uniform. The ratio of width to height is
    log-uniform within the part of `ratio` in which a box of that area fits. If there is no such
    part, the nearest ratio that fits is taken, so no box has to be drawn again. `aspect` is the
    ratio of width to height of the image, or of each image.
    """
    area, shape, down, right = draws.uniform(purpose, 4)
    area = scale[0] + (scale[1] - scale[0]) * area
    low, high = (
        torch.full_like(area, end).clamp(area * aspect, aspect / area).log() for end in ratio
    )
    chosen = torch.exp(low + (high - low) * shape)
    height = (area * aspect / chosen).sqrt().clamp(max=1)
    width = (area * chosen / aspect).sqrt().clamp(max=1)
    return down * (1 - height), right * (1 - width), height, width


def erased(images: Tensor, options: Augmentation, draws: Draws) -> Tensor:
    """Set one random box of each image to 0 with the probability given, in place."""
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


def cut_out(images: Tensor, options: Augmentation, draws: Draws) -> Tensor:
    """Set one square of each image to 0, in place.

    Its centre may be any pixel, so an edge of the image may cut it.
    """
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
