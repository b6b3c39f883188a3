"""Augmentation of whole batches on the device, driven by numbers that are drawn elsewhere.

Importing this imports torch.
"""

from training.augmentation.augmenter import Augmenter as Augmenter
from training.augmentation.normalisation import Normalisation as Normalisation
