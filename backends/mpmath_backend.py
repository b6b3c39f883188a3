"""The ground truth: row sums in mpmath, at any precision, each value computed twice.

Every value is evaluated with `dps` and again with ``2*dps`` digits (and guard digits), on
arguments reduced in exact arithmetic. If the two differ by more than `dps` digits allow,
`PrecisionError` is raised; otherwise the better one is returned, rounded to `dps` digits.

The backend has contexts of its own: ``mpmath.mp.dps`` is neither read nor changed. The numbers
returned belong to ``mpmath.mp``, carry their digits with them and print them, but arithmetic on
them rounds to the precision of ``mpmath.mp``, which is the caller's to set.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Rational
from typing import Any, ClassVar

import mpmath

from backends.elementwise import map_elements, map_pairs
from backends.exact_reduction import (
    LatticeBox,
    ReducedFrame,
    ReducedPoint,
    exact_half_periods,
    exact_number,
    is_infinite,
    reduced_frame,
)
from backends.mpmath_algebra import Chord, TruncatedSeries
from backends.mpmath_derived import (
    derivative_polynomial,
    eisenstein_coefficients,
    log_sigma_rows,
    modified_sigma_rows,
    modified_zeta_rows,
)
from backends.mpmath_family import MpmathFamily
from backends.mpmath_heat import MpmathHeat
from backends.mpmath_inversion import half_periods_from_invariants, inverse_wp_at
from backends.mpmath_jacobi import MpmathJacobiFunctions
from backends.mpmath_precision import TwoPrecisions, context, magnitude, on_lines
from backends.mpmath_rows import (
    RowTable,
    green_rows,
    invariants_series,
    rounded_to,
    row_table,
    sigma_rows,
    wp_and_prime_rows,
    zeta_rows,
)
from wefpe_core.backend import (
    AbstractBackend,
    check_count,
    check_order,
    check_real_lattice,
    check_truncation,
)
from wefpe_core.degenerate_lattice import DegenerateLattice
from wefpe_core.errors import LatticeError
from wefpe_core.lattice import Lattice
from wefpe_core.lattice_constants import discriminant_ratio

_COMPLEX_INFINITY = mpmath.mp.mpc(mpmath.mp.inf, mpmath.mp.nan)
_NAN = mpmath.mp.mpc(mpmath.mp.nan, mpmath.mp.nan)
_ZERO = mpmath.mp.mpc(0)
_NOISE_BITS = 6
_BITS_TO_SPARE = 8  # as many guard bits serve points in and around the cell


class MpmathBackend(MpmathHeat, MpmathJacobiFunctions, MpmathFamily, AbstractBackend[Any]):
    """Weierstrass functions to `dps` decimal digits, as mpmath numbers.

    Parameters
    ----------
    dps
        Decimal digits of every result.

    Notes
    -----
    Arguments are Python, NumPy or mpmath numbers, taken as exact; nested lists of them, which
    give nested lists; or arrays, which give object arrays of the same shape.

    The two evaluations must agree to `dps` digits of a scale that does not vanish with the
    value: :math:`|f| + |z_r f'| + p^{-k}`, where z_r is the argument next to the origin, p
    the shortest period, and k the degree of homogeneity.
    """

    name: ClassVar[str] = "mpmath"

    def to_numpy(self, value: Any) -> Any:
        """The values rounded to complex128."""
        import numpy as np

        return np.asarray(value, dtype=object).astype(np.complex128)

    def __init__(self, dps: int = 50) -> None:
        self._precisions = TwoPrecisions(dps)

    @property
    def dps(self) -> int:
        """Decimal digits of every result."""
        return self._precisions.dps

    def __repr__(self) -> str:
        return f"MpmathBackend(dps={self.dps})"

    def wp_and_prime(self, z: Any, lattice: Lattice) -> tuple[Any, Any]:
        r"""Both :math:`\wp(z)` and :math:`\wp'(z)`, the latter exactly 0 at half-periods."""
        if isinstance(lattice, DegenerateLattice):
            return map_pairs(lambda value: self._degenerate(value, lattice)[:2], z)
        frame = reduced_frame(lattice)

        def at(value: Any) -> tuple[Any, Any]:
            exact = exact_number(value)
            if exact is None:
                return _NAN, _NAN
            point = frame.reduce(exact)
            if point.is_lattice_point:
                return _COMPLEX_INFINITY, _COMPLEX_INFINITY
            wp, wp_prime = self._wp_and_prime_at(point, frame, value)
            lines = frame.lines_through(exact)
            slope = _ZERO if point.is_half_period else on_lines(wp_prime, -1, lines)
            return on_lines(wp, 1, lines), slope

        return map_pairs(at, z)

    def _wp_and_prime_at(
        self, point: ReducedPoint, frame: ReducedFrame, where: Any
    ) -> tuple[Any, ...]:
        if frame.is_zero_of_wp(point):
            return _ZERO, _ZERO
        period = frame.period_magnitude
        size = point.magnitude + period

        def scales(values: Sequence[Any]) -> list[int]:
            wp, wp_prime = (magnitude(value) for value in values)
            # The derivative of wp' is 6 wp^2 up to a constant, which the period covers.
            return [
                max(wp, size + wp_prime, -2 * period),
                max(wp_prime, size + 2 * wp + 2, -3 * period),
            ]

        return self._precisions.agreed(
            lambda bits: wp_and_prime_rows(row_table(frame, bits), point), scales, where
        )

    def zeta(self, z: Any, lattice: Lattice) -> Any:
        r""":math:`\zeta(z)`; complex infinity at a lattice point."""
        if isinstance(lattice, DegenerateLattice):
            return map_elements(lambda value: self._degenerate(value, lattice)[2], z)
        return self._map(z, lattice, zeta_rows, 1, 1, (_COMPLEX_INFINITY, _NAN))

    def sigma(self, z: Any, lattice: Lattice) -> Any:
        r""":math:`\sigma(z)`; exactly 0 at a lattice point, and nowhere else."""
        if isinstance(lattice, DegenerateLattice):
            return map_elements(lambda value: self._degenerate(value, lattice)[3], z)
        return self._map(z, lattice, sigma_rows, 2, None, (_ZERO, _NAN))

    def green(self, z: Any, lattice: Lattice) -> Any:
        """Green function of the torus, an ``mpf``; ``+inf`` at a lattice point."""
        return self._map(z, lattice, green_rows, 0, 0, (mpmath.mp.inf, mpmath.mp.nan))

    def wp_derivative(self, z: Any, lattice: Lattice, n: int) -> Any:
        r"""The n-th derivative of :math:`\wp`, a polynomial in :math:`\wp` and :math:`\wp'`."""
        order, frame = check_order(n), reduced_frame(lattice)
        period = frame.period_magnitude

        def at(value: Any) -> Any:
            exact = exact_number(value)
            if exact is None:
                return _NAN
            point = frame.reduce(exact)
            if point.is_lattice_point:
                return _COMPLEX_INFINITY
            if point.is_half_period and order % 2:
                return _ZERO
            # In units of the period the terms of the polynomial cancel on tall lattices.
            height = (frame.tau[1] // frame.norm).bit_length()
            found = self._precisions.agreed(
                lambda bits: derivative_polynomial(row_table(frame, bits), point, order),
                lambda found: [max(magnitude(found[0]), -(order + 2) * period)],
                value,
                extra_bits=8 * order + 10 * (1 << height),
            )[0]
            return on_lines(found, (-1) ** order, frame.lines_through(exact))

        return map_elements(at, z)

    def log_sigma(self, z: Any, lattice: Lattice) -> Any:
        r"""The principal logarithm of :math:`\sigma`; ``-inf+nanj`` at a lattice point."""
        special = (mpmath.mp.mpc(-mpmath.mp.inf, mpmath.mp.nan), _NAN)
        return self._map(z, lattice, log_sigma_rows, 2, 0, special)

    def modified_zeta(self, z: Any, lattice: Lattice) -> Any:
        r""":math:`\zeta(z) - G_2^*z - \pi\bar z/A`, term by term; infinity at a lattice point."""
        special = (_COMPLEX_INFINITY, _NAN, _ZERO)
        return self._map(z, lattice, modified_zeta_rows, 1, 1, special)

    def modified_sigma(self, z: Any, lattice: Lattice) -> Any:
        r""":math:`e^{-G_2^*z^2/2}\sigma(z)`, factor by factor; exactly 0 at a lattice point."""
        return self._map(z, lattice, modified_sigma_rows, 2, None, (_ZERO, _NAN))

    def laurent_coefficients(self, lattice: Lattice, count: int) -> list[Any]:
        r"""The first coefficients of :math:`\wp(z) - z^{-2}`, from the Eisenstein series."""
        frame, count = reduced_frame(lattice), check_count(count)
        period = frame.period_magnitude
        found = self._precisions.agreed(
            lambda bits: eisenstein_coefficients(row_table(frame, bits), count),
            lambda values: [
                max(magnitude(value), -2 * k * period) for k, value in enumerate(values, 2)
            ],
            lattice,
        )
        return list(found)

    def _map(
        self,
        z: Any,
        lattice: Lattice,
        rows: Callable[[RowTable, ReducedPoint], tuple[Any]],
        growth: int,
        homogeneity: int | None,
        special: tuple[Any, ...],
    ) -> Any:
        """Evaluate a function of one value.

        `growth` is the power of the number of periods from 0 that its terms reach;
        `homogeneity` the k of the scale's last term, or None if the function has no zeros
        where its terms cancel; `special` its values at lattice points, at NaN, and at
        half-periods if it has one there.
        """
        frame = reduced_frame(lattice)

        def at(value: Any) -> Any:
            exact = exact_number(value)
            if exact is None:
                return special[1]
            point = frame.reduce(exact)
            if point.is_lattice_point:
                return special[0]
            if point.is_half_period and len(special) > 2:
                return special[2]
            found = self._one_value(rows, point, frame, growth, homogeneity, value)
            if not frame.is_real or rows is log_sigma_rows:
                return found
            # Of these odd functions only one is periodic; the others know the axes alone.
            is_periodic = rows is modified_zeta_rows
            lines = frame.lines_through(exact) if is_periodic else (not exact.re, not exact.im)
            return on_lines(found, -1, lines)

        return map_elements(at, z)

    def _one_value(
        self,
        rows: Callable[[RowTable, ReducedPoint], tuple[Any]],
        point: ReducedPoint,
        frame: ReducedFrame,
        growth: int,
        homogeneity: int | None,
        where: Any,
    ) -> Any:
        def scales(values: Sequence[Any]) -> list[int]:
            size = magnitude(values[0])
            return [
                size if homogeneity is None else max(size, -homogeneity * frame.period_magnitude)
            ]

        # What is added for the shift, and the height of a thin cell, cost leading digits.
        height = (frame.tau[1] // frame.norm).bit_length()
        shift = max(point.m.bit_length(), point.n.bit_length() + height, height)
        return self._precisions.agreed(
            lambda bits: rows(row_table(frame, bits), point),
            scales,
            where,
            extra_bits=max(0, growth * shift - _BITS_TO_SPARE),
        )[0]

    def inverse_wp(self, w: Any, lattice: Lattice, wp_prime: Any = None) -> Any:
        r"""A solution z of :math:`\wp(z) = w`, verified by evaluating :math:`\wp` there.

        On the edges of the region that `AbstractBackend.inverse_wp` names (:math:`r = 0` and
        :math:`r = 1/2`), where two solutions lie in it, the one with the larger
        :math:`{\rm Re}(z/2w_1)` is returned. A root as `roots` rounds it gives the half-period
        itself, not the nearby solution for the rounded number.
        """
        frame = reduced_frame(lattice)

        def at(value: Any) -> Any:
            exact = exact_number(value)
            if exact is None:
                return _ZERO if is_infinite(value) else _NAN
            return inverse_wp_at(exact, frame, self._precisions, value)

        z = map_elements(at, w)
        if wp_prime is None:
            return z

        def towards(solution: Any, wanted: Any) -> Any:
            if solution == 0 or solution != solution:
                return solution
            if exact_number(wanted) is None:
                return _NAN
            slope = complex(self.wp_prime(solution, lattice))
            product = slope.conjugate() * complex(wanted)
            return -solution if product.real < 0 else solution

        return map_elements(towards, z, wp_prime)

    def inverse_wp_real(self, w: Any, lattice: Lattice) -> Any:
        """The smallest positive real solution, by mpmath's R_F of more precise roots."""
        check_real_lattice(lattice)
        roots = MpmathBackend(2 * self.dps + 10).roots(lattice)

        def at(value: Any) -> Any:
            exact = exact_number(value)
            if exact is None:
                return _ZERO if is_infinite(value) and value.real > 0 else _NAN

            def solution(bits: int) -> list[Any]:
                ctx = context(bits)
                number = rounded_to(ctx, exact)
                return [ctx.mpc(ctx.re(ctx.elliprf(*(number - ctx.convert(e) for e in roots))))]

            tiny = mpmath.ldexp(1, -self._precisions.bits)
            real = [e.real for e in roots if abs(e.imag) <= tiny * abs(e)]
            if exact.im or rounded_to(context(self._precisions.bits), exact).real < max(real) * (
                1 - tiny * mpmath.sign(max(real))
            ):
                return _NAN
            return self._precisions.agreed(
                solution, lambda found: [magnitude(found[0])], value, extra_bits=64
            )[0]

        return map_elements(at, w)

    def _degenerate(self, value: Any, lattice: DegenerateLattice) -> tuple[Any, ...]:
        """wp, wp', zeta and sigma of the limit, by the formulas of `DegenerateLattice`."""
        exact = exact_number(value)
        if exact is None:
            return (_NAN,) * 4
        if not any(exact):
            return (_COMPLEX_INFINITY,) * 3 + (_ZERO,)

        def functions(bits: int) -> tuple[Any, ...]:
            ctx = context(bits)
            z, squared = rounded_to(ctx, exact), ctx.mpc(lattice.kappa_squared)
            if not squared:
                return z**-2, -2 * z**-3, 1 / z, z
            kappa = ctx.sqrt(squared)
            sine, cosine = ctx.sin(kappa * z), ctx.cos(kappa * z)
            return tuple(
                ctx.mpc(number)
                for number in (
                    squared / sine**2 - squared / 3,
                    -2 * kappa**3 * cosine / sine**3,
                    kappa * cosine / sine + squared * z / 3,
                    ctx.exp(squared * z * z / 6) * sine / kappa,
                )
            )

        def scales(values: Sequence[Any]) -> list[int]:
            size = magnitude(mpmath.mp.mpc(lattice.kappa))
            floors = (2 * size, 3 * size, size, -(1 << 40))
            return [max(magnitude(v), floor) for v, floor in zip(values, floors, strict=True)]

        # Far from 0 the argument of the sine has digits before the point.
        extra = 2 * max(0, magnitude(rounded_to(context(53), exact))) + 64
        return self._precisions.agreed(functions, scales, value, extra_bits=extra)

    def invariants(self, lattice: Lattice) -> tuple[Any, Any]:
        """Invariants ``(g2, g3)`` from the Eisenstein series."""
        if isinstance(lattice, DegenerateLattice):
            ctx = context(self._precisions.working_bits[0])
            k = ctx.mpc(lattice.kappa_squared)
            g2, g3 = (self._precisions.rounded(g) for g in (4 * k**2 / 3, 8 * k**3 / 27))
            return g2, g3
        frame = reduced_frame(lattice)
        period = frame.period_magnitude
        g2, g3 = self._precisions.agreed(
            lambda bits: invariants_series(row_table(frame, bits)),
            lambda g: [max(magnitude(g[0]), -4 * period), max(magnitude(g[1]), -6 * period)],
            lattice,
        )
        real = (False, frame.is_real)
        return on_lines(g2, 1, real), _ZERO if frame.is_square else on_lines(g3, 1, real)

    def roots(self, lattice: Lattice) -> tuple[Any, Any, Any]:
        r"""Roots :math:`e_k = \wp(\omega_k)` of the basis given, evaluated there."""
        if isinstance(lattice, DegenerateLattice):
            ctx = context(self._precisions.working_bits[0])
            k = ctx.mpc(lattice.kappa_squared)
            e1, e2, e3 = (self._precisions.rounded(e) for e in (2 * k / 3, -k / 3, -k / 3))
            return e1, e2, e3
        frame = reduced_frame(lattice)
        e1, e2, e3 = (
            on_lines(
                self._wp_and_prime_at(frame.reduce(omega), frame, lattice)[0],
                1,
                frame.lines_through(omega),
            )
            for omega in exact_half_periods(lattice)
        )
        return e1, e2, e3

    def quasi_periods(self, lattice: Lattice) -> tuple[Any, Any]:
        r""":math:`\eta_k = \zeta(\omega_k)` of the basis given, evaluated there."""
        frame = reduced_frame(lattice)
        eta1, eta3 = (
            on_lines(
                self._one_value(zeta_rows, frame.reduce(omega), frame, 1, 1, lattice),
                -1,
                (frame.is_real and not omega.re, frame.is_real and not omega.im),
            )
            for omega in lattice.exact
        )
        return eta1, eta3

    def lattice_from_invariants(self, g2: Any, g3: Any) -> Lattice:
        """Lattice with these invariants, its half-periods mpmath numbers of `dps` digits.

        The basis is that of `Lattice.from_invariants`.

        Raises
        ------
        LatticeError
            If g2 or g3 is not finite, or the discriminant is zero: of integers and fractions
            exactly, of other numbers to `dps` digits of ``|g2|**3 + 27*|g3|**2``.
        """
        exact_g2, exact_g3 = exact_number(g2), exact_number(g3)
        if exact_g2 is None or exact_g3 is None:
            raise LatticeError(f"invariants must be finite, got g2={g2!r}, g3={g3!r}")
        precisions = self._precisions
        ratio = discriminant_ratio(exact_g2, exact_g3)
        lost_bits = max(0, ratio.denominator.bit_length() - ratio.numerator.bit_length())
        # Invariants rounded to dps digits move a zero discriminant by some units in the last place.
        noise_bits = min(_NOISE_BITS, precisions.bits // 4)
        are_exact = all(isinstance(g, Rational) for g in (g2, g3))
        if not ratio or (not are_exact and lost_bits >= precisions.bits - noise_bits):
            raise LatticeError(
                f"the discriminant g2**3 - 27*g3**2 is zero for g2={g2!r}, g3={g3!r}: "
                "the invariants of no lattice"
            )

        def half_periods(bits: int) -> list[Any]:
            ctx = context(bits)
            invariants = (rounded_to(ctx, exact_g2), rounded_to(ctx, exact_g3))
            is_positive = exact_g2.re**3 > 27 * exact_g3.re**2  # of real invariants
            basis = half_periods_from_invariants(ctx, *invariants, is_positive, precisions.bits)
            return [rounded_to(ctx, omega) for omega in basis]

        # Roots that nearly coincide differ by the square root of the discriminant.
        omega1, omega3 = precisions.agreed(
            half_periods, lambda pair: [magnitude(w) for w in pair], (g2, g3), extra_bits=lost_bits
        )
        return Lattice(omega1, omega3)

    def lattice_sum(self, z: Any, lattice: Lattice, m_max: int, n_max: int) -> tuple[Any, Any]:
        """Truncated defining series, term by term in the basis given."""
        m_max, n_max = check_truncation(m_max, n_max)
        period = reduced_frame(lattice).period_magnitude
        series = TruncatedSeries(LatticeBox(lattice, m_max, n_max))

        def at(value: Any) -> tuple[Any, ...]:
            exact = exact_number(value)
            if exact is None:
                return _NAN, _NAN
            if (0, 0) in series.box.differences(exact)[0]:
                return _COMPLEX_INFINITY, _COMPLEX_INFINITY
            return self._precisions.agreed(
                lambda bits: series(exact, bits),
                lambda s: [max(magnitude(s[0]), -2 * period), max(magnitude(s[1]), -3 * period)],
                value,
            )

        return map_pairs(at, z)

    def add(self, p1: Any, dp1: Any, p2: Any, dp2: Any, lattice: Lattice) -> tuple[Any, Any]:
        r"""``(wp, wp')`` at z1+z2 from the values at z1 and z2, taken as exact.

        The slope of the chord is the quotient of the differences or, where these are the
        smaller, the equal quotient whose denominator is :math:`\wp'_1 + \wp'_2`.
        """
        frame = reduced_frame(lattice)

        def at(*values: Any) -> tuple[Any, ...]:
            exact = [exact_number(value) for value in values]
            for one, other in ((0, 2), (2, 0)):
                if exact[one] is None and is_infinite(values[one]):
                    return self._as_result(values[other]), self._as_result(values[other + 1])
            numbers = [number for number in exact if number is not None]
            if len(numbers) < len(exact):
                return _NAN, _NAN
            return self._add_at(Chord.through(*numbers), frame, values)

        return map_pairs(at, p1, dp1, p2, dp2)

    def _add_at(self, chord: Chord, frame: ReducedFrame, where: Any) -> tuple[Any, ...]:
        if chord.is_vertical:
            return _COMPLEX_INFINITY, _COMPLEX_INFINITY
        # Decided once: values rounded to dps digits give the two slopes different last digits.
        by_differences = chord.prefers_differences(frame.period_magnitude)
        return self._precisions.agreed(
            lambda bits: chord.third_point(row_table(frame, bits), by_differences),
            lambda point: [magnitude(size) for size in (point[2], point[3], point[2], point[3])],
            where,
        )[:2]

    def _as_result(self, value: Any) -> Any:
        exact = exact_number(value)
        if exact is None:
            return _COMPLEX_INFINITY if is_infinite(value) else _NAN
        return self._precisions.rounded(rounded_to(context(self._precisions.bits), exact))
