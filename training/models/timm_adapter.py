"""An encoding in timm's `VisionTransformer`.

timm calls the q_norm and k_norm of a layer on the queries and keys and hands attn_mask on to the
attention kernel: rotation and bias enter there. Position is added to the tokens just before
`patch_drop`, timm's next step after its own table, which is gone.
"""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

from torch import Tensor, nn

from training.encodings import AbstractEncoding
from training.models.attachment import AbstractAttachment, moved_like
from training.models.layers import grid_of
from wefpe_core import InputError


class TimmAttachment(AbstractAttachment):
    """See the module."""

    def __init__(self, model: nn.Module, encoding: AbstractEncoding) -> None:
        super().__init__(model, encoding)
        self.table: nn.Parameter | None = None

    def connect(self) -> None:
        model: Any = self.model
        self._check()
        self.table, model.pos_embed = model.pos_embed, None
        self.hook(model.patch_embed.register_forward_pre_hook, self._note_grid)
        self.hook(model.patch_drop.register_forward_pre_hook, self._add_position)
        for layer, block in enumerate(model.blocks):
            attention = block.attn
            for norm, is_query in ((attention.q_norm, True), (attention.k_norm, False)):
                self.hook(norm.register_forward_hook, partial(self._rotate, layer, is_query))
            self.hook(
                attention.register_forward_pre_hook, partial(self._bias, layer), with_kwargs=True
            )
        self.hook(model.blocks[-1].register_forward_hook, self.end_pass)

    def is_checkpointing(self) -> bool:
        return bool(getattr(self.model, "grad_checkpointing", False))

    def restore(self) -> None:
        model: Any = self.model
        if self.table is not None:
            model.pos_embed = moved_like(self.table, model.patch_embed.proj.weight)

    def _check(self) -> None:
        model: Any = self.model
        for block in model.blocks:
            attention: Any = getattr(block, "attn", None)
            fits = hasattr(attention, "q_norm") and hasattr(attention, "k_norm")
            if not fits or "attn_mask" not in inspect.signature(attention.forward).parameters:
                raise InputError(
                    f"attention {type(attention).__name__} of {type(block).__name__} cannot take "
                    "an encoding: it needs q_norm, k_norm and attn_mask (timm 1.0.20 or newer)"
                )
        if not isinstance(model.patch_drop, nn.Identity):
            raise InputError("an encoding cannot know which patches patch_drop_rate > 0 drops")
        if model.patch_embed.patch_size[0] != model.patch_embed.patch_size[1]:
            raise InputError("patches must be square")

    def _note_grid(self, module: Any, arguments: tuple[Any, ...]) -> None:
        self.begin_pass(grid_of(arguments[0], module.patch_size[0]))

    def _add_position(self, module: nn.Module, arguments: tuple[Any, ...]) -> tuple[Tensor]:
        model: Any = self.model
        tokens = arguments[0]
        table = self.table_of_all_tokens(self.noted_grid(), model.num_prefix_tokens, tokens)
        # Without a table timm leaves its pos_drop out as well.
        return (model.pos_drop(tokens if table is None else tokens + table),)

    def _rotate(
        self, layer: int, is_query: bool, module: nn.Module, arguments: object, output: Tensor
    ) -> Tensor:
        return self.rotated(output, layer, is_query=is_query)

    def _bias(
        self, layer: int, module: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        tokens, *others = arguments
        if others:  # attn_mask by position
            options = {**options, "attn_mask": others[0]}
            options |= {"is_causal": others[1]} if len(others) > 1 else {}
        mask = self.mask_with_bias(tokens, layer, options.get("attn_mask"))
        if mask is not None and options.get("is_causal"):
            raise InputError("a bias encoding does not go with causal attention")
        return (tokens,), {**options, "attn_mask": mask}
