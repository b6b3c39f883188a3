"""Modular functions on real pairs of any array library: reduction of tau, series in its nome.

Any tau in the upper half plane is moved to the fundamental domain by shifts and inversions, each
of which is as good as a relative change of tau by eps. What a form gains on the way (c tau + d for
the matrix of the reduction, a root of unity for eta) is multiplied up beside it. Series then
converge with |Q| <= 0.0044, Q = exp(2 pi i tau). One Q serves every series of a quotient, so that
its rounding error acts like one of tau, to which j is insensitive at i.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple

from backends.constants import Precision
from backends.elliptic_integrals import arithmetic_geometric_mean
from backends.pair import ArrayOps, Pair, pair_sqrt, scaled_reciprocal, select
from wefpe_core.modular import theta_excesses
from wefpe_core.modular_functions import eisenstein_coefficient

# Each step increases Im tau by 2.6 or is one of the last; a tau that needs more is too near the
# real axis for its digits to tell where.
_STEPS = {"float64": 44, "float32": 22}
_SMALLEST_HEIGHT = 0.8
_LARGEST_Q = math.exp(-math.pi * math.sqrt(3))
_NAN = float("nan")
_NEWTON_STEPS = 7


class Reduction(NamedTuple):
    """tau in the fundamental domain, as (a tau + b)/(c tau + d)."""

    tau: Pair
    factor: Pair  # c tau + d
    matrix: tuple[tuple[Any, Any], tuple[Any, Any]]
    shifts: Any  # the sum of all shifts, each of which multiplies eta by exp(i pi/12)
    root: Pair  # the product of the roots of -i tau at each inversion, which divides eta


def reduced(ops: ArrayOps, tau: Pair, precision: Precision) -> Reduction:
    """Shifts and inversions; NaN where Im tau is not positive or lost in the digits of Re tau."""
    zero = 0.0 * ops.constant(tau.re)
    one = zero + 1.0
    a, b, c, d, shifts = one, zero, zero, one, zero
    t, factor, root = tau, Pair(one, zero), Pair(one, zero)
    for _ in range(_STEPS[precision.name]):
        n = ops.constant(ops.rint(t.re))
        t, shifts = t.shift(-n), shifts + n
        a, b = a - n * c, b - n * d
        # Twice rounded, a tau on the edge |tau| = 1 would go back and forth.
        turns = ops.constant(t.squared_modulus()) < 1.0 - 4.0 * precision.eps
        if ops.all_hold(~turns):
            break
        safe = Pair(ops.where(turns, t.re, 0.0), ops.where(turns, t.im, 1.0))
        inverse = -scaled_reciprocal(ops, safe)
        factor = select(ops, turns, factor * safe, factor)
        root = select(ops, turns, root * pair_sqrt(ops, Pair(safe.im, -safe.re)), root)
        a, b, c, d = (
            ops.where(turns, first, second) for first, second in ((-c, a), (-d, b), (a, c), (b, d))
        )
        t = select(ops, turns, inverse, t)
    n = ops.constant(ops.rint(t.re))
    t, shifts = t.shift(-n), shifts + n
    a, b = a - n * c, b - n * d
    height = ops.constant(t.im)
    is_reduced = (height > _SMALLEST_HEIGHT) & (height < float("inf"))
    t = Pair(ops.where(is_reduced, t.re, _NAN), ops.where(is_reduced, t.im, _NAN))
    return Reduction(t, factor, ((a, b), (c, d)), shifts, root)


def _exponential(ops: ArrayOps, tau: Pair, multiple: float) -> Pair:
    """exp(i pi multiple tau), exactly real where its exponent is a multiple of i pi or real."""
    turns = multiple * tau.re
    whole = ops.constant(ops.rint(turns))
    half = whole - 2.0 * ops.rint(0.5 * whole)  # -1, 0 or 1
    sign = 1.0 - 2.0 * half * half
    angle = math.pi * (turns - whole)
    modulus = sign * ops.exp((-math.pi * multiple) * tau.im)
    return Pair(modulus * ops.cos(angle), modulus * ops.sin(angle))


@cache
def _terms(k: int, eps: float) -> int:
    """How many terms of Lambert's series of E_k are above eps."""
    scale = abs(float(eisenstein_coefficient(k)))
    n = max(1, math.ceil((k - 1) / (math.pi * math.sqrt(3))))  # beyond it the terms decrease
    while scale * n ** (k - 1) * _LARGEST_Q**n > eps / 16.0:
        n += 1
    return n


def _eisenstein_series(k: int, q: Pair, precision: Precision) -> Pair:
    """E_k = 1 + c sum over n of n^(k-1) Q^n/(1 - Q^n)."""
    powers = [q]
    for _ in range(_terms(k, precision.eps) - 1):
        powers.append(powers[-1] * q)
    total: Any = 0.0
    coefficient = eisenstein_coefficient(k)
    for n, power in reversed(list(enumerate(powers, 1))):
        weight = float(coefficient * Fraction(n) ** (k - 1))
        total = (power * (1.0 - power).reciprocal()).scale(weight) + total
    return 1.0 + total


@cache
def _discriminant_coefficients(count: int) -> tuple[float, ...]:
    """The first coefficients of the product of (1 - Q^n)^24, which is the series of Delta/Q."""
    series = [1] + [0] * (count - 1)
    for n in range(1, count):
        for _ in range(24):
            for k in range(count - 1, n - 1, -1):
                series[k] -= series[k - n]
    return tuple(map(float, series))


def _power_series(coefficients: tuple[float, ...], q: Pair) -> Pair:
    total: Any = coefficients[-1]
    for coefficient in coefficients[-2::-1]:
        total = coefficient + q * total
    result: Pair = total
    return result


_DISCRIMINANT_TERMS = {"float64": 13, "float32": 7}
# Euler's pentagonal series of the product of (1 - Q^n), up to Q^7.
_EULER = (1.0, -1.0, -1.0, 0.0, 0.0, 1.0, 0.0, 1.0)


def klein_j(ops: ArrayOps, tau: Pair, precision: Precision) -> Pair:
    t = reduced(ops, tau, precision).tau
    q = _exponential(ops, t, 2.0)
    e4 = _eisenstein_series(4, q, precision)
    count = _DISCRIMINANT_TERMS[precision.name]
    product = _power_series(_discriminant_coefficients(count), q)
    # 1/Q has its own exponential: Q may be below the range though its inverse is not beyond it.
    inverse = _exponential(ops, t, -2.0)
    return ops.with_infinities((e4 * e4 * e4) * product.reciprocal() * inverse, t)


def dedekind_eta(ops: ArrayOps, tau: Pair, precision: Precision) -> Pair:
    found = reduced(ops, tau, precision)
    series = _power_series(_EULER, _exponential(ops, found.tau, 2.0))
    whole = found.shifts - 24.0 * ops.rint(found.shifts * (1.0 / 24.0))
    angle = whole * (math.pi / 12.0)
    unit = Pair(ops.cos(angle), ops.sin(angle))
    value = _exponential(ops, found.tau, 1.0 / 12.0) * series
    return select(ops, whole == 0.0, value, value * unit) * found.root.reciprocal()


def modular_lambda(ops: ArrayOps, tau: Pair, precision: Precision) -> Pair:
    found = reduced(ops, tau, precision)
    # The nome may lie so far below the range of full precision that a processor takes it for 0,
    # where 16 times as much, which lambda or its inverse is next to a cusp, does not.
    fourth = _exponential(ops, found.tau, 0.5).scale(4.0)
    lead = fourth * fourth
    nome = lead.scale(1.0 / 16.0)
    rest2, rest3, rest4 = theta_excesses(nome, precision.nome_powers)
    theta2, theta3, theta4 = lead + lead * rest2, 1.0 + rest3, 1.0 + rest4
    (a, b), (c, d) = found.matrix
    # Half the periods 1 and tau are half-periods of the reduced basis; their parities say which.
    first, third = _place(ops, a, c), _place(ops, b, d)
    second = tuple(1.0 - x - y for x, y in zip(first, third, strict=True))
    numerator, denominator = (
        _root_difference(at, third, (theta2, theta3, theta4)) for at in (second, first)
    )
    return ops.with_infinities(numerator * scaled_reciprocal(ops, denominator), found.tau)


def _place(ops: ArrayOps, i: Any, j: Any) -> tuple[Any, Any, Any]:
    """Three weights, 1 for the root at the half-period i w1 + j w3 of the reduced basis."""
    odd_i, odd_j = (x - 2.0 * ops.rint(0.5 * x) for x in (i, j))
    odd_i, odd_j = odd_i * odd_i, odd_j * odd_j
    both = odd_i * odd_j
    return odd_i - both, both, odd_j - both


def _root_difference(at: Any, other: Any, thetas: tuple[Pair, Pair, Pair]) -> Pair:
    """e at one place minus e at another, in units of (pi/a)^2 (DLMF 23.6.2-23.6.4)."""
    theta2, theta3, theta4 = thetas
    return (
        theta4.scale(at[0] * other[1] - at[1] * other[0])
        + theta2.scale(at[1] * other[2] - at[2] * other[1])
        + theta3.scale(at[0] * other[2] - at[2] * other[0])
    )


def eisenstein(ops: ArrayOps, tau: Pair, precision: Precision, k: int) -> Pair:
    found = reduced(ops, tau, precision)
    value = _eisenstein_series(k, _exponential(ops, found.tau, 2.0), precision)
    inverse = found.factor.reciprocal()
    if k == 2:
        value = value + (found.factor.scale(found.matrix[1][0] * (6.0 / math.pi))).times_i()
    square = inverse * inverse
    for _ in range(k // 2):
        value = value * square
    return value


def inverse_klein_j(ops: ArrayOps, j: Pair, precision: Precision) -> Pair:
    """tau in the fundamental domain, by way of lambda.

    With v^3 = lambda (1 - lambda) and s^3 = j/256 the equation for j becomes v^3 + s v^2 = 1. For
    the principal s its solution near 1/sqrt(1 + 2s/3) is a simple one everywhere.
    """
    finite = ops.constant(j.re + j.im) * 0.0 == 0.0
    j = Pair(ops.where(finite, j.re, 1728.0), ops.where(finite, j.im + 0.0, 0.0))
    s = _cube_root(ops, j * (1.0 / 256.0))
    v = pair_sqrt(ops, 1.0 + s * (2.0 / 3.0)).reciprocal()
    for _ in range(_NEWTON_STEPS):
        square = v * v
        v = v - (v * square + s * square - 1.0) * (3.0 * square + 2.0 * (s * v)).reciprocal()
    x = v * v * v
    at_i = (j.re == 1728.0) & (j.im == 0.0)
    safe = Pair(ops.where(at_i, 1.0, j.re - 1728.0), ops.where(at_i, 0.0, j.im))
    root = pair_sqrt(ops, safe)
    root = Pair(ops.where(at_i, 0.0, root.re), ops.where(at_i, 0.0, root.im))
    # sqrt(1 - 4x), where the difference itself would cancel.
    gap = x * (8.0 * (x + 2.0)).reciprocal() * root
    small = 2.0 * (x * (1.0 + gap).reciprocal())
    first, second = (
        arithmetic_geometric_mean(ops, pair_sqrt(ops, value), precision)
        for value in (1.0 - small, small)
    )
    tau = (first * second.reciprocal()).times_i()
    tau = _into_domain(ops, tau, precision)
    # Real j lie on the lines of symmetry: the right edge, the arc, and the imaginary axis.
    is_real = j.im == 0.0
    edge = 0.5 * ops.as_weight(is_real & (j.re < 0.0))
    on_line = is_real & ((j.re < 0.0) | (j.re >= 1728.0))
    tau = Pair(ops.where(on_line, edge + (tau.re - ops.constant(tau.re)), tau.re), tau.im)
    return Pair(ops.where(finite, tau.re, _NAN), ops.where(finite, tau.im, _NAN))


def _into_domain(ops: ArrayOps, tau: Pair, precision: Precision) -> Pair:
    """Onto the right edge and the right half of the arc, of what lies within rounding of both."""
    edge = 16.0 * precision.eps
    tau = tau.shift(-ops.constant(ops.rint(tau.re)))
    tau = tau.shift(ops.as_weight(ops.constant(tau.re) < edge - 0.5))
    modulus = ops.constant(tau.squared_modulus())
    on_arc = (modulus < 1.0 + edge) & (ops.constant(tau.re) < 0.0)
    return select(ops, on_arc | (modulus < 1.0 - edge), -tau.reciprocal(), tau)


def _cube_root(ops: ArrayOps, x: Pair) -> Pair:
    """The principal cube root: Newton's method on a fourth root, whose direction is near 1."""
    is_zero = (x.re == 0.0) & (x.im == 0.0)
    x = Pair(ops.where(is_zero, 1.0, x.re), x.im)
    modulus = ops.constant(ops.hypot(x.re, x.im))
    unit = ops.power_of_two(ops.exp(ops.log(modulus) * (1.0 / 3.0)))
    shrink = 1.0 / unit
    small = x.scale(shrink).scale(shrink).scale(shrink)
    fourth = pair_sqrt(ops, pair_sqrt(ops, small))
    root = (2.0 + fourth) * (1.0 / 3.0)
    for _ in range(5):
        root = (2.0 * root + fourth * (root * root).reciprocal()) * (1.0 / 3.0)
    root = root * root
    root = root * root
    root = root - (root * root * root - small) * (3.0 * (root * root)).reciprocal()
    root = root.scale(unit)
    return Pair(ops.where(is_zero, 0.0, root.re), ops.where(is_zero, 0.0, root.im))
