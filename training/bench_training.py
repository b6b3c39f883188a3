"""Time the training engine beside a plain loop over timm's model, and the share of the data.

Both train a ViT of the same shape on the same augmented batches, one epoch at a time and in turns;
the best epoch of each counts, by the clock on the wall. Beside it stands what preparing the batches
takes alone.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

import torch
import torch.nn.functional as F
from rich.console import Console
from torch import nn

from training.augmentation import Augmentation, Normalisation
from training.config import Experiment, load_config
from training.data import BatchPlan, MemorySource, TrainingFeed
from training.engine.run import build_accelerator
from training.engine.run_folder import RunFolder
from training.engine.trainer import Trainer
from training.models.building import build_model
from training.models.timm_import import timm_vit

CLASSES = 100
AT_LEAST = 1.0  # the engine's speed over that of timm's model in a plain loop
AT_MOST = 15.0  # the share of the data in a step, in percent

# The from-scratch recipe of the paper at the size of CIFAR, with the encoding timm has.
OVERRIDES = (
    "position_encoding.name=learned",
    "model.class_token=true",
    "model.pooling=token",
    "model.patch_norm=false",
    "data.labels=fine",
    "training.epochs=1",
    "augmentation.cutout=8",
    "augmentation.mixup_alpha=0.3",
    "augmentation.mix_probability=0.6",
    "logging.every_steps=1000000",
)


def experiment_of(batch: int, threads: int) -> Experiment:
    sizes = (f"training.batch_size={batch}", f"training.threads={threads}")
    return load_config("cifar100_cpu", [*OVERRIDES, *sizes])


def feed_of(experiment: Experiment, images: int) -> TrainingFeed:
    """Random bytes in the shape of CIFAR: what they show costs nothing."""
    drawn = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (images, 3, 32, 32), dtype=torch.uint8, generator=drawn)
    labels = torch.randint(CLASSES, (images,), generator=drawn)
    names = tuple(map(str, range(CLASSES)))
    source = MemorySource(pixels, labels, names, description=f"{images} random images")
    normalise = Normalisation((0.5,), (0.25,), size=(32, 32), channels=3)
    augmentation = Augmentation(experiment.augmentation, normalise, classes=CLASSES)
    plan = BatchPlan(len(source), experiment.training.batch_size, experiment.seed)
    return TrainingFeed(source, plan, augmentation)


def engine_epoch(experiment: Experiment, feed: TrainingFeed) -> float:
    """Seconds a step of the engine takes, with everything but the end of the epoch."""
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            experiment,
            build_model(experiment, CLASSES, 3),
            feed,
            None,
            RunFolder(Path(folder)),
            epochs=1,
            accelerator=build_accelerator(experiment),
        )
        return trainer.fit().seconds / len(feed)


def timm_epoch(experiment: Experiment, feed: TrainingFeed) -> float:
    """Seconds a step of timm's model takes in the loop anybody would write."""
    model = timm_vit("micro", CLASSES)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    clip_norm = experiment.training.clip_norm
    began = time.perf_counter()
    for batch in feed.epoch(0):
        loss = F.cross_entropy(model(batch.images), batch.targets, label_smoothing=0.08)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
        optimizer.step()
        optimizer.zero_grad()
    return (time.perf_counter() - began) / len(feed)


def data_epoch(experiment: Experiment, feed: TrainingFeed) -> float:
    """Seconds a batch takes to prepare, with nobody using it."""
    began = time.perf_counter()
    for number in range(len(feed)):
        feed.batch(0, number)
    return (time.perf_counter() - began) / len(feed)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    console, experiment = Console(), experiment_of(options.batch, options.threads)
    feed = feed_of(experiment, options.batch * options.steps)
    works: dict[str, Callable[[Experiment, TrainingFeed], float]] = {
        "engine": engine_epoch,
        "data": data_epoch,
    }
    if find_spec("timm"):
        works["timm"] = timm_epoch
    samples: dict[str, list[float]] = {name: [] for name in works}
    with Console(stderr=True).status("measuring"):
        for _ in range(options.repeat):
            for name, work in works.items():
                samples[name].append(work(experiment, feed))
    best = {name: min(found) for name, found in samples.items()}
    where = f"{options.batch} images of 32 x 32, vit_micro, {options.threads} thread(s)"
    console.print(f"a step of the engine: {1e3 * best['engine']:.2f} ms ({where})")
    share = 100.0 * best["data"] / best["engine"]
    is_kept = [share <= AT_MOST]
    console.print(
        f"data and augmentation alone: {1e3 * best['data']:.2f} ms, {share:.1f} % of a step "
        f"(promised <= {AT_MOST:g} %)"
    )
    if "timm" in best:
        ratio = best["timm"] / best["engine"]
        is_kept.append(ratio >= AT_LEAST)
        console.print(
            f"timm's model in a plain loop: {1e3 * best['timm']:.2f} ms; the engine is "
            f"{ratio:.2f} x as fast (promised >= {AT_LEAST:g})"
        )
    else:
        console.print("timm's model in a plain loop: skipped, not installed (pip install timm)")
    return 1 if options.check and not all(is_kept) else 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="wefpe bench-training", description=__doc__)
    add = parser.add_argument
    add("--batch", type=int, default=64, help="images in a step (default: 64)")
    add("--steps", type=int, default=30, help="steps in an epoch (default: 30)")
    add("--repeat", type=int, default=3, help="epochs of each (default: 3)")
    add("--threads", type=int, default=1, help="threads of torch (default: 1)")
    add("--check", action="store_true", help="exit with 1 if a promise is not kept")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
