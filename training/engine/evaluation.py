"""Loss and accuracy of a model on a set of images."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name
from accelerate import Accelerator
from torch import Tensor, nn

from training.engine.metrics import Scores, ScoreSums


@torch.no_grad()
def evaluate(
    model: nn.Module, batches: Iterable[tuple[Tensor, Tensor]], accelerator: Accelerator
) -> Scores:
    """Mean cross-entropy and accuracy over batches of (images, labels), on all processes.

    The model is left in the mode it was in.
    """
    was_training = model.training
    model.eval()
    sums = ScoreSums(accelerator)
    try:
        for images, labels in batches:
            with accelerator.autocast():
                logits = model(images)
            # A sum, because a process may get an empty share of a small batch.
            loss = F.cross_entropy(logits.float(), labels, reduction="sum")
            sums.add(loss, logits, labels)
    finally:
        model.train(was_training)
    return sums.read()
