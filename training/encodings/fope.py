"""FoPE: rotary encoding whose cosines and sines are mixed by fixed random Fourier coefficients."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from backends.torch_ops import without_autocast
from training.encodings.encoding import AbstractEncoding, working_dtype
from training.encodings.grid import Grid
from training.encodings.options import FopeOptions
from training.encodings.rotary import rotate_pairs, rotation_dtype
from training.encodings.size import EncodingSize


class FopeEncoding(AbstractEncoding):
    """Fourier position embedding on the raster index.

    The frequencies of RoPE that do not complete a turn within the grid of training are dropped; D
    are left. Each layer and head has a matrix (D, min(D, head_dim/4)) for cosines and one for
    sines: the identity, or unit vectors at equal steps if it is not square, plus Xavier noise.
    The matrices are drawn once and not learned, so the state dict holds them. Channels i and
    i + head_dim/2 form a pair.
    """

    name = "fope"
    kind = "rotary"
    summary = "rotary by the raster index, with fixed mixtures of frequencies for each head"
    formula = "q_i -> q_i F_cos(m_i) + rotate_half(q_i) F_sin(m_i), F = [cos(m f) C, pad]"
    options_class = FopeOptions

    sin_coefficients: Tensor
    cos_coefficients: Tensor

    def __init__(self, size: EncodingSize, options: FopeOptions) -> None:
        super().__init__(size)
        self.options = options
        self.kept = options.frequencies_kept(size)
        outputs = min(self.kept, size.head_dim // 4)
        for name in ("sin_coefficients", "cos_coefficients"):
            layers = [
                _coefficients(size.num_heads, self.kept, outputs, options.gain)
                for _ in range(size.depth)
            ]
            coefficients = torch.stack(layers)
            if options.learnable:
                self.register_parameter(name, nn.Parameter(coefficients))
            else:
                self.register_buffer(name, coefficients)

    def rotate(self, q: Tensor, k: Tensor, grid: Grid, layer: int) -> tuple[Tensor, Tensor]:
        grid = self.check_tokens(q, k, grid, layer)
        dtype, device = rotation_dtype(q), q.device
        coefficients = (self.cos_coefficients, self.sin_coefficients)

        def make() -> tuple[Tensor, Tensor]:
            wide = working_dtype(device)
            index = torch.arange(grid[0] * grid[1], dtype=wide, device=device)
            exponents = torch.arange(self.kept, dtype=wide, device=device)
            frequencies = torch.pow(self.options.base, -2.0 * exponents / self.size.head_dim)
            angles = index[:, None] * frequencies
            waves = (torch.cos(angles), torch.sin(angles))
            pads = (1.0, 1.0 if self.options.pad == "official" else 0.0)
            cos, sin = (
                self._padded(wave @ mixture[layer].to(wide), pad).to(dtype)
                for wave, mixture, pad in zip(waves, coefficients, pads, strict=True)
            )
            return cos, sin

        key = ("rotation", grid, layer, dtype, device)
        cos, sin = self.table(key, make, depends_on=coefficients)
        with without_autocast(device):
            return rotate_pairs(q, cos, sin, "half"), rotate_pairs(k, cos, sin, "half")

    def _padded(self, mixed: Tensor, value: float) -> Tensor:
        missing = self.size.head_dim // 2 - mixed.shape[-1]
        return nn.functional.pad(mixed, (0, missing), value=value)


def _coefficients(heads: int, inputs: int, outputs: int, gain: float) -> Tensor:
    # Xavier noise of the whole (heads, inputs, outputs) tensor, as published: its fans are those
    # of a convolution, inputs*outputs and heads*outputs.
    noise = torch.empty(heads, inputs, outputs)
    nn.init.xavier_normal_(noise, gain=gain)
    step = math.ceil(inputs / outputs)
    for i in range(outputs):
        if i * step < inputs:
            noise[:, i * step, i] += 1.0
    return noise
