"""Every value twice: agreement of two working precisions, and the rounding of the better one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mpmath
from mpmath import libmp

from wefpe_core.errors import InputError, PrecisionError

# Ten digits beyond those promised, for the rounding errors of some hundred operations.
_GUARD_BITS = 34
# Extra bits come in steps, so that points at various distances share their tables.
_EXTRA_STEP = 64
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
        self.bits: int = libmp.dps_to_prec(dps)
        self.working_bits: tuple[int, int] = (
            self.bits + _GUARD_BITS,
            libmp.dps_to_prec(2 * dps) + _GUARD_BITS,
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
        if hasattr(value, "_mpf_"):
            return mpmath.mp.make_mpf(libmp.mpf_pos(value._mpf_, self.bits, "n"))
        return mpmath.mp.make_mpc(libmp.mpc_pos(value._mpc_, self.bits, "n"))


def magnitude(value: Any) -> int:
    """Exponent of the power of two above the larger part; an extreme integer for 0 and NaN.

    An integer, because the numbers themselves may be far outside the range of floats.
    """
    parts = (value._mpf_,) if hasattr(value, "_mpf_") else value._mpc_
    largest = _OF_ZERO
    for _, mantissa, exponent, bit_count in parts:
        if mantissa:
            largest = max(largest, exponent + bit_count)
        elif exponent:  # NaN and infinities agree with nothing
            return _OF_NAN
    return largest
