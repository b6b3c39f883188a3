"""Judging: measured rows against the ceilings of contracts.toml."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from itertools import groupby
from typing import Any

import numpy as np

from verification.measure import Row


@dataclass(frozen=True)
class Verdict:
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
    worst: Row

    @property
    def passes(self) -> bool:
        # NaN compares false with everything, and so fails. Of fewer points than a thousand the
        # percentile is the largest, which has its own ceiling.
        if self.p999_ceiling is None or self.count < 1000:
            return self.largest <= self.ceiling
        return self.largest <= self.ceiling and self.p999 <= self.p999_ceiling


def load_contracts() -> dict[str, Any]:
    return tomllib.loads(files("verification").joinpath("contracts.toml").read_text("utf-8"))


def judge(rows: Iterable[Row], contracts: dict[str, Any]) -> list[Verdict]:
    """Pool the families of each (subject, dtype, function, region) and compare."""

    def key(row: Row) -> tuple[str, str, str, str]:
        return (row.subject, row.dtype, row.function, row.region)

    verdicts = []
    for (subject, dtype, function, region), group in groupby(sorted(rows, key=key), key=key):
        pooled = list(group)
        errors = np.concatenate([row.errors for row in pooled])
        contract = contracts[pooled[0].contract][function][dtype]
        verdicts.append(
            Verdict(
                subject=subject,
                dtype=dtype,
                function=function,
                region=region,
                count=errors.size,
                largest=max(row.worst for row in pooled),
                # A value that occurs, not an interpolated one: infinities have no mean.
                p999=float(np.sort(errors)[math.ceil(0.999 * errors.size) - 1]),
                ceiling=contract["largest"],
                p999_ceiling=contract.get("p999"),
                worst=max(pooled, key=lambda row: row.worst),
            )
        )
    return verdicts
