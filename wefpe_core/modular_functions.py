r"""Modular functions of tau, as every backend offers them.

`AbstractBackend` inherits from this class. A backend that lacks a function raises
`UnsupportedFunctionError`.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from typing import Any, ClassVar, Generic

from wefpe_core.docstrings import says_of_each_function
from wefpe_core.errors import InputError
from wefpe_core.jacobi_functions import Array_co, not_offered
from wefpe_core.lattice import Lattice

LARGEST_WEIGHT = 32

_OF_EACH = r"""
The argument is a number, list, array or tensor of the backend's own kind, of any shape. Values are
complex, of its shape and precision, on its device; NaN where it is NaN or infinite or, as a tau,
not in the upper half plane. The error is at most 6 eps of :math:`|f| + |\tau f'|`
(``verification/contracts.toml``).
"""


@says_of_each_function(_OF_EACH)
class ModularFunctions(Generic[Array_co]):
    r"""Klein's j, Dedekind's :math:`\eta`, :math:`\lambda` and Eisenstein series.

    `tau` is a number, sequence, array or tensor of the backend's own kind, of any shape, anywhere
    in the upper half plane; it is moved to the fundamental domain and the multiplier of the move
    is applied. Values are complex, of the precision and on the device of `tau`. In torch they are
    differentiable. They are exactly real on the imaginary axis, and j and the :math:`E_k` on the
    lines Re tau = 1/2 + n as well, if a shift alone moves tau into the fundamental domain.

    NaN where Im tau is not positive, where tau is NaN or infinite, and where Im tau is so much
    smaller than :math:`|{\rm Re}\,\tau|` that the digits of tau do not tell where it is (about eps
    times as large). mpmath and flint, which take numbers as exact, answer there too.

    Errors are measured against :math:`|f| + |\tau f'|`, the effect of a relative change of tau.
    """

    name: ClassVar[str]

    def klein_j(self, tau: Any) -> Array_co:
        r"""Klein's invariant with :math:`j(i) = 1728` and :math:`j = 1/Q + 744 + \cdots`.

        mpmath's ``kleinj`` and Mathematica's ``KleinInvariantJ`` are j/1728. Where j overflows
        (Im tau beyond 113 in double precision) the value is ``inf+nanj``.

        Examples
        --------
        >>> from wefpe_core import get_backend
        >>> backend = get_backend("numpy")
        >>> abs(backend.klein_j(1j) - 1728) < 1e-11
        np.True_
        >>> abs(backend.klein_j((2j + 1) / (1j + 1)) - 1728) < 1e-11  # the same lattice
        np.True_
        """
        not_offered(self, "klein_j")

    def inverse_klein_j(self, j: Any) -> Array_co:
        r"""The tau of the fundamental domain with :math:`j(\tau) =` `j`.

        The domain is -1/2 < Re tau <= 1/2, \|tau\| >= 1, with Re tau >= 0 where \|tau\| = 1; what
        lies within 16 eps of its boundary counts as on it. j = 0 gives exp(i pi/3), j = 1728
        gives i. There the derivative is infinite. NaN and infinite j give NaN.

        Examples
        --------
        >>> from wefpe_core import get_backend
        >>> backend = get_backend("numpy")
        >>> tau = backend.inverse_klein_j(500 + 300j)
        >>> bool(abs(backend.klein_j(tau) - (500 + 300j)) < 1e-11)
        True
        """
        not_offered(self, "inverse_klein_j")

    def dedekind_eta(self, tau: Any) -> Array_co:
        r"""Dedekind's :math:`\eta = e^{i\pi\tau/12}\prod(1 - Q^n)`, :math:`Q = e^{2\pi i\tau}`.

        :math:`\eta(\tau+1) = e^{i\pi/12}\eta(\tau)` and
        :math:`\eta(-1/\tau) = \sqrt{-i\tau}\,\eta(\tau)`. flint calls it ``modular_eta``.

        Examples
        --------
        >>> from wefpe_core import get_backend
        >>> here, turned = get_backend("numpy").dedekind_eta([2j, 0.5j])
        >>> bool(abs(turned - 2**0.5 * here) < 1e-15)
        True
        """
        not_offered(self, "dedekind_eta")

    def modular_lambda(self, tau: Any) -> Array_co:
        r""":math:`\lambda = \theta_2^4/\theta_3^4`: the parameter m with iK(1-m)/K(m) = tau.

        :math:`\lambda(-1/\tau) = 1 - \lambda`, :math:`\lambda(\tau+1) = \lambda/(\lambda-1)`.

        Examples
        --------
        >>> from wefpe_core import get_backend
        >>> here, turned = get_backend("numpy").modular_lambda([2j, 0.5j])
        >>> bool(abs(here + turned - 1) < 1e-15)
        True
        """
        not_offered(self, "modular_lambda")

    def eisenstein(self, k: int, tau: Any) -> Array_co:
        r"""Normalised :math:`E_k = 1 - (2k/B_k)\sum_{n\ge1}\sigma_{k-1}(n)Q^n`, k = 2, 4, ..., 32.

        For k >= 4 a modular form: :math:`E_k(-1/\tau) = \tau^k E_k(\tau)`. E2 is not quite one:
        :math:`E_2(-1/\tau) = \tau^2 E_2(\tau) - 6i\tau/\pi`.

        Raises
        ------
        InputError
            If k is not an even integer from 2 to 32.

        Examples
        --------
        >>> from wefpe_core import get_backend
        >>> here, turned = get_backend("numpy").eisenstein(4, [2j, 0.5j])
        >>> bool(abs(turned - 2**4 * here) < 1e-13)
        True
        """
        not_offered(self, "eisenstein")

    def eisenstein_series(self, k: int, lattice: Lattice) -> Array_co:
        r""":math:`G_k = \sum w^{-k}` over the nonzero periods w, for even k from 2 to 32.

        :math:`g_2 = 60 G_4` and :math:`g_3 = 140 G_6`. For k = 2 the sum is taken in Eisenstein's
        order, along omega1 first, and depends on the basis; it is eta1/omega1.
        On a lattice of numbers the value is rounded once, from fifty digits; half-periods that are
        tensors give tensors of their shape, with gradients, and NaN where they span no lattice.

        Parameters
        ----------
        k
            An even integer from 2 to 32, else `InputError`.
        lattice
            The periods.

        Examples
        --------
        >>> from wefpe_core import get_backend
        >>> backend, lattice = get_backend("numpy"), Lattice(1.0, 0.3 + 0.9j)
        >>> g2, _ = backend.invariants(lattice)
        >>> bool(abs(60 * backend.eisenstein_series(4, lattice) - g2) < 1e-14)
        True
        """
        not_offered(self, "eisenstein_series")


def check_weight(k: Any) -> int:
    """The weight of an Eisenstein series, or InputError."""
    is_integer = not isinstance(k, bool) and hasattr(k, "__index__")
    if not is_integer or k % 2 or not 2 <= k <= LARGEST_WEIGHT:
        raise InputError(f"k must be an even integer from 2 to {LARGEST_WEIGHT}, got {k!r}")
    return int(k)


@cache
def eisenstein_coefficient(k: int) -> Fraction:
    """-2k/B_k, the factor of the series of E_k."""
    return Fraction(-2 * k) / _bernoulli(k)


@cache
def _bernoulli(n: int) -> Fraction:
    if n == 0:
        return Fraction(1)
    total = sum((math.comb(n + 1, k) * _bernoulli(k) for k in range(n)), Fraction(0))
    return -total / (n + 1)
