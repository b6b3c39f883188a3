r"""Weierstrass functions as sums over the rows of the lattice, at one given precision.

With full periods :math:`a, b` of the reduced basis, :math:`v = \pi z/a`, :math:`\tau = b/a`,

.. math:: \wp(z) = -\frac{\eta_1}{\omega_1}
          + \Bigl(\frac\pi a\Bigr)^2 \sum_{n=-\infty}^\infty \csc^2(v + n\pi\tau),

one term per row of poles, and the same for the others (cotangents for zeta, a product of
sines for sigma). This derivation is independent of the Lambert series of the array backends,
which it judges.

The rows n and -n are added before anything is evaluated. With :math:`X, Y = Q^n e^{\pm2iv}`,
:math:`Q = e^{2\pi i\tau}`, they share the denominator
:math:`d_n = (1-X)(1-Y) = 1 + Q^{2n} - 2Q^n\cos 2v`, and

.. math:: -\tfrac14(\csc^2_n + \csc^2_{-n}) = \frac{X}{(1-X)^2} + \frac{Y}{(1-Y)^2}
          = \frac{(1-Q^{2n})^2}{d_n^2} - \frac{1+Q^{2n}}{d_n}.

Since :math:`|Q^n e^{\pm2iv}| \le |Q|^{n-1/2}` in the reduced cell, :math:`|d_n - 1| < 0.07`:
nothing cancels, and the rows are summed in fixed point, on integers, which is ten times faster
than on mpmath's numbers. The row of the origin, which may be large or tiny, is not.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import mpmath

from backends.exact_reduction import ReducedFrame, ReducedPoint, exact_half_periods
from backends.mpmath_precision import context
from wefpe_core._exact import GaussianRational

# Rounding errors of some forty additions, in bits, with room.
_FIXED_POINT_GUARD_BITS = 12
# gmpy2's integer where mpmath has found it: three times as fast
_integer = type(mpmath.mpf(1).man_exp[0])
_ZERO = _integer(0)


class RowTable:
    r"""What the row sums need that depends on the lattice and the precision alone.

    Attributes
    ----------
    period1, tau, q_squared
        Full period a, tau and :math:`Q = e^{2\pi i\tau}` of the reduced basis.
    e2, h1, h3
        The Eisenstein series, and :math:`2a\eta_1`, :math:`2a\eta_3` (reduced basis).
    """

    def __init__(self, frame: ReducedFrame, bits: int) -> None:
        ctx = self.ctx = context(bits)
        self.bits = bits
        self.frame = frame
        self.period1 = complex_ratio(ctx, *frame.period1, frame.scale)
        self.tau = complex_ratio(ctx, *frame.tau, frame.norm)
        # The angle is taken from the exact Re(tau): for Re(tau) = 0 or 1/2, Q is exactly real.
        turns = ctx.fdiv(2 * frame.tau[0], frame.norm)
        cosine, sine = ctx.cospi(turns), ctx.sinpi(turns)
        self.q_squared = ctx.exp(-2 * ctx.pi * self.tau.imag) * ctx.mpc(cosine, sine)
        self.pi_over_period = ctx.pi / self.period1
        self.pi_over_period_squared = self.pi_over_period**2
        self.pi_over_period_cubed = self.pi_over_period**3

        # |Q|^(rows) < 2^-bits: the first row left out is negligible against the first one kept.
        decay_bits = 2 * ctx.pi * self.tau.imag / ctx.ln2
        self.n_rows = 1 + int(ctx.ceil((bits + _FIXED_POINT_GUARD_BITS) / decay_bits))
        powers = [self.q_squared]
        while len(powers) < self.n_rows:
            powers.append(powers[-1] * self.q_squared)
        self.powers = powers

        self.e2 = 1 - 24 * sum((x / (1 - x) ** 2 for x in reversed(powers)), ctx.zero)
        self.h1 = ctx.pi**2 * self.e2 / 3
        self.h3 = self.h1 * self.tau - 2j * ctx.pi
        self.product = ctx.mpc(1)
        for x in powers:
            self.product *= (1 - x) ** 2
        self._set_fixed_point()

    def _set_fixed_point(self) -> None:
        ctx = self.ctx
        self.fraction_bits = self.bits + _FIXED_POINT_GUARD_BITS
        self.fixed_rows: list[tuple[int, ...]] = []
        leading = ctx.mpc(1)
        for x in self.powers:
            square = x * x
            self.fixed_rows.append(
                (
                    *self.to_fixed(leading),  # Q^(n-1)
                    *self.to_fixed(1 + square),
                    *self.to_fixed((1 - square) ** 2),
                )
            )
            leading = x

    def to_fixed(self, value: Any) -> tuple[int, int]:
        """Round a complex number to integers in units of ``2**-fraction_bits``."""
        return self._part_to_fixed(value.real), self._part_to_fixed(value.imag)

    def _part_to_fixed(self, part: Any) -> Any:
        # The exponents of very tall cells are too large to shift by.
        if self.ctx.mag(part) < -self.fraction_bits:
            return _ZERO
        return _integer(int(self.ctx.ldexp(part, self.fraction_bits)))

    def from_fixed(self, re: int, im: int) -> Any:
        """Undo `to_fixed`, rounding to the precision of the table."""
        ctx, shift = self.ctx, -self.fraction_bits
        return ctx.mpc(ctx.ldexp(ctx.mpf(re), shift), ctx.ldexp(ctx.mpf(im), shift))


@lru_cache(maxsize=512)
def row_table(frame: ReducedFrame, bits: int) -> RowTable:
    """Return the `RowTable` of a frame at a precision, computed once."""
    return RowTable(frame, bits)


def complex_ratio(ctx: Any, re: int, im: int, denominator: int) -> Any:
    """Round an exact complex quotient of integers to the context, each part correctly."""
    return ctx.mpc(ctx.fdiv(re, denominator), ctx.fdiv(im, denominator))


def rounded_to(ctx: Any, value: GaussianRational) -> Any:
    """Round an exact complex number to the context, each part correctly."""
    re, im = (ctx.fdiv(part.numerator, part.denominator) for part in value)
    return ctx.mpc(re, im)


class _OriginRow:
    """Sine and cosine of v, and what the other rows take from them."""

    __slots__ = ("cosine", "first", "ratio", "sine", "sine_of_twice")

    def __init__(self, table: RowTable, point: ReducedPoint) -> None:
        ctx = table.ctx
        self.ratio = complex_ratio(ctx, point.re, point.im, point.denominator)
        # From real sines and cosines, so that a part that vanishes is exactly 0.
        x, y = self.ratio.real, ctx.pi * self.ratio.imag
        cos_x, sin_x, cosh_y, sinh_y = ctx.cospi(x), ctx.sinpi(x), ctx.cosh(y), ctx.sinh(y)
        self.sine = ctx.mpc(sin_x * cosh_y, cos_x * sinh_y)
        self.cosine = ctx.mpc(cos_x * cosh_y, -(sin_x * sinh_y))
        # 2 Q cos 2v and Q sin 2v: the first row's X + Y and (X - Y)/2i.
        self.first = table.q_squared * (2 - 4 * self.sine * self.sine)
        self.sine_of_twice = table.q_squared * (2 * self.sine * self.cosine)


def wp_and_prime_rows(table: RowTable, point: ReducedPoint) -> tuple[Any, Any]:
    r""":math:`\wp` and :math:`\wp'` at a reduced point that is no lattice point."""
    origin = _OriginRow(table, point)
    cosecant = 1 / origin.sine
    cosecant_squared = cosecant * cosecant
    bits = table.fraction_bits
    # Divided by |d|^2 in units of 2^(-2 bits), this is 1/|d|^2 in units of 2^-bits.
    unit_cubed = _integer(1) << (3 * bits)
    first_re, first_im = table.to_fixed(origin.first)
    sum_re = sum_im = slope_re = slope_im = _ZERO
    for lead_re, lead_im, plus_re, plus_im, minus_re, minus_im in table.fixed_rows:
        # d = 1 + Q^2n - Q^(n-1) * 2Q cos 2v, and r = 1/d.
        d_re = plus_re - ((lead_re * first_re - lead_im * first_im) >> bits)
        d_im = plus_im - ((lead_re * first_im + lead_im * first_re) >> bits)
        inverse_norm = unit_cubed // (d_re * d_re + d_im * d_im)
        r_re = (d_re * inverse_norm) >> bits
        r_im = -((d_im * inverse_norm) >> bits)
        # f = (1-Q^2n)^2 r^2 - (1+Q^2n) r
        square_re = ((r_re - r_im) * (r_re + r_im)) >> bits
        square_im = (2 * r_re * r_im) >> bits
        p_re = (plus_re * r_re - plus_im * r_im) >> bits
        p_im = (plus_re * r_im + plus_im * r_re) >> bits
        f_re = ((minus_re * square_re - minus_im * square_im) >> bits) - p_re
        f_im = ((minus_re * square_im + minus_im * square_re) >> bits) - p_im
        sum_re += f_re
        sum_im += f_im
        # df/d(2 cos 2v) = Q^n r (2f + (1+Q^2n) r); one factor Q is left for the end.
        g_re, g_im = 2 * f_re + p_re, 2 * f_im + p_im
        h_re = (g_re * r_re - g_im * r_im) >> bits
        h_im = (g_re * r_im + g_im * r_re) >> bits
        slope_re += (lead_re * h_re - lead_im * h_im) >> bits
        slope_im += (lead_re * h_im + lead_im * h_re) >> bits
    rows = table.from_fixed(sum_re, sum_im)
    slope = table.from_fixed(slope_re, slope_im)
    wp = table.pi_over_period_squared * (cosecant_squared - table.e2 / 3 - 4 * rows)
    wp_prime = table.pi_over_period_cubed * (
        16 * (origin.sine_of_twice * slope) - 2 * (origin.cosine * cosecant * cosecant_squared)
    )
    return wp, wp_prime


def _row_denominators(table: RowTable, origin: _OriginRow) -> list[tuple[int, int]]:
    """Fixed-point denominators d_n of the paired rows."""
    bits = table.fraction_bits
    first_re, first_im = table.to_fixed(origin.first)
    return [
        (
            plus_re - ((lead_re * first_re - lead_im * first_im) >> bits),
            plus_im - ((lead_re * first_im + lead_im * first_re) >> bits),
        )
        for lead_re, lead_im, plus_re, plus_im, _, _ in table.fixed_rows
    ]


def zeta_rows(table: RowTable, point: ReducedPoint) -> tuple[Any]:
    r""":math:`\zeta(z)` by cotangent rows, and the quasi-periods of the shift (DLMF 23.2.11)."""
    origin = _OriginRow(table, point)
    bits = table.fraction_bits
    unit_cubed = _integer(1) << (3 * bits)
    sum_re = sum_im = _ZERO
    for (d_re, d_im), row in zip(_row_denominators(table, origin), table.fixed_rows, strict=True):
        inverse_norm = unit_cubed // (d_re * d_re + d_im * d_im)
        r_re, r_im = (d_re * inverse_norm) >> bits, -((d_im * inverse_norm) >> bits)
        sum_re += (row[0] * r_re - row[1] * r_im) >> bits
        sum_im += (row[0] * r_im + row[1] * r_re) >> bits
    rows = 4 * origin.sine_of_twice * table.from_fixed(sum_re, sum_im)
    linear = table.h1 * (origin.ratio + point.m) + table.h3 * point.n
    trigonometric = origin.cosine / origin.sine + rows
    return ((linear + table.ctx.pi * trigonometric) / table.period1,)


def _sine_product(table: RowTable, origin: _OriginRow) -> Any:
    r""":math:`(a/\pi)\sin v\prod_n d_n/(1-Q^n)^2`: sigma without its exponential factor."""
    bits = table.fraction_bits
    re, im = _integer(1) << bits, _ZERO
    for d_re, d_im in _row_denominators(table, origin):
        re, im = (re * d_re - im * d_im) >> bits, (re * d_im + im * d_re) >> bits
    rows = table.from_fixed(re, im) / table.product
    return origin.sine * rows / table.pi_over_period


def sigma_rows(table: RowTable, point: ReducedPoint) -> tuple[Any]:
    r""":math:`\sigma(z)` by the product over rows, and the shift's factor (DLMF 23.2(iii))."""
    origin = _OriginRow(table, point)
    u, m, n = origin.ratio, point.m, point.n
    # The shift's factor and exp(eta1 z^2/a) share one exponential: apart, they could cancel.
    growth = m * table.h1 + n * table.h3
    exponent = table.h1 * u * u / 2 + growth * (u + (m + n * table.tau) / 2)
    sign = -1 if (m + n + m * n) % 2 else 1
    return (sign * table.ctx.exp(exponent) * _sine_product(table, origin),)


def green_rows(table: RowTable, point: ReducedPoint) -> tuple[Any]:
    r"""Green function :math:`-\log|(a/\pi)\sin v\prod_n\cdots| + \pi({\rm Im}z/a)^2/{\rm Im}\tau`.

    The quadratic terms of its definition and the exponential factor of sigma leave just that
    square, because :math:`|z|^2 - {\rm Re}(\bar a z^2/a) = 2|a|^2({\rm Im}\,z/a)^2`.
    """
    origin = _OriginRow(table, point)
    ctx = table.ctx
    height = origin.ratio.imag
    logarithm = ctx.log(abs(_sine_product(table, origin)))
    return (ctx.pi * height * height / table.tau.imag - logarithm,)


@lru_cache(maxsize=512)
def invariants_series(table: RowTable) -> tuple[Any, Any]:
    r""":math:`g_2, g_3` from the Lambert series of the Eisenstein series :math:`E_4, E_6`."""
    ctx = table.ctx
    sum3 = sum5 = ctx.zero
    power, k = table.q_squared, 1
    while True:
        term = power / (1 - power)
        sum3, sum5 = sum3 + k**3 * term, sum5 + k**5 * term
        if abs(k**5 * term) < ctx.eps:
            break
        power, k = power * table.q_squared, k + 1
    square = table.pi_over_period_squared
    return 4 * square**2 * (1 + 240 * sum3) / 3, 8 * square**3 * (1 - 504 * sum5) / 27


@lru_cache(maxsize=512)
def half_period_values(table: RowTable) -> list[tuple[ReducedPoint, Any]]:
    r"""The half-periods of the reduced basis, each with its value of :math:`\wp`."""
    w1, w2, w3 = exact_half_periods(table.frame.reduced_lattice)
    points = [table.frame.reduce(half) for half in (w1, w3, w2)]
    return [(point, wp_and_prime_rows(table, point)[0]) for point in points]
