"""Bounded features from values that have poles, by name. The functions themselves stay exact."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name
from torch import Tensor

Compression = Literal["tanh", "softsign"]

COMPRESSIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,  # the paper's; next to a pole all values are 1
    "softsign": F.softsign,  # x/(1+|x|): keeps telling large values apart
}

COMPRESSION_MEANING = "what bounds the features: tanh(s f), or softsign s f/(1 + |s f|)"


def inverse_softplus(y: float) -> float:
    """The x with log(1 + e^x) = y > 0."""
    return y + math.log(-math.expm1(-y))
