"""A gate between WEF-PE and a pre-trained table of learned positions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from training.encodings.encoding import AbstractEncoding, prefix_rows
from training.encodings.grid import Grid, checked_grid
from training.encodings.learned import PatchTable, resample_table
from training.encodings.size import EncodingSize
from training.encodings.weierstrass import WeierstrassEncoding
from training.encodings.weierstrass_fourier import WeierstrassFourierEncoding
from training.encodings.weierstrass_options import (
    HybridOptions,
    WeierstrassFourierOptions,
    WeierstrassOptions,
)
from training.errors import MissingTableError


class HybridEncoding(AbstractEncoding):
    r""":math:`\lambda\,E_{WEF} + (1-\lambda)E_{learned}` on patches, with a learned gate.

    Class and register tokens keep their learned rows. The encoding adds the pre-trained table, so
    a model must not add it again.
    """

    name = "weierstrass_hybrid"
    kind = "additive"
    summary = "a learned gate between WEF-PE and a pre-trained table of positions"
    formula = "x_i + lambda WEF_i + (1 - lambda) E_i, lambda = sigmoid(lambda_raw)"
    options_class = HybridOptions

    def __init__(self, size: EncodingSize, options: HybridOptions) -> None:
        super().__init__(size)
        self.options = options
        self.wef = _mixed_encoding(size, options.mixed_options())
        self.learned = PatchTable(size.dim, size.grid, options.prefix_tokens, std=0.02)
        self.lambda_raw = nn.Parameter(torch.tensor(options.lambda_raw))
        self._has_table = options.table == "fresh"

    def brought_here(self, tensors: dict[str, Tensor], grid: Grid) -> dict[str, Tensor]:
        """The learned part, resampled as the option says."""
        table = tensors["learned.patches"]
        if grid == self.size.grid:
            return tensors
        table = resample_table(table, grid, self.size.grid, self.options.resampling)
        return {**tensors, "learned.patches": table}

    def load_table(self, patches: Tensor, grid: Grid, tokens: Tensor | None = None) -> None:
        """Take over a pre-trained table (height*width, dim) and its prefix rows."""
        self.learned.load(patches, grid, tokens, self.options.resampling)
        self._has_table = True

    def check_ready(self) -> None:
        if not self._has_table:
            raise MissingTableError(
                "weierstrass_hybrid mixes with a pre-trained table, and none was loaded: use "
                "load_table, load a state dict, or build it with table='fresh'"
            )

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *arguments: Any
    ) -> None:
        super()._load_from_state_dict(state_dict, prefix, *arguments)
        if f"{prefix}learned.patches" in state_dict:
            self._has_table = True

    def gate(self) -> Tensor:
        """lambda, the share of WEF-PE."""
        return torch.sigmoid(self.lambda_raw)

    def learned_numbers(self) -> dict[str, Tensor]:
        return {"λ": self.gate(), **self.wef.learned_numbers()}

    def additive(self, grid: Grid) -> Tensor:
        grid = checked_grid(grid)
        self.check_ready()

        def make() -> Tensor:
            share = self.gate()
            rest = (2.0 if self.options.fidelity == "authors" else 1.0) - share
            learned = self.learned.on_grid(grid, self.options.resampling)
            return share * self.wef.additive(grid) + rest * learned

        return self.table(("patches", grid), make)

    def prefix(self, n: int) -> Tensor | None:
        self.check_ready()
        tokens = self.learned.tokens
        return super().prefix(n) if tokens is None else prefix_rows(tokens, n)


def _mixed_encoding(
    size: EncodingSize, options: WeierstrassOptions | WeierstrassFourierOptions
) -> WeierstrassEncoding | WeierstrassFourierEncoding:
    if isinstance(options, WeierstrassOptions):
        return WeierstrassEncoding(size, options)
    return WeierstrassFourierEncoding(size, options)
