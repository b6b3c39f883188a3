r"""Truncation of the defining lattice sum (DLMF 23.2.4) over a box or a disk.

The box sum of wp runs over :math:`w=2m\omega_1+2n\omega_3` with :math:`|m|\le M, |n|\le N`:

.. math:: S = z^{-2} + {\sum}' [(z-w)^{-2} - w^{-2}], \qquad S' = -2\sum (z-w)^{-3}.

Everything rests on two facts, for periods 1 and :math:`\tau=x+iy`. Points outside the box
are at least :math:`\rho=\min((N+1)y, (M+1)y/|\tau|)` away from 0, as far as the next row
line or column line. And their sum of inverse p-th powers, ``T_p``, is at most the sum over
the rows beyond the box plus the sum over the columns beyond it, each line summed by
Poisson's formula (`far_points.box_tail_sum`).
"""

from __future__ import annotations

import math

from wefpe_core.bounds.far_points import (
    box_radius,
    box_remainder,
    box_tail_sum,
    disk_tail_sum,
    paired_tail,
)
from wefpe_core.bounds.normalised_lattice import (
    NormalisedPoint,
    TruncationBound,
    checked_count,
    normalise,
    original_units,
)
from wefpe_core.errors import InputError

# The rounding error of the remainder g_4: terms and full sums are within about 30
# roundings of sums of absolute values that no reduced lattice brings above 8.
_REMAINDER_SLACK = 2.0**-43


def paired_sum_bound(
    z: complex, omega1: complex, omega3: complex, *, m_max: int, n_max: int
) -> TruncationBound:
    r"""Bound for the box sum, with w and -w paired.

    .. math:: |\wp-S| \le 3|z|^2\frac{1-\theta^2/3}{(1-\theta^2)^2}T_4, \qquad
              |\wp'-S'| \le 6|z|\frac{1+\theta^2/3}{(1-\theta^2)^3}T_4,
              \qquad \theta=|z|/\rho.

    Parameters
    ----------
    z
        Point, in the units of the half-periods.
    omega1, omega3
        Half-periods of a reduced lattice.
    m_max, n_max
        The box: ``|m| <= m_max`` and ``|n| <= n_max``.

    Returns
    -------
    TruncationBound
        Infinite where ``theta >= 1``.

    Examples
    --------
    >>> from wefpe_core import Lattice, get_backend
    >>> backend, lattice = get_backend("numpy"), Lattice(1.0, 0.3 + 1j)
    >>> p, _ = backend.lattice_sum(0.25, lattice, 20, 20)
    >>> bound = paired_sum_bound(0.25, 1.0, 0.3 + 1j, m_max=20, n_max=20)
    >>> bool(abs(p - backend.wp(0.25, lattice)) < bound.wp < 1e-3)
    True
    """
    point, m_max, n_max = _checked_box(z, omega1, omega3, m_max, n_max)
    wp, wp_prime = paired_tail(
        point.z_abs,
        radius=box_radius(point, m_max, n_max),
        order=3,
        tail_sum=box_tail_sum(4, point, m_max, n_max),
    )
    return original_units(wp, wp_prime, point)


def unpaired_sum_bound(
    z: complex, omega1: complex, omega3: complex, *, m_max: int, n_max: int
) -> TruncationBound:
    r"""Bound for a sum over any finite set that contains the box, symmetric or not.

    .. math:: |\wp-S| \le 2|z|\frac{1+\theta/2}{(1-\theta)^2}T_3, \qquad
              |\wp'-S'| \le 2(1-\theta)^{-3}T_3.

    Parameters and result are those of `paired_sum_bound`.

    Examples
    --------
    >>> box = {"m_max": 20, "n_max": 20}
    >>> unpaired = unpaired_sum_bound(0.25, 1.0, 1j, **box)
    >>> unpaired.wp > paired_sum_bound(0.25, 1.0, 1j, **box).wp  # it asks less of the sum
    True
    """
    point, m_max, n_max = _checked_box(z, omega1, omega3, m_max, n_max)
    wp, wp_prime = _unpaired_tail(
        point.z_abs,
        radius=box_radius(point, m_max, n_max),
        tail_sum=box_tail_sum(3, point, m_max, n_max),
    )
    return original_units(wp, wp_prime, point)


def signed_sum_bound(
    z: complex, omega1: complex, omega3: complex, *, m_max: int, n_max: int
) -> TruncationBound:
    r"""Sharp bound for the box sum: the leading term of the tail is computed, not estimated.

    .. math:: |\wp-S| \le 3|z|^2|g_4| + |z|^4\frac{5-3\theta^2}{(1-\theta^2)^2}T_6, \qquad
              |\wp'-S'| \le 6|z||g_4| + |z|^3\frac{20-18\theta^2+6\theta^4}{(1-\theta^2)^3}T_6

    with :math:`g_4 = g_2/60 - \sum_{box}' w^{-4}`, the sum over the points outside the box
    (DLMF 23.3.1). Parameters and result are those of `paired_sum_bound`; the first call for a
    lattice and box costs a sum over the box.

    Examples
    --------
    >>> box = {"m_max": 20, "n_max": 20}
    >>> signed = signed_sum_bound(0.25, 1.0, 1j, **box)
    >>> signed.wp < paired_sum_bound(0.25, 1.0, 1j, **box).wp
    True
    """
    point, m_max, n_max = _checked_box(z, omega1, omega3, m_max, n_max)
    wp, wp_prime = paired_tail(
        point.z_abs,
        radius=box_radius(point, m_max, n_max),
        order=5,
        tail_sum=box_tail_sum(6, point, m_max, n_max),
    )
    if wp == math.inf:
        return original_units(wp, wp_prime, point)
    leading = abs(box_remainder(point.tau, m_max, n_max)) + _REMAINDER_SLACK
    return original_units(
        wp + 3 * point.z_abs**2 * leading, wp_prime + 6 * point.z_abs * leading, point
    )


def disk_paired_bound(
    z: complex, omega1: complex, omega3: complex, *, radius: float
) -> TruncationBound:
    r"""Bound for the sum over the disk ``0 < |w| <= radius`` instead of a box.

    The formulas of `paired_sum_bound` hold with :math:`\rho` = radius and a tail sum from
    the Voronoi cells, which tile the plane and reach at most the covering radius far.
    `radius` is in the units of the half-periods.

    Examples
    --------
    >>> near, far = (disk_paired_bound(0.25, 1.0, 1j, radius=radius) for radius in (40, 80))
    >>> 3 < near.wp / far.wp < 5  # it falls with the square of the radius
    True
    """
    point, disk = _checked_disk(z, omega1, omega3, radius)
    tail_sum = disk_tail_sum(4, point, disk)
    wp, wp_prime = paired_tail(point.z_abs, radius=disk, order=3, tail_sum=tail_sum)
    return original_units(wp, wp_prime, point)


def disk_unpaired_bound(
    z: complex, omega1: complex, omega3: complex, *, radius: float
) -> TruncationBound:
    """The bound of `unpaired_sum_bound` for any finite set that contains the disk.

    The parameters are those of `disk_paired_bound`.

    Examples
    --------
    >>> near, far = (disk_unpaired_bound(0.25, 1.0, 1j, radius=radius) for radius in (40, 80))
    >>> 1.5 < near.wp / far.wp < 3  # it falls with the radius
    True
    """
    point, disk = _checked_disk(z, omega1, omega3, radius)
    tail_sum = disk_tail_sum(3, point, disk)
    wp, wp_prime = _unpaired_tail(point.z_abs, radius=disk, tail_sum=tail_sum)
    return original_units(wp, wp_prime, point)


def _checked_box(
    z: complex, omega1: complex, omega3: complex, m_max: int, n_max: int
) -> tuple[NormalisedPoint, int, int]:
    return (
        normalise(z, omega1, omega3),
        checked_count("m_max", m_max, minimum=1),
        checked_count("n_max", n_max, minimum=1),
    )


def _checked_disk(
    z: complex, omega1: complex, omega3: complex, radius: float
) -> tuple[NormalisedPoint, float]:
    point = normalise(z, omega1, omega3)
    if isinstance(radius, bool) or not 0 < radius < math.inf:
        raise InputError(f"radius must be a positive finite number, got {radius!r}")
    disk = normalise(radius, omega1, omega3).z_abs * (1 - 2.0**-42)
    # No point but 0 is closer than the shortest period. A disk beyond 2^60 periods gets the
    # bound of the smaller one, which is larger, and keeps the powers below finite.
    return point, min(max(disk, 1 - 2.0**-42), 2.0**60)


def _unpaired_tail(z_abs: float, *, radius: float, tail_sum: float) -> tuple[float, float]:
    theta = z_abs / radius
    if not theta < 1:
        return math.inf, math.inf
    gap = 1 - theta
    return z_abs * (2 + theta) / gap**2 * tail_sum, 2 / gap**3 * tail_sum
