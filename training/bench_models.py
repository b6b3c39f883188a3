"""Time training steps of ViT-Ti/16 at 224 with each encoding, and beside timm's.

One thread, float32, no compiler. A step is forward, cross-entropy, backward and AdamW on one batch.
The steps of all entries take turns and the best of each counts; on the CPU the clock is the
processor time of this process. Beside it stands the encoding alone: all it computes in one step of
that batch, forward and backward. What a step costs beyond both is what the model does with the
answer (a bias takes attention off its fastest path).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from torch import Tensor, nn

from training.encodings import AbstractEncoding
from training.models import VIT_SIZES, VisionTransformer, build_vit
from training.models.timm_import import timm_vit

SEED = 20250826
NUM_CLASSES = 1000
PROMISED = ("tiny", 64)  # the size and the batch the promised shares are of
ENCODING_RUNS = 5  # of the encoding alone, which takes milliseconds, for one sample

Work = Callable[[], object]


@dataclass(frozen=True)
class Entry:
    """One row: a model of ours with an encoding, or timm's with its own."""

    name: str
    encoding: str | None  # None: the model of timm
    options: dict[str, Any] = field(default_factory=dict)
    at_most: float | None = None  # promised share of the encoding in the step, in percent


TIMM = "timm: learned"
ENTRIES = (
    Entry("none", "none"),
    Entry("learned", "learned"),
    Entry(TIMM, None),
    Entry("sincos2d", "sincos2d"),
    Entry("rope1d", "rope1d"),
    Entry("rope_axial", "rope_axial"),
    Entry("rope_mixed", "rope_mixed"),
    Entry("fope", "fope"),
    Entry("weierstrass", "weierstrass", at_most=2.0),
    Entry("weierstrass, general lattice", "weierstrass", {"lattice": "general"}, at_most=2.0),
    Entry("weierstrass, authors' sum", "weierstrass", {"fidelity": "authors"}),
    Entry("weierstrass_fourier", "weierstrass_fourier"),
    Entry("weierstrass_hybrid", "weierstrass_hybrid", {"table": "fresh"}),
    Entry("weierstrass_relative", "weierstrass_relative"),
    Entry("weierstrass_green", "weierstrass_green"),
    Entry("combined", "combined"),
)
# (slower, faster, promised quotient of their steps)
COMPARISONS = ((TIMM, "learned", 1.0),)


@dataclass
class Timing:
    """The samples of one entry, in seconds."""

    entry: Entry
    step: list[float] = field(default_factory=list)
    encoding: list[float] = field(default_factory=list)
    problem: str | None = None  # why there are none

    @property
    def percent(self) -> float | None:
        """The share of the encoding in the step."""
        return 100.0 * min(self.encoding) / min(self.step) if self.encoding else None

    @property
    def is_kept(self) -> bool | None:
        if self.problem:
            return False if self.problem.startswith("failed") else None
        if self.entry.at_most is None or self.percent is None:
            return None
        return self.percent <= self.entry.at_most


@dataclass(frozen=True)
class Quotient:
    """The step of one entry as a multiple of that of another."""

    name: str
    value: float
    at_least: float

    @property
    def is_kept(self) -> bool:
        return self.value >= self.at_least


# --- What is timed -------------------------------------------------------------------------


def model_of(entry: Entry, size: str, device: str) -> nn.Module:
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


def encoding_pass(model: VisionTransformer, batch: int, device: str) -> Work | None:
    """What the encoding computes in one step, forward and backward; None if nothing at all."""
    encoding: AbstractEncoding = model.encoding
    grid, depth = encoding.size.grid, encoding.size.depth
    shape = (batch, encoding.size.num_heads, grid[0] * grid[1], encoding.size.head_dim)
    q, k = (torch.randn(shape, device=device).requires_grad_() for _ in range(2))

    def answers() -> list[Tensor]:
        found: list[Tensor | None] = [encoding.additive(grid), encoding.prefix(1)]
        with encoding.shared_pass():
            for layer in range(depth):
                if encoding.kind in ("rotary", "combined"):
                    found += encoding.rotate(q, k, grid, layer)
                found.append(encoding.bias(grid, layer))
        return [answer for answer in found if answer is not None]

    upstream = [torch.ones_like(answer) for answer in answers()]
    if not upstream:
        return None

    def work() -> None:
        for tensor in (q, k, *encoding.parameters()):
            tensor.grad = None
        pairs = [p for p in zip(answers(), upstream, strict=True) if p[0].requires_grad]
        if pairs:
            torch.autograd.backward([a for a, _ in pairs], [b for _, b in pairs])

    return work


def seconds_of(work: Work, device: str, runs: int = 1) -> float:
    """Seconds per run."""
    if device != "cpu":
        torch.cuda.synchronize()
    clock = time.process_time if device == "cpu" else time.perf_counter
    start = clock()
    for _ in range(runs):
        work()
    if device != "cpu":
        torch.cuda.synchronize()
    return (clock() - start) / runs


def measure(
    entries: Sequence[Entry],
    *,
    size: str,
    batch: int,
    repeat: int,
    device: str,
    tell: Callable[[str], None] = lambda text: None,
) -> list[Timing]:
    """Time all entries in turns; a missing library or an error becomes a row."""
    side = VIT_SIZES[size]["image_size"]
    generator = torch.Generator().manual_seed(SEED)
    images = torch.randn(batch, 3, side, side, generator=generator).to(device)
    labels = torch.randint(NUM_CLASSES, (batch,), generator=generator).to(device)
    timings = [Timing(entry) for entry in entries]
    works: list[tuple[Work, Work | None] | None] = []
    for timing in timings:
        tell(f"{timing.entry.name}: first step")
        works.append(_prepared(timing, size, images, labels, device))
    for number in range(repeat):
        for timing, work in zip(timings, works, strict=True):
            if work is None:
                continue
            tell(f"round {number + 1} of {repeat}: {timing.entry.name}")
            timing.step.append(seconds_of(work[0], device))
            if work[1] is not None:
                timing.encoding.append(seconds_of(work[1], device, ENCODING_RUNS))
    return timings


def _prepared(
    timing: Timing, size: str, images: Tensor, labels: Tensor, device: str
) -> tuple[Work, Work | None] | None:
    """The step and the encoding alone, both done once; or the problem is noted."""
    if timing.entry.encoding is None and find_spec("timm") is None:
        timing.problem = "skipped: not installed (pip install timm)"
        return None
    try:
        model = model_of(timing.entry, size, device)
        step = training_step(model, images, labels)
        step()
        alone = None
        if isinstance(model, VisionTransformer):
            alone = encoding_pass(model, len(images), device)
    except Exception as error:  # one broken peer must not cost the other rows
        first_line = str(error).partition("\n")[0]
        timing.problem = f"failed: {type(error).__name__}: {first_line:.200}"
        return None
    return step, alone


def compare(timings: Sequence[Timing]) -> list[Quotient]:
    best = {timing.entry.name: min(timing.step) for timing in timings if timing.step}
    return [
        Quotient(f"step of {slower} / {faster}", best[slower] / best[faster], at_least)
        for slower, faster, at_least in COMPARISONS
        if slower in best and faster in best
    ]


# --- Show ----------------------------------------------------------------------------------


def circumstances(options: argparse.Namespace) -> dict[str, str]:
    """What a reader has to know to repeat or distrust the figures."""

    def version(name: str) -> str:
        try:
            return f"{name} {metadata.version(name)}"
        except metadata.PackageNotFoundError:
            return f"{name} not installed"

    names = ("wefpe", "torch", "timm")
    load = f", load average {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    clock = "processor time of this process" if options.device == "cpu" else "wall clock"
    side = VIT_SIZES[options.size]["image_size"]
    return {
        "versions": ", ".join((f"Python {platform.python_version()}", *map(version, names))),
        "machine": f"{platform.platform()}, {os.cpu_count()} cores{load}",
        "step": f"vit_{options.size} at {side}, batch {options.batch}, float32, AdamW, one thread",
        "clock": f"{clock}; best of {options.repeat} after one step, entries in turns",
        "on": options.device,
    }


def shown(is_kept: bool | None) -> str:
    return {None: "", True: "[green]yes[/]", False: "[bold red]NO[/]"}[is_kept]


def timing_table(timings: Sequence[Timing]) -> Table:
    title = "A training step, and the encoding alone in it"
    table = Table(title=title, box=box.SIMPLE, padding=(0, 1, 0, 0), title_justify="left")
    table.add_column("encoding", overflow="fold")
    for heading in ("step, s", "to none", "encoding, ms", "of the step", "promised", "kept"):
        table.add_column(heading, justify="right", no_wrap=True)
    plain = next((min(t.step) for t in timings if t.entry.name == "none" and t.step), None)
    for timing in timings:
        name, numbers = timing.entry.name, ["", "", "", ""]
        if timing.problem:
            name += f"\n  {timing.problem}"
        elif timing.step:
            step, percent = min(timing.step), timing.percent
            numbers = [
                f"{step:.3g}",
                f"{step / plain:.3f}" if plain else "",
                f"{1e3 * min(timing.encoding):.3g}" if timing.encoding else "",
                "" if percent is None else f"{percent:.2f} %",
            ]
        limit = "" if timing.entry.at_most is None else f"<= {timing.entry.at_most:g} %"
        table.add_row(escape(name), *numbers, limit, shown(timing.is_kept))
    return table


def as_json(
    header: dict[str, str], timings: Sequence[Timing], quotients: Sequence[Quotient]
) -> dict[str, Any]:
    return {
        "circumstances": header,
        "timings": [
            {
                "name": t.entry.name,
                "step": t.step,
                "encoding": t.encoding,
                "percent": t.percent,
                "problem": t.problem,
                "is_kept": t.is_kept,
            }
            for t in timings
        ],
        "quotients": [
            {"name": q.name, "value": q.value, "at_least": q.at_least, "is_kept": q.is_kept}
            for q in quotients
        ],
    }


# --- Run -----------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None, entries: Sequence[Entry] = ENTRIES) -> int:
    options = parse(arguments)
    entries = [entry for entry in entries if options.only in entry.name]
    if (options.size, options.batch) != PROMISED:
        entries = [replace(entry, at_most=None) for entry in entries]
    if not entries:
        print(f"nothing to time has {options.only!r} in its name", file=sys.stderr)
        return 2
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    console, progress = Console(width=None if sys.stdout.isatty() else 120), Console(stderr=True)
    header = circumstances(options)
    for key, value in header.items():
        console.print(f"[bold]{key}[/]: {escape(value)}", highlight=False)
    try:
        with progress.status("") as status:
            timings = measure(
                entries,
                size=options.size,
                batch=options.batch,
                repeat=options.repeat,
                device=options.device,
                tell=lambda text: status.update(escape(text)),
            )
    finally:
        torch.set_num_threads(threads)
    quotients = compare(timings)
    console.print("", timing_table(timings))
    for quotient in quotients:
        text = f"{escape(quotient.name)}: {quotient.value:.3f} (promised >= {quotient.at_least:g})"
        console.print(f"{text} {shown(quotient.is_kept)}", highlight=False)
    if options.json:
        text = json.dumps(as_json(header, timings, quotients), indent=2)
        options.json.write_text(text + "\n", encoding="utf-8")
    rows: list[Timing | Quotient] = [*timings, *quotients]
    return 1 if options.check and any(row.is_kept is False for row in rows) else 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="wefpe bench-models", description=__doc__)
    add = parser.add_argument
    add("--batch", type=positive, default=64, help="images of a step (default: 64)")
    add("--repeat", type=positive, default=3, help="samples of each step (default: 3)")
    add("--size", choices=tuple(VIT_SIZES), default="tiny", help="the model (default: tiny)")
    add("--device", choices=("cpu", "cuda"), default="cpu", help="where it runs")
    add("--only", default="", metavar="TEXT", help="entries whose name contains TEXT")
    add("--json", type=Path, metavar="PATH", help="write every sample there")
    add("--check", action="store_true", help="exit with 1 if a promise is not kept")
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: torch sees no such device")
    return options


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {text}")
    return value


if __name__ == "__main__":
    raise SystemExit(main())
