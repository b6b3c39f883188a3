"""Images in tar files: the same batches as from files, named damage, bad shards."""

from __future__ import annotations

import io
import json
import tarfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the torch extra is not installed")
pytest.importorskip("PIL", reason="the training extra is not installed")
pytest.importorskip("accelerate", reason="the training extra is not installed")

from training.augmentation import Augmenter, Normalisation
from training.config.schema import Augmentation, Data, RandomResizedCrop
from training.data import BatchPlan, DataError, DataNotFoundError, TrainingFeed, open_data
from training.data import encoded as encoded_module
from training.data.encoded import Reading
from training.data.folders import open_class_folder
from training.data.shards import ShardSource, read_shard
from verification.tests.engine.test_photographs import (
    CLASSES,
    SIDE,
    damage,
    photo_run,
    write_imagenet,
    write_photos,
)
from verification.tests.training_runs import assert_same_bits, weights


def add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


def pack(folder: Path, shard: str, each: int = 7) -> Path:
    """The class folders of a folder as numbered shards beside it, in the order of their listing."""
    files = sorted(folder.rglob("*.jpg"))
    for number, start in enumerate(range(0, len(files), each)):
        with tarfile.open(folder.parent / f"{shard}-{number:04d}.tar", "w") as tar:
            for file in files[start : start + each]:
                label = int(file.parent.name[-1])
                key = f"{file.parent.name}/{file.stem}"
                if number % 2:  # the label first, as JSON
                    add(tar, f"{key}.json", json.dumps({"label": label, "text": "x"}).encode())
                add(tar, f"{key}.jpg", file.read_bytes())
                if not number % 2:
                    add(tar, f"{key}.cls", f"{label}\n".encode())
    return folder.parent


def source_of(folder: Path, pattern: str = "*.tar", **reading) -> ShardSource:
    shards = [read_shard(file) for file in sorted(folder.glob(pattern))]
    names = tuple(str(label) for label in range(CLASSES))
    return ShardSource(shards, names, "shards", Reading(SIDE, **reading))


def feed_of(source, **plan) -> TrainingFeed:
    options = Augmentation(flip=0.5, random_resized_crop=RandomResizedCrop(), mixup_alpha=0.3)
    normalise = Normalisation((0.5,), (0.25,), size=(SIDE, SIDE), channels=3)
    augmenter = Augmenter(options, normalise, classes=CLASSES)
    return TrainingFeed(source, BatchPlan(len(source), 16, 0, **plan), augmenter)


def test_shards_give_the_batches_that_their_files_give(tmp_path):
    folder = write_photos(tmp_path / "all")
    pack(folder, "train")
    files = feed_of(open_class_folder(folder, Reading(SIDE)))
    for workers in (1, 3):
        shards = feed_of(source_of(tmp_path, workers=workers))
        assert torch.equal(shards.source.labels, files.source.labels)
        for got, want in zip(shards.epoch(1), files.epoch(1), strict=True):
            assert torch.equal(got.images, want.images)
            assert torch.equal(got.targets, want.targets)


def test_an_epoch_goes_on_where_it_stopped_and_is_shared_by_processes(tmp_path):
    pack(write_photos(tmp_path / "all"), "train")
    source = source_of(tmp_path, workers=2)
    whole = list(feed_of(source).epoch(2))
    assert len(whole) == 3
    for got, want in zip(feed_of(source).epoch(2, start=1), whole[1:], strict=True):
        assert torch.equal(got.images, want.images)
    for rank in range(2):
        parts = feed_of(source, rank=rank, processes=2).epoch(2)
        for got, want in zip(parts, whole, strict=True):
            assert torch.equal(got.images, want.images[8 * rank : 8 * rank + 8])


def test_a_run_on_shards_has_the_weights_of_a_run_on_files(tmp_path, monkeypatch):
    monkeypatch.setattr(encoded_module, "CACHE_BYTES", 0)  # as if there were a million images
    images = write_imagenet(tmp_path / "data")
    pack(images / "train", "my-train")
    pack(images / "val", "my-val")
    photo_run(tmp_path / "files", images)
    photo_run(tmp_path / "shards", images, "data.name=shards")
    assert_same_bits(weights(tmp_path / "shards"), weights(tmp_path / "files"))


def test_parts_and_names_of_classes(tmp_path):
    images = write_imagenet(tmp_path, ("train", "val", "test"))
    for part in ("train", "val"):
        pack(images / part, part)
    data = Data(name="shards", path=str(tmp_path), image_size=SIDE, validation=0)
    splits = open_data(data, 0)
    assert (len(splits.train), len(splits.open_test())) == (48, 48)
    pack(images / "test", "test")
    splits = open_data(data.model_copy(update={"validation": 48}), 0)
    assert splits.validation is not None
    assert [len(s) for s in (splits.train, splits.validation, splits.open_test())] == [48] * 3
    (tmp_path / "classes.json").write_text(json.dumps([f"kind {n}" for n in range(CLASSES)]))
    assert open_data(data, 0).class_names[2] == "kind 2"


def test_a_damaged_image_is_named_with_its_shard(tmp_path):
    folder = write_photos(tmp_path / "all")
    damage(folder / "class1" / "007.jpg")
    pack(folder, "train")
    place = sorted(folder.rglob("*.jpg")).index(folder / "class1" / "007.jpg")
    with pytest.raises(DataError, match=r"class1/007\.jpg in .*train-0001\.tar cannot be decoded"):
        source_of(tmp_path).fetch(torch.tensor([place]))
    blank = source_of(tmp_path, damaged="blank")
    blank.fetch(torch.arange(len(blank)))
    assert [name.partition(" ")[0] for name in blank.damaged] == ["class1/007.jpg"]


def test_a_shard_that_changes_during_a_run_is_named(tmp_path):
    pack(write_photos(tmp_path / "all"), "train")
    source = source_of(tmp_path, damaged="blank")
    shard = tmp_path / "train-0001.tar"
    shard.write_bytes(shard.read_bytes()[:2000])
    with pytest.raises(DataError, match=r"train-0001\.tar is cut off"):
        source.fetch(torch.tensor([13]))
    shard.unlink()
    with pytest.raises(DataNotFoundError, match=r"train-0001\.tar no longer exists"):
        source.fetch(torch.tensor([13]))


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"a.jpg": b"1"}, r"a\.jpg in .*s\.tar has no label: a\.cls or \.json"),
        ({"a.jpg": b"1", "a.json": b"{}"}, r"a\.jpg in .* has no label"),
        ({"a.jpg": b"1", "a.cls": b"-1"}, r"a\.cls in .*: a label is a number from 0 on, got '-1'"),
        ({"a.jpg": b"1", "a.cls": b"1000000000"}, "a label is a number from 0 on"),
        ({"a.jpg": b"1", "a.json": b'{"label": true}'}, "a label is a number from 0 on, got True"),
        ({"a.jpg": b"1", "a.json": b"[1]"}, r"a\.json in .*s\.tar is not readable"),
        ({"a.jpg": b"1", "a.cls": b"\xff"}, r"a\.cls in .*s\.tar is not readable"),
        ({"a.jpg": b"1", "a.png": b"1", "a.cls": b"1"}, "two images a"),
        ({"notes.txt": b"1"}, "holds no images"),
    ],
    ids=str,
)
def test_bad_shards_are_refused_by_name(tmp_path, members, message):
    with tarfile.open(tmp_path / "s.tar", "w") as tar:
        for name, content in members.items():
            add(tar, name, content)
    with pytest.raises(DataError, match=message):
        read_shard(tmp_path / "s.tar")


def test_files_that_are_no_shards_are_refused_by_name(tmp_path):
    pack(write_photos(tmp_path / "all"), "train")
    whole = (tmp_path / "train-0000.tar").read_bytes()
    (tmp_path / "cut.tar").write_bytes(whole[:700])
    with pytest.raises(DataError, match=r"cut\.tar"):
        read_shard(tmp_path / "cut.tar")
    (tmp_path / "text.tar").write_text("not a tar file" * 100)
    with pytest.raises(DataError, match=r"text\.tar cannot be read as a tar file"):
        read_shard(tmp_path / "text.tar")
    data = Data(name="shards", path=str(tmp_path), image_size=SIDE)
    with pytest.raises(DataNotFoundError, match=r"neither shards \*test\*\.tar nor \*val\*\.tar"):
        open_data(data, 0)
    (tmp_path / "train-val.tar").write_bytes(whole)
    with pytest.raises(DataError, match="must say one of train, test and val"):
        open_data(data, 0)


def test_what_a_listed_image_takes_is_bounded(tmp_path):
    """The index of a shard, names included; no image stays."""
    with tarfile.open(tmp_path / "s.tar", "w") as tar:
        for number in range(2000):
            add(tar, f"{number:08d}.jpg", bytes(100))
            add(tar, f"{number:08d}.cls", b"1")
    tracemalloc.start()
    source = source_of(tmp_path, damaged="blank")
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(source) == 2000
    assert kept / len(source) < 200  # bytes; 12 are the name, 24 numbers
    assert np.unique(source.labels.numpy()).tolist() == [1]
