"""`attach` and `detach`: another position encoding for a model of timm or Hugging Face.

Neither timm nor transformers is imported here: whoever has a model of theirs has imported it.
"""

from __future__ import annotations

import inspect
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from training.encodings import AbstractEncoding
from training.encodings.encoding import PassTables
from training.encodings.grid import Grid
from training.models.layers import bias_of_tokens, checked_encoding, grid_of, rotate_patches
from wefpe_core import InputError, InputTypeError

Model = TypeVar("Model", bound=nn.Module)

_KEEPER = "_position_attachment"  # the attribute of a model that holds its attachment


def attach(model: Model, encoding: AbstractEncoding) -> Model:
    """Give a timm `VisionTransformer` or a Hugging Face `ViTModel` another position encoding.

    The learned table of the model leaves it, so position is added once. The encoding becomes
    ``model.encoding``, with its parameters in ``parameters()`` and in the state dict. A state dict
    of an attached model loads into another one with an encoding of the same kind attached.

    Parameters
    ----------
    model : torch.nn.Module
        Changed in place. A Hugging Face model with a head (`ViTForImageClassification`) is
        changed in its ``.vit``. For images of several sizes build a timm model with
        ``dynamic_img_size=True``; a `ViTModel` takes any size once attached.
    encoding : AbstractEncoding
        Built for the width, depth and heads of the model, on the device of the model. It is put
        into the mode of the model, training or evaluation.

    Returns
    -------
    torch.nn.Module
        The model given. Make the optimiser after this.

    Raises
    ------
    InputError
        An encoding is attached already, or does not fit, or the model has parts (patch dropping,
        another attention) in which an encoding could not act.
    """
    core, attachment_class, numbers = _recognised(model)
    if hasattr(core, _KEEPER) or hasattr(core, "encoding"):
        raise InputError("an encoding is attached to this model already; detach(model) first")
    attachment = attachment_class(core, checked_encoding(encoding, *numbers))
    attachment.connect()
    core.encoding = encoding.train(core.training)
    setattr(core, _KEEPER, attachment)
    return model


def detach(model: nn.Module) -> AbstractEncoding:
    """Undo `attach`: the model gets its own learned table back; returns the encoding."""
    core, _, _ = _recognised(model)
    attachment: AbstractAttachment | None = getattr(core, _KEEPER, None)
    if attachment is None:
        raise InputError("no encoding is attached to this model")
    attachment.disconnect()
    delattr(core, _KEEPER)
    del core.encoding
    return attachment.encoding


def _recognised(model: nn.Module) -> tuple[Any, type[AbstractAttachment], tuple[int, int, int]]:
    """The part of the model to change, the class that can, and its width, depth and heads."""
    timm_class = _imported("timm.models.vision_transformer", "VisionTransformer")
    if timm_class is not None and isinstance(model, timm_class):
        vit: Any = model
        heads = getattr(getattr(vit.blocks[0], "attn", None), "num_heads", 1)
        return vit, TimmAttachment, (vit.embed_dim, len(vit.blocks), heads)
    hugging_class = _imported("transformers.models.vit.modeling_vit", "ViTPreTrainedModel")
    if hugging_class is not None and isinstance(model, hugging_class):
        core: Any = model.base_model
        config = core.config
        numbers = (config.hidden_size, config.num_hidden_layers, config.num_attention_heads)
        return core, TransformersAttachment, numbers
    raise InputTypeError(
        "attach takes a timm VisionTransformer or a Hugging Face ViTModel, "
        f"got {type(model).__module__}.{type(model).__name__}"
    )


def _imported(module: str, name: str) -> type[Any] | None:
    """A class of a module, or None if that module has not been imported."""
    return getattr(sys.modules.get(module), name, None)


class AbstractAttachment(ABC):
    """An encoding at work in a foreign model, and the way back.

    All of it is done by hooks of torch, so the code, the class and the parameter names of the
    model stay as they are. Only its learned table leaves the state dict, and the parameters of the
    encoding enter it under ``encoding.``. The grid is noted when the patches are embedded and used
    by the layers of the same forward pass. These also share their tables until the last of them is
    done, unless the model evaluates layers again for the gradient (checkpointing).
    """

    def __init__(self, model: nn.Module, encoding: AbstractEncoding) -> None:
        self.model: Any = model
        self.encoding = encoding
        self.grid: Grid | None = None
        self.table: nn.Parameter | None = None  # the learned table of the model
        self.pass_tables: PassTables | None = None  # what the layers of one pass share
        self.handles: list[RemovableHandle] = []

    @abstractmethod
    def connect(self) -> None:
        """Take the learned table out and hook the encoding in."""

    @abstractmethod
    def restore(self) -> None:
        """Put the learned table back; the hooks are gone already."""

    @abstractmethod
    def is_checkpointing(self) -> bool:
        """Whether the model evaluates its layers again in the backward pass."""

    def disconnect(self) -> None:
        for handle in self.handles:
            handle.remove()
        self.handles.clear()
        self.restore()

    def hook(
        self, register: Callable[..., RemovableHandle], *arguments: Any, **options: Any
    ) -> None:
        self.handles.append(register(*arguments, **options))

    def begin_pass(self, grid: Grid) -> None:
        self.grid = grid
        self.pass_tables = None if self.is_checkpointing() else []

    def end_pass(self, *_: object) -> None:
        """A forward hook of the last layer."""
        self.pass_tables = None

    def shared_pass(self) -> AbstractContextManager[None]:
        if self.pass_tables is None:
            return nullcontext()
        return self.encoding.shared_pass(self.pass_tables)

    def noted_grid(self) -> Grid:
        if self.grid is None:
            raise InputError("attention was called before any image was embedded")
        return self.grid

    def rotated(self, tokens: Tensor, layer: int, *, is_query: bool) -> Tensor:
        """Queries or keys (batch, heads, tokens, head_dim) rotated.

        The libraries make the two in separate calls, so each is rotated beside an empty batch.
        """
        nobody = tokens[:0]
        q, k = (tokens, nobody) if is_query else (nobody, tokens)
        with self.shared_pass():
            rotated = rotate_patches(q, k, self.encoding, self.noted_grid(), layer)
        return rotated[0] if is_query else rotated[1]

    def mask_with_bias(self, tokens: Tensor, layer: int, mask: Tensor | None) -> Tensor | None:
        """The attention mask of the call (additive or boolean) with the bias added."""
        with self.shared_pass():
            bias = bias_of_tokens(tokens, self.encoding, self.noted_grid(), layer)
        if bias is None or mask is None:
            return mask if bias is None else bias[None]
        if mask.dtype == torch.bool:
            return torch.where(mask, bias[None], -torch.inf)
        return bias[None] + mask

    def table_of_all_tokens(self, n_prefix: int, like: Tensor) -> Tensor | None:
        """Additive table (prefix + H*W, dim), or None if the encoding adds nothing."""
        grid = self.noted_grid()
        patches = self.encoding.additive(grid)
        prefix = self.encoding.prefix(n_prefix) if n_prefix else None
        if patches is None and prefix is None:
            return None
        dim = like.shape[-1]
        parts = [
            like.new_zeros(n_prefix, dim) if prefix is None else prefix,
            like.new_zeros(grid[0] * grid[1], dim) if patches is None else patches,
        ]
        return torch.cat(parts)

    def table_like(self, weight: Tensor) -> nn.Parameter | None:
        """The learned table on the device and in the dtype the model has been moved to since."""
        if self.table is None:
            return None
        return nn.Parameter(self.table.detach().to(weight), requires_grad=self.table.requires_grad)


class TimmAttachment(AbstractAttachment):
    """An encoding in timm's `VisionTransformer`.

    timm calls the q_norm and k_norm of a layer on the queries and keys and hands attn_mask on to
    the attention kernel: rotation and bias enter there. Position is added to the tokens just
    before `patch_drop`, which in timm follows the addition of the learned table.
    """

    def connect(self) -> None:
        model = self.model
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

    def restore(self) -> None:
        self.model.pos_embed = self.table_like(self.model.patch_embed.proj.weight)

    def is_checkpointing(self) -> bool:
        return bool(getattr(self.model, "grad_checkpointing", False))

    def _check(self) -> None:
        for block in self.model.blocks:
            attention: Any = getattr(block, "attn", None)
            fits = hasattr(attention, "q_norm") and hasattr(attention, "k_norm")
            if not fits or "attn_mask" not in inspect.signature(attention.forward).parameters:
                raise InputError(
                    f"attention {type(attention).__name__} of {type(block).__name__} cannot take "
                    "an encoding: it needs q_norm, k_norm and attn_mask (timm 1.0.20 or newer)"
                )
        if not isinstance(self.model.patch_drop, nn.Identity):
            raise InputError("an encoding cannot know which patches patch_drop_rate > 0 drops")
        if self.model.patch_embed.patch_size[0] != self.model.patch_embed.patch_size[1]:
            raise InputError("patches must be square")

    def _note_grid(self, module: Any, arguments: tuple[Any, ...]) -> None:
        self.begin_pass(grid_of(arguments[0], module.patch_size[0]))

    def _add_position(self, module: nn.Module, arguments: tuple[Any, ...]) -> tuple[Tensor]:
        tokens = arguments[0]
        table = self.table_of_all_tokens(self.model.num_prefix_tokens, tokens)
        # A timm model without a table leaves out its pos_drop, so it is applied here.
        return (self.model.pos_drop(tokens if table is None else tokens + table),)

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


_ATTENTIONS = ("eager", "sdpa")  # implementations of transformers that take an additive mask
_ASK = "interpolate_pos_encoding"


class TransformersAttachment(AbstractAttachment):
    """An encoding in the `ViTModel` of Hugging Face transformers.

    Its embeddings call `interpolate_pos_encoding` for the table of another image size. The
    encoding answers that call, and every size counts as another one, so the model is no longer
    restricted to one size. Rotation acts on the outputs of q_proj and k_proj, bias through the
    attention mask.
    """

    def connect(self) -> None:
        model = self.model
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

    def restore(self) -> None:
        embeddings = self.model.embeddings
        delattr(embeddings, _ASK)  # the method of the class shows again
        weight = embeddings.patch_embeddings.projection.weight
        embeddings.position_embeddings = self.table_like(weight)

    def is_checkpointing(self) -> bool:
        return bool(getattr(self.model.layers[-1], "gradient_checkpointing", False))

    def _check(self) -> None:
        embeddings = self.model.embeddings
        parts = [getattr(block, "attention", None) for block in getattr(self.model, "layers", ())]
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
        table = self.table_of_all_tokens(1, embeddings)
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
