r"""What is left of a lattice when its discriminant is zero: one period, or none."""

from __future__ import annotations

import cmath
from dataclasses import dataclass
from fractions import Fraction

from wefpe_core._exact import GaussianRational, exact_complex
from wefpe_core.errors import LatticeError

# Closer to zero than this, relative to its terms, the discriminant of doubles counts as zero.
_TOLERANCE = Fraction(1, 2**48)


@dataclass(frozen=True)
class DegenerateLattice:
    r"""Invariants of discriminant zero, by the number :math:`\kappa^2` that they have in common.

    .. math:: g_2 = \tfrac43\kappa^4, \quad g_3 = \tfrac8{27}\kappa^6, \quad
       \wp = \frac{\kappa^2}{\sin^2\kappa z} - \frac{\kappa^2}3, \quad
       \zeta = \kappa\cot\kappa z + \frac{\kappa^2 z}3, \quad
       \sigma = e^{\kappa^2z^2/6}\,\frac{\sin\kappa z}\kappa.

    They are trigonometric for positive :math:`\kappa^2`, hyperbolic for negative, and rational
    for 0, where :math:`\wp = z^{-2}`. The roots are :math:`\tfrac23\kappa^2` and twice
    :math:`-\tfrac13\kappa^2`.

    Backends take it in place of a `Lattice` for ``wp``, ``wp_prime``, ``wp_and_prime``, ``zeta``,
    ``sigma``, ``invariants`` and ``roots``. Every other function raises `DegenerateLatticeError`.
    Errors are measured against :math:`|f| + |z f'| + |\kappa|^k`, with z itself: a period
    :math:`\pi/\kappa` is no number that could be subtracted exactly.

    Parameters
    ----------
    kappa_squared
        A finite complex number.

    Examples
    --------
    >>> from wefpe_core import Lattice, get_backend
    >>> backend, limit = get_backend("numpy"), Lattice.degenerate(12, 8)
    >>> limit.kappa_squared
    (3+0j)
    >>> p, dp = backend.wp_and_prime(0.5 + 0.2j, limit)
    >>> abs(dp**2 - 4 * p**3 + 12 * p + 8) < 1e-13 * abs(dp) ** 2
    np.True_
    """

    kappa_squared: complex

    def __post_init__(self) -> None:
        if not cmath.isfinite(self.kappa_squared):
            raise LatticeError(f"kappa_squared must be finite, got {self.kappa_squared!r}")
        object.__setattr__(self, "kappa_squared", complex(self.kappa_squared))

    @classmethod
    def from_invariants(cls, g2: complex, g3: complex) -> DegenerateLattice:
        r"""The limit with these invariants: :math:`\kappa^2 = \tfrac92 g_3/g_2`.

        Raises
        ------
        LatticeError
            If an invariant is not finite, or :math:`g_2^3 - 27 g_3^2` is not zero to 48 bits of
            its terms.

        Examples
        --------
        >>> DegenerateLattice.from_invariants(12.0, 8.0).kappa_squared
        (3+0j)
        """
        exact = [exact_complex(complex(g)) for g in (g2, g3)]
        first, second = exact
        if first is None or second is None:
            raise LatticeError(f"invariants must be finite, got g2={g2!r}, g3={g3!r}")
        cube = _product(first, _product(first, first))
        square = _product(second, second)
        gap = GaussianRational(cube.re - 27 * square.re, cube.im - 27 * square.im)
        if _size(gap) > _TOLERANCE * (_size(cube) + 27 * _size(square)):
            raise LatticeError(
                f"the discriminant g2**3 - 27*g3**2 is not zero for g2={g2!r}, g3={g3!r}: "
                "use Lattice.from_invariants"
            )
        if not any(first):
            return cls(0j)
        norm = first.re**2 + first.im**2
        quotient = _product(second, GaussianRational(first.re / norm, -first.im / norm))
        return cls(complex(quotient.re * Fraction(9, 2), quotient.im * Fraction(9, 2)))

    @property
    def kappa(self) -> complex:
        """A square root of kappa_squared; the functions are even in it."""
        return cmath.sqrt(self.kappa_squared)

    @property
    def omega1(self) -> complex | None:
        """The half-period pi/(2 kappa), or None if there is no period."""
        return cmath.pi / (2 * self.kappa) if self.kappa_squared else None

    @property
    def invariants(self) -> tuple[complex, complex]:
        """``(g2, g3)``."""
        k = self.kappa_squared
        return 4 * k * k / 3, 8 * k * k * k / 27

    @property
    def roots(self) -> tuple[complex, complex, complex]:
        """``(e1, e2, e3)``, of which the last two are equal."""
        k = self.kappa_squared
        return 2 * k / 3, -k / 3, -k / 3


def _product(a: GaussianRational, b: GaussianRational) -> GaussianRational:
    return GaussianRational(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re)


def _size(x: GaussianRational) -> Fraction:
    return abs(x.re) + abs(x.im)
