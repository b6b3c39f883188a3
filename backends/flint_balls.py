"""Weierstrass functions in ball arithmetic, at whatever precision ``flint.ctx`` has.

Functions of ``u = z/a`` and ``tau = b/a`` for the full periods a, b of the reduced basis. Their
values are scaled back to the lattice here: wp by a^-2, its derivative by a^-3, zeta by a^-1,
sigma by a.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from typing import Any, NamedTuple

from flint import acb, arb, fmpq

from backends.exact_reduction import LatticeBox, ReducedFrame, ReducedPoint
from wefpe_core._exact import GaussianRational

# Integer directions, about pi/8 apart, for `_rotated_rf`.
_DIRECTIONS = [
    (x, y)
    for x in range(-2, 3)
    for y in range(-2, 3)
    if (abs(x), abs(y)) in {(1, 0), (0, 1), (1, 1), (1, 2), (2, 1)}
]
_CLEAR_OF_ROOTS = -0.9


class Argument(NamedTuple):
    """An argument next to the origin: its exact midpoint, and the ball around that."""

    point: ReducedPoint
    error: Any = acb(0)  # a ball centred at 0; exactly 0 for an exact number

    @property
    def is_exact(self) -> bool:
        """Whether the argument is a number, not a ball."""
        return bool(self.error == 0)

    @property
    def is_lattice_point(self) -> bool:
        """Whether the argument is exactly a lattice point."""
        return self.is_exact and self.point.is_lattice_point

    @property
    def is_half_period(self) -> bool:
        """Whether the argument is exactly a half-period."""
        return self.is_exact and self.point.is_half_period

    def ratio(self, frame: ReducedFrame) -> Any:
        """``z_r/a`` as a ball."""
        centre = quotient(self.point.re, self.point.im, self.point.denominator)
        return centre if self.is_exact else centre + self.error / period1(frame)


def quotient(re: int, im: int, denominator: int) -> Any:
    """A ball around an exact complex quotient of integers."""
    return acb(arb(fmpq(re, denominator)), arb(fmpq(im, denominator)))


def ball(value: GaussianRational) -> Any:
    """A ball around an exact complex number."""
    return acb(*(arb(fmpq(part.numerator, part.denominator)) for part in value))


def period1(frame: ReducedFrame) -> Any:
    """The shortest period a of the frame."""
    return quotient(*frame.period1, frame.scale)


def tau(frame: ReducedFrame) -> Any:
    """The period ratio of the frame."""
    return quotient(*frame.tau, frame.norm)


def wp_and_prime(argument: Argument, frame: ReducedFrame) -> tuple[Any, Any]:
    r""":math:`\wp` and :math:`\wp'` by theta quotients (DLMF 23.6.5).

    The derivative is :math:`-2\sqrt{\prod(\wp-e_k)}` with each root a theta quotient: a product,
    and so tighter than the difference that differentiating :math:`\wp` would give.
    """
    t, scale = tau(frame), acb.pi() / period1(frame)
    _, theta2, theta3, theta4 = acb.modular_theta(acb(0), t)
    at1, at2, at3, at4 = acb.modular_theta(argument.ratio(frame), t)
    first_root = (theta3**4 + theta4**4) / 3
    wp = scale**2 * (first_root + (theta3 * theta4 * at2 / at1) ** 2)
    wp_prime = -2 * scale**3 * (theta2 * theta3 * theta4) ** 2 * at2 * at3 * at4 / at1**3
    return wp, wp_prime


def zeta(argument: Argument, frame: ReducedFrame) -> tuple[Any]:
    r""":math:`\zeta(z)`; each period adds twice the value at its half.

    (FLINT's manual prints that increment without the factor 2; its code has it.)
    """
    t = tau(frame)
    value = argument.ratio(frame).elliptic_zeta(t)
    if argument.point.m:
        value += 2 * argument.point.m * acb(0.5).elliptic_zeta(t)
    if argument.point.n:
        value += 2 * argument.point.n * (t / 2).elliptic_zeta(t)
    return (value / period1(frame),)


def sigma(argument: Argument, frame: ReducedFrame) -> tuple[Any]:
    r""":math:`\sigma(z)`, and the exponential factor of the shift (DLMF 23.2(iii))."""
    t, u = tau(frame), argument.ratio(frame)
    m, n = argument.point.m, argument.point.n
    value = period1(frame) * u.elliptic_sigma(t)
    if m or n:
        growth = 2 * m * acb(0.5).elliptic_zeta(t) + 2 * n * (t / 2).elliptic_zeta(t)
        value *= (growth * (u + (m + n * t) / 2)).exp()
    return (-value if (m + n + m * n) % 2 else value,)


def green(argument: Argument, frame: ReducedFrame) -> tuple[Any]:
    r"""Green function :math:`-\log|a\theta_1(u)/\theta_1'(0)| + \pi({\rm Im}u)^2/{\rm Im}\tau`."""
    t, u = tau(frame), argument.ratio(frame)
    _, theta2, theta3, theta4 = acb.modular_theta(acb(0), t)
    theta1 = acb.modular_theta(u, t)[0]
    quotient_of_thetas = period1(frame) * theta1 / (acb.pi() * theta2 * theta3 * theta4)
    return (arb.pi() * u.imag**2 / t.imag - abs(quotient_of_thetas).log(),)


def wp_derivative(argument: Argument, frame: ReducedFrame, order: int) -> Any:
    r"""A derivative of order 2 or more, by :math:`\wp'' = 6\wp^2 - g_2/2` and its derivatives."""
    wp, wp_prime = wp_and_prime(argument, frame)
    found = [wp, wp_prime, 6 * wp**2 - invariants(frame)[0] / 2]
    for n in range(1, order - 1):
        found.append(6 * sum(comb(n, j) * found[j] * found[n - j] for j in range(n + 1)))
    return found[order]


def log_sigma(argument: Argument, frame: ReducedFrame) -> tuple[Any]:
    return (sigma(argument, frame)[0].log(),)


def _whole_argument(argument: Argument, frame: ReducedFrame) -> tuple[Any, Any]:
    """z/a, and a^2 G2* = pi^2 E2/3 - pi/Im tau, whose first term is 2 zeta(1/2)."""
    t = tau(frame)
    u = argument.ratio(frame) + argument.point.m + argument.point.n * t
    return u, 2 * acb(0.5).elliptic_zeta(t) - acb.pi() / t.imag


def modified_zeta(argument: Argument, frame: ReducedFrame) -> tuple[Any]:
    u, g2_star = _whole_argument(argument, frame)
    rest = g2_star * u + acb.pi() / tau(frame).imag * u.conjugate()
    return (zeta(argument, frame)[0] - rest / period1(frame),)


def modified_sigma(argument: Argument, frame: ReducedFrame) -> tuple[Any]:
    u, g2_star = _whole_argument(argument, frame)
    return ((-g2_star * u**2 / 2).exp() * sigma(argument, frame)[0],)


def invariants(frame: ReducedFrame) -> tuple[Any, Any]:
    """Invariants g2 and g3."""
    g2, g3 = tau(frame).elliptic_invariants()
    a = period1(frame)
    return g2 / a**4, g3 / a**6


def truncated_series(z: GaussianRational, error: Any, box: LatticeBox) -> tuple[Any, Any]:
    """The defining series of wp and its derivative over the points of a box."""
    wp, wp_prime = acb(0), acb(0)
    differences, denominator = box.differences(z)
    for difference, point in zip(differences, box.points, strict=True):
        inverse = 1 / (quotient(*difference, denominator) + error)
        wp += inverse**2
        wp_prime -= 2 * inverse**3
        if any(point):
            wp -= quotient(*point, box.denominator) ** -2
    return wp, wp_prime


def chord_sum(p1: Any, dp1: Any, p2: Any, dp2: Any, frame: ReducedFrame) -> tuple[Any, Any]:
    """Addition formula (DLMF 23.10.1) with the slope whose denominator is larger, to scale."""
    period = abs(period1(frame))
    difference = abs(p1 - p2) / (abs(p1) + abs(p2) + period**-2)
    total = abs(dp1 + dp2) / (abs(dp1) + abs(dp2) + period**-3)
    if difference.mid() >= total.mid():
        slope = (dp1 - dp2) / (p1 - p2)
    else:
        slope = (4 * (p1**2 + p1 * p2 + p2**2) - invariants(frame)[0]) / (dp1 + dp2)
    p3 = slope**2 / 4 - p1 - p2
    return p3, slope * (p1 - p3) - dp1


def inverse_wp(w: Any, frame: ReducedFrame) -> Any:
    r"""A solution of :math:`\wp(z) = w` by Carlson's integral (DLMF 19.25.35)."""
    t, a = tau(frame), period1(frame)
    differences = [w * a**2 - root for root in t.elliptic_roots()]
    return a * _canonical_branch(_rotated_rf(differences), t)


def _rotated_rf(differences: Sequence[Any]) -> Any:
    """R_F along a path that keeps clear of the roots, as in `backends.mpmath_inversion`."""
    directions = [complex(x.mid() / abs(x).mid()) for x in differences if abs(x).mid() != 0]

    def clearance(turn: tuple[int, int]) -> float:
        return min(((complex(*turn) / abs(complex(*turn)) * x).real for x in directions), default=1)

    turn = (1, 0)
    if clearance(turn) <= _CLEAR_OF_ROOTS:
        turn = max(_DIRECTIONS, key=clearance)
    factor = acb(*turn)
    x, y, z = (factor * difference for difference in differences)
    return factor.sqrt() * acb.elliptic_rf(x, y, z)


def _canonical_branch(u: Any, t: Any) -> Any:
    """The one of +-u modulo 1 and t that `AbstractBackend.inverse_wp` documents.

    Every choice made here is between solutions, so the result encloses one in any case.
    A ball across an edge counts as on the edge.
    """
    if not u.is_finite():
        return u
    u -= _nearest_integer(u.imag / t.imag) * t
    if u.imag < 0:
        u = -u
    candidates = [_centred(u)]
    if not u.imag > 0:
        candidates.append(_centred(-u))
    elif not u.imag < t.imag / 2:
        candidates.append(_centred(t - u))
    return max(candidates, key=lambda ratio: float(ratio.real.mid()))


def _nearest_integer(x: Any) -> Any:
    return (x.mid().fmpq() + fmpq(1, 2)).floor()


def _centred(u: Any) -> Any:
    u -= _nearest_integer(u.real)
    return u if u.real > -0.5 else u + 1  # -1/2 and 1/2 are one point: take 1/2
