"""Finite expressions at one given precision: the truncated series and the addition formula."""

from __future__ import annotations

from typing import Any, NamedTuple

from backends.exact_reduction import LatticeBox
from backends.mpmath_precision import context
from backends.mpmath_rows import RowTable, invariants_series, rounded_to
from wefpe_core._exact import GaussianRational


class TruncatedSeries:
    """The defining series of wp and its derivative over the points of a box."""

    def __init__(self, box: LatticeBox) -> None:
        self.box = box
        self._constants: dict[int, Any] = {}

    def __call__(self, z: GaussianRational, bits: int) -> tuple[Any, Any]:
        """Both sums at a `z` that is no point of the box."""
        ctx = context(bits)
        differences, denominator = self.box.differences(z)
        square_sum = cube_sum = ctx.zero
        for difference in differences:
            inverse = 1 / ctx.mpc(*difference)
            square = inverse * inverse
            square_sum += square
            cube_sum += square * inverse
        return (
            square_sum * ctx.mpf(denominator) ** 2 - self._constant(bits),
            -2 * cube_sum * ctx.mpf(denominator) ** 3,
        )

    def _constant(self, bits: int) -> Any:
        """The sum of the inverse squares of the points other than 0, once per precision."""
        if bits not in self._constants:
            ctx = context(bits)
            points = (ctx.mpc(*point) for point in self.box.points if any(point))
            inverse_squares = (1 / point**2 for point in points)
            self._constants[bits] = sum(inverse_squares, ctx.zero) * self.box.denominator**2
        return self._constants[bits]


class Chord(NamedTuple):
    """The line through two points of the curve, by exact differences of their coordinates."""

    p1: GaussianRational
    dp1: GaussianRational
    p2: GaussianRational
    p_difference: GaussianRational
    dp_difference: GaussianRational
    dp_sum: GaussianRational

    @classmethod
    def through(
        cls,
        p1: GaussianRational,
        dp1: GaussianRational,
        p2: GaussianRational,
        dp2: GaussianRational,
    ) -> Chord:
        return cls(p1, dp1, p2, _difference(p1, p2), _difference(dp1, dp2), _sum(dp1, dp2))

    @property
    def is_vertical(self) -> bool:
        """Whether the points are inverse to each other, so that their sum is infinity."""
        return not any(self.p_difference) and not any(self.dp_sum)

    def prefers_differences(self, period_magnitude: int) -> bool:
        """Whether the quotient of differences has the larger denominator, relative to its scale."""

        def relative(value: GaussianRational, scale: tuple[GaussianRational, ...], k: int) -> int:
            size = max(_magnitude(term) for term in scale)
            return _magnitude(value) - max(size, -k * period_magnitude)

        p_scale, dp_scale = (self.p1, self.p2), (self.dp1, self.dp_difference)
        return relative(self.p_difference, p_scale, 2) >= relative(self.dp_sum, dp_scale, 3)

    def third_point(self, table: RowTable, by_differences: bool) -> tuple[Any, Any, Any, Any]:
        """Sum of the two points, and the sizes of the terms its coordinates were added from."""
        ctx = table.ctx
        p1, dp1, p2 = (rounded_to(ctx, value) for value in (self.p1, self.dp1, self.p2))
        if by_differences:
            slope = rounded_to(ctx, self.dp_difference) / rounded_to(ctx, self.p_difference)
        else:
            g2 = invariants_series(table)[0]
            numerator = 4 * (p1 * p1 + p1 * p2 + p2 * p2) - g2
            slope = numerator / rounded_to(ctx, self.dp_sum)
        p3 = slope * slope / 4 - p1 - p2
        dp3 = slope * (p1 - p3) - dp1
        p_size = abs(slope * slope) + abs(p1) + abs(p2)
        return p3, dp3, p_size, abs(slope) * p_size + abs(dp1)


def _sum(u: GaussianRational, v: GaussianRational) -> GaussianRational:
    return GaussianRational(u.re + v.re, u.im + v.im)


def _difference(u: GaussianRational, v: GaussianRational) -> GaussianRational:
    return GaussianRational(u.re - v.re, u.im - v.im)


def _magnitude(value: GaussianRational) -> int:
    """Power of two near the larger part, as rough as the scales it is compared with."""
    sizes = (x.numerator.bit_length() - x.denominator.bit_length() for x in value if x)
    return max(sizes, default=-(1 << 62))
