"""Batches are functions of seed, epoch and number; threads end; no image is counted twice."""

from __future__ import annotations

import gc
import threading
import time

import pytest

torch = pytest.importorskip("torch", reason="the torch extra is not installed")
pytest.importorskip("PIL", reason="the training extra is not installed")

from training.augmentation import Augmenter, Normalisation
from training.config.schema import Augmentation, RandomResizedCrop
from training.data import BatchPlan, MemorySource, TrainingFeed, evaluation_batches
from wefpe_core import InputError

CLASSES = 5
NOTHING = Augmentation(crop_padding=0, flip=0.0)
EVERYTHING = Augmentation(
    crop_padding=2,
    flip=0.5,
    vertical_flip=0.5,
    random_resized_crop=RandomResizedCrop(scale=(0.5, 1.0)),
    rotation=20.0,
    brightness=0.4,
    contrast=0.4,
    saturation=0.4,
    hue=0.1,
    grayscale=0.3,
    erase_probability=0.5,
    cutout=3,
    mixup_alpha=0.3,
    cutmix_alpha=1.0,
    mix_probability=0.8,
)


def source(count: int = 50) -> MemorySource:
    drawn = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (count, 3, 12, 12), generator=drawn).to(torch.uint8)
    labels = torch.arange(count) % CLASSES
    return MemorySource(images, labels, tuple("abcde"), f"{count} images")


def normalisation() -> Normalisation:
    return Normalisation((0.5, 0.4, 0.3), (0.2,), size=(12, 12), channels=3)


def feed(options=EVERYTHING, count=50, batch_size=8, seed=0, **plan) -> TrainingFeed:
    augmentation = Augmenter(options, normalisation(), classes=CLASSES)
    return TrainingFeed(source(count), BatchPlan(count, batch_size, seed, **plan), augmentation)


def assert_same(one, other) -> None:
    for name in ("images", "targets", "labels", "indices"):
        assert torch.equal(getattr(one, name), getattr(other, name)), name
    assert one.number == other.number


def feed_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if "wefpe-feed" in thread.name]


# --- The plan ----------------------------------------------------------------------------------


def whole_epoch(plan: BatchPlan, epoch: int) -> list[int]:
    return torch.cat([plan.indices(epoch, b) for b in range(plan.batches_per_epoch)]).tolist()


def test_every_image_is_seen_once_an_epoch():
    plan = BatchPlan(50, 8, seed=1, drop_last=False)
    assert plan.batches_per_epoch == 7
    assert sorted(whole_epoch(plan, 0)) == list(range(50))
    assert len(plan.indices(0, 6)) == 2


def test_a_short_last_batch_is_dropped_and_not_always_the_same_images():
    plan = BatchPlan(50, 8, seed=1)
    seen = [set(whole_epoch(plan, epoch)) for epoch in range(20)]
    assert all(len(each) == 48 for each in seen)
    assert set.union(*seen) == set(range(50))
    assert set.intersection(*seen) != seen[0]


def test_the_order_depends_on_seed_and_epoch_only():
    plan = BatchPlan(50, 8, seed=1)
    assert whole_epoch(plan, 3) == whole_epoch(BatchPlan(50, 8, seed=1), 3)
    assert whole_epoch(plan, 3) != whole_epoch(plan, 4)
    assert whole_epoch(plan, 3) != whole_epoch(BatchPlan(50, 8, seed=2), 3)
    # The batch size cuts the same order elsewhere.
    assert whole_epoch(plan, 3) == whole_epoch(BatchPlan(50, 16, seed=1), 3)


def test_without_shuffling_images_come_in_their_order():
    plan = BatchPlan(20, 8, seed=1, shuffle=False, drop_last=False)
    assert whole_epoch(plan, 5) == list(range(20))


@pytest.mark.parametrize("processes", [1, 2, 4])
def test_slices_of_processes_are_the_global_batch(processes):
    whole = BatchPlan(50, 8, seed=1, drop_last=False)
    for batch in range(whole.batches_per_epoch):
        slices = [
            BatchPlan(50, 8, 1, drop_last=False, rank=r, processes=processes).indices(2, batch)
            for r in range(processes)
        ]
        assert torch.equal(torch.cat(slices), whole.indices(2, batch))
        lengths = [len(each) for each in slices]
        assert max(lengths) - min(lengths) <= 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 64}, "more than the 50 images"),
        ({"batch_size": 9, "processes": 2}, "cannot be shared evenly"),
        ({"batch_size": 0}, "no plan"),
        ({"batch_size": 8, "rank": 2, "processes": 2}, "no plan"),
    ],
)
def test_impossible_plans_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        BatchPlan(size=50, seed=0, **arguments)


def test_batches_beyond_an_epoch_are_refused():
    plan = BatchPlan(50, 8, seed=0)
    for batch in (-1, 6):
        with pytest.raises(InputError, match="no batch"):
            plan.indices(0, batch)
    with pytest.raises(InputError, match="cannot start at 7"):
        feed().epoch(0, start=7)


# --- The feed ----------------------------------------------------------------------------------


def test_a_feed_gives_the_same_batches_again():
    first = list(feed().epoch(3))
    torch.manual_seed(99)
    assert len(first) == 6
    for one, other in zip(first, feed().epoch(3), strict=True):
        assert_same(one, other)
    assert not torch.equal(first[0].images, next(feed().epoch(4)).images)
    assert not torch.equal(first[0].images, next(feed(seed=1).epoch(3)).images)


@pytest.mark.parametrize("start", [1, 4, 6])
def test_an_epoch_taken_up_in_the_middle_goes_on_as_if_nothing_had_happened(start):
    uninterrupted = list(feed().epoch(2))
    resumed = list(feed().epoch(2, start=start))
    assert len(resumed) == 6 - start
    for one, other in zip(uninterrupted[start:], resumed, strict=True):
        assert_same(one, other)


@pytest.mark.parametrize("processes", [2, 4])
def test_processes_together_see_what_one_sees(processes):
    alone = list(feed(EVERYTHING).epoch(1))
    feeds = [feed(EVERYTHING, rank=r, processes=processes).epoch(1) for r in range(processes)]
    for whole, *slices in zip(alone, *feeds, strict=True):
        for name in ("images", "targets", "labels", "indices"):
            together = torch.cat([getattr(each, name) for each in slices])
            assert torch.equal(together, getattr(whole, name)), name


def test_that_comparison_can_fail():
    one, other = feed(rank=0, processes=2).batch(0, 0), feed(rank=1, processes=2).batch(0, 0)
    assert not torch.equal(one.images, other.images)
    assert not torch.equal(torch.cat((other.images, one.images)), feed().batch(0, 0).images)


def test_slices_that_would_cut_a_pair_are_refused():
    with pytest.raises(InputError, match="even number of images"):
        feed(batch_size=6, processes=2)
    feed(NOTHING, batch_size=6, processes=2)


def test_the_numbers_of_one_augmentation_do_not_depend_on_another():
    flips = Augmentation(crop_padding=0, flip=0.5)
    one = feed(flips).batch(0, 0).images
    other = feed(Augmentation(crop_padding=0, flip=0.5, cutout=3)).batch(0, 0).images
    untouched = other != 0
    assert not untouched.all()
    assert torch.equal(one[untouched], other[untouched])


def test_labels_and_indices_go_with_the_images():
    plain = feed(NOTHING)
    for batch in plain.epoch(0):
        assert torch.equal(batch.targets, batch.indices % CLASSES)
        assert torch.equal(batch.labels, batch.targets)
        assert torch.equal(batch.images, normalisation()(source().fetch(batch.indices)))


def test_a_batch_is_split_for_accumulation():
    batch = feed().batch(0, 2)
    pieces = batch.split(3)
    assert [len(piece.labels) for piece in pieces] == [2, 3, 3]
    for name in ("images", "targets", "labels", "indices"):
        joined = torch.cat([getattr(piece, name) for piece in pieces])
        assert torch.equal(joined, getattr(batch, name))


def test_global_random_numbers_are_neither_used_nor_changed():
    before = torch.get_rng_state()
    list(feed().epoch(0))
    assert torch.equal(before, torch.get_rng_state())


# --- Threads -----------------------------------------------------------------------------------


class Counting:
    """A source that notes which thread fetched, and fails at the fetch it is told to."""

    def __init__(self, fail_at: int | None = None) -> None:
        self._source = source()
        self.fail_at = fail_at
        self.threads: list[str] = []

    def __getattr__(self, name):
        return getattr(self._source, name)

    def __len__(self):
        return len(self._source)

    def fetch(self, indices):
        self.threads.append(threading.current_thread().name)
        if len(self.threads) - 1 == self.fail_at:
            raise OSError("image 17 is gone")
        return self._source.fetch(indices)


def counting_feed(counting: Counting) -> TrainingFeed:
    augmentation = Augmenter(NOTHING, normalisation(), classes=CLASSES)
    return TrainingFeed(counting, BatchPlan(50, 8, 0), augmentation)


def waited_for(condition) -> bool:
    end = time.monotonic() + 10
    while not condition() and time.monotonic() < end:
        time.sleep(0.001)
    return condition()


def test_the_next_batch_is_prepared_meanwhile_and_no_more():
    counting = Counting()
    batches = counting_feed(counting).epoch(0)
    next(batches)
    assert waited_for(lambda: len(counting.threads) == 2)
    time.sleep(0.05)
    assert len(counting.threads) == 2
    assert len(set(counting.threads)) == 1
    assert threading.current_thread().name not in counting.threads
    batches.close()


def test_a_failure_in_the_thread_comes_out_at_its_batch():
    batches = counting_feed(Counting(fail_at=3)).epoch(0)
    seen = [next(batches).number for _ in range(3)]
    assert seen == [0, 1, 2]
    with pytest.raises(OSError, match="image 17 is gone"):
        next(batches)
    assert feed_threads() == []


def test_no_thread_is_left():
    list(feed().epoch(0))
    assert feed_threads() == []
    for batch in feed().epoch(0):
        if batch.number == 2:
            break
    gc.collect()
    assert feed_threads() == []
    batches = feed().epoch(0)
    next(batches)
    assert len(feed_threads()) == 1  # so the check can fail
    batches.close()
    assert feed_threads() == []
    list(evaluation_batches(source(), 8, "cpu", normalisation()))
    assert feed_threads() == []


# --- Evaluation --------------------------------------------------------------------------------


@pytest.mark.parametrize("processes", [1, 2, 3])
@pytest.mark.parametrize("batch_size", [7, 16, 50, 64])
def test_every_image_is_evaluated_once(processes, batch_size):
    data = source()
    pixels = normalisation()(data.fetch(torch.arange(50)))
    per_process = [
        list(evaluation_batches(data, batch_size, "cpu", normalisation(), rank, processes))
        for rank in range(processes)
    ]
    assert len({len(batches) for batches in per_process}) == 1
    steps = list(zip(*per_process, strict=True))
    assert all(sum(len(labels) for _, labels in step) <= batch_size for step in steps)
    images = torch.cat([images for step in steps for images, _ in step])
    labels = torch.cat([labels for step in steps for _, labels in step])
    assert torch.equal(images, pixels)
    assert torch.equal(labels, data.labels)


def test_an_evaluation_may_have_fewer_images_than_processes():
    data = source(1)
    counts = [
        sum(len(labels) for _, labels in evaluation_batches(data, 8, "cpu", normalisation(), r, 3))
        for r in range(3)
    ]
    assert sum(counts) == 1
