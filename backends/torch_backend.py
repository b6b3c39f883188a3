"""PyTorch backend (CPU, CUDA and other devices): differentiable, compilable, exportable.

The kernel is the one NumPy runs. Derivatives of any order come from autograd through its
series, which is exact near poles too, because every term there is. A lattice of numbers is
prepared on the host, once; a lattice of tensors on the device (`backends.torch_lattice`).
Nothing waits for the device, and nothing branches on data.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from backends import algebra, kernel, torch_modular
from backends.constants import (
    DOUBLE,
    SINGLE,
    Precision,
    SeriesConstants,
    SplitComplex,
    SplitReal,
    g2_in_units,
    map_reals,
    prepare_numbers,
)
from backends.pair import Pair
from backends.torch_lattice import prepare_tensors, reduce_basis
from backends.torch_ops import PRECISIONS, TorchOps, as_complex, as_pair, wider, without_autocast
from wefpe_core.backend import AbstractBackend, check_lattice, check_truncation
from wefpe_core.errors import InputError
from wefpe_core.lattice import Lattice
from wefpe_core.lattice_constants import lattice_constants

KernelFunction = Callable[[TorchOps, Pair, SeriesConstants, Precision], Any]


class TorchBackend(AbstractBackend[Tensor]):
    """Weierstrass functions of torch tensors, with gradients in z, omega1 and omega3.

    Parameters
    ----------
    compile
        Compile each function with ``torch.compile``. It pays from some ten thousand points
        on; the first call of each function takes seconds.

    Notes
    -----
    complex64 and complex128 tensors keep their dtype; real ones give the complex dtype of the
    same precision (half precision is computed in float32); integers count as torch's default
    dtype, Python numbers as double precision. A complex64 argument is computed in
    float32 throughout, so devices without float64 work.
    """

    name = "torch"

    def __init__(self, compile: bool = False) -> None:  # noqa: A002 - torch's own word
        if not isinstance(compile, bool):
            raise InputError(f"compile must be True or False, got {compile!r}")
        self._compile = compile

    def wp_and_prime(self, z: Any, lattice: Lattice) -> tuple[Tensor, Tensor]:
        wp, wp_prime = self._evaluate(kernel.wp_and_prime, z, lattice)
        return wp, wp_prime

    def zeta(self, z: Any, lattice: Lattice) -> Tensor:
        return self._evaluate(kernel.zeta, z, lattice)[0]

    def sigma(self, z: Any, lattice: Lattice) -> Tensor:
        return self._evaluate(kernel.sigma, z, lattice)[0]

    def inverse_wp(self, w: Any, lattice: Lattice) -> Tensor:
        return self._evaluate(algebra.inverse_wp, w, lattice)[0]

    def green(self, z: Any, lattice: Lattice) -> Tensor:
        return self._evaluate(kernel.green, z, lattice)[0]

    def invariants(self, lattice: Lattice) -> tuple[Tensor, Tensor]:
        check_lattice(lattice)
        if lattice.holds_tensors:
            return torch_modular.invariants(lattice)
        return _host_tensors(_known_values(lattice).invariants)

    def roots(self, lattice: Lattice) -> tuple[Tensor, Tensor, Tensor]:
        check_lattice(lattice)
        if lattice.holds_tensors:
            return torch_modular.roots(lattice)
        return _host_tensors(_known_values(lattice).roots)

    def quasi_periods(self, lattice: Lattice) -> tuple[Tensor, Tensor]:
        check_lattice(lattice)
        if lattice.holds_tensors:
            return torch_modular.quasi_periods(lattice)
        return _host_tensors(_known_values(lattice).quasi_periods)

    def lattice_from_invariants(self, g2: Any, g3: Any) -> Lattice:
        if isinstance(g2, Tensor) or isinstance(g3, Tensor):
            return torch_modular.invert_invariants(g2, g3)
        return Lattice.from_invariants(g2, g3)

    def lattice_sum(
        self, z: Any, lattice: Lattice, m_max: int, n_max: int
    ) -> tuple[Tensor, Tensor]:
        m_max, n_max = check_truncation(m_max, n_max)
        check_lattice(lattice)
        x = as_pair(z)
        dtype, device = x.re.dtype, x.re.device
        m = torch.arange(-m_max, m_max + 1, dtype=dtype, device=device)
        # A batch of lattices goes along z, not along the columns of a row.
        omega1, omega3 = (Pair(w.re[..., None], w.im[..., None]) for w in _half_periods(lattice, x))
        with without_autocast(device):
            origin = (m == 0).to(dtype)
            sums = algebra.lattice_sum(TorchOps(dtype), x, omega1, omega3, m, origin, n_max)
        wp, wp_prime = (as_complex(value) for value in sums)
        return wp, wp_prime

    def add(self, p1: Any, dp1: Any, p2: Any, dp2: Any, lattice: Lattice) -> tuple[Tensor, Tensor]:
        pairs = [as_pair(value) for value in (p1, dp1, p2, dp2)]
        dtype = wider(*(pair.re.dtype for pair in pairs))
        device = pairs[0].re.device
        a, da, b, db = (Pair(pair.re.to(dtype), pair.im.to(dtype)) for pair in pairs)
        check_lattice(lattice)
        g2: Any
        unit: Any
        if lattice.holds_tensors:
            g2, unit = torch_modular.g2_in_units(lattice)
            unit = unit.to(dtype).to(device)
        else:
            g2, unit = _known_values(lattice).g2_in_units
        g2 = as_pair(g2, dtype, device)
        with without_autocast(device):
            sums = algebra.add_points(TorchOps(dtype), (a, da), (b, db), g2, unit)
        p, dp = (as_complex(value) for value in sums)
        return p, dp

    def _evaluate(self, function: KernelFunction, z: Any, lattice: Lattice) -> tuple[Tensor, ...]:
        check_lattice(lattice)
        x = as_pair(z)
        with without_autocast(x.re.device):
            if self._compile and (not lattice.holds_tensors or _is_single(lattice)):
                parts = _evaluate_compiled(function, x, lattice)
            elif lattice.holds_tensors:
                parts = _evaluate_on_tensors(function, x, lattice, self._compile)
            else:
                parts = _evaluate_on_numbers(function, x, lattice)
            return tuple(as_complex(p) if isinstance(p, Pair) else p for p in parts)


def _evaluate_on_numbers(function: KernelFunction, x: Pair, lattice: Lattice) -> tuple[Any, ...]:
    """Without compilation, on a lattice of numbers: its constants are Python numbers."""
    precision = PRECISIONS[x.re.dtype]
    constants = _constants(lattice, precision)
    return _as_tuple(function(TorchOps(x.re.dtype), x, constants, precision))


def _evaluate_on_tensors(
    function: KernelFunction, x: Pair, lattice: Lattice, compiled: bool
) -> tuple[Any, ...]:
    """On a lattice of tensors: its constants are made in the graph of the values.

    Compiled, this serves batches of lattices, whose constants broadcast against the points.
    """
    run = _compiled(_on_tensors, function) if compiled else _on_tensors
    omega1, omega3 = _half_periods(lattice, x)
    return run(function, x.re, x.im, omega1.re, omega1.im, omega3.re, omega3.im)


def _evaluate_compiled(function: KernelFunction, x: Pair, lattice: Lattice) -> tuple[Any, ...]:
    """Compiled, on one lattice: its constants enter as one tensor, a table.

    The preparation of a lattice is not compiled with the rest: it is done once for all points,
    and its derivative in the same graph took many minutes to compile.
    """
    if lattice.holds_tensors:
        table = _table_of_tensors(lattice, x)
    else:
        table = _table_of_numbers(lattice, x.re.dtype, x.re.device)
    # One dimension and one stride: one compilation serves every shape. (A single element with
    # the stride of a complex number counts as contiguous; a copy does not have that stride.)
    flat = (part.reshape(-1).clone(memory_format=torch.contiguous_format) for part in (x.re, x.im))
    parts = _compiled(_on_table, function)(function, *flat, table)
    return tuple(map_reals(part, lambda t: t.reshape(x.re.shape)) for part in parts)


def _as_tuple(values: Any) -> tuple[Any, ...]:
    return values if isinstance(values, tuple) else (values,)


def _constants(lattice: Lattice, precision: Precision) -> SeriesConstants:
    """The constants of a lattice of numbers; a traced graph contains only their values."""
    return prepare_numbers(lattice, precision)


class _KnownValues(NamedTuple):
    """What a lattice of numbers determines, in the basis given."""

    invariants: tuple[complex, complex]
    roots: tuple[complex, complex, complex]
    quasi_periods: tuple[complex, complex]
    g2_in_units: tuple[complex, float]


def _known_values(lattice: Lattice) -> _KnownValues:
    known = lattice_constants(lattice)
    return _KnownValues(
        invariants=(complex(known.g2), complex(known.g3)),
        roots=(complex(known.roots.e1), complex(known.roots.e2), complex(known.roots.e3)),
        quasi_periods=(complex(known.eta1), complex(known.eta3)),
        g2_in_units=g2_in_units(lattice),
    )


def _host_tensors(values: tuple[complex, ...]) -> Any:
    return tuple(torch.tensor(value, dtype=torch.complex128, device="cpu") for value in values)


# What the decorator torch.compiler.assume_constant_result sets. Using the decorator would import
# the whole compiler with this module; the compile tests fail if torch renames the mark.
_constants._dynamo_marked_constant = True  # type: ignore[attr-defined]
_known_values._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _on_tensors(function: KernelFunction, x: Tensor, y: Tensor, *half_periods: Tensor) -> Any:
    omega1, omega3 = Pair(*half_periods[:2]), Pair(*half_periods[2:])
    constants = _prepared(omega1, omega3, x.dtype)
    return _as_tuple(function(TorchOps(x.dtype), Pair(x, y), constants, PRECISIONS[x.dtype]))


def _prepared(omega1: Pair, omega3: Pair, dtype: torch.dtype) -> SeriesConstants:
    ops, precision = TorchOps(dtype), PRECISIONS[dtype]
    return prepare_tensors(ops, reduce_basis(ops, omega1, omega3, precision), precision)


def _on_table(function: KernelFunction, x: Tensor, y: Tensor, table: Tensor) -> Any:
    precision = PRECISIONS[x.dtype]
    values = iter(table.unbind())
    constants = map_reals(_TEMPLATES[precision.name], lambda _: next(values))
    return _as_tuple(function(TorchOps(x.dtype), Pair(x, y), constants, precision))


# Any lattice shows how the numbers of a table are laid out.
_TEMPLATES = {
    precision.name: prepare_numbers(Lattice(1.0, 1.0j), precision) for precision in (SINGLE, DOUBLE)
}


@lru_cache(maxsize=512)
def _table_of_numbers(lattice: Lattice, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The constants of a lattice of numbers as one tensor, copied to the device once."""
    numbers: list[float] = []
    map_reals(prepare_numbers(lattice, PRECISIONS[dtype]), numbers.append)
    # The table outlives the call; one made in inference mode could never serve a training step.
    with torch.inference_mode(False):
        return torch.tensor(numbers, dtype=dtype, device=device)


def _is_single(lattice: Lattice) -> bool:
    """Whether a lattice of tensors is one lattice, not a batch of them."""
    return all(getattr(omega, "ndim", 0) == 0 for omega in (lattice.omega1, lattice.omega3))


def _table_of_tensors(lattice: Lattice, like: Pair) -> Tensor:
    """The constants of a lattice of tensors as one tensor, which carries their derivatives."""
    constants = _prepared(*_half_periods(lattice, like), like.re.dtype)
    values: list[Tensor] = []
    map_reals(_in_layout_of_numbers(constants, PRECISIONS[like.re.dtype]), values.append)
    return torch.stack(values)


def _in_layout_of_numbers(constants: Any, precision: Precision) -> Any:
    """Constants of tensors, padded by zeros to as many pieces as constants of numbers have."""
    if isinstance(constants, SplitReal):
        missing = precision.low_count - len(constants.low)
        return constants._replace(low=constants.low + (constants.lowest,) * missing)
    if isinstance(constants, (SplitComplex, SeriesConstants)):
        return type(constants)(*(_in_layout_of_numbers(item, precision) for item in constants))
    return constants


_COMPILER_OPTIONS: dict[str, str | int | bool | Callable[..., Any]] = {
    # One fused loop: intermediate results stay in registers instead of passing through memory.
    "max_fusion_size": 1024,
    # Fused multiply-adds, as on a GPU; the argument reduction is correct with and without them.
    "cpp.enable_floating_point_contract_flag": "fast",
}


@cache
def _compiled(run: Callable[..., Any], function: KernelFunction) -> Callable[..., Any]:
    """`run`, compiled separately for each kernel function."""

    def specialised(function: KernelFunction, *tensors: Tensor) -> Any:
        return run(function, *tensors)

    # A code object of its own: torch counts (and limits) recompilations by code object.
    specialised.__code__ = specialised.__code__.replace(co_name=function.__name__)
    return torch.compile(specialised, fullgraph=True, dynamic=True, options=_COMPILER_OPTIONS)


def _half_periods(lattice: Lattice, like: Pair) -> tuple[Pair, Pair]:
    dtype, device = like.re.dtype, like.re.device
    return as_pair(lattice.omega1, dtype, device), as_pair(lattice.omega3, dtype, device)
