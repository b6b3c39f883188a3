"""The function as the paper prints it: a truncated sum with clamps and a constant at the pole.

This traces published numbers to a formula and is not for use: the half-period belongs to g2 = 1/4,
the periods (1, i) for g3 != 0 are placeholders, and the clamps break the symmetries near poles. The
listing adds term by term; here all terms are computed at once, in real arithmetic. Only the order
of the sum differs, which changes the result by rounding (1e-14).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from training.encodings.elliptic_values import Values
from training.encodings.weierstrass_options import LISTING_EPSILON, ListingRecipe


class Listing(NamedTuple):
    """The constants of one published sum."""

    multiples: tuple[list[float], list[float]]  # 2m and 2n of the lattice points
    near: float  # distance within which a pole is not evaluated
    at_pole: float
    term_limit: float
    value_limit: float
    dtype: torch.dtype | None = None  # None: that of the argument


def _multiples(size: int, points: int | None = None) -> tuple[list[float], list[float]]:
    """2m and 2n of the `points` nearest to 0 with m and n from -size to size, or of all.

    Equally distant points stay in the order of m, then n, as a stable sort leaves them. The 64
    nearest include half of a ring, which makes their sum lopsided.
    """
    steps = range(-size, size + 1)
    box = [(2.0 * m, 2.0 * n) for m in steps for n in steps if m or n]
    box = sorted(box, key=lambda point: math.hypot(*point))[:points]
    return [m for m, _ in box], [n for _, n in box]


LISTINGS: dict[ListingRecipe, Listing] = {
    "vit": Listing(_multiples(12), 15.0 * LISTING_EPSILON, 5e2, 5e3, 1e4),
    "dhvt": Listing(_multiples(8, 64), 20.0 * LISTING_EPSILON, 1e2, 1e3, 5e3, torch.float32),
}


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
    """Real and imaginary parts of z^-2 and z^-3, and where z is far enough from 0 to count."""
    squared = re * re + im * im
    counts = squared > near * near
    safe = torch.where(counts, squared, 1.0)
    a, b = re / safe, -im / safe
    square = (a * a - b * b, 2.0 * a * b)
    cube = (square[0] * a - square[1] * b, square[0] * b + square[1] * a)
    return square, cube, counts
