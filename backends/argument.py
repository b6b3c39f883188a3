"""Argument reduction: where in which cell a point lies, exactly, for arrays of any library.

The offset from a lattice point is what all functions are computed from, so it must be right to
its last bit: sums are compensated and products exact, so that no compiler's fused multiply-add
can spoil them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from backends.constants import Precision, SeriesConstants, SplitReal
from backends.pair import ArrayOps, Pair


def two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """Sum and its rounding error (Knuth); every step is an addition, so no FMA can break it."""
    total = a + b
    b_rounded = total - a
    return total, (a - (total - b_rounded)) + (b - b_rounded)


def plus_multiples(x: Any, m: Any, a: SplitReal, n: Any, b: SplitReal, precision: Precision) -> Any:
    """``x + m*a + n*b``, summed so that only the last addition rounds.

    The products with `SplitReal.parts` are exact, so it does not matter whether a compiler fuses
    them with the additions. The terms fall into levels, each smaller than the last by a rounding
    error. Two levels do for a generic z. But z may lie next to a lattice point by accident of
    rounding, and then they cancel. Half-periods are doubles, which three floats hold exactly but
    two do not (a period of 2.0000000000000004 and z = 2 in single precision), so single precision
    compensates the second and third level too.
    """
    total, errors = x, []
    for part_a, part_b in zip(a.parts, b.parts, strict=True):
        for product in (n * part_b, m * part_a):
            total, error = two_sum(total, product)
            errors.append(error)
    if precision.half_periods_fit_two_parts:
        small = m * (a.low[0] + a.lowest) + n * (b.low[0] + b.lowest)
        for error in reversed(errors):
            small = small + error
        return total + small
    small, tiny = errors[0], m * a.lowest
    tiny, least = two_sum(tiny, n * b.lowest)
    pieces = [n * piece for piece in b.low] + [m * piece for piece in a.low]
    for term in (*errors[1:], *pieces):
        small, error = two_sum(small, term)
        tiny, error = two_sum(tiny, error)
        least = least + error
    # The total may have cancelled to nothing, and the level below is then the total.
    total, small = two_sum(total, small)
    return total + (small + (tiny + least))


class LatticeCoordinates(NamedTuple):
    """The point (m + x) a + (n + y) b, by real coordinates that have no derivative.

    It stands in place of z. The reduction then adds and subtracts integers, which is exact, and
    needs no compensated sum.
    """

    m: Any  # integers
    n: Any
    x: Any  # small near lattice points, and relatively exact there
    y: Any

    def scale(self, factor: Any) -> LatticeCoordinates:
        """The same point in other units of length: its coordinates do not change."""
        return self


class PointInCell(NamedTuple):
    """A point as its exact offset from the lattice point of its cell, which then counts as 0.

    It stands in place of z where the reduction is done already (`backends.mirrors`).
    """

    offset: Pair

    def scale(self, factor: Any) -> PointInCell:
        """The same point: the offset is in units of the lattice."""
        return self


class CellPosition(NamedTuple):
    """Where z lies: z = (row + n) b + ..., to working accuracy and without derivatives."""

    m: Any  # lattice indices of the cell
    n: Any
    row: Any  # fraction of b, in [-1/2, 1/2]
    column: Any  # Re((z - m a - n b)/a), in [-1/2, 1/2]


def locate(
    ops: ArrayOps,
    z: Pair | LatticeCoordinates | PointInCell,
    c: SeriesConstants,
    precision: Precision,
    shift: Any = None,
) -> CellPosition:
    """The lattice point whose cell z is in; NaN beyond ``precision.index_limit`` periods.

    A row of cells is shifted against the one below by Re tau, or by the `shift` given.
    """
    if isinstance(z, LatticeCoordinates):
        n = ops.rint(z.y)
        row = z.y - n
        column = z.x + row * ops.constant(c.tau.re)
        m = ops.rint(column)
        m_of_cell, n_of_cell = (
            ops.within(index, precision.index_limit) for index in (z.m + m, z.n + n)
        )
        return CellPosition(m_of_cell, n_of_cell, row, column - m)
    offset = z.offset if isinstance(z, PointInCell) else z
    x, y = ops.constant(offset.re), ops.constant(offset.im)
    row = x * ops.constant(c.row.re) + y * ops.constant(c.row.im)
    column = x * ops.constant(c.column.re) + y * ops.constant(c.column.im)
    if isinstance(z, PointInCell):
        zero = 0.0 * row
        return CellPosition(zero, zero, row, column + row * ops.constant(c.tau.re))
    n = ops.within(ops.rint(row), precision.index_limit)
    row = row - n
    column = column + row * ops.constant(c.tau.re if shift is None else shift)
    m = ops.within(ops.rint(column), precision.index_limit)
    return CellPosition(m, n, row, column - m)


def offset_from(
    ops: ArrayOps,
    z: Pair | LatticeCoordinates | PointInCell,
    m: Any,
    n: Any,
    c: SeriesConstants,
    precision: Precision,
) -> Pair:
    """z - m*a - n*b, exact to its last bit or so however far away z is."""
    if isinstance(z, LatticeCoordinates):
        x, y = z.x - (m - z.m), z.y - (n - z.n)
        return Pair(
            x * c.period1_re.high + y * c.period3_re.high,
            x * c.period1_im.high + y * c.period3_im.high,
        )
    if isinstance(z, PointInCell):
        return Pair(
            _less_few_halves(z.offset.re, m, c.period1_re, n, c.period3_re),
            _less_few_halves(z.offset.im, m, c.period1_im, n, c.period3_im),
        )
    minus_m, minus_n = -m, -n
    return Pair(
        exact_sum(ops, z.re, minus_m, c.period1_re, minus_n, c.period3_re, precision),
        exact_sum(ops, z.im, minus_m, c.period1_im, minus_n, c.period3_im, precision),
    )


def _less_few_halves(x: Any, m: Any, a: SplitReal, n: Any, b: SplitReal) -> Any:
    """``x - m*a - n*b`` for m and n in 0, 1/2, -1/2, where no product rounds; x if both are 0."""
    half, error = two_sum(m * a.high, n * b.high)
    low = m * (sum(a.low) + a.lowest) + n * (sum(b.low) + b.lowest)
    rest, error_of_rest = two_sum(x, -half)
    return rest + (error_of_rest - (error + low))


def exact_sum(
    ops: ArrayOps, x: Any, m: Any, a: SplitReal, n: Any, b: SplitReal, precision: Precision
) -> Any:
    """`plus_multiples`, differentiated as the linear function it is."""
    exact = plus_multiples(
        ops.constant(x), m, a.mapped(ops.constant), n, b.mapped(ops.constant), precision
    )
    return ops.with_derivative_of(exact, lambda: (x + n * b.high) + m * a.high)
