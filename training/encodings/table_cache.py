"""Position tables kept between calls, as long as what they were made from is unchanged."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch import Tensor

_LIMIT = 32


class TableCache:
    """Tables by key, each with the identity and version of the tensors it depends on.

    Every in-place change of a tensor (an optimiser step, `load_state_dict`, an averaged model's
    update) raises its version, and a table of another version is made anew. Only writes through
    ``tensor.data`` go unseen by torch itself: call `clear` after those. Copies and pickles of a
    cache are empty.
    """

    def __init__(self) -> None:
        self._entries: OrderedDict[Hashable, tuple[list[Any], list[Any], Any]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def clear(self) -> None:
        self._entries.clear()

    def get(self, key: Hashable, depends_on: Sequence[Tensor], make: Callable[[], Any]) -> Any:
        """The table of this key; made, outside autograd and inference mode, if there is none."""
        versions = _versions(depends_on)
        entry = self._entries.get(key)
        if entry is not None and versions is not None:
            tensors, known, table = entry
            is_same = len(tensors) == len(depends_on) and all(
                reference() is tensor for reference, tensor in zip(tensors, depends_on, strict=True)
            )
            if is_same and known == versions:
                self._entries.move_to_end(key)
                return table
        # A tensor made in inference mode could not enter a later backward pass.
        with torch.inference_mode(False), torch.no_grad():
            table = make()
        if versions is not None:
            self._entries[key] = ([weakref.ref(t) for t in depends_on], versions, table)
            self._entries.move_to_end(key)
            while len(self._entries) > _LIMIT:
                self._entries.popitem(last=False)
        return table

    def __deepcopy__(self, memo: Any) -> TableCache:
        return TableCache()

    def __reduce__(self) -> tuple[type[TableCache], tuple[()]]:
        return TableCache, ()


def _versions(tensors: Sequence[Tensor]) -> list[Any] | None:
    """Version and address of each; None if torch does not count versions of one of them."""
    try:
        return [(tensor._version, tensor.data_ptr()) for tensor in tensors]
    except RuntimeError:  # made in inference mode, or wrapped by torch.func
        return None
