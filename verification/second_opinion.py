"""Why the oracle can be trusted: its values against other formulas and certified balls.

The oracle sums rows of the lattice in closed form. Here theta functions (DLMF 23.6.5, 23.6.9,
23.6.13) of mpmath and, where python-flint is installed, balls of Arb answer the same questions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import mpmath

from verification import cases, oracle
from verification.functions import FUNCTIONS
from verification.subjects import Skip
from wefpe_core import Lattice, available_backends, get_backend

DIGITS = oracle.DIGITS + 10
# The oracle promises thirty digits. A little is lost where the scale is a sum of parts.
ALLOWED = 10.0 ** (2 - oracle.DIGITS)

# Values of a function at one point of a lattice, computed in another way than by the oracle.
Opinion = Callable[[str, complex, Lattice], tuple[Any, ...]]


@dataclass(frozen=True)
class Agreement:
    """How far apart the oracle and another source are, over a sample of points."""

    function: str
    source: str
    points: int
    largest: float  # in units of the scale of errors

    @property
    def holds(self) -> bool:
        return self.largest <= ALLOWED


def theta_functions(function: str, z: complex, lattice: Lattice) -> tuple[Any, ...]:
    """wp, wp', zeta and sigma of a point of the cell around 0, in the reduced basis."""
    reduced, _ = lattice.reduced()
    with mpmath.workdps(DIGITS):
        a, b = (
            2 * mpmath.mpc(*(mpmath.mpf(x.numerator) / x.denominator for x in half))
            for half in reduced.exact
        )
        nome, scale = mpmath.expjpi(b / a), mpmath.pi / a
        v = scale * mpmath.mpc(z)
        theta = [mpmath.jtheta(1, v, nome, k) for k in range(2)]
        slope, third = (mpmath.jtheta(1, 0, nome, k) for k in (1, 3))
        if function == "wp_and_prime":
            c2, c3, c4 = (mpmath.jtheta(k, 0, nome) for k in (2, 3, 4))
            t2, t3, t4 = (mpmath.jtheta(k, v, nome) for k in (2, 3, 4))
            wp = scale**2 * ((c3**4 + c4**4) / 3 + (c3 * c4 * t2 / theta[0]) ** 2)
            # 23.6.9 with 23.6.5: the three square roots of wp - e_j, multiplied.
            product = c2 * c3 * c4
            return wp, -2 * scale**3 * product**2 * t2 * t3 * t4 / theta[0] ** 3
        eta = -(scale**2) * third / (3 * slope)  # eta1/omega1, DLMF 23.6.8
        if function == "zeta":
            return (eta * z + scale * theta[1] / theta[0],)
        return (mpmath.exp(eta * mpmath.mpc(z) ** 2 / 2) * theta[0] / (scale * slope),)


def arb_balls(function: str, z: complex, lattice: Lattice) -> tuple[Any, ...]:
    """Midpoints of balls with ten digits more than are compared, so their radii do not matter."""
    values = getattr(get_backend("flint", digits=DIGITS), function)(z, lattice)
    values = values if isinstance(values, tuple) else (values,)
    with mpmath.workdps(DIGITS):
        return tuple(mpmath.mpc(*map(_midpoint, (ball.real, ball.imag))) for ball in values)


def _midpoint(ball: Any) -> Any:
    # Not through a fraction: far below 1 its denominator would have a million digits.
    mantissa, exponent = ball.mid().man_exp()
    return mpmath.ldexp(mpmath.mpf(int(mantissa)), int(exponent))


# Plain theta functions are accurate neither at far points nor on thin lattices.
_THETA_REGIONS = ("generic", "pole at 0", "half-periods", "zeros")


def sample(count: int, regions: tuple[str, ...]) -> Iterator[tuple[complex, Lattice]]:
    for lattices in cases.FAMILIES.values():
        for lattice in lattices:
            for region in regions:
                for z in cases.points(region, lattice, "complex128", count):
                    yield complex(z), lattice


def compare(function: str, source: str, opinion: Opinion, count: int) -> Agreement:
    regions = FUNCTIONS[function].regions
    if opinion is theta_functions:
        regions = tuple(region for region in regions if region in _THETA_REGIONS)
    worst, points = 0.0, 0
    for z, lattice in sample(count, regions):
        references = FUNCTIONS[function].reference(z, lattice)
        for value, reference in zip(opinion(function, z, lattice), references, strict=True):
            error = reference.error_of(value)
            worst = error if not error <= worst else worst
        points += 1
    return Agreement(function, source, points, worst)


def agreements(count: int) -> tuple[list[Agreement], list[Skip]]:
    """The oracle against every other source that is installed, and why one is missing."""
    found = [
        compare(function, "theta functions", theta_functions, count)
        for function in ("wp_and_prime", "zeta", "sigma")
    ]
    if "flint" not in available_backends():
        return found, [Skip.not_installed("flint")]
    found += [
        compare(function, "Arb balls", arb_balls, count)
        for function in ("wp_and_prime", "zeta", "sigma")
    ]
    return found, []
