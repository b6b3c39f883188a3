"""Invariants, roots and quasi-periods of a lattice of tensors, and the way back, differentiable."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from backends.argument import two_sum
from backends.constants import Precision
from backends.pair import Pair, pair_sqrt, select
from backends.preparation import (
    ReducedBasis,
    halves,
    pi_over_first_period,
    product_and_error,
    reduce_basis,
    reduction_matrix,
    series_of_basis,
    tau_and_nome,
    unit_of,
)
from backends.torch_ops import PRECISIONS, TorchOps, as_complex, as_pair, real_dtype, wider
from wefpe_core.lattice import Lattice
from wefpe_core.modular import Roots, invariants_of, roots_of, theta_fourth_powers

# The AGM converges quadratically; from any good pair of square roots this is past double.
_AGM_STEPS = 10


class _Reduced(NamedTuple):
    """A lattice of tensors in its reduced basis."""

    ops: TorchOps
    basis: ReducedBasis
    precision: Precision

    def thetas(self) -> tuple[Pair, Pair, Pair]:
        _, nome = tau_and_nome(*self)
        return theta_fourth_powers(nome, self.precision.nome_powers)

    def scale(self) -> Pair:
        """(pi/a)^2, by which the formulas of `wefpe_core.modular` scale."""
        quotient = pi_over_first_period(*self)
        return quotient * quotient


def _reduced(lattice: Lattice) -> _Reduced:
    dtype, device = _common(lattice.omega1, lattice.omega3)
    ops, precision = TorchOps(dtype), PRECISIONS[dtype]
    omega1, omega3 = (as_pair(w, dtype, device) for w in (lattice.omega1, lattice.omega3))
    return _Reduced(ops, reduce_basis(ops, omega1, omega3, precision), precision)


def invariants(lattice: Lattice) -> tuple[Tensor, Tensor]:
    reduced = _reduced(lattice)
    g2, g3 = invariants_of(reduced.thetas(), reduced.scale())
    return as_complex(g2), as_complex(g3)


def g2_in_units(lattice: Lattice) -> tuple[Tensor, Tensor]:
    """As `backends.constants.g2_in_units`, for a lattice of tensors."""
    reduced = _reduced(lattice)
    quotient = pi_over_first_period(*reduced)
    unit = unit_of(reduced.ops, quotient)
    scaled = quotient.scale(1.0 / unit)
    g2, _ = invariants_of(reduced.thetas(), scaled * scaled)
    return as_complex(g2), unit


def roots(lattice: Lattice) -> tuple[Tensor, Tensor, Tensor]:
    """wp at omega1, omega1 + omega3 and omega3 of the basis given."""
    reduced = _reduced(lattice)
    found = roots_of(reduced.thetas(), reduced.scale())
    (p, q), (r, s) = reduced.basis.matrix
    # The matrix has determinant 1: omega1 = s w1 - q w3 and omega3 = p w3 - r w1.
    return _root_at(found, s, q), _root_at(found, s + r, q + p), _root_at(found, r, p)


def _root_at(found: Roots, i: Tensor, j: Tensor) -> Tensor:
    """e of the half-period i*w1 + j*w3 of the reduced basis; the parities decide."""
    odd_i, odd_j = torch.remainder(i, 2.0), torch.remainder(j, 2.0)
    both = odd_i * odd_j
    e1, e2, e3 = found
    return as_complex(e1.scale(odd_i - both) + e2.scale(both) + e3.scale(odd_j - both))


def quasi_periods(lattice: Lattice) -> tuple[Tensor, Tensor]:
    """zeta at omega1 and omega3 of the basis given."""
    reduced = _reduced(lattice)
    constants = series_of_basis(*reduced)
    eta1, eta3 = constants.eta1.high, constants.eta3.high
    (p, q), (r, s) = reduced.basis.matrix
    return as_complex(eta1.scale(s) - eta3.scale(q)), as_complex(eta3.scale(p) - eta1.scale(r))


def _common(*values: Any) -> tuple[torch.dtype, torch.device]:
    """The dtype and device a set of tensors and numbers is computed in."""
    tensors = [value for value in values if isinstance(value, Tensor)]
    return wider(*(real_dtype(tensor.dtype) for tensor in tensors)), tensors[0].device


def invert_invariants(g2: Any, g3: Any) -> Lattice:
    """Lattice of tensors with invariants `g2`, `g3`, with gradients; in its reduced basis.

    Cardano's formula for the roots, two Newton steps, and the complex AGM for the periods.
    NaN, with derivative 0, where the discriminant is zero.
    """
    dtype, device = _common(g2, g3)
    ops = TorchOps(dtype)
    g2_pair, g3_pair = as_pair(g2, dtype, device), as_pair(g3, dtype, device)
    is_degenerate = _has_zero_discriminant(ops, g2_pair, g3_pair, PRECISIONS[dtype])
    # The derivative of a double root is infinite: the invariants of some lattice replace these.
    g2_pair = select(ops, is_degenerate, Pair(1.0, 0.0), g2_pair)
    g3_pair = select(ops, is_degenerate, Pair(0.0, 0.0), g3_pair)
    e1, e2, e3 = _cubic_roots(ops, g2_pair, g3_pair)
    a, b, c = (pair_sqrt(ops, x) for x in (e1 - e3, e1 - e2, e2 - e3))
    omega1 = (0.5 * math.pi) / _agm(ops, a, _nearer(ops, a, b))
    omega3 = Pair(0.0, 0.5 * math.pi) / _agm(ops, a, _nearer(ops, a, c))
    downward = omega1.re * omega3.im < omega1.im * omega3.re
    omega3 = select(ops, downward, -omega3, omega3)
    (p, q), (r, s) = reduction_matrix(ops, omega1, omega3)
    not_a_number = Pair(float("nan"), float("nan"))
    first, third = (
        as_complex(select(ops, is_degenerate, not_a_number, omega1.scale(i) + omega3.scale(j)))
        for i, j in ((p, q), (r, s))
    )
    return Lattice(first, third)


def _has_zero_discriminant(ops: TorchOps, g2: Pair, g3: Pair, precision: Precision) -> Tensor:
    """Whether g2^3 = 27 g3^2 in twice the working precision, if nothing underflows there.

    In working precision alone the two agree for every tall lattice as well.
    """
    g2, g3 = (Pair(ops.constant(g.re), ops.constant(g.im)) for g in (g2, g3))
    square2, rest2 = _exact_product(ops, g2, g2, precision)
    square3, rest3 = _exact_product(ops, g3, g3, precision)
    cube, cube_rest = _exact_product(ops, square2, g2, precision)
    other, other_rest = _exact_product(ops, square3, Pair(27.0, 0.0), precision)
    difference = (cube - other) + (cube_rest - other_rest) + (rest2 * g2 - 27.0 * rest3)
    size = torch.hypot(cube.re, cube.im) + torch.hypot(other.re, other.im)
    unit = precision.eps**2
    is_representable = size > torch.finfo(size.dtype).tiny / unit
    return (torch.hypot(difference.re, difference.im) < 64.0 * unit * size) & is_representable


def _exact_product(ops: TorchOps, x: Pair, y: Pair, precision: Precision) -> tuple[Pair, Pair]:
    """x*y rounded, and its rounding error."""

    def component(a: Any, b: Any, c: Any, d: Any) -> tuple[Any, Any]:
        """a*b + c*d."""
        (first, error1), (second, error2) = (
            product_and_error(halves(ops, p, precision), halves(ops, q, precision))
            for p, q in ((a, b), (c, d))
        )
        total, error = two_sum(first, second)
        return total, error + (error1 + error2)

    re, re_rest = component(x.re, y.re, -x.im, y.im)
    im, im_rest = component(x.re, y.im, x.im, y.re)
    return Pair(re, im), Pair(re_rest, im_rest)


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
