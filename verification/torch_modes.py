"""A mode of torch that stands in for a device without double precision."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from wefpe_core import WefpeError

_DOUBLE = (torch.float64, torch.complex128)


class DoublePrecisionError(WefpeError, TypeError):
    """A tensor of double precision appeared where the device would have none."""


class ForbidDoublePrecision(TorchDispatchMode):
    """Raise as soon as an operation gives a tensor of float64 or complex128."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.dtype in _DOUBLE:
                raise DoublePrecisionError(f"{func} gives {leaf.dtype}")
        return result
