"""Attention biases that are functions of the displacement of two patches, on no lattice."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.encodings.encoding import AbstractEncoding, differences
from training.encodings.grid import Grid, Offsets, checked_grid, grid_offsets
from training.encodings.options import (
    Alibi2dOptions,
    Centres,
    DisplacementOptions,
    GaussianOptions,
    LookHereOptions,
    RelativeTableOptions,
)
from training.encodings.size import EncodingSize

# What a head does not see. Finite in every format; its exponential is 0 beside any logit.
HIDDEN = -1e4


def starting_centres(centres: Centres, layers: int, heads: int) -> Tensor:
    """Columns and rows from a patch to what each head looks at, (layers, heads, 2)."""
    if centres == "zero":
        return torch.zeros(layers, heads, 2)
    angles = 2.0 * math.pi * torch.arange(heads) / heads
    ring = torch.stack((torch.cos(angles), torch.sin(angles)), -1)
    return ring.expand(layers, heads, 2).clone()


class AbstractDisplacementBias(AbstractEncoding):
    """A bias that a subclass gives for columns to the right and rows down.

    They are counted in patches of the grid that the encoding is made for, or of the grid it is
    called with, as the option ``coordinates`` says.
    """

    kind = "bias"

    def __init__(self, size: EncodingSize, options: DisplacementOptions) -> None:
        super().__init__(size)
        self.options: Any = options  # of the subclass
        self.coordinates, self.periodic = options.coordinates, options.periodic
        self.layers = size.depth if options.per_layer else 1

    def no_weight_decay(self) -> set[str]:
        return {name for name, _ in self.named_parameters()}

    @abstractmethod
    def of_displacements(self, right: Tensor, down: Tensor) -> Tensor:
        """The bias, (layers, heads, displacements)."""

    def offsets(self, grid: Grid) -> Offsets:
        """The displacements of a grid, as a table of indices that never changes."""
        return self.table(("offsets", grid), lambda: grid_offsets(grid, self.device), depends_on=())

    def bias(self, grid: Grid, layer: int) -> Tensor:
        grid = checked_grid(grid)
        self.check_layer(layer)
        # Without parameters the table is kept for all passes.
        parameters = list(self.parameters())
        by_offset = self.table(("offset bias", grid), lambda: self._by_offset(grid), parameters)
        return by_offset[layer % self.layers][:, self.offsets(grid).pairs]

    def bias_at(self, points: Tensor, layer: int) -> Tensor:
        self.check_layer(layer)
        right, down = differences(points)
        height, width = self.size.grid
        right, down = self._shortest(right * width, down * height, self.size.grid)
        found = self.of_displacements(right.reshape(-1), down.reshape(-1))[layer % self.layers]
        return found.reshape(-1, *right.shape).movedim(0, -3).to(self.dtype)

    def _shortest(self, right: Tensor, down: Tensor, grid: Grid) -> tuple[Tensor, Tensor]:
        """Displacements in patches; on a torus to the nearest copy of a patch."""
        if not self.periodic:
            return right, down
        # Halfway round the one to the left or above is taken.
        sides = ((right, grid[1]), (down, grid[0]))
        across, along = (step - side * torch.floor(step / side + 0.5) for step, side in sides)
        return across, along

    def _by_offset(self, grid: Grid) -> tuple[Tensor, ...]:
        """For each layer (heads, displacements)."""
        offsets, dtype = self.offsets(grid), self.working_dtype
        right, down = self._shortest(offsets.dx.to(dtype), offsets.dy.to(dtype), grid)
        if self.coordinates == "reference":
            height, width = self.size.grid
            right, down = right * (width / grid[1]), down * (height / grid[0])
        return self.of_displacements(right, down).to(self.dtype).unbind()


class RelativeTableEncoding(AbstractDisplacementBias):
    """One learned number per head for every displacement of the grid it is made for (Swin).

    Between its entries, which other grids ask for, the table is interpolated, and beyond them the
    last one stands.
    """

    name = "relative_table"
    summary = "attention bias from a learned table of displacements, as in Swin"
    formula = "logits_ij + B_h[y_j - y_i, x_j - x_i]"
    options_class = RelativeTableOptions

    def __init__(self, size: EncodingSize, options: RelativeTableOptions) -> None:
        super().__init__(size, options)
        height, width = size.grid
        shape = (self.layers, size.num_heads, 2 * height - 1, 2 * width - 1)
        self.displacement_table = nn.Parameter(torch.empty(shape))
        nn.init.trunc_normal_(self.displacement_table, std=options.initial_std)

    def brought_here(self, tensors: dict[str, Tensor], grid: Grid) -> dict[str, Tensor]:
        """The table, read where the displacements of this grid lie in that of `grid`."""
        if grid == self.size.grid or self.coordinates == "index":
            return tensors
        table = tensors["displacement_table"].double()
        (height, width), (old_height, old_width) = self.size.grid, grid
        steps = []
        for side, old in ((width, old_width), (height, old_height)):
            across = torch.arange(1 - side, side, dtype=table.dtype) * (old / side)
            steps.append(across / max(old - 1, 1))
        places = torch.stack(torch.meshgrid(steps[0], steps[1], indexing="xy"), -1)[None]
        read = F.grid_sample(
            table.flatten(0, 1)[None],
            places,
            mode=self.options.interpolation,
            padding_mode="border",
            align_corners=True,
        )
        shaped = read.reshape(*table.shape[:2], 2 * height - 1, 2 * width - 1)
        return {**tensors, "displacement_table": shaped.to(tensors["displacement_table"].dtype)}

    def of_displacements(self, right: Tensor, down: Tensor) -> Tensor:
        height, width = self.size.grid
        # From -1 to 1 over the table, whose corners are the largest displacements.
        x, y = right / max(width - 1, 1), down / max(height - 1, 1)
        table = self.displacement_table.flatten(0, 1)[None].to(right.dtype)
        found = F.grid_sample(
            table,
            torch.stack((x, y), -1)[None, None],
            mode=self.options.interpolation,
            padding_mode="border",
            align_corners=True,
        )
        return found.reshape(self.layers, self.size.num_heads, -1)

    def _by_offset(self, grid: Grid) -> tuple[Tensor, ...]:
        if grid == self.size.grid and not self.periodic:  # the table itself
            return self.displacement_table.flatten(2).to(self.dtype).unbind()
        return super()._by_offset(grid)


class Alibi2dEncoding(AbstractDisplacementBias):
    """The distance times a slope that falls from head to head (CROMA's ALiBi in two dimensions)."""

    name = "alibi2d"
    summary = "attention bias from the distance, with a fixed slope for each head"
    formula = "logits_ij - 2^(-8h/H) |x_j - x_i|, h = 1..H"
    options_class = Alibi2dOptions

    def __init__(self, size: EncodingSize, options: Alibi2dOptions) -> None:
        super().__init__(size, options)
        self.log_slopes = None
        if options.learnable:
            self.log_slopes = nn.Parameter(self._start().log().expand(self.layers, -1).clone())

    def brought_here(self, tensors: dict[str, Tensor], grid: Grid) -> dict[str, Tensor]:
        """Slopes for each patch of this grid; only those of equal shape are the same function."""
        if "log_slopes" not in tensors or self.coordinates == "index":
            return tensors
        return {"log_slopes": tensors["log_slopes"] + math.log(grid[1] / self.size.grid[1])}

    def _start(self) -> Tensor:
        heads = self.size.num_heads
        numbers = torch.arange(1, heads + 1, device=self.device)
        return torch.exp2(-8.0 * numbers / heads)

    def learned_numbers(self) -> dict[str, Tensor]:
        return {} if self.log_slopes is None else {"slope": self.slopes()}

    def slopes(self) -> Tensor:
        """(layers, heads) or (1, heads)."""
        start = self._start()[None] if self.log_slopes is None else self.log_slopes.exp()
        return start.expand(self.layers, -1)

    def of_displacements(self, right: Tensor, down: Tensor) -> Tensor:
        distance = torch.sqrt(right * right + down * down)
        return -self.slopes()[..., None].to(distance.dtype) * distance


def in_patches_of(
    tensors: dict[str, Tensor], old: Grid, new: Grid, coordinates: str = "reference"
) -> dict[str, Tensor]:
    """Widths and centres in patches of one grid, counted in those of another.

    A width is counted in columns.
    """
    if old == new or coordinates == "index":
        return tensors
    down, right = new[0] / old[0], new[1] / old[1]
    centre = tensors["centre"]
    return {
        **tensors,
        "log_width": tensors["log_width"] + math.log(right),
        "centre": centre * torch.tensor([right, down], dtype=centre.dtype),
    }


class GaussianEncoding(AbstractDisplacementBias):
    """A width and a centre for every head, without periods: the control of `weierstrass_heat`."""

    name = "gaussian"
    summary = "attention bias from a Gaussian with a learned width and centre per head"
    formula = "logits_ij - |x_j - x_i - d_h|^2/(2 sigma_h^2)"
    options_class = GaussianOptions

    def __init__(self, size: EncodingSize, options: GaussianOptions) -> None:
        super().__init__(size, options)
        shape = (self.layers, size.num_heads)
        self.log_width = nn.Parameter(torch.full(shape, math.log(options.width)))
        self.centre = nn.Parameter(starting_centres(options.centres, *shape))

    def learned_numbers(self) -> dict[str, Tensor]:
        return {"σ_h in patches": self.log_width.exp(), "|d_h|": self.centre.norm(dim=-1)}

    def brought_here(self, tensors: dict[str, Tensor], grid: Grid) -> dict[str, Tensor]:
        return in_patches_of(tensors, grid, self.size.grid, self.coordinates)

    def of_displacements(self, right: Tensor, down: Tensor) -> Tensor:
        x, y = (self.centre[..., None, k].to(right.dtype) for k in (0, 1))
        widths = torch.exp(2.0 * self.log_width.to(right.dtype))[..., None]
        return ((right - x) ** 2 + (down - y) ** 2) / (-2.0 * widths)


class LookHereEncoding(AbstractDisplacementBias):
    """Most heads see one direction only, and all see what is near better than what is far.

    Heads look up, down, left and right in turn; the last third sees everything. Nothing is learned.
    """

    name = "lookhere"
    summary = "attention bias that lets each head look in one direction, with a slope of distance"
    formula = "logits_ij - c_l s_h |x_j - x_i|, or hidden outside the field of view of head h"
    options_class = LookHereOptions

    def __init__(self, size: EncodingSize, options: LookHereOptions) -> None:
        super().__init__(size, options)

    def of_displacements(self, right: Tensor, down: Tensor) -> Tensor:
        like: dict[str, Any] = {"dtype": right.dtype, "device": right.device}
        heads, depth = self.size.num_heads, self.size.depth
        directed = heads - heads // 3
        slopes = [2.0 ** -(1 + h // 4) for h in range(directed)]
        slopes += [4.0 ** -(1 + h % 4) for h in range(heads - directed)]
        # From the first layer to the last, as published.
        layers = torch.linspace(1.5, 0.5, depth, **like) * self.options.slope
        distance = torch.sqrt(right * right + down * down)
        bias = -torch.tensor(slopes, **like)[:, None] * distance
        seen = torch.stack([self._is_seen(h, directed, right, down) for h in range(heads)])
        return torch.where(seen, layers[:, None, None] * bias, HIDDEN)

    def _is_seen(self, head: int, directed: int, right: Tensor, down: Tensor) -> Tensor:
        if head >= directed:
            return torch.ones_like(right, dtype=torch.bool)
        ahead, aside = ((-down, right), (down, right), (-right, down), (right, down))[head % 4]
        return ahead >= 0 if self.options.field_of_view == 180 else ahead >= aside.abs()
