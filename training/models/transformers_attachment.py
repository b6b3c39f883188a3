"""An encoding in the vision transformers of Hugging Face transformers."""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from training.encodings import AbstractEncoding
from training.encodings.options import CombinedOptions
from training.models.attachment import AbstractAttachment, ForwardPass, innermost
from training.models.layers import grid_of
from training.models.saved_attachment import KeepsEncoding
from wefpe_core import InputError

_NAME = "wefpe"  # of our entry in the attention interface of transformers
_TAKE_A_MASK = ("eager", "sdpa")  # implementations that add a mask of floats to the logits
_ASK = "interpolate_pos_encoding"
_PASS = "position_pass"  # the keyword by which a forward pass reaches the attention of each layer


@dataclass(frozen=True)
class Backbone:
    """Where a model has what an encoding replaces. The parts are named by their paths in it."""

    table: str | None = "embeddings.position_embeddings"
    patches: str = "embeddings.patch_embeddings.projection"  # the convolution
    layers: str = "layers"
    attention: str = "attention"  # in a layer
    n_prefix: int = 1  # without registers, which the config counts
    # The module that all tokens, registers too, enter with their position. Where none is named,
    # the embeddings ask `interpolate_pos_encoding` for the table, and the encoding answers.
    tokens: str | None = None
    rotation: str | None = None  # the module that makes the cosines and sines of its own rotation
    hands_keywords_on: bool = True  # its attention does, to the attention function
    drops_patches: bool = False  # by `noise`, and those that are left come in another order


_DINOV2 = Backbone(layers="encoder.layer", tokens="encoder")
_DINOV3 = Backbone(
    table=None,
    patches="embeddings.patch_embeddings",
    layers="model.layer",
    tokens="model",
    rotation="rope_embeddings",
)
_CLIP = Backbone(
    table="embeddings.position_embedding",
    patches="embeddings.patch_embedding",
    layers="encoder.layers",
    attention="self_attn",
)

BACKBONES: dict[str, Backbone] = {
    "ViTModel": Backbone(),
    "DeiTModel": Backbone(n_prefix=2),
    "Dinov2Model": _DINOV2,
    "Dinov2Backbone": _DINOV2,
    "Dinov2WithRegistersModel": _DINOV2,
    "Dinov2WithRegistersBackbone": _DINOV2,
    "DINOv3ViTModel": _DINOV3,
    "DINOv3ViTBackbone": _DINOV3,
    "CLIPVisionModel": _CLIP,
    "SiglipVisionModel": Backbone(
        table=_CLIP.table,
        patches=_CLIP.patches,
        layers=_CLIP.layers,
        attention=_CLIP.attention,
        n_prefix=0,
        hands_keywords_on=False,
    ),
    "ViTMAEModel": Backbone(drops_patches=True),
}

# Those that are known and have no grid of (height, width) for all tokens.
REFUSED = {
    "VideoMAEModel": "its tokens are tubes of frames: encodings have rows and columns, not time",
    "Siglip2VisionModel": "the images of one batch have different grids, padded to one length",
    "SwinModel": "attention is within shifted windows",
    "Swinv2Model": "attention is within shifted windows",
}


def backbone_in(model: nn.Module) -> nn.Module | None:
    """The one part of a model that `BACKBONES` describes, perhaps the model itself.

    None if there is no such part. A class is known by its name, and nothing is imported.
    """
    found = [module for module in model.modules() if _name_among(module, BACKBONES)]
    refused = [name for module in model.modules() if (name := _name_among(module, REFUSED))]
    if refused and not found:
        raise InputError(f"{refused[0]} cannot take an encoding: {REFUSED[refused[0]]}")
    if len(found) > 1:
        names = ", ".join(type(module).__name__ for module in found)
        raise InputError(f"{type(model).__name__} has {names}: attach to one of them")
    return found[0] if found else None


def _name_among(module: nn.Module, names: dict[str, Any]) -> str | None:
    for ancestor in type(module).__mro__:
        if ancestor.__name__ in names and ancestor.__module__.startswith("transformers.models."):
            return ancestor.__name__
    return None


class TransformersAttachment(AbstractAttachment):
    """An encoding in a model of Hugging Face transformers, as its `Backbone` describes it.

    The table enters where the one of the model did, and every image size is welcome. Rotation and
    bias act where queries, keys and mask enter the attention function, after all projections and
    what adapters (LoRA) add to them. The model hands keywords on to that function, and one of them
    carries the forward pass.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        name = _name_among(model, BACKBONES)
        assert name is not None  # `backbone_in` found it
        self.name, self.backbone = name, BACKBONES[name]
        self.table_module: Any = None  # the nn.Embedding around the table, if any
        self.saved_from: list[nn.Module] = []  # models whose save_pretrained keeps the encoding

    @property
    def table_name(self) -> str:
        """The name of its own table in the state dict of the model."""
        return f"{self.backbone.table}{'' if self.table_module is None else '.weight'}"

    def keep_when_saved(self, whole: nn.Module) -> None:
        self.saved_from = [whole] if whole is self.model else [whole, self.model]
        for model in self.saved_from:
            model.__dict__["save_pretrained"] = KeepsEncoding(model, self)

    @property
    def n_prefix(self) -> int:
        registers: int = getattr(self.model.config, "num_register_tokens", 0)
        return self.backbone.n_prefix + registers

    @property
    def patch_size(self) -> int:
        size: int = self.model.get_submodule(self.backbone.patches).kernel_size[0]
        return size

    def check(self, encoding: AbstractEncoding) -> None:
        if missing := self._what_is_missing():
            raise InputError(
                f"this {self.name} is not built as the adapter knows it (transformers 5.22): "
                f"it has no {missing}"
            )
        if len({*self.model.get_submodule(self.backbone.patches).kernel_size}) != 1:
            raise InputError("patches must be square")
        heads = {(_n_heads(part), part.head_dim) for part in self._attentions()}
        if heads != {(encoding.size.num_heads, encoding.size.head_dim)}:
            raise InputError("the model has other heads than hidden_size / num_attention_heads")
        dropout: float = getattr(self.model.config, "hidden_dropout_prob", 0.0)
        if self.backbone.tokens is not None and dropout:
            raise InputError(
                f"the position would escape the hidden_dropout_prob of {self.name}: set it to 0"
            )
        options = getattr(encoding, "options", None)
        if isinstance(options, CombinedOptions) and options.moves_places:
            raise InputError(
                "shift, jitter and rescale would move the table of a Hugging Face model to other "
                "places than its attention: leave them out"
            )
        if encoding.kind == "bias":
            _check_takes_bias(self.model.config._attn_implementation)

    def _what_is_missing(self) -> str | None:
        backbone = self.backbone
        paths = (backbone.table, backbone.patches, backbone.layers, backbone.tokens)
        for path in filter(None, (*paths, backbone.rotation)):
            if _part(self.model, path) is None:
                return path
        if backbone.tokens is None and not hasattr(self.model.embeddings, _ASK):
            return f"embeddings.{_ASK}"
        for part in self._attentions():
            if not (hasattr(part, "q_proj") and hasattr(part, "config")):
                return f"{backbone.layers}[i].{backbone.attention}.config"
        return None if _interface() else "ALL_ATTENTION_FUNCTIONS"

    def connect(self) -> None:
        embeddings, backbone = self.model.embeddings, self.backbone
        if backbone.table is not None:
            table, name = _part(self.model, backbone.table), backbone.table.rpartition(".")[2]
            is_module = isinstance(table, nn.Module)
            self.table_module = table if is_module else None
            self.table = table.weight if is_module else table
            setattr(embeddings, name, None)
        if hasattr(embeddings, _ASK):
            setattr(embeddings, _ASK, self._table)
            if _ASK in inspect.signature(type(embeddings).forward).parameters:
                self.hook(embeddings.register_forward_pre_hook, _ask_encoding, with_kwargs=True)
        if backbone.tokens is not None:
            tokens = self.model.get_submodule(backbone.tokens)
            self.hook(tokens.register_forward_pre_hook, self._add_position, with_kwargs=True)
        if backbone.rotation is not None:
            self.model.get_submodule(backbone.rotation).forward = _rotate_nothing
        self.hook(self.model.register_forward_pre_hook, self._begin_pass, with_kwargs=True)
        for layer, attention in enumerate(self._attentions()):
            attention.config = ConfigOfLayer(attention.config, self, layer)
            if not backbone.hands_keywords_on:
                self.hook(
                    attention.register_forward_pre_hook, _put_pass_into_mask, with_kwargs=True
                )

    def restore(self) -> None:
        embeddings, backbone = self.model.embeddings, self.backbone
        if hasattr(embeddings, _ASK):
            delattr(embeddings, _ASK)  # the method of the class shows again
        if backbone.rotation is not None:
            del self.model.get_submodule(backbone.rotation).forward
        if backbone.table is not None:
            back: Any = self.table_now()
            if self.table_module is not None:
                self.table_module.weight = back
                back = self.table_module
            setattr(embeddings, backbone.table.rpartition(".")[2], back)
        for attention in self._attentions():
            attention.config = attention.config.original
        for model in self.saved_from:
            del model.__dict__["save_pretrained"]
        self.saved_from.clear()

    def patch_weight(self) -> Tensor:
        weight: Tensor = self.model.get_submodule(self.backbone.patches).weight
        return weight

    def _attentions(self) -> list[Any]:
        layers = _part(self.model, self.backbone.layers) or ()
        name = self.backbone.attention
        return [innermost(getattr(innermost(layer), name, None)) for layer in layers]

    # --- A forward pass -------------------------------------------------------------------------

    def _begin_pass(
        self, module: Any, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        images = arguments[0] if arguments else options.get("pixel_values")
        if images is None:  # the model says so itself
            return arguments, options
        current = ForwardPass(self.encoding, grid_of(images, self.patch_size))
        if current.has_bias:
            _check_takes_bias(self.model.config._attn_implementation)
        if self.backbone.drops_patches:
            noise = arguments[1] if len(arguments) > 1 else options.get("noise")
            if noise is None:  # what the model would draw, drawn here to know it
                height, width = current.grid
                noise = torch.rand(images.shape[0], height * width, device=images.device)
            if len(arguments) > 1:
                arguments = (images, noise, *arguments[2:])
            else:
                options = {**options, "noise": noise}
            n_left = int(noise.shape[1] * (1 - module.config.mask_ratio))
            current.left = noise.argsort(dim=1)[:, :n_left]
        return arguments, {**options, _PASS: current}

    def _table(self, embeddings: Tensor, height: int, width: int) -> Tensor:
        grid = (height // self.patch_size, width // self.patch_size)
        n_prefix = self.backbone.n_prefix
        table = None
        if self.backbone.tokens is None:  # elsewhere it is added later
            table = self.table_of_all_tokens(n_prefix, embeddings, grid)
        if table is None:
            return embeddings.new_zeros(1, n_prefix + grid[0] * grid[1], 1)
        return table[None]

    def _add_position(
        self, module: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        tokens, *others = arguments
        current = options[_PASS]
        table = self.table_of_all_tokens(self.n_prefix, tokens, current.grid, current)
        return (tokens if table is None else tokens + table, *others), options


def _ask_encoding(
    module: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return arguments, {**options, _ASK: True}


class MaskAndPass(NamedTuple):
    """What stands for a mask where nothing else reaches the attention function."""

    mask: Tensor | None
    current: ForwardPass


def _put_pass_into_mask(
    module: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if _PASS in options:
        both = MaskAndPass(options.get("attention_mask"), options[_PASS])
        options = {**options, "attention_mask": both}
    return arguments, options


def _rotate_nothing(images: Tensor) -> tuple[Tensor, Tensor]:
    """The cosines and sines of no token: a model takes all of its tokens for prefix tokens."""
    nothing = images.new_empty(0, 1)
    return nothing, nothing


def _part(model: nn.Module, path: str) -> Any:
    """A part of a model by its path, or None."""
    part: Any = model
    for name in path.split("."):
        part = getattr(part, name, None)
    return part


def _n_heads(attention: Any) -> int:
    heads: int = getattr(attention, "num_attention_heads", None) or attention.num_heads
    return heads


class ConfigOfLayer:
    """The config of a model as the attention of one layer sees it.

    The attention asks it which attention function to call; ours then calls the one that the model
    is set to. All else is the config of the model, which other models may share.
    """

    _attn_implementation = _NAME

    def __init__(self, original: Any, attachment: TransformersAttachment, layer: int) -> None:
        self.original, self.attachment, self.layer = original, attachment, layer
        _interface().register(_NAME, attention_with_position)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        _interface().register(_NAME, attention_with_position)  # perhaps in another process

    def __getattr__(self, name: str) -> Any:
        if name == "original":  # before the state of a copy is set
            raise AttributeError(name)
        return getattr(self.original, name)


def attention_with_position(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | MaskAndPass | None,
    **options: Any,
) -> Any:
    """An attention function of transformers: the one of the model, with rotation and bias."""
    place: ConfigOfLayer = module.config
    current: ForwardPass | None = options.pop(_PASS, None)
    if isinstance(attention_mask, MaskAndPass):
        attention_mask, current = attention_mask
    if current is None:
        raise InputError("attention was called outside a forward pass of the whole model")
    attachment, layer = place.attachment, place.layer
    query, key = attachment.rotated(query, key, layer, current)
    mask = attention_mask
    if current.has_bias:
        mask = attachment.mask_with_bias(query, layer, attention_mask, current)
    implementation = place.original._attn_implementation
    eager = getattr(sys.modules[type(module).__module__], "eager_attention_forward")  # noqa: B009
    attend = _interface().get_interface(implementation, eager)
    return attend(module, query, key, value, mask, **options)


def _check_takes_bias(implementation: str) -> None:
    if implementation not in _TAKE_A_MASK:
        raise InputError(
            f"a bias encoding needs attn_implementation {' or '.join(_TAKE_A_MASK)}, "
            f"not {implementation}"
        )


def _interface() -> Any:
    """The attention functions of transformers by name, as its models see them."""
    return getattr(sys.modules.get("transformers.modeling_utils"), "ALL_ATTENTION_FUNCTIONS", None)
