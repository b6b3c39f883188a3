"""Theta and Jacobi functions of the backends that compute one number at a time."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from backends.elementwise import flatten, map_elements
from wefpe_core.jacobi_functions import MAX_DERIVATIVE, JacobiFunctions, check_index, check_kind


class ElementJacobiFunctions(JacobiFunctions[Any]):
    """What mpmath and flint share; they say how a number is computed."""

    @abstractmethod
    def _theta(
        self, n: int, z: Any, tau: Any, nome: Any, order: int, finish: Callable[[Any], Any]
    ) -> Any:
        """`finish` of the derivative of theta_n of that order, at arguments that broadcast."""

    @abstractmethod
    def _log(self, value: Any) -> Any:
        """The principal logarithm of one value; ``-inf`` of 0."""

    @abstractmethod
    def _jacobi_at(self, kinds: tuple[str, ...], u: Any, m: Any) -> Sequence[Any]:
        """Some of Jacobi's functions of two numbers; "am" is the amplitude."""

    def jtheta(
        self, n: int, z: Any, tau: Any = None, derivative: int = 0, *, nome: Any = None
    ) -> Any:
        n = check_index("n", n, 1, 4)
        order = check_index("derivative", derivative, 0, MAX_DERIVATIVE)
        return self._theta(n, z, tau, nome, order, lambda value: value)

    def log_jtheta(self, n: int, z: Any, tau: Any = None, *, nome: Any = None) -> Any:
        return self._theta(check_index("n", n, 1, 4), z, tau, nome, 0, self._log)

    def ellipj(self, u: Any, m: Any) -> tuple[Any, Any, Any, Any]:
        elements, assemble = flatten(u, m)
        rows = [self._jacobi_at(("sn", "cn", "dn", "am"), *pair) for pair in elements]
        sn, cn, dn, am = (assemble([row[k] for row in rows]) for k in range(4))
        return sn, cn, dn, am

    def jacobi(self, kind: str, u: Any, m: Any) -> Any:
        kind = check_kind(kind)
        return map_elements(lambda u, m: self._jacobi_at((kind,), u, m)[0], u, m)

    def jacobi_am(self, u: Any, m: Any) -> Any:
        return map_elements(lambda u, m: self._jacobi_at(("am",), u, m)[0], u, m)
