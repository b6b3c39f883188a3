"""Elliptic functions at patch positions, by any backend, as real tensors.

On a learned lattice torch evaluates them, with gradients. On a fixed one any backend may evaluate
them, in float64 on the host; in a graph for one size the results are constants.
"""

from __future__ import annotations

from functools import lru_cache
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
from training.errors import EncodingOptionError
from wefpe_core import AbstractBackend, Lattice, get_backend

# Digits beyond double precision, so that what is cast is correctly rounded.
_OPTIONS: dict[str, dict[str, Any]] = {"mpmath": {"dps": 25}}
TORCH = get_backend("torch")
_HOST = torch.device("cpu")


class Values(NamedTuple):
    """Real and imaginary parts of wp and wp'."""

    p_re: Tensor
    p_im: Tensor
    dp_re: Tensor
    dp_im: Tensor


class EllipticUse(NamedTuple):
    """What an encoding asks of a backend, as the verifier names it."""

    backend: str
    functions: tuple[str, ...]
    is_learned: bool  # then the lattice is made of tensors and has gradients


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
        across, along = self.shifts()
        return u + across, v + along

    def shifts(self) -> tuple[float, float]:
        """How far a centred grid is moved, as shares of the width and the height."""
        if not self.is_centred:
            return 0.0, 0.0
        return 0.5 / self.alpha_u - 0.5, 0.5 / self.alpha_v - 0.5

    def coordinates(self, dtype: torch.dtype, device: torch.device) -> Tensor:
        """s and t of the patch centres z = s omega1 + t omega3, (patches, 2)."""
        return torch.stack(self.in_half_periods(*self.centres(dtype, device)), -1)

    def offset_coordinates(self, dtype: torch.dtype, device: torch.device) -> Tensor:
        """s and t of the displacements of the grid; periods are moved as in `differences`."""
        along, down, _ = self.differences(dtype, device)
        return torch.stack(self.in_half_periods(along, down), -1)

    def in_half_periods(self, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return (2.0 * self.alpha_u) * u, (2.0 * self.alpha_v) * v

    def on(self, lattice: HalfPeriods | Lattice, u: Tensor, v: Tensor) -> Tensor:
        """The points z of u and v, which are patch centres or differences of them."""
        along, down = self.in_half_periods(u, v)
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


def learned_wp(backend: str, coordinates: Tensor, omegas: HalfPeriods) -> Tensor:
    """Re wp, Im wp, Re wp' and Im wp' at points that move with the lattice, (4, points)."""
    if backend != "torch":
        z, lattice = moving(coordinates, omegas)
        return torch.stack(_values(backend, _backend(backend).wp_and_prime(z, lattice), z.shape))
    return values_at_coordinates("wp_and_prime", coordinates, omegas.parts).flatten(0, 1)


def learned_green(backend: str, coordinates: Tensor, omegas: HalfPeriods) -> Tensor:
    """The Green function at points that move with the lattice."""
    if backend != "torch":
        z, lattice = moving(coordinates, omegas)
        return _tensor(backend, _backend(backend).green(z, lattice), z.shape).real
    return values_at_coordinates("green", coordinates, omegas.parts)[0]


def moving(coordinates: Tensor, omegas: HalfPeriods) -> tuple[Tensor, Lattice]:
    """Points z = s omega1 + t omega3 and their lattice, as tensors that carry gradients."""
    omega1, omega3 = torch.view_as_complex(omegas.parts.reshape(2, 2)).unbind()
    s, t = coordinates.unbind(-1)
    return s * omega1 + t * omega3, Lattice(omega1, omega3)


def torch_differences(
    z: Tensor, lattice: Lattice, first: Tensor, second: Tensor, skip: Tensor
) -> Values:
    """wp and wp' at z[second] - z[first] from their values at z alone (DLMF 23.10.1).

    Exact also where the textbook quotient is 0/0, z[second] = -z[first] modulo the lattice. Pairs
    marked in `skip`, whose difference is a lattice point, get 0. They are replaced, not left out:
    torch.export cannot trace a shape that depends on data.
    """
    p, dp = TORCH.wp_and_prime(z, lattice)
    # wp is even and wp' odd: the second point of the sum is -z[first].
    sums = TORCH.add(
        _unless(skip, p[second], 1.0),
        _unless(skip, dp[second], 1.0),
        _unless(skip, p[first], 2.0),
        _unless(skip, -dp[first], 1.0),
        lattice,
    )
    values = _values("torch", sums, skip.shape)
    return Values(*(torch.where(skip, 0.0, part) for part in values))


def _unless(skip: Tensor, value: Tensor, instead: float) -> Tensor:
    """A complex tensor with a real number in place of the entries marked in `skip`."""
    real = torch.where(skip, instead, value.real)
    return torch.complex(real, torch.where(skip, 0.0, value.imag))


# --- Lattices of numbers, by any backend -----------------------------------------------------


def fixed_wp(backend: str, frame: Frame, lattice: Lattice) -> Tensor:
    """Re wp, Im wp, Re wp' and Im wp' at the patches, (4, patches)."""
    return _fixed("wp", backend, frame, lattice)


def fixed_differences(backend: str, frame: Frame, lattice: Lattice) -> Tensor:
    """The same at the displacements of the grid, by the addition formula.

    The values are 0 where a displacement is 0 or a whole period.
    """
    return _fixed("differences", backend, frame, lattice)


def fixed_green(backend: str, frame: Frame, lattice: Lattice) -> Tensor:
    """The Green function at the displacements of the grid."""
    return _fixed("green", backend, frame, lattice)[0]


def _fixed(kind: str, backend: str, frame: Frame, lattice: Lattice) -> Tensor:
    """The values of a kind, (rows, points).

    A graph for one size holds them as constants. A graph for all sizes cannot, so it calls an
    operator that evaluates them when the size is known, and keeps those of the last sizes.
    """
    height, width = frame.grid
    shape = (frame.alpha_u, frame.alpha_v, frame.is_centred)
    omega1, omega3 = complex(lattice.omega1), complex(lattice.omega3)
    omega = [omega1.real, omega1.imag, omega3.real, omega3.imag]
    if _is_symbolic(height) or _is_symbolic(width):
        values: Tensor = torch.ops.wefpe_encodings.fixed(
            kind, backend, height, width, *shape, omega
        )
        return values
    return _constant_values(kind, backend, height, width, *shape, omega)


def _is_symbolic(side: int) -> bool:
    """Whether a side of the grid is open in the graph that is being traced."""
    if torch.compiler.is_dynamo_compiling():
        return not torch.fx.experimental.symbolic_shapes.has_static_value(side)
    return isinstance(side, torch.SymInt)


def _constant_values(kind: str, backend: str, *fields: Any) -> Tensor:
    height, width, alpha_u, alpha_v, is_centred, (a, b, c, d) = fields
    frame = Frame((height, width), alpha_u, alpha_v, is_centred)
    return _KINDS[kind](backend, frame, Lattice(complex(a, b), complex(c, d)))


# A graph that is traced holds the result of the function, not its computation. This sets what the
# decorator torch.compiler.assume_constant_result sets; importing that one would import the whole
# compiler. Arguments cannot be named tuples.
_constant_values._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _wp(backend: str, frame: Frame, lattice: Lattice) -> Tensor:
    z = frame.on(lattice, *frame.centres(torch.float64, _HOST))
    pair = _backend(backend).wp_and_prime(_argument(backend, z), lattice)
    return torch.stack(_values(backend, pair, z.shape))


def _differences(backend: str, frame: Frame, lattice: Lattice) -> Tensor:
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
    sums = evaluator.add(p[j], dp[j], p[i], -dp[i], lattice)
    full[:, ~skip] = torch.stack(_values(backend, sums, i.shape))
    return full


def _green(backend: str, frame: Frame, lattice: Lattice) -> Tensor:
    along, down, _ = frame.differences(torch.float64, _HOST)
    z = frame.on(lattice, along, down)
    value = _backend(backend).green(_argument(backend, z), lattice)
    return _tensor(backend, value, z.shape).real[None]


_KINDS = {"wp": _wp, "differences": _differences, "green": _green}

_LIBRARY = torch.library.Library("wefpe_encodings", "DEF")
_LIBRARY.define(
    "fixed(str kind, str backend, SymInt height, SymInt width, float alpha_u, float alpha_v, "
    "bool is_centred, float[] omega) -> Tensor"
)


def _fixed_when_known(*arguments: Any) -> Tensor:
    *fields, omega = arguments
    return _kept_values(*fields, tuple(omega)).clone()  # what an operator returns is nobody else's


@lru_cache(maxsize=16)
def _kept_values(*arguments: Any) -> Tensor:
    return _constant_values(*arguments)


def _fake_fixed(kind: str, backend: str, height: int, width: int, *rest: Any) -> Tensor:
    if kind == "wp":
        return torch.empty(4, height * width, dtype=torch.float64)
    rows = 4 if kind == "differences" else 1
    return torch.empty(rows, (2 * height - 1) * (2 * width - 1), dtype=torch.float64)


_LIBRARY.impl("fixed", _fixed_when_known, "CompositeExplicitAutograd")
torch.library.register_fake("wefpe_encodings::fixed", _fake_fixed, lib=_LIBRARY)


def _backend(name: str) -> AbstractBackend[Any]:
    return get_backend(name, **_OPTIONS.get(name, {}))


def _argument(backend: str, z: Tensor) -> Any:
    return z if backend == "torch" else _backend(backend).from_numpy(z.numpy())


def _values(backend: str, pair: tuple[Any, Any], shape: tuple[int, ...]) -> Values:
    """wp and wp' as a backend returns them, in real tensors."""
    parts: list[Tensor] = []
    for value in pair:
        tensor = _tensor(backend, value, shape)
        parts += [tensor.real, tensor.imag]
    return Values(*parts)


def _tensor(backend: str, value: Any, shape: tuple[int, ...]) -> Tensor:
    """A value of a backend as a tensor; an error names the backend if it has another shape."""
    if not isinstance(value, Tensor):
        array = np.asarray(_backend(backend).to_numpy(value))
        value = torch.from_numpy(array.astype(np.complex128))
    if value.shape != shape:
        raise EncodingOptionError(
            f"the backend {backend!r} returned the shape {tuple(value.shape)} for {tuple(shape)}"
        )
    return value
