"""AdamW with a group for each part of the model and each kind of parameter."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from training.config.schema import Optimizer, Schedule

Part = Literal["backbone", "encoding", "head"]


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters that share a learning rate and a weight decay."""

    part: Part
    decays: bool
    names: tuple[str, ...]
    parameters: tuple[Tensor, ...]

    @property
    def title(self) -> str:
        return f"{self.part}, {'decays' if self.decays else 'does not decay'}"


def part_of(name: str) -> Part:
    """Which learning rate a parameter follows: that of its model, of position, or of the head."""
    if name.startswith("encoding."):
        return "encoding"
    return "head" if name.startswith("head.") else "backbone"


def parameter_groups(
    model: nn.Module, decay: Literal["matrices", "all"] = "matrices"
) -> list[ParameterGroup]:
    """The learned parameters of a model, each in exactly one group.

    With ``decay="matrices"`` weight decay acts on the weights of linear maps and convolutions
    alone; norms, biases, scalars, tokens and what the encoding itself exempts keep their size.
    """
    exempt: set[str] = set()
    encoding = getattr(model, "encoding", None)
    if encoding is not None:
        exempt = {f"encoding.{name}" for name in encoding.no_weight_decay()}
    members: dict[tuple[Part, bool], list[tuple[str, Tensor]]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            # Tokens and per-channel scales are tensors of higher rank too, but no weights.
            is_matrix = parameter.ndim >= 2 and name.endswith("weight")
            decays = decay == "all" or (is_matrix and name not in exempt)
            members.setdefault((part_of(name), decays), []).append((name, parameter))
    return [
        ParameterGroup(part, decays, *zip(*pairs, strict=True))
        for (part, decays), pairs in sorted(members.items())
    ]


def build_optimizer(groups: Iterable[ParameterGroup], options: Optimizer) -> torch.optim.AdamW:
    """AdamW over the groups; `set_rate` gives them their learning rates at every step."""
    rates = {
        "backbone": options.backbone_rate,
        "encoding": options.encoding_rate,
        "head": options.head_rate,
    }
    return torch.optim.AdamW(
        [
            {
                "params": list(group.parameters),
                "weight_decay": options.weight_decay if group.decays else 0.0,
                "full_rate": options.learning_rate * rates[group.part],
            }
            for group in groups
        ],
        lr=options.learning_rate,
        betas=options.betas,
        fused=True,
    )


def set_rate(optimizer: torch.optim.Optimizer, factor: float) -> None:
    """Set the learning rate of every group to its full one times `factor`."""
    for group in optimizer.param_groups:
        group["lr"] = group["full_rate"] * factor


# The learning rate as a function of the step: no state, nothing to save, nothing to restore.


def rate_factor(options: Schedule, epochs: int, epoch: float) -> float:
    """The factor of the learning rate `epoch` epochs after the start (a step is a fraction).

    It grows linearly from 0 during the warm-up, then falls along a cosine to `final_rate`; with
    `restart_epochs` the cosine begins anew after so many, each time `restart_factor` lower.
    ``per="epoch"`` holds it constant within an epoch, as some published scripts do; their first
    epoch then runs at rate 0.
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


# The exponential moving average of the weights.


def moving_average(model: nn.Module, decay: float) -> AveragedModel | None:
    """A copy of the model that follows it, or None for a decay of 0.

    Buffers are averaged as well, which matters where batch normalisation keeps its statistics.
    """
    if decay == 0.0:
        return None
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay), use_buffers=True)
    return average.requires_grad_(False).eval()
