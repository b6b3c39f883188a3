"""The statements of the paper as executable checks, which ``wefpe claims`` runs.

Each check computes its figures when it is called and derives the verdict from them. The
paper's formulas and constants are the default arguments of the checks: given the corrected
ones, the same checks answer "true".
"""

from __future__ import annotations

from verification.claims import (
    background,
    correlation,
    distance_decay,
    fourier,
    learnable,
    mapping,
    model_sizes,
    periods,
    published_figures,
    relative_position,
    summation,
    surrogate,
    table_one,
    truncation,
)
from verification.claims.claim import Claim, Finding, Verdict

_THEMES = (
    periods,
    background,
    truncation,
    summation,
    fourier,
    surrogate,
    mapping,
    distance_decay,
    correlation,
    table_one,
    relative_position,
    learnable,
    published_figures,
    model_sizes,
)

CLAIMS: tuple[Claim, ...] = tuple(
    sorted((claim for theme in _THEMES for claim in theme.CLAIMS), key=lambda c: int(c.id[1:]))
)

__all__ = ["CLAIMS", "Claim", "Finding", "Verdict"]
