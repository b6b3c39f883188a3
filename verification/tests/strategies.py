"""Mathematical objects for hypothesis: lattices of every shape, points where it hurts.

Numbers have few bits, so that sums of them are exact and counter-examples readable.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from wefpe_core import Lattice


def dyadic(low: int, high: int, denominator: int) -> st.SearchStrategy[float]:
    """Multiples of 1/denominator between two integers."""
    return st.integers(low * denominator, high * denominator).map(lambda k: k / denominator)


@st.composite
def reduced_taus(draw: st.DrawFn) -> complex:
    """Half-period ratios in (or within a step of) the fundamental domain, up to Im tau = 8."""
    x = draw(dyadic(-1, 1, 64)) / 2
    y = draw(st.integers(56, 512)) / 64
    return complex(x, y)


@st.composite
def half_periods(draw: st.DrawFn) -> complex:
    """A nonzero half-period in any direction."""
    x, y = draw(dyadic(-2, 2, 16)), draw(dyadic(-2, 2, 16))
    return complex(x, y) if (x, y) != (0, 0) else 1 + 0j


@dataclass(frozen=True)
class SkewedLattice:
    """A lattice in an unreduced basis, with the matrix that made it."""

    original: Lattice
    skewed: Lattice
    matrix: tuple[tuple[int, int], tuple[int, int]]


@st.composite
def lattices(draw: st.DrawFn) -> Lattice:
    """Square, hexagonal (nearly), rectangular, thin, tall, oblique; rotated omega1."""
    kind = draw(st.sampled_from(["square", "hexagonal", "rectangular", "thin", "oblique"]))
    omega1 = draw(half_periods())
    if kind == "square":
        tau = 1j
    elif kind == "hexagonal":
        tau = complex(0.5, 887 / 1024)  # sqrt(3)/2 to ten bits, so that products stay exact
    elif kind == "rectangular":
        tau = complex(0, draw(st.integers(8, 256)) / 32)
    elif kind == "thin":
        tau = complex(draw(dyadic(-1, 1, 64)), draw(st.integers(1, 32)) / 1024)
    else:
        tau = draw(reduced_taus())
    return Lattice(omega1, omega1 * tau)


@st.composite
def skewed_lattices(draw: st.DrawFn) -> SkewedLattice:
    """A lattice in a basis a few shears and swaps away from the one it was made in."""
    lattice = draw(lattices())
    w1, w3 = complex(lattice.omega1), complex(lattice.omega3)
    p, q, r, s = 1, 0, 0, 1
    for shear in draw(st.lists(st.integers(-4, 4), min_size=1, max_size=3)):
        r, s = r + shear * p, s + shear * q
        p, q, r, s = r, s, -p, -q
    return SkewedLattice(lattice, Lattice(p * w1 + q * w3, r * w1 + s * w3), ((p, q), (r, s)))


@st.composite
def cell_points(draw: st.DrawFn, lattice: Lattice) -> complex:
    """A point with few-bit coordinates in the basis, not a lattice point or half-period."""
    s, r = (draw(st.integers(-31, 32)) / 64 for _ in range(2))
    s, r = (s + 1 / 256, r + 1 / 512)  # never on the half-lattice, nor on its diagonals
    return 2 * s * complex(lattice.omega1) + 2 * r * complex(lattice.omega3)
