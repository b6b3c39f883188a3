r"""The heat kernel of the torus: the logarithm of a sum over the lattice or over its dual.

With :math:`v = \pi z/a`, :math:`d = 2t|\pi/a|^2` and :math:`\tau = \tau_x + ih`, in the reduced
basis,

.. math:: |a|^2K_t(z) = \frac\pi{\sqrt d}\sum_n e^{-(v_y + \pi nh)^2/d}\,
          \kappa_d(v_x + \pi n\tau_x),
          \qquad \kappa_d(v) = \frac1{\sqrt d}\sum_m e^{-(v+\pi m)^2/d}.

The rows are summed as they stand up to :math:`d = \pi h^2`. Beyond, Poisson's formula in both
directions gives :math:`AK_t = \sum e^{-d(k^2+w^2/h^2)}\cos 2(kv_x + wv_y/h)` over integers k, l
with :math:`w = l - k\tau_x`. Seven rows, or seven waves each way, leave less than
:math:`e^{-12\pi} = 4\cdot10^{-17}` of the largest term. Where K is small all terms are positive, so
that nothing cancels.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Generic, Protocol

from backends.argument import locate, offset_from
from backends.constants import Precision, SeriesConstants
from backends.pair import ArrayOps, Pair
from backends.preparation import prepare
from wefpe_core.backend import check_lattice
from wefpe_core.jacobi_functions import Array_co, is_number
from wefpe_core.lattice import Lattice

# The largest index of a term on either side of the nearest one: of rows and waves, and of columns.
_ROWS, _COLUMNS = 3, 11
# Up to this sharpness a Gaussian on the circle is constant in every format: e^-36 is less than eps.
_FLAT = 1.0 / 6.0


class SumOps(ArrayOps, Protocol):
    """What sums along a last dimension need beside elementary functions."""

    def indices(self, reach: int, like: Any) -> Any:
        """The integers from -reach to reach, on the device of `like`."""

    def log_sum_exp(self, x: Any) -> Any:
        """The logarithm of the sum of exponentials along the last dimension, in range."""


def log_periodic_gaussian(ops: SumOps, v: Any, sharpness: Any) -> Any:
    r"""log of :math:`s\sum_m e^{-s^2(v+\pi m)^2}`, a Gaussian on a circle of length pi.

    Its integral is :math:`\sqrt\pi`, whatever the sharpness s is.
    """
    v = v - math.pi * ops.rint(ops.constant(v) * (1.0 / math.pi))
    s = ops.where(sharpness > _FLAT, sharpness, _FLAT)
    places = (v[..., None] + math.pi * ops.indices(_COLUMNS, v)) * s[..., None]
    return ops.log_sum_exp(places * -places) + ops.log(s)


def _by_rows(ops: SumOps, v: Pair, d: Any, tau: Pair) -> Any:
    """log of |a|^2 K, summed over the rows of the lattice."""
    n = math.pi * ops.indices(_ROWS, v.re)
    height = v.im[..., None] + n * tau.im
    sharpness = 1.0 / ops.sqrt(d)
    exponents = log_periodic_gaussian(ops, v.re[..., None] + n * tau.re, sharpness[..., None])
    rows = ops.log_sum_exp(exponents - height * height / d[..., None])
    return rows + ops.log(math.pi * sharpness)


def _by_waves(ops: SumOps, v: Pair, d: Any, tau: Pair) -> Any:
    """log of A K, summed over the dual lattice."""
    k = ops.indices(_ROWS, v.re)
    shift = k * tau.re
    # The row index l nearest to k tau_x, and those around it.
    w = (ops.rint(ops.constant(shift)) - shift)[..., None] + k
    over_height = w / _last(tau.im)
    x, y, d = (_last(_last(part)) for part in (v.re, v.im, d))
    phases = 2.0 * (k[:, None] * x + over_height * y)
    waves = ops.exp(-d * ((k * k)[:, None] + over_height * over_height)) * ops.cos(phases)
    return ops.log(waves.sum(-1).sum(-1))


def _last(x: Any) -> Any:
    """An array with one more dimension at the end; a number stays one."""
    return x[..., None] if hasattr(x, "shape") else x


def log_heat(ops: SumOps, z: Pair, t: Any, c: SeriesConstants, precision: Precision) -> Any:
    """log K_t(z); NaN where t is not positive and finite."""
    z = z.scale(c.unit)
    cell = locate(ops, z, c, precision)
    offset = offset_from(ops, z, cell.m, cell.n, c, precision)
    v = c.pi_over_period * offset + c.pi_over_period_low * offset
    d = (2.0 * (t * c.unit * c.unit)) * c.pi_over_period.squared_modulus()
    v, d = Pair(v.re + 0.0 * d, v.im + 0.0 * d), d + 0.0 * v.re
    is_time = (d > 0.0) & (d - d == 0.0)
    d = ops.where(is_time, d, 1.0)
    value = log_heat_in_cell(ops, v, d, Pair(_last(c.tau.re), _last(c.tau.im)))
    value = value - 2.0 * (c.log_period_over_pi + math.log(math.pi))
    return ops.where(is_time, value, float("nan"))


def log_heat_in_cell(ops: SumOps, v: Pair, d: Any, tau: Pair) -> Any:
    """log of |a|^2 K; tau has a last dimension of length 1, unless it is made of numbers."""
    height = tau.im[..., 0] if hasattr(tau.im, "shape") else tau.im
    limit = math.pi * height * height
    has_rows = d < limit
    rows = _by_rows(ops, v, d, tau)
    if ops.all_hold(has_rows):
        return rows
    wide = ops.where(has_rows, limit, d)
    height = d - d + height  # an array, also of a lattice of numbers
    waves = _by_waves(ops, v, wide, tau) - ops.log(height)
    return ops.where(has_rows, rows, waves)


class HeatOfArrays(Generic[Array_co]):
    """The heat kernel of a backend whose arrays have dimensions to sum along."""

    @abstractmethod
    def _elementwise(self, function: Callable[..., Any], *arguments: Any) -> tuple[Array_co, ...]:
        """Values of ``function(ops, *pairs, precision)`` at arguments that broadcast."""

    @abstractmethod
    def _constants_of_numbers(self, lattice: Lattice, precision: Precision) -> SeriesConstants:
        """The constants of a lattice of numbers."""

    def _half_periods_beside(self, z: Any, lattice: Lattice) -> tuple[Array_co, ...]:
        """The half-periods of a lattice of tensors, in the precision and on the device of z."""
        raise NotImplementedError

    def heat(self, z: Any, t: Any, lattice: Lattice) -> Array_co:
        return self._heat(z, t, lattice, lambda ops, value: ops.exp(value))

    def log_heat(self, z: Any, t: Any, lattice: Lattice) -> Array_co:
        return self._heat(z, t, lattice, lambda ops, value: value)

    def _heat(self, z: Any, t: Any, lattice: Lattice, finish: Callable[..., Any]) -> Any:
        check_lattice(lattice)
        omegas = self._half_periods_beside(z, lattice) if lattice.holds_tensors else ()
        # A number has no precision of its own: that of z decides.
        times = () if is_number(t) else (t,)

        def formula(ops: Any, z: Pair, *rest: Any) -> Pair:
            *pairs, precision = rest
            if omegas:
                omega1, omega3 = pairs[-2:]
                constants = prepare(ops, omega1, omega3, precision).constants
            else:
                constants = self._constants_of_numbers(lattice, precision)
            time = pairs[0] if times else Pair(complex(t).real, complex(t).imag)
            real = time.re + 0.0 * z.re
            real = ops.where(time.im + 0.0 * z.re == 0.0, real, float("nan"))
            value = finish(ops, log_heat(ops, z, real, constants, precision))
            return Pair(value, 0.0 * value)

        return self._elementwise(formula, z, *times, *omegas)[0].real  # type: ignore[attr-defined]
