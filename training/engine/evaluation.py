"""Loss and accuracy of a model on a set of images."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import Tensor, nn

from training.augmentation import Normalisation
from training.data import ImageSource, evaluation_batches
from training.encodings.encoding import working_dtype

# Running sums of the loss and of the right answers, kept on the device.


@dataclass(frozen=True)
class Scores:
    """Mean loss and share of right answers of some images."""

    loss: float
    accuracy: float
    images: int


def batch_sums(loss: Tensor, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Summed loss, right answers and number of images, where `loss` is summed already."""
    right = (logits.detach().argmax(dim=-1) == labels).sum()
    return loss.detach(), right, torch.full_like(right, len(labels))


class ScoreSums:
    """Sums over images. Adding does not wait for the device; reading does.

    `state` and `restore` carry them over a restart, so that the means logged after it are those
    of a run that was never stopped.
    """

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator
        self._sums = self._zeros()

    def _zeros(self) -> Tensor:
        device = self._accelerator.device
        return torch.zeros(3, dtype=working_dtype(device), device=device)

    def add(self, parts: tuple[Tensor, Tensor, Tensor]) -> None:
        """Add the `batch_sums` of some images."""
        self._sums += torch.stack([part.to(self._sums.dtype) for part in parts])

    def state(self) -> list[float]:
        """The sums over all processes; every process must call this."""
        return self._accelerator.reduce(self._sums.clone(), reduction="sum").tolist()

    def restore(self, state: list[float]) -> None:
        self._sums = self._zeros()
        if self._accelerator.is_main_process:  # the sums of all are given to one
            self._sums += torch.tensor(state, dtype=self._sums.dtype, device=self._sums.device)

    def read(self) -> Scores:
        """The means over all processes; every process must call this."""
        loss, right, images = self.state()
        return Scores(loss / max(images, 1), right / max(images, 1), int(images))

    def reset(self) -> None:
        self._sums = self._zeros()


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
