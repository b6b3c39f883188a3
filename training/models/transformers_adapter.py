"""An encoding in the `ViTModel` of Hugging Face transformers.

Its embeddings ask `interpolate_pos_encoding` for the table of another image size: the encoding
answers that question, always, which also lifts the restriction to one size. Rotation acts on what
q_proj and k_proj give, bias through the attention mask.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor, nn

from training.encodings import AbstractEncoding
from training.models.attachment import AbstractAttachment, moved_like
from training.models.layers import grid_of
from wefpe_core import InputError

_ATTENTIONS = ("eager", "sdpa")  # those that take an additive mask
_ASK = "interpolate_pos_encoding"


class TransformersAttachment(AbstractAttachment):
    """See the module."""

    def __init__(self, model: nn.Module, encoding: AbstractEncoding) -> None:
        super().__init__(model, encoding)
        self.table: nn.Parameter | None = None

    def connect(self) -> None:
        model: Any = self.model
        self._check()
        embeddings = model.embeddings
        self.table, embeddings.position_embeddings = embeddings.position_embeddings, None
        setattr(embeddings, _ASK, self._table)
        self.hook(embeddings.register_forward_pre_hook, self._ask_encoding, with_kwargs=True)
        for layer, block in enumerate(model.layers):
            attention = block.attention
            for projection, is_query in ((attention.q_proj, True), (attention.k_proj, False)):
                rotate = partial(self._rotate, layer, is_query, attention.num_attention_heads)
                self.hook(projection.register_forward_hook, rotate)
            self.hook(
                attention.register_forward_pre_hook, partial(self._bias, layer), with_kwargs=True
            )
        self.hook(model.layers[-1].register_forward_hook, self.end_pass)

    def is_checkpointing(self) -> bool:
        model: Any = self.model
        return bool(getattr(model.layers[-1], "gradient_checkpointing", False))

    def restore(self) -> None:
        embeddings: Any = self.model.get_submodule("embeddings")
        delattr(embeddings, _ASK)  # the method of the class shows again
        if self.table is not None:
            weight = embeddings.patch_embeddings.projection.weight
            embeddings.position_embeddings = moved_like(self.table, weight)

    def _check(self) -> None:
        model: Any = self.model
        embeddings = model.embeddings
        parts = [getattr(block, "attention", None) for block in getattr(model, "layers", ())]
        known = all(hasattr(part, "q_proj") and hasattr(part, "k_proj") for part in parts)
        if not parts or not known or not hasattr(embeddings, _ASK):
            raise InputError(
                "this ViTModel is not built as the adapter knows it (transformers 5.22): "
                "layers[i].attention.q_proj, embeddings.interpolate_pos_encoding"
            )
        patch = embeddings.patch_embeddings.patch_size
        if len({*patch}) != 1:
            raise InputError("patches must be square")

    def _ask_encoding(
        self, module: Any, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        images, *others = arguments
        self.begin_pass(grid_of(images, module.patch_embeddings.patch_size[0]))
        if others:
            options = {**options, "bool_masked_pos": others[0]}
        return (images,), {**options, _ASK: True}

    def _table(self, embeddings: Tensor, height: int, width: int) -> Tensor:
        table = self.table_of_all_tokens(self.noted_grid(), 1, embeddings)
        return embeddings.new_zeros(1, 1, 1) if table is None else table[None]

    def _rotate(
        self,
        layer: int,
        is_query: bool,
        heads: int,
        module: nn.Module,
        arguments: object,
        output: Tensor,
    ) -> Tensor:
        by_head = output.unflatten(-1, (heads, -1)).transpose(1, 2)
        rotated = self.rotated(by_head, layer, is_query=is_query)
        return output if rotated is by_head else rotated.transpose(1, 2).flatten(2)

    def _bias(
        self, layer: int, module: Any, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        tokens, *others = arguments
        given = others[0] if others else options.get("attention_mask")
        mask = self.mask_with_bias(tokens, layer, given)
        if mask is not given and module.config._attn_implementation not in _ATTENTIONS:
            raise InputError(
                f"a bias encoding needs attn_implementation {' or '.join(_ATTENTIONS)}, "
                f"not {module.config._attn_implementation}"
            )
        options = {name: value for name, value in options.items() if name != "attention_mask"}
        return (tokens, mask, *others[1:]), options
