r"""Truncation of the csc² + Lambert series (DLMF 23.8.1, regrouped by rows).

With :math:`a=2\omega_1`, :math:`v=\pi z/a`, :math:`Q=e^{2\pi i\tau}`,
:math:`A=e^{2\pi i(\tau+z/a)}` and :math:`B=e^{2\pi i(\tau-z/a)}`, the rows
:math:`n=\pm1..\pm R` are summed in closed form and the rest as power series:

.. math::

   \wp  &= (\pi/a)^2\{\text{rows} + 4\sum_{k\ge1} \frac{k Q^{Rk}}{1-Q^k}(2Q^k-A^k-B^k)\}, \\
   \wp' &= (\pi/a)^3\{\text{rows} - 8i\sum_{k\ge1} \frac{k^2 Q^{Rk}}{1-Q^k}(A^k-B^k)\}.

The bounds take absolute values term by term and :math:`|1-Q^k|\ge1-|Q|^{K+1}` behind the
K-th term. They are attained at :math:`z=\omega_3`, up to that last estimate.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from wefpe_core.bounds.normalised_lattice import (
    NormalisedPoint,
    TruncationBound,
    checked_count,
    normalise,
    original_units,
)
from wefpe_core.errors import InputError

# In the cell, |q|^k with |q| < 0.066 is below every double after 300 terms. This leaves room
# for points far above it, where the series converges slowly.
_MOST_TERMS = 2**14


class QSeriesTerms(NamedTuple):
    """Numbers of terms kept of the power series in A, in B, and in Q (the constant part)."""

    a: int
    b: int
    constant: int


def q_series_bound(
    z: complex, omega1: complex, omega3: complex, *, rows: int, terms: int | QSeriesTerms
) -> TruncationBound:
    r"""Bound for the tail of the row series behind `terms` terms.

    With :math:`p=|Q|`, :math:`h=\mathrm{Im}(z/a)/\mathrm{Im}\,\tau`,
    :math:`s_j(x)=\sum_{k>K}k^jx^k` and one K for all three series:

    .. math::

       \frac{4\pi^2|a|^{-2}}{1-p^{K+1}}[2s_1(p^{R+1})+s_1(p^{R+1+h})+s_1(p^{R+1-h})], \qquad
       \frac{8\pi^3|a|^{-3}}{1-p^{K+1}}[s_2(p^{R+1+h})+s_2(p^{R+1-h})].

    Parameters
    ----------
    z
        Point, in the units of the half-periods. Only its height over the row through 0
        matters; in the cell that is at most that of ``omega3``, the worst point.
    omega1, omega3
        Half-periods of a reduced lattice.
    rows
        R, the pairs of rows in closed form; 0 or more.
    terms
        K, the terms kept; 0 or more. One number for all three series or a `QSeriesTerms`.

    Returns
    -------
    TruncationBound
        Infinite where the series diverges, ``|h| >= R + 1``.

    Examples
    --------
    >>> q_series_bound(0.25, 1.0, 0.3 + 1j, rows=2, terms=8).wp < 1e-15
    True
    """
    point, rows, counts = _checked_series(z, omega1, omega3, rows, terms)
    tail_a, tail_b, tail_constant = _log_ratios(point, rows)

    def tail(power: int, log_ratio: float, after: int) -> float:
        return power_sum_tail(power, log_ratio, after) / _one_minus_nome_power(point, after)

    wp = (
        2 * tail(1, tail_constant, counts.constant)
        + tail(1, tail_a, counts.a)
        + tail(1, tail_b, counts.b)
    )
    wp_prime = tail(2, tail_a, counts.a) + tail(2, tail_b, counts.b)
    return original_units(4 * math.pi**2 * wp, 8 * math.pi**3 * wp_prime, point)


def q_series_terms_needed(
    z: complex, omega1: complex, omega3: complex, *, rows: int, tolerance: TruncationBound
) -> int:
    """Smallest number of terms whose `q_series_bound` at `z` is within `tolerance`.

    Pass ``z=omega3`` for a number that serves the whole cell. `tolerance` is absolute, in the
    units of the lattice; `InputError` if no number of terms reaches it.

    Examples
    --------
    >>> q_series_terms_needed(1j, 1.0, 1j, rows=2, tolerance=TruncationBound(1e-16, 1e-16))
    2
    """

    def suffices(terms: int) -> bool:
        bound = q_series_bound(z, omega1, omega3, rows=rows, terms=terms)
        return bound.wp <= tolerance.wp and bound.wp_prime <= tolerance.wp_prime

    # The bound decreases with every term kept: double, then bisect.
    enough = 1
    while not suffices(enough):
        enough *= 2
        if enough > _MOST_TERMS:
            raise InputError(
                f"no {_MOST_TERMS} terms of the q-series reach {tolerance!r} "
                f"at z={z!r}, omega1={omega1!r}, omega3={omega3!r}, rows={rows!r}"
            )
    too_few = -1 if enough == 1 else enough // 2
    while enough - too_few > 1:
        middle = (enough + too_few) // 2
        if suffices(middle):
            enough = middle
        else:
            too_few = middle
    return enough


def _checked_series(
    z: complex, omega1: complex, omega3: complex, rows: int, terms: int | QSeriesTerms
) -> tuple[NormalisedPoint, int, QSeriesTerms]:
    point = normalise(z, omega1, omega3)
    rows = checked_count("rows", rows, minimum=0)
    if not isinstance(terms, QSeriesTerms):
        terms = QSeriesTerms(terms, terms, terms)
    counts = QSeriesTerms(*(checked_count("terms", count, minimum=0) for count in terms))
    return point, rows, counts


def _log_ratios(point: NormalisedPoint, rows: int) -> tuple[float, float, float]:
    """Upper bounds for log|A Q^R|, log|B Q^R| and log|Q^(R+1)|."""
    base = (rows + 1) * point.height
    slack = point.z_imag_slack
    return (
        -2 * math.pi * (base + point.z_imag - slack),
        -2 * math.pi * (base - point.z_imag - slack),
        -2 * math.pi * base,
    )


def _one_minus_nome_power(point: NormalisedPoint, after: int) -> float:
    return -math.expm1(-2 * math.pi * point.height * (after + 1))


def power_sum_tail(power: int, log_x: float, after: int) -> float:
    r""":math:`\sum_{k>after} k^{power} x^k` for :math:`x=e^{log\_x}` and power 0 to 2.

    Infinite where the series diverges. Written as positive terms in :math:`1-x`.
    """
    if not log_x < 0:
        return math.inf
    n = after + 1
    x, d = math.exp(log_x), -math.expm1(log_x)
    # Each entry is sum_j j^i x^j over j >= 0, the Eulerian closed form.
    sums = (1 / d, x / d**2, x * (1 + x) / d**3)
    total = sum(math.comb(power, i) * float(n) ** (power - i) * sums[i] for i in range(power + 1))
    return math.exp(n * log_x) * total
