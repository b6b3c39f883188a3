"""Exact arithmetic on half-periods: Gaussian rationals and Gauss reduction.

Nothing here rounds. Half-periods are finite binary numbers, so a pair of them
can be scaled to Gaussian integers, where the reduction is a Euclidean algorithm.
"""

from __future__ import annotations

import numbers
from decimal import Decimal
from fractions import Fraction
from math import ceil, isqrt, lcm
from typing import Any, NamedTuple

from wefpe_core.errors import InputError

IntegerMatrix = tuple[tuple[int, int], tuple[int, int]]


class GaussianRational(NamedTuple):
    """An exact complex number."""

    re: Fraction
    im: Fraction

    def __complex__(self) -> complex:
        return complex(float(self.re), float(self.im))


# An exact rational writes its exponent out in bits; nobody means a megabyte of them.
_LARGEST_EXPONENT = 1 << 23


def exact_real(value: Any) -> Fraction | None:
    """Return a real number of any kind as a fraction, without rounding; None if not finite.

    Raises
    ------
    InputError
        For mpmath numbers and decimals with exponents beyond eight million.
    """
    if isinstance(value, numbers.Rational):
        return Fraction(int(value.numerator), int(value.denominator))
    if hasattr(value, "context"):  # an mpmath number
        if not value.context.isfinite(value):
            return None
        mantissa, exponent = value.man_exp
        if abs(exponent) > _LARGEST_EXPONENT:
            raise InputError(f"the exponent of {value!r} is too large for exact arithmetic")
        # Whether man_exp has the sign of the number depends on the version of mpmath.
        signed = -abs(int(mantissa)) if value < 0 else abs(int(mantissa))
        return Fraction(signed << exponent) if exponent >= 0 else Fraction(signed, 1 << -exponent)
    if isinstance(value, Decimal):
        if not value.is_finite():
            return None
        if abs(value.adjusted()) > _LARGEST_EXPONENT:
            raise InputError(f"the exponent of {value!r:.60} is too large for exact arithmetic")
        return Fraction(value)
    # Floats of any width, NumPy's long double included; float() would round that one.
    return Fraction(*value.as_integer_ratio()) if abs(value) < float("inf") else None


def exact_complex(value: Any) -> GaussianRational | None:
    """Return a complex number of any kind exactly; None if a part is NaN or infinite."""
    re = exact_real(value.real)
    im = Fraction(0) if isinstance(value, numbers.Real) else exact_real(value.imag)
    return None if re is None or im is None else GaussianRational(re, im)


def cross(u: tuple[Any, Any], v: tuple[Any, Any]) -> Any:
    """Im(conj(u) v): twice the signed area of the triangle 0, u, v."""
    return u[0] * v[1] - u[1] * v[0]


def dot(u: tuple[Any, Any], v: tuple[Any, Any]) -> Any:
    """Re(conj(u) v)."""
    return u[0] * v[0] + u[1] * v[1]


def nearest_integer(value: Fraction, slack: Fraction = Fraction(0)) -> int:
    """Round to the nearest integer, ties down, so that what is left lies in (-1/2, 1/2].

    With `slack`, a value that near to a tie counts as a tie.
    """
    return ceil(value - Fraction(1, 2) - slack)


# Coordinates (i, j) of the vectors that can be shortest in a Gauss-reduced basis, each with
# the coordinates (k, l) of a vector completing it to a basis: i*l - j*k = 1.
_SHORTEST_CANDIDATES = (
    ((1, 0), (0, 1)),
    ((0, 1), (-1, 0)),
    ((1, 1), (0, 1)),
    ((1, -1), (1, 0)),
)


def gauss_reduce(
    omega1: GaussianRational, omega3: GaussianRational, slack: Fraction = Fraction(0)
) -> tuple[GaussianRational, GaussianRational, IntegerMatrix]:
    """Canonical reduced basis of a positively oriented lattice.

    Returns ``(w1, w3, ((p, q), (r, s)))`` with ``w1 = p*omega1 + q*omega3``,
    ``w3 = r*omega1 + s*omega3`` and ``ps - qr = 1``. The basis depends on the
    lattice alone, not on the basis given: ``tau = w3/w1`` has ``-1/2 < Re tau <= 1/2``
    and ``|tau| >= 1``, and ``w1`` is the shortest vector with the largest real part
    (of two such, the one with the positive imaginary part).

    With `slack`, lengths and coordinates that agree to that relative precision count as
    equal. It serves half-periods with rounding errors, which must not decide a tie.
    """
    # Scaling to Gaussian integers keeps the Euclidean steps free of fractions.
    scale = lcm(*(part.denominator for part in (*omega1, *omega3)))
    given = tuple((int(w.re * scale), int(w.im * scale)) for w in (omega1, omega3))

    def vector(coordinates: tuple[int, int]) -> tuple[int, int]:
        i, j = coordinates
        return (i * given[0][0] + j * given[1][0], i * given[0][1] + j * given[1][1])

    def size_reduced(first: tuple[int, int], second: tuple[int, int]) -> tuple[int, int]:
        u, v = vector(first), vector(second)
        n = nearest_integer(Fraction(dot(u, v), dot(u, u)), slack)
        return (second[0] - n * first[0], second[1] - n * first[1])

    first, second = (1, 0), (0, 1)
    while True:
        second = size_reduced(first, second)
        shortest_squared = dot(vector(first), vector(first))
        if dot(vector(second), vector(second)) >= shortest_squared * (1 - slack):
            break
        first, second = second, (-first[0], -first[1])

    grain = max(1, int(isqrt(shortest_squared) * slack))
    choices = []
    for (i, j), (k, m) in _SHORTEST_CANDIDATES:
        for sign in (1, -1):
            candidate = (
                sign * (i * first[0] + j * second[0]),
                sign * (i * first[1] + j * second[1]),
            )
            partner = (sign * (k * first[0] + m * second[0]), sign * (k * first[1] + m * second[1]))
            x, y = vector(candidate)
            if abs(dot((x, y), (x, y)) - shortest_squared) <= shortest_squared * slack:
                choices.append(
                    ((x + grain // 2) // grain, (y + grain // 2) // grain, candidate, partner)
                )
    _, _, first, second = max(choices)
    second = size_reduced(first, second)
    w1, w3 = (
        GaussianRational(*(Fraction(part, scale) for part in vector(coordinates)))
        for coordinates in (first, second)
    )
    return w1, w3, (first, second)
