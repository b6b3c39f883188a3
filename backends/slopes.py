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
from backends.constants import Precision, SeriesConstants, without_slopes
from backends.kernel import (
    FoldedArgument,
    WpTerms,
    finished_sigma,
    fold,
    green_of_theta,
    polynomial,
    quasi_period,
    scaled_wp,
    sigma_factors,
    theta_quotient,
    wp_terms,
    zeta_in_cell,
)
from backends.pair import ArrayOps, Dual, Pair, select, value_of
from wefpe_core.errors import InputError

Matrix = tuple[tuple[Any, Any], tuple[Any, Any]]

_NO_SLOPES = "slopes in the lattice need constants that carry slopes"


class Expansion(NamedTuple):
    """A value at the offset from the anchor, and what its derivatives are made of."""

    value: Any  # a pair; what is written at poles is in it
    in_z: Pair
    degree_term: Any  # k f
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
    terms = wp_terms(ops, z, c, precision)
    wp, wp_prime = scaled_wp(terms, c)
    second = _wp_second(ops, terms, c)
    expansions = []
    for f, in_z, degree in ((wp, value_of(wp_prime), 2.0), (wp_prime, second, 3.0)):
        value = value_of(f)
        finished = ops.with_infinities(value, terms.offset, terms.is_pole)
        expansions.append(Expansion(finished, in_z, value.scale(degree), _slope_of(f)))
    anchor = terms.anchor
    return _assembled(ops, expansions, terms.offset, (anchor.m, anchor.n), c, matrix)


def _wp_second(ops: ArrayOps, terms: WpTerms, c: SeriesConstants) -> Pair:
    r"""wp'' = 6 wp^2 - g2/2, in a form that does not cancel.

    About a lattice point wp is csc^2 v - 1/3 + r in units of (pi/a)^2, and r and g2/2 - 2/3 are
    small if the lattice is tall: there csc^2 v is small too, and 6/9 - 2/3 cancels. About a
    half-period wp is e + d, and 6 e^2 - g2/2 is twice the product of root differences.
    """
    rows, cosecant = value_of(terms.rows), terms.cosecant_squared
    pole = cosecant * (6.0 * cosecant - 4.0 + 12.0 * rows)
    about_pole = pole + (rows * (6.0 * rows - 4.0) - value_of(c.half_g2_excess))
    root, product = value_of(terms.anchor.root), value_of(terms.anchor.root_product)
    ratio = value_of(terms.ratio)
    about_half = product * (ratio * (12.0 * root + 6.0 * (product * ratio)) + 2.0)
    second = select(ops, terms.anchor.is_half, about_half, about_pole)
    return c.wp_scale * (c.wp_scale * second)


def zeta(
    ops: ArrayOps, z: Pair, c: SeriesConstants, precision: Precision, matrix: Matrix | None
) -> ValuesAndSlopes:
    cell = locate(ops, z, c, precision)
    offset = offset_from(ops, z, cell.m, cell.n, c, precision)
    f = fold(ops, offset, c, precision)
    is_pole = f.distance_squared == 0.0
    inside = zeta_in_cell(ops, f, c, is_pole)
    value = value_of(inside) + quasi_period(ops, cell, c, precision)
    terms = wp_terms(ops, z, c, precision)
    expansion = Expansion(
        value=ops.with_infinities(value, offset, is_pole),
        in_z=-value_of(scaled_wp(terms, c)[0]),
        degree_term=value_of(inside),
        in_tau=_slope_of(inside),
        in_periods=None if matrix is None else _quasi_period_slopes(cell.m, cell.n, c),
    )
    return _assembled(ops, [expansion], offset, (cell.m, cell.n), c, matrix)


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
    factors = sigma_factors(ops, z, c, precision)
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
    degree_term = -(factor * theta)
    expansion = Expansion(value, in_z, degree_term, in_tau)
    return _assembled(ops, [expansion], factors.offset, (m, n), c, matrix)


def _theta_slope(f: FoldedArgument, c: SeriesConstants) -> Pair:
    """e^(-Im v) times the derivative of theta_1(v)/theta_1'(0) in v; d(A+B)/dv = 2i (A-B)."""
    theta = tuple(value_of(coefficient) for coefficient in c.theta)
    total, difference = value_of(f.total), value_of(f.difference)
    slope = polynomial(tuple(k * x for k, x in enumerate(theta) if k), total)
    inner = 2.0 * (difference * slope).times_i()
    return f.scaled_cosine * polynomial(theta, total) + f.scaled_sine * inner


def green(
    ops: ArrayOps, z: Pair, c: SeriesConstants, precision: Precision, matrix: Matrix | None
) -> ValuesAndSlopes:
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
    expansion = Expansion(
        value=Pair(value, 0.0 * value),
        in_z=(c.pi_over_period * in_v).scale(f.sign),
        degree_term=Pair(1.0, 0.0),  # of -log|a|
        in_tau=in_tau,
    )
    return _assembled(ops, [expansion], offset, (cell.m, cell.n), c, matrix)


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
    return tuple(_finite_slope(ops, z, slope) for slope in found)


def _assembled(
    ops: ArrayOps,
    expansions: Sequence[Expansion],
    offset: Pair,
    anchor: tuple[Any, Any],
    c: SeriesConstants,
    matrix: Matrix | None,
) -> ValuesAndSlopes:
    """Slopes in z, and in the half-periods given if there is a matrix, by Euler's theorem."""
    rows = []
    for expansion in expansions:
        slopes = [expansion.in_z]
        if matrix is not None:
            slopes += _in_half_periods(expansion, offset, anchor, c, matrix)
        rows.append(tuple(_finite_slope(ops, expansion.value, slope) for slope in slopes))
    return ValuesAndSlopes(tuple(e.value for e in expansions), tuple(rows))


def _in_half_periods(
    expansion: Expansion,
    offset: Pair,
    anchor: tuple[Any, Any],
    c: SeriesConstants,
    matrix: Matrix,
) -> list[Pair]:
    if expansion.in_tau is None:
        raise InputError(_NO_SLOPES)
    b, inverse = _period3(c), _inverse_period(c)
    in_b = inverse * expansion.in_tau
    in_a = -(inverse * (expansion.degree_term + offset * expansion.in_z + b * in_b))
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


def _finite_slope(ops: ArrayOps, value: Pair, slope: Pair) -> Pair:
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
