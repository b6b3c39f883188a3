"""``wefpe bench models``: training steps with each encoding, and beside timm's model."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from torch import Tensor, nn

from training.models import VIT_SIZES, VisionTransformer, build_vit
from training.models.timm_import import timm_vit
from verification.bench import benchmark
from verification.bench.benchmark import Quantity, Work
from verification.bench.count_models import (
    DeviceCounter,
    EncodingCounts,
    count_encoding,
    count_table,
    counts_of,
    device_table,
    encoding_step,
    model_step,
)
from verification.bench.count_work import ModelWork, work_of
from wefpe_core import InputError
from wefpe_core.reporting import cores_and_load, describe_versions

SEED = 20250826
NUM_CLASSES = 1000
PROMISED = ("tiny", 64)  # the size and the batch for which shares are promised
ENCODING_RUNS = 5  # runs of the encoding alone for one sample, since one takes milliseconds


@dataclass(frozen=True)
class ModelEntry:
    """One row: a model of ours with an encoding, or timm's with its own."""

    name: str
    encoding: str | None  # None: the model of timm
    options: dict[str, Any] = field(default_factory=dict)
    at_most: float | None = None  # promised share of the encoding in the step, in percent


TIMM = "timm: learned"
ENTRIES = (
    ModelEntry("none", "none"),
    ModelEntry("learned", "learned"),
    ModelEntry(TIMM, None),
    ModelEntry("sincos2d", "sincos2d"),
    ModelEntry("rope1d", "rope1d"),
    ModelEntry("rope_axial", "rope_axial"),
    ModelEntry("rope_mixed", "rope_mixed"),
    ModelEntry("fope", "fope"),
    ModelEntry("weierstrass", "weierstrass", at_most=2.0),
    ModelEntry("weierstrass, general lattice", "weierstrass", {"lattice": "general"}, at_most=2.0),
    ModelEntry("weierstrass, authors' sum", "weierstrass", {"fidelity": "authors"}),
    ModelEntry("weierstrass_fourier", "weierstrass_fourier"),
    ModelEntry("weierstrass_hybrid", "weierstrass_hybrid", {"table": "fresh"}),
    ModelEntry("weierstrass_relative", "weierstrass_relative"),
    ModelEntry("weierstrass_green", "weierstrass_green"),
    ModelEntry("weierstrass_heat", "weierstrass_heat"),
    ModelEntry("relative_table", "relative_table"),
    ModelEntry("alibi2d", "alibi2d"),
    ModelEntry("gaussian", "gaussian"),
    ModelEntry("lookhere", "lookhere"),
    ModelEntry("liere", "liere"),
    ModelEntry("combined", "combined"),
)
# (slower, faster, promised quotient of their steps)
COMPARISONS = ((TIMM, "learned", 1.0),)


@dataclass
class StepTiming:
    """The samples of one entry, in seconds."""

    entry: ModelEntry
    step: list[float] = field(default_factory=list)
    encoding: list[float] = field(default_factory=list)
    problem: str | None = None  # why there are none

    @property
    def percent(self) -> float | None:
        """The share of the encoding in the step."""
        return 100.0 * min(self.encoding) / min(self.step) if self.encoding else None

    @property
    def is_kept(self) -> bool | None:
        return benchmark.is_within(self.percent, self.entry.at_most, problem=self.problem)

    def as_json(self) -> dict[str, Any]:
        known = {"name": self.entry.name, "step": self.step, "encoding": self.encoding}
        derived = {"percent": self.percent, "problem": self.problem, "is_kept": self.is_kept}
        return known | derived


# --- What is timed -------------------------------------------------------------------------


def model_of(entry: ModelEntry, size: str, device: str) -> nn.Module:
    torch.manual_seed(SEED)
    if entry.encoding is not None:
        model: nn.Module = build_vit(
            size, encoding=entry.encoding, encoding_options=entry.options, num_classes=NUM_CLASSES
        )
    else:
        model = timm_vit(size, NUM_CLASSES)
    return model.to(device).train()


def training_step(model: nn.Module, images: Tensor, labels: Tensor) -> Work:
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        F.cross_entropy(model(images), labels).backward()
        optimiser.step()

    return step


def measure(
    entries: Sequence[ModelEntry],
    *,
    size: str,
    batch: int,
    repeat: int,
    device: str,
    tell: Callable[[str], None] = lambda text: None,
) -> list[StepTiming]:
    """Time all entries in turns; a missing library or an error becomes a row."""
    side = VIT_SIZES[size]["image_size"]
    generator = torch.Generator().manual_seed(SEED)
    images = torch.randn(batch, 3, side, side, generator=generator).to(device)
    labels = torch.randint(NUM_CLASSES, (batch,), generator=generator).to(device)
    clock, timings = benchmark.clock_of(device), [StepTiming(entry) for entry in entries]
    works: list[tuple[Work, Work | None] | None] = []
    for timing in timings:
        tell(f"{timing.entry.name}: first step")
        works.append(_prepared(timing, size, images, labels, device))
    for number in range(repeat):
        for timing, work in zip(timings, works, strict=True):
            if work is None:
                continue
            tell(f"round {number + 1} of {repeat}: {timing.entry.name}")
            timing.step.append(benchmark.seconds_of(work[0], clock))
            if work[1] is not None:
                timing.encoding.append(benchmark.seconds_of(work[1], clock, ENCODING_RUNS))
    return timings


def _prepared(
    timing: StepTiming, size: str, images: Tensor, labels: Tensor, device: str
) -> tuple[Work, Work | None] | None:
    """The step and the encoding alone, each run once; None with the problem noted if one fails."""
    timing.problem = benchmark.missing("timm") if timing.entry.encoding is None else None
    if timing.problem:
        return None
    try:
        model = model_of(timing.entry, size, device)
        step = training_step(model, images, labels)
        step()
        alone = None
        if isinstance(model, VisionTransformer):
            encoding = model.encoding
            alone = encoding_step(encoding, len(images), device, layers=encoding.size.depth)
    except Exception as error:
        timing.problem = benchmark.failure(error)
        return None
    return step, alone


def count(
    entries: Sequence[ModelEntry],
    *,
    size: str,
    device: str,
    compiled: bool,
    count_device: DeviceCounter | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> list[EncodingCounts]:
    """Count the operators of every encoding of ours; an error becomes a row."""
    side = VIT_SIZES[size]["image_size"]
    images, labels = torch.zeros(2, 3, side, side, device=device), torch.arange(2, device=device)
    plain = model_of(ModelEntry("none", "none"), size, device)
    tell("counting: the model itself")
    own = counts_of(model_step(plain, images, labels), compiled=compiled, count_device=count_device)
    rows = []
    for entry in entries:
        if entry.encoding is None:
            continue
        tell(f"counting: {entry.name}")
        try:
            model = model_of(entry, size, device)
            assert isinstance(model, VisionTransformer)
            row = count_encoding(
                entry.name,
                model.encoding,
                own,
                device=device,
                compiled=compiled,
                count_device=count_device,
            )
        except Exception as error:
            row = EncodingCounts(entry.name, own, problem=benchmark.failure(error))
        rows.append(row)
    return rows


def compare(timings: Sequence[StepTiming]) -> list[Quantity]:
    best = {timing.entry.name: min(timing.step) for timing in timings if timing.step}
    return [
        Quantity(f"step of {slower} / {faster}", best[slower] / best[faster], "x", at_least=limit)
        for slower, faster, limit in COMPARISONS
        if slower in best and faster in best
    ]


# --- Show and run --------------------------------------------------------------------------


def timing_table(timings: Sequence[StepTiming]) -> Table:
    title = "A training step, and the encoding alone in it"
    table = benchmark.new_table(
        title, "encoding", "step, s", "to none", "encoding, ms", "of the step"
    )
    plain = next((min(t.step) for t in timings if t.entry.name == "none" and t.step), None)
    for timing in timings:
        name, numbers = f"{timing.entry.name}\n  {timing.problem}", [""] * 4
        if timing.step:
            name, step, percent = timing.entry.name, min(timing.step), timing.percent
            numbers = [
                f"{step:.3g}",
                f"{step / plain:.3f}" if plain else "",
                f"{1e3 * min(timing.encoding):.3g}" if timing.encoding else "",
                "" if percent is None else f"{percent:.2f} %",
            ]
        limit = f"<= {timing.entry.at_most:g} %" if timing.entry.at_most else ""
        benchmark.add_row(table, name, numbers, limit, timing.is_kept)
    return table


def work_table(works: Sequence[ModelWork]) -> Table:
    """Parameters and multiply-additions of the model with each encoding."""
    table = benchmark.new_table(
        "The model with each encoding", "encoding", "parameters", "giga-MAC of an image"
    )
    for work in works:
        numbers = [f"{work.parameters:,}", f"{work.macs / 1e9:.3f}"]
        benchmark.add_row(table, work.name, numbers, "", None)
    return table


def run(
    *,
    batch: int = 64,
    repeat: int = 3,
    size: str = "tiny",
    device: str = "cpu",
    only: str = "",
    json: Path | None = None,
    check: bool = False,
    compiled: bool = True,
    entries: Sequence[ModelEntry] = ENTRIES,
    count_device: DeviceCounter | None = None,
) -> int:
    """Time and count the entries whose name contains `only`, print the tables, judge if asked to.

    `count_device` counts what a step does on the device, such as launches and copies.
    """
    benchmark.check_device(device)
    entries = [entry for entry in entries if only in entry.name]
    if not entries:
        raise InputError(f"nothing to time has {only!r} in its name")
    if size not in VIT_SIZES:
        raise InputError(f"--size {size}: the sizes are {', '.join(VIT_SIZES)}")
    if (size, batch) != PROMISED:
        entries = [replace(entry, at_most=None) for entry in entries]
    side = VIT_SIZES[size]["image_size"]
    setting = {
        "versions": describe_versions(("wefpe", "torch", "timm")),
        "machine": f"{platform.platform()}, {cores_and_load()}",
        "step": f"vit_{size} at {side}, batch {batch}, float32, AdamW, one thread",
        "clock": f"{benchmark.describe_clock(device, repeat)} after one step, entries in turns",
        "on": device,
    }
    console, progress = Console(width=None if sys.stdout.isatty() else 120), Console(stderr=True)
    benchmark.print_setting(setting, console)
    with benchmark.one_thread(torch_too=True), progress.status("") as status:

        def tell(text: str) -> None:
            status.update(escape(text))

        timings = measure(entries, size=size, batch=batch, repeat=repeat, device=device, tell=tell)
        counts = count(
            entries,
            size=size,
            device=device,
            compiled=compiled,
            count_device=count_device,
            tell=tell,
        )
    quotients = compare(timings)
    works = [
        work_of(model_of(each, size, "cpu"), 3, side, each.name)
        for each, timing in zip(entries, timings, strict=True)
        if each.encoding is not None and not timing.problem
    ]
    console.print("", timing_table(timings), count_table(counts), work_table(works))
    on_device = device_table(counts)
    if on_device is not None:
        console.print(on_device)
    if quotients:
        console.print(benchmark.quantity_table("Against each other", quotients))
    if json:
        benchmark.write_json(
            json, setting, timings=timings, counts=counts, quotients=quotients, works=works
        )
    return benchmark.exit_code(check, timings, counts, quotients)
