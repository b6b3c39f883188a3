"""All augmentations of a batch in their order, on the device the images are on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from torch import Tensor

from training.augmentation.colour import coloured
from training.augmentation.geometry import (
    Boxes,
    cut_out,
    erased,
    random_places,
    random_windows,
    shifted_and_flipped,
    warped,
)
from training.augmentation.mixing import mixed, mixes
from training.augmentation.normalisation import Normalisation, unit_range
from training.augmentation.policies import by_policy
from training.randomness import Draws
from wefpe_core import InputError

if TYPE_CHECKING:
    from training.config.schema import Augmentation


class Augmenter:
    """Turns stored bytes and labels into what a training step sees.

    The order is: the policy of single images (`by_policy`); shifts and flips of the stored pixels;
    window, rotation and the size of the model; colours; normalisation; erasing and cutout, which
    leave the mean colour; mixup or cutmix. Of files whose images have other sizes than the model,
    windows are cut first and from the files themselves (`windows`): a shrunk image has lost what a
    window should show.

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
    crop_share : float, optional
        Side of the squares of ``random_crop`` divided by the shorter side of an image.
    """

    def __init__(
        self,
        options: Augmentation,
        normalise: Normalisation,
        *,
        classes: int,
        warmup_epochs: float = 0.0,
        crop_share: float | None = None,
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
        self.crop_share = crop_share if options.random_crop else None

    @property
    def mixes(self) -> bool:
        """Whether targets are soft (n, classes) instead of labels (n,)."""
        return mixes(self.options)

    @property
    def cuts_windows(self) -> bool:
        """Whether windows are cut out of the images, from the files where there are files."""
        return self.options.random_resized_crop is not None or self.crop_share is not None

    def windows(self, draws: Draws) -> Callable[[Tensor], Boxes] | None:
        """How to choose a window of each image by its ratio of width to height, if asked for."""
        if self.crop_share is not None:
            return partial(random_places, share=self.crop_share, draws=draws)
        if self.options.random_resized_crop is None:
            return None
        return partial(random_windows, options=self.options, draws=draws)

    def by_policy(self, images: Tensor, draws: Draws) -> Tensor:
        """The images after RandAugment or the like, as they were read and on the CPU."""
        return by_policy(images, self.options, draws)

    def __call__(
        self, images: Tensor, labels: Tensor, draws: Draws, *, are_windows: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Float images and targets from the uint8 images at the places of `draws`.

        `are_windows` says that the images have been cut by `windows`.
        """
        options = self.options
        moved = unit_range(shifted_and_flipped(images, options, draws))
        if options.rotation or (options.random_resized_crop is not None and not are_windows):
            size = self.normalise.size
            seen = warped(moved, size, options, draws, are_windows=are_windows)
        else:
            seen = self.normalise.resized(moved)
        seen = self.normalise.standardised(coloured(seen, options, draws))
        seen = cut_out(erased(seen, options, draws), options, draws)
        if not self.mixes:
            return seen, labels
        is_warmup = draws.epoch < self.warmup_epochs
        return mixed(seen, labels, self.classes, options, draws, is_warmup=is_warmup)
