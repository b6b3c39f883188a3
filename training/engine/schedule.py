"""The learning rate as a function of the step: no state, nothing to save, nothing to restore."""

from __future__ import annotations

import math

from training.configuration.schema import Schedule


def rate_factor(options: Schedule, epochs: int, epoch: float) -> float:
    """The factor of the learning rate `epoch` epochs after the start (a step is a fraction).

    It grows linearly from 0 during the warm-up, then falls along a cosine to `final_rate`; with
    `restart_epochs` the cosine begins anew after so many, each time `restart_factor` lower.
    ``per="epoch"`` holds it constant within an epoch, as some published scripts do; their first
    epoch then runs at rate 0.
    """
    if options.per == "epoch":
        epoch = math.floor(epoch)
    if epoch < options.warmup_epochs:
        return epoch / options.warmup_epochs
    since, length = epoch - options.warmup_epochs, epochs - options.warmup_epochs
    height = 1.0
    if options.restart_epochs:
        cycle = math.floor(since / options.restart_epochs)
        since, length = since - cycle * options.restart_epochs, options.restart_epochs
        height = options.restart_factor**cycle
    share = min(since / length, 1.0) if length > 0 else 1.0
    falling = 0.5 * (1.0 + math.cos(math.pi * share))
    return height * (options.final_rate + (1.0 - options.final_rate) * falling)
