"""The constants of a lattice in working precision: reduction and series, without branches.

This serves lattices of tensors, whose half-periods nobody may look at. It runs on any array type,
on Python's floats and on symbols.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from backends.argument import two_sum
from backends.constants import (
    DOUBLE,
    SINGLE,
    Precision,
    SeriesConstants,
    SplitComplex,
    SplitReal,
    leading_bits,
    series_constants,
    split_decimal,
)
from backends.pair import ArrayOps, Dual, Pair, pair_exp, select, value_of
from wefpe_core.extended import PI

# A step shrinks the squared length of the shorter vector at least fourfold until the basis is
# reduced, so this many reduce every lattice with Im tau >= 10^-8.
REDUCTION_STEPS = 14

# Pi in the parts of each format; made at import, since a tracer cannot follow decimals.
_PI = {precision.name: split_decimal(PI, precision) for precision in (SINGLE, DOUBLE)}


class Halves(NamedTuple):
    """A number as the sum of two with half the bits each, so that products of them are exact."""

    head: Any
    tail: Any


def halves(ops: ArrayOps, x: Any, precision: Precision) -> Halves:
    bits = precision.bits // 2
    head = leading_bits(x, bits) if type(x) is float else ops.leading_bits(x, bits)
    return Halves(head, x - head)


def product_and_error(x: Halves, y: Halves) -> tuple[Any, Any]:
    """The rounded product and its rounding error, whether or not a compiler fuses the steps."""
    total, error1 = two_sum(x.head * y.head, x.head * y.tail)
    total, error2 = two_sum(total, x.tail * y.head)
    total, error3 = two_sum(total, x.tail * y.tail)
    return total, (error1 + error2) + error3


class ReducedBasis(NamedTuple):
    """Full periods of the reduced basis, exact to about twice the working precision.

    The integer matrix maps the basis given to the reduced one, as in `Lattice.reduced`.
    """

    period1: tuple[SplitReal, SplitReal]
    period3: tuple[SplitReal, SplitReal]
    matrix: tuple[tuple[Any, Any], tuple[Any, Any]]


def reduction_matrix(ops: ArrayOps, a: Pair, b: Pair) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """Gauss reduction by a fixed number of steps; piecewise constant, so without gradient."""
    a, b = (Pair(ops.constant(x.re), ops.constant(x.im)) for x in (a, b))
    zero = 0.0 * (a.re + b.re)  # of the shape of both
    one = zero + 1.0
    first, second = Pair(one, zero), Pair(zero, one)  # coordinates, not complex numbers
    for _ in range(REDUCTION_STEPS):
        n = ops.rint((a.re * b.re + a.im * b.im) / a.squared_modulus())
        b, second = b - a.scale(n), second - first.scale(n)
        swap = b.squared_modulus() < a.squared_modulus()
        a, b = select(ops, swap, b, a), select(ops, swap, -a, b)
        first, second = select(ops, swap, second, first), select(ops, swap, -first, second)
    n = ops.rint((a.re * b.re + a.im * b.im) / a.squared_modulus())
    second = second - first.scale(n)
    # The sign is the one `Lattice.reduced` takes: the first vector points to the right.
    leftward = (a.re < 0.0) | ((a.re == 0.0) & (a.im < 0.0))
    first, second = (select(ops, leftward, -x, x) for x in (first, second))
    # Collinear vectors end in 0/0. A 0 in its place keeps NaN out of every derivative.
    p, q, r, s = (ops.where(x == x, x, 0.0) for x in (first.re, first.im, second.re, second.im))
    return (p, q), (r, s)


def reduce_basis(ops: ArrayOps, omega1: Pair, omega3: Pair, precision: Precision) -> ReducedBasis:
    """The reduced basis; NaN, with derivative 0, where the half-periods have none."""
    a, b = 2.0 * omega1, 2.0 * omega3
    matrix = reduction_matrix(ops, a, b)
    period1, period3 = (
        (
            _combination(ops, p, a.re, q, b.re, precision),
            _combination(ops, p, a.im, q, b.im, precision),
        )
        for p, q in matrix
    )
    is_reduced = _spans_reduced_cell(ops, period1, period3)

    def where_reduced(period: tuple[SplitReal, SplitReal]) -> tuple[SplitReal, SplitReal]:
        re, im = (ops.where(is_reduced, part.high, float("nan")) for part in period)
        return period[0]._replace(high=re), period[1]._replace(high=im)

    return ReducedBasis(where_reduced(period1), where_reduced(period3), matrix)


def _spans_reduced_cell(
    ops: ArrayOps, period1: tuple[SplitReal, SplitReal], period3: tuple[SplitReal, SplitReal]
) -> Any:
    """Whether Im tau > 1/2; it is at least 0.86 in a reduced basis.

    It is less if the half-periods are collinear or negatively oriented, which nobody has checked,
    or if the lattice is too thin for the steps. Rounding cannot change the answer.
    """
    a, b = (Pair(*(ops.constant(part.high) for part in period)) for period in (period1, period3))
    length = ops.hypot(a.re, a.im)  # divided by first: the area may underflow
    return (a.re / length) * b.im - (a.im / length) * b.re > 0.5 * length


def _combination(ops: ArrayOps, p: Any, x: Any, q: Any, y: Any, precision: Precision) -> SplitReal:
    """p*x + q*y for integers p, q, in two parts of working precision."""
    (first, error1), (second, error2) = (
        product_and_error(halves(ops, k, precision), halves(ops, ops.constant(w), precision))
        for k, w in ((p, x), (q, y))
    )
    total, error = two_sum(first, second)
    high, low = two_sum(total, error + (error1 + error2))
    split = split_number(ops, high, low, precision)
    return split._replace(high=ops.with_derivative_of(high, lambda: p * x + q * y))


def split_number(ops: ArrayOps, high: Any, low: Any, precision: Precision) -> SplitReal:
    """The sum of two numbers, split into the parts of a format."""
    parts, rest = [], ops.constant(high)
    for _ in range(precision.part_count):
        parts.append(ops.leading_bits(rest, precision.part_bits))
        rest = rest - parts[-1]
    return SplitReal(high, parts=tuple(parts), low=(low,), lowest=0.0 * low)


class PreparedLattice(NamedTuple):
    """The constants of the kernel, and the way from the reduced basis back to the one given."""

    constants: SeriesConstants
    matrix: tuple[tuple[Any, Any], tuple[Any, Any]]  # as in `ReducedBasis`


def prepare(
    ops: ArrayOps, omega1: Pair, omega3: Pair, precision: Precision, with_slopes: bool = False
) -> PreparedLattice:
    """What the kernel needs of a lattice.

    With slopes, the constants that depend on the nome are dual: they carry their derivative in tau.
    """
    basis = reduce_basis(ops, omega1, omega3, precision)
    return PreparedLattice(series_of_basis(ops, basis, precision, with_slopes), basis.matrix)


def series_of_basis(
    ops: ArrayOps, basis: ReducedBasis, precision: Precision, with_slopes: bool = False
) -> SeriesConstants:
    """The kernel's constants for a reduced basis."""
    a = Pair(*(part.high for part in basis.period1))
    b = Pair(*(part.high for part in basis.period3))
    pi_over_period = pi_over_first_period(ops, basis, precision)
    tau, nome = tau_and_nome(ops, basis, precision)
    unit = unit_of(ops, pi_over_period)
    in_units = pi_over_period.scale(1.0 / unit)
    given = Dual(nome, math.pi * nome.times_i()) if with_slopes else nome
    values = series_constants(pi_over_period, in_units, tau, given, math.pi, precision)
    area = a.re * b.im - a.im * b.re
    zeros = 0.0 * area
    first: Any = value_of(values.pop("eta1"))
    etas = (first, (first * b - Pair(0.0, math.pi)) / a)
    eta1, eta3 = (
        SplitComplex(*(split_number(ops, x, zeros, precision) for x in (eta.re, eta.im)))
        for eta in etas
    )
    return SeriesConstants(
        unit=unit,
        pi_over_period_low=Pair(zeros, zeros),
        period1_re=basis.period1[0],
        period1_im=basis.period1[1],
        period3_re=basis.period3[0],
        period3_im=basis.period3[1],
        row=Pair(-a.im / area, a.re / area),
        column=Pair(b.im / area, -b.re / area),
        eta1=eta1,
        eta3=eta3,
        log_period_over_pi=ops.log(ops.hypot(a.re, a.im) / math.pi),
        pi_im_tau=math.pi * tau.im,
        **values,
    )


def in_layout_of_numbers(constants: Any, precision: Precision) -> Any:
    """Constants in working precision, padded to as many pieces as those of numbers have."""
    if isinstance(constants, SplitReal):
        missing = precision.low_count - len(constants.low)
        return constants._replace(low=constants.low + (constants.lowest,) * missing)
    if isinstance(constants, (SplitComplex, SeriesConstants)):
        return type(constants)(*(in_layout_of_numbers(item, precision) for item in constants))
    return constants


def unit_of(ops: ArrayOps, pi_over_period: Pair) -> Any:
    """The power of two that `SeriesConstants.unit` describes."""
    return ops.power_of_two(ops.constant(ops.hypot(pi_over_period.re, pi_over_period.im)))


def pi_over_first_period(ops: ArrayOps, basis: ReducedBasis, precision: Precision) -> Pair:
    """pi/a, corrected: its rounding error would reach every value."""
    pi = _PI[precision.name]
    quotient = Pair(pi.high, 0.0) / Pair(*(part.high for part in basis.period1))
    zero = SplitReal(0.0, (), (0.0,), 0.0)
    return quotient + _quotient_error(ops, quotient, (pi, zero), basis.period1, precision)


def tau_and_nome(ops: ArrayOps, basis: ReducedBasis, precision: Precision) -> tuple[Pair, Pair]:
    """tau = b/a and the nome exp(i pi tau).

    The exponential magnifies rounding errors of its argument, so those of the quotient and of
    the product with pi are carried along, to first order.
    """
    a, b = (Pair(*(x.high for x in period)) for period in (basis.period1, basis.period3))
    tau = b / a
    error = _quotient_error(ops, tau, basis.period3, basis.period1, precision)
    nome = pair_exp(ops, math.pi * tau.times_i())
    pi = _PI[precision.name]

    def product_error(x: Any, x_error: Any) -> Any:
        """pi times the exact value, minus what math.pi * x was rounded to."""
        product, rounding = product_and_error(
            halves(ops, x, precision), halves(ops, pi.high, precision)
        )
        return (product - math.pi * x) + rounding + x * sum(pi.low) + pi.high * x_error

    x, y = ops.constant(tau.re), ops.constant(tau.im)
    correction = Pair(product_error(x, error.re), product_error(y, error.im)).times_i()
    return tau, nome * (1.0 + correction)


def _quotient_error(
    ops: ArrayOps,
    quotient: Pair,
    numerator: tuple[SplitReal, SplitReal],
    denominator: tuple[SplitReal, SplitReal],
    precision: Precision,
) -> Pair:
    """numerator/denominator - quotient, from the exactly computed remainder; a constant."""
    a = tuple(part.mapped(ops.constant) for part in denominator)
    n = tuple(part.mapped(ops.constant) for part in numerator)
    q_re, q_im = ops.constant(quotient.re), ops.constant(quotient.im)

    def remainder(n: SplitReal, first: Any, second: Any, sign: float) -> Any:
        """n - first + sign*second, where first and second are products of two numbers."""
        (p1, e1), (p2, e2) = (
            product_and_error(halves(ops, q, precision), halves(ops, w.high, precision))
            for q, w in (first, second)
        )
        total, error = two_sum(n.high, -p1)
        total, error2 = two_sum(total, sign * p2)
        low = sum(q * w.low[0] * s for (q, w), s in ((first, -1.0), (second, sign)))
        return total + ((error + error2) + (sign * e2 - e1) + (sum(n.low) + low))

    rest = Pair(
        remainder(n[0], (q_re, a[0]), (q_im, a[1]), 1.0),
        remainder(n[1], (q_re, a[1]), (q_im, a[0]), -1.0),
    )
    return rest / Pair(a[0].high, a[1].high)
