"""What an encoding at work in a foreign model needs, whichever library the model is of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
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
        # The patches (batch, n) that are left, in their order, if the model drops some.
        self.left: Tensor | None = None
        self.with_gradients = torch.is_grad_enabled()
        self.tables: PassTables | None = []
        with encoding.shared_pass(self.tables):
            encoding.draw_places(grid)
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

    def keep_when_saved(self, whole: nn.Module) -> None:  # noqa: B027
        """Have the library's way of saving `whole`, which has the model in it, keep the encoding.

        Nothing is to be done where that way is the state dict.
        """

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
            if current.left is None:
                return rotate_patches(q, k, self.encoding, current.grid, layer)
            return _rotate_those_left(q, k, self.encoding, current.grid, layer, current.left)

    def mask_with_bias(
        self, tokens: Tensor, layer: int, mask: Tensor | None, current: ForwardPass
    ) -> Tensor | None:
        """The attention mask of the call (additive or boolean) with the bias added."""
        with current.shared(self.encoding):
            if current.left is None:
                bias = bias_of_tokens(tokens, self.encoding, current.grid, layer)
                bias = None if bias is None else bias[None]
            else:
                bias = _bias_of_those_left(tokens, self.encoding, current.grid, layer, current.left)
        if bias is None or mask is None:
            return mask if bias is None else bias
        if mask.dtype == torch.bool:
            return torch.where(mask, bias, -torch.inf)
        return bias + mask

    def table_of_all_tokens(
        self, n_prefix: int, like: Tensor, grid: Grid, current: ForwardPass | None = None
    ) -> Tensor | None:
        """Additive table (prefix + H*W, dim), or None if the encoding adds nothing."""
        with nullcontext() if current is None else current.shared(self.encoding):
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


def _rotate_those_left(
    q: Tensor, k: Tensor, encoding: AbstractEncoding, grid: Grid, layer: int, left: Tensor
) -> tuple[Tensor, Tensor]:
    """As `rotate_patches`: the patches left are rotated where they were in the whole image."""
    n_prefix = q.shape[-2] - left.shape[1]
    index = left[:, None, :, None].expand(-1, q.shape[1], -1, q.shape[-1])

    def whole(tokens: Tensor) -> Tensor:
        empty = tokens.new_zeros(*q.shape[:2], grid[0] * grid[1], q.shape[-1])
        return empty.scatter(2, index, tokens[..., n_prefix:, :])

    def rest(tokens: Tensor, rotated: Tensor) -> Tensor:
        patches = rotated.to(tokens.dtype).gather(2, index)
        return torch.cat([tokens[..., :n_prefix, :], patches], dim=-2)

    q_whole, k_whole = whole(q), whole(k)
    q_rotated, k_rotated = encoding.rotate(q_whole, k_whole, grid, layer)
    if q_rotated is q_whole and k_rotated is k_whole:  # not a rotary encoding
        return q, k
    return rest(q, q_rotated), rest(k, k_rotated)


def _bias_of_those_left(
    tokens: Tensor, encoding: AbstractEncoding, grid: Grid, layer: int, left: Tensor
) -> Tensor | None:
    """As `bias_of_tokens`, for each image, (batch, heads, tokens, tokens)."""
    bias = encoding.bias(grid, layer)
    if bias is None:
        return None
    n_prefix = tokens.shape[-2] - left.shape[1]
    of_pairs = bias[:, left[:, :, None], left[:, None, :]].transpose(0, 1)
    return F.pad(of_pairs, (n_prefix, 0, n_prefix, 0)).to(tokens.dtype)


def innermost(module: Any) -> Any:
    """The module inside torch's `checkpoint_wrapper`, whose own hooks run only once."""
    while hasattr(module, "_checkpoint_wrapped_module"):
        module = module._checkpoint_wrapped_module
    return module
