"""What the tests of the encodings share: small sizes, ceilings, and one comparison."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from training.encodings import AbstractEncoding, available_encodings, build_encoding
from verification.judge import load_contracts

NAMES = [
    "none",
    "learned",
    "sincos2d",
    "rope1d",
    "rope_axial",
    "rope_mixed",
    "fope",
    "liere",
    "relative_table",
    "alibi2d",
    "gaussian",
    "lookhere",
    "weierstrass",
    "weierstrass_fourier",
    "weierstrass_hybrid",
    "weierstrass_relative",
    "weierstrass_green",
    "weierstrass_heat",
    "combined",
]
assert set(NAMES) <= set(available_encodings())

# By name and dtype, in eps.
CEILINGS = {
    name: {dtype: ceilings["largest"] for dtype, ceilings in dtypes.items()}
    for name, dtypes in load_contracts()["encodings"].items()
}
DIM, DEPTH, HEADS, HEAD_DIM = 32, 3, 2, 16
GRIDS = [(14, 14), (16, 9), (5, 8), (1, 7), (1, 1)]


def small(name: str, grid: tuple[int, int] = (5, 8), seed: int = 0, **options: Any) -> Any:
    """An encoding of a small model; a hybrid starts with a fresh table."""
    if name == "weierstrass_hybrid":
        options.setdefault("table", "fresh")
    torch.manual_seed(seed)
    return build_encoding(name, dim=DIM, depth=DEPTH, num_heads=HEADS, grid=grid, **options)


def tokens(grid: tuple[int, int], seed: int = 0, dtype: torch.dtype = torch.float32) -> Any:
    """q and k of the patches."""
    generator = torch.Generator().manual_seed(seed)
    shape = (2, 2, HEADS, grid[0] * grid[1], HEAD_DIM)
    q, k = torch.randn(shape, generator=generator, dtype=dtype)
    return q, k


def table_of(encoding: AbstractEncoding, grid: tuple[int, int]) -> torch.Tensor:
    """What the encoding adds to the tokens; there must be something."""
    table = encoding.additive(grid)
    assert table is not None
    return table.detach()


def answers(encoding: AbstractEncoding, grid: tuple[int, int], layer: int = 1) -> dict[str, Any]:
    """Everything an encoding says about a grid."""
    q, k = tokens(grid)
    rotated_q, rotated_k = encoding.rotate(q, k, grid, layer)
    said = {
        "additive": encoding.additive(grid),
        "bias": encoding.bias(grid, layer),
        "prefix": encoding.prefix(2),
        "q": rotated_q,
        "k": rotated_k,
    }
    return {key: value for key, value in said.items() if value is not None}


def error_in_eps(got: Any, want: Any, dtype: torch.dtype, scale: Any = None) -> float:
    """The largest |got - want| in eps of `dtype`, relative to `scale` or the largest |want|."""
    got, want = (
        x.detach().numpy() if isinstance(x, torch.Tensor) else np.asarray(x) for x in (got, want)
    )
    assert got.shape == want.shape
    got, want = (x.astype(np.complex128 if np.iscomplexobj(x) else np.float64) for x in (got, want))
    scale = np.abs(want).max() if scale is None else scale
    error = np.abs(got - want) / scale / torch.finfo(dtype).eps
    assert not np.isnan(error).any()
    return float(error.max())
