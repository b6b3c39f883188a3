"""Loss and accuracy of a model on a set of images."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name
from accelerate import Accelerator
from torch import nn

from training.augmentation import Normalisation
from training.data import ImageSource, evaluation_batches
from training.engine.metrics import Scores, ScoreSums, batch_sums


@torch.no_grad()
def evaluate(
    model: nn.Module,
    source: ImageSource,
    normalise: Normalisation,
    batch_size: int,
    accelerator: Accelerator,
) -> Scores:
    """Mean cross-entropy and accuracy on a set of images, shared by all processes.

    The model is left in the mode it was in.
    """
    batches = evaluation_batches(
        source,
        batch_size=batch_size,
        device=accelerator.device,
        normalise=normalise,
        rank=accelerator.process_index,
        processes=accelerator.num_processes,
    )
    was_training = model.training
    model.eval()
    sums = ScoreSums(accelerator)
    try:
        for images, labels in batches:
            with accelerator.autocast():
                logits = model(images)
            # A sum, because a process may get an empty share of a small batch.
            loss = F.cross_entropy(logits.float(), labels, reduction="sum")
            sums.add(batch_sums(loss, logits, labels))
    finally:
        model.train(was_training)
    return sums.read()
