r"""Derivatives of wp, log sigma, Haldane's functions and Laurent coefficients, at one precision.

Each is written as it is defined, from the row sums of the functions it is made of, and not in the
form in which the array backends compute it. What cancels is the business of the precision.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from backends.exact_reduction import ReducedPoint
from backends.mpmath_rows import (
    RowTable,
    invariants_series,
    sigma_rows,
    wp_and_prime_rows,
    zeta_rows,
)

# A polynomial in wp, wp', g2 and g3: the coefficient of each tuple of exponents.
_Polynomial = dict[tuple[int, int, int, int], int]


@cache
def _derivative(order: int) -> _Polynomial:
    r""":math:`2^n` times the n-th derivative, by :math:`\wp'^2 = 4\wp^3 - g_2\wp - g_3`."""
    if order == 0:
        return {(1, 0, 0, 0): 1}
    found: _Polynomial = {}

    def add(p: int, dp: int, g2: int, g3: int, coefficient: int) -> None:
        if coefficient:
            key = (p, dp, g2, g3)
            found[key] = found.get(key, 0) + coefficient

    for (p, dp, g2, g3), coefficient in _derivative(order - 1).items():
        # Twice the derivative, for integers: 2 wp'' = 12 wp^2 - g2.
        if dp == 0:
            add(p - 1, 1, g2, g3, 2 * p * coefficient)
            continue
        add(p + 2, 0, g2, g3, (8 * p + 12) * coefficient)
        add(p, 0, g2 + 1, g3, (-2 * p - 1) * coefficient)
        if p:
            add(p - 1, 0, g2, g3 + 1, -2 * p * coefficient)
    return found


def derivative_polynomial(table: RowTable, point: ReducedPoint, order: int) -> tuple[Any]:
    r"""The derivative of :math:`\wp` of this order at a point that is no lattice point."""
    variables = (*wp_and_prime_rows(table, point), *invariants_series(table))
    total = table.ctx.zero
    for exponents, coefficient in _derivative(order).items():
        term = table.ctx.mpf(coefficient)
        for variable, exponent in zip(variables, exponents, strict=True):
            term = term * variable**exponent
        total += term
    return (table.ctx.ldexp(1, -order) * total,)


def log_sigma_rows(table: RowTable, point: ReducedPoint) -> tuple[Any]:
    """The principal logarithm of the number that sigma is: mpmath's exponents have no bound."""
    return (table.ctx.log(sigma_rows(table, point)[0]),)


def _argument_and_constants(table: RowTable, point: ReducedPoint) -> tuple[Any, Any, Any]:
    r"""z itself, :math:`G_2^*` and :math:`\pi/A`."""
    ctx, a = table.ctx, table.period1
    area = abs(a) ** 2 * table.tau.imag
    offset = ctx.mpc(point.re, point.im) / point.denominator
    z = a * (offset + point.m + point.n * table.tau)
    g2_star = ctx.pi**2 * table.e2 / (3 * a * a) - ctx.pi / area * ctx.conj(a) / a
    return z, g2_star, ctx.pi / area


def modified_zeta_rows(table: RowTable, point: ReducedPoint) -> tuple[Any]:
    z, g2_star, density = _argument_and_constants(table, point)
    return (zeta_rows(table, point)[0] - g2_star * z - density * table.ctx.conj(z),)


def modified_sigma_rows(table: RowTable, point: ReducedPoint) -> tuple[Any]:
    z, g2_star, _ = _argument_and_constants(table, point)
    return (table.ctx.exp(-g2_star * z * z / 2) * sigma_rows(table, point)[0],)


def eisenstein_coefficients(table: RowTable, count: int) -> list[Any]:
    r""":math:`(2k-1)G_{2k}` for k from 2 on, by the Fourier series of :math:`G_{2k}`."""
    ctx, found = table.ctx, []
    for k in range(2, count + 2):
        total, n, power = ctx.zero, 1, table.q_squared
        while True:
            term = ctx.mpf(n) ** (2 * k - 1) * power / (1 - power)
            total += term
            if n > 2 * k and abs(term) < ctx.eps:
                break
            n, power = n + 1, power * table.q_squared
        factor = 2 * (-1) ** k * (2 * ctx.pi) ** (2 * k) / ctx.factorial(2 * k - 1)
        found.append(
            (2 * k - 1) * (2 * ctx.zeta(2 * k) + factor * total) / table.period1 ** (2 * k)
        )
    return found
