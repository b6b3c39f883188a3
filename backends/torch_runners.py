"""Who computes the operators of the torch backend.

On a CPU, traced programs run on NumPy's arrays, and the one that prepares a lattice on Python's
floats. On CUDA they run as Triton kernels, one launch each. Other devices, and CUDA without Triton,
run torch's own operators. With ``compile=True`` torch.compile fuses these.

No derivative is taken here: slopes are results like values.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from backends.constants import DOUBLE, Precision
from backends.emitters import load_source, python_function
from backends.evaluation import (
    FUNCTIONS,
    LENGTHS,
    Evaluation,
    constants_of_parts,
    evaluation_program,
    flat_constants,
    from_flat,
    has_slopes,
    preparation_program,
    rows_of,
    slopes_of,
)
from backends.numpy_backend import BLOCK
from backends.numpy_ops import numpy_function
from backends.pair import Pair
from backends.slopes import inverse_slopes
from backends.torch_ops import PRECISIONS, TorchOps
from backends.triton_emitter import TRITON_HEADER, triton_evaluate, triton_prepare
from wefpe_core.errors import BackendUnavailableError


def result_shapes(
    points: Tensor, table: Tensor, function: str, points_are: str, variables: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Of the values, (values, 2, ...), and of their slopes, (slopes, values, 2, ...).

    Real and imaginary parts are apart, so that a loop over points reads and writes in order.
    """
    shape = torch.broadcast_shapes(points.shape[:-1], table.shape[:-1])
    rows = FUNCTIONS[function].rows
    return (rows, 2, *shape), (slopes_of(function, points_are, variables), rows, 2, *shape)


def contraction_shapes(
    gradient: Tensor, slopes: Tensor, summed: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return (slopes.shape[0] - summed, 2, *gradient.shape[2:]), (summed, 2)


def stacked(rows: Sequence[Pair], shape: Sequence[int]) -> Tensor:
    """Rows of complex numbers as one real tensor, (rows, 2, ...)."""
    parts = [part.expand(shape) for row in rows for part in (row.re, row.im)]
    return torch.stack(parts).unflatten(0, (-1, 2))


def table_has_slopes(table: Tensor) -> bool:
    return has_slopes(table.shape[-1], PRECISIONS[table.dtype])


def _evaluation(table: Tensor, function: str, points_are: str, variables: int) -> Evaluation:
    precision = PRECISIONS[table.dtype]
    # The schema of an operator knows strings only.
    given: Any = points_are
    return Evaluation(precision, function, given, variables, table_has_slopes(table))


# --- A CPU: Python and NumPy ---------------------------------------------------------------------


def numpy_prepare(omega: Tensor, with_slopes: bool) -> Tensor:
    precision = PRECISIONS[omega.dtype]
    if omega.ndim == 1 and precision is DOUBLE:
        try:
            return torch.utils.dlpack.from_dlpack(
                np.array(_scalar_preparation(with_slopes)(*omega.tolist()))
            )
        except (ArithmeticError, ValueError):
            pass  # no lattice, or one out of range: for these, arrays have infinities and NaN
    with np.errstate(all="ignore"):
        columns = _array_preparation(precision, with_slopes)(*_parts(omega))
    shape = tuple(omega.shape[:-1])
    table = np.stack([np.broadcast_to(column, shape) for column in columns], -1)
    return torch.utils.dlpack.from_dlpack(table.astype(precision.name, copy=False))


@cache
def _scalar_preparation(with_slopes: bool) -> Callable[..., tuple[float, ...]]:
    return python_function(preparation_program(DOUBLE, with_slopes), "prepare")


@cache
def _array_preparation(precision: Precision, with_slopes: bool) -> Callable[..., Any]:
    program = preparation_program(precision, with_slopes)
    return numpy_function(program, "prepare", precision.name)


@cache
def _array_evaluation(which: Evaluation) -> Callable[..., Any]:
    return numpy_function(evaluation_program(which), which.function, which.precision.name)


def numpy_evaluate(
    points: Tensor,
    omega: Tensor | None,
    table: Tensor,
    function: str,
    points_are: str,
    variables: int,
    compiled: bool,
) -> tuple[Tensor, Tensor]:
    if compiled:
        return _compiled_evaluate(points, table, function, points_are, variables)
    which = _evaluation(table, function, points_are, variables)
    run = _array_evaluation(which)
    shapes = result_shapes(points, table, function, points_are, variables)
    is_single = math.prod(table.shape[:-1]) == 1
    if is_single:  # also a batch of one lattice, whose constants are numbers like any other's
        table = table.reshape(-1)
    constants = _constants_for(which, table)
    values, found = (points.new_empty(shape) for shape in shapes)
    parts = [np.ascontiguousarray(part) for part in _parts(points)]
    with np.errstate(all="ignore"):
        if not is_single:  # a batch of lattices broadcasts against the points
            targets = [*_planes(values, 2), *_planes(found, 3)]
            _fill_in_blocks(run, [*parts, *constants], targets)
            return values, found
        targets = [row.reshape(-1) for row in (*_planes(values, 2), *_planes(found, 3))]
        flats = [part.reshape(-1) for part in parts]
        for block in _blocks(flats[0].size):
            found_here = run(*(flat[block] for flat in flats), *constants)
            _fill([target[block] for target in targets], found_here)
    return values, found


def _planes(tensor: Tensor, dims: int) -> Any:
    """The memory of a contiguous tensor as arrays, one for each index of its first dimensions."""
    array = _array(tensor)
    planes = array.reshape(math.prod(array.shape[:dims]), *array.shape[dims:])
    return [planes[k, ...] for k in range(len(planes))]  # arrays, also where one has no dimension


def _blocks(size: int) -> Iterator[slice]:
    return (slice(start, start + BLOCK) for start in range(0, size, BLOCK))


def numpy_contract(gradient: Tensor, slopes: Tensor, summed: int) -> tuple[Tensor, Tensor]:
    """The operator ``wefpe::contract``, block by block, so that products stay in the cache."""
    shapes = contraction_shapes(gradient, slopes, summed)
    result, total = gradient.new_empty(shapes[0]), gradient.new_zeros(shapes[1])
    size = math.prod(gradient.shape[2:])
    g = _array(gradient).reshape(*gradient.shape[:2], size)
    s = _array(slopes).reshape(*slopes.shape[:3], size)
    kept, sums = len(s) - summed, _array(total)
    target = _array(result).reshape(kept, 2, size)
    with np.errstate(all="ignore"):
        for part in _blocks(size):
            re, im = (np.ascontiguousarray(g[:, k, part]) for k in (0, 1))
            for variable, (a, b) in enumerate(s[..., part].swapaxes(1, 2)):
                if variable < kept:
                    np.sum(a * re + b * im, axis=0, out=target[variable, 0, part])
                    np.sum(a * im - b * re, axis=0, out=target[variable, 1, part])
                else:
                    for row in range(len(re)):  # products of vectors, which BLAS does best
                        real = a[row] @ re[row] + b[row] @ im[row]
                        imaginary = a[row] @ im[row] - b[row] @ re[row]
                        sums[variable - kept] += (real, imaginary)
    return result, total


def _constants_for(which: Evaluation, table: Tensor) -> list[Any]:
    """What a program takes behind the point: numbers, or arrays for a batch of lattices."""
    numbers = table.tolist() if table.ndim == 1 else _parts(table)
    names = evaluation_program(which).inputs[len(which.parts_of_point) :]
    return [numbers[int(name[1:])] for name in names]


def _fill_in_blocks(
    run: Callable[..., Any], arguments: Sequence[Any], targets: Sequence[Any]
) -> None:
    """Write what `run` makes of arrays that broadcast, half by half until halves are small."""
    shape = targets[0].shape
    if math.prod(shape) <= BLOCK:
        _fill(targets, run(*arguments))
        return
    longest = shape.index(max(shape))
    axis, half = longest - len(shape), shape[longest] // 2
    for part in (slice(half), slice(half, None)):
        halves = [[_along(axis, part, x) for x in arrays] for arrays in (arguments, targets)]
        _fill_in_blocks(run, *halves)


def _along(axis: int, part: slice, array: Any) -> Any:
    """Part of an array along an axis counted from the end, unless it broadcasts along it."""
    if array.ndim < -axis or array.shape[axis] == 1:
        return array
    return array[(..., part, *(slice(None),) * (-axis - 1))]


def _fill(targets: Sequence[Any], results: Sequence[Any]) -> None:
    for target, result in zip(targets, results, strict=True):
        target[...] = result


def _array(tensor: Tensor) -> Any:
    """The memory of a tensor as an array; `Tensor.numpy` would call more operators."""
    return np.from_dlpack(tensor.detach() if tensor.requires_grad else tensor)


def _parts(tensor: Tensor) -> Any:
    """The last dimension first, as a NumPy array."""
    return np.moveaxis(_array(tensor), -1, 0)


# --- CUDA: generated kernels ---------------------------------------------------------------------

# A block is one warp. So many registers leave room for eight warps on a processor anyway, and the
# few points of an encoding are spread over more processors.
_THREADS = 32


@cache
def _has_triton() -> bool:
    """Whether Triton can be imported; it comes with the CUDA builds of torch for Linux."""
    try:
        import triton  # noqa: F401 - this is the question
    except Exception as error:  # a broken installation must not break evaluation
        warnings.warn(
            f"Triton cannot be imported ({error}): on CUDA each function takes hundreds of "
            "launches instead of one",
            RuntimeWarning,
            stacklevel=2,
        )
        return False
    return True


def cuda_prepare(omega: Tensor, with_slopes: bool) -> Tensor:
    if not _has_triton():
        return torch_prepare(omega, with_slopes)
    precision = PRECISIONS[omega.dtype]
    program = preparation_program(precision, with_slopes)
    omega = omega.detach().contiguous()
    table = omega.new_empty((*omega.shape[:-1], len(program.outputs)))
    lattices = table.numel() // len(program.outputs)
    if lattices:
        _preparation_kernel(precision, with_slopes)[(lattices,)](omega, table, num_warps=1)
    return table


@cache
def _preparation_kernel(precision: Precision, with_slopes: bool) -> Any:
    program = preparation_program(precision, with_slopes)
    source = triton_prepare(program, "prepare", precision.name)
    return load_source(TRITON_HEADER + source, "prepare")


def cuda_evaluate(
    points: Tensor,
    omega: Tensor | None,
    table: Tensor,
    function: str,
    points_are: str,
    variables: int,
    compiled: bool,
) -> tuple[Tensor, Tensor]:
    if compiled or not _has_triton():
        return torch_evaluate(points, omega, table, function, points_are, variables, compiled)
    if function == "inverse_wp" and variables:
        return _inverse_with_slopes(points, table, variables)
    shapes = result_shapes(points, table, function, points_are, variables)
    values, found = (points.new_empty(shape) for shape in shapes)
    shape = shapes[0][2:]
    count = values[0, 0].numel()
    if not count:
        return values, found
    points = points.detach().expand(*shape, points.shape[-1]).contiguous()
    table = table.contiguous()
    per_lattice = count
    if table.ndim > 1:  # as many copies of a table as it has points, so that they lie in order
        table = table.expand(*shape, table.shape[-1]).contiguous()
        per_lattice = 1
    kernel = _evaluation_kernel(_evaluation(table, function, points_are, variables))
    blocks = (count + _THREADS - 1) // _THREADS
    kernel[(blocks,)](points, table, values, found, count, per_lattice, BLOCK=_THREADS, num_warps=1)
    return values, found


def _inverse_with_slopes(w: Tensor, table: Tensor, variables: int) -> tuple[Tensor, Tensor]:
    """The inverse and its slopes by two kernels: one for both takes minutes to compile."""
    values, _ = cuda_evaluate(w, None, table, "inverse_wp", "z", 0, compiled=False)
    z = values[0].movedim(0, -1)
    (_, prime), found = cuda_evaluate(z, None, table, "wp_and_prime", "z", variables, False)
    in_omegas = [Pair(*slope) for slope in (found[1:, 0] if variables != 2 else found[:, 0])]
    slopes = inverse_slopes(TorchOps(w.dtype), Pair(*values[0]), Pair(*prime), in_omegas)
    slopes = slopes if variables != 2 else slopes[1:]
    return values, stacked(slopes, values.shape[2:])[:, None]


@cache
def _evaluation_kernel(which: Evaluation) -> Any:
    length = LENGTHS[which.precision.name, which.table_has_slopes]
    program = evaluation_program(which)
    source = triton_evaluate(program, which.function, which.precision.name, which.rows, length)
    return load_source(TRITON_HEADER + source, which.function)


# --- Other devices: torch's operators, as they are or compiled -----------------------------------


def torch_prepare(omega: Tensor, with_slopes: bool) -> Tensor:
    ops, precision = TorchOps(omega.dtype), PRECISIONS[omega.dtype]
    found = constants_of_parts(ops, omega.detach().unbind(-1), precision, with_slopes)
    return torch.stack([x.expand(omega.shape[:-1]) for x in flat_constants(found)], -1)


def torch_evaluate(
    points: Tensor,
    omega: Tensor | None,
    table: Tensor,
    function: str,
    points_are: str,
    variables: int,
    compiled: bool,
) -> tuple[Tensor, Tensor]:
    run = _compiled_evaluate if compiled else rows_on_table
    return run(points, table, function, points_are, variables)


def rows_on_table(
    points: Tensor, table: Tensor, function: str, points_are: str, variables: int
) -> tuple[Tensor, Tensor]:
    shapes = result_shapes(points, table, function, points_are, variables)
    parts = points.unbind(-1)
    values, found = _stacked_rows(parts, table, function, points_are, variables)
    return values.reshape(shapes[0]), found.reshape(shapes[1])


def _stacked_rows(
    parts: Sequence[Tensor], table: Tensor, function: str, points_are: str, variables: int
) -> tuple[Tensor, Tensor]:
    ops, precision = TorchOps(table.dtype), PRECISIONS[table.dtype]
    lattice = from_flat(table.unbind(-1), precision, variables)
    values, found = rows_of(ops, function, parts, points_are, lattice, precision, variables)
    shape = torch.broadcast_shapes(parts[0].shape, table.shape[:-1])
    return stacked(values, shape), stacked(found, shape) if found else table.new_empty((0,))


_COMPILER_OPTIONS: dict[str, str | int | bool | Callable[..., Any]] = {
    # One fused loop: intermediate results stay in registers instead of passing through memory.
    "max_fusion_size": 1024,
    # Fused multiply-adds, as on a GPU; the argument reduction is correct with and without them.
    "cpp.enable_floating_point_contract_flag": "fast",
}


def _compiled_evaluate(
    points: Tensor, table: Tensor, function: str, points_are: str, variables: int
) -> tuple[Tensor, Tensor]:
    """`rows_on_table`, compiled by torch.compile; values and slopes only, never a backward pass."""
    run = _compiler(function, points_are, variables)
    parts = points.detach().unbind(-1)
    shapes = result_shapes(points, table, function, points_are, variables)
    is_single = table.ndim == 1
    if is_single:
        parts = tuple(part.reshape(-1) for part in parts)
    else:  # a batch of lattices broadcasts against the points as they are
        (table,) = _of_any_length(table)
    if points.device.type != "cpu" or not is_single:
        values, found = run(_of_any_length(*parts), table)
        return values.reshape(shapes[0]), found.reshape(shapes[1])
    # On a CPU in blocks, so that what lies between the points and the results stays in the cache.
    values, found = (_new_memory(shape, points) for shape in shapes)
    count, size = shapes[0][0], len(parts[0])
    rows, slopes = values.view(count, 2, size), found.view(shapes[1][0] * count, 2, size)
    for block in _blocks(size):
        rows[..., block], of_block = run(_of_any_length(*(part[block] for part in parts)), table)
        if variables:
            slopes[..., block] = of_block
    return values, found


def _of_any_length(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Copies for which the compiler makes one kernel, whatever their lengths."""
    # One stride: one compilation serves every shape. (A single element with the stride of a
    # complex number counts as contiguous; a copy does not have that stride.)
    copies = tuple(tensor.clone(memory_format=torch.contiguous_format) for tensor in tensors)
    # Lengths vary, and nothing else does: with `dynamic=True` torch would also make parameters of
    # the kernel's own numbers, in double precision whatever the tensors have.
    for tensor in copies:
        torch._dynamo.maybe_mark_dynamic(tensor, list(range(tensor.ndim)))
    return copies


def _new_memory(shape: Sequence[int], like: Tensor) -> Tensor:
    """An empty tensor on the host, in the huge pages that NumPy asks for where there are many."""
    empty: Tensor = torch.from_numpy(np.empty(shape, PRECISIONS[like.dtype].name))
    return empty


@cache
def _compiler(function: str, points_are: str, variables: int) -> Callable[..., Any]:
    """The compiled evaluation, separately for each kind."""

    def specialised(parts: Sequence[Tensor], table: Tensor) -> Any:
        return _stacked_rows(parts, table, function, points_are, variables)

    # A code object of its own: torch counts (and limits) recompilations by code object.
    name = f"{function}_{points_are}_{variables}"
    specialised.__code__ = specialised.__code__.replace(co_name=name)
    with _unwritable_cache_is_named():
        run = torch.compile(specialised, fullgraph=True, options=_COMPILER_OPTIONS)

    def without_gradients(*tensors: Any) -> Any:
        with _unwritable_cache_is_named(), torch.no_grad():
            return run(*tensors)

    return without_gradients


@contextmanager
def _unwritable_cache_is_named() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        message = f"torch.compile cannot keep the code it makes ({error}); set "
        message += "TORCHINDUCTOR_CACHE_DIR to a folder that can be written to"
        raise BackendUnavailableError(message) from error
