r"""The way to the periods 1 and tau and back, for every bound, rounded outwards.

A bound is computed for periods 1 and tau and scaled back by :math:`|2\omega_1|^{-2}` for wp
and :math:`|2\omega_1|^{-3}` for wp'. Here are the two conversions and the checks of the
arguments.
"""

from __future__ import annotations

import math
import operator
from typing import NamedTuple

from wefpe_core.errors import InputError, LatticeError

# A tau this far outside the reduced domain, relative to its size, is taken for a rounded
# reduced one: half-periods rounded to doubles move tau by a few times 2^-52 |tau|.
_REDUCED_SLACK = 2.0**-45

# Every lattice point w = m + n tau moves by at most 2.4 * _REDUCED_SLACK of its size when
# tau does, and |z/a| carries a few roundings; 2^-43 covers both.
_RADIUS_SLACK = 2.0**-43

# Exponents reach 745 before exp underflows, each with a few relative roundings of 2^-53, so
# exp is off by less than 2^-40; about a hundred further operations add less than 2^-46.
_RELATIVE_SLACK = 2.0**-36

# A quantity lost to underflow was below 2^-1074 and is later multiplied by less than 2^140
# (counts are below 2^31); this is what it could have contributed.
_ABSOLUTE_SLACK = 2.0**-900

_COUNT_LIMIT = 2**31


class TruncationBound(NamedTuple):
    """Upper bounds for the truncation error of wp and of wp', in the units of the lattice."""

    wp: float
    wp_prime: float


class NormalisedPoint(NamedTuple):
    """A point and a reduced lattice with periods 1 and tau, sizes rounded outwards."""

    z_abs: float  # upper bound for |z/a|
    z_imag: float  # Im(z/a), within z_imag_slack
    z_imag_slack: float
    tau: complex
    height: float  # lower bound for Im tau
    tau_abs: float
    period: float  # |a| = period * 2**exponent with period in [1/2, 2)
    exponent: int


def normalise(z: complex, omega1: complex, omega3: complex) -> NormalisedPoint:
    """Divide by the first full period; raise `LatticeError` unless the lattice is reduced."""
    z, omega1, omega3 = complex(z), complex(omega1), complex(omega3)
    # A power of two brings omega1 near one half: exact, and no scale can over- or underflow.
    exponent = math.frexp(max(abs(omega1.real), abs(omega1.imag)))[1] + 1
    period = 2 * _times_power_of_two(omega1, -exponent)
    if period == 0 or not _is_finite(period):
        raise LatticeError(f"omega1 must be finite and not zero, got {omega1!r}")
    tau = 2 * _times_power_of_two(omega3, -exponent) / period
    tau_abs = math.hypot(tau.real, tau.imag)
    is_reduced = (
        tau.imag > 0
        and math.isfinite(tau_abs)
        and abs(tau.real) <= 0.5 + _REDUCED_SLACK * tau_abs
        and tau_abs >= 1 - _REDUCED_SLACK
    )
    if not is_reduced:
        raise LatticeError(
            "truncation bounds need a reduced lattice (Im tau > 0, |Re tau| <= 1/2, "
            f"|tau| >= 1), got tau={tau!r}; Lattice.reduced() gives one"
        )
    ratio = _times_power_of_two(z, -exponent) / period
    z_abs = math.hypot(ratio.real, ratio.imag) if _is_finite(ratio) else math.inf
    return NormalisedPoint(
        z_abs=z_abs * (1 + _RADIUS_SLACK),
        z_imag=ratio.imag,
        # Complex division is accurate in modulus, not in each part.
        z_imag_slack=z_abs * 2.0**-48,
        tau=tau,
        height=tau.imag * (1 - 2.0**-48),
        tau_abs=tau_abs,
        period=math.hypot(period.real, period.imag),
        exponent=exponent,
    )


def original_units(wp: float, wp_prime: float, point: NormalisedPoint) -> TruncationBound:
    """Round both normalised bounds outwards and scale them by powers of the period."""
    return TruncationBound(_rounded_up(wp, point, degree=2), _rounded_up(wp_prime, point, degree=3))


def _rounded_up(value: float, point: NormalisedPoint, *, degree: int) -> float:
    if not value < math.inf:  # NaN included: no bound is known
        return math.inf
    value = value * (1 + _RELATIVE_SLACK) + _ABSOLUTE_SLACK
    for _ in range(degree):
        value /= point.period
    return math.nextafter(_ldexp(value, -degree * point.exponent), math.inf)


def checked_count(name: str, value: int, *, minimum: int) -> int:
    """Return `value` as an int, or raise `InputError` if it is no integer in range."""
    try:
        count = operator.index(value)
    except TypeError:
        count = None
    if count is None or isinstance(value, bool) or not minimum <= count < _COUNT_LIMIT:
        raise InputError(
            f"{name} must be an integer, at least {minimum} and below 2**31, got {value!r}"
        )
    return count


def _is_finite(value: complex) -> bool:
    return math.isfinite(value.real) and math.isfinite(value.imag)


def _times_power_of_two(value: complex, exponent: int) -> complex:
    return complex(_ldexp(value.real, exponent), _ldexp(value.imag, exponent))


def _ldexp(value: float, exponent: int) -> float:
    try:
        return math.ldexp(value, exponent)
    except OverflowError:
        return math.copysign(math.inf, value)
