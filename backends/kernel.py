r"""The series kernel: Weierstrass functions of many points, written once for all array types.

Method. The argument is reduced to the cell around 0 of the reduced basis in doubled
precision (`backends.argument`). With :math:`v = \pi z/a`, :math:`Q = e^{2\pi i\tau}`,
:math:`A = Qe^{2iv}`, :math:`B = Qe^{-2iv}`, one row of the lattice on either side is summed in
closed form and the rest as a Lambert series (DLMF 23.8.1, regrouped):

.. math:: \wp = (\pi/a)^2\Bigl\{\csc^2 v - \tfrac13E_2
          - 4\Bigl[\tfrac{A}{(1-A)^2}+\tfrac{B}{(1-B)^2}
          + \sum_{k\ge1}\tfrac{kQ^k}{1-Q^k}(A^k+B^k)\Bigr]\Bigr\}

and its derivative and integrals have the same form. Evenness folds the argument to Im v >= 0,
where :math:`e^{-\beta}\sin v` has no overflow and full relative accuracy at the pole.

Nothing here branches on data, knows a dtype or a device, or hides a pole.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from backends.argument import CellPosition, exact_sum, locate, offset_from
from backends.constants import Precision, SeriesConstants
from backends.pair import ArrayOps, Dual, Pair, pair_exp, select, value_of


class FoldedArgument(NamedTuple):
    """The offset as v = pi*offset/a with Im v >= 0, and what all functions make of it."""

    v: Pair
    sign: Any  # +1 or -1: the fold; odd functions take it back
    sin: Any  # of Re v
    cos: Any
    sin_squared: Any
    sin_cos: Any
    cos_double: Any  # of 2 Re v
    decay: Any  # W = e^(-2 Im v)
    one_minus_decay: Any  # from expm1, so relatively exact near the real axis
    total: Any  # A + B; dual if the constants of the lattice are
    difference: Any  # A - B

    @property
    def scaled_sine(self) -> Pair:
        """e^(-Im v) sin v: it never overflows, and is relatively exact at the pole."""
        return Pair(self.sin * (0.5 + 0.5 * self.decay), self.cos * (0.5 * self.one_minus_decay))

    @property
    def scaled_cosine(self) -> Pair:
        """e^(-Im v) cos v."""
        return Pair(self.cos * (0.5 + 0.5 * self.decay), -self.sin * (0.5 * self.one_minus_decay))

    @property
    def distance_squared(self) -> Any:
        """|1 - e^(2iv)|^2 = (1-W)^2 + 4 W sin^2 Re v, a sum of positive terms."""
        d = self.one_minus_decay
        return d * d + (4.0 * self.decay) * self.sin_squared

    def cotangent_over(self, distance_squared: Any) -> Pair:
        """cot v = (4 W sin cos - i (1-W)(1+W)) / |1 - e^(2iv)|^2."""
        return Pair(
            (4.0 * self.decay) * self.sin_cos / distance_squared,
            -(self.one_minus_decay * (1.0 + self.decay)) / distance_squared,
        )


def fold(ops: ArrayOps, offset: Pair, c: SeriesConstants, precision: Precision) -> FoldedArgument:
    # In two parts: an error of pi/a would enter wp' near the pole three times.
    v = c.pi_over_period * offset + c.pi_over_period_low * offset
    sign = ops.sign_of(v.im)
    v = Pair(v.re * sign, v.im * sign)
    sin, cos = ops.sin(v.re), ops.cos(v.re)
    exponent = -2.0 * v.im
    decay = ops.exp(exponent)
    growth = 1.0 / (decay + precision.underflow_guard)
    sin_squared, sin_cos = sin * sin, sin * cos
    cos_double, sin_double = 1.0 - 2.0 * sin_squared, 2.0 * sin_cos
    # A + B = 2 Q cos 2v and A - B = 2i Q sin 2v, by cosh and sinh of 2 Im v.
    plus, minus = decay + growth, decay - growth
    return FoldedArgument(
        v=v,
        sign=sign,
        sin=sin,
        cos=cos,
        sin_squared=sin_squared,
        sin_cos=sin_cos,
        cos_double=cos_double,
        decay=decay,
        one_minus_decay=-ops.expm1(exponent),
        total=c.nome_squared * Pair(cos_double * plus, sin_double * minus),
        difference=c.nome_squared * Pair(cos_double * minus, sin_double * plus),
    )


def polynomial(coefficients: tuple[Any, ...], x: Any) -> Any:
    """sum_k coefficients[k] x^k by Horner's rule."""
    total = coefficients[-1]
    for coefficient in reversed(coefficients[:-1]):
        total = total * x + coefficient
    return total


class Anchor(NamedTuple):
    """The lattice point or half-period the argument is measured from."""

    m: Any  # its coordinates along a and b, in halves
    n: Any
    is_half: Any  # whether it is a half-period
    root: Any  # its e_j over (pi/a)^2, or 0
    root_product: Any  # its (e_j - e_k)(e_j - e_l) over (pi/a)^4, or 1


# Squared distance, over the shortest period squared, within which a half-period is the anchor.
# Near it wp is flat, so the rounding errors of its terms are not excused by |z wp'|.
_NEAR_SQUARED = 0.06
# Im v below which csc^2 is 1 + cot^2, whose error vanishes at v = pi/2; above, the two cancel.
_LOW = 1.0


def choose_anchor(ops: ArrayOps, z: Pair, c: SeriesConstants, precision: Precision) -> Anchor:
    """The nearest lattice point, or b/2 or (a+b)/2 if that is near.

    (The half-period a/2 needs no such care: 1 + cot^2 is exact there.)
    """
    cell = locate(ops, z, c, precision)
    n_half = 0.5 * ops.rint(2.0 * cell.row)
    column = cell.column - n_half * ops.constant(c.tau.re)
    m_half = 0.5 * ops.rint(2.0 * column)
    dx = column - m_half
    dy = (cell.row - n_half) * ops.constant(c.tau.im)
    n_half = n_half * ops.as_weight(dx * dx + dy * dy < _NEAR_SQUARED)
    is_half = 4.0 * (n_half * n_half)
    m_half = m_half * is_half
    is_second = 4.0 * (m_half * m_half)
    is_third = is_half - is_second
    return Anchor(
        m=cell.m + m_half,
        n=cell.n + n_half,
        is_half=is_half > 0.5,
        root=c.roots[1].scale(is_second) + c.roots[2].scale(is_third),
        root_product=(
            c.root_products[1].scale(is_second) + c.root_products[2].scale(is_third)
        ).shift(1.0 - is_half),
    )


class WpTerms(NamedTuple):
    """wp and wp' about the anchor, before they are scaled.

    Numbers are pairs; those that depend on the nome are dual if the constants of the lattice are.
    """

    anchor: Anchor
    offset: Pair
    sign: Any  # of the fold
    cosecant_squared: Pair
    rows: Any  # the other rows of the lattice, plus 1/3: small if the lattice is tall
    ratio: Any  # wp = (pi/a)^2 (root + root_product * ratio)
    slope: Any  # wp' = -2 sign (pi/a)^3 root_product * slope
    is_pole: Any


def wp_terms(ops: ArrayOps, z: Pair, c: SeriesConstants, precision: Precision) -> WpTerms:
    r"""What wp, wp' and their derivatives are made of.

    With S = sin v, C = cos v (both scaled by e^(-Im v)) and the sums of rows, write
    :math:`\wp(u) - e_j = (\pi/a)^2 N/S^2` and :math:`\wp'(u) = -2(\pi/a)^3 M/S^3`. If the anchor
    is a lattice point, this is the result, with 0 for e_j. If it is the half-period omega_j,
    :math:`\wp(u+\omega_j) = e_j + (e_j-e_k)(e_j-e_l)/(\wp(u)-e_j)` (DLMF 23.10(i)) gives values
    exact to the last bits, including wp' = 0 at the half-period.
    """
    anchor = choose_anchor(ops, z, c, precision)
    offset = offset_from(ops, z, anchor.m, anchor.n, c, precision)
    f = fold(ops, offset, c, precision)
    nearest, nearest_slope = _nearest_rows(f.total, c)
    further = polynomial(c.rows[1:], f.total) * f.total
    rows = nearest + ((further + c.rows[0]) - anchor.root)
    # d(A+B)/dv = 2i (A-B), and wp' = -2 (pi/a)^3 (cot v csc^2 v + slopes).
    slopes = -(f.difference * (nearest_slope + polynomial(c.rows_slope, f.total))).times_i()

    w, d = f.decay, f.one_minus_decay
    d_sum, w_sum = d * (1.0 + w), 0.5 * (1.0 + w * w)  # 1 - W^2, (1 + W^2)/2
    # S^2 and S C by double angles: fewer roundings than products of S and C.
    s2 = Pair(f.sin_squared * w_sum - 0.25 * (d * d), 0.5 * f.sin_cos * d_sum)
    sc = Pair(f.sin_cos * w_sum, 0.25 * f.cos_double * d_sum)
    # Each anchor has its own denominator, which may vanish where the other one is in force, or at
    # the pole. A 1 takes its place there, or the derivative of what is not selected would be 0
    # times infinity, and one point at a pole would spoil the derivative in the lattice.
    is_half = anchor.is_half
    inverse_n = _where_needed(ops, is_half, (s2 * rows).shift(w)).reciprocal()
    distance_squared = f.distance_squared
    is_pole = (distance_squared == 0.0) & ~is_half
    distance_squared = ops.where_needed(~(is_half | is_pole), distance_squared, 1.0)
    # Anchor at a half-period: everything over N.
    half_ratio = s2 * inverse_n
    half_slope = (sc.scale(w) + s2.square() * slopes) * inverse_n.square()
    # Anchor at a lattice point: the pole itself.
    cotangent = f.cotangent_over(distance_squared)
    steep = s2.conjugate().scale(4.0 / distance_squared).scale(4.0 * w / distance_squared)
    cosecant_squared = select(ops, f.v.im < _LOW, cotangent.square() + 1.0, steep)
    return WpTerms(
        anchor=anchor,
        offset=offset,
        sign=f.sign,
        cosecant_squared=cosecant_squared,
        rows=nearest + (further + c.rows_excess),
        ratio=select(ops, is_half, half_ratio, cosecant_squared + rows),
        slope=select(ops, is_half, -half_slope, cotangent * cosecant_squared + slopes),
        is_pole=is_pole,
    )


def wp_and_prime(
    ops: ArrayOps, z: Pair, c: SeriesConstants, precision: Precision
) -> tuple[Pair, Pair]:
    """wp and wp' in one pass."""
    terms = wp_terms(ops, z, c, precision)
    wp, wp_prime = (
        ops.with_infinities(value, terms.offset, terms.is_pole) for value in scaled_wp(terms, c)
    )
    return wp, wp_prime


def scaled_wp(terms: WpTerms, c: SeriesConstants) -> tuple[Any, Any]:
    """wp and wp', dual if the terms are; nothing is said of poles."""
    root, root_product = terms.anchor.root, terms.anchor.root_product
    wp = c.wp_scale * (root + root_product * terms.ratio)
    return wp, c.wp_prime_scale * (root_product * terms.slope).scale(terms.sign * c.unit)


def _where_needed(ops: ArrayOps, condition: Any, x: Any) -> Any:
    """`ArrayOps.where_needed` on pairs, with 1 in place of what does not count."""
    if isinstance(x, Dual):  # its derivative is there already, and nobody differentiates it
        return x
    return Pair(ops.where_needed(condition, x.re, 1.0), ops.where_needed(condition, x.im, 0.0))


def _nearest_rows(total: Any, c: SeriesConstants) -> tuple[Any, Any]:
    """-4 [A/(1-A)^2 + B/(1-B)^2], two whole rows of the lattice, and its derivative in A + B.

    Over the common denominator (1-A)(1-B) = 1 + Q^2 - (A+B). All is written as the leading term
    plus a small correction, whose rounding errors hardly count.
    """
    one = 1.0 + c.nome_fourth
    factor = -4.0 * one
    denominator = one - total
    inverse = denominator.quick_reciprocal()
    excess = (total - c.nome_fourth) * inverse  # of the inverse over 1
    square_excess = excess * (excess + 2.0)  # of its square over 1
    numerator = factor * total + 16.0 * c.nome_fourth
    rows = numerator + numerator * square_excess
    return rows, factor + (factor * square_excess + 2.0 * (rows * inverse))


def zeta(ops: ArrayOps, z: Pair, c: SeriesConstants, precision: Precision) -> Pair:
    """The odd integral of -wp. It is not periodic: the quasi-period of the cell is added."""
    cell = locate(ops, z, c, precision)
    offset = offset_from(ops, z, cell.m, cell.n, c, precision)
    f = fold(ops, offset, c, precision)
    is_pole = f.distance_squared == 0.0
    value = zeta_in_cell(ops, f, c, is_pole) + quasi_period(ops, cell, c, precision)
    return ops.with_infinities(value, offset, is_pole)


def zeta_in_cell(ops: ArrayOps, f: FoldedArgument, c: SeriesConstants, is_pole: Any) -> Any:
    """zeta of the offset, dual if the constants are."""
    rows = ((1.0 + c.nome_fourth) - f.total).reciprocal()
    rest = polynomial(c.rows_integral, f.total)
    cotangent = f.cotangent_over(ops.where_needed(~is_pole, f.distance_squared, 1.0))
    odd = cotangent - c.minus_third_e2 * f.v - 2.0 * (f.difference * (rows + rest)).times_i()
    return c.pi_over_period * odd.scale(f.sign)


def quasi_period(
    ops: ArrayOps, cell: CellPosition, c: SeriesConstants, precision: Precision
) -> Pair:
    """What zeta gains from 0 to the lattice point: 2 m eta1 + 2 n eta3.

    Where eta3/eta1 is real there are lattice points for which the two terms cancel.
    """
    m, n = 2.0 * cell.m, 2.0 * cell.n
    return Pair(
        exact_sum(ops, 0.0, m, c.eta1.re, n, c.eta3.re, precision),
        exact_sum(ops, 0.0, m, c.eta1.im, n, c.eta3.im, precision),
    )


def theta_quotient(f: FoldedArgument, c: SeriesConstants) -> Any:
    """e^(-Im v) theta_1(v)/theta_1'(0)."""
    return f.scaled_sine * polynomial(c.theta, f.total)


class SigmaFactors(NamedTuple):
    """sigma = (a/pi) sign * theta * power, where only theta can be 0."""

    offset: Pair
    cell: CellPosition
    folded: FoldedArgument
    theta: Any  # e^(-Im v) theta_1(v)/theta_1'(0); dual if the constants are
    quasi_period: Pair  # of the cell
    middle: Pair  # between 0 and the lattice point, seen from the point
    power: Pair  # the exponential
    sign: Any
    overflows: Any  # whether the exponential was too large, and is kept finite


def sigma_factors(ops: ArrayOps, z: Pair, c: SeriesConstants, precision: Precision) -> SigmaFactors:
    """(a/pi) exp(eta1 z^2/a) theta_1(v)/theta_1'(0), continued by quasi-periodicity (23.2.17)."""
    cell = locate(ops, z, c, precision)
    m, n = cell.m, cell.n
    offset = offset_from(ops, z, m, n, c, precision)
    f = fold(ops, offset, c, precision)
    middle = Pair(
        offset.re + 0.5 * (m * c.period1_re.high + n * c.period3_re.high),
        offset.im + 0.5 * (m * c.period1_im.high + n * c.period3_im.high),
    )
    quasi = quasi_period(ops, cell, c, precision)
    exponent = quasi * middle - 0.5 * (value_of(c.minus_third_e2) * f.v.square())
    exponent = exponent.shift(f.v.im)
    m_odd, n_odd = _parity(ops, m), _parity(ops, n)
    sign = f.sign * (1.0 - 2.0 * (m_odd + n_odd - m_odd * n_odd))
    # The value is 0 at every lattice point, even where the exponential would overflow. Kept finite,
    # the exponential neither makes NaN of that zero nor cuts it off from its derivative.
    overflows = exponent.re > precision.largest_exponent
    exponent = Pair(ops.where(overflows, precision.largest_exponent, exponent.re), exponent.im)
    theta, power = theta_quotient(f, c), pair_exp(ops, exponent)
    return SigmaFactors(offset, cell, f, theta, quasi, middle, power, sign, overflows)


def sigma(ops: ArrayOps, z: Pair, c: SeriesConstants, precision: Precision) -> Pair:
    return finished_sigma(ops, sigma_factors(ops, z, c, precision), c)


def finished_sigma(ops: ArrayOps, factors: SigmaFactors, c: SeriesConstants) -> Pair:
    theta = value_of(factors.theta)
    value = c.period_over_pi * (theta * factors.power).scale(factors.sign)
    is_zero = (theta.re == 0.0) & (theta.im == 0.0)
    value = Pair(ops.where(factors.overflows & ~is_zero, float("inf"), value.re), value.im)
    return ops.with_infinities(value, factors.offset)


def _parity(ops: ArrayOps, n: Any) -> Any:
    """0.0 for even, 1.0 for odd integers."""
    half = 0.5 * n
    difference = half - ops.rint(half)
    return 4.0 * difference * difference


def green(ops: ArrayOps, z: Pair, c: SeriesConstants, precision: Precision) -> Any:
    """-log|theta_1(v)/theta_1'(0)| - log|a/pi| + (Im v)^2/(pi Im tau), a real number."""
    cell = locate(ops, z, c, precision)
    f = fold(ops, offset_from(ops, z, cell.m, cell.n, c, precision), c, precision)
    return green_of_theta(ops, theta_quotient(f, c), f.v.im, c)


def green_of_theta(ops: ArrayOps, theta: Pair, height: Any, c: SeriesConstants) -> Any:
    is_pole = (theta.re == 0.0) & (theta.im == 0.0)
    modulus = ops.hypot(ops.where(is_pole, 1.0, theta.re), theta.im)
    # The quotient carries e^(-Im v); the quadratic term would cancel against it far out.
    value = -ops.log(modulus) - c.log_period_over_pi - height * (1.0 - height / c.pi_im_tau)
    return ops.where(is_pole, float("inf"), value)
