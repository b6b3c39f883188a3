"""One rule for everything random: a number is a function of a seed and of words that say what for.

No generator is kept between two uses, so there is no state to save: whoever knows the seed of a
run, the epoch and the number of a batch knows every number that was drawn for it, on any machine
and for any number of processes.
"""

from __future__ import annotations

import hashlib

import torch

from wefpe_core import InputError, InputTypeError

_BITS = 63  # of a seed: what `torch.manual_seed` takes without a sign
_MOST_SEEDS = 10_000  # more are a slip of the keyboard


def derived_seed(seed: int, *words: str | int) -> int:
    """A seed of its own for the purpose named by `words`: 63 bits of their SHA-256.

    The words are kept apart and their types told apart: ("a", "bc"), ("ab", "c"), ("1",) and (1,)
    give four different seeds.
    """
    parts = []
    for word in (seed, *words):
        if isinstance(word, bool) or not isinstance(word, (str, int)):
            raise InputTypeError(f"a word of a seed is a string or an integer, got {word!r}")
        text = str(word)
        parts.append(f"{'s' if isinstance(word, str) else 'i'}{len(text)}:{text}")
    digest = hashlib.sha256("".join(parts).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> (64 - _BITS)


def generator(seed: int, *words: str | int) -> torch.Generator:
    """A new generator on the CPU for the purpose named by `words`.

    The Mersenne twister of torch reads the low 32 bits of its seed, so two purposes share their
    numbers with probability 2^-32.
    """
    return torch.Generator().manual_seed(derived_seed(seed, *words))


def parse_seeds(text: str) -> tuple[int, ...]:
    """Seeds from ``0,1,2`` or ``0-4``, or both mixed."""
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise InputError(f"seeds must be numbers as in 0,1,2 or 0-4, got {text!r}")
        if int(last or first) < int(first):
            raise InputError(f"a range of seeds goes upwards, got {part.strip()!r}")
        if int(last or first) >= 1 << _BITS or int(last or first) - int(first) >= _MOST_SEEDS:
            raise InputError(
                f"a seed has {_BITS} bits and a range at most {_MOST_SEEDS} seeds, got {text!r}"
            )
        seeds += range(int(first), int(last or first) + 1)
    if len(set(seeds)) < len(seeds) or not seeds:
        raise InputError(f"every seed counts once, got {text!r}")
    return tuple(seeds)
