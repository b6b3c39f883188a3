"""WEF-PE for training from scratch: features of wp and wp' at the patch centres."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.encodings.elliptic_values import (
    TORCH,
    EllipticUse,
    Frame,
    Values,
    fixed_wp,
    learned_wp,
    moving,
)
from training.encodings.encoding import AbstractEncoding, checked_points, prefix_rows, scalar
from training.encodings.grid import Grid, checked_grid, patch_centres
from training.encodings.learned_lattice import HalfPeriods, LatticeParameter, inverse_softplus
from training.encodings.paper_listing import LISTINGS, clamped_lattice_sum
from training.encodings.size import EncodingSize, refuse_poles
from training.encodings.weierstrass_options import (
    AUTHORS_SCALES,
    MLP_DROPOUT,
    InitialBias,
    Projection,
    WeierstrassOptions,
    listing_half_period,
)
from wefpe_core import Lattice
from wefpe_core.errors import InputError

_AUTHORS_ALPHA_LEARN = 0.12
_AUTHORS_STRETCHES = (0.02, 8.0)
_CLASS_STD = 0.015


class WeierstrassEncoding(AbstractEncoding):
    r"""Weierstrass elliptic function positional encoding.

    The centre of a patch, :math:`u = (j+\frac12)/W`, :math:`v = (i+\frac12)/H`, becomes
    :math:`z = 2(\alpha_u u\,\omega_1 + \alpha_v v\,\omega_3)`; then

    .. math:: f = ({\rm Re}\wp, {\rm Im}\wp, {\rm Re}\wp', {\rm Im}\wp')(z), \qquad
              PE = \beta_{pos}\,{\rm LayerNorm}(W\tanh(s f) + b).

    Symmetries follow. With alpha 1 a patch and its mirror image through the middle of the grid have
    equal wp and opposite wp', so two features do not tell them apart. On rectangles the mirror
    image in u has the conjugate of wp and minus the conjugate of wp'. With alpha up to 1/2 wp alone
    is injective. ``origin="half_period"`` has a point of symmetry in the middle of the grid, not a
    pole in its corner:
    z = omega1 + omega3 + 2 (alpha_u (u - 1/2) omega1 + alpha_v (v - 1/2) omega3).

    ``authors`` evaluates on a fixed square lattice: its ``alpha_learn`` stretches z only.
    """

    name = "weierstrass"
    kind = "additive"
    summary = "features of wp and wp' at the patch centres, on a learned lattice"
    formula = "x_i + beta LN(W tanh(s [Re wp, Im wp, Re wp', Im wp'](z_i)) + b)"
    options_class = WeierstrassOptions

    def __init__(self, size: EncodingSize, options: WeierstrassOptions) -> None:
        super().__init__(size)
        self.options = options
        self.start = start = options.starting_values()
        self._listing = LISTINGS[options.recipe or "vit"]
        self._is_authors = options.fidelity == "authors"
        self.alpha_u, self.alpha_v = options.alphas()
        self.lattice_parameter, self.alpha_learn = None, None
        if options.fidelity == "corrected":
            self.lattice_parameter = LatticeParameter(
                options.starting_lattice(),
                options.learned_part(),
                options.tau_min,
                options.tau_max,
            )
        else:
            self._omega1 = listing_half_period(start.g2, start.g3)
            square = inverse_softplus(self._omega1)
            self._alpha_start = _AUTHORS_ALPHA_LEARN if self._is_authors else square
            if options.learnable:
                self.alpha_learn = nn.Parameter(torch.tensor(self._alpha_start))
        self.alphas_raw = None
        if options.learn_alpha:
            low, high = options.alpha_min, options.alpha_max
            shares = torch.tensor([(alpha - low) / (high - low) for alpha in options.alphas()])
            self.alphas_raw = nn.Parameter(torch.logit(shares))
        self.alpha_raw = None
        if options.learnable:
            inverse = math.log if self._is_authors else inverse_softplus
            self.alpha_raw = nn.Parameter(torch.tensor(inverse(start.scale)))
        strength = options.strength or (0.8 if options.adaptive_strength else 1.0)
        self._strength = strength
        self.beta_pos = None
        if options.adaptive_strength:
            self.beta_pos = nn.Parameter(torch.full((1,), strength))
        self.projection = projection(
            start.projection, options.features, size.dim, start.dropout, options.initial_bias
        )
        self.class_encoding = (
            nn.Parameter(_CLASS_STD * torch.randn(1, size.dim)) if options.class_token else None
        )

    def lattice(self) -> Lattice:
        """The lattice on which wp is evaluated at present, as numbers."""
        if self.lattice_parameter is not None:
            return self.lattice_parameter.lattice()
        if self._is_authors:
            return Lattice.rectangular(self._omega1, self._omega1)
        with torch.no_grad():
            return Lattice.rectangular(self._omega1, float(self._stretch()))

    def points(self, grid: Grid) -> Tensor:
        """Where the patches lie in the complex plane, (height*width,), with gradients."""
        frame = self.frame(checked_grid(grid))
        u, v = frame.centres(self.working_dtype, self.device)
        if self.lattice_parameter is not None:
            if self.lattice_parameter.learned == "nothing":
                return frame.on(self.lattice(), u, v)
            omegas = self.lattice_parameter.half_periods(self.device)
        else:
            omega1 = scalar(self._omega1, self.working_dtype, self.device)
            omegas = HalfPeriods.of(omega1, torch.zeros_like(omega1), self._stretch())
        return frame.on(omegas, u, v)

    def elliptic_use(self) -> EllipticUse | None:
        """wp and wp', unless a published sum or powers take their place."""
        if self.lattice_parameter is None or self.options.function == "powers":
            return None
        is_learned = self.lattice_parameter.learned != "nothing"
        return EllipticUse(self.options.backend, ("wp_and_prime",), is_learned)

    def frame(self, grid: Grid) -> Frame:
        """How the grid lies on the lattice."""
        alphas: Any = (self.alpha_u, self.alpha_v)
        if self.alphas_raw is not None:
            alphas = self.learned_alphas()
        return Frame(grid, alphas[0], alphas[1], self.options.origin == "half_period")

    def learned_alphas(self) -> Tensor:
        """alpha_u and alpha_v within their bounds, with gradients."""
        low, high = self.options.alpha_min, self.options.alpha_max
        return low + (high - low) * self._shares()

    def _shares(self) -> Tensor:
        """How far each alpha is from its lower bound to its upper one."""
        assert self.alphas_raw is not None
        return torch.sigmoid(self.alphas_raw.to(self.working_dtype))

    def _stretch(self) -> Tensor:
        """omega3/i in the paper; in the script a factor of the rows."""
        if self.alpha_learn is None:
            alpha = scalar(self._alpha_start, self.working_dtype, self.device)
        else:
            alpha = self.alpha_learn.to(self.working_dtype)
        height = F.softplus(alpha)
        return height.clamp(*_AUTHORS_STRETCHES) if self._is_authors else height

    def values(self, grid: Grid) -> Values:
        """Re and Im of wp and wp' at the patches, float64, with gradients."""
        return Values(*self._rows_of_values(checked_grid(grid)))

    def _rows_of_values(self, grid: Grid) -> Tensor:
        """The same as one tensor, (4, height*width)."""
        if self.options.function == "powers":
            return self._powers(grid)
        if self.alphas_raw is None:  # those that are learned stay below 1
            refuse_poles(*self.frame(grid))
        parameter = self.lattice_parameter
        if parameter is None:
            z = self.points(grid)
            height = self._omega1 if self._is_authors else self._stretch()
            listed = clamped_lattice_sum(z.real, z.imag, self._omega1, height, self._listing)
            return torch.stack(listed)
        if parameter.learned == "nothing":
            return self.table(("values", grid), lambda: self._fixed_values(grid), depends_on=())
        half_periods = parameter.half_periods(self.device)
        return learned_wp(self.options.backend, self._coordinates(grid), half_periods)

    def _coordinates(self, grid: Grid) -> Tensor:
        """The patches in half-periods: fixed, or between those of the bounds of alpha."""
        low, high = self.options.alpha_min, self.options.alpha_max
        if self.alphas_raw is None:
            frames = [self.frame(grid)]
        else:
            is_centred = self.options.origin == "half_period"
            frames = [Frame(grid, alpha, alpha, is_centred) for alpha in (low, high)]
        known: list[Tensor] = self.table(
            ("coordinates", grid),
            lambda: [f.coordinates(self.working_dtype, self.device) for f in frames],
            depends_on=(),
        )
        if self.alphas_raw is None:
            return known[0]
        return torch.lerp(known[0], known[1], self._shares())

    def _powers(self, grid: Grid) -> Tensor:
        """w and w^2 with Re w and Im w from -1 to 1, over the factor inside tanh."""
        return self._powers_at(*patch_centres(grid, self.working_dtype, self.device))

    def _powers_at(self, u: Tensor, v: Tensor) -> Tensor:
        x, y = 2.0 * u - 1.0, 2.0 * v - 1.0
        return torch.stack((x, y, x * x - y * y, 2.0 * x * y)) / self.start.scale

    def _fixed_values(self, grid: Grid) -> Tensor:
        values = fixed_wp(self.options.backend, self.frame(grid), self.lattice())
        return values.to(self.working_dtype).to(self.device)

    def features(self, grid: Grid) -> Tensor:
        """The compressed features, (height*width, 4 or 2), cast once to the module's dtype."""
        return self._compressed(self._rows_of_values(checked_grid(grid)))

    def _compressed(self, values: Tensor) -> Tensor:
        if self.options.features < len(values):
            values = values[: self.options.features]
        # Contiguous, so that each patch is a row of the product that follows.
        return torch.tanh(self.compression_scale() * values.t().contiguous()).to(self.dtype)

    def compression_scale(self) -> Tensor | float:
        """The factor inside tanh at present."""
        if self.alpha_raw is None:
            return self.start.scale
        raw = self.alpha_raw.to(self.working_dtype)
        return torch.exp(raw).clamp(*AUTHORS_SCALES) if self._is_authors else F.softplus(raw)

    def strength(self) -> Tensor | float:
        """beta_pos at present."""
        return self._strength if self.beta_pos is None else self.beta_pos

    def learned_numbers(self) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        if self.lattice_parameter is not None:
            found |= self.lattice_parameter.learned_numbers()
        elif self.alpha_learn is not None:
            found["ω3′"] = self._stretch()
        if self.alphas_raw is not None:
            found["α_u, α_v"] = self.learned_alphas()
        if self.alpha_raw is not None:
            found["α_scale"] = torch.as_tensor(self.compression_scale())
        if self.beta_pos is not None:
            found["β_pos"] = self.beta_pos[0]
        return found

    def additive(self, grid: Grid) -> Tensor:
        grid = checked_grid(grid)
        return self.table(
            ("patches", grid), lambda: self._weighted(self.projection(self.features(grid)))
        )

    def additive_at(self, points: Tensor) -> Tensor:
        """Of the readings only the corrected one; a place on a pole gives NaN."""
        u, v = checked_points(points)
        parameter, frame = self.lattice_parameter, self.frame(self.size.grid)
        if parameter is None:
            raise InputError("places that are no grid are for fidelity='corrected'")
        if self.options.function == "powers":
            values = self._powers_at(u.reshape(-1), v.reshape(-1))
        else:
            across, along = frame.shifts()
            s, t = frame.in_half_periods(u.reshape(-1) + across, v.reshape(-1) + along)
            z, lattice = moving(torch.stack((s, t), -1), parameter.half_periods(u.device))
            p, dp = TORCH.wp_and_prime(z, lattice)
            values = torch.stack((p.real, p.imag, dp.real, dp.imag))
        table = self._weighted(self.projection(self._compressed(values)))
        return table.reshape(*u.shape, -1)

    def prefix(self, n: int) -> Tensor | None:
        rows = self.class_encoding
        return super().prefix(n) if rows is None else prefix_rows(self._weighted(rows), n)

    def _weighted(self, rows: Tensor) -> Tensor:
        return rows * self.strength()


# --- Projections, also of the surrogate --------------------------------------------------------


def product_of_few(rows: Tensor, weight: Tensor) -> Tensor:
    """`torch.nn.functional.linear` of rows with few features.

    A compiler calls a library for a product of matrices, and fuses products and sums of numbers
    with what is before and after them. So few features cost no call of their own.
    """
    if torch.compiler.is_compiling():
        return (rows[:, None, :] * weight).sum(-1)
    return F.linear(rows, weight)


class LinearOfFew(nn.Linear):
    """The linear layer of `product_of_few`."""

    def forward(self, rows: Tensor) -> Tensor:
        if torch.compiler.is_compiling():
            return product_of_few(rows, self.weight) + self.bias
        return super().forward(rows)


def projection(
    kind: Projection,
    features: int,
    dim: int,
    dropout: float = MLP_DROPOUT,
    initial_bias: InitialBias = "uniform",
) -> nn.Sequential:
    """The paper's projections: linear and LayerNorm, or a hidden layer of half the width.

    All patches share the bias, so that part of the table which it makes up after LayerNorm does not
    depend on the place. ``initial_bias="uniform"`` is what torch gives a linear layer.
    """
    layers = _projection(kind, features, dim, dropout)
    if initial_bias == "zero":
        _zero_biases(layers)
    return layers


def _zero_biases(layers: nn.Sequential) -> None:
    for layer in layers:
        if isinstance(layer, nn.Linear):
            nn.init.zeros_(layer.bias)


def _projection(kind: Projection, features: int, dim: int, dropout: float) -> nn.Sequential:
    if kind == "linear":
        return nn.Sequential(LinearOfFew(features, dim), nn.LayerNorm(dim))
    hidden = max(dim // 2, 1)
    return nn.Sequential(
        LinearOfFew(features, hidden),
        nn.LayerNorm(hidden),
        nn.GELU(),
        nn.Dropout(dropout),
        nn.Linear(hidden, dim),
        nn.LayerNorm(dim),
    )


def deep_projection(
    features: int, dim: int, dropouts: tuple[float, float], gain: float
) -> nn.Sequential:
    """The projection of the published fine-tuning scripts: three layers, none normalised last."""
    hidden = max(dim // 2, 1)
    layers = nn.Sequential(
        LinearOfFew(features, hidden),
        nn.LayerNorm(hidden),
        nn.GELU(),
        nn.Dropout(dropouts[0]),
        nn.Linear(hidden, dim),
        nn.LayerNorm(dim),
        nn.GELU(),
        nn.Dropout(dropouts[1]),
        nn.Linear(dim, dim),
    )
    for layer in layers:
        if isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight, gain=gain)
    _zero_biases(layers)
    return layers
