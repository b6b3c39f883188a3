"""Certified values: Arb balls through python-flint.

Every result is an ``acb`` ball (``arb`` for `FlintBackend.green`) that provably contains the
value. ``x.mid()`` is its midpoint, ``x.rad()`` a bound for the distance from there;
`midpoints` and `radii` give both as Python numbers, for results of any shape.

``flint.ctx.prec`` is restored after every call, so that a result is printed to the caller's
precision; its own digits are shown inside ``with flint.ctx.workdps(...)``. All threads of a process
share ``flint.ctx``, so those that evaluate take turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from math import ceil, inf, log2, nextafter
from threading import RLock
from typing import Any, ClassVar

from flint import acb, arb, ctx, fmpq, fmpz

from backends import flint_balls as balls
from backends.elementwise import map_elements, map_pairs
from backends.exact_reduction import (
    LatticeBox,
    ReducedFrame,
    exact_half_periods,
    exact_number,
    is_infinite,
    reduced_frame,
)
from backends.flint_family import FlintFamily
from backends.flint_jacobi import FlintJacobiFunctions
from wefpe_core._exact import GaussianRational
from wefpe_core.backend import AbstractBackend, check_count, check_order, check_truncation
from wefpe_core.errors import InputError, PrecisionError
from wefpe_core.lattice import Lattice
from wefpe_core.modular import laurent_from_invariants

_GUARD_BITS = 40
# From some hundred bits to some hundred thousand.
_DOUBLINGS = 10

_COMPLEX_INFINITY = acb(arb.pos_inf(), arb.nan())
_NAN = acb(arb.nan(), arb.nan())
_PRECISION_LOCK = RLock()


@contextmanager
def working_precision(bits: int) -> Iterator[None]:
    """Within it ``flint.ctx`` has this precision, which no other thread changes or restores."""
    with _PRECISION_LOCK, ctx.workprec(bits):
        yield


class FlintBackend(FlintJacobiFunctions, FlintFamily, AbstractBackend[Any]):
    r"""Weierstrass functions as balls with at least `digits` certified decimal digits.

    Parameters
    ----------
    digits
        The radius is at most :math:`10^{-digits}` times :math:`|f| + |z_r f'| + p^{-k}`, with
        z_r the argument next to the origin, p the shortest period and k the degree of
        homogeneity. Precision is raised until that holds.

    Notes
    -----
    Arguments are numbers of any kind, taken as exact, in scalars, nested lists or arrays. They
    may be balls, and results are then as wide as these make them.

    At a lattice point wp, its derivative and zeta are an ``acb`` that is not finite, with real
    part ``inf`` and imaginary part NaN. NaN or infinite z gives NaN in both parts.
    """

    name: ClassVar[str] = "flint"

    def to_numpy(self, value: Any) -> Any:
        """The midpoints of the balls, rounded to complex128."""
        import numpy as np

        return np.vectorize(complex, otypes=[np.complex128])(np.asarray(value, dtype=object))

    def __init__(self, digits: int = 30) -> None:
        if isinstance(digits, bool) or not isinstance(digits, int) or digits < 1:
            raise InputError(f"digits must be a positive integer, got {digits!r}")
        self.digits = digits

    def __repr__(self) -> str:
        return f"FlintBackend(digits={self.digits})"

    def wp_and_prime(self, z: Any, lattice: Lattice) -> tuple[Any, Any]:
        r"""Both :math:`\wp(z)` and :math:`\wp'(z)`, the latter exactly 0 at half-periods."""
        frame = reduced_frame(lattice)

        def at(value: Any) -> Sequence[Any]:
            argument = _argument(value, frame)
            if argument is None:
                return _NAN, _NAN
            if argument.is_lattice_point:
                return _COMPLEX_INFINITY, _COMPLEX_INFINITY
            return self._wp_and_prime_at(argument, frame, value)

        return map_pairs(at, z)

    def _wp_and_prime_at(
        self, argument: balls.Argument, frame: ReducedFrame, where: Any
    ) -> Sequence[Any]:
        def scales(values: Sequence[Any]) -> list[Any]:
            wp, wp_prime = (abs(value) for value in values)
            period = abs(balls.period1(frame))
            size = abs(argument.ratio(frame)) * period
            # 6 wp^2 is the derivative of wp' up to a constant, which the period covers.
            return [
                wp + size * wp_prime + period**-2,
                wp_prime + size * 6 * wp**2 + period**-3,
            ]

        wp, wp_prime = self._certified(
            lambda: balls.wp_and_prime(argument, frame), scales, argument.is_exact, where
        )
        return wp, acb(0) if argument.is_half_period else wp_prime

    def zeta(self, z: Any, lattice: Lattice) -> Any:
        r""":math:`\zeta(z)`; not finite at a lattice point."""
        return self._map(balls.zeta, z, lattice, 1, (_COMPLEX_INFINITY, _NAN))

    def sigma(self, z: Any, lattice: Lattice) -> Any:
        r""":math:`\sigma(z)`, to `digits` digits of itself; exactly 0 at a lattice point."""
        return self._map(balls.sigma, z, lattice, None, (acb(0), _NAN))

    def green(self, z: Any, lattice: Lattice) -> Any:
        """Green function of the torus, an ``arb``; ``+inf`` at a lattice point."""
        return self._map(balls.green, z, lattice, 0, (arb.pos_inf(), arb.nan()))

    def wp_derivative(self, z: Any, lattice: Lattice, n: int) -> Any:
        r"""The n-th derivative of :math:`\wp`; not finite at a lattice point."""
        order = check_order(n)
        if order < 2:
            return self.wp_and_prime(z, lattice)[order]

        def derivative(argument: balls.Argument, frame: ReducedFrame) -> tuple[Any]:
            return (balls.wp_derivative(argument, frame, order),)

        return self._map(derivative, z, lattice, order + 2, (_COMPLEX_INFINITY, _NAN))

    def log_sigma(self, z: Any, lattice: Lattice) -> Any:
        r"""The logarithm of :math:`\sigma`; a ball that meets the cut contains both sides."""
        special = (acb(arb.neg_inf(), arb.nan()), _NAN)
        return self._map(balls.log_sigma, z, lattice, 0, special)

    def modified_zeta(self, z: Any, lattice: Lattice) -> Any:
        r""":math:`\zeta(z) - G_2^*z - \pi\bar z/A`; not finite at a lattice point."""
        return self._map(balls.modified_zeta, z, lattice, 1, (_COMPLEX_INFINITY, _NAN))

    def modified_sigma(self, z: Any, lattice: Lattice) -> Any:
        r""":math:`e^{-G_2^*z^2/2}\sigma(z)`; exactly 0 at a lattice point."""
        return self._map(balls.modified_sigma, z, lattice, None, (acb(0), _NAN))

    def laurent_coefficients(self, lattice: Lattice, count: int) -> list[Any]:
        r"""The first coefficients of :math:`\wp(z) - z^{-2}`, as balls."""
        frame, count = reduced_frame(lattice), check_count(count)

        def scales(values: Sequence[Any]) -> list[Any]:
            period = abs(balls.period1(frame))
            return [abs(value) + period ** (-2 * k) for k, value in enumerate(values, 2)]

        found = self._certified(
            lambda: laurent_from_invariants(*balls.invariants(frame), count), scales, True, lattice
        )
        return list(found)

    def _map(
        self,
        function: Callable[[balls.Argument, ReducedFrame], tuple[Any]],
        z: Any,
        lattice: Lattice,
        homogeneity: int | None,
        special: tuple[Any, Any],
    ) -> Any:
        """Apply a function of one value; `special` are its values at lattice points and NaN."""
        frame = reduced_frame(lattice)

        def at(value: Any) -> Any:
            argument = _argument(value, frame)
            if argument is None:
                return special[1]
            if argument.is_lattice_point:
                return special[0]
            return self._one_value(function, argument, frame, homogeneity, value)

        return map_elements(at, z)

    def _one_value(
        self,
        function: Callable[[balls.Argument, ReducedFrame], tuple[Any]],
        argument: balls.Argument,
        frame: ReducedFrame,
        homogeneity: int | None,
        where: Any,
    ) -> Any:
        def scales(values: Sequence[Any]) -> list[Any]:
            floor = 0 if homogeneity is None else abs(balls.period1(frame)) ** -homogeneity
            return [abs(values[0]) + floor]

        (value,) = self._certified(
            lambda: function(argument, frame), scales, argument.is_exact, where
        )
        return value

    def inverse_wp(self, w: Any, lattice: Lattice, wp_prime: Any = None) -> Any:
        r"""A ball around a solution z of :math:`\wp(z) = w`.

        The branch is that of `AbstractBackend.inverse_wp`; a ball that reaches across an edge
        of the region counts as on the edge, where the solution with the larger
        :math:`{\rm Re}(z/2w_1)` is taken. Whatever the branch, the ball contains a solution.
        """
        frame = reduced_frame(lattice)

        def at(value: Any) -> Any:
            exact, error = _centre_and_error(value)
            if exact is None:
                return acb(0) if _is_pole(value) else _NAN
            return self._certified(
                lambda: (balls.inverse_wp(balls.ball(exact) + error, frame),),
                lambda values: [abs(values[0])],
                error == 0,
                value,
            )[0]

        z = map_elements(at, w)
        if wp_prime is None:
            return z

        def towards(solution: Any, wanted: Any) -> Any:
            if solution == 0 or not solution.is_finite():
                return solution
            if not acb(wanted).is_finite():
                return _NAN
            slope = midpoints(self.wp_prime(solution, lattice))
            return -solution if (slope.conjugate() * complex(wanted)).real < 0 else solution

        return map_elements(towards, z, wp_prime)

    def invariants(self, lattice: Lattice) -> tuple[Any, Any]:
        """Invariants ``(g2, g3)``."""
        frame = reduced_frame(lattice)

        def scales(values: Sequence[Any]) -> list[Any]:
            period = abs(balls.period1(frame))
            return [abs(values[0]) + period**-4, abs(values[1]) + period**-6]

        g2, g3 = self._certified(lambda: balls.invariants(frame), scales, True, lattice)
        return g2, g3

    def roots(self, lattice: Lattice) -> tuple[Any, Any, Any]:
        r"""Roots :math:`e_k = \wp(\omega_k)` of the basis given, evaluated there."""
        frame = reduced_frame(lattice)
        e1, e2, e3 = (
            self._wp_and_prime_at(balls.Argument(frame.reduce(omega)), frame, lattice)[0]
            for omega in exact_half_periods(lattice)
        )
        return e1, e2, e3

    def quasi_periods(self, lattice: Lattice) -> tuple[Any, Any]:
        r""":math:`\eta_k = \zeta(\omega_k)` of the basis given, evaluated there."""
        frame = reduced_frame(lattice)
        eta1, eta3 = (
            self._one_value(balls.zeta, balls.Argument(frame.reduce(omega)), frame, 1, lattice)
            for omega in lattice.exact
        )
        return eta1, eta3

    def lattice_from_invariants(self, g2: Any, g3: Any) -> Lattice:
        """Lattice with these invariants, its half-periods rounded to double precision.

        A `Lattice` holds numbers, not balls; `Lattice.from_invariants` computes them. Balls
        are taken by their midpoints. For more digits use the mpmath backend.
        """
        return Lattice.from_invariants(
            *(midpoints(g) if isinstance(g, (acb, arb)) else g for g in (g2, g3))
        )

    def lattice_sum(self, z: Any, lattice: Lattice, m_max: int, n_max: int) -> tuple[Any, Any]:
        """Truncated defining series, term by term in the basis given."""
        m_max, n_max = check_truncation(m_max, n_max)
        frame = reduced_frame(lattice)
        box = LatticeBox(lattice, m_max, n_max)

        def scales(values: Sequence[Any]) -> list[Any]:
            period = abs(balls.period1(frame))
            return [abs(values[0]) + period**-2, abs(values[1]) + period**-3]

        def at(value: Any) -> Sequence[Any]:
            exact, error = _centre_and_error(value)
            if exact is None:
                return _NAN, _NAN
            if error == 0 and (0, 0) in box.differences(exact)[0]:
                return _COMPLEX_INFINITY, _COMPLEX_INFINITY
            return self._certified(
                lambda: balls.truncated_series(exact, error, box), scales, error == 0, value
            )

        return map_pairs(at, z)

    def add(self, p1: Any, dp1: Any, p2: Any, dp2: Any, lattice: Lattice) -> tuple[Any, Any]:
        """``(wp, wp')`` at z1+z2 from balls around the values at z1 and z2.

        Where the balls do not exclude that z1+z2 is a lattice point, the result is not finite.
        """
        frame = reduced_frame(lattice)

        def at(*values: Any) -> Sequence[Any]:
            parts = [_centre_and_error(value) for value in values]
            for one, other in ((0, 2), (2, 0)):
                if parts[one][0] is None and _is_pole(values[one]):
                    return [self._as_result(value) for value in values[other : other + 2]]
            exact = [(centre, error) for centre, error in parts if centre is not None]
            if len(exact) < len(parts):
                return _NAN, _NAN
            with working_precision(self._bits + _GUARD_BITS):
                a, da, b, db = (balls.ball(centre) + error for centre, error in exact)
                return balls.chord_sum(a, da, b, db, frame)

        return map_pairs(at, p1, dp1, p2, dp2)

    @property
    def _bits(self) -> int:
        return ceil(self.digits * log2(10))

    def _parts(self, value: Any) -> tuple[GaussianRational | None, Any]:
        return _centre_and_error(value)

    def _certified(
        self,
        evaluate: Callable[[], Sequence[Any]],
        scales: Callable[[Sequence[Any]], Sequence[Any]],
        is_exact: bool,
        where: Any,
    ) -> Sequence[Any]:
        """Raise the precision until radii are small; inexact arguments are evaluated once."""
        bits = self._bits + _GUARD_BITS
        values: Sequence[Any] = ()
        for _ in range(_DOUBLINGS):
            with working_precision(bits):
                values = evaluate()
                part = arb(10) ** -self.digits
                if not is_exact or all(
                    value.rad() <= part * scale
                    for value, scale in zip(values, scales(values), strict=True)
                ):
                    return values
            bits *= 2
        raise PrecisionError(
            f"no {self.digits} digits certified at {where!r} with {bits // 2} bits: {values!r}"
        )

    def _as_result(self, value: Any) -> Any:
        exact, error = _centre_and_error(value)
        if exact is None:
            return _COMPLEX_INFINITY if _is_pole(value) else _NAN
        with working_precision(self._bits + _GUARD_BITS):
            return balls.ball(exact) + error


def midpoints(values: Any) -> Any:
    """Midpoints of balls as complex numbers, in the shape of `values`."""
    return map_elements(lambda value: complex(acb(value).mid()), values)


def radii(values: Any) -> Any:
    """Radii of balls as floats, rounded up, in the shape of `values`."""
    return map_elements(_radius, values)


def _radius(value: Any) -> float:
    radius = float(value.rad()) if value.is_finite() else inf
    return nextafter(radius, inf) if radius else 0.0


def _centre_and_error(value: Any) -> tuple[GaussianRational | None, Any]:
    """The exact midpoint of a number or ball (None if not finite), and a ball about 0."""
    if isinstance(value, (fmpz, fmpq)):
        rational = fmpq(value)
        return GaussianRational(Fraction(int(rational.p), int(rational.q)), Fraction(0)), acb(0)
    if not isinstance(value, (acb, arb)):
        return exact_number(value), acb(0)
    value = acb(value)
    if not value.is_finite():
        return None, acb(0)
    parts = (part.mid().fmpq() for part in (value.real, value.imag))
    centre = GaussianRational(*(Fraction(int(part.p), int(part.q)) for part in parts))
    return centre, acb(arb(0, value.real.rad()), arb(0, value.imag.rad()))


def _argument(value: Any, frame: ReducedFrame) -> balls.Argument | None:
    centre, error = _centre_and_error(value)
    return None if centre is None else balls.Argument(frame.reduce(centre), error)


def _is_pole(value: Any) -> bool:
    """Whether a value that is not finite stands for complex infinity."""
    if isinstance(value, (acb, arb)):
        return bool(value.real == arb.pos_inf())
    return is_infinite(value)
