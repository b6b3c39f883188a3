"""``wefpe bench data``: reading photographs, beside timm's loader on the same files."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from rich.console import Console
from rich.table import Table

from training.augmentation import Augmenter, Normalisation
from training.config.schema import Augmentation, RandomResizedCrop
from training.data import BatchPlan, TrainingFeed
from training.data.encoded import Reading
from training.data.folders import open_class_folder
from training.models.timm_import import import_timm
from verification.bench import benchmark
from verification.bench.benchmark import Quantity

CLASSES = 10
HEIGHT, WIDTH = 375, 500  # of a usual photograph of ImageNet
SIDE = 224
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
AT_LEAST = 0.9  # images per second over timm's
LISTED = 100_000
BYTES_PER_FILE = 1000  # of memory, at most, for a listed file


class Sample(NamedTuple):
    """One pass over the images: by the clock on the wall, and of all processors together."""

    images_per_second: float
    processor_ms: float  # for an image


def write_photographs(folder: Path, count: int) -> None:
    """JPEGs of 500 x 375 in class folders: smooth colours with grain, 85 kB each."""
    for label in range(CLASSES):
        (folder / f"class{label}").mkdir(parents=True, exist_ok=True)
    for number in range(count):
        drawn = np.random.default_rng(number)
        coarse = Image.fromarray(drawn.integers(0, 256, (12, 16, 3), dtype=np.uint8))
        smooth = np.asarray(coarse.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC))
        grain = drawn.normal(0.0, 12.0, (HEIGHT, WIDTH, 1))
        pixels = (smooth + grain).clip(0, 255).astype(np.uint8)
        path = folder / f"class{number % CLASSES}" / f"{number:06d}.jpg"
        Image.fromarray(pixels).save(path, quality=90)


def our_pass(folder: Path, batch: int, workers: int) -> int:
    """Read all images once, as `wefpe train` does; returns how many."""
    source = open_class_folder(folder, Reading(SIDE, workers=workers))
    options = Augmentation(crop_padding=0, flip=0.5, random_resized_crop=RandomResizedCrop())
    normalise = Normalisation(MEAN, STD, size=(SIDE, SIDE), channels=3)
    augmenter = Augmenter(options, normalise, classes=CLASSES)
    feed = TrainingFeed(source, BatchPlan(len(source), batch, 0), augmenter)
    return sum(len(each.labels) for each in feed.epoch(0))


def timm_pass(folder: Path, batch: int, workers: int) -> int:
    """Read all images once with timm's dataset, transforms and loader of worker processes."""
    import_timm()
    from timm.data import ImageDataset, create_loader  # type: ignore[import-not-found, unused-ignore]

    loader = create_loader(
        ImageDataset(str(folder)),
        input_size=(3, SIDE, SIDE),
        batch_size=batch,
        is_training=True,
        use_prefetcher=False,  # it is for GPUs
        scale=(0.08, 1.0),
        ratio=(3 / 4, 4 / 3),
        hflip=0.5,
        color_jitter=None,
        interpolation="bilinear",
        mean=MEAN,
        std=STD,
        num_workers=workers,
        pin_memory=False,
        persistent_workers=False,
        device=torch.device("cpu"),
    )
    return sum(len(labels) for _, labels in loader)


def measured(work: Callable[[Path, int, int], int], *arguments: int, folder: Path) -> Sample:
    def processor_seconds() -> float:
        every = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        return sum(sum(resource.getrusage(who)[:2]) for who in every)

    began, used = time.perf_counter(), processor_seconds()
    images = work(folder, *arguments)
    seconds = time.perf_counter() - began
    return Sample(images / seconds, 1e3 * (processor_seconds() - used) / images)


_LISTING = """
import sys
from pathlib import Path
from training.data.encoded import Reading
from training.data.folders import open_class_folder

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

before = resident()
source = open_class_folder(Path(sys.argv[1]), Reading(224))
print((resident() - before) / len(source))
"""


def bytes_per_listed_file(count: int = LISTED) -> float:
    """Memory that a process holds for each of so many files, after listing them."""
    with tempfile.TemporaryDirectory() as folder:
        write_photographs(Path(folder), CLASSES)
        for number in range(CLASSES, count):
            name = f"class{number % CLASSES}"
            first = Path(folder) / name / f"{number % CLASSES:06d}.jpg"
            os.link(first, Path(folder) / name / f"{number:06d}.jpg")
        command = [sys.executable, "-c", _LISTING, folder]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout)


def run(
    *,
    images: int = 2000,
    folder: Path | None = None,
    batch: int = 64,
    workers: tuple[int, ...] = (1, 2),
    repeat: int = 2,
    check: bool = False,
) -> int:
    """Read the photographs by turns, print the figures, and judge them if asked to."""
    console = Console()
    torch.set_num_threads(1)
    without_timm = benchmark.missing("timm")
    works = {"wefpe": our_pass} | ({} if without_timm else {"timm": timm_pass})
    found: dict[tuple[str, int], list[Sample]] = {}
    with ExitStack() as stack, Console(stderr=True).status("measuring"):
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if not (folder / f"class{(images - 1) % CLASSES}" / f"{images - 1:06d}.jpg").exists():
            write_photographs(folder, images)
        for _ in range(repeat):
            for count in workers:
                for name, work in works.items():
                    sample = measured(work, batch, count, folder=folder)
                    found.setdefault((name, count), []).append(sample)
        listed = bytes_per_listed_file()
    table = Table(title=f"{images:,} JPEGs of {WIDTH} x {HEIGHT}, random crops of {SIDE}, flips")
    for column in ("loader", "workers", "images/s", "processor ms per image"):
        table.add_column(column)
    best = {key: max(samples) for key, samples in found.items()}
    cost = {key: min(each.processor_ms for each in samples) for key, samples in found.items()}
    for (name, count), sample in best.items():
        each = f"{cost[name, count]:.2f}"
        table.add_row(name, str(count), f"{sample.images_per_second:.0f}", each)
    console.print(table)
    figures = [Quantity(f"bytes for each of {LISTED:,} files", listed, "B", at_most=BYTES_PER_FILE)]
    if without_timm:
        console.print(f"timm's loader: {without_timm}")
    else:
        for count in workers:
            ratio = best["wefpe", count].images_per_second / best["timm", count].images_per_second
            name = f"wefpe / timm, {count} worker(s)"
            figures.append(Quantity(name, ratio, "x", at_least=AT_LEAST))
            # It depends less on what else the machine does, and leaves waiting out.
            processor = cost["wefpe", count] / cost["timm", count]
            figures.append(Quantity(f"processor time of {name}", processor, "x"))
    console.print(benchmark.quantity_table("Beside each other", figures))
    return benchmark.exit_code(check, figures)
