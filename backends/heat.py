r"""The heat kernel of the torus: the logarithm of a sum over the lattice or over its dual.

With :math:`v = \pi z/a`, :math:`d = 2t|\pi/a|^2` and :math:`\tau = \tau_x + ih`, in the reduced
basis,

.. math:: |a|^2K_t(z) = \frac\pi{\sqrt d}\sum_n e^{-(v_y + \pi nh)^2/d}\,
          \kappa_d(v_x + \pi n\tau_x),
          \qquad \kappa_d(v) = \frac1{\sqrt d}\sum_m e^{-(v+\pi m)^2/d}
          = \frac1{\sqrt\pi}\sum_k e^{-dk^2}\cos 2kv.

Rows are summed up to :math:`d = \pi h^2`, each by the first of these sums for d below pi and by the
second above. Beyond, Poisson's formula in both directions gives
:math:`|a|^2K_t = h^{-1}\sum e^{-d(k^2+w^2/h^2)}\cos 2(kv_x + wv_y/h)` over integers k, l with
:math:`w = l - k\tau_x`. What is left out is less than :math:`e^{-12\pi} = 4\cdot10^{-17}` of the
largest term. Where K is small all terms are positive, so that nothing cancels.

The derivatives of these sums are sums with the same terms. A derivative in a complex number x is
its slope s: the logarithm changes by Re(s dx).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable
from functools import reduce
from operator import add
from typing import Any, Generic, NamedTuple

from backends.argument import CellPosition, locate, offset_from
from backends.constants import Precision, SeriesConstants
from backends.pair import ArrayOps, Pair, select
from backends.slopes import Expansion, Matrix, ValuesAndSlopes, assembled, finite_slope
from wefpe_core.backend import check_lattice
from wefpe_core.jacobi_functions import Array_co, is_number
from wefpe_core.lattice import Lattice

_ROWS = range(-3, 4)
# Of every two opposite waves one. With |tau_x| <= 1/2 these are all with |l - k tau|^2 <= 12.
_WAVES = [
    (k, index)
    for k, indices in enumerate((range(1, 4), range(-3, 4), range(-4, 5), range(-3, 4)))
    for index in indices
]


class _Slopes(NamedTuple):
    """The slopes of log |a|^2 K."""

    in_v: Pair
    in_d: Any
    in_tau: Pair


def _sum(terms: Iterable[Any]) -> Any:
    """The sum, from the last term to the first: the last are the smallest."""
    return reduce(add, reversed(list(terms)))


def _powers(x: Pair, count: int) -> list[Pair]:
    """x^0, x^1, ..."""
    powers = [Pair(1.0, 0.0), x]
    while len(powers) <= count:
        powers.append(powers[-1] * x)
    return powers


def _turn(ops: ArrayOps, angle: Any) -> Pair:
    return Pair(ops.cos(angle), ops.sin(angle))


class _Circle:
    """The Gaussians kappa_d on a circle of length pi, for one d and any v."""

    def __init__(self, ops: ArrayOps, d: Any) -> None:
        self._ops = ops
        self._is_narrow = d < math.pi
        self._narrow = ops.where(self._is_narrow, d, math.pi)
        wide = ops.where(self._is_narrow, math.pi, d)
        self._waves = [2.0 * ops.exp(-float(k * k) * wide) for k in (1, 2, 3)]

    def around(self, v: Any) -> _AroundCircle:
        return _AroundCircle(self._ops, self._is_narrow, self._narrow, self._waves, v)


class _AroundCircle:
    """log kappa_d at one v, and its derivatives in v and d."""

    def __init__(self, ops: ArrayOps, is_narrow: Any, d: Any, waves: list[Any], v: Any) -> None:
        self._v = v = v - math.pi * ops.rint(ops.constant(v) * (1.0 / math.pi))
        self._ops, self._is_narrow, self._d = ops, is_narrow, d
        # (v + pi m)^2 - v^2, and e^(-that/d)
        self._indices = (0.0, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0)
        distances = [math.pi * m * (math.pi * m + 2.0 * v) for m in self._indices[1:]]
        self._images = [1.0, *(ops.exp(-self._not_negative(x) / d) for x in distances)]
        self._total = _sum(self._images)
        turns = _powers(_turn(ops, 2.0 * v), 3)[1:]
        self._cosines = [w * turn.re for w, turn in zip(waves, turns, strict=True)]
        self._sines = [w * turn.im for w, turn in zip(waves, turns, strict=True)]
        self._wave = _sum(self._cosines)

    def _not_negative(self, x: Any) -> Any:
        """Half-way around a distance is 0, and rounding may have made it less."""
        known = self._ops.constant(x)
        return self._ops.with_derivative_of(self._ops.where(known > 0.0, known, 0.0), lambda: x)

    def log(self) -> Any:
        ops, d = self._ops, self._d
        narrow = (ops.log(self._total) - 0.5 * ops.log(d)) - self._v * self._v / d
        return ops.where(self._is_narrow, narrow, ops.log1p(self._wave) - 0.5 * math.log(math.pi))

    def slopes(self) -> tuple[Any, Any]:
        ops, v, d = self._ops, self._v, self._d
        images = list(zip(self._indices, self._images, strict=True))[1:]
        first, second = (
            _sum(math.pi**n * m**n * weight for m, weight in images) / self._total for n in (1, 2)
        )
        squares = v * v + 2.0 * (v * first) + second  # the mean of (v + pi m)^2
        all_waves = self._wave + 1.0
        sines = _sum(-2.0 * k * x for k, x in enumerate(self._sines, 1)) / all_waves
        cosines = _sum(-float(k * k) * x for k, x in enumerate(self._cosines, 1)) / all_waves
        return (
            ops.where(self._is_narrow, -2.0 * (v + first) / d, sines),
            ops.where(self._is_narrow, (squares / d - 0.5) / d, cosines),
        )


class _ByRows:
    """log of |a|^2 K, summed over the rows of the lattice."""

    def __init__(self, ops: ArrayOps, v: Pair, d: Any, tau: Pair) -> None:
        self._ops, self._d = ops, d
        circle = _Circle(ops, d)
        self._heights = [v.im + (math.pi * n) * tau.im for n in _ROWS]
        self._rows = [circle.around(v.re + (math.pi * n) * tau.re) for n in _ROWS]
        logs = [
            row.log() - height * height / d
            for row, height in zip(self._rows, self._heights, strict=True)
        ]
        self._largest = reduce(lambda x, y: ops.where(x > y, x, y), map(ops.constant, logs))
        self._weights = [ops.exp(x - self._largest) for x in logs]
        self._total = reduce(add, self._weights)

    def log(self) -> Any:
        ops = self._ops
        return (ops.log(self._total) + self._largest) + (math.log(math.pi) - 0.5 * ops.log(self._d))

    def slopes(self) -> _Slopes:
        d = self._d
        in_x, of_rows = zip(*(row.slopes() for row in self._rows), strict=True)
        in_y = [-2.0 * height / d for height in self._heights]
        in_d = [
            slope + (height / d) * (height / d)
            for slope, height in zip(of_rows, self._heights, strict=True)
        ]

        def mean(values: Iterable[Any]) -> Any:
            products = (w * x for w, x in zip(self._weights, values, strict=True))
            return reduce(add, products) / self._total

        def mean_by_row(values: Iterable[Any]) -> Any:
            return mean(math.pi * n * x for n, x in zip(_ROWS, values, strict=True))

        return _Slopes(
            in_v=Pair(mean(in_x), -mean(in_y)),
            in_d=mean(in_d) - 0.5 / d,
            in_tau=Pair(mean_by_row(in_x), -mean_by_row(in_y)),
        )


class _ByWaves:
    """log of |a|^2 K, summed over the dual lattice."""

    def __init__(self, ops: ArrayOps, v: Pair, d: Any, tau: Pair) -> None:
        self._ops, self._v, self._d, self._height = ops, v, d, tau.im
        share = v.im / tau.im
        # The phases are k times one angle and l times another.
        across = _powers(_turn(ops, 2.0 * (v.re - share * tau.re)), 3)
        along = _powers(_turn(ops, 2.0 * share), 4)
        self._over_height = [(index - k * tau.re) / tau.im for k, index in _WAVES]
        self._squares = [
            float(k * k) + w * w for (k, _), w in zip(_WAVES, self._over_height, strict=True)
        ]
        self._waves = []
        for (k, index), square in zip(_WAVES, self._squares, strict=True):
            turn = along[index] if index >= 0 else along[-index].conjugate()
            turn = turn if k == 0 else across[k] if index == 0 else across[k] * turn
            self._waves.append(turn.scale(2.0 * ops.exp(-d * square)))
        self._wave = _sum(wave.re for wave in self._waves)

    def log(self) -> Any:
        height = self._height + 0.0 * self._wave  # an array, also of a lattice of numbers
        return self._ops.log1p(self._wave) - self._ops.log(height)

    def slopes(self) -> _Slopes:
        d, height, total = self._d, self._height, self._wave + 1.0
        in_x = in_y = in_d = in_tau_x = in_height = -0.0
        terms = zip(_WAVES, self._over_height, self._squares, self._waves, strict=True)
        for (k, _), w, square, wave in reversed(list(terms)):
            in_y = in_y - (2.0 * w) * wave.im
            in_d = in_d - square * wave.re
            # Minus the slope in w/h, which is (l - k tau_x)/h.
            in_w = (2.0 / height) * (d * (w * wave.re) + self._v.im * wave.im)
            in_height = in_height + w * in_w
            if k:
                in_x = in_x - (2.0 * k) * wave.im
                in_tau_x = in_tau_x + float(k) * in_w
        return _Slopes(
            in_v=Pair(in_x / total, -(in_y / total)),
            in_d=in_d / total,
            in_tau=Pair(in_tau_x / total, -(in_height / total - 1.0 / height)),
        )


class _Question(NamedTuple):
    """Where and when the kernel is wanted."""

    cell: CellPosition
    offset: Pair
    v: Pair
    d: Any  # 1 where there is no time
    is_time: Any


def _question(
    ops: ArrayOps, place: Pair, time: Any, c: SeriesConstants, precision: Precision
) -> _Question:
    place = place.scale(c.unit)
    cell = locate(ops, place, c, precision)
    offset = offset_from(ops, place, cell.m, cell.n, c, precision)
    v = c.pi_over_period * offset + c.pi_over_period_low * offset
    d = (2.0 * (time * c.unit * c.unit)) * c.pi_over_period.squared_modulus()
    v, d = Pair(v.re + 0.0 * d, v.im + 0.0 * d), d + 0.0 * v.re
    is_time = (d > 0.0) & (d - d == 0.0)
    return _Question(cell, offset, v, ops.where(is_time, d, 1.0), is_time)


class _Sums:
    """log of |a|^2 K, by whichever sum converges."""

    def __init__(self, ops: ArrayOps, v: Pair, d: Any, tau: Pair) -> None:
        limit = math.pi * (tau.im * tau.im)
        self._ops, self._has_rows = ops, d < limit
        self._rows = _ByRows(ops, v, ops.where(self._has_rows, d, limit), tau)
        self._waves = None
        if not ops.all_hold(self._has_rows):
            self._waves = _ByWaves(ops, v, ops.where(self._has_rows, limit, d), tau)

    def _chosen(self, rows: Any, waves: Any) -> Any:
        return self._ops.where(self._has_rows, rows, waves)

    def log(self) -> Any:
        log = self._rows.log()
        return log if self._waves is None else self._chosen(log, self._waves.log())

    def slopes(self) -> _Slopes:
        rows = self._rows.slopes()
        if self._waves is None:
            return rows
        waves = self._waves.slopes()
        return _Slopes(
            select(self._ops, self._has_rows, rows.in_v, waves.in_v),
            self._chosen(rows.in_d, waves.in_d),
            select(self._ops, self._has_rows, rows.in_tau, waves.in_tau),
        )


def _finished(ops: ArrayOps, log: Any, is_time: Any, c: SeriesConstants) -> Any:
    value = log - 2.0 * (c.log_period_over_pi + math.log(math.pi))
    return ops.where(is_time, value, float("nan"))


def log_heat(
    ops: ArrayOps, point: tuple[Pair, Any], c: SeriesConstants, precision: Precision
) -> Any:
    """log K_t(z) for a complex z and a real t; NaN where t is not positive and finite."""
    _, _, v, d, is_time = _question(ops, *point, c, precision)
    return _finished(ops, _Sums(ops, v, d, c.tau).log(), is_time, c)


def log_heat_slopes(
    ops: ArrayOps,
    point: tuple[Pair, Any],
    c: SeriesConstants,
    precision: Precision,
    matrix: Matrix | None,
) -> ValuesAndSlopes:
    """`log_heat` with its slopes in z and t, and in the half-periods if there is a matrix."""
    cell, _, v, d, is_time = _question(ops, *point, c, precision)
    sums = _Sums(ops, v, d, c.tau)
    value = _finished(ops, sums.log(), is_time, c)
    slopes = sums.slopes()
    expansion = Expansion(
        value=Pair(value, 0.0 * value),
        degree=0,
        in_z=c.pi_over_period * slopes.in_v,
        # d is of degree 2 in lengths, t being fixed; the 2 is of -2 log|a|.
        by_euler=v * slopes.in_v + (2.0 * (d * slopes.in_d) + 2.0),
        in_tau=slopes.in_tau,
    )
    found = assembled(ops, [expansion], (cell.m, cell.n), c, matrix)
    in_z, *in_omegas = found.slopes[0]
    in_t = (2.0 * slopes.in_d * c.pi_over_period.squared_modulus()) * c.unit * c.unit
    in_time = finite_slope(ops, expansion.value, Pair(in_t, 0.0 * in_t))
    return ValuesAndSlopes(found.values, ((in_z, in_time, *in_omegas),))


class HeatOfArrays(Generic[Array_co]):
    """The heat kernel of a backend that maps formulas over its arrays."""

    @abstractmethod
    def _elementwise(self, function: Callable[..., Any], *arguments: Any) -> tuple[Array_co, ...]:
        """Values of ``function(ops, *pairs, precision)`` at arguments that broadcast."""

    @abstractmethod
    def _constants_of(self, lattice: Lattice, precision: Precision) -> SeriesConstants:
        """The constants of a lattice, which may be numbers or arrays that broadcast."""

    def heat(self, z: Any, t: Any, lattice: Lattice) -> Array_co:
        return self._heat(z, t, lattice, lambda ops, value: ops.exp(value))

    def log_heat(self, z: Any, t: Any, lattice: Lattice) -> Array_co:
        return self._heat(z, t, lattice, lambda ops, value: value)

    def _heat(self, z: Any, t: Any, lattice: Lattice, finish: Callable[..., Any]) -> Any:
        check_lattice(lattice)
        # A number has no precision of its own: that of z decides.
        times = () if is_number(t) else (t,)

        def formula(ops: Any, z: Pair, *rest: Any) -> Pair:
            *pairs, precision = rest
            constants = self._constants_of(lattice, precision)
            time = pairs[0] if pairs else Pair(complex(t).real, complex(t).imag)
            real = ops.where(time.im + 0.0 * z.re == 0.0, time.re + 0.0 * z.re, float("nan"))
            value = finish(ops, log_heat(ops, (z, real), constants, precision))
            return Pair(value, 0.0 * value)

        return self._elementwise(formula, z, *times)[0].real  # type: ignore[attr-defined]
