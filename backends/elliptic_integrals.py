"""Carlson's symmetric integrals by duplication, and Legendre's in terms of them.

Like `backends.kernel`, this runs on real pairs of any array library, without branches on data
(Carlson 1995; DLMF 19.36). Zeros on a branch cut have no sign here: every cut belongs to the side
that mpmath gives it to.

For R_J the duplication is used in a form that holds for complex arguments too. With the square
roots r of x, y, z and s of p, each step adds 6 A(u)/d with d = (s + r1)(s + r2)(s + r3) and
u = -product of (r - s)/(r + s), where A(u) = arctan(sqrt u)/sqrt u. If no argument of x, y, z
differs from that of p by half a turn or more, the product stays in the unit disk at every step, so
that A is analytic there and the sum is the continuation of the real integral.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from backends.algebra import rf_series
from backends.constants import Precision
from backends.pair import ArrayOps, Pair, pair_sqrt, polynomial, select, sine_and_cosine

# Steps after which arguments of any ratio agree to some per mille: a step takes the square root of
# a large ratio, and divides a small difference by four.
_STEPS = {"float64": 16, "float32": 12}
# R_J has more: a p that is much larger than x, y, z comes down by a factor of four in a step.
_STEPS_WITH_P = {"float64": 40, "float32": 24}
# Halvings that bring u of A(u) from the edge of the unit disk to 1/40, where Taylor's series ends
# with this power.
_HALVINGS = {"float64": 14, "float32": 10}
_ARCTANGENT_TERMS = {"float64": 10, "float32": 5}
_MEAN_STEPS = {"float64": 14, "float32": 11}
# After these the mean of 1 and the root of any number has its two numbers equal to one per cent.
_REAL_MEAN_STEPS = {"float64": 9, "float32": 6}
_NAN, _INFINITY = float("nan"), float("inf")
_PI_HIGH, _PI_LOW = math.pi, 1.2246467991473532e-16


class Symmetric(NamedTuple):
    """R_F of three numbers, R_D for the slots asked for, and R_J."""

    rf: Pair
    rd: tuple[Pair, ...]
    rj: Pair


def duplicated(
    ops: ArrayOps,
    numbers: Sequence[Pair],
    steps: int,
    slots: Sequence[int] = (),
    p: Pair | None = None,
    halvings: int = 0,
    terms: int = 0,
) -> Symmetric:
    """R_F by `steps` duplications of three numbers of ordinary size, and what shares its steps.

    A slot says which of the numbers R_D has last. R_J is computed if `p` is given.
    """
    x, y, z = numbers
    sums = [_zero_like(x) for _ in slots]
    sum_j = _zero_like(x)
    factor = 1.0
    for step in range(steps):
        roots = [pair_sqrt(ops, value) for value in (x, y, z)]
        a, b, c = roots
        # x + (ab + ac + bc), as products: next to the cut the sum would cancel.
        x1, y1, z1 = (a + b) * (a + c), (a + b) * (b + c), (a + c) * (b + c)
        for k, slot in enumerate(slots):
            sums[k] = sums[k] + (roots[slot] * (x1, y1, z1)[slot]).reciprocal().scale(factor)
        if p is not None:
            s = pair_sqrt(ops, p)
            d = (s + a) * (s + b) * (s + c)
            inverse = d.reciprocal()
            p1 = p + (a * b + (a + b) * c)
            u = (a - s) * (b - s) * (c - s) * inverse
            v = 2.0 * (s * p1 * inverse)
            term = _arctangent_quotient(ops, -u, v, max(halvings - step, 0), terms)
            sum_j = sum_j + (term * inverse).scale(factor)
            p = 0.25 * p1
        x, y, z = 0.25 * x1, 0.25 * y1, 0.25 * z1
        factor *= 0.25
        if ops.all_hold(_agree(ops, (x, y, z) if p is None else (x, y, z, p))):
            break
    rf = rf_series(ops, x, y, z)
    rd = tuple(
        3.0 * total + rj_series(ops, *_with_last((x, y, z), slot)).scale(factor)
        for slot, total in zip(slots, sums, strict=True)
    )
    rj = sum_j
    if p is not None:
        rj = 6.0 * sum_j + rj_series(ops, x, y, z, p).scale(factor)
        agree = _agree(ops, (x, y, z, p))
        rj = Pair(ops.where(agree, rj.re, _NAN), ops.where(agree, rj.im, _NAN))
    return Symmetric(rf, rd, rj)


def _zero_like(x: Pair) -> Pair:
    zero = 0.0 * x.re
    return Pair(zero, zero)


def _with_last(numbers: Sequence[Pair], slot: int) -> tuple[Pair, Pair, Pair, Pair]:
    """The numbers with that one last, and again: R_D(x, y, z) is R_J(x, y, z, z)."""
    first, second = (value for k, value in enumerate(numbers) if k != slot)
    return first, second, numbers[slot], numbers[slot]


def _agree(ops: ArrayOps, numbers: Sequence[Pair]) -> Any:
    """Whether all numbers are equal to three per mille, or one of them is not a number."""
    first = numbers[0]
    size = 1e-5 * first.squared_modulus()
    agree = size != size
    close: Any = True
    for other in numbers[1:]:
        distance = (other - first).squared_modulus()
        close = (distance <= size) & close
        agree = agree | (distance != distance)
    return close | agree


def rj_series(ops: ArrayOps, x: Pair, y: Pair, z: Pair, p: Pair) -> Pair:
    """R_J of numbers that agree to better than one per cent (DLMF 19.36.2)."""
    mean = (x + y + z + 2.0 * p) * 0.2
    inverse = mean.reciprocal()
    dx, dy, dz = ((mean - value) * inverse for value in (x, y, z))
    dp = -0.5 * (dx + dy + dz)
    dp_squared, product = dp * dp, dx * dy * dz
    e2 = dx * dy + (dx + dy) * dz - 3.0 * dp_squared
    e3 = product + 2.0 * (e2 * dp) + 4.0 * (dp_squared * dp)
    e4 = (2.0 * product + e2 * dp + 3.0 * (dp_squared * dp)) * dp
    e5 = product * dp_squared
    e2_squared = e2 * e2
    series = 1.0 + (
        e2 * (-3.0 / 14.0)
        + e3 * (1.0 / 6.0)
        + e2_squared * (9.0 / 88.0)
        - e4 * (3.0 / 22.0)
        - e2 * e3 * (9.0 / 52.0)
        + e5 * (3.0 / 26.0)
        - e2_squared * e2 * (1.0 / 16.0)
        + e3 * e3 * (3.0 / 40.0)
        + e2 * e4 * (3.0 / 20.0)
        + e2_squared * e3 * (45.0 / 272.0)
        - (e3 * e4 + e2 * e5) * (9.0 / 68.0)
    )
    return series * (mean * pair_sqrt(ops, mean)).reciprocal()


def _arctangent_quotient(ops: ArrayOps, u: Pair, v: Pair, halvings: int, terms: int) -> Pair:
    """arctan(sqrt u)/sqrt u for |u| <= 1, with v = 1 + u; each halving halves the angle."""
    factor: Pair | None = None
    for _ in range(halvings):
        root = pair_sqrt(ops, v)
        inverse = (1.0 + root).reciprocal()
        u = u * (inverse * inverse)
        v = 2.0 * (root * inverse)
        factor = 2.0 * inverse if factor is None else factor * (2.0 * inverse)
        small = u.squared_modulus() < 1.0 / 1600.0
        if ops.all_hold(small | (u.re != u.re)):
            break
    total = Pair(1.0 / (2 * terms + 1) + 0.0 * u.re, 0.0 * u.re)
    for k in range(terms - 1, -1, -1):
        total = 1.0 / (2 * k + 1) - u * total
    return total if factor is None else total * factor


class _Scaled(NamedTuple):
    """Numbers divided by the square of a power of two, their `unit`, into ordinary size."""

    numbers: list[Pair]
    unit: Any


def _scaled(ops: ArrayOps, *numbers: Pair) -> _Scaled:
    # A zero on the cut has no sign: -0.0 + 0.0 is 0.0.
    plain = [Pair(value.re, value.im + 0.0) for value in numbers]
    size: Any = 0.0
    for value in plain:
        modulus = ops.constant(_largest_part(ops, value))
        size = ops.where(modulus > size, modulus, size)
    usable = (size > 0.0) & (size < _INFINITY)
    unit = ops.power_of_two(ops.sqrt(ops.where(usable, size, 1.0)))
    shrink = 1.0 / unit
    return _Scaled([value.scale(shrink).scale(shrink) for value in plain], unit)


def _largest_part(ops: ArrayOps, x: Pair) -> Any:
    re, im = x.re * ops.sign_of(x.re), x.im * ops.sign_of(x.im)
    return ops.where(re > im, re, im)


def _is_zero(x: Pair) -> Any:
    return (x.re == 0.0) & (x.im == 0.0)


def _guarded(ops: ArrayOps, condition: Any, x: Pair, other: float = 1.0) -> Pair:
    """`x`, but `other` where the condition holds: what is not selected must have derivatives."""
    return Pair(ops.where(condition, other, x.re), ops.where(condition, 0.0, x.im))


def _infinite_where(ops: ArrayOps, condition: Any, value: Pair) -> Pair:
    return Pair(ops.where(condition, _INFINITY, value.re), ops.where(condition, _NAN, value.im))


def _nan_unless_finite(ops: ArrayOps, value: Pair, *arguments: Pair) -> Pair:
    """NaN in both parts where an argument is infinite or NaN, which arithmetic may hide."""
    spoil: Any = 0.0
    for argument in arguments:
        spoil = spoil + (ops.constant(argument.re) + ops.constant(argument.im)) * 0.0
    return Pair(value.re + spoil, value.im + spoil)


def elliprf(ops: ArrayOps, x: Pair, y: Pair, z: Pair, precision: Precision) -> Pair:
    (a, b, c), unit = _scaled(ops, x, y, z)
    zero_a, zero_b, zero_c = (_is_zero(value) for value in (a, b, c))
    is_pole = (zero_a & zero_b) | (zero_a & zero_c) | (zero_b & zero_c)
    a, b, c = (_guarded(ops, is_pole, value) for value in (a, b, c))
    value = duplicated(ops, (a, b, c), _STEPS[precision.name]).rf.scale(1.0 / unit)
    return _nan_unless_finite(ops, _infinite_where(ops, is_pole, value), x, y, z)


def elliprd(ops: ArrayOps, x: Pair, y: Pair, z: Pair, precision: Precision) -> Pair:
    (a, b, c), unit = _scaled(ops, x, y, z)
    is_pole = _is_zero(c) | (_is_zero(a) & _is_zero(b))
    a, b, c = (_guarded(ops, is_pole, value) for value in (a, b, c))
    (value,) = duplicated(ops, (a, b, c), _STEPS[precision.name], (2,)).rd
    value = _over_cube(value, unit)
    return _nan_unless_finite(ops, _infinite_where(ops, is_pole, value), x, y, z)


def _over_cube(value: Pair, unit: Any) -> Pair:
    shrink = 1.0 / unit
    return value.scale(shrink).scale(shrink).scale(shrink)


def elliprc(ops: ArrayOps, x: Pair, y: Pair, precision: Precision) -> Pair:
    (a, b), unit = _scaled(ops, x, y)
    # The principal value for a negative y (DLMF 19.2.20).
    on_cut = (b.im == 0.0) & (b.re < 0.0)
    is_pole = _is_zero(b)
    b = _guarded(ops, is_pole, b)
    first, second = select(ops, on_cut, a - b, a), select(ops, on_cut, -b, b)
    value = duplicated(ops, (first, second, second), _STEPS[precision.name]).rf
    first = _guarded(ops, ~on_cut | _is_zero(a), first)
    numerator = _guarded(ops, _is_zero(a), a)
    factor = pair_sqrt(ops, numerator) * pair_sqrt(ops, first).reciprocal()
    factor = _guarded(ops, _is_zero(a), factor, 0.0)
    value = select(ops, on_cut, value * factor, value).scale(1.0 / unit)
    return _nan_unless_finite(ops, _infinite_where(ops, is_pole, value), x, y)


def elliprj(ops: ArrayOps, x: Pair, y: Pair, z: Pair, p: Pair, precision: Precision) -> Pair:
    (a, b, c, q), unit = _scaled(ops, x, y, z, p)
    is_real = (a.im == 0.0) & (b.im == 0.0) & (c.im == 0.0) & (q.im == 0.0)
    on_cut = is_real & (q.re < 0.0) & (a.re >= 0.0) & (b.re >= 0.0) & (c.re >= 0.0)
    zero_a, zero_b, zero_c = (_is_zero(value) for value in (a, b, c))
    is_pole = (zero_a & zero_b) | (zero_a & zero_c) | (zero_b & zero_c) | _is_zero(q)
    a, b, c, q = (_guarded(ops, is_pole, value) for value in (a, b, c, q))
    # The principal value (DLMF 19.20.14), from R_J at another, positive p.
    low, middle, high = _sorted(ops, a, b, c)
    negative = _guarded(ops, ~on_cut, -q)
    total = negative + high
    moved = (high * (low + middle + negative) - low * middle) * total.reciprocal()
    found = _raw(ops, (a, b, c), select(ops, on_cut, moved, q), precision)
    product = moved * negative
    both = low * middle + product
    pair = (both, product, product)
    degenerate = duplicated(ops, pair, _STEPS[precision.name]).rf
    inner = _guarded(ops, _is_zero(low), low * middle * high * both.reciprocal())
    root = _guarded(ops, _is_zero(low), pair_sqrt(ops, inner), 0.0)
    principal = (moved - high) * found.rj - 3.0 * found.rf + 3.0 * (root * degenerate)
    value = select(ops, on_cut, principal * total.reciprocal(), found.rj)
    value = _over_cube(value, unit)
    return _nan_unless_finite(ops, _infinite_where(ops, is_pole, value), x, y, z, p)


def _sorted(ops: ArrayOps, a: Pair, b: Pair, c: Pair) -> tuple[Pair, Pair, Pair]:
    """Three numbers in the order of their real parts."""

    def ordered(x: Pair, y: Pair) -> tuple[Pair, Pair]:
        swap = y.re < x.re
        return select(ops, swap, y, x), select(ops, swap, x, y)

    a, b = ordered(a, b)
    b, c = ordered(b, c)
    a, b = ordered(a, b)
    return a, b, c


def _raw(ops: ArrayOps, numbers: Sequence[Pair], p: Pair, precision: Precision) -> Symmetric:
    """R_F and R_J; the latter NaN where its arguments are half a turn apart or more.

    It is NaN, too, where p is so much larger than the others that the steps do not suffice.
    """
    name = precision.name
    found = duplicated(
        ops, numbers, _STEPS_WITH_P[name], (), p, _HALVINGS[name], _ARCTANGENT_TERMS[name]
    )
    refused: Any = False
    for x in numbers:
        turn = x.re * p.im - x.im * p.re
        above = (p.im > 0.0) | ((p.im == 0.0) & (p.re < 0.0))
        apart = (above & (x.im < 0.0) & (turn <= 0.0)) | (
            (p.im < 0.0) & (x.im > 0.0) & (turn >= 0.0)
        )
        refused = apart | refused
        # x itself on the cut counts as above it.
        refused = refused | ((x.im == 0.0) & (x.re < 0.0) & (p.im < 0.0))
    rj = Pair(ops.where(refused, _NAN, found.rj.re), ops.where(refused, _NAN, found.rj.im))
    return found._replace(rj=rj)


def _one_minus(x: Pair) -> Pair:
    """1 - x with an imaginary part that is never -0.0, so that m > 1 has one value."""
    return Pair(1.0 - x.re, 0.0 - x.im)


def arithmetic_geometric_mean(ops: ArrayOps, b: Pair, precision: Precision) -> Pair:
    """The mean of 1 and b, Re b >= 0: both stay in one quadrant, so that roots are principal."""
    a = Pair(1.0 + 0.0 * b.re, 0.0 * b.re)
    for _ in range(_MEAN_STEPS[precision.name]):
        a, b = 0.5 * (a + b), pair_sqrt(ops, a * b)
        distance, size = (a - b).squared_modulus(), 1e-15 * a.squared_modulus()
        if ops.all_hold((distance <= size) | (distance != distance)):
            break
    return 0.5 * (a + b)


def ellipk_up_to_one(ops: ArrayOps, m: Any, precision: Precision) -> Pair:
    """K for real m of at most 1, by the mean of real numbers and K of a small modulus."""
    is_pole = m == 1.0
    a, b = 1.0, ops.sqrt(ops.where(is_pole, 1.0, 1.0 - m))
    for _ in range(_REAL_MEAN_STEPS[precision.name]):
        a, b = 0.5 * (a + b), ops.sqrt(a * b)
        if ops.all_hold((a - b <= 0.01 * b) | (b != b)):
            break
    total = a + b
    square = (a - b) / total
    square = square * square
    series = 1.0 + square * (1.0 / 4.0 + square * (9.0 / 64.0 + square * (25.0 / 256.0)))
    spoil = 0.0 * m  # NaN if m is infinite
    value = math.pi / total * series + spoil
    return Pair(ops.where(is_pole, _INFINITY, value), ops.where(is_pole, _NAN, spoil))


def ellipk(ops: ArrayOps, m: Pair, precision: Precision) -> Pair:
    if ops.all_hold((m.im == 0.0) & (m.re <= 1.0)):
        return ellipk_up_to_one(ops, m.re, precision)
    rest = _one_minus(m)
    is_pole = _is_zero(rest)
    mean = arithmetic_geometric_mean(ops, pair_sqrt(ops, _guarded(ops, is_pole, rest)), precision)
    value = mean.reciprocal().scale(0.5 * math.pi)
    return _nan_unless_finite(ops, _infinite_where(ops, is_pole, value), m)


def _series_at_one(terms: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """P and R of E(1 - b) - 1 = b/2 (P(b) log(1/sqrt b) + R(b)) (DLMF 19.12.2)."""
    of_log, rest, factor, digamma = [], [], 1.0, 2.0 * math.log(2.0)
    for k in range(terms):
        corner = (2 * k + 1) * (2 * k + 2)
        of_log.append(factor)
        rest.append(factor * (digamma - 1.0 / corner))
        factor *= (k + 0.5) * (k + 1.5) / ((k + 2) * (k + 1))
        digamma -= 2.0 / corner
    return tuple(of_log), tuple(rest)


# Where |1 - m| is below this, the two terms of `ellipe` have derivatives that cancel.
_NEAR_ONE = 0.25
_AT_ONE = {"float64": _series_at_one(26), "float32": _series_at_one(12)}


def _ellipe_near_one(ops: ArrayOps, rest: Pair, precision: Precision) -> Pair:
    of_log, others = (
        polynomial([Pair(x, 0.0) for x in series], rest) for series in _AT_ONE[precision.name]
    )
    size = ops.log(ops.hypot(rest.re, rest.im))
    log = Pair(-0.5 * size, -0.5 * ops.arctan2(rest.im, rest.re))
    return 0.5 * (rest * (of_log * log + others)) + 1.0


def ellipe(ops: ArrayOps, m: Pair, precision: Precision) -> Pair:
    rest = _one_minus(m)
    at_one = _is_zero(rest)
    rest = _guarded(ops, at_one, rest)
    zero = 0.0 * ops.constant(rest.re)  # no derivative: that of a root at 0 is infinite
    (a, b, c), unit = _scaled(ops, Pair(zero, zero), rest, Pair(zero + 1.0, zero))
    first, second = duplicated(ops, (a, b, c), _STEPS[precision.name], (1, 2)).rd
    # R_D has degree -3/2, and the factor 1 - m, in units of their square, degree 1.
    value = (b * (first + second)).scale(1.0 / (3.0 * unit))
    is_near = rest.squared_modulus() < _NEAR_ONE * _NEAR_ONE
    close = Pair(ops.where(is_near, rest.re, _NEAR_ONE), ops.where(is_near, rest.im, 0.0))
    value = select(ops, is_near, _ellipe_near_one(ops, close, precision), value)
    return _nan_unless_finite(ops, _guarded(ops, at_one, value), m)


def ellippi(ops: ArrayOps, n: Pair, m: Pair, precision: Precision) -> Pair:
    rest, p = _one_minus(m), _one_minus(n)
    is_pole = _is_zero(rest) | _is_zero(p)
    rest, p = _guarded(ops, is_pole, rest), _guarded(ops, is_pole, p)
    zero = 0.0 * ops.constant(rest.re + p.re)
    one = Pair(zero + 1.0, zero)
    # To the left of 0 the two terms would cancel; there the characteristic (m - n)/(1 - n) serves.
    left = _is_left(n, m)
    inverse = p.reciprocal()
    numbers = (Pair(zero, zero), rest + Pair(zero, zero), one)
    found = _scaled_raw(ops, numbers, select(ops, left, rest * inverse, p), precision)
    here = found.rf + (n * found.rj) * (1.0 / 3.0)
    there = inverse * (found.rf - (n * rest * inverse * found.rj) * (1.0 / 3.0))
    value = select(ops, left, there, here)
    return _nan_unless_finite(ops, _infinite_where(ops, is_pole, value), n, m)


def _is_left(n: Pair, m: Pair) -> Any:
    return (n.re < 0.0) & (n.im == 0.0) & (m.im == 0.0) & (m.re < 1.0)


def _scaled_raw(ops: ArrayOps, numbers: Sequence[Pair], p: Pair, precision: Precision) -> Symmetric:
    (a, b, c, q), unit = _scaled(ops, *numbers, p)
    found = _raw(ops, (a, b, c), q, precision)
    return found._replace(rf=found.rf.scale(1.0 / unit), rj=_over_cube(found.rj, unit))


class _Amplitude(NamedTuple):
    """phi next to 0, with how many times pi was taken away, and what the integrals need of it."""

    turns: Any
    sine: Pair
    cosine: Pair
    delta: Pair  # 1 - m sin^2 phi

    @property
    def numbers(self) -> tuple[Pair, Pair, Pair]:
        one = Pair(1.0 + 0.0 * self.delta.re, 0.0 * self.delta.re)
        return self.cosine * self.cosine, self.delta, one


def _amplitude(ops: ArrayOps, phi: Pair, m: Pair) -> _Amplitude:
    turns = ops.constant(ops.rint(phi.re * (1.0 / math.pi)))
    re = (phi.re - turns * _PI_HIGH) - turns * _PI_LOW
    sine, cosine = sine_and_cosine(ops, Pair(re, phi.im))
    square, cosine_square = sine.square(), cosine.square()
    direct, rest = m * square, _one_minus(m) * square
    direct_size = 1.0 + _modulus(ops, direct)
    rest_size = _modulus(ops, cosine_square) + _modulus(ops, rest)
    delta = select(
        ops,
        ops.constant(rest_size) < ops.constant(direct_size),
        cosine_square + rest,
        _one_minus(direct),
    )
    return _Amplitude(turns, sine, cosine, delta)


def _modulus(ops: ArrayOps, x: Pair) -> Any:
    return ops.hypot(ops.constant(x.re), ops.constant(x.im))


def _with_turns(
    ops: ArrayOps, value: Pair, turns: Any, complete: Callable[..., Pair], *arguments: Pair
) -> Pair:
    """The incomplete integral with twice the complete one for each turn by pi."""
    stays = turns == 0.0
    if ops.all_hold(stays):
        return value
    # Where no turn was made, the complete integral may be infinite and must not be touched.
    safe = [_guarded(ops, stays, argument, 0.5) for argument in arguments]
    whole = complete(*safe)
    return select(ops, stays, value, value + whole.scale(2.0 * turns))


def ellipkinc(ops: ArrayOps, phi: Pair, m: Pair, precision: Precision) -> Pair:
    at = _amplitude(ops, phi, m)
    numbers, unit = _scaled(ops, *at.numbers)
    value = (at.sine * duplicated(ops, numbers, _STEPS[precision.name]).rf).scale(1.0 / unit)
    value = _with_turns(ops, value, at.turns, lambda k: ellipk(ops, k, precision), m)
    return _nan_unless_finite(ops, value, phi, m)


def ellipeinc(ops: ArrayOps, phi: Pair, m: Pair, precision: Precision) -> Pair:
    at = _amplitude(ops, phi, m)
    numbers, unit = _scaled(ops, *at.numbers)
    found = duplicated(ops, numbers, _STEPS[precision.name], (1, 2))
    shrink = 1.0 / unit
    first = (at.sine * found.rf).scale(shrink)
    cube = (at.sine.scale(shrink) * at.sine.scale(shrink) * at.sine.scale(shrink)) * (1.0 / 3.0)
    by_delta, by_one = (m * (cube * value) for value in found.rd)
    rest = _one_minus(m)
    root = pair_sqrt(ops, _guarded(ops, _is_zero(at.delta), at.delta))
    third = m * (at.sine * at.cosine * root.reciprocal())
    third = _guarded(ops, _is_zero(at.delta), third, 0.0)
    # Two sums that are equal (DLMF 19.25.9, 19.25.10): the one whose terms are smaller.
    size = _modulus(ops, first) + _modulus(ops, by_one)
    other = _modulus(ops, rest * first) + _modulus(ops, rest * by_delta) + _modulus(ops, third)
    use_other = (other < size) & ~_is_zero(at.delta)
    value = select(ops, use_other, rest * (first + by_delta) + third, first - by_one)
    value = _with_turns(ops, value, at.turns, lambda k: ellipe(ops, k, precision), m)
    return _nan_unless_finite(ops, value, phi, m)


def ellippiinc(ops: ArrayOps, n: Pair, phi: Pair, m: Pair, precision: Precision) -> Pair:
    at = _amplitude(ops, phi, m)
    square = at.sine.square()
    p = _one_minus(n * square)
    is_pole = _is_zero(p)
    p = _guarded(ops, is_pole, p)
    cosine_square, delta, one = at.numbers
    rest, inverse = (
        _one_minus(m),
        _guarded(ops, _is_zero(_one_minus(n)), _one_minus(n)).reciprocal(),
    )
    left = _is_left(n, m)
    moved = cosine_square + square * rest * inverse
    found = _scaled_raw(ops, (cosine_square, delta, one), select(ops, left, moved, p), precision)
    first = at.sine * found.rf
    cube = (at.sine * square) * (1.0 / 3.0)
    here = first + n * (cube * found.rj)
    # The sum of positive terms for negative n (DLMF 19.21.12, 19.25.14).
    product = _guarded(ops, ~left, p * moved)
    (a, b), unit = _scaled(ops, _guarded(ops, ~left, delta), product)
    degenerate = duplicated(ops, (a, b, b), _STEPS[precision.name]).rf.scale(1.0 / unit)
    there = inverse * (
        first - n * (at.sine * at.cosine * degenerate) - n * (rest * inverse * (cube * found.rj))
    )
    value = _infinite_where(ops, is_pole, select(ops, left, there, here))
    value = _with_turns(ops, value, at.turns, lambda c, k: ellippi(ops, c, k, precision), n, m)
    return _nan_unless_finite(ops, value, n, phi, m)
