"""The function as the paper prints it: a truncated sum with clamps and a constant at the pole.

For tracing published numbers to a formula, not for use: the half-period belongs to g2 = 1/4, the
periods (1, i) for g3 != 0 are placeholders, and the clamps break the symmetries near poles. What
the listing does term by term is done here for all terms at once, in real arithmetic; only the
order of the sum differs, which is rounding (1e-14).
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from training.encodings.elliptic_values import Values
from training.errors import EncodingOptionError

# Printed for g2 = 1, g3 = 0: Gamma(1/4)^2/(2 sqrt(2 pi)), where Gamma(1/4)^2/(4 sqrt(pi)) is right.
LISTING_HALF_PERIOD = 2.62205755429212
PLACEHOLDER_HALF_PERIOD = 1.0

_EPS = 1e-8

RecipeName = Literal["vit", "dhvt"]


class Listing(NamedTuple):
    """The constants of one published sum."""

    multiples: tuple[list[float], list[float]]  # 2m and 2n of the lattice points
    near: float  # distance within which a pole is not evaluated
    at_pole: float
    term_limit: float
    value_limit: float
    dtype: torch.dtype | None = None  # None: that of the argument


def _multiples(size: int, points: int | None = None) -> tuple[list[float], list[float]]:
    """2m and 2n of the `points` nearest with m and n from -size to size, or of all.

    Of equally distant ones the first in the order of m, then n, as a stable sort leaves them: the
    64 nearest take in half of a ring, which makes their sum lopsided.
    """
    steps = range(-size, size + 1)
    box = [(2.0 * m, 2.0 * n) for m in steps for n in steps if m or n]
    box = sorted(box, key=lambda point: math.hypot(*point))[:points]
    return [m for m, _ in box], [n for _, n in box]


LISTINGS: dict[RecipeName, Listing] = {
    "vit": Listing(_multiples(12), 15.0 * _EPS, 5e2, 5e3, 1e4),
    "dhvt": Listing(_multiples(8, 64), 20.0 * _EPS, 1e2, 1e3, 5e3, torch.float32),
}


def listing_half_period(g2: float, g3: float) -> float:
    """omega1 (and omega3/i) of the listing, which looks at g3 only."""
    if not abs(g2**3 - 27.0 * g3**2) > _EPS:
        raise EncodingOptionError(
            f"the listing refuses g2={g2:g}, g3={g3:g}: its discriminant is within {_EPS:g} of 0"
        )
    return LISTING_HALF_PERIOD if abs(g3) < _EPS else PLACEHOLDER_HALF_PERIOD


def clamped_lattice_sum(
    x: Tensor,
    y: Tensor,
    omega1: Tensor | float,
    omega3_imag: Tensor | float,
    listing: Listing = LISTINGS["vit"],
) -> Values:
    """wp and wp' of the listing at z = x + iy on the lattice of (omega1, i omega3_imag)."""
    result_dtype = x.dtype
    x, y = x.to(listing.dtype or x.dtype), y.to(listing.dtype or y.dtype)
    m, n = listing.multiples
    w_re = torch.tensor(m, dtype=x.dtype, device=x.device) * omega1
    w_im = torch.tensor(n, dtype=x.dtype, device=x.device) * omega3_imag
    near, limit = listing.near, listing.term_limit
    far = torch.hypot(x, y) >= near
    main, main_prime, _ = _inverse_powers(x, y, near)
    terms, terms_prime, counts = _inverse_powers(x[:, None] - w_re, y[:, None] - w_im, near)
    constant, _, _ = _inverse_powers(w_re, w_im, near)
    parts = []
    for part in range(2):
        term = (terms[part] - constant[part]).clamp(-limit, limit)
        parts.append(main[part] + torch.where(counts, term, 0.0).sum(-1))
    for part in range(2):
        term = (-2.0 * terms_prime[part]).clamp(-limit, limit)
        parts.append(-2.0 * main_prime[part] + torch.where(counts, term, 0.0).sum(-1))
    at_pole = (listing.at_pole, 0.0, listing.at_pole, 0.0)
    return Values(
        *(
            torch.where(far, value, instead)
            .clamp(-listing.value_limit, listing.value_limit)
            .to(result_dtype)
            for value, instead in zip(parts, at_pole, strict=True)
        )
    )


def _inverse_powers(
    re: Tensor, im: Tensor, near: float
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor], Tensor]:
    """z^-2 and z^-3 in parts, and where z is far enough from 0 for them to be meant."""
    squared = re * re + im * im
    counts = squared > near * near
    safe = torch.where(counts, squared, 1.0)
    a, b = re / safe, -im / safe
    square = (a * a - b * b, 2.0 * a * b)
    cube = (square[0] * a - square[1] * b, square[0] * b + square[1] * a)
    return square, cube, counts
