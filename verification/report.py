"""One run of the verifier as data: what was measured, judged and skipped, and on what machine."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

from verification.functions import FUNCTIONS
from verification.judge import Verdict
from verification.laws import LAWS
from verification.measure import Point
from verification.page import markdown_table
from verification.second_opinion import Agreement
from verification.subjects import Skip
from wefpe_core import Lattice
from wefpe_core.registry import backend_descriptions

YARDSTICK = (
    "|got - want| / (|f| + |z_r f'| + p^-k) in eps of the dtype, with z_r the exact argument "
    "minus its nearest lattice point and p the shortest period; want from mpmath at two precisions"
)
HEADINGS = (
    *("backend", "dtype", "value", "region", "points", "p99.9", "largest", "baseline", "ceiling"),
    *("worst in", "verdict"),
)
_PACKAGES = ("wefpe", *(row.package for row in backend_descriptions() if row.package))


@dataclass(frozen=True)
class LawResidual:
    """How well a backend's own values obey one law, in eps of the sum of absolute terms."""

    law: str
    subject: str
    largest: float
    ceiling: float

    @property
    def holds(self) -> bool:
        return self.largest <= self.ceiling


@dataclass(frozen=True)
class Report:
    """Everything the printed, Markdown, JSON and HTML forms are made of."""

    circumstances: Mapping[str, str]
    verdicts: Sequence[Verdict]
    laws: Sequence[LawResidual]
    agreements: Sequence[Agreement]
    loose: Sequence[str]
    skipped: Sequence[Skip]
    required: Sequence[str] = field(default_factory=tuple)

    @property
    def failures(self) -> list[str]:
        """One line for everything that is wrong; none if the run passes."""
        found = [describe_failure(v) for v in self.verdicts if not v.passes]
        found += [
            f"{r.subject}, {r.law}: {r.largest:.3g} eps, above the ceiling of {r.ceiling:g}"
            for r in self.laws
            if not r.holds
        ]
        found += [
            f"the oracle and {a.source} differ on {a.function} by {a.largest:.2g}"
            for a in self.agreements
            if not a.holds
        ]
        found += [f"contract too loose: {text}" for text in self.loose]
        found += [
            f"required, but skipped: {skip.name}: {skip.reason}"
            for skip in self.skipped
            if skip.name in self.required
        ]
        return found

    @property
    def count(self) -> int:
        return len(self.verdicts) + len(self.laws) + len(self.agreements)

    @property
    def summary(self) -> str:
        failures = len(self.failures)
        skips = f", {len(self.skipped)} skipped" if self.skipped else ""
        return f"{self.count} rows measured, {failures} failures{skips}"


def circumstances(**more: str) -> dict[str, str]:
    """What a reader has to know to repeat or distrust the figures."""

    def version(name: str) -> str:
        try:
            return f"{name} {metadata.version(name)}"
        except metadata.PackageNotFoundError:
            return f"{name} not installed"

    return {
        "versions": ", ".join([f"Python {platform.python_version()}", *map(version, _PACKAGES)]),
        "platform": f"{platform.system()} {platform.machine()}",
        **more,
    }


def cells(verdict: Verdict) -> list[str]:
    """A row of the table, in the order of `HEADINGS`."""
    baseline = "" if verdict.baseline is None else f"{verdict.baseline:.2f}"
    return [
        *(verdict.subject, verdict.dtype, verdict.function, verdict.region),
        *(f"{verdict.count:,}", f"{verdict.p999:.2f}", f"{verdict.largest:.2f}"),
        *(baseline, f"{verdict.ceiling:g}", verdict.worst.family),
        "holds" if verdict.passes else "FAILS",
    ]


def hex_point(point: Point, lattice: Lattice) -> str:
    """A place in numbers that paste back exactly."""

    def number(z: complex) -> str:
        return f"complex(float.fromhex('{z.real.hex()}'), float.fromhex('{z.imag.hex()}'))"

    arguments = "".join(f"{number(z)}, " for z in point)
    halves = (complex(lattice.omega1), complex(lattice.omega3))
    return f"{arguments}Lattice({', '.join(map(number, halves))})"


def describe_failure(verdict: Verdict) -> str:
    return (
        f"{verdict.subject} {verdict.dtype} {verdict.function}, {verdict.region}: "
        f"{verdict.largest:.3g} eps (99.9 %: {verdict.p999:.3g}), {'; '.join(verdict.problems)}; "
        f"worst at {hex_point(*verdict.worst.worst_place)}"
    )


def row_of(verdict: Verdict) -> dict[str, Any]:
    """A verdict as JSON has it."""
    names = ("subject", "dtype", "function", "region", "count", "largest", "p999", "ceiling")
    known = {name: getattr(verdict, name) for name in (*names, "p999_ceiling", "baseline")}
    return known | {
        "family": verdict.worst.family,
        "worst_at": hex_point(*verdict.worst.worst_place),
        "problems": verdict.problems,
    }


def summary_table(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Headings and lines: the largest error of each value over all regions, by backend."""
    subjects = list(dict.fromkeys(row["subject"] for row in rows))
    order = [value for function in FUNCTIONS.values() for value in function.values]
    pooled: dict[tuple[int, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        pooled.setdefault((order.index(row["function"]), row["dtype"]), []).append(row)
    lines = []
    for (value, dtype), group in sorted(pooled.items()):
        largest = {
            subject: max((r["largest"] for r in group if r["subject"] == subject), default=None)
            for subject in subjects
        }
        cells = ["" if x is None else f"{x:.2f}" for x in largest.values()]
        lines.append([order[value], dtype, f"{sum(r['count'] for r in group):,}", *cells])
    return ["value", "dtype", "values", *subjects], lines


def law_rows(laws: Sequence[LawResidual]) -> tuple[list[str], list[list[str]]]:
    """Headings and rows: a line for each law, a column for each backend."""
    subjects = list(dict.fromkeys(r.subject for r in laws))
    known = {(r.law, r.subject): r for r in laws}
    rows = [
        [law, *(f"{known[law, s].largest:.2f}" for s in subjects), f"{known[law, s0].ceiling:g}"]
        for law in LAWS
        if subjects and (s0 := subjects[0])
    ]
    return ["law", *subjects, "ceiling"], rows


AGREEMENT_HEADINGS = ("function", "against", "points", "largest difference", "verdict")


def agreement_rows(agreements: Sequence[Agreement]) -> list[list[str]]:
    return [
        [a.function, a.source, f"{a.points:,}", f"{a.largest:.1e}", "holds" if a.holds else "FAILS"]
        for a in agreements
    ]


def as_markdown(report: Report) -> str:
    headings, rows = law_rows(report.laws)
    parts = [
        "# Precision report\n",
        "\n".join(f"- {key}: {value}" for key, value in report.circumstances.items()) + "\n",
        *(f"- skipped {skip.name}: {skip.reason}\n" for skip in report.skipped),
        f"{report.summary}.\n",
        *(f"- **{failure}**\n" for failure in report.failures),
        f"## Largest errors\n\n{YARDSTICK}.\n",
        markdown_table(*summary_table([row_of(verdict) for verdict in report.verdicts])),
        "## Laws of DLMF chapter 23\n",
        markdown_table(headings, rows),
        "## The oracle against other formulas\n",
        markdown_table(AGREEMENT_HEADINGS, agreement_rows(report.agreements)),
        "## Every row\n",
        markdown_table(HEADINGS, map(cells, report.verdicts)),
    ]
    return "\n".join(parts)


def as_json(report: Report) -> str:
    return json.dumps(
        {
            "circumstances": dict(report.circumstances),
            "summary": report.summary,
            "failures": report.failures,
            "skipped": {skip.name: skip.reason for skip in report.skipped},
            "rows": [row_of(verdict) for verdict in report.verdicts],
            "laws": [vars(residual) | {"holds": residual.holds} for residual in report.laws],
            "oracle": [vars(a) | {"holds": a.holds} for a in report.agreements],
        },
        indent=1,
    )
