"""What an evaluation is, whoever runs it: functions, rows of results, tables, programs.

A *table* is a flat list of all constants of a lattice. An evaluation takes points and a table, and
gives rows of complex numbers: the values of a function, then their slopes. Both the preparation of
a table and an evaluation can be traced to a `Program`, which is compiled for whoever runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Literal, NamedTuple

from backends import algebra, derived, heat, kernel, mirrors, slopes
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

    values: Callable[..., Any]  # a `KernelFunction`, or one of several arguments in place of z
    slopes: Callable[..., slopes.ValuesAndSlopes]
    rows: int  # complex values it returns; those of a real function have the imaginary part 0
    numbers: int = 2  # real ones that make a point: z, and what there may be beside it


FUNCTIONS = {
    "wp_and_prime": OperatorFunction(kernel.wp_and_prime, slopes.wp_and_prime, rows=2),
    "zeta": OperatorFunction(kernel.zeta, slopes.zeta, rows=1),
    "sigma": OperatorFunction(kernel.sigma, slopes.sigma, rows=1),
    "green": OperatorFunction(kernel.green, slopes.green, rows=1),
    "inverse_wp": OperatorFunction(algebra.inverse_wp, slopes.inverse_wp, rows=1),
    "log_heat": OperatorFunction(heat.log_heat, heat.log_heat_slopes, rows=1, numbers=3),
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
    for name, (values, of_values, rows, _) in FUNCTIONS.items()
    if values in mirrors.SYMMETRIES
}
PLAIN_FUNCTIONS |= {
    name + mirrors.SUFFIX: mirrors.mirrored(function)
    for name, function in PLAIN_FUNCTIONS.items()
    if function in mirrors.SYMMETRIES
}


def slopes_in_points(function: str, points_are: str) -> int:
    """How many slopes a value has in its point: in z, or its coordinates, and in what is beside."""
    return FUNCTIONS[function].numbers - (points_are == "z")


def slopes_of(function: str, points_are: str, variables: int) -> int:
    """How many slopes `rows_of` gives for each value."""
    return (variables & 1) * slopes_in_points(function, points_are) + (variables & 2)


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

    The `variables` are 0 without slopes; 1 for what makes the point: z, or both coordinates, and t
    if there is one; 2 for omega1 and omega3; 3 for all of these.
    """
    moves = points_are == "coordinates"
    x, y, *others = points
    z: Any = _in_reduced_basis(ops, (x, y), lattice.matrix) if moves else Pair(x, y)
    z = (z, *others) if others else z
    if variables == 0:
        formula = PLAIN_FUNCTIONS.get(function) or FUNCTIONS[function].values
        values = formula(ops, z, lattice.constants, precision)
        values = values if isinstance(values, tuple) else (values,)
        return [v if isinstance(v, Pair) else Pair(v, 0.0 * v) for v in values], []
    matrix = None if variables == 1 else lattice.matrix
    found = FUNCTIONS[function].slopes(ops, z, lattice.constants, precision, matrix)
    by_value = []
    for in_z, *rest in found.slopes:
        beside, in_omegas = rest[: len(others)], rest[len(others) :]
        in_point = [in_z]
        if moves:  # the point moves with the half-periods
            in_point = [in_z * omega for omega in _half_periods(lattice)]
            pairs = zip(in_omegas, (x, y), strict=False)
            in_omegas = [slope + in_z.scale(along) for slope, along in pairs]
        by_value.append([*in_point, *beside, *in_omegas] if variables & 1 else in_omegas)
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


def _half_periods(lattice: PreparedLattice) -> tuple[Pair, Pair]:
    """omega1 and omega3, by the inverse of the matrix of `_in_reduced_basis`."""
    c, ((p, q), (r, s)) = lattice.constants, lattice.matrix
    half = 0.5 / c.unit
    a, b = (
        Pair(re.high * half, im.high * half)
        for re, im in ((c.period1_re, c.period1_im), (c.period3_re, c.period3_im))
    )
    return a.scale(s) - b.scale(q), b.scale(p) - a.scale(r)


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

    @property
    def parts_of_point(self) -> tuple[str, ...]:
        """The names of the numbers that make a point."""
        beside = 0 if self.function in PLAIN_FUNCTIONS else FUNCTIONS[self.function].numbers - 2
        return ("x", "y", *(f"x{k}" for k in range(1, beside + 1)))


@cache
def preparation_program(precision: Precision, with_slopes: bool) -> Program:
    """From the parts of the half-periods to the numbers of a table."""

    def run(ops: ArrayOps, *omega: Any) -> Any:
        return tuple(flat_constants(constants_of_parts(ops, omega, precision, with_slopes)))

    return trace(run, OMEGA)


@cache
def evaluation_program(which: Evaluation) -> Program:
    """From x, y and the numbers t0, t1, ... of a table to rows.

    Its inputs are x, y, for further numbers x1, ..., and those of the table that it needs.
    """
    precision, variables = which.precision, which.variables
    length = LENGTHS[precision.name, which.table_has_slopes]

    point = which.parts_of_point

    def run(ops: ArrayOps, *numbers: Any) -> Any:
        lattice = from_flat(numbers[len(point) :], precision, variables)
        how = (which.points_are, lattice, precision, variables)
        found = rows_of(ops, which.function, numbers[: len(point)], *how)
        return (*found[0], *found[1])

    program = trace(run, (*point, *(f"t{k}" for k in range(length))))
    used = {*program.used_inputs, *point}
    return program._replace(inputs=tuple(name for name in program.inputs if name in used))
