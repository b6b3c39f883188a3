r"""Theta functions and Jacobi's elliptic functions, as every backend offers them.

`AbstractBackend` inherits from this class. A backend that lacks a function raises
`UnsupportedFunctionError`, so that backends written before this class still work.
"""

from __future__ import annotations

import numbers
from typing import Any, ClassVar, Generic, NoReturn, TypeVar

from wefpe_core.docstrings import says_of_each_function
from wefpe_core.errors import (
    InputError,
    InputTypeError,
    UnsupportedFunctionError,
    did_you_mean,
)
from wefpe_core.lattice import Lattice

Array_co = TypeVar("Array_co", covariant=True)

_OF_EACH = """
Arguments are real or complex numbers, lists, arrays or tensors of the backend's own kind, which
broadcast. Values are complex, in the precision of the widest array or tensor, on its device; poles
are ``inf+nanj`` in arrays, and arguments that are NaN or infinite give NaN.
"""

# The highest derivative of a theta function.
MAX_DERIVATIVE = 4
# Glaisher's names: a quotient of two of the letters s, c, d, n.
JACOBI_KINDS = tuple(p + q for p in "scdn" for q in "scdn" if p != q)


def not_offered(backend: Any, function: str) -> NoReturn:
    """Raise the error that a backend does not offer a function."""
    raise UnsupportedFunctionError(f"the backend {backend.name!r} does not offer {function}")


@says_of_each_function(_OF_EACH)
class JacobiFunctions(Generic[Array_co]):
    r"""Theta functions, Jacobi's elliptic functions, and sigma1 to sigma3.

    All arguments broadcast against each other, scalars give scalars, and the values are complex,
    also of real arguments; where a function is real, their imaginary parts are exactly 0. Precision
    follows the widest array among the arguments; a Python number beside an array is exact and does
    not widen it. NaN or infinite arguments give NaN there and nowhere else. Poles are complex
    infinity, written ``inf+nanj`` in arrays.

    The parameter is :math:`m = k^2`, as in SciPy, not the modulus k. If m, tau or the nome is a
    Python or NumPy number, the constants that depend on it are rounded once from fifty digits. An
    array or tensor of them is evaluated element by element in its own precision. Torch tensors
    carry gradients of any order in all arguments.
    """

    name: ClassVar[str]

    def jtheta(
        self, n: int, z: Any, tau: Any = None, derivative: int = 0, *, nome: Any = None
    ) -> Array_co:
        r""":math:`\theta_n(z|\tau)` for n = 1, 2, 3, 4, or a derivative of it in z (DLMF 20.2).

        .. math:: \theta_1 = 2\sum_{k\ge0}(-1)^kq^{(k+1/2)^2}\sin(2k+1)z, \qquad
                  \theta_3 = 1 + 2\sum_{k\ge1}q^{k^2}\cos2kz, \qquad q = e^{i\pi\tau}

        As in mpmath, zeros are :math:`\pi` apart.

        Parameters
        ----------
        n
            1, 2, 3 or 4.
        z
            Any complex numbers, lists, arrays or tensors; precision and device follow it. NaN and
            infinite numbers give NaN.
        tau
            Im tau > 0. An array gives NaN elsewhere.
        derivative
            The order of the derivative in z, 0 to 4.
        nome
            q with \|q\| < 1, in place of tau: tau is :math:`\log q/i\pi` with the principal
            logarithm, so :math:`q^{1/4}` is the principal root. For q = 0, theta_1 and theta_2
            are 0 and the others 1.

        Returns
        -------
        array
            Complex values; complex infinity where they overflow (see `log_jtheta`), 0 where they
            underflow. The error is at most 8 eps of :math:`|f|+|zf_z|+|\tau f_\tau|` (see
            ``verification/contracts.toml``).

        Raises
        ------
        InputError
            If n or the derivative is out of range, not exactly one of tau and nome is given, or
            a number tau or nome is not in its domain (tau on the real axis, for example).

        Examples
        --------
        Jacobi's identity, :math:`\theta_3^4 = \theta_2^4 + \theta_4^4` at z = 0 (DLMF 20.7.5):

        >>> from wefpe_core import get_backend
        >>> t2, t3, t4 = (get_backend("mpmath").jtheta(n, 0, 0.3 + 0.8j) for n in (2, 3, 4))
        >>> abs(t3**4 - t2**4 - t4**4) < 1e-14
        True
        """
        not_offered(self, "jtheta")

    def log_jtheta(self, n: int, z: Any, tau: Any = None, *, nome: Any = None) -> Array_co:
        r"""The principal logarithm of :math:`\theta_n(z|\tau)`, also where the value overflows.

        Arguments are those of `jtheta`. The imaginary part lies in :math:`[-\pi, \pi]`; next to
        the cut rounding decides between the ends. At a zero the value is ``-inf``. The error is at
        most 6 eps of \|log f\| + 1 plus what a relative eps of z and tau causes.

        Examples
        --------
        >>> from wefpe_core import get_backend
        >>> value = get_backend("numpy").log_jtheta(3, 400j, 1j)
        >>> f"{value.real:.6f}"
        '50929.542284'
        """
        not_offered(self, "log_jtheta")

    def ellipj(self, u: Any, m: Any) -> tuple[Array_co, Array_co, Array_co, Array_co]:
        r"""``(sn, cn, dn, am)`` of complex u with complex parameter m, named as in SciPy.

        sn, cn and dn are meromorphic in u and m, without any cut. With
        :math:`K = K(m)` and :math:`K' = K(1-m)` sn has the periods 4K and 2iK', cn 4K and
        2K + 2iK', dn 2K and 4iK'; their poles lie at :math:`iK' + 2jK + 2liK'`. For m = 0 they are
        sin, cos and 1, for m = 1 tanh, sech and sech, exactly. `jacobi_am` says which
        amplitude is taken. The error is at most 6 eps of
        :math:`|f| + |uf_u| + |mf_m|` (see ``verification/contracts.toml``).

        Examples
        --------
        >>> from wefpe_core import get_backend
        >>> sn, cn, dn, am = get_backend("mpmath").ellipj(0.5 + 0.25j, 2 - 1j)
        >>> abs(sn**2 + cn**2 - 1) < 1e-14, abs(dn**2 + (2 - 1j) * sn**2 - 1) < 1e-14
        (True, True)
        """
        not_offered(self, "ellipj")

    def jacobi(self, kind: str, u: Any, m: Any) -> Array_co:
        """One of the twelve functions: sn, cn, dn, ns, nc, nd, sc, sd, cs, cd, ds, dc.

        Each is the quotient of those its letters name (DLMF 22.2.10), as sc = sn/cn, but computed
        at once, so that it has no other poles or errors than its own. u = 0 is a pole of ns, cs
        and ds. See `ellipj`.

        Raises
        ------
        InputError
            If there is no function of that name.

        Examples
        --------
        >>> from wefpe_core import get_backend
        >>> nc, sc = (get_backend("numpy").jacobi(kind, 0.3, 0.5) for kind in ("nc", "sc"))
        >>> bool(abs(nc**2 - sc**2 - 1) < 1e-15)
        True
        """
        not_offered(self, "jacobi")

    def jacobi_am(self, u: Any, m: Any) -> Array_co:
        r"""Jacobi's amplitude, with sin am = sn, cos am = cn and am' = dn (DLMF 22.16).

        Of the values, which differ by multiples of :math:`2\pi`, it is the one whose real part is
        nearest to that of :math:`\pi u/2K(m)`; for real m >= 1 it is nearest to 0, because real u
        then has an amplitude that swings about 0. So it is continuous for real u and m, and real.
        K has its cut along real m > 1. At the poles of sn it is complex infinity.

        Examples
        --------
        >>> from wefpe_core import get_backend
        >>> import math
        >>> backend = get_backend("numpy")
        >>> am = backend.jacobi_am(7.0, 0.5).real
        >>> bool(abs(math.sin(am) - backend.jacobi("sn", 7.0, 0.5)) < 1e-15)
        True
        """
        not_offered(self, "jacobi_am")

    def sigma_k(self, k: int, z: Any, lattice: Lattice) -> Array_co:
        r""":math:`\sigma_k(z) = e^{-\eta_kz}\sigma(z+\omega_k)/\sigma(\omega_k)` for k = 1, 2, 3.

        They are even and entire, 1 at 0, and :math:`(\sigma_k/\sigma)^2 = \wp - e_k` (Whittaker and
        Watson, 20.42, who write :math:`\sigma_k` with this sign; DLMF has no name for them).
        Here :math:`\omega_2 = -\omega_1-\omega_3`, and :math:`\eta_2 = -\eta_1-\eta_3`.

        Raises
        ------
        InputError
            If k is not 1, 2 or 3.

        Examples
        --------
        >>> from wefpe_core import Lattice, get_backend
        >>> backend, lattice, z = get_backend("numpy"), Lattice(1.0, 0.3 + 0.9j), 0.4 + 0.1j
        >>> quotient = backend.sigma_k(2, z, lattice) / backend.sigma(z, lattice)
        >>> bool(abs(quotient**2 - backend.wp(z, lattice) + backend.roots(lattice)[1]) < 1e-13)
        True
        """
        not_offered(self, "sigma_k")


def check_index(name: str, value: Any, low: int, high: int) -> int:
    """Raise `InputError` unless `value` is an integer from `low` to `high`."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise InputError(f"{name} must be an integer from {low} to {high}, got {value!r}")
    if not low <= value <= high:
        raise InputError(f"{name} must be an integer from {low} to {high}, got {value}")
    return int(value)


def check_kind(kind: Any) -> str:
    """Raise `InputError` unless `kind` names one of Jacobi's functions."""
    if not isinstance(kind, str) or kind not in JACOBI_KINDS:
        hint = did_you_mean(kind, JACOBI_KINDS) if isinstance(kind, str) else ""
        raise InputError(
            f"there is no Jacobi function {kind!r}{hint}; there are {', '.join(JACOBI_KINDS)}"
        )
    return kind


def check_tau_or_nome(tau: Any, nome: Any) -> tuple[Any, bool]:
    """The one of the two that is given, and whether it is the nome.

    Raises
    ------
    InputError
        If both are given, or none, or if a number is outside its domain.
    """
    if (tau is None) == (nome is None):
        raise InputError(f"give either tau or nome: got tau={tau!r}, nome={nome!r}")
    if nome is not None:
        if is_number(nome) and not abs(nome) < 1:
            raise InputError(f"the nome must be less than 1 in modulus, got nome={nome!r}")
        return nome, True
    if is_number(tau) and not (0 < tau.imag < float("inf") and abs(tau.real) < float("inf")):
        raise InputError(f"tau must be finite with Im(tau) > 0, got tau={tau!r}")
    return tau, False


def is_number(value: Any) -> bool:
    """Whether `value` is one number, not an array; a bool raises `InputTypeError`."""
    if isinstance(value, bool):
        raise InputTypeError(f"expected a number, got {value!r}")
    return isinstance(value, numbers.Complex)
