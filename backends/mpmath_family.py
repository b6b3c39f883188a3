"""Elliptic integrals and modular functions in mpmath, each value at two precisions.

The integrals are mpmath's own, except R_J with an argument left of the imaginary axis, where it
subdivides intervals, for a minute at worst. Modular functions are quotients of mpmath's theta
constants at a tau that is reduced in exact arithmetic; the Eisenstein series of higher weight
follow from E4 and E6 by the recursion of the Laurent coefficients of wp. The array backends use
none of these.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import mpmath

from backends.elementwise import map_elements
from backends.exact_modular import (
    Step,
    eisenstein_of_reduced,
    exact_tau,
    ratio_of,
    reduction_steps,
)
from backends.exact_reduction import exact_number
from backends.mpmath_precision import TwoPrecisions, context, magnitude
from backends.mpmath_rows import rounded_to
from wefpe_core._exact import GaussianRational
from wefpe_core.backend import check_lattice
from wefpe_core.elliptic_integrals import EllipticIntegrals
from wefpe_core.lattice import Lattice
from wefpe_core.modular_forms import twice_zeta
from wefpe_core.modular_functions import ModularFunctions, check_weight

_NAN = mpmath.mp.mpc(mpmath.mp.nan, mpmath.mp.nan)
_COMPLEX_INFINITY = mpmath.mp.mpc(mpmath.mp.inf, mpmath.mp.nan)
# What the functions of mpmath may lose between their terms.
_LOST_BITS = 64


def _theta_powers(ctx: Any, tau: Any) -> tuple[Any, Any, Any]:
    """theta2^4, theta3^4 and theta4^4 of a reduced tau."""
    nome = ctx.expjpi(tau)
    t2, t3, t4 = (ctx.mpc(ctx.jtheta(k, 0, nome)) ** 4 for k in (2, 3, 4))
    return t2, t3, t4


def _tau_factor(ctx: Any, steps: Sequence[Step]) -> Any:
    """c tau + d, the product of the numbers that were inverted."""
    factor = ctx.mpc(1)
    for step in steps[:-1]:
        factor *= rounded_to(ctx, step.tau)
    return factor


def _elliprj(ctx: Any, *arguments: Any) -> Any:
    """R_J(x, y, z, p), by the trapezoidal rule along a ray where mpmath would subdivide intervals.

    The ray lies in the middle between the singular points around the positive axis, and with
    t = exp(u) the rule converges exponentially in the angle to them.
    """
    numbers = [ctx.convert(number) for number in arguments]
    others = [x for x in numbers if x]
    is_ordinary = len(others) >= 3 and numbers[3] and all(map(ctx.isfinite, others))
    if min(ctx.re(number) for number in numbers) >= 0 or not is_ordinary:
        return mpmath.MPContext.elliprj(ctx, *arguments)
    angles = [ctx.arg(-x) for x in others]
    above = min((a for a in angles if a > 0), default=ctx.pi)
    below = max((a for a in angles if a <= 0), default=-ctx.pi)  # on a cut mpmath passes above too
    digits = ctx.prec * ctx.ln2 + 8
    step = ctx.pi * (above - below) / digits
    sizes = [ctx.log(abs(x)) for x in others]
    start = min(sizes) - digits * (1 if len(others) == 4 else 2)
    end = max(sizes) + 2 * digits / 3
    t, factor = ctx.exp(start + ctx.j * (above + below) / 2), ctx.exp(step)
    x, y, z, p = numbers
    total = ctx.zero
    for _ in range(int((end - start) / step) + 1):
        total += t / (ctx.sqrt(t + x) * ctx.sqrt(t + y) * ctx.sqrt(t + z) * (t + p))
        t *= factor
    return 1.5 * step * total


class MpmathFamily(ModularFunctions[Any], EllipticIntegrals[Any]):
    """What `MpmathBackend` inherits."""

    _precisions: TwoPrecisions

    @abstractmethod
    def lattice_from_invariants(self, g2: Any, g3: Any) -> Lattice: ...

    def ellipk(self, m: Any) -> Any:
        return self._integral(lambda ctx, k: ctx.ellipk(k), m)

    def ellipe(self, m: Any) -> Any:
        return self._integral(lambda ctx, k: ctx.ellipe(k), m)

    def ellipkinc(self, phi: Any, m: Any) -> Any:
        return self._integral(lambda ctx, angle, k: ctx.ellipf(angle, k), phi, m)

    def ellipeinc(self, phi: Any, m: Any) -> Any:
        return self._integral(lambda ctx, angle, k: ctx.ellipe(angle, k), phi, m)

    def ellippi(self, n: Any, m: Any) -> Any:
        return self._integral(lambda ctx, c, k: ctx.ellippi(c, k), n, m)

    def ellippiinc(self, n: Any, phi: Any, m: Any) -> Any:
        return self._integral(lambda ctx, c, angle, k: ctx.ellippi(c, angle, k), n, phi, m)

    def elliprf(self, x: Any, y: Any, z: Any) -> Any:
        return self._integral(lambda ctx, *numbers: ctx.elliprf(*numbers), x, y, z)

    def elliprd(self, x: Any, y: Any, z: Any) -> Any:
        return self._integral(lambda ctx, *numbers: ctx.elliprd(*numbers), x, y, z)

    def elliprc(self, x: Any, y: Any) -> Any:
        return self._integral(lambda ctx, *numbers: ctx.elliprc(*numbers), x, y)

    def elliprj(self, x: Any, y: Any, z: Any, p: Any) -> Any:
        def integral(ctx: Any, a: Any, b: Any, c: Any, q: Any) -> Any:
            value = ctx.elliprj(a, b, c, q)
            # mpmath gives the value from above; its real part is the principal value.
            reals = all(number.imag == 0 for number in (a, b, c, q))
            if reals and q.real < 0 and min(number.real for number in (a, b, c)) >= 0:
                return ctx.re(value)
            return value

        return self._integral(integral, x, y, z, p)

    def _integral(self, function: Callable[..., Any], *arguments: Any) -> Any:
        def at(*values: Any) -> Any:
            given = [exact_number(value) for value in values]
            exact = [number for number in given if number is not None]
            if len(exact) < len(given):
                return _NAN

            def evaluate(bits: int) -> list[Any]:
                ctx = context(bits)
                ctx.elliprj = partial(_elliprj, ctx)  # mpmath's ellippi calls it
                numbers = [rounded_to(ctx, number) for number in exact]
                # Real numbers as such: mpmath has better ways for them.
                plain = [x.real if x.imag == 0 else x for x in numbers]
                try:
                    return [ctx.mpc(function(ctx, *plain))]
                except (ZeroDivisionError, ValueError):  # mpmath's word for a pole
                    return [ctx.mpc(ctx.inf)]

            probe = evaluate(self._precisions.bits)[0]
            if not mpmath.mp.isfinite(probe):
                return _COMPLEX_INFINITY
            return self._precisions.agreed(
                evaluate, lambda v: [magnitude(v[0])], values, extra_bits=_LOST_BITS
            )[0]

        return map_elements(at, *arguments)

    def klein_j(self, tau: Any) -> Any:
        def value(ctx: Any, steps: Sequence[Step]) -> tuple[Any, Any]:
            t2, t3, t4 = _theta_powers(ctx, rounded_to(ctx, steps[-1].tau))
            return 32 * (t2 * t2 + t3 * t3 + t4 * t4) ** 3 / (t2 * t3 * t4) ** 2, ctx.one

        return self._modular(value, tau)

    def dedekind_eta(self, tau: Any) -> Any:
        def value(ctx: Any, steps: Sequence[Step]) -> tuple[Any, Any]:
            t2, t3, t4 = _theta_powers(ctx, rounded_to(ctx, steps[-1].tau))
            nome = ctx.expjpi(rounded_to(ctx, steps[-1].tau) / 12)
            # 2 eta^3 = theta2 theta3 theta4; the root next to the leading term exp(i pi tau/12).
            eighth = ctx.cbrt(t2 * t3 * t4 / 16 / nome**12) ** ctx.mpf(0.25) * nome
            for step, before in zip(steps[::-1], [*steps[-2::-1], None], strict=True):
                eighth *= ctx.expjpi(ctx.mpf(step.shift) / 12)
                if before is not None:
                    t = rounded_to(ctx, before.tau)
                    eighth /= ctx.sqrt(ctx.mpc(t.imag, -t.real))
            return eighth, ctx.zero

        return self._modular(value, tau)

    def modular_lambda(self, tau: Any) -> Any:
        def value(ctx: Any, steps: Sequence[Step]) -> tuple[Any, Any]:
            t2, t3, t4 = _theta_powers(ctx, rounded_to(ctx, steps[-1].tau))
            for index, step in enumerate(steps[::-1]):
                if index:  # the inversion exchanges theta2 and theta4, up to a common factor
                    t2, t4 = t4, t2
                if step.shift % 2:
                    t2, t3, t4 = -t2, t4, t3
            return t2 / t3, ctx.zero

        return self._modular(value, tau)

    def eisenstein(self, k: int, tau: Any) -> Any:
        weight = check_weight(k)

        def value(ctx: Any, steps: Sequence[Step]) -> tuple[Any, Any]:
            reduced = rounded_to(ctx, steps[-1].tau)
            factor = _tau_factor(ctx, steps)
            if weight > 2:
                form = eisenstein_of_reduced(_theta_powers(ctx, reduced), weight)
                return form / factor**weight, factor**-weight
            nome = ctx.expjpi(reduced)
            first, third = (ctx.jtheta(1, 0, nome, n) for n in (1, 3))
            form = -ctx.mpc(third) / first
            for step in steps[-2::-1]:
                t = rounded_to(ctx, step.tau)
                form = form / t**2 + ctx.mpc(0, 6) / (ctx.pi * t)
            return form, factor**-2

        return self._modular(value, tau)

    def _modular(self, function: Callable[..., tuple[Any, Any]], tau: Any) -> Any:
        """A function of the steps of the reduction: its value, and the floor of its scale."""

        def at(given: Any) -> Any:
            exact = exact_number(given)
            if exact is None or exact.im <= 0:
                return _NAN
            steps = reduction_steps(exact)
            # An inversion next to the real axis loses what Im tau is smaller than 1 by.
            lost = max(0, int(steps[-1].tau.im / exact.im).bit_length())

            def evaluate(bits: int) -> tuple[Any, Any]:
                ctx = context(bits)
                value, floor = function(ctx, steps)
                return ctx.mpc(value), ctx.mpc(floor)

            def scales(values: Sequence[Any]) -> list[int]:
                size = max(magnitude(values[0]), magnitude(values[1]))
                return [size, size]

            return self._precisions.agreed(evaluate, scales, given, extra_bits=2 * lost)[0]

        return map_elements(at, tau)

    def inverse_klein_j(self, j: Any) -> Any:
        def at(given: Any) -> Any:
            exact = exact_number(given)
            if exact is None:
                return _NAN
            # With g2 = g3 = 27 j/(j - 1728) the curve has this j.
            if not exact.im and exact.re in (0, 1728):
                g2, g3 = (1, 0) if exact.re else (0, 1)
                lost = 0
            else:
                gap = GaussianRational(exact.re - 1728, exact.im)
                sizes = [max(abs(x.re), abs(x.im)) for x in (exact, gap)]
                lost = sum(abs(int(x) or int(1 / x)).bit_length() for x in sizes if x)
                ctx = context(4 * self._precisions.bits + 4 * lost)
                number = rounded_to(ctx, exact)
                g2 = g3 = 27 * number / rounded_to(ctx, gap)
            finer = type(self)(self._precisions.dps + 5 + lost)  # type: ignore[call-arg]
            lattice = finer.lattice_from_invariants(g2, g3)
            reduced = lattice.reduced()[0].exact
            ctx = context(self._precisions.working_bits[1])
            tau = rounded_to(ctx, reduced[1]) / rounded_to(ctx, reduced[0])
            return self._precisions.rounded(ctx.mpc(_into_domain(ctx, tau, self._precisions.bits)))

        return map_elements(at, j)

    def eisenstein_series(self, k: int, lattice: Lattice) -> Any:
        weight = check_weight(k)
        check_lattice(lattice)
        first, tau = lattice.exact[0], exact_tau(lattice)
        finer = type(self)(self._precisions.dps + 10)  # type: ignore[call-arg]
        ctx = context(self._precisions.working_bits[1])
        value = ctx.convert(finer.eisenstein(weight, rounded_to(ctx, tau)))
        period = 2 * rounded_to(ctx, first)
        factor = twice_zeta(weight)
        value = ratio_of(value, factor) * (ctx.pi / period) ** weight
        return self._precisions.rounded(ctx.mpc(value))


def _into_domain(ctx: Any, tau: Any, bits: int) -> Any:
    """Onto the right edge and the right half of the arc, of what lies within rounding of both."""
    edge = ctx.ldexp(1, 4 - bits)
    if tau.real < edge - 0.5:
        tau += 1
    if tau.real < 0 and abs(tau) < 1 + edge:
        tau = -1 / tau
    return tau
