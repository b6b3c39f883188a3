"""An encoding in the `ViTModel` of Hugging Face transformers."""

from __future__ import annotations

import sys
from typing import Any

from torch import Tensor, nn

from training.encodings import AbstractEncoding
from training.models.attachment import AbstractAttachment, ForwardPass, innermost
from training.models.layers import grid_of
from wefpe_core import InputError

_NAME = "wefpe"  # of our entry in the attention interface of transformers
_TAKE_A_MASK = ("eager", "sdpa")  # implementations that add a mask of floats to the logits
_ASK = "interpolate_pos_encoding"
_PASS = "position_pass"  # the keyword by which a forward pass reaches the attention of each layer


class TransformersAttachment(AbstractAttachment):
    """An encoding in the `ViTModel` of Hugging Face transformers.

    Its embeddings call `interpolate_pos_encoding` for the table of another image size. The
    encoding answers that call, and every size counts as another one, so the model is no longer
    restricted to one size. Rotation and bias act where queries, keys and mask enter the attention
    function, after all projections and what adapters (LoRA) add to them. The model hands keywords
    on to that function, and one of them carries the forward pass.
    """

    def check(self, encoding: AbstractEncoding) -> None:
        embeddings = self.model.embeddings
        parts = self._attentions()
        known = all(hasattr(part, "q_proj") and hasattr(part, "config") for part in parts)
        if not parts or not known or not hasattr(embeddings, _ASK) or not _interface():
            raise InputError(
                "this ViTModel is not built as the adapter knows it (transformers 5.22): "
                "layers[i].attention.config, embeddings.interpolate_pos_encoding"
            )
        if len({*embeddings.patch_embeddings.patch_size}) != 1:
            raise InputError("patches must be square")
        heads = {(part.num_attention_heads, part.head_dim) for part in parts}
        if heads != {(encoding.size.num_heads, encoding.size.head_dim)}:
            raise InputError("the model has other heads than hidden_size / num_attention_heads")
        if encoding.kind == "bias":
            _check_takes_bias(self.model.config._attn_implementation)

    def connect(self) -> None:
        embeddings = self.model.embeddings
        self.table, embeddings.position_embeddings = embeddings.position_embeddings, None
        setattr(embeddings, _ASK, self._table)
        self.hook(embeddings.register_forward_pre_hook, self._ask_encoding, with_kwargs=True)
        self.hook(self.model.register_forward_pre_hook, self._begin_pass, with_kwargs=True)
        for layer, attention in enumerate(self._attentions()):
            attention.config = ConfigOfLayer(attention.config, self, layer)

    def restore(self) -> None:
        embeddings = self.model.embeddings
        delattr(embeddings, _ASK)  # the method of the class shows again
        embeddings.position_embeddings = self.table_now()
        for attention in self._attentions():
            attention.config = attention.config.original

    def patch_weight(self) -> Tensor:
        weight: Tensor = self.model.embeddings.patch_embeddings.projection.weight
        return weight

    def _attentions(self) -> list[Any]:
        layers = getattr(self.model, "layers", ())
        return [innermost(getattr(innermost(layer), "attention", None)) for layer in layers]

    def _begin_pass(
        self, module: Any, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        images = arguments[0] if arguments else options.get("pixel_values")
        if images is None:  # the model says so itself
            return arguments, options
        grid = grid_of(images, module.embeddings.patch_embeddings.patch_size[0])
        current = ForwardPass(self.encoding, grid)
        if current.has_bias:
            _check_takes_bias(self.model.config._attn_implementation)
        return arguments, {**options, _PASS: current}

    def _ask_encoding(
        self, module: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        images, *others = arguments
        if others:
            options = {**options, "bool_masked_pos": others[0]}
        return (images,), {**options, _ASK: True}

    def _table(self, embeddings: Tensor, height: int, width: int) -> Tensor:
        patch = self.model.embeddings.patch_embeddings.patch_size[0]
        table = self.table_of_all_tokens(1, embeddings, (height // patch, width // patch))
        return embeddings.new_zeros(1, 1, 1) if table is None else table[None]


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
    attention_mask: Tensor | None,
    **options: Any,
) -> Any:
    """An attention function of transformers: the one of the model, with rotation and bias."""
    place: ConfigOfLayer = module.config
    current: ForwardPass | None = options.pop(_PASS, None)
    if current is None:
        raise InputError("attention was called outside a forward pass of the ViTModel")
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
