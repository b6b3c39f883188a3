"""Measure one row for each backend, dtype, device, function, family and region.

A row holds errors and points; `verification.judge` judges them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from verification import cases, oracle
from verification.functions import FUNCTIONS, Function
from verification.subjects import Subject
from wefpe_core import Lattice
from wefpe_core.accuracy import in_eps

Point = tuple[complex, ...]  # the arguments of one evaluation, without the lattice


@dataclass(eq=False)  # arrays have no single truth value
class Row:
    """Scaled errors, in eps, of one value in one region of one family of lattices."""

    subject: str  # backend and device, as the report names them
    dtype: str
    function: str  # the name of the value in `Function.values`
    family: str
    region: str
    errors: npt.NDArray[np.float64] = field(repr=False)
    points: list[tuple[Point, Lattice]] = field(repr=False)
    contract: str = "accuracy"

    @property
    def worst(self) -> float:
        """The largest error; NaN is worse than any number."""
        return float("inf") if np.isnan(self.errors).any() else float(self.errors.max())

    @property
    def worst_place(self) -> tuple[Point, Lattice]:
        return self.points[int(np.argmax(self.errors))]  # argmax takes NaN for the largest


@cache
def arguments_at(
    function: str, region: str, lattice: Lattice, dtype: str, count: int
) -> npt.NDArray[Any]:
    return FUNCTIONS[function].arguments(region, lattice, dtype, count)


def references_at(
    function: str, contract: str, region: str, lattice: Lattice, dtype: str, count: int
) -> tuple[tuple[oracle.Answer, ...], ...]:
    """References, which are computed once for all the backends measured against them."""
    # Most contracts share a reference, which takes far longer than what is measured by it.
    reference = FUNCTIONS[function].reference_by(contract)
    return _references_by(reference, function, region, lattice, dtype, count)


@cache
def _references_by(
    reference: Callable[..., tuple[oracle.Answer, ...]],
    *place: Any,
) -> tuple[tuple[oracle.Answer, ...], ...]:
    """A reference at each of the arguments of a place, which is what `arguments_at` takes."""
    return tuple(
        reference(*map(complex, arguments), place[2]) for arguments in arguments_at(*place)
    )


def _values(
    subject: Subject,
    asked: Function,
    tables: Sequence[npt.NDArray[Any]],
    lattices: Sequence[Lattice],
) -> list[tuple[npt.NDArray[Any], ...]]:
    """The values at the arguments of each lattice; in one call, if the function takes none."""
    if not asked.at_once:
        pairs = zip(tables, lattices, strict=True)
        return [asked.evaluate(subject, table, lattice) for table, lattice in pairs]
    arrays = asked.evaluate(subject, np.concatenate(tables), lattices[0])
    ends = np.cumsum([len(table) for table in tables])[:-1]
    return list(zip(*(np.split(array, ends) for array in arrays), strict=True))


def measure(
    subject: Subject,
    *,
    dtype: str,
    function: str,
    family: str,
    region: str,
    count: int,
    lattices: int | None = None,
) -> list[Row]:
    """Evaluate `subject` on `count` points of lattices of the family; a row per value.

    `lattices` says on how many of them; None means on all.
    """
    asked = FUNCTIONS[function]
    errors: dict[str, list[float]] = {name: [] for name in asked.values}
    points: list[tuple[Point, Lattice]] = []
    known = cases.lattices_of(family)[:lattices]
    chosen = [subject.lattice_measured(lattice, dtype) for lattice in known]
    tables = [arguments_at(function, region, lattice, dtype, count) for lattice in chosen]
    for lattice, arguments, arrays in zip(
        chosen, tables, _values(subject, asked, tables, chosen), strict=True
    ):
        references = references_at(function, subject.contract, region, lattice, dtype, count)
        for i, numbers in enumerate(arguments):
            points.append((tuple(map(complex, numbers)), lattice))
            for name, array, reference in zip(asked.values, arrays, references[i], strict=True):
                errors[name].append(in_eps(_error(array[i], reference), dtype))
    return [
        Row(
            *(subject.label, dtype, name, family, region, np.array(errors[name]), points),
            contract=subject.contract,
        )
        for name in asked.values
    ]


def scaled_errors(array: Any, references: Sequence[oracle.Answer]) -> list[float]:
    return [_error(got, reference) for got, reference in zip(array, references, strict=True)]


def _error(got: Any, reference: oracle.Answer) -> float:
    """The scaled error. Beyond the range of the dtype, infinity or nearly zero is right."""
    limits = np.finfo(got.dtype)
    size = abs(reference.value)
    if size > limits.max / 4:
        return 0.0 if np.isinf(got.real) or abs(got) > limits.max / 8 else float("inf")
    if 0 < size < limits.tiny and abs(got) < 2 * limits.tiny:
        return 0.0
    return reference.error_of(got.item())
