r"""Theta functions for any tau: the modular transformation to a reduced basis, with its multiplier.

With the reduced periods :math:`a = \pi J`, :math:`J = p + q\tau`, and :math:`b = \pi(r + s\tau)`,

.. math:: \theta_1(z|\tau) = \epsilon J^{-1/2} e^{-iqz^2/\pi J}\, \theta_1(z/J\,|\,\tau'), \quad
          \tau' = b/a,

where :math:`\epsilon` is an eighth root of unity. The other three are :math:`\theta_1` shifted by
half-periods, so their roots follow from the same formula.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache, lru_cache, partial
from math import comb
from typing import Any, NamedTuple

from backends.argument import locate, offset_from, two_sum
from backends.constants import Precision, SplitReal, rounding
from backends.kernel import fold, parity
from backends.pair import Pair, pair_exp, pair_sqrt, select
from backends.preparation import (
    _PI,
    ReducedBasis,
    halves,
    pi_over_first_period,
    product_and_error,
    reduce_basis,
    split_number,
    tau_and_nome,
)
from backends.theta import (
    ThetaConstants,
    bare_series,
    nan_where,
    nome_terms_in_cell,
    order_of,
    prepare_theta,
    real_where,
    sheltered,
    theta_series,
)
from wefpe_core._exact import GaussianRational
from wefpe_core.extended import PI, ExtendedComplex, extended_precision, to_decimal
from wefpe_core.lattice import Lattice
from wefpe_core.lattice_constants import lattice_constants

# As many as `backends.preparation.REDUCTION_STEPS`, and for numbers as many as doubles can need.
_STEPS = 16
_STEPS_OF_NUMBERS = 64
# Half-periods, in units of pi/2 and pi tau/2, by which theta_1 to theta_4 are theta_1 shifted.
_SHIFTS = ((0, 0), (1, 0), (1, 1), (0, 1))


class ThetaTransform(NamedTuple):
    """What leads from theta_n(z|tau) to the theta functions of the reduced basis."""

    theta: ThetaConstants
    tau: Pair
    matrix: tuple[tuple[Any, Any], tuple[Any, Any]]  # ((p, q), (r, s))
    odd: Any  # 1.0 if r is odd, else 0.0
    curvature: Pair  # q/(pi J)
    front: Pair  # the eighth root over J^(1/2), and 2 q'^(1/4) if the series has to have it
    front_of_half: Pair  # the same where the argument is measured from b/2, for theta_1 and theta_2
    exponent: Pair  # i pi tau'/4 where q'^(1/4) is so small that an exponential has to hold it


class _NumberOps:
    """The functions of `eighth_root` on Python's floats."""

    cos, sin, sqrt, hypot = map(staticmethod, (math.cos, math.sin, math.sqrt, math.hypot))

    @staticmethod
    def rint(x: float) -> float:
        return float(round(x))

    @staticmethod
    def sign_of(x: float) -> float:
        return math.copysign(1.0, x)

    @staticmethod
    def where(condition: bool, x: float, y: float) -> float:
        return x if condition else y


def eighth_root(
    ops: Any, tau: Pair, tau_reduced: Pair, root_of_factor: Pair, matrix: Any, n: int, steps: int
) -> Pair:
    """The eighth root of unity of theta_n, from the one of theta_1.

    The matrix is taken apart into shifts of tau by integers and inversions, each of which has a
    known factor (DLMF 20.7(viii)). Their product is rounded to an eighth root.
    """
    (p, q), (r, s) = matrix
    c, d, t = q, p, tau
    phase = Pair(1.0 + 0.0 * c, 0.0 * c)
    for _ in range(steps):
        is_active = c * c > 0.25
        k = -ops.rint(d / ops.where(is_active, c, 1.0))
        shifted = Pair(t.re - k, t.im)
        inverse = shifted.reciprocal()
        # theta_1(z|t+k) = e^(i pi k/4) theta_1(z|t), an inversion has i (-it)^(-1/2).
        root = pair_sqrt(ops, Pair(-inverse.im, inverse.re))
        step = root.scale(1.0 / ops.hypot(root.re, root.im)).times_i() * _eighth_power(ops, k)
        phase = select(ops, is_active, phase * step, phase)
        t = select(ops, is_active, -inverse, t)
        c, d = ops.where(is_active, -(k * c + d), c), ops.where(is_active, c, d)
    phase = phase.scale(d) * _eighth_power(ops, -ops.rint(tau_reduced.re - t.re))
    phase = phase * root_of_factor.scale(1.0 / ops.hypot(root_of_factor.re, root_of_factor.im))
    # The parts of an eighth root are 0, 1 or the root of 1/2, up to their sign.
    phase = Pair(*(ops.sign_of(x) * ops.sqrt(0.5 * ops.rint(2.0 * x * x)) for x in _parts(phase)))
    h1, h3 = _SHIFTS[n - 1]
    p, q, r, s = (x - 8.0 * ops.rint(0.125 * x) for x in (p, q, r, s))
    power = -(h1 * s * q + h3 * r * p) + 2.0 * h1 * h3 * r * q
    mu, nu = h1 * s - h3 * r, h3 * p - h1 * q
    mu_odd, nu_odd = parity(ops, mu), parity(ops, nu)
    # A half of the shift in each direction may remain; two of them change signs.
    power = power + 2.0 * (mu - mu_odd) + 2.0 * (nu - nu_odd) * (1.0 - mu_odd)
    power = power + 2.0 * nu_odd * (1.0 - mu_odd) - (2.0 if n == 4 else 0.0)
    return phase * _eighth_power(ops, power)


def _parts(x: Pair) -> tuple[Any, Any]:
    return x.re, x.im


def _eighth_power(ops: Any, k: Any) -> Pair:
    """e^(i pi k/4) for integers k."""
    angle = (0.25 * math.pi) * (k - 8.0 * ops.rint(0.125 * k))
    return Pair(ops.cos(angle), ops.sin(angle))


def reduced_index(ops: Any, matrix: Any, n: int) -> tuple[Any, Any]:
    """Whether theta_n is a shift of theta_1 by an odd number of a/2, and of b/2."""
    (p, q), (r, s) = matrix
    h1, h3 = _SHIFTS[n - 1]
    return parity(ops, h1 * s - h3 * r) > 0.5, parity(ops, h3 * p - h1 * q) > 0.5


def is_tall(tau: Any, precision: Precision) -> Any:
    """Whether the fourth root of the nome is so small that it may underflow."""
    return tau > (100.0 if precision.bits == 53 else 25.0)


@lru_cache(maxsize=512)
@extended_precision
def theta_lattice(tau: GaussianRational) -> Lattice:
    """The lattice of the periods pi and pi tau, in fifty digits."""
    half = PI / 2
    omega3 = (half * to_decimal(tau.re), half * to_decimal(tau.im))
    return Lattice._from_exact(
        GaussianRational(Fraction(half), Fraction(0)), GaussianRational(*map(Fraction, omega3))
    )


@lru_cache(maxsize=512)
@extended_precision
def prepare_transform(lattice: Lattice, precision: Precision, n: int = 1) -> ThetaTransform:
    """The constants of theta_n for a lattice of `theta_lattice`."""
    known = lattice_constants(lattice)
    matrix = lattice.reduced()[1]
    q = matrix[0][1]
    half, third = (ExtendedComplex.of(omega) for omega in lattice.exact)
    tau, factor = third / half, known.period1 / PI
    to_format = rounding(precision)

    def rounded(value: Any) -> Pair:
        return Pair(to_format(value.re), to_format(value.im))

    floats = tuple(tuple(map(float, row)) for row in matrix)
    given, reduced, root = (Pair(float(x.re), float(x.im)) for x in (tau, known.tau, factor.sqrt()))
    root = eighth_root(_NumberOps, given, reduced, root, floats, n, _STEPS_OF_NUMBERS)
    front = _exact_root(root) / factor.sqrt()
    of_half = front * _turn((-matrix[1][0] * matrix[1][1]) % 8)
    exponent = ExtendedComplex(-known.tau.im, known.tau.re) * PI / 4
    if reduced_number(matrix, n) > 2:
        exponent = exponent * 0
    elif not is_tall(known.tau.im, precision):
        front, exponent = front * exponent.exp() * 2, exponent * 0
    else:
        front = front * 2
    return ThetaTransform(
        prepare_theta(lattice, precision),
        rounded(tau),
        floats,  # type: ignore[arg-type]
        float(matrix[1][0] % 2),
        rounded(q / factor / PI),
        rounded(front),
        rounded(of_half),
        rounded(exponent),
    )


def _turn(power: int) -> ExtendedComplex:
    return _exact_root(Pair(*(f(math.pi / 4 * power) for f in (math.cos, math.sin))))


def _exact_root(root: Pair) -> ExtendedComplex:
    parts = (round(2 * float(x) * abs(float(x))) for x in (root.re, root.im))
    return ExtendedComplex(
        *((abs(to_decimal(Fraction(part, 2))).sqrt()).copy_sign(part) for part in parts)
    )


def reduced_number(matrix: Any, n: int) -> int:
    """The index of the theta function of the reduced basis that theta_n becomes."""
    return 1 if n == 1 else order_of(matrix).index(n - 1) + 2


@cache
def theta_function(n: int, reduced: int, order: int) -> Callable[..., Pair]:
    """The kernel function of theta_n, which becomes another theta function of the reduced basis."""

    def value(ops: Any, z: Pair, c: ThetaTransform, precision: Precision) -> Pair:
        return theta_value(ops, z, c, precision, n, order, False, (reduced,), ())

    value.__name__ = f"theta_{n}_{reduced}_{order}"
    value.prepare = partial(prepare_transform, n=n)  # type: ignore[attr-defined]
    value.needs_library = True  # type: ignore[attr-defined]
    return value


def theta_value(
    ops: Any,
    z: Pair,
    c: ThetaTransform,
    precision: Precision,
    n: int,
    order: int,
    log: bool,
    reduced: tuple[int, ...],
    conditions: tuple[Any, ...],
) -> Pair:
    """theta_n, a derivative of it, or its logarithm.

    `reduced` holds the indices that theta_n may have in the reduced basis, and `conditions` says
    of all but the first where they are in force.
    """
    series = c.theta.series
    (p, q), (r, s) = c.matrix
    h1, h3 = _SHIFTS[n - 1]
    cell = locate(ops, z.scale(series.unit), series, precision)
    # z = offset + k pi + l pi tau, and theta has simple factors for both (DLMF 20.2(ii)).
    k, l = cell.m * p + cell.n * r, cell.m * q + cell.n * s  # noqa: E741
    sign = 1.0 - 2.0 * parity(ops, (1 - h3) * k + (1 - h1) * l)
    here = _Place(ops, z, cell.m, cell.n, l, c, precision)
    half = here.f.sign
    there = _Place(ops, z, cell.m, cell.n + 0.5 * half, l + 0.5 * half * s, c, precision)
    is_far = here.f.v.im >= 1.0

    def factors(index: int) -> tuple[Pair, Pair]:
        value, exponent = here.factors(index, order)
        value = c.front * value
        if index > 2:
            return value, exponent
        # Away from the real axis of v one exponential is left of the sine or cosine. It is the
        # leading term of theta_4 or theta_3 about b/2, without large exponents that cancel.
        other, other_exponent = there.factors(5 - index, order)
        other = c.front_of_half * (other.times_i().scale(half) if index == 1 else other)
        other = other.scale(1.0 - 2.0 * parity(ops, l) * c.odd)
        exponent = exponent + c.exponent
        return select(ops, is_far, other, value), select(ops, is_far, other_exponent, exponent)

    value, exponent = factors(reduced[0])
    for condition, index in zip(conditions, reduced[1:], strict=True):
        other, other_exponent = factors(index)
        value = select(ops, condition, other, value)
        exponent = select(ops, condition, other_exponent, exponent)
    value = value.scale(sign)
    if log:
        return logarithm(ops, value, exponent)
    value = times_exp(ops, value, exponent, z, precision)
    # A real nome, positive for theta_1 and theta_2, gives real values of real arguments.
    x = c.tau.re + 0.0 * z.im
    x = x - ops.rint(x) if n > 2 else x
    return real_where(ops, (z.im == 0.0) & (x == 0.0), value)


class _Place:
    """The argument, measured from m a + n b, and the exponential that belongs to the shift."""

    def __init__(
        self,
        ops: Any,
        z: Pair,
        m: Any,
        n: Any,
        l: Any,  # noqa: E741
        c: ThetaTransform,
        precision: Precision,
    ) -> None:
        series = c.theta.series
        offset = offset_from(ops, z.scale(series.unit), m, n, series, precision)
        self.f = f = fold(ops, offset, series, precision)
        offset = offset.scale(1.0 / series.unit)
        self._c = c
        linear = c.curvature * offset
        # The exponent and its derivatives in z.
        self._exponent = -(
            c.tau.scale(math.pi * l * l) + offset.scale(2.0 * l) + linear * offset
        ).times_i()
        self._slope = -2.0 * linear.shift(l).times_i()
        self._bend = -2.0 * c.curvature.times_i()
        self._terms = nome_terms_in_cell(ops, f, c.theta, precision)

    def factors(self, index: int, order: int) -> tuple[Pair, Pair]:
        """The derivative of a theta function times the exponential: a value and an exponent."""
        c, f = self._c, self.f
        powers: list[Any] = [1.0, self._slope]  # derivatives of the exponential over itself
        for k in range(1, order):
            powers.append(self._slope * powers[k] + (k * self._bend) * powers[k - 1])
        total: Any = None
        scale: Any = 1.0
        for k in range(order + 1):
            term = theta_series(f, self._terms, c.theta.nome, index, k)
            if (k % 2 == 1) != (index == 1):  # odd in v, which was folded
                term = term.scale(f.sign)
            term = (comb(order, k) * powers[order - k]) * (term * scale)
            total = term if total is None else total + term
            scale = scale * c.theta.series.pi_over_period.scale(c.theta.series.unit)
        return total, self._exponent.shift(f.v.im) if index < 3 else self._exponent


def times_exp(ops: Any, value: Pair, exponent: Pair, z: Pair, precision: Precision) -> Pair:
    """value * e^exponent: 0 where the value is, infinite where the product is too large."""
    overflows = exponent.re > precision.largest_exponent
    exponent = Pair(ops.where(overflows, precision.largest_exponent, exponent.re), exponent.im)
    product = value * pair_exp(ops, exponent)
    is_zero = (value.re == 0.0) & (value.im == 0.0)
    product = Pair(ops.where(overflows & ~is_zero, math.inf, product.re), product.im)
    return ops.with_infinities(product, z)


def logarithm(ops: Any, value: Pair, exponent: Pair) -> Pair:
    """The principal logarithm of value * e^exponent; -inf where the value is 0."""
    is_zero = (value.re == 0.0) & (value.im == 0.0)
    value = Pair(ops.where(is_zero, 1.0, value.re), value.im)
    angle = ops.arctan2(value.im, value.re) + exponent.im
    angle = angle - (2.0 * math.pi) * ops.rint(ops.constant(angle) / (2.0 * math.pi))
    size = ops.log(ops.hypot(value.re, value.im)) + exponent.re
    return Pair(ops.where(is_zero, -math.inf, size), ops.where(is_zero, 0.0, angle))


# --- tau as an array ------------------------------------------------------------------------------


def theta_of_arrays(
    ops: Any, z: Pair, given: Pair, precision: Precision, n: int, order: int, log: bool, nome: bool
) -> Pair:
    """theta_n for arrays of z and of tau, or of the nome, that broadcast."""
    one = 1.0 + 0.0 * given.re
    low = Pair(0.0 * one, 0.0 * one)
    is_zero = (given.re == 0.0) & (given.im == 0.0)
    tau = given
    if nome:
        tau, low = _tau_of_nome(ops, given, is_zero, precision)
    basis = reduce_basis(ops, Pair(0.5 * one, 0.0 * one), 0.5 * tau, precision)
    (_, q), (r, s) = basis.matrix
    factor = Pair(*(part.high for part in basis.period1))
    periods = []
    for multiple, period in ((q, basis.period1), (s, basis.period3)):
        for part, lower in zip(period, (low.re, low.im), strict=True):
            exact = part._replace(low=(part.low[0] + multiple * lower,))
            periods.append(_times_pi(ops, exact, precision))
    basis = ReducedBasis((periods[0], periods[1]), (periods[2], periods[3]), basis.matrix)
    tau_reduced, reduced_nome = tau_and_nome(ops, basis, precision)
    inverse = pi_over_first_period(ops, basis, precision)
    series = bare_series(periods, inverse, tau_reduced, reduced_nome)
    angle = math.pi * tau_reduced.re
    phase = Pair(ops.cos(angle), ops.sin(angle))
    theta = ThetaConstants(series, reduced_nome, reduced_nome, (), phase)
    root = pair_sqrt(ops, factor)
    first, second, third = (
        Pair(ops.constant(x.re), ops.constant(x.im)) for x in (tau, tau_reduced, root)
    )
    turn = eighth_root(ops, first, second, third, basis.matrix, n, _STEPS)
    mu_odd, nu_odd = reduced_index(ops, basis.matrix, n)
    tall = is_tall(ops.constant(tau_reduced.im), precision)
    has_root = (mu_odd | ~nu_odd) & ~(mu_odd & nu_odd)  # theta_1 and theta_2
    quarter = 2.0 * pair_sqrt(ops, pair_sqrt(ops, select(ops, tall, Pair(1.0, 0.0), reduced_nome)))
    front = turn * root.reciprocal()
    of_half = front * _eighth_power(ops, -(r - 8.0 * ops.rint(0.125 * r)) * s)
    front = select(ops, has_root, front * quarter, front)
    exponent = (0.25 * math.pi) * tau_reduced.times_i()
    exponent = select(ops, has_root & tall, exponent, Pair(0.0, 0.0))
    curvature = inverse.scale(q / math.pi)
    transform = ThetaTransform(
        theta, tau, basis.matrix, parity(ops, r), curvature, front, of_half, exponent
    )
    reduced = (1,) if n == 1 else (2, 3, 4)
    conditions = () if n == 1 else (mu_odd & nu_odd, nu_odd & ~mu_odd)
    z, is_lost = sheltered(ops, z, series, precision)
    value = theta_value(ops, z, transform, precision, n, order, log, reduced, conditions)
    value = nan_where(ops, is_lost, value)
    if not nome:
        return value
    limit = _at_nome_zero(n, order, log)
    finite = ops.where(is_lost, math.nan, 0.0 * z.re)
    return select(ops, is_zero, Pair(finite + limit, finite), value)


def _at_nome_zero(n: int, order: int, log: bool) -> float:
    if log:
        return 0.0 if n > 2 else -math.inf
    return 1.0 if n > 2 and order == 0 else 0.0


def _tau_of_nome(ops: Any, nome: Pair, is_zero: Any, precision: Precision) -> tuple[Pair, Pair]:
    """tau = log(nome)/(i pi), and what is missing to make exp(i pi tau) the nome."""
    nome = Pair(ops.where(is_zero, 0.5, nome.re), nome.im)
    modulus = ops.hypot(nome.re, nome.im)
    tau = Pair(ops.arctan2(nome.im, nome.re), -ops.log(modulus)).scale(1.0 / math.pi)
    # A modulus of 1 or more has no tau.
    tau = Pair(ops.where(modulus < 1.0, tau.re, math.nan), tau.im)
    one = 1.0 + 0.0 * tau.re
    parts = [split_number(ops, x, 0.0 * one, precision) for x in (one, 0.0 * one, tau.re, tau.im)]
    basis = ReducedBasis((parts[0], parts[1]), (parts[2], parts[3]), ((1, 0), (0, 1)))
    found = tau_and_nome(ops, basis, precision)[1]
    # The square of a small nome would underflow.
    unit = 1.0 / ops.power_of_two(ops.constant(modulus))
    error = (nome - found).scale(unit) * found.scale(unit).reciprocal()
    return tau, Pair(*(ops.constant(x) for x in (error.im / math.pi, -error.re / math.pi)))


def _times_pi(ops: Any, x: SplitReal, precision: Precision) -> SplitReal:
    pi = _PI[precision.name]
    high = ops.constant(x.high)
    product, error = product_and_error(
        halves(ops, high, precision), halves(ops, pi.high, precision)
    )
    error = error + (high * sum(pi.low) + pi.high * x.low[0])
    total, rest = two_sum(product, error)
    split = split_number(ops, total, rest, precision)
    return split._replace(high=ops.with_derivative_of(total, lambda: math.pi * x.high))
