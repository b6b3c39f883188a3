r"""The abstract elliptic-function backend: what every evaluator offers, and the laws it keeps.

Each method states the law its values satisfy; `wefpe_core.identities` has the same laws as
residuals, and the test suite runs them over every backend.
"""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple

from wefpe_core._exact import GaussianRational, cross
from wefpe_core.degenerate_lattice import DegenerateLattice
from wefpe_core.docstrings import complete_docstrings
from wefpe_core.elliptic_integrals import EllipticIntegrals
from wefpe_core.errors import (
    DegenerateLatticeError,
    InputError,
    InputTypeError,
    LatticeError,
    WefpeError,
)
from wefpe_core.jacobi_functions import Array_co, JacobiFunctions, not_offered
from wefpe_core.lattice import Lattice
from wefpe_core.modular_functions import ModularFunctions

# The largest order of `AbstractBackend.wp_derivative`.
LARGEST_ORDER = 20


class BackendCapabilities(NamedTuple):
    """What a backend can do; the defaults promise as little as possible."""

    dtypes: tuple[str, ...] = ("complex128",)  # of values: "complex128", "complex64"
    devices: tuple[str, ...] = ("cpu",)  # where it evaluates, in the words of its library
    differentiable_in_z: bool = False
    differentiable_in_lattice: bool = False
    # Whose gradients its values carry: torch's autograd or jax.grad.
    gradients_by: Literal["torch", "jax"] | None = None
    compiles: bool = False  # whether its library compiles it together with the code around it


class AbstractBackend(
    JacobiFunctions[Array_co], ModularFunctions[Array_co], EllipticIntegrals[Array_co], ABC
):
    r"""Weierstrass functions on a `Lattice`, for arguments of the backend's own kind.

    The type parameter is the type of the values: ``AbstractBackend[torch.Tensor]`` returns
    tensors. Arguments may be whatever the backend converts to it, numbers and lists included.

    Shapes broadcast, scalars give scalars, precision and device follow ``z``. At a lattice
    point :math:`\wp` and :math:`\wp'` are complex infinity, written ``inf+nanj`` in arrays. They
    are infinite, too, where the value overflows, or would overflow on a lattice with a period of
    ordinary size. NaN or infinite ``z`` gives NaN there and nowhere else.
    """

    name: ClassVar[str]
    # Ceilings of errors in eps, where they are not those of verification/contracts.toml: a largest
    # error by dtype and value, such as {"wp": {"complex128": 10.0}}.
    contracts: ClassVar[Mapping[str, Mapping[str, float]]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        complete_docstrings(cls, AbstractBackend)

    def __repr__(self) -> str:
        """What it is, and whether it is verified on the processor of this machine."""
        from wefpe_core.receipts import standing  # reads files, so only when it is asked for

        try:
            known = str(standing(self.name, "cpu"))
        except (WefpeError, OSError) as error:
            known = f"verification not known: {error}"
        return f"<{type(self).__name__} {self.name!r}, {known}>"

    @property
    def capabilities(self) -> BackendCapabilities:
        """What it can do here. A class may assign a `BackendCapabilities` instead."""
        return BackendCapabilities()

    def from_numpy(self, array: Any, device: str | None = None) -> Any:
        """A NumPy array as an argument of this backend, on one of the devices it names."""
        return array

    def to_numpy(self, value: Any) -> Any:
        """A value of this backend as a NumPy array, or as what ``numpy.asarray`` makes one of.

        It is on the host and has no gradients.
        """
        return value

    def wp(self, z: Any, lattice: Lattice) -> Array_co:
        r"""Weierstrass's :math:`\wp(z)`: even, periods 2 omega1 and 2 omega3 (DLMF 23.2.4).

        Parameters
        ----------
        z
            Numbers, lists or arrays of the backend's library, real or complex, of any shape. They
            broadcast against the half-periods if these are tensors.
        lattice
            The half-periods; tensors carry gradients, and so does z.

        Returns
        -------
        array
            Complex values of the broadcast shape, in the precision and on the device of z: float32
            and complex64 give complex64, everything else complex128. Lattice points, which are
            double poles, give ``inf+nanj``; NaN and infinite numbers NaN, and so do points beyond
            2^26 periods in double and 2^17 in single precision.

        Notes
        -----
        The error is at most 4 eps of :math:`|f| + |z_r f'| + p^{-2}` in complex128, 6 in complex64,
        where z_r is z minus the nearest lattice point and p the shortest period
        (``verification/contracts.toml``, and ``wefpe verify`` on your machine).

        Examples
        --------
        It satisfies :math:`\wp'^2 = 4\wp^3 - g_2\wp - g_3`:

        >>> from wefpe_core import get_backend
        >>> backend, lattice = get_backend("numpy"), Lattice(1.0, 0.3 + 0.9j)
        >>> p, dp = backend.wp(0.25, lattice), backend.wp_prime(0.25, lattice)
        >>> g2, g3 = backend.invariants(lattice)
        >>> bool(abs(dp**2 - (4 * p**3 - g2 * p - g3)) < 1e-15 * abs(dp) ** 2)
        True
        """
        return self.wp_and_prime(z, lattice)[0]

    def wp_prime(self, z: Any, lattice: Lattice) -> Array_co:
        r"""The derivative :math:`\wp'(z)`: odd, with triple poles (DLMF 23.3.10).

        It takes and returns what `wp` does: numbers, lists or arrays of any shape, and complex
        values of that shape, in the precision and on the device of z, ``inf+nanj`` at lattice
        points. The error is relative to :math:`|f| + |z_r f'| + p^{-3}`, with the ceilings of `wp`.

        Examples
        --------
        Its zeros are the half-periods:

        >>> from wefpe_core import get_backend
        >>> bool(abs(get_backend("numpy").wp_prime(1.0, Lattice(1, 1j))) < 1e-14)
        True
        """
        return self.wp_and_prime(z, lattice)[1]

    @abstractmethod
    def wp_and_prime(self, z: Any, lattice: Lattice) -> tuple[Array_co, Array_co]:
        r"""Both :math:`\wp(z)` and :math:`\wp'(z)`, for little more than the price of one.

        It takes what `wp` does and returns the pair of what `wp` and `wp_prime` return: complex
        values of the shape, precision and device of z, ``inf+nanj`` at lattice points.

        Examples
        --------
        >>> from wefpe_core import get_backend
        >>> backend, lattice = get_backend("numpy"), Lattice(1, 1j)
        >>> p, dp = backend.wp_and_prime([0.25, 0.5j], lattice)
        >>> bool((p == backend.wp([0.25, 0.5j], lattice)).all())
        True
        """

    @abstractmethod
    def zeta(self, z: Any, lattice: Lattice) -> Array_co:
        r""":math:`\zeta(z)`: odd, :math:`\zeta' = -\wp`, grows by 2 eta_k per period (23.2.11).

        Far from 0 the multiples of eta1 and eta3 may cancel. On a lattice of numbers the sum keeps
        its digits. On a lattice of tensors the rounding errors of both quasi-periods remain in it.

        It takes what `wp` does and returns complex values of the shape, precision and device of z.
        Lattice points, which are simple poles, give ``inf+nanj``; NaN and infinite numbers NaN. The
        error is at most 6 eps of :math:`|f| + |z_r f'| + p^{-1}`.

        Examples
        --------
        >>> from wefpe_core import get_backend
        >>> backend, lattice = get_backend("numpy"), Lattice(1.0, 0.3 + 0.9j)
        >>> eta1, eta3 = backend.quasi_periods(lattice)
        >>> bool(abs(backend.zeta(2.25, lattice) - backend.zeta(0.25, lattice) - 2 * eta1) < 1e-14)
        True
        """

    @abstractmethod
    def sigma(self, z: Any, lattice: Lattice) -> Array_co:
        r""":math:`\sigma(z)`: entire, odd, :math:`\sigma'/\sigma = \zeta` (DLMF 23.2.8).

        It takes what `wp` does and returns complex values of the shape, precision and device of z.
        Its zeros are the lattice points. It grows like :math:`e^{c|z|^2}` and is ``inf+nanj`` where
        it overflows; `log_sigma` goes on there. NaN and infinite numbers give NaN. The error is at
        most 6 eps of :math:`|f| + |z f'|`.

        Examples
        --------
        DLMF 23.10.3:

        .. math:: \wp(z) - \wp(w) = -\sigma(z+w)\sigma(z-w)/\sigma(z)^2\sigma(w)^2

        >>> from wefpe_core import get_backend
        >>> backend, lattice = get_backend("numpy"), Lattice(1, 1j)
        >>> s = backend.sigma([0.3, 0.4, 0.7, -0.1], lattice)
        >>> p = backend.wp([0.3, 0.4], lattice)
        >>> bool(abs(p[0] - p[1] + s[2] * s[3] / (s[0] * s[1]) ** 2) < 1e-14)
        True
        """

    @abstractmethod
    def inverse_wp(self, w: Any, lattice: Lattice, wp_prime: Any = None) -> Array_co:
        r"""A solution z of :math:`\wp(z) = w`.

        Of the two solutions modulo the lattice, the one returned has
        :math:`z = s\,2w_1 + r\,2w_3` in the reduced basis with :math:`0 \le r \le 1/2`,
        :math:`-1/2 < {\rm Re}(z/2w_1) \le 1/2`. On the edges r = 0 and r = 1/2, where both
        qualify, it is the one with the larger :math:`{\rm Re}(z/2w_1)`. What lies within 16 eps
        of an edge or a side counts as on it. Infinite `w` gives 0. (The reduced basis is that of
        `Lattice.reduced`. Of a lattice of tensors that is hexagonal but for rounding, it is one of
        the three with vectors of equal length.)

        `w` is a number, list or array of any shape, and z has its shape, precision and device; NaN
        gives NaN. The error is at most 16 eps of :math:`|z| + |w\,dz/dw|`.

        With `wp_prime` it is *the* solution z or -z whose :math:`\wp'` is nearer to that, so the
        elliptic logarithm of the point (w, wp_prime) of the curve, with :math:`|r| \le 1/2`.
        Whether the point lies on the curve is not checked: `wp_prime` decides the sign and nothing
        else. NaN in it gives NaN.

        Examples
        --------
        >>> from wefpe_core import get_backend
        >>> backend, lattice = get_backend("numpy"), Lattice(1, 1j)
        >>> z = backend.inverse_wp(2.0 + 1j, lattice)
        >>> bool(abs(backend.wp(z, lattice) - (2 + 1j)) < 1e-14)
        True
        """

    def inverse_wp_real(self, w: Any, lattice: Lattice) -> Array_co:
        r"""The smallest positive solution of :math:`\wp(z) = w` for real w, on a real lattice.

        It is 0 < z <= omega for w at least e, the largest real root and value at the real
        half-period omega. NaN where w is smaller, since no real z has such a value, or not real.
        Infinite w gives 0. `w` is a number, list or array of any shape, of real or complex type;
        values are real, of its shape and precision, on its device.

        Raises
        ------
        LatticeError
            If the lattice is not equal to its complex conjugate, or holds tensors.

        Examples
        --------
        >>> from wefpe_core import get_backend
        >>> z = get_backend("numpy").inverse_wp_real(0.5, Lattice.lemniscatic())
        >>> bool(abs(z - Lattice.lemniscatic().omega1) < 1e-7)  # a double value
        True
        """
        not_offered(self, "inverse_wp_real")

    def abel_jacobi(self, x: Any, y: Any, g2: Any, g3: Any) -> Array_co:
        r"""The elliptic logarithm z of a point of :math:`y^2 = 4x^3 - g_2 x - g_3`.

        :math:`\wp(z) = x` and :math:`\wp'(z) = y` on ``lattice_from_invariants(g2, g3)``, modulo
        which z is determined. It is `inverse_wp` with `wp_prime`, and says the same about points
        that are not on the curve. The point at infinity, ``x = inf``, gives 0. All four are numbers
        or arrays of the backend's library; x and y broadcast, and z has their precision and device.

        Examples
        --------
        >>> from wefpe_core import get_backend
        >>> backend = get_backend("numpy")
        >>> z = backend.abel_jacobi(2.0, 28**0.5, 2.0, 0.0)  # y^2 = 4 x^3 - 2 x
        >>> p, dp = backend.wp_and_prime(z, backend.lattice_from_invariants(2.0, 0.0))
        >>> bool(abs(p - 2) + abs(dp - 28**0.5) < 1e-14)
        True
        """
        return self.inverse_wp(x, self.lattice_from_invariants(g2, g3), wp_prime=y)

    @abstractmethod
    def green(self, z: Any, lattice: Lattice) -> Array_co:
        r"""Green function of the torus: real, even, doubly periodic.

        :math:`G(z) = -\log|\sigma(z)| + \tfrac12{\rm Re}(G_2^* z^2) + \tfrac{\pi}{2A}|z|^2`
        with :math:`A` the cell area and :math:`G_2^*` the constant that makes it periodic, so
        that :math:`\Delta G = 2\pi/A - 2\pi\delta_\Lambda` and :math:`G(z) \to -\log|z|` at 0.
        It is ``+inf`` at lattice points.

        It takes what `wp` does and returns real values of the shape and on the device of z: float32
        for float32 and complex64, else float64. NaN and infinite numbers give NaN. The error is
        at most 6 eps of :math:`|f| + 1`.

        Examples
        --------
        >>> from wefpe_core import get_backend
        >>> backend, lattice = get_backend("numpy"), Lattice(1.0, 0.3 + 0.9j)
        >>> bool(abs(backend.green(0.25, lattice) - backend.green(2.85 + 1.8j, lattice)) < 1e-14)
        True
        """

    @abstractmethod
    def invariants(self, lattice: Lattice) -> tuple[Array_co, Array_co]:
        """Invariants ``(g2, g3)`` (DLMF 23.3.1-23.3.2).

        Those of a lattice of numbers are rounded once from fifty digits, and scalars, on the host.
        Tensors give tensors of their shape and device, with gradients, within some units in the
        last place of the sizes of g2 and g3; where they span no lattice the values are NaN.

        Examples
        --------
        >>> from wefpe_core import get_backend
        >>> g2, g3 = get_backend("numpy").invariants(Lattice.lemniscatic(g2=4.0))
        >>> round(float(g2.real), 12), float(abs(g3)) < 1e-12
        (4.0, True)
        """

    @abstractmethod
    def roots(self, lattice: Lattice) -> tuple[Array_co, Array_co, Array_co]:
        """Roots ``(e1, e2, e3)`` with e_k = wp(omega_k); their sum is 0 (DLMF 23.3.5).

        What is said of `invariants` about precision, tensors and NaN holds for them too.

        Examples
        --------
        >>> from wefpe_core import get_backend
        >>> e1, e2, e3 = get_backend("numpy").roots(Lattice(1.0, 0.3 + 0.9j))
        >>> bool(abs(e1 + e2 + e3) < 1e-15 * abs(e1))
        True
        """

    @abstractmethod
    def quasi_periods(self, lattice: Lattice) -> tuple[Array_co, Array_co]:
        """``(eta1, eta3)``: eta_k = zeta(omega_k), eta1 omega3 - eta3 omega1 = i pi/2 (23.2.14).

        What is said of `invariants` about precision, tensors and NaN holds for them too.

        Examples
        --------
        >>> from wefpe_core import get_backend
        >>> lattice = Lattice(1.0, 0.3 + 0.9j)
        >>> eta1, eta3 = get_backend("numpy").quasi_periods(lattice)
        >>> residual = eta1 * lattice.omega3 - eta3 * lattice.omega1 - 1.5707963267948966j
        >>> bool(abs(residual) < 1e-15)
        True
        """

    @abstractmethod
    def lattice_from_invariants(self, g2: Any, g3: Any) -> Lattice:
        """Lattice with these invariants, in the backend's own precision.

        Numbers give the basis of `Lattice.from_invariants`: if both are real, omega1 is positive
        and Re tau is 0 or 1/2; otherwise the basis is reduced. Torch tensors always give complex
        tensors with the reduced basis up to rounding, which need not contain a real half-period
        even if the invariants are real. A discriminant of zero raises `LatticeError`; tensors are
        not inspected, and their half-periods become NaN.

        Examples
        --------
        >>> from wefpe_core import get_backend
        >>> backend = get_backend("numpy")
        >>> g2, g3 = backend.invariants(backend.lattice_from_invariants(3.0, 0.5 + 1j))
        >>> bool(abs(g2 - 3) + abs(g3 - (0.5 + 1j)) < 1e-14)
        True
        """

    @abstractmethod
    def lattice_sum(
        self, z: Any, lattice: Lattice, m_max: int, n_max: int
    ) -> tuple[Array_co, Array_co]:
        r"""Truncated defining series over :math:`|m|\le` `m_max`, :math:`|n|\le` `n_max`.

        .. math:: \frac1{z^2} + \sum_{\omega\ne0}\Bigl[\frac1{(z-\omega)^2}-\frac1{\omega^2}\Bigr],
                  \qquad -2\sum_\omega \frac1{(z-\omega)^3}, \qquad \omega = 2m\omega_1+2n\omega_3.

        The sum is taken as it is written, without reduction or clamps, for comparison.
        `wefpe_core.bounds` says how far it is from the functions. It takes and returns what
        `wp_and_prime` does, in the precision of z, and is infinite at lattice points of the box.
        `m_max` and `n_max` are positive integers, else `InputError`. The error of the addition is
        at most 2 eps of the sum of the absolute terms.

        Examples
        --------
        >>> from wefpe_core import get_backend
        >>> backend, lattice = get_backend("numpy"), Lattice(1, 1j)
        >>> p, dp = backend.lattice_sum(0.3 + 0.2j, lattice, 50, 50)
        >>> bool(1e-8 < abs(p - backend.wp(0.3 + 0.2j, lattice)) < 1e-3)
        True
        """

    @abstractmethod
    def add(
        self, p1: Any, dp1: Any, p2: Any, dp2: Any, lattice: Lattice
    ) -> tuple[Array_co, Array_co]:
        r"""``(wp, wp')`` at z1+z2 from their values at z1 and z2 (DLMF 23.10.1).

        Safe where the textbook quotient is 0/0 (z1 = z2) and where an argument or the
        result is a lattice point (complex infinity). The values are numbers or arrays of the
        backend's library, which broadcast; the results have their precision and device, and NaN
        where a value is NaN. The error is at most 4 eps of what a relative eps of each of the four
        numbers causes.

        Examples
        --------
        >>> from wefpe_core import get_backend
        >>> backend, lattice = get_backend("numpy"), Lattice(1, 1j)
        >>> here = backend.wp_and_prime(0.3, lattice)
        >>> twice, _ = backend.add(*here, *here, lattice)
        >>> bool(abs(twice - backend.wp(0.6, lattice)) < 1e-14)
        True
        """

    # Functions that a backend may lack: one that does raises `UnsupportedFunctionError`.

    def wp_derivative(self, z: Any, lattice: Lattice, n: int) -> Array_co:
        r"""The n-th derivative of :math:`\wp` at z; n = 2 is :math:`\wp''`.

        It keeps :math:`\wp^{(n+2)} = 6\sum_j\binom nj\wp^{(j)}\wp^{(n-j)}` for n >= 1 and
        :math:`\wp'' = 6\wp^2 - g_2/2` (DLMF 23.3.12). It is even in z for even n, else odd.

        Parameters
        ----------
        z
            What `wp` takes; precision and device follow it. Lattice points give complex infinity,
            NaN and infinite numbers NaN.
        lattice
            The periods of the function.
        n
            An integer from 0 to 20, else `InputError`.

        Notes
        -----
        The error is some units in the last place of :math:`|f| + |z_r f'| + p^{-n-2}`; the report
        has it for n = 2, 3 and 6.

        Examples
        --------
        >>> from wefpe_core import get_backend
        >>> backend, lattice = get_backend("numpy"), Lattice(1, 1j)
        >>> bool(backend.wp_derivative(0.3, lattice, 1) == backend.wp_prime(0.3, lattice))
        True
        """
        not_offered(self, "wp_derivative")

    def log_sigma(self, z: Any, lattice: Lattice) -> Array_co:
        r"""The principal logarithm of :math:`\sigma(z)`, also where :math:`\sigma` overflows.

        The real part is :math:`\log|\sigma(z)|`. The imaginary part lies in :math:`(-\pi, \pi]`,
        and jumps by :math:`2\pi` where :math:`\sigma` is negative. Away from there the function is
        continuous and its derivative is :math:`\zeta`.

        Parameters
        ----------
        z
            What `sigma` takes; precision and device follow it. Lattice points, the zeros of
            :math:`\sigma`, give ``-inf+nanj``; NaN and infinite numbers NaN.
        lattice
            The periods.

        Notes
        -----
        The error is some units in the last place of :math:`1 + |f| + |z\zeta(z)|`: far away the
        imaginary part is what is left of a number of the order :math:`|z|^2`.

        Examples
        --------
        >>> from wefpe_core import get_backend
        >>> value = get_backend("numpy").log_sigma(100.5, Lattice(1, 1j))
        >>> round(float(value.real), 6)
        3965.564492
        """
        not_offered(self, "log_sigma")

    def modified_zeta(self, z: Any, lattice: Lattice) -> Array_co:
        r"""Haldane's :math:`\tilde\zeta(z) = \zeta(z) - G_2^* z - \pi\bar z/A`: doubly periodic.

        :math:`A` is the area of the cell and
        :math:`G_2^* = 2\eta_1/2\omega_1 - \pi\bar\omega_1/(A\omega_1)`, which is the same in every
        basis. It is odd, not holomorphic, and :math:`-2\,\partial_z` of the Green function.

        Parameters
        ----------
        z
            What `zeta` takes; precision and device follow it. Lattice points give complex
            infinity, NaN and infinite numbers NaN.
        lattice
            The periods.

        Notes
        -----
        The error is some units in the last place of :math:`|f| + |z_r\wp(z)| + 1/p`, also far away:
        no quasi-period is added.

        Examples
        --------
        >>> from wefpe_core import get_backend
        >>> abs(complex(get_backend("numpy").modified_zeta(1.0, Lattice(1, 1j)))) < 1e-15
        True
        """
        not_offered(self, "modified_zeta")

    def modified_sigma(self, z: Any, lattice: Lattice) -> Array_co:
        r"""Haldane's :math:`\tilde\sigma(z) = e^{-G_2^*z^2/2}\,\sigma(z)`, the same in every basis.

        For a period L, :math:`\tilde\sigma(z+L) = \xi_L\,e^{\pi\bar L(z + L/2)/A}\,
        \tilde\sigma(z)` with :math:`\xi_L = 1` if L/2 is a period, else -1, so that
        :math:`e^{-\pi|z|^2/2A}|\tilde\sigma(z)|` is doubly periodic. It is :math:`e^{-G(z)}` with
        the Green function. :math:`G_2^*` and A are those of `modified_zeta`
        (F. D. M. Haldane, J. Math. Phys. 59, 071901, 2018).

        Parameters
        ----------
        z
            What `sigma` takes; precision and device follow it. The value is 0 at lattice points,
            ``inf+nanj`` where it overflows, and NaN for NaN and infinite numbers.
        lattice
            The periods.

        Notes
        -----
        It is entire in z. The error is some units in the last place of :math:`|f| + |zf'|`, as for
        `sigma`.

        Examples
        --------
        >>> from wefpe_core import get_backend
        >>> backend, square = get_backend("numpy"), Lattice(1, 1j)
        >>> bool(abs(backend.modified_sigma(0.3, square) - backend.sigma(0.3, square)) < 1e-15)
        True
        """
        not_offered(self, "modified_sigma")

    def heat(self, z: Any, t: Any, lattice: Lattice) -> Array_co:
        r"""Heat kernel of the torus: real, positive, even, doubly periodic, of integral 1.

        .. math:: K_t(z) = \frac1{2\pi t}\sum_{w\in\Lambda} e^{-|z+w|^2/2t}
                  = \frac1A\sum_{k\in\Lambda^*} e^{-2\pi^2t|k|^2}\cos 2\pi{\rm Re}(\bar kz),

        with :math:`A` the area of the cell: :math:`\partial_tK = \frac12\Delta K`. For small t it
        is the Gaussian of variance t per axis around each lattice point, for large t it is 1/A.
        :math:`\pi\int_0^\infty(K_t(z) - 1/A)\,dt` is the Green function up to a constant. On a
        rectangular lattice it strictly decreases in :math:`|{\rm Re}\,z|` and
        :math:`|{\rm Im}\,z|` up to half a period.

        Parameters
        ----------
        z
            What `wp` takes; precision and device follow it. NaN and infinite numbers give NaN.
        t
            Times, which broadcast with z. Where t is no positive finite number the value is NaN.
        lattice
            The periods.

        Notes
        -----
        The error is some units in the last place of :math:`(1 + |\log K|)K`. Far from the lattice
        points K underflows if t is small; `log_heat` does not.

        Examples
        --------
        >>> from wefpe_core import get_backend
        >>> round(float(get_backend("numpy").heat(0.3, 100.0, Lattice(1, 1j))), 12)
        0.25
        """
        not_offered(self, "heat")

    def log_heat(self, z: Any, t: Any, lattice: Lattice) -> Array_co:
        r"""The logarithm of `heat`, also where that underflows: about :math:`-|z|^2/2t` there.

        Parameters
        ----------
        z, t, lattice
            As in `heat`.

        Notes
        -----
        The error is some units in the last place of :math:`1 + |\log K| + |\log t|`.

        Examples
        --------
        >>> from wefpe_core import get_backend
        >>> float(get_backend("numpy").log_heat(1.0, 1e-6, Lattice(1, 1j)).round(2))
        -499987.33
        """
        not_offered(self, "log_heat")

    def laurent_coefficients(self, lattice: Lattice, count: int) -> Array_co:
        r"""The coefficients :math:`c_2, c_3, \dots` of :math:`\wp(z) = z^{-2} + \sum c_k z^{2k-2}`.

        :math:`c_k = (2k-1)G_{2k}`, so that :math:`c_2 = g_2/20` and :math:`c_3 = g_3/28`
        (DLMF 23.9.1-23.9.4). The series converges up to the nearest period.

        Parameters
        ----------
        lattice
            The periods; tensors carry gradients.
        count
            How many coefficients, a positive integer. They are along the last dimension.

        Notes
        -----
        Those of a lattice of numbers are rounded once, from fifty digits. Of tensors they
        have an error of some units in the last place of :math:`(\pi/p)^{2k}`.

        Examples
        --------
        >>> from wefpe_core import get_backend
        >>> get_backend("numpy").laurent_coefficients(Lattice.lemniscatic(20.0), 1).real.round(12)
        array([1.])
        """
        not_offered(self, "laurent_coefficients")


def check_order(n: int) -> int:
    """Validate the order of a derivative."""
    if isinstance(n, bool) or not hasattr(n, "__index__") or not 0 <= n <= LARGEST_ORDER:
        raise InputError(f"n must be an integer from 0 to {LARGEST_ORDER}, got {n!r}")
    return int(n)


def check_count(count: int) -> int:
    """Validate a number of coefficients."""
    if isinstance(count, bool) or not hasattr(count, "__index__") or count < 1:
        raise InputError(f"count must be a positive integer, got {count!r}")
    return int(count)


def check_truncation(m_max: int, n_max: int) -> tuple[int, int]:
    """Validate truncation sizes: positive integers, not bools."""
    for name, value in (("m_max", m_max), ("n_max", n_max)):
        if isinstance(value, bool) or not hasattr(value, "__index__") or value < 1:
            raise InputError(f"{name} must be a positive integer, got {value!r}")
    return int(m_max), int(n_max)


def check_lattice(lattice: object) -> None:
    """Raise `InputError` for anything but a `Lattice`, and its own error for a degenerate one."""
    if isinstance(lattice, DegenerateLattice):
        raise DegenerateLatticeError(f"this function is not offered on {lattice!r}")
    if not isinstance(lattice, Lattice):
        raise InputError(
            f"expected a Lattice, got {lattice!r}; for half-periods write Lattice(omega1, omega3)"
        )


def check_unmasked(z: object) -> None:
    """Raise `InputTypeError` for a masked array: no backend hands a mask on to its values."""
    if hasattr(z, "mask") and hasattr(z, "filled"):
        raise InputTypeError(
            "a masked array would lose its mask; pass z.filled(nan), which gives NaN where z is "
            "masked, or z.compressed()"
        )


def instead_of_exact(z: Any) -> str:
    """The end of a message: what to do with a number of mpmath, a Decimal or a Fraction."""
    if getattr(getattr(z, "dtype", None), "kind", "") == "O":
        z = z.ravel().tolist()
    while isinstance(z, (list, tuple)) and z:
        z = z[0]
    is_number = isinstance(z, numbers.Number) and not isinstance(z, int)  # too large, if at all
    return "; use complex(z) or the mpmath backend" if is_number else ""


def check_real_lattice(lattice: Lattice) -> None:
    """Raise `LatticeError` unless complex conjugation maps the lattice to itself, exactly."""
    check_lattice(lattice)
    first, third = lattice.exact
    area = cross(first, third)
    for omega in (first, third):
        mirrored = GaussianRational(omega.re, -omega.im)
        coordinates = (cross(mirrored, third) / area, cross(first, mirrored) / area)
        if any(number.denominator != 1 for number in coordinates):
            raise LatticeError(f"{lattice!r} is not equal to its complex conjugate")
