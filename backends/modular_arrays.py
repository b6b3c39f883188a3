"""Invariants, roots and quasi-periods of a lattice of tensors, and the way back, differentiable.

Like `backends.kernel`, this runs on real pairs of any array library, without branches on data.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from backends.argument import two_sum
from backends.constants import Precision
from backends.kernel import parity
from backends.pair import ArrayOps, Pair, pair_sqrt, select
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
from wefpe_core.modular import Roots, invariants_of, roots_of, theta_fourth_powers

# The AGM converges quadratically; from any good pair of square roots this is past double.
_AGM_STEPS = 10


class ReducedLattice(NamedTuple):
    """A lattice of tensors in its reduced basis."""

    ops: ArrayOps
    basis: ReducedBasis
    precision: Precision

    @classmethod
    def of(cls, ops: ArrayOps, omega1: Pair, omega3: Pair, precision: Precision) -> ReducedLattice:
        return cls(ops, reduce_basis(ops, omega1, omega3, precision), precision)

    def invariants(self) -> tuple[Pair, Pair]:
        g2, g3 = invariants_of(self._thetas(), self._scale())
        return g2, g3

    def g2_in_units(self) -> tuple[Pair, Any]:
        """As `backends.constants.g2_in_units`."""
        quotient = pi_over_first_period(*self)
        unit = unit_of(self.ops, quotient)
        scaled = quotient.scale(1.0 / unit)
        g2, _ = invariants_of(self._thetas(), scaled * scaled)
        return g2, unit

    def roots(self) -> tuple[Pair, Pair, Pair]:
        """wp at omega1, omega1 + omega3 and omega3 of the basis given."""
        found = roots_of(self._thetas(), self._scale())
        (p, q), (r, s) = self.basis.matrix
        # The matrix has determinant 1: omega1 = s w1 - q w3 and omega3 = p w3 - r w1.
        return (
            self._root_at(found, s, q),
            self._root_at(found, s + r, q + p),
            self._root_at(found, r, p),
        )

    def quasi_periods(self) -> tuple[Pair, Pair]:
        """zeta at omega1 and omega3 of the basis given."""
        constants = series_of_basis(*self)
        eta1, eta3 = (eta.high.scale(constants.unit) for eta in (constants.eta1, constants.eta3))
        (p, q), (r, s) = self.basis.matrix
        return eta1.scale(s) - eta3.scale(q), eta3.scale(p) - eta1.scale(r)

    def _thetas(self) -> tuple[Pair, Pair, Pair]:
        _, nome = tau_and_nome(*self)
        return theta_fourth_powers(nome, self.precision.nome_powers)

    def _scale(self) -> Pair:
        """(pi/a)^2, by which the formulas of `wefpe_core.modular` scale."""
        quotient = pi_over_first_period(*self)
        return quotient * quotient

    def _root_at(self, found: Roots, i: Any, j: Any) -> Pair:
        """e of the half-period i*w1 + j*w3 of the reduced basis; the parities decide."""
        odd_i, odd_j = (parity(self.ops, k) for k in (i, j))
        both = odd_i * odd_j
        e1, e2, e3 = found
        return e1.scale(odd_i - both) + e2.scale(both) + e3.scale(odd_j - both)


def invert_invariants(ops: ArrayOps, g2: Pair, g3: Pair, precision: Precision) -> Any:
    """Half-periods of the lattice with invariants `g2`, `g3`, in its reduced basis.

    The invariants are scaled by powers of two. Of the roots, the one of largest modulus is simple;
    in twice the working precision it gives the difference of the others, however small, and the
    complex AGM gives the periods. NaN, with derivative 0, where the discriminant is zero.
    """
    unit = _unit_of_invariants(ops, g2, g3)
    for _ in range(2):
        g2 = g2.scale(1.0 / unit).scale(1.0 / unit)
        g3 = g3.scale(1.0 / unit).scale(1.0 / unit).scale(1.0 / unit)
    is_degenerate = _has_zero_discriminant(ops, g2, g3, precision)
    # The derivative of a double root is infinite: the invariants of some lattice replace these.
    g2 = select(ops, is_degenerate, Pair(1.0, 0.0), g2)
    g3 = select(ops, is_degenerate, Pair(0.0, 0.0), g3)
    root, gap = _simple_root_and_gap(ops, g2, g3, precision)
    # The others are (-root +- gap)/2.
    a, b = (pair_sqrt(ops, 1.5 * root + sign * gap) for sign in (0.5, -0.5))
    c = pair_sqrt(ops, gap)
    omega1 = (0.5 * math.pi) / _agm(ops, a, _nearer(ops, a, b))
    omega3 = Pair(0.0, 0.5 * math.pi) / _agm(ops, a, _nearer(ops, a, c))
    downward = omega1.re * omega3.im < omega1.im * omega3.re
    omega3 = select(ops, downward, -omega3, omega3)
    (p, q), (r, s) = reduction_matrix(ops, omega1, omega3)
    not_a_number = Pair(float("nan"), float("nan"))
    first, third = (
        select(
            ops, is_degenerate, not_a_number, (omega1.scale(i) + omega3.scale(j)).scale(1.0 / unit)
        )
        for i, j in ((p, q), (r, s))
    )
    return first, third


def _unit_of_invariants(ops: ArrayOps, g2: Pair, g3: Pair) -> Any:
    """A power of two u for which the larger of g2/u^4 and g3/u^6 is of the order 1."""
    sizes = [ops.constant(ops.hypot(g.re, g.im)) for g in (g2, g3)]
    first, second = ops.sqrt(ops.sqrt(sizes[0])), ops.exp(ops.log(sizes[1]) / 6.0)
    size = ops.where(first > second, first, second)
    return ops.power_of_two(ops.where(size > 0.0, size, 1.0))


def _has_zero_discriminant(ops: ArrayOps, g2: Pair, g3: Pair, precision: Precision) -> Any:
    """Whether g2^3 = 27 g3^2 in twice the working precision; both are scaled.

    In working precision alone the two agree for every tall lattice as well.
    """
    g2, g3 = (Pair(ops.constant(g.re), ops.constant(g.im)) for g in (g2, g3))
    square2, rest2 = _exact_product(ops, g2, g2, precision)
    square3, rest3 = _exact_product(ops, g3, g3, precision)
    cube, cube_rest = _exact_product(ops, square2, g2, precision)
    other, other_rest = _exact_product(ops, square3, Pair(27.0, 0.0), precision)
    difference = (cube - other) + (cube_rest - other_rest) + (rest2 * g2 - 27.0 * rest3)
    size = ops.hypot(cube.re, cube.im) + ops.hypot(other.re, other.im)
    return ops.hypot(difference.re, difference.im) <= 64.0 * precision.eps**2 * size


def _exact_product(ops: ArrayOps, x: Pair, y: Pair, precision: Precision) -> tuple[Pair, Pair]:
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


def _simple_root_and_gap(
    ops: ArrayOps, g2: Pair, g3: Pair, precision: Precision
) -> tuple[Pair, Pair]:
    """The root r of 4x^3 - g2 x - g3 with the largest modulus, and the difference of the others.

    Since the roots add up to 0, r is apart from both. The others solve
    x^2 + r x + r^2 - g2/4 = 0, so their difference is a square root of g2 - 3 r^2. That cancels if
    they nearly coincide, and is computed in twice the working precision.
    """
    fixed2, fixed3 = (Pair(ops.constant(g.re), ops.constant(g.im)) for g in (g2, g3))
    high = _largest_root(ops, fixed2, fixed3)
    low = Pair(0.0 * high.re, 0.0 * high.im)
    for _ in range(2):
        square, square_low = _doubled_product(ops, high, low, high, low, precision)
        slope, slope_low = _pair_sum(4.0 * square, -fixed2)
        slope_low = slope_low + 4.0 * square_low
        value, value_low = _doubled_product(ops, high, low, slope, slope_low, precision)
        value, rest = _pair_sum(value, -fixed3)
        step = (value + (rest + value_low)) / (12.0 * square - fixed2)
        high, rest = _pair_sum(high, -step)
        high, low = _pair_sum(high, low + rest)
    square, square_low = _doubled_product(ops, high, low, high, low, precision)
    threefold, lost = _pair_sum(2.0 * square, square)
    rest, rest_low = _pair_sum(fixed2, -threefold)
    gap_squared = rest + (rest_low - (lost + 3.0 * square_low))

    # Two of Newton's steps have the derivatives of the root, of first and second order.
    root = high
    for _ in range(2):
        square = root * root
        root = root - (root * (4.0 * square - g2) - g3) / (12.0 * square - g2)
    root = _with_derivative_of(ops, high, root)
    gap = pair_sqrt(ops, _with_derivative_of(ops, gap_squared, g2 - 3.0 * (root * root)))
    return root, gap


def _largest_root(ops: ArrayOps, g2: Pair, g3: Pair) -> Pair:
    """By Cardano's formula, in working precision."""
    half, third = 0.125 * g3, g2 * (1.0 / 12.0)
    offset = _nearer(ops, half, pair_sqrt(ops, half * half - third * third * third))
    cube = half + offset
    modulus = ops.exp(ops.log(ops.hypot(cube.re, cube.im)) / 3.0)
    angle = ops.arctan2(cube.im, cube.re) / 3.0
    largest = None
    for k in range(3):
        turned = angle + 2.0 * math.pi * k / 3.0
        u = Pair(modulus * ops.cos(turned), modulus * ops.sin(turned))
        root = u + third / u
        if largest is None:
            largest = root
        else:
            is_larger = root.squared_modulus() > largest.squared_modulus()
            largest = select(ops, is_larger, root, largest)
    assert largest is not None
    return largest


def _doubled_product(
    ops: ArrayOps, x: Pair, x_low: Pair, y: Pair, y_low: Pair, precision: Precision
) -> tuple[Pair, Pair]:
    """The product of two numbers of twice the working precision."""
    product, rest = _exact_product(ops, x, y, precision)
    return product, rest + (x * y_low + x_low * y)


def _pair_sum(x: Pair, y: Pair) -> tuple[Pair, Pair]:
    """The rounded sum and its rounding error."""
    (re, re_rest), (im, im_rest) = two_sum(x.re, y.re), two_sum(x.im, y.im)
    return Pair(re, im), Pair(re_rest, im_rest)


def _with_derivative_of(ops: ArrayOps, value: Pair, model: Pair) -> Pair:
    return Pair(
        ops.with_derivative_of(value.re, lambda: model.re),
        ops.with_derivative_of(value.im, lambda: model.im),
    )


def _nearer(ops: ArrayOps, a: Pair, b: Pair) -> Pair:
    """Whichever of b and -b is nearer to a."""
    return select(ops, a.re * b.re + a.im * b.im >= 0.0, b, -b)


def _agm(ops: ArrayOps, a: Pair, b: Pair) -> Pair:
    for _ in range(_AGM_STEPS):
        mean = 0.5 * (a + b)
        a, b = mean, _nearer(ops, mean, pair_sqrt(ops, a * b))
    return a
