"""How far a computed value is from the true one, as one number, for every pair of values.

The functions take Python, NumPy and mpmath numbers and zero-dimensional arrays or tensors,
in any mixture; they subtract in the wider of the two types and return a float. They are
total: NaN, infinities and zero have a defined error, so no comparison can pass by accident.

Each function measures a single value; statistics over many are the caller's business.
"""

from __future__ import annotations

import math
from typing import Any

from wefpe_core.errors import InputError

# The smallest positive double stands in for a wanted value, or a scale, of zero.
_SMALLEST = math.ulp(0.0)

# Beyond this the modulus or a difference could overflow although its parts are finite.
_LARGE = 2.0**1000
_SHRINK = 2.0**-100

_EPS = {
    "float32": 2.0**-23,
    "complex64": 2.0**-23,
    "float64": 2.0**-52,
    "complex128": 2.0**-52,
}


def extended_relative_error(got: Any, want: Any) -> float:
    r"""Relative error :math:`|got-want|/|want|` by complex modulus, extended to all values.

    Parameters
    ----------
    got, want
        Computed and true value.

    Returns
    -------
    float
        - both NaN, or both infinite: 0. There is one complex infinity: a value with any
          infinite part is that infinity, whatever the other part (``inf+nanj`` too);
        - only one of them NaN, or only one of them infinite: inf;
        - `want` zero: 0 if `got` is zero, else ``|got|`` over the smallest positive double.
          That is at least 1 for every double, and inf from about 1e-15 on.

    Examples
    --------
    >>> extended_relative_error(1.5, 1.0)
    0.5
    >>> extended_relative_error(complex("inf+nanj"), complex("-inf"))
    0.0
    """
    got, want = _as_number(got), _as_number(want)
    if not (_is_finite(got) and _is_finite(want)):
        return _error_of_special_values(got, want)
    got, want = _shrunk(got, want)
    return _quotient(abs(want - got), abs(want))


def scaled_error(got: Any, want: Any, derivative: Any, offset: Any, floor: Any) -> float:
    r"""Error in units of what a rounded argument would cause.

    .. math:: \frac{|got-want|}{|want| + |offset \cdot derivative| + floor}

    Where `want` vanishes a relative error asks for more than rounding the argument leaves
    possible; this does not. NaN and infinite values are treated as in
    `extended_relative_error`.

    Parameters
    ----------
    got, want
        Computed and true value of f.
    derivative
        True value of f'.
    offset
        The argument minus its nearest lattice point.
    floor
        Keeps the denominator positive where f and f' vanish together: for wp and its
        derivatives the power of the shortest period with their homogeneity. Zero is allowed,
        negative is an `InputError`.

    Returns
    -------
    float
        If the denominator is NaN or infinite, 0 for equal values and inf otherwise: a scale
        that cannot be formed excuses nothing.

    Examples
    --------
    The sine next to its zero at pi, where a relative error would be 1:

    >>> scaled_error(0.0, 1e-16, derivative=-1.0, offset=3.14, floor=0.0) < 1e-16
    True
    """
    got, want = _as_number(got), _as_number(want)
    derivative, offset, floor = _as_number(derivative), _as_number(offset), _as_number(floor)
    if floor < 0:
        raise InputError(f"floor must not be negative, got {floor!r}")
    if not (_is_finite(got) and _is_finite(want)):
        return _error_of_special_values(got, want)
    if not (_is_finite(derivative) and _is_finite(offset) and _is_finite(floor)):
        return 0.0 if got == want else math.inf
    got, want, derivative, floor = _shrunk(got, want, derivative, floor)
    # The product of moduli, since a complex product may overflow to NaN. Half of the offset, since
    # the modulus of the largest complex numbers is no double.
    is_large = max(abs(offset.real), abs(offset.imag)) >= _LARGE
    product = 2 * (abs(offset / 2) * abs(derivative)) if is_large else abs(offset) * abs(derivative)
    scale = abs(want) + product + floor
    if not _is_finite(scale):
        return 0.0 if got == want else math.inf
    return _quotient(abs(want - got), scale)


def in_eps(error: float, dtype_name: str) -> float:
    """Express an error in machine epsilons of a dtype (the real type of a complex one).

    Parameters
    ----------
    error
        A relative or scaled error.
    dtype_name
        ``"float32"``, ``"complex64"``, ``"float64"`` or ``"complex128"``.

    Examples
    --------
    >>> in_eps(2.0**-51, "complex128")
    2.0
    """
    if dtype_name not in _EPS:
        raise InputError(f"dtype_name must be one of {sorted(_EPS)}, got {dtype_name!r}")
    return error / _EPS[dtype_name]


def _as_number(value: Any) -> Any:
    """Take the Python number out of a NumPy scalar, a 0-d array or a tensor, exactly."""
    item = getattr(value, "item", None)
    return value if item is None else item()


def _is_infinite(value: Any) -> bool:
    return bool(abs(value.real) == math.inf or abs(value.imag) == math.inf)


def _is_finite(value: Any) -> bool:
    return bool(abs(value.real) < math.inf and abs(value.imag) < math.inf)


def _error_of_special_values(got: Any, want: Any) -> float:
    same_kind = (_is_finite(got), _is_infinite(got)) == (_is_finite(want), _is_infinite(want))
    return 0.0 if same_kind else math.inf


def _shrunk(got: Any, want: Any, *others: Any) -> tuple[Any, ...]:
    """Scale all values by one power of two where the largest doubles would overflow."""
    values = (got, want, *others)
    if max(max(abs(v.real), abs(v.imag)) for v in values) < _LARGE:
        return values
    return tuple(v * _SHRINK for v in values)


def _quotient(difference: Any, scale: Any) -> float:
    if difference == 0:
        return 0.0
    return float(difference / (_SMALLEST if scale == 0 else scale))
