"""How accurate a table of elliptic functions is, as arrays: against mpmath, point by point."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
import numpy.typing as npt

from verification import oracle
from wefpe_core import Lattice
from wefpe_core.accuracy import in_eps

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class TableError:
    """The largest error of a table, in eps of a dtype, and the point that has it."""

    name: str
    dtype: str
    largest: float
    at: int

    @classmethod
    def of(cls, name: str, dtype: str, errors: Sequence[float]) -> TableError:
        """Errors in units of their scale; NaN counts as infinite."""
        sizes = [in_eps(error, dtype) if error == error else float("inf") for error in errors]
        at = int(np.argmax(sizes))
        return cls(name, dtype, sizes[at], at)


def references(function: str, points: Array, lattice: Lattice) -> list[tuple[Any, ...]]:
    """What mpmath says at each point, which is taken as an exact number."""
    ask = getattr(oracle, function)
    return [ask(complex(z), lattice) for z in points]


def value_errors(
    names: Sequence[str], values: Sequence[Array], truth: Sequence[tuple[Any, ...]]
) -> list[TableError]:
    """Scaled errors of the values of a function, in eps of double precision."""
    return [
        TableError.of(
            name,
            "float64",
            [truth[i][k].error_of(value) for i, value in enumerate(column.tolist())],
        )
        for k, (name, column) in enumerate(zip(names, values, strict=True))
    ]


def feature_errors(
    features: Array,
    truth: Sequence[tuple[Any, ...]],
    scale: float,
    compress: Callable[[Any], Any],
) -> list[TableError]:
    """Errors of bounded features c(s f) relative to the largest of them.

    The features of a point are Re and Im of each value in turn, in double precision or after the
    one cast, whose eps then counts. The truth has thirty digits.
    """
    count = features.shape[1]
    with mpmath.workdps(oracle.DIGITS):
        wanted = []
        for answers in truth:
            parts = [part for each in answers for part in (each.value.real, each.value.imag)]
            wanted.append([compress(mpmath.mpf(scale) * part) for part in parts[:count]])
        largest = max(abs(x) for row in wanted for x in row)
        errors = [
            float(max(abs(mpmath.mpf(got) - want) for got, want in zip(row, point, strict=True)))
            / float(largest)
            for row, point in zip(features.tolist(), wanted, strict=True)
        ]
    return [TableError.of("features", features.dtype.name, errors)]
