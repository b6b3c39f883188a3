r"""Elliptic integrals of Legendre and Carlson, as every backend offers them.

`AbstractBackend` inherits from this class. A backend that lacks a function raises
`UnsupportedFunctionError`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Generic

from wefpe_core.docstrings import says_of_each_function
from wefpe_core.jacobi_functions import Array_co, not_offered

_OF_EACH = r"""
Arguments are real or complex numbers, lists, arrays or tensors of the backend's own kind, which
broadcast; m is the square of the modulus. Values are complex, in the precision of the widest
argument, on its device; infinite ones are ``inf+nanj`` in arrays, and arguments that are NaN or
infinite give NaN. On a cut, where m or n is real and beyond 1, or x, y or z negative, the value is
that below it in m and n and above it in x, y and z, as in mpmath, whatever the sign of a zero. The
error is at most 6 eps of :math:`|f| + \sum|x\,\partial f/\partial x|` over the arguments x
(``verification/contracts.toml``).
"""


@says_of_each_function(_OF_EACH)
class EllipticIntegrals(Generic[Array_co]):
    r"""Complete and incomplete integrals with *parameter* m, and Carlson's symmetric ones.

    The parameter is :math:`m = k^2`, as in SciPy and mpmath; who has the modulus k squares it.
    Arguments are numbers, sequences, arrays or tensors of the backend's own kind; they broadcast.
    Values are complex, of the precision of the widest argument, on the device of the first; the
    imaginary part is exactly 0 where the arguments are real and the integral is. In torch they are
    differentiable in every argument, except where a derivative is infinite.

    An infinite value is ``inf+nanj`` in arrays. A NaN or infinite argument gives NaN. Branch cuts
    have the values that mpmath gives them, whatever the sign of a zero: the integrals of
    Legendre are continuous from below in m > 1, those of Carlson from above in negative arguments.

    Errors are measured against :math:`|f| + \sum|x\,\partial f/\partial x|` over the arguments x.
    """

    name: ClassVar[str]

    def ellipk(self, m: Any) -> Array_co:
        r"""Complete integral of the first kind :math:`K(m)`; infinite at m = 1.

        Examples
        --------
        >>> from wefpe_core import get_backend
        >>> backend, m = get_backend("numpy"), 0.3
        >>> k, e = backend.ellipk([m, 1 - m]), backend.ellipe([m, 1 - m])
        >>> abs(k[0] * e[1] + e[0] * k[1] - k[0] * k[1] - 1.5707963267948966) < 1e-15  # Legendre
        np.True_
        """
        not_offered(self, "ellipk")

    def ellipe(self, m: Any) -> Array_co:
        r"""Complete integral of the second kind :math:`E(m)`; 1 at m = 1.

        Examples
        --------
        >>> from wefpe_core import get_backend
        >>> get_backend("numpy").ellipe([0.0, 1.0]).real  # pi/2 and 1
        array([1.57079633, 1.        ])
        """
        not_offered(self, "ellipe")

    def ellipkinc(self, phi: Any, m: Any) -> Array_co:
        r"""Incomplete integral :math:`F(\phi, m) = \int_0^\phi d\theta/\sqrt{1 - m\sin^2\theta}`.

        :math:`F(\phi + n\pi) = F(\phi) + 2nK`, which defines it beyond
        :math:`|{\rm Re}\,\phi| \le \pi/2`. mpmath calls it ``ellipf``. NaN where
        :math:`\sin^2\phi` overflows (an imaginary part beyond 350 in double precision).

        Examples
        --------
        It is inverse to Jacobi's amplitude:

        >>> from wefpe_core import get_backend
        >>> backend = get_backend("numpy")
        >>> bool(abs(backend.ellipkinc(backend.jacobi_am(0.7, 0.5), 0.5) - 0.7) < 1e-15)
        True
        """
        not_offered(self, "ellipkinc")

    def ellipeinc(self, phi: Any, m: Any) -> Array_co:
        r"""Incomplete :math:`E(\phi, m) = \int_0^\phi\sqrt{1 - m\sin^2\theta}\,d\theta`.

        :math:`E(\phi + n\pi) = E(\phi) + 2nE(m)`, as for `ellipkinc`.

        Examples
        --------
        >>> from wefpe_core import get_backend
        >>> backend = get_backend("numpy")
        >>> steps = backend.ellipeinc(0.7 + 3.141592653589793, 0.5) - backend.ellipeinc(0.7, 0.5)
        >>> bool(abs(steps - 2 * backend.ellipe(0.5)) < 1e-14)
        True
        """
        not_offered(self, "ellipeinc")

    def ellippi(self, n: Any, m: Any) -> Array_co:
        r"""Complete integral of the third kind :math:`\Pi(n, m)`; infinite at n = 1 and m = 1.

        The characteristic n has mpmath's sign: the integrand is
        :math:`1/((1 - n\sin^2\theta)\sqrt{1 - m\sin^2\theta})`. For n > 1 the value is the one
        from below in n, as in mpmath, whose real part is Cauchy's principal value.

        Examples
        --------
        >>> from wefpe_core import get_backend
        >>> backend = get_backend("numpy")
        >>> bool(abs(backend.ellippi(0.0, 0.3) - backend.ellipk(0.3)) < 1e-15)
        True
        """
        not_offered(self, "ellippi")

    def ellippiinc(self, n: Any, phi: Any, m: Any) -> Array_co:
        r"""Incomplete integral of the third kind :math:`\Pi(n; \phi, m)`, mpmath's ``ellippi``.

        NaN where :math:`1 - n\sin^2\phi` and one of :math:`\cos^2\phi`, :math:`1 - m\sin^2\phi`
        are apart in the way `elliprj` describes.

        Examples
        --------
        >>> from wefpe_core import get_backend
        >>> backend = get_backend("numpy")
        >>> bool(abs(backend.ellippiinc(0.0, 0.7, 0.3) - backend.ellipkinc(0.7, 0.3)) < 1e-15)
        True
        """
        not_offered(self, "ellippiinc")

    def elliprf(self, x: Any, y: Any, z: Any) -> Array_co:
        r"""Carlson's :math:`R_F = \frac12\int_0^\infty dt/\sqrt{(t+x)(t+y)(t+z)}`.

        Infinite where two arguments are 0. SciPy answers NaN on the cut, where an argument is
        negative.

        Examples
        --------
        >>> from wefpe_core import get_backend
        >>> backend = get_backend("numpy")
        >>> bool(abs(backend.elliprf(0.0, 0.7, 1.0) - backend.ellipk(0.3)) < 1e-15)
        True
        """
        not_offered(self, "elliprf")

    def elliprd(self, x: Any, y: Any, z: Any) -> Array_co:
        r"""Carlson's :math:`R_D(x, y, z) = R_J(x, y, z, z)`; infinite at z = 0 and x = y = 0.

        Examples
        --------
        >>> from wefpe_core import get_backend
        >>> backend, m = get_backend("numpy"), 0.3
        >>> difference = backend.ellipk(m) - backend.ellipe(m)  # DLMF 19.25.1
        >>> bool(abs(backend.elliprd(0.0, 1 - m, 1.0) * m / 3 - difference) < 1e-15)
        True
        """
        not_offered(self, "elliprd")

    def elliprj(self, x: Any, y: Any, z: Any, p: Any) -> Array_co:
        r"""Carlson's :math:`R_J = \frac32\int_0^\infty dt/((t+p)\sqrt{(t+x)(t+y)(t+z)})`.

        For real p < 0 and x, y, z >= 0 it is Cauchy's principal value, as in SciPy. Infinite at
        p = 0 and where two of x, y, z are 0.

        The array backends refuse two cases with NaN: p and one of x, y, z on opposite sides of
        the real axis, with arguments that differ by half a turn or more (where the duplication
        leads to another branch); and p more than about 1e20 times as large as x, y and z (1e11 in
        single precision). mpmath and flint answer there.

        Examples
        --------
        It is symmetric in x, y and z:

        >>> from wefpe_core import get_backend
        >>> values = get_backend("numpy").elliprj([0.5, 1j], [1j, 2.0], [2.0, 0.5], 3.0)
        >>> bool(abs(values[0] - values[1]) < 1e-15)
        True
        """
        not_offered(self, "elliprj")

    def elliprc(self, x: Any, y: Any) -> Array_co:
        r"""Carlson's :math:`R_C(x, y) = R_F(x, y, y)`; infinite at y = 0.

        For real y < 0 it is Cauchy's principal value, as in SciPy and mpmath.

        Examples
        --------
        >>> from wefpe_core import get_backend
        >>> bool(abs(get_backend("numpy").elliprc(0.0, 1.0) - 1.5707963267948966) < 1e-15)  # pi/2
        True
        """
        not_offered(self, "elliprc")
