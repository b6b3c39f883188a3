r"""The surrogate series of the paper's fine-tuning, and what the published scripts made of it.

With :math:`u' = x/\omega_1`, :math:`v' = y/\omega_3'` the paper prints the real number

.. math:: S(z) = \frac1{|z|^2+\beta} + \sum_{k=1}^K \frac\gamma{k^2}\bigl[
          \cos(k\pi u')e^{-k\pi|v'|} + \sin(k\pi v')e^{-k\pi|u'|}\bigr].

It is no approximation of wp: real, not periodic, not even. A real function has no imaginary part
and no complex derivative; here Im = 0 and the derivative is Wirtinger's,
:math:`2\partial_z S = S_x - iS_y`. The scripts use other expressions for all of these.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from training.encodings.elliptic_values import Values


def printed_series(
    x: Tensor, y: Tensor, omega1: Tensor, omega3: Tensor, beta: Tensor, gamma: Tensor, terms: int
) -> Values:
    """S, 0 and the parts of 2 dS/dz, all exact derivatives of the printed series."""
    denominator = x * x + y * y + beta
    value = 1.0 / denominator
    slope_x, slope_y = -2.0 * x * value * value, -2.0 * y * value * value
    u, v = x / omega1, y / omega3
    sign_u, sign_v = torch.sign(u), torch.sign(v)
    for k in range(1, terms + 1):
        angle, size = k * math.pi, gamma / k**2
        decay_v, decay_u = torch.exp(-angle * v.abs()), torch.exp(-angle * u.abs())
        cos_u, sin_v = torch.cos(angle * u), torch.sin(angle * v)
        value = value + size * (cos_u * decay_v + sin_v * decay_u)
        in_u = -torch.sin(angle * u) * decay_v - sign_u * sin_v * decay_u
        in_v = torch.cos(angle * v) * decay_u - sign_v * cos_u * decay_v
        slope_x = slope_x + (size * angle / omega1) * in_u
        slope_y = slope_y + (size * angle / omega3) * in_v
    return Values(value, torch.zeros_like(value), slope_x, -slope_y)


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
    imaginary: float  # share of the correction copied into Im wp
    imaginary_slope: float  # and into Im wp'
    gain: float | None  # learned factor of the main term, if there is one
    wobble: float  # amplitude and frequency of what is added to z
    wobble_frequency: float
    scale: float
    imaginary_scale: float  # extra factor of Im wp inside tanh
    has_radius: bool  # two more features: the radius and |Re wp'|
    dropouts: tuple[float, float]
    projection_gain: float


RecipeName = Literal["cifar100", "svhn", "resisc45", "dmlab"]

# fmt: off
RECIPES: dict[str, Recipe] = {
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
    """What the scripts call wp and wp': neither follows from the printed series."""
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
