"""Small data sets in the published layouts, written for a test."""

from __future__ import annotations

import pickle
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image

CIFAR100_FOLDER = "cifar-100-python"
CIFAR10_FOLDER = "cifar-10-batches-py"


def write_cifar100(
    parent: Path, *, train: int = 60, test: int = 20, protocol: int = 2, **changes: object
) -> Path:
    """Five fine classes in two groups; `changes` replace entries of the file train."""
    folder = parent / CIFAR100_FOLDER
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for name, count in (("train", train), ("test", test)):
        fine = [index % 5 for index in range(count)]
        record = {
            b"data": rng.integers(0, 256, (count, 3072), dtype=np.uint8),
            b"fine_labels": fine,
            b"coarse_labels": [label // 3 for label in fine],
            b"filenames": [f"{name}_{index}.png".encode() for index in range(count)],
            b"batch_label": name.encode(),
        }
        if name == "train":
            record |= {key.encode(): value for key, value in changes.items()}
        (folder / name).write_bytes(pickle.dumps(record, protocol=protocol))
    names = {
        b"fine_label_names": [b"apple", b"bear", b"cup", b"dog", b"eel"],
        b"coarse_label_names": [b"first", b"second"],
    }
    (folder / "meta").write_bytes(pickle.dumps(names, protocol=protocol))
    return folder


def write_cifar10(parent: Path) -> Path:
    folder = parent / CIFAR10_FOLDER
    folder.mkdir(parents=True)
    names = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
    for number, name in enumerate(names):
        data = np.full((4, 3072), number, dtype=np.uint8)
        record = {b"data": data, b"labels": [number, 0, 1, 2], b"batch_label": name.encode()}
        (folder / name).write_bytes(pickle.dumps(record, protocol=2))
    meta = {b"label_names": [f"class {label}".encode() for label in range(10)]}
    (folder / "batches.meta").write_bytes(pickle.dumps(meta, protocol=2))
    return folder


def pack(folder: Path, archive: Path) -> Path:
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(folder, folder.name)
    return archive


def write_image(path: Path, value: int, size: tuple[int, int] = (6, 6)) -> Path:
    """A picture of one colour; `size` is (width, height)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (value, 0, 255 - value)).save(path)
    return path


def write_class_folders(root: Path, *, parts: tuple[str, ...] = ("train", "test")) -> Path:
    """Four images of each of two classes in every part, all different."""
    value = 0
    for part in parts:
        for name in ("cat", "dog"):
            for number in range(4):
                write_image(root / part / name / f"{number}.png", value)
                value += 1
    return root


def write_vtab(root: Path, *, train: int = 8, validation: int = 4, test: int = 6) -> Path:
    """Image i has the colour i and the class i modulo 2."""
    lists: dict[str, list[str]] = {"train800": [], "val200": [], "test": []}
    number = 0
    for name, count in zip(lists, (train, validation, test), strict=True):
        for _ in range(count):
            write_image(root / "images" / f"{number}.png", number)
            lists[name].append(f"images/{number}.png {number % 2}")
            number += 1
    lists["train800val200"] = lists["train800"] + lists["val200"]
    for name, lines in lists.items():
        (root / f"{name}.txt").write_text("\n".join(lines) + "\n")
    return root
