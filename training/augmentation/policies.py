"""RandAugment, TrivialAugment and 3-Augment of uint8 colour images, by Pillow.

torchvision, which has them too, cannot be imported beside every torch. The operations are Pillow's
own, and what is here is which one is taken and how strong it is. RandAugment is timm's, whose
strengths all grow with the magnitude ("rand-m9-n2-mstd0.5-inc1" is magnitude 9, 2 operations and a
deviation of 0.5); TrivialAugment is the wide one of its paper; 3-Augment is that of DeiT-III.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from torch import Tensor

from training.randomness import Draws

if TYPE_CHECKING:
    from training.config.schema import Augmentation

_FILL = (128, 128, 128)  # of pixels that move in
_HIGHEST = 10.0  # magnitude of RandAugment
_BINS = 30  # of the strengths of TrivialAugment, besides 0
Operation = Callable[[Image.Image, float, float], Image.Image]  # strength 0 to 1, sign -1 or 1


def _affine(image: Image.Image, *numbers: float) -> Image.Image:
    kind = Image.Transform.AFFINE
    return image.transform(image.size, kind, numbers, Image.Resampling.BILINEAR, fillcolor=_FILL)


def _turned(most: float) -> Operation:
    return lambda image, strength, sign: image.rotate(
        sign * most * strength, Image.Resampling.BILINEAR, fillcolor=_FILL
    )


def _sheared(most: float, *, across: bool) -> Operation:
    def apply(image: Image.Image, strength: float, sign: float) -> Image.Image:
        amount = sign * most * strength
        return _affine(image, *((1, amount, 0, 0, 1, 0) if across else (1, 0, 0, amount, 1, 0)))

    return apply


def _moved(most: float, *, across: bool, in_pixels: bool = False) -> Operation:
    def apply(image: Image.Image, strength: float, sign: float) -> Image.Image:
        length = 1 if in_pixels else image.width if across else image.height
        amount = sign * most * strength * length
        return _affine(image, *((1, 0, amount, 0, 1, 0) if across else (1, 0, 0, 0, 1, amount)))

    return apply


def _enhanced(enhancer: Callable[[Image.Image], ImageEnhance._Enhance], most: float) -> Operation:
    return lambda image, strength, sign: enhancer(image).enhance(
        max(1.0 + sign * most * strength, 0.0)
    )


def _solarised_more(image: Image.Image, strength: float, sign: float) -> Image.Image:
    added = min(128, int(110 * strength))
    table = [min(255, value + added) if value < 128 else value for value in range(256)]
    return image.point(table * 3)


_RAND: tuple[Operation, ...] = (
    lambda image, strength, sign: ImageOps.autocontrast(image),
    lambda image, strength, sign: ImageOps.equalize(image),
    lambda image, strength, sign: ImageOps.invert(image),
    _turned(30.0),
    lambda image, strength, sign: ImageOps.posterize(image, max(4 - int(4 * strength), 1)),
    lambda image, strength, sign: ImageOps.solarize(image, 256 - min(256, int(256 * strength))),
    _solarised_more,
    _enhanced(ImageEnhance.Color, 0.9),
    _enhanced(ImageEnhance.Contrast, 0.9),
    _enhanced(ImageEnhance.Brightness, 0.9),
    _enhanced(ImageEnhance.Sharpness, 0.9),
    _sheared(0.3, across=True),
    _sheared(0.3, across=False),
    _moved(0.45, across=True),
    _moved(0.45, across=False),
)
_TRIVIAL: tuple[Operation, ...] = (
    lambda image, strength, sign: image,
    _sheared(0.99, across=True),
    _sheared(0.99, across=False),
    _moved(32.0, across=True, in_pixels=True),
    _moved(32.0, across=False, in_pixels=True),
    _turned(135.0),
    _enhanced(ImageEnhance.Brightness, 0.99),
    _enhanced(ImageEnhance.Color, 0.99),
    _enhanced(ImageEnhance.Contrast, 0.99),
    _enhanced(ImageEnhance.Sharpness, 0.99),
    lambda image, strength, sign: ImageOps.posterize(image, 8 - round(6 * strength)),
    lambda image, strength, sign: ImageOps.solarize(image, 255 - round(255 * strength)),
    lambda image, strength, sign: ImageOps.autocontrast(image),
    lambda image, strength, sign: ImageOps.equalize(image),
)
_THREE: tuple[Operation, ...] = (
    lambda image, strength, sign: image.convert("L").convert("RGB"),
    lambda image, strength, sign: ImageOps.solarize(image, 128),
    lambda image, strength, sign: image.filter(ImageFilter.GaussianBlur(0.1 + 1.9 * strength)),
)


def by_policy(images: Tensor, options: Augmentation, draws: Draws) -> Tensor:
    """The uint8 images (n, 3, height, width) after the policy of the options, one by one."""
    policy = options.policy
    if policy == "none":
        return images
    operations = {"randaugment": _RAND, "trivialaugment": _TRIVIAL, "three_augment": _THREE}[policy]
    rounds = options.policy_operations if policy == "randaugment" else 1
    found = [Image.fromarray(pixels) for pixels in images.permute(0, 2, 3, 1).contiguous().numpy()]
    for number in range(rounds):
        which, strength, sign, whether = draws.uniform(f"policy {number}", 4)
        if policy == "randaugment":
            # A normal deviate; the largest numbers below 1 would give infinity.
            spread = options.policy_deviation * torch.special.ndtri(strength.clamp(1e-6, 1 - 1e-6))
            strength = ((options.policy_magnitude + spread) / _HIGHEST).clamp(0.0, 1.0)
        elif policy == "trivialaugment":
            strength = (strength * (_BINS + 1)).floor() / _BINS
        for place, image in enumerate(found):
            if policy == "randaugment" and whether[place] >= 0.5:  # half of them are left out
                continue
            apply = operations[int(which[place] * len(operations))]
            found[place] = apply(image, float(strength[place]), -1.0 if sign[place] < 0.5 else 1.0)
    return torch.from_numpy(np.stack([np.asarray(image) for image in found])).permute(0, 3, 1, 2)
