"""Measuring: one row per backend, dtype, device, function, family and region.

Rows are numbers and the point where they are worst; judging them is `verification.judge`'s.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from verification import cases, oracle
from verification.subjects import Subject
from wefpe_core import Lattice, get_backend
from wefpe_core.accuracy import in_eps


@dataclass
class Row:
    """Scaled errors, in eps, of one function in one region of one family of lattices."""

    subject: str  # backend and device, as the report names them
    dtype: str
    function: str
    family: str
    region: str
    errors: npt.NDArray[np.float64] = field(repr=False)
    worst_point: complex
    worst_lattice: Lattice
    contract: str = "accuracy"

    @property
    def worst(self) -> float:
        """The largest error; NaN is worse than any number."""
        return float("inf") if np.isnan(self.errors).any() else float(self.errors.max())


@cache
def arguments(
    function: str, region: str, lattice: Lattice, dtype: str, count: int
) -> npt.NDArray[Any]:
    """Points of the region; for the inverse, the values of wp there."""
    z = cases.points(region, lattice, dtype, count)
    if function != "inverse_wp":
        return z
    return np.asarray(get_backend("numpy").wp(z, lattice))


@cache
def _references(
    function: str, region: str, lattice: Lattice, dtype: str, count: int
) -> tuple[tuple[Any, ...], ...]:
    """Computed once, whatever the number of backends measured against them."""
    return tuple(
        oracle.REFERENCES[function](complex(z), lattice)
        for z in arguments(function, region, lattice, dtype, count)
    )


def measure(
    subject: Subject, *, dtype: str, function: str, family: str, region: str, count: int
) -> list[Row]:
    """Evaluate `subject` on `count` points of every lattice of the family; a row per value."""
    names = oracle.VALUE_NAMES[function]
    errors: dict[str, list[float]] = {name: [] for name in names}
    places: list[tuple[complex, Lattice]] = []
    for lattice in cases.FAMILIES[family]:
        z = arguments(function, region, lattice, dtype, count)
        arrays = subject.evaluate(function, z, lattice=lattice)
        references = _references(function, region, lattice, dtype, count)
        for i, point in enumerate(z):
            places.append((complex(point), lattice))
            for name, array, reference in zip(names, arrays, references[i], strict=True):
                errors[name].append(in_eps(_error(array[i], reference), dtype))
    rows = []
    for name in names:
        array = np.array(errors[name])
        point, lattice = places[int(np.argmax(array))]
        rows.append(
            Row(
                *(subject.label, dtype, name, family, region, array, point, lattice),
                contract=subject.contract,
            )
        )
    return rows


def _error(got: Any, reference: oracle.Reference) -> float:
    """The scaled error; beyond the range of the dtype, infinity or (nearly) zero is right."""
    limits = np.finfo(got.dtype)
    size = abs(reference.value)
    if size > limits.max / 4:
        return 0.0 if np.isinf(got.real) or abs(got) > limits.max / 8 else float("inf")
    if 0 < size < limits.tiny:
        return 0.0 if abs(got) < 2 * limits.tiny else float("inf")
    return reference.error_of(got.item())
