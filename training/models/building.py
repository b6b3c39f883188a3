"""The model and the position encoding a config describes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from training.config.encoding_rules import (
    STRENGTHS,
    encoding_options,
    encoding_problem,
    encoding_size,
)
from training.config.errors import ConfigError
from training.config.model_sizes import DHVT, model_shape
from training.config.rules import check_files
from training.config.schema import Experiment
from training.encodings import AbstractEncoding, build_encoding
from training.models import (
    HybridVisionTransformer,
    LoadReport,
    VisionTransformer,
    build_dhvt,
    build_vit,
    load_checkpoint,
)
from training.models.green_start import start_as_green
from training.models.layers import initialise
from training.randomness import derived_seed
from wefpe_core import WefpeError


def check_before_run(config: Experiment) -> None:
    """Raise `ConfigError` if a file is missing or the encoding cannot be built.

    The rules of a config find every mistake in the options of the encodings of this project
    without building anything. An encoding that was registered by others may also refuse its
    options when it is built.
    """
    check_files(config)
    with torch.random.fork_rng(devices=[]):
        _build(config, encoding_options(config))


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
        Classes and channels of the data.
    pretrained : bool
        False leaves ``model.checkpoint`` unread: for a run whose own weights are loaded next.
    on_load : callable, optional
        Called with the `LoadReport` of the weights, for the log of the run.
    """
    with torch.random.fork_rng():
        model = _built(config, num_classes, in_channels)
    if config.model.checkpoint and pretrained:
        report = load_checkpoint(
            model,
            config.model.checkpoint,
            positions=config.model.positions,
            head=config.model.head,
        )
        if on_load is not None:
            on_load(report)
    return model


def _built(
    config: Experiment, num_classes: int, in_channels: int
) -> VisionTransformer | HybridVisionTransformer:
    settings, shape = config.model, model_shape(config)
    # Two seeds, so that models with different encodings start from the same weights.
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
            layer_scale=settings.layer_scale,
            recompute=config.training.recompute,
            **options,
        )
    if settings.head_layers or settings.head_dropouts:
        outputs = getattr(model, "num_outputs", num_classes)
        model.head = _head(config, shape.dim, outputs)
    if settings.start == "green":
        assert isinstance(model, VisionTransformer)
        start_as_green(model)
    return model


def _head(config: Experiment, dim: int, outputs: int) -> nn.Sequential:
    """Dropout, linear, GELU for each hidden layer; then dropout and the linear layer to outputs.

    It sees the pooled token after the last LayerNorm of the model, so it has none of its own.
    """
    settings = config.model
    widths = [round(fraction * dim) for fraction in settings.head_layers]
    dropouts = settings.head_dropouts or (0.0,) * (len(widths) + 1)
    layers: list[nn.Module] = []
    for width, dropout in zip(widths, dropouts[:-1], strict=True):
        layers += [nn.Dropout(dropout), nn.Linear(dim, width), nn.GELU()]
        dim = width
    layers += [nn.Dropout(dropouts[-1]), nn.Linear(dim, outputs)]
    head = nn.Sequential(*layers)
    head.apply(lambda module: initialise(module, scheme=settings.weight_init))
    return head


def build_position_encoding(config: Experiment) -> AbstractEncoding:
    """The encoding of a config for its model and image size, in the strength it asks for.

    With ``scale_match`` the root mean square of the additive table, over the patches and channels
    of the grid of training, starts at that number: it is what an entry adds beside tokens of
    deviation 1.
    """
    place, options = config.position_encoding, encoding_options(config)
    if place.scale_match is None:
        return _build(config, options)
    # A learned table is scaled as it is, with its rows for prefix tokens: the distribution it is
    # drawn from is cut at 2 whatever its deviation, so another deviation is another table.
    is_learned = place.name == "learned"
    name = STRENGTHS[place.name]
    random_state = torch.get_rng_state()
    unit = _build(config, options if is_learned else {**options, name: 1.0})
    with torch.no_grad():
        table = unit.additive(unit.size.grid)
        assert table is not None
        if table.is_meta:  # a model without numbers has no deviation
            return unit
        factor = place.scale_match / float(table.double().square().mean().sqrt())
    if is_learned:
        with torch.no_grad():
            for parameter in unit.parameters():
                parameter.mul_(factor)
        return unit
    torch.set_rng_state(random_state)
    return _build(config, {**options, name: factor})


def _build(config: Experiment, options: dict[str, Any]) -> AbstractEncoding:
    size = encoding_size(config)
    try:
        return build_encoding(config.position_encoding.name, **size._asdict(), **options)
    except WefpeError as error:
        raise ConfigError([encoding_problem(config, error)]) from error
