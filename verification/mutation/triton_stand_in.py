"""The text of a Triton kernel run by Python: what it says is checked, not what a GPU does with it.

Blocks are NumPy arrays, and what the emitters use of Triton's language has a stand-in of the same
name. (Triton's own interpreter has no libdevice, and floats pass through it as float32.)
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt


class Block(np.ndarray):
    """A block of numbers, with Triton's conversion."""

    def to(self, dtype: Any, bitcast: bool = False) -> Block:
        return (self.view(dtype) if bitcast else self.astype(dtype)).view(Block)


def block(value: Any, dtype: Any = None) -> Block:
    return np.atleast_1d(np.asarray(value, dtype)).view(Block)


class Pointer:
    """The address of a number, or of a block of them, in a flat array."""

    def __init__(self, array: npt.NDArray[Any], offset: Any = 0) -> None:
        self.array = array
        self.offset = offset

    def __add__(self, offset: Any) -> Pointer:
        return Pointer(self.array, self.offset + offset)

    def load(self, mask: Any = True, other: float = 0.0) -> Block:
        places = np.where(mask, self.offset, 0)
        return block(np.where(mask, self.array[places], self.array.dtype.type(other)))

    def store(self, value: Block, mask: Any = True) -> None:
        if value.dtype != self.array.dtype:
            raise TypeError(f"{value.dtype} is stored as {self.array.dtype}")
        places, values, kept = np.broadcast_arrays(self.offset, value, mask)
        self.array[places[kept]] = values[kept]


def run(source: str, name: str, instances: int, *arguments: Any, **options: int) -> None:
    """Run every instance of the kernel `name`; its arrays are arguments like its numbers."""
    lines = [line for line in source.splitlines() if not line.startswith(("import ", "from "))]
    instance = 0
    language = SimpleNamespace(
        constexpr=int,
        float64=np.dtype(np.float64),
        float32=np.dtype(np.float32),
        int64=np.dtype(np.int64),
        int32=np.dtype(np.int32),
        full=lambda shape, value, dtype: block(value, dtype),
        where=lambda condition, x, y: block(np.where(condition, x, y)),
        abs=np.abs,
        sqrt=np.sqrt,
        sqrt_rn=np.sqrt,
        div_rn=np.divide,
        arange=lambda start, stop: block(np.arange(start, stop)),
        program_id=lambda axis: block(instance),
        load=lambda pointer, mask=True, other=0.0: pointer.load(mask, other),
        store=lambda pointer, value, mask=True: pointer.store(value, mask),
    )
    names = ("exp", "expm1", "sin", "cos", "log", "log1p", "rint", "hypot", "copysign")
    namespace: dict[str, Any] = {
        "triton": SimpleNamespace(jit=lambda function: function),
        "tl": language,
        "libdevice": SimpleNamespace(**{key: getattr(np, key) for key in names}, atan2=np.arctan2),
    }
    exec(compile("\n".join(lines), f"<text of {name}>", "exec"), namespace)
    pointers = [Pointer(x.reshape(-1)) if isinstance(x, np.ndarray) else x for x in arguments]
    with np.errstate(all="ignore"):
        for instance in range(instances):  # noqa: B007 - read by program_id
            namespace[name](*pointers, **options)
