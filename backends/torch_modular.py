"""Invariants, roots and quasi-periods of a lattice of torch's tensors, and the way back."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from backends import modular_arrays
from backends.modular_arrays import ReducedLattice
from backends.torch_ops import PRECISIONS, TorchOps, as_complex, as_pair, real_dtype, wider
from wefpe_core.lattice import Lattice


def _reduced(lattice: Lattice) -> ReducedLattice:
    dtype, device = _common(lattice.omega1, lattice.omega3)
    omega1, omega3 = (as_pair(w, dtype, device) for w in (lattice.omega1, lattice.omega3))
    return ReducedLattice.of(TorchOps(dtype), omega1, omega3, PRECISIONS[dtype])


def invariants(lattice: Lattice) -> tuple[Tensor, Tensor]:
    g2, g3 = _reduced(lattice).invariants()
    return as_complex(g2), as_complex(g3)


def g2_in_units(lattice: Lattice) -> tuple[Tensor, Tensor]:
    """As `backends.constants.g2_in_units`, for a lattice of tensors."""
    g2, unit = _reduced(lattice).g2_in_units()
    return as_complex(g2), unit


def roots(lattice: Lattice) -> tuple[Tensor, Tensor, Tensor]:
    """wp at omega1, omega1 + omega3 and omega3 of the basis given."""
    e1, e2, e3 = (as_complex(root) for root in _reduced(lattice).roots())
    return e1, e2, e3


def quasi_periods(lattice: Lattice) -> tuple[Tensor, Tensor]:
    """zeta at omega1 and omega3 of the basis given."""
    eta1, eta3 = _reduced(lattice).quasi_periods()
    return as_complex(eta1), as_complex(eta3)


def _common(*values: Any) -> tuple[torch.dtype, torch.device]:
    """The dtype and device a set of tensors and numbers is computed in."""
    tensors = [value for value in values if isinstance(value, Tensor)]
    return wider(*(real_dtype(tensor.dtype) for tensor in tensors)), tensors[0].device


def invert_invariants(g2: Any, g3: Any) -> Lattice:
    """Lattice of tensors with invariants `g2`, `g3`, with gradients; in its reduced basis."""
    dtype, device = _common(g2, g3)
    first, second = as_pair(g2, dtype, device), as_pair(g3, dtype, device)
    omegas = modular_arrays.invert_invariants(TorchOps(dtype), first, second, PRECISIONS[dtype])
    return Lattice(*(as_complex(omega) for omega in omegas))
