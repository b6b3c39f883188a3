"""The operators of the torch backend: one prepares a lattice, one evaluates a function on it.

``wefpe::prepare`` makes a table of all constants of a lattice of tensors. ``wefpe::evaluate`` takes
points and a table and returns values and, if they are wanted, slopes. To torch each of them is one
operator, eager, compiled or exported. Its derivative is a contraction with the slopes, which are
known by theorem (`backends.slopes`); on a CPU ``wefpe::contract`` does it.

What is differentiated in forward mode, or differentiated again, runs through torch's own operators
instead (`plain_values`), whose derivatives of any order torch knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from backends import torch_runners
from backends.argument import locate, offset_from
from backends.constants import Precision, SeriesConstants, map_reals, prepare_numbers
from backends.evaluation import (
    LENGTHS,
    PLAIN_FUNCTIONS,
    PointsAre,
    constants_of_parts,
    flat_constants,
    from_flat,
    rows_of,
    slopes_in_points,
)
from backends.kernel import times_unit
from backends.pair import Pair
from backends.preparation import PreparedLattice
from backends.torch_ops import PRECISIONS, TorchOps, without_autocast
from backends.torch_runners import contraction_shapes, result_shapes, stacked, table_has_slopes
from wefpe_core.errors import InputError, InputTypeError
from wefpe_core.lattice import Lattice

_WITHOUT_POLES = ("sigma", "green", "log_sigma", "modified_sigma")  # or with logarithmic ones
_REAL_FUNCTIONS = ("green", "log_heat")
_FUNCTIONS_OF_COORDINATES = ("wp_and_prime", "zeta", "sigma", *_REAL_FUNCTIONS)


@lru_cache(maxsize=512)
def table_of_numbers(lattice: Lattice, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The constants of a lattice of numbers as one tensor, copied to the device once."""
    numbers = flat_constants(_of_numbers(prepare_numbers(lattice, PRECISIONS[dtype])))
    # The table outlives the call; one made in inference mode could never serve a training step.
    with torch.inference_mode(False):
        return torch.tensor(numbers, dtype=dtype, device=device)


def _of_numbers(constants: SeriesConstants) -> PreparedLattice:
    """The matrix leads to slopes in half-periods, which numbers do not have: any one will do."""
    return PreparedLattice(constants, ((1.0, 0.0), (0.0, 1.0)))


# --- The operators: what they are to torch -----------------------------------------------------

LIBRARY = torch.library.Library("wefpe", "DEF")
LIBRARY.define("prepare(Tensor omega, bool with_slopes) -> Tensor")
LIBRARY.define(
    "evaluate(Tensor points, Tensor? omega, Tensor table, str function, str points_are, "
    "int variables, bool compiled) -> (Tensor, Tensor)"
)
LIBRARY.define("contract(Tensor gradient, Tensor slopes, int summed) -> (Tensor, Tensor)")


def _fake_prepare(omega: Tensor, with_slopes: bool) -> Tensor:
    precision = PRECISIONS[omega.dtype]
    return omega.new_empty((*omega.shape[:-1], LENGTHS[precision.name, with_slopes]))


def _fake_evaluate(
    points: Tensor,
    omega: Tensor | None,
    table: Tensor,
    function: str,
    points_are: str,
    variables: int,
    compiled: bool,
) -> tuple[Tensor, Tensor]:
    values, found = result_shapes(points, table, function, points_are, variables)
    return points.new_empty(values), points.new_empty(found)


def _vmap_prepare(info: Any, in_dims: Any, omega: Tensor, with_slopes: bool) -> Any:
    return torch.ops.wefpe.prepare(omega.movedim(in_dims[0], 0), with_slopes), 0


def _vmap_evaluate(
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
        t.ndim - (dim is not None)
        for t, dim in zip(tensors, in_dims, strict=False)
        if t is not None
    ]

    def batched(tensor: Tensor | None, dim: int | None) -> Tensor | None:
        if tensor is None:
            return None
        front = tensor[None] if dim is None else tensor.movedim(dim, 0)
        missing = (1,) * (max(ranks) + 1 - front.ndim)
        return front.reshape(front.shape[0], *missing, *front.shape[1:])

    moved = [batched(t, dim) for t, dim in zip(tensors, in_dims, strict=False)]
    return torch.ops.wefpe.evaluate(*moved, *options), (2, 3)


# --- The derivative of evaluation --------------------------------------------------------------


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    points, omega, table, *ctx.options = inputs
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(points, omega, table, output[1])


def _backward(ctx: Any, gradient: Tensor | None, of_slopes: None) -> tuple[Any, ...]:
    points, omega, table, found = ctx.saved_tensors
    nothing = (None,) * len(ctx.options)
    if gradient is None:
        return (None, None, None, *nothing)
    function, points_are, known, compiled = ctx.options
    wants_points, wants_omega = ctx.needs_input_grad[:2]
    if torch.is_grad_enabled():  # the gradient is to be differentiated again
        plain = _plain_gradients(gradient, points, omega, table, function, points_are)
        with torch.no_grad():
            exact_ones = _backward(ctx, gradient.detach(), None)
        # Its value is the one by theorem; the series, which leaves out what overflows when it is
        # differentiated twice, is only for its derivatives.
        in_points, in_omega = (
            None if exact is None or found is None else found + (exact - found).detach()
            for exact, found in zip(exact_ones, plain, strict=False)
        )
        return (in_points, in_omega, None, *nothing)
    variables = 2 * wants_omega + wants_points
    if known & variables != variables:
        if variables > 1 and not table_has_slopes(table):
            table = torch.ops.wefpe.prepare(omega.detach(), True)
        options = (function, points_are, variables, compiled)
        found = torch.ops.wefpe.evaluate(points, omega, table, *options)[1]
        known = variables
    if known & 1 and not wants_points:
        found = found[slopes_in_points(function, points_are) :]
    of_points, of_omega = _contracted(gradient, found, omega if wants_omega else None)
    if not wants_points:
        return (None, of_omega, None, *nothing)
    # The gradient in a complex number is two numbers; that in a real one is the first of two.
    if points_are == "coordinates":
        in_points = _summed_to(of_points[:, 0].movedim(0, -1), points.shape)
    else:
        # Not `flatten`, for which batched gradients have no rule.
        numbers = of_points.reshape(2 * of_points.shape[0], *of_points.shape[2:])
        numbers = numbers[: points.shape[-1]]
        in_points = _summed_to(numbers.movedim(0, -1), points.shape)
        # A copy, not `contiguous`: view_as_complex refuses the strides that leaves to no points.
        in_points = in_points.clone(memory_format=torch.contiguous_format)
    return (in_points, of_omega, None, *nothing)


def _contracted(
    gradient: Tensor, found: Tensor, omega: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """The gradients in the variables of `found`; in omega they are summed over the points.

    torch's gradient in a complex number is the sum of conj(slope) * gradient.
    """
    summed = 0 if omega is None else 2
    is_single = omega is None or omega.ndim == 1
    # While torch compiles, its compiler fuses the sums below with what is before and after them.
    is_traced = torch._guards.TracingContext.try_get() is not None
    if gradient.device.type == "cpu" and is_single and not is_traced:
        of_points, total = torch.ops.wefpe.contract(gradient, found, summed)
        return of_points, total.reshape(-1) if summed else None
    re, im = gradient.unbind(1)
    a, b = found.unbind(2)
    products = torch.stack(((a * re + b * im).sum(1), (a * im - b * re).sum(1)), 1)
    if omega is None:
        return products, None
    kept, of_omega = products[:-2], torch.cat((products[-2], products[-1]))
    return kept, _summed_to(of_omega.movedim(0, -1), omega.shape)


def _summed_to(x: Tensor, shape: Sequence[int]) -> Tensor:
    return x if x.shape == shape else x.sum_to_size(shape)


def _fake_contract(gradient: Tensor, slopes: Tensor, summed: int) -> tuple[Tensor, Tensor]:
    kept, total = contraction_shapes(gradient, slopes, summed)
    return gradient.new_empty(kept), gradient.new_empty(total)


torch.library.register_fake("wefpe::prepare", _fake_prepare, lib=LIBRARY)
torch.library.register_fake("wefpe::evaluate", _fake_evaluate, lib=LIBRARY)
torch.library.register_fake("wefpe::contract", _fake_contract, lib=LIBRARY)
torch.library.register_vmap("wefpe::prepare", _vmap_prepare, lib=LIBRARY)
torch.library.register_vmap("wefpe::evaluate", _vmap_evaluate, lib=LIBRARY)
torch.library.register_autograd(
    "wefpe::evaluate", _backward, setup_context=_setup_context, lib=LIBRARY
)


def evaluate_on_parts(
    points: Tensor, omega: Tensor, function: str, points_are: PointsAre, compiled: bool
) -> Tensor:
    """Values on a lattice of tensors, (rows, 2, ...), with derivatives in points and `omega`."""
    if function in PLAIN_FUNCTIONS or needs_plain_torch():
        order = _order_of_derivatives()
        return plain_values(points, omega, None, function, points_are, order=order)
    variables = 0
    if torch.is_grad_enabled():
        variables = 2 * omega.requires_grad + points.requires_grad
    table = torch.ops.wefpe.prepare(omega.detach(), variables > 1)
    how = (function, points_are, variables, compiled)
    values: Tensor = torch.ops.wefpe.evaluate(points, omega, table, *how)[0]
    return values


def values_at_coordinates(function: str, coordinates: Tensor, omega: Tensor) -> Tensor:
    """Values at points that move with a lattice, as real numbers, (values, 2, ...).

    Those of a real function are (1, ...).

    Parameters
    ----------
    function
        ``"wp_and_prime"``, ``"zeta"``, ``"sigma"``, ``"green"`` or ``"log_heat"``.
    coordinates
        Real numbers s and r, (..., 2), of the points z = s omega1 + r omega3; of ``"log_heat"``
        also the time, (..., 3). They may carry gradients.
    omega
        The real and imaginary parts of omega1 and omega3, (..., 4); it carries gradients.
    """
    _check_coordinates(function, coordinates, omega)
    with without_autocast(omega.device):
        values = evaluate_on_parts(coordinates, omega, function, "coordinates", compiled=False)
        return values[:, 0] if function in _REAL_FUNCTIONS else values


def _check_coordinates(function: str, coordinates: Tensor, omega: Tensor) -> None:
    if function not in _FUNCTIONS_OF_COORDINATES:
        known = ", ".join(_FUNCTIONS_OF_COORDINATES)
        raise InputError(f"there is no function {function!r} of coordinates; known are {known}")
    if omega.dtype not in PRECISIONS or coordinates.dtype != omega.dtype:
        raise InputTypeError(
            "coordinates and omega must both be float32 or both float64, got "
            f"{coordinates.dtype} and {omega.dtype}"
        )


# --- Plain torch: derivatives of any order, in every mode --------------------------------------


def needs_plain_torch() -> bool:
    """Whether torch differentiates in a way that an operator of ours has no formula for.

    These are forward mode and the derivatives of torch.func; its vmap alone is none of them.
    """
    if torch.autograd.forward_ad._current_level >= 0:
        return True
    if torch.compiler.is_compiling():  # a tracer cannot follow the rest
        return torch._C._are_functorch_transforms_active()
    transforms = torch._C._functorch.get_interpreter_stack() or ()
    vmap = torch._C._functorch.TransformType.Vmap
    return any(transform.key() != vmap for transform in transforms)


def _order_of_derivatives() -> int:
    """How many derivatives torch.func takes at once, if torch tells."""
    if torch.compiler.is_compiling():
        return 1
    transforms = torch._C._functorch.get_interpreter_stack() or ()
    vmap = torch._C._functorch.TransformType.Vmap
    return max(1, sum(transform.key() != vmap for transform in transforms))


def plain_values(
    points: Tensor, omega: Tensor | None, table: Tensor | None, *how: str, order: int = 1
) -> Tensor:
    """The values of ``wefpe::evaluate`` by torch's own operators, differentiable as they are.

    The constants come from `omega`; those of a lattice of numbers come from its table. A lattice of
    tensors is differentiated at all of its points together, and one of them whose derivatives are
    not finite would spoil the sum. Such points have the derivative 0, as in `backends.slopes`.
    """
    function, points_are = how
    ops, precision = TorchOps(points.dtype), PRECISIONS[points.dtype]
    if omega is None:
        assert table is not None
        lattice = from_flat(table.unbind(-1), precision, variables=0)
        values, _ = rows_of(ops, function, points.unbind(-1), points_are, lattice, precision, 0)
        return stacked(values, torch.broadcast_shapes(points.shape[:-1], table.shape[:-1]))
    parts = omega.unbind(-1)
    lattice = constants_of_parts(ops, parts, precision, with_slopes=False)
    fixed = lattice._replace(constants=map_reals(lattice.constants, ops.constant))
    given = points.unbind(-1)
    x, y, *others = given
    if points_are == "coordinates":
        z = Pair(x * parts[0] + y * parts[2], x * parts[1] + y * parts[3])
    else:
        z = Pair(x, y)
    c = fixed.constants
    at = [part.detach() for part in (z.re, z.im, *others)]
    has_slope = _has_finite_slope(ops, function, at, c, precision, order)
    # Some point between the poles, or a value that wp takes there.
    period = c.period_over_pi.scale(1.0 / c.unit)
    if points_are == "coordinates":
        safe = Pair(0.6, 0.6)
    elif function == "inverse_wp":
        safe = times_unit(c.wp_scale, c, 2)
    else:
        safe = period * Pair(0.9, 0.7)
    instead = (safe.re, safe.im, period.squared_modulus())  # the last is a time
    moved = [torch.where(has_slope, *pair) for pair in zip(given, instead, strict=False)]
    shape = torch.broadcast_shapes(points.shape[:-1], *(part.shape for part in parts))
    moving, _ = rows_of(ops, function, moved, points_are, lattice, precision, 0)
    unmoved = [part.detach() for part in given]
    still, _ = rows_of(ops, function, unmoved, points_are, fixed, precision, 0)
    return torch.where(has_slope, stacked(moving, shape), stacked(still, shape))


def _has_finite_slope(
    ops: TorchOps,
    function: str,
    point: Sequence[Tensor],
    c: SeriesConstants,
    precision: Precision,
    order: int,
) -> Tensor:
    """Whether no number overflows or is NaN when the series is differentiated so many times."""
    x, y, *others = point
    z = Pair(x, y)
    if function == "inverse_wp":
        return torch.isfinite(z.re) & torch.isfinite(z.im)
    z = z.scale(c.unit)
    cell = locate(ops, z, c, precision)
    offset = offset_from(ops, z, cell.m, cell.n, c, precision)
    v = c.pi_over_period * offset
    is_finite = torch.isfinite(v.re) & torch.isfinite(v.im)
    if function == "log_heat":  # it has quotients by the time, and products with it
        d = others[0] * c.unit * c.unit * c.pi_over_period.squared_modulus()
        limit = 16.0 * torch.finfo(v.re.dtype).tiny ** (1.0 / (1 + order))
        return is_finite & (d > limit) & (d < 1.0 / limit)
    if function in _WITHOUT_POLES:
        return is_finite
    order += int(function[14:]) if function.startswith("wp_derivative_") else 0
    # A quotient by v^2 differentiated `order` times is one by its power of `order` + 1.
    limit = 16.0 * torch.finfo(v.re.dtype).tiny ** (1.0 / (1 + order))
    return is_finite & (v.squared_modulus() > limit)


def plain_values_on_numbers(points: Tensor, constants: SeriesConstants, function: str) -> Tensor:
    """`plain_values` on a lattice of numbers, whose constants are Python's floats."""
    ops, precision = TorchOps(points.dtype), PRECISIONS[points.dtype]
    lattice = _of_numbers(constants)
    values, _ = rows_of(ops, function, points.unbind(-1), "z", lattice, precision, 0)
    return stacked(values, points.shape[:-1])


def _plain_gradients(
    gradient: Tensor, points: Tensor, omega: Tensor | None, table: Tensor, *how: str
) -> tuple[Tensor, Tensor | None]:
    if omega is None:
        pull = torch.func.vjp(lambda p: plain_values(p, None, table, *how), points)[1]
        return pull(gradient)[0], None

    def values(p: Tensor, w: Tensor) -> Tensor:
        return plain_values(p, w, None, *how, order=2)

    pull = torch.func.vjp(values, points, omega)[1]
    in_points, in_omega = pull(gradient)
    return in_points, in_omega


# --- Who computes --------------------------------------------------------------------------------

LIBRARY.impl("prepare", torch_runners.numpy_prepare, "CPU")
LIBRARY.impl("evaluate", torch_runners.numpy_evaluate, "CPU")
LIBRARY.impl("contract", torch_runners.numpy_contract, "CPU")
LIBRARY.impl("prepare", torch_runners.cuda_prepare, "CUDA")
LIBRARY.impl("evaluate", torch_runners.cuda_evaluate, "CUDA")
for _key in ("MPS", "XPU", "HPU", "PrivateUse1"):
    LIBRARY.impl("prepare", torch_runners.torch_prepare, _key)
    LIBRARY.impl("evaluate", torch_runners.torch_evaluate, _key)
