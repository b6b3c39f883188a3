"""Complex numbers as pairs of real ones, so that one kernel serves every array library.

Compilers for GPUs (and Inductor on CPUs) have no complex code; real pairs fuse fully, and
autograd through them needs no complex conventions. A `Pair` holds two floats, NumPy arrays,
torch tensors or symbols (`backends.tracing`) and knows only arithmetic; the few elementary
functions a kernel needs come with the library, as an `ArrayOps`. A `Dual` is a pair with its
derivative.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol


class ArrayOps(Protocol):
    """The elementary functions of one array library, on real arrays."""

    def exp(self, x: Any) -> Any: ...
    def expm1(self, x: Any) -> Any: ...
    def sin(self, x: Any) -> Any: ...
    def cos(self, x: Any) -> Any: ...
    def log(self, x: Any) -> Any: ...
    def log1p(self, x: Any) -> Any: ...
    def sqrt(self, x: Any) -> Any: ...
    def hypot(self, x: Any, y: Any) -> Any: ...
    def arctan2(self, y: Any, x: Any) -> Any: ...
    def rint(self, x: Any) -> Any: ...
    def sign_of(self, x: Any) -> Any:
        """+1 or -1 by the sign bit, so never 0."""

    def as_weight(self, condition: Any) -> Any:
        """1.0 where the condition holds, 0.0 elsewhere."""

    def where(self, condition: Any, x: Any, y: Any) -> Any: ...
    def where_needed(self, condition: Any, x: Any, y: Any) -> Any:
        """`where` in a library whose derivatives unselected values can spoil, else just `x`."""

    def power_of_two(self, x: Any) -> Any:
        """The power of two in (x/2, x], for positive constants; exact to multiply and divide by."""

    def leading_bits(self, x: Any, bits: int) -> Any:
        """`x` rounded to that many bits, halves to even; its derivative is 0."""

    def isinf(self, x: Any) -> Any: ...
    def constant(self, x: Any) -> Any:
        """The value of `x`, without its derivatives."""

    def with_derivative_of(self, value: Any, model: Callable[[], Any]) -> Any:
        """`value`, differentiated as if it were the result of `model`."""

    def with_infinities(self, value: Pair, offset: Pair, is_pole: Any = None) -> Pair:
        """Put ``inf+nanj`` at poles and where `value` is not finite though `offset` is."""

    def all_hold(self, condition: Any) -> bool:
        """Whether a condition holds everywhere; False if asking would wait for a device."""

    def within(self, x: Any, limit: float) -> Any:
        """`x` where its modulus is at most `limit`, NaN elsewhere."""


class Pair:
    """A complex number ``re + i*im`` with array parts.

    Operators take pairs and Python numbers; a real array factor or summand is given to
    `scale` or `shift`. (``pair * tensor`` would let the tensor's own operator answer first,
    which a tracing compiler cannot follow.)
    """

    __slots__ = ("im", "re")

    def __init__(self, re: Any, im: Any) -> None:
        self.re = re
        self.im = im

    def __add__(self, other: Any) -> Any:
        if isinstance(other, Dual):
            return NotImplemented
        if isinstance(other, Pair):
            return Pair(self.re + other.re, self.im + other.im)
        return self.shift(other)

    def __sub__(self, other: Any) -> Any:
        if isinstance(other, Dual):
            return NotImplemented
        if isinstance(other, Pair):
            return Pair(self.re - other.re, self.im - other.im)
        return Pair(self.re - other, self.im)

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, Dual):
            return NotImplemented
        if isinstance(other, Pair):
            if _is_zero(other.im):
                return self.scale(other.re)
            if _is_zero(self.im):
                return other.scale(self.re)
            return Pair(
                self.re * other.re - self.im * other.im, self.re * other.im + self.im * other.re
            )
        return self.scale(other)

    def __truediv__(self, other: Any) -> Any:
        if isinstance(other, (Pair, Dual)):
            return self * other.reciprocal()
        return Pair(self.re / other, self.im / other)

    def __neg__(self) -> Pair:
        return Pair(-self.re, -self.im)

    def __radd__(self, other: Any) -> Pair:
        return Pair(other + self.re, self.im)

    def __rsub__(self, other: Any) -> Pair:
        return Pair(other - self.re, -self.im)

    def __rmul__(self, other: Any) -> Pair:
        return Pair(other * self.re, other * self.im)

    def __rtruediv__(self, other: Any) -> Pair:
        return other * self.reciprocal()

    def scale(self, factor: Any) -> Pair:
        """Product with a real number or array."""
        return Pair(self.re * factor, self.im * factor)

    def shift(self, term: Any) -> Pair:
        """Sum with a real number or array."""
        return Pair(self.re + term, self.im)

    def conjugate(self) -> Pair:
        return Pair(self.re, -self.im)

    def times_i(self) -> Pair:
        return Pair(-self.im, self.re)

    def squared_modulus(self) -> Any:
        return self.re * self.re + self.im * self.im

    def reciprocal(self) -> Pair:
        # Two divisions rather than one and two products: one rounding less.
        modulus = self.squared_modulus()
        return Pair(self.re / modulus, -self.im / modulus)

    def quick_reciprocal(self) -> Pair:
        """`reciprocal` with one division, where its last bit does not count."""
        return self.conjugate().scale(1.0 / self.squared_modulus())

    def square(self) -> Pair:
        # (x-y)(x+y) keeps the relative accuracy that x*x - y*y loses near the diagonals.
        return Pair((self.re - self.im) * (self.re + self.im), 2.0 * (self.re * self.im))


class Dual:
    """A pair that depends on one complex parameter, and its derivative in that parameter.

    It has the operators and the holomorphic methods of `Pair`, so that a formula written for pairs
    gives its derivative when some of its constants are dual. Pairs among them do not depend on the
    parameter, and cost what they cost in the formula itself.
    """

    __slots__ = ("slope", "value")

    def __init__(self, value: Pair, slope: Pair) -> None:
        self.value = value
        self.slope = slope

    def __add__(self, other: Any) -> Dual:
        if isinstance(other, Dual):
            return Dual(self.value + other.value, self.slope + other.slope)
        return Dual(self.value + other, self.slope)

    def __radd__(self, other: Any) -> Dual:
        return Dual(other + self.value, self.slope)

    def __sub__(self, other: Any) -> Dual:
        if isinstance(other, Dual):
            return Dual(self.value - other.value, self.slope - other.slope)
        return Dual(self.value - other, self.slope)

    def __rsub__(self, other: Any) -> Dual:
        return Dual(other - self.value, -self.slope)

    def __mul__(self, other: Any) -> Dual:
        if isinstance(other, Dual):
            slope = self.slope * other.value + self.value * other.slope
            return Dual(self.value * other.value, slope)
        return Dual(self.value * other, self.slope * other)

    def __rmul__(self, other: Any) -> Dual:
        return Dual(other * self.value, other * self.slope)

    def __truediv__(self, other: Any) -> Dual:
        if isinstance(other, (Dual, Pair)):
            return self * other.reciprocal()
        return Dual(self.value / other, self.slope / other)

    def __rtruediv__(self, other: Any) -> Dual:
        return other * self.reciprocal()

    def __neg__(self) -> Dual:
        return Dual(-self.value, -self.slope)

    def scale(self, factor: Any) -> Dual:
        return Dual(self.value.scale(factor), self.slope.scale(factor))

    def shift(self, term: Any) -> Dual:
        return Dual(self.value.shift(term), self.slope)

    def times_i(self) -> Dual:
        return Dual(self.value.times_i(), self.slope.times_i())

    def square(self) -> Dual:
        return Dual(self.value.square(), 2.0 * (self.value * self.slope))

    def reciprocal(self) -> Dual:
        return self._inverted(self.value.reciprocal())

    def quick_reciprocal(self) -> Dual:
        return self._inverted(self.value.quick_reciprocal())

    def _inverted(self, inverse: Pair) -> Dual:
        return Dual(inverse, -(inverse.square() * self.slope))


def value_of(number: Pair | Dual) -> Pair:
    """A number without its derivative."""
    return number.value if isinstance(number, Dual) else number


def _is_zero(part: Any) -> bool:
    """Whether a part of a constant is exactly 0.0, as on lattices with real periods."""
    return isinstance(part, float) and part == 0.0


def where_needed(ops: ArrayOps, condition: Any, x: Any, other: float = 1.0) -> Any:
    """`ArrayOps.where_needed` on pairs, with a number in place of what does not count."""
    if isinstance(x, Dual):  # its derivative is there already, and nobody differentiates it
        return x
    return Pair(ops.where_needed(condition, x.re, other), ops.where_needed(condition, x.im, 0.0))


def select(ops: ArrayOps, condition: Any, first: Any, second: Any) -> Any:
    """Elementwise choice between two pairs, or between two dual numbers."""
    if isinstance(first, Dual):
        return Dual(
            select(ops, condition, first.value, second.value),
            select(ops, condition, first.slope, second.slope),
        )
    return Pair(
        ops.where(condition, first.re, second.re), ops.where(condition, first.im, second.im)
    )


def polynomial(coefficients: Sequence[Any], x: Any) -> Any:
    """sum_k coefficients[k] x^k by Horner's rule."""
    total = coefficients[-1]
    for coefficient in reversed(coefficients[:-1]):
        total = total * x + coefficient
    return total


def pair_exp(ops: ArrayOps, x: Pair) -> Pair:
    modulus = ops.exp(x.re)
    return Pair(modulus * ops.cos(x.im), modulus * ops.sin(x.im))


def pair_sqrt(ops: ArrayOps, x: Pair) -> Pair:
    """Principal square root, without cancellation; its derivative at 0 is infinite."""
    larger = ops.sqrt(0.5 * (ops.hypot(x.re, x.im) + x.re * ops.sign_of(x.re)))
    # At 0 the quotient is 0/0; dividing by 1 there gives the root 0.
    smaller = 0.5 * x.im / ops.where(larger > 0.0, larger, 1.0)
    flip = ops.sign_of(x.im)
    right = x.re >= 0
    return Pair(ops.where(right, larger, smaller * flip), ops.where(right, smaller, larger * flip))


def sine_and_cosine(ops: ArrayOps, x: Pair) -> tuple[Pair, Pair]:
    """sin x and cos x, exactly real where x is real or, for the cosine, imaginary."""
    sign = ops.sign_of(x.im)
    decay = ops.expm1(-(x.im * sign))  # its argument is negative, as every `ArrayOps` needs it
    quotient = decay / (decay + 1.0)
    sinh, cosh = -0.5 * sign * (decay + quotient), 1.0 + 0.5 * decay * quotient
    sin, cos = ops.sin(x.re), ops.cos(x.re)
    return Pair(sin * cosh, cos * sinh), Pair(cos * cosh, -(sin * sinh))


def scaled_reciprocal(ops: ArrayOps, x: Pair) -> Pair:
    """1/x, where the square of x may be outside the range."""
    re, im = (ops.constant(part * ops.sign_of(part)) for part in (x.re, x.im))
    size = ops.where(re > im, re, im)
    usable = (size > 0.0) & (size < float("inf"))
    shrink = 1.0 / ops.power_of_two(ops.where(usable, size, 1.0))
    return x.scale(shrink).reciprocal().scale(shrink)
