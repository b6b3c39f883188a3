"""How strongly an encoding lets two patches interact: one symmetric N x N matrix for each kind.

- additive: the cosine of the rows of the table;
- rotary: E<R_i x, R_j x> / sqrt(E|R_i x|² E|R_j x|²) over random contents x without a preferred
  direction, in the first layer, averaged over heads. Such expectations are traces, so nothing is
  sampled. Where R keeps lengths (RoPE) this is E<R_i x, R_j x>/|x|²; FoPE does not, and dividing by
  the mean lengths leaves the part that is agreement of direction, as a cosine does;
- bias: the bias of the first layer, averaged over heads and both directions. Its unit is a
  logit, not a cosine;
- none: 1 for all pairs.

What a patch has to do with itself stands on the diagonal and in no statistic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from wefpe_core.errors import InputError

if TYPE_CHECKING:  # the claims use this module where there is no torch
    from training.encodings import AbstractEncoding
    from training.encodings.grid import Grid

Array = npt.NDArray[Any]


def interaction_matrix(encoding: AbstractEncoding, grid: Grid) -> Array:
    """The interaction of all patches of the grid, (N, N), by the definition of its kind."""
    if encoding.kind == "additive":
        table = position_table(encoding, grid)
        assert table is not None
        return cosine_matrix(table)
    if encoding.kind == "rotary":
        return _rotary(encoding, grid)
    if encoding.kind == "bias":
        bias = encoding.bias(grid, 0)
        assert bias is not None
        mean: Array = bias.detach().double().numpy().mean(axis=0)
        return (mean + mean.T) / 2
    if encoding.kind == "combined":
        raise InputError(
            "combined has no one interaction, since its parts act in different places; name them "
            "one by one"
        )
    return np.ones((grid[0] * grid[1],) * 2)


def position_table(encoding: AbstractEncoding, grid: Grid) -> Array | None:
    """What is added to the patches, (N, dim); None if the encoding adds nothing."""
    table = encoding.additive(grid)
    return None if table is None else table.detach().double().numpy()


def cosine_matrix(vectors: Array) -> Array:
    """Cosines of all rows; NaN for rows of zeros, which have no direction."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = vectors / np.where(length > 0, length, np.nan)
    return unit @ unit.T


def content_fused(table: Array, rng: np.random.Generator) -> Array:
    """The authors' vectors: content of N(0, 1), drawn for each patch, plus the position."""
    return rng.standard_normal(table.shape) + table


def _rotary(encoding: AbstractEncoding, grid: Grid) -> Array:
    """Frobenius cosines of the maps R_i: E<Ax, Bx> is tr(AᵀB) times a constant."""
    import torch

    size, patches = encoding.size, grid[0] * grid[1]
    basis = torch.eye(size.head_dim, dtype=torch.float64)
    tokens = basis[:, None, None].expand(-1, size.num_heads, patches, -1)
    turned = encoding.rotate(tokens, tokens, grid, 0)[0].detach().numpy()
    maps = turned.transpose(1, 2, 0, 3).reshape(size.num_heads, patches, -1)
    return np.mean([cosine_matrix(head) for head in maps], axis=0)
