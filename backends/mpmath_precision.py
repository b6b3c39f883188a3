"""Every value twice: agreement of two working precisions, and the rounding of the better one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import mpmath

from wefpe_core.errors import InputError, PrecisionError

# Ten digits beyond those promised, for the rounding errors of some hundred operations.
_GUARD_BITS = 34
# Extra bits come in steps, so that points at various distances share their tables.
_EXTRA_STEP = 64
# As many more than those promised tell all numbers of that precision apart, as in mpmath.
_DIGITS_OF_REPR = 3
_OF_ZERO = -(1 << 62)
_OF_NAN = 1 << 62


class TwoPrecisions:
    """Evaluation with `dps` and with ``2*dps`` digits, both with guard digits.

    Attributes
    ----------
    bits
        Precision of the results.
    working_bits
        The two precisions computed with.
    """

    def __init__(self, dps: int) -> None:
        if isinstance(dps, bool) or not isinstance(dps, int) or dps < 1:
            raise InputError(f"dps must be a positive integer, got {dps!r}")
        self.dps = dps
        self.bits: int = bits_of(dps)
        self.working_bits: tuple[int, int] = (
            self.bits + _GUARD_BITS,
            bits_of(2 * dps) + _GUARD_BITS,
        )

    def agreed(
        self,
        evaluate: Callable[[int], Sequence[Any]],
        scales: Callable[[Sequence[Any]], Sequence[int]],
        where: Any,
        extra_bits: int = 0,
    ) -> tuple[Any, ...]:
        """Values of `evaluate`, a function of the precision in bits, rounded to `dps` digits.

        `scales` gives, for the more precise values, the sizes (as powers of two) of which the
        difference may be a part in ``10**dps``. If it is larger, the error names `where`.
        """
        extra = -(-extra_bits // _EXTRA_STEP) * _EXTRA_STEP
        low, high = (evaluate(bits + extra) for bits in self.working_bits)
        self.check(low, high, scales(high), where)
        return tuple(self.rounded(value) for value in high)

    def check(
        self, low: Sequence[Any], high: Sequence[Any], scales: Sequence[int], where: Any
    ) -> None:
        """Raise `PrecisionError` unless `low` and `high` agree to `dps` digits of `scales`."""
        for first, second, scale in zip(low, high, scales, strict=True):
            if magnitude(first - second) > scale - self.bits:
                raise PrecisionError(
                    f"two precisions disagree at {where!r}: {first!r} with {self.dps} digits, "
                    f"{second!r} with {2 * self.dps}"
                )

    def rounded(self, value: Any) -> Any:
        """Round to `dps` digits and hand over to ``mpmath.mp``, whatever its precision."""
        own = context(self.bits)
        # The unary plus of a number rounds it to its context; `convert` to another does not.
        number = mpmath.mp.convert(+own.convert(value))
        if hasattr(number, "_mpf_"):
            return ReferenceReal.of(number._mpf_, self.dps)
        return ReferenceComplex.of(number._mpc_, self.dps)


def on_lines(value: Any, parity: int, lines: tuple[bool, bool]) -> Any:
    """An even (+1) or odd (-1) value with the part that is 0 on lines of symmetry written so.

    `lines` says whether the argument is on a vertical and on a horizontal one.
    """
    vertical, horizontal = lines
    if parity > 0:
        vertical, horizontal = False, vertical or horizontal
    if not (vertical or horizontal) or not isinstance(value, ReferenceComplex):
        return value
    re, im = value._mpc_
    zero = mpmath.mpf(0)._mpf_
    return ReferenceComplex.of((zero if vertical else re, zero if horizontal else im), value.digits)


class ReferenceReal(mpmath.mpf):  # type: ignore[misc]  # mpmath has no types
    """A number of ``mpmath.mp`` that prints the digits it has, whatever ``mpmath.mp.dps`` is.

    What is computed from it is a common number of mpmath, rounded as those are.
    """

    __slots__ = ("digits",)
    digits: int

    @classmethod
    def of(cls, raw: Any, digits: int) -> ReferenceReal:
        """The number of mpmath's representation `raw`."""
        number: ReferenceReal = object.__new__(cls)
        number._mpf_, number.digits = raw, digits
        return number

    def __str__(self) -> str:
        return str(mpmath.nstr(self, self.digits))

    def __repr__(self) -> str:
        return f"mpf('{mpmath.nstr(self, self.digits + _DIGITS_OF_REPR)}')"

    def __reduce__(self) -> Any:
        return ReferenceReal.of, (self._mpf_, self.digits)


class ReferenceComplex(mpmath.mpc):  # type: ignore[misc]
    """The complex numbers beside `ReferenceReal`."""

    __slots__ = ("digits",)
    digits: int

    @classmethod
    def of(cls, raw: Any, digits: int) -> ReferenceComplex:
        """The number of mpmath's representation `raw`."""
        number: ReferenceComplex = object.__new__(cls)
        number._mpc_, number.digits = raw, digits
        return number

    @property
    def real(self) -> ReferenceReal:
        return ReferenceReal.of(self._mpc_[0], self.digits)

    @property
    def imag(self) -> ReferenceReal:
        return ReferenceReal.of(self._mpc_[1], self.digits)

    def __str__(self) -> str:
        return str(mpmath.nstr(self, self.digits))

    def __repr__(self) -> str:
        real, imag = (repr(part).removeprefix("mpf") for part in (self.real, self.imag))
        return f"mpc(real={real[1:-1]}, imag={imag[1:-1]})"

    def __reduce__(self) -> Any:
        return ReferenceComplex.of, (self._mpc_, self.digits)


def magnitude(value: Any) -> int:
    """Exponent of the power of two above the larger part; an extreme integer for 0 and NaN.

    An integer, because the numbers themselves may be far outside the range of floats.
    """
    largest = _OF_ZERO
    for part in (value.real, value.imag):
        if not mpmath.isfinite(part):  # NaN and infinities agree with nothing
            return _OF_NAN
        if part:
            mantissa, exponent = part.man_exp
            largest = max(largest, int(exponent) + int(mantissa).bit_length())
    return largest


@lru_cache(maxsize=256)
def context(bits: int) -> Any:
    """Return an mpmath context of this precision, separate from the user's ``mpmath.mp``."""
    own = mpmath.MPContext()
    own.prec = bits
    return own


def bits_of(dps: int) -> int:
    """The precision in bits that mpmath gives to this many digits."""
    own = mpmath.MPContext()
    own.dps = dps
    return int(own.prec)
