"""Where a position encoding meets a model: what it must offer, and how patches receive it.

Position may enter a transformer in three places, and an encoding may use any of them: a table
added to the tokens, a rotation of queries and keys, a bias on the attention logits. Prefix tokens
(class and register tokens, head tokens of DHVT) have no place in the image: they are neither
rotated nor biased, and get what `prefix` says or nothing. They always come before the patches.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, cast

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name
from torch import Tensor, nn

from wefpe_core import InputError, InputTypeError

Grid = tuple[int, int]  # (height, width) in patches, row-major


class PositionEncoding(Protocol):
    """What `training.encodings.build_encoding` returns, as far as a model is concerned."""

    def additive(self, grid: Grid) -> Tensor | None:
        """Table (H*W, dim) to add to the patch tokens, or None."""

    def rotate(self, q: Tensor, k: Tensor, grid: Grid, layer: int) -> tuple[Tensor, Tensor]:
        """Rotated queries and keys of the patches, (batch, heads, H*W, head_dim)."""

    def bias(self, grid: Grid, layer: int) -> Tensor | None:
        """Bias (heads, H*W, H*W) of the attention logits among patches, or None."""

    def prefix(self, n: int) -> Tensor | None:
        """Table (n, dim) to add to the prefix tokens, or None."""


class NoPosition(nn.Module):
    """The encoding that says nothing."""

    def additive(self, grid: Grid) -> Tensor | None:
        return None

    def rotate(self, q: Tensor, k: Tensor, grid: Grid, layer: int) -> tuple[Tensor, Tensor]:
        return q, k

    def bias(self, grid: Grid, layer: int) -> Tensor | None:
        return None

    def prefix(self, n: int) -> Tensor | None:
        return None


def checked_encoding(encoding: object, dim: int, depth: int, num_heads: int) -> nn.Module:
    """`encoding` as a module, after making sure that it is one and was built for this model."""
    if not isinstance(encoding, nn.Module):
        raise InputTypeError(
            f"an encoding must be a torch module, got {type(encoding).__name__}; "
            "training.encodings.build_encoding(name, ...) makes one"
        )
    wanted = ("additive", "rotate", "bias", "prefix")
    absent = [name for name in wanted if not callable(getattr(encoding, name, None))]
    if absent:
        raise InputTypeError(f"{type(encoding).__name__} lacks the methods {', '.join(absent)}")
    size = getattr(encoding, "size", None)  # of encodings built by name
    for name, mine in (("dim", dim), ("depth", depth), ("num_heads", num_heads)):
        theirs = getattr(size, name, mine)
        if theirs != mine:
            raise InputError(f"the encoding was built for {name}={theirs}, the model has {mine}")
    return encoding


def shared_tables(encoding: nn.Module) -> AbstractContextManager[None]:
    """Around the layers of one forward pass: an encoding that can computes its tables once.

    A compiler sees repeated work by itself.
    """
    share = getattr(encoding, "shared_pass", None)
    if share is None or torch.compiler.is_compiling():
        return nullcontext()
    return cast(AbstractContextManager[None], share())


def as_encoding(module: nn.Module) -> PositionEncoding:
    """The same object, seen through the protocol (a module's attributes have no types)."""
    return cast(PositionEncoding, module)


def add_position(patches: Tensor, prefix: Tensor | None, encoding: nn.Module, grid: Grid) -> Tensor:
    """Tokens of the first layer: prefix tokens (n, dim) and patches (batch, H*W, dim), placed.

    The only place where a model of this package adds a position table.
    """
    check_ready = getattr(encoding, "check_ready", None)
    if check_ready is not None:
        check_ready()
    place = as_encoding(encoding)
    table = place.additive(grid)
    if table is not None:
        patches = patches + table
    if prefix is None:
        return patches
    offset = place.prefix(len(prefix))
    if offset is not None:
        prefix = prefix + offset
    return torch.cat([prefix.expand(len(patches), -1, -1), patches], dim=1)


def rotate_patches(
    q: Tensor, k: Tensor, encoding: nn.Module, grid: Grid, layer: int
) -> tuple[Tensor, Tensor]:
    """Queries and keys (batch, heads, tokens, head_dim) with those of the patches rotated."""
    n_prefix = q.shape[-2] - grid[0] * grid[1]
    q_patches, k_patches = q[..., n_prefix:, :], k[..., n_prefix:, :]
    q_rotated, k_rotated = as_encoding(encoding).rotate(q_patches, k_patches, grid, layer)
    if q_rotated is q_patches and k_rotated is k_patches:  # not a rotary encoding: copy nothing
        return q, k
    if not n_prefix:
        return q_rotated.to(q.dtype), k_rotated.to(k.dtype)
    return (
        torch.cat([q[..., :n_prefix, :], q_rotated.to(q.dtype)], dim=-2),
        torch.cat([k[..., :n_prefix, :], k_rotated.to(k.dtype)], dim=-2),
    )


def bias_of_tokens(q: Tensor, encoding: nn.Module, grid: Grid, layer: int) -> Tensor | None:
    """Attention bias for all tokens, (heads, tokens, tokens) in the dtype of `q`, or None.

    Zero in the rows and columns of prefix tokens.
    """
    bias = as_encoding(encoding).bias(grid, layer)
    if bias is None:
        return None
    n_prefix = q.shape[-2] - grid[0] * grid[1]
    return F.pad(bias, (n_prefix, 0, n_prefix, 0)).to(q.dtype)
