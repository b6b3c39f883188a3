"""The yardstick: values of the mpmath backend, and the scale an error is divided by.

The reference is evaluated at the numbers that the backend was given, after they were rounded to the
dtype, so it has no error of input. The mpmath backend evaluates everything at two precisions and
refuses to answer if they disagree.
"""

from __future__ import annotations

import cmath
from functools import cache
from typing import Any, NamedTuple, Protocol

import mpmath
import numpy as np

from backends.exact_reduction import exact_number, reduce_exactly
from wefpe_core import Lattice, get_backend
from wefpe_core.accuracy import scaled_error

DIGITS = 30


class Answer(Protocol):
    """What an error is measured against."""

    @property
    def value(self) -> Any: ...

    def error_of(self, got: complex) -> float: ...


class Reference(NamedTuple):
    """A value, and the parts of the scale of its error, |value| + |offset*slope| + floor."""

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
def shortest_period(lattice: Lattice) -> Any:
    w1 = lattice.reduced()[0].exact[0]
    with mpmath.workdps(DIGITS):
        return 2 * mpmath.sqrt(
            mpmath.mpf(w1.re.numerator) ** 2 / w1.re.denominator**2
            + mpmath.mpf(w1.im.numerator) ** 2 / w1.im.denominator**2
        )


def reduced_argument(z: complex, lattice: Lattice) -> Any:
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
    return references_of_wp(p, dp, z, lattice)


def references_of_wp(p: Any, dp: Any, z: complex, lattice: Lattice) -> tuple[Reference, Reference]:
    """References from values of wp and wp', whoever computed them."""
    with mpmath.workdps(DIGITS):
        offset, period = reduced_argument(z, lattice), shortest_period(lattice)
        ddp = 6 * p * p - _invariants(lattice)[0] / 2  # DLMF 23.3.12
        return Reference(p, dp, offset, period**-2), Reference(dp, ddp, offset, period**-3)


@cache  # lattices of tensors are measured at the same points as those of numbers
def zeta(z: complex, lattice: Lattice) -> tuple[Reference]:
    backend = get_backend("mpmath", dps=DIGITS)
    with mpmath.workdps(DIGITS):
        offset, period = reduced_argument(z, lattice), shortest_period(lattice)
        return (Reference(backend.zeta(z, lattice), backend.wp(z, lattice), offset, 1 / period),)


def zeta_of_tensors(z: complex, lattice: Lattice) -> tuple[Reference]:
    """zeta where quasi-periods are computed in working precision, not rounded from fifty digits.

    Each period on the way to z adds its eta with an error of its own, whether or not they cancel.
    The eta of the shortest period is nearly pi^2/(3p), so pi^2/(3p^2) for each unit of length.
    """
    (plain,) = zeta(z, lattice)
    with mpmath.workdps(DIGITS):
        distance = abs(mpmath.mpc(z) - plain.offset)
        gained = distance * (mpmath.pi / shortest_period(lattice)) ** 2 / 3
        return (plain._replace(floor=plain.floor + gained),)


def sigma(z: complex, lattice: Lattice) -> tuple[Reference]:
    """sigma is not periodic: it has a factor exponential in z^2, so |z| itself enters the scale."""
    backend = get_backend("mpmath", dps=DIGITS)
    with mpmath.workdps(DIGITS):
        value = backend.sigma(z, lattice)
        return (Reference(value, value * backend.zeta(z, lattice), mpmath.mpc(z), 0),)


def green(z: complex, lattice: Lattice) -> tuple[Reference]:
    """The Green function is a logarithm: near the pole |z grad G| is 1, which is the floor."""
    value = get_backend("mpmath", dps=DIGITS).green(z, lattice)
    return (Reference(value, 0, 0, 1),)


def log_sigma(z: complex, lattice: Lattice) -> tuple[Reference]:
    """Modulo 2 pi i, or a value next to the cut could be on its other side; relative to 1 at least.

    The exponent is a number of the order z^2, whatever is left of it.
    """
    backend = get_backend("mpmath", dps=DIGITS)
    with mpmath.workdps(DIGITS):
        value, slope = backend.log_sigma(z, lattice), backend.zeta(z, lattice)
        return (LogarithmReference(value, slope, mpmath.mpc(z), 1),)


class LogarithmReference(Reference):
    """A logarithm: whole turns are no error."""

    __slots__ = ()

    def error_of(self, got: complex) -> float:
        if mpmath.isinf(self.value.real):  # at a zero of the function
            return 0.0 if got.real == float("-inf") else float("inf")
        if not cmath.isfinite(got):
            return float("inf")
        with mpmath.workdps(DIGITS):
            turns = mpmath.nint((self.value.imag - got.imag) / (2 * mpmath.pi))
            moved = mpmath.mpc(got) + 2j * mpmath.pi * turns
            return scaled_error(moved, self.value, self.slope, self.offset, self.floor)


def modified_zeta(z: complex, lattice: Lattice) -> tuple[Reference]:
    backend = get_backend("mpmath", dps=DIGITS)
    with mpmath.workdps(DIGITS):
        offset, period = reduced_argument(z, lattice), shortest_period(lattice)
        slope = backend.wp(z, lattice)
        return (Reference(backend.modified_zeta(z, lattice), slope, offset, 1 / period),)


def modified_sigma(z: complex, lattice: Lattice) -> tuple[Reference]:
    """As for sigma; the logarithmic derivative is that of sigma minus G2* z."""
    backend = get_backend("mpmath", dps=DIGITS)
    value, modified = backend.modified_sigma(z, lattice), backend.modified_zeta(z, lattice)
    with mpmath.workdps(DIGITS):
        w1, w3 = (mpmath.mpc(complex(w)) for w in (lattice.omega1, lattice.omega3))
        density = mpmath.pi / abs(4 * mpmath.im(mpmath.conj(w1) * w3))
        slope = value * (modified + density * mpmath.conj(mpmath.mpc(z)))
        return (Reference(value, slope, mpmath.mpc(z), 0),)


def wp_derivative(z: complex, lattice: Lattice, n: int) -> tuple[Reference]:
    backend = get_backend("mpmath", dps=DIGITS)
    value, slope = (backend.wp_derivative(z, lattice, order) for order in (n, n + 1))
    with mpmath.workdps(DIGITS):
        offset, period = reduced_argument(z, lattice), shortest_period(lattice)
        return (Reference(value, slope, offset, period ** (-n - 2)),)


def laurent_coefficients(lattice: Lattice, count: int) -> tuple[Reference, ...]:
    values = get_backend("mpmath", dps=DIGITS).laurent_coefficients(lattice, count)
    with mpmath.workdps(DIGITS):
        return _of_degree(values, lattice, tuple(range(4, 2 * count + 3, 2)))


class InverseReference(NamedTuple):
    """Measures how near wp(got) is to the argument; sign and lattice point are free.

    To first order |wp(got) - w| / (|w| + |z wp'| + p^-2) is the scaled error of z itself, and
    it stays meaningful at half-periods, where z is not a smooth function of w.
    """

    argument: complex
    lattice: Lattice
    value: int = 1  # any ordinary size, because no solution overflows

    def error_of(self, got: complex) -> float:
        if not cmath.isfinite(self.argument):
            return 0.0 if got == 0 else float("inf")
        if not cmath.isfinite(got):
            return float("inf")
        p, dp = get_backend("mpmath", dps=DIGITS).wp_and_prime(got, self.lattice)
        with mpmath.workdps(DIGITS):
            offset, period = reduced_argument(got, self.lattice), shortest_period(self.lattice)
            return scaled_error(p, mpmath.mpc(self.argument), dp, offset, period**-2)


def inverse_wp(w: complex, lattice: Lattice) -> tuple[InverseReference]:
    return (InverseReference(w, lattice),)


class SumReference(NamedTuple):
    """A value whose error is divided by the sum of what each of several inputs contributes."""

    value: Any
    contributions: tuple[Any, ...]

    def error_of(self, got: complex) -> float:
        with mpmath.workdps(DIGITS):
            floor = sum(map(abs, self.contributions))
            return scaled_error(got, self.value, 0, 0, floor)


def add(
    p1: complex, dp1: complex, p2: complex, dp2: complex, lattice: Lattice
) -> tuple[SumReference, SumReference]:
    """The chord through two points (the tangent, if they are equal) given by their numbers.

    The unit of the error is what a relative change of the numbers by eps would cause: the
    formula divides by p1 - p2, and its slope enters the third coordinate squared and cubed.
    """
    with mpmath.workdps(DIGITS):
        infinity = mpmath.mpc(mpmath.inf, 0)
        x1, y1, x2, y2 = map(mpmath.mpc, (p1, dp1, p2, dp2))
        if x1 == x2 and y1 == -y2:
            return SumReference(infinity, ()), SumReference(infinity, ())
        if x1 == x2:
            slope = (12 * x1 * x1 - _invariants(lattice)[0]) / (2 * y1)
            slope_error = abs(24 * x1 * x1 / (2 * y1)) + abs(slope)
        else:
            slope = (y1 - y2) / (x1 - x2)
            slope_error = (abs(y1) + abs(y2) + abs(slope) * (abs(x1) + abs(x2))) / abs(x1 - x2)
        # y^2 = 4x^3 - ...: the sum is (m/2)^2 - x1 - x2, and its wp' is -(y1 + m (x3 - x1)).
        x3 = slope * slope / 4 - x1 - x2
        x3_error = abs(slope) / 2 * slope_error + abs(x1) + abs(x2)
        y3 = -(y1 + slope * (x3 - x1))
        y3_error = abs(y1) + slope_error * abs(x3 - x1) + abs(slope) * (x3_error + abs(x1))
        return SumReference(x3, (x3_error,)), SumReference(y3, (y3_error,))


def lattice_sum(
    z: complex, lattice: Lattice, m_max: int, n_max: int
) -> tuple[SumReference, SumReference]:
    """The truncated series; each of its terms contributes to the error."""
    p, dp = get_backend("mpmath", dps=DIGITS).lattice_sum(z, lattice, m_max, n_max)
    omega1, omega3 = complex(lattice.omega1), complex(lattice.omega3)
    size = slope = 0.0
    for m in range(-m_max, m_max + 1):
        for n in range(-n_max, n_max + 1):
            w = 2 * (m * omega1 + n * omega3)
            # The difference z - w has the rounding errors of its parts, however small it is. Its
            # relative error counts twice in 1/(z-w)^2 and three times in the derivative.
            parts = abs(z) + 2 * abs(m * omega1) + 2 * abs(n * omega3)
            size += 2 * parts * abs(z - w) ** -3 + (abs(w) ** -2 if w else 0.0)
            slope += 6 * parts * abs(z - w) ** -4
    return SumReference(p, (size,)), SumReference(dp, (slope,))


def invariants(lattice: Lattice) -> tuple[Reference, ...]:
    with mpmath.workdps(DIGITS):
        return _of_degree(_invariants(lattice), lattice, (4, 6))


def invariants_again(g2: complex, g3: complex, lattice: Lattice) -> tuple[Reference, Reference]:
    """The invariants that a lattice was made for, relative to the size of both.

    A number x that scales as a length has g2 and g3 of the order x^-4 and x^-6.
    """
    with mpmath.workdps(DIGITS):
        size = max(abs(mpmath.mpc(g2)) ** 0.25, mpmath.root(abs(mpmath.mpc(g3)), 6))
        return Reference(mpmath.mpc(g2), 0, 0, size**4), Reference(mpmath.mpc(g3), 0, 0, size**6)


def roots(lattice: Lattice) -> tuple[Reference, ...]:
    with mpmath.workdps(DIGITS):
        return _of_degree(get_backend("mpmath", dps=DIGITS).roots(lattice), lattice, (2, 2, 2))


def _of_degree(values: Any, lattice: Lattice, degrees: tuple[int, ...]) -> tuple[Reference, ...]:
    """Constants that scale like a power of pi over the period, and may vanish."""
    unit = mpmath.pi / shortest_period(lattice)
    return tuple(Reference(value, 0, 0, unit**k) for value, k in zip(values, degrees, strict=True))


def quasi_periods(lattice: Lattice) -> tuple[Reference, ...]:
    """eta grows with omega, and so does its floor |omega| (pi/p)^2."""
    values = get_backend("mpmath", dps=DIGITS).quasi_periods(lattice)
    with mpmath.workdps(DIGITS):
        floors = [
            abs(mpmath.mpc(complex(omega))) * (mpmath.pi / shortest_period(lattice)) ** 2
            for omega in (lattice.omega1, lattice.omega3)
        ]
        return tuple(
            Reference(value, 0, 0, floor) for value, floor in zip(values, floors, strict=True)
        )


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
