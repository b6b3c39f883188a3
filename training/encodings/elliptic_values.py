"""Elliptic functions at patch positions, by any backend, as real float64 tensors."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from training.encodings.errors import EncodingOptionError
from training.encodings.lattice_parameter import HalfPeriods
from wefpe_core import AbstractBackend, Lattice, get_backend

BackendName = Literal["torch", "numpy", "mpmath"]
BACKEND_MEANING = (
    "who evaluates the elliptic functions; only torch can learn the lattice, so the others need "
    "learnable=false"
)
# More than double precision, so that what is cast is correctly rounded.
_MPMATH_DIGITS = 25


class Values(NamedTuple):
    """Real and imaginary parts of wp and wp'."""

    p_re: Tensor
    p_im: Tensor
    dp_re: Tensor
    dp_im: Tensor


def named_backend(name: BackendName) -> AbstractBackend:
    return get_backend("mpmath", dps=_MPMATH_DIGITS) if name == "mpmath" else get_backend(name)


def refuse_learning(backend: BackendName, learns: bool) -> None:
    """Only torch differentiates."""
    if learns and backend != "torch":
        raise EncodingOptionError(
            f"backend={backend!r} cannot learn the lattice, since it has no gradients; "
            "set learnable=false or backend='torch'"
        )


def learned_points(
    u: Tensor, v: Tensor, alpha_u: float, alpha_v: float, omegas: HalfPeriods
) -> Tensor:
    """z = 2 (alpha_u u omega1 + alpha_v v omega3), which is eq. complex_mapping on rectangles."""
    along, down = (2.0 * alpha_u) * u, (2.0 * alpha_v) * v
    x = along * omegas.omega1 + down * omegas.omega3_re
    return torch.complex(x, down * omegas.omega3_im)


def number_points(u: Tensor, v: Tensor, alpha_u: float, alpha_v: float, lattice: Lattice) -> Tensor:
    """The same for a lattice of numbers, in float64."""
    omega1, omega3 = complex(lattice.omega1), complex(lattice.omega3)
    along, down = (2.0 * alpha_u) * u, (2.0 * alpha_v) * v
    return torch.complex(
        along * omega1.real + down * omega3.real, along * omega1.imag + down * omega3.imag
    )


def to_backend(name: BackendName, z: Tensor) -> Any:
    """Complex points as what the backend takes."""
    return z if name == "torch" else z.numpy()


def from_backend(value: Any) -> tuple[Tensor, Tensor]:
    """Real and imaginary part of what a backend returns, as real tensors."""
    if isinstance(value, Tensor):
        return value.real, value.imag
    array = np.asarray(value).astype(np.complex128)
    return torch.from_numpy(array.real.copy()), torch.from_numpy(array.imag.copy())


def wp_values(name: BackendName, z: Tensor, lattice: Lattice) -> Values:
    wp, wp_prime = named_backend(name).wp_and_prime(to_backend(name, z), lattice)
    return Values(*from_backend(wp), *from_backend(wp_prime))


def green_values(name: BackendName, z: Tensor, lattice: Lattice) -> Tensor:
    value = named_backend(name).green(to_backend(name, z), lattice)
    if isinstance(value, Tensor):
        return value
    return torch.from_numpy(np.asarray(value).astype(np.float64))
