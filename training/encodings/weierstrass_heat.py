"""An attention bias with a width and a centre for every head: the heat kernel of the torus."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from backends.heat import log_periodic_gaussian
from backends.torch_ops import TorchOps
from training.encodings.displacements import in_patches_of, starting_centres
from training.encodings.elliptic_values import TORCH, EllipticUse, moving
from training.encodings.encoding import differences
from training.encodings.grid import Grid, checked_grid
from training.encodings.learned_lattice import inverse_softplus
from training.encodings.size import EncodingSize
from training.encodings.weierstrass_bias import AbstractLatticeBias
from training.encodings.weierstrass_options import HeatOptions


class Axes(NamedTuple):
    """What is known of the displacements along the columns, and then along the rows."""

    places: Tensor  # pi times the displacement over the period
    sides: Tensor  # 0 for columns, 1 for rows
    scale: Tensor  # `places` for one patch of the grid that the encoding is made for
    is_row: Tensor  # `sides` as real numbers
    log_first: Tensor  # log of 2 omega1/sqrt(pi)


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
        return self.column**2 * torch.exp(2.0 * self.log_width.to(self.working_dtype))

    def values(self, grid: Grid) -> Tensor:
        """log K at the displacements of `offsets`, (layers, heads, displacements), in float64."""
        height, width = grid = checked_grid(grid)
        if not self.is_rectangular:
            offsets = self.offsets(grid)
            dtype = self.working_dtype
            return self._general(offsets.dx.to(dtype) / width, offsets.dy.to(dtype) / height)
        # K is the product of a function of the column and one of the row; one call makes both.
        axes: Axes = self.table(("axes", grid), lambda: self._axes(grid), depends_on=())
        v = axes.places - self.centre[..., axes.sides] * axes.scale
        # log of period/sqrt(pi); only that of the rows is learned.
        log_aspect = torch.log(self.lattice_parameter.aspect(self.device))
        logs = torch.addcmul(axes.log_first, axes.is_row, log_aspect)
        # The sharpness is the period over pi sqrt(2t).
        shift = 0.5 * math.log(2.0 * math.pi) + math.log(self.column)
        sharpness = torch.exp((logs - shift) - self.log_width[..., None])
        found = log_periodic_gaussian(TorchOps(v.dtype), v, sharpness) - logs
        across, down = found.split((2 * width - 1, 2 * height - 1), -1)
        return (down[..., None] + across[..., None, :]).flatten(-2)

    def _axes(self, grid: Grid) -> Axes:
        like: dict[str, Any] = {"dtype": self.working_dtype, "device": self.device}
        log_first = math.log(2.0 * self.lattice_parameter.start.omega1.real / math.sqrt(math.pi))
        found = []
        for side, alpha in enumerate((self.alpha_u, self.alpha_v)):
            count, trained = grid[1 - side], self.size.grid[1 - side]
            steps = torch.arange(1 - count, count, **like) / count
            numbers = (math.pi * alpha / trained, float(side), log_first)
            rest = (torch.full_like(steps, number) for number in numbers)
            found.append((math.pi * alpha * steps, *rest))
        places, scale, is_row, log_first_period = map(torch.cat, zip(*found, strict=True))
        return Axes(places, is_row.long(), scale, is_row, log_first_period)

    def _general(self, along: Tensor, down: Tensor) -> Tensor:
        """log K at displacements given as shares of the width and the height of the image."""
        height, width = self.size.grid
        x, y = (self.centre.to(self.working_dtype)[..., None, k] for k in (0, 1))
        u, v = along - x / width, down - y / height
        frame = self.frame(self.size.grid)
        omegas = self.lattice_parameter.half_periods(self.device)
        z, lattice = moving(torch.stack(frame.in_half_periods(u, v), -1), omegas)
        return TORCH.log_heat(z, self.times()[..., None], lattice)

    def bias(self, grid: Grid, layer: int) -> Tensor:
        grid = checked_grid(grid)
        self.check_layer(layer)
        by_offset = self.table(("offset bias", grid), lambda: self._by_offset(grid))
        return by_offset[layer if self.options.per_layer else 0][:, self.offsets(grid).pairs]

    def bias_at(self, points: Tensor, layer: int) -> Tensor:
        self.check_layer(layer)
        along, down = differences(points)
        values = self._general(along.reshape(-1), down.reshape(-1)).to(self.dtype)
        found = self.strengths()[..., None] * values
        chosen = found[layer if self.options.per_layer else 0]
        return chosen.reshape(-1, *along.shape).movedim(0, -3)

    def _by_offset(self, grid: Grid) -> tuple[Tensor, ...]:
        """For each layer (heads, displacements)."""
        values = self.strengths()[..., None] * self.values(grid).to(self.dtype)
        return values.unbind()
