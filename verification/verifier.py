"""Measure every array backend against the oracle, judge the rows, and report them."""

from __future__ import annotations

import platform
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from backends.hardware import hardware_of
from verification import cases, laws, search, second_opinion
from verification.functions import ARRAY_FUNCTIONS, FUNCTIONS, lattices_of, points_of
from verification.gpu import emulated_cuda
from verification.html_page import prepare_output
from verification.judge import (
    Contracts,
    judge,
    load_baselines,
    load_contracts,
    loose_contracts,
    record,
)
from verification.measure import Row, measure
from verification.precision_report import LawResidual, PrecisionReport, print_report
from verification.receipts import Place, receipts_of
from verification.second_opinion import Agreement
from verification.subjects import (
    BACKENDS,
    DEVICES,
    DTYPES,
    Skip,
    Subject,
    subjects_here,
    with_declared,
)
from wefpe_core import UnsupportedFunctionError, WefpeError
from wefpe_core.receipts import Need, Receipt, fingerprint, receipts_folder, write_receipt
from wefpe_core.registry import backend_descriptions
from wefpe_core.reporting import describe_versions, git_commit, processor_name

LAW_POINTS, LAW_DTYPE = 200, "complex128"
REQUIRABLE = ("torch", "jax", "cuda", "flint", "numba", "scipy")


class Size(NamedTuple):
    """How much is measured."""

    points: int  # of wp, per lattice and region; other functions get their share
    compiled: tuple[str, ...]  # functions that torch compiles too: a minute each
    sample: int  # points per lattice and region where the oracle is checked
    map_side: int  # points along a side of the error map
    lattices: int | None = None  # of each family; None means all


SIZES = {
    "small": Size(points=8, compiled=(), sample=1, map_side=12),
    "default": Size(points=70, compiled=("wp_and_prime",), sample=2, map_side=32),
    "large": Size(points=700, compiled=ARRAY_FUNCTIONS[:5], sample=20, map_side=96),
}
# What a run that is about to start waits for: its functions only, neither laws nor the oracle.
QUICK = Size(points=4, compiled=(), sample=0, map_side=0, lattices=1)
INTERRUPTED = 130  # the exit code of a command that was interrupted


class NothingToMeasureError(WefpeError, ValueError):
    """The options leave no combination that has a contract."""


def _nothing_to_measure(skipped: Sequence[Skip]) -> NothingToMeasureError:
    reasons = "".join(f"; {skip.name}: {skip.reason}" for skip in dict.fromkeys(skipped))
    return NothingToMeasureError(f"nothing to measure with these options{reasons}")


class Job(NamedTuple):
    """What makes the rows of one place in the report."""

    subject: Subject
    dtype: str
    function: str
    family: str
    region: str


@dataclass(frozen=True)
class Plan:
    """What is to be measured."""

    size: Size
    title: str  # of the size, for the report and the receipts
    backends: Sequence[str] = BACKENDS
    devices: Sequence[str] = DEVICES
    dtypes: Sequence[str] = DTYPES
    functions: Sequence[str] = tuple(FUNCTIONS)
    compiled: Sequence[str] = ()
    required: Sequence[str] = ()
    forms: Sequence[str] | None = None  # as in `Place.form`; None means all

    @property
    def is_quick(self) -> bool:
        return self.size is QUICK


def verify(
    *,
    size: str = "default",
    backends: Sequence[str] = BACKENDS,
    devices: Sequence[str] = DEVICES,
    dtypes: Sequence[str] = DTYPES,
    functions: Sequence[str] = tuple(FUNCTIONS),
    compiled: Sequence[str] | None = None,
    required: Sequence[str] = (),
    output: Path | None = None,
    record_baselines: bool = False,
) -> int:
    """Measure, print, and write what is asked for; 1 if something fails, 0 if everything holds.

    An interruption ends the measuring and not the report, which then says that it is incomplete.
    """
    if output:
        prepare_output(output)
    compiled = SIZES[size].compiled if compiled is None else compiled
    plan = Plan(SIZES[size], size, backends, devices, dtypes, functions, compiled, required)
    report, rows = run(plan)
    receipts = receipts_of(report, size)
    kept = keep_receipts(receipts)
    # Output that goes into a file or a pipe has no width of its own.
    console = Console(width=None if sys.stdout.isatty() else 80)
    print_report(report, console, receipts, group=lambda label: Place.of(label).title)
    if kept:
        print(kept)
    if output:
        from verification.precision_page import NO_PICTURES, write_files

        written = write_files(report, rows, output, receipts, map_side=SIZES[size].map_side)
        print(f"written to {output}: {written}")
        if find_spec("matplotlib") is None:
            print(f"without pictures: {NO_PICTURES}")
    if report.interrupted:
        return INTERRUPTED
    if record_baselines:
        path = Path(__file__).with_name("baselines.json")
        record(report.judged, report.setting, path)
        print(f"baselines written to {path}")
    return 1 if report.failures else 0


def verify_quickly(backend: str, device: str, needs: Sequence[Need]) -> Receipt:
    """Measure what is needed on a few points, and keep the receipt: some ten seconds.

    `NothingToMeasureError` says why a need cannot be measured here.
    """
    plan = Plan(
        QUICK,
        "quick",
        backends=[backend],
        devices=[device],
        dtypes=list(dict.fromkeys(need.dtype for need in needs)),
        functions=list(dict.fromkeys(need.function for need in needs)),
        forms=list(dict.fromkeys(need.form for need in needs)),
    )
    report, _ = run(plan)
    if report.interrupted:
        raise KeyboardInterrupt
    found = [r for r in receipts_of(report, plan.title) if r.covers(needs)]
    if not found:
        missing = ", ".join(f"{n.function} ({n.dtype}{n.form and ', '}{n.form})" for n in needs)
        lacking = [skip.reason for skip in report.skipped if skip.name in plan.functions]
        why = "; ".join(lacking) or "there is no contract for it"
        raise NothingToMeasureError(
            f"{backend} on {device} cannot be verified for {missing}: {why}"
        )
    write_receipt(found[0], receipts_folder())
    return found[0]


def keep_receipts(receipts: Sequence[Receipt]) -> str:
    """Write receipts into the folder of this environment; a line that says so, or why not."""
    folder = receipts_folder()
    try:
        for receipt in receipts:
            write_receipt(receipt, folder)
    except OSError as error:  # what was measured must not be lost for it
        return f"no receipt is kept: {error}"
    return f"receipts are kept in {folder}" if receipts else ""


def run(plan: Plan) -> tuple[PrecisionReport, list[Row]]:
    """Measure and judge; what was measured before an interruption is kept."""
    contracts, baselines = load_contracts(), load_baselines()
    start = time.perf_counter()
    rows: list[Row] = []
    residuals: list[LawResidual] = []
    agreements: list[Agreement] = []
    without: list[Skip] = []
    lacking: dict[tuple[str, str], Skip] = {}  # by the label of the subject and the function
    interrupted = ""
    with _progress(plan) as progress, _termination_interrupts():
        bar = progress.add_task("looking for backends", total=None)
        subjects, skipped = subjects_here(plan.backends, plan.devices, plan.compiled)
        if plan.forms is not None:
            subjects = [s for s in subjects if Place.of(s.label).form in plan.forms]
        places = (Place.of(subject.label) for subject in subjects)
        # Taken before anything is measured: what changes meanwhile makes the receipts stale.
        decided_by = {
            (backend, device): fingerprint(backend, hardware_of(backend, device))
            for backend, device, _ in places
        }
        contracts = with_declared(contracts, subjects)
        jobs = jobs_of(subjects, plan.functions, plan.dtypes, contracts)
        if not jobs:
            raise _nothing_to_measure(skipped)
        lawful = [
            s
            for s in subjects
            if s.functions is None and s.contract != "accuracy_of_tensor_lattices"
            if LAW_DTYPE in s.dtypes
        ]
        lawful = [] if plan.is_quick else lawful
        progress.update(bar, total=len(jobs) + len(lawful) + 1)
        done = 0
        try:
            for job in jobs:
                progress.update(bar, description=f"{job.function}, {job.subject.label}")
                try:
                    rows += measure_job(job, plan.size)
                except UnsupportedFunctionError as error:
                    lacking[job.subject.label, job.function] = Skip(job.function, str(error))
                done += 1
                progress.advance(bar)
            if not rows:
                raise _nothing_to_measure(list(lacking.values()))
            progress.update(bar, description="points that searches found")
            rows += measure_hardest(
                [j for j in jobs if (j.subject.label, j.function) not in lacking]
            )
            ceiling = contracts["laws"]["residual"][LAW_DTYPE]["largest"]
            for subject in lawful:
                progress.update(bar, description=f"laws, {subject.label}")
                residuals += law_residuals(subject, ceiling)
                progress.advance(bar)
            if not plan.is_quick:
                progress.update(bar, description="the oracle against other formulas")
                agreements, without = second_opinion.agreements(plan.size.sample)
        except KeyboardInterrupt:
            if not rows:
                raise
            interrupted = f"interrupted after {done} of {len(jobs)} measurements"
    judged = judge(rows, contracts, baselines)
    packages = [row.package for row in backend_descriptions() if row.package]
    report = PrecisionReport(
        setting={
            "versions": describe_versions(["wefpe", *packages, "numba"]),
            "platform": f"{platform.system()} {platform.machine()}{emulated_cuda.note()}",
            "processor": processor_name(),
            "devices": ", ".join(dict.fromkeys(Place.of(s.label).device for s in subjects)),
            "commit": git_commit(Path(__file__).parent) or "not a git checkout",
            "size": f"{plan.title}, {sum(row.errors.size for row in rows):,} values",
            "seconds": f"{time.perf_counter() - start:.0f}",
        },
        judged=judged,
        laws=residuals,
        agreements=agreements,
        loose=loose_contracts(judged),
        skipped=[
            *skipped,
            *skipped_by_options(plan.required, jobs, skipped),
            *dict.fromkeys(lacking.values()),
            *without,
        ],
        required=plan.required,
        interrupted=interrupted,
        decided_by=decided_by,
    )
    return report, rows


_SECONDS_BETWEEN_LINES = 30.0


class _ProgressLines(Progress):
    """A line at the start and now and then, where no bar can move: in a file, a pipe or a log."""

    def __init__(self, console: Console) -> None:
        super().__init__(console=console, disable=True)  # tasks are counted all the same
        self._next_line = 0.0

    def add_task(self, description: str, *args: Any, **options: Any) -> TaskID:
        task = super().add_task(description, *args, **options)
        self._say()
        return task

    def update(self, task_id: TaskID, **changes: Any) -> None:
        super().update(task_id, **changes)
        self._say()

    def _say(self) -> None:
        task, now = self.tasks[0], time.monotonic()
        if now >= self._next_line:
            self._next_line = now + _SECONDS_BETWEEN_LINES
            share = f"{task.percentage:3.0f} % after {task.elapsed or 0.0:,.0f} s"
            self.console.print(f"{share}: {task.description}", highlight=False, soft_wrap=True)


def _progress(plan: Plan) -> Progress:
    """A bar that moves while the first measurement is under way; lines without a terminal."""
    console = Console(stderr=True)
    if not (console.is_terminal or plan.is_quick):
        return _ProgressLines(console)
    return Progress(
        SpinnerColumn(),
        BarColumn(bar_width=20),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


@contextmanager
def _termination_interrupts() -> Iterator[None]:
    """Within it the signal SIGTERM does what Ctrl-C does."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may handle signals
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def jobs_of(
    subjects: Sequence[Subject],
    functions: Sequence[str],
    dtypes: Sequence[str],
    contracts: Contracts,
) -> list[Job]:
    """Every combination that has a contract."""
    return [
        Job(subject, dtype, function, family, region)
        for function in functions
        for dtype in dtypes
        for family in FUNCTIONS[function].families
        for region in FUNCTIONS[function].regions
        for subject in subjects
        if subject.functions is None or function in subject.functions
        if dtype in subject.dtypes
        if dtype in contracts[subject.contract].get(FUNCTIONS[function].values[0], ())
    ]


def measure_job(job: Job, size: Size) -> list[Row]:
    with job.subject.blamed_for(job.function):
        return measure(
            job.subject,
            dtype=job.dtype,
            function=job.function,
            family=job.family,
            region=job.region,
            count=points_of(FUNCTIONS[job.function], size.points),
            lattices=size.lattices or lattices_of(FUNCTIONS[job.function], size.points),
        )


def measure_hardest(jobs: Sequence[Job]) -> list[Row]:
    """Rows at the points that searches found, for every subject, function and dtype of the jobs."""
    known = search.hardest_points()
    asked = {(job.subject.label, job.function, job.dtype): job.subject for job in jobs}
    rows: list[Row] = []
    for (_, function, dtype), subject in asked.items():
        with subject.blamed_for(function):
            rows += search.hardest_rows(subject, function, dtype, known)
    return rows


def search_for_hardest(
    seconds: float,
    *,
    backends: Sequence[str] = BACKENDS,
    devices: Sequence[str] = DEVICES,
    dtypes: Sequence[str] = DTYPES,
    functions: Sequence[str] = tuple(FUNCTIONS),
    seed: int = search.SEED,
    record_points: bool = False,
) -> int:
    """Climb with every subject, print the largest errors; 1 if one is above its ceiling."""
    subjects, skipped = subjects_here(backends, devices)
    for skip in skipped:
        print(f"skipped: {skip.name}: {skip.reason}")
    found = []
    for one in search.search(subjects, functions, dtypes, load_contracts(), seconds, seed):
        found.append(one)
        point = one.point
        print(
            f"{point.subject} / {point.dtype} / {point.value}: {point.error:.2f} eps, "
            f"{'within' if one.is_kept else 'ABOVE'} the ceiling of {one.ceiling:g}, "
            f"at z={point.z!r}, {point.lattice!r}",
            flush=True,
        )
    if not found:
        raise NothingToMeasureError("nothing to search with these options")
    if record_points:
        path = Path(__file__).with_name("hardest_points.json")
        search.record((one.point for one in found), path)
        print(f"points written to {path}")
    return 0 if all(one.is_kept for one in found) else 1


def skipped_by_options(
    required: Sequence[str], jobs: Sequence[Job], skipped: Sequence[Skip]
) -> list[Skip]:
    """What is required, is not measured, and has no reason yet why not."""
    # The second opinion of flint is asked whatever the options are, and has its own skip.
    accounted = {"flint", *(skip.name for skip in skipped)}
    accounted.update(name for job in jobs for name in job.subject.stands_on)
    return [
        Skip(name, "nothing is measured on it with these options")
        for name in required
        if name not in accounted
    ]


def law_residuals(subject: Subject, ceiling: float) -> list[LawResidual]:
    """The largest residual of each law over the dyadic lattices, in eps."""
    z, other = laws.dyadic_points(LAW_POINTS, seed=cases.SEED)
    found = []
    for law in laws.LAWS:
        with subject.blamed_for(f"the law {law!r}"):
            largest = max(
                laws.residual_in_eps(law, subject, z, other, lattice)
                for lattice in laws.DYADIC_LATTICES
            )
        found.append(LawResidual(law, subject.label, largest, ceiling))
    return found
