"""Which images a batch holds, and a feed that prepares the next batch during a step.

Nothing here has a state: batch b of epoch e is a function of the plan, so a stopped run continues
by asking for the batch that would have been next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import torch
from torch import Tensor

from training.augmentation import Augmenter
from training.data.sources import ImageSource
from training.randomness import Draws, generator
from wefpe_core import InputError

Prepared = TypeVar("Prepared")


@dataclass(frozen=True)
class BatchPlan:
    """The order of `size` images in every epoch, and its division into batches and processes.

    Process `rank` of `processes` takes the `rank`-th stretch of each global batch. The order of an
    epoch depends on the seed and the epoch only.
    """

    size: int
    batch_size: int  # of all processes together
    seed: int
    shuffle: bool = True
    drop_last: bool = True  # leave out the images that do not fill a batch
    rank: int = 0
    processes: int = 1

    def __post_init__(self) -> None:
        if self.batch_size < 1 or self.processes < 1 or not 0 <= self.rank < self.processes:
            raise InputError(
                f"no plan for a batch of {self.batch_size}, process {self.rank} of {self.processes}"
            )
        if self.batch_size % self.processes:
            raise InputError(
                f"training.batch_size={self.batch_size} cannot be shared evenly by "
                f"{self.processes} processes"
            )
        if self.batches_per_epoch < 1:
            raise InputError(
                f"training.batch_size={self.batch_size} is more than the {self.size} images"
            )

    @property
    def batches_per_epoch(self) -> int:
        whole, rest = divmod(self.size, self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def global_size(self, batch: int) -> int:
        """Images of a batch in all processes; only the last batch may be smaller."""
        if not 0 <= batch < self.batches_per_epoch:
            raise InputError(f"there is no batch {batch}; an epoch has {self.batches_per_epoch}")
        return min(self.batch_size, self.size - batch * self.batch_size)

    def places(self, batch: int) -> slice:
        """The stretch of the global batch that belongs to this process."""
        return _stretch(self.global_size(batch), self.rank, self.processes)

    def indices(self, epoch: int, batch: int) -> Tensor:
        """Indices of the images of this process."""
        start, places = batch * self.batch_size, self.places(batch)
        return self._order(epoch)[start + places.start : start + places.stop]

    def _order(self, epoch: int) -> Tensor:
        return _shuffled(self.size, self.seed, epoch) if self.shuffle else _ascending(self.size)


@lru_cache(maxsize=4)
def _shuffled(size: int, seed: int, epoch: int) -> Tensor:
    return torch.randperm(size, generator=generator(seed, "order", epoch))


@lru_cache(maxsize=4)
def _ascending(size: int) -> Tensor:
    return torch.arange(size)


def _stretch(size: int, part: int, parts: int) -> slice:
    """The `part`-th of `parts` consecutive stretches whose lengths differ by one at most."""
    return slice(size * part // parts, size * (part + 1) // parts)


@dataclass(frozen=True)
class Batch:
    """The part of a batch in one process; images, targets and labels are on the device."""

    images: Tensor  # float (n, channels, height, width), normalised
    targets: Tensor  # float32 (n, classes) if batches are mixed, else the labels
    labels: Tensor  # (n,) int64
    indices: Tensor  # (n,) int64, in the source
    number: int  # in its epoch

    def split(self, parts: int) -> tuple[Batch, ...]:
        """The batch in `parts` pieces of nearly equal length, to accumulate gradients."""
        stretches = [_stretch(len(self.labels), part, parts) for part in range(parts)]
        return tuple(
            Batch(
                self.images[stretch],
                self.targets[stretch],
                self.labels[stretch],
                self.indices[stretch],
                self.number,
            )
            for stretch in stretches
        )


class TrainingFeed:
    """The augmented batches of a run; a thread prepares each one while its predecessor is used."""

    def __init__(
        self,
        source: ImageSource,
        plan: BatchPlan,
        augmenter: Augmenter,
        device: torch.device | str = "cpu",
    ) -> None:
        if plan.size != len(source):
            raise InputError(f"a plan for {plan.size} images does not fit {source.description}")
        if augmenter.mixes and plan.processes > 1 and plan.batch_size // plan.processes % 2:
            raise InputError(
                f"mixup and cutmix mix neighbours: training.batch_size={plan.batch_size} over "
                f"{plan.processes} processes must give each an even number of images"
            )
        self.source = source
        self.plan = plan
        self.augmenter = augmenter
        self.device = torch.device(device)

    def __len__(self) -> int:
        return self.plan.batches_per_epoch

    def batch(self, epoch: int, number: int) -> Batch:
        """Prepare batch `number` of `epoch` in the calling thread."""
        plan = self.plan
        indices = plan.indices(epoch, number)
        images, labels = _on_device(self.source, indices, self.device)
        draws = Draws(
            plan.seed, epoch, number, size=plan.global_size(number), places=plan.places(number)
        )
        images, targets = self.augmenter(images, labels, draws)
        return Batch(images, targets, labels, indices, number)

    def epoch(self, epoch: int, start: int = 0) -> Generator[Batch, None, None]:
        """The batches of an epoch from number `start` on.

        An error in the preparation of a batch is raised where that batch is asked for. The thread
        ends when the loop ends or the iterator is closed or dropped.
        """
        if not 0 <= start <= len(self):
            raise InputError(f"an epoch of {len(self)} batches cannot start at {start}")
        return prepared_ahead(lambda number: self.batch(epoch, number), range(start, len(self)))


def evaluation_batches(
    source: ImageSource,
    batch_size: int,
    device: torch.device | str,
    normalise: Callable[[Tensor], Tensor],
    rank: int = 0,
    processes: int = 1,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Normalised images and labels of this process, every image once and in order.

    The batches have nearly equal sizes, at most `batch_size` over all processes. Every process
    gets the same number of batches, some of them empty if a batch has fewer images than there are
    processes; no image is repeated.
    """
    device = torch.device(device)
    count = -(-len(source) // batch_size)

    def prepare(number: int) -> tuple[Tensor, Tensor]:
        batch = _stretch(len(source), number, count)
        places = _stretch(batch.stop - batch.start, rank, processes)
        indices = torch.arange(batch.start + places.start, batch.start + places.stop)
        images, labels = _on_device(source, indices, device)
        return normalise(images), labels

    return prepared_ahead(prepare, range(count))


def prepared_ahead(
    prepare: Callable[[int], Prepared], numbers: Iterable[int]
) -> Generator[Prepared, None, None]:
    """``map(prepare, numbers)``, with one thread preparing the next result in advance."""
    # Leaving the block waits for the thread to end, also when the iterator is closed.
    with ThreadPoolExecutor(1, thread_name_prefix="wefpe-feed") as pool:
        coming: deque[Future[Prepared]] = deque()
        for number in numbers:
            coming.append(pool.submit(prepare, number))
            if len(coming) > 1:
                yield coming.popleft().result()
        while coming:
            yield coming.popleft().result()


def _on_device(source: ImageSource, indices: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
    images, labels = source.fetch(indices), source.labels[indices]
    if device.type == "cuda":  # the thread does not wait for copies from pinned memory
        images, labels = images.pin_memory(), labels.pin_memory()
    return images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
