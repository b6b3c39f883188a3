"""Images in tar files, as WebDataset packs them: few large files instead of a million small ones.

The library of that name reads shards from end to end and shuffles within a buffer, each worker
its own. Here the headers are read once, and after that an image is a stretch of bytes in a file.
So shards have the plan of batches that files have: its order follows from the seed alone, each
process has its part, and a run goes on at the batch where it stopped. In return the shards must be
files that can be read anywhere. Pipes and addresses are not served.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from training.data.encoded import AbstractEncodedSource, Reading
from training.data.folders import SUFFIXES, folder_of, is_label, names_of_classes
from training.data.sources import OpenedData
from training.errors import DataError, DataNotFoundError
from training.parsing import ImageSize

if TYPE_CHECKING:
    from training.config.schema import Data

_LABEL = (".cls", ".json")  # the file of a sample that has its label
_LONGEST_LABEL = 2**20  # bytes; a larger one is no label, and is not read


@dataclass(frozen=True)
class Shard:
    """Where the images of one tar file are, and their labels."""

    file: Path
    names: tuple[str, ...]
    places: NDArray[np.int64]  # (n, 2) int64: first byte and number of bytes
    labels: NDArray[np.int64]  # (n,) int64


class ShardSource(AbstractEncodedSource):
    """Images in tar files, each read as a stretch of bytes."""

    def __init__(
        self, shards: list[Shard], class_names: tuple[str, ...], description: str, reading: Reading
    ) -> None:
        counts = [len(shard.labels) for shard in shards]
        self._files = [shard.file for shard in shards]
        self._starts = np.cumsum([0, *counts])
        self._places = np.concatenate([shard.places for shard in shards])
        self._names = ["\n".join(shard.names) for shard in shards]  # in one piece: see FileSource
        labels = torch.from_numpy(np.concatenate([shard.labels for shard in shards]))
        super().__init__(labels, class_names, description, reading)

    def __len__(self) -> int:
        return len(self._places)

    def open(self, index: int) -> IO[bytes]:
        first, length = self._places[index]
        with self._files[self._shard_of(index)].open("rb") as shard:
            shard.seek(first)
            content = shard.read(length)
        if len(content) < length:
            raise DataError(f"{self.name(index)} is cut off: the shard became shorter")
        return io.BytesIO(content)

    def name(self, index: int) -> str:
        shard = self._shard_of(index)
        member = self._names[shard].split("\n")[index - int(self._starts[shard])]
        return f"{member} in {self._files[shard]}"

    def _shard_of(self, index: int) -> int:
        return int(np.searchsorted(self._starts, index, side="right")) - 1


def open_shards(data: Data, image_size: ImageSize | None = None) -> OpenedData:
    """``*train*.tar`` beside ``*test*.tar``, ``*val*.tar`` or both; numbered or not, in a folder.

    A sample is an image and its label under one name: ``KEY.jpg`` with ``KEY.cls``, a number as
    text, or with ``KEY.json``, whose "label" is a number. Without test shards those of val are the
    test set. ``classes.json`` may hold a list of the names of the classes.
    """
    path = folder_of(data)
    files = {part: sorted(path.glob(f"*{part}*.tar")) for part in ("train", "test", "val")}
    if not files["train"]:
        raise DataNotFoundError(f"{path} has no shards *train*.tar")
    if not files["test"]:
        files["test"], files["val"] = files["val"], []
    if not files["test"]:
        raise DataNotFoundError(f"{path} has neither shards *test*.tar nor *val*.tar")
    names = [file for part in files.values() for file in part]
    if len({*names}) < len(names):
        raise DataError(f"{path}: the name of a shard must say one of train, test and val")
    reading = Reading.of(data, image_size)
    with ThreadPoolExecutor(reading.workers) as pool:
        parts = {part: list(pool.map(read_shard, found)) for part, found in files.items()}
    highest = max(int(shard.labels.max()) for part in parts.values() for shard in part)
    classes = names_of_classes(path, 1 + highest)
    known = parts["train"] + parts["val"]
    source = ShardSource(known, classes, f"images of {path}", reading)
    test = ShardSource(parts["test"], classes, f"test images of {path}", reading)
    validation = sum(len(shard.labels) for shard in parts["val"])
    return OpenedData(source.loaded(), validation, test.loaded)


def read_shard(file: Path) -> Shard:
    """The images and labels of a tar file. The images are skipped, the labels are read."""
    images: dict[str, tuple[str, int, int]] = {}
    labels: dict[str, int] = {}
    length = file.stat().st_size
    try:
        with tarfile.open(file, "r:") as tar:
            for member in tar:
                if not member.isfile():
                    continue
                if member.offset_data + member.size > length:
                    raise DataError(f"{member.name} in {file} is cut off")
                key, suffix = _key(member.name)
                if suffix in SUFFIXES:
                    if key in images:
                        raise DataError(f"{file} has two images {key}")
                    images[key] = (member.name, member.offset_data, member.size)
                elif suffix in _LABEL and member.size <= _LONGEST_LABEL:
                    content = tar.extractfile(member)
                    assert content is not None  # it is a file
                    for label in _label(content.read(), suffix, f"{member.name} in {file}"):
                        labels[key] = label
                tar.members = []  # type: ignore[attr-defined]  # else every header is kept
    except tarfile.TarError as error:
        raise DataError(f"{file} cannot be read as a tar file: {error}") from error
    lonely = next((key for key in images if key not in labels), None)
    if lonely is not None:
        raise DataError(f"{images[lonely][0]} in {file} has no label: {lonely}.cls or .json")
    if not images:
        raise DataError(f"{file} holds no images")
    return Shard(
        file,
        tuple(name for name, _, _ in images.values()),
        np.array([place for _, *place in images.values()], dtype=np.int64),
        np.array([labels[key] for key in images], dtype=np.int64),
    )


def _key(name: str) -> tuple[str, str]:
    """The name of a sample and what follows its first dot, as WebDataset divides them."""
    folder, slash, base = name.rpartition("/")
    stem, dot, suffix = base.partition(".")
    return folder + slash + stem, (dot + suffix).lower()


def _label(content: bytes, suffix: str, where: str) -> Iterator[int]:
    """The label in a file, if it has one."""
    try:
        text = content.decode("utf-8")
        label = json.loads(text).get("label") if suffix == ".json" else text.strip()
    except (ValueError, AttributeError) as error:
        raise DataError(f"{where} is not readable: {error}") from error
    if label is None:  # a description without one
        return
    if isinstance(label, bool) or not is_label(str(label)):
        raise DataError(f"{where}: a label is a number from 0 on, got {label!r}")
    yield int(label)
