"""Rotary encodings: pairs of channels of q and k turned by angles linear in the position.

The product of a turned query and a turned key depends on their displacement alone, and no
norm changes. Angles are computed in float64, the rotation in float32 (float64 for float64
tokens), outside autocast; the result has the dtype of the tokens.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from backends.torch_ops import without_autocast
from training.encodings.encoding import AbstractEncoding, checked_points, working_dtype
from training.encodings.grid import Grid, checked_grid, patch_centres, patch_indices, whole_waves
from training.encodings.options import (
    PairLayout,
    Rope1dOptions,
    RopeAxialOptions,
    RopeMixedOptions,
)
from training.encodings.size import EncodingSize
from wefpe_core.errors import InputError


def rotation_dtype(tokens: Tensor) -> torch.dtype:
    """The dtype tokens are turned in: float64 for float64, else float32."""
    return torch.float64 if tokens.dtype == torch.float64 else torch.float32


def rotate_pairs(tokens: Tensor, cos: Tensor, sin: Tensor, layout: PairLayout) -> Tensor:
    """Turn the pairs of channels of (..., N, head_dim) by angles (..., N, head_dim/2)."""
    x = tokens.to(cos.dtype)
    if layout == "interleaved":
        a, b = x[..., 0::2], x[..., 1::2]
        turned = torch.stack((a * cos - b * sin, b * cos + a * sin), dim=-1).flatten(-2)
    else:
        a, b = x.chunk(2, dim=-1)
        turned = torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)
    return turned.to(tokens.dtype)


class AbstractRotaryEncoding(AbstractEncoding):
    """Rotation by the angles a subclass gives."""

    kind = "rotary"
    layout: PairLayout
    is_shared_by_layers = True  # one table of angles serves all layers

    @property
    def is_moved(self) -> bool:
        """Whether places are moved at random now."""
        return False

    def angles(self, grid: Grid, layer: int, device: torch.device) -> Tensor:
        """Angles (N, head_dim/2) or (heads, N, head_dim/2) in the working dtype."""
        raise NotImplementedError

    def angles_at(self, u: Tensor, v: Tensor, layer: int) -> Tensor:
        """Angles (..., N, head_dim/2) or (..., heads, N, head_dim/2) at shares of the image."""
        raise InputError(f"{self.name} knows the places of a whole grid only")

    def rotate_at(self, q: Tensor, k: Tensor, points: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        self.check_layer(layer)
        with without_autocast(q.device):
            angles = self.angles_at(*checked_points(points), layer)
            if self.is_shared_by_layers:  # the same for all heads
                angles = angles[..., None, :, :]
            dtype = rotation_dtype(q)
            cos, sin = torch.cos(angles).to(dtype), torch.sin(angles).to(dtype)
            return (
                rotate_pairs(q, cos, sin, self.layout),
                rotate_pairs(k, cos, sin, self.layout),
            )

    def rotate(self, q: Tensor, k: Tensor, grid: Grid, layer: int) -> tuple[Tensor, Tensor]:
        grid = self.check_tokens(q, k, grid, layer)
        dtype, device = rotation_dtype(q), q.device

        def make() -> tuple[Tensor, Tensor]:
            angles = self.angles(grid, layer, device)
            return torch.cos(angles).to(dtype), torch.sin(angles).to(dtype)

        key = ("rotation", grid, 0 if self.is_shared_by_layers else layer, dtype, device)
        depends_on = None if self.is_moved else list(self.parameters())
        cos, sin = self.table(key, make, depends_on=depends_on)
        with without_autocast(device):
            return (
                rotate_pairs(q, cos, sin, self.layout),
                rotate_pairs(k, cos, sin, self.layout),
            )


class Rope1dEncoding(AbstractRotaryEncoding):
    r"""RoPE on the raster index: :math:`\theta_i = 10000^{-2i/d}`, as in language models."""

    name = "rope1d"
    summary = "rotary, by the raster index of the patch"
    formula = "q_i -> R(m_i theta) q_i with m_i = row*width + column"
    options_class = Rope1dOptions

    def __init__(self, size: EncodingSize, options: Rope1dOptions) -> None:
        super().__init__(size)
        self.options, self.layout = options, options.layout

    def angles(self, grid: Grid, layer: int, device: torch.device) -> Tensor:
        dtype = working_dtype(device)
        first = 1 if self.options.class_token == "index_zero" else 0
        index = torch.arange(first, first + grid[0] * grid[1], dtype=dtype, device=device)
        return index[:, None] * geometric(self.options.base, self.size.head_dim, 2, dtype, device)


def geometric(
    base: float, head_dim: int, step: int, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """base^(-step*i/head_dim) for i < head_dim/step."""
    exponents = torch.arange(0, head_dim, step, dtype=dtype, device=device) / head_dim
    return torch.pow(base, -exponents)


class RopeAxialEncoding(AbstractRotaryEncoding):
    r"""Half of the pairs turn with the column, half with the row (rope-vit).

    :math:`f_i = 100^{-4i/d}`, i < d/4; the angles are [x f, y f].
    """

    name = "rope_axial"
    summary = "rotary, half of the channels by the column and half by the row"
    formula = "q_i -> R([x_i f, y_i f]) q_i"
    options_class = RopeAxialOptions

    def __init__(self, size: EncodingSize, options: RopeAxialOptions) -> None:
        super().__init__(size)
        self.options, self.layout = options, options.layout

    @property
    def is_moved(self) -> bool:
        return self.training and self.options.moves_places

    @property
    def draws_in_training(self) -> bool:
        return self.options.moves_places

    def draw_places(self, grid: Grid) -> None:
        if self.is_moved:
            self.moved_centres(checked_grid(grid), self.options)

    def angles(self, grid: Grid, layer: int, device: torch.device) -> Tensor:
        dtype = working_dtype(device)
        x, y = patch_indices(grid, dtype, device)
        if self.options.coordinates == "reference":
            x, y = x * (self.size.grid[1] / grid[1]), y * (self.size.grid[0] / grid[0])
        if self.is_moved:
            return self._angles(*self.moved_centres(grid, self.options), x, y)
        return self._angles(*patch_centres(grid, dtype, device), x, y)

    def angles_at(self, u: Tensor, v: Tensor, layer: int) -> Tensor:
        height, width = self.size.grid
        return self._angles(u, v, u * width - 0.5, v * height - 0.5)

    def _angles(self, u: Tensor, v: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Angles at shares u, v of the image, which are columns x and rows y."""
        dtype, device = u.dtype, u.device
        if self.options.coordinates == "periodic":
            height, width = self.size.grid
            along, down = (
                2.0 * math.pi * whole_waves(self.size.head_dim // 4, side, dtype, device)
                for side in (width, height)
            )
            return torch.cat([u[..., None] * along, v[..., None] * down], dim=-1)
        frequencies = geometric(self.options.base, self.size.head_dim, 4, dtype, device)
        if self.options.coordinates == "centred":
            x, y = 2.0 * math.pi * (2.0 * u - 1.0), 2.0 * math.pi * (2.0 * v - 1.0)
        return torch.cat([x[..., None] * frequencies, y[..., None] * frequencies], dim=-1)


class RopeMixedEncoding(AbstractRotaryEncoding):
    r"""Every pair turns with the position along its own learned direction (rope-vit, mixed).

    The frequencies ``freqs`` (2, depth, heads*head_dim/2) are learned; at the start each layer
    and head has a random direction and the magnitudes :math:`10^{-4i/d}` along it and across.
    """

    name = "rope_mixed"
    summary = "rotary, with learned frequencies of column and row for each layer and head"
    formula = "q_i -> R(x_i f_x + y_i f_y) q_i"
    options_class = RopeMixedOptions
    is_shared_by_layers = False

    def __init__(self, size: EncodingSize, options: RopeMixedOptions) -> None:
        super().__init__(size)
        self.options, self.layout = options, options.layout
        magnitude = geometric(
            options.base, size.head_dim, 4, torch.get_default_dtype(), torch.device("cpu")
        )
        angle = 2.0 * math.pi * torch.rand(size.depth, size.num_heads, 1)
        across = angle + 0.5 * math.pi
        freqs = torch.stack(
            [
                torch.cat([magnitude * torch.cos(angle), magnitude * torch.cos(across)], dim=-1),
                torch.cat([magnitude * torch.sin(angle), magnitude * torch.sin(across)], dim=-1),
            ]
        )
        self.freqs = nn.Parameter(freqs.flatten(2))

    def angles(self, grid: Grid, layer: int, device: torch.device) -> Tensor:
        dtype = working_dtype(device)
        return self._angles(*patch_indices(grid, dtype, device), layer)

    def angles_at(self, u: Tensor, v: Tensor, layer: int) -> Tensor:
        height, width = self.size.grid
        x, y = u * width - 0.5, v * height - 0.5
        return self._angles(x[..., None, :], y[..., None, :], layer)  # for every head

    def _angles(self, x: Tensor, y: Tensor, layer: int) -> Tensor:
        freqs = self.freqs[:, layer].to(x.dtype).reshape(2, self.size.num_heads, 1, -1)
        return x[..., None] * freqs[0] + y[..., None] * freqs[1]
