"""All augmentations of a batch in their order, on the device the images are on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from training.augmentation.colour import coloured
from training.augmentation.geometry import cut_out, erased, shifted_and_flipped, warped
from training.augmentation.mixing import mixed, mixes
from training.augmentation.normalisation import Normalisation, unit_range
from training.randomness import Draws
from wefpe_core import InputError

if TYPE_CHECKING:
    from training.config.schema import Augmentation


class Augmenter:
    """Turns stored bytes and labels into what a training step sees.

    The order is: shifts and flips of the stored pixels; window, rotation and the size of the
    model; colours; normalisation; erasing and cutout, which leave the mean colour; mixup or
    cutmix.

    Parameters
    ----------
    options : training.config.schema.Augmentation
        The table ``[augmentation]`` of a config, or one made by hand, such as
        ``Augmentation(flip=0.5, cutout=8)``.
    normalise : Normalisation
        What the images of an evaluation go through.
    classes : int
    warmup_epochs : float
        Epochs that begin before it take ``mixup_alpha_warmup``.
    """

    def __init__(
        self,
        options: Augmentation,
        normalise: Normalisation,
        *,
        classes: int,
        warmup_epochs: float = 0.0,
    ) -> None:
        for name in ("saturation", "hue", "grayscale"):
            if getattr(options, name) and normalise.channels != 3:
                raise InputError(
                    f"augmentation.{name} needs images with 3 channels, "
                    f"these have {normalise.channels}"
                )
        self.options = options
        self.normalise = normalise
        self.classes = classes
        self.warmup_epochs = warmup_epochs

    @property
    def mixes(self) -> bool:
        """Whether targets are soft (n, classes) instead of labels (n,)."""
        return mixes(self.options)

    def __call__(self, images: Tensor, labels: Tensor, draws: Draws) -> tuple[Tensor, Tensor]:
        """Float images and targets from the uint8 images at the places of `draws`."""
        options = self.options
        moved = unit_range(shifted_and_flipped(images, options, draws))
        if options.random_resized_crop is not None or options.rotation:
            seen = warped(moved, self.normalise.size, options, draws)
        else:
            seen = self.normalise.resized(moved)
        seen = self.normalise.standardised(coloured(seen, options, draws))
        seen = cut_out(erased(seen, options, draws), options, draws)
        if not self.mixes:
            return seen, labels
        is_warmup = draws.epoch < self.warmup_epochs
        return mixed(seen, labels, self.classes, options, draws, is_warmup=is_warmup)
