"""``wefpe bench backends``: the backends beside their peers, as multiples of numpy.exp."""

from __future__ import annotations

import platform
import statistics
import tracemalloc
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from verification.bench import backend_entries, benchmark
from verification.bench.backend_entries import BackendEntry, Comparison
from verification.bench.benchmark import Quantity
from wefpe_core import InputError, get_backend
from wefpe_core.reporting import cores_and_load, describe_versions, processor_name

YARDSTICK = "numpy.exp"
MEMORY = "numpy: memory beyond input and output"
MEMORY_AT_MOST = 64.0  # MB, whatever the number of points
MEMORY_FACTOR = 10  # times as many points as are timed
_PACKAGES = (
    *("wefpe", "numpy", "numba", "torch", "jax", "python-flint", "mpmath", "scipy"),
    *("cypari", "elliptix"),
)


@dataclass(frozen=True)
class BackendTiming:
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
        """The median of samples over the yardstick just before; in a noisy run it is far off."""
        return statistics.median(map(lambda t, y: t / y, self.seconds, self.yardstick))

    @property
    def is_kept(self) -> bool | None:
        ratio = None if self.problem else self.ratio
        return benchmark.is_within(ratio, self.at_most, problem=self.problem)

    def as_json(self) -> dict[str, Any]:
        known = asdict(self) | {"is_kept": self.is_kept}
        if not self.problem:
            known |= {"ratio": self.ratio, "median_ratio": self.median_ratio}
        return known


def measure(entry: BackendEntry, points: int, repeat: int, device: str) -> BackendTiming:
    """Time an entry and the yardstick in turn; a missing library or an error becomes a row."""
    if problem := benchmark.missing(entry.needs):
        return BackendTiming(entry.name, at_most=entry.at_most, problem=problem)
    z = backend_entries.uniform_points(min(points, entry.max_points), entry.dtype)
    argument = backend_entries.uniform_points(points)
    clock = benchmark.clock_of(device)

    def yardstick() -> object:
        return np.exp(argument)

    try:
        work = entry.prepare(z, device)
        for warm_up in (work, yardstick):  # compile, fill caches, fault pages in
            warm_up()
        quotient = benchmark.seconds_of(work, clock) / benchmark.seconds_of(yardstick, clock)
        runs, yardstick_runs = max(1, round(1.0 / quotient)), max(1, round(quotient))
        seconds, beside = [], []
        for _ in range(repeat):
            beside.append(benchmark.seconds_of(yardstick, clock, yardstick_runs) / points)
            seconds.append(benchmark.seconds_of(work, clock, runs) / z.size)
    except Exception as error:
        return BackendTiming(entry.name, at_most=entry.at_most, problem=benchmark.failure(error))
    return BackendTiming(entry.name, z.size, tuple(seconds), tuple(beside), at_most=entry.at_most)


def measure_memory(points: int) -> Quantity:
    """Peak memory of the NumPy backend that is neither input nor output."""
    backend, z = get_backend("numpy"), backend_entries.uniform_points(points)
    tracemalloc.start()
    try:
        results = backend.wp_and_prime(z, backend_entries.LATTICE)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    extra = (peak - sum(result.nbytes for result in results)) / 1e6
    return Quantity(f"{MEMORY}, {points:,} points", extra, "MB", at_most=MEMORY_AT_MOST)


def compare(timings: Iterable[BackendTiming], comparisons: Iterable[Comparison]) -> list[Quantity]:
    """Quotients of ratios: each entry has its own yardstick, measured at the same time."""
    ratios = {timing.name: timing.ratio for timing in timings if not timing.problem}
    return [
        Quantity(f"{slower} / {faster}", ratios[slower] / ratios[faster], "x", *limits)
        for slower, faster, *limits in comparisons
        if slower in ratios and faster in ratios
    ]


def yardstick_row(timings: Iterable[BackendTiming], points: int) -> BackendTiming:
    """The yardstick as a row of its own, with its times of the whole run."""
    samples = tuple(sample for timing in timings for sample in timing.yardstick)
    problem = None if samples else "skipped: nothing was timed"
    return BackendTiming(YARDSTICK, points, samples, samples, problem=problem)


def timing_table(timings: Iterable[BackendTiming]) -> Table:
    title = f"Time per point, and as a multiple of {YARDSTICK} on complex128"
    table = benchmark.new_table(title, "work", "points", "ms", "ns/point", "multiple")
    for timing in timings:
        name, numbers = f"{timing.name}\n  {timing.problem}", [""] * 4
        if not timing.problem:
            name, best = timing.name, min(timing.seconds)
            times = (1e3 * best * timing.points, 1e9 * best, timing.ratio)
            numbers = [f"{timing.points:,}", *map(benchmark.three_digits, times)]
        limit = f"<= {timing.at_most:g}" if timing.at_most else ""
        benchmark.add_row(table, name, numbers, limit, timing.is_kept)
    return table


def run(
    *,
    points: int = 1_000_000,
    repeat: int = 10,
    device: str = "cpu",
    only: str = "",
    json: Path | None = None,
    check: bool = False,
    entries: Sequence[BackendEntry] = backend_entries.ENTRIES,
    comparisons: Sequence[Comparison] = backend_entries.COMPARISONS,
) -> int:
    """Time the entries whose name contains `only`, print the tables, and judge if asked to."""
    benchmark.check_device(device)
    entries = [entry for entry in entries if only in entry.name]
    if not entries and only not in MEMORY:
        raise InputError(f"nothing to time has {only!r} in its name")
    where = f"period parallelogram of {backend_entries.LATTICE}"
    setting = {
        "versions": describe_versions(_PACKAGES),
        "platform": platform.platform(),
        "processor": f"{processor_name()}, {cores_and_load()}",
        "threads": "1 (OMP_NUM_THREADS=1, torch.set_num_threads(1))",
        "torch on": device,
        "clock": f"{benchmark.describe_clock(device, repeat)}, alternating with the yardstick",
        "points": f"{points:,}, uniform in the {where}, seed {backend_entries.SEED}",
    }
    console, progress, timings = Console(), Console(stderr=True), []
    benchmark.print_setting(setting, console)
    with benchmark.one_thread(torch_too=any(entry.needs == "torch" for entry in entries)):
        for number, entry in enumerate(entries, start=1):
            note = " (compiles first, which takes up to three minutes)" if entry.compiles else ""
            progress.print(escape(f"{number}/{len(entries)} {entry.name}{note}"), highlight=False)
            with progress.status("compiling and measuring" if note else "measuring"):
                timings.append(measure(entry, points, repeat, device))
        figures = compare(timings, comparisons)
        if only in MEMORY:
            with progress.status(MEMORY):
                figures.append(measure_memory(MEMORY_FACTOR * points))
    timings.insert(0, yardstick_row(timings, points))
    console.print("", timing_table(timings))
    if figures:
        console.print(
            benchmark.quantity_table("Against each other, per point; and memory", figures)
        )
    if json:
        benchmark.write_json(json, setting, timings=timings, figures=figures)
    return benchmark.exit_code(check, timings, figures)
