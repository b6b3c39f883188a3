"""The numbers a lattice contributes to the series kernel, and the precisions it runs in.

For a lattice of numbers they are rounded once from fifty digits (`prepare_numbers`); for a
lattice of tensors they are computed in working precision (`backends.preparation`). The formulas
in between are the same code (`series_constants`).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from math import comb
from typing import Any, NamedTuple

from backends.pair import Dual, Pair
from wefpe_core.errors import LatticeError
from wefpe_core.extended import PI, ExtendedComplex, extended_precision
from wefpe_core.lattice import Lattice
from wefpe_core.lattice_constants import LAMBERT_TERMS, NOME_POWERS, lattice_constants
from wefpe_core.modular import (
    eisenstein_e2,
    lambert_coefficients,
    roots_of,
    sum_from_smallest,
    theta_fourth_powers,
    theta_product_excess,
)


class Precision(NamedTuple):
    """What the kernel needs to know of a floating-point format.

    The term counts bring the truncation error below eps/16 on every reduced lattice; the
    tests hold them against `wefpe_core.bounds`. The series in B decides (|B| <= 0.066); the one
    in A (|A| <= 0.0044) has as many terms only so that wp is exactly real on the real axis.
    """

    name: str
    bits: int
    lambert_terms: int
    terms_e2: int
    nome_powers: int
    carlson_steps: int
    # Added to exp(-2 beta) before it is inverted, so that the inverse and its second derivative
    # are finite. It matters only where the factor of the inverse is far below eps.
    underflow_guard: float
    part_bits: int  # of the pieces a period is cut into
    largest_exponent: float  # whose exponential does not overflow

    @property
    def index_limit(self) -> float:
        """Lattice indices up to here, in halves, have exact products with parts of a period."""
        return float(2 ** (self.bits - self.part_bits - 1))

    @property
    def part_count(self) -> int:
        # Rounded to nearest, a part leaves a rest that begins one bit further down.
        return 1 + math.ceil((self.bits - self.part_bits) / (self.part_bits + 1))

    @property
    def half_periods_fit_two_parts(self) -> bool:
        """Whether a double has no more bits than `SplitReal.high` and `low` together."""
        return self.bits + self.bits // 2 >= DOUBLE.bits

    @property
    def low_count(self) -> int:
        """The number of pieces of `SplitReal.low`, for a lattice of numbers."""
        if self.half_periods_fit_two_parts:
            return 1
        return 1 + math.ceil((DOUBLE.bits - self.bits) / (self.part_bits + 1))

    @property
    def eps(self) -> float:
        return float(2.0 ** (1 - self.bits))

    @property
    def largest_unit(self) -> float:
        """A power of two that is in range, as is its inverse."""
        return float(2.0 ** (1022 if self.bits == 53 else 126))


DOUBLE = Precision("float64", 53, 5, 8, 20, 12, 1e-90, part_bits=26, largest_exponent=709.78)
SINGLE = Precision("float32", 24, 3, 4, 9, 9, 1e-12, part_bits=6, largest_exponent=88.72)


class SplitReal(NamedTuple):
    """A real number as ``high + sum(low) + lowest``, and ``high`` as the sum of its `parts`.

    The parts are so short that their products with lattice indices are exact. If two numbers of
    the format cannot hold a double, the pieces of `low` are as short; else `low` is one number.
    """

    high: Any
    parts: tuple[Any, ...]
    low: tuple[Any, ...]
    lowest: Any

    def mapped(self, function: Callable[[Any], Any]) -> SplitReal:
        parts, low = (tuple(map(function, pieces)) for pieces in (self.parts, self.low))
        return SplitReal(function(self.high), parts, low, function(self.lowest))


class SplitComplex(NamedTuple):
    """A complex number whose multiples are summed exactly."""

    re: SplitReal
    im: SplitReal

    @property
    def high(self) -> Pair:
        return Pair(self.re.high, self.im.high)


class SeriesConstants(NamedTuple):
    """What the kernel knows of a lattice; `Pair` fields are complex, periods are full.

    All lengths are in units in which pi/a is about 1, so that on lattices of any size no square or
    cube leaves the range before the result does: z is multiplied by `unit` first, and a function of
    degree -k by its k-th power last.
    """

    unit: Any  # a power of two, at most |pi/a| and, if that is in range, more than half of it
    period1_re: SplitReal
    period1_im: SplitReal
    period3_re: SplitReal
    period3_im: SplitReal
    row: Pair  # z has coordinate row.re*x + row.im*y along period3,
    column: Pair  # and column.re*x + column.im*y along period1
    tau: Pair
    pi_over_period: Pair
    pi_over_period_low: Pair  # its rounding error
    period_over_pi: Pair
    wp_scale: Pair  # (pi/a)^2
    wp_prime_scale: Pair  # -2 (pi/a)^3
    half_slope_scales: tuple[Pair, Pair]  # -2 (pi/a)^3 (e_j - e_k)(e_j - e_l) for e_2 and e_3
    minus_third_e2: Pair
    roots: tuple[Pair, Pair, Pair]  # e1, e2, e3 of the reduced basis over (pi/a)^2,
    root_gap: Pair  # e2 - e3 over (pi/a)^2, relatively exact however tall the lattice
    root_products: tuple[Pair, Pair, Pair]  # and (e_j - e_k)(e_j - e_l)
    half_g2_excess: Pair  # g2/2 over (pi/a)^4, minus 2/3: relatively exact on tall lattices
    nome_squared: Pair
    nome_fourth: Pair  # Q^2 = A B
    # The rows of the lattice but the one of 0, as `kernel.row_sums` takes them, with
    # x = (A + B - 2Q)/(1-Q)^2 and l_k = k Q^k/(1-Q^k):
    row_unit: Pair  # x over sin^2 v
    row_factors: tuple[Pair, Pair, Pair, Pair]  # of the two nearest rows
    rows: tuple[Pair, ...]  # of the others, -4 sum l_k (A^k + B^k - 2 Q^k)/x, in powers of x
    rows_slope: tuple[Pair, ...]  # the derivative of x times that
    rows_integral: tuple[Pair, ...]  # sum l_k/k (A^k - B^k)/(A - B), in powers of A + B
    theta: tuple[Pair, ...]  # theta_1(v)/(theta_1'(0) sin v)
    eta1: SplitComplex  # quasi-periods of the reduced basis
    eta3: SplitComplex
    log_period_over_pi: Any  # log|a/pi|, in no units
    pi_im_tau: Any
    # Of lattices that conjugation maps to themselves (`backends.mirrors`):
    cell_shift: Any  # between rows of cells that conjugation maps to cells
    mirror_re: Any  # where the vertical line of symmetry at the edge of a cell is, or -1
    mirror_im: Any  # and the horizontal one


class Nomes(NamedTuple):
    """The nome and two of its products, and what each lacks by its rounding error."""

    first: Any
    square: Any
    times_cube: Any  # the product with (pi/a)^3
    rests: tuple[Any, Any, Any] = (0, 0, 0)


def series_constants(
    powers: tuple[Any, Any, Any], tau: Any, nomes: Nomes, pi: Any, precision: Precision
) -> dict[str, Any]:
    """The formulas shared by numbers and tensors, for any complex type.

    `powers` are pi/a, its square and its cube.
    """
    pi_over_period, square, cube = powers
    nome, q, nome_times_cube, (rest, rest_of_q, rest_times_cube) = nomes
    lambert = lambert_coefficients(q, precision.terms_e2)
    e2 = eisenstein_e2(lambert)
    cubic = [k * k * x for k, x in enumerate(lambert, 1)]
    lambert = lambert[: precision.lambert_terms]
    thetas = theta2, theta3, theta4 = theta_fourth_powers(nome, precision.nome_powers)
    q2 = q * q
    q3 = q2 * q
    q6 = q3 * q3
    # theta_1(v) / (2 q^(1/4) sin v) = sum_n (-1)^n Q^(n(n+1)/2) sum_{|j|<=n} e^(2ijv), ordered by
    # powers of A = Q e^(2iv) and B = Q e^(-2iv); its value at v = 0 is theta_1'(0)/(2 q^(1/4)).
    slope = 1 - 3 * q + 5 * q3 - 7 * q6
    theta = (1 - q + q3 - q6, q2 - 1 - q2 * q3, q - q2 * q2, -q3)
    theta = tuple(coefficient / slope for coefficient in theta)
    even = sums_of_powers(theta[1:], q2)
    # With c = (1-Q)^2 and k = -4Q/c the two nearest rows are -4 x (1 + 4Q + Q^2 - 2Qx)/(c (1-x)^2),
    # which is j (k0 + ka j) for j = x/(1-x). Over x it is k0 + j (kb + ka j), and its derivative
    # in x is k0 + j (2 kb + j (kd + 2 ka j)).
    c = (1 - q) * (1 - q)
    row_unit = -4 * (q + (q * (q * (2 - q) / c) + rest_of_q))
    nearest = tuple(i * row_unit - k for i, k in ((6, 4), (4, 4), (10, 8), (22, 20)))
    rows, power = [], -4 * c
    for coefficient in centred_sums_of_powers(lambert, q):
        rows.append(coefficient * power)
        power = power * c
    # (e2-e1)(e2-e3) and (e3-e1)(e3-e2) are -16 q (1 - 8q + ...) and 16 q (1 + 8q + ...): one
    # product, and a small one whose rounding errors hardly count.
    excesses = [
        (sign, theta_product_excess(sign * nome, sign * rest, precision.nome_powers))
        for sign in (-1, 1)
    ]
    products = (
        theta3 * theta4,
        *(16 * sign * (nome + (nome * excess + rest)) for sign, excess in excesses),
    )
    half_slope_scales = (
        -32 * sign * (nome_times_cube + (nome_times_cube * excess + rest_times_cube))
        for sign, excess in excesses
    )
    return {
        "pi_over_period": pi_over_period,
        "period_over_pi": 1 / pi_over_period,
        "wp_scale": square,
        "wp_prime_scale": -2 * cube,
        "half_slope_scales": tuple(half_slope_scales),
        "minus_third_e2": e2 / -3,
        "roots": tuple(roots_of(thetas, 1)),
        "root_gap": theta2,
        # e1-e2, e1-e3, e2-e3 are theta_4^4, theta_3^4, theta_2^4 (DLMF 23.6(i)).
        # g2 = (4/3) E_4 (pi/a)^4 and E_4 = 1 + 240 sum k^3 Q^k/(1-Q^k).
        "half_g2_excess": 160 * sum_from_smallest(cubic),
        "root_products": products,
        "nome_squared": q,
        "tau": tau,
        "nome_fourth": q2,
        "row_unit": row_unit,
        "row_factors": nearest,
        "rows": tuple(rows),
        "rows_slope": tuple(k * coefficient for k, coefficient in enumerate(rows, 1)),
        "rows_integral": differences_of_powers([x / k for k, x in enumerate(lambert, 1)], q2),
        "theta": (theta[0] + even[0], *even[1:]),
        "eta1": pi_over_period * pi * e2 / 6,
    }


def sums_of_powers(weights: Sequence[Any], product: Any) -> tuple[Any, ...]:
    """Coefficients, in powers of A+B, of ``sum weights[k-1] (A^k + B^k)`` where AB = `product`.

    By Waring's formula for A^k + B^k.
    """
    coefficients = [0 * product for _ in range(len(weights) + 1)]
    for k, weight in enumerate(weights, 1):
        for j in range(k // 2 + 1):
            coefficients[k - 2 * j] += k * comb(k - j, j) // (k - j) * weight
            weight = -(weight * product)
    return tuple(coefficients)


def centred_sums_of_powers(weights: Sequence[Any], q: Any) -> list[Any]:
    """Coefficients of ``sum weights[k-1] (A^k + B^k - 2 q^k)``, in powers of A + B - 2q from 1 on.

    AB = q^2, so A^k + B^k is 2 q^k T_k(1 + (A+B-2q)/2q) with Chebyshev's polynomial.
    """
    powers = [1]
    for _ in weights:
        powers.append(powers[-1] * q)
    return [
        sum_from_smallest(
            [
                2 * k * comb(k + j, 2 * j) // (k + j) * powers[k - j] * weights[k - 1]
                for k in range(j, len(weights) + 1)
            ]
        )
        for j in range(1, len(weights) + 1)
    ]


def differences_of_powers(weights: Sequence[Any], product: Any) -> tuple[Any, ...]:
    """The same coefficients of ``sum weights[k-1] (A^k - B^k)/(A - B)``."""
    coefficients = [0 * product for _ in weights]
    for k, weight in enumerate(weights):
        for j in range(k // 2 + 1):
            coefficients[k - 2 * j] += comb(k - j, j) * weight
            weight = -(weight * product)
    return tuple(coefficients)


@lru_cache(maxsize=512)
def prepare_numbers(lattice: Lattice, precision: Precision) -> SeriesConstants:
    """Round the fifty-digit constants of a lattice of numbers to a format, once."""
    return _prepare_numbers(lattice, precision)


@extended_precision
def _prepare_numbers(lattice: Lattice, precision: Precision) -> SeriesConstants:
    known = lattice_constants(lattice)
    a, tau = known.period1, known.tau
    for part in (*a, *known.period3):
        if not math.isfinite(rounding(precision)(part)):
            raise LatticeError(f"a period of the lattice, {part:.6g}, overflows {precision.name}")
    # As many terms of the modular series as fifty digits need.
    fifty_digits = precision._replace(terms_e2=LAMBERT_TERMS, nome_powers=NOME_POWERS)
    unit = unit_of(PI / a, precision)
    a, b = a * Decimal(unit), known.period3 * Decimal(unit)
    area = a.squared_modulus() * tau.im
    # z = s a + r b  =>  r = Im(conj(a) z)/area, s = Im(z conj(b))/area.
    row = ExtendedComplex(-a.im / area, a.re / area)
    column = ExtendedComplex(b.im / area, -b.re / area)
    quotient = PI / a
    square, nome = quotient * quotient, known.nome
    powers = (quotient, square, square * quotient)
    nomes = Nomes(nome, nome * nome, nome * powers[2])
    values = series_constants(powers, tau, nomes, PI, fifty_digits)
    to_format = rounding(precision)

    def rounded(value: Any) -> Any:
        if isinstance(value, tuple) and not isinstance(value, ExtendedComplex):
            return tuple(rounded(item) for item in value)
        return Pair(to_format(value.re), to_format(value.im))

    pi_over_period = values["pi_over_period"]
    low = pi_over_period - ExtendedComplex.of(
        complex(to_format(pi_over_period.re), to_format(pi_over_period.im))
    )
    period1, period3, eta1, eta3 = (
        SplitComplex(split_decimal(value.re, precision), split_decimal(value.im, precision))
        for value in (a, b, values.pop("eta1"), known.reduced_eta3 / Decimal(unit))
    )
    return SeriesConstants(
        unit=unit,
        pi_over_period_low=rounded(low),
        period1_re=period1.re,
        period1_im=period1.im,
        period3_re=period3.re,
        period3_im=period3.im,
        row=rounded(row),
        column=rounded(column),
        eta1=eta1,
        eta3=eta3,
        log_period_over_pi=to_format((known.period1 / PI).squared_modulus().ln() / 2),
        pi_im_tau=to_format(PI * tau.im),
        **_mirrors(lattice, unit, precision),
        **{key: rounded(value) for key, value in values.items()},
    )


def _mirrors(lattice: Lattice, unit: float, precision: Precision) -> dict[str, Any]:
    """The constants of `backends.mirrors`.

    In the reduced basis of a lattice that conjugation maps to itself, the first period is real or
    imaginary and Re tau is 0 or 1/2, or else b = -conj(a). Then cells without a shift are rhombs
    about the two axes; these are the only lines of symmetry that a quarter of a rhomb touches. A
    line is rounded as an offset on it is.
    """
    w1, w3 = lattice.reduced()[0].exact
    to_format = rounding(precision)

    def line(half_period: Fraction) -> float:
        return abs(to_format(half_period * Fraction(unit)))

    known = {"cell_shift": 0.0, "mirror_re": -1.0, "mirror_im": -1.0}
    if w1.re and w1.im:
        return known
    is_rectangular = not (w3.re and w3.im)
    known["cell_shift"] = 0.0 if is_rectangular else 0.5
    known["mirror_re" if w1.re else "mirror_im"] = line(w1.re or w1.im)
    if is_rectangular:
        known["mirror_im" if w1.re else "mirror_re"] = line(w3.im or w3.re)
    return known


def prepared_for(function: Callable[..., Any], lattice: Lattice, precision: Precision) -> Any:
    """The constants that a kernel function takes: those its attribute `prepare` makes, if any."""
    prepare: Callable[[Lattice, Precision], Any] = getattr(function, "prepare", prepare_numbers)
    return prepare(lattice, precision)


def unit_of(number: ExtendedComplex, precision: Precision) -> float:
    """The power of two in (x/2, x], where x is the modulus, or the one in range next to it."""
    largest = Decimal(precision.largest_unit)
    modulus = min(max(number.squared_modulus().sqrt(), 1 / largest), largest)
    _, exponent = math.frexp(float(modulus))
    return math.ldexp(0.5, exponent)


@extended_precision
def g2_in_units(lattice: Lattice) -> tuple[complex, float]:
    """g2 / unit^4 and the unit of `SeriesConstants`; g2 itself may be out of range."""
    known = lattice_constants(lattice)
    unit = unit_of(PI / known.period1, DOUBLE)
    return complex(known.g2 / Decimal(unit) ** 4), unit


def rounding(precision: Precision) -> Callable[[Any], float]:
    """Rounding to a format; the result is a Python float that the format holds exactly."""
    if precision is DOUBLE:
        return float

    def to_single(value: Any) -> float:
        try:
            return float(struct.unpack("f", struct.pack("f", float(value)))[0])
        except OverflowError:
            return math.copysign(math.inf, float(value))

    return to_single


def leading_bits(number: float, bits: int) -> float:
    """`number`, rounded to that many bits, halves to even; infinities and NaN stay as they are."""
    mantissa, exponent = math.frexp(number)
    # Adding 1.5 * 2**52 rounds a number below 2**51 to an integer.
    rounded = (math.ldexp(mantissa, bits) + 6755399441055744.0) - 6755399441055744.0
    return math.copysign(math.ldexp(rounded, exponent - bits), number)


def split_decimal(value: Decimal, precision: Precision) -> SplitReal:
    """A fifty-digit number, split into the parts of a format."""
    to_format = rounding(precision)

    high = to_format(value)
    if not math.isfinite(high):
        return SplitReal(
            high, (high,) * precision.part_count, (high,) * precision.low_count, lowest=high
        )
    parts, rest = [], high
    for _ in range(precision.part_count):
        parts.append(leading_bits(rest, precision.part_bits))
        rest -= parts[-1]
    remainder = value - Decimal(high)
    if precision.half_periods_fit_two_parts:
        low = [to_format(remainder)]
    else:
        low = []
        for _ in range(precision.low_count):
            piece = leading_bits(to_format(remainder), precision.part_bits)
            low.append(piece)
            remainder -= Decimal(piece)
    lowest = to_format(value - Decimal(high) - sum(map(Decimal, low)))
    return SplitReal(high, tuple(parts), tuple(low), lowest)


def map_reals(structure: Any, function: Callable[[Any], Any]) -> Any:
    """Apply `function` to every real number in nested constants, keeping their structure."""
    if isinstance(structure, Dual):
        return Dual(map_reals(structure.value, function), map_reals(structure.slope, function))
    if isinstance(structure, Pair):
        return Pair(function(structure.re), function(structure.im))
    if type(structure) is tuple:
        return tuple(map_reals(item, function) for item in structure)
    if isinstance(structure, tuple):  # a named one
        return type(structure)(*(map_reals(item, function) for item in structure))
    return function(structure)


def reals_of(structure: Any) -> list[Any]:
    """All real numbers in nested constants, in the order of `map_reals`."""
    numbers: list[Any] = []
    map_reals(structure, numbers.append)
    return numbers


def without_slopes(structure: Any) -> Any:
    """Constants whose dual numbers are replaced by their values."""
    if isinstance(structure, Dual):
        return structure.value
    if isinstance(structure, SeriesConstants):
        return SeriesConstants(*map(without_slopes, structure))
    if type(structure) is tuple:
        return tuple(map(without_slopes, structure))
    return structure
