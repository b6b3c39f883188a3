"""What is known about each data set before it is opened; importing this imports no torch.

A new data set is a record here and a function that opens it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Literal

from training.metrics import ACCURACY, RELATIVE_ERROR, Metric

if TYPE_CHECKING:
    from training.config.schema import Data
    from training.data.sources import OpenedData
    from training.parsing import ImageSize


@dataclass(frozen=True)
class DatasetRecord:
    """A data set; a number that only the files can tell is None.

    Parameters
    ----------
    name : str
        The value of ``data.name``.
    opener : str
        ``"module:function"``. The function takes the table ``[data]`` of a config and the size at
        which to read the images, and returns an `OpenedData`.
    needs : {"nothing", "archive", "folder"}
        Nothing: the images are drawn or come with a library. Archive: the published file, at
        ``data.path`` or where downloads are kept; ``data.download`` fetches it. Folder: the images
        are whatever lies at ``data.path``.
    channels : int
    size : int, optional
        Height and width of the images in pixels.
    classes, coarse_classes : int, optional
        Number of classes with ``data.labels`` "fine" and "coarse".
    training_images : int, optional
        Images to train on, those for validation included.
    validation_images : int, optional
        How many of them the data set itself sets aside for validation.
    mean, std : tuple of float, optional
        Published statistics of pixels from 0 to 1. Without them the training images are measured.
    predicts : {"classes", "fields"}
        Fields are predicted patch by patch, at every pixel, and judged by their relative error.
    """

    name: str
    opener: str
    needs: Literal["nothing", "archive", "folder"]
    channels: int
    size: int | None = None
    classes: int | None = None
    coarse_classes: int | None = None
    training_images: int | None = None
    validation_images: int | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    predicts: Literal["classes", "fields"] = "classes"

    @property
    def metric(self) -> Metric:
        return RELATIVE_ERROR if self.predicts == "fields" else ACCURACY

    def open(self, data: Data, image_size: ImageSize | None = None) -> OpenedData:
        """Import the opener and call it."""
        module, _, function = self.opener.partition(":")
        opener: Callable[[Data, ImageSize | None], OpenedData]
        opener = getattr(import_module(module), function)
        return opener(data, image_size)


def _fields_on_a_torus(name: str, opener: str) -> DatasetRecord:
    return DatasetRecord(
        name,
        f"training.data.torus:{opener}",
        needs="nothing",
        channels=1,
        size=32,
        classes=1,
        training_images=2500,
        mean=(0.0,),
        std=(1.0,),
        predicts="fields",
    )


_RECORDS = (
    DatasetRecord(
        "cifar100",
        "training.data.cifar:open_cifar",
        needs="archive",
        channels=3,
        size=32,
        classes=100,
        coarse_classes=20,
        training_images=50_000,
        mean=(0.5071, 0.4865, 0.4409),
        std=(0.2673, 0.2564, 0.2762),
    ),
    # The same images, each rolled cyclically by an amount of its own: a world without edges.
    DatasetRecord(
        "cifar100_rolled",
        "training.data.cifar:open_rolled_cifar",
        needs="archive",
        channels=3,
        size=32,
        classes=100,
        coarse_classes=20,
        training_images=50_000,
        mean=(0.5071, 0.4865, 0.4409),
        std=(0.2673, 0.2564, 0.2762),
    ),
    DatasetRecord(
        "cifar10",
        "training.data.cifar:open_cifar",
        needs="archive",
        channels=3,
        size=32,
        classes=10,
        training_images=50_000,
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2470, 0.2435, 0.2616),
    ),
    # The 8 x 8 digits of scikit-learn.
    DatasetRecord(
        "digits",
        "training.data.built_in:open_digits",
        needs="nothing",
        channels=1,
        size=8,
        classes=10,
        training_images=1437,
    ),
    # Drawn images whose class depends on position alone, for tests.
    DatasetRecord(
        "shapes",
        "training.data.built_in:open_shapes",
        needs="nothing",
        channels=1,
        size=16,
        classes=4,
        training_images=2048,
    ),
    _fields_on_a_torus("torus_poisson", "open_poisson"),
    _fields_on_a_torus("torus_heat", "open_heat_step"),
    _fields_on_a_torus("torus_flow", "open_flow_step"),
    # train/CLASS/IMAGE beside test/CLASS/IMAGE, val/CLASS/IMAGE or both.
    DatasetRecord("folder", "training.data.folders:open_class_folders", needs="folder", channels=3),
    # Lists of files: train.txt beside test.txt, val.txt or both.
    DatasetRecord("list", "training.data.folders:open_lists", needs="folder", channels=3),
    # Tar files as WebDataset packs them: *train*.tar beside *test*.tar, *val*.tar or both.
    DatasetRecord("shards", "training.data.shards:open_shards", needs="folder", channels=3),
    # The folder format of VTAB-1k: images and train800.txt, val200.txt, test.txt.
    DatasetRecord(
        "vtab",
        "training.data.folders:open_vtab",
        needs="folder",
        channels=3,
        training_images=1000,
        validation_images=200,
    ),
)
DATASETS = {record.name: record for record in _RECORDS}

if TYPE_CHECKING:
    DatasetName = str
else:
    DatasetName = Literal[tuple(DATASETS)]  # what a config accepts
