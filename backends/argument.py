"""Argument reduction: where in which cell a point lies, exactly, for arrays of any library.

The offset from a lattice point is what all functions are computed from, so it must be right to
its last bit: sums are compensated and products exact, without relying on (or being
spoilt by) a fused multiply-add.
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


class SplitInteger(NamedTuple):
    """An integer-valued array and its two halves, for exact products with a `SplitReal`."""

    value: Any
    upper: Any
    lower: Any


def split_integer(ops: ArrayOps, n: Any, precision: Precision) -> SplitInteger:
    upper = ops.rint(n * (1.0 / precision.split)) * precision.split
    return SplitInteger(n, upper, n - upper)


def product_and_error(n: SplitInteger, x: SplitReal) -> tuple[Any, Any]:
    """n*x.high rounded, and its rounding error (Dekker); each partial product is exact."""
    product = n.value * x.high
    error = n.upper * x.head - product
    error = error + n.upper * x.tail
    error = error + n.lower * x.head
    return product, error + n.lower * x.tail


def plus_multiples(
    x: Any, m: SplitInteger, a: SplitReal, n: SplitInteger, b: SplitReal, precision: Precision
) -> Any:
    """``x + m*a + n*b``, summed so that only the last addition rounds.

    The terms fall into levels, each smaller than the last by a rounding error. Two levels do
    for a generic z. But z may lie next to a lattice point by accident of rounding, and then
    they cancel. Half-periods are doubles, which three floats hold exactly but two do not
    (a period of 2.0000000000000004 and z = 2 in single precision), so single precision
    compensates the second and third level too.
    """
    along_a, error_a = product_and_error(m, a)
    along_b, error_b = product_and_error(n, b)
    total, small = two_sum(x, along_b)
    total, error = two_sum(total, along_a)
    if precision.half_periods_fit_two_parts:
        small = small + error + error_a + error_b
        small = small + m.value * (a.low + a.lowest) + n.value * (b.low + b.lowest)
        total, small = two_sum(total, small)
        return total + small
    # Of more than 2^12 periods, the product with the second part is exact only in halves.
    terms = (
        *(error, error_a, error_b),
        *(m.upper * a.low, m.lower * a.low, n.upper * b.low, n.lower * b.low),
    )
    tiny, least = two_sum(m.value * a.lowest, n.value * b.lowest)
    for term in terms:
        small, error = two_sum(small, term)
        tiny, error = two_sum(tiny, error)
        least = least + error
    total, small = two_sum(total, small)
    small, tiny = two_sum(small, tiny)
    total, small = two_sum(total, small)
    return total + (small + (tiny + least))


class CellPosition(NamedTuple):
    """Where z lies: z = (row + n) b + ..., to working accuracy and without derivatives."""

    m: Any  # lattice indices of the cell
    n: Any
    row: Any  # fraction of b, in [-1/2, 1/2]
    column: Any  # Re((z - m a - n b)/a), in [-1/2, 1/2]


def locate(ops: ArrayOps, z: Pair, c: SeriesConstants, precision: Precision) -> CellPosition:
    """The lattice point whose cell z is in; NaN beyond ``precision.index_limit`` periods."""
    x, y = ops.constant(z.re), ops.constant(z.im)
    row = x * ops.constant(c.row.re) + y * ops.constant(c.row.im)
    column = x * ops.constant(c.column.re) + y * ops.constant(c.column.im)
    n = ops.within(ops.rint(row), precision.index_limit)
    row = row - n
    column = column + row * ops.constant(c.tau.re)
    m = ops.within(ops.rint(column), precision.index_limit)
    return CellPosition(m, n, row, column - m)


def offset_from(
    ops: ArrayOps, z: Pair, m: Any, n: Any, c: SeriesConstants, precision: Precision
) -> Pair:
    """z - m*a - n*b, exact to its last bit or so however far away z is."""
    minus_m, minus_n = -m, -n
    split_m, split_n = (split_integer(ops, k, precision) for k in (minus_m, minus_n))

    def component(x: Any, a: SplitReal, b: SplitReal) -> Any:
        exact = plus_multiples(
            ops.constant(x),
            split_m,
            a.mapped(ops.constant),
            split_n,
            b.mapped(ops.constant),
            precision,
        )
        # In the order of `plus_multiples`, so that a compiler sees it has the value already.
        return ops.with_derivative_of(exact, lambda: (x + minus_n * b.high) + minus_m * a.high)

    return Pair(
        component(z.re, c.period1_re, c.period3_re), component(z.im, c.period1_im, c.period3_im)
    )
