"""NumPy backend: complex64 and complex128, broadcasting, in blocks that fit the cache."""

from __future__ import annotations

import cmath
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from backends import (
    algebra,
    degenerate,
    derived,
    elliptic_integrals,
    kernel,
    numpy_scalar,
    theta,
)
from backends.array_family import ArrayFamily
from backends.constants import (
    DOUBLE,
    SINGLE,
    Precision,
    SeriesConstants,
    g2_in_units,
    prepare_numbers,
    prepared_for,
)
from backends.heat import HeatOfArrays
from backends.jacobi_arrays import ArrayJacobiFunctions
from backends.mirrors import on_lattice
from backends.numpy_ops import NumpyOps
from backends.pair import Pair
from backends.tracing import KernelFunction
from wefpe_core.backend import (
    AbstractBackend,
    BackendCapabilities,
    check_count,
    check_lattice,
    check_order,
    check_truncation,
    check_unmasked,
    instead_of_exact,
)
from wefpe_core.degenerate_lattice import DegenerateLattice
from wefpe_core.errors import InputError, InputTypeError
from wefpe_core.extended import ExtendedComplex
from wefpe_core.jacobi_functions import is_number
from wefpe_core.lattice import Lattice
from wefpe_core.lattice_constants import (
    LatticeConstants,
    lattice_constants,
    laurent_coefficients,
)

if TYPE_CHECKING:
    from backends.numpy_compiled import CompiledEvaluator

# Points per block: its temporaries stay in the cache, and the interpreter's
# overhead is spread over enough points. (Not a power of two: equal low address bits would make
# the temporaries evict one another.)
BLOCK = 20000

PRECISIONS = {"float32": SINGLE, "float64": DOUBLE}
_COMPLEX = {"float32": np.complex64, "float64": np.complex128}

# A NumPy scalar, the value of a scalar, counts as an array: it has the same methods.
Array = npt.NDArray[Any]

# Numbers whose parts are double precision floats already.
_PLAIN_NUMBERS = frozenset({complex, float, np.complex128, np.float64})


class NumpyBackend(
    HeatOfArrays[Array],
    ArrayJacobiFunctions[Array],
    ArrayFamily[Array],
    AbstractBackend[Array],
):
    """Weierstrass functions of NumPy arrays.

    Accepts real and complex scalars, sequences and arrays (integers and float64 give
    complex128; float16, float32 and complex64 give complex64). Inputs are never written to,
    and no floating-point warning is printed: poles and overflow have documented values.

    Parameters
    ----------
    compile
        Compile each function of points with numba (extra ``numba``). Its first call takes a second
        or two; the machine code is kept on disk, in a folder of ``NUMBA_CACHE_DIR`` if that is
        set. Values may differ in the last bits from those of the backend without it.
    threads
        The number of threads that share the points of one call. It needs ``compile``.
    """

    name = "numpy"
    capabilities = BackendCapabilities(dtypes=("complex128", "complex64"))

    def __init__(self, compile: bool = False, threads: int = 1) -> None:  # noqa: A002 - as in torch
        if not isinstance(compile, bool):
            raise InputError(f"compile must be True or False, got {compile!r}")
        if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
            raise InputError(f"threads must be a positive integer, got {threads!r}")
        if threads > 1 and not compile:
            raise InputError(
                f"threads={threads} needs compile=True: only compiled code has threads"
            )
        self._evaluate: Callable[..., Sequence[Any]] = _evaluate
        self._compiled: CompiledEvaluator | None = None
        if compile:
            from backends.numpy_compiled import CompiledEvaluator

            self._compiled = CompiledEvaluator(threads)
            self._evaluate = partial(_evaluate_compiled, self._compiled)

    def wp(self, z: Any, lattice: Lattice) -> Array:
        if isinstance(lattice, DegenerateLattice):
            return self.wp_and_prime(z, lattice)[0]
        return self._evaluate(kernel.wp, z, lattice)[0]

    def wp_prime(self, z: Any, lattice: Lattice) -> Array:
        if isinstance(lattice, DegenerateLattice):
            return self.wp_and_prime(z, lattice)[1]
        return self._evaluate(kernel.wp_prime, z, lattice)[0]

    def wp_and_prime(self, z: Any, lattice: Lattice) -> tuple[Array, Array]:
        if isinstance(lattice, DegenerateLattice):
            p, dp = self._wp_and_prime_on_degenerate(z, lattice)
            return p, dp
        p, dp = self._evaluate(kernel.wp_and_prime, z, lattice, outputs=2)
        return p, dp

    def zeta(self, z: Any, lattice: Lattice) -> Array:
        if isinstance(lattice, DegenerateLattice):
            return self._on_degenerate(degenerate.zeta, z, lattice)[0]
        return self._evaluate(kernel.zeta, z, lattice)[0]

    def sigma(self, z: Any, lattice: Lattice) -> Array:
        if isinstance(lattice, DegenerateLattice):
            return self._on_degenerate(degenerate.sigma, z, lattice)[0]
        return self._evaluate(kernel.sigma, z, lattice)[0]

    def inverse_wp(self, w: Any, lattice: Lattice, wp_prime: Any = None) -> Array:
        z = self._evaluate(algebra.inverse_wp, w, lattice)[0]
        return z if wp_prime is None else self._towards(z, wp_prime, lattice)

    def green(self, z: Any, lattice: Lattice) -> Array:
        return self._evaluate(kernel.green, z, lattice, real=True)[0]

    def wp_derivative(self, z: Any, lattice: Lattice, n: int) -> Array:
        return self._evaluate(derived.wp_derivative(check_order(n)), z, lattice)[0]

    def log_sigma(self, z: Any, lattice: Lattice) -> Array:
        return self._evaluate(derived.log_sigma, z, lattice)[0]

    def modified_zeta(self, z: Any, lattice: Lattice) -> Array:
        return self._evaluate(derived.modified_zeta, z, lattice)[0]

    def modified_sigma(self, z: Any, lattice: Lattice) -> Array:
        return self._evaluate(derived.modified_sigma, z, lattice)[0]

    def laurent_coefficients(self, lattice: Lattice, count: int) -> Array:
        check_lattice(lattice)
        return np.array([complex(x) for x in laurent_coefficients(lattice, check_count(count))])

    def invariants(self, lattice: Lattice) -> tuple[Array, Array]:
        if isinstance(lattice, DegenerateLattice):
            g2, g3 = map(self._number, lattice.invariants)
            return g2, g3
        known = _constants(lattice)
        return _scalar(known.g2), _scalar(known.g3)

    def roots(self, lattice: Lattice) -> tuple[Array, Array, Array]:
        if isinstance(lattice, DegenerateLattice):
            e1, e2, e3 = map(self._number, lattice.roots)
            return e1, e2, e3
        e1, e2, e3 = (_scalar(root) for root in _constants(lattice).roots)
        return e1, e2, e3

    def quasi_periods(self, lattice: Lattice) -> tuple[Array, Array]:
        known = _constants(lattice)
        return _scalar(known.eta1), _scalar(known.eta3)

    def lattice_from_invariants(self, g2: Any, g3: Any) -> Lattice:
        return Lattice.from_invariants(g2, g3)

    def lattice_sum(self, z: Any, lattice: Lattice, m_max: int, n_max: int) -> tuple[Array, Array]:
        m_max, n_max = check_truncation(m_max, n_max)
        check_lattice(lattice)
        omega1, omega3 = (Pair(float(w.re), float(w.im)) for w in lattice.exact)

        def rows(ops: NumpyOps, z: Pair, c: SeriesConstants, precision: Precision) -> Any:
            m = np.arange(-m_max, m_max + 1, dtype=precision.name)
            return algebra.lattice_sum(ops, z, omega1, omega3, m, ops.as_weight(m == 0), n_max)

        # One row of the lattice is held at a time, for every point of the block.
        block = max(1, BLOCK // (2 * m_max + 1))
        p, dp = _evaluate_blocks(rows, _as_array(z), lattice, outputs=2, block=block)
        return p, dp

    def add(self, p1: Any, dp1: Any, p2: Any, dp2: Any, lattice: Lattice) -> tuple[Array, Array]:
        check_lattice(lattice)
        g2, unit = g2_in_units(lattice)

        def sums(ops: NumpyOps, a: Pair, da: Pair, b: Pair, db: Pair, precision: Precision) -> Any:
            return algebra.add_points(ops, (a, da), (b, db), Pair(g2.real, g2.imag), unit)

        p, dp = self._elementwise(sums, p1, dp1, p2, dp2)
        return p, dp

    def ellipk(self, m: Any) -> Array:
        array = _as_array(m)
        if self._compiled is None or array.dtype.kind == "c" or not np.all(array <= 1):
            return super().ellipk(m)
        (result,) = _empty_results(array, outputs=1, real=False)
        function = elliptic_integrals.ellipk_up_to_one
        self._compiled.fill_by_rows(result, array[..., None], function)
        return result[()]

    def ellipj(self, u: Any, m: Any) -> tuple[Array, Array, Array, Array]:
        array = _as_array(u)
        if self._compiled is None or not array.ndim or not is_number(m) or not cmath.isfinite(m):
            return super().ellipj(u, m)
        # The amplitude by itself: its logarithm and angle would keep the others from being
        # computed several at a time.
        sn, cn, dn = self._jacobi(("sn", "cn", "dn"), array, m)
        numbers = [sn.real, sn.imag, cn.real, cn.imag, array.real, array.imag]
        (am,) = _empty_results(array, outputs=1, real=False)
        mean = theta.parameter_lattice(complex(m)).mean
        rows = np.stack(numbers, axis=-1).astype(am.real.dtype, copy=False)
        table = (mean.real, mean.imag)
        self._compiled.fill_by_rows(am, rows, theta.amplitude_of_parts, table)
        return sn, cn, dn, am

    def _values(
        self, function: KernelFunction, z: Any, lattice: Lattice, outputs: int
    ) -> Sequence[Any]:
        return self._evaluate(function, z, lattice, outputs)

    def _elementwise(self, function: Callable[..., Any], *arguments: Any) -> tuple[Array, ...]:
        """Complex values of ``function(ops, *pairs, precision)`` at arguments that broadcast.

        The function returns a `Pair` or a tuple of them. Precision is that of the widest argument.
        """
        arrays = np.broadcast_arrays(*(as_supported(argument) for argument in arguments))
        dtype = np.dtype(np.result_type(*(array.dtype for array in arrays), np.complex64))
        real = dtype.type(0).real.dtype
        ops, precision, shape = NumpyOps(real), PRECISIONS[real.name], arrays[0].shape
        flats = [_flat(array) for array in arrays]
        results: list[Array] = []
        with np.errstate(all="ignore"):
            for start in range(0, max(arrays[0].size, 1), BLOCK):
                part = slice(start, start + BLOCK)
                pairs = [_as_pair(flat[part].astype(dtype, copy=False)) for flat in flats]
                values = function(ops, *pairs, precision)
                values = (values,) if isinstance(values, Pair) else values
                results = results or [np.empty(shape, dtype) for _ in values]
                for result, value in zip(results, values, strict=True):
                    target = result.reshape(-1)[part]
                    target.real, target.imag = value.re, value.im
        return tuple(result[()] for result in results)

    def _constants_of(self, lattice: Lattice, precision: Precision) -> SeriesConstants:
        return prepare_numbers(lattice, precision)

    def _number(self, value: complex) -> Array:
        return cast("Array", np.complex128(value))


def as_supported(z: Any) -> npt.NDArray[Any]:
    """`z` as an array of a dtype that can be evaluated; InputTypeError names what cannot."""
    array = _as_array(z)
    return array.astype(_working_dtype(array), copy=False)


def _as_array(z: Any) -> npt.NDArray[Any]:
    check_unmasked(z)
    try:
        return np.asarray(z)
    except ValueError as error:  # a ragged sequence
        raise InputTypeError(f"cannot make an array of {z!r:.80}: {error}") from error


def _working_dtype(array: npt.NDArray[Any]) -> np.dtype[Any]:
    """The native dtype the elements are evaluated in."""
    kind, size = array.dtype.kind, array.dtype.itemsize
    if kind in "iu":
        return np.dtype(np.float64)
    if kind == "f" and size <= 8:
        return np.dtype(np.float32 if size == 2 else array.dtype.newbyteorder("="))
    if kind == "c" and size <= 16:
        return array.dtype.newbyteorder("=")
    if kind == "O" and (hint := instead_of_exact(array)):
        raise InputTypeError(f"NumPy has no dtype for {array!r:.80}{hint}")
    raise InputTypeError(
        f"dtype {array.dtype} cannot be evaluated; use float32, float64, complex64, complex128 "
        f"or integers (got {array!r:.80})"
    )


def _flat(array: npt.NDArray[Any]) -> Any:
    """The elements in order, to be sliced: a view, or one that copies no more than the slice."""
    # reshape would copy the whole of an array whose memory is in another order.
    return array.reshape(-1) if array.ndim < 2 or array.flags.c_contiguous else array.flat


def _constants(lattice: Lattice) -> LatticeConstants:
    check_lattice(lattice)
    return lattice_constants(lattice)


def _scalar(value: ExtendedComplex) -> Any:
    return np.complex128(complex(value))


def _as_pair(z: npt.NDArray[Any]) -> Pair:
    if z.dtype.kind == "c":
        # Contiguous parts: strided ones would make every operation slower.
        return Pair(np.ascontiguousarray(z.real), np.ascontiguousarray(z.imag))
    return Pair(np.ascontiguousarray(z), np.zeros_like(z))


def _evaluate(
    function: KernelFunction, z: Any, lattice: Lattice, outputs: int = 1, real: bool = False
) -> Sequence[Any]:
    """The values of a kernel function at `z`: one array, or NumPy scalar, per output."""
    check_lattice(lattice)
    function = on_lattice(function, lattice)
    if type(z) in _PLAIN_NUMBERS:
        values = numpy_scalar.values_at((complex(z),), function, lattice)
        if values is not None:
            (parts,) = values
            if real:
                return [np.float64(part) for part in parts]
            return [np.complex128(complex(*parts[k : k + 2])) for k in range(0, 2 * outputs, 2)]
    array = _as_array(z)
    if 0 < array.size <= numpy_scalar.FEW and _working_dtype(array).char in "dD":
        numbers = array.astype(_working_dtype(array), copy=False).ravel().tolist()
        values = numpy_scalar.values_at(numbers, function, lattice)
        if values is not None:
            table = np.array(values).reshape(*array.shape, -1)
            table = table if real else table.view(np.complex128)
            return [table[..., k].copy()[()] for k in range(outputs)]
    return _evaluate_blocks(function, array, lattice, outputs, real)


def _evaluate_compiled(
    compiled: CompiledEvaluator,
    function: KernelFunction,
    z: Any,
    lattice: Lattice,
    outputs: int = 1,
    real: bool = False,
) -> Sequence[Any]:
    """What `_evaluate` returns, computed by machine code."""
    check_lattice(lattice)
    function = on_lattice(function, lattice)
    if type(z) in _PLAIN_NUMBERS:
        kind: Any = np.float64 if real else np.complex128
        return [kind(value) for value in compiled.value_at(z, function, lattice, real)]
    array = _as_array(z)
    results = _empty_results(array, outputs, real)
    compiled.fill(results, _flat(array), function, lattice)
    return [result[()] for result in results]


def _empty_results(array: npt.NDArray[Any], outputs: int, real: bool) -> list[npt.NDArray[Any]]:
    dtype = _working_dtype(array).type(0).real.dtype
    return [np.empty(array.shape, dtype if real else _COMPLEX[dtype.name]) for _ in range(outputs)]


def _evaluate_blocks(
    function: KernelFunction,
    array: npt.NDArray[Any],
    lattice: Lattice,
    outputs: int = 1,
    real: bool = False,
    block: int = BLOCK,
) -> Sequence[Any]:
    """Run a kernel function over an array block by block; one array per output."""
    working = _working_dtype(array)
    dtype = working.type(0).real.dtype
    precision = PRECISIONS[dtype.name]
    constants = prepared_for(function, lattice, precision)
    ops = NumpyOps(dtype)
    results = _empty_results(array, outputs, real)
    flat = _flat(array)
    with np.errstate(all="ignore"):
        for start in range(0, array.size, block):
            part = slice(start, start + block)
            points = _as_pair(flat[part].astype(working, copy=False))
            values = function(ops, points, constants, precision)
            for result, value in zip(results, values if outputs > 1 else (values,), strict=True):
                target = result.reshape(-1)[part]
                if real:
                    target[...] = value
                else:
                    target.real, target.imag = value.re, value.im
    return [result[()] for result in results]
