"""All augmentations of a batch in their order, on the device the images are on."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from training.augmentation.colour import changes_colour, coloured
from training.augmentation.draws import Draws
from training.augmentation.geometry import cut_out, erased, shifted_and_flipped, warped
from training.augmentation.mixing import mixed, mixes
from training.augmentation.normalisation import Normalisation, unit_range
from wefpe_core import InputError


class Augmentation:
    """From stored bytes and labels to what a step of training sees.

    In this order: shift and flips on the stored pixels; window, rotation and the size of the
    model; colours; normalisation; erasing and cutout, with the mean colour; mixup or cutmix.

    Parameters
    ----------
    options : AugmentationOptions
        Or anything with its attributes, such as the table ``[augmentation]`` of a config.
    normalise : Normalisation
        What the images of an evaluation go through.
    classes : int
    warmup_epochs : float
        Epochs that begin before it take ``mixup_alpha_warmup``.
    """

    def __init__(
        self, options: Any, normalise: Normalisation, *, classes: int, warmup_epochs: float = 0.0
    ) -> None:
        coloured_only = [
            name for name in ("saturation", "hue", "grayscale") if getattr(options, name)
        ]
        if coloured_only and normalise.channels != 3:
            raise InputError(
                f"augmentation.{coloured_only[0]} needs images with 3 channels, "
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
        """Float images and targets of the uint8 images at the places of `draws`."""
        options = self.options
        moved = unit_range(shifted_and_flipped(images, options, draws))
        if options.random_resized_crop is not None or options.rotation:
            seen = warped(moved, self.normalise.size, options, draws)
        else:
            seen = self.normalise.resized(moved)
        if changes_colour(options):
            seen = coloured(seen, options, draws)
        seen = self.normalise.standardised(seen)
        seen = cut_out(erased(seen, options, draws), options, draws)
        if not self.mixes:
            return seen, labels
        is_warmup = draws.epoch < self.warmup_epochs
        return mixed(seen, labels, self.classes, options, draws, is_warmup=is_warmup)
