"""Elliptic integrals and modular functions as Arb balls.

The integrals, j, eta and lambda are Arb's own; E_k follows from theta constants as in
`backends.exact_modular`. Arb has no inverse of j.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from flint import acb, arb, fmpq

from backends.elementwise import map_elements
from backends.exact_modular import eisenstein_of_reduced, exact_tau, reduction_steps
from backends.exact_reduction import exact_number
from backends.flint_balls import ball
from wefpe_core._exact import GaussianRational
from wefpe_core.backend import check_lattice
from wefpe_core.elliptic_integrals import EllipticIntegrals
from wefpe_core.lattice import Lattice
from wefpe_core.modular_forms import twice_zeta
from wefpe_core.modular_functions import ModularFunctions, check_weight

_NAN = acb(arb.nan(), arb.nan())
_COMPLEX_INFINITY = acb(arb.pos_inf(), arb.nan())


class FlintFamily(ModularFunctions[Any], EllipticIntegrals[Any]):
    """What `FlintBackend` inherits. Arguments are numbers, taken as exact."""

    @abstractmethod
    def _certified(
        self,
        evaluate: Callable[[], Sequence[Any]],
        scales: Callable[[Sequence[Any]], Sequence[Any]],
        is_exact: bool,
        where: Any,
    ) -> Sequence[Any]:
        """Raise the precision until radii are small."""

    def ellipk(self, m: Any) -> Any:
        return self._integral(lambda k: k.elliptic_k(), lambda k: k == 1, m)

    def ellipe(self, m: Any) -> Any:
        return self._integral(lambda k: k.elliptic_e(), _never, m)

    def ellipkinc(self, phi: Any, m: Any) -> Any:
        return self._integral(acb.elliptic_f, _never, phi, m)

    def ellipeinc(self, phi: Any, m: Any) -> Any:
        return self._integral(acb.elliptic_e_inc, _never, phi, m)

    def ellippi(self, n: Any, m: Any) -> Any:
        return self._integral(acb.elliptic_pi, lambda n, m: 1 in (n, m), n, m)

    def ellippiinc(self, n: Any, phi: Any, m: Any) -> Any:
        return self._integral(acb.elliptic_pi_inc, _never, n, phi, m)

    def elliprf(self, x: Any, y: Any, z: Any) -> Any:
        return self._integral(acb.elliptic_rf, _two_zeros, x, y, z)

    def elliprd(self, x: Any, y: Any, z: Any) -> Any:
        def is_pole(a: Any, b: Any, c: Any) -> bool:
            return bool(c == 0 or a == 0 == b)

        return self._integral(acb.elliptic_rd, is_pole, x, y, z)

    def elliprj(self, x: Any, y: Any, z: Any, p: Any) -> Any:
        def integral(a: Any, b: Any, c: Any, q: Any) -> Any:
            value = acb.elliptic_rj(a, b, c, q)
            reals = all(number.imag == 0 for number in (a, b, c, q))
            if reals and q.real < 0 and min(number.real for number in (a, b, c)) >= 0:
                return acb(value.real)  # the principal value
            return value

        def is_pole(*numbers: Any) -> bool:
            return bool(numbers[3] == 0 or _two_zeros(*numbers[:3]))

        return self._integral(integral, is_pole, x, y, z, p)

    def elliprc(self, x: Any, y: Any) -> Any:
        def integral(a: Any, b: Any) -> Any:
            if b.imag == 0 and b.real < 0:
                return (a / (a - b)).sqrt() * acb.elliptic_rc(a - b, -b)
            return acb.elliptic_rc(a, b)

        return self._integral(integral, lambda a, b: b == 0, x, y)

    def _integral(
        self, function: Callable[..., Any], is_pole: Callable[..., bool], *arguments: Any
    ) -> Any:
        def at(*values: Any) -> Any:
            exact = [exact_number(value) for value in values]
            numbers = [number for number in exact if number is not None]
            if len(numbers) < len(exact):
                return _NAN
            if is_pole(*(complex(*number) if number.im else number.re for number in numbers)):
                return _COMPLEX_INFINITY
            return self._certified(
                lambda: (function(*map(ball, numbers)),),
                lambda found: [abs(found[0])],
                True,
                values,
            )[0]

        return map_elements(at, *arguments)

    def klein_j(self, tau: Any) -> Any:
        return self._modular(lambda t: (ball(t).modular_j(), arb(1)), tau)

    def dedekind_eta(self, tau: Any) -> Any:
        return self._modular(lambda t: (ball(t).modular_eta(), arb(0)), tau)

    def modular_lambda(self, tau: Any) -> Any:
        return self._modular(lambda t: (ball(t).modular_lambda(), arb(0)), tau)

    def eisenstein(self, k: int, tau: Any) -> Any:
        weight = check_weight(k)
        return self._modular(lambda exact: _eisenstein(weight, exact), tau)

    def _modular(self, function: Callable[[GaussianRational], tuple[Any, Any]], tau: Any) -> Any:
        """A function that gives its value and the floor of the scale of its radius."""

        def at(given: Any) -> Any:
            exact = exact_number(given)
            if exact is None or exact.im <= 0:
                return _NAN
            return self._certified(
                lambda: function(exact),
                lambda found: [abs(found[0]) + abs(found[1]), 1 + abs(found[1])],
                True,
                given,
            )[0]

        return map_elements(at, tau)

    def eisenstein_series(self, k: int, lattice: Lattice) -> Any:
        weight = check_weight(k)
        check_lattice(lattice)
        first, tau = lattice.exact[0], exact_tau(lattice)
        factor = twice_zeta(weight)
        ratio = fmpq(factor.numerator, factor.denominator)

        def evaluate() -> tuple[Any]:
            form, _ = _eisenstein(weight, tau)
            return (form * ratio * (acb.pi() / (2 * ball(first))) ** weight,)

        def scales(found: Sequence[Any]) -> list[Any]:
            return [abs(found[0]) + abs(acb.pi() / (2 * ball(first))) ** weight]

        return self._certified(evaluate, scales, True, lattice)[0]


def _eisenstein(k: int, tau: GaussianRational) -> tuple[Any, Any]:
    """E_k at an exact tau, and |c tau + d|^-k of its reduction."""
    steps = reduction_steps(tau)
    factor, reduced = acb(1), ball(steps[-1].tau)
    for step in steps[:-1]:
        factor *= ball(step.tau)
    if k > 2:
        t2, t3, t4 = (theta**4 for theta in acb.modular_theta(acb(0), reduced)[1:])
        form = eisenstein_of_reduced((t2, t3, t4), k) / factor**k
    else:
        form = 6 * acb(0.5).elliptic_zeta(reduced) / acb.pi() ** 2
        for step in steps[-2::-1]:
            t = ball(step.tau)
            form = form / t**2 + acb(0, 6) / (acb.pi() * t)
    return form, abs(factor) ** -k


def _never(*numbers: Any) -> bool:
    return False


def _two_zeros(*numbers: Any) -> bool:
    return sum(number == 0 for number in numbers) > 1
