"""Addition, inversion and the truncated defining sum: algebra rather than series.

Like `backends.kernel`, this runs on real pairs of any array library, without branches on data.
"""

from __future__ import annotations

import math
from typing import Any

from backends.argument import locate, offset_from
from backends.constants import Precision, SeriesConstants
from backends.pair import ArrayOps, Pair, pair_sqrt, select, where_needed


def add_points(
    ops: ArrayOps, first: tuple[Pair, Pair], second: tuple[Pair, Pair], g2: Pair, unit: Any
) -> tuple[Pair, Pair]:
    """(wp, wp') at z1+z2 by the chord through two points of the curve (DLMF 23.10.1).

    An infinite value stands for a lattice point, the neutral element. `g2` is given over the
    fourth power of `unit` (see `SeriesConstants`).
    """
    finite_if_inputs_are = sum((x - x for x in (*first, *second)), Pair(0.0, 0.0))
    neutral = [_is_infinite(ops, p) for p, _ in (first, second)]
    either = neutral[0] | neutral[1]
    # Nobody selects what comes of an infinite value, but its derivative would be NaN.
    (p1, dp1), (p2, dp2) = (
        tuple(where_needed(ops, ~either, value) for value in point) for point in (first, second)
    )
    # wp, wp' and g2 scale like the second, third and fourth power of a number. Divided by it, one
    # power at a time, they have squares that stay in range.
    largest = ops.sqrt(_larger(ops, _size(ops, p1), _size(ops, p2)))
    power = ops.power_of_two(_larger(ops, largest, unit))
    shrink = 1.0 / power
    p1, p2 = (p.scale(shrink).scale(shrink) for p in (p1, p2))
    dp1, dp2 = (dp.scale(shrink).scale(shrink).scale(shrink) for dp in (dp1, dp2))
    ratio = unit * shrink
    g2 = g2.scale(ratio * ratio).scale(ratio * ratio)
    p, dp, is_opposite = _chord(ops, p1, dp1, p2, dp2, g2)
    p, dp = p.scale(power).scale(power), dp.scale(power).scale(power).scale(power)
    p, dp = (ops.with_infinities(value, finite_if_inputs_are, is_opposite) for value in (p, dp))
    for is_neutral, (p_other, dp_other) in zip(neutral, (second, first), strict=True):
        p, dp = select(ops, is_neutral, p_other, p), select(ops, is_neutral, dp_other, dp)
    return p, dp


def _chord(
    ops: ArrayOps, p1: Pair, dp1: Pair, p2: Pair, dp2: Pair, g2: Pair
) -> tuple[Pair, Pair, Any]:
    """The sum of two finite points, and whether they are opposite and have none.

    The slope has two expressions, equal on the curve; one is 0/0 where z1 = z2, the other at
    other points with wp'(z1) = -wp'(z2). The better conditioned one is taken.
    """
    chord, tangent = p1 - p2, dp1 + dp2
    p_scale = _modulus(ops, p1) + _modulus(ops, p2)
    dp_scale = _modulus(ops, dp1) + _modulus(ops, dp2)
    # Both products are 0 also where both points are the same zero of wp: there is no chord then.
    use_chord = _modulus(ops, chord) * dp_scale >= _modulus(ops, tangent) * p_scale
    use_chord = use_chord & ~_is_zero(chord)
    slope = select(ops, use_chord, dp1 - dp2, 4.0 * (p1 * p1 + p1 * p2 + p2 * p2) - g2)
    run = select(ops, use_chord, chord, tangent)
    is_opposite = _is_zero(run)
    run = where_needed(ops, ~is_opposite, run)
    # Few bits may be left of the difference, so its square needs a range of its own.
    shrink = 1.0 / ops.power_of_two(_size(ops, run))
    slope = slope * run.scale(shrink).reciprocal().scale(shrink)
    p = 0.25 * slope.square() - p1 - p2
    return p, slope * (p1 - p) - dp1, is_opposite


def _modulus(ops: ArrayOps, x: Pair) -> Any:
    return ops.hypot(x.re, x.im)


def _size(ops: ArrayOps, x: Pair) -> Any:
    """The larger part of x, without derivatives: a factor to scale by."""
    re, im = ops.constant(x.re), ops.constant(x.im)
    return _larger(ops, re * ops.sign_of(re), im * ops.sign_of(im))


def _is_zero(x: Pair) -> Any:
    return (x.re == 0.0) & (x.im == 0.0)


def _is_infinite(ops: ArrayOps, x: Pair) -> Any:
    return ops.isinf(x.re) | ops.isinf(x.im)


def lattice_sum(
    ops: ArrayOps, z: Pair, omega1: Pair, omega3: Pair, m: Any, origin: Any, n_max: int
) -> tuple[Pair, Pair]:
    """The truncated defining series, one row of the lattice at a time.

    `m` holds the column indices as an array of z's kind, `origin` 1.0 where ``m == 0``.
    """
    column = Pair(z.re[..., None], z.im[..., None])
    wp_re = wp_im = dp_re = dp_im = 0.0
    is_pole: Any = False
    for n in range(-n_max, n_max + 1):
        w = omega1.scale(2.0 * m) + (2.0 * n) * omega3
        from_w = column - w
        is_w = _is_zero(from_w)
        is_pole = is_pole | is_w.any(-1)
        inverse = where_needed(ops, ~is_w, from_w).reciprocal()
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
    wp, wp_prime = (ops.with_infinities(value, z, is_pole) for value in sums)
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
    return rf_series(ops, x, y, z) * turn


def rf_series(ops: ArrayOps, x: Pair, y: Pair, z: Pair) -> Pair:
    """R_F of numbers that agree to better than 1 % (DLMF 19.36.1)."""
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
    return series * pair_sqrt(ops, mean).reciprocal()


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


def _larger(ops: ArrayOps, x: Any, y: Any) -> Any:
    return ops.where(x > y, x, y)


def inverse_wp(ops: ArrayOps, w: Pair, c: SeriesConstants, precision: Precision) -> Pair:
    """The solution of wp(z) = w in the upper half of the cell around 0 (see AbstractBackend)."""
    is_infinite = _is_infinite(ops, w)
    # R_F is homogeneous of degree -1/2. Divided by the square of a power of two, at least as large
    # as pi/a and as the square root of w, nothing in it leaves the range.
    unit = ops.constant(c.unit)
    size = ops.where(is_infinite, 0.0, ops.sqrt(_size(ops, w)))
    shrink = 1.0 / ops.power_of_two(_larger(ops, size, unit))
    # Any number that is far from the roots will do where w is infinite.
    small = where_needed(ops, ~is_infinite, w.scale(shrink).scale(shrink), 8.0)
    scaled = small * c.period_over_pi.square()
    ratio = unit * shrink
    from_e1, from_e3 = (scaled - c.roots[k].scale(ratio * ratio) for k in (0, 2))
    # Not w - e2: on a tall lattice e2 and e3 round to the same number, but their gap is known.
    from_e2 = from_e3 - c.root_gap.scale(ratio * ratio)
    v = carlson_rf(ops, from_e1, from_e2, from_e3, precision.carlson_steps)
    z = (v * c.period_over_pi).scale(ratio)  # in units of the lattice
    cell = locate(ops, z, c, precision)
    z = offset_from(ops, z, cell.m, cell.n, c, precision)
    # On the lower edge (row = 0) both solutions qualify, and rounding must not choose.
    edge = 16.0 * precision.eps
    on_edge = cell.row * cell.row < edge * edge
    sign = ops.sign_of(ops.where(on_edge, cell.column, cell.row))
    # Nor may it choose between the sides (column = 1/2 and -1/2), which a period moves together.
    column = cell.column * sign
    is_left = ops.as_weight(column < edge - 0.5)
    column = column + is_left
    z = Pair(z.re * sign + is_left * c.period1_re.high, z.im * sign + is_left * c.period1_im.high)
    # On the upper edge (row = 1/2) the other solution is period3 - z, moved by a period back into
    # the region.
    mirrored = ops.constant(c.tau.re) - column
    turns = ops.rint(mirrored)
    turns = turns - ops.as_weight(mirrored - turns < edge - 0.5)
    mirror = Pair(
        (c.period3_re.high - z.re) - turns * c.period1_re.high,
        (c.period3_im.high - z.im) - turns * c.period1_im.high,
    )
    on_upper_edge = 0.5 - cell.row * ops.sign_of(cell.row) < edge
    z = select(ops, on_upper_edge & (mirrored - turns > column), mirror, z)
    z = z.scale(1.0 / unit)
    return Pair(ops.where(is_infinite, 0.0, z.re), ops.where(is_infinite, 0.0, z.im))
