"""Eisenstein series of a lattice, and tau of a value of j, to fifty digits.

Like `wefpe_core.lattice_constants` it stands on the standard library alone.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

from wefpe_core._exact import GaussianRational
from wefpe_core.extended import (
    DIGITS,
    PI,
    ExtendedComplex,
    arithmetic_geometric_mean,
    extended_precision,
    nearer,
    to_decimal,
)
from wefpe_core.lattice import Lattice
from wefpe_core.lattice_constants import _cube_root, lattice_constants
from wefpe_core.modular_functions import eisenstein_coefficient

# The terms n^(k-1) Q^n decrease from n = 6 on, even for k = 32, and end below 10^-60.
_TERMS = 60


def twice_zeta(k: int) -> Fraction:
    """2 zeta(k) over pi^k, for even k: the factor between E_k and G_k."""
    bernoulli = Fraction(-2 * k) / eisenstein_coefficient(k)
    return abs(bernoulli) * Fraction(2**k, math.factorial(k))


@lru_cache(maxsize=512)
@extended_precision
def eisenstein_of_lattice(k: int, lattice: Lattice) -> ExtendedComplex:
    """The sum of w^-k over the nonzero periods; for k = 2 along omega1 of the basis given first."""
    known = lattice_constants(lattice)
    if k == 2:
        omega1 = ExtendedComplex.of(lattice.exact[0])
        return known.eta1 / omega1
    q = known.nome * known.nome
    total, power = ExtendedComplex(Decimal(0), Decimal(0)), q
    for n in range(1, _TERMS + 1):
        total, power = total + power * n ** (k - 1) / (1 - power), power * q
    value = 1 + total * to_decimal(eisenstein_coefficient(k))
    unit = PI / known.period1
    for _ in range(k):
        value = value * unit
    return value * to_decimal(twice_zeta(k))


@extended_precision
def tau_of_j(j: GaussianRational) -> complex:
    """The tau of the fundamental domain with this j, by the formula of `backends.modular`."""
    number, one = ExtendedComplex.of(j), ExtendedComplex(Decimal(1), Decimal(0))
    s = _cube_root(number / 256) if any(j) else number
    v = (one / (1 + s * 2 / 3)).sqrt()
    for _ in range(9):  # each step doubles the digits; the start has one
        v = v - (v * v * v + s * v * v - 1) / (v * v * 3 + s * v * 2)
    x = v * v * v
    small = x * 2 / (1 + x / (x + 2) / 8 * (number - 1728).sqrt())
    means = [
        arithmetic_geometric_mean(one, nearer(one, root.sqrt())) for root in (1 - small, small)
    ]
    ratio = means[0] / means[1]
    tau = ExtendedComplex(-ratio.im, ratio.re)
    edge = Decimal(10) ** -DIGITS
    if tau.re < edge - Decimal("0.5"):
        tau = tau + 1
    if tau.re < 0 and tau.squared_modulus() < 1 + edge:
        tau = -1 / tau
    if not j.im and not 0 <= j.re < 1728:  # these lie on lines of symmetry
        tau = ExtendedComplex(Decimal("0.5") if j.re < 0 else Decimal(0), tau.im)
    return complex(tau)
