r"""Derivatives by theorem: the kernel's functions with their slopes in z, omega1 and omega3.

A function of degree -k is :math:`f(z; a, b) = a^{-k}F(u, \tau)` with u = z/a, in periods a and b of
the reduced basis. At fixed u the pole does not depend on tau, so the derivative in tau is a smooth
sum of rows. It comes from the formula of f itself, evaluated with constants that carry their
derivative in tau (`backends.pair.Dual`). Then

.. math:: f_b = a^{-k-1} F_\tau, \qquad f_a = -(k f + z f_z + b f_b)/a \quad\text{(Euler)}

for the offset z from its anchor m a + n b, and the offset itself moves by -m and -n. The integer
matrix of the reduction leads back to the half-periods given. In z there are the classical laws:
:math:`\zeta' = -\wp`, :math:`\sigma' = \sigma\zeta`, :math:`\wp'' = 6\wp^2 - g_2/2`.

Each function returns its values, their slopes in z, and, if a matrix is given, their slopes in
omega1 and in omega3. Where a value or a slope is not finite, at poles for example, the slope is 0:
then a point that a loss leaves out does not spoil the derivative in the lattice.
The Green function is real. Its slope s in a complex number x stands for dG = Re(s dx).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from backends import algebra
from backends.argument import locate, offset_from
from backends.constants import DOUBLE, SINGLE, Precision, SeriesConstants, without_slopes
from backends.kernel import (
    FoldedArgument,
    WpTerms,
    finished_sigma,
    fold,
    green_of_theta,
    quasi_period,
    rows_second,
    sigma_factors,
    theta_quotient,
    times_unit,
    wp_in_units,
    wp_second_in_units,
    wp_terms,
    zeta_in_cell,
)
from backends.pair import ArrayOps, Dual, Pair, polynomial, select, value_of
from wefpe_core.errors import InputError

Matrix = tuple[tuple[Any, Any], tuple[Any, Any]]

_NO_SLOPES = "slopes in the lattice need constants that carry slopes"


class Expansion(NamedTuple):
    """A value at the offset from the anchor, and what its derivatives are made of.

    The value is what the user sees, with what is written at poles; all else is in the units of
    `SeriesConstants`.
    """

    value: Pair
    degree: int  # the k of a function of degree -k
    in_z: Pair
    by_euler: Pair  # k f + z f_z
    in_tau: Pair | None  # a^(-k) F_tau, the derivative in b times a
    in_periods: tuple[Pair, Pair] | None = None  # of what is added to the function of the offset


class ValuesAndSlopes(NamedTuple):
    """Rows of an operator's result: for each value its slopes in z, omega1 and omega3."""

    values: tuple[Pair, ...]
    slopes: tuple[tuple[Pair, ...], ...]


SlopeFunction = Callable[
    [ArrayOps, Pair, SeriesConstants, Precision, Matrix | None], ValuesAndSlopes
]


def wp_and_prime(
    ops: ArrayOps, z: Pair, c: SeriesConstants, precision: Precision, matrix: Matrix | None
) -> ValuesAndSlopes:
    terms = wp_terms(ops, z.scale(c.unit), c, precision)
    wp, wp_prime = wp_in_units(terms, c)
    second = c.wp_scale * (c.wp_scale * wp_second_in_units(ops, terms, c))
    by_euler = [Pair(0.0, 0.0)] * 2
    if matrix is not None:
        by_euler = _wp_by_euler(ops, terms, c, precision)
        # Nothing cancels about a half-period.
        for k, (f, in_z) in enumerate(((wp, wp_prime), (wp_prime, second))):
            plain = (k + 2.0) * value_of(f) + terms.offset * value_of(in_z)
            by_euler[k] = select(ops, terms.anchor.is_half, plain, by_euler[k])
    expansions = []
    for k, (f, in_z) in enumerate(((wp, value_of(wp_prime)), (wp_prime, second))):
        value = times_unit(value_of(f), c, k + 2)
        finished = ops.with_infinities(value, terms.offset, terms.is_pole)
        expansions.append(Expansion(finished, k + 2, in_z, by_euler[k], _slope_of(f)))
    anchor = terms.anchor
    return assembled(ops, expansions, (anchor.m, anchor.n), c, matrix)


def _wp_by_euler(
    ops: ArrayOps, terms: WpTerms, c: SeriesConstants, precision: Precision
) -> list[Pair]:
    """2 wp + z wp' and 3 wp' + z wp'' about a lattice point, where 1/z^2 and its slopes cancel.

    What csc^2 v gives of 2 wp + z wp' is twice phi = csc^2 v (1 - v cot v) - 1/3, which is of the
    order of v^2, as the rows are; it has a series of its own near the pole.
    """
    v, rows, slopes = terms.folded.v, value_of(terms.rows), value_of(terms.row_slopes)
    cosecant, cotangent = terms.cosecant_squared, terms.cotangent
    square = v.square()
    near = square * _real_polynomial(_AT_THE_POLE[precision.name], square)
    far = cosecant * (1.0 - v * cotangent) - 1.0 / 3.0
    # Its slope is tan v (2/3 + (2 - 3 csc^2 v) phi), which is 0 times infinity at pi/2.
    near_slope = cotangent.reciprocal() * ((2.0 - 3.0 * cosecant) * near + 2.0 / 3.0)
    far_slope = cosecant * (v * (3.0 * cosecant - 2.0) - 3.0 * cotangent)
    is_near = v.squared_modulus() < 1.0
    phi, phi_slope = select(ops, is_near, near, far), select(ops, is_near, near_slope, far_slope)
    first = 2.0 * (c.wp_scale * (phi + (rows - v * slopes)))
    second = 3.0 * slopes - phi_slope - v * (0.5 * rows_second(terms, c))
    return [first, (c.wp_prime_scale * second).scale(terms.folded.sign)]


def _laurent(terms: int) -> tuple[float, ...]:
    """The series of phi in `_wp_by_euler`, over v^2, in powers of v^2.

    csc^2 v - 1/3 is a Weierstrass function without rows (g2 = 4/3, g3 = 8/27), and
    its coefficients c_2, c_3, ... (DLMF 23.9) give those of phi, k c_k.
    """
    c = {2: 1.0 / 15.0, 3: 2.0 / 189.0}
    for k in range(4, terms + 2):
        c[k] = 3.0 / ((2 * k + 1) * (k - 3)) * sum(c[m] * c[k - m] for m in range(2, k - 1))
    return tuple(k * c[k] for k in range(2, terms + 2))


# What is left out at |v| = 1 is below eps/16 of the sum.
_AT_THE_POLE = {SINGLE.name: _laurent(9), DOUBLE.name: _laurent(18)}


def _real_polynomial(coefficients: Sequence[float], x: Pair) -> Pair:
    """A polynomial with real coefficients: two products for each, where Horner's rule has four."""
    twice, square = 2.0 * x.re, x.squared_modulus()
    last, before = coefficients[-1] + 0.0 * twice, 0.0 * twice
    for coefficient in reversed(coefficients[1:-1]):
        last, before = coefficient + (twice * last - square * before), last
    return x.scale(last).shift(coefficients[0] - square * before)


def zeta(
    ops: ArrayOps, z: Pair, c: SeriesConstants, precision: Precision, matrix: Matrix | None
) -> ValuesAndSlopes:
    z = z.scale(c.unit)
    cell = locate(ops, z, c, precision)
    offset = offset_from(ops, z, cell.m, cell.n, c, precision)
    f = fold(ops, offset, c, precision)
    is_pole = f.distance_squared == 0.0
    inside = zeta_in_cell(ops, f, c, is_pole)
    value = value_of(inside) + quasi_period(ops, cell, c, precision)
    in_z = -value_of(wp_in_units(wp_terms(ops, z, c, precision), c)[0])
    expansion = Expansion(
        value=ops.with_infinities(value.scale(c.unit), offset, is_pole),
        degree=1,
        in_z=in_z,
        by_euler=value_of(inside) + offset * in_z,
        in_tau=_slope_of(inside),
        in_periods=None if matrix is None else _quasi_period_slopes(cell.m, cell.n, c),
    )
    return assembled(ops, [expansion], (cell.m, cell.n), c, matrix)


def _quasi_period_slopes(m: Any, n: Any, c: SeriesConstants) -> tuple[Pair, Pair]:
    """The derivatives of 2 m eta1 + 2 n eta3 in the periods a and b.

    eta1 = (pi^2/6) E_2/a, and eta3 = (eta1 b - i pi)/a; both are of degree -1.
    """
    b, inverse, eta1, eta3 = _period3(c), _inverse_period(c), c.eta1.high, c.eta3.high
    eta1_b = inverse * (c.pi_over_period * _dual(c.minus_third_e2).slope).scale(-0.5 * math.pi)
    eta3_b = inverse * (eta1_b * b + eta1)
    slopes = []
    for of_eta1, of_eta3 in (
        (-(inverse * (eta1 + b * eta1_b)), -(inverse * (eta3 + b * eta3_b))),
        (eta1_b, eta3_b),
    ):
        slopes.append(of_eta1.scale(2.0 * m) + of_eta3.scale(2.0 * n))
    return slopes[0], slopes[1]


def sigma(
    ops: ArrayOps, z: Pair, c: SeriesConstants, precision: Precision, matrix: Matrix | None
) -> ValuesAndSlopes:
    """Its slopes are sigma times a logarithmic slope, taken together where sigma is 0."""
    factors = sigma_factors(ops, z.scale(c.unit), c, precision)
    f, quasi, (m, n) = factors.folded, factors.quasi_period, (factors.cell.m, factors.cell.n)
    theta = value_of(factors.theta)
    factor = c.period_over_pi * factors.power.scale(factors.sign)
    # The exponent is quasi * middle - (1/2) minus_third_e2 v^2.
    exponent_in_v = value_of(c.minus_third_e2) * f.v
    rotation = c.pi_over_period.scale(f.sign)  # dv/dz
    in_z = factor * (rotation * (_theta_slope(f, c) - theta * exponent_in_v) + theta * quasi)
    in_tau = None
    if matrix is not None:
        a = Pair(c.period1_re.high, c.period1_im.high)
        quasi_in_b = _quasi_period_slopes(m, n, c)[1]
        exponent_in_b = quasi_in_b * factors.middle + quasi.scale(0.5 * n)
        square_in_tau = (_dual(c.minus_third_e2).slope * f.v.square()).scale(0.5)
        exponent_in_tau = a * exponent_in_b - square_in_tau
        in_tau = factor * (_dual(factors.theta).slope + theta * exponent_in_tau)
    value = finished_sigma(ops, factors, c)
    by_euler = factors.offset * in_z - factor * theta
    expansion = Expansion(value, -1, in_z, by_euler, in_tau)
    return assembled(ops, [expansion], (m, n), c, matrix)


def _theta_slope(f: FoldedArgument, c: SeriesConstants) -> Pair:
    """e^(-Im v) times the derivative of theta_1(v)/theta_1'(0) in v; d(A+B)/dv = 2i (A-B)."""
    theta = tuple(value_of(coefficient) for coefficient in c.theta)
    total, difference = map(value_of, f.neighbours(c))
    slope = polynomial(tuple(k * x for k, x in enumerate(theta) if k), total)
    inner = 2.0 * (difference * slope).times_i()
    return f.scaled_cosine * polynomial(theta, total) + f.scaled_sine * inner


def green(
    ops: ArrayOps, z: Pair, c: SeriesConstants, precision: Precision, matrix: Matrix | None
) -> ValuesAndSlopes:
    z = z.scale(c.unit)
    cell = locate(ops, z, c, precision)
    offset = offset_from(ops, z, cell.m, cell.n, c, precision)
    f = fold(ops, offset, c, precision)
    quotient = theta_quotient(f, c)
    theta, height = value_of(quotient), f.v.im
    inverse = theta.reciprocal()
    # The term (Im v)^2/(pi Im tau) has the slopes -2i Im v/(pi Im tau) in v, since d Im v is
    # Re(-i dv), and i (Im v)^2/(pi (Im tau)^2) in tau.
    share = height / c.pi_im_tau
    in_v = -(_theta_slope(f, c) * inverse) - Pair(0.0, 2.0 * share)
    in_tau = None
    if matrix is not None:
        in_tau = -(_dual(quotient).slope * inverse) + Pair(0.0, math.pi * (share * share))
    value = green_of_theta(ops, theta, height, c)
    in_z = (c.pi_over_period * in_v).scale(f.sign)
    expansion = Expansion(
        value=Pair(value, 0.0 * value),
        degree=0,
        in_z=in_z,
        by_euler=offset * in_z + 1.0,  # the 1 is of -log|a|
        in_tau=in_tau,
    )
    return assembled(ops, [expansion], (cell.m, cell.n), c, matrix)


def inverse_wp(
    ops: ArrayOps, w: Pair, c: SeriesConstants, precision: Precision, matrix: Matrix | None
) -> ValuesAndSlopes:
    """The solution z has the slope 1/wp'(z) in w and -wp_omega/wp'(z) in a half-period."""
    z = algebra.inverse_wp(ops, w, without_slopes(c), precision)
    (_, wp_prime), (of_wp, _) = wp_and_prime(ops, z, c, precision, matrix)
    return ValuesAndSlopes((z,), (inverse_slopes(ops, z, wp_prime, of_wp[1:]),))


def inverse_slopes(
    ops: ArrayOps, z: Pair, wp_prime: Pair, wp_in_omegas: Sequence[Pair]
) -> tuple[Pair, ...]:
    """The slopes of `inverse_wp` from wp' and the slopes of wp at the solution z."""
    # Not Pair.reciprocal: its squares leave the range where the slopes do not.
    modulus = ops.hypot(wp_prime.re, wp_prime.im)
    inverse = Pair(wp_prime.re / modulus / modulus, -wp_prime.im / modulus / modulus)
    found = (inverse, *(-(slope * inverse) for slope in wp_in_omegas))
    return tuple(finite_slope(ops, z, slope) for slope in found)


def assembled(
    ops: ArrayOps,
    expansions: Sequence[Expansion],
    anchor: tuple[Any, Any],
    c: SeriesConstants,
    matrix: Matrix | None,
) -> ValuesAndSlopes:
    """Slopes in z, and in the half-periods given if there is a matrix, by Euler's theorem."""
    rows = []
    for expansion in expansions:
        slopes = [expansion.in_z]
        if matrix is not None:
            slopes += _in_half_periods(expansion, anchor, c, matrix)
        slopes = [times_unit(slope, c, expansion.degree + 1) for slope in slopes]
        rows.append(tuple(finite_slope(ops, expansion.value, slope) for slope in slopes))
    return ValuesAndSlopes(tuple(e.value for e in expansions), tuple(rows))


def _in_half_periods(
    expansion: Expansion,
    anchor: tuple[Any, Any],
    c: SeriesConstants,
    matrix: Matrix,
) -> list[Pair]:
    if expansion.in_tau is None:
        raise InputError(_NO_SLOPES)
    b, inverse = _period3(c), _inverse_period(c)
    in_b = inverse * expansion.in_tau
    in_a = -(inverse * (expansion.by_euler + b * in_b))
    in_a, in_b = (
        slope - expansion.in_z.scale(index)
        for slope, index in zip((in_a, in_b), anchor, strict=True)
    )
    if expansion.in_periods is not None:
        in_a, in_b = (
            slope + added for slope, added in zip((in_a, in_b), expansion.in_periods, strict=True)
        )
    # a = 2 (p omega1 + q omega3) and b = 2 (r omega1 + s omega3).
    (p, q), (r, s) = matrix
    return [in_a.scale(2.0 * i) + in_b.scale(2.0 * j) for i, j in ((p, r), (q, s))]


def finite_slope(ops: ArrayOps, value: Pair, slope: Pair) -> Pair:
    """The slope, or 0 where it or the value is not finite."""
    # The difference of a number and itself is 0 if it is finite, and NaN if not.
    parts = (value.re, value.im, slope.re, slope.im)
    is_finite = sum(part - part for part in parts) == 0.0
    return Pair(ops.where(is_finite, slope.re, 0.0), ops.where(is_finite, slope.im, 0.0))


def _period3(c: SeriesConstants) -> Pair:
    return Pair(c.period3_re.high, c.period3_im.high)


def _inverse_period(c: SeriesConstants) -> Pair:
    return c.pi_over_period.scale(1.0 / math.pi)


def _slope_of(number: Any) -> Pair | None:
    return number.slope if isinstance(number, Dual) else None


def _dual(number: Any) -> Dual:
    if not isinstance(number, Dual):
        raise InputError(_NO_SLOPES)
    return number
