"""Data sets that need no file: the digits of scikit-learn, and drawn shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from training.data.sources import MemorySource, OpenedData, stratified_choice
from training.parsing import ImageSize
from training.randomness import generator
from wefpe_core.errors import import_optional

if TYPE_CHECKING:
    from training.config.schema import Data

DIGITS_TEST_IMAGES = 360
_DIGITS_WHITE = 16  # the grey values of scikit-learn's digits are 0 to 16

SHAPES_TRAIN_IMAGES = 2048
SHAPES_TEST_IMAGES = 512
SHAPES_SIZE = 16
_CELL = 4  # pixels; each mark fills a cell, so patches of 4 x 4 cut none
_CORNERS = ("upper left", "upper right", "lower left", "lower right")


def open_digits(data: Data, image_size: ImageSize | None = None) -> OpenedData:
    return OpenedData(digits("train"), 0, lambda: digits("test"))


def open_shapes(data: Data, image_size: ImageSize | None = None) -> OpenedData:
    return OpenedData(shapes("train"), 0, lambda: shapes("test"))


def digits(part: str) -> MemorySource:
    """The handwritten digits of scikit-learn, 8 x 8 in grey: "train" (1,437) or "test" (360).

    scikit-learn has no split into training and test images. The one here is the same for every
    seed of a run and gives each class its share.
    """
    content = _load_digits()
    pixels = torch.from_numpy(content.images).mul(255 / _DIGITS_WHITE).round().to(torch.uint8)
    labels = torch.from_numpy(content.target).to(torch.int64)
    test, train = stratified_choice(labels, DIGITS_TEST_IMAGES, generator(0, "digits", "test"))
    chosen = {"train": train, "test": test}[part]
    names = tuple(str(name) for name in content.target_names)
    return MemorySource(
        pixels[chosen].unsqueeze(1), labels[chosen], names, f"scikit-learn digits ({part})"
    )


def shapes(part: str) -> MemorySource:
    """Drawn images for tests, 16 x 16 in grey, always the same ones: "train" or "test"."""
    count = {"train": SHAPES_TRAIN_IMAGES, "test": SHAPES_TEST_IMAGES}[part]
    images, labels = draw_shapes(count, 0, part)
    return MemorySource(images, labels, _CORNERS, f"synthetic shapes ({part})")


def draw_shapes(count: int, seed: int, *words: str | int) -> tuple[Tensor, Tensor]:
    """`count` images with a filled square and a ring, labelled by the corner the square is in.

    Each mark fills one of 4 x 4 cells on a dark noisy ground and looks the same in all of them.
    The classes differ only in the position of the square, so a model that sees a bag of patches
    of 4 x 4 pixels can only guess.
    """
    drawn = generator(seed, "shapes", *words)
    cells = SHAPES_SIZE // _CELL
    images = torch.randint(0, 64, (count, 1, SHAPES_SIZE, SHAPES_SIZE), generator=drawn)
    # Two different cells for each image.
    square = torch.randint(0, cells**2, (count,), generator=drawn)
    ring = (square + torch.randint(1, cells**2, (count,), generator=drawn)) % cells**2
    row, column = square // cells, square % cells
    labels = (row >= cells // 2) * 2 + (column >= cells // 2)

    by_cell = images.view(count, cells, _CELL, cells, _CELL)
    every = torch.arange(count)
    by_cell[every, row, :, column] = 224
    outline = torch.full((_CELL, _CELL), 224)
    outline[1:-1, 1:-1] = 0
    by_cell[every, ring // cells, :, ring % cells] = outline
    return images.to(torch.uint8), labels.to(torch.int64)


def _load_digits() -> Any:
    datasets = import_optional(
        "sklearn.datasets", purpose="the data set digits", extra="training", package="scikit-learn"
    )
    return datasets.load_digits()
