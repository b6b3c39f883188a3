r"""The laws of DLMF chapter 23 as scaled residuals, for values from any backend.

A law ``left = right`` becomes the number ``|left - right|`` over the sum of the absolute
values of its terms, products expanded: zero for exact values, a few machine epsilons for
well rounded ones, and of order one for unrelated ones. Where all terms are zero it is zero.

Only operators and ``abs`` are used, so values may be Python numbers, NumPy arrays, torch
tensors (elementwise, the residual having the broadcast shape) or mpmath numbers. Arguments
are values of the functions, not points: nothing is evaluated here. At poles, and where a
square or cube of a value overflows, a residual is NaN. Laws of one value on each side
(periodicity, parity, ...) are relative: at a zero of the function they compare rounding with
rounding, and `wefpe_core.accuracy.scaled_error` is the fair measure.

Half-periods ``omega1, omega3``, ``eta_k = zeta(omega_k)``, roots ``e_k = wp(omega_k)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from wefpe_core import docstrings  # not its functions: those of this module are the laws

_OF_EACH = """
Arguments are numbers, arrays or tensors of one library, which broadcast. The residual is real, of
their shape, and NaN where a value is NaN or infinite.
"""


def _law(function: Callable[..., Any]) -> Callable[..., Any]:
    function.__doc__ = docstrings.with_paragraph(function, _OF_EACH.strip())
    return function


def _residual(difference: Any, size: Any) -> Any:
    # The comparison adds one exactly where the size is zero: 0/0 becomes 0/1, elementwise.
    return abs(difference) / (size + (size == 0))


def _agreement(left: Any, right: Any) -> Any:
    return _residual(left - right, abs(left) + abs(right))


@_law
def differential_equation(p: Any, dp: Any, g2: Any, g3: Any) -> Any:
    r""":math:`\wp'^2 = 4\wp^3 - g_2\wp - g_3` (DLMF 23.3.10).

    Examples
    --------
    >>> from wefpe_core import Lattice, identities
    >>> lattice = Lattice(1.0, 0.3 + 0.9j)
    >>> p, dp = lattice.wp_and_prime(0.25)
    >>> bool(identities.differential_equation(p, dp, lattice.g2, lattice.g3) < 1e-15)
    True
    """
    square, cubic, linear = dp * dp, 4 * p * p * p, g2 * p
    return _residual(square - cubic + linear + g3, abs(square) + abs(cubic) + abs(linear) + abs(g3))


@_law
def second_derivative(p: Any, ddp: Any, g2: Any) -> Any:
    r""":math:`\wp'' = 6\wp^2 - \frac12 g_2` (DLMF 23.3.12), `ddp` being a value of wp''.

    Examples
    --------
    >>> from wefpe_core import Lattice, get_backend, identities
    >>> lattice = Lattice(1.0, 0.3 + 0.9j)
    >>> ddp = get_backend("numpy").wp_derivative(0.25, lattice, 2)
    >>> bool(identities.second_derivative(lattice.wp(0.25), ddp, lattice.g2) < 1e-15)
    True
    """
    return _residual(ddp - 6 * p * p + g2 / 2, abs(ddp) + 6 * abs(p) ** 2 + abs(g2) / 2)


@_law
def addition(p1: Any, dp1: Any, p2: Any, dp2: Any, p_sum: Any) -> Any:
    r"""The addition theorem (DLMF 23.10.1) without its denominator.

    .. math:: 4(\wp(u+v)+\wp(u)+\wp(v))(\wp(u)-\wp(v))^2 = (\wp'(u)-\wp'(v))^2

    Parameters
    ----------
    p1, dp1
        wp(u), wp'(u).
    p2, dp2
        wp(v), wp'(v). For u = v the law is empty; `duplication` takes its place.
    p_sum
        wp(u+v).

    Examples
    --------
    >>> from wefpe_core import Lattice, identities
    >>> lattice = Lattice(1.0, 0.3 + 0.9j)
    >>> u, v = lattice.wp_and_prime(0.25), lattice.wp_and_prime(0.5j)
    >>> bool(identities.addition(*u, *v, lattice.wp(0.25 + 0.5j)) < 1e-15)
    True
    """
    left = 4 * (p_sum + p1 + p2) * (p1 - p2) * (p1 - p2)
    right = (dp1 - dp2) * (dp1 - dp2)
    left_size = 4 * (abs(p_sum) + abs(p1) + abs(p2)) * (abs(p1) + abs(p2)) ** 2
    return _residual(left - right, left_size + (abs(dp1) + abs(dp2)) ** 2)


@_law
def collinearity(p1: Any, dp1: Any, p2: Any, dp2: Any, p_sum: Any, dp_sum: Any) -> Any:
    r"""Addition for wp' (DLMF 23.10.5): the points of u, v and -(u+v) lie on a line.

    `p_sum` and `dp_sum` are wp(u+v) and wp'(u+v); wp' changes its sign at -(u+v).

    Examples
    --------
    >>> from wefpe_core import Lattice, identities
    >>> lattice = Lattice(1.0, 0.3 + 0.9j)
    >>> u, v, both = (lattice.wp_and_prime(z) for z in (0.25, 0.5j, 0.25 + 0.5j))
    >>> bool(identities.collinearity(*u, *v, *both) < 1e-15)
    True
    """
    terms = (p1 * dp2, -(dp1 * p2), p2 * -dp_sum, -(dp2 * p_sum), p_sum * dp1, dp_sum * p1)
    return _residual(sum(terms), sum(abs(term) for term in terms))


@_law
def duplication(p: Any, dp: Any, p_double: Any, g2: Any) -> Any:
    r"""The duplication formula (DLMF 23.10.7) without its denominator, wp'' by 23.3.12.

    .. math:: 4(\wp(2z)+2\wp(z))\wp'(z)^2 = (6\wp(z)^2-\tfrac12g_2)^2

    Examples
    --------
    >>> from wefpe_core import Lattice, identities
    >>> lattice = Lattice(1.0, 0.3 + 0.9j)
    >>> here, double = lattice.wp_and_prime(0.25), lattice.wp(0.5)
    >>> bool(identities.duplication(*here, double, lattice.g2) < 1e-15)
    True
    """
    ddp = 6 * p * p - g2 / 2
    ddp_size = 6 * abs(p) ** 2 + abs(g2) / 2
    left_size = 4 * (abs(p_double) + 2 * abs(p)) * abs(dp) ** 2
    return _residual(4 * (p_double + 2 * p) * dp * dp - ddp * ddp, left_size + ddp_size**2)


@_law
def homogeneity(value: Any, scaled_value: Any, factor: Any, degree: int, scale: Any = 0.0) -> Any:
    r""":math:`f(cz|c\Lambda) = c^{degree} f(z|\Lambda)` (DLMF 23.10(iv); 23.10.17 for wp).

    Parameters
    ----------
    value, scaled_value
        f at z, and at `factor` times z on the lattice with `factor` times the half-periods.
    factor
        c, not zero.
    degree
        -2 for wp, -3 for wp', -1 for zeta, 1 for sigma, -4 for g2, -6 for g3.
    scale
        What else errors of f at z are measured against. Two values of wp' that is 1e-263 between
        the rows of a tall lattice agree as well as their arguments do, which is not to some eps.

    Examples
    --------
    >>> from wefpe_core import Lattice, identities
    >>> lattice, larger = Lattice(1.0, 0.3 + 0.9j), Lattice(3.0, 0.9 + 2.7j)
    >>> bool(identities.homogeneity(lattice.wp(0.25), larger.wp(0.75), 3.0, -2) < 1e-15)
    True
    """
    expected = factor**degree * value
    size = abs(scaled_value) + abs(expected) + abs(factor) ** degree * scale
    return _residual(scaled_value - expected, size)


@_law
def periodicity(value: Any, translated: Any) -> Any:
    r""":math:`f(z+2m\omega_1+2n\omega_3) = f(z)` for wp and wp' (DLMF 23.2.9).

    Examples
    --------
    >>> from wefpe_core import Lattice, identities
    >>> lattice = Lattice(1.0, 0.3 + 0.9j)
    >>> bool(identities.periodicity(lattice.wp(0.25), lattice.wp(2.25)) < 1e-15)
    True
    """
    return _agreement(translated, value)


@_law
def evenness(value: Any, reflected: Any) -> Any:
    r""":math:`f(-z) = f(z)`: wp (DLMF 23.2(ii)).

    Examples
    --------
    >>> from wefpe_core import Lattice, identities
    >>> lattice = Lattice(1.0, 0.3 + 0.9j)
    >>> float(identities.evenness(lattice.wp(0.25), lattice.wp(-0.25)))
    0.0
    """
    return _agreement(reflected, value)


@_law
def oddness(value: Any, reflected: Any) -> Any:
    r""":math:`f(-z) = -f(z)`: wp', zeta and sigma (DLMF 23.2(ii)).

    Examples
    --------
    >>> from wefpe_core import Lattice, identities
    >>> lattice = Lattice(1.0, 0.3 + 0.9j)
    >>> float(identities.oddness(lattice.zeta(0.25), lattice.zeta(-0.25)))
    0.0
    """
    return _agreement(reflected, -value)


@_law
def conjugate_symmetry(value: Any, at_conjugate: Any) -> Any:
    r""":math:`f(\bar z|\bar\Lambda) = \overline{f(z|\Lambda)}` for complex values of any f.

    Examples
    --------
    >>> from wefpe_core import Lattice, identities
    >>> lattice, mirrored = Lattice(1.0, 0.3 + 0.9j), Lattice(1.0, -0.3 + 0.9j)
    >>> here, there = lattice.wp(0.2 + 0.1j), mirrored.wp(0.2 - 0.1j)
    >>> bool(identities.conjugate_symmetry(here, there) < 1e-15)
    True
    """
    return _agreement(at_conjugate, value.real - 1j * value.imag)


@_law
def zeta_quasi_periodicity(zeta: Any, translated: Any, eta: Any) -> Any:
    r""":math:`\zeta(z+2\omega_k) = \zeta(z) + 2\eta_k` (DLMF 23.2.11).

    Examples
    --------
    >>> from wefpe_core import Lattice, get_backend, identities
    >>> lattice = Lattice(1.0, 0.3 + 0.9j)
    >>> eta1, _ = get_backend("numpy").quasi_periods(lattice)
    >>> here, there = lattice.zeta(0.25), lattice.zeta(2.25)
    >>> bool(identities.zeta_quasi_periodicity(here, there, eta1) < 1e-15)
    True
    """
    return _residual(translated - zeta - 2 * eta, abs(translated) + abs(zeta) + 2 * abs(eta))


@_law
def sigma_quasi_periodicity(
    sigma: Any, translated: Any, z: Any, omega: Any, eta: Any, exp: Callable[[Any], Any]
) -> Any:
    r""":math:`\sigma(z+2\omega_k) = -e^{2\eta_k(z+\omega_k)}\sigma(z)` (DLMF 23.2.15).

    `exp` is the exponential of the values' own library. It multiplies the rounding of its
    argument: expect a residual of epsilon times :math:`|2\eta_k(z+\omega_k)|`.

    Examples
    --------
    >>> from wefpe_core import Lattice, get_backend, identities
    >>> import cmath
    >>> lattice, z = Lattice(1.0, 0.3 + 0.9j), 0.25
    >>> eta1, _ = get_backend("numpy").quasi_periods(lattice)
    >>> values = lattice.sigma(z), lattice.sigma(z + 2), z, 1.0, eta1
    >>> bool(identities.sigma_quasi_periodicity(*values, cmath.exp) < 1e-14)
    True
    """
    return _agreement(translated, -(exp(2 * eta * (z + omega)) * sigma))


@_law
def legendre_relation(eta1: Any, eta3: Any, omega1: Any, omega3: Any, pi: Any = math.pi) -> Any:
    r""":math:`\eta_1\omega_3 - \eta_3\omega_1 = \frac12\pi i` (DLMF 23.2.14).

    Pass a longer `pi` with values of more than double precision.

    Examples
    --------
    >>> from wefpe_core import Lattice, get_backend, identities
    >>> lattice = Lattice(1.0, 0.3 + 0.9j)
    >>> eta1, eta3 = get_backend("numpy").quasi_periods(lattice)
    >>> bool(identities.legendre_relation(eta1, eta3, 1.0, 0.3 + 0.9j) < 1e-15)
    True
    """
    first, second, right = eta1 * omega3, eta3 * omega1, 0.5j * pi
    return _residual(first - second - right, abs(first) + abs(second) + abs(right))


@_law
def roots_sum_to_zero(e1: Any, e2: Any, e3: Any) -> Any:
    r""":math:`e_1+e_2+e_3 = 0` (DLMF 23.3.5).

    Examples
    --------
    >>> from wefpe_core import Lattice, get_backend, identities
    >>> roots = get_backend("numpy").roots(Lattice(1.0, 0.3 + 0.9j))
    >>> bool(identities.roots_sum_to_zero(*roots) < 1e-15)
    True
    """
    return _residual(e1 + e2 + e3, abs(e1) + abs(e2) + abs(e3))


@_law
def g2_from_roots(g2: Any, e1: Any, e2: Any, e3: Any) -> Any:
    r""":math:`g_2 = -4(e_2e_3+e_3e_1+e_1e_2)` (DLMF 23.3(i)).

    Examples
    --------
    >>> from wefpe_core import Lattice, get_backend, identities
    >>> lattice = Lattice(1.0, 0.3 + 0.9j)
    >>> roots = get_backend("numpy").roots(lattice)
    >>> bool(identities.g2_from_roots(lattice.g2, *roots) < 1e-15)
    True
    """
    terms = (4 * e2 * e3, 4 * e3 * e1, 4 * e1 * e2, g2)
    return _residual(sum(terms), sum(abs(term) for term in terms))


@_law
def g3_from_roots(g3: Any, e1: Any, e2: Any, e3: Any) -> Any:
    r""":math:`g_3 = 4e_1e_2e_3` (DLMF 23.3(i)).

    Scaled by what the product could be, :math:`\frac4{27}(|e_1|+|e_2|+|e_3|)^3`, since one root
    of a square lattice is zero and its rounding would be measured against itself.

    Examples
    --------
    >>> from wefpe_core import Lattice, get_backend, identities
    >>> lattice = Lattice(1.0, 0.3 + 0.9j)
    >>> roots = get_backend("numpy").roots(lattice)
    >>> bool(identities.g3_from_roots(lattice.g3, *roots) < 1e-15)
    True
    """
    largest_product = 4 * (abs(e1) + abs(e2) + abs(e3)) ** 3 / 27
    return _residual(g3 - 4 * e1 * e2 * e3, abs(g3) + largest_product)


@_law
def laurent_start(z: Any, p: Any, g2: Any, g3: Any) -> Any:
    r""":math:`\wp(z) = z^{-2} + \frac1{20}g_2z^2 + \frac1{28}g_3z^4 + O(z^6)` (DLMF 23.9.2).

    A law in the limit only: even exact values leave about :math:`|g_2^2z^8|/2400`.

    Examples
    --------
    >>> from wefpe_core import Lattice, identities
    >>> lattice, z = Lattice(1.0, 0.3 + 0.9j), 0.01
    >>> bool(identities.laurent_start(z, lattice.wp(z), lattice.g2, lattice.g3) < 1e-15)
    True
    """
    square = z * z
    terms = (p, -1 / square, -(g2 * square) / 20, -(g3 * square * square) / 28)
    return _residual(sum(terms), sum(abs(term) for term in terms))
