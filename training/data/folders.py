"""Images in files: one folder per class, lists of files, and lists as in VTAB-1k."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from training.data.encoded import AbstractEncodedSource, Reading
from training.data.sources import OpenedData
from training.errors import DataError, DataNotFoundError
from training.parsing import ImageSize

if TYPE_CHECKING:
    from training.config.schema import Data

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".ppm", ".pgm", ".tif", ".tiff", ".gif")
_MOST_NAMED = 5  # files in one message
# More than any set of labelled images has. A label takes a name and a row of the head.
_MOST_CLASSES = 1_000_000


class FileSource(AbstractEncodedSource):
    """Images in files.

    The names are kept in one stretch of bytes: a million paths as objects take half a gigabyte.
    """

    def __init__(
        self,
        paths: Sequence[str | Path],
        labels: Tensor,
        class_names: tuple[str, ...],
        description: str,
        *,
        image_size: ImageSize | None = None,
        reading: Reading | None = None,
    ) -> None:
        if not paths:
            raise DataError(f"{description} holds no images")
        _check_present(paths, description)
        names = [os.fsencode(path) for path in paths]
        self._names = b"".join(names)
        self._ends = np.cumsum([len(name) for name in names], dtype=np.int64)
        super().__init__(labels, class_names, description, reading or Reading(image_size))

    def __len__(self) -> int:
        return len(self._ends)

    def open(self, index: int) -> Path:
        return Path(self.name(index))

    def name(self, index: int) -> str:
        start = int(self._ends[index - 1]) if index else 0
        return os.fsdecode(self._names[start : int(self._ends[index])])


def _check_present(paths: Sequence[str | Path], description: str) -> None:
    """Raise an error that names the files which are missing or empty."""
    absent, empty = [], []
    for path in paths:
        try:
            length = os.stat(path).st_size
        except OSError:
            absent.append(path)
        else:
            if length == 0:
                empty.append(path)
    if absent:
        raise DataNotFoundError(f"{description}: {_named(absent)} missing")
    if empty:
        raise DataError(f"{description}: {_named(empty)} empty (0 bytes)")


def _named(paths: Sequence[str | Path]) -> str:
    names = ", ".join(str(path) for path in paths[:_MOST_NAMED])
    rest = len(paths) - _MOST_NAMED
    verb = "is" if len(paths) == 1 else "are"
    return f"{names}{f' and {rest} more' if rest > 0 else ''} {verb}"


Listing = list[tuple[str, int]]


# --- One folder per class --------------------------------------------------------------------


def open_class_folders(data: Data, image_size: ImageSize | None = None) -> OpenedData:
    """``train/CLASS/IMAGE`` beside ``test/``, ``val/`` or both, which have the same classes.

    Without test/ the images of val/ are the test set, as in the usual copy of ImageNet, and
    validation images are drawn from train/. The classes are the folders of train/ in alphabetical
    order. Files without the suffix of an image and names that begin with a dot are ignored.
    """
    path = folder_of(data)
    if not (path / "train").is_dir():
        raise DataNotFoundError(f"{path} has no folder train/ of class folders")
    test_folder = path / ("test" if (path / "test").is_dir() else "val")
    if not test_folder.is_dir():
        raise DataNotFoundError(f"{path} has neither a folder test/ nor val/ of class folders")
    names = class_folders(path / "train")
    train = _class_listing(path / "train", names)
    _check_every_class(train, names, path / "train")
    has_both = test_folder.name == "test" and (path / "val").is_dir()
    validation = _class_listing(path / "val", names) if has_both else []
    reading = Reading.of(data, image_size)
    source = _source(train + validation, names, f"images of {path}", reading)
    test = _source(_class_listing(test_folder, names), names, f"test images of {path}", reading)
    return OpenedData(source.loaded(), len(validation), test.loaded)


def open_class_folder(path: Path, reading: Reading) -> FileSource:
    """The images of one folder of class folders."""
    names = class_folders(path)
    return _source(_class_listing(path, names), names, f"images of {path}", reading)


def class_folders(path: Path) -> tuple[str, ...]:
    """The names of the classes in a folder, in alphabetical order."""
    names = tuple(each.name for each in _visible(path) if each.is_dir())
    if not names:
        raise DataError(f"{path} holds no class folders")
    return names


def _class_listing(folder: Path, names: tuple[str, ...]) -> Listing:
    listing: Listing = []
    unknown = [each.name for each in _visible(folder) if each.is_dir() and each.name not in names]
    if unknown:
        raise DataError(
            f"{folder} has classes that train/ does not have: {', '.join(sorted(unknown)[:5])}"
        )
    for label, name in enumerate(names):
        if (folder / name).is_dir():
            listing += [
                (os.path.join(folder, name, file), label) for file in _images(folder / name)
            ]
    if not listing:
        raise DataError(f"{folder} holds no images")
    return listing


def _check_every_class(listing: Listing, names: tuple[str, ...], folder: Path) -> None:
    found = {label for _, label in listing}
    empty = [name for label, name in enumerate(names) if label not in found]
    if empty:
        raise DataError(
            f"no images in {', '.join(str(folder / name) for name in empty[:5])} "
            f"(known suffixes: {' '.join(SUFFIXES)})"
        )


def _visible(folder: Path) -> list[Path]:
    return sorted(each for each in folder.iterdir() if not each.name.startswith("."))


def _images(folder: Path) -> list[str]:
    """The names of the images in a folder, sorted; not as objects, of which there may be many."""
    with os.scandir(folder) as entries:
        return sorted(
            entry.name
            for entry in entries
            if not entry.name.startswith(".") and entry.name.lower().endswith(SUFFIXES)
        )


# --- Lists of files -------------------------------------------------------------------------

_TRAIN, _VALIDATION, _BOTH, _TEST = (
    "train800.txt",
    "val200.txt",
    "train800val200.txt",
    "test.txt",
)


def open_vtab(data: Data, image_size: ImageSize | None = None) -> OpenedData:
    """The common folder format of VTAB-1k: files with a line ``images/NAME LABEL`` per image.

    ``classes.json`` may hold a list of the names of the classes. An image in two lists that must
    not share any is an error.
    """
    path = folder_of(data)
    for name in (_TRAIN, _VALIDATION, _TEST):
        if not (path / name).is_file():
            raise DataNotFoundError(f"{path} lacks {name} of the VTAB folder format")
    train, validation = _read_list(path, _TRAIN), _read_list(path, _VALIDATION)
    _check_disjoint(train, validation, path, _TRAIN, _VALIDATION)
    known = train + validation
    if (path / _BOTH).is_file() and sorted(_read_list(path, _BOTH)) != sorted(known):
        raise DataError(f"{path / _BOTH} is not {_TRAIN} and {_VALIDATION} together")
    return _opened_lists(data, path, known, len(validation), _TEST, image_size)


def open_lists(data: Data, image_size: ImageSize | None = None) -> OpenedData:
    """``train.txt`` beside ``test.txt``, ``val.txt`` or both: a line ``FILE LABEL`` per image.

    Files are relative to the folder. Without test.txt the images of val.txt are the test set.
    """
    path = folder_of(data)
    if not (path / "train.txt").is_file():
        raise DataNotFoundError(f"{path} lacks train.txt, the list of the training images")
    has_test, has_val = ((path / name).is_file() for name in ("test.txt", "val.txt"))
    if not (has_test or has_val):
        raise DataNotFoundError(f"{path} has neither test.txt nor val.txt")
    train = _read_list(path, "train.txt")
    validation = _read_list(path, "val.txt") if has_test and has_val else []
    _check_disjoint(train, validation, path, "train.txt", "val.txt")
    test = "test.txt" if has_test else "val.txt"
    return _opened_lists(data, path, train + validation, len(validation), test, image_size)


def _opened_lists(
    data: Data,
    path: Path,
    known: Listing,
    validation: int,
    test_name: str,
    image_size: ImageSize | None,
) -> OpenedData:
    listed = _read_list(path, test_name)
    _check_disjoint(known, listed, path, "the other lists", test_name)
    # The test images count as well, because a thousand images may not show every class.
    names = names_of_classes(path, 1 + max(label for _, label in known + listed))
    reading = Reading.of(data, image_size)
    source = _source(known, names, f"images of {path}", reading)
    test = _source(listed, names, f"test images of {path}", reading)
    return OpenedData(source.loaded(), validation, test.loaded)


def _read_list(path: Path, name: str) -> Listing:
    listing: Listing = []
    for number, line in enumerate((path / name).read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        where = f"{path / name}, line {number}"
        file, _, label = line.strip().rpartition(" ")
        if not file or not label.isdecimal():
            raise DataError(f"{where}: expected 'images/NAME LABEL', got {line!r}")
        if not is_label(label):
            raise DataError(f"{where}: the label {label} is not below {_MOST_CLASSES:,}")
        relative = PurePosixPath(file.strip())
        if relative.is_absolute() or ".." in relative.parts:
            raise DataError(f"{where}: {file!r} is outside of the folder")
        listing.append((os.path.join(path, relative), int(label)))
    if not listing:
        raise DataError(f"{path / name} lists no images")
    if len({file for file, _ in listing}) != len(listing):
        raise DataError(f"{path / name} lists an image twice")
    return listing


def is_label(text: str) -> bool:
    """Whether a text is the number of a class."""
    digits = len(str(_MOST_CLASSES))
    return text.isdecimal() and len(text) <= digits and int(text) < _MOST_CLASSES


def _check_disjoint(one: Listing, other: Listing, path: Path, *names: str) -> None:
    shared = sorted({file for file, _ in one} & {file for file, _ in other})
    if shared:
        raise DataError(
            f"{path}: {len(shared)} images are in {names[0]} and in {names[1]}: {shared[0]}, ..."
        )


def names_of_classes(path: Path, count: int) -> tuple[str, ...]:
    file = path / "classes.json"
    if not file.is_file():
        return tuple(str(label) for label in range(count))
    try:
        names = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{file} is not readable: {error}") from error
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise DataError(f"{file} must be a list of names")
    return tuple(names)


# --- Shared ----------------------------------------------------------------------------------


def folder_of(data: Data) -> Path:
    path = Path(data.path).expanduser()
    if not path.is_dir():
        raise DataNotFoundError(f"data.path: {path} is not a folder")
    return path


def _source(
    listing: Listing, names: tuple[str, ...], description: str, reading: Reading
) -> FileSource:
    """The listed images, after checking that all files exist and every label has a name.

    No image is decoded yet, so mistakes in the test set are found before training although its
    images stay unread.
    """
    paths, labels = [path for path, _ in listing], [label for _, label in listing]
    return FileSource(
        paths, torch.tensor(labels, dtype=torch.int64), names, description, reading=reading
    )
