"""Where backends are measured: named families of lattices, named regions of points.

Every set of points comes from a fixed seed, so a row of the report can be reproduced.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import mpmath
import numpy as np
import numpy.typing as npt

from wefpe_core import Lattice, get_backend

SEED = 20240823

Points = npt.NDArray[np.complex128]


def _skewed(lattice: Lattice, p: int, q: int, r: int, s: int) -> Lattice:
    """The same lattice in the basis given by an integer matrix of determinant 1."""
    w1, w3 = complex(lattice.omega1), complex(lattice.omega3)
    return Lattice(p * w1 + q * w3, r * w1 + s * w3)


def _from_tau(tau: complex, omega1: complex = 0.5) -> Lattice:
    """The lattice of tau, with half-periods rounded to doubles so that tensors can hold them."""
    return Lattice(omega1, omega1 * tau)


FAMILIES: dict[str, tuple[Lattice, ...]] = {
    "square": (Lattice.lemniscatic(), Lattice(1.0, 1.0j)),
    "hexagonal": (Lattice.equianharmonic(), _from_tau(0.499 + 0.8671j)),
    "oblique": (Lattice(1.0, 0.3 + 0.9j), Lattice(1.3, 0.13 + 1.95j)),
    "rotated": (
        _from_tau(0.2 + 1.1j, omega1=0.8 + 0.6j),
        _from_tau(-0.35 + 0.97j, omega1=0.3 - 0.7j),
    ),
    "thin": (
        _from_tau(0.45 + 0.001j),
        _from_tau(0.4142135623730951 + 0.001j),
        _from_tau(0.001j),
    ),
    "tall": (Lattice(1.0, 20.0j), _from_tau(0.5 + 2.2j, omega1=0.7j)),
    "unreduced": (
        _skewed(Lattice(1.0, 0.3 + 0.9j), 5, 3, 3, 2),
        _skewed(Lattice(0.6 + 0.3j, -0.2 + 1.4j), 7, -12, -4, 7),
    ),
    # Here eta3/eta1 is real (1/2 and 0), so that multiples of the quasi-periods cancel far away.
    "balanced": (
        _from_tau(0.5 + 1.9095772344352957j, omega1=0.4 + 0.3j),
        _from_tau(1.910140496498271j, omega1=0.3 - 0.7j),
    ),
}


# The name of all families together, for functions that take no lattice.
ALL = "all"


def lattices_of(family: str) -> tuple[Lattice, ...]:
    if family == ALL:
        return tuple(lattice for lattices in FAMILIES.values() for lattice in lattices)
    return FAMILIES[family]


# Rounding moves pi/a by 0.495 eps here. Next to the pole wp has this error twice, wp' three times.
PI_BADLY_ROUNDED = Lattice(1.5629296898933691, 1.7192226588827062j)


def _spread(rng: np.random.Generator, count: int, low: float, high: float) -> Points:
    """Complex numbers of random phase, moduli spread evenly over the decades low..high."""
    phase = np.exp(2j * np.pi * rng.random(count))
    return np.asarray(10.0 ** rng.uniform(low, high, count) * phase)


def _cell(rng: np.random.Generator, count: int, a: complex, b: complex) -> Points:
    return (rng.random(count) - 0.5) * a + (rng.random(count) - 0.5) * b


def _generic(lattice: Lattice, rng: np.random.Generator, count: int, far: int) -> Points:
    return _cell(rng, count, *_reduced_periods(lattice))


def _pole_at_zero(lattice: Lattice, rng: np.random.Generator, count: int, far: int) -> Points:
    return abs(_reduced_periods(lattice)[0]) * _spread(rng, count, -12, -1)


def _other_poles(lattice: Lattice, rng: np.random.Generator, count: int, far: int) -> Points:
    a, b = _reduced_periods(lattice)
    m, n = rng.integers(-3, 4, (2, count))
    return m * a + n * b + abs(a) * _spread(rng, count, -12, -1)


def _half_periods(lattice: Lattice, rng: np.random.Generator, count: int, far: int) -> Points:
    a, b = _reduced_periods(lattice)
    halves = np.array([a / 2, b / 2, (a + b) / 2])
    return halves[rng.integers(0, 3, count)] + abs(a) * _spread(rng, count, -17, -2)


def _zeros(lattice: Lattice, rng: np.random.Generator, count: int, far: int) -> Points:
    a, _ = _reduced_periods(lattice)
    zero = complex(get_backend("mpmath").inverse_wp(0, lattice))
    return np.where(rng.random(count) < 0.5, zero, -zero) + abs(a) * _spread(rng, count, -17, -2)


def _far_away(lattice: Lattice, rng: np.random.Generator, count: int, far: int) -> Points:
    m, n = rng.integers(-far, far + 1, (2, count))
    offset = _cell(rng, count, *_reduced_periods(lattice))
    return 2 * complex(lattice.omega1) * m + 2 * complex(lattice.omega3) * n + offset


def _quasi_periods_cancel(
    lattice: Lattice, rng: np.random.Generator, count: int, far: int
) -> Points:
    """Far away, where zeta is a sum of large multiples of quasi-periods that nearly cancel."""
    a, b = _reduced_periods(lattice)
    eta1, eta3 = map(complex, get_backend("numpy").quasi_periods(lattice.reduced()[0]))
    n = rng.integers(-far, far + 1, count)
    m = np.rint(-n * (eta3 / eta1).real)
    return m * a + n * b + _cell(rng, count, a, b)


def _around_the_pole(lattice: Lattice, rng: np.random.Generator, count: int, far: int) -> Points:
    """A disk inside the cell, where wp takes no value more than twice."""
    return (
        0.45
        * abs(_reduced_periods(lattice)[0])
        * np.sqrt(rng.random(count))
        * _spread(rng, count, 0, 0)
    )


def _symmetry_lines(lattice: Lattice, rng: np.random.Generator, count: int, far: int) -> Points:
    """Points on lines along a period through 0 or through the middle of the cell."""
    a, b = _reduced_periods(lattice)
    lines = np.array([[a, 0], [b, 0], [a, b / 2], [b, a / 2]])
    direction, start = lines[np.arange(count) % len(lines)].T
    return start + rng.uniform(-0.5, 0.5, count) * direction


Region = Callable[[Lattice, np.random.Generator, int, int], Points]

REGIONS: dict[str, Region] = {
    "generic": _generic,
    "pole at 0": _pole_at_zero,
    "other poles": _other_poles,
    "half-periods": _half_periods,
    "zeros": _zeros,
    "far away": _far_away,
    "symmetry lines": _symmetry_lines,
}

# Only some functions are measured here. The order of the regions decides what points are drawn.
OTHER_REGIONS: dict[str, Region] = {
    "around the pole": _around_the_pole,
    "quasi-periods cancel": _quasi_periods_cancel,
}

_DRAWN = 1000  # the number of points that are drawn at least; a run takes the first of them

# How many periods away "far away" is, by dtype. Farther out, floats are not dense in a cell.
FAR = {"complex128": 10**6, "complex64": 10**3}


@cache
def _reduced_periods(lattice: Lattice) -> tuple[complex, complex]:
    reduced, _ = lattice.reduced()
    return 2 * complex(reduced.omega1), 2 * complex(reduced.omega3)


def points(region: str, lattice: Lattice, dtype: str, count: int) -> npt.NDArray[Any]:
    """`count` points of a region, rounded to `dtype`: the very numbers that a backend is given."""
    known = REGIONS | OTHER_REGIONS
    rng = np.random.default_rng([SEED, list(known).index(region)])
    # A run takes the first points of many, so a larger run measures what a small one measures too.
    drawn = max(count, _DRAWN)
    return known[region](lattice, rng, drawn, FAR[dtype])[:count].astype(dtype)


# Half-periods, and arguments in single precision that lie next to a lattice point by accident: a
# multiple of a period rounds to the argument, and the result depends on their difference alone.
ACCIDENTAL_POLES: tuple[tuple[complex, complex, complex], ...] = (
    (1.0000000000000002, 1.0j, 2.0),
    (1.0000000000000002, 1.0j, 2.0 + 2.0j),
    (1.0, 1.0000000000000002j, 2.0j),
    (1.0, 0.5 + 1.0000000000000002j, 1.0 + 2.0j),
    (1.0000000000000002, 0.9999999999999999j, 4.0 - 2.0j),
    # A double next to 1/3 or 1/7 consists of three floats, and the first two of them cancel.
    (1 / 6, 1.0j, 1.0),
    (1 / 14, 1.0j, 1.0 + 2.0j),
    (0.5, 1j / 6, 1.0j),
    (1 / 6, 0.1 + 1j / 22, 1.0),
    # Both periods take part in the cancellation; these were found by search.
    (0.297259610114074, 0.3006019338317372 + 0.20452352003617721j, 7.207762 + 4.4995174j),
    (0.27012640024822193, 0.5807659359931762 + 0.55685955286026j, 7.8876443 + 4.4548764j),
    (0.5707280937819182, -0.0025788651553291984 + 0.8602380752563477j, 5.6918077 + 5.1614285j),
    (0.575873814710931, 0.0034450636526822307 + 0.6691269874572754j, 6.931156 + 4.014762j),
    # Tens of thousands of periods away, where the integers have more than half the bits of a float.
    (0.6514280811076798, -0.00047042068493169387 + 1j, -1.9239179 + 89946j),
    (0.7699634294464494, 0.2273706459640395 + 1j, -0.04180631 + 65892j),
    (0.6923078961912617, -0.31477095549697637 + 1j, -0.00370947 - 58812j),
)

# In double precision the same needs half-periods longer than a double; these have 36 digits.
with mpmath.workdps(36):
    LONG_PERIODS = (
        *(
            (Lattice(mpmath.mpf(p) / q, mpmath.mpc(mpmath.mpf(r) / 11, mpmath.mpf(s) / t)), z)
            for (p, q), (r, s, t), z in (
                ((1, 3), (0, 1, 1), 2 / 3),
                ((1, 3), (0, 1, 1), 2000 / 3 + 2j),
                ((1, 1), (0, 4, 3), 8j / 3),
                ((4, 7), (3, 4, 3), 8 / 7 * 5 + 6 / 11 * 3 + 8j),
                ((4, 7), (3, 5, 7), 6 / 11 + 10j / 7),
            )
        ),
        # Here pi/a is 1/2 + i, so a constant is 1 that is 0 on other lattices.
        (Lattice(mpmath.pi / (1 + 2j), mpmath.pi / (1 + 2j) * (0.25 + 1.25j)), 0.3 + 0.2j),
    )
