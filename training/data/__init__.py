"""Data sets as sets of labelled images, their splits, and the batches a run sees.

Importing this imports torch and Pillow; scikit-learn and pooch are imported only by what needs
them, and torchvision by nothing.
"""

from training.data.batches import Batch as Batch
from training.data.batches import BatchPlan as BatchPlan
from training.data.batches import TrainingFeed as TrainingFeed
from training.data.batches import evaluation_batches as evaluation_batches
from training.data.folders import FileSource as FileSource
from training.data.sources import ImageSource as ImageSource
from training.data.sources import MemorySource as MemorySource
from training.data.sources import subset as subset
from training.data.splits import DataOptions as DataOptions
from training.data.splits import Splits as Splits
from training.data.splits import open_data as open_data
from training.errors import DataError as DataError
from training.errors import DataNotFoundError as DataNotFoundError
