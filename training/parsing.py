"""Values typed on the command line: TOML values, seeds, sizes of images."""

from __future__ import annotations

import tomllib
from typing import Any

from wefpe_core import InputError

SEED_BITS = 63  # `torch.manual_seed` takes so many without a sign
_MOST_SEEDS = 10_000  # a longer range is a slip of the keyboard

ImageSize = int | tuple[int, int]  # pixels: the side of a square, or (height, width)


def toml_value(text: str) -> Any:
    """The value that TOML reads in the text, or the text itself if it is not TOML."""
    is_quoted = text[:1] in ('"', "'")
    # TOML would drop what follows a # and read further keys after a line break.
    if "\n" in text or ("#" in text and not is_quoted):
        return text
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    # No key takes a date, but a path may look like one.
    return value if isinstance(value, (bool, int, float, str, list, dict)) else text


def parse_seeds(text: str) -> tuple[int, ...]:
    """Seeds from ``0,1,2``, ``0-4`` or a mixture of both."""
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise InputError(f"seeds must be numbers as in 0,1,2 or 0-4, got {text!r}")
        if int(last or first) < int(first):
            raise InputError(f"a range of seeds goes upwards, got {part.strip()!r}")
        if int(last or first) >= 1 << SEED_BITS or int(last or first) - int(first) >= _MOST_SEEDS:
            raise InputError(
                f"a seed has {SEED_BITS} bits and a range at most {_MOST_SEEDS} seeds, got {text!r}"
            )
        seeds += range(int(first), int(last or first) + 1)
    if len(set(seeds)) < len(seeds) or not seeds:
        raise InputError(f"every seed counts once, got {text!r}")
    return tuple(seeds)


def read_numbers(name: str, text: str) -> tuple[float, ...]:
    """Numbers from ``0.5,0.4,0.3``, one or three of them."""
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if len(numbers) not in (1, 3) or not all(number == number for number in numbers):
        raise InputError(f"{name} takes one number or three, as in 0.5,0.4,0.3, got {text!r}")
    return numbers


def height_and_width(size: ImageSize) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else size


def read_image_size(text: str) -> ImageSize:
    """A size from ``48`` or ``32x48``: height x width in pixels."""
    height, by, width = text.lower().partition("x")
    try:
        size = int(height), int(width if by else height)
    except ValueError:
        size = 0, 0
    if min(size) < 1:
        raise InputError(
            f"a size of images is a number of pixels or HEIGHTxWIDTH, as in 48 or 32x48, "
            f"got {text!r}"
        )
    return size[0] if size[0] == size[1] else size


def size_text(size: ImageSize) -> str:
    """A size for people to read: ``32 x 48``."""
    return " x ".join(map(str, height_and_width(size)))


def grid_of_size(size: ImageSize, patch_size: int) -> tuple[int, int]:
    """The grid of patches; `InputError` if patches of that size do not fill the image."""
    height, width = height_and_width(size)
    if min(height, width) < 1 or height % patch_size or width % patch_size:
        raise InputError(
            f"images of {size_text(size)} pixels cannot be cut into patches of {patch_size}"
        )
    return height // patch_size, width // patch_size
