"""torch's elementary functions for the kernel, and how arguments become real pairs."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from backends.constants import DOUBLE, SINGLE
from backends.pair import Pair
from wefpe_core.backend import check_unmasked, instead_of_exact
from wefpe_core.errors import InputError, InputTypeError
from wefpe_core.lattice import Lattice

_REAL_DTYPES = {
    torch.complex128: torch.float64,
    torch.complex64: torch.float32,
    torch.complex32: torch.float32,
    torch.float64: torch.float64,
    torch.float32: torch.float32,
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
}
PRECISIONS = {torch.float32: SINGLE, torch.float64: DOUBLE}
_INTEGER_DTYPES = (
    *(torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint8, torch.uint16, torch.uint32, torch.uint64),
)


# expm1(x)/x is its Taylor series for x between this and 0; what is left out is below eps/16.
_NEAR = -0.4
_TAYLOR = {
    dtype: tuple(1.0 / math.factorial(k) for k in range(1, terms + 1))
    for dtype, terms in ((torch.float64, 14), (torch.float32, 8))
}


class TorchOps:
    """`backends.pair.ArrayOps` on torch tensors of one real dtype."""

    exp = staticmethod(torch.exp)
    sin = staticmethod(torch.sin)
    cos = staticmethod(torch.cos)
    log = staticmethod(torch.log)
    sqrt = staticmethod(torch.sqrt)
    hypot = staticmethod(torch.hypot)
    arctan2 = staticmethod(torch.arctan2)
    rint = staticmethod(torch.round)
    log1p = staticmethod(torch.log1p)
    isinf = staticmethod(torch.isinf)

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype

    def expm1(self, x: Tensor) -> Tensor:
        # Not torch.expm1: compiled for a CPU it becomes exp(x) - 1, without a correct digit near 0.
        # Near 0 this is Taylor's series; further away the difference is as good.
        series = torch.full_like(x, _TAYLOR[self._dtype][-1])
        for coefficient in _TAYLOR[self._dtype][-2::-1]:
            series = series * x + coefficient
        return torch.where(x < _NEAR, torch.exp(x) - 1.0, series * x)

    def sign_of(self, x: Tensor) -> Tensor:
        return torch.copysign(torch.ones_like(x), x.detach())

    def where(self, condition: Tensor, x: Any, y: Any) -> Tensor:
        return torch.where(condition, x, y)

    where_needed = where

    def as_weight(self, condition: Tensor) -> Tensor:
        return condition.to(self._dtype)

    def power_of_two(self, x: Tensor) -> Tensor:
        return 0.5 * x / torch.frexp(x)[0]

    def leading_bits(self, x: Tensor, bits: int) -> Tensor:
        # By exponent and rounding, not by Veltkamp's products, which a fused multiply-add spoils.
        mantissa, exponent = torch.frexp(x)
        unit = 2.0**bits
        return torch.ldexp(torch.round(mantissa * unit) / unit, exponent)

    def constant(self, x: Any) -> Any:
        return x.detach() if isinstance(x, Tensor) else x

    def with_derivative_of(self, value: Tensor, model: Callable[[], Tensor]) -> Tensor:
        linear = model()
        return value + (linear - linear.detach())

    def all_hold(self, condition: Any) -> bool:
        return False

    def within(self, x: Tensor, limit: float) -> Tensor:
        return torch.where(x.abs() <= limit, x, float("nan"))

    def with_infinities(self, value: Pair, offset: Pair, is_pole: Tensor | None = None) -> Pair:
        is_finite = torch.isfinite(value.re) & torch.isfinite(value.im)
        if is_pole is not None:
            is_finite = is_finite & ~is_pole
        overflowed = ~is_finite & torch.isfinite(offset.re) & torch.isfinite(offset.im)
        return Pair(
            torch.where(overflowed, float("inf"), torch.where(is_finite, value.re, float("nan"))),
            torch.where(is_finite, value.im, float("nan")),
        )


def real_dtype(dtype: torch.dtype) -> torch.dtype:
    """The real dtype values of `dtype` are computed in; InputTypeError if there is none."""
    if dtype in _INTEGER_DTYPES:
        dtype = torch.get_default_dtype()
    if dtype not in _REAL_DTYPES:
        raise InputTypeError(
            f"dtype {dtype} cannot be evaluated; use a floating-point, complex or integer tensor"
        )
    return _REAL_DTYPES[dtype]


def wider(*dtypes: torch.dtype) -> torch.dtype:
    """The wider of two or more real dtypes that the kernel runs in."""
    return torch.float64 if torch.float64 in dtypes else torch.float32


def as_tensor(z: Any) -> Tensor:
    """Keep a tensor as it is, an array in its dtype; make Python numbers double precision."""
    if isinstance(z, Tensor):
        return z
    if _holds_tensors(z):
        raise InputError(
            "a sequence of tensors would lose their gradients and devices; make one tensor of it "
            "with torch.stack"
        )
    check_unmasked(z)
    try:
        z = _as_torch_accepts(z)
        tensor = torch.as_tensor(z)
    except (TypeError, ValueError, RuntimeError) as error:
        reason = instead_of_exact(z) or f": {error}"
        raise InputTypeError(f"cannot make a tensor of {z!r:.80}{reason}") from error
    if hasattr(z, "dtype") or tensor.dtype is torch.bool:
        return tensor
    return torch.as_tensor(z, dtype=torch.complex128)


def _holds_tensors(z: Any) -> bool:
    return isinstance(z, (list, tuple)) and any(
        isinstance(item, Tensor) or _holds_tensors(item) for item in z
    )


def _as_torch_accepts(z: Any) -> Any:
    """A NumPy array is copied if torch would refuse it or warn; what holds one becomes one."""
    # While torch traces, an array is a tensor in disguise and has no memory to look at.
    if torch.compiler.is_compiling():
        return z
    if not hasattr(getattr(z, "flags", None), "writeable"):  # only NumPy arrays have it
        if not hasattr(z, "__array__"):
            return z
        import numpy as np

        z = np.asarray(z)  # a series or a table of pandas, of which torch takes the first alone
    step = max(z.itemsize, 1)
    is_accepted = (
        z.flags.writeable
        and z.dtype.isnative
        and all(stride >= 0 and stride % step == 0 for stride in z.strides)
    )
    return z if is_accepted else z.astype(z.dtype.newbyteorder("="), order="C")


def as_pair(z: Any, dtype: torch.dtype | None = None, device: Any = None) -> Pair:
    """Real and imaginary part as real tensors; dtype and device follow `z` unless given."""
    if dtype is not None and isinstance(z, numbers.Complex):
        # Made in the dtype asked for: the device may have no other. Not torch.tensor, which copies
        # from the host to a GPU and waits for the copy.
        value = complex(z)
        return Pair(
            torch.full((), value.real, dtype=dtype, device=device),
            torch.full((), value.imag, dtype=dtype, device=device),
        )
    tensor = as_tensor(z)
    dtype = real_dtype(tensor.dtype) if dtype is None else dtype
    device = tensor.device if device is None else device
    if tensor.is_complex():
        # Cast before moving: the device may not have the wider dtype.
        return Pair(tensor.real.to(dtype).to(device), tensor.imag.to(dtype).to(device))
    real = tensor.to(dtype).to(device)
    return Pair(real, torch.zeros_like(real))


def as_points(z: Any) -> Tensor:
    """Complex numbers as a real tensor (..., 2); dtype and device follow `z`."""
    tensor = as_tensor(z)
    return torch.view_as_real(_as_complex_of(tensor, real_dtype(tensor.dtype)))


def _as_complex_of(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """A complex tensor of the precision of a real dtype, which `view_as_real` accepts."""
    complex_dtype = torch.complex128 if dtype is torch.float64 else torch.complex64
    return tensor.to(complex_dtype).resolve_conj().resolve_neg()


def as_parts(lattice: Lattice, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The real and imaginary parts of omega1 and omega3 as a real tensor (..., 4)."""
    omegas = []
    for omega in (lattice.omega1, lattice.omega3):
        if isinstance(omega, numbers.Complex):
            omegas.append(as_complex(as_pair(omega, dtype, device)))
        else:  # cast before moving: the device may not have the wider dtype
            omegas.append(_as_complex_of(as_tensor(omega), dtype).to(device))
    stacked = torch.stack(torch.broadcast_tensors(*omegas), -1)
    return torch.view_as_real(stacked).flatten(-2)


def as_complex(value: Pair) -> Tensor:
    return torch.complex(*torch.broadcast_tensors(value.re, value.im))


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """Within it, torch computes in the dtypes of the tensors, whatever autocast says."""
    if not torch.amp.autocast_mode.is_autocast_available(device.type):
        return nullcontext()
    return torch.autocast(device.type, enabled=False)
