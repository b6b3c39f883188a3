"""The yardstick: values of the mpmath backend, and the scale an error is divided by.

The question asked is about the numbers the machine was given, after rounding to the dtype:
they are exact, so the reference has no error of input. The mpmath backend evaluates everything
at two precisions and refuses to answer if they disagree.
"""

from __future__ import annotations

import cmath
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import mpmath
import numpy as np

from backends.exact_reduction import exact_number, reduce_exactly
from wefpe_core import Lattice, get_backend
from wefpe_core.accuracy import scaled_error

DIGITS = 30


class Reference(NamedTuple):
    """A value, and what the scaled error of it is divided by: |value| + |offset*slope| + floor."""

    value: Any
    slope: Any
    offset: Any
    floor: Any

    def error_of(self, got: complex) -> float:
        with mpmath.workdps(DIGITS):
            return scaled_error(got, self.value, self.slope, self.offset, self.floor)


@cache
def _invariants(lattice: Lattice) -> tuple[Any, Any]:
    return get_backend("mpmath", dps=DIGITS).invariants(lattice)


@cache
def _shortest_period(lattice: Lattice) -> Any:
    w1 = lattice.reduced()[0].exact[0]
    with mpmath.workdps(DIGITS):
        return 2 * mpmath.sqrt(
            mpmath.mpf(w1.re.numerator) ** 2 / w1.re.denominator**2
            + mpmath.mpf(w1.im.numerator) ** 2 / w1.im.denominator**2
        )


def _offset(z: complex, lattice: Lattice) -> Any:
    """z minus its nearest lattice point, computed exactly."""
    exact = exact_number(z)
    assert exact is not None, "references are asked for at finite points only"
    (re, im), _, _ = reduce_exactly(exact, lattice)
    return mpmath.mpc(
        mpmath.mpf(re.numerator) / re.denominator, mpmath.mpf(im.numerator) / im.denominator
    )


def wp_and_prime(z: complex, lattice: Lattice) -> tuple[Reference, Reference]:
    """References for wp and wp' at one point, in one evaluation."""
    p, dp = get_backend("mpmath", dps=DIGITS).wp_and_prime(z, lattice)
    with mpmath.workdps(DIGITS):
        offset, period = _offset(z, lattice), _shortest_period(lattice)
        ddp = 6 * p * p - _invariants(lattice)[0] / 2  # DLMF 23.3.12
        return Reference(p, dp, offset, period**-2), Reference(dp, ddp, offset, period**-3)


def zeta(z: complex, lattice: Lattice) -> tuple[Reference]:
    backend = get_backend("mpmath", dps=DIGITS)
    with mpmath.workdps(DIGITS):
        offset, period = _offset(z, lattice), _shortest_period(lattice)
        return (Reference(backend.zeta(z, lattice), backend.wp(z, lattice), offset, 1 / period),)


def sigma(z: complex, lattice: Lattice) -> tuple[Reference]:
    """sigma is not periodic: an exponential of z^2 stands before it, so |z| itself counts."""
    backend = get_backend("mpmath", dps=DIGITS)
    with mpmath.workdps(DIGITS):
        value = backend.sigma(z, lattice)
        return (Reference(value, value * backend.zeta(z, lattice), mpmath.mpc(z), 0),)


def green(z: complex, lattice: Lattice) -> tuple[Reference]:
    """A logarithm: near the pole |z grad G| is 1, and 1 is the floor everywhere."""
    value = get_backend("mpmath", dps=DIGITS).green(z, lattice)
    return (Reference(value, 0, 0, 1),)


class InverseReference(NamedTuple):
    """Asks how nearly wp(got) is the argument; sign and lattice point are free.

    To first order |wp(got) - w| / (|w| + |z wp'| + p^-2) is the scaled error of z itself, and
    it stays meaningful at half-periods, where z is not a smooth function of w.
    """

    argument: complex
    lattice: Lattice
    value: int = 1  # of ordinary size: no solution overflows

    def error_of(self, got: complex) -> float:
        if not cmath.isfinite(self.argument):
            return 0.0 if got == 0 else float("inf")
        if not cmath.isfinite(got):
            return float("inf")
        p, dp = get_backend("mpmath", dps=DIGITS).wp_and_prime(got, self.lattice)
        with mpmath.workdps(DIGITS):
            offset, period = _offset(got, self.lattice), _shortest_period(self.lattice)
            return scaled_error(p, mpmath.mpc(self.argument), dp, offset, period**-2)


def inverse_wp(w: complex, lattice: Lattice) -> tuple[InverseReference]:
    return (InverseReference(w, lattice),)


@cache
def next_to_the_pole() -> tuple[Any, dict[str, tuple[Any, Any]]]:
    """10,000 points at 1e-6 from 0, and z^-2 and -2 z^-3 there as sums of two doubles."""
    angles = 2 * np.pi * np.random.default_rng(2393).random(10_000)
    z = 1e-6 * np.exp(1j * angles)
    values: dict[str, list[tuple[complex, complex]]] = {"wp": [], "wp_prime": []}
    with mpmath.workdps(40):
        for point in z:
            inverse = 1 / mpmath.mpc(complex(point))
            for name, value in (("wp", inverse**2), ("wp_prime", -2 * inverse**3)):
                high = complex(value)
                values[name].append((high, complex(value - mpmath.mpc(high))))
    high_and_low = {name: np.array(parts).T for name, parts in values.items()}
    return z, {name: (high, low) for name, (high, low) in high_and_low.items()}


REFERENCES: dict[str, Callable[[complex, Lattice], tuple[Any, ...]]] = {
    "wp_and_prime": wp_and_prime,
    "zeta": zeta,
    "sigma": sigma,
    "green": green,
    "inverse_wp": inverse_wp,
}
# sigma overflows far away, and the inverse does not know how far its solution was.
REGIONS_LEFT_OUT = {"sigma": ("far away",), "inverse_wp": ("far away",)}
# What the values of each of these are called, one name per value.
VALUE_NAMES = {
    "wp_and_prime": ("wp", "wp_prime"),
    "zeta": ("zeta",),
    "sigma": ("sigma",),
    "green": ("green",),
    "inverse_wp": ("inverse_wp",),
}
