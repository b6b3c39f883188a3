"""Images in memory, in files and in folders: right pixels, and damaged or missing files named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the torch extra is not installed")
pytest.importorskip("PIL", reason="the training extra is not installed")

from PIL import Image

from training.augmentation import Augmenter
from training.augmentation.geometry import random_boxes
from training.config.schema import Augmentation, Data, RandomResizedCrop
from training.data import (
    DATASETS,
    BatchPlan,
    DataError,
    DataNotFoundError,
    FileSource,
    MemorySource,
    TrainingFeed,
    open_data,
    subset,
)
from training.data import encoded as files_module
from training.data.built_in import digits, draw_shapes, shapes
from training.randomness import Draws
from verification.tests.data_archives import write_class_folders, write_image, write_vtab


def colours(source) -> list[int]:
    """The red value of every image; the archives above number their images by it."""
    return source.fetch(torch.arange(len(source)))[:, 0, 0, 0].tolist()


def numbered(count: int) -> MemorySource:
    images = torch.arange(count, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 3, 4, 4)
    return MemorySource(images.contiguous(), torch.arange(count) % 2, ("even", "odd"), "numbers")


# --- In memory ---------------------------------------------------------------------------------


def test_fetch_keeps_order_and_repetitions():
    source = numbered(10)
    assert source.fetch(torch.tensor([7, 0, 7]))[:, 0, 0, 0].tolist() == [7, 0, 7]
    assert source.fetch(torch.tensor([], dtype=torch.int64)).shape == (0, 3, 4, 4)


def test_a_subset_of_a_subset_is_a_view_of_the_first():
    view = subset(subset(numbered(10), torch.tensor([9, 5, 4, 1])), torch.tensor([3, 1]))
    assert colours(view) == [1, 5]
    assert view.labels.tolist() == [1, 1]
    assert (len(view), view.channels, view.size) == (2, 3, (4, 4))


@pytest.mark.parametrize("indices", [[-1], [10], [0, 99]])
def test_a_subset_of_images_that_are_not_there_is_refused(indices):
    with pytest.raises(DataError, match="outside of the 10 images"):
        subset(numbered(10), torch.tensor(indices))


def test_images_that_are_no_bytes_or_labels_without_a_name_are_refused():
    images, labels = torch.zeros(2, 3, 4, 4, dtype=torch.uint8), torch.tensor([0, 1])
    with pytest.raises(DataError, match="uint8"):
        MemorySource(images.float(), labels, ("a", "b"), "set")
    with pytest.raises(DataError, match="1 classes"):
        MemorySource(images, labels, ("a",), "set")
    with pytest.raises(DataError, match="2 images"):
        MemorySource(images, labels[:1], ("a", "b"), "set")


def test_images_are_made_smaller_but_not_larger():
    source = numbered(3)
    assert source.shrunk_to(4) is source
    assert source.shrunk_to(9) is source
    small = source.shrunk_to(2)
    assert small.size == (2, 2)
    assert colours(small) == [0, 1, 2]


# --- In files ----------------------------------------------------------------------------------


@pytest.fixture
def picture(tmp_path):
    """A photograph-like picture of 40 x 24 pixels in several formats."""
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 256, (24, 40, 3), dtype=np.uint8)
    image = Image.fromarray(pixels)
    image.save(tmp_path / "a.png")
    image.save(tmp_path / "a.webp", lossless=True)
    image.save(tmp_path / "a.jpg")
    image.convert("RGBA").save(tmp_path / "alpha.png")
    image.convert("L").save(tmp_path / "grey.png")
    image.convert("P").save(tmp_path / "palette.png")
    return tmp_path, pixels


def files(*paths, **options) -> FileSource:
    return FileSource(paths, torch.zeros(len(paths), dtype=torch.int64), ("a",), "files", **options)


@pytest.mark.parametrize("name", ["a.png", "a.webp", "alpha.png"])
def test_pixels_come_out_as_they_were_saved(picture, name):
    folder, pixels = picture
    source = files(folder / name)
    assert source.size == (24, 40)
    assert np.array_equal(source.fetch(torch.tensor([0]))[0].numpy(), pixels.transpose(2, 0, 1))


@pytest.mark.parametrize("name", ["a.jpg", "grey.png", "palette.png"])
def test_every_kind_of_picture_becomes_rgb(picture, name):
    folder, _ = picture
    with Image.open(folder / name) as image:
        expected = np.asarray(image.convert("RGB")).transpose(2, 0, 1)
    assert np.array_equal(files(folder / name).fetch(torch.tensor([0]))[0].numpy(), expected)


def test_images_are_resized_as_pillow_does(picture):
    folder, pixels = picture
    resized = Image.fromarray(pixels).resize((16, 16), Image.Resampling.BILINEAR)
    source = files(folder / "a.png", folder / "a.webp", image_size=16)
    assert source.size == (16, 16)
    for image in source.fetch(torch.tensor([0, 1])):
        assert np.array_equal(image.numpy(), np.asarray(resized).transpose(2, 0, 1))


def test_many_files_come_in_the_order_asked_for(tmp_path):
    source = files(*(write_image(tmp_path / f"{n}.png", n) for n in range(40)))
    order = torch.randperm(40, generator=torch.Generator().manual_seed(1))
    assert source.fetch(order)[:, 0, 0, 0].tolist() == order.tolist()


def striped(folder: Path, count: int = 4) -> Path:
    """Photographs of 600 x 400 pixels with stripes of 3 pixels, in one class folder each."""
    columns = (torch.arange(600) // 3 % 2 * 255).to(torch.uint8)
    for part in ("train", "test"):
        for number in range(count):
            place = folder / part / f"c{number % 2}"
            place.mkdir(parents=True, exist_ok=True)
            pixels = columns.roll(number).expand(400, 600).contiguous().numpy()
            Image.fromarray(pixels).save(place / f"{number}.png")
    return folder


@pytest.mark.parametrize("limit", [2**30, 0], ids=["in memory", "on disk"])
def test_a_window_is_cut_out_of_the_file_and_not_of_a_thumbnail(tmp_path, monkeypatch, limit):
    monkeypatch.setattr(files_module, "CACHE_BYTES", limit)
    data = Data(name="folder", path=str(striped(tmp_path)), image_size=32, validation=0)
    splits = open_data(data, seed=3)
    # A window of 30 x 40 pixels at least, shown with 32 x 32.
    crop = RandomResizedCrop(scale=(0.005, 0.01), ratio=(0.75, 1.3333))
    options = Augmentation(random_resized_crop=crop, crop_padding=0, flip=0.0)
    augmenter = Augmenter(options, splits.normalise, classes=2)
    plan = BatchPlan(size=4, batch_size=4, seed=3)
    batch = TrainingFeed(splits.train, plan, augmenter).batch(0, 0)
    draws = Draws(3, 0, 0, size=4, places=slice(0, 4))
    boxes = random_boxes(draws, "random resized crop", crop.scale, crop.ratio, aspect=600 / 400)
    paths = sorted(tmp_path.glob("train/*/*.png"))
    for place, index in enumerate(batch.indices.tolist()):
        top, left, tall, wide = (float(each[place]) for each in boxes)
        x, y = round(left * 600), round(top * 400)
        with Image.open(paths[index]) as image:
            cut = image.convert("RGB").crop((x, y, x + round(wide * 600), y + round(tall * 400)))
        assert 0.7 < cut.width / cut.height < 1.4  # the ratio of the pixels, not of a square
        shown = cut.resize((32, 32), Image.Resampling.BILINEAR)
        pixels = torch.frombuffer(bytearray(shown.tobytes()), dtype=torch.uint8)
        want = splits.normalise(pixels.view(32, 32, 3).permute(2, 0, 1)[None])[0]
        assert torch.equal(batch.images[place], want)
        assert pixels.float().std() > 60.0  # black and white; the whole image is grey at 32 pixels
    assert splits.train.fetch(torch.arange(4)).float().std() < 30.0


def test_windows_at_the_edges_are_whole_pixels_of_the_image():
    for box in ((0.999, 0.999, 0.001, 0.001), (0.0, 0.0, 1.0, 1.0), (0.5, 0.25, 0.5, 0.75)):
        x0, y0, x1, y1 = files_module._pixels_of_box(box, (7, 5))
        assert 0 <= x0 < x1 <= 7
        assert 0 <= y0 < y1 <= 5


def test_a_label_that_no_head_could_have_is_refused(tmp_path):
    write_vtab(tmp_path)
    path = tmp_path / "train800.txt"
    path.write_text(path.read_text().replace(" 0", " 1000000000", 1))
    with pytest.raises(DataError, match=r"line \d+: the label 1000000000 is not below 1,000,000"):
        open_vtab(tmp_path)


def test_what_fits_is_kept_in_memory_and_the_rest_is_not(tmp_path):
    source = files(*(write_image(tmp_path / f"{n}.png", n) for n in range(4)))
    needed = 4 * 3 * 6 * 6
    assert source.loaded(needed - 1) is source
    kept = source.loaded(needed)
    for file in tmp_path.iterdir():
        file.unlink()
    assert colours(kept) == [0, 1, 2, 3]
    with pytest.raises(DataNotFoundError, match=r"0\.png no longer exists"):
        source.fetch(torch.tensor([0]))


def test_different_sizes_need_an_image_size(tmp_path):
    paths = [write_image(tmp_path / "a.png", 1), write_image(tmp_path / "b.png", 2, (6, 9))]
    with pytest.raises(DataError, match=r"b\.png is 9 x 6 pixels.*6 x 6.*data\.image_size"):
        files(*paths).loaded()
    assert files(*paths, image_size=6).loaded().size == (6, 6)


def damaged(path, kind):
    write_image(path, 5, (64, 64))
    content = path.read_bytes()
    if kind == "truncated":
        path.write_bytes(content[: len(content) * 2 // 3])
    elif kind == "text":
        path.write_text("no image")
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "missing":
        path.unlink()
    elif kind == "16 bit":
        Image.fromarray(np.full((64, 64), 40_000, dtype=np.uint16)).save(path)


@pytest.mark.parametrize("suffix", [".png", ".jpg"])
@pytest.mark.parametrize("kind", ["truncated", "text", "empty", "missing"])
def test_a_damaged_file_is_named_when_the_data_are_opened(tmp_path, kind, suffix):
    bad = tmp_path / f"bad{suffix}"
    damaged(bad, kind)
    good = write_image(tmp_path / "good.png", 5, (64, 64))
    with pytest.raises(DataError, match=str(bad)):
        files(good, bad).loaded()


def test_more_than_8_bits_are_not_clipped_in_silence(tmp_path):
    damaged(tmp_path / "deep.png", "16 bit")
    with pytest.raises(DataError, match=r"deep\.png has more than 8 bits"):
        files(tmp_path / "deep.png").loaded()


def test_a_damaged_file_of_a_set_too_large_for_memory_is_named_at_the_fetch(tmp_path):
    damaged(tmp_path / "bad.png", "truncated")
    good = write_image(tmp_path / "good.png", 5, (64, 64))
    source = files(good, tmp_path / "bad.png").loaded(limit=0)
    source.fetch(torch.tensor([0]))
    with pytest.raises(DataError, match=r"bad\.png"):
        source.fetch(torch.tensor([0, 1]))


def test_many_missing_files_are_counted(tmp_path):
    with pytest.raises(DataNotFoundError, match=r"0\.png.*and 15 more are missing"):
        files(*(tmp_path / f"{n}.png" for n in range(20)))


# --- Folders -----------------------------------------------------------------------------------


def open_class_folders(path):
    return DATASETS["folder"].open(Data(name="folder", path=str(path)))


def open_vtab(path):
    return DATASETS["vtab"].open(Data(name="vtab", path=str(path)))


def test_class_folders(tmp_path):
    opened = open_class_folders(write_class_folders(tmp_path, parts=("train", "val", "test")))
    assert opened.source.class_names == ("cat", "dog")
    assert colours(opened.source) == list(range(16))
    assert opened.source.labels.tolist() == [0] * 4 + [1] * 4 + [0] * 4 + [1] * 4
    assert opened.validation_images == 8
    assert colours(opened.open_test()) == list(range(16, 24))


def test_other_files_in_class_folders_are_passed_over(tmp_path):
    write_class_folders(tmp_path)
    (tmp_path / "train" / ".hidden").mkdir()
    (tmp_path / "train" / "cat" / "notes.txt").write_text("x")
    (tmp_path / "train" / "cat" / ".0.png").write_text("x")
    assert len(open_class_folders(tmp_path).source) == 8


def test_class_folders_that_cannot_be_used_are_named(tmp_path):
    with pytest.raises(DataNotFoundError, match="nowhere is not a folder"):
        open_class_folders(tmp_path / "nowhere")
    with pytest.raises(DataNotFoundError, match="no folder train/"):
        open_class_folders(tmp_path)
    write_class_folders(tmp_path, parts=("train",))
    with pytest.raises(DataNotFoundError, match="neither a folder test/ nor val/"):
        open_class_folders(tmp_path)
    write_image(tmp_path / "test" / "bird" / "0.png", 1)
    with pytest.raises(DataError, match="classes that train/ does not have: bird"):
        open_class_folders(tmp_path)
    (tmp_path / "train" / "empty").mkdir()
    with pytest.raises(DataError, match=r"no images in .*empty"):
        open_class_folders(tmp_path)


def test_a_test_folder_is_not_read_before_it_is_asked_for(tmp_path):
    write_class_folders(tmp_path)
    damaged(tmp_path / "test" / "cat" / "bad.png", "text")
    opened = open_class_folders(tmp_path)
    with pytest.raises(DataError, match=r"bad\.png"):
        opened.open_test()


def test_vtab_lists(tmp_path):
    opened = open_vtab(write_vtab(tmp_path))
    assert colours(opened.source) == list(range(12))
    assert opened.source.labels.tolist() == [0, 1] * 6
    assert opened.validation_images == 4
    assert opened.source.class_names == ("0", "1")
    assert colours(opened.open_test()) == list(range(12, 18))


def test_vtab_names_of_classes(tmp_path):
    write_vtab(tmp_path)
    (tmp_path / "classes.json").write_text('["even", "odd", "unseen"]')
    assert open_vtab(tmp_path).source.class_names == ("even", "odd", "unseen")
    (tmp_path / "classes.json").write_text('["even"]')
    with pytest.raises(DataError, match="1 classes"):
        open_vtab(tmp_path)
    (tmp_path / "classes.json").write_text("{")
    with pytest.raises(DataError, match=r"classes\.json is not readable"):
        open_vtab(tmp_path)


@pytest.mark.parametrize(
    ("name", "line", "message"),
    [
        ("train800", "images/0.png", "expected 'images/NAME LABEL'"),
        ("train800", "images/0.png one", "expected 'images/NAME LABEL'"),
        ("train800", "images/0.png -1", "expected 'images/NAME LABEL'"),
        ("train800", "../secret.png 1", "is outside of the folder"),
        ("train800", "/etc/secret.png 1", "is outside of the folder"),
        ("train800", "images/0.png 0", "twice"),
        ("train800", "images/8.png 0", "in train800.txt and in val200.txt"),
        ("val200", "images/none.png 0", "not train800.txt and val200.txt together"),
    ],
)
def test_a_bad_line_of_a_list_is_named(tmp_path, name, line, message):
    file = write_vtab(tmp_path) / f"{name}.txt"
    file.write_text(file.read_text() + line + "\n")
    with pytest.raises(DataError, match=message):
        open_vtab(tmp_path)


def test_a_missing_image_of_a_list_is_named(tmp_path):
    (write_vtab(tmp_path) / "images" / "5.png").unlink()
    with pytest.raises(DataNotFoundError, match=r"5\.png is missing"):
        open_vtab(tmp_path)


def test_a_missing_list_is_named_before_training(tmp_path):
    (write_vtab(tmp_path) / "test.txt").unlink()
    with pytest.raises(DataNotFoundError, match=r"lacks test\.txt"):
        open_vtab(tmp_path)


def test_mistakes_about_test_images_are_found_before_training(tmp_path):
    file = write_vtab(tmp_path) / "test.txt"
    right = file.read_text()
    file.write_text(right + "images/9.png 1\n")
    with pytest.raises(DataError, match=r"1 images are in .* and in test\.txt.*9\.png"):
        open_vtab(tmp_path)
    file.write_text(right + "images/none.png 1\n")
    with pytest.raises(DataNotFoundError, match=r"none\.png is missing"):
        open_vtab(tmp_path)


def test_a_class_of_the_test_images_alone_is_a_class(tmp_path):
    file = write_vtab(tmp_path) / "test.txt"
    file.write_text(file.read_text().replace("images/12.png 0", "images/12.png 2"))
    opened = open_vtab(tmp_path)
    assert opened.source.class_names == ("0", "1", "2")
    assert 2 in opened.open_test().labels.tolist()


def test_a_vtab_test_image_is_not_decoded_before_it_is_asked_for(tmp_path):
    damaged(write_vtab(tmp_path) / "images" / "13.png", "text")
    opened = open_vtab(tmp_path)
    with pytest.raises(DataError, match=r"13\.png"):
        opened.open_test()


def test_names_with_spaces_are_read(tmp_path):
    write_vtab(tmp_path)
    (tmp_path / "images" / "0.png").rename(tmp_path / "images" / "my cat.png")
    for name in ("train800", "train800val200"):
        file = tmp_path / f"{name}.txt"
        file.write_text(file.read_text().replace("images/0.png", "images/my cat.png"))
    assert colours(open_vtab(tmp_path).source)[0] == 0


def test_a_large_folder_stays_on_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(files_module, "CACHE_BYTES", 0)
    assert isinstance(open_vtab(write_vtab(tmp_path)).source, FileSource)


# --- Embedded ----------------------------------------------------------------------------------


def test_digits_are_all_there_once_and_in_their_shares():
    from sklearn.datasets import load_digits

    content = load_digits()
    train, test = digits("train"), digits("test")
    assert (len(train), len(test)) == (1437, 360)
    assert train.size == (8, 8)
    assert train.channels == 1
    together = torch.cat([each.fetch(torch.arange(len(each))) for each in (train, test)])
    originals = torch.from_numpy(content.images).mul(255 / 16).round().to(torch.uint8)
    key = lambda images: sorted(map(bytes, images.flatten(1).numpy()))  # noqa: E731
    assert key(together) == key(originals)
    shares = torch.bincount(test.labels) / torch.bincount(train.labels)
    assert float(shares.max() - shares.min()) * 140 < 2  # one image in a class of about 140


def test_digits_are_cut_at_the_same_place_always():
    # Of the images chosen once: another cut would make stored results incomparable.
    again = digits("test").fetch(torch.arange(360))
    assert int(again.to(torch.int64).sum()) == 1_794_039


def test_the_place_of_the_square_alone_tells_the_classes_of_shapes():
    images, labels = draw_shapes(400, 3)
    cells = images.view(400, 4, 4, 4, 4).transpose(2, 3).flatten(3)  # image, row, column, pixels
    squares = (cells == 224).all(dim=-1).nonzero()
    assert squares[:, 0].tolist() == list(range(400))
    corner = (squares[:, 1] // 2) * 2 + squares[:, 2] // 2
    assert torch.equal(corner, labels)
    assert (torch.bincount(labels, minlength=4) > 60).all()
    # One ring beside it, so bright pixels as such say nothing.
    assert ((cells == 224).sum(dim=-1) == 12).sum(dim=(1, 2)).tolist() == [1] * 400


def test_shapes_depend_on_their_seed_only():
    one, other = draw_shapes(8, 1), draw_shapes(8, 2)
    assert torch.equal(one[0], draw_shapes(8, 1)[0])
    assert not torch.equal(one[0], other[0])
    train, test = shapes("train"), shapes("test")
    assert (len(train), len(test)) == (2048, 512)
    every = {bytes(image) for image in train.fetch(torch.arange(2048)).flatten(1).numpy()}
    assert not any(bytes(i) in every for i in test.fetch(torch.arange(512)).flatten(1).numpy())


@pytest.mark.parametrize("name", ["digits", "shapes"])
def test_a_record_says_what_the_opened_data_are(name):
    record = DATASETS[name]
    source = record.open(Data(name=name)).source
    assert (len(source), source.channels) == (record.training_images, record.channels)
    assert source.size == (record.size, record.size)
    assert len(source.class_names) == record.classes


def test_records_are_read_without_torch():
    code = "import sys; from training.data import DATASETS; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
