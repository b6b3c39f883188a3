"""Opening a data set and dividing it into training, validation and test images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from training.augmentation.normalisation import Normalisation
from training.data.datasets import DATASETS
from training.data.sources import ImageSource, MemorySource, OpenedData, stratified_choice, subset
from training.errors import DataError
from training.parsing import ImageSize, height_and_width, size_text
from training.randomness import generator

if TYPE_CHECKING:
    from training.config.schema import Data

_STATISTICS_IMAGES = 1000  # enough for means and deviations to a per cent or two


@dataclass(frozen=True)
class Splits:
    """The parts of a data set; no image is in two of `train`, `validation` and the test set.

    `train_and_validation` is for training again once all choices have been made. The test set is
    not read before `open_test` is called. `normalise` turns what the sources fetch into what the
    model sees.
    """

    train: ImageSource
    validation: ImageSource | None
    train_and_validation: ImageSource
    open_test: Callable[[], ImageSource]
    normalise: Normalisation

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.train.class_names

    @property
    def channels(self) -> int:
        return self.train.channels

    @property
    def image_size(self) -> tuple[int, int]:
        """(height, width) of the images the model sees."""
        return self.normalise.size


def open_data(data: Data, seed: int, *, image_size: ImageSize | None = None) -> Splits:
    """Open a data set and divide it into its parts.

    Parameters
    ----------
    data : training.config.schema.Data
        The table ``[data]`` of a config, or one made by hand, such as
        ``Data(name="digits", validation=100)``.
    seed : int
        The seed of the run. It draws the validation images and the `train_images`, each class in
        its share. Test sets do not depend on it.
    image_size : int or (int, int), optional
        The side of a square or (height, width); it replaces the `image_size` of `data`.

    Raises
    ------
    DataError
        The data are damaged, or there are fewer than asked for. If a file is missing, it is a
        `DataNotFoundError`.
    """
    size = data.image_size if image_size is None else image_size
    opened = _opened(data, size)
    _check_validation(data.validation, opened)
    every = torch.arange(len(opened.source))
    held_out = data.validation
    if not held_out:
        kept, validation = every, every[:0]
    elif opened.validation_images:
        kept, validation = every[:-held_out], every[-held_out:]
    else:
        drawn = generator(seed, "data", "validation")
        validation, kept = stratified_choice(opened.source.labels, held_out, drawn)
    if data.train_images is not None:
        kept = _limited(opened.source.labels, kept, data.train_images, seed)

    train = subset(opened.source, kept)
    return Splits(
        train=train,
        validation=subset(opened.source, validation) if held_out else None,
        train_and_validation=subset(opened.source, torch.cat((kept, validation))),
        open_test=_compatible(opened),
        normalise=_normalisation(data, size, train, seed),
    )


def _opened(data: Data, size: ImageSize | None) -> OpenedData:
    if data.name not in DATASETS:
        raise DataError(f"data.name={data.name!r}; there are {', '.join(DATASETS)}")
    record = DATASETS[data.name]
    if data.labels == "coarse" and record.coarse_classes is None:
        raise DataError(f"data.labels='coarse': {data.name} has no coarse labels")
    if record.needs == "folder" and not data.path:
        raise DataError(f"data.name={data.name!r} needs data.path, the folder of the images")
    opened = record.open(data, size)

    def shrunk(source: ImageSource) -> ImageSource:
        if size is None or not isinstance(source, MemorySource):
            return source
        return source.shrunk_to(size)

    return OpenedData(
        shrunk(opened.source), opened.validation_images, lambda: shrunk(opened.open_test())
    )


def _check_validation(asked: int, opened: OpenedData) -> None:
    own, total = opened.validation_images, len(opened.source)
    if own and asked not in (0, own):
        raise DataError(
            f"data.validation={asked}: {opened.source.description} come with {own} "
            f"validation images; say {own}, or 0 to train on them too"
        )
    if asked >= total:
        raise DataError(f"data.validation={asked}: nothing is left of the {total} training images")


def _limited(labels: Tensor, kept: Tensor, count: int, seed: int) -> Tensor:
    if not 0 < count <= len(kept):
        raise DataError(f"data.train_images={count}: there are {len(kept)} training images")
    chosen, _ = stratified_choice(labels[kept], count, generator(seed, "data", "train_images"))
    return kept[chosen]


def _compatible(opened: OpenedData) -> Callable[[], ImageSource]:
    """A function that opens the test set and checks that its images are as large as the others."""

    def open_test() -> ImageSource:
        test = opened.open_test()
        if test.size != opened.source.size:
            raise DataError(
                f"{test.description} have {size_text(test.size)} pixels, the training images "
                f"{size_text(opened.source.size)}; set data.image_size"
            )
        return test

    return open_test


def _normalisation(
    data: Data, size: ImageSize | None, train: ImageSource, seed: int
) -> Normalisation:
    """By the numbers in the config, else those published, else those of the training images."""
    mean, std = data.mean, data.std
    if mean is None or std is None:
        own_mean, own_std = _statistics(data.name, train, seed)
        mean = own_mean if mean is None else mean
        std = own_std if std is None else std
    seen = train.size if size is None else height_and_width(size)
    return Normalisation(mean, std, size=seen, channels=train.channels)


def _statistics(
    name: str, train: ImageSource, seed: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    record = DATASETS[name]
    if record.mean is not None and record.std is not None:
        return record.mean, record.std
    drawn = generator(seed, "data", "statistics")
    some = torch.randperm(len(train), generator=drawn)[:_STATISTICS_IMAGES]
    # The counts of the 256 values give the statistics exactly and in little memory.
    counts = torch.zeros(train.channels, 256, dtype=torch.float64)
    for part in some.split(32):
        for channel, pixels in enumerate(train.fetch(part).unbind(1)):
            counts[channel] += torch.bincount(pixels.flatten(), minlength=256)
    shares = counts / counts.sum(dim=1, keepdim=True)
    values = torch.arange(256, dtype=torch.float64) / 255
    mean = shares @ values
    variance = (shares * (values - mean[:, None]).square()).sum(dim=1)
    # A channel that has one value everywhere is not rescaled.
    deviation = torch.where(variance > 0, variance, 1.0).sqrt()
    return tuple(mean.tolist()), tuple(deviation.tolist())
