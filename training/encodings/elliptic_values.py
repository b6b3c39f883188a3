"""Elliptic functions at patch positions, by any backend, as real tensors.

On a learned lattice torch evaluates them, with gradients. On a fixed one any backend may evaluate
them, in float64 on the host; to torch's compiler the results are constants.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from backends.torch_operators import values_at_coordinates
from training.encodings.grid import (
    Grid,
    Offsets,
    coincident_offsets,
    grid_offsets,
    patch_centres,
)
from training.encodings.learned_lattice import HalfPeriods
from wefpe_core import AbstractBackend, Lattice, get_backend
from wefpe_core.registry import NumericBackendName

# Digits beyond double precision, so that what is cast is correctly rounded.
_OPTIONS: dict[str, dict[str, Any]] = {"mpmath": {"dps": 25}}
_TORCH = get_backend("torch")
_HOST = torch.device("cpu")


class Values(NamedTuple):
    """Real and imaginary parts of wp and wp'."""

    p_re: Tensor
    p_im: Tensor
    dp_re: Tensor
    dp_im: Tensor


class Frame(NamedTuple):
    """How a grid lies on a lattice: z = 2 (alpha_u u omega1 + alpha_v v omega3).

    On rectangular lattices this is eq. complex_mapping of the paper, with a pole in the corner of
    the grid. A centred grid has the half-period omega1 + omega3 in its middle.
    """

    grid: Grid
    alpha_u: float
    alpha_v: float
    is_centred: bool = False

    def centres(self, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
        """u and v of the patch centres, from 0 to 1 unless the grid is centred."""
        u, v = patch_centres(self.grid, dtype, device)
        if not self.is_centred:
            return u, v
        return u + (0.5 / self.alpha_u - 0.5), v + (0.5 / self.alpha_v - 0.5)

    def coordinates(self, dtype: torch.dtype, device: torch.device) -> Tensor:
        """s and t of the patch centres z = s omega1 + t omega3, (patches, 2)."""
        return torch.stack(self._in_half_periods(*self.centres(dtype, device)), -1)

    def offset_coordinates(self, dtype: torch.dtype, device: torch.device) -> Tensor:
        """s and t of the displacements of the grid; periods are moved as in `differences`."""
        along, down, _ = self.differences(dtype, device)
        return torch.stack(self._in_half_periods(along, down), -1)

    def _in_half_periods(self, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return (2.0 * self.alpha_u) * u, (2.0 * self.alpha_v) * v

    def on(self, lattice: HalfPeriods | Lattice, u: Tensor, v: Tensor) -> Tensor:
        """The points z of u and v, which are patch centres or differences of them."""
        along, down = self._in_half_periods(u, v)
        if isinstance(lattice, HalfPeriods):
            x = along * lattice.omega1 + down * lattice.omega3_re
            return torch.complex(x, down * lattice.omega3_im)
        omega1, omega3 = complex(lattice.omega1), complex(lattice.omega3)
        x = along * omega1.real + down * omega3.real
        return torch.complex(x, along * omega1.imag + down * omega3.imag)

    def differences(
        self, dtype: torch.dtype, device: torch.device
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Displacements as shares of width and height, and which of them are 0 or whole periods.

        These are moved to a harmless place, since both the value at a pole and its derivative
        are infinite.
        """
        height, width = self.grid
        offsets = grid_offsets(self.grid, device)
        skip = self.coincident(offsets)
        along = torch.where(skip, 0.5 / self.alpha_u, offsets.dx.to(dtype) / width)
        down = torch.where(skip, 0.5 / self.alpha_v, offsets.dy.to(dtype) / height)
        return along, down, skip

    def coincident(self, offsets: Offsets) -> Tensor:
        """Which of the displacements of the grid are 0 or whole periods."""
        return coincident_offsets(offsets, self.grid, self.alpha_u, self.alpha_v)


def learned_wp(coordinates: Tensor, omegas: HalfPeriods) -> Tensor:
    """Re wp, Im wp, Re wp' and Im wp' at points that move with the lattice, (4, points)."""
    return values_at_coordinates("wp_and_prime", coordinates, omegas.parts).flatten(0, 1)


def learned_green(coordinates: Tensor, omegas: HalfPeriods) -> Tensor:
    """The Green function at points that move with the lattice."""
    return values_at_coordinates("green", coordinates, omegas.parts)[0]


def torch_differences(
    z: Tensor, lattice: Lattice, first: Tensor, second: Tensor, skip: Tensor
) -> Values:
    """wp and wp' at z[second] - z[first] from their values at z alone (DLMF 23.10.1).

    Exact also where the textbook quotient is 0/0, z[second] = -z[first] modulo the lattice. Pairs
    marked in `skip`, whose difference is a lattice point, get 0. They are replaced, not left out:
    torch.export cannot trace a shape that depends on data.
    """
    p, dp = _TORCH.wp_and_prime(z, lattice)
    # wp is even and wp' odd: the second point of the sum is -z[first].
    sums = _TORCH.add(
        _unless(skip, p[second], 1.0),
        _unless(skip, dp[second], 1.0),
        _unless(skip, p[first], 2.0),
        _unless(skip, -dp[first], 1.0),
        lattice,
    )
    return Values(*(torch.where(skip, 0.0, part) for part in _values(sums)))


def _unless(skip: Tensor, value: Tensor, instead: float) -> Tensor:
    """A complex tensor with a real number in place of the entries marked in `skip`."""
    real = torch.where(skip, instead, value.real)
    return torch.complex(real, torch.where(skip, 0.0, value.imag))


# --- Lattices of numbers, by any backend -----------------------------------------------------


def fixed_wp(backend: NumericBackendName, frame: Frame, lattice: Lattice) -> Tensor:
    """Re wp, Im wp, Re wp' and Im wp' at the patches, (4, patches)."""
    return _fixed_wp(backend, tuple(frame), lattice)


def fixed_differences(backend: NumericBackendName, frame: Frame, lattice: Lattice) -> Tensor:
    """The same at the displacements of the grid, by the addition formula.

    The values are 0 where a displacement is 0 or a whole period.
    """
    return _fixed_differences(backend, tuple(frame), lattice)


def fixed_green(backend: NumericBackendName, frame: Frame, lattice: Lattice) -> Tensor:
    """The Green function at the displacements of the grid."""
    return _fixed_green(backend, tuple(frame), lattice)


def _constant(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Make a traced graph hold the result of the function, not its computation.

    This sets what the decorator torch.compiler.assume_constant_result sets; importing that one
    would import the whole compiler. Arguments cannot be named tuples.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


@_constant
def _fixed_wp(
    backend: NumericBackendName, fields: tuple[Grid, float, float, bool], lattice: Lattice
) -> Tensor:
    frame = Frame(*fields)
    z = _argument(backend, frame.on(lattice, *frame.centres(torch.float64, _HOST)))
    return torch.stack(_values(_backend(backend).wp_and_prime(z, lattice)))


@_constant
def _fixed_differences(
    backend: NumericBackendName, fields: tuple[Grid, float, float, bool], lattice: Lattice
) -> Tensor:
    frame = Frame(*fields)
    z = frame.on(lattice, *frame.centres(torch.float64, _HOST))
    offsets = grid_offsets(frame.grid, _HOST)
    skip = frame.coincident(offsets)
    if backend == "torch":
        values = torch_differences(z, lattice, offsets.first, offsets.second, skip)
        return torch.stack(values)
    evaluator = _backend(backend)
    p, dp = evaluator.wp_and_prime(_argument(backend, z), lattice)
    i, j = offsets.first[~skip].numpy(), offsets.second[~skip].numpy()
    full = torch.zeros(4, len(skip), dtype=torch.float64)
    full[:, ~skip] = torch.stack(_values(evaluator.add(p[j], dp[j], p[i], -dp[i], lattice)))
    return full


@_constant
def _fixed_green(
    backend: NumericBackendName, fields: tuple[Grid, float, float, bool], lattice: Lattice
) -> Tensor:
    frame = Frame(*fields)
    along, down, _ = frame.differences(torch.float64, _HOST)
    value = _backend(backend).green(_argument(backend, frame.on(lattice, along, down)), lattice)
    if isinstance(value, Tensor):
        return value
    return torch.from_numpy(np.asarray(value).astype(np.float64))


def _backend(name: NumericBackendName) -> AbstractBackend[Any]:
    return get_backend(name, **_OPTIONS.get(name, {}))


def _argument(backend: NumericBackendName, z: Tensor) -> Any:
    return z if backend == "torch" else z.numpy()


def _values(pair: tuple[Any, Any]) -> Values:
    """wp and wp' as a backend returns them, in real tensors."""
    parts: list[Tensor] = []
    for value in pair:
        if not isinstance(value, Tensor):
            value = torch.from_numpy(np.asarray(value).astype(np.complex128))
        parts += [value.real, value.imag]
    return Values(*parts)
