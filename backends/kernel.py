r"""The series kernel: Weierstrass functions of many points, written once for all array types.

Method. The argument is reduced to the cell around 0 of the reduced basis in doubled
precision (`backends.argument`). With :math:`v = \pi z/a`, :math:`Q = e^{2\pi i\tau}`,
:math:`A = Qe^{2iv}`, :math:`B = Qe^{-2iv}`, one row of the lattice on either side is summed in
closed form and the rest as a Lambert series (DLMF 23.8.1, regrouped):

.. math:: \wp = (\pi/a)^2\Bigl\{\csc^2 v - \tfrac13
          - 4\Bigl[\tfrac{A}{(1-A)^2}+\tfrac{B}{(1-B)^2}-\tfrac{2Q}{(1-Q)^2}
          + \sum_{k\ge1}\tfrac{kQ^k}{1-Q^k}(A^k+B^k-2Q^k)\Bigr]\Bigr\}

where the bracket is a multiple of :math:`\sin^2 v`, so that it vanishes at the pole, with its
derivatives in the lattice. The integrals have the same form. Evenness folds the argument to
Im v >= 0, where :math:`e^{-\beta}\sin v` has no overflow and full relative accuracy at the pole.

Nothing here branches on data, knows a dtype or a device, or hides a pole.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from backends.argument import CellPosition, exact_sum, locate, offset_from
from backends.constants import Precision, SeriesConstants
from backends.pair import ArrayOps, Pair, pair_exp, polynomial, select, value_of, where_needed


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
    growth: Any  # 1/W
    one_minus_decay: Any  # from expm1, so relatively exact near the real axis

    def neighbours(self, c: SeriesConstants) -> tuple[Any, Any]:
        """A + B = 2 Q cos 2v and A - B = 2i Q sin 2v, dual if the constants are."""
        # By cosh and sinh of 2 Im v.
        plus, minus = self.decay + self.growth, self.decay - self.growth
        sin_double = 2.0 * self.sin_cos
        total = c.nome_squared * Pair(self.cos_double * plus, sin_double * minus)
        return total, c.nome_squared * Pair(self.cos_double * minus, sin_double * plus)

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

    def sine_squared(self, growth: Any) -> Pair:
        """sin^2 v, relatively exact at the pole."""
        d = self.one_minus_decay
        return Pair(
            self.sin_squared * (0.5 * (self.decay + growth)) - (0.25 * d * d) * growth,
            self.sin_cos * self.double_sinh(growth),
        )

    def sine_cosine(self, growth: Any) -> Pair:
        """sin v cos v."""
        return Pair(
            self.sin_cos * (0.5 * (self.decay + growth)),
            0.5 * self.cos_double * self.double_sinh(growth),
        )

    def double_sinh(self, growth: Any) -> Any:
        """sinh(2 Im v), relatively exact near the real axis; `growth` is 1/W."""
        return 0.5 * (self.one_minus_decay * (1.0 + self.decay)) * growth

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
    return FoldedArgument(
        v=v,
        sign=sign,
        sin=sin,
        cos=cos,
        sin_squared=sin_squared,
        sin_cos=sin_cos,
        cos_double=1.0 - 2.0 * sin_squared,
        decay=decay,
        growth=growth,
        one_minus_decay=-ops.expm1(exponent),
    )


class Anchor(NamedTuple):
    """The lattice point or half-period the argument is measured from."""

    m: Any  # its coordinates along a and b, in halves
    n: Any
    is_half: Any  # whether it is a half-period
    root: Any  # its e_j over (pi/a)^2, or 0
    root_product: Any  # its (e_j - e_k)(e_j - e_l) over (pi/a)^4, or 1
    slope_scale: Any  # -2 (pi/a)^3 times that


# Squared distance, over the shortest period squared, within which a half-period is the anchor.
# Near it wp is flat, so the rounding errors of its terms are not excused by |z wp'|.
_NEAR_SQUARED = 0.06
# Im v below which csc^2 is 1 + cot^2, whose error vanishes at v = pi/2; above, the two cancel.
_LOW = 1.0
_THIRD = 1.0 / 3.0


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
    is_point = 1.0 - is_half

    def chosen(second: Any, third: Any) -> Any:
        return second.scale(is_second) + third.scale(is_third)

    return Anchor(
        m=cell.m + m_half,
        n=cell.n + n_half,
        is_half=is_half > 0.5,
        root=chosen(*c.roots[1:]),
        root_product=chosen(*c.root_products[1:]).shift(is_point),
        slope_scale=chosen(*c.half_slope_scales) + c.wp_prime_scale.scale(is_point),
    )


class WpTerms(NamedTuple):
    """wp and wp' about the anchor, before they are scaled.

    Numbers are pairs; those that depend on the nome are dual if the constants of the lattice are.
    """

    anchor: Anchor
    offset: Pair
    folded: FoldedArgument
    cotangent: Pair
    cosecant_squared: Pair
    rows: Any  # the other rows of the lattice, a multiple of sin^2 v
    row_factor: Any  # what they are over `SeriesConstants.row_unit` times sin^2 v
    row_slopes: Any  # their derivative in v over -2
    ratio: Any  # wp = (pi/a)^2 (root + root_product * ratio)
    slope: Any  # wp' = sign slope_scale * slope
    is_pole: Any


def wp_terms(ops: ArrayOps, z: Pair, c: SeriesConstants, precision: Precision) -> WpTerms:
    r"""What wp, wp' and their derivatives are made of; `z` is in units of the lattice.

    Let r be the sum of rows and r' its derivative in v. If the anchor is a lattice point,
    :math:`\wp = (\pi/a)^2(\csc^2v-\frac13+r)` and
    :math:`\wp' = -2(\pi/a)^3(\cot v\csc^2v-\frac12r')`. If it is the half-period omega_j,
    :math:`\wp(u+\omega_j) = e_j + (e_j-e_k)(e_j-e_l)/(\wp(u)-e_j)` (DLMF 23.10(i)) gives values
    exact to the last bits, including wp' = 0 at the half-period. There |v| < 0.8, and
    :math:`(\wp(u)-e_j)\sin^2v` is 1 plus a small number.
    """
    anchor = choose_anchor(ops, z, c, precision)
    offset = offset_from(ops, z, anchor.m, anchor.n, c, precision)
    f = fold(ops, offset, c, precision)
    s2, sc = f.sine_squared(f.growth), f.sine_cosine(f.growth)
    x = c.row_unit * s2
    row_factor, row_slope = row_sums(x, c)
    rows = x * row_factor
    slopes = -(c.row_unit * (sc * row_slope))
    above_root = rows - anchor.root.shift(_THIRD)
    # Each anchor has its own denominator, which may vanish where the other one is in force, or at
    # the pole. A 1 takes its place there, or the derivative of what is not selected would be 0
    # times infinity, and one point at a pole would spoil the derivative in the lattice.
    is_half = anchor.is_half
    # Anchor at a half-period: everything over 1 + n. Far from it, where nobody asks, sin^2 v is
    # huge on a tall lattice.
    s2, sc = (where_needed(ops, is_half, x) for x in (s2, sc))
    n = s2 * above_root
    share = n * where_needed(ops, is_half, n.shift(1.0)).quick_reciprocal()  # 1 - 1/(1+n)
    half_slope = sc + s2.square() * slopes
    half_slope = half_slope - half_slope * (share * (2.0 - share))
    # Anchor at a lattice point: the pole itself.
    distance_squared = f.distance_squared
    is_pole = (distance_squared == 0.0) & ~is_half
    distance_squared = ops.where_needed(~(is_half | is_pole), distance_squared, 1.0)
    cotangent = f.cotangent_over(distance_squared)
    # Higher up, with E = e^(2iv) and J = E/(1-E): cot v = -i (1+2J) and csc^2 v = -4 J (1+J).
    power = Pair(f.cos_double * f.decay, 2.0 * f.sin_cos * f.decay)
    j = power * (1.0 - power).conjugate().scale(1.0 / distance_squared)
    j = power + power * j
    is_low = f.v.im < _LOW
    cosecant_squared = select(ops, is_low, cotangent.square() + 1.0, -4.0 * (j + j.square()))
    cotangent = select(ops, is_low, cotangent, Pair(2.0 * j.im, -1.0 - 2.0 * j.re))
    return WpTerms(
        anchor=anchor,
        offset=offset,
        folded=f,
        cotangent=cotangent,
        cosecant_squared=cosecant_squared,
        rows=rows,
        row_factor=row_factor,
        row_slopes=slopes,
        ratio=select(ops, is_half, s2 - s2 * share, cosecant_squared + above_root),
        slope=select(ops, is_half, -half_slope, cotangent * cosecant_squared + slopes),
        is_pole=is_pole,
    )


def wp_and_prime(
    ops: ArrayOps, z: Pair, c: SeriesConstants, precision: Precision
) -> tuple[Pair, Pair]:
    """wp and wp' in one pass."""
    terms = wp_terms(ops, z.scale(c.unit), c, precision)
    wp, wp_prime = (
        ops.with_infinities(times_unit(value, c, degree), terms.offset, terms.is_pole)
        for value, degree in zip(wp_in_units(terms, c), (2, 3), strict=True)
    )
    return wp, wp_prime


def wp(ops: ArrayOps, z: Pair, c: SeriesConstants, precision: Precision) -> Pair:
    return wp_and_prime(ops, z, c, precision)[0]


def wp_prime(ops: ArrayOps, z: Pair, c: SeriesConstants, precision: Precision) -> Pair:
    return wp_and_prime(ops, z, c, precision)[1]


def wp_in_units(terms: WpTerms, c: SeriesConstants) -> tuple[Any, Any]:
    """wp and wp', dual if the terms are; nothing is said of poles."""
    anchor, sign = terms.anchor, terms.folded.sign
    wp = c.wp_scale * (anchor.root + anchor.root_product * terms.ratio)
    return wp, anchor.slope_scale * terms.slope.scale(sign)


def times_unit(value: Any, c: SeriesConstants, degree: int) -> Any:
    """A value of degree -`degree`, out of the units of the lattice."""
    for _ in range(degree):
        value = value.scale(c.unit)
    return value


def row_sums(x: Any, c: SeriesConstants) -> tuple[Any, Any]:
    """The rows of the lattice but the one of 0, over x, and their derivative in x.

    All is written as the leading term plus a small correction, whose rounding errors hardly count.
    """
    k0, ka, kb, kd = c.row_factors
    j = x * (1.0 - x).quick_reciprocal()
    ka_j = ka * j
    factor = k0 + (j * (kb + ka_j) + polynomial(c.rows, x))
    slope = k0 + (j * (2.0 * kb + j * (kd + 2.0 * ka_j)) + polynomial(c.rows_slope, x))
    return factor, slope


def zeta(ops: ArrayOps, z: Pair, c: SeriesConstants, precision: Precision) -> Pair:
    """The odd integral of -wp. It is not periodic: the quasi-period of the cell is added."""
    z = z.scale(c.unit)
    cell = locate(ops, z, c, precision)
    offset = offset_from(ops, z, cell.m, cell.n, c, precision)
    f = fold(ops, offset, c, precision)
    is_pole = f.distance_squared == 0.0
    value = zeta_in_cell(ops, f, c, is_pole) + quasi_period(ops, cell, c, precision)
    return ops.with_infinities(value.scale(c.unit), offset, is_pole)


def zeta_in_cell(ops: ArrayOps, f: FoldedArgument, c: SeriesConstants, is_pole: Any) -> Any:
    """zeta of the offset, dual if the constants are."""
    total, difference = f.neighbours(c)
    rows = ((1.0 + c.nome_fourth) - total).reciprocal()
    rest = polynomial(c.rows_integral, total)
    cotangent = f.cotangent_over(ops.where_needed(~is_pole, f.distance_squared, 1.0))
    odd = cotangent - c.minus_third_e2 * f.v - 2.0 * (difference * (rows + rest)).times_i()
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
    return f.scaled_sine * polynomial(c.theta, f.neighbours(c)[0])


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
    """(a/pi) exp(eta1 z^2/a) theta_1(v)/theta_1'(0), continued by quasi-periodicity (23.2.17).

    `z` is in units of the lattice.
    """
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
    m_odd, n_odd = parity(ops, m), parity(ops, n)
    sign = f.sign * (1.0 - 2.0 * (m_odd + n_odd - m_odd * n_odd))
    # The value is 0 at every lattice point, even where the exponential would overflow. Kept finite,
    # the exponential neither makes NaN of that zero nor cuts it off from its derivative.
    overflows = exponent.re > precision.largest_exponent
    exponent = Pair(ops.where(overflows, precision.largest_exponent, exponent.re), exponent.im)
    theta, power = theta_quotient(f, c), pair_exp(ops, exponent)
    return SigmaFactors(offset, cell, f, theta, quasi, middle, power, sign, overflows)


def sigma(ops: ArrayOps, z: Pair, c: SeriesConstants, precision: Precision) -> Pair:
    return finished_sigma(ops, sigma_factors(ops, z.scale(c.unit), c, precision), c)


def finished_sigma(ops: ArrayOps, factors: SigmaFactors, c: SeriesConstants) -> Pair:
    theta = value_of(factors.theta)
    value = c.period_over_pi * (theta * factors.power).scale(factors.sign / c.unit)
    is_zero = (theta.re == 0.0) & (theta.im == 0.0)
    value = Pair(ops.where(factors.overflows & ~is_zero, float("inf"), value.re), value.im)
    return ops.with_infinities(value, factors.offset)


def parity(ops: ArrayOps, n: Any) -> Any:
    """0.0 for even, 1.0 for odd integers."""
    half = 0.5 * n
    difference = half - ops.rint(half)
    return 4.0 * difference * difference


def green(ops: ArrayOps, z: Pair, c: SeriesConstants, precision: Precision) -> Any:
    """-log|theta_1(v)/theta_1'(0)| - log|a/pi| + (Im v)^2/(pi Im tau), a real number."""
    z = z.scale(c.unit)
    cell = locate(ops, z, c, precision)
    f = fold(ops, offset_from(ops, z, cell.m, cell.n, c, precision), c, precision)
    return green_of_theta(ops, theta_quotient(f, c), f.v.im, c)


def green_of_theta(ops: ArrayOps, theta: Pair, height: Any, c: SeriesConstants) -> Any:
    is_pole = (theta.re == 0.0) & (theta.im == 0.0)
    modulus = ops.hypot(ops.where(is_pole, 1.0, theta.re), theta.im)
    # The quotient carries e^(-Im v); the quadratic term would cancel against it far out.
    value = -ops.log(modulus) - c.log_period_over_pi - height * (1.0 - height / c.pi_im_tau)
    return ops.where(is_pole, float("inf"), value)


def rows_second(terms: WpTerms, c: SeriesConstants) -> Pair:
    """The second derivative of the sum of rows r in v.

    wp'' = 6 wp^2 - g2/2 without what csc^2 v alone gives; csc^2 v times r is a smooth sum too.
    """
    rows, factor = value_of(terms.rows), value_of(terms.row_factor)
    smooth = 12.0 * (value_of(c.row_unit) * factor) - value_of(c.half_g2_excess)
    return smooth + rows * (6.0 * rows - 4.0)


def wp_second_in_units(ops: ArrayOps, terms: WpTerms, c: SeriesConstants) -> Pair:
    r"""wp'' = 6 wp^2 - g2/2 over (pi/a)^4, in a form that does not cancel.

    About a lattice point it is 6 csc^4 v - 4 csc^2 v plus the rows. About a half-period wp is
    e + d, and 6 e^2 - g2/2 is twice the product of root differences.
    """
    cosecant = terms.cosecant_squared
    about_pole = cosecant * (6.0 * cosecant - 4.0) + rows_second(terms, c)
    root, product = value_of(terms.anchor.root), value_of(terms.anchor.root_product)
    ratio = value_of(terms.ratio)
    about_half = product * (ratio * (12.0 * root + 6.0 * (product * ratio)) + 2.0)
    second: Pair = select(ops, terms.anchor.is_half, about_half, about_pole)
    return second
