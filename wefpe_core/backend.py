r"""The abstract elliptic-function backend: what every evaluator offers, and the laws it keeps.

Each method states the law its values satisfy; `wefpe_core.identities` has the same laws as
residuals, and the test suite runs them over every backend.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, TypeVar

from wefpe_core.errors import InputError
from wefpe_core.lattice import Lattice

Array_co = TypeVar("Array_co", covariant=True)


class AbstractBackend(ABC, Generic[Array_co]):
    r"""Weierstrass functions on a `Lattice`, for arguments of the backend's own kind.

    The type parameter is the type of the values: ``AbstractBackend[torch.Tensor]`` returns
    tensors. Arguments may be whatever the backend converts to it, numbers and lists included.

    Shapes broadcast, scalars give scalars, precision and device follow ``z``. At a lattice
    point :math:`\wp` and :math:`\wp'` are complex infinity, written ``inf+nanj`` in arrays. They
    are infinite, too, where the value overflows, or would overflow on a lattice with a period of
    ordinary size. NaN or infinite ``z`` gives NaN there and nowhere else.
    """

    name: ClassVar[str]

    def wp(self, z: Any, lattice: Lattice) -> Array_co:
        r""":math:`\wp(z)` (DLMF 23.2.4): even, periods 2 omega1 and 2 omega3, double poles."""
        return self.wp_and_prime(z, lattice)[0]

    def wp_prime(self, z: Any, lattice: Lattice) -> Array_co:
        r""":math:`\wp'(z)`: odd, with :math:`\wp'^2 = 4\wp^3 - g_2\wp - g_3` (DLMF 23.3.10)."""
        return self.wp_and_prime(z, lattice)[1]

    @abstractmethod
    def wp_and_prime(self, z: Any, lattice: Lattice) -> tuple[Array_co, Array_co]:
        r"""Both :math:`\wp(z)` and :math:`\wp'(z)`, for little more than the price of one."""

    @abstractmethod
    def zeta(self, z: Any, lattice: Lattice) -> Array_co:
        r""":math:`\zeta(z)`: odd, :math:`\zeta' = -\wp`, grows by 2 eta_k per period (23.2.11).

        Far from 0 the multiples of eta1 and eta3 may cancel. On a lattice of numbers the sum keeps
        its digits. On a lattice of tensors the rounding errors of both quasi-periods remain in it.
        """

    @abstractmethod
    def sigma(self, z: Any, lattice: Lattice) -> Array_co:
        r""":math:`\sigma(z)`: entire, odd, :math:`\sigma'/\sigma = \zeta` (DLMF 23.2.8)."""

    @abstractmethod
    def inverse_wp(self, w: Any, lattice: Lattice) -> Array_co:
        r"""A solution z of :math:`\wp(z) = w`.

        Of the two solutions modulo the lattice, the one returned has
        :math:`z = s\,2w_1 + r\,2w_3` in the reduced basis with :math:`0 \le r \le 1/2`,
        :math:`-1/2 < {\rm Re}(z/2w_1) \le 1/2`. On the edges r = 0 and r = 1/2, where both
        qualify, it is the one with the larger :math:`{\rm Re}(z/2w_1)`. What lies within 16 eps
        of an edge or a side counts as on it. Infinite `w` gives 0.
        """

    @abstractmethod
    def green(self, z: Any, lattice: Lattice) -> Array_co:
        r"""Green function of the torus: real, even, doubly periodic.

        :math:`G(z) = -\log|\sigma(z)| + \tfrac12{\rm Re}(G_2^* z^2) + \tfrac{\pi}{2A}|z|^2`
        with :math:`A` the cell area and :math:`G_2^*` the constant that makes it periodic, so
        that :math:`\Delta G = 2\pi/A - 2\pi\delta_\Lambda` and :math:`G(z) \to -\log|z|` at 0.
        It is ``+inf`` at lattice points.
        """

    @abstractmethod
    def invariants(self, lattice: Lattice) -> tuple[Array_co, Array_co]:
        """Invariants ``(g2, g3)`` (DLMF 23.3.1-23.3.2)."""

    @abstractmethod
    def roots(self, lattice: Lattice) -> tuple[Array_co, Array_co, Array_co]:
        """Roots ``(e1, e2, e3)`` with e_k = wp(omega_k); their sum is 0 (DLMF 23.3.5)."""

    @abstractmethod
    def quasi_periods(self, lattice: Lattice) -> tuple[Array_co, Array_co]:
        """``(eta1, eta3)``: eta_k = zeta(omega_k), eta1 omega3 - eta3 omega1 = i pi/2 (23.2.14)."""

    @abstractmethod
    def lattice_from_invariants(self, g2: Any, g3: Any) -> Lattice:
        """Lattice with these invariants, in the backend's own precision.

        Numbers give the basis of `Lattice.from_invariants`: if both are real, omega1 is positive
        and Re tau is 0 or 1/2; otherwise the basis is reduced. Torch tensors always give complex
        tensors with the reduced basis up to rounding, which need not contain a real half-period
        even if the invariants are real. A discriminant of zero raises `LatticeError`; tensors are
        not inspected, and their half-periods become NaN.
        """

    @abstractmethod
    def lattice_sum(
        self, z: Any, lattice: Lattice, m_max: int, n_max: int
    ) -> tuple[Array_co, Array_co]:
        r"""Truncated defining series over :math:`|m|\le` `m_max`, :math:`|n|\le` `n_max`.

        .. math:: \frac1{z^2} + \sum_{\omega\ne0}\Bigl[\frac1{(z-\omega)^2}-\frac1{\omega^2}\Bigr],
                  \qquad -2\sum_\omega \frac1{(z-\omega)^3}, \qquad \omega = 2m\omega_1+2n\omega_3.

        The sum is taken as it is written, without reduction or clamps, for comparison.
        `wefpe_core.bounds` says how far it is from the functions.
        """

    @abstractmethod
    def add(
        self, p1: Any, dp1: Any, p2: Any, dp2: Any, lattice: Lattice
    ) -> tuple[Array_co, Array_co]:
        r"""``(wp, wp')`` at z1+z2 from their values at z1 and z2 (DLMF 23.10.1).

        Safe where the textbook quotient is 0/0 (z1 = z2) and where an argument or the
        result is a lattice point (complex infinity).
        """


def check_truncation(m_max: int, n_max: int) -> tuple[int, int]:
    """Validate truncation sizes: positive integers, not bools."""
    for name, value in (("m_max", m_max), ("n_max", n_max)):
        if isinstance(value, bool) or not hasattr(value, "__index__") or value < 1:
            raise InputError(f"{name} must be a positive integer, got {value!r}")
    return int(m_max), int(n_max)


def check_lattice(lattice: object) -> None:
    """Raise `InputError` for anything but a `Lattice`."""
    if not isinstance(lattice, Lattice):
        raise InputError(
            f"expected a Lattice, got {lattice!r}; for half-periods write Lattice(omega1, omega3)"
        )
