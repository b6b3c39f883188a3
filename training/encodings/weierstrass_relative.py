"""Attention bias from wp and wp' of the displacement, by the addition formula."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.encodings.elliptic_values import (
    BACKEND_MEANING,
    BackendName,
    Values,
    fixed_differences,
    learned_differences,
)
from training.encodings.encoding import EncodingSize
from training.encodings.grid import Grid, checked_grid, refuse_poles
from training.encodings.lattice import TAU_MAX, TAU_MIN
from training.encodings.lattice_bias import LatticeBias
from training.encodings.options import option
from training.encodings.projection import (
    COMPRESSION_MEANING,
    COMPRESSIONS,
    Compression,
    inverse_softplus,
)


@dataclass(frozen=True, kw_only=True)
class RelativeOptions:
    """Options of `weierstrass_relative`."""

    features: Literal[4, 2] = option(4, "Re and Im of wp and wp', or of wp alone (then symmetric)")
    learnable: bool = option(True, "learn the lattice and the compression")
    lattice: Literal["rectangular", "general"] = option(
        "rectangular", "what learnable learns: omega3, or also the skew and omega1"
    )
    g2: float = option(1.0, "invariant of the lattice at the start")
    g3: float = option(0.0, "invariant of the lattice at the start")
    tau_min: float = option(TAU_MIN, "lower bound of Im tau when learned", above=0.0)
    tau_max: float = option(TAU_MAX, "upper bound of Im tau when learned", above=0.0)
    alpha_u: float = option(0.5, "periods covered by the width of the grid", above=0.0)
    alpha_v: float | None = option(
        None, "periods covered by the height of the grid; unset: as alpha_u", above=0.0
    )
    compression: Compression = option("tanh", COMPRESSION_MEANING)
    scale: float = option(0.15, "factor inside the compression at the start", above=0.0)
    diagonal: Literal["learned", "zero"] = option(
        "learned", "bias of a patch on itself, where wp is infinite: one number per head, or 0"
    )
    per_layer: bool = option(True, "weights for each layer, or one set for all")
    initial_std: float = option(0.02, "standard deviation of the weights at the start", above=0.0)
    backend: BackendName = option("torch", BACKEND_MEANING)


class RelativeEncoding(LatticeBias):
    r"""Bias :math:`w_h\cdot c(s f)`, f of :math:`\wp,\wp'` at :math:`z_j - z_i`.

    The values at differences come from those at the patches by the addition formula, which the
    paper promises and its features cannot deliver. There are (2H-1)(2W-1) of them; each is
    computed once, from the pair nearest to the middle of the grid, and read by all pairs.
    """

    name = "weierstrass_relative"
    summary = "attention bias from wp and wp' of the displacement, by the addition formula"
    formula = "logits_ij + w_h . c(s [Re wp, Im wp, Re wp', Im wp'](z_j - z_i))"
    options: RelativeOptions
    options_class = RelativeOptions

    def __init__(self, size: EncodingSize, options: RelativeOptions) -> None:
        super().__init__(size, options)
        refuse_poles(size.grid, self.alpha_u, self.alpha_v)
        self.scale_raw = None
        if options.learnable:
            self.scale_raw = nn.Parameter(torch.tensor(inverse_softplus(options.scale)))
        layers = size.depth if options.per_layer else 1
        self.weight = nn.Parameter(torch.empty(layers, size.num_heads, options.features))
        nn.init.trunc_normal_(self.weight, std=options.initial_std)
        self.self_bias = None
        if options.diagonal == "learned":
            self.self_bias = nn.Parameter(torch.zeros(layers, size.num_heads))

    def no_weight_decay(self) -> set[str]:
        return {name for name, _ in self.named_parameters()}

    def values(self, grid: Grid) -> Values:
        """Re and Im of wp and wp' at the displacements of `offsets`, float64, with gradients."""
        grid = checked_grid(grid)
        refuse_poles(grid, self.alpha_u, self.alpha_v)
        if self.lattice_parameter.learned == "nothing":
            return self.table(("values", grid), lambda: self._fixed_values(grid), depends_on=())
        omegas = self.lattice_parameter.half_periods(self.device)
        return learned_differences(self.frame(grid), omegas)

    def _fixed_values(self, grid: Grid) -> Values:
        values = fixed_differences(self.options.backend, self.frame(grid), self.lattice())
        return Values(*(x.to(self.working_dtype).to(self.device) for x in values))

    def features(self, grid: Grid) -> Tensor:
        """The compressed features of the displacements, cast once to the module's dtype."""
        values = self.values(grid)[: self.options.features]
        scale: Tensor | float = self.options.scale
        if self.scale_raw is not None:
            scale = F.softplus(self.scale_raw.to(self.working_dtype))
        compress = COMPRESSIONS[self.options.compression]
        return compress(scale * torch.stack(values, dim=-1)).to(self.dtype)

    def bias(self, grid: Grid, layer: int) -> Tensor:
        grid = checked_grid(grid)
        self.check_layer(layer)
        by_offset = self.table(("offset bias", grid), lambda: self._by_offset(grid))
        own = by_offset[layer if self.options.per_layer else 0]
        return own[:, self.offsets(grid).pairs]

    def _by_offset(self, grid: Grid) -> Tensor:
        """(layers, heads, displacements)"""
        bias = torch.einsum("lhf,nf->lhn", self.weight, self.features(grid))
        instead = 0.0 if self.self_bias is None else self.self_bias[..., None]
        return torch.where(self.frame(grid).coincident(self.offsets(grid)), instead, bias)
