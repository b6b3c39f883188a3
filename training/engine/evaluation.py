"""Loss and accuracy of a model on a set of images, or its error in predicting fields."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import Tensor, nn

from training.augmentation import Normalisation
from training.data import ImageSource, evaluation_batches
from training.data.sources import metric_of_source
from training.encodings.encoding import working_dtype
from training.engine.losses import relative_errors
from training.metrics import ACCURACY, RELATIVE_ERROR, Metric
from wefpe_core.reporting import peak_memory_mb as peak_memory_of_process

_LIKELIEST = 5


@dataclass(frozen=True)
class Scores:
    """The mean loss on some images, and the metric: as a rule the share of right answers.

    `top5` is the share of images whose class is among the five likeliest; None unless there are
    more than five classes, or where it was not counted.
    """

    loss: float
    value: float  # of the metric
    images: int
    metric: Metric = ACCURACY
    top5: float | None = None
    seconds: float = field(default=0.0, compare=False)  # 0 if it was not measured
    peak_memory_mb: float | None = field(default=None, compare=False)  # of any process so far

    @property
    def accuracy(self) -> float:
        """The share of right answers."""
        if self.metric is not ACCURACY:
            raise AttributeError(f"these scores have the {self.metric.title} in `value`")
        return self.value

    def numbers(self) -> dict[str, float]:
        """Loss, metric and, where it was counted, top-5 by the names that logs have."""
        top5 = {} if self.top5 is None else {"top5": self.top5}
        return {"loss": self.loss, self.metric.name: self.value, **top5}

    @property
    def images_per_second(self) -> float | None:
        """Of all processes together, reading the images included; None if not measured."""
        return self.images / self.seconds if self.seconds else None


@torch.no_grad()
def evaluate(
    model: nn.Module,
    source: ImageSource,
    normalise: Normalisation,
    batch_size: int,
    accelerator: Accelerator,
) -> Scores:
    """Mean cross-entropy and accuracies on a set of images, which the processes share.

    Of fields it is the mean relative error, which is both the loss and the metric.
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
    began = time.perf_counter()
    was_training = model.training
    model.eval()
    sums = ScoreSums(accelerator, metric_of_source(source))
    among_five = torch.zeros((), dtype=torch.int64, device=accelerator.device)
    try:
        for images, labels in batches:
            with accelerator.autocast():
                logits = model(images)
            # A sum, not a mean: a process may get an empty share of a small batch.
            if sums.metric is RELATIVE_ERROR:
                loss = relative_errors(logits.float(), labels).sum()
            else:
                loss = F.cross_entropy(logits.float(), labels, reduction="sum")
            sums.add(batch_sums(loss, logits, labels))
            if sums.metric is ACCURACY and logits.shape[-1] > _LIKELIEST:
                likeliest = logits.topk(_LIKELIEST, dim=-1).indices
                among_five += (likeliest == labels[:, None]).sum()
    finally:
        model.train(was_training)
    scores = sums.read()  # which waits for the device
    if sums.metric is ACCURACY and len(source.class_names) > _LIKELIEST:
        count = int(accelerator.reduce(among_five, reduction="sum"))
        scores = replace(scores, top5=count / max(scores.images, 1))
    seconds = time.perf_counter() - began
    return replace(scores, seconds=seconds, peak_memory_mb=_peak_memory_mb(accelerator))


def _peak_memory_mb(accelerator: Accelerator) -> float | None:
    """The most memory that any process has used so far; every process must call this.

    It is the GPU's where there is one, else that of the process. None where the system does not
    tell.
    """
    if torch.cuda.is_available():
        own: float | None = torch.cuda.max_memory_allocated() / 1e6
    else:
        own = peak_memory_of_process()
    if own is None:
        return None
    largest = accelerator.gather(torch.tensor([own], device=accelerator.device)).max()
    return float(largest)


# --- Sums over batches ---------------------------------------------------------------------


def batch_sums(loss: Tensor, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Summed loss, number of right answers and number of images; `loss` is summed already.

    Of fields it is the sum of their relative errors instead of right answers.
    """
    if labels.is_floating_point():
        measured = relative_errors(logits.detach().float(), labels).sum()
    else:
        measured = (logits.detach().argmax(dim=-1) == labels).sum()
    return loss.detach(), measured, torch.full_like(measured, len(labels))


class ScoreSums:
    """Sums of loss and metric on the device. Adding does not wait for it; reading does.

    A checkpoint holds `state`, and `restore` reads it back. The means logged after a restart are
    therefore those of a run that was never stopped.
    """

    def __init__(self, accelerator: Accelerator, metric: Metric = ACCURACY) -> None:
        self._accelerator, self.metric = accelerator, metric
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
        loss, measured, images = self.state()
        return Scores(loss / max(images, 1), measured / max(images, 1), int(images), self.metric)

    def reset(self) -> None:
        self._sums = self._zeros()
