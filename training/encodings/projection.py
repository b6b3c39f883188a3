"""From a few position features to the width of the model."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Projection = Literal["linear", "mlp"]
InitialBias = Literal["uniform", "zero"]

MLP_DROPOUT = 0.05  # of the published script for ViT


def projection(
    kind: Projection,
    features: int,
    dim: int,
    dropout: float = MLP_DROPOUT,
    initial_bias: InitialBias = "uniform",
) -> nn.Sequential:
    """The paper's projections: linear and LayerNorm, or a hidden layer of half the width.

    A bias is shared by all patches, and LayerNorm turns its share of the table into a share that
    does not depend on the place. `uniform` is what torch gives a linear layer.
    """
    layers = _projection(kind, features, dim, dropout)
    if initial_bias == "zero":
        _zero_biases(layers)
    return layers


def _zero_biases(layers: nn.Sequential) -> None:
    for layer in layers:
        if isinstance(layer, nn.Linear):
            nn.init.zeros_(layer.bias)


def _projection(kind: Projection, features: int, dim: int, dropout: float) -> nn.Sequential:
    if kind == "linear":
        return nn.Sequential(nn.Linear(features, dim), nn.LayerNorm(dim))
    hidden = max(dim // 2, 1)
    return nn.Sequential(
        nn.Linear(features, hidden),
        nn.LayerNorm(hidden),
        nn.GELU(),
        nn.Dropout(dropout),
        nn.Linear(hidden, dim),
        nn.LayerNorm(dim),
    )


def deep_projection(
    features: int, dim: int, dropouts: tuple[float, float], gain: float
) -> nn.Sequential:
    """The projection of the published fine-tuning scripts: three layers, none normalised last."""
    hidden = max(dim // 2, 1)
    layers = nn.Sequential(
        nn.Linear(features, hidden),
        nn.LayerNorm(hidden),
        nn.GELU(),
        nn.Dropout(dropouts[0]),
        nn.Linear(hidden, dim),
        nn.LayerNorm(dim),
        nn.GELU(),
        nn.Dropout(dropouts[1]),
        nn.Linear(dim, dim),
    )
    for layer in layers:
        if isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight, gain=gain)
    _zero_biases(layers)
    return layers


# Bounded features from values that have poles, by name. The functions themselves stay exact.

Compression = Literal["tanh", "softsign"]

COMPRESSIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,  # the paper's; next to a pole all values are 1
    "softsign": F.softsign,  # x/(1+|x|): keeps telling large values apart
}

COMPRESSION_MEANING = "what bounds the features: tanh(s f), or softsign s f/(1 + |s f|)"


def inverse_softplus(y: float) -> float:
    """The x with log(1 + e^x) = y > 0."""
    return y + math.log(-math.expm1(-y))
