"""Weierstrass functions of a `DegenerateLattice`, on real pairs of any array library.

With w = kappa z, sine and cosine serve near the real axis of w; from |Im w| = 2 on it is the
exponential e = exp(2i w) or its inverse, whichever is small, so that nothing overflows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from backends.constants import Precision
from backends.pair import ArrayOps, Pair, pair_exp, scaled_reciprocal, select, sine_and_cosine
from wefpe_core.degenerate_lattice import DegenerateLattice

_FAR = 2.0


class _Circle(NamedTuple):
    """Functions of w = kappa z."""

    sine: Pair  # next to the real axis
    inverse: Pair  # of the sine
    cotangent: Pair
    is_far: Any
    sign: Any  # of Im w
    small: Pair  # exp(2i w sign)
    w: Pair


def _circle(ops: ArrayOps, z: Pair, kappa: complex) -> _Circle:
    w = z * Pair(kappa.real, kappa.imag)
    sign = ops.sign_of(w.im)
    is_far = ops.constant(w.im * sign) > _FAR
    sine, cosine = sine_and_cosine(ops, Pair(w.re, ops.where(is_far, 0.0, w.im)))
    inverse = scaled_reciprocal(ops, sine)
    height = ops.where(is_far, w.im * sign, _FAR)
    small = pair_exp(ops, Pair(-2.0 * height, 2.0 * (w.re * sign)))
    # sin w = sign (i/2) exp(-i w sign) (1 - e), and cot w = -i sign (1 + e)/(1 - e).
    rest = (1.0 - small).reciprocal()
    far_cotangent = -(((1.0 + small) * rest).scale(sign).times_i())
    root = pair_exp(ops, Pair(-height, w.re * sign))  # exp(i w sign)
    far_inverse = -((2.0 * (root * rest)).scale(sign).times_i())
    return _Circle(
        sine,
        select(ops, is_far, far_inverse, inverse),
        select(ops, is_far, far_cotangent, cosine * inverse),
        is_far,
        sign,
        small,
        w,
    )


def wp_and_prime(
    ops: ArrayOps, z: Pair, precision: Precision, lattice: DegenerateLattice
) -> tuple[Pair, Pair]:
    if lattice.kappa_squared == 0:
        inverse = scaled_reciprocal(ops, z)
        square = inverse.square()
        return tuple(  # type: ignore[return-value]
            ops.with_infinities(value, z) for value in (square, -2.0 * (square * inverse))
        )
    kappa, squared = _pair(lattice.kappa), lattice.kappa_squared
    at = _circle(ops, z, lattice.kappa)
    scaled = at.inverse * kappa
    square = scaled.square()
    wp = square - Pair(squared.real / 3.0, squared.imag / 3.0)
    wp_prime = -2.0 * (square * (at.cotangent * kappa))
    return ops.with_infinities(wp, z), ops.with_infinities(wp_prime, z)


def zeta(ops: ArrayOps, z: Pair, precision: Precision, lattice: DegenerateLattice) -> Pair:
    if lattice.kappa_squared == 0:
        return ops.with_infinities(scaled_reciprocal(ops, z), z)
    cotangent = _circle(ops, z, lattice.kappa).cotangent * _pair(lattice.kappa)
    return ops.with_infinities(cotangent + z * _pair(lattice.kappa_squared / 3), z)


def sigma(ops: ArrayOps, z: Pair, precision: Precision, lattice: DegenerateLattice) -> Pair:
    if lattice.kappa_squared == 0:
        return z
    at = _circle(ops, z, lattice.kappa)
    exponent = at.w.square() * (1.0 / 6.0)
    near = pair_exp(ops, exponent) * at.sine
    # One exponent for both factors, which may overflow though their product does not.
    turned = Pair(exponent.re + at.w.im * at.sign, exponent.im - at.w.re * at.sign)
    far = (pair_exp(ops, turned) * (0.5 * (1.0 - at.small))).scale(at.sign).times_i()
    return select(ops, at.is_far, far, near) * _pair(1 / lattice.kappa)


def _pair(value: complex) -> Pair:
    return Pair(value.real, value.imag)
