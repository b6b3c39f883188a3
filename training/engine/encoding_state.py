"""The few numbers that tell where a learned encoding has gone: its lattices and its scalars."""

from __future__ import annotations

from typing import Any

from torch import nn

from training.encodings.lattice_owners import key_prefixes, lattice_owners


def encoding_state(model: nn.Module) -> dict[str, float]:
    """Half-periods, tau and the scalar parameters of the encoding of a model, by name.

    Of several lattices the first has plain names, the others the name of their module before.
    """
    encoding: Any = getattr(model, "encoding", None)
    if encoding is None:
        return {}
    state = {
        name: float(parameter.detach())
        for name, parameter in encoding.named_parameters()
        if parameter.numel() == 1
    }
    if not state:  # nothing is learned that could be told
        return {}
    owners = lattice_owners(encoding)
    for name, prefix in key_prefixes(owners).items():
        lattice = owners[name].lattice()
        state[f"{prefix}omega1"] = lattice.omega1.real
        state[f"{prefix}omega3_real"] = lattice.omega3.real
        state[f"{prefix}omega3_imag"] = lattice.omega3.imag
        state[f"{prefix}tau_imag"] = lattice.tau.imag
    return state
