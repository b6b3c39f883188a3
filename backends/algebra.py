"""What is algebra rather than series: addition, inversion, the defining sum, periods.

Written, like `backends.kernel`, for real pairs of any array library, without branches on data.
"""

from __future__ import annotations

import math
from typing import Any

from backends.argument import locate, offset_from
from backends.constants import Precision, SeriesConstants
from backends.pair import ArrayOps, Pair, pair_sqrt, select


def add_points(
    ops: ArrayOps, first: tuple[Pair, Pair], second: tuple[Pair, Pair], g2: Pair
) -> tuple[Pair, Pair]:
    """(wp, wp') at z1+z2 by the chord through two points of the curve (DLMF 23.10.1).

    The slope has two expressions, equal on the curve; one is 0/0 where z1 = z2, the other
    where wp'(z1) = -wp'(z2) otherwise. The better conditioned one is taken. An infinite
    value stands for a lattice point, the neutral element.
    """
    (p1, dp1), (p2, dp2) = first, second
    chord, tangent = p1 - p2, dp1 + dp2
    p_scale = _modulus(ops, p1) + _modulus(ops, p2)
    dp_scale = _modulus(ops, dp1) + _modulus(ops, dp2)
    use_chord = _modulus(ops, chord) * dp_scale >= _modulus(ops, tangent) * p_scale
    slope = select(ops, use_chord, dp1 - dp2, 4.0 * (p1 * p1 + p1 * p2 + p2 * p2) - g2)
    slope = slope * select(ops, use_chord, chord, tangent).reciprocal()
    p = 0.25 * slope.square() - p1 - p2
    dp = slope * (p1 - p) - dp1
    # Opposite points have no slope: their sum is the lattice point. NaN stays NaN.
    finite_if_inputs_are = sum((x - x for x in (p1, dp1, p2, dp2)), Pair(0.0, 0.0))
    p, dp = (ops.with_infinities(value, finite_if_inputs_are) for value in (p, dp))
    for point, other in ((p1, (p2, dp2)), (p2, (p1, dp1))):
        is_neutral = ops.isinf(point.re) | ops.isinf(point.im)
        p, dp = select(ops, is_neutral, other[0], p), select(ops, is_neutral, other[1], dp)
    return p, dp


def _modulus(ops: ArrayOps, x: Pair) -> Any:
    return ops.hypot(x.re, x.im)


def lattice_sum(
    ops: ArrayOps, z: Pair, omega1: Pair, omega3: Pair, m: Any, origin: Any, n_max: int
) -> tuple[Pair, Pair]:
    """The truncated defining series, one row of the lattice at a time.

    `m` holds the column indices as an array of z's kind, `origin` 1.0 where ``m == 0``.
    """
    column = Pair(z.re[..., None], z.im[..., None])
    wp_re = wp_im = dp_re = dp_im = 0.0
    for n in range(-n_max, n_max + 1):
        w = omega1.scale(2.0 * m) + (2.0 * n) * omega3
        inverse = (column - w).reciprocal()
        square = inverse.square()
        cube = square * inverse
        # The term of w = 0 is 1/z^2 alone; adding 1 keeps its quotient finite before removal.
        at_origin = origin if n == 0 else 0.0
        counter = w.shift(at_origin).reciprocal().square().scale(1.0 - at_origin)
        wp_re = wp_re + (square.re - counter.re).sum(-1)
        wp_im = wp_im + (square.im - counter.im).sum(-1)
        dp_re = dp_re - 2.0 * cube.re.sum(-1)
        dp_im = dp_im - 2.0 * cube.im.sum(-1)
    sums = (Pair(wp_re, wp_im), Pair(dp_re, dp_im))
    wp, wp_prime = (ops.with_infinities(value, z) for value in sums)
    return wp, wp_prime


def carlson_rf(ops: ArrayOps, x: Pair, y: Pair, z: Pair, steps: int) -> Pair:
    """Carlson's symmetric integral R_F by duplication, up to sign (Carlson 1995; DLMF 19.36.1).

    `steps` is fixed; the arguments then agree to better than 1 %, where the
    seventh-order expansion is exact to double precision.
    """
    x, y, z, turn = _turned_from_cut(ops, x, y, z)
    for _ in range(steps):
        root_x, root_y, root_z = (pair_sqrt(ops, value) for value in (x, y, z))
        shift = root_x * (root_y + root_z) + root_y * root_z
        x, y, z = (0.25 * (value + shift) for value in (x, y, z))
    mean = (x + y + z) * (1.0 / 3.0)
    inverse = mean.reciprocal()
    dx, dy = 1.0 - x * inverse, 1.0 - y * inverse
    dz = -(dx + dy)
    e2, e3 = dx * dy - dz * dz, dx * dy * dz
    e2_squared = e2 * e2
    series = 1.0 + (
        e2 * (-1.0 / 10.0)
        + e3 * (1.0 / 14.0)
        + e2_squared * (1.0 / 24.0)
        - e2 * e3 * (3.0 / 44.0)
        - e2_squared * e2 * (5.0 / 208.0)
        + e3 * e3 * (3.0 / 104.0)
        + e2_squared * e3 * (1.0 / 16.0)
    )
    return series * pair_sqrt(ops, mean).reciprocal() * turn


def _turned_from_cut(ops: ArrayOps, x: Pair, y: Pair, z: Pair) -> tuple[Pair, Pair, Pair, Pair]:
    """Turn three numbers by a common power of i, away from the cut of the square root.

    Arguments on both sides of the cut get roots that do not belong together: the duplication
    then wanders off by periods, and precision is lost. The largest of the three gaps between
    their directions is at least 120 degrees wide, so one of the four half-axes lies in it at
    least 15 degrees from each; that one is turned onto the cut. R_F is homogeneous of degree
    -1/2, so the last value returned, an eighth root of unity, undoes the turn.
    """
    directions = [value.scale(1.0 / (_modulus(ops, value) + _TINY)) for value in (x, y, z)]
    turned = [(x, y, z)]
    for _ in range(3):
        a, b, c = turned[-1]
        turned.append((a.times_i(), b.times_i(), c.times_i()))
    quarter = math.sqrt(0.5)
    undo = (Pair(1.0, 0.0), Pair(quarter, quarter), Pair(0.0, 1.0), Pair(-quarter, quarter))
    # Distance of the nearest direction from the half-axis that power k of i moves to the cut.
    clearances = []
    for sign, part in ((1.0, "re"), (-1.0, "im"), (-1.0, "re"), (1.0, "im")):
        first, second, third = (sign * getattr(value, part) for value in directions)
        clearances.append(_smaller(ops, _smaller(ops, first, second), third))
    best, (x, y, z) = clearances[0], turned[0]
    zero = 0.0 * best
    result = Pair(zero + 1.0, zero)
    for k in range(1, 4):
        better = clearances[k] > best
        best = ops.where(better, clearances[k], best)
        x, y, z = (select(ops, better, *pair) for pair in zip(turned[k], (x, y, z), strict=True))
        result = select(ops, better, undo[k].shift(zero), result)
    return x, y, z, result


# Keeps the direction of 0 finite; far below every modulus that has a direction.
_TINY = 1e-30


def _smaller(ops: ArrayOps, x: Any, y: Any) -> Any:
    return ops.where(x < y, x, y)


def inverse_wp(ops: ArrayOps, w: Pair, c: SeriesConstants, precision: Precision) -> Pair:
    """The solution of wp(z) = w in the upper half of the cell around 0 (see AbstractBackend)."""
    # R_F is homogeneous of degree -1/2: dividing by about |w| keeps its squares in range.
    re, im = ops.constant(w.re), ops.constant(w.im)
    size = 1.0 + (0.25 * (re * ops.sign_of(re)) + 0.25 * (im * ops.sign_of(im)))
    scaled = Pair(w.re / size, w.im / size) * c.wp_scale.reciprocal()
    from_e1, from_e3 = (scaled - c.roots[k].scale(1.0 / size) for k in (0, 2))
    # Not w - e2: on a tall lattice e2 and e3 round to the same number, but their gap is known.
    from_e2 = from_e3 - c.root_gap.scale(1.0 / size)
    v = carlson_rf(ops, from_e1, from_e2, from_e3, precision.carlson_steps)
    z = (v * c.period_over_pi).scale(1.0 / ops.sqrt(size))
    cell = locate(ops, z, c, precision)
    z = offset_from(ops, z, cell.m, cell.n, c, precision)
    # On the lower edge (row = 0) both solutions qualify, and rounding must not choose.
    edge = 16.0 * precision.eps
    on_edge = cell.row * cell.row < edge * edge
    sign = ops.sign_of(ops.where(on_edge, cell.column, cell.row))
    z = Pair(z.re * sign, z.im * sign)
    # Likewise on the upper edge (row = 1/2), where the other solution is period3 - z, moved by a
    # period back into the region.
    column = cell.column * sign
    mirrored = ops.constant(c.tau.re) - column
    turns = ops.rint(mirrored)
    mirror = Pair(
        (c.period3_re.high - z.re) - turns * c.period1_re.high,
        (c.period3_im.high - z.im) - turns * c.period1_im.high,
    )
    on_upper_edge = 0.5 - cell.row * ops.sign_of(cell.row) < edge
    z = select(ops, on_upper_edge & (mirrored - turns > column), mirror, z)
    is_infinite = ops.isinf(w.re) | ops.isinf(w.im)
    return Pair(ops.where(is_infinite, 0.0, z.re), ops.where(is_infinite, 0.0, z.im))
