"""Theta and Jacobi functions of the array backends: NumPy and torch share these methods."""

from __future__ import annotations

import cmath
from abc import abstractmethod
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeVar

from backends import theta, theta_modular
from backends.constants import Precision
from backends.pair import Pair
from wefpe_core._exact import GaussianRational, exact_complex
from wefpe_core.backend import check_lattice
from wefpe_core.errors import InputError
from wefpe_core.extended import PI, ExtendedComplex, extended_precision
from wefpe_core.jacobi_functions import (
    MAX_DERIVATIVE,
    JacobiFunctions,
    check_index,
    check_kind,
    check_tau_or_nome,
    is_number,
)
from wefpe_core.lattice import Lattice

Array = TypeVar("Array", covariant=True)


class ArrayJacobiFunctions(JacobiFunctions[Array]):
    """Numbers m and tau go through a lattice of numbers, arrays of them element by element."""

    @abstractmethod
    def _elementwise(self, function: Callable[..., Any], *arguments: Any) -> tuple[Any, ...]:
        """Complex values of ``function(ops, *pairs, precision)`` at arguments that broadcast."""

    @abstractmethod
    def _values(
        self, function: Callable[..., Any], z: Any, lattice: Lattice, outputs: int
    ) -> Sequence[Any]:
        """The values of a kernel function on a lattice of numbers, one for each output."""

    def jtheta(
        self, n: int, z: Any, tau: Any = None, derivative: int = 0, *, nome: Any = None
    ) -> Array:
        derivative = check_index("derivative", derivative, 0, MAX_DERIVATIVE)
        return self._theta(n, z, tau, nome, derivative, log=False)

    def log_jtheta(self, n: int, z: Any, tau: Any = None, *, nome: Any = None) -> Array:
        return self._theta(n, z, tau, nome, 0, log=True)

    def _theta(self, n: int, z: Any, tau: Any, nome: Any, order: int, log: bool) -> Any:
        n = check_index("n", n, 1, 4)
        given, is_nome = check_tau_or_nome(tau, nome)
        if is_number(given) and given != 0 and not log:
            lattice = _theta_lattice(complex(given), is_nome)
            reduced = theta_modular.reduced_number(lattice.reduced()[1], n)
            return self._values(theta_modular.theta_function(n, reduced, order), z, lattice, 1)[0]
        if is_number(given) and given != 0:
            lattice = _theta_lattice(complex(given), is_nome)
            reduced = theta_modular.reduced_number(lattice.reduced()[1], n)

            def of_number(ops: Any, z: Pair, precision: Precision) -> Pair:
                constants = theta_modular.prepare_transform(lattice, precision, n)
                return theta_modular.theta_value(
                    ops, z, constants, precision, n, 0, True, (reduced,), ()
                )

            return self._elementwise(of_number, z)[0]

        def of_arrays(ops: Any, z: Pair, given: Pair, precision: Precision) -> Pair:
            return theta_modular.theta_of_arrays(ops, z, given, precision, n, order, log, is_nome)

        return self._elementwise(of_arrays, z, given)[0]

    def ellipj(self, u: Any, m: Any) -> tuple[Array, Array, Array, Array]:
        sn, cn, dn, am = self._jacobi(("sn", "cn", "dn", "am"), u, m)
        return sn, cn, dn, am

    def jacobi(self, kind: str, u: Any, m: Any) -> Array:
        value: Array = self._jacobi((check_kind(kind),), u, m)[0]
        return value

    def jacobi_am(self, u: Any, m: Any) -> Array:
        value: Array = self._jacobi(("am",), u, m)[0]
        return value

    def _jacobi(self, kinds: tuple[str, ...], u: Any, m: Any) -> Sequence[Any]:
        if is_number(m) and cmath.isfinite(m):
            lattice, *flags = theta.parameter_lattice(complex(m))
            return self._values(theta.jacobi_function(kinds, *flags), u, lattice, len(kinds))

        def of_arrays(ops: Any, u: Pair, m: Pair, precision: Precision) -> Any:
            return theta.jacobi_of_arrays(ops, u, m, precision, kinds)

        return self._elementwise(of_arrays, u, m)

    def sigma_k(self, k: int, z: Any, lattice: Lattice) -> Array:
        k = check_index("k", k, 1, 3)
        check_lattice(lattice)
        if not lattice.holds_tensors:
            index = theta.order_of(lattice.reduced()[1]).index(k) + 1
            value: Array = self._values(theta.sigma_function(index), z, lattice, 1)[0]
            return value

        def of_tensors(ops: Any, z: Pair, omega1: Pair, omega3: Pair, precision: Precision) -> Pair:
            return theta.sigma_of_tensors(ops, z, omega1, omega3, precision, k)

        return self._elementwise(of_tensors, z, lattice.omega1, lattice.omega3)[0]


@lru_cache(maxsize=512)
def _theta_lattice(given: complex, is_nome: bool) -> Lattice:
    exact = _tau_of_nome(given) if is_nome else exact_complex(given)
    assert exact is not None, "tau was found to be finite"
    lattice = theta_modular.theta_lattice(exact)
    if max(abs(x) for row in lattice.reduced()[1] for x in row) >= 2**50:
        raise InputError(f"Im(tau) is too small for double precision: tau={complex(exact)!r}")
    return lattice


@extended_precision
def _tau_of_nome(nome: complex) -> GaussianRational:
    """log(nome)/(i pi) in fifty digits: Newton's method on the exponential."""
    exact = ExtendedComplex.of(nome)
    log = ExtendedComplex.of(cmath.log(nome))
    for _ in range(3):
        log = log + (exact / log.exp() - 1)
    if nome.imag == 0:  # the principal logarithm, exactly on the real axis or on the cut
        log = ExtendedComplex(log.re, PI if nome.real < 0 else Decimal(0))
    return GaussianRational(Fraction(log.im / PI), Fraction(-log.re / PI))
