"""Encodings made for tests, the error between two outputs, and small images."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from training.encodings import AbstractEncoding, EncodingSize
from verification.judge import load_contracts

CEILINGS = {name: known["any"]["largest"] for name, known in load_contracts()["models"].items()}
MICRO: dict[str, Any] = {"dim": 16, "depth": 2, "num_heads": 2, "patch_size": 4, "num_classes": 5}
GRID = (3, 2)


def error_in_eps(got: Tensor, want: Tensor) -> float:
    """Largest difference over the largest value, in eps of the coarser dtype; NaN is infinite."""
    assert got.shape == want.shape
    eps = max(torch.finfo(each.dtype).eps for each in (got, want))
    got, want = got.detach().double(), want.detach().double()
    difference = (got - want).abs().max() / want.abs().max()
    return float(difference.nan_to_num(nan=torch.inf)) / eps


def images(grid: tuple[int, int] = GRID, *, patch_size: int = 4, batch: int = 2) -> Tensor:
    generator = torch.Generator().manual_seed(20250826)
    size = (batch, 3, grid[0] * patch_size, grid[1] * patch_size)
    return torch.randn(size, generator=generator)


class Double(AbstractEncoding):
    """Additive table, prefix rows, scaling of q and k, and bias, each if asked for.

    Counts how often each is used; its answers depend on grid and layer.
    """

    name = "double"
    kind = "additive"
    summary = "for tests"
    formula = ""

    def __init__(self, *uses: str, **size: Any) -> None:
        numbers = {**{name: MICRO[name] for name in ("dim", "depth", "num_heads")}, **size}
        super().__init__(EncodingSize(**numbers, grid=GRID))
        self.uses, self.calls = uses, {"additive": 0, "rotate": 0, "bias": 0, "prefix": 0}
        generator = torch.Generator().manual_seed(7)
        self.weight = nn.Parameter(torch.randn(1000, self.size.dim, generator=generator))

    def additive(self, grid: tuple[int, int]) -> Tensor | None:
        self.calls["additive"] += 1
        return self.weight[: grid[0] * grid[1]] if "additive" in self.uses else None

    def rotate(
        self, q: Tensor, k: Tensor, grid: tuple[int, int], layer: int
    ) -> tuple[Tensor, Tensor]:
        self.calls["rotate"] += 1
        assert q.shape[-2] == k.shape[-2] == grid[0] * grid[1]
        if "rotate" not in self.uses:
            return q, k
        scale = self.weight[: grid[0] * grid[1], :1] + layer
        return q * scale, k * (scale + 1.0)

    def bias(self, grid: tuple[int, int], layer: int) -> Tensor | None:
        self.calls["bias"] += 1
        if "bias" not in self.uses:
            return None
        count, heads = grid[0] * grid[1], self.size.num_heads
        return self.weight.flatten()[: heads * count * count].reshape(heads, count, count) + layer

    def prefix(self, n: int) -> Tensor | None:
        self.calls["prefix"] += 1
        return self.weight[-n:] if "prefix" in self.uses else None
