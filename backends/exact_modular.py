"""Exact reduction of tau, and what follows for modular forms: shared by mpmath and flint."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

from wefpe_core._exact import GaussianRational
from wefpe_core.lattice import Lattice
from wefpe_core.modular_forms import twice_zeta


class Step(NamedTuple):
    """One step of a reduction: tau was shifted by -shift, and then inverted unless it is last."""

    tau: GaussianRational  # after the shift
    shift: int


def reduction_steps(tau: GaussianRational) -> list[Step]:
    """Shifts by the nearest integer and inversions, exactly; the last tau is the reduced one."""
    steps = []
    while True:
        shift = round(tau.re)
        tau = GaussianRational(tau.re - shift, tau.im)
        steps.append(Step(tau, shift))
        norm = tau.re**2 + tau.im**2
        if norm >= 1:
            return steps
        tau = GaussianRational(-tau.re / norm, tau.im / norm)


def exact_tau(lattice: Lattice) -> GaussianRational:
    """omega3/omega1 of the basis given."""
    first, third = lattice.exact
    norm = first.re**2 + first.im**2
    return GaussianRational(
        (third.re * first.re + third.im * first.im) / norm,
        (third.im * first.re - third.re * first.im) / norm,
    )


def _laurent(e4: Any, e6: Any, k: int) -> Any:
    """E_k for k >= 4 by DLMF 23.9.5, from E4 and E6."""
    # c_n = (2n - 1) G_2n of the lattice 1, tau, in units of pi^2n.
    known = {2: 3 * ratio_of(e4, twice_zeta(4)), 3: 5 * ratio_of(e6, twice_zeta(6))}
    for n in range(4, k // 2 + 1):
        total = sum((known[i] * known[n - i] for i in range(2, n - 1)), 0 * e4)
        known[n] = 3 * total / ((2 * n + 1) * (n - 3))
    return ratio_of(known[k // 2] / (k - 1), 1 / twice_zeta(k))


def ratio_of(value: Any, factor: Fraction) -> Any:
    return value * factor.numerator / factor.denominator


def eisenstein_of_reduced(thetas: tuple[Any, Any, Any], k: int) -> Any:
    """E_k, k >= 4, from the fourth powers of the theta constants."""
    t2, t3, t4 = thetas
    e4 = (t2 * t2 + t3 * t3 + t4 * t4) / 2
    e6 = (t2 + t3) * (t3 + t4) * (t4 - t2) / 2
    return _laurent(e4, e6, k)
