"""NumPy's elementary functions for the kernel, and traced programs on NumPy's arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from backends.emitters import load_source, numpy_source
from backends.pair import Pair
from backends.tracing import Program


class NumpyOps:
    """`backends.pair.ArrayOps` on NumPy arrays of one real dtype."""

    exp = staticmethod(np.exp)
    expm1 = staticmethod(np.expm1)
    sin = staticmethod(np.sin)
    cos = staticmethod(np.cos)
    log = staticmethod(np.log)
    sqrt = staticmethod(np.sqrt)
    hypot = staticmethod(np.hypot)
    arctan2 = staticmethod(np.arctan2)
    rint = staticmethod(np.rint)
    log1p = staticmethod(np.log1p)
    isinf = staticmethod(np.isinf)

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._dtype = dtype

    def sign_of(self, x: Any) -> Any:
        return np.copysign(self._dtype.type(1), x)

    def where(self, condition: Any, x: Any, y: Any) -> Any:
        return np.where(condition, x, y).astype(self._dtype, copy=False)

    def where_needed(self, condition: Any, x: Any, y: Any) -> Any:
        return x

    def as_weight(self, condition: Any) -> Any:
        return condition.astype(self._dtype)

    def power_of_two(self, x: Any) -> Any:
        return 0.5 * x / np.frexp(x)[0]

    def leading_bits(self, x: Any, bits: int) -> Any:
        mantissa, exponent = np.frexp(x)
        return np.ldexp(np.rint(np.ldexp(mantissa, bits)), exponent - bits)

    def constant(self, x: Any) -> Any:
        return x

    def with_derivative_of(self, value: Any, model: Callable[[], Any]) -> Any:
        return value

    def all_hold(self, condition: Any) -> bool:
        return bool(np.all(condition))

    def within(self, x: Any, limit: float) -> Any:
        # Almost always nothing is out of range: look first, and select only if something is.
        inside = np.abs(x) <= limit
        return x if inside.all() else self.where(inside, x, np.nan)

    def with_infinities(self, value: Pair, offset: Pair, is_pole: Any = None) -> Pair:
        if np.isfinite(value.re + value.im).all():  # almost always
            return value
        is_finite = np.isfinite(value.re) & np.isfinite(value.im)
        overflowed = ~is_finite & np.isfinite(offset.re) & np.isfinite(offset.im)
        return Pair(
            self.where(overflowed, np.inf, self.where(is_finite, value.re, np.nan)),
            self.where(is_finite, value.im, np.nan),
        )


def numpy_function(program: Program, name: str, dtype: str) -> Callable[..., tuple[Any, ...]]:
    """The function of `backends.emitters.numpy_source`."""
    source, ops = numpy_source(program, name, dtype), NumpyOps(np.dtype(dtype))
    function: Callable[..., Any] = load_source(source, name, np=np, leading_bits=ops.leading_bits)
    return function
