"""The laws of DLMF chapter 23 as residuals of a backend's own values, in eps.

Half-periods and points must have so few bits that the sums and multiples formed here are exact in
floating point. Then a residual is the error of the backend and not of its input.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from verification.subjects import Subject
from wefpe_core import Lattice, identities
from wefpe_core.accuracy import in_eps

Array = npt.NDArray[Any]


def period_of_wp(subject: Subject, z: Array, other: Array, lattice: Lattice) -> Any:
    """DLMF 23.2.9 for both periods and functions; exact reduction makes the values identical."""
    here = subject.evaluate("wp_and_prime", z, lattice=lattice)
    residuals = []
    for period in (2 * complex(lattice.omega1), 2 * complex(lattice.omega3)):
        there = subject.evaluate("wp_and_prime", z + period, lattice=lattice)
        residuals += [identities.periodicity(*pair) for pair in zip(here, there, strict=True)]
    return np.stack(residuals)


def parity(subject: Subject, z: Array, other: Array, lattice: Lattice) -> Any:
    """wp is even; wp', zeta and sigma are odd."""
    p, dp = subject.evaluate("wp_and_prime", z, lattice=lattice)
    p_minus, dp_minus = subject.evaluate("wp_and_prime", -z, lattice=lattice)
    residuals = [identities.evenness(p, p_minus), identities.oddness(dp, dp_minus)]
    for function in ("zeta", "sigma"):
        (value,) = subject.evaluate(function, z, lattice=lattice)
        (reflected,) = subject.evaluate(function, -z, lattice=lattice)
        # Where sigma has overflowed, only the overflow itself can be compared.
        is_finite = np.isfinite(value)
        unlike = np.where(np.isfinite(reflected) == is_finite, 0.0, np.inf)
        odd = identities.oddness(
            np.where(is_finite, value, 1.0), np.where(is_finite, reflected, -1.0)
        )
        residuals.append(odd + unlike)
    return np.stack(residuals)


def differential_equation(subject: Subject, z: Array, other: Array, lattice: Lattice) -> Any:
    """DLMF 23.3.10."""
    p, dp = subject.evaluate("wp_and_prime", z, lattice=lattice)
    g2, g3 = (complex(g) for g in subject.backend.invariants(lattice))
    return identities.differential_equation(p, dp, g2, g3)


def addition(subject: Subject, z: Array, other: Array, lattice: Lattice) -> Any:
    """DLMF 23.10.1 and 23.10.5 (the three points lie on a line)."""
    p1, dp1 = subject.evaluate("wp_and_prime", z, lattice=lattice)
    p2, dp2 = subject.evaluate("wp_and_prime", other, lattice=lattice)
    p, dp = subject.evaluate("wp_and_prime", z + other, lattice=lattice)
    return np.stack(
        [
            identities.addition(p1, dp1, p2, dp2, p),
            identities.collinearity(p1, dp1, p2, dp2, p, dp),
        ]
    )


def duplication(subject: Subject, z: Array, other: Array, lattice: Lattice) -> Any:
    """DLMF 23.10.7."""
    p, dp = subject.evaluate("wp_and_prime", z, lattice=lattice)
    (doubled, _) = subject.evaluate("wp_and_prime", 2 * z, lattice=lattice)
    return identities.duplication(p, dp, doubled, complex(subject.backend.invariants(lattice)[0]))


def homogeneity(subject: Subject, z: Array, other: Array, lattice: Lattice) -> Any:
    """DLMF 23.10(iv) for the complex factor 2 + 2i, whose products are exact.

    The rounded constants of the two lattices differ. So the residual is measured against
    |f| + |z f'| + p^-k, as errors of values are: z next to the origin, p the shortest period.
    """
    factor = 2 + 2j
    scaled = Lattice(factor * complex(lattice.omega1), factor * complex(lattice.omega3))
    here = subject.evaluate("wp_and_prime", z, lattice=lattice)
    there = subject.evaluate("wp_and_prime", factor * z, lattice=scaled)
    a, b = (2 * complex(omega) for omega in lattice.reduced()[0].exact)
    offset = z - np.rint((z / a).imag / (b / a).imag) * b
    distance = np.abs(offset - np.rint((offset / a).real) * a)
    second = 6 * here[0] ** 2 - complex(subject.backend.invariants(lattice)[0]) / 2
    scales = (
        distance * np.abs(here[1]) + abs(a) ** -2,
        distance * np.abs(second) + abs(a) ** -3,
    )
    return np.stack(
        [
            identities.homogeneity(here[k], there[k], np.complex128(factor), degree, scales[k])
            for k, degree in ((0, -2), (1, -3))
        ]
    )


def modular_invariance(subject: Subject, z: Array, other: Array, lattice: Lattice) -> Any:
    """Every basis of a lattice gives the same values: S and T generate the basis changes."""
    w1, w3 = complex(lattice.omega1), complex(lattice.omega3)
    here = subject.evaluate("wp_and_prime", z, lattice=lattice)
    residuals = []
    for changed in (Lattice(w3, -w1), Lattice(w1, w1 + w3), Lattice(2 * w1 + w3, w1 + w3)):
        there = subject.evaluate("wp_and_prime", z, lattice=changed)
        residuals += [identities.periodicity(*pair) for pair in zip(here, there, strict=True)]
    return np.stack(residuals)


def conjugation(subject: Subject, z: Array, other: Array, lattice: Lattice) -> Any:
    """On the conjugate lattice the conjugate argument has the conjugate values."""
    mirrored = Lattice(complex(lattice.omega1).conjugate(), -complex(lattice.omega3).conjugate())
    here = subject.evaluate("wp_and_prime", z, lattice=lattice)
    there = subject.evaluate("wp_and_prime", z.conj(), lattice=mirrored)
    pairs = zip(here, there, strict=True)
    return np.stack([identities.conjugate_symmetry(*pair) for pair in pairs])


def quasi_periods(subject: Subject, z: Array, other: Array, lattice: Lattice) -> Any:
    """DLMF 23.2.11 for zeta."""
    etas = [complex(eta) for eta in subject.backend.quasi_periods(lattice)]
    (zeta,) = subject.evaluate("zeta", z, lattice=lattice)
    residuals = []
    for omega, eta in zip((lattice.omega1, lattice.omega3), etas, strict=True):
        (translated,) = subject.evaluate("zeta", z + 2 * complex(omega), lattice=lattice)
        residuals.append(identities.zeta_quasi_periodicity(zeta, translated, eta))
    return np.stack(residuals)


def constants(subject: Subject, z: Array, other: Array, lattice: Lattice) -> Any:
    """Legendre's relation 23.2.14, e1+e2+e3 = 0, and the invariants as functions of the roots."""
    eta1, eta3 = (complex(eta) for eta in subject.backend.quasi_periods(lattice))
    e = [complex(root) for root in subject.backend.roots(lattice)]
    g2, g3 = (complex(g) for g in subject.backend.invariants(lattice))
    w1, w3 = complex(lattice.omega1), complex(lattice.omega3)
    return np.array(
        [
            identities.legendre_relation(eta1, eta3, w1, w3),
            identities.roots_sum_to_zero(*e),
            identities.g2_from_roots(g2, *e),
            identities.g3_from_roots(g3, *e),
        ]
    )


Law = Callable[[Subject, Array, Array, Lattice], Any]

LAWS: dict[str, Law] = {
    "periodicity 23.2.9": period_of_wp,
    "parity 23.2(ii)": parity,
    "differential equation 23.3.10": differential_equation,
    "addition 23.10.1": addition,
    "duplication 23.10.7": duplication,
    "homogeneity 23.10(iv)": homogeneity,
    "modular invariance": modular_invariance,
    "conjugation": conjugation,
    "quasi-periods of zeta 23.2.11": quasi_periods,
    "Legendre, roots, invariants": constants,
}


def residual_in_eps(law: str, subject: Subject, z: Array, other: Array, lattice: Lattice) -> float:
    """The largest residual of a law over the points, in eps."""
    return in_eps(float(np.max(LAWS[law](subject, z, other, lattice))), "complex128")


def dyadic_points(count: int, seed: int) -> tuple[Array, Array]:
    """Points on a grid of 2^-10, away from 0: sums with few-bit half-periods are exact."""
    rng = np.random.default_rng(seed)
    z = (2 * rng.integers(-2000, 2000, (2, count)) + 1) / 1024.0
    w = (2 * rng.integers(-2000, 2000, (2, count)) + 1) / 1024.0 + 1 / 4096.0
    return z[0] + 1j * z[1], w[0] + 1j * w[1]


DYADIC_LATTICES = (
    Lattice(1.0, 1.0j),
    Lattice(1.25, 0.5 + 1.75j),
    Lattice(1.5 - 0.25j, 0.75 + 1.125j),
    Lattice(0.75, 3.0j),
    Lattice(4.5 + 2.25j, 2.75 + 1.625j),
)
