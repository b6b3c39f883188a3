"""The function as the paper prints it: a truncated sum with clamps and a constant at the pole.

For tracing published numbers to a formula, not for use: the half-period belongs to g2 = 1/4, the
periods (1, i) for g3 != 0 are placeholders, and the clamps break the symmetries near poles. What
the listing does term by term is done here for all terms at once, in real arithmetic; only the
order of the sum differs, which is rounding (1e-14).
"""

from __future__ import annotations

import torch
from torch import Tensor

from training.encodings.elliptic_values import Values
from training.encodings.errors import EncodingOptionError

# Printed for g2 = 1, g3 = 0: Gamma(1/4)^2/(2 sqrt(2 pi)), where Gamma(1/4)^2/(4 sqrt(pi)) is right.
LISTING_HALF_PERIOD = 2.62205755429212
PLACEHOLDER_HALF_PERIOD = 1.0

_M_MAX = _N_MAX = 12
_BOX = [
    (2.0 * m, 2.0 * n)
    for m in range(-_M_MAX, _M_MAX + 1)
    for n in range(-_N_MAX, _N_MAX + 1)
    if m or n
]
_PERIODS1, _PERIODS3 = ([point[k] for point in _BOX] for k in range(2))
_EPS = 1e-8
_NEAR = 15.0 * _EPS  # distance within which a pole is not evaluated
_AT_POLE = 5e2
_TERM_LIMIT = 5e3
_VALUE_LIMIT = 1e4


def listing_half_period(g2: float, g3: float) -> float:
    """omega1 (and omega3/i) of the listing, which looks at g3 only."""
    if not abs(g2**3 - 27.0 * g3**2) > _EPS:
        raise EncodingOptionError(
            f"the listing refuses g2={g2:g}, g3={g3:g}: its discriminant is within {_EPS:g} of 0"
        )
    return LISTING_HALF_PERIOD if abs(g3) < _EPS else PLACEHOLDER_HALF_PERIOD


def clamped_lattice_sum(
    x: Tensor, y: Tensor, omega1: Tensor | float, omega3_imag: Tensor | float
) -> Values:
    """wp and wp' of the listing at z = x + iy on the lattice of (omega1, i omega3_imag)."""
    w_re = torch.tensor(_PERIODS1, dtype=x.dtype, device=x.device) * omega1
    w_im = torch.tensor(_PERIODS3, dtype=x.dtype, device=x.device) * omega3_imag
    far = torch.hypot(x, y) >= _NEAR
    main, main_prime, _ = _inverse_powers(x, y)
    terms, terms_prime, counts = _inverse_powers(x[:, None] - w_re, y[:, None] - w_im)
    constant, _, _ = _inverse_powers(w_re, w_im)
    parts = []
    for part in range(2):
        term = (terms[part] - constant[part]).clamp(-_TERM_LIMIT, _TERM_LIMIT)
        parts.append(main[part] + torch.where(counts, term, 0.0).sum(-1))
    for part in range(2):
        term = (-2.0 * terms_prime[part]).clamp(-_TERM_LIMIT, _TERM_LIMIT)
        parts.append(-2.0 * main_prime[part] + torch.where(counts, term, 0.0).sum(-1))
    at_pole = (_AT_POLE, 0.0, _AT_POLE, 0.0)
    return Values(
        *(
            torch.where(far, value, near).clamp(-_VALUE_LIMIT, _VALUE_LIMIT)
            for value, near in zip(parts, at_pole, strict=True)
        )
    )


def _inverse_powers(
    re: Tensor, im: Tensor
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor], Tensor]:
    """z^-2 and z^-3 in parts, and where z is far enough from 0 for them to be meant."""
    squared = re * re + im * im
    counts = squared > _NEAR * _NEAR
    safe = torch.where(counts, squared, 1.0)
    a, b = re / safe, -im / safe
    square = (a * a - b * b, 2.0 * a * b)
    cube = (square[0] * a - square[1] * b, square[0] * b + square[1] * a)
    return square, cube, counts
