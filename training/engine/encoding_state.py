"""The few numbers that tell where a learned encoding has gone: its lattice and its scalars."""

from __future__ import annotations

from typing import Any

from torch import nn


def encoding_state(model: nn.Module) -> dict[str, float]:
    """Half-periods, tau and the scalar parameters of the encoding of a model, by name."""
    encoding: Any = getattr(model, "encoding", None)
    if encoding is None:
        return {}
    state = {
        name: float(parameter.detach())
        for name, parameter in encoding.named_parameters()
        if parameter.numel() == 1
    }
    for owner in encoding.modules():
        lattice = owner.lattice() if callable(getattr(owner, "lattice", None)) else None
        if lattice is not None and state:
            state["omega1"] = lattice.omega1.real
            state["omega3_real"], state["omega3_imag"] = lattice.omega3.real, lattice.omega3.imag
            state["tau_imag"] = lattice.tau.imag
            break
    return state
