"""Time the backends beside their peers, as multiples of numpy.exp.

One thread. Samples of each work alternate with samples of the yardstick that last as long, and
the best of each counts, so that a machine shared with others distorts the ratio little. On the
CPU the clock is the processor time of this process, for the same reason.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from verification import bench_entries
from verification.bench_entries import Comparison, Entry, Work, missing
from wefpe_core import get_backend

YARDSTICK = "numpy.exp"
MEMORY = "numpy: memory beyond input and output"
MEMORY_AT_MOST = 64.0  # MB, whatever the number of points
MEMORY_FACTOR = 10  # times as many points as are timed

Clock = Callable[[], float]


@dataclass(frozen=True)
class Timing:
    """Every measured time of one entry and of the yardstick beside it, in seconds per point."""

    name: str
    points: int = 0
    seconds: tuple[float, ...] = ()
    yardstick: tuple[float, ...] = ()
    at_most: float | None = None
    problem: str | None = None  # why there are no times

    @property
    def ratio(self) -> float:
        return min(self.seconds) / min(self.yardstick)

    @property
    def median_ratio(self) -> float:
        """Each sample over the yardstick just before it: tells a noisy run from a quiet one."""
        return statistics.median(map(lambda t, y: t / y, self.seconds, self.yardstick))

    @property
    def is_kept(self) -> bool | None:
        """Whether the promise is kept; None if there is none, or the work was skipped."""
        if self.problem:
            return False if self.problem.startswith("failed") else None
        return None if self.at_most is None else self.ratio <= self.at_most


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


def seconds_of(work: Work, clock: Clock, runs: int = 1) -> float:
    """Seconds per run."""
    start = clock()
    for _ in range(runs):
        work()
    return max(clock() - start, 1e-9) / runs


def measure(entry: Entry, points: int, repeat: int, device: str) -> Timing:
    """Time an entry and the yardstick in turn; a missing library or an error becomes a row."""
    problem = missing(entry.needs)
    if problem:
        return Timing(entry.name, at_most=entry.at_most, problem=problem)
    z = bench_entries.uniform_points(min(points, entry.max_points), entry.dtype)
    argument = bench_entries.uniform_points(points)
    clock = clock_of(device)

    def yardstick() -> object:
        return np.exp(argument)

    try:
        work = entry.prepare(z, device)
        for warm_up in (work, yardstick):  # compile, fill caches, fault pages in
            warm_up()
        quotient = seconds_of(work, clock) / seconds_of(yardstick, clock)
        runs, yardstick_runs = max(1, round(1.0 / quotient)), max(1, round(quotient))
        seconds, beside = [], []
        for _ in range(repeat):
            beside.append(seconds_of(yardstick, clock, yardstick_runs) / points)
            seconds.append(seconds_of(work, clock, runs) / z.size)
    except Exception as error:  # one broken peer must not cost the other rows
        problem = f"failed: {type(error).__name__}: {str(error).partition(chr(10))[0]:.200}"
        return Timing(entry.name, at_most=entry.at_most, problem=problem)
    return Timing(entry.name, z.size, tuple(seconds), tuple(beside), at_most=entry.at_most)


def measure_memory(points: int) -> Figure:
    """Peak memory of the NumPy backend that is neither input nor output."""
    backend, z = get_backend("numpy"), bench_entries.uniform_points(points)
    tracemalloc.start()
    try:
        results = backend.wp_and_prime(z, bench_entries.LATTICE)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    extra = (peak - sum(result.nbytes for result in results)) / 1e6
    return Figure(f"{MEMORY}, {points:,} points", extra, "MB", at_most=MEMORY_AT_MOST)


def compare(timings: Iterable[Timing], comparisons: Iterable[Comparison]) -> list[Figure]:
    """Quotients of ratios: each entry has its own yardstick, measured at the same time."""
    ratios = {timing.name: timing.ratio for timing in timings if not timing.problem}
    return [
        Figure(f"{slower} / {faster}", ratios[slower] / ratios[faster], "x", at_least=limit)
        for slower, faster, limit in comparisons
        if slower in ratios and faster in ratios
    ]


def yardstick_row(timings: Iterable[Timing], points: int) -> Timing:
    """The yardstick as a row of its own, with its times of the whole run."""
    samples = tuple(sample for timing in timings for sample in timing.yardstick)
    problem = None if samples else "skipped: nothing was timed"
    return Timing(YARDSTICK, points, samples, samples, problem=problem)


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
    where = f"period parallelogram of {bench_entries.LATTICE}"
    return {
        "versions": ", ".join((f"Python {platform.python_version()}", *map(version, names))),
        "platform": platform.platform(),
        "processor": f"{processor()}, {os.cpu_count()} cores{load}",
        "threads": "1 (OMP_NUM_THREADS=1, torch.set_num_threads(1))",
        "torch on": device,
        "clock": f"{clock}; best of {repeat} samples, alternating with the yardstick",
        "points": f"{points:,}, uniform in the {where}, seed {bench_entries.SEED}",
    }


def processor() -> str:
    description = Path("/proc/cpuinfo")
    lines = description.read_text(encoding="utf-8").splitlines() if description.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


# --- Show ----------------------------------------------------------------------------------


def three_digits(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def promise(row: Timing | Figure) -> tuple[str, str]:
    """What is promised, and whether it is kept."""
    at_least = row.at_least if isinstance(row, Figure) else None
    limit = f"<= {row.at_most:g}" if row.at_most else f">= {at_least:g}" if at_least else ""
    return limit, {None: "", True: "[green]yes[/]", False: "[bold red]NO[/]"}[row.is_kept]


def new_table(title: str, *headings: str) -> Table:
    table = Table(title=title, box=box.SIMPLE, padding=(0, 1, 0, 0), title_justify="left")
    table.add_column(headings[0], overflow="fold")
    for heading in headings[1:]:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def timing_table(timings: Iterable[Timing]) -> Table:
    title = f"Time per point, and as a multiple of {YARDSTICK} on complex128"
    headings = ("work", "points", "ms", "ns/point", "multiple", "promised", "kept")
    table = new_table(title, *headings)
    for timing in timings:
        name, numbers = timing.name, ["", "", "", ""]
        if timing.problem:
            name += f"\n  {timing.problem}"
        else:
            best = min(timing.seconds)
            shown = map(three_digits, (1e3 * best * timing.points, 1e9 * best, timing.ratio))
            numbers = [f"{timing.points:,}", *shown]
        table.add_row(escape(name), *numbers, *promise(timing))
    return table


def figure_table(figures: Iterable[Figure]) -> Table:
    table = new_table("Against each other, per point; and memory", "", "value", "promised", "kept")
    for figure in figures:
        value = f"{three_digits(figure.value)} {figure.unit}"
        table.add_row(escape(figure.name), value, *promise(figure))
    return table


def as_json(
    header: Mapping[str, str], timings: Iterable[Timing], figures: Iterable[Figure]
) -> dict[str, Any]:
    def with_derived(row: Timing | Figure) -> dict[str, Any]:
        known = asdict(row) | {"is_kept": row.is_kept}
        if isinstance(row, Timing) and not row.problem:
            known |= {"ratio": row.ratio, "median_ratio": row.median_ratio}
        return known

    return {
        "circumstances": dict(header),
        "timings": [with_derived(timing) for timing in timings],
        "figures": [with_derived(figure) for figure in figures],
    }


# --- Run -----------------------------------------------------------------------------------


def main(
    arguments: Sequence[str] | None = None,
    entries: Sequence[Entry] = bench_entries.ENTRIES,
    comparisons: Sequence[Comparison] = bench_entries.COMPARISONS,
) -> int:
    options = parse(arguments)
    entries = [entry for entry in entries if options.only in entry.name]
    use_one_thread(entries)
    header = circumstances(options.points, options.repeat, options.device)
    console, progress, timings = Console(), Console(stderr=True), []
    for key, value in header.items():
        console.print(f"[bold]{key}[/]: {escape(value)}", highlight=False)
    for number, entry in enumerate(entries, start=1):
        note = " (compiles first, which takes up to three minutes)" if entry.compiles else ""
        progress.print(escape(f"{number}/{len(entries)} {entry.name}{note}"), highlight=False)
        with progress.status("compiling and measuring" if note else "measuring"):
            timings.append(measure(entry, options.points, options.repeat, options.device))
    figures = compare(timings, comparisons)
    if options.only in MEMORY:
        with progress.status(MEMORY):
            figures.append(measure_memory(MEMORY_FACTOR * options.points))
    timings.insert(0, yardstick_row(timings, options.points))
    console.print("", timing_table(timings), figure_table(figures) if figures else "")
    if options.json:
        text = json.dumps(as_json(header, timings, figures), indent=2)
        options.json.write_text(text + "\n", encoding="utf-8")
    rows: list[Timing | Figure] = [*timings, *figures]
    return 1 if options.check and any(row.is_kept is False for row in rows) else 0


def use_one_thread(entries: Iterable[Entry]) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    if any(entry.needs == "torch" for entry in entries) and not missing("torch"):
        import torch

        torch.set_num_threads(1)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="wefpe bench", description=__doc__)
    add = parser.add_argument
    add("--points", type=positive, default=1_000_000, help="points of fast work (default: 10^6)")
    add("--repeat", type=positive, default=10, help="samples of each work (default: 10)")
    add("--device", choices=("cpu", "cuda"), default="cpu", help="where torch runs")
    add("--only", default="", metavar="TEXT", help="work whose name contains TEXT")
    add("--json", type=Path, metavar="PATH", help="write every sample there")
    add("--check", action="store_true", help="exit with 1 if a promise is not kept")
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not cuda_is_available():
        parser.error("--device cuda: torch is not installed or sees no such device")
    return options


def positive(text: str) -> int:
    value = int(text)
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
