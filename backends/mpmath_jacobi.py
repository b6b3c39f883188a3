r"""Theta and Jacobi functions for the mpmath backend: the defining series, without any reduction.

Theta functions are summed as they are defined (DLMF 20.2), for the tau and z given: no modular
transformation, no multiplier and no quasi-period can be wrong. A thin lattice takes more terms and,
where they cancel, more digits, which the comparison of two precisions asks for. Jacobi's functions
are quotients of them (DLMF 22.2) with K and K' of mpmath. Only multiples of 4K and 4iK', which are
periods of all, are taken off the argument.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import mpmath

from backends.elementwise import map_elements
from backends.exact_reduction import exact_half_periods, exact_number
from backends.jacobi_elements import ElementJacobiFunctions
from backends.mpmath_precision import TwoPrecisions, context, magnitude
from backends.mpmath_rows import rounded_to
from wefpe_core._exact import GaussianRational
from wefpe_core.backend import check_lattice
from wefpe_core.errors import InputError, PrecisionError
from wefpe_core.jacobi_functions import check_index, check_tau_or_nome
from wefpe_core.lattice import Lattice

_INFINITY = mpmath.mp.mpc(mpmath.mp.inf, mpmath.mp.nan)
_NAN = mpmath.mp.mpc(mpmath.mp.nan, mpmath.mp.nan)
# Extra bits, tried in turn: terms of a thin lattice may cancel to almost nothing.
_EXTRA_BITS = (0, 256, 512, 1024, 2048, 4096, 8192, 16384)
_MOST_TERMS = 10**6
_SMALLEST = -(1 << 40)  # stands for the magnitude of an exact zero


class MpmathJacobiFunctions(ElementJacobiFunctions):
    """Each value at two precisions, as `MpmathBackend` does; `_precisions` is its."""

    _precisions: TwoPrecisions

    def _log(self, value: Any) -> Any:
        return value.context.log(value) if value else value.context.mpc("-inf", 0)

    def _theta(
        self, n: int, z: Any, tau: Any, nome: Any, order: int, finish: Callable[[Any], Any]
    ) -> Any:
        given, is_nome = check_tau_or_nome(tau, nome)

        def at(z: Any, given: Any) -> Any:
            check_tau_or_nome(*((None, given) if is_nome else (given, None)))
            exact_z, exact_given = exact_number(z), exact_number(given)
            if exact_z is None or exact_given is None:
                return _NAN

            # A real nome, positive for theta_1 and theta_2, gives real values of real arguments.
            is_positive = exact_given.im == 0 < exact_given.re if is_nome else exact_given.re == 0
            is_nome_real = exact_given.im == 0 if is_nome else exact_given.re.denominator == 1
            is_real = exact_z.im == 0 and (is_positive or (n > 2 and is_nome_real))

            def evaluate(bits: int) -> tuple[Any]:
                ctx = context(bits)
                point, parameter = rounded_to(ctx, exact_z), rounded_to(ctx, exact_given)
                value = theta_series(ctx, n, point, parameter, is_nome, order)
                if is_real:
                    value = ctx.mpc(value.real, 0)
                return (finish(value),)

            return self._agreed(evaluate, (z, given))[0]

        return map_elements(at, z, given)

    def _agreed(self, evaluate: Callable[[int], Sequence[Any]], where: Any) -> Sequence[Any]:
        for extra in _EXTRA_BITS:
            try:
                return self._precisions.agreed(
                    evaluate,
                    lambda values: [max(magnitude(value), _SMALLEST) for value in values],
                    where,
                    extra_bits=extra,
                )
            except PrecisionError:
                if extra == _EXTRA_BITS[-1]:
                    raise
        raise AssertionError("there are extra bits to try")

    def _jacobi_at(self, kinds: tuple[str, ...], u: Any, m: Any) -> Sequence[Any]:
        exact_u, exact_m = exact_number(u), exact_number(m)
        if exact_u is None or exact_m is None:
            return (_NAN,) * len(kinds)
        if not exact_u.re and not exact_u.im and any(kind[1] == "s" for kind in kinds):
            return (_INFINITY,) * len(kinds)

        def evaluate(bits: int) -> tuple[Any, ...]:
            ctx = context(bits)
            values = jacobi_values(ctx, exact_u, exact_m)
            results = [
                _amplitude(ctx, values, exact_u, exact_m)
                if kind == "am"
                else values[kind[0]] / values[kind[1]]
                for kind in kinds
            ]
            if exact_u.im == 0 == exact_m.im:
                results = [ctx.mpc(result.real, 0) for result in results]
            return tuple(results)

        return self._agreed(evaluate, (u, m))

    def sigma_k(self, k: int, z: Any, lattice: Lattice) -> Any:
        r"""By its definition: :math:`e^{-\eta_kz}\sigma(z+\omega_k)/\sigma(\omega_k)`."""
        k = check_index("k", k, 1, 3)
        check_lattice(lattice)
        omega = exact_half_periods(lattice)[k - 1]
        digits = 2 * self._precisions.dps + 20
        backend: Any = type(self)(digits)  # type: ignore[call-arg]
        eta1, eta3 = backend.quasi_periods(lattice)

        def at(value: Any) -> Any:
            exact = exact_number(value)
            if exact is None:
                return _NAN
            with mpmath.workdps(digits):
                shifted = _as_mpc(
                    mpmath.mp, GaussianRational(exact.re + omega.re, exact.im + omega.im)
                )
                half, point = _as_mpc(mpmath.mp, omega), _as_mpc(mpmath.mp, exact)
                eta = (eta1, eta1 + eta3, eta3)[k - 1]
                ratio = backend.sigma(shifted, lattice) / backend.sigma(half, lattice)
                return self._precisions.rounded(mpmath.exp(-eta * point) * ratio)

        return map_elements(at, z)


def _as_mpc(ctx: Any, value: GaussianRational) -> Any:
    return ctx.mpc(*(ctx.mpf(part.numerator) / part.denominator for part in value))


def theta_series(ctx: Any, n: int, z: Any, given: Any, is_nome: bool, order: int = 0) -> Any:
    """The derivative of theta_n by its Fourier series, for tau or the nome."""
    if is_nome and given == 0:
        return ctx.mpc(1 if n > 2 and order == 0 else 0)
    log = ctx.log(given) if is_nome else ctx.j * ctx.pi * given
    return theta_sums(ctx, ((n, order),), z, log)[0]


def theta_sums(ctx: Any, wanted: Sequence[tuple[int, int]], z: Any, log: Any) -> list[Any]:
    """Derivatives of theta functions, as pairs of n and the order, from the same terms.

    Those of theta_1 and theta_2 have the indices 1/2, 3/2, ..., the others 0, 1, 2, ..., so what is
    wanted must be of one of these kinds. `log` is the logarithm of the nome.
    """
    # Terms are e^(log k^2 + 2ikz) with |e^log| < 1: beyond this k they are below the precision.
    decay, growth = -ctx.re(log), 2 * abs(ctx.im(z))
    count = int(ctx.ceil((growth + ctx.sqrt(growth**2 + 4 * decay * ctx.prec)) / (2 * decay))) + 4
    if count > _MOST_TERMS:
        raise InputError(f"theta has more than {_MOST_TERMS} terms for the nome e^({log!r})")
    # Each term is the one before times a factor, which is the one before times q^2. So the k-th has
    # some k^2 rounding errors. Few precisions are in use, since each has a context.
    fine = context(-(-(ctx.prec + 2 * count.bit_length() + 8) // 64) * 64)
    log, turn = fine.convert(log), 2j * fine.convert(z)
    odd = int(wanted[0][0] < 3)  # the doubled indices are odd or even
    start = fine.exp(log / 4) if odd else fine.mpc(1)
    up, down = (start * fine.exp(sign * odd * turn / 2) for sign in (1, -1))
    to_next = fine.exp(log * (1 + odd))
    next_up, next_down = (to_next * fine.exp(sign * turn) for sign in (1, -1))
    square = fine.exp(2 * log)
    totals = [fine.mpc(0) for _ in wanted]
    for k in range(count + 1):
        doubled = 2 * k + odd
        # The sum and the difference are divided by 2 where both terms are the same one.
        both = [up + down, up - down] if doubled else [up, fine.mpc(0)]
        for place, (n, order) in enumerate(wanted):
            term = both[(order + (n == 1)) % 2] * doubled**order
            totals[place] += -term if n in (1, 4) and k % 2 else term
        up, down = up * next_up, down * next_down
        next_up, next_down = next_up * square, next_down * square
    # The derivatives bring i^order; theta_1 has sines, which are differences over 2i.
    turns = ((1, 1j, -1, -1j)[(order - (n == 1)) % 4] for n, order in wanted)
    return [+ctx.convert(turn * total) for turn, total in zip(turns, totals, strict=True)]


def jacobi_values(ctx: Any, u: GaussianRational, m: GaussianRational) -> dict[str, Any]:
    """Four numbers whose quotients are Jacobi's functions, by their letters."""
    point = _as_mpc(ctx, u)
    if m.im == 0 and m.re in (0, 1):
        s, c = (ctx.sin, ctx.cos) if m.re == 0 else (ctx.sinh, ctx.cosh)
        one, s, c = ctx.mpc(1), s(point), c(point)
        return (
            {"s": s, "c": c, "d": one, "n": one}
            if m.re == 0
            else {"s": s, "c": one, "d": one, "n": c}
        )
    big, tau, *zero = _jacobi_constants(ctx.prec, m)
    ratio = point / (4 * big)
    rows = ctx.nint(ctx.im(ratio) / ctx.im(tau))
    columns = ctx.nint(ctx.re(ratio - rows * tau))
    z = 2 * ctx.pi * (ratio - rows * tau - columns)
    log = ctx.j * ctx.pi * tau
    theta1, theta2 = theta_sums(ctx, ((1, 0), (2, 0)), z, log)
    theta3, theta4 = theta_sums(ctx, ((3, 0), (4, 0)), z, log)
    return {
        "s": 2 * big / ctx.pi * theta1 / zero[0],
        "c": theta2 / zero[1],
        "d": theta3 / zero[2],
        "n": theta4 / zero[3],
    }


@lru_cache(maxsize=64)
def _jacobi_constants(bits: int, m: GaussianRational) -> tuple[Any, ...]:
    """K, tau = iK'/K, theta_1'(0), and the other theta functions at 0."""
    ctx = context(bits)
    big = ctx.ellipk(_as_mpc(ctx, m))
    tau = ctx.j * ctx.ellipk(_as_mpc(ctx, GaussianRational(1 - m.re, -m.im))) / big
    log, zero = ctx.j * ctx.pi * tau, ctx.mpc(0)
    halves, wholes = ((1, 1), (2, 0)), ((3, 0), (4, 0))
    return big, tau, *theta_sums(ctx, halves, zero, log), *theta_sums(ctx, wholes, zero, log)


def _amplitude(ctx: Any, values: dict[str, Any], u: GaussianRational, m: GaussianRational) -> Any:
    """The branch of the amplitude that `JacobiFunctions.jacobi_am` documents."""
    am = -ctx.j * ctx.log((values["c"] + ctx.j * values["s"]) / values["n"])
    middle = ctx.mpf(0)
    if not (m.im == 0 and m.re >= 1):
        big = ctx.pi / 2 if m.re == 0 == m.im else _jacobi_constants(ctx.prec, m)[0]
        middle = ctx.re(ctx.pi * _as_mpc(ctx, u) / (2 * big))
    return am + 2 * ctx.pi * ctx.nint((middle - ctx.re(am)) / (2 * ctx.pi))
