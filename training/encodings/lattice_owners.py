"""The lattices of an encoding: one, several if it is combined, or none."""

from __future__ import annotations

from typing import Any

from torch import nn

from training.encodings.lattice_parameter import LatticeParameter


def lattice_owners(encoding: nn.Module) -> dict[str, Any]:
    """The outermost modules with a method ``lattice``, by their names within the encoding.

    What they are made of may have one too, which is the same lattice.
    """
    owners: dict[str, Any] = {}
    for name, module in encoding.named_modules():
        is_inside = any(not owner or name.startswith(f"{owner}.") for owner in owners)
        if callable(getattr(module, "lattice", None)) and not is_inside:
            owners[name] = module
    return owners


def learns_lattice(owner: Any) -> bool:
    """Whether the lattice of an owner moves in training."""
    parameters = [m for m in owner.modules() if isinstance(m, LatticeParameter)]
    if parameters:
        return any(parameter.learned != "nothing" for parameter in parameters)
    # The printed text learns omega3 itself; what the scripts call so stretches z only.
    is_learnable = getattr(owner, "alpha_learn", None) is not None
    return is_learnable and owner.options.fidelity == "paper"


def key_prefixes(owners: dict[str, Any]) -> dict[str, str]:
    """What stands before the keys of each lattice in logs: nothing for the first."""
    return {name: f"{name}." if number else "" for number, name in enumerate(owners)}
