"""An attention bias with a width and a centre for every head: the heat kernel of the torus."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from backends.torch_operators import values_at_coordinates
from training.encodings.displacements import in_patches_of, starting_centres
from training.encodings.elliptic_values import EllipticUse
from training.encodings.encoding import differences
from training.encodings.grid import Grid, checked_grid
from training.encodings.learned_lattice import inverse_softplus
from training.encodings.size import EncodingSize
from training.encodings.weierstrass_bias import AbstractLatticeBias
from training.encodings.weierstrass_options import HeatOptions


class Places(NamedTuple):
    """Where log K is wanted, in half-periods, and how far a centre of one patch moves that."""

    at: Tensor  # (n, 2)
    per_patch: Tensor


class HeatEncoding(AbstractLatticeBias):
    r"""Bias :math:`s_h\log K_{t_h}(z_j - z_i - d_h)`, K the heat kernel of the torus.

    The width :math:`\sqrt{t_h}` and the centre :math:`d_h` are learned in patches of the grid
    the encoding is made for, the strength is :math:`s_h = {\rm softplus}(s_h^{raw}) > 0`. On a
    rectangular lattice the bias strictly decreases whenever a row or a column offset from the
    centre grows, up to half a period. There K is the product of a function of the column and
    one of the row, and is computed as such.
    """

    name = "weierstrass_heat"
    summary = "attention bias from the heat kernel of the torus: a width and a centre per head"
    formula = "logits_ij + s_h log K_t(z_j - z_i - d_h), K_t(z) = sum_w exp(-|z+w|^2/2t)/(2 pi t)"
    options_class = HeatOptions

    def __init__(self, size: EncodingSize, options: HeatOptions) -> None:
        super().__init__(size, options)
        self.options = options
        layers = size.depth if options.per_layer else 1
        shape = (layers, size.num_heads)
        self.log_width = nn.Parameter(torch.full(shape, math.log(options.width)))
        self.strength_raw = nn.Parameter(torch.full(shape, inverse_softplus(options.strength)))
        self.centre = nn.Parameter(starting_centres(options.centres, layers, size.num_heads))
        start = self.lattice()
        # The width of a column of the grid on the lattice at the start.
        self.column = 2.0 * self.alpha_u * start.omega1.real / size.grid[1]
        self.is_rectangular = start.tau.real == 0.0 and self.lattice_parameter.learned != "general"

    def elliptic_use(self) -> EllipticUse:
        return EllipticUse("torch", ("heat",), self.is_learned)

    def no_weight_decay(self) -> set[str]:
        return {name for name, _ in self.named_parameters()}

    def brought_here(self, tensors: dict[str, Tensor], grid: Grid) -> dict[str, Tensor]:
        return in_patches_of(tensors, grid, self.size.grid)

    def strengths(self) -> Tensor:
        """s_h, positive, (layers, heads)."""
        return F.softplus(self.strength_raw)

    def learned_numbers(self) -> dict[str, Tensor]:
        width = {"width √t_h in patches": self.log_width.exp(), "|d_h|": self.centre.norm(dim=-1)}
        return {**super().learned_numbers(), "s_h": self.strengths(), **width}

    def times(self) -> Tensor:
        """t_h, (layers, heads), in float64."""
        return torch.exp(2.0 * (self.log_width.to(self.working_dtype) + math.log(self.column)))

    def values(self, grid: Grid) -> Tensor:
        """log K at the displacements of `offsets`, (layers, heads, displacements), in float64."""
        height, width = grid = checked_grid(grid)
        places = self.table(("places", grid), lambda: self._places(grid), depends_on=())
        found = self._at(places)
        if not self.is_rectangular:
            return found
        across, down, shared = found.split((2 * width - 1, 2 * height - 1, 1), -1)
        return (down[..., None] + (across - shared)[..., None, :]).flatten(-2)

    def _places(self, grid: Grid) -> Places:
        height, width = grid
        if not self.is_rectangular:
            offsets = self.offsets(grid)
            dx, dy = (x.to(self.working_dtype) for x in (offsets.dx, offsets.dy))
            return self._in_half_periods(torch.stack((dx / width, dy / height), -1))
        # log K is the sum of what it is along the first row of displacements and along the first
        # column, less what it is at 0.
        like: dict[str, Any] = {"dtype": self.working_dtype, "device": self.device}
        sides = [torch.arange(1 - n, n, **like)[:, None] / n for n in (width, height)]
        shares, moves = (
            F.pad(torch.block_diag(*pair), (0, 0, 0, 1))
            for pair in (sides, map(torch.ones_like, sides))
        )
        return self._in_half_periods(shares, moves)

    def _in_half_periods(self, shares: Tensor, moves: Tensor | float = 1.0) -> Places:
        """Displacements given as shares of the width and the height of the image, (n, 2)."""
        height, width = self.size.grid
        like: dict[str, Any] = {"dtype": self.working_dtype, "device": self.device}
        scale = torch.tensor((2.0 * self.alpha_u, 2.0 * self.alpha_v), **like)
        patch = scale / torch.tensor((width, height), **like)
        return Places(shares * scale, torch.zeros_like(shares) - moves * patch)

    def _at(self, places: Places) -> Tensor:
        """log K, (layers, heads, places)."""
        centre = self.centre.to(self.working_dtype)[..., None, :]
        coordinates = torch.addcmul(places.at, places.per_patch, centre)
        times = self.times()[..., None, None].expand(*coordinates.shape[:-1], 1)
        omegas = self.lattice_parameter.half_periods(self.device)
        points = torch.cat((coordinates, times), -1)
        return values_at_coordinates("log_heat", points, omegas.parts)[0]

    def bias(self, grid: Grid, layer: int) -> Tensor:
        grid = checked_grid(grid)
        self.check_layer(layer)
        by_offset = self.table(("offset bias", grid), lambda: self._by_offset(grid))
        return by_offset[layer if self.options.per_layer else 0][:, self.offsets(grid).pairs]

    def bias_at(self, points: Tensor, layer: int) -> Tensor:
        self.check_layer(layer)
        along, down = differences(points)
        shares = torch.stack((along.reshape(-1), down.reshape(-1)), -1).to(self.working_dtype)
        values = self._at(self._in_half_periods(shares)).to(self.dtype)
        found = self.strengths()[..., None] * values
        chosen = found[layer if self.options.per_layer else 0]
        return chosen.reshape(-1, *along.shape).movedim(0, -3)

    def _by_offset(self, grid: Grid) -> tuple[Tensor, ...]:
        """For each layer (heads, displacements)."""
        values = self.strengths()[..., None] * self.values(grid).to(self.dtype)
        return values.unbind()
