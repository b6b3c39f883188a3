"""Exact arguments: any finite number as a rational, moved next to the origin without rounding.

The certified and the arbitrary-precision backend start here, so that a point a million
periods away or 1e-12 from a pole is as accurate as any other: what is rounded later is the
small difference, never the two numbers it came from.
"""

from __future__ import annotations

import numbers
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from math import lcm
from typing import Any, NamedTuple

from wefpe_core._exact import GaussianRational, IntegerMatrix, exact_complex
from wefpe_core.backend import check_lattice
from wefpe_core.errors import InputTypeError
from wefpe_core.lattice import Lattice
from wefpe_core.lattice_constants import is_its_conjugate


def exact_number(value: Any) -> GaussianRational | None:
    """Return `value` as an exact complex number, or None if it is NaN or infinite.

    Takes Python, NumPy and mpmath numbers, fractions and decimals.

    Raises
    ------
    InputTypeError
        For anything else, and for bools, which are numbers by accident.
    InputError
        For mpmath numbers and decimals with exponents beyond eight million.
    """
    if isinstance(value, bool) or not isinstance(value, (numbers.Complex, Decimal)):
        raise InputTypeError(f"expected a number, got {value!r} of type {type(value).__name__}")
    return exact_complex(value)


def is_infinite(value: Any) -> bool:
    """Whether a number that `exact_number` refused has an infinite part: complex infinity."""
    infinities = (float("inf"), float("-inf"))
    return value.real in infinities or value.imag in infinities


class ReducedPoint(NamedTuple):
    r"""A point :math:`z = z_r + m a + n b` with :math:`z_r/a` exact, periods of the reduced basis.

    ``z_r/a = (re + i*im)/denominator`` has real part in (-1/2, 1/2] and imaginary part in
    (-1/2, 1/2] times :math:`{\rm Im}(b/a)`.
    """

    re: int
    im: int
    denominator: int
    m: int
    n: int
    is_half_period: bool  # of order two exactly: there the derivative of wp is 0

    @property
    def is_lattice_point(self) -> bool:
        """Whether z is a lattice point, exactly."""
        return not (self.re or self.im)

    @property
    def magnitude(self) -> int:
        """Exponent of a power of two near :math:`|z_r/a|`."""
        return max(self.re.bit_length(), self.im.bit_length()) - self.denominator.bit_length()


class ReducedFrame:
    """The reduced basis of a lattice in integers: what `reduce` needs, computed once.

    The full periods are ``period1/scale`` and ``period3/scale``; their quotient tau is
    ``tau/norm``. Compared and hashed by identity, so that tables can be cached by frame.
    """

    def __init__(self, lattice: Lattice) -> None:
        self.lattice = lattice
        self.is_real = is_its_conjugate(lattice)
        self.reduced_lattice, matrix = lattice.reduced()
        self.matrix: IntegerMatrix = matrix
        halves = self.reduced_lattice.exact
        self.scale = lcm(*(part.denominator for half in halves for part in half))
        self.period1, self.period3 = (
            (int(2 * half.re * self.scale), int(2 * half.im * self.scale)) for half in halves
        )
        self.norm = self.period1[0] ** 2 + self.period1[1] ** 2
        self.tau = _times_conjugate(self.period3, self.period1)
        self.is_square = self.tau == (0, self.norm)  # tau = i
        # Exponent of a power of two near |a|, the shortest period.
        self.period_magnitude = max(map(int.bit_length, self.period1)) - self.scale.bit_length()

    def reduce(self, z: GaussianRational) -> ReducedPoint:
        """Subtract the periods that bring `z` next to the origin, exactly."""
        units = lcm(z.re.denominator, z.im.denominator)
        numerators = (
            z.re.numerator * (units // z.re.denominator),
            z.im.numerator * (units // z.im.denominator),
        )
        re, im = _times_conjugate(numerators, self.period1)
        re, im = re * self.scale, im * self.scale
        denominator = units * self.norm
        tau_re, tau_im = self.tau[0] * units, self.tau[1] * units
        n = _nearest(im, tau_im)
        re, im = re - n * tau_re, im - n * tau_im
        m = _nearest(re, denominator)
        re -= m * denominator
        is_half_period = False
        if 2 * im == 0:
            is_half_period = 2 * re == denominator
        elif 2 * im == tau_im:
            is_half_period = (2 * re - tau_re) % denominator == 0
        return ReducedPoint(re, im, denominator, m, n, is_half_period)

    def is_zero_of_wp(self, point: ReducedPoint) -> bool:
        """Whether symmetry makes wp zero there: at the centre of the cell of a square lattice."""
        return self.is_square and point.is_half_period and point.re == point.im

    def lines_through(self, z: GaussianRational) -> tuple[bool, bool]:
        """Whether `z` is on a vertical and on a horizontal line of symmetry of the lattice.

        There a function with real invariants has a part that is 0.
        """
        if not self.is_real:
            return False, False
        across = (GaussianRational(2 * z.re, Fraction(0)), GaussianRational(Fraction(0), 2 * z.im))
        vertical, horizontal = (self.reduce(distance).is_lattice_point for distance in across)
        return vertical, horizontal


@lru_cache(maxsize=512)
def _frame(lattice: Lattice) -> ReducedFrame:
    return ReducedFrame(lattice)


def reduced_frame(lattice: Lattice) -> ReducedFrame:
    """Return the `ReducedFrame` of a lattice of numbers, the same object each time.

    Raises
    ------
    LatticeError
        If the half-periods are tensors, whose values only the torch backend sees.
    """
    check_lattice(lattice)
    _ = lattice.exact  # refuses tensors before they are hashed
    return _frame(lattice)


def exact_half_periods(
    lattice: Lattice,
) -> tuple[GaussianRational, GaussianRational, GaussianRational]:
    """omega1, omega1 + omega3 and omega3 of the basis given; the second one is -omega2."""
    w1, w3 = lattice.exact
    return w1, GaussianRational(w1.re + w3.re, w1.im + w3.im), w3


def reduce_exactly(z: GaussianRational, lattice: Lattice) -> tuple[GaussianRational, int, int]:
    r"""Write `z` as :math:`z_r + 2mw_1 + 2nw_3` in the reduced basis, exactly.

    Returns ``(z_r, m, n)``, with :math:`z_r` in the rectangle
    :math:`|{\rm Re}(z_r/2w_1)| \le 1/2`, :math:`|{\rm Im}(z_r/2w_1)| \le {\rm Im}(\tau)/2`.
    """
    frame = reduced_frame(lattice)
    point = frame.reduce(z)
    x, y = frame.period1
    units = point.denominator * frame.scale
    reduced = GaussianRational(
        Fraction(point.re * x - point.im * y, units), Fraction(point.re * y + point.im * x, units)
    )
    return reduced, point.m, point.n


class LatticeBox:
    r"""The points :math:`2m\omega_1 + 2n\omega_3`, :math:`|m|\le` m_max, :math:`|n|\le` n_max.

    In the basis given, as numerators over one denominator.
    """

    def __init__(self, lattice: Lattice, m_max: int, n_max: int) -> None:
        halves = lattice.exact
        self.denominator = lcm(*(part.denominator for half in halves for part in half))
        (x1, y1), (x3, y3) = (
            (int(2 * half.re * self.denominator), int(2 * half.im * self.denominator))
            for half in halves
        )
        self.points = [
            (m * x1 + n * x3, m * y1 + n * y3)
            for n in range(-n_max, n_max + 1)
            for m in range(-m_max, m_max + 1)
        ]

    def differences(self, z: GaussianRational) -> tuple[list[tuple[int, int]], int]:
        """Numerators of ``z - omega`` for all points (exact, also next to one), and denominator."""
        units = lcm(z.re.denominator, z.im.denominator)
        re, im = (int(part * units) * self.denominator for part in z)
        return [(re - x * units, im - y * units) for x, y in self.points], units * self.denominator


def _times_conjugate(u: tuple[int, int], v: tuple[int, int]) -> tuple[int, int]:
    return u[0] * v[0] + u[1] * v[1], u[1] * v[0] - u[0] * v[1]


def _nearest(numerator: int, denominator: int) -> int:
    """Nearest integer to a quotient with positive denominator, ties down."""
    return -((denominator - 2 * numerator) // (2 * denominator))
