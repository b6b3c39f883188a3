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


@dataclass(frozen=True)
class Scores:
    """The mean loss and the share of right answers on some images."""

    loss: float
    accuracy: float
    images: int


@torch.no_grad()
def evaluate(
    model: nn.Module,
    source: ImageSource,
    normalise: Normalisation,
    batch_size: int,
    accelerator: Accelerator,
) -> Scores:
    """Mean cross-entropy and accuracy on a set of images, which the processes share.

    The model keeps the mode it was in, training or evaluation.
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
            # A sum, not a mean: a process may get an empty share of a small batch.
            loss = F.cross_entropy(logits.float(), labels, reduction="sum")
            sums.add(batch_sums(loss, logits, labels))
    finally:
        model.train(was_training)
    return sums.read()


# --- Sums over batches ---------------------------------------------------------------------


def batch_sums(loss: Tensor, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Summed loss, number of right answers and number of images; `loss` is summed already."""
    right = (logits.detach().argmax(dim=-1) == labels).sum()
    return loss.detach(), right, torch.full_like(right, len(labels))


class ScoreSums:
    """Sums of loss and right answers on the device. Adding does not wait for it; reading does.

    A checkpoint holds `state`, and `restore` reads it back. The means logged after a restart are
    therefore those of a run that was never stopped.
    """

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator
        self._sums = self._zeros()

    def _zeros(self) -> Tensor:
        device = self._accelerator.device
        return torch.zeros(3, dtype=working_dtype(device), device=device)

    def add(self, sums: tuple[Tensor, Tensor, Tensor]) -> None:
        """Add the `batch_sums` of some images."""
        self._sums += torch.stack([each.to(self._sums.dtype) for each in sums])

    def state(self) -> list[float]:
        """The sums over all processes; every process must call this."""
        return self._accelerator.reduce(self._sums.clone(), reduction="sum").tolist()

    def restore(self, state: list[float]) -> None:
        self._sums = self._zeros()
        if self._accelerator.is_main_process:  # it gets the sums of all processes
            self._sums += torch.tensor(state, dtype=self._sums.dtype, device=self._sums.device)

    def read(self) -> Scores:
        """The means over all processes; every process must call this."""
        loss, right, images = self.state()
        return Scores(loss / max(images, 1), right / max(images, 1), int(images))

    def reset(self) -> None:
        self._sums = self._zeros()
