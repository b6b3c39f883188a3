"""PyTorch backend (CPU, CUDA and other devices): differentiable, compilable, exportable.

The kernel is the one NumPy runs, and on a CPU NumPy runs it. First derivatives come by theorem
(`backends.slopes`), further ones from autograd through the series. A lattice of numbers is
prepared on the host, once; a lattice of tensors on its device (`backends.preparation`).
Nothing waits for the device, and nothing branches on data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from backends import algebra, torch_modular
from backends.array_family import FunctionsByName
from backends.constants import (
    Precision,
    SeriesConstants,
    g2_in_units,
    prepare_numbers,
    prepared_for,
)
from backends.evaluation import PLAIN_FUNCTIONS, name_on
from backends.jacobi_arrays import ArrayJacobiFunctions
from backends.pair import Pair
from backends.torch_operators import (
    evaluate_on_parts,
    needs_plain_torch,
    plain_values_on_numbers,
    table_of_numbers,
)
from backends.torch_ops import (
    PRECISIONS,
    TorchOps,
    as_complex,
    as_pair,
    as_parts,
    as_points,
    wider,
    without_autocast,
)
from wefpe_core.backend import (
    AbstractBackend,
    BackendCapabilities,
    check_count,
    check_lattice,
    check_truncation,
)
from wefpe_core.degenerate_lattice import DegenerateLattice
from wefpe_core.errors import InputError
from wefpe_core.jacobi_functions import is_number
from wefpe_core.lattice import Lattice
from wefpe_core.lattice_constants import lattice_constants, laurent_coefficients
from wefpe_core.modular import laurent_from_invariants


class TorchBackend(
    ArrayJacobiFunctions[Tensor],
    FunctionsByName[Tensor],
    AbstractBackend[Tensor],
):
    """Weierstrass functions of torch tensors, with gradients in z, omega1 and omega3.

    Parameters
    ----------
    compile
        Compile each function with ``torch.compile``. It pays from some ten thousand points
        on; the first call of each function takes from seconds to a minute or more. What further
        derivatives and the transforms of ``torch.func`` ask for is computed without it.

    Notes
    -----
    complex64 and complex128 tensors keep their dtype; real ones give the complex dtype of the
    same precision (half precision is computed in float32); integers count as torch's default
    dtype, Python numbers as double precision. A complex64 argument is computed in
    float32 throughout, so devices without float64 work.
    """

    name = "torch"

    @property
    def capabilities(self) -> BackendCapabilities:
        return BackendCapabilities(
            dtypes=("complex128", "complex64"),
            devices=("cpu", "cuda") if torch.cuda.is_available() else ("cpu",),
            differentiable_in_z=True,
            differentiable_in_lattice=True,
            gradients_by="torch",
            compiles=True,
        )

    def from_numpy(self, array: Any, device: str | None = None) -> Tensor:
        return torch.from_numpy(array.copy()).to(device or "cpu")

    def to_numpy(self, value: Tensor) -> Any:
        return value.detach().resolve_conj().cpu().numpy()

    def __init__(self, compile: bool = False) -> None:  # noqa: A002 - torch's own word
        if not isinstance(compile, bool):
            raise InputError(f"compile must be True or False, got {compile!r}")
        self._compile = compile

    def laurent_coefficients(self, lattice: Lattice, count: int) -> Tensor:
        check_lattice(lattice)
        count = check_count(count)
        if lattice.holds_tensors:
            g2, g3 = torch_modular.invariants(lattice)
            found = laurent_from_invariants(g2, g3, count)
            return torch.stack(torch.broadcast_tensors(*found), -1)
        return torch.tensor(
            _known_coefficients(lattice, count), dtype=torch.complex128, device="cpu"
        )

    def invariants(self, lattice: Lattice) -> tuple[Tensor, Tensor]:
        if isinstance(lattice, DegenerateLattice):
            g2, g3 = map(self._number, lattice.invariants)
            return g2, g3
        check_lattice(lattice)
        if lattice.holds_tensors:
            return torch_modular.invariants(lattice)
        return _host_tensors(_known_values(lattice).invariants)

    def roots(self, lattice: Lattice) -> tuple[Tensor, Tensor, Tensor]:
        if isinstance(lattice, DegenerateLattice):
            e1, e2, e3 = map(self._number, lattice.roots)
            return e1, e2, e3
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
        check_lattice(lattice)
        given = torch_modular.g2_in_units(lattice) if lattice.holds_tensors else None

        def sums(ops: TorchOps, a: Pair, da: Pair, b: Pair, db: Pair, precision: Precision) -> Any:
            dtype, device = a.re.dtype, a.re.device
            g2: Any
            unit: Any
            g2, unit = given or _known_values(lattice).g2_in_units
            if isinstance(unit, Tensor):
                unit = unit.to(dtype).to(device)
            return algebra.add_points(ops, (a, da), (b, db), as_pair(g2, dtype, device), unit)

        p, dp = self._elementwise(sums, p1, dp1, p2, dp2)
        return p, dp

    def _values(
        self, function: Callable[..., Any], z: Any, lattice: Lattice, outputs: int
    ) -> tuple[Tensor, ...]:
        def on_lattice(ops: TorchOps, z: Pair, precision: Precision) -> Any:
            return function(ops, z, prepared_for(function, lattice, precision), precision)

        return self._elementwise(on_lattice, z)

    def _elementwise(self, function: Callable[..., Any], *arguments: Any) -> tuple[Tensor, ...]:
        """Complex values of ``function(ops, *pairs, precision)`` at arguments that broadcast.

        The function returns a `Pair` or a tuple of them. Precision is that of the widest argument,
        the device that of the first one.
        """
        pairs = [as_pair(argument) for argument in arguments]
        dtype = wider(*(pair.re.dtype for pair in pairs))
        with without_autocast(pairs[0].re.device):
            cast = [Pair(pair.re.to(dtype), pair.im.to(dtype)) for pair in pairs]
            values = function(TorchOps(dtype), *cast, PRECISIONS[dtype])
        return tuple(
            as_complex(value) for value in ((values,) if isinstance(values, Pair) else values)
        )

    def _number(self, value: complex) -> Tensor:
        return torch.tensor(value, dtype=torch.complex128, device="cpu")

    def heat(self, z: Any, t: Any, lattice: Lattice) -> Tensor:
        return torch.exp(self.log_heat(z, t, lattice))

    def log_heat(self, z: Any, t: Any, lattice: Lattice) -> Tensor:
        return self._at_points("log_heat", _with_time(as_points(z), t), lattice)[0].real

    def _evaluate(self, function: str, z: Any, lattice: Lattice) -> tuple[Tensor, ...]:
        """The complex rows of a function of `backends.torch_operators`."""
        return self._at_points(function, as_points(z), lattice)

    def _at_points(self, function: str, points: Tensor, lattice: Lattice) -> tuple[Tensor, ...]:
        check_lattice(lattice)
        with without_autocast(points.device):
            if lattice.holds_tensors:
                omega = as_parts(lattice, points.dtype, points.device)
                values = self._on_tensors(function, points, omega)
            else:
                values = self._on_numbers(function, points, lattice)
            # A copy, not `contiguous`, which leaves strange strides to dimensions of length 1.
            parts = values.movedim(1, -1).clone(memory_format=torch.contiguous_format)
            return torch.view_as_complex(parts).unbind()

    def _on_numbers(self, function: str, points: Tensor, lattice: Lattice) -> Tensor:
        function = _name_on(lattice, function)
        is_plain = function in PLAIN_FUNCTIONS or needs_plain_torch()
        if is_plain or torch.compiler.is_compiling() or _is_recorded(points):
            # In a graph the constants are numbers, and a compiler fuses what is done with them.
            # A table made there would have no data, and would be kept for later calls.
            constants = _constants(lattice, PRECISIONS[points.dtype])
            return plain_values_on_numbers(points, constants, function)
        variables = int(points.requires_grad and torch.is_grad_enabled())
        table = table_of_numbers(lattice, points.dtype, points.device)
        how = (function, "z", variables, self._compile)
        values: Tensor = torch.ops.wefpe.evaluate(points, None, table, *how)[0]
        return values

    def _on_tensors(self, function: str, points: Tensor, omega: Tensor) -> Tensor:
        return evaluate_on_parts(points, omega, function, "z", self._compile)


def _with_time(points: Tensor, t: Any) -> Tensor:
    """x, y and t side by side, (..., 3), in the wider precision; a complex time is none."""
    # A number has no precision of its own.
    time = as_pair(t, points.dtype, points.device) if is_number(t) else as_pair(t)
    times = torch.where(time.im == 0.0, time.re, float("nan"))[..., None].to(points.device)
    dtype = wider(points.dtype, times.dtype)
    shape = torch.broadcast_shapes(points.shape[:-1], times.shape[:-1])
    return torch.cat([x.to(dtype).expand(*shape, -1) for x in (points, times)], -1)


def _is_recorded(points: Tensor) -> bool:
    """Whether torch computes shapes only, or writes operators down, outside its compiler."""
    mode, key = torch._C._get_dispatch_mode, torch._C._TorchDispatchModeKey
    is_in_mode = mode(key.FAKE) is not None or mode(key.PROXY) is not None
    return is_in_mode or isinstance(points, torch._subclasses.FakeTensor)


def _constants(lattice: Lattice, precision: Precision) -> SeriesConstants:
    """The constants of a lattice of numbers; a traced graph contains only their values."""
    return prepare_numbers(lattice, precision)


def _name_on(lattice: Lattice, function: str) -> str:
    return name_on(lattice, function)


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


def _known_coefficients(lattice: Lattice, count: int) -> list[complex]:
    return [complex(value) for value in laurent_coefficients(lattice, count)]


def _host_tensors(values: tuple[complex, ...]) -> Any:
    return tuple(torch.tensor(value, dtype=torch.complex128, device="cpu") for value in values)


# What the decorator torch.compiler.assume_constant_result sets. Using the decorator would import
# the whole compiler with this module; the compile tests fail if torch renames the mark.
_constants._dynamo_marked_constant = True  # type: ignore[attr-defined]
_name_on._dynamo_marked_constant = True  # type: ignore[attr-defined]
_known_coefficients._dynamo_marked_constant = True  # type: ignore[attr-defined]
_known_values._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _half_periods(lattice: Lattice, like: Pair) -> tuple[Pair, Pair]:
    dtype, device = like.re.dtype, like.re.device
    return as_pair(lattice.omega1, dtype, device), as_pair(lattice.omega3, dtype, device)
