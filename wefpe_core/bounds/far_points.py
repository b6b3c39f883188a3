r"""Lattice points far from 0: where they start, and what they contribute.

The periods are 1 and :math:`\tau=x+iy`. ``T_p`` is the sum of :math:`|w|^{-p}` over the lattice
points outside a box or a disk, the one ingredient of every bound of `lattice_sum`.
"""

from __future__ import annotations

import cmath
import math
from functools import lru_cache

from wefpe_core.bounds.normalised_lattice import NormalisedPoint
from wefpe_core.modular import invariants_of, theta_fourth_powers

# Theta constants to q^25 leave out q^30 < 1e-35.
_THETA_TERMS = 25

# Convexity overestimates the first lines most: by 1.4 for p = 6 and k = 2, by less than 1.06
# from the fifth line on.
_SINGLE_LINES = 4

# For p: (integral of (1+t^2)^(-p/2) over the line, coefficients of the polynomial P_p with
# P_p(t) exp(-t) its Fourier transform over its value at 0). For p = 3 the transform
# t K_1(t) is not elementary and lies below the one for 4.
_LINE_SUMS: dict[int, tuple[float, tuple[float, ...]]] = {
    3: (2.0, (1.0, 1.0)),
    4: (math.pi / 2, (1.0, 1.0)),
    6: (3 * math.pi / 8, (1.0, 1.0, 1 / 3)),
}


def box_radius(point: NormalisedPoint, m_max: int, n_max: int) -> float:
    """Lower bound for the distance from 0 of every lattice point outside the box."""
    rows = (n_max + 1) * point.height
    columns = (m_max + 1) * (point.height / point.tau_abs)
    return min(rows, columns)


def box_tail_sum(p: int, point: NormalisedPoint, m_max: int, n_max: int) -> float:
    r"""Upper bound for :math:`T_p` outside the box: the rows beyond it plus the columns.

    Rows are y apart with points spaced 1; columns, the rows seen along tau, are
    :math:`y/|\tau|` apart with points spaced :math:`|\tau|`. Corners count twice.
    """
    rows = _lines_beyond(p, n_max, gap=point.height, spacing=1.0)
    columns = _lines_beyond(p, m_max, gap=point.height / point.tau_abs, spacing=point.tau_abs)
    return rows + columns


def _lines_beyond(p: int, last: int, *, gap: float, spacing: float) -> float:
    r"""Upper bound for the sum over lines number k and -k, k > last, each line whole.

    On the line at distance :math:`D=k\,gap` Poisson's formula gives at most
    :math:`I_p D^{1-p} B_p(D/s)/s` for points with spacing s, wherever they start. B decreases.
    A few lines are added one by one, the others by convexity:
    :math:`\sum_{k\ge n}k^{1-p} \le (n-\frac12)^{2-p}/(p-2)`.
    """
    line_sum, _ = _LINE_SUMS[p]
    first, rest = last + 1, last + 1 + _SINGLE_LINES
    total = ((rest - 0.5) * gap) ** (2 - p) / (p - 2) / gap
    total *= _poisson_factor(p, rest * gap / spacing)
    for k in range(first, rest):
        total += (k * gap) ** (1 - p) * _poisson_factor(p, k * gap / spacing)
    return 2 * line_sum * total / spacing


def _poisson_factor(p: int, distance: float) -> float:
    r""":math:`B_p = 1 + 2\sum_{k\ge1} P_p(2\pi k\,distance)\,e^{-2\pi k\,distance}`."""
    t = 2 * math.pi * distance
    if t > 700:  # the sum is below the rounding allowance, and t**3 might overflow
        return 1.0
    r, d = math.exp(-t), -math.expm1(-t)
    # sum_k (kt)^j r^k is (t/d)^j times an Eulerian polynomial over d: safe for t near 0 too.
    eulerian = (1.0, 1.0, 1 + r)
    coefficients = _LINE_SUMS[p][1]
    total = sum(c * (t / d) ** j * eulerian[j] for j, c in enumerate(coefficients))
    return 1 + 2 * r / d * total


def disk_tail_sum(p: int, point: NormalisedPoint, radius: float) -> float:
    r"""Upper bound for :math:`\sum_{|w|>R}|w|^{-p}`.

    Each w is at least :math:`\max(R, |\zeta|-\delta)` for every :math:`\zeta` of its Voronoi
    cell, :math:`\delta` being the covering radius, the circumradius of 0, 1, tau. Integrate
    that over :math:`|\zeta|>R-\delta`, and divide by the cell's area. In a thin lattice, whose
    cells are long, the points outside a box inscribed in the disk give the smaller sum.
    """
    x, y = abs(point.tau.real), point.height
    covering = point.tau_abs / y * math.hypot(x - 1, y) / 2
    if covering <= radius:
        ring = 4 * radius * covering
    else:
        ring = (radius + covering) * (radius + covering)
    inside = ring * radius**-p
    beyond = 2 * radius ** (2 - p) / (p - 2) + 2 * covering * radius ** (1 - p) / (p - 1)
    # The box with its corners m + n|x| + iny inside the disk, wide and high alike.
    n_max = math.floor(radius / (math.sqrt(2) * y))
    m_max = math.floor(math.sqrt((radius - n_max * y) * (radius + n_max * y)) - n_max * x)
    return min(math.pi * (inside + beyond) / y, box_tail_sum(p, point, m_max, n_max))


def paired_tail(z_abs: float, *, radius: float, order: int, tail_sum: float) -> tuple[float, float]:
    r"""Bounds for the even part of wp, and the odd part of wp', that far points contribute.

    Symmetric sets of w contribute :math:`\sum_k (2k+1) z^{2k} w^{-2k-2}` each to wp. From
    ``2k+1 = order`` on, with ``|w| >= radius`` and ``tail_sum`` at least
    :math:`\sum|w|^{-order-1}`, the sums in :math:`x=(|z|/radius)^2` are elementary; all their
    terms are positive here, so nothing cancels.
    """
    theta = z_abs / radius
    if not theta < 1:
        return math.inf, math.inf
    x = theta * theta
    d = (1 - theta) * (1 + theta)
    # sum_j (2j+s) x^j  and  sum_j (2j+s)(2j+s-1) x^j
    even = order / d + 2 * x / d**2
    odd = order * (order - 1) / d + (4 * order - 2) * x / d**2 + 4 * x * (1 + x) / d**3
    return (
        z_abs ** (order - 1) * even * tail_sum,
        z_abs ** (order - 2) * odd * tail_sum,
    )


@lru_cache(maxsize=256)
def box_remainder(tau: complex, m_max: int, n_max: int) -> complex:
    r"""Sum of :math:`w^{-4}` outside the box, for periods 1 and tau: g2/60 minus that inside."""
    thetas = theta_fourth_powers(cmath.exp(1j * math.pi * tau), terms=_THETA_TERMS)
    g2, _ = invariants_of(thetas, math.pi**2)
    terms = [-g2 / 60]
    # Even powers: half the box, twice.
    for n in range(n_max + 1):
        for m in range(-m_max if n else 1, m_max + 1):
            inverse = 1 / (m + n * tau)  # first, since a power of a large w could overflow
            square = inverse * inverse
            terms.append(2 * square * square)
    return -complex(math.fsum(t.real for t in terms), math.fsum(t.imag for t in terms))
