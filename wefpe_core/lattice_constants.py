"""What a lattice of numbers determines, to fifty digits, on the standard library alone.

The array backends round these values once; `Lattice.from_invariants` rounds the periods.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import product
from math import gcd
from typing import NamedTuple

from wefpe_core._exact import GaussianRational, IntegerMatrix, gauss_reduce, nearest_integer
from wefpe_core.errors import LatticeError
from wefpe_core.extended import (
    DIGITS,
    PI,
    ExtendedComplex,
    arithmetic_geometric_mean,
    extended_precision,
    nearer,
)
from wefpe_core.lattice import Lattice
from wefpe_core.modular import (
    Roots,
    eisenstein_e2,
    invariants_of,
    lambert_coefficients,
    roots_of,
    theta_fourth_powers,
)

# |q| < 0.0659, so the neglected terms q^61 are below 10^-72 and Q^31 below 10^-73.
NOME_POWERS = 60
LAMBERT_TERMS = 30


class LatticeConstants(NamedTuple):
    """Fifty-digit values of one lattice; periods are FULL and of the reduced basis."""

    period1: ExtendedComplex
    period3: ExtendedComplex
    tau: ExtendedComplex
    nome: ExtendedComplex
    g2: ExtendedComplex
    g3: ExtendedComplex
    reduced_eta3: ExtendedComplex  # zeta(period3/2)
    roots: Roots  # these and the quasi-periods below belong to the basis given
    eta1: ExtendedComplex
    eta3: ExtendedComplex


@lru_cache(maxsize=512)
@extended_precision
def lattice_constants(lattice: Lattice) -> LatticeConstants:
    """Evaluate what depends on `lattice` alone."""
    reduced, matrix = lattice.reduced()
    omega1, omega3 = (ExtendedComplex.of(w) for w in reduced.exact)
    period1, period3 = omega1 * 2, omega3 * 2
    tau = omega3 / omega1
    nome = (ExtendedComplex(-tau.im, tau.re) * PI).exp()
    e2 = eisenstein_e2(lambert_coefficients(nome * nome, LAMBERT_TERMS))
    pi_over_period = PI / period1
    thetas = theta_fourth_powers(nome, NOME_POWERS)
    scale = pi_over_period * pi_over_period
    roots = roots_of(thetas, scale)
    g2, g3 = invariants_of(thetas, scale)
    eta1 = pi_over_period * PI * e2 / 6
    eta3 = (eta1 * period3 - ExtendedComplex(Decimal(0), PI)) / period1
    (p, q), (r, s) = matrix
    # The matrix has determinant 1: omega1 = s w1 - q w3 and omega3 = p w3 - r w1.
    return LatticeConstants(
        period1=period1,
        period3=period3,
        tau=tau,
        nome=nome,
        g2=g2,
        g3=g3,
        reduced_eta3=eta3,
        roots=permuted_roots(roots, matrix),
        eta1=eta1 * s - eta3 * q,
        eta3=eta3 * p - eta1 * r,
    )


def permuted_roots(reduced: Roots, matrix: IntegerMatrix) -> Roots:
    """Relabel the roots of the reduced basis for the basis given (parities decide)."""
    (p, q), (r, s) = matrix
    by_parity = {(1, 0): reduced.e1, (1, 1): reduced.e2, (0, 1): reduced.e3}
    return Roots(
        e1=by_parity[s % 2, q % 2],
        e2=by_parity[(s + r) % 2, (q + p) % 2],
        e3=by_parity[r % 2, p % 2],
    )


# Relative differences below this are rounding noise of the fifty-digit periods.
_TIE = Fraction(1, 10 ** (DIGITS - 5))
# Closer to zero than this, the discriminant of doubles is indistinguishable from zero.
_DEGENERATE = Fraction(1, 2**50)


@extended_precision
def half_periods_from_invariants(g2: complex, g3: complex) -> tuple[complex, complex]:
    """Half-periods of the lattice with the given invariants, correctly rounded.

    Real invariants give the customary basis: omega1 is the smallest positive real
    half-period and Re(omega3/omega1) is 0 (positive discriminant) or 1/2 (negative).
    Others give the canonical reduced basis of `Lattice.reduced`.
    """
    exact_g2, exact_g3 = ExtendedComplex.of(g2), ExtendedComplex.of(g3)
    cube, square = exact_g2 * exact_g2 * exact_g2, exact_g3 * exact_g3 * 27
    size = cube.squared_modulus().sqrt() + square.squared_modulus().sqrt()
    discriminant = (cube - square).squared_modulus().sqrt()
    if discriminant * _DEGENERATE.denominator <= size:
        raise LatticeError(
            f"the discriminant g2**3 - 27*g3**2 is zero for g2={g2!r}, g3={g3!r}: "
            "the invariants of no lattice"
        )
    e1, e2, e3 = cubic_roots(exact_g2, exact_g3)
    a, b, c = (e1 - e3).sqrt(), (e1 - e2).sqrt(), (e2 - e3).sqrt()
    omega1 = PI / arithmetic_geometric_mean(a, nearer(a, b)) / 2
    omega3 = ExtendedComplex(Decimal(0), PI) / arithmetic_geometric_mean(a, nearer(a, c)) / 2
    if (omega3 / omega1).im < 0:
        omega3 = -omega3
    return tuple(  # type: ignore[return-value]
        complex(w) for w in _canonical_basis(omega1, omega3, g2.imag == 0 == g3.imag)
    )


def cubic_roots(g2: ExtendedComplex, g3: ExtendedComplex) -> list[ExtendedComplex]:
    """The three roots of 4x^3 - g2 x - g3 (Cardano; the larger of the two cubes)."""
    half, third = g3 / 8, g2 / 12
    offset = nearer(half, (half * half - third * third * third).sqrt())
    root = _cube_root(half + offset)
    turn = ExtendedComplex(Decimal(-1) / 2, Decimal(3).sqrt() / 2)
    turns = (ExtendedComplex(Decimal(1), Decimal(0)), turn, turn.conjugate())
    return [root * t + third / (root * t) for t in turns]


def _cube_root(value: ExtendedComplex) -> ExtendedComplex:
    exponent = value.squared_modulus().sqrt().adjusted() // 3
    scale = Decimal(10) ** exponent
    scaled = value / scale**3
    root = ExtendedComplex.of(complex(scaled) ** (1 / 3))
    for _ in range(4):  # each Newton step doubles the sixteen digits of the start
        root = root - (root * root * root - scaled) / (root * root * 3)
    return root * scale


def _canonical_basis(
    omega1: ExtendedComplex, omega3: ExtendedComplex, is_real: bool
) -> tuple[GaussianRational, GaussianRational]:
    # Rounding noise (10^-70) must not decide ties such as Re tau = 1/2: snap to a grid
    # that is coarser than the noise and finer than the fifty digits kept.
    scale = max(omega1.squared_modulus(), omega3.squared_modulus()).sqrt()
    grid = Decimal(10) ** (scale.adjusted() - DIGITS - 5)

    def snap(value: Decimal) -> Fraction:
        return Fraction((value / grid).to_integral_value()) * Fraction(grid)

    first, second = (GaussianRational(snap(w.re), snap(w.im)) for w in (omega1, omega3))
    w1, w3, _ = gauss_reduce(first, second, slack=_TIE)
    return _real_basis(w1, w3) if is_real else (w1, w3)


def _real_basis(
    w1: GaussianRational, w3: GaussianRational
) -> tuple[GaussianRational, GaussianRational]:
    """Basis with omega1 > 0 of a lattice that complex conjugation maps to itself."""

    def vector(i: int, j: int) -> GaussianRational:
        return GaussianRational(i * w1.re + j * w3.re, i * w1.im + j * w3.im)

    # In a reduced basis the shortest real vector is w1, w3, w1 +- w3 or 2 w3 - w1, up to sign.
    small = range(-2, 3)
    tie = (abs(w3.re) + abs(w3.im)) * _TIE
    omega1, i, j = min(
        (vector(i, j), i, j)
        for i, j in product(small, small)
        if gcd(i, j) == 1 and abs(vector(i, j).im) <= tie and vector(i, j).re > 0
    )
    k, m = next((k, m) for k, m in product(small, small) if i * m - j * k == 1)
    omega1, omega3 = GaussianRational(omega1.re, Fraction(0)), vector(k, m)
    twice_re_tau = 2 * (omega3.re / omega1.re - nearest_integer(omega3.re / omega1.re, _TIE))
    # Conjugation maps the lattice to itself, so Re tau is 0 or 1/2 exactly.
    return omega1, GaussianRational(omega1.re * round(twice_re_tau) / 2, omega3.im)
