"""What the checks of mutants share: the backends under suspicion, lattices, ceilings."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from verification import oracle
from verification.functions import PARITY
from verification.judge import load_contracts
from verification.subjects import Subject
from wefpe_core import Lattice

Array = npt.NDArray[Any]

DTYPES = ("complex128", "complex64")
OF_POINTS = tuple(PARITY)  # the values that are functions of z
COUNT = 3  # points per lattice and region
CONTRACTS = load_contracts()
INVERSE_CEILING = CONTRACTS["accuracy"]["inverse_wp"]["complex128"]["largest"]
# What the sum of two points is promised to keep, over the sizes of the three values of wp.
ADDITION_PROMISE = 1e-13
# What wp and wp' are promised to keep next to the pole at 0, as plain relative errors.
NEAR_POLE_PROMISE = 2e-15

SQUARE, OBLIQUE = Lattice(1.0, 1.0j), Lattice(1.25, 0.5 + 1.75j)
TURNED, TALL = Lattice(1.5 - 0.25j, 0.75 + 1.125j), Lattice(0.75, 3.0j)
# The last two: one where half of b lies between two columns, and a basis that is not reduced.
DYADIC = (
    *(SQUARE, OBLIQUE, TURNED, TALL),
    *(Lattice(1.0, 0.5 + 1.5j), Lattice(4.5 + 2.25j, 2.75 + 1.625j)),
)


class Backends:
    """Built, when asked for, on the modules imported at that moment, sound or not.

    (`get_backend` would return those it has built before.)
    """

    @cached_property
    def numpy(self) -> Any:
        return self._built("numpy_backend", "NumpyBackend")

    @cached_property
    def torch(self) -> Any:
        return self._built("torch_backend", "TorchBackend")

    @cached_property
    def mpmath(self) -> Any:
        return self._built("mpmath_backend", "MpmathBackend", dps=oracle.DIGITS)

    @cached_property
    def flint(self) -> Any:
        return self._built("flint_backend", "FlintBackend", digits=oracle.DIGITS - 5)

    @cached_property
    def subject(self) -> Subject:
        return Subject("numpy", self.numpy, lambda array: array)

    @property
    def subjects(self) -> tuple[Subject, Subject]:
        """NumPy, and torch with the lattices of numbers it is given."""
        import torch

        return self.subject, Subject("torch", self.torch, lambda x: torch.from_numpy(x.copy()))

    def _built(self, module: str, class_name: str, **options: Any) -> Any:
        return getattr(importlib.import_module(f"backends.{module}"), class_name)(**options)


Check = Callable[[Backends], Iterator[str]]


def reduced_periods(lattice: Lattice) -> tuple[complex, complex]:
    reduced = lattice.reduced()[0]
    return 2 * complex(reduced.omega1), 2 * complex(reduced.omega3)


def is_pole(value: Any) -> Any:
    """The documented value, part by part: inf+nanj."""
    return (np.real(value) == np.inf) & np.isnan(np.imag(value))
