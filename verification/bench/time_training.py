"""``wefpe bench training``: the engine beside a plain loop over timm's model, and the data."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from rich.console import Console
from torch import nn

from training.augmentation import Augmenter, Normalisation
from training.config import Experiment, load_config
from training.data import BatchPlan, MemorySource, TrainingFeed
from training.engine.run import build_accelerator
from training.engine.run_folder import RunFolder
from training.engine.trainer import Trainer
from training.models.building import build_model
from training.models.timm_import import timm_vit
from verification.bench import benchmark
from verification.bench.benchmark import Quantity

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
    """Random bytes in the shape of CIFAR, since the time does not depend on what images show."""
    drawn = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (images, 3, 32, 32), dtype=torch.uint8, generator=drawn)
    labels = torch.randint(CLASSES, (images,), generator=drawn)
    names = tuple(map(str, range(CLASSES)))
    source = MemorySource(pixels, labels, names, description=f"{images} random images")
    normalise = Normalisation((0.5,), (0.25,), size=(32, 32), channels=3)
    augmenter = Augmenter(experiment.augmentation, normalise, classes=CLASSES)
    plan = BatchPlan(len(source), experiment.training.batch_size, experiment.seed)
    return TrainingFeed(source, plan, augmenter)


def engine_epoch(experiment: Experiment, feed: TrainingFeed) -> float:
    """Seconds per step of the engine, without what it does at the end of an epoch."""
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
    """Seconds per step of timm's model in a plain loop."""
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
    """Seconds to prepare a batch that nothing uses."""
    began = time.perf_counter()
    for number in range(len(feed)):
        feed.batch(0, number)
    return (time.perf_counter() - began) / len(feed)


def run(
    *, batch: int = 64, steps: int = 30, repeat: int = 3, threads: int = 1, check: bool = False
) -> int:
    """Time the three works in turns, print the figures, and judge them if asked to."""
    console, experiment = Console(), experiment_of(batch, threads)
    feed = feed_of(experiment, batch * steps)
    works: dict[str, Callable[[Experiment, TrainingFeed], float]] = {
        "engine": engine_epoch,
        "data": data_epoch,
    }
    without_timm = benchmark.missing("timm")
    if not without_timm:
        works["timm"] = timm_epoch
    samples: dict[str, list[float]] = {name: [] for name in works}
    with Console(stderr=True).status("measuring"):
        for _ in range(repeat):
            for name, work in works.items():
                samples[name].append(work(experiment, feed))
    best = {name: min(found) for name, found in samples.items()}
    where = f"{batch} images of 32 x 32, vit_micro, {threads} thread(s)"
    console.print(f"a step of the engine: {1e3 * best['engine']:.2f} ms ({where})")
    console.print(f"data and augmentation alone: {1e3 * best['data']:.2f} ms")
    share = 100.0 * best["data"] / best["engine"]
    figures = [Quantity("data and augmentation, % of a step", share, "%", at_most=AT_MOST)]
    if without_timm:
        console.print(f"timm's model in a plain loop: {without_timm}")
    else:
        console.print(f"timm's model in a plain loop: {1e3 * best['timm']:.2f} ms")
        ratio = best["timm"] / best["engine"]
        figures.append(Quantity("timm / engine", ratio, "x", at_least=AT_LEAST))
    console.print(benchmark.quantity_table("Beside each other", figures))
    return benchmark.exit_code(check, figures)
