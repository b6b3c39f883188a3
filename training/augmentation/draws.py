"""The random numbers of one batch, alike for any number of processes."""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
from torch import Tensor

from training.randomness import derived_seed, generator


@dataclass(frozen=True)
class Draws:
    """Numbers drawn for every place of the global batch and cut to the places of this process.

    Each purpose has numbers of its own: switching one augmentation on or off leaves those of the
    others alone.
    """

    seed: int
    epoch: int
    batch: int
    size: int  # of the global batch
    places: slice  # of this process in it

    def uniform(self, purpose: str, columns: int) -> tuple[Tensor, ...]:
        """`columns` tensors (n,) of float64 in [0, 1)."""
        drawn = generator(self.seed, "augmentation", purpose, self.epoch, self.batch)
        table = torch.rand(columns, self.size, dtype=torch.float64, generator=drawn)
        return table[:, self.places].unbind()

    def integers(self, purpose: str, below: int) -> Tensor:
        """A tensor (n,) of int64 in [0, below)."""
        drawn = generator(self.seed, "augmentation", purpose, self.epoch, self.batch)
        return torch.randint(below, (self.size,), generator=drawn)[self.places]

    def of_the_batch(self, purpose: str) -> random.Random:
        """A source of numbers that the whole global batch shares."""
        return random.Random(
            derived_seed(self.seed, "augmentation", purpose, self.epoch, self.batch)
        )
