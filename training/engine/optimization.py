"""The optimiser with its groups of parameters, the learning rate, and the average of the weights.

A new optimiser needs its name in `training.config.schema.Optimizer` and a line in `_FACTORIES`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from training.config.schema import Optimizer, Schedule

# --- Groups of parameters ------------------------------------------------------------------

RateTier = Literal["backbone", "encoding", "head"]  # each has a factor of the learning rate


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters that share a learning rate and a weight decay."""

    tier: RateTier
    decays: bool
    names: tuple[str, ...]
    parameters: tuple[Tensor, ...]


def parameter_groups(
    model: nn.Module, decay: Literal["matrices", "all"] = "matrices"
) -> list[ParameterGroup]:
    """The learned parameters of a model, each in exactly one group.

    With ``decay="matrices"`` weight decay acts only on the weights of linear maps and convolutions.
    Norms, biases, scalars, tokens and what the encoding itself exempts do not decay.
    """
    exempt: set[str] = set()
    encoding = getattr(model, "encoding", None)
    if encoding is not None:
        exempt = {f"encoding.{name}" for name in encoding.no_weight_decay()}
    members: dict[tuple[RateTier, bool], list[tuple[str, Tensor]]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            # Tokens and scales for each channel have two dimensions or more, but are no weights.
            is_matrix = parameter.ndim >= 2 and name.endswith("weight")
            decays = decay == "all" or (is_matrix and name not in exempt)
            members.setdefault((_tier_of(name), decays), []).append((name, parameter))
    return [
        ParameterGroup(tier, decays, *zip(*pairs, strict=True))
        for (tier, decays), pairs in sorted(members.items())
    ]


def _tier_of(name: str) -> RateTier:
    if name.startswith("encoding."):
        return "encoding"
    return "head" if name.startswith("head.") else "backbone"


# --- The optimiser -------------------------------------------------------------------------


def build_optimizer(groups: Iterable[ParameterGroup], options: Optimizer) -> torch.optim.Optimizer:
    """The optimiser of a config; `set_rate` sets the learning rates of the groups at every step."""
    factors = {
        "backbone": options.backbone_rate,
        "encoding": options.encoding_rate,
        "head": options.head_rate,
    }
    return _FACTORIES[options.name](
        [
            {
                "params": list(group.parameters),
                "weight_decay": options.weight_decay if group.decays else 0.0,
                "full_rate": options.learning_rate * factors[group.tier],
            }
            for group in groups
        ],
        options,
    )


def _adamw(groups: list[dict[str, Any]], options: Optimizer) -> torch.optim.Optimizer:
    return torch.optim.AdamW(groups, lr=options.learning_rate, betas=options.betas, fused=True)


_FACTORIES: dict[str, Callable[[list[dict[str, Any]], Optimizer], torch.optim.Optimizer]] = {
    "adamw": _adamw
}


def set_rate(optimizer: torch.optim.Optimizer, factor: float) -> None:
    """Set the learning rate of every group to its full one times `factor`."""
    for group in optimizer.param_groups:
        group["lr"] = group["full_rate"] * factor


# --- The schedule --------------------------------------------------------------------------


def rate_factor(options: Schedule, epochs: int, epoch: float) -> float:
    """The factor of the learning rate `epoch` epochs after the start (a step is a fraction).

    The factor is a function of the time alone: there is no state to save and restore. It grows
    linearly from 0 during the warm-up, then falls along a cosine to `final_rate`. With
    `restart_epochs` the cosine starts again after that many epochs, each time lower by
    `restart_factor`. ``per="epoch"`` holds the factor constant within an epoch, as some published
    scripts do; with a warm-up the first epoch then has rate 0.
    """
    if options.per == "epoch":
        epoch = math.floor(epoch)
    if epoch < options.warmup_epochs:
        return epoch / options.warmup_epochs
    since, length = epoch - options.warmup_epochs, epochs - options.warmup_epochs
    height = 1.0
    if options.restart_epochs:
        cycle = math.floor(since / options.restart_epochs)
        since, length = since - cycle * options.restart_epochs, options.restart_epochs
        height = options.restart_factor**cycle
    share = min(since / length, 1.0) if length > 0 else 1.0
    falling = 0.5 * (1.0 + math.cos(math.pi * share))
    return height * (options.final_rate + (1.0 - options.final_rate) * falling)


# --- The moving average --------------------------------------------------------------------


def moving_average(model: nn.Module, decay: float) -> AveragedModel | None:
    """An exponential moving average of the weights of a model, or None for a decay of 0.

    Buffers are averaged too, which matters where batch normalisation keeps its statistics.
    """
    if decay == 0.0:
        return None
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay), use_buffers=True)
    return average.requires_grad_(False).eval()
