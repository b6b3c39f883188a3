"""Rotations of q and k by the exponential of learned generators (LieRE, ComRoPE)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from backends.torch_ops import without_autocast
from training.encodings.encoding import AbstractEncoding, working_dtype
from training.encodings.grid import Grid, patch_centres
from training.encodings.options import LieOptions
from training.encodings.rotary import rotation_dtype
from training.encodings.size import EncodingSize


class LieEncoding(AbstractEncoding):
    r"""Blocks of channels turned by :math:`e^{uA + vB}` with learned skew-symmetric A and B.

    u and v run from 0 to 1 over the image. If A and B commute, the product of a turned query and a
    turned key depends on their displacement alone: then every other block turns with the column and
    the rest with the row (ComRoPE by axial partition). In general (LieRE) it does not.
    """

    name = "liere"
    kind = "rotary"
    summary = "rotary, by the exponential of learned skew-symmetric generators"
    formula = "q_i -> exp(u_i A + v_i B) q_i, A and B skew-symmetric"
    options_class = LieOptions

    folded: Tensor | None

    def __init__(self, size: EncodingSize, options: LieOptions) -> None:
        super().__init__(size)
        self.options = options
        self.layers = size.depth if options.per_layer else 1
        blocks, side = size.head_dim // options.block, options.block
        shape = (self.layers, 2, size.num_heads, blocks, side, side)
        self.generators = nn.Parameter(2.0 * math.pi * options.initial * torch.rand(shape))
        self.register_buffer("folded", None, persistent=False)

    def no_weight_decay(self) -> set[str]:
        return {"generators"}

    def rotations(self, grid: Grid, layer: int, device: torch.device) -> Tensor:
        """Orthogonal matrices, (heads, patches, blocks, block, block), in the working dtype."""
        upper = self.generators[layer % self.layers].to(working_dtype(device)).triu(1)
        skew = upper - upper.transpose(-1, -2)
        u, v = (x[:, None, None, None] for x in patch_centres(grid, skew.dtype, device))
        along, down = skew[:, :, None].unbind()
        if self.options.commuting:
            turns = torch.arange(skew.shape[2], device=device)[:, None, None] % 2 == 0
            exponents = torch.where(turns, u * along, v * down)
        else:
            exponents = u * along + v * down
        return torch.matrix_exp(exponents)

    def fold(self, grid: Grid) -> None:
        """Keep the matrices: other runtimes have no matrix exponential."""
        if self.folded is None:
            dtype = rotation_dtype(self.generators)
            layers = (self.rotations(grid, layer, self.device) for layer in range(self.layers))
            self.folded = torch.stack([turns.detach().to(dtype) for turns in layers])

    def rotate(self, q: Tensor, k: Tensor, grid: Grid, layer: int) -> tuple[Tensor, Tensor]:
        grid = self.check_tokens(q, k, grid, layer)
        dtype, device = rotation_dtype(q), q.device
        key = ("rotation", grid, layer % self.layers, dtype, device)
        if self.folded is None:
            turns = self.table(key, lambda: self.rotations(grid, layer, device).to(dtype))
        else:
            turns = self.folded[layer % self.layers].to(dtype)
        with without_autocast(device):
            return self._turned(q, turns), self._turned(k, turns)

    def _turned(self, tokens: Tensor, turns: Tensor) -> Tensor:
        blocks = tokens.to(turns.dtype).unflatten(-1, (-1, self.options.block, 1))
        return (turns @ blocks).flatten(-3).to(tokens.dtype)
