"""Sets of labelled images: what the training layer expects of them, and those in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.nn import functional

from training.augmentation.geometry import Boxes
from training.errors import DataError
from training.metrics import ACCURACY, RELATIVE_ERROR, Metric
from training.parsing import ImageSize, height_and_width


class ImageSource(Protocol):
    """A set of labelled images, all of one size.

    Labels are classes (N,). Of fields, from which others are predicted, they are the truth
    (N, channels, height, width) in float32, and ``class_names`` name its channels.

    ``fetch`` returns uint8 images (n, channels, height, width) on the CPU in the order of the
    indices, which may repeat; fields are float32, of deviation 1. It may be called from several
    threads. `workers` threads should share it; 0 says that it takes no time worth sharing.
    """

    @property
    def class_names(self) -> tuple[str, ...]: ...
    @property
    def labels(self) -> Tensor: ...  # (N,) int64, or the fields to predict
    @property
    def channels(self) -> int: ...
    @property
    def size(self) -> tuple[int, int]: ...  # height and width of the fetched images
    @property
    def description(self) -> str: ...
    @property
    def workers(self) -> int: ...
    @property
    def damaged(self) -> Mapping[str, str]: ...  # images found to be damaged so far, and why
    def __len__(self) -> int: ...
    def fetch(self, indices: Tensor) -> Tensor: ...


@runtime_checkable
class WindowSource(ImageSource, Protocol):
    """A set of images that have other sizes than those ``fetch`` returns, such as photographs.

    ``fetch_windows`` cuts a box out of each image as it is stored and resizes that. `choose` makes
    the boxes from the ratios of width to height of the images.
    """

    def fetch_windows(self, indices: Tensor, choose: Callable[[Tensor], Boxes]) -> Tensor: ...


@dataclass(frozen=True)
class OpenedData:
    """An opened data set, with training and validation images in one source, validation last."""

    source: ImageSource
    validation_images: int  # 0: the data set has no validation images of its own
    open_test: Callable[[], ImageSource]


class MemorySource:
    """Images in memory as uint8; a fetch is one gather."""

    workers = 0
    damaged: Mapping[str, str] = {}

    def __init__(
        self, images: Tensor, labels: Tensor, class_names: tuple[str, ...], description: str
    ) -> None:
        if images.dtype != torch.uint8 or images.ndim != 4:
            raise DataError(
                f"{description}: images must be uint8 (N, channels, height, width), "
                f"got {images.dtype} {tuple(images.shape)}"
            )
        self._images = images
        self.labels = checked_labels(labels, len(images), class_names, description)
        self.class_names = class_names
        self.channels = images.shape[1]
        self.size = (images.shape[2], images.shape[3])
        self.description = description

    def __len__(self) -> int:
        return len(self._images)

    def fetch(self, indices: Tensor) -> Tensor:
        return self._images.index_select(0, indices)

    def shrunk_to(self, image_size: ImageSize) -> MemorySource:
        """The same images, made smaller where they are higher or wider than `image_size`.

        Images are made smaller once, with a filter against aliasing. They are made larger on the
        device, batch by batch: CIFAR at 224 pixels would take 7.5 GB.
        """
        size = [min(*pair) for pair in zip(self.size, height_and_width(image_size), strict=True)]
        if size == list(self.size):
            return self
        parts = [
            functional.interpolate(part, size=size, mode="bilinear", antialias=True)
            for part in self._images.split(1024)
        ]
        return MemorySource(torch.cat(parts), self.labels, self.class_names, self.description)


class FieldSource:
    """Fields in memory, (N, channels, height, width) in float32, and what they should become."""

    workers = 0
    damaged: Mapping[str, str] = {}

    def __init__(
        self, fields: Tensor, truth: Tensor, channel_names: tuple[str, ...], description: str
    ) -> None:
        if fields.ndim != 4 or truth.shape != (len(fields), len(channel_names), *fields.shape[2:]):
            raise DataError(
                f"{description}: fields of shape {tuple(fields.shape)} and truth of "
                f"{tuple(truth.shape)} for the channels {', '.join(channel_names)}"
            )
        self._fields = fields
        self.labels, self.class_names = truth, channel_names
        self.channels = fields.shape[1]
        self.size = (fields.shape[2], fields.shape[3])
        self.description = description

    def __len__(self) -> int:
        return len(self._fields)

    def fetch(self, indices: Tensor) -> Tensor:
        return self._fields.index_select(0, indices)


class _Subset:
    """Some images of another source in the order of `indices`."""

    def __init__(self, source: ImageSource, indices: Tensor) -> None:
        self._source = source
        self._indices = indices
        self.labels = source.labels[indices]
        self.class_names = source.class_names
        self.channels = source.channels
        self.size = source.size
        self.workers = source.workers
        self.damaged = source.damaged
        self.description = f"{len(indices)} images of {source.description}"

    def __len__(self) -> int:
        return len(self._indices)

    def fetch(self, indices: Tensor) -> Tensor:
        return self._source.fetch(self._indices[indices])


class _WindowSubset(_Subset):
    """Some images of a source that can cut windows out of them."""

    _source: WindowSource

    def fetch_windows(self, indices: Tensor, choose: Callable[[Tensor], Boxes]) -> Tensor:
        return self._source.fetch_windows(self._indices[indices], choose)


def metric_of_source(source: ImageSource) -> Metric:
    """What predictions of its labels are judged by."""
    return RELATIVE_ERROR if source.labels.is_floating_point() else ACCURACY


def subset(source: ImageSource, indices: Tensor) -> ImageSource:
    """A view of the images of `source` at `indices`, in that order; nothing is copied."""
    if indices.dtype != torch.int64 or indices.ndim != 1:
        raise DataError(f"indices must be int64 (n,), got {indices.dtype} {tuple(indices.shape)}")
    if len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < len(source):
        raise DataError(f"indices outside of the {len(source)} images of {source.description}")
    kind = _WindowSubset if isinstance(source, WindowSource) else _Subset
    return kind(source, indices)


def checked_labels(
    labels: Tensor, count: int, class_names: tuple[str, ...], description: str
) -> Tensor:
    """The labels as int64, after checking that every image has one and every label a name."""
    if labels.ndim != 1 or len(labels) != count:
        raise DataError(f"{description}: {count} images but labels of shape {tuple(labels.shape)}")
    labels = labels.to(torch.int64)
    if count and not 0 <= int(labels.min()) <= int(labels.max()) < len(class_names):
        raise DataError(
            f"{description}: labels from {int(labels.min())} to {int(labels.max())} "
            f"for {len(class_names)} classes"
        )
    return labels


def stratified_choice(
    labels: Tensor, count: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Choose `count` images so that every class keeps its share.

    Returns the indices of the chosen images and of the others, both ascending. Each class gives
    its share rounded down. The images still missing come from the classes with the largest
    remainders, equal ones in random order, so no class is off its share by one image or more.
    """
    total = len(labels)
    if labels.is_floating_point():  # fields have no classes: all are of one
        labels = torch.zeros(total, dtype=torch.int64)
    if not 0 <= count <= total:
        raise DataError(f"{count} images were asked for, but there are {total}")
    order = torch.randperm(total, generator=generator)
    classes, sizes = labels.unique(return_counts=True)
    shares = sizes * count  # in units of 1/total: integers, so that nothing is rounded
    quotas = shares // max(total, 1)
    # A stable sort of the classes in random order breaks ties by chance.
    shuffled = torch.randperm(len(classes), generator=generator)
    remainders = (shares - quotas * total)[shuffled]
    largest = shuffled[remainders.argsort(descending=True, stable=True)]
    quotas[largest[: count - int(quotas.sum())]] += 1

    is_chosen = torch.zeros(total, dtype=torch.bool)
    shuffled_labels = labels[order]
    for label, quota in zip(classes.tolist(), quotas.tolist(), strict=True):
        is_chosen[order[shuffled_labels == label][:quota]] = True
    return is_chosen.nonzero().flatten(), (~is_chosen).nonzero().flatten()
