"""``python -m verification``: measure every array backend against the oracle and judge it.

Prints the accuracy rows and the laws as tables; the exit code is 0 only if every row holds.
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import mpmath
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from verification import cases, laws, oracle
from verification.judge import Verdict, judge, load_contracts
from verification.measure import Row, measure
from verification.subjects import Subject, default_subjects, torch_subject

DTYPES = ("complex128", "complex64")
LAW_POINTS = 200


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m verification", description=__doc__)
    parser.add_argument(
        "--points",
        type=_positive,
        default=80,
        help="points per lattice and region (default: 80, which pools to 1,200 per row)",
    )
    parser.add_argument(
        "--function",
        action="append",
        choices=list(oracle.REFERENCES),
        help="measure this function only (may be repeated; default: all)",
    )
    parser.add_argument(
        "--compiled",
        action="store_true",
        help="measure the compiled torch backend too (compiling takes minutes)",
    )
    return parser.parse_args(arguments)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a positive integer, got {text!r}")
    return int(text)


def measure_all(
    subjects: list[Subject], functions: list[str], count: int, contracts: dict[str, Any]
) -> Iterator[Row]:
    """Rows of every combination that has a contract."""
    jobs = [
        (subject, dtype, function, family, region)
        for function in functions
        for dtype in DTYPES
        for family in cases.FAMILIES
        for region in cases.REGIONS
        if region not in oracle.REGIONS_LEFT_OUT.get(function, ())
        for subject in subjects
        if dtype in contracts[subject.contract][oracle.VALUE_NAMES[function][0]]
    ]
    for subject, dtype, function, family, region in track(jobs, "measuring"):
        yield from measure(
            subject, dtype=dtype, function=function, family=family, region=region, count=count
        )


def law_residuals(subject: Subject) -> dict[str, float]:
    """The largest residual of each law over the dyadic lattices, in eps."""
    z, other = laws.dyadic_points(LAW_POINTS, seed=cases.SEED)
    return {
        law: max(
            laws.residual_in_eps(law, subject, z, other, lattice)
            for lattice in laws.DYADIC_LATTICES
        )
        for law in laws.LAWS
    }


def accuracy_table(verdicts: list[Verdict]) -> Table:
    table = Table(title="Scaled error in eps", caption=_CAPTION)
    for heading in ("backend", "dtype", "function", "region"):
        table.add_column(heading)
    for heading in ("points", "p99.9", "largest", "ceiling"):
        table.add_column(heading, justify="right")
    table.add_column("worst in")
    table.add_column("")
    for v in verdicts:
        table.add_row(
            *(v.subject, v.dtype, v.function, v.region),
            *(f"{v.count:,}", f"{v.p999:.2f}", f"{v.largest:.2f}", f"{v.ceiling:g}"),
            v.worst.family,
            "[green]holds" if v.passes else "[red bold]FAILS",
        )
    return table


_CAPTION = (
    "|got - want| / (|f| + |z_r f'| + p^-k), z_r the exact argument minus its nearest lattice "
    "point, p the shortest period; want from mpmath at two precisions"
)


def laws_table(residuals: dict[str, dict[str, float]], ceiling: float) -> Table:
    table = Table(title="Laws of DLMF 23: residual over the sum of absolute terms, in eps")
    table.add_column("law")
    for subject in residuals:
        table.add_column(subject, justify="right")
    table.add_column("ceiling", justify="right")
    for law in laws.LAWS:
        cells = [
            f"{r[law]:.2f}" if r[law] <= ceiling else f"[red bold]{r[law]:.3g} FAILS"
            for r in residuals.values()
        ]
        table.add_row(law, *cells, f"{ceiling:g}")
    return table


def describe_failure(verdict: Verdict) -> str:
    """The worst point in numbers that paste back exactly."""
    z, lattice = verdict.worst.worst_point, verdict.worst.worst_lattice
    return (
        f"{verdict.subject} {verdict.dtype} {verdict.function}, {verdict.region}: "
        f"{verdict.largest:.3g} eps (99.9 %: {verdict.p999:.3g}) at "
        f"z = complex(float.fromhex('{z.real.hex()}'), float.fromhex('{z.imag.hex()}')), "
        f"{lattice!r}"
    )


def main(arguments: list[str] | None = None) -> int:
    options = parse_arguments(arguments)
    contracts = load_contracts()
    subjects, skipped = default_subjects()
    if options.compiled and len(subjects) > 1:
        subjects.append(torch_subject("cpu", compile=True))
    console = Console()
    console.print(
        f"wefpe {version('wefpe')}, Python {platform.python_version()}, NumPy {np.__version__}, "
        f"mpmath {mpmath.__version__}, {platform.machine()} {platform.system()}"
    )
    for reason in skipped:
        console.print(f"[yellow]skipped[/] {reason}")
    functions = options.function or list(oracle.REFERENCES)
    verdicts = judge(measure_all(subjects, functions, options.points, contracts), contracts)
    residuals = {
        subject.label: law_residuals(subject)
        for subject in subjects
        if subject.contract == "accuracy"
    }
    law_ceiling = contracts["laws"]["complex128"]
    console.print(accuracy_table(verdicts))
    console.print(laws_table(residuals, law_ceiling))
    failed_rows = [v for v in verdicts if not v.passes]
    failed_laws = sum(not r <= law_ceiling for table in residuals.values() for r in table.values())
    for verdict in failed_rows:
        console.print(f"[red]FAILS[/] {describe_failure(verdict)}", soft_wrap=True)
    failures = len(failed_rows) + failed_laws
    rows = len(verdicts) + sum(len(table) for table in residuals.values())
    console.print(f"{rows - failures} of {rows} rows hold, {failures} fail")
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
