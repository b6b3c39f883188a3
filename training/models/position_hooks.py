"""How the tokens of a model receive a position encoding.

Position may enter a transformer in three places, and an encoding may use any of them: a table
added to the tokens, a rotation of queries and keys, a bias on the attention logits. Prefix tokens
(class and register tokens, head tokens of DHVT) have no place in the image: they are neither
rotated nor biased, and get what `prefix` says or nothing. They always come before the patches.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch
import torch.nn.functional as F
from torch import Tensor

from training.encodings import AbstractEncoding
from training.encodings.grid import Grid
from wefpe_core import InputError, InputTypeError


def checked_encoding(
    encoding: AbstractEncoding, dim: int, depth: int, num_heads: int
) -> AbstractEncoding:
    """`encoding`, after making sure that it is one and was built for this model."""
    if not isinstance(encoding, AbstractEncoding):
        raise InputTypeError(
            f"the encoding must be made by training.encodings.build_encoding or derive from its "
            f"AbstractEncoding, got {type(encoding).__name__}"
        )
    for name, mine in (("dim", dim), ("depth", depth), ("num_heads", num_heads)):
        theirs = getattr(encoding.size, name)
        if theirs != mine:
            raise InputError(f"the encoding was built for {name}={theirs}, the model has {mine}")
    return encoding


def shared_tables(encoding: AbstractEncoding) -> AbstractContextManager[None]:
    """Around the layers of one forward pass: tables of learned parameters are made once."""
    return encoding.shared_pass()


def add_position(
    patches: Tensor, prefix: Tensor | None, encoding: AbstractEncoding, grid: Grid
) -> Tensor:
    """Tokens of the first layer: prefix tokens (n, dim) and patches (batch, H*W, dim), placed.

    The only place where a model of this package adds a position table.
    """
    encoding.check_ready()
    table = encoding.additive(grid)
    if table is not None:
        patches = patches + table
    if prefix is None:
        return patches
    offset = encoding.prefix(len(prefix))
    if offset is not None:
        prefix = prefix + offset
    return torch.cat([prefix.expand(len(patches), -1, -1), patches], dim=1)


def rotate_patches(
    q: Tensor, k: Tensor, encoding: AbstractEncoding, grid: Grid, layer: int
) -> tuple[Tensor, Tensor]:
    """Queries and keys (batch, heads, tokens, head_dim) with those of the patches rotated."""
    n_prefix = q.shape[-2] - grid[0] * grid[1]
    q_patches, k_patches = q[..., n_prefix:, :], k[..., n_prefix:, :]
    q_rotated, k_rotated = encoding.rotate(q_patches, k_patches, grid, layer)
    if q_rotated is q_patches and k_rotated is k_patches:  # not a rotary encoding: copy nothing
        return q, k
    if not n_prefix:
        return q_rotated.to(q.dtype), k_rotated.to(k.dtype)
    return (
        torch.cat([q[..., :n_prefix, :], q_rotated.to(q.dtype)], dim=-2),
        torch.cat([k[..., :n_prefix, :], k_rotated.to(k.dtype)], dim=-2),
    )


def bias_of_tokens(q: Tensor, encoding: AbstractEncoding, grid: Grid, layer: int) -> Tensor | None:
    """Attention bias for all tokens, (heads, tokens, tokens) in the dtype of `q`, or None.

    Zero in the rows and columns of prefix tokens.
    """
    bias = encoding.bias(grid, layer)
    if bias is None:
        return None
    n_prefix = q.shape[-2] - grid[0] * grid[1]
    return F.pad(bias, (n_prefix, 0, n_prefix, 0)).to(q.dtype)
