"""The CIFAR archives: found in every form, damaged ones named, pickles that run nothing."""

from __future__ import annotations

import pickle
import shutil
import sys
import types
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the torch extra is not installed")
pytest.importorskip("PIL", reason="the training extra is not installed")

from training.config.schema import Data
from training.data import DATASETS, DataError, DataNotFoundError, open_data
from training.data import cifar as cifar_module
from training.data.cifar import CIFAR
from training.data.restricted_pickle import read_pickle
from verification.tests.data_archives import (
    CIFAR100_FOLDER,
    pack,
    write_cifar10,
    write_cifar100,
)


def open_cifar(name: str, path: Path | None, **options):
    """The training images, and the function that reads the test images."""
    opened = DATASETS[name].open(Data(name=name, path=str(path or ""), **options))
    return opened.source, opened.open_test


@pytest.fixture
def folder(tmp_path) -> Path:
    return write_cifar100(tmp_path / "data")


def raw(folder: Path, name: str) -> np.ndarray:
    return pickle.loads((folder / name).read_bytes(), encoding="bytes")[b"data"]


@pytest.mark.parametrize("form", ["folder", "parent", "archive", "parent of archive"])
def test_every_form_gives_the_pixels_and_labels_of_the_files(folder, form):
    archive = pack(folder, folder.parent / "cifar-100-python.tar.gz")
    pixels = {name: raw(folder, name).reshape(-1, 3, 32, 32) for name in ("train", "test")}
    if form == "parent of archive":
        shutil.rmtree(folder)
    path = {"folder": folder, "archive": archive}.get(form, folder.parent)
    train, open_test = open_cifar("cifar100", path)
    for source, name in ((train, "train"), (open_test(), "test")):
        every = torch.arange(len(source))
        assert np.array_equal(source.fetch(every).numpy(), pixels[name])
        assert source.labels.tolist() == [index % 5 for index in range(len(source))]
        assert source.class_names == ("apple", "bear", "cup", "dog", "eel")
        assert (source.channels, source.size) == (3, (32, 32))


def test_coarse_labels(folder):
    train, _ = open_cifar("cifar100", folder, labels="coarse")
    assert train.class_names == ("first", "second")
    assert train.labels[:5].tolist() == [0, 0, 0, 1, 1]


def test_cifar10_joins_its_five_files(tmp_path):
    train, open_test = open_cifar("cifar10", write_cifar10(tmp_path))
    assert train.fetch(torch.arange(20))[::4, 0, 0, 0].tolist() == [0, 1, 2, 3, 4]
    assert train.labels[::4].tolist() == [0, 1, 2, 3, 4]
    assert open_test().labels.tolist() == [5, 0, 1, 2]
    with pytest.raises(DataError, match="no coarse labels"):
        open_data(Data(name="cifar10", path=str(tmp_path), labels="coarse"), seed=0)


def test_pickles_of_python_2_and_of_numpy_1_and_2_are_read(tmp_path):
    # As Python 2 wrote them: text as 8-bit strings, NumPy by its old name.
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntU\x01btR"
        b"(I1\n(I2\nI3\ntcnumpy\ndtype\n(U\x02u1I0\nI1\ntR(I3\nU\x01|NNNI-1\nI-1\nI0\ntb"
        b"I00\nU\x06ABCDEFtb"
    )
    old = read_pickle(b"(dU\x04data" + array + b"s.", "old")
    assert old["data"].tolist() == [[65, 66, 67], [68, 69, 70]]
    for module in ("numpy.core.multiarray", "numpy._core.multiarray"):
        content = (b"(dU\x04data" + array + b"s.").replace(
            b"numpy.core.multiarray", module.encode()
        )
        assert torch.equal(read_pickle(content, "new")["data"], old["data"])


def test_the_test_file_is_not_opened_before_it_is_asked_for(folder):
    (folder / "test").write_bytes(b"rubbish")
    _, open_test = open_cifar("cifar100", folder)
    with pytest.raises(DataError, match="test"):
        open_test()


# --- What is missing or damaged ----------------------------------------------------------------


def test_no_data_says_how_to_get_them(tmp_path):
    with pytest.raises(DataNotFoundError) as caught:
        open_cifar("cifar100", tmp_path / "nowhere")
    for part in (str(tmp_path / "nowhere"), "data.path", "data.download=true", CIFAR100_FOLDER):
        assert part in str(caught.value)


@pytest.mark.parametrize("name", ["train", "test", "meta"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_missing_file_is_named_before_anything_starts(folder, name, packed):
    (folder / name).unlink()
    path = pack(folder, folder.parent / "a.tar.gz") if packed else folder.parent
    with pytest.raises(DataNotFoundError, match=rf"\b{name}\b"):
        open_cifar("cifar100", path)


@pytest.mark.parametrize("share", [0.02, 0.5, 0.99])
def test_a_truncated_archive_is_named(folder, share):
    archive = pack(folder, folder.parent / "short.tar.gz")
    content = archive.read_bytes()
    archive.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(DataError, match=r"short\.tar\.gz"):
        open_cifar("cifar100", archive)


def test_a_damaged_archive_is_named(folder):
    archive = pack(folder, folder.parent / "bad.tar.gz")
    content = bytearray(archive.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 200] = bytes(200)
    archive.write_bytes(content)
    with pytest.raises(DataError, match=r"bad\.tar\.gz"):
        open_cifar("cifar100", archive)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.999])
def test_a_truncated_file_is_named(folder, share):
    content = (folder / "train").read_bytes()
    (folder / "train").write_bytes(content[: int(len(content) * share)])
    with pytest.raises(DataError, match=str(folder / "train")):
        open_cifar("cifar100", folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": np.zeros((60, 3071), np.uint8)}, "3072"),
        ({"data": np.zeros((60, 3072), np.float32)}, "unsigned bytes"),
        ({"data": [1, 2]}, "3072"),
        ({"fine_labels": [0] * 59}, "60 images but 59"),
        ({"fine_labels": [5] * 60}, "5 classes"),
        ({"fine_labels": [-1] * 60}, "5 classes"),
        ({"fine_labels": ["a"] * 60}, "fine_labels"),
        ({"fine_labels": None}, "fine_labels"),
    ],
)
def test_content_of_another_kind_is_refused(tmp_path, changes, message):
    with pytest.raises(DataError, match=message) as caught:
        open_cifar("cifar100", write_cifar100(tmp_path, **changes))
    assert str(tmp_path) in str(caught.value)


# --- Pickles run nothing -----------------------------------------------------------------------


class Evil:
    def __reduce__(self):
        return types.SimpleNamespace, ()


@pytest.mark.parametrize(
    "content",
    [
        b"cos\nsystem\n(S'touch PROOF'\ntR.",
        b'cbuiltins\neval\n(S\'open("PROOF", "w")\'\ntR.',
        b"(S'touch PROOF'\nios\nsystem\n.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x0btouch PROOF\x85R.",
        b"cnumpy\nload\n(S'PROOF'\ntR.",
        b"cnumpy.core.multiarray\nscalar\n.",
    ],
    ids=["reduce", "eval", "inst", "stack global", "numpy load", "numpy scalar"],
)
def test_a_pickle_that_names_a_function_is_refused_and_not_run(tmp_path, monkeypatch, content):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil").write_bytes(content)
    with pytest.raises(DataError, match="nothing of it was run"):
        read_pickle(content, "evil")
    assert [each.name for each in tmp_path.iterdir()] == ["evil"]


def test_the_malicious_pickles_above_would_run_in_an_ordinary_reader(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pickle.loads(b"cos\nsystem\n(S'touch PROOF'\ntR.")
    assert (tmp_path / "PROOF").exists()


def test_a_file_inside_a_folder_cannot_run_code(folder):
    (folder / "meta").write_bytes(pickle.dumps({b"fine_label_names": Evil()}, protocol=2))
    with pytest.raises(DataError, match=r"types\.SimpleNamespace.*nothing of it was run"):
        open_cifar("cifar100", folder)


def test_numpy_does_not_see_what_a_pickle_holds():
    # An array of objects, of a wrong length, or with the bytes of another: never built.
    good = pickle.dumps({b"data": np.arange(6, dtype=np.uint8)}, protocol=2)
    assert read_pickle(good, "good")["data"].tolist() == list(range(6))
    with pytest.raises(DataError, match="unsigned bytes"):
        read_pickle(pickle.dumps({b"data": np.array([[], 1], dtype=object)}, protocol=2), "bad")
    longer = good.replace(b"K\x06\x85", b"K\x60\x85")
    assert longer != good
    with pytest.raises(DataError, match=r"6 bytes for the shape \(96,\)"):
        read_pickle(longer, "bad")


# --- Downloads ---------------------------------------------------------------------------------


def test_a_download_is_fetched_once_and_must_have_the_checksum(tmp_path, monkeypatch):
    import hashlib
    from dataclasses import replace

    archive = pack(write_cifar100(tmp_path / "server"), tmp_path / "server" / "c.tar.gz")
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    fetched = []

    class Pooch:
        @staticmethod
        def os_cache(name):
            return tmp_path / "cache" / name

        @staticmethod
        def retrieve(url, known_hash, fname, path, progressbar):
            import pooch

            def copy(url, output_file, _):
                fetched.append(url)
                shutil.copy(archive, output_file)

            return pooch.retrieve(url, known_hash, fname=fname, path=path, downloader=copy)

    monkeypatch.setattr(cifar_module, "_pooch", Pooch)
    published = CIFAR["cifar100"]
    monkeypatch.setitem(CIFAR, "cifar100", replace(published, sha256=digest))
    for _ in range(2):
        train, _ = open_cifar("cifar100", None, download=True)
        assert len(train) == 60
    assert fetched == [published.url]
    assert (tmp_path / "cache" / "wefpe" / "cifar-100-python.tar.gz").is_file()
    assert len(open_cifar("cifar100", None)[0]) == 60  # found again without permission to fetch

    monkeypatch.setitem(CIFAR, "cifar100", published)
    with pytest.raises(DataError, match=r"cs\.toronto\.edu.*hash"):
        open_cifar("cifar100", tmp_path / "elsewhere", download=True)
    assert not (tmp_path / "elsewhere" / "cifar-100-python.tar.gz").exists()


def test_nothing_is_fetched_without_permission(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a download was started")

    monkeypatch.setattr(cifar_module, "_downloaded", refuse)
    with pytest.raises(DataNotFoundError):
        open_cifar("cifar10", tmp_path)


def test_torchvision_is_not_imported():
    assert "torchvision" not in sys.modules
