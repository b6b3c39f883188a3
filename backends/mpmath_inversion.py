r"""From values back to arguments and periods, by Carlson's integral.

.. math:: z = \int_w^\infty \frac{dt}{\sqrt{4(t-e_1)(t-e_2)(t-e_3)}}
            = R_F(w-e_1, w-e_2, w-e_3)

solves :math:`\wp(z) = w` (DLMF 19.25.35) when the straight path from w to infinity meets no
root. Homogeneity of :math:`R_F` turns the path into any direction, so one that keeps clear
of all roots is always taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from backends.exact_reduction import ReducedFrame, exact_number
from backends.mpmath_precision import TwoPrecisions, magnitude
from backends.mpmath_rows import (
    RowTable,
    complex_ratio,
    half_period_values,
    rounded_to,
    row_table,
    wp_and_prime_rows,
)
from wefpe_core._exact import GaussianRational, gauss_reduce

# Three differences and sixteen directions: one of them stays pi/16 away from every root.
_DIRECTIONS = 16
_CLEAR_OF_ROOTS = -0.9
_NEWTON_STEPS = 40
_EDGE_BITS = 3  # what lies within 2^3 units in the last place of an edge is on the edge
_UNRESOLVED_BITS = 8  # Newton's method needs that many bits of the distance to the root


def inverse_wp_at(
    exact: GaussianRational, frame: ReducedFrame, precisions: TwoPrecisions, where: Any
) -> Any:
    r"""The solution of :math:`\wp(z) = w` that `AbstractBackend.inverse_wp` documents.

    Carlson's integral in the lower precision, polished by Newton's method on the row sums in
    the higher one. The two must agree, and :math:`\wp` at the result must be `w`.
    """
    low, high = (row_table(frame, bits) for bits in precisions.working_bits)
    w = rounded_to(high.ctx, exact)
    roots = half_period_values(high)
    point, nearest = min(roots, key=lambda pair: abs(pair[1] - w))
    largest = max(magnitude(root) for _, root in roots)
    # A root as `roots` rounds it stands for the root, and so does what the integral cannot resolve.
    # It writes 0 for a part that symmetry makes 0, and the series here only nearly does.
    rounded = precisions.rounded(nearest)
    noise = high.ctx.ldexp(abs(rounded), -precisions.bits)
    is_root = all(
        part == given or (given == 0 and abs(part) <= noise)
        for part, given in ((rounded.real, w.real), (rounded.imag, w.imag))
    )
    if is_root or magnitude(w - nearest) <= largest - low.bits + _UNRESOLVED_BITS:
        ratio = complex_ratio(high.ctx, point.re, point.im, point.denominator)
        return precisions.rounded(high.period1 * ratio)
    w_low = rounded_to(low.ctx, exact)
    differences = [w_low - root for _, root in half_period_values(low)]
    seed = carlson_rf(low.ctx, direction(low.ctx, differences), *differences)
    z, wp, wp_prime = newton_polished(high, seed, w)
    period = frame.period_magnitude
    size, slope = magnitude(z), magnitude(wp_prime)
    w_size = max(magnitude(w), -2 * period)
    # z moves by 1/wp' times what w does: far, next to the roots.
    z_scale = max(size, w_size - slope)
    precisions.check([seed], [z], [z_scale], where)
    precisions.check([w], [wp], [max(w_size, size + slope)], where)
    tolerance = high.ctx.ldexp(1, size - period - precisions.bits + _EDGE_BITS)
    return precisions.rounded(canonical_branch(high, z, tolerance))


def direction(ctx: Any, differences: Sequence[Any]) -> Any:
    """Return a factor of modulus 1 that turns all `differences` away from the negative axis.

    It is 1 unless a difference lies near that axis, so that real problems stay real.
    """
    nonzero = [x / abs(x) for x in differences if x != 0]

    def clearance(turn: Any) -> Any:
        return min((ctx.re(turn * x) for x in nonzero), default=ctx.one)

    if clearance(ctx.one) > _CLEAR_OF_ROOTS:
        return ctx.one
    turns = (ctx.expjpi(ctx.mpf(2 * k) / _DIRECTIONS) for k in range(1, _DIRECTIONS))
    return max(turns, key=clearance)


def carlson_rf(ctx: Any, turn: Any, x: Any, y: Any, z: Any) -> Any:
    """Carlson's R_F along the path turned by `turn` (see `direction`)."""
    return ctx.sqrt(turn) * ctx.elliprf(turn * x, turn * y, turn * z)


def newton_polished(table: RowTable, seed: Any, w: Any) -> tuple[Any, Any, Any]:
    r"""Solve :math:`\wp(z) = w` by Newton's method from `seed`: ``(z, wp(z), wp'(z))``."""
    ctx = table.ctx
    z = ctx.mpc(seed)
    previous = ctx.inf
    for _ in range(_NEWTON_STEPS):
        wp, wp_prime = _values_at(table, z)
        step = (wp - w) / wp_prime
        # Once rounding decides the step, it stops shrinking. Before, it shrinks by half at
        # least: the seed is nearer to its root than to the root's mirror image.
        if abs(step) >= previous / 2:
            break
        z, previous = z - step, abs(step)
        if previous <= abs(z) * ctx.eps:
            break
    return (z, *_values_at(table, z))


def _values_at(table: RowTable, z: Any) -> tuple[Any, Any]:
    exact = exact_number(z)
    if exact is None:
        return table.ctx.nan, table.ctx.nan
    return wp_and_prime_rows(table, table.frame.reduce(exact))


def canonical_branch(table: RowTable, z: Any, tolerance: Any) -> Any:
    r"""The one of :math:`\pm z` modulo the lattice that `AbstractBackend.inverse_wp` documents.

    Coordinates within `tolerance` of an edge count as on the edge; where the edge leaves a
    choice, the solution with the larger :math:`{\rm Re}(z/2w_1)` is taken, which is not
    negative if one of the two is not.
    """
    ctx, height = table.ctx, table.tau.imag
    exact = exact_number(z)
    if exact is None:
        return z
    point = table.frame.reduce(exact)
    u = complex_ratio(ctx, point.re, point.im, point.denominator)
    if u.imag < -tolerance * height:
        u = -u

    def centred(ratio: Any) -> Any:
        return ratio - ctx.ceil(ratio.real - 0.5 - tolerance)

    candidates = [centred(u)]
    if abs(u.imag) <= tolerance * height:
        candidates.append(centred(-u))
    elif u.imag >= (0.5 - tolerance) * height:
        candidates.append(centred(table.tau - u))
    return table.period1 * max(candidates, key=lambda ratio: ratio.real)


def half_periods_from_invariants(
    ctx: Any, g2: Any, g3: Any, positive_discriminant: bool, result_bits: int
) -> tuple[GaussianRational, GaussianRational]:
    """Half-periods in the basis `Lattice.from_invariants` documents.

    `result_bits` says how many bits will be kept: differences below that are taken for noise.
    """
    roots = _cubic_roots(ctx, g2, g3)
    if g2.imag == 0 == g3.imag:
        omega1, omega3 = _real_half_periods(ctx, roots, positive_discriminant)
        return _on_grid(ctx, omega1, result_bits), _on_grid(ctx, omega3, result_bits)
    e1, e2, e3 = roots
    # Two paths in one direction meet at infinity alone, so their integrals are a basis.
    turn = direction(ctx, (e1 - e2, e1 - e3, e3 - e1, e3 - e2))
    omega1 = carlson_rf(ctx, turn, ctx.zero, e1 - e2, e1 - e3)
    omega3 = carlson_rf(ctx, turn, ctx.zero, e3 - e1, e3 - e2)
    if ctx.im(omega3 / omega1) < 0:
        omega3 = -omega3
    w1, w3, _ = gauss_reduce(
        _on_grid(ctx, omega1, result_bits),
        _on_grid(ctx, omega3, result_bits),
        slack=Fraction(1, 2**result_bits),
    )
    return w1, w3


def _cubic_roots(ctx: Any, g2: Any, g3: Any) -> list[Any]:
    """The roots of 4x^3 - g2 x - g3 (Cardano, the larger of the two cubes)."""
    half, third = g3 / 8, g2 / 12
    offset = ctx.sqrt(ctx.mpc(half * half - third**3))
    cube = max(half + offset, half - offset, key=abs)
    root = ctx.cbrt(cube)
    turned = (root * ctx.expjpi(ctx.mpf(2 * k) / 3) for k in range(3))
    return [x + third / x for x in turned]


def _real_half_periods(
    ctx: Any, roots: Sequence[Any], positive_discriminant: bool
) -> tuple[Any, Any]:
    if positive_discriminant:
        e3, e2, e1 = sorted(root.real for root in roots)
        omega1 = ctx.elliprf(0, e1 - e2, e1 - e3)
        return ctx.mpc(omega1), ctx.mpc(0, ctx.elliprf(0, e1 - e3, e2 - e3))
    real = min(roots, key=lambda root: abs(root.imag)).real
    upper = max(roots, key=lambda root: root.imag)
    difference = real - upper
    omega1 = ctx.re(ctx.elliprf(0, difference, ctx.conj(difference)))
    # The imaginary period; with the real one it spans a lattice whose cells are centred.
    height = ctx.re(ctx.elliprf(0, -difference, -ctx.conj(difference)))
    return ctx.mpc(omega1), ctx.mpc(omega1, height) / 2


def _on_grid(ctx: Any, value: Any, result_bits: int) -> GaussianRational:
    """Round to a grid finer than the bits kept, and so drop what is left of exact zeros."""
    exponent = ctx.mag(value) - result_bits - 16
    grid = Fraction(2) ** exponent
    re, im = (int(ctx.nint(ctx.ldexp(part, -exponent))) for part in (value.real, value.imag))
    return GaussianRational(re * grid, im * grid)
