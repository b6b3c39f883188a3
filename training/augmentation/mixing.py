"""Mixup and cutmix: pairs of images are mixed, and their classes in the same proportion.

The images at places 0 and 1, 2 and 3, ... of a batch are mixed with each other. Batches are
shuffled, so these are random pairs. Each process holds an even number of neighbouring places, so
every pair is within one process, and the result does not depend on the number of processes.
"""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from training.randomness import Draws

if TYPE_CHECKING:
    from training.config.schema import Augmentation


def mixes(options: Augmentation) -> bool:
    """Whether any batch is mixed."""
    alphas = (options.mixup_alpha, options.mixup_alpha_warmup or 0.0, options.cutmix_alpha)
    return options.mix_probability > 0 and max(alphas) > 0


def mixed(
    images: Tensor,
    labels: Tensor,
    classes: int,
    options: Augmentation,
    draws: Draws,
    *,
    is_warmup: bool = False,
) -> tuple[Tensor, Tensor]:
    """Images and soft targets (n, classes), mixed in one proportion for the whole global batch.

    Targets are soft even where nothing is mixed, so that every step has the same shapes.
    """
    targets = functional.one_hot(labels, classes).to(torch.float32)
    until = options.mix_until_epoch
    if draws.epoch < options.mix_from_epoch or (until is not None and draws.epoch >= until):
        return images, targets
    mixup_alpha = options.mixup_alpha
    if is_warmup and options.mixup_alpha_warmup is not None:
        mixup_alpha = options.mixup_alpha_warmup
    shared = draws.of_the_batch("mixing")
    # Both are always drawn, so that the numbers after them do not depend on the options.
    is_mixed = shared.random() < options.mix_probability
    is_switched = shared.random() < options.switch_probability
    is_cutmix = options.cutmix_alpha > 0 and (is_switched or mixup_alpha <= 0)
    alpha = options.cutmix_alpha if is_cutmix else mixup_alpha
    if not is_mixed or alpha <= 0:
        return images, targets
    share = shared.betavariate(alpha, alpha)  # of the image itself
    partners = _partners(len(images), images.device)
    if is_cutmix:
        top, bottom, left, right = _box(images.shape[-2], images.shape[-1], 1 - share, shared)
        share = 1 - (bottom - top) * (right - left) / (images.shape[-2] * images.shape[-1])
        patch = images[partners, :, top:bottom, left:right]
        images[:, :, top:bottom, left:right] = patch
    else:
        images = torch.lerp(images[partners], images, share)
    return images, torch.lerp(targets[partners], targets, share)


def _partners(n: int, device: torch.device) -> Tensor:
    """Index of the other image of each pair; with an odd number the last image stays alone."""
    return (torch.arange(n, device=device) ^ 1).clamp_(max=n - 1)


def _box(height: int, width: int, area: float, shared: random.Random) -> tuple[int, int, int, int]:
    """A box with that share of the area around a random pixel, cut by the edges of the image."""
    tall, wide = int(height * math.sqrt(area)), int(width * math.sqrt(area))
    row, column = shared.randrange(height), shared.randrange(width)
    top, left = row - tall // 2, column - wide // 2
    return max(top, 0), min(top + tall, height), max(left, 0), min(left + wide, width)
