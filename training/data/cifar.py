"""CIFAR-10 and CIFAR-100 in the layout of the official archives, packed or unpacked."""

from __future__ import annotations

import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from training.data.restricted_pickle import read_pickle
from training.data.sources import ImageSource, MemorySource, OpenedData
from training.errors import DataError, DataNotFoundError
from training.parsing import ImageSize
from training.randomness import generator
from wefpe_core.errors import import_optional

if TYPE_CHECKING:
    from training.config.schema import Data, Labels

_PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class CifarArchive:
    """What is published about an archive."""

    title: str
    url: str
    # The authors' page has the MD5 sums eb9058c3a382ffc7106e4002c42a8d85 (CIFAR-100) and
    # c58f30108f718f92721af3b95e74349a (CIFAR-10) of the same files.
    sha256: str
    folder: str
    train_files: tuple[str, ...]
    test_file: str
    names_file: str
    label_keys: dict[Labels, tuple[str, str]]  # keys of the labels and of their names

    @property
    def archive_name(self) -> str:
        return self.url.rpartition("/")[2]


CIFAR = {
    "cifar100": CifarArchive(
        title="CIFAR-100",
        url="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
        sha256="85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
        folder="cifar-100-python",
        train_files=("train",),
        test_file="test",
        names_file="meta",
        label_keys={
            "fine": ("fine_labels", "fine_label_names"),
            "coarse": ("coarse_labels", "coarse_label_names"),
        },
    ),
    "cifar10": CifarArchive(
        title="CIFAR-10",
        url="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        sha256="6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
        folder="cifar-10-batches-py",
        train_files=tuple(f"data_batch_{number}" for number in range(1, 6)),
        test_file="test_batch",
        names_file="batches.meta",
        label_keys={"fine": ("labels", "label_names")},
    ),
}


def open_cifar(data: Data, image_size: ImageSize | None = None) -> OpenedData:
    """Open CIFAR-10 or CIFAR-100, whose images always have 32 x 32 pixels.

    ``data.path`` is the unpacked folder, a folder that holds it or the .tar.gz, or the .tar.gz
    itself; "" is where downloads are kept. An archive that is not there is fetched if
    ``data.download`` allows it, and must then have the published checksum. A file given by its
    path is judged by what is in it.
    """
    return _open(CIFAR[data.name], data)


def open_rolled_cifar(data: Data, image_size: ImageSize | None = None) -> OpenedData:
    """Open CIFAR-100 with every image rolled cyclically, down and to the right.

    What leaves an image on one side comes in on the other, so that no place in it is special. The
    amounts are drawn once and belong to the image: they are the same in every epoch and run.
    """
    opened = _open(CIFAR["cifar100"], data)
    return OpenedData(
        _rolled(opened.source, "train"), 0, lambda: _rolled(opened.open_test(), "test")
    )


def _rolled(source: ImageSource, part: str) -> MemorySource:
    height, width = source.size
    drawn = generator(0, "cifar100_rolled", part)
    down = torch.randint(height, (len(source), 1), generator=drawn)
    right = torch.randint(width, (len(source), 1), generator=drawn)
    rows = (torch.arange(height) - down) % height
    columns = (torch.arange(width) - right) % width
    places = (rows[:, :, None] * width + columns[:, None, :]).flatten(1)[:, None]
    images = source.fetch(torch.arange(len(source)))
    moved = [
        some.flatten(2).gather(2, where.expand(-1, some.shape[1], -1)).view_as(some)
        for some, where in zip(images.split(1024), places.split(1024), strict=True)
    ]
    description = f"{source.description}, rolled"
    return MemorySource(torch.cat(moved), source.labels, source.class_names, description)


def _open(archive: CifarArchive, data: Data) -> OpenedData:
    labels = data.labels
    path = Path(data.path).expanduser() if data.path else None
    place = _find(archive, path)
    if place is None:
        if not data.download:
            raise DataNotFoundError(
                f"there is no {archive.title} at {path or _download_folder()}: set data.path to "
                f"the folder {archive.folder} or to {archive.archive_name}, or set "
                f"data.download=true to fetch it from {archive.url}"
            )
        place = _downloaded(archive, path)
    files = _read(place, archive, (*archive.train_files, archive.names_file))
    names = _class_names(files[archive.names_file], archive, labels, place)
    train = _source(
        [(file, files[file]) for file in archive.train_files], archive, labels, names, place
    )

    def open_test() -> MemorySource:
        test = _read(place, archive, (archive.test_file,))
        return _source(list(test.items()), archive, labels, names, place)

    return OpenedData(train, 0, open_test)


def _find(archive: CifarArchive, path: Path | None) -> Path | None:
    """The unpacked folder or the packed file; None if there is neither."""
    root = path or _download_folder()
    if root.is_file():
        return root
    candidates = (root, root / archive.folder, root / archive.archive_name)
    for each in candidates:
        if each.is_file() or (each / archive.names_file).exists():
            return each
    # A folder of that name without its list of classes is incomplete rather than absent.
    return root / archive.folder if (root / archive.folder).is_dir() else None


def _read(place: Path, archive: CifarArchive, files: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """The dictionaries in `files`, after checking that every file of the archive is there."""
    expected = {*archive.train_files, archive.test_file, archive.names_file}
    if place.is_dir():
        missing = sorted(file for file in expected if not (place / file).is_file())
        if missing:
            raise DataNotFoundError(f"{place} lacks {', '.join(missing)} of {archive.title}")
        return {file: read_pickle((place / file).read_bytes(), str(place / file)) for file in files}
    contents: dict[str, bytes] = {}
    present = set()
    try:
        with tarfile.open(place) as packed:  # read in order: going back would unpack it again
            for member in packed:
                folder, _, file = member.name.removeprefix("./").rpartition("/")
                if folder != archive.folder or not member.isfile():
                    continue
                present.add(file)
                content = packed.extractfile(member)
                if file in files and content is not None:
                    contents[file] = content.read()
    except Exception as error:  # TarError, OSError, EOFError, zlib.error, ...
        reason = str(error).partition("\n")[0].removesuffix(":")
        raise DataError(
            f"{place} is not a readable archive of {archive.title} (truncated or damaged): {reason}"
        ) from error
    if expected - present:
        missing = sorted(expected - present)
        raise DataNotFoundError(
            f"{place} lacks {', '.join(f'{archive.folder}/{file}' for file in missing)}"
        )
    return {file: read_pickle(contents[file], f"{place}:{file}") for file in files}


def _class_names(
    record: dict[str, Any], archive: CifarArchive, labels: Labels, place: Path
) -> tuple[str, ...]:
    key = archive.label_keys[labels][1]
    names = record.get(key)
    if not isinstance(names, list) or not all(isinstance(name, (bytes, str)) for name in names):
        raise DataError(f"{archive.names_file} of {place} has no list {key}: not {archive.title}")
    return tuple(name.decode("latin1") if isinstance(name, bytes) else name for name in names)


def _source(
    files: list[tuple[str, dict[str, Any]]],
    archive: CifarArchive,
    labels: Labels,
    names: tuple[str, ...],
    place: Path,
) -> MemorySource:
    key = archive.label_keys[labels][0]
    images, numbers = [], []
    for file, record in files:
        where = f"{file} of {place}"
        pixels = record.get("data")
        if not isinstance(pixels, Tensor) or pixels.ndim != 2 or pixels.shape[1] != _PIXELS:
            shape = tuple(pixels.shape) if isinstance(pixels, Tensor) else type(pixels).__name__
            raise DataError(f"{where}: data must be rows of {_PIXELS} bytes, got {shape}")
        of_file = record.get(key)
        if not isinstance(of_file, list) or not all(type(each) is int for each in of_file):
            raise DataError(f"{where} has no list {key}: not {archive.title}")
        if len(of_file) != len(pixels):
            raise DataError(f"{where}: {len(pixels)} images but {len(of_file)} {key}")
        images.append(pixels.view(-1, 3, 32, 32))
        numbers += of_file
    description = f"{archive.title} ({', '.join(file for file, _ in files)}) in {place}"
    try:
        labels_tensor = torch.tensor(numbers, dtype=torch.int64)
    except (OverflowError, RuntimeError) as error:
        raise DataError(f"{description}: {key}: {error}") from error
    pixels = images[0] if len(images) == 1 else torch.cat(images)
    return MemorySource(pixels, labels_tensor, names, description)


def _download_folder() -> Path:
    return Path(_pooch().os_cache("wefpe"))


def _downloaded(archive: CifarArchive, path: Path | None) -> Path:
    folder, file_name = path or _download_folder(), archive.archive_name
    if folder.suffix == ".gz":
        folder, file_name = folder.parent, folder.name
    try:
        file = _pooch().retrieve(
            archive.url,
            known_hash=f"sha256:{archive.sha256}",
            fname=file_name,
            path=folder,
            progressbar=False,
        )
    except Exception as error:  # offline, refused, full disk, another checksum: many kinds
        raise DataError(
            f"{archive.url} cannot be fetched: {type(error).__name__}: {error}"
        ) from error
    return Path(file)


def _pooch() -> Any:
    return import_optional("pooch", purpose="downloading a data set", extra="training")
