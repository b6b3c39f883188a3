"""Augmentation of whole batches on the device, driven by numbers that are drawn elsewhere.

Importing this imports torch; kornia is imported at the first change of colour.
"""

from training.augmentation.draws import Draws as Draws
from training.augmentation.normalisation import Normalisation as Normalisation
from training.augmentation.options import AugmentationOptions as AugmentationOptions
from training.augmentation.options import RandomResizedCrop as RandomResizedCrop
from training.augmentation.pipeline import Augmentation as Augmentation
