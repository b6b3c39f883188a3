"""A gate between WEF-PE and a pre-trained table of learned positions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from training.encodings.encoding import AbstractEncoding, EncodingSize, prefix_rows
from training.encodings.grid import Grid, checked_grid
from training.encodings.learned import RESAMPLING_MEANING, PatchTable, Resampling
from training.encodings.options import option, parse_options
from training.encodings.weierstrass import Fidelity, WeierstrassEncoding
from training.encodings.weierstrass_fourier import WeierstrassFourierEncoding
from training.errors import EncodingOptionError, MissingTableError


@dataclass(frozen=True, kw_only=True)
class HybridOptions:
    """Options of `weierstrass_hybrid`."""

    wef: Literal["weierstrass_fourier", "weierstrass"] = option(
        "weierstrass_fourier", "the encoding that is mixed with the learned table"
    )
    wef_options: Mapping[str, Any] | None = option(None, "its options")
    fidelity: Fidelity = option(
        "corrected",
        "handed on to the encoding; authors also adds the learned table twice, as the scripts do: "
        "lambda WEF + (2 - lambda) E",
    )
    lambda_raw: float = option(0.5, "the gate at the start is sigmoid(lambda_raw)")
    table: Literal["pretrained", "fresh"] = option(
        "pretrained", "pretrained: refuse to work until a table is loaded; fresh: start at random"
    )
    prefix_tokens: int = option(
        1, "rows of the learned table for class and register tokens, kept as they are", at_least=0
    )
    resampling: Resampling = option("bicubic_antialias", RESAMPLING_MEANING)


class HybridEncoding(AbstractEncoding):
    r""":math:`\lambda\,E_{WEF} + (1-\lambda)E_{learned}` on patches, with a learned gate.

    Class and register tokens keep their learned rows. The position is added once; a model must
    not add the pre-trained table itself.
    """

    name = "weierstrass_hybrid"
    kind = "additive"
    summary = "a learned gate between WEF-PE and a pre-trained table of positions"
    formula = "x_i + lambda WEF_i + (1 - lambda) E_i, lambda = sigmoid(lambda_raw)"
    options_class = HybridOptions

    def __init__(self, size: EncodingSize, options: HybridOptions) -> None:
        super().__init__(size)
        self.options = options
        self.wef = _inner(size, options)
        self.learned = PatchTable(size.dim, size.grid, options.prefix_tokens, std=0.02)
        self.lambda_raw = nn.Parameter(torch.tensor(options.lambda_raw))
        self._has_table = options.table == "fresh"

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


def _inner(
    size: EncodingSize, options: HybridOptions
) -> WeierstrassEncoding | WeierstrassFourierEncoding:
    given = dict(options.wef_options or {})
    for name, reason in (
        ("class_token", "the class token keeps its learned row"),
        ("fidelity", "it is an option of the hybrid"),
    ):
        if name in given:
            raise EncodingOptionError(f"wef_options cannot hold {name!r}: {reason}")
    given |= {"class_token": False, "fidelity": options.fidelity}
    kind = WeierstrassEncoding if options.wef == "weierstrass" else WeierstrassFourierEncoding
    return kind(size, parse_options(kind.options_class, options.wef, given))
