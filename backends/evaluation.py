"""What an evaluation is, whoever runs it: functions, rows of results, tables, programs.

A *table* is a flat list of all constants of a lattice. An evaluation takes points and a table, and
gives rows of complex numbers: the values of a function, then their slopes. Both the preparation of
a table and an evaluation can be traced to a `Program`, which is compiled for whoever runs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Literal, NamedTuple

from backends import algebra, derived, kernel, mirrors, slopes
from backends.argument import LatticeCoordinates
from backends.constants import DOUBLE, SINGLE, Precision, map_reals, without_slopes
from backends.pair import ArrayOps, Pair
from backends.preparation import PreparedLattice, in_layout_of_numbers, prepare
from backends.tracing import KernelFunction, Program, trace
from wefpe_core.backend import LARGEST_ORDER
from wefpe_core.lattice import Lattice

# What the points of an evaluation are: complex numbers z, or the real coordinates (s, t) of
# z = s omega1 + t omega3, which move with the lattice.
PointsAre = Literal["z", "coordinates"]

OMEGA = ("w0", "w1", "w2", "w3")  # the real and imaginary parts of omega1 and omega3


class OperatorFunction(NamedTuple):
    """A function that `wefpe::evaluate` knows."""

    values: KernelFunction
    slopes: slopes.SlopeFunction
    rows: int  # complex values it returns; those of a real function have the imaginary part 0


FUNCTIONS = {
    "wp_and_prime": OperatorFunction(kernel.wp_and_prime, slopes.wp_and_prime, rows=2),
    "zeta": OperatorFunction(kernel.zeta, slopes.zeta, rows=1),
    "sigma": OperatorFunction(kernel.sigma, slopes.sigma, rows=1),
    "green": OperatorFunction(kernel.green, slopes.green, rows=1),
    "inverse_wp": OperatorFunction(algebra.inverse_wp, slopes.inverse_wp, rows=1),
}

# Functions without slopes by theorem: torch differentiates the series of these.
PLAIN_FUNCTIONS: dict[str, KernelFunction] = {
    "log_sigma": derived.log_sigma,
    "modified_zeta": derived.modified_zeta,
    "modified_sigma": derived.modified_sigma,
    **{f"wp_derivative_{n}": derived.wp_derivative(n) for n in range(LARGEST_ORDER + 1)},
}

# The same functions on lattices that conjugation maps to themselves.
FUNCTIONS |= {
    name + mirrors.SUFFIX: OperatorFunction(
        mirrors.mirrored(values), mirrors.with_mirrored_slopes(values, of_values), rows
    )
    for name, (values, of_values, rows) in FUNCTIONS.items()
    if values in mirrors.SYMMETRIES
}
PLAIN_FUNCTIONS |= {
    name + mirrors.SUFFIX: mirrors.mirrored(function)
    for name, function in PLAIN_FUNCTIONS.items()
    if function in mirrors.SYMMETRIES
}


def name_on(lattice: Lattice, function: str) -> str:
    """The name of a function of these tables that a lattice of numbers needs."""
    name = function + mirrors.SUFFIX
    is_known = name in FUNCTIONS or name in PLAIN_FUNCTIONS
    return name if is_known and mirrors.has_mirrors(lattice) else function


def rows_of(
    ops: ArrayOps,
    function: str,
    points: Sequence[Any],
    points_are: str,
    lattice: PreparedLattice,
    precision: Precision,
    variables: int,
) -> tuple[list[Pair], list[Pair]]:
    """The values, and the slopes of all values in the first variable, then in the next.

    The `variables` are counted: 0 without slopes; 1 for z; 2 for omega1 and omega3; 3 for all of
    these. With coordinates, which have no slopes, there are 0 or 2.
    """
    moves = points_are == "coordinates"
    z: Any = _in_reduced_basis(ops, points, lattice.matrix) if moves else Pair(*points)
    if variables == 0:
        formula = PLAIN_FUNCTIONS.get(function) or FUNCTIONS[function].values
        values = formula(ops, z, lattice.constants, precision)
        values = values if isinstance(values, tuple) else (values,)
        return [v if isinstance(v, Pair) else Pair(v, 0.0 * v) for v in values], []
    matrix = None if variables == 1 else lattice.matrix
    found = FUNCTIONS[function].slopes(ops, z, lattice.constants, precision, matrix)
    by_value = found.slopes
    if moves:  # the point moves with the half-periods
        by_value = tuple(
            tuple(slope + in_z.scale(x) for slope, x in zip(in_omegas, points, strict=True))
            for in_z, *in_omegas in found.slopes
        )
    elif variables == 2:
        by_value = tuple(tuple(in_omegas) for _, *in_omegas in found.slopes)
    return list(found.values), [slope for slopes in zip(*by_value, strict=True) for slope in slopes]


def _in_reduced_basis(
    ops: ArrayOps, points: Sequence[Any], matrix: slopes.Matrix
) -> LatticeCoordinates:
    """From half-periods to the periods a = 2 (p omega1 + q omega3), b = 2 (r omega1 + s omega3).

    Whole periods are split off first: what is left is exact, and small near a lattice point.
    """
    (p, q), (r, s) = matrix  # of determinant 1
    along1, along3 = (0.5 * x for x in points)
    whole1, whole3 = ops.rint(along1), ops.rint(along3)
    along1, along3 = along1 - whole1, along3 - whole3
    return LatticeCoordinates(
        m=s * whole1 - r * whole3,
        n=p * whole3 - q * whole1,
        x=s * along1 - r * along3,
        y=p * along3 - q * along1,
    )


# --- Tables --------------------------------------------------------------------------------------


def constants_of_parts(
    ops: ArrayOps, omega: Sequence[Any], precision: Precision, with_slopes: bool
) -> PreparedLattice:
    """The constants of a lattice from the real and imaginary parts of omega1 and omega3."""
    found = prepare(ops, Pair(*omega[:2]), Pair(*omega[2:]), precision, with_slopes)
    return found._replace(constants=in_layout_of_numbers(found.constants, precision))


def flat_constants(lattice: PreparedLattice) -> list[Any]:
    """The numbers of a table in their order: the matrix, then the constants of the series."""
    numbers: list[Any] = [*lattice.matrix[0], *lattice.matrix[1]]
    map_reals(lattice.constants, numbers.append)
    return numbers


def from_flat(numbers: Sequence[Any], precision: Precision, variables: int) -> PreparedLattice:
    """The constants a table holds, with slopes if those in the lattice are wanted."""
    p, q, r, s, *rest = numbers
    series = iter(rest)
    holds_slopes = has_slopes(len(numbers), precision)
    example = EXAMPLES[precision.name, holds_slopes].constants
    constants = map_reals(example, lambda _: next(series))
    if holds_slopes and variables < 2:
        constants = without_slopes(constants)
    return PreparedLattice(constants, ((p, q), (r, s)))


def _example(precision: Precision, with_slopes: bool) -> PreparedLattice:
    examples: list[PreparedLattice] = []

    def run(ops: ArrayOps, *omega: Any) -> Any:
        examples.append(constants_of_parts(ops, omega, precision, with_slopes))
        return ()

    trace(run, OMEGA)
    zeros = map_reals(examples[0].constants, lambda _: 0.0)
    return PreparedLattice(zeros, ((0.0, 0.0), (0.0, 0.0)))


# Any lattice shows how the numbers of a table are arranged, and how many there are. These are made
# at import, because a tracer cannot follow how, and hold zeros, because it would look at them.
EXAMPLES = {
    (precision.name, with_slopes): _example(precision, with_slopes)
    for precision in (SINGLE, DOUBLE)
    for with_slopes in (False, True)
}
LENGTHS = {key: len(flat_constants(example)) for key, example in EXAMPLES.items()}


def has_slopes(length: int, precision: Precision) -> bool:
    """Whether a table of this length holds the slopes of the constants."""
    return length == LENGTHS[precision.name, True]


# --- Programs ------------------------------------------------------------------------------------


class Evaluation(NamedTuple):
    """What decides which program evaluates; `variables` are those of `rows_of`."""

    precision: Precision
    function: str
    points_are: PointsAre
    variables: int
    table_has_slopes: bool

    @property
    def rows(self) -> int:
        return FUNCTIONS[self.function].rows


@cache
def preparation_program(precision: Precision, with_slopes: bool) -> Program:
    """From the parts of the half-periods to the numbers of a table."""

    def run(ops: ArrayOps, *omega: Any) -> Any:
        return tuple(flat_constants(constants_of_parts(ops, omega, precision, with_slopes)))

    return trace(run, OMEGA)


@cache
def evaluation_program(which: Evaluation) -> Program:
    """From x, y and the numbers t0, t1, ... of a table to rows.

    Its inputs are x, y and those of the others that it needs.
    """
    precision, variables = which.precision, which.variables
    length = LENGTHS[precision.name, which.table_has_slopes]

    def run(ops: ArrayOps, x: Any, y: Any, *numbers: Any) -> Any:
        lattice = from_flat(numbers, precision, variables)
        how = (which.points_are, lattice, precision, variables)
        found = rows_of(ops, which.function, (x, y), *how)
        return (*found[0], *found[1])

    program = trace(run, ("x", "y", *(f"t{k}" for k in range(length))))
    used = set(program.used_inputs) | {"x", "y"}
    return program._replace(inputs=tuple(name for name in program.inputs if name in used))
