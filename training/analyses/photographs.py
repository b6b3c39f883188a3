"""Photographs for models: read and checked at once, cut to the shape a model sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from PIL import Image, ImageOps
from torch import Tensor

from training.data.image_sizes import ImageSize, height_and_width
from wefpe_core.errors import InputError

_WIDE_MODES = ("I", "F")  # more than 8 bits: converting them would clip
_TRANSPARENT_MODES = ("RGBA", "LA", "PA", "RGBa", "La")


@dataclass(frozen=True)
class Photograph:
    """A decoded image with its name."""

    name: str
    image: Image.Image  # RGB, turned as its EXIF data say, on white where it is transparent

    def fitted(self, size: ImageSize, channels: int) -> Tensor:
        """uint8 (channels, height, width): scaled to cover that size, the middle cut out."""
        height, width = height_and_width(size)
        image = self.image if channels == 3 else self.image.convert("L")
        image = ImageOps.fit(image, (width, height), Image.Resampling.BICUBIC)
        flat = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
        return flat.view(height, width, channels).permute(2, 0, 1)


def read_photographs(paths: Sequence[Path]) -> list[Photograph]:
    """Every file decoded, so that what is missing or no image is named before any work."""
    photographs = []
    unique = list(dict.fromkeys(map(Path, paths)))
    stems = [path.stem for path in unique]
    for path in unique:
        if not path.is_file():
            what = "is a folder, not an image" if path.is_dir() else "does not exist"
            raise InputError(f"{path} {what}")
        try:
            with Image.open(path) as image:
                if image.mode.startswith(_WIDE_MODES):
                    raise InputError(f"{path} has more than 8 bits per channel; convert it")
                turned = _on_white(ImageOps.exif_transpose(image))
        except InputError:
            raise
        except Exception as error:  # OSError, SyntaxError, ValueError, DecompressionBombError, ...
            raise InputError(f"{path} cannot be decoded as an image: {error}") from error
        name = path.stem if stems.count(path.stem) == 1 else str(path)
        photographs.append(Photograph(name, turned))
    return photographs


def _on_white(image: Image.Image) -> Image.Image:
    """In RGB; what lies under transparent pixels is arbitrary and nobody has seen it."""
    if image.mode not in _TRANSPARENT_MODES and "transparency" not in image.info:
        return image.convert("RGB")
    above = image.convert("RGBA")
    white = Image.new("RGBA", above.size, "white")
    return Image.alpha_composite(white, above).convert("RGB")
