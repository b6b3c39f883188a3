r"""Modular quantities of a reduced lattice as functions of its nome, written once.

Every formula here uses only ``+ - * /`` and so runs on any complex type: Python's
``complex``, fifty-digit decimals (`wefpe_core.extended`), mpmath numbers, and the
real pairs the array backends compute with. The nome is :math:`q = e^{i\pi\tau}` of a
*reduced* lattice, so :math:`|q| \le e^{-\pi\sqrt3/2} < 0.0659`, and the number of
terms each caller passes is derived from that.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt
from typing import Any, NamedTuple


class Roots(NamedTuple):
    """Values of the Weierstrass function at the half-periods: e_k = wp(omega_k)."""

    e1: Any
    e2: Any
    e3: Any


def lambert_coefficients(nome_squared: Any, terms: int) -> list[Any]:
    r"""``[k Q^k / (1 - Q^k) for k = 1..terms]`` with :math:`Q = q^2`."""
    coefficients = []
    power = nome_squared
    for k in range(1, terms + 1):
        coefficients.append(k * power / (1 - power))
        power = power * nome_squared
    return coefficients


def eisenstein_e2(coefficients: Sequence[Any]) -> Any:
    r"""Normalised Eisenstein series :math:`E_2 = 1 - 24\sum_k k Q^k/(1-Q^k)`.

    `coefficients` are those of `lambert_coefficients`.
    """
    return 1 - 24 * sum_from_smallest(coefficients)


def sum_from_smallest(terms: Sequence[Any]) -> Any:
    """The sum of terms that decrease, beginning with the last."""
    total = 0
    for term in reversed(terms):
        total = term + total
    return total


def theta_fourth_powers(nome: Any, terms: int) -> tuple[Any, Any, Any]:
    r"""Fourth powers of the theta constants :math:`\theta_2, \theta_3, \theta_4` (DLMF 20.2).

    `terms` counts powers of the nome: a theta constant is summed up to ``q**terms``.
    """
    # The factor 2 q^(1/4) of theta_2 enters only as its fourth power, 16 q.
    rest2, rest3, rest4 = theta_excesses(nome, terms)
    return 16 * (nome + nome * rest2), 1 + rest3, 1 + rest4


def theta_excesses(nome: Any, terms: int) -> tuple[Any, Any, Any]:
    """What the fourth powers exceed 16 q, 1 and 1 by, in units of these."""
    # q^(n^2) for theta_3 and theta_4, q^(n(n+1)) for theta_2, each from the one before.
    squares, pronics = [nome], []
    power = nome  # q^n
    for n in range(1, isqrt(terms) + 1):
        if n * (n + 1) <= terms:
            pronics.append(squares[-1] * power)
        if (n + 1) ** 2 <= terms:
            power = power * nome
            squares.append(pronics[-1] * power)
    theta2 = theta3 = theta4 = 0
    for value in reversed(pronics):
        theta2 = theta2 + value
    for n, value in reversed(list(enumerate(squares, 1))):
        theta3 = theta3 + 2 * value
        theta4 = theta4 + 2 * (-1) ** n * value
    return _fourth_excess(theta2), _fourth_excess(theta3), _fourth_excess(theta4)


def _fourth_excess(small: Any) -> Any:
    """(1 + small)^4 - 1: rounding errors are relative to it, not to 1."""
    square_excess = small * (2 + small)
    return square_excess * (2 + square_excess)


def theta_product_excess(nome: Any, rest: Any, terms: int) -> Any:
    """What (theta_2 theta_3)^4 / 16q exceeds 1 by; at -q it belongs to -(theta_2 theta_4)^4 / 16q.

    It is 1 + q + q^3 + q^6 + ... to the eighth power, less 1. `rest` is the rounding error of the
    nome q: the largest term, 8 q, has no other.
    """
    square = nome * nome
    powers = [nome]  # q^(k(k+1)/2) for k = 1, 2, ...
    factor = square
    while (k := len(powers) + 1) * (k + 1) <= 2 * terms:
        powers.append(powers[-1] * factor)
        factor = factor * nome
    others = sum_from_smallest(powers[1:])
    small = nome + others
    binomial = small + 8
    for coefficient in (28, 56, 70, 56, 28):
        binomial = binomial * small + coefficient
    return 8 * nome + (8 * (others + rest) + small * small * binomial)


def roots_of(thetas: tuple[Any, Any, Any], scale: Any) -> Roots:
    r"""Roots :math:`e_k` from the fourth powers of the theta constants (DLMF 23.6.2-23.6.4).

    `scale` is :math:`(\pi/2\omega_1)^2`.
    """
    a, b, c = thetas
    third = scale / 3
    return Roots(third * (b + c), third * (a - c), -(third * (a + b)))


def invariants_of(thetas: tuple[Any, Any, Any], scale: Any) -> tuple[Any, Any]:
    r"""Invariants :math:`g_2, g_3` from the same fourth powers (DLMF 23.3.6, 23.3.7)."""
    a, b, c = thetas
    e1, e2, e3 = roots_of(thetas, scale)
    return 2 * scale * (scale / 3) * (a * a + b * b + c * c), 4 * e1 * e2 * e3


def laurent_from_invariants(g2: Any, g3: Any, count: int) -> list[Any]:
    """The coefficients of z^2, z^4, ... in wp(z) - z^-2 (DLMF 23.9.3-23.9.5), for any numbers."""
    found = [g2 / 20, g3 / 28][:count]
    for k in range(4, count + 2):
        terms = (found[m - 2] * found[k - m - 2] for m in range(2, k - 1))
        found.append(sum(terms, 0 * g2) * 3 / ((2 * k + 1) * (k - 3)))
    return found
