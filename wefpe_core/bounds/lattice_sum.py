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
    BoxRemainders,
    box_radius,
    box_tail_sum,
    disk_tail_sum,
    normalised_remainders,
)
from wefpe_core.bounds.outward import (
    NormalisedPoint,
    TruncationBound,
    checked_count,
    normalise,
    original_units,
    paired_tail,
)
from wefpe_core.errors import InputError

# The rounding error of a remainder g_4 or g_6: terms and full sums are within about 30
# roundings of sums of absolute values that no reduced lattice brings above 8.
_REMAINDER_SLACK = 2.0**-43

# pi * B and 8 * B, where B = coth(t) + t/sinh(t)^2 <= 1.00169 at t = 3*pi/2 is the largest
# Poisson factor a balanced box can have.
_ONE_LINE_PAIRED = 3.15
_ONE_LINE_UNPAIRED = 8.015


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

    with :math:`g_4` of `box_remainders`. Parameters and result are those of
    `paired_sum_bound`; the first call for a lattice and box costs a sum over the box.
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
    leading = abs(normalised_remainders(point.tau, m_max, n_max).g4) + _REMAINDER_SLACK
    return original_units(
        wp + 3 * point.z_abs**2 * leading, wp_prime + 6 * point.z_abs * leading, point
    )


def corrected_sum_bound(
    z: complex, omega1: complex, omega3: complex, *, m_max: int, n_max: int
) -> TruncationBound:
    r"""Bound for the box sum after two terms of its tail have been added back.

    The corrected sums are :math:`S+3g_4z^2+5g_6z^4` and :math:`S'+6g_4z+20g_6z^3` with the
    values `box_remainders` returns (their rounding is part of the bound):

    .. math:: |z|^6\frac{7-5\theta^2}{(1-\theta^2)^2}T_8, \qquad
              |z|^5\frac{42-54\theta^2+20\theta^4}{(1-\theta^2)^3}T_8.

    Parameters and result are those of `paired_sum_bound`.
    """
    point, m_max, n_max = _checked_box(z, omega1, omega3, m_max, n_max)
    wp, wp_prime = paired_tail(
        point.z_abs,
        radius=box_radius(point, m_max, n_max),
        order=7,
        tail_sum=box_tail_sum(8, point, m_max, n_max),
    )
    if wp == math.inf:
        return original_units(wp, wp_prime, point)
    r = point.z_abs
    return original_units(
        wp + _REMAINDER_SLACK * (3 * r**2 + 5 * r**4),
        wp_prime + _REMAINDER_SLACK * (6 * r + 20 * r**3),
        point,
    )


def box_remainders(omega1: complex, omega3: complex, *, m_max: int, n_max: int) -> BoxRemainders:
    r"""The leading coefficients of the box sum's tail, :math:`g_k = G_k - \sum_{box}' w^{-k}`.

    :math:`G_4=g_2/60` and :math:`G_6=g_3/140` are the full sums (DLMF 23.3.1, 23.3.2). The
    tail of wp begins :math:`3g_4z^2+5g_6z^4`. Costs one pass over the box; remembered.
    """
    point, m_max, n_max = _checked_box(0, omega1, omega3, m_max, n_max)
    g4, g6 = normalised_remainders(point.tau, m_max, n_max)
    period = 2 * complex(omega1)
    for _ in range(4):
        g4 /= period
    for _ in range(6):
        g6 /= period
    return BoxRemainders(g4, g6)


def balanced_m_max(omega1: complex, omega3: complex, *, n_max: int) -> int:
    """Smallest `m_max` for which the one-line bounds hold: ``|tau| (n_max + 1/2) - 1/2``."""
    tau_abs = normalise(0, omega1, omega3).tau_abs
    n_max = checked_count("n_max", n_max, minimum=1)
    # The constants leave a thousandth to spare, so a product rounded up to just above an
    # integer may count as that integer.
    needed = (tau_abs * (n_max + 0.5) - 0.5) * (1 - 2.0**-40)
    if not needed < 2**31 - 1:
        raise InputError(f"no balanced box for n_max={n_max}: m_max would be {needed:g}")
    return math.ceil(needed)


def one_line_paired_bound(
    z: complex, omega1: complex, omega3: complex, *, m_max: int, n_max: int
) -> TruncationBound:
    r"""Bound for a balanced box, short enough to quote.

    With :math:`R=(N+\frac12)\,\mathrm{Im}\,\tau\,|2\omega_1|`, the area
    :math:`A=|2\omega_1|^2\,\mathrm{Im}\,\tau` and :math:`\theta=|z|/R`:

    .. math:: |\wp-S| \le 9.45\,\frac{1-\theta^2/3}{(1-\theta^2)^2}\,\frac{|z|^2}{AR^2}, \qquad
              |\wp'-S'| \le 18.9\,\frac{1+\theta^2/3}{(1-\theta^2)^3}\,\frac{|z|}{AR^2}.

    In the Voronoi cell of 0, :math:`\theta\le 1/(\sqrt2(N+\frac12))`. Parameters and result
    are those of `paired_sum_bound`; an `m_max` below `balanced_m_max` is an `InputError`.
    """
    point, radius = _balanced_box(z, omega1, omega3, m_max, n_max)
    tail_sum = _ONE_LINE_PAIRED / (point.height * radius) / radius
    wp, wp_prime = paired_tail(point.z_abs, radius=radius, order=3, tail_sum=tail_sum)
    return original_units(wp, wp_prime, point)


def one_line_unpaired_bound(
    z: complex, omega1: complex, omega3: complex, *, m_max: int, n_max: int
) -> TruncationBound:
    r"""The unpaired companion of `one_line_paired_bound`, for any set containing the box.

    .. math:: |\wp-S| \le 16.03\,\frac{1+\theta/2}{(1-\theta)^2}\,\frac{|z|}{AR}, \qquad
              |\wp'-S'| \le \frac{16.03}{(1-\theta)^3}\,\frac{1}{AR}.
    """
    point, radius = _balanced_box(z, omega1, omega3, m_max, n_max)
    tail_sum = _ONE_LINE_UNPAIRED / point.height / radius
    wp, wp_prime = _unpaired_tail(point.z_abs, radius=radius, tail_sum=tail_sum)
    return original_units(wp, wp_prime, point)


def disk_paired_bound(
    z: complex, omega1: complex, omega3: complex, *, radius: float
) -> TruncationBound:
    r"""Bound for the sum over the disk ``0 < |w| <= radius`` instead of a box.

    The formulas of `paired_sum_bound` hold with :math:`\rho` = radius and a tail sum from
    the Voronoi cells, which tile the plane and reach at most the covering radius far.
    `radius` is in the units of the half-periods.
    """
    point, disk = _checked_disk(z, omega1, omega3, radius)
    tail_sum = disk_tail_sum(4, point, disk)
    wp, wp_prime = paired_tail(point.z_abs, radius=disk, order=3, tail_sum=tail_sum)
    return original_units(wp, wp_prime, point)


def disk_unpaired_bound(
    z: complex, omega1: complex, omega3: complex, *, radius: float
) -> TruncationBound:
    """The bound of `unpaired_sum_bound` for any finite set that contains the disk."""
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


def _balanced_box(
    z: complex, omega1: complex, omega3: complex, m_max: int, n_max: int
) -> tuple[NormalisedPoint, float]:
    point, m_max, n_max = _checked_box(z, omega1, omega3, m_max, n_max)
    smallest = balanced_m_max(omega1, omega3, n_max=n_max)
    if m_max < smallest:
        raise InputError(
            f"m_max must be at least {smallest} for n_max={n_max} and tau={point.tau!r}, "
            f"got {m_max}"
        )
    return point, (n_max + 0.5) * point.height


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
