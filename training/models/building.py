"""The model a config describes."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import nn

from training.config.encoding_rules import build_position_encoding
from training.config.errors import ConfigError, Problem
from training.config.schema import Experiment
from training.config.shapes import DHVT, model_shape
from training.models import (
    HybridVisionTransformer,
    LoadReport,
    VisionTransformer,
    build_dhvt,
    build_vit,
    load_checkpoint,
)
from training.models.checkpoint_files import HUB_PREFIX
from training.models.layers import initialise
from training.randomness import derived_seed
from wefpe_core.errors import did_you_mean


def build_model(
    config: Experiment,
    num_classes: int,
    in_channels: int,
    *,
    pretrained: bool = True,
    on_load: Callable[[LoadReport], None] | None = None,
) -> VisionTransformer | HybridVisionTransformer:
    """The model of a config, with the weights of ``model.checkpoint`` if it names any.

    Weights that are drawn depend on the seed of the config alone, not on torch's generator.

    Parameters
    ----------
    config : Experiment
    num_classes, in_channels : int
        Of the data; the head is always new.
    pretrained : bool
        False leaves ``model.checkpoint`` unread: for a run whose own weights are loaded next.
    on_load : callable, optional
        Called with the `LoadReport` of the weights, for the log of the run.
    """
    with torch.random.fork_rng():
        model = _built(config, num_classes, in_channels)
    if config.model.checkpoint and pretrained:
        report = load_checkpoint(
            model, config.model.checkpoint, positions=config.model.positions, head="new"
        )
        if on_load is not None:
            on_load(report)
    return model


def _built(
    config: Experiment, num_classes: int, in_channels: int
) -> VisionTransformer | HybridVisionTransformer:
    settings, shape = config.model, model_shape(config)
    # Apart from each other, so that models with different encodings start from the same weights.
    torch.manual_seed(derived_seed(config.seed, "weights", "encoding"))
    encoding = build_position_encoding(config)
    torch.manual_seed(derived_seed(config.seed, "weights", "model"))
    options = {
        **shape._asdict(),
        "encoding": encoding,
        "num_classes": num_classes,
        "in_channels": in_channels,
        "dropout": settings.dropout,
        "attention_dropout": settings.attention_dropout,
        "drop_path": settings.drop_path,
    }
    model: VisionTransformer | HybridVisionTransformer
    if settings.name == DHVT:
        model = build_dhvt(**options)
    else:
        model = build_vit(
            settings.name.removeprefix("vit_"),
            class_token=settings.class_token,
            register_tokens=settings.register_tokens,
            pooling=settings.pooling,
            patch_norm=settings.patch_norm,
            weight_init=settings.weight_init,
            **options,
        )
    if settings.head_layers or settings.head_dropouts:
        model.head = _head(config, shape.dim, num_classes)
    return model


def _head(config: Experiment, dim: int, num_classes: int) -> nn.Sequential:
    """Dropout, linear, GELU for each hidden layer; then dropout and the linear layer to classes.

    It sees the pooled token after the last LayerNorm of the model, so it has none of its own.
    """
    settings = config.model
    widths = [round(fraction * dim) for fraction in settings.head_layers]
    dropouts = settings.head_dropouts or (0.0,) * (len(widths) + 1)
    layers: list[nn.Module] = []
    for width, dropout in zip(widths, dropouts[:-1], strict=True):
        layers += [nn.Dropout(dropout), nn.Linear(dim, width), nn.GELU()]
        dim = width
    layers += [nn.Dropout(dropouts[-1]), nn.Linear(dim, num_classes)]
    head = nn.Sequential(*layers)
    head.apply(lambda module: initialise(module, scheme=settings.weight_init))
    return head


def check_files(config: Experiment) -> None:
    """Raise `ConfigError` if a file or folder the config names is not there.

    For the start of a run, before any work; what the files hold is judged by who reads them.
    """
    problems = []
    weights, images = config.model.checkpoint, config.data.path
    if weights.startswith(HUB_PREFIX):
        if find_spec("huggingface_hub") is None:
            message = "needs huggingface_hub: pip install 'wefpe[hub]', or give a path"
            problems.append(Problem("model.checkpoint", message, weights))
    elif weights and not Path(weights).expanduser().is_file():
        problems.append(Problem("model.checkpoint", _missing(weights, "file"), weights))
    if images and not config.data.download and not Path(images).expanduser().exists():
        problems.append(Problem("data.path", _missing(images, "folder"), images))
    if problems:
        raise ConfigError(problems)


def _missing(name: str, kind: str) -> str:
    path = Path(name).expanduser()
    if path.is_dir():
        return f"is a directory, not a {kind} of weights"
    around = path.parent
    hint = ""
    if around.is_dir():
        hint = did_you_mean(path.name, (each.name for each in around.iterdir()), count=3)
    return f"there is no such {kind}; looked for {path.absolute()}{hint}"
