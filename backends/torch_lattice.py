"""Lattices of tensors: reduction and constants on the device, differentiable, branch-free."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from backends.argument import two_sum
from backends.constants import (
    DOUBLE,
    SINGLE,
    Precision,
    SeriesConstants,
    SplitReal,
    leading_bits,
    series_constants,
    split_decimal,
)
from backends.pair import Pair, pair_exp, pair_sqrt, select
from backends.torch_ops import PRECISIONS, TorchOps, as_complex, as_pair, real_dtype, wider
from wefpe_core.extended import PI
from wefpe_core.lattice import Lattice

# A step shrinks the squared length of the shorter vector at least fourfold until the basis is
# reduced, so this many reduce every lattice with Im tau >= 10^-8.
REDUCTION_STEPS = 14
# The AGM converges quadratically; from any good pair of square roots this is past double.
_AGM_STEPS = 10

# Pi in the parts of each format; made at import, since a tracer cannot follow decimals.
_PI = {precision.name: split_decimal(PI, precision) for precision in (SINGLE, DOUBLE)}


class Halves(NamedTuple):
    """A number as the sum of two with half the bits each, so that products of them are exact."""

    head: Any
    tail: Any


def halves(x: Any, precision: Precision) -> Halves:
    bits = precision.bits // 2
    head = leading_bits(x, bits) if isinstance(x, float) else _leading_bits(x, bits)
    return Halves(head, x - head)


def _leading_bits(x: Tensor, bits: int) -> Tensor:
    # By exponent and rounding rather than Veltkamp's products, which a fused multiply-add spoils.
    mantissa, exponent = torch.frexp(x)
    unit = 2.0**bits
    return torch.ldexp(torch.round(mantissa * unit) / unit, exponent)


def product_and_error(x: Halves, y: Halves) -> tuple[Any, Any]:
    """The product rounded, and what that leaves out; whether a compiler fuses does not matter."""
    total, error1 = two_sum(x.head * y.head, x.head * y.tail)
    total, error2 = two_sum(total, x.tail * y.head)
    total, error3 = two_sum(total, x.tail * y.tail)
    return total, (error1 + error2) + error3


class ReducedBasis(NamedTuple):
    """Full periods of the reduced basis, exact to about twice the working precision.

    The integer matrix maps the basis given to the reduced one, as in `Lattice.reduced`.
    """

    period1: tuple[SplitReal, SplitReal]
    period3: tuple[SplitReal, SplitReal]
    matrix: tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]


def reduction_matrix(
    ops: TorchOps, a: Pair, b: Pair
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Gauss reduction by a fixed number of steps; piecewise constant, so without gradient."""
    a, b = (Pair(ops.constant(x.re), ops.constant(x.im)) for x in (a, b))
    one, zero = torch.ones_like(a.re + b.re), torch.zeros_like(a.re + b.re)
    first, second = Pair(one, zero), Pair(zero, one)  # coordinates, not complex numbers
    for _ in range(REDUCTION_STEPS):
        n = torch.round((a.re * b.re + a.im * b.im) / a.squared_modulus())
        b, second = b - a.scale(n), second - first.scale(n)
        swap = b.squared_modulus() < a.squared_modulus()
        a, b = select(ops, swap, b, a), select(ops, swap, -a, b)
        first, second = select(ops, swap, second, first), select(ops, swap, -first, second)
    n = torch.round((a.re * b.re + a.im * b.im) / a.squared_modulus())
    second = second - first.scale(n)
    # Of the two signs, the one `Lattice.reduced` takes: the first vector points to the right.
    leftward = (a.re < 0.0) | ((a.re == 0.0) & (a.im < 0.0))
    first, second = (select(ops, leftward, -x, x) for x in (first, second))
    return (first.re, first.im), (second.re, second.im)


def reduce_basis(ops: TorchOps, omega1: Pair, omega3: Pair, precision: Precision) -> ReducedBasis:
    a, b = 2.0 * omega1, 2.0 * omega3
    matrix = reduction_matrix(ops, a, b)
    period1, period3 = (
        (
            _combination(ops, p, a.re, q, b.re, precision),
            _combination(ops, p, a.im, q, b.im, precision),
        )
        for p, q in matrix
    )
    return ReducedBasis(period1, period3, matrix)


def _combination(
    ops: TorchOps, p: Tensor, x: Tensor, q: Tensor, y: Tensor, precision: Precision
) -> SplitReal:
    """p*x + q*y for integers p, q, in two parts of working precision."""
    (first, error1), (second, error2) = (
        product_and_error(halves(k, precision), halves(ops.constant(w), precision))
        for k, w in ((p, x), (q, y))
    )
    total, error = two_sum(first, second)
    high, low = two_sum(total, error + (error1 + error2))
    parts, rest = [], high
    for _ in range(precision.part_count):
        parts.append(_leading_bits(rest, precision.part_bits))
        rest = rest - parts[-1]
    return SplitReal(
        high=ops.with_derivative_of(high, lambda: p * x + q * y),
        parts=tuple(parts),
        low=(low,),
        lowest=torch.zeros_like(high),
    )


def prepare_tensors(ops: TorchOps, basis: ReducedBasis, precision: Precision) -> SeriesConstants:
    """The kernel's constants for a lattice of tensors."""
    a = Pair(*(part.high for part in basis.period1))
    b = Pair(*(part.high for part in basis.period3))
    tau, nome = _tau_and_nome(ops, basis, precision)
    pi = _PI[precision.name]
    pi_over_period = Pair(pi.high, 0.0) / a
    # One correction each: rounding errors of tau and pi/a would reach every value.
    zero = SplitReal(0.0, (), (0.0,), 0.0)
    pi_over_period = pi_over_period + _quotient_error(
        ops, pi_over_period, (pi, zero), basis.period1, precision
    )
    values = series_constants(pi_over_period, tau, nome, math.pi, precision)
    area = a.re * b.im - a.im * b.re
    nothing = torch.zeros_like(area)
    return SeriesConstants(
        pi_over_period_low=Pair(nothing, nothing),
        period1_re=basis.period1[0],
        period1_im=basis.period1[1],
        period3_re=basis.period3[0],
        period3_im=basis.period3[1],
        row=Pair(-a.im / area, a.re / area),
        column=Pair(b.im / area, -b.re / area),
        eta3=(values["eta1"] * b - Pair(0.0, math.pi)) / a,
        log_period_over_pi=torch.log(torch.hypot(a.re, a.im) / math.pi),
        pi_im_tau=math.pi * tau.im,
        **values,
    )


def _tau_and_nome(ops: TorchOps, basis: ReducedBasis, precision: Precision) -> tuple[Pair, Pair]:
    """tau = b/a and the nome exp(i pi tau).

    The exponential magnifies rounding errors of its argument, so those of the quotient and of
    the product with pi are carried along, to first order.
    """
    a, b = (Pair(*(x.high for x in period)) for period in (basis.period1, basis.period3))
    tau = b / a
    error = _quotient_error(ops, tau, basis.period3, basis.period1, precision)
    nome = pair_exp(ops, math.pi * tau.times_i())
    pi = _PI[precision.name]

    def product_error(x: Tensor, x_error: Tensor) -> Tensor:
        """pi times the exact value, minus what math.pi * x was rounded to."""
        product, rounding = product_and_error(halves(x, precision), halves(pi.high, precision))
        return (product - math.pi * x) + rounding + x * sum(pi.low) + pi.high * x_error

    x, y = ops.constant(tau.re), ops.constant(tau.im)
    correction = Pair(product_error(x, error.re), product_error(y, error.im)).times_i()
    return tau, nome * (1.0 + correction)


def _quotient_error(
    ops: TorchOps,
    quotient: Pair,
    numerator: tuple[SplitReal, SplitReal],
    denominator: tuple[SplitReal, SplitReal],
    precision: Precision,
) -> Pair:
    """numerator/denominator - quotient, from the exactly computed remainder; a constant."""
    a = tuple(part.mapped(ops.constant) for part in denominator)
    n = tuple(part.mapped(ops.constant) for part in numerator)
    q_re, q_im = ops.constant(quotient.re), ops.constant(quotient.im)

    def remainder(n: SplitReal, first: Any, second: Any, sign: float) -> Any:
        """n - first + sign*second, where first and second are products of two numbers."""
        (p1, e1), (p2, e2) = (
            product_and_error(halves(q, precision), halves(w.high, precision))
            for q, w in (first, second)
        )
        total, error = two_sum(n.high, -p1)
        total, error2 = two_sum(total, sign * p2)
        low = sum(q * w.low[0] * s for (q, w), s in ((first, -1.0), (second, sign)))
        return total + ((error + error2) + (sign * e2 - e1) + (sum(n.low) + low))

    rest = Pair(
        remainder(n[0], (q_re, a[0]), (q_im, a[1]), 1.0),
        remainder(n[1], (q_re, a[1]), (q_im, a[0]), -1.0),
    )
    return rest / Pair(a[0].high, a[1].high)


class ModularValues(NamedTuple):
    """Complex tensors, or numbers, for the basis given."""

    invariants: tuple[Any, Any]
    roots: tuple[Any, Any, Any]
    quasi_periods: tuple[Any, Any]


def modular_values(lattice: Lattice) -> ModularValues:
    """Invariants, roots and quasi-periods of a lattice of tensors, with gradients."""
    dtype, device = _common(lattice.omega1, lattice.omega3)
    ops, precision = TorchOps(dtype), PRECISIONS[dtype]
    omega1, omega3 = (as_pair(w, dtype, device) for w in (lattice.omega1, lattice.omega3))
    basis = reduce_basis(ops, omega1, omega3, precision)
    (p, q), (r, s) = basis.matrix
    constants = prepare_tensors(ops, basis, precision)
    e1, e2, e3 = (constants.wp_scale * root for root in constants.roots)

    def root_at(i: Tensor, j: Tensor) -> Tensor:
        """e of the half-period i*w1 + j*w3 of the reduced basis; the parities decide."""
        odd_i, odd_j = torch.remainder(i, 2.0), torch.remainder(j, 2.0)
        both = odd_i * odd_j
        return as_complex(e1.scale(odd_i - both) + e2.scale(both) + e3.scale(odd_j - both))

    eta1, eta3 = constants.eta1, constants.eta3
    # The matrix has determinant 1: omega1 = s w1 - q w3 and omega3 = p w3 - r w1.
    return ModularValues(
        invariants=(
            as_complex(2.0 * (e1 * e1 + e2 * e2 + e3 * e3)),  # DLMF 23.3.6
            as_complex(4.0 * e1 * e2 * e3),  # DLMF 23.3.7
        ),
        roots=(root_at(s, q), root_at(s + r, q + p), root_at(r, p)),
        quasi_periods=(
            as_complex(eta1.scale(s) - eta3.scale(q)),
            as_complex(eta3.scale(p) - eta1.scale(r)),
        ),
    )


def _common(*values: Any) -> tuple[torch.dtype, torch.device]:
    """The dtype and device a set of tensors and numbers is computed in."""
    tensors = [value for value in values if isinstance(value, Tensor)]
    return wider(*(real_dtype(tensor.dtype) for tensor in tensors)), tensors[0].device


def invert_invariants(g2: Any, g3: Any) -> Lattice:
    """Lattice of tensors with invariants `g2`, `g3`, with gradients; in its reduced basis.

    Cardano's formula for the roots, two Newton steps, and the complex AGM for the periods.
    """
    dtype, device = _common(g2, g3)
    ops = TorchOps(dtype)
    g2_pair, g3_pair = as_pair(g2, dtype, device), as_pair(g3, dtype, device)
    e1, e2, e3 = _cubic_roots(ops, g2_pair, g3_pair)
    a, b, c = (pair_sqrt(ops, x) for x in (e1 - e3, e1 - e2, e2 - e3))
    omega1 = (0.5 * math.pi) / _agm(ops, a, _nearer(ops, a, b))
    omega3 = Pair(0.0, 0.5 * math.pi) / _agm(ops, a, _nearer(ops, a, c))
    downward = omega1.re * omega3.im < omega1.im * omega3.re
    omega3 = select(ops, downward, -omega3, omega3)
    (p, q), (r, s) = reduction_matrix(ops, omega1, omega3)
    return Lattice(
        as_complex(omega1.scale(p) + omega3.scale(q)),
        as_complex(omega1.scale(r) + omega3.scale(s)),
    )


def _cubic_roots(ops: TorchOps, g2: Pair, g3: Pair) -> list[Pair]:
    """Roots of 4x^3 - g2 x - g3."""
    half, third = 0.125 * g3, g2 * (1.0 / 12.0)
    offset = _nearer(ops, half, pair_sqrt(ops, half * half - third * third * third))
    cube = half + offset
    modulus = torch.exp(torch.log(torch.hypot(cube.re, cube.im)) / 3.0)
    angle = torch.atan2(cube.im, cube.re) / 3.0
    roots = []
    for k in range(3):
        turned = angle + 2.0 * math.pi * k / 3.0
        u = Pair(modulus * torch.cos(turned), modulus * torch.sin(turned))
        root = u + third / u
        for _ in range(2):
            square = root * root
            root = root - (4.0 * square * root - g2 * root - g3) / (12.0 * square - g2)
        roots.append(root)
    return roots


def _nearer(ops: TorchOps, a: Pair, b: Pair) -> Pair:
    """Whichever of b and -b is nearer to a."""
    return select(ops, a.re * b.re + a.im * b.im >= 0.0, b, -b)


def _agm(ops: TorchOps, a: Pair, b: Pair) -> Pair:
    for _ in range(_AGM_STEPS):
        mean = 0.5 * (a + b)
        a, b = mean, _nearer(ops, mean, pair_sqrt(ops, a * b))
    return a
