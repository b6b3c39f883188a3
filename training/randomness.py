"""Random numbers as functions of a seed and of words that name their purpose.

No generator is kept between two uses, so there is no state to save: the seed of a run, the epoch
and the number of a batch determine every number drawn for it, on any machine and for any number
of processes.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass

import torch
from torch import Tensor

from training.parsing import SEED_BITS
from wefpe_core import InputTypeError


def derived_seed(seed: int, *words: str | int) -> int:
    """A separate seed for the purpose named by `words`: 63 bits of their SHA-256.

    Lengths and types of the words count: ("a", "bc"), ("ab", "c"), ("1",) and (1,) give four
    different seeds.
    """
    parts = []
    for word in (seed, *words):
        if isinstance(word, bool) or not isinstance(word, (str, int)):
            raise InputTypeError(f"a word of a seed is a string or an integer, got {word!r}")
        text = str(word)
        parts.append(f"{'s' if isinstance(word, str) else 'i'}{len(text)}:{text}")
    digest = hashlib.sha256("".join(parts).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> (64 - SEED_BITS)


def generator(seed: int, *words: str | int) -> torch.Generator:
    """A new generator on the CPU for the purpose named by `words`.

    The Mersenne twister of torch reads the low 32 bits of its seed, so two purposes share their
    numbers with probability 2^-32.
    """
    return torch.Generator().manual_seed(derived_seed(seed, *words))


@dataclass(frozen=True)
class Draws:
    """The random numbers of one batch, the same for any number of processes.

    Numbers are drawn for every place of the global batch; each process takes those of its places.
    Each purpose has numbers of its own, so switching one augmentation on or off does not change
    the others.
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
