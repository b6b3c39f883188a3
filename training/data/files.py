"""Images in files: decoded by Pillow in threads, resized once, kept in memory where they fit.

Pillow lets go of the interpreter while it decodes, so threads serve as well as processes would and
bring no randomness and no memory of their own.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from training.data.errors import DataError, DataNotFoundError
from training.data.image_sizes import ImageSize, height_and_width
from training.data.sources import ImageSource, MemorySource, checked_labels

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".ppm", ".pgm", ".tif", ".tiff", ".gif")
# Decoded images up to this many bytes are read at the start and kept; every process keeps its own.
CACHE_BYTES = 2**30
# A conversion of these to 8 bits would clip what is above 255 without a word.
_WIDE_MODES = ("I", "F")
_MOST_THREADS = 8
_MOST_NAMED = 5  # files in one message


class FileSource:
    """Images decoded from files whenever they are fetched, as RGB, `size` (height, width).

    The whole image is resized to that size, bilinear with a filter against aliasing; marks of
    orientation in the file (EXIF) are not read.
    """

    channels = 3

    def __init__(
        self,
        paths: Sequence[Path],
        labels: Tensor,
        class_names: tuple[str, ...],
        description: str,
        *,
        image_size: ImageSize | None = None,
    ) -> None:
        if not paths:
            raise DataError(f"{description} holds no images")
        _check_present(paths, description)
        self._paths = tuple(paths)
        self.labels = checked_labels(labels, len(paths), class_names, description)
        self.class_names = class_names
        self.description = description
        self._is_resized = image_size is not None
        self.size = height_and_width(image_size) if image_size else _native_size(paths[0])

    def __len__(self) -> int:
        return len(self._paths)

    def fetch(self, indices: Tensor) -> Tensor:
        paths = [self._paths[index] for index in indices.tolist()]
        images = torch.empty(len(paths), self.channels, *self.size, dtype=torch.uint8)

        def decode(place: int) -> None:
            images[place] = self._decoded(paths[place])

        # A pool costs 0.1 ms, a batch of photographs tens of them; so none is left waiting.
        with ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1)) as pool:
            for _ in pool.map(decode, range(len(paths))):
                pass
        return images

    def loaded(self, limit: int | None = None) -> ImageSource:
        """The source in memory if its images fit into `limit` bytes, else itself.

        Loading decodes every file, so that a damaged one is named now and not in the middle of a
        run; of a source that does not fit, only presence and length of the files were looked at.
        """
        height, width = self.size
        limit = CACHE_BYTES if limit is None else limit
        if len(self) * self.channels * height * width > limit:
            return self
        images = self.fetch(torch.arange(len(self)))
        return MemorySource(images, self.labels, self.class_names, self.description)

    def _decoded(self, path: Path) -> Tensor:
        height, width = self.size
        try:
            with Image.open(path) as image:
                if image.mode.startswith(_WIDE_MODES):
                    raise DataError(
                        f"{path} has more than 8 bits per channel (mode {image.mode}); convert it"
                    )
                pixels = image.convert("RGB")
        except DataError:
            raise
        except FileNotFoundError as error:
            raise DataNotFoundError(f"{path} is gone") from error
        except Exception as error:  # OSError, SyntaxError, ValueError, DecompressionBombError, ...
            raise DataError(f"{path} cannot be decoded as an image: {error}") from error
        if pixels.size != (width, height):
            if not self._is_resized:
                raise DataError(
                    f"{path} is {pixels.height} x {pixels.width} pixels, the first image of "
                    f"{self.description} {height} x {width}; set data.image_size"
                )
            pixels = pixels.resize((width, height), Image.Resampling.BILINEAR)
        flat = torch.frombuffer(bytearray(pixels.tobytes()), dtype=torch.uint8)
        return flat.view(height, width, self.channels).permute(2, 0, 1)


def _native_size(path: Path) -> tuple[int, int]:
    try:
        with Image.open(path) as image:
            return image.height, image.width
    except Exception as error:
        raise DataError(f"{path} cannot be decoded as an image: {error}") from error


def _check_present(paths: Sequence[Path], description: str) -> None:
    """Name the files that are missing or empty."""
    absent, empty = [], []
    for path in paths:
        try:
            length = path.stat().st_size
        except OSError:
            absent.append(path)
        else:
            if length == 0:
                empty.append(path)
    if absent:
        raise DataNotFoundError(f"{description}: {_named(absent)} missing")
    if empty:
        raise DataError(f"{description}: {_named(empty)} empty (0 bytes)")


def _named(paths: Sequence[Path]) -> str:
    names = ", ".join(str(path) for path in paths[:_MOST_NAMED])
    rest = len(paths) - _MOST_NAMED
    verb = "is" if len(paths) == 1 else "are"
    return f"{names}{f' and {rest} more' if rest > 0 else ''} {verb}"
