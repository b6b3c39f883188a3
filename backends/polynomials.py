"""Exponential, sine and cosine as polynomials, so that a compiler can vectorise their callers.

A call of the C library in a loop makes the whole loop scalar. What `kernel.fold` needs is less
than the library offers: sine and cosine of Re v, at most pi/2 in modulus, and the exponential of
-2 Im v, at most 0. Here they are arithmetic and choices, exact to little more than half a unit in
the last place, with or without fused multiply-adds. NaN gives NaN. Beyond these ranges the values
are wrong.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

from backends.constants import DOUBLE, SINGLE, Precision, leading_bits, rounding
from wefpe_core.extended import PI, extended_precision

if TYPE_CHECKING:
    from backends.tracing import SymbolicOps


class _Parts(NamedTuple):
    """A constant as the sum of three numbers; `high` is so short that multiples of it are exact."""

    high: float
    low: float
    lowest: float


def _parts(value: Decimal, high_bits: int, precision: Precision) -> _Parts:
    to_format = rounding(precision)
    high = leading_bits(float(value), high_bits)
    low = to_format(value - Decimal(high))
    return _Parts(high, low, to_format(value - Decimal(high) - Decimal(low)))


class _Series(NamedTuple):
    """What the functions need in one format; coefficients of the lowest power come first."""

    half_pi: _Parts
    log_two: _Parts
    exp: tuple[float, ...]  # (e^r - 1 - r)/r^2
    sin: tuple[float, ...]  # (sin r - r + r^3/6)/r^5, in powers of r^2
    cos: tuple[float, ...]  # (cos r - 1 + r^2/2)/r^4, in powers of r^2
    smallest: float  # its exponential is 0


@extended_precision
def _series(precision: Precision, high_bits: int, degree: int, smallest: float) -> _Series:
    """Taylor's series up to that degree, of arguments up to log(2)/2 and pi/4 in modulus."""

    def coefficient(k: int) -> float:
        return 1.0 / math.factorial(k)

    return _Series(
        half_pi=_parts(PI / 2, high_bits, precision),
        log_two=_parts(Decimal(2).ln(), high_bits, precision),
        exp=tuple(coefficient(k) for k in range(2, degree)),
        sin=tuple((-1) ** (k // 2) * coefficient(k) for k in range(5, degree + 3, 2)),
        cos=tuple((-1) ** (k // 2) * coefficient(k) for k in range(4, degree + 3, 2)),
        smallest=smallest,
    )


_SERIES = {
    DOUBLE.name: _series(DOUBLE, 32, 15, -1000.0),
    SINGLE.name: _series(SINGLE, 8, 9, -150.0),
}


def _horner(coefficients: Sequence[float], x: Any) -> Any:
    total: Any = coefficients[-1]
    for coefficient in coefficients[-2::-1]:
        total = total * x + coefficient
    return total


def sine_and_cosine(ops: SymbolicOps, x: Any, precision: Precision) -> tuple[Any, Any]:
    """sin x and cos x for |x| < 3 pi/4."""
    series = _SERIES[precision.name]
    turns = ops.rint(x * (2.0 / math.pi))  # -1, 0 or 1 quarters
    # x - turns * pi/2 = r + rest; the first difference is exact.
    difference, low = x - turns * series.half_pi.high, turns * series.half_pi.low
    r = difference - low
    rest = ((difference - r) - low) - turns * series.half_pi.lowest
    square = r * r
    cube = square * r
    inner = square * (0.5 * rest - cube * _horner(series.sin, square)) - rest
    sine = r - (inner + cube * (1.0 / 6.0))
    half = 0.5 * square
    from_one = 1.0 - half
    tail = square * square * _horner(series.cos, square) - r * rest
    cosine = from_one + (((1.0 - from_one) - half) + tail)
    is_turned = turns * turns > 0.5
    return (
        ops.where(is_turned, turns * cosine, sine),
        ops.where(is_turned, -(turns * sine), cosine),
    )


def exponentials(ops: SymbolicOps, x: Any, precision: Precision) -> tuple[Any, Any]:
    """exp x and exp x - 1 for x <= 0."""
    series = _SERIES[precision.name]
    y = ops.where(x < series.smallest, series.smallest, x)
    k = ops.rint(y * (1.0 / math.log(2.0)))
    # y = k log 2 + r + rest
    difference, low = y - k * series.log_two.high, k * series.log_two.low
    r = difference - low
    rest = (difference - r) - low
    tail = rest + r * r * _horner(series.exp, r)
    # In two steps: 2^k may be below the range though e^x is not.
    half = ops.rint(0.5 * k)
    first, second = ops.two_to(half), ops.two_to(k - half)
    one_plus_r = 1.0 + r
    exponential = (one_plus_r + (((1.0 - one_plus_r) + r) + tail)) * first * second
    power = first * second
    return exponential, power * (r + tail) + (power - 1.0)
