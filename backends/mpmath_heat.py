r"""The heat kernel of the torus by mpmath, as far as possible by the sum that arrays do not take.

With :math:`s = 2\pi t/A` the sum over the lattice converges fast for s < 1 and the one over the
dual lattice for s > 1, and arrays sum them so. Here it is the other way round between s = 1/4
and 4. Further out the slow sum would take many terms.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from backends.elementwise import map_elements
from backends.exact_reduction import ReducedFrame, ReducedPoint, exact_number, reduced_frame
from backends.mpmath_precision import TwoPrecisions, context, magnitude
from backends.mpmath_rows import complex_ratio
from wefpe_core.lattice import Lattice

_SLOWEST = 4


class MpmathHeat:
    """The heat kernel and its logarithm, each value at two precisions."""

    _precisions: TwoPrecisions

    def heat(self, z: Any, t: Any, lattice: Lattice) -> Any:
        return self._heat(z, t, lattice, is_log=False)

    def log_heat(self, z: Any, t: Any, lattice: Lattice) -> Any:
        return self._heat(z, t, lattice, is_log=True)

    def _heat(self, z: Any, t: Any, lattice: Lattice, is_log: bool) -> Any:
        frame = reduced_frame(lattice)

        def at(place: Any, time: Any) -> Any:
            exact, duration = exact_number(place), exact_number(time)
            if exact is None or duration is None or duration.im or duration.re <= 0:
                return context(53).nan
            # In units of |a|.
            width = duration.re * frame.scale**2 / frame.norm
            point = frame.reduce(exact)
            size = _decay(point, width)

            def values(bits: int) -> tuple[Any]:
                ctx = context(bits)
                log = _log_heat(ctx, point, width, frame)
                log -= ctx.log(ctx.mpf(frame.norm) / frame.scale**2)
                return (log if is_log else ctx.exp(log),)

            def scales(found: Any) -> list[int]:
                return [max(magnitude(found[0]), 0) if is_log else magnitude(found[0])]

            # The exponential of a large number loses as many bits as that has before the point.
            extra = size.bit_length() + 8
            return self._precisions.agreed(values, scales, (place, time), extra)[0]

        return map_elements(at, z, t)


def _decay(point: ReducedPoint, width: Fraction) -> int:
    """About the largest -log of a term of the sum over the lattice nearest to 0."""
    square = Fraction(point.re**2 + point.im**2, point.denominator**2)
    return int(square / (2 * width)) + 1


def _log_heat(ctx: Any, point: ReducedPoint, width: Fraction, frame: ReducedFrame) -> Any:
    """log of |a|^2 K."""
    height = Fraction(frame.tau[1], frame.norm)
    share = 2 * ctx.pi * ctx.mpf(width.numerator) / width.denominator / _number(ctx, height)
    by_waves = 1 <= share * _SLOWEST < _SLOWEST or share > _SLOWEST
    if by_waves:
        size = _decay(point, width)
        # The waves cancel to e^-size.
        return ctx.convert(log_by_waves(context(ctx.prec + 2 * size), point, width, frame))
    return log_by_places(ctx, point, width, frame)


def _number(ctx: Any, value: Fraction) -> Any:
    return ctx.mpf(value.numerator) / value.denominator


def log_by_places(ctx: Any, point: ReducedPoint, width: Fraction, frame: ReducedFrame) -> Any:
    """log of the sum of exp(-|u + m + n tau|^2/2T) over 2 pi T."""
    u = complex_ratio(ctx, point.re, point.im, point.denominator)
    tau, twice = complex_ratio(ctx, *frame.tau, frame.norm), 2 * _number(ctx, width)
    reach = ctx.sqrt(twice * (ctx.prec + 8) * ctx.ln2 + abs(u) ** 2)
    rows = int(reach / tau.imag) + 2
    exponents = []
    for n in range(-rows, rows + 1):
        row = u + n * tau
        left = reach**2 - row.imag**2
        if left < 0:
            continue
        middle, columns = -int(ctx.nint(row.real)), int(ctx.sqrt(left)) + 1
        exponents += [-(abs(row + middle + m) ** 2) / twice for m in range(-columns, columns + 1)]
    largest = max(exponents)
    total = sum((ctx.exp(x - largest) for x in exponents), ctx.zero)
    return largest + ctx.log(total / (ctx.pi * twice))


def log_by_waves(ctx: Any, point: ReducedPoint, width: Fraction, frame: ReducedFrame) -> Any:
    """log of the sum of exp(-2 pi^2 T |f|^2) cos(2 pi f.u) over the dual lattice, over Im tau."""
    u = complex_ratio(ctx, point.re, point.im, point.denominator)
    tau = complex_ratio(ctx, *frame.tau, frame.norm)
    factor = 2 * ctx.pi**2 * _number(ctx, width)
    reach = ctx.sqrt((ctx.prec + 8) * ctx.ln2 / factor)
    total = ctx.zero
    for k in range(int(reach) + 1):
        middle = int(ctx.nint(k * tau.real))
        across = int(ctx.sqrt(max(reach**2 - k**2, 0)) * tau.imag) + 1
        for j in range(-across, across + 1):
            down = (middle + j - k * tau.real) / tau.imag
            wave = ctx.exp(-factor * (k**2 + down**2))
            wave *= ctx.cos(2 * ctx.pi * (k * u.real + down * u.imag))
            total += wave if k == 0 else 2 * wave
    return ctx.log(total / tau.imag)
