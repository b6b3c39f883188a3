"""A value typed on the command line, read as TOML writes it."""

from __future__ import annotations

import tomllib
from typing import Any

from wefpe_core import InputError


def toml_value(text: str) -> Any:
    """What the text is in TOML; if it is nothing there, the text itself."""
    is_quoted = text[:1] in ('"', "'")
    # TOML would drop what follows a #, and read further keys after a line break.
    if "\n" in text or ("#" in text and not is_quoted):
        return text
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    # Dates are of no use to any key, but a path may look like one.
    return value if isinstance(value, (bool, int, float, str, list, dict)) else text


# Sizes of images in pixels: squares as one number, rectangles as (height, width).

ImageSize = int | tuple[int, int]


def height_and_width(size: ImageSize) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else size


def read_image_size(text: str) -> ImageSize:
    """A size from ``48`` or ``32x48`` (height x width in pixels)."""
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
    """A size as people read it: ``32 x 48``."""
    return " x ".join(map(str, height_and_width(size)))


def grid_of_size(size: ImageSize, patch_size: int) -> tuple[int, int]:
    """The grid of patches, or InputError if they do not fit."""
    height, width = height_and_width(size)
    if min(height, width) < 1 or height % patch_size or width % patch_size:
        raise InputError(
            f"images of {size_text(size)} pixels cannot be cut into patches of {patch_size}"
        )
    return height // patch_size, width // patch_size
