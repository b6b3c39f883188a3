r"""Theta and Jacobi functions for the flint backend, from Arb's theta functions and K.

Arb includes a factor :math:`\pi` in z: its :math:`\theta_n(x, \tau)` is
:math:`\theta_n(\pi x|\tau)` here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flint import acb, arb

from backends import flint_balls as balls
from backends.elementwise import map_elements
from backends.exact_reduction import exact_half_periods, exact_number
from backends.jacobi_elements import ElementJacobiFunctions
from wefpe_core._exact import GaussianRational
from wefpe_core.backend import check_lattice
from wefpe_core.jacobi_functions import check_index, check_tau_or_nome
from wefpe_core.lattice import Lattice

_INFINITY = acb(arb.pos_inf(), arb.nan())
_NAN = acb(arb.nan(), arb.nan())


class FlintJacobiFunctions(ElementJacobiFunctions):
    """Balls with certified digits relative to the modulus; m and tau are exact numbers.

    The argument may be a ball. `_parts` and `_certified` are those of `FlintBackend`.
    """

    _certified: Callable[..., Sequence[Any]]

    def _parts(self, value: Any) -> tuple[GaussianRational | None, Any]:
        """The exact midpoint of a number or ball, and a ball about 0."""
        raise NotImplementedError

    def _log(self, value: Any) -> Any:
        return acb(arb.neg_inf(), 0) if value == 0 else value.log()

    def _theta(
        self, n: int, z: Any, tau: Any, nome: Any, order: int, finish: Callable[[Any], Any]
    ) -> Any:
        given, is_nome = check_tau_or_nome(tau, nome)

        def at(z: Any, given: Any) -> Any:
            check_tau_or_nome(*((None, given) if is_nome else (given, None)))
            (centre, error), exact = self._parts(z), exact_number(given)
            if centre is None or exact is None:
                return _NAN
            if is_nome and not exact.re and not exact.im:
                return finish(acb(1 if n > 2 and order == 0 else 0))

            def evaluate() -> tuple[Any]:
                ratio = balls.ball(exact)
                if is_nome:
                    ratio = ratio.log() / acb(0, arb.pi())
                point = (balls.ball(centre) + error) / acb.pi()
                value = acb.modular_theta(point, ratio, order)[n - 1] / acb.pi() ** order
                is_odd = order % 2 == (0 if n == 1 else 1)
                if is_odd and error == 0 and not centre.re and not centre.im:
                    value = acb(0)
                return (finish(value),)

            return self._certified(evaluate, _sizes, error == 0, (z, given))[0]

        return map_elements(at, z, given)

    def _jacobi_at(self, kinds: tuple[str, ...], u: Any, m: Any) -> Sequence[Any]:
        (centre, error), exact = self._parts(u), exact_number(m)
        if centre is None or exact is None:
            return (_NAN,) * len(kinds)
        is_zero = error == 0 and not centre.re and not centre.im
        if is_zero and any(kind[1] == "s" for kind in kinds):
            return (_INFINITY,) * len(kinds)

        def evaluate() -> list[Any]:
            point = balls.ball(centre) + error
            values = jacobi_values(point, exact)
            if is_zero:
                values["s"] = acb(0)
            return [
                _amplitude(values, point, exact)
                if kind == "am"
                else values[kind[0]] / values[kind[1]]
                for kind in kinds
            ]

        return self._certified(evaluate, _sizes, error == 0, (u, m))

    def sigma_k(self, k: int, z: Any, lattice: Lattice) -> Any:
        r"""By its definition: :math:`e^{-\eta_kz}\sigma(z+\omega_k)/\sigma(\omega_k)`."""
        k = check_index("k", k, 1, 3)
        check_lattice(lattice)
        omegas = exact_half_periods(lattice)
        omega = omegas[k - 1]

        def at(value: Any) -> Any:
            centre, error = self._parts(value)
            if centre is None:
                return _NAN

            def evaluate() -> tuple[Any]:
                a, b = (2 * balls.ball(w) for w in omegas[::2])
                t, half, point = b / a, balls.ball(omega), balls.ball(centre) + error
                eta1, eta3 = acb(0.5).elliptic_zeta(t) / a, (t / 2).elliptic_zeta(t) / a
                eta = (eta1, eta1 + eta3, eta3)[k - 1]
                ratio = ((point + half) / a).elliptic_sigma(t) / (half / a).elliptic_sigma(t)
                return ((-eta * point).exp() * ratio,)

            return self._certified(evaluate, _sizes, error == 0, value)[0]

        return map_elements(at, z)


def _sizes(values: Sequence[Any]) -> list[Any]:
    """A scale that vanishes only with an exact 0, and then needs no more digits."""
    return [arb(1) if value == 0 else abs(value) for value in values]


def jacobi_values(u: Any, m: GaussianRational) -> dict[str, Any]:
    """Four balls whose quotients are Jacobi's functions, by their letters."""
    one = acb(1)
    if m.im == 0 and m.re == 0:
        return {"s": u.sin(), "c": u.cos(), "d": one, "n": one}
    if m.im == 0 and m.re == 1:
        return {"s": u.sinh(), "c": one, "d": one, "n": u.cosh()}
    first = balls.ball(m).elliptic_k()
    second = balls.ball(GaussianRational(1 - m.re, -m.im)).elliptic_k()
    tau = acb(0, 1) * second / first
    theta = acb.modular_theta(u / (2 * first), tau)
    zero = acb.modular_theta(acb(0), tau)
    slope = zero[1] * zero[2] * zero[3]
    values = [2 * first / acb.pi() * theta[0] / slope]
    values += [theta[k] / zero[k] for k in (1, 2, 3)]
    return dict(zip("scdn", values, strict=True))


def _amplitude(values: dict[str, Any], u: Any, m: GaussianRational) -> Any:
    """The branch of the amplitude that `JacobiFunctions.jacobi_am` documents."""
    am = -acb(0, 1) * ((values["c"] + acb(0, 1) * values["s"]) / values["n"]).log()
    middle = acb(0)
    if not (m.im == 0 and m.re >= 1):
        middle = acb.pi() * u / (2 * balls.ball(m).elliptic_k())
    turns = balls._nearest_integer(((middle - am) / (2 * acb.pi())).real)
    return am + 2 * acb.pi() * turns
