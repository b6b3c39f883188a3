"""Images in folders: one folder per class, or lists of files as in VTAB-1k."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import torch
from PIL import Image
from torch import Tensor

from training.data.sources import ImageSource, MemorySource, OpenedData, checked_labels
from training.errors import DataError, DataNotFoundError
from training.parsing import ImageSize, height_and_width

if TYPE_CHECKING:
    from training.config.schema import Data

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".ppm", ".pgm", ".tif", ".tiff", ".gif")
# Images that take at most this many bytes are decoded at the start and kept by every process.
CACHE_BYTES = 2**30
# Converting these to 8 bits would silently clip values above 255.
_WIDE_MODES = ("I", "F")
_MOST_THREADS = 8
_MOST_NAMED = 5  # files in one message


class FileSource:
    """Images that Pillow decodes from files to RGB whenever they are fetched.

    The whole image is resized to `image_size` by bilinear interpolation with a filter against
    aliasing. The orientation marked in a file (EXIF) is ignored.
    """

    channels = 3

    def __init__(
        self,
        paths: Sequence[Path],
        labels: Tensor,
        class_names: tuple[str, ...],
        description: str,
        *,
        image_size: ImageSize | None = None,
    ) -> None:
        if not paths:
            raise DataError(f"{description} holds no images")
        _check_present(paths, description)
        self._paths = tuple(paths)
        self.labels = checked_labels(labels, len(paths), class_names, description)
        self.class_names = class_names
        self.description = description
        self._is_resized = image_size is not None
        self.size = height_and_width(image_size) if image_size else _native_size(paths[0])

    def __len__(self) -> int:
        return len(self._paths)

    def fetch(self, indices: Tensor) -> Tensor:
        paths = [self._paths[index] for index in indices.tolist()]
        images = torch.empty(len(paths), self.channels, *self.size, dtype=torch.uint8)

        def decode(place: int) -> None:
            images[place] = self._decoded(paths[place])

        # Pillow releases the interpreter while it decodes, so threads serve as well as processes.
        # A new pool costs 0.1 ms and a batch of photographs tens of ms, so none is kept.
        with ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1)) as pool:
            for _ in pool.map(decode, range(len(paths))):
                pass
        return images

    def loaded(self, limit: int | None = None) -> ImageSource:
        """The source in memory if its images fit into `limit` bytes, else itself.

        Loading decodes every file, so a damaged one is named now and not in the middle of a run.
        If the images do not fit, the files are only known to exist and not to be empty.
        """
        height, width = self.size
        limit = CACHE_BYTES if limit is None else limit
        if len(self) * self.channels * height * width > limit:
            return self
        images = self.fetch(torch.arange(len(self)))
        return MemorySource(images, self.labels, self.class_names, self.description)

    def _decoded(self, path: Path) -> Tensor:
        height, width = self.size
        try:
            with Image.open(path) as image:
                if image.mode.startswith(_WIDE_MODES):
                    raise DataError(
                        f"{path} has more than 8 bits per channel (mode {image.mode}); convert it"
                    )
                pixels = image.convert("RGB")
        except DataError:
            raise
        except FileNotFoundError as error:
            raise DataNotFoundError(f"{path} no longer exists") from error
        except Exception as error:  # OSError, SyntaxError, ValueError, DecompressionBombError, ...
            raise DataError(f"{path} cannot be decoded as an image: {error}") from error
        if pixels.size != (width, height):
            if not self._is_resized:
                raise DataError(
                    f"{path} is {pixels.height} x {pixels.width} pixels, the first image of "
                    f"{self.description} {height} x {width}; set data.image_size"
                )
            pixels = pixels.resize((width, height), Image.Resampling.BILINEAR)
        flat = torch.frombuffer(bytearray(pixels.tobytes()), dtype=torch.uint8)
        return flat.view(height, width, self.channels).permute(2, 0, 1)


def _native_size(path: Path) -> tuple[int, int]:
    try:
        with Image.open(path) as image:
            return image.height, image.width
    except Exception as error:
        raise DataError(f"{path} cannot be decoded as an image: {error}") from error


def _check_present(paths: Sequence[Path], description: str) -> None:
    """Raise an error that names the files which are missing or empty."""
    absent, empty = [], []
    for path in paths:
        try:
            length = path.stat().st_size
        except OSError:
            absent.append(path)
        else:
            if length == 0:
                empty.append(path)
    if absent:
        raise DataNotFoundError(f"{description}: {_named(absent)} missing")
    if empty:
        raise DataError(f"{description}: {_named(empty)} empty (0 bytes)")


def _named(paths: Sequence[Path]) -> str:
    names = ", ".join(str(path) for path in paths[:_MOST_NAMED])
    rest = len(paths) - _MOST_NAMED
    verb = "is" if len(paths) == 1 else "are"
    return f"{names}{f' and {rest} more' if rest > 0 else ''} {verb}"


Listing = list[tuple[Path, int]]


# --- One folder per class --------------------------------------------------------------------


def open_class_folders(data: Data, image_size: ImageSize | None = None) -> OpenedData:
    """``train/CLASS/IMAGE``, ``test/CLASS/IMAGE`` and, if there is one, ``val/CLASS/IMAGE``.

    The classes are the folders of train/ in alphabetical order. Files without the suffix of an
    image and names that begin with a dot are ignored.
    """
    path = _folder(data)
    for part in ("train", "test"):
        if not (path / part).is_dir():
            raise DataNotFoundError(f"{path} has no folder {part}/ of class folders")
    names = tuple(sorted(each.name for each in _visible(path / "train") if each.is_dir()))
    if not names:
        raise DataError(f"{path / 'train'} holds no class folders")
    train = _class_listing(path / "train", names)
    _check_every_class(train, names, path / "train")
    validation = _class_listing(path / "val", names) if (path / "val").is_dir() else []
    source = _source(train + validation, names, f"images of {path}", image_size)
    listed = _class_listing(path / "test", names)
    test = _source(listed, names, f"test images of {path}", image_size)
    return OpenedData(source.loaded(), len(validation), test.loaded)


def _class_listing(folder: Path, names: tuple[str, ...]) -> Listing:
    listing: Listing = []
    unknown = [each.name for each in _visible(folder) if each.is_dir() and each.name not in names]
    if unknown:
        raise DataError(
            f"{folder} has classes that train/ does not have: {', '.join(sorted(unknown)[:5])}"
        )
    for label, name in enumerate(names):
        if (folder / name).is_dir():
            images = [each for each in _visible(folder / name) if _is_image(each)]
            listing += [(image, label) for image in images]
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


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES


# --- Lists of files, as in VTAB-1k -----------------------------------------------------------

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
    path = _folder(data)
    for name in (_TRAIN, _VALIDATION, _TEST):
        if not (path / name).is_file():
            raise DataNotFoundError(f"{path} lacks {name} of the VTAB folder format")
    train, validation = _read_list(path, _TRAIN), _read_list(path, _VALIDATION)
    _check_disjoint(train, validation, path, _TRAIN, _VALIDATION)
    known = train + validation
    if (path / _BOTH).is_file() and sorted(_read_list(path, _BOTH)) != sorted(known):
        raise DataError(f"{path / _BOTH} is not {_TRAIN} and {_VALIDATION} together")
    listed = _read_list(path, _TEST)
    _check_disjoint(known, listed, path, f"{_TRAIN} or {_VALIDATION}", _TEST)
    # The test images count as well, because a thousand images may not show every class.
    names = _vtab_names(path, max(label for _, label in known + listed) + 1)
    source = _source(known, names, f"images of {path}", image_size)
    test = _source(listed, names, f"test images of {path}", image_size)
    return OpenedData(source.loaded(), len(validation), test.loaded)


def _read_list(path: Path, name: str) -> Listing:
    listing: Listing = []
    for number, line in enumerate((path / name).read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        where = f"{path / name}, line {number}"
        file, _, label = line.strip().rpartition(" ")
        if not file or not label.isdecimal():
            raise DataError(f"{where}: expected 'images/NAME LABEL', got {line!r}")
        relative = PurePosixPath(file.strip())
        if relative.is_absolute() or ".." in relative.parts:
            raise DataError(f"{where}: {file!r} is outside of the folder")
        listing.append((path / relative, int(label)))
    if not listing:
        raise DataError(f"{path / name} lists no images")
    if len({file for file, _ in listing}) != len(listing):
        raise DataError(f"{path / name} lists an image twice")
    return listing


def _check_disjoint(one: Listing, other: Listing, path: Path, *names: str) -> None:
    shared = sorted({str(file) for file, _ in one} & {str(file) for file, _ in other})
    if shared:
        raise DataError(
            f"{path}: {len(shared)} images are in {names[0]} and in {names[1]}: {shared[0]}, ..."
        )


def _vtab_names(path: Path, count: int) -> tuple[str, ...]:
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


def _folder(data: Data) -> Path:
    path = Path(data.path).expanduser()
    if not path.is_dir():
        raise DataNotFoundError(f"data.path: {path} is not a folder")
    return path


def _source(
    listing: Listing, names: tuple[str, ...], description: str, image_size: ImageSize | None
) -> FileSource:
    """The listed images, after checking that all files exist and every label has a name.

    No image is decoded yet, so mistakes in the test set are found before training although its
    images stay unread.
    """
    paths, labels = [path for path, _ in listing], [label for _, label in listing]
    return FileSource(
        paths,
        torch.tensor(labels, dtype=torch.int64),
        names,
        description,
        image_size=image_size,
    )
