"""Data sets as sets of labelled images, their splits, and the batches a run sees.

Importing this imports no torch, so that a config can be checked against `DATASETS` without it.
The other names import torch and Pillow when they are first used; scikit-learn and pooch are
imported only by what needs them, and torchvision by nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from training.data.datasets import DATASETS as DATASETS
from training.data.datasets import DatasetRecord as DatasetRecord
from training.errors import DataError as DataError
from training.errors import DataNotFoundError as DataNotFoundError

if TYPE_CHECKING:
    from training.data.batches import Batch as Batch
    from training.data.batches import BatchPlan as BatchPlan
    from training.data.batches import TrainingFeed as TrainingFeed
    from training.data.batches import evaluation_batches as evaluation_batches
    from training.data.folders import FileSource as FileSource
    from training.data.sources import ImageSource as ImageSource
    from training.data.sources import MemorySource as MemorySource
    from training.data.sources import subset as subset
    from training.data.splits import Splits as Splits
    from training.data.splits import open_data as open_data

_WITH_TORCH = {
    "Batch": "batches",
    "BatchPlan": "batches",
    "TrainingFeed": "batches",
    "evaluation_batches": "batches",
    "FileSource": "folders",
    "ImageSource": "sources",
    "MemorySource": "sources",
    "subset": "sources",
    "Splits": "splits",
    "open_data": "splits",
}


def __getattr__(name: str) -> Any:
    if name not in _WITH_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WITH_TORCH[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_WITH_TORCH])
