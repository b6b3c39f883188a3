"""What an encoding at work in a foreign model needs, whichever library the model is of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from training.encodings import AbstractEncoding
from training.encodings.encoding import PassTables
from training.encodings.grid import Grid
from training.models.layers import bias_of_tokens, rotate_patches


class ForwardPass:
    """One forward pass: the grid of its images and the tables that its layers share.

    The tables are made before the first layer, so a layer that is evaluated again for the gradient
    (checkpointing) finds them as it did before. Reentrant checkpointing evaluates layers without
    gradients first; no graph may then leave a layer, and each makes its own tables.
    """

    def __init__(self, encoding: AbstractEncoding, grid: Grid) -> None:
        self.grid = grid
        self.with_gradients = torch.is_grad_enabled()
        self.tables: PassTables | None = []
        with encoding.shared_pass(self.tables):
            # Its tables are those that layers share.
            self.has_bias = encoding.bias(grid, 0) is not None

    def shared(self, encoding: AbstractEncoding) -> AbstractContextManager[None]:
        """What goes around the work of the encoding in one layer."""
        if torch.is_grad_enabled() != self.with_gradients:
            self.tables = None
        if self.tables is None:
            return nullcontext()
        return encoding.shared_pass(self.tables, is_complete=True)


class AbstractAttachment(ABC):
    """An encoding at work in a foreign model, and the way back.

    The code, the class and the parameter names of the model stay as they are. Only its learned
    table leaves the state dict, and the parameters of the encoding enter it under ``encoding.``.
    Whatever belongs to a forward pass is in its `ForwardPass`, so threads and passes of several
    sizes do not meet.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model: Any = model
        self.table: nn.Parameter | None = None  # the learned table of the model
        self.handles: list[RemovableHandle] = []

    @property
    def encoding(self) -> AbstractEncoding:
        """The encoding of the model at present: an adapter (PEFT) may train a copy of it."""
        encoding: AbstractEncoding = self.model.encoding
        return encoding

    @abstractmethod
    def check(self, encoding: AbstractEncoding) -> None:
        """Raise `InputError` if the encoding cannot act in every part of the model."""

    @abstractmethod
    def connect(self) -> None:
        """Take the learned table out and hook the encoding in."""

    @abstractmethod
    def restore(self) -> None:
        """Put everything back that is not a hook; the hooks are gone already."""

    @abstractmethod
    def patch_weight(self) -> Tensor:
        """The weight of the patch projection, which has the device and dtype of the model."""

    def disconnect(self) -> None:
        for handle in self.handles:
            handle.remove()
        self.handles.clear()
        self.restore()

    def hook(
        self, register: Callable[..., RemovableHandle], *arguments: Any, **options: Any
    ) -> None:
        self.handles.append(register(*arguments, **options))

    def rotated(
        self, q: Tensor, k: Tensor, layer: int, current: ForwardPass
    ) -> tuple[Tensor, Tensor]:
        """Queries and keys (batch, heads, tokens, head_dim) rotated."""
        with current.shared(self.encoding):
            return rotate_patches(q, k, self.encoding, current.grid, layer)

    def mask_with_bias(
        self, tokens: Tensor, layer: int, mask: Tensor | None, current: ForwardPass
    ) -> Tensor | None:
        """The attention mask of the call (additive or boolean) with the bias added."""
        with current.shared(self.encoding):
            bias = bias_of_tokens(tokens, self.encoding, current.grid, layer)
        if bias is None or mask is None:
            return mask if bias is None else bias[None]
        if mask.dtype == torch.bool:
            return torch.where(mask, bias[None], -torch.inf)
        return bias[None] + mask

    def table_of_all_tokens(self, n_prefix: int, like: Tensor, grid: Grid) -> Tensor | None:
        """Additive table (prefix + H*W, dim), or None if the encoding adds nothing."""
        patches = self.encoding.additive(grid)
        prefix = self.encoding.prefix(n_prefix) if n_prefix else None
        if patches is None and prefix is None:
            return None
        dim = like.shape[-1]
        parts = [
            like.new_zeros(n_prefix, dim) if prefix is None else prefix,
            like.new_zeros(grid[0] * grid[1], dim) if patches is None else patches,
        ]
        return torch.cat(parts)

    def table_now(self) -> nn.Parameter | None:
        """The learned table on the device and in the dtype the model has been moved to since."""
        if self.table is None:
            return None
        table = self.table.detach().to(self.patch_weight())
        return nn.Parameter(table, requires_grad=self.table.requires_grad)


def innermost(module: Any) -> Any:
    """The module inside torch's `checkpoint_wrapper`, whose own hooks run only once."""
    while hasattr(module, "_checkpoint_wrapped_module"):
        module = module._checkpoint_wrapped_module
    return module
