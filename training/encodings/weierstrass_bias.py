"""Attention biases that are functions of the displacement of two patches on a lattice."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.encodings.elliptic_values import (
    TORCH,
    EllipticUse,
    Frame,
    Values,
    fixed_differences,
    fixed_green,
    learned_green,
    learned_wp,
    moving,
)
from training.encodings.encoding import AbstractEncoding, differences
from training.encodings.grid import Grid, Offsets, checked_grid, grid_offsets
from training.encodings.learned_lattice import HalfPeriods, LatticeParameter, inverse_softplus
from training.encodings.size import EncodingSize, refuse_poles
from training.encodings.weierstrass import product_of_few
from training.encodings.weierstrass_options import (
    Compression,
    GreenOptions,
    LatticeBiasOptions,
    RelativeOptions,
    learned_part,
)
from wefpe_core import Lattice

# Bounded features from values that have poles. The values themselves stay exact.
COMPRESSIONS: dict[Compression, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,  # the paper's; next to a pole all values are 1
    "softsign": F.softsign,  # x/(1+|x|) still tells large values apart
}


class AbstractLatticeBias(AbstractEncoding):
    """A lattice that may be learned, and a grid that lies on it."""

    kind = "bias"

    def __init__(self, size: EncodingSize, options: LatticeBiasOptions) -> None:
        super().__init__(size)
        self.alpha_u, self.alpha_v = options.alphas()
        self.lattice_parameter = LatticeParameter(
            options.starting_lattice(), learned_part(options), options.tau_min, options.tau_max
        )

    def lattice(self) -> Lattice:
        """The present lattice, as numbers."""
        return self.lattice_parameter.lattice()

    @property
    def is_learned(self) -> bool:
        """Whether the lattice changes in training."""
        return self.lattice_parameter.learned != "nothing"

    def points(self, grid: Grid) -> Tensor:
        """The displacements of `offsets` in the complex plane, with gradients.

        Those that are periods, where there is a pole, are moved to a harmless place.
        """
        frame = self.frame(checked_grid(grid))
        along, down, _ = frame.differences(self.working_dtype, self.device)
        lattice: HalfPeriods | Lattice = self.lattice()
        if self.is_learned:
            lattice = self.lattice_parameter.half_periods(self.device)
        return frame.on(lattice, along, down)

    def learned_numbers(self) -> dict[str, Tensor]:
        return self.lattice_parameter.learned_numbers()

    def offsets(self, grid: Grid) -> Offsets:
        """The displacements of a grid, as a table of indices that never changes."""
        return self.table(("offsets", grid), lambda: grid_offsets(grid, self.device), depends_on=())

    def frame(self, grid: Grid) -> Frame:
        """How the grid lies on the lattice."""
        return Frame(grid, self.alpha_u, self.alpha_v)

    def is_period(self, grid: Grid) -> Tensor:
        """Which of the displacements of a grid are 0 or whole periods, where there is a pole."""
        make = lambda: self.frame(grid).coincident(self.offsets(grid))  # noqa: E731
        return self.table(("is period", grid), make, depends_on=())

    def displacements_at(self, points: Tensor) -> tuple[Tensor, Lattice, Tensor]:
        """Displacements of any places from each other, their lattice, and which are 0 or periods.

        All are (..., tokens, tokens). Those that are periods are moved to a harmless place.
        """
        s, t = self.frame(self.size.grid).in_half_periods(*differences(points))
        skip = (torch.remainder(s, 2.0) == 0.0) & (torch.remainder(t, 2.0) == 0.0)
        coordinates = torch.where(skip[..., None], 1.0, torch.stack((s, t), -1))
        return *moving(coordinates, self.lattice_parameter.half_periods(points.device)), skip

    def coordinates(self, grid: Grid) -> Tensor:
        """The displacements in half-periods; poles are moved to a harmless place."""
        return self.table(
            ("coordinates", grid),
            lambda: self.frame(grid).offset_coordinates(self.working_dtype, self.device),
            depends_on=(),
        )


class RelativeEncoding(AbstractLatticeBias):
    r"""Bias :math:`w_h\cdot c(s f)`, f of :math:`\wp,\wp'` at :math:`z_j - z_i`.

    There are (2H-1)(2W-1) differences; each is computed once and serves all pairs. On a learned
    lattice one operator evaluates them directly, with gradients. On a fixed lattice their values
    come from those at the patches by the addition formula, each from the pair nearest to the middle
    of the grid. The paper promises this, but its features cannot deliver it.
    """

    name = "weierstrass_relative"
    summary = "attention bias from wp and wp' of the displacement"
    formula = "logits_ij + w_h . c(s [Re wp, Im wp, Re wp', Im wp'](z_j - z_i))"
    options_class = RelativeOptions

    def __init__(self, size: EncodingSize, options: RelativeOptions) -> None:
        super().__init__(size, options)
        self.options = options
        self.scale_raw = None
        if options.learnable:
            self.scale_raw = nn.Parameter(torch.tensor(inverse_softplus(options.scale)))
        layers = size.depth if options.per_layer else 1
        self.weight = nn.Parameter(torch.empty(layers, size.num_heads, options.features))
        nn.init.trunc_normal_(self.weight, std=options.initial_std)
        self.self_bias = None
        if options.diagonal == "learned":
            self.self_bias = nn.Parameter(torch.zeros(layers, size.num_heads))

    def elliptic_use(self) -> EllipticUse:
        functions = ("wp_and_prime",) if self.is_learned else ("wp_and_prime", "add")
        return EllipticUse(self.options.backend, functions, self.is_learned)

    def learned_numbers(self) -> dict[str, Tensor]:
        scale = {} if self.scale_raw is None else {"s": F.softplus(self.scale_raw)}
        return {**super().learned_numbers(), **scale}

    def no_weight_decay(self) -> set[str]:
        return {name for name, _ in self.named_parameters()}

    def values(self, grid: Grid) -> Values:
        """Re and Im of wp and wp' at the displacements of `offsets`, float64, with gradients."""
        grid = checked_grid(grid)
        return Values(*torch.where(self.is_period(grid), 0.0, self._rows_of_values(grid)))

    def _rows_of_values(self, grid: Grid) -> Tensor:
        """The same as one tensor, (4, displacements); at periods it has some finite value."""
        refuse_poles(grid, self.alpha_u, self.alpha_v)
        if not self.is_learned:
            return self.table(("values", grid), lambda: self._fixed_values(grid), depends_on=())
        omegas = self.lattice_parameter.half_periods(self.device)
        return learned_wp(self.options.backend, self.coordinates(grid), omegas)

    def _fixed_values(self, grid: Grid) -> Tensor:
        values = fixed_differences(self.options.backend, self.frame(grid), self.lattice())
        return values.to(self.working_dtype).to(self.device)

    def features(self, grid: Grid) -> Tensor:
        """The compressed features of the displacements, cast once to the module's dtype.

        They are 0 where the displacement is a period.
        """
        grid = checked_grid(grid)
        return torch.where(self.is_period(grid)[:, None], 0.0, self._features(grid))

    def _features(self, grid: Grid) -> Tensor:
        """The same, with some finite value at periods."""
        return self._compressed(self._rows_of_values(grid))

    def _compressed(self, values: Tensor) -> Tensor:
        """Features (displacements, features) of values (4, displacements)."""
        if self.options.features < len(values):
            values = values[: self.options.features]
        compress = COMPRESSIONS[self.options.compression]
        return compress(self.compression_scale() * values.t().contiguous()).to(self.dtype)

    def compression_scale(self) -> Tensor | float:
        """The factor inside the compression at present."""
        if self.scale_raw is None:
            return self.options.scale
        return F.softplus(self.scale_raw.to(self.working_dtype))

    def bias(self, grid: Grid, layer: int) -> Tensor:
        grid = checked_grid(grid)
        self.check_layer(layer)
        by_offset = self.table(("offset bias", grid), lambda: self._by_offset(grid))
        return by_offset[layer if self.options.per_layer else 0][:, self.offsets(grid).pairs]

    def bias_at(self, points: Tensor, layer: int) -> Tensor:
        self.check_layer(layer)
        z, lattice, skip = self.displacements_at(points)
        p, dp = TORCH.wp_and_prime(z.reshape(-1), lattice)
        features = self._compressed(torch.stack((p.real, p.imag, dp.real, dp.imag)))
        found = self._weighted(features, skip.reshape(-1))
        chosen = found[layer if self.options.per_layer else 0]
        return chosen.reshape(-1, *skip.shape).movedim(0, -3)

    def _by_offset(self, grid: Grid) -> tuple[Tensor, ...]:
        """For each layer (heads, displacements)."""
        return self._weighted(self._features(grid), self.is_period(grid)).unbind()

    def _weighted(self, features: Tensor, skip: Tensor) -> Tensor:
        """The bias (layers, heads, displacements), with what stands where one is a period."""
        bias = product_of_few(self.weight.flatten(0, 1), features)
        bias = bias.reshape(*self.weight.shape[:2], -1)
        instead = 0.0 if self.self_bias is None else self.self_bias[..., None]
        return torch.where(skip, instead, bias)


class GreenEncoding(AbstractLatticeBias):
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
    options_class = GreenOptions

    def __init__(self, size: EncodingSize, options: GreenOptions) -> None:
        super().__init__(size, options)
        self.options = options
        layers = size.depth if options.per_layer else 1
        raw = inverse_softplus(options.strength)
        self.strength_raw = nn.Parameter(torch.full((layers, size.num_heads), raw))

    def elliptic_use(self) -> EllipticUse:
        return EllipticUse(self.options.backend, ("green",), self.is_learned)

    def strengths(self) -> Tensor:
        """s_h, positive, (layers, heads)."""
        return F.softplus(self.strength_raw)

    def learned_numbers(self) -> dict[str, Tensor]:
        return {**super().learned_numbers(), "s_h": self.strengths()}

    def values(self, grid: Grid) -> Tensor:
        """G at the displacements of `offsets`, in float64; at 0 what the option diagonal says."""
        grid = checked_grid(grid)
        if not self.is_learned:
            return self.table(("values", grid), lambda: self._fixed_values(grid), depends_on=())
        omegas = self.lattice_parameter.half_periods(self.device)
        values = learned_green(self.options.backend, self.coordinates(grid), omegas)
        return self._with_diagonal(values, lambda: 4.0 * omegas.omega1 * omegas.omega3_im, grid)

    def _fixed_values(self, grid: Grid) -> Tensor:
        lattice = self.lattice()
        values = fixed_green(self.options.backend, self.frame(grid), lattice)
        area = 4.0 * (complex(lattice.omega1).conjugate() * complex(lattice.omega3)).imag
        values = values.to(self.working_dtype).to(self.device)
        return self._with_diagonal(values, lambda: torch.full_like(values[0], area), grid)

    def _with_diagonal(self, values: Tensor, cell: Callable[[], Tensor], grid: Grid) -> Tensor:
        """Values with those at periods replaced; `cell` gives the area of a cell of the lattice."""
        skip = self.is_period(grid)
        if self.options.diagonal == "nearest":
            others = torch.where(skip, -math.inf, values).amax()
            # A grid of one patch has no other, and a bias for it alone changes nothing.
            instead = torch.where(torch.isfinite(others), others, 0.0)
        else:
            share = self.alpha_u * self.alpha_v / (grid[0] * grid[1])  # of a patch in the cell
            instead = (0.5 + 0.25 * share) - 0.5 * torch.log(cell() * (share / math.pi))
        return torch.where(skip, instead, values)

    def bias(self, grid: Grid, layer: int) -> Tensor:
        grid = checked_grid(grid)
        self.check_layer(layer)
        green, strengths = self.table(("green", grid), lambda: self._of_pairs(grid))
        return strengths[layer if self.options.per_layer else 0] * green

    def bias_at(self, points: Tensor, layer: int) -> Tensor:
        """What it has at a period, and the least value, are those of the grid it is made for."""
        self.check_layer(layer)
        z, lattice, skip = self.displacements_at(points)
        of_grid = self.values(self.size.grid)
        at_zero = of_grid[len(of_grid) // 2]  # displacements are in order
        values = torch.where(skip, at_zero, TORCH.green(z, lattice))
        green = self._in_form(values, of_grid.amin())[..., None, :, :]
        return self.strengths()[layer if self.options.per_layer else 0][:, None, None] * green

    def _of_pairs(self, grid: Grid) -> tuple[Tensor, tuple[Tensor, ...]]:
        """G of all pairs of patches, and for each layer the strengths of its heads."""
        values = self.values(grid)
        green = self._in_form(values, values.amin())[self.offsets(grid).pairs]
        return green, self.strengths()[..., None, None].unbind()

    def _in_form(self, values: Tensor, least: Tensor) -> Tensor:
        """G, or in the form "log" log(1 + G - min G), whose exponential is G but for a constant."""
        if self.options.form == "log":
            values = torch.log1p(values - least)
        return values.to(self.dtype)
