r"""Truncation of the Laurent series at the origin (DLMF 23.9.2)."""

from __future__ import annotations

import math
from functools import lru_cache

from wefpe_core.bounds.far_points import paired_tail
from wefpe_core.bounds.normalised_lattice import (
    TruncationBound,
    checked_count,
    normalise,
    original_units,
)

# Dirichlet series are summed to here and the rest bounded: 3e-6 too much at the exponent 2,
# rapidly less beyond.
_DIRICHLET_TERMS = 600


def laurent_bound(z: complex, omega1: complex, omega3: complex, *, terms: int) -> TruncationBound:
    r"""Bound for the tail of :math:`\wp=z^{-2}+\sum_{k=2}^{K}c_kz^{2k-2}` and of its derivative.

    With :math:`K-1` = `terms` coefficients, :math:`\theta=|z/2\omega_1|` and
    :math:`Z_k=6\zeta(k)L(k,\chi_{-3})`:

    .. math:: |2\omega_1|^{-2}\,Z_{K+1}\,\theta^{2K}\,
              \frac{(2K+1)-(2K-1)\theta^2}{(1-\theta^2)^2},

    and for wp' its term-by-term derivative. :math:`Z_k` is the hexagonal lattice's sum of
    :math:`|w|^{-2k}`, the largest among reduced lattices with shortest period 1: the points
    :math:`m\pm n\tau` together contribute most when :math:`|\mathrm{Re}\,\tau|` is largest and
    :math:`|\tau|` smallest.

    Parameters
    ----------
    z
        Point, in the units of the half-periods.
    omega1, omega3
        Half-periods of a reduced lattice; the bound depends on omega1 only.
    terms
        Coefficients kept, ``c_2`` first; 0 or more.

    Returns
    -------
    TruncationBound
        Infinite where ``|z| >= |2*omega1|``, beyond the circle of convergence.

    Examples
    --------
    >>> from wefpe_core import Lattice
    >>> lattice, z = Lattice(1.0, 0.3 + 1j), 0.25
    >>> start = 1 / z**2 + lattice.g2 / 20 * z**2 + lattice.g3 / 28 * z**4
    >>> bound = laurent_bound(z, 1.0, 0.3 + 1j, terms=2)
    >>> bool(abs(lattice.wp(z) - start) < bound.wp < 1e-4)
    True
    """
    point = normalise(z, omega1, omega3)
    last = checked_count("terms", terms, minimum=0) + 1
    wp, wp_prime = paired_tail(
        point.z_abs, radius=1.0, order=2 * last + 1, tail_sum=_hexagonal_sum(last + 1)
    )
    return original_units(wp, wp_prime, point)


@lru_cache(maxsize=256)
def _hexagonal_sum(k: int) -> float:
    r"""Upper bound for :math:`6\zeta(k)L(k,\chi_{-3})`, k at least 2."""
    n = _DIRICHLET_TERMS
    # Convexity: the terms behind n are below the integral from n + 1/2.
    zeta = math.fsum(float(j) ** -k for j in range(1, n + 1)) + (n + 0.5) ** (1 - k) / (k - 1)
    # Signs alternate and sizes fall, so stopping after a positive term overestimates.
    character = math.fsum(
        (-1 if j % 3 == 2 else 1) * float(j) ** -k for j in range(1, n + 2) if j % 3
    )
    return 6 * zeta * character
