"""The optimiser with its groups of parameters, the learning rate, and the average of the weights.

Optimisers are those of torch by the names of `training.config.optimizers`, and timm's.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from training.config.errors import ConfigError, Problem
from training.config.optimizers import TIMM, TORCH_OPTIMIZERS
from training.config.schema import Optimizer, Schedule
from training.models.timm_import import import_timm

# --- Groups of parameters ------------------------------------------------------------------

RateTier = Literal["backbone", "encoding", "head"]  # each has a factor of the learning rate


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters that share a learning rate and a weight decay."""

    tier: RateTier
    decays: bool
    rate: float  # a further factor of the learning rate
    names: tuple[str, ...]
    parameters: tuple[Tensor, ...]


def parameter_groups(
    model: nn.Module,
    decay: Literal["matrices", "all"] = "matrices",
    layer_decay: float = 1.0,
) -> list[ParameterGroup]:
    """The learned parameters of a model, each in exactly one group.

    With ``decay="matrices"`` weight decay acts only on the weights of linear maps and convolutions.
    Norms, biases, scalars, tokens and what the encoding itself exempts do not decay.

    With a `layer_decay` below 1 the last norm learns at the full rate, the last block at that times
    `layer_decay`, and so on down to the patch projection and the tokens. Head and encoding have
    rates of their own.
    """
    depth = len(getattr(model, "blocks", ()))
    exempt: set[str] = set()
    encoding = getattr(model, "encoding", None)
    if encoding is not None:
        exempt = {f"encoding.{name}" for name in encoding.no_weight_decay()}
    members: dict[tuple[RateTier, bool, int], list[tuple[str, Tensor]]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            # Tokens and scales for each channel have two dimensions or more, but are no weights.
            is_matrix = parameter.ndim >= 2 and name.endswith("weight")
            decays = decay == "all" or (is_matrix and name not in exempt)
            tier = _tier_of(name)
            is_slowed = layer_decay < 1.0 and tier == "backbone"
            below = depth + 1 - _layer_of(name, depth) if is_slowed else 0
            members.setdefault((tier, decays, below), []).append((name, parameter))
    return [
        ParameterGroup(tier, decays, layer_decay**below, *zip(*pairs, strict=True))
        for (tier, decays, below), pairs in sorted(members.items())
    ]


def _layer_of(name: str, depth: int) -> int:
    """0 for the patch projection and the tokens, then the blocks, then the last norm."""
    if name.startswith("blocks."):
        return int(name.split(".")[1]) + 1
    return depth + 1 if name.startswith(("norm.", "fc_norm.")) else 0


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
    make, accepted = _factory(options.name)
    keywords: dict[str, Any] = {"lr": options.learning_rate}
    if "betas" in accepted:
        keywords["betas"] = options.betas
    if options.name == "adamw":
        keywords["fused"] = True
    tables = [
        {
            "params": list(group.parameters),
            "weight_decay": options.weight_decay if group.decays else 0.0,
            "full_rate": options.learning_rate * factors[group.tier] * group.rate,
        }
        for group in groups
    ]
    return make(tables, **(keywords | dict(options.options)))


def check_optimizer(options: Optimizer) -> None:
    """Raise `ConfigError` if there is no such optimiser here, or it does not take its options."""
    _, accepted = _factory(options.name)
    problems = [
        Problem(
            f"optimizer.options.{name}",
            f"{options.name} has no such option; it has {', '.join(sorted(accepted))}",
            value,
        )
        for name, value in options.options.items()
        if name not in accepted
    ]
    if "betas" not in accepted and options.betas != Optimizer().betas:
        problems.append(Problem("optimizer.betas", f"{options.name} has no betas", options.betas))
    if not problems:
        weight = nn.Parameter(torch.zeros(2, 2))
        try:
            build_optimizer([ParameterGroup("backbone", True, 1.0, ("w",), (weight,))], options)
        except (TypeError, ValueError, RuntimeError) as error:
            message = f"{options.name} refuses its options: {error}"
            problems.append(Problem("optimizer.options", message, options.options))
    if problems:
        raise ConfigError(problems)


def _factory(name: str) -> tuple[Callable[..., torch.optim.Optimizer], set[str]]:
    """What makes an optimiser, and the names of the options it takes."""
    if not name.startswith(TIMM):
        make: Any = getattr(torch.optim, TORCH_OPTIMIZERS[name])
        return make, _accepted(make)
    try:
        import_timm()
        from timm.optim import (  # type: ignore[import-not-found, unused-ignore]
            get_optimizer_class,
            list_optimizers,
        )
    except ImportError as error:
        message = f"needs timm, which cannot be imported: {error}"
        raise ConfigError([Problem("optimizer.name", message, name)]) from error
    try:
        make = get_optimizer_class(name.removeprefix(TIMM), bind_defaults=True)
    except ValueError as error:
        message = f"timm has no such optimiser; it has {', '.join(list_optimizers())}"
        raise ConfigError([Problem("optimizer.name", message, name)]) from error
    return make, _accepted(make)


def _accepted(make: Callable[..., Any]) -> set[str]:
    return set(inspect.signature(make).parameters) - {"params", "lr", "weight_decay", "kwargs"}


# --- State that a checkpoint keeps ---------------------------------------------------------


@dataclass(frozen=True)
class OptimizerState:
    """The state of an optimiser by names of parameters: tensors, and what is not a tensor.

    Some optimisers keep counters in their groups, under keys that the groups did not begin with.
    """

    tensors: dict[str, dict[str, Tensor]]
    numbers: dict[str, dict[str, Any]]
    groups: list[dict[str, float]]


def optimizer_state(
    optimizer: torch.optim.Optimizer, names: Sequence[str], first_keys: Set[str]
) -> OptimizerState:
    """The state of an optimiser whose groups began with the keys `first_keys`."""
    state = optimizer.state_dict()
    tensors: dict[str, dict[str, Tensor]] = {}
    numbers: dict[str, dict[str, Any]] = {}
    for index, inner in state["state"].items():
        for key, value in inner.items():
            if isinstance(value, Tensor):
                tensors.setdefault(names[index], {})[key] = value
            elif value is not None:
                numbers.setdefault(names[index], {})[key] = value
    groups = [
        {key: float(value) for key, value in group.items() if key not in first_keys}
        for group in state["param_groups"]
    ]
    return OptimizerState(tensors, numbers, groups)


def restore_optimizer(
    optimizer: torch.optim.Optimizer, names: Sequence[str], saved: OptimizerState
) -> None:
    indices = {name: i for i, name in enumerate(names)}
    inner: dict[int, dict[str, Any]] = {}
    for part in (saved.tensors, saved.numbers):
        for name, values in part.items():
            inner.setdefault(indices[name], {}).update(values)
    groups = optimizer.state_dict()["param_groups"]
    for group, counters in zip(groups, saved.groups or [{}] * len(groups), strict=True):
        group.update(counters)
    optimizer.load_state_dict({"state": inner, "param_groups": groups})


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
