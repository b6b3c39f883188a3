"""Photographs in files: workers, the middle cut out, damage, lists, published weights."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the torch extra is not installed")
pytest.importorskip("PIL", reason="the training extra is not installed")
pytest.importorskip("accelerate", reason="the training extra is not installed")

from PIL import Image
from safetensors.torch import save_file
from torch import nn

from training.augmentation import Augmenter, Normalisation
from training.cli import main
from training.config import ConfigError, config_hash, load_config
from training.config.schema import Augmentation, Data, RandomResizedCrop
from training.data import BatchPlan, DataError, DataNotFoundError, TrainingFeed, open_data
from training.data import encoded as encoded_module
from training.data.encoded import AT_ONCE, Reading, parts_of, worker_count
from training.data.folders import open_class_folder
from training.engine.evaluation import evaluate
from training.engine.run import run
from training.engine.scoring import score_published
from training.models import build_vit, timm_state_dict
from training.models.published import open_published
from verification.tests.training_runs import TINY, assert_same_bits, weights

CLASSES = 6
SIDE = 32


def write_photos(folder: Path, count: int = 48, size: tuple[int, int] = (50, 38)) -> Path:
    """JPEGs of several proportions in class folders."""
    rng = np.random.default_rng(0)
    for number in range(count):
        width, height = size[:: 1 if number % 3 else -1]
        coarse = Image.fromarray(rng.integers(0, 256, (5, 5, 3), dtype=np.uint8))
        path = folder / f"class{number % CLASSES}" / f"{number:03d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        coarse.resize((width, height), Image.Resampling.BICUBIC).save(path, quality=95)
    return folder


def write_imagenet(folder: Path, parts: tuple[str, ...] = ("train", "val")) -> Path:
    for part in parts:
        write_photos(folder / part)
    return folder


def feed_of(folder: Path, workers: int, batch_size: int = 40, **plan) -> TrainingFeed:
    source = open_class_folder(folder, Reading(SIDE, workers=workers))
    options = Augmentation(flip=0.5, random_resized_crop=RandomResizedCrop(), mixup_alpha=0.3)
    normalise = Normalisation((0.5,), (0.25,), size=(SIDE, SIDE), channels=3)
    augmenter = Augmenter(options, normalise, classes=CLASSES)
    return TrainingFeed(source, BatchPlan(len(source), batch_size, 0, **plan), augmenter)


def damage(path: Path) -> None:
    """Cut a JPEG in the middle: its header is right, the rest is not there."""
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


# --- Workers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [2, 5])
def test_batches_do_not_depend_on_the_number_of_workers(tmp_path, workers):
    folder = write_photos(tmp_path)
    alone = [feed_of(folder, 1).batch(2, 0)]
    for one, other in zip(alone, feed_of(folder, workers).epoch(2), strict=True):
        assert torch.equal(one.images, other.images)
        assert torch.equal(one.targets, other.targets)
    assert not torch.equal(alone[0].images, feed_of(folder, 1).batch(3, 0).images)


def test_pieces_that_threads_share_are_what_a_process_sees(tmp_path):
    folder = write_photos(tmp_path)
    whole = feed_of(folder, 2).batch(0, 0).images
    slices = [feed_of(folder, 2, rank=r, processes=2).batch(0, 0).images for r in range(2)]
    assert torch.equal(torch.cat(slices), whole)


def test_as_many_threads_decode_as_workers_are_asked_for(tmp_path, monkeypatch):
    seen: set[str] = set()
    together = threading.Barrier(3, timeout=10)
    feed = feed_of(write_photos(tmp_path, 3 * AT_ONCE), 3, batch_size=3 * AT_ONCE)
    source: Any = feed.source
    fetch = source.fetch_windows

    def noting(indices, choose):
        seen.add(threading.current_thread().name)
        together.wait()  # breaks unless three are here at once
        return fetch(indices, choose)

    monkeypatch.setattr(source, "fetch_windows", noting)
    list(feed.epoch(0))
    assert len(seen) == 3
    assert not [each for each in threading.enumerate() if "wefpe-feed" in each.name]


def test_parts_cover_a_batch_once():
    places = [place for part in parts_of(37) for place in range(part.start, part.stop)]
    assert places == list(range(37))
    assert list(parts_of(0)) == []


def test_workers_follow_the_cores_and_are_shared_by_processes(monkeypatch):
    assert worker_count(3) == 3
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(12)), raising=False)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    assert worker_count(None) == 12
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert worker_count(None) == 3
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "64")
    assert worker_count(None) == 1


def test_workers_change_no_hash_and_the_way_images_are_read_does():
    base = ["data.path=x", "data.name=folder", "data.image_size=32", "augmentation.crop_padding=0"]
    own = config_hash(load_config("digits", base))
    assert config_hash(load_config("digits", [*base, "data.workers=7"])) == own
    for change in ("data.resize=40", "data.interpolation=bicubic", "data.damaged=blank"):
        assert config_hash(load_config("digits", [*base, change])) != own


# --- The middle of an image ----------------------------------------------------------------------


def test_the_middle_is_cut_out_after_the_shorter_side_was_resized(tmp_path):
    """As torchvision's Resize(size) and CenterCrop(size), written out here for one image."""
    pixels = np.random.default_rng(1).integers(0, 256, (60, 101, 3), dtype=np.uint8)
    (tmp_path / "a").mkdir()
    Image.fromarray(pixels).save(tmp_path / "a" / "x.png")
    reading = Reading(32, 36, "bicubic")
    found = open_class_folder(tmp_path, reading).fetch(torch.tensor([0]))[0]
    resized = Image.fromarray(pixels).resize((int(36 * 101 / 60), 36), Image.Resampling.BICUBIC)
    left, top = round((resized.width - 32) / 2), round((36 - 32) / 2)
    expected = np.asarray(resized.crop((left, top, left + 32, top + 32))).transpose(2, 0, 1)
    assert np.array_equal(found.numpy(), expected)
    squashed = open_class_folder(tmp_path, Reading(32)).fetch(torch.tensor([0]))[0]
    assert not torch.equal(found, squashed)


def test_a_rectangle_that_does_not_fit_is_filled(tmp_path):
    folder = write_photos(tmp_path, 6)
    source = open_class_folder(folder, Reading((16, 64), 18))
    assert source.fetch(torch.arange(6)).shape == (6, 3, 16, 64)


def test_another_size_is_cut_in_proportion():
    data = Data(name="folder", path="x", image_size=384, resize=416)
    assert Reading.of(data, 192).resize == 208
    assert Reading.of(data, 384).resize == 416


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["data.resize=9"], "is for images in files"),
        (["data.damaged=blank"], "is for images in files"),
        (["data.workers=0"], "must be at least 1"),
        (
            ["data.name=folder", "data.path=x", "data.image_size=32", "data.resize=31"],
            "cannot be cut out of something smaller",
        ),
    ],
)
def test_impossible_readings_are_refused(overrides, message):
    with pytest.raises(ConfigError, match=message):
        load_config("digits", overrides)


# --- Folders and lists ---------------------------------------------------------------------------


def imagenet_data(folder: Path, **options) -> Data:
    return Data(name="folder", path=str(folder), image_size=SIDE, **options)


def test_without_test_images_those_of_val_are_the_test_set(tmp_path):
    folder = write_imagenet(tmp_path)
    splits = open_data(imagenet_data(folder, validation=6), 0)
    assert (len(splits.train), len(splits.open_test())) == (42, 48)
    assert splits.validation is not None
    assert len(splits.validation) == 6
    assert splits.class_names == tuple(f"class{label}" for label in range(CLASSES))


def test_lists_name_files_and_labels(tmp_path):
    write_photos(tmp_path / "all")
    files = sorted((tmp_path / "all").rglob("*.jpg"))
    lines = [f"{path.relative_to(tmp_path)} {path.parent.name[-1]}\n" for path in files]
    (tmp_path / "train.txt").write_text("".join(lines[:40]))
    with pytest.raises(DataNotFoundError, match=r"neither test\.txt nor val\.txt"):
        open_data(Data(name="list", path=str(tmp_path), image_size=SIDE, validation=0), 0)
    (tmp_path / "val.txt").write_text("".join(lines[40:]))
    splits = open_data(Data(name="list", path=str(tmp_path), image_size=SIDE, validation=0), 0)
    assert (len(splits.train), len(splits.open_test())) == (40, 8)
    assert splits.open_test().labels.tolist() == [5] * 8
    (tmp_path / "val.txt").write_text("".join(lines[39:]))
    with pytest.raises(DataError, match="1 images are in"):
        open_data(Data(name="list", path=str(tmp_path), image_size=SIDE, validation=0), 0)


# --- Damaged files -------------------------------------------------------------------------------


@pytest.fixture
def damaged_imagenet(tmp_path, monkeypatch):
    monkeypatch.setattr(encoded_module, "CACHE_BYTES", 0)  # as if there were a million images
    folder = write_imagenet(tmp_path / "data")
    damage(folder / "train" / "class1" / "007.jpg")
    (folder / "train" / "class3" / "009.jpg").write_bytes(b"no image at all")
    damage(folder / "val" / "class2" / "002.jpg")
    return folder


IMAGENET = (
    *TINY,
    "data.name=folder",
    f"data.image_size={SIDE}",
    "data.train_images=unset",
    "data.validation=6",
    "data.mean=[0.5]",
    "data.std=[0.25]",
    "model.patch_size=8",
    "training.epochs=1",
    "training.batch_size=40",
    "augmentation.flip=0.5",
    "augmentation.random_resized_crop={scale=[0.3,1.0]}",
)


def photo_run(folder: Path, images: Path, *overrides: str):
    config = load_config("digits", [*IMAGENET, f"data.path={images}", *overrides])
    return run(config, folder)


def test_a_damaged_file_stops_a_run_and_is_named(damaged_imagenet, tmp_path):
    with pytest.raises(DataError, match=r"(007|009)\.jpg cannot be decoded"):
        photo_run(tmp_path / "run", damaged_imagenet)


def test_damaged_files_are_blank_named_and_counted_if_asked_for(damaged_imagenet, tmp_path, capsys):
    result = photo_run(
        tmp_path / "run", damaged_imagenet, "data.damaged=blank", "training.epochs=2"
    )
    assert result["damaged_test_images"] == 1
    assert result["test_images"] == 48
    rows = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert [row for row in rows if row["kind"] == "epoch"][-1]["damaged_images"] == 2
    said = capsys.readouterr().err.replace("\n", "")
    assert said.count("is damaged and blank from now on") == 2
    assert "2 damaged images so far" in said


def test_results_do_not_depend_on_workers_or_damage_found_by_chance(damaged_imagenet, tmp_path):
    for workers in (1, 3):
        blank = ("data.damaged=blank", f"data.workers={workers}")
        photo_run(tmp_path / str(workers), damaged_imagenet, *blank)
    assert_same_bits(weights(tmp_path / "1"), weights(tmp_path / "3"))


def test_a_file_that_is_gone_and_a_disk_that_fails_are_not_damaged_images(tmp_path, monkeypatch):
    folder = write_photos(tmp_path, 6)
    source = open_class_folder(folder, Reading(SIDE, damaged="blank"))
    (folder / "class0" / "000.jpg").unlink()
    with pytest.raises(DataNotFoundError, match=r"000\.jpg no longer exists"):
        source.fetch(torch.tensor([0]))

    def failing(path):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Image, "open", failing)
    with pytest.raises(DataError, match="Input/output error"):
        source.fetch(torch.tensor([1]))
    assert source.damaged == {}


def test_a_worker_without_memory_ends_the_epoch_with_one_line(tmp_path, monkeypatch):
    feed = feed_of(write_photos(tmp_path), 2)

    def failing(path):
        raise MemoryError

    monkeypatch.setattr(Image, "open", failing)
    with pytest.raises(DataError, match=r"not enough memory to decode .*jpg; lower data.workers"):
        list(feed.epoch(0))


# --- Scores --------------------------------------------------------------------------------------


class Ranking(nn.Module):
    """Puts the classes in one order, whatever the image shows."""

    def forward(self, images):
        return torch.arange(float(CLASSES + 2)).expand(len(images), -1)


def test_top5_counts_the_five_likeliest_classes(tmp_path):
    from accelerate import Accelerator

    source = open_class_folder(write_photos(tmp_path), Reading(SIDE))
    normalise = Normalisation((0.5,), (0.25,), size=(SIDE, SIDE), channels=3)
    scores = evaluate(Ranking(), source, normalise, 10, Accelerator(cpu=True))
    assert scores.accuracy == 0.0  # class 7 is always first, and no image has it
    assert scores.top5 == pytest.approx(3 / 6)  # classes 3, 4 and 5 of 0 to 5


def published(folder: Path, **options) -> Path:
    """Weights as timm would publish them."""
    torch.manual_seed(0)
    shape: dict[str, Any] = {"dim": 64, "depth": 2, "num_heads": 1, "patch_size": 8}
    options = {"num_classes": CLASSES, "image_size": SIDE, **options}
    model = build_vit("micro", encoding="learned", **shape, **options)
    folder.mkdir(exist_ok=True)
    save_file(timm_state_dict(model, (4, 4)), folder / "model.safetensors")
    return folder / "model.safetensors"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"layer_scale": 0.1, "register_tokens": 4},
        {"pooling": "mean", "class_token": False, "patch_norm": True, "mlp_ratio": 2.0},
    ],
    ids=["plain", "layer scale and registers", "mean"],
)
def test_weights_tell_the_shape_of_their_model(tmp_path, options):
    model, preparation, is_told = open_published(published(tmp_path, **options))
    torch.manual_seed(0)
    shape: dict[str, Any] = {
        "dim": 64,
        "depth": 2,
        "num_heads": 1,
        "patch_size": 8,
        "num_classes": CLASSES,
    }
    original = build_vit("micro", encoding="learned", image_size=SIDE, **shape, **options).eval()
    images = torch.rand(2, 3, SIDE, SIDE)
    assert torch.equal(model(images), original(images))
    assert (preparation.image_size, is_told) == (SIDE, False)


def test_published_weights_are_scored_with_their_head_by_one_command(tmp_path, capsys):
    path = published(tmp_path / "weights")
    told = {"pretrained_cfg": {"input_size": [3, SIDE, SIDE], "crop_pct": 0.8, "mean": [0.5] * 3}}
    (path.parent / "config.json").write_text(json.dumps(told))
    images = write_imagenet(tmp_path / "images", ("val",))
    assert main(["score", str(path), str(images), "--std", "0.25", "--batch-size", "7"]) == 0
    printed = capsys.readouterr().out
    assert "shorter side to 40, middle of 32 x 32" in printed
    assert "guessed" not in printed
    scores, _ = score_published(path, images, {"std": (0.25,)})
    assert f"top-1 {scores.accuracy:.2%}, top-5 {scores.top5:.2%}" in printed
    # The same by hand.
    source = open_class_folder(images / "val", Reading(SIDE, 40, "bicubic"))
    pixels = source.fetch(torch.arange(48)) / 255
    with torch.no_grad():
        logits = open_published(path)[0]((pixels - 0.5) / 0.25)
    assert scores.accuracy == pytest.approx(
        float((logits.argmax(1) == source.labels).mean(dtype=float))
    )


def test_weights_that_cannot_be_scored_are_refused(tmp_path, capsys):
    path = published(tmp_path / "weights", num_classes=CLASSES + 1)
    images = write_photos(tmp_path / "images")
    assert main(["score", str(path), str(images)]) == 2
    assert "has 7 classes" in capsys.readouterr().err
    assert main(["score", str(path), str(tmp_path / "nowhere")]) == 2
    assert "is not a folder" in capsys.readouterr().err
    assert main(["score", str(path), str(images), "--mean", "a,b"]) == 2
    assert "--mean takes one number or three" in capsys.readouterr().err
    save_file({"patch_embed.proj.weight": torch.zeros(64, 3, 8, 8)}, path)
    assert main(["score", str(path), str(images)]) == 2
    assert "has no head.weight" in capsys.readouterr().err
