r"""Theta functions of a reduced lattice, and the functions of Jacobi as their quotients.

The argument is reduced as in `backends.kernel`, whose folded argument this module shares. With
:math:`v = \pi z/a`, :math:`A = qe^{2iv}` and :math:`B = qe^{-2iv}` the four series (DLMF 20.2) are
polynomials in A + B, times A - B, sin v and cos v where they are odd.

Jacobi's functions measure the argument from the nearest half-period, about which each of the four
is one of the four again, so that all zeros and poles are relatively exact. The twelve functions are
the quotients of four: ``s`` is theta_1 and ``c``, ``d``, ``n`` are the theta functions that vanish
at K, K + iK' and iK', in the order that the reduced basis gives them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple

from backends.argument import locate, offset_from
from backends.constants import (
    Precision,
    SeriesConstants,
    SplitReal,
    differences_of_powers,
    prepare_numbers,
    rounding,
    sums_of_powers,
)
from backends.kernel import FoldedArgument, fold, parity, sigma_factors
from backends.pair import ArrayOps, Pair, pair_exp, pair_sqrt, polynomial, select
from backends.preparation import prepare, split_number
from wefpe_core._exact import GaussianRational
from wefpe_core.extended import (
    PI,
    ExtendedComplex,
    arithmetic_geometric_mean,
    extended_precision,
)
from wefpe_core.lattice import Lattice
from wefpe_core.lattice_constants import lattice_constants

# Terms of a theta series. In the cell |A| and |B| are at most 1, so that the first term left out
# is q^20; theta constants in fifty digits end at q^64.
TERMS = 4
TERMS_OF_FIFTY_DIGITS = 8
LETTERS = "scdn"


class ThetaConstants(NamedTuple):
    """What the theta functions of a reduced lattice need."""

    series: SeriesConstants
    nome: Pair
    four_root: Pair  # 4 q^(1/2), what a shift by b/2 makes of two factors 2 q^(1/4)
    # Of theta_1 to theta_4: that of theta_1 gives it the slope 1 in z at 0, the others the value 1.
    weights: tuple[Any, ...]
    phase: Any  # e^(i pi Re tau), which only `nome_terms_in_cell` needs


def theta_weights(nome: Any, period_over_pi: Any, terms: int) -> tuple[Any, Any, Any, Any]:
    """The weights of `ThetaConstants`, where theta_1 and theta_2 are without their 2 q^(1/4)."""
    # q^(n^2) and q^(n(n+1)) in turn, each from the one before.
    squares, pronics, power = [nome], [nome * nome], nome
    for _ in range(1, terms):
        power = power * nome
        squares.append(pronics[-1] * power)
        pronics.append(squares[-1] * power)
    second: Any = 1 + _sum(pronics)
    third: Any = 1 + 2 * _sum(squares)
    fourth: Any = 1 + 2 * _sum([x if n % 2 else -x for n, x in enumerate(squares)])
    # theta_1'(0) = theta_2 theta_3 theta_4 at 0 (DLMF 20.4.6).
    return period_over_pi / (second * third * fourth), 1 / second, 1 / third, 1 / fourth


def _sum(terms: Sequence[Any]) -> Any:
    total: Any = terms[-1]
    for term in reversed(terms[:-1]):
        total = total + term
    return total


@lru_cache(maxsize=512)
@extended_precision
def prepare_theta(lattice: Lattice, precision: Precision) -> ThetaConstants:
    """The constants of a lattice of numbers, rounded once from fifty digits."""
    known = lattice_constants(lattice)
    rounded = _rounding_of_pairs(precision)
    root = (ExtendedComplex(-known.tau.im, known.tau.re) * PI / 2).exp()
    return ThetaConstants(
        prepare_numbers(lattice, precision),
        rounded(known.nome),
        rounded(root * 4),
        tuple(map(rounded, exact_weights(lattice))),
        rounded(ExtendedComplex(Decimal(0), PI * known.tau.re).exp()),
    )


def exact_weights(lattice: Lattice) -> tuple[Any, ...]:
    known = lattice_constants(lattice)
    return theta_weights(known.nome, known.period1 / PI, TERMS_OF_FIFTY_DIGITS)


def _rounding_of_pairs(precision: Precision) -> Callable[[ExtendedComplex], Pair]:
    to_format = rounding(precision)
    return lambda value: Pair(to_format(value.re), to_format(value.im))


class NomeTerms(NamedTuple):
    """A + B and A - B, where A = q e^(2iv) and B = q e^(-2iv)."""

    total: Pair
    difference: Pair


def nome_terms(
    f: FoldedArgument, nome: Pair, precision: Precision, growth: Any = None
) -> NomeTerms:
    """They are right where |B| is at most the square root of |q|, or Im v below 5.

    `growth` is e^(2 Im v) if its modulus far out counts, because the nome has a derivative.
    """
    if growth is None:
        growth = 1.0 / (f.decay + precision.underflow_guard)
    # The difference of decay and growth, relatively exact near the real axis.
    minus = -(f.one_minus_decay * ((1.0 + f.decay) * growth))
    plus, sine = f.decay + growth, 2.0 * f.sin_cos
    return NomeTerms(
        total=nome * Pair(f.cos_double * plus, sine * minus),
        difference=nome * Pair(f.cos_double * minus, sine * plus),
    )


def nome_terms_in_cell(
    ops: ArrayOps, f: FoldedArgument, c: ThetaConstants, precision: Precision
) -> NomeTerms:
    """The same in the whole cell, where |B| is at most 1.

    Far up only B counts, and its factors q and e^(2 Im v) are one exponential, lest one underflows.
    """
    is_high = f.v.im > (20.0 if precision.bits == 53 else 5.0)
    size = ops.exp(ops.where(is_high, 2.0 * f.v.im - math.pi * c.series.tau.im, 0.0))
    b = (c.phase * Pair(f.cos_double, -2.0 * f.sin_cos)).scale(size)
    total, difference = nome_terms(f, c.nome, precision)
    return NomeTerms(select(ops, is_high, b, total), select(ops, is_high, -b, difference))


def theta_series(f: FoldedArgument, terms: NomeTerms, nome: Pair, n: int, order: int) -> Pair:
    """The derivative of theta_n of that order at the folded v; for n < 3 over 2 q^(1/4) e^(Im v).

    theta_3 is the sum of q^(k^2) e^(2ikv) over all integers k, theta_2 that over all halves.
    """
    total, difference = terms
    square = nome * nome
    sign = -1.0 if n in (1, 4) else 1.0
    is_odd = order % 2 == 1
    weights: list[Any] = []
    power: Any = 1.0  # q^(k^2-k) or q^(k^2)
    step: Any = square if n > 2 else nome
    if n > 2:
        for k in range(1, TERMS + 1):
            weights.append((sign**k * (2.0 * k) ** order) * power)
            power, step = power * step, step * square
        if is_odd:
            value = difference * polynomial(differences_of_powers(weights, square), total)
        else:
            value = polynomial(sums_of_powers(weights, square), total)
            value = value + (1.0 if order == 0 else 0.0)
        return _times_power_of_i(value, order)
    for k in range(1, TERMS + 1):
        power, step = power * step, step * square
        weights.append((sign**k * (2.0 * k + 1.0) ** order) * power)
    even: Any = 2.0 + polynomial(sums_of_powers(weights, square), total)
    odd = difference * polynomial(differences_of_powers(weights, square), total)
    if is_odd == (n == 1):  # an even function
        value = f.scaled_cosine * even + (f.scaled_sine * odd).times_i()
    else:
        value = f.scaled_cosine * odd + (f.scaled_sine * even).times_i()
    return _times_power_of_i(0.5 * value, order - (n == 1))


def _times_power_of_i(x: Pair, power: int) -> Pair:
    turned = x if power % 2 == 0 else x.times_i()
    return -turned if power % 4 in (2, 3) else turned


def at_half_period(
    ops: ArrayOps, thetas: Sequence[Pair], m: Any, n: Any, c: ThetaConstants
) -> tuple[Pair, Pair, Pair, Pair]:
    """theta_1 to theta_4 at v + (m pi + n pi tau)/2 from those at v, up to a common factor.

    All without the factor 2 q^(1/4) of theta_1 and theta_2.
    """
    t1, t2, t3, t4 = thetas
    n_odd, m_odd = parity(ops, n), parity(ops, m)
    # A shift by pi tau twice changes the signs of theta_1 and theta_4, one by pi those of 1 and 2.
    sign = 1.0 - 2.0 * parity(ops, 0.5 * (n - n_odd))
    is_odd = n_odd > 0.5
    t1, t4 = t1.scale(sign), t4.scale(sign)
    t1, t2, t3, t4 = (
        select(ops, is_odd, *pair)
        for pair in (
            (t4.times_i(), t1),
            (t3, t2),
            (c.four_root * t2, t3),
            ((c.four_root * t1).times_i(), t4),
        )
    )
    sign = 1.0 - 2.0 * parity(ops, 0.5 * (m - m_odd))
    is_odd = m_odd > 0.5
    t1, t2 = t1.scale(sign), t2.scale(sign)
    first, second = select(ops, is_odd, t2, t1), select(ops, is_odd, -t1, t2)
    return first, second, select(ops, is_odd, t4, t3), select(ops, is_odd, t3, t4)


class JacobiThetas(NamedTuple):
    """theta_1 to theta_4 of one argument, up to a common factor.

    Of an infinite period, far out, two of them underflow. So `plain` has other common factors for
    the first two and for the last two, which do not.
    """

    offset: Pair
    values: tuple[Pair, Pair, Pair, Pair]
    plain: tuple[Pair, Pair, Pair, Pair]


# Up to here e^(2 Im v) times the nome that stands for 0 is below eps (`parameter_constants`).
_LARGEST_HEIGHT = {"float64": 650.0, "float32": 64.0}


def jacobi_thetas(
    ops: ArrayOps, z: Pair, c: ThetaConstants, precision: Precision, nome_moves: bool = False
) -> JacobiThetas:
    """The four theta functions about the half-period nearest to z.

    If the nome has a derivative, that of a nome 0 is right up to Im v = 325.
    """
    z = z.scale(c.series.unit)
    cell = locate(ops, z, c.series, precision)
    n_half = 0.5 * ops.rint(2.0 * cell.row)
    m_half = 0.5 * ops.rint(2.0 * (cell.column - n_half * ops.constant(c.series.tau.re)))
    m, n = cell.m + m_half, cell.n + n_half
    offset = offset_from(ops, z, m, n, c.series, precision)
    f = fold(ops, offset, c.series, precision)
    shrink = ops.exp(-f.v.im)  # theta_1 and theta_2 come over e^(Im v)
    growth = None
    if nome_moves:
        height, largest = 2.0 * f.v.im, _LARGEST_HEIGHT[precision.name]
        growth = ops.exp(ops.where(height < largest, height, largest))
    terms = nome_terms(f, c.nome, precision, growth)
    t1, t2, t3, t4 = (theta_series(f, terms, c.nome, k, 0) for k in (1, 2, 3, 4))
    t1 = t1.scale(f.sign)
    values, plain = (
        at_half_period(ops, thetas, 2.0 * m, 2.0 * n, c)
        for thetas in ((t1, t2, t3.scale(shrink), t4.scale(shrink)), (t1, t2, t3, t4))
    )
    return JacobiThetas(offset, values, plain)


def quotient(ops: ArrayOps, top: Pair, bottom: Pair, ratio: Pair, offset: Pair, real: Any) -> Pair:
    """ratio * top/bottom, infinite where the denominator is 0, and real where `real` says so."""
    is_pole = (bottom.re == 0.0) & (bottom.im == 0.0)
    # The square of a tiny denominator would underflow, hence its size is taken out first.
    size = ops.constant(bottom.re * ops.sign_of(bottom.re) + bottom.im * ops.sign_of(bottom.im))
    shrink = 1.0 / ops.where(is_pole, 1.0, size)
    bottom = bottom.scale(shrink)
    bottom = Pair(ops.where_needed(~is_pole, bottom.re, 1.0), bottom.im)
    value = ratio * (top * bottom.reciprocal())
    if real is not False:
        value = real_where(ops, real, value)
    value = value.scale(shrink)
    value = Pair(ops.where(is_pole, math.inf, value.re), value.im)
    return ops.with_infinities(value, offset, is_pole)


def sheltered(ops: ArrayOps, z: Pair, c: SeriesConstants, precision: Precision) -> tuple[Pair, Any]:
    """z with 0 in place of what has no cell (NaN, infinite, too far away), and where that is.

    In a library with derivatives NaN would spoil those in other arguments, which it shares.
    """
    cell = locate(ops, z.scale(c.unit), c, precision)
    index = cell.m + cell.n
    is_lost = index != index
    re, im = (ops.where_needed(~is_lost, x, 0.0) for x in (z.re, z.im))
    return Pair(re, im), is_lost


def nan_where(ops: ArrayOps, condition: Any, x: Pair) -> Pair:
    return Pair(ops.where(condition, math.nan, x.re), ops.where(condition, math.nan, x.im))


def real_where(ops: ArrayOps, condition: Any, x: Pair) -> Pair:
    """x with the imaginary part 0 where the condition holds, and with the derivative of x."""
    # NaN, which stands for a pole beside an infinite part, stays.
    keeps = (x.im != x.im) | ~condition
    im = ops.constant(ops.where(keeps, x.im, 0.0))
    return Pair(x.re, ops.with_derivative_of(im, lambda: x.im))


# --- sigma_1 to sigma_3 ---------------------------------------------------------------------------


def sigma_of_index(
    ops: ArrayOps, z: Pair, c: ThetaConstants, precision: Precision, index: int
) -> Pair:
    """sigma_1, sigma_2 or sigma_3 of the reduced basis: those that vanish at a/2, (a+b)/2, b/2."""
    factors = sigma_factors(ops, z.scale(c.series.unit), c.series, precision)
    f = factors.folded
    terms = nome_terms_in_cell(ops, f, c, precision)
    theta = theta_series(f, terms, c.nome, index + 1, 0)
    if index > 1:
        theta = theta.scale(ops.exp(-f.v.im))  # which the exponential is over
    theta = c.weights[index] * theta
    # sigma itself changes sign with m + n + mn, and sigma_k/sigma with the other period's index.
    m_odd, n_odd = parity(ops, factors.cell.m), parity(ops, factors.cell.n)
    odd = (n_odd, m_odd + n_odd, m_odd)[index - 1]
    sign = factors.sign * f.sign * (1.0 - 2.0 * parity(ops, odd))
    value = (theta * factors.power).scale(sign)
    is_zero = (theta.re == 0.0) & (theta.im == 0.0)
    value = Pair(ops.where(factors.overflows & ~is_zero, math.inf, value.re), value.im)
    return ops.with_infinities(value, factors.offset)


@cache
def sigma_function(index: int) -> Callable[..., Pair]:
    """The kernel function of `sigma_of_index`."""

    def value(ops: ArrayOps, z: Pair, c: ThetaConstants, precision: Precision) -> Pair:
        return sigma_of_index(ops, z, c, precision, index)

    value.__name__ = f"sigma_{index}"
    value.prepare = prepare_theta  # type: ignore[attr-defined]
    value.needs_library = True  # type: ignore[attr-defined]
    return value


def sigma_of_tensors(
    ops: Any, z: Pair, omega1: Pair, omega3: Pair, precision: Precision, k: int
) -> Pair:
    """sigma_k of a lattice of tensors."""
    prepared = prepare(ops, omega1, omega3, precision)
    c = prepared.constants
    nome = pair_exp(ops, math.pi * c.tau.times_i())
    angle = math.pi * c.tau.re
    weights = theta_weights(nome, 1.0, TERMS)
    theta = ThetaConstants(c, nome, nome, weights, Pair(ops.cos(angle), ops.sin(angle)))
    (p, q), (r, s) = prepared.matrix
    # omega1 = s w1 - q w3 and omega3 = p w3 - r w1; which class of half-periods is omega_k?
    h1, h3 = ((1, 0), (1, 1), (0, 1))[k - 1]
    along_a, along_b = parity(ops, h1 * s - h3 * r) > 0.5, parity(ops, h3 * p - h1 * q) > 0.5
    z, is_lost = sheltered(ops, z, c, precision)
    values = [sigma_of_index(ops, z, theta, precision, index) for index in (1, 2, 3)]
    value = select(ops, along_b, select(ops, along_a, values[1], values[2]), values[0])
    return nan_where(ops, is_lost, value)


# --- The parameter m as a number ------------------------------------------------------------------


class ParameterLattice(NamedTuple):
    """The lattice of Jacobi's functions with half-periods K and iK', for a number m."""

    lattice: Lattice
    is_real: bool
    is_degenerate: bool  # m is 0 or 1
    swings: bool  # m is real and at least 1: the real amplitude swings about 0, or tends to a limit

    @property
    def mean(self) -> complex:
        return mean_of(self.lattice, self.swings)


def mean_of(lattice: Lattice, swings: bool) -> complex:
    """The mean slope of the amplitude, pi/2K or 0."""
    return 0j if swings else math.pi / 2 / complex(lattice.omega1)


# In place of an infinite half-period: the nome is below every power of eps, and above 0.
_LONG = Decimal(340)


@lru_cache(maxsize=512)
@extended_precision
def parameter_lattice(m: complex) -> ParameterLattice:
    exact = ExtendedComplex.of(m)
    one = ExtendedComplex(Decimal(1), Decimal(0))
    means = [
        arithmetic_geometric_mean(one, square.sqrt()) if square.squared_modulus() else None
        for square in (one - exact, exact)
    ]
    first, second = (PI / mean / 2 if mean is not None else one * _LONG for mean in means)
    omegas = (first, ExtendedComplex(-second.im, second.re))
    lattice = Lattice._from_exact(
        *(GaussianRational(Fraction(omega.re), Fraction(omega.im)) for omega in omegas)
    )
    is_real = m.imag == 0
    return ParameterLattice(lattice, is_real, None in means, is_real and m.real >= 1)


def order_of(matrix: Any) -> tuple[int, int, int]:
    """Which half-periods of the basis given, 1 to 3, are a/2, (a+b)/2, b/2 of the reduced one."""
    (p, q), (r, s) = matrix
    by_parity = {(1, 0): 1, (1, 1): 2, (0, 1): 3}
    return tuple(  # type: ignore[return-value]
        by_parity[x % 2, y % 2] for x, y in ((p, q), (p + r, q + s), (r, s))
    )


class JacobiConstants(NamedTuple):
    """What Jacobi's functions of a number m need."""

    theta: ThetaConstants
    ratios: tuple[tuple[Pair, ...], ...]  # the weights of `LETTERS`, each over each
    cases: tuple[float, ...]  # 1 for the one of `_CASES` that holds, 0 for the others
    mean: Pair  # pi/2K, or 0 where the amplitude swings
    is_real: float  # 1 if m is real, else 0


@lru_cache(maxsize=512)
@extended_precision
def prepare_jacobi(
    lattice: Lattice, precision: Precision, is_real: bool, is_degenerate: bool, swings: bool
) -> JacobiConstants:
    """The constants for the lattice of a `ParameterLattice`, rounded once from fifty digits."""
    theta = prepare_theta(lattice, precision)
    if is_degenerate:  # the second period is infinite: no row but the first
        inverse = theta.series.pi_over_period.scale(1.0 / math.pi).conjugate()
        theta = theta._replace(series=theta.series._replace(row=Pair(0.0, 0.0), column=inverse))
    order = order_of(lattice.reduced()[1])
    first, *others = exact_weights(lattice)
    weights = (first, *(others[order.index(label)] for label in (1, 2, 3)))
    rounded = _rounding_of_pairs(precision)
    mean = mean_of(lattice, swings)
    return JacobiConstants(
        theta,
        tuple(tuple(rounded(p / q) for q in weights) for p in weights),
        tuple(float(case[0] == order) for case in _CASES),
        Pair(mean.real, mean.imag),
        float(is_real),
    )


@cache
def jacobi_function(
    kinds: tuple[str, ...], is_real: bool, is_degenerate: bool, swings: bool
) -> Callable[..., Any]:
    """The kernel function with the values of some of Jacobi's functions, for a number m.

    Only its constants depend on m, so that it is compiled once for all.
    """

    def values(ops: ArrayOps, z: Pair, c: JacobiConstants, precision: Precision) -> Any:
        thetas = jacobi_thetas(ops, z, c.theta, precision)
        is_case = tuple(flag > 0.5 for flag in c.cases)
        real = (z.im == 0.0) & (c.is_real > 0.5)

        def of(kind: str) -> Pair:
            if kind == "am":
                return amplitude(ops, of("sn"), of("cn"), z, c.mean)
            p, q = map(LETTERS.index, kind)
            return jacobi_quotient(ops, kind, thetas, is_case, c.ratios[p][q], real)

        results = tuple(map(of, kinds))
        return results if len(results) > 1 else results[0]

    values.__name__ = f"jacobi_{'_'.join(kinds)}"
    values.prepare = partial(  # type: ignore[attr-defined]
        prepare_jacobi, is_real=is_real, is_degenerate=is_degenerate, swings=swings
    )
    return values


def jacobi_quotient(
    ops: ArrayOps,
    kind: str,
    thetas: JacobiThetas,
    is_case: Sequence[Any],
    ratio: Pair,
    real: Any,
) -> Pair:
    """The function of this kind; `is_case` says which of `_CASES` holds, or where."""
    places = [[_place(letter, case[0]) for letter in kind] for case in _CASES]
    share_a_factor: Any = False
    for condition, (p, q) in zip(is_case, places, strict=True):
        if p // 2 == q // 2:
            share_a_factor = condition | share_a_factor
    top, bottom = (
        _chosen(
            ops,
            share_a_factor,
            *(_by_letter(ops, x, values, is_case) for values in (thetas.plain, thetas.values)),
        )
        for x in kind
    )
    return quotient(ops, top, bottom, ratio, thetas.offset, real)


def _place(letter: str, order: Sequence[int]) -> int:
    """Which of theta_1 to theta_4, counted from 0, belongs to a letter."""
    return 0 if letter == "s" else order.index(LETTERS.index(letter)) + 1


def _by_letter(ops: ArrayOps, letter: str, values: Sequence[Pair], is_case: Sequence[Any]) -> Pair:
    places = [_place(letter, case[0]) for case in _CASES]
    result = values[places[0]]
    for condition, place in list(zip(is_case, places, strict=True))[1:]:
        result = _chosen(ops, condition, values[place], result)
    return result


def _chosen(ops: ArrayOps, condition: Any, first: Pair, second: Pair) -> Pair:
    if isinstance(condition, bool):
        return first if condition else second
    return first if first is second else select(ops, condition, first, second)


# --- The parameter m as an array ------------------------------------------------------------------

# The nome in powers of l = (1 - sqrt k')/(2 + 2 sqrt k'): l + 2 l^5 + 15 l^9 + ... (DLMF 19.5.6).
_NOME_OF_L = (1.0, 2.0, 15.0, 150.0, 1707.0, 20910.0)
# Half-periods 1, 2, 3 (K, K+iK', iK') as a/2, (a+b)/2, b/2. With e1-e3 = 1 and e2-e3 = m the
# differences e_a - e_b, e_ab - e_b and e_a - e_ab are these signs times these of (1, m, 1-m).
_CASES: tuple[Any, ...] = (
    ((1, 2, 3), (1, 0), (1, 1), (1, 2)),
    ((3, 2, 1), (-1, 0), (-1, 2), (-1, 1)),
    ((1, 3, 2), (1, 2), (-1, 1), (1, 0)),
    ((2, 3, 1), (-1, 2), (-1, 0), (1, 1)),
    ((3, 1, 2), (-1, 1), (1, 2), (-1, 0)),
    ((2, 1, 3), (1, 1), (1, 0), (-1, 2)),
)


class ParameterConstants(NamedTuple):
    """The constants of Jacobi's functions for an array of m."""

    theta: ThetaConstants
    is_case: tuple[Any, ...]  # which of the cases holds


def parameter_constants(ops: Any, m: Pair, precision: Precision) -> ParameterConstants:
    """Constants in working precision, without branches.

    Of the six numbers m, 1-m, 1/m, ... the one of least modulus belongs to a reduced basis, and
    its nome is a power series. So the constants have relative accuracy however small m, 1-m or 1/m.
    """
    one = Pair(0.0 * m.re + 1.0, 0.0 * m.im)
    complement = Pair(1.0 - m.re, -m.im)
    parts = (one, m, complement)
    x, y = (ops.hypot(ops.constant(p.re), ops.constant(p.im)) for p in (m, complement))
    first = (x <= 1.0) & (y <= 1.0)
    second = ~first & (y >= x)
    third = ~first & ~second
    is_case = (
        first & (x <= y),
        first & ~(x <= y),
        second & (x <= 1.0),
        second & ~(x <= 1.0),
        third & (y <= 1.0),
        third & ~(y <= 1.0),
    )

    def chosen(position: int) -> Pair:
        result = parts[_CASES[0][position][1]]
        for condition, case in list(zip(is_case, _CASES, strict=True))[1:]:
            sign, place = case[position]
            result = select(ops, condition, parts[place].scale(float(sign)), result)
        return result

    scale, small, middle = chosen(1), chosen(2), chosen(3)
    size = ops.hypot(ops.constant(scale.re), ops.constant(scale.im))
    shrink = 1.0 / ops.power_of_two(size)
    inverse = scale.scale(shrink).reciprocal()
    small, middle = small.scale(shrink) * inverse, middle.scale(shrink) * inverse
    is_zero = (small.re == 0.0) & (small.im == 0.0)
    tiny = 1e-300 if precision.bits == 53 else 1e-36
    small = Pair(small.re + tiny * ops.as_weight(is_zero), small.im)
    root = pair_sqrt(ops, middle)
    rest = pair_sqrt(ops, root) + 1.0
    ratio = small * (2.0 * ((root + 1.0) * rest.square())).reciprocal()
    fourth = ratio.square().square()
    nome = ratio * polynomial(tuple(Pair(k, 0.0) for k in _NOME_OF_L), fourth)
    tau = Pair(ops.arctan2(nome.im, nome.re), -ops.log(ops.hypot(nome.re, nome.im)))
    tau = tau.scale(1.0 / math.pi)
    weights = theta_weights(nome, 1.0, TERMS)
    pi_over_period = pair_sqrt(ops, scale) * weights[2].square()
    a = math.pi * pi_over_period.reciprocal()
    periods = tuple(
        split_number(ops, x, 0.0 * x, precision) for y in (a, a * tau) for x in (y.re, y.im)
    )
    series = bare_series(periods, pi_over_period, tau, nome)
    has_rows = ops.as_weight(~is_zero)
    inverse = pi_over_period.scale(1.0 / math.pi)
    column = select(ops, is_zero, inverse.conjugate(), series.column)
    series = series._replace(row=series.row.scale(has_rows), column=column)
    weights = (pi_over_period.reciprocal() * weights[0], *weights[1:])
    theta = ThetaConstants(series, nome, 4.0 * pair_sqrt(ops, nome), weights, None)
    return ParameterConstants(theta, is_case)


def bare_series(
    periods: Sequence[SplitReal], pi_over_period: Pair, tau: Pair, nome: Pair
) -> SeriesConstants:
    """The series constants that theta functions use; the others are None."""
    row = pi_over_period.conjugate().times_i().scale(1.0 / (math.pi * tau.im))
    inverse = pi_over_period.scale(1.0 / math.pi)
    # Re(z/a) less the part along b; see `backends.argument.locate`.
    column = Pair(inverse.re - row.re * tau.re, -inverse.im - row.im * tau.re)
    known: dict[str, Any] = dict.fromkeys(SeriesConstants._fields)
    known |= zip(("period1_re", "period1_im", "period3_re", "period3_im"), periods, strict=True)
    known |= {"row": row, "column": column, "tau": tau, "pi_over_period": pi_over_period}
    known |= {"pi_over_period_low": Pair(0.0, 0.0), "nome_squared": nome.square(), "unit": 1.0}
    return SeriesConstants(**known)


def jacobi_of_arrays(
    ops: Any, u: Pair, m: Pair, precision: Precision, kinds: tuple[str, ...]
) -> tuple[Pair, ...]:
    """Some of Jacobi's functions for arrays of u and m that broadcast."""
    has_no_value = ~((m.re - m.re == 0.0) & (m.im - m.im == 0.0))
    m = Pair(*(ops.where_needed(~has_no_value, x, 0.5) for x in (m.re, m.im)))
    c, is_case = parameter_constants(ops, m, precision)
    u, is_lost = sheltered(ops, u, c.series, precision)
    has_no_value = has_no_value | is_lost
    thetas = jacobi_thetas(ops, u, c, precision, nome_moves=True)
    real = (u.im == 0.0) & (m.im == 0.0)
    weights = {letter: _by_letter(ops, letter, c.weights, is_case) for letter in LETTERS}

    @cache
    def of(kind: str) -> Pair:
        if kind == "am":
            return amplitude(ops, of("sn"), of("cn"), u, mean_slope(ops, m))
        p, q = tuple(kind)
        ratio = weights[p] * weights[q].reciprocal()
        return jacobi_quotient(ops, kind, thetas, is_case, ratio, real)

    return tuple(nan_where(ops, has_no_value, of(kind)) for kind in kinds)


def amplitude(ops: Any, sn: Pair, cn: Pair, u: Pair, mean: Pair) -> Pair:
    """Of the numbers with this sine and cosine, the one whose real part is nearest Re(mean*u)."""
    # e^(i am) and its inverse; the larger of the two has no cancellation.
    first = Pair(cn.re - sn.im, cn.im + sn.re)
    second = Pair(cn.re + sn.im, cn.im - sn.re)
    excess = 4.0 * (cn.im * sn.re - cn.re * sn.im)  # of the squared moduli
    is_first = excess >= 0.0
    large = select(ops, is_first, first, second)
    square = large.squared_modulus()
    part = ops.sign_of(excess) * excess / square
    # Where the sine is small so may be the amplitude, and its tangent has all its digits.
    is_flat = sn.squared_modulus() < 0.25
    tangent = Pair(*(ops.where(is_flat, x, 0.0) for x in (sn.re, sn.im)))
    tangent = tangent * Pair(ops.where(is_flat, cn.re, 1.0), cn.im).reciprocal()
    x, y = tangent.re, tangent.im
    angle = ops.arctan2(
        ops.where(is_flat, 2.0 * x, large.im),
        ops.where(is_flat, (1.0 - y) * (1.0 + y) - x * x, large.re),
    )
    half = 0.5 * angle + math.pi * ops.as_weight(cn.re < 0.0)
    angle = ops.where(is_flat, half, ops.where(is_first, angle, -angle))
    # log |large|, from 1/|large|^4 = 1 - part where that is exact.
    is_small = part < 0.5
    log = ops.log1p(
        ops.where(
            is_flat,
            4.0 * y / ((1.0 - y) * (1.0 - y) + x * x),
            ops.where(is_small, -part, square - 1.0),
        )
    )
    sign = ops.sign_of(excess)
    height = log * ops.where(is_flat, 0.25, ops.where(is_small, 0.25 * sign, -0.5 * sign))
    turn = 2.0 * math.pi
    middle = ops.constant(mean.re) * ops.constant(u.re) - ops.constant(mean.im) * ops.constant(u.im)
    angle = angle + turn * ops.rint((middle - ops.constant(angle)) / turn)
    is_pole = ops.isinf(sn.re)
    return Pair(ops.where(is_pole, math.inf, angle), ops.where(is_pole, math.nan, height))


def amplitude_of_parts(ops: Any, *numbers: Any) -> Pair:
    """`amplitude` of the real and imaginary parts of its arguments, and of the precision."""
    *parts, _ = numbers
    pairs = (Pair(*parts[k : k + 2]) for k in range(0, len(parts), 2))
    return amplitude(ops, *pairs)


# The mean of 1 and a square root as small as 1e-8, or as large as 1e154, agrees with its limit.
_MEAN_STEPS = 14


def mean_slope(ops: Any, m: Pair) -> Pair:
    """pi/2K by the arithmetic-geometric mean, and 0 on the cut m >= 1; without derivatives."""
    a = Pair(ops.constant(1.0 + 0.0 * m.re), ops.constant(0.0 * m.re))
    b = pair_sqrt(ops, Pair(1.0 - ops.constant(m.re), -ops.constant(m.im)))
    for _ in range(_MEAN_STEPS):
        a, b = 0.5 * (a + b), pair_sqrt(ops, a * b)
    off_cut = ops.as_weight(~((m.im == 0.0) & (m.re >= 1.0)))
    return a.scale(off_cut)
