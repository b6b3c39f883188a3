"""The model, compiled: all of it but the elliptic functions of a lattice that is learned."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from training.encodings.lattice_owners import lattice_owners, learns_lattice


def compile_model(model: nn.Module) -> None:
    """Compile a model with an encoding, in place.

    Preparing a lattice takes thousands of operations on single numbers. They gain nothing by being
    compiled, and torch's compiler did not finish their derivatives in nine minutes; so they
    stay outside, and the graph has a gap there. (The Fourier-like series has a lattice too, but
    evaluates no elliptic function on it: its owner has no ``values``.)
    """
    encoding: Any = model.encoding
    gaps = [
        owner
        for owner in lattice_owners(encoding).values()
        if learns_lattice(owner) and hasattr(owner, "values")
    ]
    for owner in gaps:
        owner.values = torch.compiler.disable(owner.values)
    model.compile(fullgraph=not gaps)
