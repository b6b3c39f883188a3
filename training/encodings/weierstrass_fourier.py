r"""WEF-PE for fine-tuning: the paper's Fourier-like surrogate in place of wp.

With :math:`u' = x/\omega_1`, :math:`v' = y/\omega_3'` the paper prints the real number

.. math:: S(z) = \frac1{|z|^2+\beta} + \sum_{k=1}^K \frac\gamma{k^2}\bigl[
          \cos(k\pi u')e^{-k\pi|v'|} + \sin(k\pi v')e^{-k\pi|u'|}\bigr].

It does not approximate wp: it is real, not periodic and not even. A real function has no imaginary
part and no complex derivative; here Im = 0 and the derivative is Wirtinger's,
:math:`2\partial_z S = S_x - iS_y`. The published scripts use other expressions for all of these.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.encodings.elliptic_values import Frame, Values
from training.encodings.encoding import AbstractEncoding, prefix_rows
from training.encodings.grid import Grid, checked_grid, patch_centres
from training.encodings.learned_lattice import HalfPeriods, LatticeParameter, inverse_softplus
from training.encodings.size import EncodingSize
from training.encodings.weierstrass import deep_projection, projection
from training.encodings.weierstrass_options import (
    BETA_FLOOR,
    LISTING_HALF_PERIOD,
    FourierRecipe,
    WeierstrassFourierOptions,
)
from wefpe_core import Lattice


def printed_waves(u: Tensor, v: Tensor, terms: int) -> Tensor:
    """The sum of the printed series, over gamma, 0, and its slopes in u and -v, (4, points)."""
    sign_u, sign_v = torch.sign(u), torch.sign(v)
    total = in_u = in_v = torch.zeros_like(u)
    for k in range(1, terms + 1):
        angle, size = k * math.pi, 1.0 / k**2
        decay_v, decay_u = torch.exp(-angle * v.abs()), torch.exp(-angle * u.abs())
        cos_u, sin_v = torch.cos(angle * u), torch.sin(angle * v)
        total = total + size * (cos_u * decay_v + sin_v * decay_u)
        slope_u = -torch.sin(angle * u) * decay_v - sign_u * sin_v * decay_u
        slope_v = torch.cos(angle * v) * decay_u - sign_v * cos_u * decay_v
        in_u, in_v = in_u + (size * angle) * slope_u, in_v + (size * angle) * slope_v
    return torch.stack((total, torch.zeros_like(total), in_u, -in_v))


def printed_series(z: Tensor, omegas: Tensor, beta: Tensor, gamma: Tensor, waves: Tensor) -> Tensor:
    """S, 0 and the real and imaginary parts of 2 dS/dz, S_x and -S_y, exactly, (4, points).

    `z` holds x and -y, (2, points), `omegas` omega1 and omega3', (2, 1). The `waves` are those of
    `printed_waves` at x/omega1 and y/omega3', which are the same for every lattice.
    """
    pole = 1.0 / (z.square().sum(0) + beta)
    value = torch.addcmul(pole, gamma, waves[0])
    slopes = torch.addcmul(gamma / omegas * waves[2:], pole * pole, z, value=-2.0)
    return torch.cat((value[None], waves[1:2], slopes))


class Recipe(NamedTuple):
    """The constants of one published fine-tuning script."""

    alpha_learn: float
    beta_learn: float
    gamma_learn: float | None  # None: fixed amplitudes and no gamma
    alpha_floor: float
    beta_floor: float
    gamma_floor: float
    power: float  # amplitudes gamma/k^power
    terms: int  # of the series
    slope_terms: int  # of its "derivative"
    decay: float  # factor of the exponents
    imaginary: float  # share of the correction that is copied into Im wp
    imaginary_slope: float  # share of its slope that is copied into Im wp'
    gain: float | None  # learned factor of the main term, if there is one
    wobble: float  # amplitude of the waves that are added to z
    wobble_frequency: float
    scale: float
    imaginary_scale: float  # extra factor of Im wp inside tanh
    has_radius: bool  # two more features: the radius and |Re wp'|
    dropouts: tuple[float, float]
    projection_gain: float


# fmt: off
RECIPES: dict[FourierRecipe, Recipe] = {
    "cifar100": Recipe(0.5, 0.1, None, 0.1, 0.01, 0.0, 1.0, 3, 2, 1.0, 0.5, 0.3, None,
                       0.01, 2.0, 0.05, 0.8, False, (0.1, 0.0), 0.8),
    "svhn": Recipe(0.5, 0.1, 0.2, 0.1, 0.01, 0.1, 2.0, 3, 2, 1.0, 0.7, 0.5, None,
                   0.02, 3.0, 0.03, 0.8, True, (0.1, 0.05), 0.8),
    "resisc45": Recipe(0.6, 0.15, 0.25, 0.12, 0.015, 0.15, 1.8, 4, 3, 0.8, 0.75, 0.6, None,
                       0.025, 3.5, 0.02, 0.85, False, (0.15, 0.1), 0.9),
    "dmlab": Recipe(0.7, 0.15, 0.3, 0.12, 0.015, 0.12, 1.8, 4, 3, 1.0, 0.8, 0.6, 1.2,
                    0.03, 4.0, 0.05, 0.9, False, (0.15, 0.08), 0.9),
}
# fmt: on

# The script without gamma has these amplitudes of the series and of its "derivative".
_FIXED_SIZES = (0.05, 0.03)
_SMALLEST_RADIUS = 1e-6


def authors_series(
    x: Tensor,
    y: Tensor,
    omega1: float,
    stretch: Tensor,
    beta: Tensor,
    gamma: Tensor | None,
    gain: Tensor | float,
    recipe: Recipe,
) -> Values:
    """What the scripts call wp and wp'; neither follows from the printed series."""
    radius = torch.hypot(x, y).clamp(min=_SMALLEST_RADIUS)
    angle = torch.atan2(y, x)
    cos, sin = torch.cos(angle), torch.sin(angle)
    u, v = x / omega1, y / stretch
    sizes = _FIXED_SIZES if gamma is None else (gamma, gamma)
    correction = slope = torch.zeros_like(x)
    for k in range(1, recipe.terms + 1):
        turn = k * math.pi
        decay_v = torch.exp(-turn * recipe.decay * v.abs())
        decay_u = torch.exp(-turn * recipe.decay * u.abs())
        wave = torch.cos(turn * u) * decay_v + torch.sin(turn * v) * decay_u
        correction = correction + sizes[0] / k**recipe.power * wave
        if k <= recipe.slope_terms:
            wave = torch.cos(turn * v) * decay_u - torch.sin(turn * u) * decay_v
            slope = slope + sizes[1] / k**recipe.power * k * wave
    main = gain / (radius**2 + beta)
    main_slope = -2.0 * gain / (radius**3 + beta)
    return Values(
        main * cos + correction,
        main * sin + recipe.imaginary * correction,
        main_slope * cos + slope,
        main_slope * sin + recipe.imaginary_slope * slope,
    )


_CLASS_STD = 0.01
_DROPOUTS, _GAIN = (0.1, 0.0), 0.8


class WeierstrassFourierEncoding(AbstractEncoding):
    r"""Features of the surrogate series S, which the docstring of this module prints.

    :math:`f = (S, 0, S_x, -S_y)`, modulated and compressed to :math:`\tanh(\sigma\mu_j f_j)`: three
    features and a constant, since the printed series is real. ``authors`` keeps the four features
    of a script (six with ``svhn``) and its transposed grid: patch (i, j) of a square grid gets the
    position of (j, i).
    """

    name = "weierstrass_fourier"
    kind = "additive"
    summary = "features of the paper's Fourier-like surrogate of wp, for fine-tuning"
    formula = "x_i + MLP(tanh(sigma mu [S, 0, S_x, -S_y](z_i)))"
    options_class = WeierstrassFourierOptions

    def __init__(self, size: EncodingSize, options: WeierstrassFourierOptions) -> None:
        super().__init__(size)
        self.options = options
        self.alpha_u, self.alpha_v = options.alphas()
        self.recipe = None
        self.lattice_parameter = self.alpha_learn = self.gamma_raw = self.gain = None
        n_features, dropouts, gain, scale = 4, _DROPOUTS, _GAIN, options.scale
        if options.fidelity == "authors":
            self.recipe = recipe = RECIPES[options.recipe or "cifar100"]
            alpha, beta, gamma = recipe.alpha_learn, recipe.beta_learn, recipe.gamma_learn
            n_features = 6 if recipe.has_radius else 4
            dropouts, gain = recipe.dropouts, recipe.projection_gain
            scale = recipe.scale if scale is None else scale
            if recipe.gain is not None:
                self.gain = self._parameter(recipe.gain)
        else:
            floor = BETA_FLOOR if options.fidelity == "corrected" else 0.0
            alpha = inverse_softplus(LISTING_HALF_PERIOD)
            beta = inverse_softplus((0.75 if options.beta is None else options.beta) - floor)
            gamma = inverse_softplus(0.9 if options.gamma is None else options.gamma)
        if options.fidelity == "corrected":
            self.lattice_parameter = LatticeParameter(
                Lattice.lemniscatic(),
                "omega3" if options.learnable else "nothing",
                options.tau_min,
                options.tau_max,
            )
        else:
            self.alpha_learn = self._parameter(alpha)
        self.beta_raw = self._parameter(beta)
        if gamma is not None:
            self.gamma_raw = self._parameter(gamma)
        self.sigma = self._parameter(0.05 if scale is None else scale)
        self.mu = nn.Parameter(torch.ones(n_features), requires_grad=options.learnable)
        self.offset = None
        if options.projection == "deep":
            self.projection = deep_projection(n_features, size.dim, dropouts, gain)
            self.offset = nn.Parameter(torch.zeros(size.dim))
        else:
            self.projection = projection(options.projection, n_features, size.dim)
        self.class_encoding = (
            nn.Parameter(_CLASS_STD * torch.randn(1, size.dim)) if options.class_token else None
        )

    def _parameter(self, value: float) -> nn.Parameter:
        return nn.Parameter(torch.tensor(value), requires_grad=self.options.learnable)

    def half_periods(self) -> HalfPeriods:
        """omega1 and i omega3' in the working dtype, with gradients."""
        if self.lattice_parameter is not None:
            return self.lattice_parameter.half_periods(self.device)
        assert self.alpha_learn is not None
        floor = 0.0 if self.recipe is None else self.recipe.alpha_floor
        omega3 = floor + F.softplus(self.alpha_learn.to(self.working_dtype))
        omega1 = torch.full_like(omega3, LISTING_HALF_PERIOD)
        return HalfPeriods.of(omega1, torch.zeros_like(omega1), omega3)

    def learned_numbers(self) -> dict[str, Tensor]:
        if not self.options.learnable:
            return {}
        floors = (self.recipe.beta_floor, self.recipe.gamma_floor) if self.recipe else (0.0, 0.0)
        if self.options.fidelity == "corrected":
            floors = (BETA_FLOOR, 0.0)
        found = {"ω3′": self.half_periods().omega3_im, "β": floors[0] + F.softplus(self.beta_raw)}
        if self.gamma_raw is not None:
            found["γ"] = floors[1] + F.softplus(self.gamma_raw)
        found |= {"σ": self.sigma, "μ": self.mu}
        return found if self.gain is None else {**found, "m": self.gain}

    def points(self, grid: Grid) -> Tensor:
        """Where the patches lie in the complex plane, (height*width,), with gradients."""
        grid = checked_grid(grid)
        u, v = self._coordinates(grid)
        z = Frame(grid, self.alpha_u, self.alpha_v).on(self.half_periods(), u, v)
        if self.recipe is None:
            return z
        size, turn = self.recipe.wobble, self.recipe.wobble_frequency * math.pi
        return torch.complex(
            z.real + size * torch.sin(turn * u), z.imag + size * torch.cos(turn * v)
        )

    def _coordinates(self, grid: Grid) -> tuple[Tensor, Tensor]:
        u, v = patch_centres(grid, self.working_dtype, self.device)
        if self.recipe is not None:  # the scripts flatten the grid column by column
            u, v = (x.reshape(grid).T.reshape(-1) for x in (u, v))
        return u, v

    def values(self, grid: Grid) -> Values:
        """The four numbers the scripts and the paper call Re and Im of wp and wp'."""
        return Values(*self._rows_of_values(checked_grid(grid)))

    def _rows_of_values(self, grid: Grid) -> Tensor:
        """The same as one tensor, (4, height*width)."""
        beta = F.softplus(self.beta_raw.to(self.working_dtype))
        gamma = None if self.gamma_raw is None else F.softplus(self.gamma_raw.to(beta.dtype))
        omegas = self.half_periods()
        if self.recipe is not None:
            recipe, z = self.recipe, self.points(grid)
            listed = authors_series(
                z.real,
                z.imag,
                LISTING_HALF_PERIOD,
                omegas.omega3_im,
                recipe.beta_floor + beta,
                None if gamma is None else recipe.gamma_floor + gamma,
                1.0 if self.gain is None else self.gain.to(beta.dtype),
                recipe,
            )
            return torch.stack(listed)
        assert gamma is not None
        floor = BETA_FLOOR if self.options.fidelity == "corrected" else 0.0
        coordinates, waves = self.table(
            ("waves", grid), lambda: self._coordinates_and_waves(grid), depends_on=()
        )
        lengths = omegas.parts[::3, None]  # omega1 and omega3'
        return printed_series(lengths * coordinates, lengths, floor + beta, gamma, waves)

    def _coordinates_and_waves(self, grid: Grid) -> tuple[Tensor, Tensor]:
        """x/omega1 and -y/omega3' of the patches, and the waves there, whatever the lattice is."""
        frame = Frame(grid, self.alpha_u, self.alpha_v)
        u, v = frame.coordinates(self.working_dtype, self.device).unbind(-1)
        terms = 3 if self.options.terms is None else self.options.terms
        return torch.stack((u, -v)), printed_waves(u, v, terms)

    def features(self, grid: Grid) -> Tensor:
        """The compressed features, cast once to the module's dtype."""
        grid = checked_grid(grid)
        values = self._rows_of_values(grid)
        if self.recipe is not None:
            p_re, p_im, dp_re, dp_im = values
            parts = [p_re, self.recipe.imaginary_scale * p_im, dp_re, dp_im]
            if self.recipe.has_radius:
                u, v = self._coordinates(grid)
                parts = [*parts[:2], torch.hypot(u, v), *parts[2:], dp_re.abs()]
            values = torch.stack(parts)
        factors = self.sigma.to(values.dtype) * self.mu.to(values.dtype)
        return torch.tanh(factors * values.t().contiguous()).to(self.dtype)

    def additive(self, grid: Grid) -> Tensor:
        grid = checked_grid(grid)

        def make() -> Tensor:
            rows: Tensor = self.projection(self.features(grid))
            return rows if self.offset is None else rows + self.offset

        return self.table(("patches", grid), make)

    def prefix(self, n: int) -> Tensor | None:
        rows = self.class_encoding
        return super().prefix(n) if rows is None else prefix_rows(rows, n)
