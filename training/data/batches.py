"""Which images a batch holds, and a feed that prepares the next batch during a step.

Nothing here has a state: batch b of epoch e is a function of the plan, so a stopped run continues
by asking for the batch that would have been next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TypeVar

import torch
from torch import Tensor

from training.augmentation import Augmenter
from training.data.encoded import parts_of
from training.data.sources import ImageSource, WindowSource
from training.errors import DataError
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
    repeats: int = 1  # of each image in a batch; an epoch then has that share of the images

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
        if self.repeats > 1 and (self.batch_size <= self.repeats or not self.drop_last):
            raise InputError(
                f"a batch of {self.batch_size} cannot hold images {self.repeats} times each"
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
        if self.repeats > 1:
            # One after another in turns: neighbours, which mixup mixes, are different images.
            # Where the numbers do not divide, the last few images of a batch come once less.
            distinct = -(-self.batch_size // self.repeats)
            some = self._order(epoch)[batch * distinct : (batch + 1) * distinct]
            return some.repeat(self.repeats)[places]
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
    """The augmented batches of a run; each is prepared while its predecessors are used.

    The workers of the source decode images. They are threads, not processes: Pillow lets go of the
    interpreter while it decodes and resizes, which is 95 % of the work, so threads are as fast
    (`wefpe bench data`). They start at once, share what they read and are not killed one by one.
    What a batch holds does not depend on their number.
    """

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
        return self._finished(epoch, number, [read() for read in self._readings(epoch, number)])

    def epoch(self, epoch: int, start: int = 0) -> Generator[Batch, None, None]:
        """The batches of an epoch from number `start` on.

        An error in the preparation of a batch is raised where that batch is asked for. The threads
        end when the loop ends or the iterator is closed or dropped.
        """
        if not 0 <= start <= len(self):
            raise InputError(f"an epoch of {len(self)} batches cannot start at {start}")
        return prepared_ahead(
            partial(self._readings, epoch),
            partial(self._finished, epoch),
            range(start, len(self)),
            self.source.workers,
        )

    @property
    def _cuts_windows(self) -> bool:
        return self.augmenter.cuts_windows and isinstance(self.source, WindowSource)

    def _readings(self, epoch: int, number: int) -> list[Callable[[], Tensor]]:
        """What has to be read for a batch, in pieces that threads can share."""
        indices, draws = self.plan.indices(epoch, number), self._draws(epoch, number)
        parts = parts_of(len(indices)) if self.source.workers else [slice(0, len(indices))]
        first = draws.places.start
        return [
            partial(
                self._read,
                indices[part],
                replace(draws, places=slice(first + part.start, first + part.stop)),
            )
            for part in parts
        ]

    def _read(self, indices: Tensor, draws: Draws) -> Tensor:
        choose = self.augmenter.windows(draws)
        if choose is not None and isinstance(self.source, WindowSource):
            images = self.source.fetch_windows(indices, choose)
        else:
            images = self.source.fetch(indices)
        return self.augmenter.by_policy(images, draws)

    def _finished(self, epoch: int, number: int, read: Sequence[Tensor]) -> Batch:
        """The batch on the device, augmented."""
        indices, draws = self.plan.indices(epoch, number), self._draws(epoch, number)
        labels = self.source.labels[indices]
        images, labels = _on_device(_joined(read), labels, self.device)
        images, targets = self.augmenter(images, labels, draws, are_windows=self._cuts_windows)
        return Batch(images, targets, labels, indices, number)

    def _draws(self, epoch: int, number: int) -> Draws:
        plan = self.plan
        size, places = plan.global_size(number), plan.places(number)
        return Draws(plan.seed, epoch, number, size=size, places=places)


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

    def indices_of(number: int) -> Tensor:
        batch = _stretch(len(source), number, count)
        places = _stretch(batch.stop - batch.start, rank, processes)
        return torch.arange(batch.start + places.start, batch.start + places.stop)

    def readings(number: int) -> list[Callable[[], Tensor]]:
        indices = indices_of(number)
        if not source.workers or not len(indices):
            return [partial(source.fetch, indices)]
        return [partial(source.fetch, indices[part]) for part in parts_of(len(indices))]

    def finish(number: int, read: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        images, labels = _on_device(_joined(read), source.labels[indices_of(number)], device)
        return normalise(images), labels

    return prepared_ahead(readings, finish, range(count), source.workers)


def prepared_ahead(
    readings: Callable[[int], Sequence[Callable[[], Tensor]]],
    finish: Callable[[int, Sequence[Tensor]], Prepared],
    numbers: Iterable[int],
    workers: int,
) -> Generator[Prepared, None, None]:
    """For each number, ``finish`` of what its readings read, made in advance by threads.

    One thread finishes a result while the one before it is used. With `workers` as many more read
    for it and for the result after it, so that they need not wait for each other; without, that
    one thread reads as well.
    """
    feeder = ThreadPoolExecutor(1, thread_name_prefix="wefpe-feed")
    readers = ThreadPoolExecutor(max(workers, 1), thread_name_prefix="wefpe-feed-read")

    def result(number: int, parts: Sequence[Future[Tensor]]) -> Prepared:
        if workers:
            return finish(number, [part.result() for part in parts])
        return finish(number, [read() for read in readings(number)])

    coming: deque[Future[Prepared]] = deque()
    try:
        for number in numbers:
            parts = [_submitted(readers, read) for read in readings(number)] if workers else []
            coming.append(feeder.submit(result, number, parts))
            if len(coming) > (2 if workers else 1):
                yield coming.popleft().result()
        while coming:
            yield coming.popleft().result()
    finally:  # also when the iterator is closed: no thread is left
        for pool in (readers, feeder):
            pool.shutdown(wait=False, cancel_futures=True)
        for pool in (readers, feeder):
            pool.shutdown(wait=True)


def _submitted(readers: ThreadPoolExecutor, read: Callable[[], Tensor]) -> Future[Tensor]:
    try:
        return readers.submit(read)
    except RuntimeError as error:  # can't start new thread
        raise DataError(f"no thread for reading images: {error}; lower data.workers") from error


def _joined(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def _on_device(images: Tensor, labels: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
    if device.type == "cuda":  # the thread does not wait for copies from pinned memory
        images, labels = images.pin_memory(), labels.pin_memory()
    return images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
