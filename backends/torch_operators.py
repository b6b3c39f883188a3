"""The operators of the torch backend: one prepares a lattice, one evaluates a function on it.

``wefpe::prepare`` makes a table of all constants of a lattice of tensors. ``wefpe::evaluate`` takes
points and a table and returns values and, if they are wanted, slopes. To torch each of them is one
operator, eager, compiled or exported. Its derivative is a contraction with the slopes, which are
known by theorem (`backends.slopes`).

What is differentiated in forward mode, or differentiated again, runs through torch's own operators
instead (`plain_values`), whose derivatives of any order torch knows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from backends import algebra, kernel, slopes
from backends.constants import (
    DOUBLE,
    SINGLE,
    Precision,
    SeriesConstants,
    map_reals,
    prepare_numbers,
    without_slopes,
)
from backends.numpy_backend import BLOCK, NumpyOps
from backends.pair import ArrayOps, Pair
from backends.preparation import PreparedLattice, in_layout_of_numbers, prepare
from backends.torch_ops import PRECISIONS, TorchOps
from wefpe_core.lattice import Lattice

# What the points of an operator are: complex numbers z, or the real coordinates (s, t) of
# z = s omega1 + t omega3, which move with the lattice.
PointsAre = Literal["z", "coordinates"]


class OperatorFunction(NamedTuple):
    """A function that `wefpe::evaluate` knows."""

    values: Callable[..., Any]  # in `backends.kernel`
    slopes: slopes.SlopeFunction
    rows: int  # complex values it returns; those of a real function have the imaginary part 0


FUNCTIONS = {
    "wp_and_prime": OperatorFunction(kernel.wp_and_prime, slopes.wp_and_prime, rows=2),
    "zeta": OperatorFunction(kernel.zeta, slopes.zeta, rows=1),
    "sigma": OperatorFunction(kernel.sigma, slopes.sigma, rows=1),
    "green": OperatorFunction(kernel.green, slopes.green, rows=1),
    "inverse_wp": OperatorFunction(algebra.inverse_wp, slopes.inverse_wp, rows=1),
}


def rows_of(
    ops: ArrayOps,
    function: str,
    points: tuple[Any, Any],
    omega: Sequence[Any],
    lattice: PreparedLattice,
    precision: Precision,
    variables: int,
) -> tuple[list[Pair], list[Pair]]:
    """Values and slopes as rows of complex numbers; the slopes of one value follow one another.

    Without slopes the number of `variables` is 0. With points z it is 1 (z) or 3 (z, omega1 and
    omega3), with coordinates it is 2 (omega1 and omega3), and `omega` holds the parts of both.
    """
    if omega:
        s, t = points
        z = Pair(s * omega[0] + t * omega[2], s * omega[1] + t * omega[3])
    else:
        z = Pair(*points)
    known = FUNCTIONS[function]
    if variables == 0:
        values = known.values(ops, z, lattice.constants, precision)
        values = values if isinstance(values, tuple) else (values,)
        return [v if isinstance(v, Pair) else Pair(v, 0.0 * v) for v in values], []
    matrix = None if variables == 1 else lattice.matrix
    found = known.slopes(ops, z, lattice.constants, precision, matrix)
    flat: list[Pair] = []
    for in_z, *in_omegas in found.slopes:
        if omega:
            # The point moves with the half-periods.
            flat += [slope + in_z.scale(x) for slope, x in zip(in_omegas, points, strict=True)]
        else:
            flat += [in_z, *in_omegas]
    return list(found.values), flat


# --- Tables: the constants of a lattice, in one tensor -----------------------------------------


def constants_of_parts(
    ops: ArrayOps, omega: Sequence[Any], precision: Precision, with_slopes: bool
) -> PreparedLattice:
    """The constants of a lattice from the real and imaginary parts of omega1 and omega3."""
    found = prepare(ops, Pair(*omega[:2]), Pair(*omega[2:]), precision, with_slopes)
    return found._replace(constants=in_layout_of_numbers(found.constants, precision))


def flat_constants(lattice: PreparedLattice) -> list[Any]:
    """The numbers of a table in their order: the matrix, then the constants of the series."""
    numbers: list[Any] = [*lattice.matrix[0], *lattice.matrix[1]]
    map_reals(lattice.constants, numbers.append)
    return numbers


def from_flat(numbers: Sequence[Any], precision: Precision, variables: int) -> PreparedLattice:
    """The constants a table holds, with slopes if those in the lattice are wanted."""
    p, q, r, s, *rest = numbers
    series = iter(rest)
    has_slopes = len(numbers) == _LENGTHS[precision.name, True]
    example = _EXAMPLES[precision.name, has_slopes].constants
    constants = map_reals(example, lambda _: next(series))
    if has_slopes and variables < 2:
        constants = without_slopes(constants)
    return PreparedLattice(constants, ((p, q), (r, s)))


def _example(precision: Precision, with_slopes: bool) -> PreparedLattice:
    one, zero = np.ones((), precision.name)[()], np.zeros((), precision.name)[()]
    ops = NumpyOps(np.dtype(precision.name))
    found = constants_of_parts(ops, (one, zero, zero, one), precision, with_slopes)
    return PreparedLattice(map_reals(found.constants, lambda _: 0.0), ((0.0, 0.0), (0.0, 0.0)))


# Any lattice shows how the numbers of a table are arranged, and how many there are. These are made
# at import, because a tracer cannot follow how, and hold zeros, because it would look at them.
_EXAMPLES = {
    (precision.name, with_slopes): _example(precision, with_slopes)
    for precision in (SINGLE, DOUBLE)
    for with_slopes in (False, True)
}
_LENGTHS = {key: len(flat_constants(example)) for key, example in _EXAMPLES.items()}


def _has_slopes(table: Tensor) -> bool:
    return bool(table.shape[-1] == _LENGTHS[PRECISIONS[table.dtype].name, True])


@lru_cache(maxsize=512)
def table_of_numbers(lattice: Lattice, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The constants of a lattice of numbers as one tensor, copied to the device once."""
    constants = prepare_numbers(lattice, PRECISIONS[dtype])
    numbers = flat_constants(PreparedLattice(constants, ((1.0, 0.0), (0.0, 1.0))))
    # The table outlives the call; one made in inference mode could never serve a training step.
    with torch.inference_mode(False):
        return torch.tensor(numbers, dtype=dtype, device=device)


# --- The operators: what they are to torch -----------------------------------------------------

_LIBRARY = torch.library.Library("wefpe", "DEF")
_LIBRARY.define("prepare(Tensor omega, bool with_slopes) -> Tensor")
_LIBRARY.define(
    "evaluate(Tensor points, Tensor? omega, Tensor table, str function, str points_are, "
    "int variables, bool compiled) -> (Tensor, Tensor)"
)


def _result_shapes(
    points: Tensor, table: Tensor, function: str, variables: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    shape = torch.broadcast_shapes(points.shape[:-1], table.shape[:-1])
    rows = FUNCTIONS[function].rows
    return (rows, *shape, 2), (rows, variables, *shape, 2)


@torch.library.register_fake("wefpe::prepare")
def _(omega: Tensor, with_slopes: bool) -> Tensor:
    precision = PRECISIONS[omega.dtype]
    return omega.new_empty((*omega.shape[:-1], _LENGTHS[precision.name, with_slopes]))


@torch.library.register_fake("wefpe::evaluate")
def _(
    points: Tensor,
    omega: Tensor | None,
    table: Tensor,
    function: str,
    points_are: str,
    variables: int,
    compiled: bool,
) -> tuple[Tensor, Tensor]:
    values, found = _result_shapes(points, table, function, variables)
    return points.new_empty(values), points.new_empty(found)


@torch.library.register_vmap("wefpe::prepare")
def _(info: Any, in_dims: Any, omega: Tensor, with_slopes: bool) -> Any:
    return torch.ops.wefpe.prepare(omega.movedim(in_dims[0], 0), with_slopes), 0


@torch.library.register_vmap("wefpe::evaluate")
def _(
    info: Any,
    in_dims: Any,
    points: Tensor,
    omega: Tensor | None,
    table: Tensor,
    *options: Any,
) -> Any:
    tensors = (points, omega, table)
    # The dimensions of points and lattices align at the end, behind the mapped one.
    ranks = [
        t.ndim - (dim is not None) for t, dim in zip(tensors, in_dims, strict=False) if t is not None
    ]

    def batched(tensor: Tensor | None, dim: int | None) -> Tensor | None:
        if tensor is None:
            return None
        front = tensor[None] if dim is None else tensor.movedim(dim, 0)
        missing = (1,) * (max(ranks) + 1 - front.ndim)
        return front.reshape(front.shape[0], *missing, *front.shape[1:])

    moved = [batched(t, dim) for t, dim in zip(tensors, in_dims, strict=False)]
    return torch.ops.wefpe.evaluate(*moved, *options), (1, 2)


# --- The derivative of evaluation --------------------------------------------------------------


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    points, omega, table, *ctx.options = inputs
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(points, omega, table, output[1])


def _backward(ctx: Any, gradient: Tensor | None, _: None) -> tuple[Any, ...]:
    points, omega, table, found = ctx.saved_tensors
    nothing = (None,) * len(ctx.options)
    if gradient is None:
        return (None, None, None, *nothing)
    function, points_are, _, compiled = ctx.options
    wants_points, wants_omega = ctx.needs_input_grad[:2]
    if torch.is_grad_enabled():  # the gradient is to be differentiated again
        in_points, in_omega = _plain_gradients(gradient, points, omega, table, function, points_are)
        return (in_points if wants_points else None, in_omega, None, *nothing)
    variables = 2 if points_are == "coordinates" else (3 if wants_omega else 1)
    if found.shape[1] < variables:
        if variables > 1 and not _has_slopes(table):
            table = torch.ops.wefpe.prepare(omega.detach(), True)
        options = (function, points_are, variables, compiled)
        found = torch.ops.wefpe.evaluate(points, omega, table, *options)[1]
    contracted = _contracted(gradient, found)
    in_points = in_omega = None
    if points_are == "z" and wants_points:
        in_points = _summed_to(contracted[0], points.shape)
    if wants_omega:
        # (..., 4): the parts of omega1, then those of omega3.
        in_omega = _summed_to(torch.cat((contracted[-2], contracted[-1]), -1), omega.shape)
    return (in_points, in_omega, None, *nothing)


def _contracted(gradient: Tensor, found: Tensor) -> Tensor:
    """sum over rows of conj(slope) * gradient: (variables, ..., 2).

    A point whose value nobody differentiates contributes nothing, whatever its slope is.
    """
    g = gradient[:, None]
    is_unused = (g == 0.0).all(-1, keepdim=True)
    found = torch.where(is_unused, 0.0, found)  # 0 times an infinite slope would be NaN
    same, crossed = g * found, g.flip(-1) * found
    real = same.sum(-1)
    imaginary = crossed[..., 0] - crossed[..., 1]
    return torch.stack((real, imaginary), -1).sum(0)


def _summed_to(x: Tensor, shape: Sequence[int]) -> Tensor:
    return x if x.shape == shape else x.sum_to_size(shape)


torch.library.register_autograd(
    "wefpe::evaluate", _backward, setup_context=_setup_context, lib=_LIBRARY
)


def evaluate_on_parts(
    points: Tensor, omega: Tensor, function: str, points_are: PointsAre, compiled: bool
) -> Tensor:
    """Values on a lattice of tensors, (rows, ..., 2), with derivatives in points and `omega`."""
    variables = 0
    if torch.is_grad_enabled():
        if omega.requires_grad:
            variables = 3 if points_are == "z" else 2
        elif points.requires_grad:
            variables = 1
    table = torch.ops.wefpe.prepare(omega.detach(), variables > 1)
    how = (function, points_are, variables, compiled)
    values: Tensor = torch.ops.wefpe.evaluate(points, omega, table, *how)[0]
    return values


# --- Plain torch: derivatives of any order, in every mode --------------------------------------


def plain_values(points: Tensor, omega: Tensor | None, table: Tensor | None, *how: str) -> Tensor:
    """The values of ``wefpe::evaluate`` by torch's own operators, differentiable as they are.

    The constants come from `omega`; those of a lattice of numbers come from its table.
    """
    function, points_are = how
    ops, precision = TorchOps(points.dtype), PRECISIONS[points.dtype]
    parts = () if omega is None else omega.unbind(-1)
    if omega is not None:
        lattice = constants_of_parts(ops, parts, precision, with_slopes=False)
    else:
        assert table is not None
        lattice = from_flat(table.unbind(-1), precision, variables=0)
    given = parts if points_are == "coordinates" else ()
    values, _ = rows_of(ops, function, points.unbind(-1), given, lattice, precision, 0)
    return _stacked(values, torch.broadcast_shapes(points.shape[:-1], *(p.shape for p in parts)))


def plain_values_on_numbers(
    points: Tensor, constants: SeriesConstants, function: str
) -> Tensor:
    """`plain_values` on a lattice of numbers, whose constants are Python's floats."""
    ops, precision = TorchOps(points.dtype), PRECISIONS[points.dtype]
    lattice = PreparedLattice(constants, ((1.0, 0.0), (0.0, 1.0)))
    values, _ = rows_of(ops, function, points.unbind(-1), (), lattice, precision, 0)
    return _stacked(values, points.shape[:-1])


def _stacked(rows: Sequence[Pair], shape: Sequence[int]) -> Tensor:
    """Rows of complex numbers as one real tensor, (rows, ..., 2)."""
    parts = [part.expand(shape) for row in rows for part in (row.re, row.im)]
    return torch.stack(parts, -1).unflatten(-1, (-1, 2)).movedim(-2, 0)


def _plain_gradients(
    gradient: Tensor, points: Tensor, omega: Tensor | None, table: Tensor, *how: str
) -> tuple[Tensor, Tensor | None]:
    if omega is None:
        _, pull = torch.func.vjp(lambda p: plain_values(p, None, table, *how), points)
        return pull(gradient)[0], None
    _, pull = torch.func.vjp(lambda p, w: plain_values(p, w, None, *how), points, omega)
    in_points, in_omega = pull(gradient)
    return in_points, in_omega


# --- Who computes: NumPy on a CPU, generated kernels or torch's operators elsewhere ------------


def _numpy_prepare(omega: Tensor, with_slopes: bool) -> Tensor:
    ops, precision = NumpyOps(np.dtype(_name(omega))), PRECISIONS[omega.dtype]
    parts = np.moveaxis(omega.detach().numpy(), -1, 0)
    with np.errstate(all="ignore"):
        found = constants_of_parts(ops, [part[()] for part in parts], precision, with_slopes)
        numbers = flat_constants(found)
    table = np.stack([np.broadcast_to(x, parts.shape[1:]) for x in numbers], -1)
    return torch.from_numpy(table.astype(_name(omega), copy=False))


def _numpy_evaluate(
    points: Tensor,
    omega: Tensor | None,
    table: Tensor,
    function: str,
    points_are: str,
    variables: int,
    compiled: bool,
) -> tuple[Tensor, Tensor]:
    if compiled:
        return _compiled_evaluate(points, omega, table, function, points_are, variables)
    shapes = _result_shapes(points, table, function, variables)
    values, found = (points.new_empty(shape) for shape in shapes)
    ops, precision = NumpyOps(np.dtype(_name(points))), PRECISIONS[points.dtype]
    numbers: Sequence[Any] = table.tolist() if table.ndim == 1 else list(_parts(table))
    lattice = from_flat(numbers, precision, variables)
    given: Sequence[Any] = ()
    if points_are == "coordinates":
        assert omega is not None
        given = omega.tolist() if omega.ndim == 1 else list(_parts(omega))
    x, y = _parts(points)

    def run(x: Any, y: Any, target_values: Any, target_slopes: Any) -> None:
        with np.errstate(all="ignore"):
            rows = rows_of(ops, function, (x, y), given, lattice, precision, variables)
        for target, pairs in zip((target_values, target_slopes), rows, strict=True):
            for row, pair in zip(target, pairs, strict=True):
                row[..., 0], row[..., 1] = pair.re, pair.im

    targets = values.numpy(), found.flatten(0, 1).numpy()
    if table.ndim > 1:
        run(np.ascontiguousarray(x), np.ascontiguousarray(y), *targets)
        return values, found
    x, y = x.reshape(-1), y.reshape(-1)
    flat = [target.reshape(len(target), x.size, 2) for target in targets]
    for start in range(0, x.size, BLOCK):
        part = slice(start, start + BLOCK)
        run(*(np.ascontiguousarray(p[part]) for p in (x, y)), *(t[:, part] for t in flat))
    return values, found


def _parts(tensor: Tensor) -> Any:
    """The last dimension first, as a NumPy array."""
    return np.moveaxis(tensor.detach().numpy(), -1, 0)


def _name(tensor: Tensor) -> str:
    return PRECISIONS[tensor.dtype].name


def _torch_prepare(omega: Tensor, with_slopes: bool) -> Tensor:
    """By torch's operators, for devices without a generated kernel."""
    ops, precision = TorchOps(omega.dtype), PRECISIONS[omega.dtype]
    found = constants_of_parts(ops, omega.detach().unbind(-1), precision, with_slopes)
    return torch.stack([x.expand(omega.shape[:-1]) for x in flat_constants(found)], -1)


def _torch_evaluate(
    points: Tensor,
    omega: Tensor | None,
    table: Tensor,
    function: str,
    points_are: str,
    variables: int,
    compiled: bool,
) -> tuple[Tensor, Tensor]:
    if compiled:
        return _compiled_evaluate(points, omega, table, function, points_are, variables)
    return _rows_on_table(points, omega, table, function, points_are, variables)


def _rows_on_table(
    points: Tensor,
    omega: Tensor | None,
    table: Tensor,
    function: str,
    points_are: str,
    variables: int,
) -> tuple[Tensor, Tensor]:
    ops, precision = TorchOps(points.dtype), PRECISIONS[points.dtype]
    lattice = from_flat(table.unbind(-1), precision, variables)
    given = omega.unbind(-1) if omega is not None and points_are == "coordinates" else ()
    rows = rows_of(ops, function, points.unbind(-1), given, lattice, precision, variables)
    shapes = _result_shapes(points, table, function, variables)
    shape = shapes[0][1:-1]
    values = _stacked(rows[0], shape)
    if not variables:
        return values, points.new_empty(shapes[1])
    return values, _stacked(rows[1], shape).unflatten(0, shapes[1][:2])


_COMPILER_OPTIONS: dict[str, str | int | bool | Callable[..., Any]] = {
    # One fused loop: intermediate results stay in registers instead of passing through memory.
    "max_fusion_size": 1024,
    # Fused multiply-adds, as on a GPU; the argument reduction is correct with and without them.
    "cpp.enable_floating_point_contract_flag": "fast",
}


def _compiled_evaluate(
    points: Tensor,
    omega: Tensor | None,
    table: Tensor,
    function: str,
    points_are: str,
    variables: int,
) -> tuple[Tensor, Tensor]:
    """`_rows_on_table`, compiled by torch.compile; values and slopes only, never a backward pass."""
    if table.ndim > 1:  # a batch of lattices broadcasts against the points
        return _compiler(function, points_are, variables)(points, omega, table)
    # One dimension and one stride: one compilation serves every shape.
    flat = points.reshape(-1, 2).clone(memory_format=torch.contiguous_format)
    values, found = _compiler(function, points_are, variables)(flat, omega, table)
    shapes = _result_shapes(points, table, function, variables)
    return values.reshape(shapes[0]), found.reshape(shapes[1])


@cache
def _compiler(function: str, points_are: str, variables: int) -> Callable[..., Any]:
    """The compiled operator, separately for each function and number of variables."""

    def specialised(points: Tensor, omega: Tensor | None, table: Tensor) -> Any:
        return _rows_on_table(points, omega, table, function, points_are, variables)

    # A code object of its own: torch counts (and limits) recompilations by code object.
    name = f"{function}_{points_are}_{variables}"
    specialised.__code__ = specialised.__code__.replace(co_name=name)
    run = torch.compile(specialised, fullgraph=True, dynamic=True, options=_COMPILER_OPTIONS)

    def without_gradients(*tensors: Any) -> Any:
        with torch.no_grad():
            return run(*tensors)

    return without_gradients


_LIBRARY.impl("prepare", _numpy_prepare, "CPU")
_LIBRARY.impl("evaluate", _numpy_evaluate, "CPU")
for _key in ("CUDA", "MPS", "XPU", "HPU", "PrivateUse1"):
    _LIBRARY.impl("prepare", _torch_prepare, _key)
    _LIBRARY.impl("evaluate", _torch_evaluate, _key)
