"""Opening a data set and cutting it: training, validation held out of it, and a sealed test set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from training.augmentation.normalisation import Normalisation
from training.data.cifar import CIFAR, open_cifar
from training.data.folders import open_class_folders, open_vtab
from training.data.generated import digits, shapes
from training.data.sources import ImageSource, MemorySource, OpenedData, stratified_choice, subset
from training.errors import DataError
from training.parsing import ImageSize, height_and_width
from training.randomness import generator

DATA_NAMES = ("cifar100", "cifar10", "digits", "shapes", "folder", "vtab")
_STATISTICS_IMAGES = 1000  # enough for means and deviations to a per cent or two


@dataclass(frozen=True)
class DataOptions:
    """What `open_data` reads; any object with these attributes will do.

    `image_size` is what the model sees, the side of a square or (height, width), None the native
    size. `train_images` limits the training images after the split. `validation` is the number of
    images held out of training; where the data set comes with validation images of its own it is
    their number, or 0 to train on them too. `mean` and `std`, of pixels from 0 to 1, are those of
    the data set if None.
    """

    name: Literal["cifar100", "cifar10", "digits", "shapes", "folder", "vtab"] = "digits"
    path: str | Path | None = None
    download: bool = False
    image_size: ImageSize | None = None
    labels: Literal["fine", "coarse"] = "fine"
    train_images: int | None = None
    validation: int = 0
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None


@dataclass(frozen=True)
class Splits:
    """The parts of a data set; no image is in two of `train`, `validation` and the test set.

    `train_and_validation` is for training anew once everything has been chosen. The test set is
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


def open_data(options: Any, seed: int) -> Splits:
    """The data set `options` describes, cut into its parts.

    Parameters
    ----------
    options : DataOptions
        Or anything with its attributes, such as the table ``[data]`` of a config.
    seed : int
        Of the run: it draws the validation images and the `train_images`, each class in its
        share. Test sets do not depend on it.

    Raises
    ------
    DataError
        The data are damaged, or not as many as asked for; what is missing is a
        `DataNotFoundError`.
    """
    parts = _parts(options)
    _check_count(options, parts)
    everything = torch.arange(len(parts.source))
    held_out = options.validation
    if not held_out:
        kept, validation = everything, everything[:0]
    elif parts.validation_images:
        kept, validation = everything[:-held_out], everything[-held_out:]
    else:
        drawn = generator(seed, "data", "validation")
        validation, kept = stratified_choice(parts.source.labels, held_out, drawn)
    if options.train_images is not None:
        kept = _limited(parts.source.labels, kept, options.train_images, seed)

    train = subset(parts.source, kept)
    return Splits(
        train=train,
        validation=subset(parts.source, validation) if held_out else None,
        train_and_validation=subset(parts.source, torch.cat((kept, validation))),
        open_test=_compatible(parts),
        normalise=_normalisation(options, train, seed),
    )


def _parts(options: Any) -> OpenedData:
    name, size = options.name, options.image_size
    path = Path(options.path).expanduser() if options.path else None
    if name not in DATA_NAMES:
        raise DataError(f"data.name={name!r}; there are {', '.join(DATA_NAMES)}")
    if options.labels != "fine" and name != "cifar100":
        raise DataError(f"data.labels={options.labels!r} is for cifar100 only")
    if name in ("folder", "vtab"):
        if path is None:
            raise DataError(f"data.name={name!r} needs data.path, the folder of the images")
        opened = open_class_folders if name == "folder" else open_vtab
        return opened(path, image_size=size)
    if name in CIFAR:
        train, open_test = open_cifar(name, path, labels=options.labels, download=options.download)
    else:
        embedded = digits if name == "digits" else shapes
        train, open_test = embedded("train"), lambda: embedded("test")

    def shrunk(source: MemorySource) -> MemorySource:
        return source if size is None else source.shrunk_to(size)

    return OpenedData(shrunk(train), 0, lambda: shrunk(open_test()))


def _check_count(options: Any, parts: OpenedData) -> None:
    own, total = parts.validation_images, len(parts.source)
    if own and options.validation not in (0, own):
        raise DataError(
            f"data.validation={options.validation}: {parts.source.description} come with {own} "
            f"validation images; say {own}, or 0 to train on them too"
        )
    if options.validation >= total:
        raise DataError(
            f"data.validation={options.validation}: nothing is left of the {total} training images"
        )


def _limited(labels: Tensor, kept: Tensor, count: int, seed: int) -> Tensor:
    if not 0 < count <= len(kept):
        raise DataError(f"data.train_images={count}: there are {len(kept)} training images")
    chosen, _ = stratified_choice(labels[kept], count, generator(seed, "data", "train_images"))
    return kept[chosen]


def _compatible(parts: OpenedData) -> Callable[[], ImageSource]:
    """A function that opens the test set and sees that it looks like the training images."""

    def open_test() -> ImageSource:
        test = parts.open_test()
        if test.size != parts.source.size:
            raise DataError(
                f"{test.description}: {test.size[0]} x {test.size[1]} pixels, the training images "
                f"{parts.source.size[0]} x {parts.source.size[1]}; set data.image_size"
            )
        return test

    return open_test


def _normalisation(options: Any, train: ImageSource, seed: int) -> Normalisation:
    """By the numbers in the config, those published, or those of the training images."""
    mean, std = options.mean, options.std
    if mean is None or std is None:
        own_mean, own_std = _statistics(options.name, train, seed)
        mean = own_mean if mean is None else mean
        std = own_std if std is None else std
    size = train.size if options.image_size is None else height_and_width(options.image_size)
    return Normalisation(tuple(mean), tuple(std), size=size, channels=train.channels)


def _statistics(
    name: str, train: ImageSource, seed: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if name in CIFAR:
        return CIFAR[name].mean, CIFAR[name].std
    drawn = generator(seed, "data", "statistics")
    some = torch.randperm(len(train), generator=drawn)[:_STATISTICS_IMAGES]
    # How often each of the 256 values occurs says it all, exactly and in little memory.
    counts = torch.zeros(train.channels, 256, dtype=torch.float64)
    for part in some.split(32):
        for channel, pixels in enumerate(train.fetch(part).unbind(1)):
            counts[channel] += torch.bincount(pixels.flatten(), minlength=256)
    shares = counts / counts.sum(dim=1, keepdim=True)
    values = torch.arange(256, dtype=torch.float64) / 255
    mean = shares @ values
    variance = (shares * (values - mean[:, None]).square()).sum(dim=1)
    # A channel of one colour only is left as it is.
    deviation = torch.where(variance > 0, variance, 1.0).sqrt()
    return tuple(mean.tolist()), tuple(deviation.tolist())
