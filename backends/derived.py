r"""Functions made of the kernel's: derivatives of wp, log sigma, Haldane's zeta and sigma.

With :math:`v = \pi z/a` for the offset z of the cell, A its area and :math:`G_2^*` the constant of
the Green function, :math:`\zeta(z) - G_2^* z = (\pi/a)\{\zeta\text{-rows without }E_2\} +
(\pi/A)(\bar a/a)z`, so that in the modified functions :math:`E_2` drops out and the quadratic terms
become multiples of :math:`1/(\pi\,{\rm Im}\,\tau)`.
"""

from __future__ import annotations

import math
from decimal import Decimal
from functools import cache
from math import comb

from backends.argument import locate, offset_from
from backends.constants import Precision, SeriesConstants
from backends.kernel import (
    fold,
    parity,
    sigma_factors,
    theta_quotient,
    times_unit,
    wp_second_in_units,
    wp_terms,
)
from backends.pair import ArrayOps, Pair, pair_exp, polynomial, value_of
from backends.tracing import KernelFunction
from wefpe_core.extended import PI

# 2 pi in two parts: the second is what the first lacks.
_TURN = 2.0 * math.pi
_TURN_REST = float(2 * (PI - Decimal(math.pi)))


@cache
def wp_derivative(order: int) -> KernelFunction:
    r"""The derivative of wp of an order from 0 on, as a function of the kernel.

    From :math:`\wp'' = 6\wp^2 - g_2/2` differentiated n times: :math:`\wp^{(n+2)} = 6\sum_j
    \binom nj\wp^{(j)}\wp^{(n-j)}`. The constant, the only term that can cancel, is in wp'' alone.
    """

    def derivative(ops: ArrayOps, z: Pair, c: SeriesConstants, precision: Precision) -> Pair:
        terms = wp_terms(ops, z.scale(c.unit), c, precision)
        root, product = terms.anchor.root, terms.anchor.root_product
        found = [
            root + product * terms.ratio,
            (product * terms.slope).scale(-2.0 * terms.folded.sign),
            wp_second_in_units(ops, terms, c),
        ]
        for n in range(1, order - 1):
            total = found[0] * found[n]
            for j in range(1, n // 2 + 1):
                # The terms j and n - j are equal, and j = 0 stands for two of them.
                weight = comb(n, j) * (0.5 if 2 * j == n else 1.0)
                total = total + weight * (found[j] * found[n - j])
            found.append(12.0 * total)
        value = found[order]
        for _ in range(order + 2):
            value = times_unit(value * c.pi_over_period, c, 1)
        return ops.with_infinities(value, terms.offset, terms.is_pole)

    derivative.__name__ = f"wp_derivative_{order}"
    return derivative


def log_sigma(ops: ArrayOps, z: Pair, c: SeriesConstants, precision: Precision) -> Pair:
    """The principal logarithm of sigma, which does not overflow."""
    factors = sigma_factors(ops, z.scale(c.unit), c, precision)
    v, theta = factors.folded.v, value_of(factors.theta)
    # The exponent as in `sigma_factors`, which keeps it finite there and not here.
    exponent = factors.quasi_period * factors.middle - 0.5 * (c.minus_third_e2 * v.square())
    is_zero = (theta.re == 0.0) & (theta.im == 0.0)
    re = ops.where(is_zero, 1.0, theta.re)
    period = c.period_over_pi
    product = (period * Pair(re, theta.im)).scale(factors.sign)
    angle = exponent.im + ops.arctan2(product.im, product.re)
    turns = ops.rint(ops.constant(angle) * (1.0 / _TURN))
    angle = (angle - turns * _TURN) - turns * _TURN_REST
    angle = ops.where(angle <= -math.pi, angle + _TURN, angle)
    size = (exponent.re + v.im) + (ops.log(ops.hypot(re, theta.im)) + c.log_period_over_pi)
    return Pair(ops.where(is_zero, -float("inf"), size), ops.where(is_zero, float("nan"), angle))


def modified_zeta(ops: ArrayOps, z: Pair, c: SeriesConstants, precision: Precision) -> Pair:
    """zeta(z) - G2* z - (pi/A) conj(z): doubly periodic, so it is that of the offset."""
    z = z.scale(c.unit)
    cell = locate(ops, z, c, precision)
    offset = offset_from(ops, z, cell.m, cell.n, c, precision)
    f = fold(ops, offset, c, precision)
    is_pole = f.distance_squared == 0.0
    total, difference = f.neighbours(c)
    rows = ((1.0 + c.nome_fourth) - total).reciprocal() + polynomial(c.rows_integral, total)
    cotangent = f.cotangent_over(ops.where_needed(~is_pole, f.distance_squared, 1.0))
    share = Pair(0.0 * f.v.im, 2.0 * (f.v.im / c.pi_im_tau))
    odd = (cotangent + share) - 2.0 * (difference * rows).times_i()
    value = c.pi_over_period * odd.scale(f.sign)
    return ops.with_infinities(value.scale(c.unit), offset, is_pole)


def modified_sigma(ops: ArrayOps, z: Pair, c: SeriesConstants, precision: Precision) -> Pair:
    """exp(-G2* z^2/2) sigma(z), continued by its quasi-periods pi conj(L)/A."""
    z = z.scale(c.unit)
    cell = locate(ops, z, c, precision)
    m, n = cell.m, cell.n
    offset = offset_from(ops, z, m, n, c, precision)
    f = fold(ops, offset, c, precision)
    share = 1.0 / c.pi_im_tau
    # L/a and pi (offset + L/2)/a, of which the exponent is the product, conj(L/a) first.
    shift = Pair(m + n * c.tau.re, n * c.tau.im)
    middle = f.v.scale(f.sign) + shift.scale(0.5 * math.pi)
    exponent = (shift.conjugate() * middle).scale(math.pi * share) + f.v.square().scale(0.5 * share)
    exponent = exponent.shift(f.v.im)
    odd_m, odd_n = parity(ops, m), parity(ops, n)
    sign = f.sign * (1.0 - 2.0 * (odd_m + odd_n - odd_m * odd_n))
    # In two factors: on a thin lattice the exponential overflows where the value does not. It is
    # kept finite, as in `sigma_factors`, for the sake of the zeros.
    largest = 2.0 * precision.largest_exponent
    exponent = Pair(ops.where(exponent.re > largest, largest, exponent.re), exponent.im)
    root = pair_exp(ops, exponent.scale(0.5))
    # The unit leaves before the last factor, which may reach the end of the range.
    value = ((c.period_over_pi * theta_quotient(f, c)) * root).scale(sign / c.unit) * root
    return ops.with_infinities(value, offset)
