"""The constants of a lattice in working precision: reduction and series, without branches.

This serves lattices of tensors, whose half-periods nobody may look at. It runs on any array type,
on Python's floats and on symbols.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from math import comb
from typing import Any, NamedTuple

from backends.argument import two_sum
from backends.constants import (
    DOUBLE,
    SINGLE,
    Nomes,
    Precision,
    SeriesConstants,
    SplitComplex,
    SplitReal,
    leading_bits,
    series_constants,
    split_decimal,
)
from backends.pair import ArrayOps, Dual, Pair, polynomial, select, value_of
from wefpe_core.extended import PI, extended_precision
from wefpe_core.modular import theta_fourth_powers

# A step shrinks the squared length of the shorter vector at least fourfold until the basis is
# reduced, so this many reduce every lattice with Im tau >= 10^-8.
REDUCTION_STEPS = 14

_NEAR_TIE = 2.0**-18

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
    """Gauss reduction by a fixed number of steps; piecewise constant, so without gradient.

    Lattices of high symmetry tie, and a compiler that computes a comparison twice may find two
    answers, which mix to no basis at all. So what is within 2^-18 of a tie counts as one.
    """
    a, b = (Pair(ops.constant(x.re), ops.constant(x.im)) for x in (a, b))
    zero = 0.0 * (a.re + b.re)  # of the shape of both
    one = zero + 1.0
    first, second = Pair(one, zero), Pair(zero, one)  # coordinates, not complex numbers
    for _ in range(REDUCTION_STEPS):
        n = ops.rint((a.re * b.re + a.im * b.im) / a.squared_modulus() - _NEAR_TIE)
        b, second = b - a.scale(n), second - first.scale(n)
        swap = b.squared_modulus() < a.squared_modulus() * (1.0 - _NEAR_TIE)
        a, b = select(ops, swap, b, a), select(ops, swap, -a, b)
        first, second = select(ops, swap, second, first), select(ops, swap, -first, second)
    n = ops.rint((a.re * b.re + a.im * b.im) / a.squared_modulus() - _NEAR_TIE)
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
    period1, period3, matrix = _in_order(ops, period1, period3, matrix, precision)
    is_reduced = _spans_reduced_cell(ops, period1, period3)

    def where_reduced(period: tuple[SplitReal, SplitReal]) -> tuple[SplitReal, SplitReal]:
        re, im = (ops.where(is_reduced, part.high, float("nan")) for part in period)
        return period[0]._replace(high=re), period[1]._replace(high=im)

    return ReducedBasis(where_reduced(period1), where_reduced(period3), matrix)


def _in_order(
    ops: ArrayOps,
    period1: tuple[SplitReal, SplitReal],
    period3: tuple[SplitReal, SplitReal],
    matrix: tuple[tuple[Any, Any], tuple[Any, Any]],
    precision: Precision,
) -> tuple[Any, Any, Any]:
    """The basis with the shorter period first; of equal ones that which `Lattice.reduced` takes.

    Rounding must not decide it: the solution `inverse_wp` returns depends on it.
    """
    a, b = (Pair(*(ops.constant(part.high) for part in period)) for period in (period1, period3))
    sign = ops.where((b.re < 0.0) | ((b.re == 0.0) & (b.im < 0.0)), -1.0, 1.0 + 0.0 * b.re)
    b = b.scale(sign)
    excess = _excess_of_length(ops, period3, period1, precision)
    is_first = (b.re > a.re) | ((b.re == a.re) & (b.im > a.im))
    swaps = (excess < 0.0) | ((excess == 0.0) & is_first)

    def either(x: Any, y: Any, sign: Any) -> Any:
        if isinstance(x, tuple):
            items = (either(*pair, sign) for pair in zip(x, y, strict=True))
            return type(x)(*items) if isinstance(x, SplitReal) else tuple(items)
        return ops.where(swaps, sign * y, x)

    first, second = matrix
    return (
        either(period1, period3, sign),
        either(period3, period1, -sign),
        (either(first, second, sign), either(second, first, -sign)),
    )


def _excess_of_length(
    ops: ArrayOps,
    longer: tuple[SplitReal, SplitReal],
    shorter: tuple[SplitReal, SplitReal],
    precision: Precision,
) -> Any:
    """The difference of two squared lengths, exact to about the square of the working precision."""
    total: Any = 0.0
    terms = []
    for period, sign in ((longer, 1.0), (shorter, -1.0)):
        for part in period:
            high, low = ops.constant(part.high), ops.constant(part.low[0])
            x = halves(ops, high, precision)
            product, error = product_and_error(x, x)
            total, rounding = two_sum(total, sign * product)
            terms += [rounding, sign * error, (2.0 * sign) * (high * low)]
    rest, tiny = two_sum(terms[0], terms[1])
    for term in terms[2:]:
        rest, error = two_sum(rest, term)
        tiny = tiny + error
    return total + (rest + tiny)


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
    # Half-periods of about 1 have squares, areas and remainders that are in range.
    length = _usual_length(ops, omega1)
    # By parts: torch's compiler does not know the quotient of a pair and a tensor.
    omega1, omega3 = (Pair(w.re / length, w.im / length) for w in (omega1, omega3))
    basis = reduce_basis(ops, omega1, omega3, precision)
    constants = series_of_basis(ops, basis, precision, with_slopes)
    constants = constants._replace(
        unit=constants.unit / length,
        log_period_over_pi=constants.log_period_over_pi + ops.log(length),
    )
    return PreparedLattice(constants, basis.matrix)


def _usual_length(ops: ArrayOps, omega: Pair) -> Any:
    """The power of two below a modulus, or 1 where there is none."""
    power = ops.power_of_two(ops.constant(ops.hypot(omega.re, omega.im)))
    return ops.where(power - power == 0.0, power, 1.0)


def series_of_basis(
    ops: ArrayOps, basis: ReducedBasis, precision: Precision, with_slopes: bool = False
) -> SeriesConstants:
    """The kernel's constants for a reduced basis."""
    length = ops.hypot(basis.period1[0].high, basis.period1[1].high)
    quotient, rest = _pi_over_period_and_rest(ops, basis, precision)
    unit = unit_of(ops, quotient)
    pi_over_period, low = quotient.scale(1.0 / unit), rest.scale(1.0 / unit)
    square, cube, rest_of_cube = _square_and_cube(ops, pi_over_period, low, precision)
    log_period_over_pi = ops.log(length / math.pi)
    tau, *nomes = tau_and_nomes(ops, basis, precision)
    period1, period3 = (
        tuple(part.mapped(lambda x: x * unit) for part in period)
        for period in (basis.period1, basis.period3)
    )
    a, b = (Pair(*(part.high for part in period)) for period in (period1, period3))
    (nome, rest), (nome_squared, rest_of_square) = nomes
    growth = nome_over_square(ops, basis, precision)
    given: Any = (nome, nome_squared, growth)
    if with_slopes:
        slopes = (nome, 2.0 * nome_squared, growth.shift(1.0))
        given = tuple(
            Dual(x, math.pi * slope.times_i()) for x, slope in zip(given, slopes, strict=True)
        )
    product, rest_of_product = _product_of_sums(ops, (cube, rest_of_cube), (nome, rest), precision)
    times_cube: Any = product
    if with_slopes:
        times_cube = Dual(product, cube * given[0].slope)
    values = series_constants(
        (pi_over_period, square, cube),
        tau,
        Nomes(given[0], given[1], times_cube, (rest, rest_of_square, rest_of_product)),
        math.pi,
        precision,
    )
    e1, _, e3 = values["roots"]
    values["roots"] = (e1, given[2] * polynomial(_SECOND_ROOT[precision.name], given[2]), e3)
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
        pi_over_period_low=low,
        period1_re=period1[0],
        period1_im=period1[1],
        period3_re=period3[0],
        period3_im=period3[1],
        row=Pair(-a.im / area, a.re / area),
        column=Pair(b.im / area, -b.re / area),
        eta1=eta1,
        eta3=eta3,
        log_period_over_pi=log_period_over_pi,
        pi_im_tau=math.pi * tau.im,
        # Nobody asks whether a lattice of tensors is its own conjugate.
        cell_shift=zeros,
        mirror_re=zeros,
        mirror_im=zeros,
        **values,
    )


def _square_and_cube(
    ops: ArrayOps, x: Pair, low: Pair, precision: Precision
) -> tuple[Pair, Pair, Pair]:
    """(x + low)^2 and (x + low)^3, rounded once: their errors would be those of wp and wp'.

    The last is what the cube lacks.
    """
    constant, rest = _constant(ops, x), _constant(ops, low)
    square, error = _product_and_error_of_pairs(ops, constant, constant, precision)
    error = error + 2.0 * (constant * rest)
    cube, error_of_cube = _product_and_error_of_pairs(ops, square, constant, precision)
    error_of_cube = error_of_cube + (error * constant + square * rest)
    cube, rest_of_cube = _sum_and_rest(cube, error_of_cube)
    plain = x * x
    return (
        _differentiated(ops, square + error, plain),
        _differentiated(ops, cube, plain * x),
        rest_of_cube,
    )


def _differentiated(ops: ArrayOps, value: Pair, model: Pair) -> Pair:
    """`ArrayOps.with_derivative_of` of both parts."""
    return Pair(
        ops.with_derivative_of(value.re, lambda: model.re),
        ops.with_derivative_of(value.im, lambda: model.im),
    )


def _constant(ops: ArrayOps, x: Pair) -> Pair:
    return Pair(ops.constant(x.re), ops.constant(x.im))


def _sum_and_rest(x: Pair, y: Pair) -> tuple[Pair, Pair]:
    """The rounded sum of two complex numbers and its rounding error."""
    (re, rest_re), (im, rest_im) = two_sum(x.re, y.re), two_sum(x.im, y.im)
    return Pair(re, im), Pair(rest_re, rest_im)


def _product_of_sums(
    ops: ArrayOps, x: tuple[Pair, Pair], y: tuple[Pair, Pair], precision: Precision
) -> tuple[Pair, Pair]:
    """The product of two numbers that are sums, as a sum; the second part is a constant."""
    (x_high, x_low), (y_high, y_low) = ([_constant(ops, part) for part in z] for z in (x, y))
    product, error = _product_and_error_of_pairs(ops, x_high, y_high, precision)
    rest = error + (x_high * y_low + x_low * y_high)
    return _differentiated(ops, product, x[0] * y[0]), rest


def _product_and_error_of_pairs(
    ops: ArrayOps, x: Pair, y: Pair, precision: Precision
) -> tuple[Pair, Pair]:
    """The rounded product of two complex numbers and its rounding error."""
    x_re, x_im, y_re, y_im = (halves(ops, z, precision) for z in (x.re, x.im, y.re, y.im))
    parts = []
    for first, second, sign in (
        ((x_re, y_re), (x_im, y_im), -1.0),
        ((x_re, y_im), (x_im, y_re), 1.0),
    ):
        (p, p_error), (q, q_error) = (product_and_error(*pair) for pair in (first, second))
        total, error = two_sum(p, sign * q)
        parts.append((total, error + (p_error + sign * q_error)))
    return Pair(parts[0][0], parts[1][0]), Pair(parts[0][1], parts[1][1])


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
    return _pi_over_period_and_rest(ops, basis, precision)[0]


def _pi_over_period_and_rest(
    ops: ArrayOps, basis: ReducedBasis, precision: Precision
) -> tuple[Pair, Pair]:
    pi, zero = _PI[precision.name], SplitReal(0.0, (), (0.0,), 0.0)
    return _quotient_and_rest(ops, (pi, zero), basis.period1, precision)


def tau_and_nome(ops: ArrayOps, basis: ReducedBasis, precision: Precision) -> tuple[Pair, Pair]:
    """tau = b/a and the nome exp(i pi tau)."""
    tau, (nome, _), _ = tau_and_nomes(ops, basis, precision)
    return tau, nome


def tau_and_nomes(
    ops: ArrayOps, basis: ReducedBasis, precision: Precision
) -> tuple[Pair, tuple[Pair, Pair], tuple[Pair, Pair]]:
    """tau = b/a, the nome exp(i pi tau) and its square, which has no more errors than the nome.

    The nomes come with their rounding errors, which are constants.
    The exponential magnifies rounding errors of its argument, so those of the quotient and of
    the product with pi are carried along, to first order.
    """
    tau, rest = _tau_and_rest(ops, basis, precision)
    pi = _PI[precision.name]

    def times_pi(x: Any, x_rest: Any) -> tuple[Any, Any]:
        """A product with pi, and what it lacks."""
        constant = ops.constant(x)
        product, error = product_and_error(
            halves(ops, constant, precision), halves(ops, pi.high, precision)
        )
        error = error + constant * sum(pi.low) + pi.high * x_rest
        return ops.with_derivative_of(product, lambda: math.pi * x), error

    (re, re_rest), (im, im_rest) = times_pi(tau.re, rest.re), times_pi(tau.im, rest.im)
    exponent, correction = Pair(-im, re), Pair(-im_rest, re_rest)
    (nome, error1), (square, error2) = (
        _exp_and_error(ops, x, precision) for x in (exponent, 2.0 * exponent)
    )

    def corrected(x: Pair, error: Pair) -> tuple[Pair, Pair]:
        _, rest = _sum_and_rest(_constant(ops, x), _constant(ops, error))
        return x + error, rest

    return (
        tau,
        corrected(nome, nome * correction + error1),
        corrected(square, square * (2.0 * correction) + error2),
    )


def _exp_and_error(ops: ArrayOps, x: Pair, precision: Precision) -> tuple[Pair, Pair]:
    """e^x, and what is lost in the product of its modulus with a cosine and a sine."""
    modulus, factors = ops.exp(x.re), (ops.cos(x.im), ops.sin(x.im))
    size = halves(ops, ops.constant(modulus), precision)
    (re, re_error), (im, im_error) = (
        product_and_error(size, halves(ops, ops.constant(factor), precision)) for factor in factors
    )
    plain = Pair(*(modulus * factor for factor in factors))
    return _differentiated(ops, Pair(re, im), plain), Pair(re_error, im_error)


def _tau_and_rest(ops: ArrayOps, basis: ReducedBasis, precision: Precision) -> tuple[Pair, Pair]:
    return _quotient_and_rest(ops, basis.period3, basis.period1, precision)


def nome_over_square(ops: ArrayOps, basis: ReducedBasis, precision: Precision) -> Pair:
    """exp(i pi (tau - i)) - 1, the nome over that of the square lattice, less 1.

    It is relatively exact: the difference of tau and i has no rounding error near i.
    """
    tau, error = _tau_and_rest(ops, basis, precision)
    angle = math.pi * (tau.re + error.re)
    height = -math.pi * ((tau.im - 1.0) + error.im)
    half_sine = ops.sin(0.5 * angle)
    return Pair(
        ops.expm1(height) * ops.cos(angle) - 2.0 * (half_sine * half_sine),
        ops.exp(height) * ops.sin(angle),
    )


@extended_precision
def _second_root_over_nome(precision: Precision) -> tuple[float, ...]:
    """e2 over (pi/a)^2 and over E = `nome_over_square`, in powers of E.

    e2 is (theta_2^4 - theta_4^4)/3, a series in the nome, and 0 on the square lattice. So its value
    at the nome (1 + E) e^-pi is E times a polynomial, while the two theta constants would cancel.
    """
    terms = precision.nome_powers
    unit = [0, 1] + [0] * (terms - 1)
    theta2, _, theta4 = theta_fourth_powers(_Series(unit), terms)
    coefficients = [(x - y) / Decimal(3) for x, y in zip(theta2.terms, theta4.terms, strict=True)]
    nome = (-PI).exp()
    scaled = [coefficient * nome**k for k, coefficient in enumerate(coefficients)]
    return tuple(
        float(sum(comb(k, j) * scaled[k] for k in range(j, terms + 1))) for j in range(1, terms + 1)
    )


class _Series:
    """A truncated power series, as far as `theta_fourth_powers` needs it."""

    def __init__(self, terms: Sequence[int]) -> None:
        self.terms = list(terms)

    def __add__(self, other: Any) -> _Series:
        first, *rest = self.terms
        if isinstance(other, _Series):
            return _Series([x + y for x, y in zip(self.terms, other.terms, strict=True)])
        return _Series([first + other, *rest])

    __radd__ = __add__

    def __mul__(self, other: Any) -> _Series:
        if not isinstance(other, _Series):
            return _Series([other * x for x in self.terms])
        size = len(self.terms)
        return _Series(
            [sum(self.terms[j] * other.terms[k - j] for j in range(k + 1)) for k in range(size)]
        )

    __rmul__ = __mul__


_SECOND_ROOT = {precision.name: _second_root_over_nome(precision) for precision in (SINGLE, DOUBLE)}


def _quotient_and_rest(
    ops: ArrayOps,
    numerator: tuple[SplitReal, SplitReal],
    denominator: tuple[SplitReal, SplitReal],
    precision: Precision,
) -> tuple[Pair, Pair]:
    """A quotient, and what it lacks, which is a constant, from the exactly computed remainder.

    That is the remainder of a number with half the bits: a compiler that fuses a product with a sum
    knows quotients better than they are rounded, here and not there.
    """
    plain = Pair(*(x.high for x in numerator)) / Pair(*(x.high for x in denominator))
    a = tuple(part.mapped(ops.constant) for part in denominator)
    n = tuple(part.mapped(ops.constant) for part in numerator)
    q_re, q_im = (halves(ops, ops.constant(x), precision).head for x in (plain.re, plain.im))

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
    value, low = _sum_and_rest(Pair(q_re, q_im), rest / Pair(a[0].high, a[1].high))
    return _differentiated(ops, value, plain), low
