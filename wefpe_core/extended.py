"""Complex arithmetic in fifty decimal digits, on the standard library alone.

Everything that depends on a lattice alone (its nome, invariants, periods) is
computed here once and rounded once, so that no backend inherits rounding errors
from its own constants. Speed does not matter: a lattice is prepared in about a
millisecond, and the caller caches the result.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

from wefpe_core._exact import GaussianRational

DIGITS = 50
_GUARD_DIGITS = 20
# The exponent range is decimal's widest: exp(-2 pi y) of a very thin lattice underflows to 0.
_CONTEXT = Context(prec=DIGITS + _GUARD_DIGITS, Emin=-999999, Emax=999999, traps=[])

_P = ParamSpec("_P")
_R = TypeVar("_R")


def extended_precision(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Run `function` in the fifty-digit context (with guard digits)."""

    @wraps(function)
    def wrapper(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with localcontext(_CONTEXT):
            return function(*args, **kwargs)

    return wrapper


def to_decimal(value: Fraction) -> Decimal:
    """Round an exact rational to the current decimal context."""
    return Decimal(value.numerator) / Decimal(value.denominator)


class ExtendedComplex(NamedTuple):
    """A complex number with decimal parts; arithmetic in the current decimal context."""

    re: Decimal
    im: Decimal

    @classmethod
    def of(cls, value: GaussianRational | complex) -> ExtendedComplex:
        if isinstance(value, GaussianRational):
            return cls(to_decimal(value.re), to_decimal(value.im))
        value = complex(value)
        return cls(Decimal(value.real), Decimal(value.imag))

    def __complex__(self) -> complex:
        return complex(float(self.re), float(self.im))

    def __neg__(self) -> ExtendedComplex:
        return ExtendedComplex(-self.re, -self.im)

    def conjugate(self) -> ExtendedComplex:
        return ExtendedComplex(self.re, -self.im)

    def squared_modulus(self) -> Decimal:
        return self.re * self.re + self.im * self.im

    def __add__(self, other: Any) -> ExtendedComplex:
        other = _coerce(other)
        return ExtendedComplex(self.re + other.re, self.im + other.im)

    def __sub__(self, other: Any) -> ExtendedComplex:
        return self + -_coerce(other)

    def __mul__(self, other: Any) -> ExtendedComplex:
        other = _coerce(other)
        return ExtendedComplex(
            self.re * other.re - self.im * other.im, self.re * other.im + self.im * other.re
        )

    def __truediv__(self, other: Any) -> ExtendedComplex:
        other = _coerce(other)
        quotient = self * other.conjugate()
        modulus = other.squared_modulus()
        return ExtendedComplex(quotient.re / modulus, quotient.im / modulus)

    def __radd__(self, other: Any) -> ExtendedComplex:
        return self + other

    def __rsub__(self, other: Any) -> ExtendedComplex:
        return _coerce(other) - self

    def __rmul__(self, other: Any) -> ExtendedComplex:
        return self * other

    def __rtruediv__(self, other: Any) -> ExtendedComplex:
        return _coerce(other) / self

    def sqrt(self) -> ExtendedComplex:
        """Principal square root."""
        modulus = self.squared_modulus().sqrt()
        larger = ((modulus + abs(self.re)) / 2).sqrt()
        if larger == 0:
            return ExtendedComplex(Decimal(0), Decimal(0))
        smaller = abs(self.im) / (2 * larger)
        re, im = (larger, smaller) if self.re >= 0 else (smaller, larger)
        return ExtendedComplex(re, im if self.im >= 0 else -im)

    def exp(self) -> ExtendedComplex:
        modulus = self.re.exp()
        cosine, sine = _cos_and_sin(self.im)
        return ExtendedComplex(modulus * cosine, modulus * sine)


def _coerce(value: Any) -> ExtendedComplex:
    if isinstance(value, ExtendedComplex):
        return value
    if isinstance(value, Decimal):
        return ExtendedComplex(value, Decimal(0))
    if isinstance(value, Fraction):
        return ExtendedComplex(to_decimal(value), Decimal(0))
    return ExtendedComplex.of(value)


@extended_precision
def _compute_pi() -> Decimal:
    # Machin: pi/4 = 4 arctan(1/5) - arctan(1/239); each series alternates and decreases.
    def arctan_of_inverse(k: int) -> Decimal:
        power = total = Decimal(1) / k
        n = 1
        while total + power != total:
            power = -power / (k * k)
            n += 2
            total += power / n
        return total

    return 4 * (4 * arctan_of_inverse(5) - arctan_of_inverse(239))


PI = _compute_pi()


def _cos_and_sin(angle: Decimal) -> tuple[Decimal, Decimal]:
    """Cosine and sine by Taylor series after reduction to [-pi, pi]."""
    angle = angle - 2 * PI * (angle / (2 * PI)).to_integral_value()
    cosine = term = Decimal(1)
    sine = Decimal(0)
    n = 0
    while abs(term) > Decimal(10) ** -(DIGITS + _GUARD_DIGITS):
        n += 1
        term = term * angle / n
        if n % 2:
            sine += -term if n % 4 == 3 else term
        else:
            cosine += -term if n % 4 == 2 else term
    return cosine, sine


def arithmetic_geometric_mean(a: ExtendedComplex, b: ExtendedComplex) -> ExtendedComplex:
    """The complex AGM that takes, at each step, the square root on the side of the mean."""
    tolerance = Decimal(10) ** -(DIGITS + _GUARD_DIGITS // 2)
    while (a - b).squared_modulus() > tolerance * tolerance * a.squared_modulus():
        mean = (a + b) / 2
        a, b = mean, nearer(mean, (a * b).sqrt())
    return a


def nearer(a: ExtendedComplex, b: ExtendedComplex) -> ExtendedComplex:
    """Return whichever of b and -b is at least as near to a."""
    return b if (a - b).squared_modulus() <= (a + b).squared_modulus() else -b
