"""Time the backends beside their peers, as multiples of numpy.exp: ``python -m verification.bench``.

One thread. Every work alternates with the yardstick, and the best time of each counts, so that
a machine shared with others distorts the ratio little. On the CPU the clock is the processor
time of this process, for the same reason. With ``--check`` a broken promise is an error.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
import tracemalloc
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from verification.bench_entries import (
    COMPARISONS,
    ENTRIES,
    LATTICE,
    SEED,
    YARDSTICK,
    Comparison,
    Entry,
    Work,
    uniform_points,
)
from wefpe_core import get_backend

MEMORY = "numpy: wp, wp', memory beyond input and output"
MEMORY_AT_MOST = 64.0  # MB, whatever the number of points
MEMORY_FACTOR = 10  # times as many points as are timed
EXTRAS = {"torch": "wefpe[torch]", "flint": "wefpe[flint]"}

Clock = Callable[[], float]


@dataclass(frozen=True)
class Timing:
    """Every measured time of one entry and of the yardstick beside it."""

    name: str
    points: int = 0
    seconds: tuple[float, ...] = ()
    yardstick_points: int = 0
    yardstick_seconds: tuple[float, ...] = ()
    at_most: float | None = None
    problem: str | None = None  # why there are no times

    @property
    def ns_per_point(self) -> float:
        return 1e9 * min(self.seconds) / self.points

    @property
    def ratio(self) -> float:
        """Time per point over that of the yardstick."""
        return self.ns_per_point * self.yardstick_points / (1e9 * min(self.yardstick_seconds))

    @property
    def is_kept(self) -> bool | None:
        """Whether the promise is kept; None if there is none, or no time to judge."""
        if self.at_most is None or self.problem:
            return None
        return self.ratio <= self.at_most


@dataclass(frozen=True)
class Figure:
    """A number that is not a multiple of the yardstick."""

    name: str
    value: float
    unit: str
    at_most: float | None = None
    at_least: float | None = None

    @property
    def is_kept(self) -> bool | None:
        if self.at_most is not None:
            return self.value <= self.at_most
        return None if self.at_least is None else self.value >= self.at_least


# --- Measure -------------------------------------------------------------------------------


def clock_of(device: str) -> Clock:
    if device == "cpu":
        return time.process_time
    import torch

    def clock() -> float:
        torch.cuda.synchronize()
        return time.perf_counter()

    return clock


def seconds_of(work: Work, clock: Clock) -> float:
    start = clock()
    work()
    return clock() - start


def missing(library: str) -> str | None:
    """Why a library cannot be timed, or None if it is installed."""
    if find_spec(library):
        return None
    return f"skipped: {library} not installed (pip install '{EXTRAS.get(library, library)}')"


def measure(entry: Entry, points: int, repeat: int, device: str) -> Timing:
    """Time an entry and the yardstick in turn; a missing library or an error becomes a row."""
    problem = missing(entry.needs) if entry.needs else None
    if problem:
        return Timing(entry.name, at_most=entry.at_most, problem=problem)
    z, argument = uniform_points(min(points, entry.max_points), entry.dtype), uniform_points(points)
    clock = clock_of(device)
    try:
        work = entry.prepare(z, device)
        work()  # compiles, fills caches, faults pages in
        seconds, yardstick = [], [seconds_of(lambda: np.exp(argument), clock)]
        for _ in range(repeat):
            seconds.append(seconds_of(work, clock))
            yardstick.append(seconds_of(lambda: np.exp(argument), clock))
    except Exception as error:  # one broken peer must not cost the other rows
        problem = f"failed: {type(error).__name__}: {str(error).partition(chr(10))[0]}"
        return Timing(entry.name, at_most=entry.at_most, problem=problem)
    return Timing(
        entry.name, z.size, tuple(seconds), points, tuple(yardstick), at_most=entry.at_most
    )


def measure_memory(points: int) -> Figure:
    """Peak memory of the NumPy backend that is neither input nor output."""
    backend, z = get_backend("numpy"), uniform_points(points)
    tracemalloc.start()
    try:
        results = backend.wp_and_prime(z, LATTICE)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    extra = (peak - sum(result.nbytes for result in results)) / 1e6
    return Figure(f"{MEMORY}, {points:,} points", extra, "MB", at_most=MEMORY_AT_MOST)


def compare(timings: Iterable[Timing], comparisons: Iterable[Comparison]) -> list[Figure]:
    """Quotients of ratios: each entry has its own yardstick, measured at the same time."""
    ratios = {timing.name: timing.ratio for timing in timings if not timing.problem}
    return [
        Figure(
            f"{c.slower}  /  {c.faster}", ratios[c.slower] / ratios[c.faster], "x", None, c.at_least
        )
        for c in comparisons
        if c.slower in ratios and c.faster in ratios
    ]


def circumstances(points: int, repeat: int, device: str) -> dict[str, str]:
    """What a reader has to know to repeat or distrust the figures."""

    def version(name: str) -> str:
        try:
            return f"{name} {metadata.version(name)}"
        except metadata.PackageNotFoundError:
            return f"{name} not installed"

    names = ("wefpe", "numpy", "torch", "python-flint", "mpmath", "cypari", "elliptix")
    load = f", load average {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    clock = "processor time of this process" if device == "cpu" else "wall clock, synchronised"
    return {
        "versions": ", ".join((f"Python {platform.python_version()}", *map(version, names))),
        "platform": platform.platform(),
        "processor": f"{processor()}, {os.cpu_count()} cores{load}",
        "threads": "1 (OMP_NUM_THREADS=1, torch.set_num_threads(1))",
        "clock": f"{clock}; best of {repeat}, alternating with the yardstick",
        "points": f"{points:,}, uniform in the period parallelogram of {LATTICE}, seed {SEED}",
        "device": f"{device} for torch, cpu for all else",
    }


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


# --- Show ----------------------------------------------------------------------------------


def three_digits(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def verdict(is_kept: bool | None) -> str:
    return {None: "", True: "[green]yes[/]", False: "[bold red]NO[/]"}[is_kept]


def promise(at_most: float | None, at_least: float | None = None) -> str:
    if at_most is not None:
        return f"<= {at_most:g}"
    return "" if at_least is None else f">= {at_least:g}"


def timing_table(timings: Iterable[Timing]) -> Table:
    table = Table(title=f"Time, as a multiple of {YARDSTICK} on complex128")
    table.add_column("work", overflow="fold")
    for heading in ("points", "ms", "ns/point", f"x {YARDSTICK}", "promised"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("kept")
    for timing in timings:
        promised = promise(timing.at_most)
        if timing.problem:
            row = [f"{timing.name}\n  {timing.problem}", "", "", "", "", promised]
        else:
            numbers = (1e3 * min(timing.seconds), timing.ns_per_point, timing.ratio)
            shown = map(three_digits, numbers)
            row = [timing.name, f"{timing.points:,}", *shown, promised]
        table.add_row(*map(escape, row), verdict(timing.is_kept))
    return table


def figure_table(figures: Iterable[Figure]) -> Table:
    table = Table(title="Against each other, per point, and memory")
    table.add_column("figure", overflow="fold")
    for heading in ("value", "promised"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("kept")
    for figure in figures:
        value = f"{three_digits(figure.value)} {figure.unit}"
        promised = promise(figure.at_most, figure.at_least)
        table.add_row(escape(figure.name), value, promised, verdict(figure.is_kept))
    return table


def as_json(
    header: Mapping[str, str], timings: Iterable[Timing], figures: Iterable[Figure]
) -> dict[str, Any]:
    def derived(timing: Timing) -> dict[str, Any]:
        if timing.problem:
            return {}
        return {"ns_per_point": timing.ns_per_point, "ratio": timing.ratio}

    return {
        "circumstances": dict(header),
        "timings": [asdict(t) | derived(t) | {"is_kept": t.is_kept} for t in timings],
        "figures": [asdict(f) | {"is_kept": f.is_kept} for f in figures],
    }


# --- Run -----------------------------------------------------------------------------------


def yardstick_row(timings: Sequence[Timing], points: int) -> Timing:
    """The yardstick as a row: its best time in the whole run."""
    samples = tuple(s for timing in timings for s in timing.yardstick_seconds)
    if not samples:
        return Timing(YARDSTICK, problem="skipped: nothing was timed")
    return Timing(YARDSTICK, points, samples, points, samples)


def use_one_thread(entries: Iterable[Entry]) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    if any(entry.needs == "torch" for entry in entries) and not missing("torch"):
        import torch

        torch.set_num_threads(1)


def main(
    arguments: Sequence[str] | None = None,
    entries: Sequence[Entry] = ENTRIES,
    comparisons: Sequence[Comparison] = COMPARISONS,
) -> int:
    options = parse(arguments)
    entries = [entry for entry in entries if options.only in entry.name]
    use_one_thread(entries)
    header = circumstances(options.points, options.repeat, options.device)
    progress, timings = Console(stderr=True), []
    for number, entry in enumerate(entries, start=1):
        what = f"{number}/{len(entries)} {entry.name}"
        if entry.compiles:
            what += " (compiles first: up to a minute or two)"
        progress.print(escape(what), highlight=False)
        with progress.status("measuring"):
            timings.append(measure(entry, options.points, options.repeat, options.device))
    figures = compare(timings, comparisons)
    if options.only in MEMORY:
        progress.print(escape(MEMORY), highlight=False)
        figures.append(measure_memory(MEMORY_FACTOR * options.points))
    timings.insert(0, yardstick_row(timings, options.points))
    console = Console()
    for key, value in header.items():
        console.print(f"[bold]{key}[/]: {escape(value)}", highlight=False)
    console.print(timing_table(timings), figure_table(figures))
    if options.json:
        text = json.dumps(as_json(header, timings, figures), indent=2)
        options.json.write_text(text + "\n", encoding="utf-8")
    broken = [row.name for row in (*timings, *figures) if row.is_kept is False]
    if broken:
        console.print(f"[bold red]not kept:[/] {escape('; '.join(broken))}", highlight=False)
    return 1 if broken and options.check else 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m verification.bench", description=__doc__)
    add = parser.add_argument
    add("--points", type=positive, default=1_000_000, help="points of fast work (default 10^6)")
    add("--repeat", type=positive, default=10, help="times each work is run (default 10)")
    add("--device", choices=("cpu", "cuda"), default="cpu", help="where torch runs")
    add("--only", default="", metavar="TEXT", help="entries whose name contains TEXT")
    add("--json", type=Path, metavar="PATH", help="write all samples there")
    add("--check", action="store_true", help="exit with 1 if a promise is not kept")
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not cuda_is_available():
        parser.error("--device cuda: torch is not installed or sees no such device")
    return options


def positive(text: str) -> int:
    value = int(text.replace("_", ""))
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {text}")
    return value


def cuda_is_available() -> bool:
    if missing("torch"):
        return False
    import torch

    return torch.cuda.is_available()


if __name__ == "__main__":
    raise SystemExit(main())
