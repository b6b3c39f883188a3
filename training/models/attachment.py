"""What the adapters share: hooks that let an encoding act in a model of another library."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from training.encodings import AbstractEncoding
from training.encodings.encoding import PassTables
from training.encodings.grid import Grid
from training.models.position_hooks import bias_of_tokens, rotate_patches
from wefpe_core import InputError


class AbstractAttachment:
    """An encoding at work in a foreign model, and the way back.

    Everything is done by hooks of torch, so the code, the class and the parameter names of the
    model stay its own; only its learned table leaves its state dict, and the parameters of the
    encoding enter it under ``encoding.``. The grid is noted when the patches are embedded and
    used by the layers of the same forward pass, which also share their tables until the last of
    them is done, unless the model evaluates layers again for the gradient (checkpointing).
    """

    def __init__(self, model: nn.Module, encoding: AbstractEncoding) -> None:
        self.encoding = encoding
        self.grid: Grid | None = None
        self.tables: PassTables | None = None  # what the layers of one pass share
        self.handles: list[RemovableHandle] = []
        self.model = model

    def connect(self) -> None:
        """Take the learned table out and hook the encoding in."""
        raise NotImplementedError

    def restore(self) -> None:
        """Put the learned table back; the hooks are gone already."""
        raise NotImplementedError

    def disconnect(self) -> None:
        for handle in self.handles:
            handle.remove()
        self.handles.clear()
        self.restore()

    def hook(
        self, register: Callable[..., RemovableHandle], *arguments: Any, **options: Any
    ) -> None:
        self.handles.append(register(*arguments, **options))

    def is_checkpointing(self) -> bool:
        """Whether the model evaluates its layers again in the backward pass."""
        raise NotImplementedError

    def begin_pass(self, grid: Grid) -> None:
        self.grid = grid
        self.tables = None if self.is_checkpointing() else []

    def end_pass(self, *_: object) -> None:
        """A forward hook of the last layer."""
        self.tables = None

    def shared_tables(self) -> AbstractContextManager[None]:
        if self.tables is None:
            return nullcontext()
        return self.encoding.shared_pass(self.tables)

    def noted_grid(self) -> Grid:
        if self.grid is None:
            raise InputError("attention was called before any image was embedded")
        return self.grid

    def rotated(self, tokens: Tensor, layer: int, *, is_query: bool) -> Tensor:
        """Queries or keys (batch, heads, tokens, head_dim) rotated.

        The libraries make the two in separate calls, so each is rotated beside an empty batch.
        """
        nobody = tokens[:0]
        q, k = (tokens, nobody) if is_query else (nobody, tokens)
        with self.shared_tables():
            rotated = rotate_patches(q, k, self.encoding, self.noted_grid(), layer)
        return rotated[0] if is_query else rotated[1]

    def mask_with_bias(self, tokens: Tensor, layer: int, mask: Tensor | None) -> Tensor | None:
        """The attention mask of the call (additive or boolean) with the bias added."""
        with self.shared_tables():
            bias = bias_of_tokens(tokens, self.encoding, self.noted_grid(), layer)
        if bias is None or mask is None:
            return mask if bias is None else bias[None]
        if mask.dtype == torch.bool:
            return torch.where(mask, bias[None], -torch.inf)
        return bias[None] + mask

    def table_of_all_tokens(self, grid: Grid, n_prefix: int, like: Tensor) -> Tensor | None:
        """Additive table (prefix + H*W, dim), or None if the encoding adds nothing."""
        place = self.encoding
        patches = place.additive(grid)
        prefix = place.prefix(n_prefix) if n_prefix else None
        if patches is None and prefix is None:
            return None
        dim = like.shape[-1]
        parts = [
            like.new_zeros(n_prefix, dim) if prefix is None else prefix,
            like.new_zeros(grid[0] * grid[1], dim) if patches is None else patches,
        ]
        return torch.cat(parts)


def moved_like(parameter: nn.Parameter, like: Tensor) -> nn.Parameter:
    """A parameter that was set aside, where the model has been moved to since."""
    return nn.Parameter(parameter.detach().to(like), requires_grad=parameter.requires_grad)
