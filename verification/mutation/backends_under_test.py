"""What all checks of mutants use: the backends under test, lattices, ceilings."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from verification import cases, oracle
from verification.functions import FUNCTIONS, PARITY
from verification.judge import judge, load_contracts
from verification.measure import measure
from verification.subjects import Subject
from wefpe_core import Lattice

Array = npt.NDArray[Any]

DTYPES = ("complex128", "complex64")
VALUES_AT_Z = tuple(PARITY)  # wp, wp' and the other functions of one point
CONTRACTS = load_contracts()

SQUARE, OBLIQUE = Lattice(1.0, 1.0j), Lattice(1.25, 0.5 + 1.75j)
TURNED, TALL = Lattice(1.5 - 0.25j, 0.75 + 1.125j), Lattice(0.75, 3.0j)
# In SHIFTED half of b lies between two columns.
SHIFTED, NOT_REDUCED = Lattice(1.0, 0.5 + 1.5j), Lattice(4.5 + 2.25j, 2.75 + 1.625j)
DYADIC = (SQUARE, OBLIQUE, TURNED, TALL, SHIFTED, NOT_REDUCED)


class Backends:
    """Each backend is built when it is first used, on the modules imported at that moment.

    (`get_backend` would return the undamaged backends that it has built before.)
    """

    @cached_property
    def numpy(self) -> Any:
        return self._build("numpy_backend", "NumpyBackend")

    @cached_property
    def torch(self) -> Any:
        return self._build("torch_backend", "TorchBackend")

    @cached_property
    def mpmath(self) -> Any:
        return self._build("mpmath_backend", "MpmathBackend", dps=oracle.DIGITS)

    @cached_property
    def flint(self) -> Any:
        return self._build("flint_backend", "FlintBackend", digits=oracle.DIGITS - 5)

    @cached_property
    def subject(self) -> Subject:
        return Subject("numpy", self.numpy, lambda array: array)

    @property
    def subjects(self) -> tuple[Subject, Subject]:
        """NumPy, and torch with a lattice of plain numbers."""
        import torch

        return self.subject, Subject("torch", self.torch, lambda x: torch.from_numpy(x.copy()))

    def _build(self, module: str, class_name: str, **options: Any) -> Any:
        return getattr(importlib.import_module(f"backends.{module}"), class_name)(**options)


# A check yields a line for each property that does not hold; the name of the function is its name.
Check = Callable[[Backends], Iterator[str]]


def broken_contracts(
    b: Backends, functions: Iterable[str], regions: Iterable[str], count: int
) -> Iterator[str]:
    """The rows of the report, with `count` points per lattice, whose errors exceed a contract."""
    functions = tuple(functions)
    for region in regions:
        for family in cases.FAMILIES:
            for function in functions:
                if region not in FUNCTIONS[function].regions:
                    continue
                for dtype in DTYPES:
                    rows = measure(
                        b.subject,
                        dtype=dtype,
                        function=function,
                        family=family,
                        region=region,
                        count=count,
                    )
                    for row in judge(rows, CONTRACTS):
                        if not row.passes:
                            yield f"{dtype} {row.function}, {region}, {family}"


def reduced_periods(lattice: Lattice) -> tuple[complex, complex]:
    reduced = lattice.reduced()[0]
    return 2 * complex(reduced.omega1), 2 * complex(reduced.omega3)


def is_pole(value: Any) -> Any:
    """Whether each value is the documented ``inf+nanj``."""
    return (np.real(value) == np.inf) & np.isnan(np.imag(value))
