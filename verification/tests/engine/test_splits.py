"""Splits without leaks: validation out of training, the test set sealed, shares of classes kept."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the torch extra is not installed")
pytest.importorskip("PIL", reason="the training extra is not installed")

from PIL import Image

from training.config.schema import Data
from training.data import DataError, FileSource, open_data
from training.data import splits as splits_module
from training.data.sources import stratified_choice
from training.parsing import read_image_size
from training.randomness import generator
from verification.tests.data_archives import write_cifar100, write_class_folders, write_vtab
from wefpe_core import InputError


def table(name: str, path="", **options) -> Data:
    return Data(name=name, path=str(path), **({"validation": 0} | options))


def changed(data: Data, **changes) -> Data:
    return data.model_copy(update=changes)


def images_of(source) -> list[bytes]:
    return [bytes(image) for image in source.fetch(torch.arange(len(source))).flatten(1).numpy()]


@pytest.fixture(params=["cifar100", "folder", "folder with val", "vtab", "shapes"])
def options(request, tmp_path) -> Data:
    """A data set of every kind, all of whose images differ, with validation images."""
    kind = request.param
    if kind == "cifar100":
        write_cifar100(tmp_path)
        return table("cifar100", tmp_path, validation=15)
    if kind == "vtab":
        return table("vtab", write_vtab(tmp_path), validation=4)
    if kind == "shapes":
        return table("shapes", validation=100)
    parts = ("train", "val", "test") if "val" in kind else ("train", "test")
    write_class_folders(tmp_path, parts=parts)
    return table("folder", tmp_path, validation=8 if "val" in kind else 2)


def test_no_image_is_in_two_parts_and_none_is_lost(options):
    splits = open_data(options, seed=0)
    train, validation = images_of(splits.train), images_of(splits.validation)
    test, both = images_of(splits.open_test()), images_of(splits.train_and_validation)
    assert len(validation) == options.validation
    assert not set(train) & set(validation)
    assert not set(both) & set(test)
    assert sorted(both) == sorted(train + validation)
    whole = open_data(changed(options, validation=0), seed=0)
    assert whole.validation is None
    assert sorted(images_of(whole.train)) == sorted(both)


def test_labels_go_with_their_images(options):
    splits = open_data(options, seed=0)
    whole = open_data(changed(options, validation=0), seed=0).train
    known = dict(zip(images_of(whole), whole.labels.tolist(), strict=True))
    for part in (splits.train, splits.validation, splits.train_and_validation):
        assert part is not None
        assert [known[image] for image in images_of(part)] == part.labels.tolist()


def test_the_cut_depends_on_the_seed_and_on_nothing_else(tmp_path):
    options = table("cifar100", write_cifar100(tmp_path), validation=15)
    one = images_of(open_data(options, seed=1).validation)
    torch.manual_seed(5)
    assert one == images_of(open_data(options, seed=1).validation)
    assert one == images_of(open_data(changed(options, train_images=10), seed=1).validation)
    assert set(one) != set(images_of(open_data(options, seed=2).validation))
    test = images_of(open_data(options, seed=1).open_test())
    assert test == images_of(open_data(options, seed=2).open_test())


def test_every_class_gives_its_share(tmp_path):
    options = table("cifar100", write_cifar100(tmp_path, train=100), validation=20, train_images=40)
    splits = open_data(options, seed=3)
    assert splits.validation is not None
    assert torch.bincount(splits.validation.labels).tolist() == [4] * 5
    assert torch.bincount(splits.train.labels).tolist() == [8] * 5
    assert len(splits.train_and_validation) == 60


@pytest.mark.parametrize("count", [0, 1, 5, 33, 99, 100])
def test_shares_are_off_by_less_than_one_image(count):
    labels = torch.tensor([0] * 50 + [1] * 30 + [7] * 17 + [9] * 3)
    labels = labels[torch.randperm(100, generator=generator(0))]
    chosen, rest = stratified_choice(labels, count, generator(count, "x"))
    assert sorted(chosen.tolist() + rest.tolist()) == list(range(100))
    assert len(chosen) == count
    for label, size in ((0, 50), (1, 30), (7, 17), (9, 3)):
        assert abs(int((labels[chosen] == label).sum()) - size * count / 100) < 1


def test_the_largest_remainders_are_rounded_up():
    labels = torch.tensor([0] * 50 + [1] * 30 + [2] * 17 + [3] * 3)
    for seed in range(5):  # shares 16.5, 9.9, 5.61 and 0.99
        chosen, _ = stratified_choice(labels, 33, generator(seed))
        assert torch.bincount(labels[chosen]).tolist() == [16, 10, 6, 1]


def test_ties_of_the_shares_are_broken_by_chance():
    labels = torch.arange(10)
    single = {int(stratified_choice(labels, 1, generator(s))[0]) for s in range(100)}
    assert single == set(range(10))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"validation": 60}, "data.validation=60: nothing is left of the 60"),
        ({"validation": 15, "train_images": 46}, "data.train_images=46: there are 45"),
        ({"name": "imagenet"}, "cifar100, cifar100_rolled, cifar10, digits"),
        ({"name": "folder", "path": ""}, "data.path"),
        ({"name": "vtab", "path": ""}, "data.path"),
        ({"name": "digits", "labels": "coarse"}, "no coarse labels"),
    ],
)
def test_what_cannot_be_cut_is_refused(tmp_path, changes, message):
    options = table("cifar100", write_cifar100(tmp_path))
    with pytest.raises(DataError, match=message):
        open_data(changed(options, **changes), seed=0)


@pytest.mark.parametrize("validation", [3, 5, 200])
def test_validation_images_of_the_data_set_are_taken_or_left(tmp_path, validation):
    options = table("vtab", write_vtab(tmp_path), validation=validation)
    with pytest.raises(DataError, match="come with 4 validation images; say 4, or 0"):
        open_data(options, seed=0)


def test_vtab_validation_is_the_published_one(tmp_path):
    splits = open_data(table("vtab", write_vtab(tmp_path), validation=4), seed=0)
    assert splits.validation is not None
    reds = splits.validation.fetch(torch.arange(4))[:, 0, 0, 0].tolist()
    assert reds == [8, 9, 10, 11]


# --- Normalisation -----------------------------------------------------------------------------


def test_training_images_come_out_with_mean_0_and_deviation_1():
    splits = open_data(table("shapes", validation=1500), seed=0)
    assert len(splits.train) < splits_module._STATISTICS_IMAGES  # so all of them were measured
    images = splits.normalise(splits.train.fetch(torch.arange(len(splits.train)))).double()
    single = torch.finfo(torch.float32).eps
    assert abs(float(images.mean())) < 64 * single
    assert abs(float(images.std(correction=0)) - 1) < 64 * single


def test_statistics_do_not_look_at_validation_or_test_images(monkeypatch):
    seen = []
    real = splits_module._statistics

    def recorded(name, source, seed):
        seen.append(source)
        return real(name, source, seed)

    monkeypatch.setattr(splits_module, "_statistics", recorded)
    splits = open_data(table("digits", validation=100), seed=0)
    assert seen == [splits.train]


def test_published_and_given_statistics(tmp_path):
    options = table("cifar100", write_cifar100(tmp_path))
    assert open_data(options, 0).normalise.mean == (0.5071, 0.4865, 0.4409)
    given = changed(options, mean=(0.5,), std=(0.1, 0.2, 0.3))
    normalise = open_data(given, 0).normalise
    assert (normalise.mean, normalise.std) == ((0.5,) * 3, (0.1, 0.2, 0.3))
    white = torch.full((1, 3, 32, 32), 255, dtype=torch.uint8)
    expected = torch.tensor(0.5) / torch.tensor([0.1, 0.2, 0.3])
    assert torch.equal(normalise(white)[0, :, 0, 0], expected)
    for bad in ({"mean": (0.5, 0.5)}, {"std": (0.1, 0.0, 0.1)}):
        with pytest.raises(InputError, match=f"data.{next(iter(bad))}"):
            open_data(changed(options, **bad), 0)


def test_the_size_the_model_sees(tmp_path):
    options = table("cifar100", write_cifar100(tmp_path))
    some = torch.tensor([0, 1])
    for image_size, stored, seen in (
        (None, (32, 32), (32, 32)),
        (48, (32, 32), (48, 48)),
        (16, (16, 16), (16, 16)),
        ((32, 48), (32, 32), (32, 48)),
        ((24, 48), (24, 32), (24, 48)),  # smaller at once, larger on the device
    ):
        splits = open_data(options, 0, image_size=image_size)
        if not isinstance(image_size, tuple):  # a config knows squares only
            of_config = open_data(changed(options, image_size=image_size), 0)
            assert (of_config.train.size, of_config.image_size) == (stored, seen)
        assert splits.train.size == stored
        assert splits.image_size == seen
        assert splits.open_test().size == stored
        assert splits.normalise(splits.train.fetch(some)).shape == (2, 3, *seen)


def test_sizes_as_they_are_typed():
    assert read_image_size("48") == read_image_size("48x48") == 48
    assert read_image_size("32X48") == (32, 48)
    for bad in ("", "0", "x48", "32x", "32x-4", "large", "8x8x8", "1.5"):
        with pytest.raises(InputError, match="32x48"):
            read_image_size(bad)


def test_images_in_files_are_made_rectangular(tmp_path):
    path = tmp_path / "a.png"
    Image.new("RGB", (10, 6), (255, 0, 0)).save(path)
    source = FileSource([path], torch.zeros(1), ("red",), "one image", image_size=(4, 8))
    images = source.fetch(torch.tensor([0]))
    assert source.size == (4, 8)
    assert images.shape == (1, 3, 4, 8)
    assert images[0, :, 3, 7].tolist() == [255, 0, 0]


def test_a_data_set_is_opened_without_a_config_file():
    splits = open_data(Data(name="digits", validation=100), 0)
    assert splits.validation is not None
    assert (len(splits.train), len(splits.validation)) == (1337, 100)
    assert (splits.channels, len(splits.class_names)) == (1, 10)
