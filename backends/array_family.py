"""Elliptic integrals and modular functions of the array backends, in terms of their formulas."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from backends import degenerate, elliptic_integrals, modular
from backends.constants import Precision
from backends.pair import ArrayOps, Pair, select
from wefpe_core.backend import check_lattice, check_order, check_real_lattice
from wefpe_core.degenerate_lattice import DegenerateLattice
from wefpe_core.elliptic_integrals import EllipticIntegrals
from wefpe_core.extended import PI
from wefpe_core.jacobi_functions import Array_co
from wefpe_core.lattice import Lattice
from wefpe_core.lattice_constants import lattice_constants
from wefpe_core.modular_forms import eisenstein_of_lattice, twice_zeta
from wefpe_core.modular_functions import ModularFunctions, check_weight


class ArrayFamily(ModularFunctions[Array_co], EllipticIntegrals[Array_co]):
    """Each function maps a formula of `backends.elliptic_integrals` or `backends.modular`."""

    @abstractmethod
    def _elementwise(self, function: Callable[..., Any], *arguments: Any) -> tuple[Array_co, ...]:
        """Values of ``function(ops, *pairs, precision)`` at arguments that broadcast."""

    @abstractmethod
    def _number(self, value: complex) -> Array_co:
        """A value of the backend's own kind, in double precision."""

    @abstractmethod
    def wp_and_prime(self, z: Any, lattice: Lattice) -> tuple[Array_co, Array_co]: ...

    def _on_degenerate(
        self, function: Callable[..., Any], z: Any, lattice: DegenerateLattice
    ) -> tuple[Array_co, ...]:
        """Values of a function of `backends.degenerate`."""

        def formula(ops: ArrayOps, x: Pair, precision: Precision) -> Any:
            return function(ops, x, precision, lattice)

        return self._elementwise(formula, z)

    def _wp_and_prime_on_degenerate(self, z: Any, lattice: DegenerateLattice) -> Any:
        return self._on_degenerate(degenerate.wp_and_prime, z, lattice)

    def _towards(self, z: Any, wp_prime: Any, lattice: Lattice) -> Array_co:
        """z or -z, whichever has the derivative nearer to `wp_prime`."""

        def turned(ops: ArrayOps, x: Pair, slope: Pair, wanted: Pair, precision: Precision) -> Pair:
            product = ops.constant(slope.re * wanted.re + slope.im * wanted.im)
            is_number = (wanted.re == wanted.re) & (wanted.im == wanted.im)
            # Next to z = 0 the derivative may be infinite; at 0 there is nothing to choose.
            is_origin = (x.re == 0.0) & (x.im == 0.0)
            value = select(ops, product < 0.0, -x, x)
            nan = float("nan")
            keep = is_number | is_origin
            return Pair(ops.where(keep, value.re, nan), ops.where(keep, value.im, nan))

        return self._elementwise(turned, z, self.wp_and_prime(z, lattice)[1], wp_prime)[0]

    def inverse_wp_real(self, w: Any, lattice: Lattice) -> Array_co:
        check_real_lattice(lattice)
        roots = [complex(root) for root in lattice_constants(lattice).roots]
        size = max(map(abs, roots))
        largest = max(root.real for root in roots if abs(root.imag) <= 1e-30 * size)

        def formula(ops: ArrayOps, x: Pair, precision: Precision) -> Pair:
            is_infinite = ops.isinf(x.re) & (x.re > 0.0)
            is_solved = (x.im == 0.0) & (x.re >= largest) & ~is_infinite
            safe = Pair(ops.where(is_solved, x.re, 2.0 * size), 0.0 * x.im)
            zero = 0.0 * safe.re
            a, b, c = (Pair(safe.re - e.real, zero - e.imag) for e in roots)
            found = elliptic_integrals.elliprf(ops, a, b, c, precision).re
            value = ops.where(is_solved, found, ops.where(is_infinite, zero, float("nan")))
            return Pair(value, value - value)

        return self._elementwise(formula, w)[0]

    def ellipk(self, m: Any) -> Array_co:
        return self._elementwise(elliptic_integrals.ellipk, m)[0]

    def ellipe(self, m: Any) -> Array_co:
        return self._elementwise(elliptic_integrals.ellipe, m)[0]

    def ellipkinc(self, phi: Any, m: Any) -> Array_co:
        return self._elementwise(elliptic_integrals.ellipkinc, phi, m)[0]

    def ellipeinc(self, phi: Any, m: Any) -> Array_co:
        return self._elementwise(elliptic_integrals.ellipeinc, phi, m)[0]

    def ellippi(self, n: Any, m: Any) -> Array_co:
        return self._elementwise(elliptic_integrals.ellippi, n, m)[0]

    def ellippiinc(self, n: Any, phi: Any, m: Any) -> Array_co:
        return self._elementwise(elliptic_integrals.ellippiinc, n, phi, m)[0]

    def elliprf(self, x: Any, y: Any, z: Any) -> Array_co:
        return self._elementwise(elliptic_integrals.elliprf, x, y, z)[0]

    def elliprd(self, x: Any, y: Any, z: Any) -> Array_co:
        return self._elementwise(elliptic_integrals.elliprd, x, y, z)[0]

    def elliprj(self, x: Any, y: Any, z: Any, p: Any) -> Array_co:
        return self._elementwise(elliptic_integrals.elliprj, x, y, z, p)[0]

    def elliprc(self, x: Any, y: Any) -> Array_co:
        return self._elementwise(elliptic_integrals.elliprc, x, y)[0]

    def klein_j(self, tau: Any) -> Array_co:
        return self._elementwise(modular.klein_j, tau)[0]

    def inverse_klein_j(self, j: Any) -> Array_co:
        return self._elementwise(modular.inverse_klein_j, j)[0]

    def dedekind_eta(self, tau: Any) -> Array_co:
        return self._elementwise(modular.dedekind_eta, tau)[0]

    def modular_lambda(self, tau: Any) -> Array_co:
        return self._elementwise(modular.modular_lambda, tau)[0]

    def eisenstein(self, k: int, tau: Any) -> Array_co:
        weight = check_weight(k)

        def formula(ops: ArrayOps, t: Pair, precision: Precision) -> Pair:
            return modular.eisenstein(ops, t, precision, weight)

        return self._elementwise(formula, tau)[0]

    def eisenstein_series(self, k: int, lattice: Lattice) -> Array_co:
        weight = check_weight(k)
        check_lattice(lattice)
        if not lattice.holds_tensors:
            return self._number(complex(eisenstein_of_lattice(weight, lattice)))
        factor = float(PI) ** weight * float(twice_zeta(weight))

        def formula(ops: ArrayOps, w1: Pair, w3: Pair, precision: Precision) -> Pair:
            inverse = 0.5 * w1.reciprocal()
            value = modular.eisenstein(ops, w3 * w1.reciprocal(), precision, weight)
            for _ in range(weight):
                value = value * inverse
            return value.scale(factor)

        return self._elementwise(formula, lattice.omega1, lattice.omega3)[0]


class FunctionsByName(ArrayFamily[Array_co]):
    """Functions of points that a backend evaluates by the names of `backends.evaluation`."""

    @abstractmethod
    def _evaluate(self, function: str, z: Any, lattice: Lattice) -> tuple[Array_co, ...]:
        """The complex values of a function, an array for each of its rows."""

    def wp_and_prime(self, z: Any, lattice: Lattice) -> tuple[Array_co, Array_co]:
        if isinstance(lattice, DegenerateLattice):
            wp, wp_prime = self._wp_and_prime_on_degenerate(z, lattice)
        else:
            wp, wp_prime = self._evaluate("wp_and_prime", z, lattice)
        return wp, wp_prime

    def zeta(self, z: Any, lattice: Lattice) -> Array_co:
        if isinstance(lattice, DegenerateLattice):
            return self._on_degenerate(degenerate.zeta, z, lattice)[0]
        return self._evaluate("zeta", z, lattice)[0]

    def sigma(self, z: Any, lattice: Lattice) -> Array_co:
        if isinstance(lattice, DegenerateLattice):
            return self._on_degenerate(degenerate.sigma, z, lattice)[0]
        return self._evaluate("sigma", z, lattice)[0]

    def inverse_wp(self, w: Any, lattice: Lattice, wp_prime: Any = None) -> Array_co:
        z = self._evaluate("inverse_wp", w, lattice)[0]
        return z if wp_prime is None else self._towards(z, wp_prime, lattice)

    def green(self, z: Any, lattice: Lattice) -> Array_co:
        value: Any = self._evaluate("green", z, lattice)[0]
        real: Array_co = value.real
        return real

    def wp_derivative(self, z: Any, lattice: Lattice, n: int) -> Array_co:
        return self._evaluate(f"wp_derivative_{check_order(n)}", z, lattice)[0]

    def log_sigma(self, z: Any, lattice: Lattice) -> Array_co:
        return self._evaluate("log_sigma", z, lattice)[0]

    def modified_zeta(self, z: Any, lattice: Lattice) -> Array_co:
        return self._evaluate("modified_zeta", z, lattice)[0]

    def modified_sigma(self, z: Any, lattice: Lattice) -> Array_co:
        return self._evaluate("modified_sigma", z, lattice)[0]
