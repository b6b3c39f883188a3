"""Measure every array backend against the oracle and judge it.

Prints the accuracy rows, the laws and how the oracle compares with other formulas; with --output
also writes them as JSON, Markdown and one HTML page with pictures. The exit code is 0 if
everything holds, 1 if something fails, 2 if the question cannot be asked: nothing to measure, or
nowhere to write.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import track

from verification import cases, laws, second_opinion
from verification.functions import FUNCTIONS, points_of
from verification.judge import (
    Contracts,
    DamagedFileError,
    judge,
    load_baselines,
    load_contracts,
    loose_contracts,
    record,
)
from verification.measure import Row, measure
from verification.report import LawResidual, Report, circumstances
from verification.subjects import (
    ARRAY_FUNCTIONS,
    BACKENDS,
    DEVICES,
    DTYPES,
    Skip,
    Subject,
    subjects_here,
)
from verification.terminal import print_report

LAW_POINTS = 200
REQUIRABLE = ("torch", "cuda", "flint")


class Size(NamedTuple):
    """How much is measured."""

    points: int  # of wp, per lattice and region; other functions get their share
    compiled: tuple[str, ...]  # functions measured in compiled form too: a minute each
    sample: int  # points per lattice and region where the oracle is checked
    map_side: int  # points along a side of the error map


SIZES = {
    "small": Size(points=8, compiled=(), sample=1, map_side=12),
    "default": Size(points=70, compiled=("wp_and_prime",), sample=2, map_side=32),
    "large": Size(points=700, compiled=ARRAY_FUNCTIONS[:5], sample=20, map_side=96),
}


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="wefpe verify",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--size", choices=SIZES, default="default", help="how many points (default: %(default)s)")
    add("--backend", action="append", choices=BACKENDS, help="measure this backend only")
    add("--device", action="append", choices=DEVICES, help="let torch run on this device only")
    add("--dtype", action="append", choices=DTYPES, help="measure this dtype only")
    add("--function", action="append", choices=FUNCTIONS, help="measure this function only")
    add(
        "--require",
        type=_names,
        default=(),
        metavar="NAMES",
        help=f"fail if one of these is skipped: {', '.join(REQUIRABLE)} (separated by commas)",
    )
    add("--output", type=Path, metavar="DIR", help="write report.json, report.md and report.html")
    add(
        "--record",
        action="store_true",
        help="make what is measured the new baselines (in the checkout)",
    )
    return parser.parse_args(arguments)


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in REQUIRABLE:
            raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(REQUIRABLE)}")
    return names


class NothingToMeasureError(Exception):
    """The options leave no combination that has a contract."""


class Job(NamedTuple):
    """What makes the rows of one place in the report."""

    subject: Subject
    dtype: str
    function: str
    family: str
    region: str


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
    """What is required and has neither a job nor yet a reason why not."""
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


def run(options: argparse.Namespace) -> tuple[Report, list[Row]]:
    contracts, baselines = load_contracts(), load_baselines()
    size = SIZES[options.size]
    start = time.perf_counter()
    subjects, skipped = subjects_here(
        options.backend or BACKENDS, options.device or DEVICES, size.compiled
    )
    functions, dtypes = options.function or list(FUNCTIONS), options.dtype or DTYPES
    jobs = jobs_of(subjects, functions, dtypes, contracts)
    if not jobs:
        reasons = "".join(f"; {skip.name}: {skip.reason}" for skip in skipped)
        raise NothingToMeasureError(f"nothing to measure with these options{reasons}")
    rows = list(measure_all(jobs, size.points))
    verdicts = judge(rows, contracts, baselines)
    ceiling = contracts["laws"]["residual"]["complex128"]["largest"]
    lawful = [s for s in subjects if s.functions is None and s.contract == "accuracy"]
    agreements, without = second_opinion.agreements(size.sample)
    report = Report(
        circumstances=circumstances(
            size=f"{options.size}, {sum(row.errors.size for row in rows):,} values",
            seconds=f"{time.perf_counter() - start:.0f}",
        ),
        verdicts=verdicts,
        laws=[residual for subject in lawful for residual in law_residuals(subject, ceiling)],
        agreements=agreements,
        loose=loose_contracts(verdicts),
        skipped=[*skipped, *skipped_by_options(options.require, jobs, skipped), *without],
        required=options.require,
    )
    return report, rows


def prepare_output(folder: Path) -> None:
    """Find out before the work that the results can be written."""
    folder.mkdir(parents=True, exist_ok=True)
    probe = folder / ".write-test"
    probe.touch()
    probe.unlink()


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse_arguments(arguments)
    try:
        if options.output:
            from verification import html_report

            prepare_output(options.output)
        report, rows = run(options)
    except (DamagedFileError, NothingToMeasureError) as error:
        return _refuse(str(error))
    except ImportError as error:
        return _refuse(f"--output needs matplotlib (pip install 'wefpe[report]'): {error}")
    except OSError as error:
        return _refuse(f"cannot write to {options.output}: {error.strerror or error}")
    # Piped into a file there is no width to keep to.
    print_report(report, Console(width=None if sys.stdout.isatty() else 150))
    if options.output:
        size = SIZES[options.size]
        html_report.write(report, rows, options.output, map_side=size.map_side)
        print(f"written to {options.output}: report.json, report.md, report.html")
    if options.record:
        path = Path(__file__).with_name("baselines.json")
        record(report.verdicts, report.circumstances, path)
        print(f"baselines written to {path}")
    return 1 if report.failures else 0


def _refuse(reason: str) -> int:
    print(f"python -m verification: {reason}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    raise SystemExit(main())
