"""What can be done to training images; everything is off by default."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RandomResizedCrop:
    """A window of the image stretched to the whole: its share of the area, its width / height."""

    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)


@dataclass(frozen=True)
class AugmentationOptions:
    """What `Augmentation` reads; any object with these attributes will do.

    `crop_padding` is the largest shift in pixels of the stored images, filled with black. `flip`,
    `vertical_flip`, `grayscale` and `erase_probability` are probabilities. `rotation` is the
    largest angle to either side in degrees. `brightness`, `contrast` and `saturation` draw factors
    from 1 - x (or 0) to 1 + x; `hue` turns the colours by up to that part of the circle to either
    side. `cutout` is the side of a square in pixels of the model's images.

    A batch is mixed with `mix_probability`. Where `mixup_alpha` and `cutmix_alpha` are both above
    0, it is cutmix with `switch_probability`. During the epochs of warm-up `mixup_alpha_warmup`
    stands in for `mixup_alpha`, if it is given.
    """

    crop_padding: int = 0
    flip: float = 0.0
    vertical_flip: float = 0.0
    random_resized_crop: RandomResizedCrop | None = None
    rotation: float = 0.0
    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    hue: float = 0.0
    grayscale: float = 0.0
    erase_probability: float = 0.0
    cutout: int = 0
    mixup_alpha: float = 0.0
    mixup_alpha_warmup: float | None = None
    cutmix_alpha: float = 0.0
    mix_probability: float = 1.0
    switch_probability: float = 0.5
