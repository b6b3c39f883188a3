"""Judge measured rows by the ceilings of contracts.toml and by the recorded baselines.

A contract is promised to users. A baseline is what was last measured: errors may not creep up
under a generous contract, and a contract may not stay generous over a small baseline.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from verification.measure import Row
from wefpe_core import WefpeError

RATCHET = 4.0  # times the baseline: a larger error is a change for the worse
LOOSE = 16.0  # times the baseline: a higher ceiling promises too little
# An error below this many eps is as small as rounding allows; ratios of such errors say nothing.
ROUNDED = 0.5

Contracts = dict[str, Any]
Baselines = Mapping[str, float]


class DamagedFileError(WefpeError, ValueError):
    """A file cannot be used; the message names the file and the key that is wrong."""


@dataclass(frozen=True)
class JudgedRow:
    """One line of the report: all families of one function and region, and whether it passes."""

    subject: str
    dtype: str
    function: str
    region: str
    count: int
    largest: float
    p999: float
    ceiling: float
    p999_ceiling: float | None
    worst: Row = field(repr=False)
    baseline: float | None = None

    @property
    def key(self) -> str:
        return f"{self.subject} / {self.dtype} / {self.function} / {self.region}"

    @property
    def problems(self) -> list[str]:
        """Why the row fails, if it does. NaN compares false with everything, so it fails."""
        found = []
        if not self.largest <= self.ceiling:
            found.append(f"above the ceiling of {self.ceiling:g}")
        # With fewer than a thousand points the percentile is the largest error, judged above.
        p999_ceiling = math.inf if self.p999_ceiling is None else self.p999_ceiling
        if self.count >= 1000 and not self.p999 <= p999_ceiling:
            found.append(f"99.9 % of the points are not below {p999_ceiling:g}")
        baseline = math.inf if self.baseline is None else self.baseline
        if not self.largest <= RATCHET * max(baseline, ROUNDED):
            found.append(f"more than {RATCHET:g} times the baseline of {baseline:.3g}")
        return found

    @property
    def passes(self) -> bool:
        return not self.problems


def load_contracts(path: Path | None = None) -> Contracts:
    """Read the ceilings; DamagedFileError names the key that is wrong."""
    source = path or files("verification").joinpath("contracts.toml")
    try:
        contracts = tomllib.loads(source.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise DamagedFileError(f"{source}: {error}") from error
    for table, functions in contracts.items():
        for function, dtypes in _mapping(source, table, functions).items():
            for dtype, ceilings in _mapping(source, f"{table}.{function}", dtypes).items():
                key = f"{table}.{function}.{dtype}"
                if "largest" not in _mapping(source, key, ceilings):
                    raise DamagedFileError(f"{source}: {key} has no 'largest'")
                for name, value in ceilings.items():
                    if name not in ("largest", "p999") or not (_is_size(value) and value):
                        raise DamagedFileError(
                            f"{source}: {key}.{name} = {value!r} is not a positive ceiling"
                        )
    return contracts


def _mapping(source: Any, key: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DamagedFileError(f"{source}: {key} must be a table, got {value!r}")
    return value


def _is_size(value: Any) -> bool:
    """A number that is neither negative nor infinite."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < math.inf


def load_baselines(path: Path | None = None) -> Baselines:
    """Read the largest errors by row, as `record` wrote them; DamagedFileError names a bad one."""
    source = path or files("verification").joinpath("baselines.json")
    try:
        known = json.loads(source.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DamagedFileError(f"{source}: {error}") from error
    rows = known.get("largest") if isinstance(known, dict) else None
    if not isinstance(rows, dict):
        raise DamagedFileError(f"{source}: no table 'largest'")
    for key, value in rows.items():
        if not _is_size(value):
            raise DamagedFileError(f"{source}: {key!r}: {value!r} is not an error in eps")
    return rows


def record(judged: Iterable[JudgedRow], setting: Mapping[str, str], path: Path) -> None:
    """Write what was measured as the new baselines; rows that were not measured keep theirs."""
    rows = dict(load_baselines(path)) if path.exists() else {}
    rows |= {row.key: round(row.largest, 3) for row in judged}
    text = {"recorded": dict(setting), "largest": dict(sorted(rows.items()))}
    path.write_text(json.dumps(text, indent=1) + "\n", encoding="utf-8")


def judge(
    rows: Iterable[Row], contracts: Contracts, baselines: Baselines | None = None
) -> list[JudgedRow]:
    """Pool the families of each (subject, dtype, function, region) and compare with ceilings."""

    def key(row: Row) -> tuple[str, str, str, str]:
        return (row.subject, row.dtype, row.function, row.region)

    judged = []
    for (subject, dtype, function, region), group in groupby(sorted(rows, key=key), key=key):
        pooled = list(group)
        errors = np.concatenate([row.errors for row in pooled])
        contract = contracts[pooled[0].contract][function][dtype]
        row = JudgedRow(
            subject=subject,
            dtype=dtype,
            function=function,
            region=region,
            count=errors.size,
            largest=max(row.worst for row in pooled),
            # Not interpolated: two infinities have no mean.
            p999=float(np.sort(errors)[math.ceil(0.999 * errors.size) - 1]),
            ceiling=contract["largest"],
            p999_ceiling=contract.get("p999"),
            worst=max(pooled, key=lambda row: row.worst),
        )
        judged.append(replace(row, baseline=(baselines or {}).get(row.key)))
    return judged


def loose_contracts(judged: Iterable[JudgedRow]) -> list[str]:
    """Contracts whose ceiling is far above every baseline of the rows that they cover."""
    groups: dict[tuple[str, str, str], list[JudgedRow]] = {}
    for row in judged:
        if row.baseline is not None:
            place = (row.worst.contract, row.function, row.dtype)
            groups.setdefault(place, []).append(row)
    found = []
    for place, covered in sorted(groups.items()):
        baseline = max(row.baseline or 0.0 for row in covered)
        ceiling = covered[0].ceiling
        if ceiling > LOOSE * max(baseline, ROUNDED):
            found.append(
                f"{'.'.join(place)}: the ceiling of {ceiling:g} is more than {LOOSE:g} times "
                f"the largest baseline, {baseline:.3g}"
            )
    return found
