"""What a lattice of numbers determines, to fifty digits, on the standard library alone.

The array backends round these values once; `Lattice.from_invariants` rounds the periods.
"""

from __future__ import annotations

from decimal import Decimal, getcontext, localcontext
from fractions import Fraction
from functools import lru_cache
from itertools import product
from math import gcd
from typing import NamedTuple

from wefpe_core._exact import (
    GaussianRational,
    IntegerMatrix,
    cross,
    dot,
    gauss_reduce,
    nearest_integer,
)
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
    laurent_from_invariants,
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
    nome = _nome(reduced, tau)
    e2 = eisenstein_e2(lambert_coefficients(nome * nome, LAMBERT_TERMS))
    pi_over_period = PI / period1
    thetas = theta_fourth_powers(nome, NOME_POWERS)
    scale = pi_over_period * pi_over_period
    roots = roots_of(thetas, scale)
    g2, g3 = invariants_of(thetas, scale)
    is_real = is_its_conjugate(lattice)
    if is_real:
        g2, g3 = (ExtendedComplex(g.re, Decimal(0)) for g in (g2, g3))
        roots = Roots(*(_without_noise(root, scale) for root in roots))
    w1, w3 = reduced.exact
    if (w3.re, w3.im) == (-w1.im, w1.re):  # a square: multiplication by i changes the sign of wp
        zero = ExtendedComplex(Decimal(0), Decimal(0))
        g3, roots = zero, Roots(roots.e1, zero, -roots.e1)
    eta1 = pi_over_period * PI * e2 / 6
    eta3 = (eta1 * period3 - ExtendedComplex(Decimal(0), PI)) / period1
    (p, q), (r, s) = matrix

    def given(eta: ExtendedComplex, omega: GaussianRational) -> ExtendedComplex:
        """The quasi-period of a real or imaginary half-period is real or imaginary too."""
        re = Decimal(0) if is_real and not omega.re else eta.re
        return ExtendedComplex(re, Decimal(0) if is_real and not omega.im else eta.im)

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
        eta1=given(eta1 * s - eta3 * q, lattice.exact[0]),
        eta3=given(eta3 * p - eta1 * r, lattice.exact[1]),
    )


def is_its_conjugate(lattice: Lattice) -> bool:
    """Whether complex conjugation maps the lattice to itself: its invariants are real."""
    w1, w3 = lattice.exact
    area = cross(w1, w3)
    return all(
        (cross(u, v) / area).denominator == 1
        for omega in (w1, w3)
        for conjugate in [GaussianRational(omega.re, -omega.im)]
        for u, v in ((conjugate, w3), (w1, conjugate))
    )


def _nome(reduced: Lattice, tau: ExtendedComplex) -> ExtendedComplex:
    """exp(i pi tau), exactly real or imaginary where Re tau is 0 or 1/2."""
    w1, w3 = reduced.exact
    twice_re_tau = 2 * dot(w1, w3) / dot(w1, w1)
    if twice_re_tau not in (0, 1):
        return (ExtendedComplex(-tau.im, tau.re) * PI).exp()
    size = (-tau.im * PI).exp()
    return ExtendedComplex(*((Decimal(0), size) if twice_re_tau else (size, Decimal(0))))


def _without_noise(value: ExtendedComplex, unit: ExtendedComplex) -> ExtendedComplex:
    """A number without an imaginary part that is a rounding error of fifty digits."""
    noise = unit.squared_modulus().sqrt() * Decimal(10) ** -DIGITS
    return ExtendedComplex(value.re, value.im if abs(value.im) > noise else Decimal(0))


@extended_precision
def laurent_coefficients(lattice: Lattice, count: int) -> list[ExtendedComplex]:
    """The first coefficients of wp(z) - z^-2 at 0, those of z^2, z^4, ..."""
    known = lattice_constants(lattice)
    return laurent_from_invariants(known.g2, known.g3, count)


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
# Closer to zero than this, the discriminant of rounded invariants may stand for zero.
_DEGENERATE = Fraction(1, 2**50)


@extended_precision
def half_periods_from_invariants(
    g2: GaussianRational, g3: GaussianRational, are_exact: bool
) -> tuple[complex, complex]:
    """Half-periods of the lattice with the given invariants, correctly rounded.

    Real invariants give the customary basis: omega1 is the smallest positive real
    half-period and Re(omega3/omega1) is 0 (positive discriminant) or 1/2 (negative).
    Others give the canonical reduced basis of `Lattice.reduced`.
    """
    ratio = discriminant_ratio(g2, g3)
    shown = f"g2={complex(g2)!r}, g3={complex(g3)!r}"
    if not ratio:
        raise LatticeError(
            f"the discriminant g2**3 - 27*g3**2 is zero for {shown}: the invariants of no lattice"
        )
    if not are_exact and ratio <= _DEGENERATE:
        raise LatticeError(
            f"the discriminant g2**3 - 27*g3**2 is zero to the precision of doubles for {shown}: "
            f"{float(ratio):.1e} times its terms; integers and fractions are taken as exact"
        )
    with localcontext() as wide:
        wide.prec += max(0, ratio.denominator.bit_length() - ratio.numerator.bit_length())
        e1, e2, e3 = cubic_roots(ExtendedComplex.of(g2), ExtendedComplex.of(g3))
        differences = (e1 - e3, e1 - e2, e2 - e3)
    a, b, c = (difference.sqrt() for difference in differences)
    omega1 = PI / arithmetic_geometric_mean(a, nearer(a, b)) / 2
    omega3 = ExtendedComplex(Decimal(0), PI) / arithmetic_geometric_mean(a, nearer(a, c)) / 2
    if (omega3 / omega1).im < 0:
        omega3 = -omega3
    return tuple(  # type: ignore[return-value]
        complex(w) for w in _canonical_basis(omega1, omega3, g2.im == 0 == g3.im)
    )


def discriminant_ratio(g2: GaussianRational, g3: GaussianRational) -> Fraction:
    """The size of the discriminant g2^3 - 27 g3^2 over that of its terms, exactly.

    With roots 1 + d, 1 - d and -2 it is of the order d^2, and the difference of the roots lacks as
    many digits as d has zeros.
    """
    cube, square = _product(_product(g2, g2), g2), _product(g3, g3)
    terms = (*cube, 27 * square.re, 27 * square.im)
    size = max(map(abs, terms))
    return max(abs(terms[0] - terms[2]), abs(terms[1] - terms[3])) / size if size else Fraction(0)


def _product(x: GaussianRational, y: GaussianRational) -> GaussianRational:
    return GaussianRational(x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re)


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
    digits = 15
    while digits < getcontext().prec:  # each Newton step doubles the digits of the start
        root = root - (root * root * root - scaled) / (root * root * 3)
        digits = 2 * digits - 1
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
