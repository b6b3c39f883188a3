"""Attention bias from the Green function of the torus: a decay with distance that is a theorem."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.encodings.elliptic_values import (
    BACKEND_MEANING,
    BackendName,
    fixed_green,
    learned_green,
)
from training.encodings.encoding import EncodingSize
from training.encodings.grid import Grid, checked_grid
from training.encodings.lattice import TAU_MAX, TAU_MIN
from training.encodings.lattice_bias import LatticeBias
from training.encodings.options import option
from training.encodings.projection import inverse_softplus


@dataclass(frozen=True, kw_only=True)
class GreenOptions:
    """Options of `weierstrass_green`."""

    learnable: bool = option(True, "learn the lattice (the strengths are always learned)")
    lattice: Literal["rectangular", "general"] = option(
        "rectangular",
        "what learnable learns: omega3, or also the skew and omega1 (then the decay is no theorem)",
    )
    g2: float = option(1.0, "invariant of the lattice at the start")
    g3: float = option(0.0, "invariant of the lattice at the start")
    tau_min: float = option(TAU_MIN, "lower bound of Im tau when learned", above=0.0)
    tau_max: float = option(TAU_MAX, "upper bound of Im tau when learned", above=0.0)
    alpha_u: float = option(
        0.5, "periods covered by the width of the grid; the decay holds up to 1/2", above=0.0
    )
    alpha_v: float | None = option(
        None, "periods covered by the height of the grid; unset: as alpha_u", above=0.0
    )
    strength: float = option(1.0, "factor of every head at the start", above=0.0)
    diagonal: Literal["disk_mean", "nearest"] = option(
        "disk_mean",
        "bias of a patch on itself, where G is infinite: the mean of G over a disk of one patch's "
        "area, or the largest value at another patch",
    )
    per_layer: bool = option(True, "strengths for each layer, or one set for all")
    backend: BackendName = option("torch", BACKEND_MEANING)


class GreenEncoding(LatticeBias):
    r"""Bias :math:`s_h G(z_j - z_i)`, :math:`s_h = {\rm softplus}(s_h^{raw}) > 0`.

    G is the Green function of the torus: :math:`\Delta G = 2\pi/A - 2\pi\delta_\Lambda`. On a
    rectangular lattice it strictly decreases whenever a row or a column offset grows, as long as
    offsets stay within half a period (alpha at most 1/2).

    Over a disk of radius r its mean is :math:`\frac12 - \log r + \pi r^2/(4A)` exactly, since
    :math:`G + \log|z|` vanishes at 0 and has the constant Laplacian :math:`2\pi/A`.
    """

    name = "weierstrass_green"
    summary = "attention bias from the Green function of the torus: proven decay with distance"
    formula = "logits_ij + s_h G(z_j - z_i), G(z) = -log|sigma(z)| + Re(G2* z^2)/2 + pi|z|^2/(2A)"
    options: GreenOptions
    options_class = GreenOptions

    def __init__(self, size: EncodingSize, options: GreenOptions) -> None:
        super().__init__(size, options)
        layers = size.depth if options.per_layer else 1
        raw = inverse_softplus(options.strength)
        self.strength_raw = nn.Parameter(torch.full((layers, size.num_heads), raw))

    def strengths(self) -> Tensor:
        """s_h, positive, (layers, heads)."""
        return F.softplus(self.strength_raw)

    def values(self, grid: Grid) -> Tensor:
        """G at the displacements of `offsets`, in float64; the diagonal by its rule."""
        grid = checked_grid(grid)
        if self.lattice_parameter.learned == "nothing":
            return self.table(("values", grid), lambda: self._fixed_values(grid), depends_on=())
        omegas = self.lattice_parameter.half_periods(self.device)
        area = 4.0 * omegas.omega1 * omegas.omega3_im
        return self._with_diagonal(learned_green(self.frame(grid), omegas), area, grid)

    def _fixed_values(self, grid: Grid) -> Tensor:
        lattice = self.lattice()
        values = fixed_green(self.options.backend, self.frame(grid), lattice)
        area = 4.0 * (complex(lattice.omega1).conjugate() * complex(lattice.omega3)).imag
        values = values.to(self.working_dtype).to(self.device)
        return self._with_diagonal(values, values.new_tensor(area), grid)

    def _with_diagonal(self, values: Tensor, area: Tensor, grid: Grid) -> Tensor:
        skip = self.frame(grid).coincident(self.offsets(grid))
        if self.options.diagonal == "nearest":
            others = torch.where(skip, -math.inf, values).amax()
            # A grid of one patch has no other; its only bias is a constant anyway.
            instead = torch.where(torch.isfinite(others), others, 0.0)
        else:
            patch = area * (self.alpha_u * self.alpha_v / (grid[0] * grid[1]))
            instead = 0.5 - 0.5 * torch.log(patch / math.pi) + patch / (4.0 * area)
        return torch.where(skip, instead, values)

    def bias(self, grid: Grid, layer: int) -> Tensor:
        grid = checked_grid(grid)
        self.check_layer(layer)
        green = self.table(("green", grid), lambda: self.values(grid).to(self.dtype))
        strengths = self.strengths()[layer if self.options.per_layer else 0]
        return strengths[:, None, None] * green[self.offsets(grid).pairs]
