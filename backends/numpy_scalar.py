"""Few points in double precision, without arrays: the traced kernel as a Python function.

An operation on a NumPy array costs half a microsecond however short the array is, and a kernel
has hundreds. On Python floats they cost twenty nanoseconds. Both paths call NumPy's elementary
functions, whose last bits may differ from those of the module math, and treat the zeros of a
lattice alike, so their values are the same bit for bit. In single precision Python has no numbers
to compute with, and arrays do it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from types import FunctionType
from typing import Any

import numpy as np

from backends.constants import DOUBLE, prepared_for, reals_of
from backends.emitters import ELEMENTARY, python_function
from backends.tracing import KernelFunction, Program, trace_kernel, zeros_of
from wefpe_core.lattice import Lattice

# Up to this many points it is faster than arrays, for every function.
FEW = 16


def values_at(
    points: Iterable[Any], function: KernelFunction, lattice: Lattice
) -> list[tuple[float, ...]] | None:
    """The real outputs of a kernel function at Python numbers; None if arrays have to answer.

    They have to where an operation that gives infinity or NaN in an array raises an error.
    """
    run = _on_lattice(function, lattice)
    try:
        with np.errstate(all="ignore"):
            return [run(z.real, z.imag) for z in points]
    except (ArithmeticError, ValueError):
        return None


@lru_cache(maxsize=512)
def _on_lattice(function: KernelFunction, lattice: Lattice) -> FunctionType:
    """The function of x and y alone: the constants of the lattice are its default arguments."""
    constants = prepared_for(function, lattice, DOUBLE)
    program, compiled = _compiled(function, zeros_of(constants))
    numbers = reals_of(constants)
    table = tuple(numbers[int(name[1:])] for name in program.inputs[2:])
    return FunctionType(compiled.__code__, compiled.__globals__, compiled.__name__, argdefs=table)


@lru_cache(maxsize=64)
def _compiled(function: KernelFunction, zeros: str) -> tuple[Program, FunctionType]:
    program = trace_kernel(function, DOUBLE, zeros)
    elementary = {name: getattr(np, name) for name in ELEMENTARY}
    return program, python_function(program, function.__name__, elementary)
