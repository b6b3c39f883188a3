"""JAX backend (CPU, GPU and TPU): for jit, grad and vmap, on the kernel that NumPy runs.

A lattice of numbers becomes a table of constants on the host, which is an argument of the compiled
function, so one compilation serves all lattices. A lattice of JAX's arrays is prepared where it
lies. Values, and the first derivatives that come by theorem (`backends.slopes`), are traced
programs (`backends.tracing`); derivatives of these come from JAX through the series. What takes no
lattice, or a table of its own, runs operation by operation unless the caller compiles it.

JAX has no double precision unless ``jax.config.update("jax_enable_x64", True)`` is set before its
first use. Without it every argument, complex128 too, is converted to complex64 by JAX itself.
"""

from __future__ import annotations

import numbers
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array, lax
from jax.core import Tracer
from jax.custom_derivatives import SymbolicZero

from backends import algebra, modular_arrays
from backends.array_family import FunctionsByName
from backends.constants import (
    DOUBLE,
    SINGLE,
    Precision,
    SeriesConstants,
    g2_in_units,
    prepare_numbers,
    prepared_for,
)
from backends.evaluation import (
    PLAIN_FUNCTIONS,
    Evaluation,
    constants_of_parts,
    evaluation_program,
    flat_constants,
    from_flat,
    has_slopes,
    name_on,
    preparation_program,
    rows_of,
)
from backends.heat import HeatOfArrays
from backends.jacobi_arrays import ArrayJacobiFunctions
from backends.modular_arrays import ReducedLattice
from backends.pair import Pair
from backends.preparation import PreparedLattice
from backends.tracing import Operand, Program, Statement
from wefpe_core.backend import (
    AbstractBackend,
    BackendCapabilities,
    check_count,
    check_lattice,
    check_truncation,
    check_unmasked,
    instead_of_exact,
)
from wefpe_core.degenerate_lattice import DegenerateLattice
from wefpe_core.errors import InputError, InputTypeError
from wefpe_core.lattice import Lattice
from wefpe_core.lattice_constants import lattice_constants, laurent_coefficients
from wefpe_core.modular import laurent_from_invariants

_PRECISIONS = {"float32": SINGLE, "float64": DOUBLE}


# The value, differentiated as if it were the model.
_differentiated_as = jax.custom_jvp(lambda value, model: value)
# The value in the rule is differentiated as the model too, or second derivatives would be lost.
_differentiated_as.defjvp(lambda primals, tangents: (_differentiated_as(*primals), tangents[1]))


# The compiler for CPUs, left to itself, computes an intermediate result anew wherever it is used,
# and what that one is made of too: wp takes minutes to compile, the inverse never ends. It does not
# look into a branch whose condition it cannot know. (It ignores `lax.optimization_barrier`.)


def _unknown_condition() -> Array:
    """A condition that holds, though the compiler does not know it."""
    return lax.rng_uniform(0.0, 1.0, ()) >= 0.0


@partial(jax.jit)
def _through_a_branch(x: Array) -> Array:
    def through(x: Array) -> Array:
        return lax.cond(_unknown_condition(), lambda x: x, lambda x: -x, x)

    return lax.platform_dependent(x, cpu=through, default=lambda x: x)


def _kept(x: Array) -> Array:
    """The same array, which the compiler computes once and keeps."""
    return _through_a_branch(x) if isinstance(x, Tracer) else x


class JaxOps:
    """`backends.pair.ArrayOps` on JAX's arrays of one real dtype."""

    exp = staticmethod(jnp.exp)
    expm1 = staticmethod(jnp.expm1)
    sin = staticmethod(jnp.sin)
    cos = staticmethod(jnp.cos)
    log = staticmethod(jnp.log)
    log1p = staticmethod(jnp.log1p)
    sqrt = staticmethod(jnp.sqrt)
    rint = staticmethod(jnp.rint)
    isinf = staticmethod(jnp.isinf)

    def __init__(self, dtype: Any) -> None:
        self._dtype = dtype

    def hypot(self, x: Any, y: Any) -> Any:
        has_size, unit = self._unit_of(x, y)
        modulus = unit * jnp.hypot(self.where(has_size, x / unit, 1.0), y / unit)
        return self.where(has_size, modulus, jnp.hypot(*map(lax.stop_gradient, (x, y))))

    def arctan2(self, y: Any, x: Any) -> Any:
        has_size, unit = self._unit_of(x, y)
        angle = jnp.arctan2(y / unit, self.where(has_size, x / unit, 1.0))
        return self.where(has_size, angle, jnp.arctan2(*map(lax.stop_gradient, (y, x))))

    def _unit_of(self, x: Any, y: Any) -> tuple[Any, Any]:
        """JAX's derivatives square x and y, which must not fall below the range."""
        size = lax.stop_gradient(jnp.maximum(jnp.abs(x), jnp.abs(y)))
        has_size = (size > 0.0) & jnp.isfinite(size)
        return has_size, self.power_of_two(self.where(has_size, size, 1.0))

    def sign_of(self, x: Any) -> Any:
        return jnp.copysign(jnp.ones_like(x), lax.stop_gradient(x))

    def where(self, condition: Any, x: Any, y: Any) -> Any:
        chosen = jnp.where(condition, x, y)
        # Two Python numbers would make an array of JAX's default dtype.
        return chosen if chosen.dtype == bool else chosen.astype(self._dtype)

    def where_needed(self, condition: Any, x: Any, y: Any) -> Any:
        return self.where(condition, x, y)

    def as_weight(self, condition: Any) -> Any:
        return condition.astype(self._dtype)

    def power_of_two(self, x: Any) -> Any:
        x = lax.stop_gradient(x)
        # Half of the smallest normal number would be taken for 0.
        return x / (2.0 * jnp.frexp(x)[0])

    def leading_bits(self, x: Any, bits: int) -> Any:
        mantissa, exponent = jnp.frexp(lax.stop_gradient(x))
        unit = 2.0**bits
        return jnp.ldexp(jnp.rint(mantissa * unit) / unit, exponent)

    def constant(self, x: Any) -> Any:
        return lax.stop_gradient(x) if isinstance(x, Array) else x

    def with_derivative_of(self, value: Any, model: Callable[[], Any]) -> Any:
        return _differentiated_as(value, model())

    def all_hold(self, condition: Any) -> bool:
        return False

    def within(self, x: Any, limit: float) -> Any:
        return self.where(jnp.abs(x) <= limit, x, jnp.nan)

    def with_infinities(self, value: Pair, offset: Pair, is_pole: Any = None) -> Pair:
        is_finite = jnp.isfinite(value.re) & jnp.isfinite(value.im)
        if is_pole is not None:
            is_finite = is_finite & ~is_pole
        overflowed = ~is_finite & jnp.isfinite(offset.re) & jnp.isfinite(offset.im)
        return Pair(
            self.where(overflowed, jnp.inf, self.where(is_finite, value.re, jnp.nan)),
            self.where(is_finite, value.im, jnp.nan),
        )


def _keeping(function: Callable[..., Array]) -> Any:
    return staticmethod(lambda *arrays: _kept(function(*arrays)))


class KeepingOps(JaxOps):
    """The same, for what is compiled as it is written, not as a program in parts."""

    exp = _keeping(jnp.exp)
    expm1 = _keeping(jnp.expm1)
    sin = _keeping(jnp.sin)
    cos = _keeping(jnp.cos)
    rint = _keeping(jnp.rint)

    def where(self, condition: Any, x: Any, y: Any) -> Any:
        return _kept(super().where(condition, x, y))


# --- Programs ------------------------------------------------------------------------------------

# Statements of a program that stand in one branch. More would be computed over and over, and fewer
# make more branches.
_PART = 128
_OPERATORS: dict[str, Callable[..., Any]] = {
    **{name: getattr(operator, name) for name in ("add", "sub", "mul", "neg")},
    **{name: getattr(operator, name) for name in ("lt", "le", "gt", "ge", "eq", "ne")},
    "div": operator.truediv,
    "and": operator.and_,
    "or": operator.or_,
    "not": operator.invert,
    "isfinite": jnp.isfinite,
}


def _run(program: Program, ops: JaxOps, inputs: Sequence[Array]) -> list[Any]:
    """The outputs of a program, computed in parts that are a branch each."""
    known: dict[Operand, Any] = dict(zip(program.inputs, inputs, strict=True))
    last_use: dict[Operand, int] = {}
    for index, statement in enumerate(program.statements):
        last_use.update(dict.fromkeys(statement.arguments, index))
    last_use.update(dict.fromkeys(program.outputs, len(program.statements)))
    for start in range(0, len(program.statements), _PART):
        part = program.statements[start : start + _PART]
        targets = {statement.target for statement in part}
        names = dict.fromkeys(x for s in part for x in s.arguments if isinstance(x, str))
        given = {name: known[name] for name in names if name not in targets}
        wanted = [s.target for s in part if last_use[s.target] >= start + len(part)]
        known |= zip(wanted, _in_a_branch(partial(_part, part, wanted, ops), given), strict=True)
    return [known.get(output, output) for output in program.outputs]


def _in_a_branch(
    function: Callable[[Mapping[str, Array]], list[Array]], given: Mapping[str, Array]
) -> list[Array]:
    results = jax.eval_shape(function, given)

    def branch(given: Mapping[str, Array]) -> Any:
        def never(given: Mapping[str, Array]) -> list[Array]:
            return [jnp.zeros(result.shape, result.dtype) for result in results]

        return lax.cond(_unknown_condition(), function, never, given)

    found: list[Array] = lax.platform_dependent(given, cpu=branch, default=function)
    return found


def _part(
    statements: Sequence[Statement], wanted: Sequence[str], ops: JaxOps, given: Mapping[str, Array]
) -> list[Array]:
    known: dict[Any, Any] = dict(given)
    for target, name, arguments in statements:
        function = _OPERATORS.get(name) or getattr(ops, name)
        known[target] = function(*(known.get(x, x) for x in arguments))
    return [known[name] for name in wanted]


# --- Evaluation, and its derivatives -------------------------------------------------------------


class _How(NamedTuple):
    """What decides which program JAX compiles."""

    function: str  # of `backends.evaluation.FUNCTIONS`, or of its `PLAIN_FUNCTIONS`
    has_table: bool  # whether the lattice is one of numbers, in a table; else its half-periods


def _rows(how: _How, points: Array, given: Array, variables: int) -> tuple[Array, Array]:
    """Values (rows, 2, ...), and slopes (variables, rows, 2, ...), of points (..., 2).

    `given` is a table of constants, or the real and imaginary parts of omega1 and omega3, (..., 4).
    """
    table = given if how.has_table else _prepared(given, variables > 1)
    return _evaluated(how.function, points, table, variables)


@partial(jax.jit, static_argnums=1)
def _prepared(parts: Array, with_slopes: bool) -> Array:
    """A table for each lattice, (..., numbers)."""
    program = preparation_program(_PRECISIONS[parts.dtype.name], with_slopes)
    found = _run(program, JaxOps(parts.dtype), [parts[..., k] for k in range(4)])
    numbers = [jnp.asarray(x, parts.dtype) for x in found]
    return jnp.stack([jnp.broadcast_to(x, parts.shape[:-1]) for x in numbers], -1)


@partial(jax.jit, static_argnums=(0, 3))
def _evaluated(function: str, points: Array, table: Array, variables: int) -> tuple[Array, Array]:
    precision = _PRECISIONS[points.dtype.name]
    which = Evaluation(precision, function, "z", variables, has_slopes(table.shape[-1], precision))
    program = evaluation_program(which)
    # The compiler must not know the numbers: it would reorder products with several of them.
    table = lax.optimization_barrier(table)
    numbers = [table[..., int(name[1:])] for name in program.inputs[2:]]
    found = _run(program, JaxOps(points.dtype), [points[..., 0], points[..., 1], *numbers])
    shape = jnp.broadcast_shapes(points.shape[:-1], table.shape[:-1])
    parts = [jnp.broadcast_to(jnp.asarray(x, points.dtype), shape) for x in found]
    rows = jnp.stack(parts).reshape(1 + variables, -1, 2, *shape)
    return rows[0], rows[1:]


def _plain_values(how: _How, points: Array, given: Array) -> Array:
    """The values of `_rows` in operations that JAX differentiates."""
    ops, precision = KeepingOps(points.dtype), _PRECISIONS[points.dtype.name]
    if how.has_table:
        lattice = from_flat(list(lax.optimization_barrier(given)), precision, 0)
    else:
        parts = [given[..., k] for k in range(4)]
        lattice = constants_of_parts(ops, parts, precision, with_slopes=False)
    x, y = points[..., 0], points[..., 1]
    values, _ = rows_of(ops, how.function, (x, y), "z", lattice, precision, 0)
    shape = x.shape if how.has_table else jnp.broadcast_shapes(x.shape, given.shape[:-1])
    return _stacked(values, shape, points.dtype)


def _stacked(pairs: Sequence[Pair], shape: tuple[int, ...], dtype: Any) -> Array:
    parts = [
        jnp.broadcast_to(jnp.asarray(part, dtype), shape) for x in pairs for part in (x.re, x.im)
    ]
    return jnp.stack(parts).reshape(-1, 2, *shape)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _values(how: _How, points: Array, given: Array) -> Array:
    return _rows(how, points, given, 0)[0]


@partial(_values.defjvp, symbolic_zeros=True)
def _values_jvp(how: _How, primals: Any, tangents: Any) -> Any:
    if how.function in PLAIN_FUNCTIONS:  # these have no slopes by theorem
        return jax.jvp(partial(_plain_values, how), primals, _changes(tangents))
    # Nothing is differentiated in the half-periods unless somebody asks.
    is_fixed = how.has_table or isinstance(tangents[1], SymbolicZero)
    values, slopes = _values_and_slopes(how, 1 if is_fixed else 3, *primals)
    return values, _contracted(slopes, tangents)


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _values_and_slopes(
    how: _How, variables: int, points: Array, given: Array
) -> tuple[Array, Array]:
    """Values and their slopes by theorem."""
    return _rows(how, points, given, variables)


@partial(_values_and_slopes.defjvp, symbolic_zeros=True)
def _values_and_slopes_jvp(how: _How, variables: int, primals: Any, tangents: Any) -> Any:
    """What is differentiated again is differentiated by JAX, through the series."""
    values, slopes = _values_and_slopes(how, variables, *primals)
    of_slopes = _change_of_slopes(how, variables, primals, _changes(tangents))
    return (values, slopes), (_contracted(slopes, tangents), of_slopes)


def _change_of_slopes(how: _How, variables: int, primals: Any, changes: Any) -> Array:
    """Operation by operation unless the caller compiles: as a whole it takes minutes to compile."""
    change: Array = jax.jvp(partial(_plain_slopes, how, variables), primals, changes)[1]
    return change


def _changes(tangents: Any) -> tuple[Array, ...]:
    return tuple(
        jnp.zeros(x.shape, x.dtype) if isinstance(x, SymbolicZero) else x for x in tangents
    )


def _contracted(slopes: Array, tangents: Any) -> Array:
    """The sum of slope times change, over z and, if there are slopes in them, the half-periods."""
    changes = [] if isinstance(tangents[0], SymbolicZero) else [(slopes[0], tangents[0])]
    if len(slopes) == 3:
        changes += [(slopes[k], tangents[1][..., 2 * k - 2 : 2 * k]) for k in (1, 2)]
    total: Any = jnp.zeros_like(slopes[0])
    for slope, change in changes:
        a, b, dx, dy = slope[:, 0], slope[:, 1], change[..., 0], change[..., 1]
        total = total + jnp.stack((a * dx - b * dy, a * dy + b * dx), 1)
    return total


def _plain_slopes(how: _How, variables: int, points: Array, given: Array) -> Array:
    """The slopes of `_values_and_slopes`, by differentiating the series."""
    shape = (
        points.shape[:-1]
        if how.has_table
        else jnp.broadcast_shapes(points.shape[:-1], given.shape[:-1])
    )
    points = jnp.broadcast_to(points, (*shape, 2))
    if not how.has_table:  # each point gets half-periods of its own
        given = jnp.broadcast_to(given, (*shape, 4))

    def real_parts(points: Array, given: Array) -> Array:
        return _plain_values(how, points, given)[:, 0]

    values, pull = jax.vjp(real_parts, points, given)
    by_row = []
    for row in range(len(values)):
        in_points, in_given = pull(jnp.zeros_like(values).at[row].set(1.0))
        parts = [in_points] + ([in_given[..., :2], in_given[..., 2:]] if variables == 3 else [])
        # f' is u_x - i u_y for f = u + i v; for the real Green function that is its slope too.
        by_row.append([jnp.stack((g[..., 0], -g[..., 1])) for g in parts])
    return jnp.stack([jnp.stack(of_variable) for of_variable in zip(*by_row, strict=True)])


# --- Arguments -----------------------------------------------------------------------------------


def _as_array(z: Any) -> Array:
    check_unmasked(z)
    try:
        array = jnp.asarray(z)
    except (TypeError, ValueError) as error:
        reason = instead_of_exact(z) or f": {error}"
        raise InputTypeError(f"cannot make an array of {z!r:.80}{reason}") from error
    if array.dtype == bool or not jnp.issubdtype(array.dtype, jnp.number):
        raise InputTypeError(
            f"dtype {array.dtype} cannot be evaluated; use floats, complex numbers or integers"
        )
    return array


def _real_dtype(*arrays: Array) -> Any:
    """The real dtype in which these are computed: that of the widest."""
    kinds = [jnp.float32]
    for array in arrays:
        kind = array.dtype
        # Integers count as JAX's default dtype, half precision is computed in float32.
        kinds.append(jnp.result_type(float) if jnp.issubdtype(kind, jnp.integer) else kind)
    return jnp.finfo(jnp.result_type(*kinds)).dtype


def _as_pair(z: Any, dtype: Any) -> Pair:
    array = _as_array(z)
    real, imag = jnp.real(array).astype(dtype), jnp.imag(array).astype(dtype)
    return Pair(real, imag)


def _as_complex(value: Pair) -> Array:
    return lax.complex(*jnp.broadcast_arrays(value.re, value.im))


def _parts(lattice: Lattice, dtype: Any) -> Array:
    """The real and imaginary parts of omega1 and omega3, (..., 4)."""
    pairs = [_as_pair(omega, dtype) for omega in _half_periods(lattice)]
    return jnp.stack(jnp.broadcast_arrays(*(x for p in pairs for x in (p.re, p.im))), -1)


def _half_periods(lattice: Lattice) -> tuple[Any, Any]:
    for omega in (lattice.omega1, lattice.omega3):
        if not isinstance(omega, (Array, numbers.Complex)):
            raise InputError(
                f"the jax backend takes half-periods as numbers or JAX arrays, not {type(omega)}"
            )
    return lattice.omega1, lattice.omega3


@lru_cache(maxsize=512)
def _table(lattice: Lattice, precision: Precision) -> npt.NDArray[Any]:
    """The constants of a lattice of numbers. An array of NumPy, which no transformation traces."""
    # The matrix leads to slopes in half-periods, which numbers do not have: any one will do.
    prepared = PreparedLattice(prepare_numbers(lattice, precision), ((1.0, 0.0), (0.0, 1.0)))
    return np.array(flat_constants(prepared), precision.name)


class JaxBackend(
    HeatOfArrays[Array],
    ArrayJacobiFunctions[Array],
    FunctionsByName[Array],
    AbstractBackend[Array],
):
    """Weierstrass functions of JAX's arrays, with gradients in z, omega1 and omega3.

    complex64 and complex128 arrays keep their dtype; real ones give the complex dtype of the same
    precision (half precision is computed in float32); integers and Python numbers count as JAX's
    default dtype. That is single precision, unless ``jax_enable_x64`` is set.
    """

    name = "jax"

    @property
    def capabilities(self) -> BackendCapabilities:
        return BackendCapabilities(
            dtypes=("complex128", "complex64") if jax.config.jax_enable_x64 else ("complex64",),
            devices=tuple(dict.fromkeys(device.platform for device in jax.devices())),
            differentiable_in_z=True,
            differentiable_in_lattice=True,
            gradients_by="jax",
            compiles=True,
        )

    def from_numpy(self, array: Any, device: str | None = None) -> Array:
        place = None if device is None else jax.devices(device)[0]
        return jax.device_put(array, place)

    def laurent_coefficients(self, lattice: Lattice, count: int) -> Array:
        check_lattice(lattice)
        count = check_count(count)
        if lattice.holds_tensors:
            found = laurent_from_invariants(*self.invariants(lattice), count)
            return jnp.stack(jnp.broadcast_arrays(*found), -1)
        return jnp.asarray([complex(x) for x in laurent_coefficients(lattice, count)])

    def invariants(self, lattice: Lattice) -> tuple[Array, Array]:
        if isinstance(lattice, DegenerateLattice):
            g2, g3 = map(self._number, lattice.invariants)
            return g2, g3
        check_lattice(lattice)
        if lattice.holds_tensors:
            g2, g3 = (_as_complex(g) for g in _reduced(lattice).invariants())
            return g2, g3
        known = lattice_constants(lattice)
        return _scalar(known.g2), _scalar(known.g3)

    def roots(self, lattice: Lattice) -> tuple[Array, Array, Array]:
        if isinstance(lattice, DegenerateLattice):
            e1, e2, e3 = map(self._number, lattice.roots)
            return e1, e2, e3
        check_lattice(lattice)
        if lattice.holds_tensors:
            e1, e2, e3 = (_as_complex(root) for root in _reduced(lattice).roots())
            return e1, e2, e3
        e1, e2, e3 = (_scalar(root) for root in lattice_constants(lattice).roots)
        return e1, e2, e3

    def quasi_periods(self, lattice: Lattice) -> tuple[Array, Array]:
        check_lattice(lattice)
        if lattice.holds_tensors:
            eta1, eta3 = (_as_complex(eta) for eta in _reduced(lattice).quasi_periods())
            return eta1, eta3
        known = lattice_constants(lattice)
        return _scalar(known.eta1), _scalar(known.eta3)

    def lattice_from_invariants(self, g2: Any, g3: Any) -> Lattice:
        if not isinstance(g2, Array) and not isinstance(g3, Array):
            return Lattice.from_invariants(g2, g3)
        dtype = _real_dtype(_as_array(g2), _as_array(g3))
        first, second = _as_pair(g2, dtype), _as_pair(g3, dtype)
        precision = _PRECISIONS[jnp.dtype(dtype).name]
        omegas = modular_arrays.invert_invariants(KeepingOps(dtype), first, second, precision)
        return Lattice(*(_as_complex(omega) for omega in omegas))

    def lattice_sum(self, z: Any, lattice: Lattice, m_max: int, n_max: int) -> tuple[Array, Array]:
        m_max, n_max = check_truncation(m_max, n_max)
        check_lattice(lattice)
        dtype = _real_dtype(_as_array(z))
        ops, x = KeepingOps(dtype), _as_pair(z, dtype)
        m = jnp.arange(-m_max, m_max + 1, dtype=dtype)
        # A batch of lattices goes along z, not along the columns of a row.
        omega1, omega3 = (
            Pair(w.re[..., None], w.im[..., None])
            for w in (_as_pair(omega, dtype) for omega in _half_periods(lattice))
        )
        sums = algebra.lattice_sum(ops, x, omega1, omega3, m, ops.as_weight(m == 0), n_max)
        wp, wp_prime = (_as_complex(value) for value in sums)
        return wp, wp_prime

    def add(self, p1: Any, dp1: Any, p2: Any, dp2: Any, lattice: Lattice) -> tuple[Array, Array]:
        check_lattice(lattice)

        def sums(ops: JaxOps, a: Pair, da: Pair, b: Pair, db: Pair, precision: Precision) -> Any:
            dtype = a.re.dtype
            g2: Any
            unit: Any
            if lattice.holds_tensors:
                g2, unit = _reduced(lattice).g2_in_units()
                g2, unit = Pair(g2.re.astype(dtype), g2.im.astype(dtype)), unit.astype(dtype)
            else:
                known, unit = g2_in_units(lattice)
                g2 = Pair(known.real, known.imag)
            return algebra.add_points(ops, (a, da), (b, db), g2, unit)

        p, dp = self._elementwise(sums, p1, dp1, p2, dp2)
        return p, dp

    def _values(
        self, function: Callable[..., Any], z: Any, lattice: Lattice, outputs: int
    ) -> tuple[Array, ...]:
        def on_lattice(ops: JaxOps, z: Pair, precision: Precision) -> Any:
            return function(ops, z, prepared_for(function, lattice, precision), precision)

        return self._elementwise(on_lattice, z)

    def _elementwise(self, function: Callable[..., Any], *arguments: Any) -> tuple[Array, ...]:
        """Complex values of ``function(ops, *pairs, precision)`` at arguments that broadcast.

        The function returns a `Pair` or a tuple of them. Precision is that of the widest argument.
        """
        dtype = _real_dtype(*(_as_array(argument) for argument in arguments))
        pairs = [_as_pair(argument, dtype) for argument in arguments]
        values = function(KeepingOps(dtype), *pairs, _PRECISIONS[jnp.dtype(dtype).name])
        values = (values,) if isinstance(values, Pair) else values
        return tuple(_as_complex(value) for value in values)

    def _number(self, value: complex) -> Array:
        return _scalar(value)

    def _constants_of(self, lattice: Lattice, precision: Precision) -> SeriesConstants:
        if not lattice.holds_tensors:
            return prepare_numbers(lattice, precision)
        table = _parts(lattice, precision.name)
        parts = [table[..., k] for k in range(4)]
        return constants_of_parts(KeepingOps(table.dtype), parts, precision, False).constants

    def _evaluate(self, function: str, z: Any, lattice: Lattice) -> tuple[Array, ...]:
        check_lattice(lattice)
        dtype = _real_dtype(_as_array(z))
        pair = _as_pair(z, dtype)
        points = jnp.stack((pair.re, pair.im), -1)
        given: Any
        if lattice.holds_tensors:
            given = _parts(lattice, dtype)
        else:
            function = name_on(lattice, function)
            given = _table(lattice, _PRECISIONS[jnp.dtype(dtype).name])
        how = _How(function, has_table=not lattice.holds_tensors)
        rows = _values(how, points, given)
        return tuple(lax.complex(row[0], row[1]) for row in rows)


def _reduced(lattice: Lattice) -> ReducedLattice:
    omegas = _half_periods(lattice)
    dtype = _real_dtype(*(omega for omega in omegas if isinstance(omega, Array)))
    omega1, omega3 = (_as_pair(omega, dtype) for omega in omegas)
    precision = _PRECISIONS[jnp.dtype(dtype).name]
    return ReducedLattice.of(KeepingOps(dtype), omega1, omega3, precision)


def _scalar(value: Any) -> Array:
    return jnp.asarray(complex(value))
