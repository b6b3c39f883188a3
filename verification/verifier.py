"""Measure every array backend against the oracle, judge the rows, and report them."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import track

from verification import cases, laws, second_opinion
from verification.functions import ARRAY_FUNCTIONS, FUNCTIONS, points_of
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
from verification.subjects import BACKENDS, DEVICES, DTYPES, Skip, Subject, subjects_here
from wefpe_core import WefpeError
from wefpe_core.registry import backend_descriptions
from wefpe_core.reporting import describe_versions

LAW_POINTS = 200
REQUIRABLE = ("torch", "cuda", "flint", "numba")


class Size(NamedTuple):
    """How much is measured."""

    points: int  # of wp, per lattice and region; other functions get their share
    compiled: tuple[str, ...]  # functions that torch compiles too: a minute each
    sample: int  # points per lattice and region where the oracle is checked
    map_side: int  # points along a side of the error map


SIZES = {
    "small": Size(points=8, compiled=(), sample=1, map_side=12),
    "default": Size(points=70, compiled=("wp_and_prime",), sample=2, map_side=32),
    "large": Size(points=700, compiled=ARRAY_FUNCTIONS[:5], sample=20, map_side=96),
}


class NothingToMeasureError(WefpeError, ValueError):
    """The options leave no combination that has a contract."""


class Job(NamedTuple):
    """What makes the rows of one place in the report."""

    subject: Subject
    dtype: str
    function: str
    family: str
    region: str


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
    """Measure, print, and write what is asked for; 1 if something fails, 0 if everything holds."""
    if output:
        prepare_output(output, "matplotlib")
    compiled = SIZES[size].compiled if compiled is None else compiled
    report, rows = run(size, backends, devices, dtypes, functions, compiled, required)
    # Output that goes into a file or a pipe has no width to keep to.
    print_report(report, Console(width=None if sys.stdout.isatty() else 150))
    if output:
        from verification.precision_page import write_files

        write_files(report, rows, output, map_side=SIZES[size].map_side)
        print(f"written to {output}: report.json, report.md, report.html")
    if record_baselines:
        path = Path(__file__).with_name("baselines.json")
        record(report.judged, report.setting, path)
        print(f"baselines written to {path}")
    return 1 if report.failures else 0


def run(
    size: str,
    backends: Sequence[str],
    devices: Sequence[str],
    dtypes: Sequence[str],
    functions: Sequence[str],
    compiled: Sequence[str],
    required: Sequence[str],
) -> tuple[PrecisionReport, list[Row]]:
    contracts, baselines = load_contracts(), load_baselines()
    wanted = SIZES[size]
    start = time.perf_counter()
    subjects, skipped = subjects_here(backends, devices, compiled)
    jobs = jobs_of(subjects, functions, dtypes, contracts)
    if not jobs:
        reasons = "".join(f"; {skip.name}: {skip.reason}" for skip in skipped)
        raise NothingToMeasureError(f"nothing to measure with these options{reasons}")
    rows = list(measure_all(jobs, wanted.points))
    judged = judge(rows, contracts, baselines)
    ceiling = contracts["laws"]["residual"]["complex128"]["largest"]
    lawful = [s for s in subjects if s.functions is None and s.contract == "accuracy"]
    agreements, without = second_opinion.agreements(wanted.sample)
    packages = [row.package for row in backend_descriptions() if row.package]
    report = PrecisionReport(
        setting={
            "versions": describe_versions(["wefpe", *packages, "numba"]),
            "platform": f"{platform.system()} {platform.machine()}{emulated_cuda.note()}",
            "size": f"{size}, {sum(row.errors.size for row in rows):,} values",
            "seconds": f"{time.perf_counter() - start:.0f}",
        },
        judged=judged,
        laws=[residual for subject in lawful for residual in law_residuals(subject, ceiling)],
        agreements=agreements,
        loose=loose_contracts(judged),
        skipped=[*skipped, *skipped_by_options(required, jobs, skipped), *without],
        required=required,
    )
    return report, rows


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
        for family in cases.FAMILIES
        for region in FUNCTIONS[function].regions
        for subject in subjects
        if subject.functions is None or function in subject.functions
        if dtype in subject.dtypes
        if dtype in contracts[subject.contract].get(FUNCTIONS[function].values[0], ())
    ]


def measure_all(jobs: Sequence[Job], points: int) -> Iterator[Row]:
    for job in track(jobs, "measuring", console=Console(stderr=True)):
        yield from measure(
            job.subject,
            dtype=job.dtype,
            function=job.function,
            family=job.family,
            region=job.region,
            count=points_of(FUNCTIONS[job.function], points),
        )


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
    return [
        LawResidual(
            law,
            subject.label,
            max(
                laws.residual_in_eps(law, subject, z, other, lattice)
                for lattice in laws.DYADIC_LATTICES
            ),
            ceiling,
        )
        for law in laws.LAWS
    ]
