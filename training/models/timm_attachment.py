"""An encoding in timm's `VisionTransformer` and `Eva` (EVA-02, DINOv3, rotary transformers)."""

from __future__ import annotations

import inspect
import sys
import threading
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from training.encodings import AbstractEncoding
from training.encodings.grid import Grid
from training.models.attachment import AbstractAttachment, ForwardPass, innermost
from training.models.layers import grid_of
from wefpe_core import InputError


@dataclass(frozen=True)
class Architecture:
    """What a class of timm calls its parts."""

    module: str
    name: str
    attentions: tuple[str, ...]  # those that call q_norm and k_norm and take attn_mask
    tokens: str  # the module that the tokens enter when position has been added
    drops_position: bool  # without its table it leaves out pos_drop, so that is for us to do


ARCHITECTURES = (
    Architecture(
        "timm.models.vision_transformer", "VisionTransformer", ("Attention",), "patch_drop", True
    ),
    Architecture("timm.models.eva", "Eva", ("EvaAttention", "AttentionRope"), "pos_drop", False),
)


def architecture_of(model: nn.Module) -> Architecture | None:
    """What is known of the class of a model, which nobody can have without importing it."""
    for known in ARCHITECTURES:
        timm_class = getattr(sys.modules.get(known.module), known.name, None)
        if timm_class is not None and isinstance(model, timm_class):
            return known
    return None


class TimmAttachment(AbstractAttachment):
    """An encoding in timm's `VisionTransformer` or `Eva`.

    timm calls the q_norm and k_norm of a layer on the queries and keys and hands attn_mask on to
    the attention kernel: rotation and bias enter there. Position is added to the tokens where timm
    has added its learned table. A rotation of the model's own is taken out. All of it is done
    by hooks of torch. timm hands nothing but tokens from part to part, so a pass is known by its
    thread, and in the backward pass by the tokens that are evaluated again.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        architecture = architecture_of(model)
        assert architecture is not None  # `attach` asked
        self.architecture = architecture
        self.passes = _no_passes()
        self.table_grid: Grid | None = None
        self.rope: Any = None  # the rotation of the model

    @property
    def module(self) -> Any:
        """The module of timm that the class of the model is from."""
        return sys.modules[self.architecture.module]

    def check(self, encoding: AbstractEncoding) -> None:
        model, name, module = self.model, type(self.model).__name__, self.module
        for method in ("_pos_embed", "forward_features", "forward_intermediates"):
            if getattr(type(model), method) is not getattr(
                getattr(module, self.architecture.name), method
            ):
                raise InputError(
                    f"{name} has its own {method}, so an encoding would not reach all its tokens"
                )
        patch_embed = model.patch_embed
        if type(patch_embed).forward is not module.PatchEmbed.forward:
            raise InputError(
                f"an encoding cannot know the grid of the patches of {type(patch_embed).__name__} "
                f"in {name}: it needs timm's PatchEmbed"
            )
        known = [getattr(module, each).forward for each in self.architecture.attentions]
        for block in model.blocks:
            attention: Any = innermost(getattr(innermost(block), "attn", None))
            if getattr(type(attention), "forward", None) not in known:
                raise InputError(
                    f"attention {type(attention).__name__} of {type(innermost(block)).__name__} "
                    "cannot take an encoding: it needs timm's "
                    f"{' or '.join(self.architecture.attentions)} (timm 1.0.20 or newer)"
                )
            if attention.q_norm is attention.k_norm:
                raise InputError("an encoding cannot tell queries from keys: they share one norm")
            if attention.num_heads * attention.head_dim != encoding.size.dim:
                raise InputError(f"the heads of {name} are not embed_dim / num_heads wide")
            if getattr(attention, "num_kv_heads", attention.num_heads) != attention.num_heads:
                raise InputError(f"the keys of {name} have fewer heads than its queries")
        if not isinstance(model.patch_drop, nn.Identity | None):
            raise InputError("an encoding cannot know which patches patch_drop_rate > 0 drops")
        if patch_embed.patch_size[0] != patch_embed.patch_size[1]:
            raise InputError("patches must be square")

    def connect(self) -> None:
        model = self.model
        self.table, model.pos_embed = model.pos_embed, None
        self.rope = getattr(model, "rope", None)
        if self.rope is not None:
            model.rope = None
        self.dtype = self.patch_weight().dtype
        self.table_grid = model.patch_embed.grid_size
        model.no_weight_decay, model.group_matcher = self._no_weight_decay, self._group_matcher
        self.hook(model.patch_embed.register_forward_pre_hook, self._note_grid)
        tokens = getattr(model, self.architecture.tokens)
        self.hook(tokens.register_forward_pre_hook, self._add_position)
        for layer, each in enumerate(model.blocks):
            block = innermost(each)
            attention = innermost(block.attn)
            self.hook(block.register_forward_pre_hook, self._enter_block)
            self.hook(block.register_forward_hook, self._leave_block)
            self.hook(
                attention.register_forward_pre_hook, partial(self._bias, layer), with_kwargs=True
            )
            for norm, is_query in ((attention.q_norm, True), (attention.k_norm, False)):
                self.hook(norm.register_forward_hook, partial(self._rotate, layer, is_query))
        self.hook(innermost(model.blocks[-1]).register_forward_hook, self._end_pass)

    def restore(self) -> None:
        model, table = self.model, self.table_now()
        del model.no_weight_decay, model.group_matcher  # the methods of the class show again
        grid = model.patch_embed.grid_size
        if table is not None and grid != self.table_grid:  # set_input_size was called since
            resampled = self.module.resample_abs_pos_embed(
                table.detach(),
                new_size=grid,
                old_size=self.table_grid,
                num_prefix_tokens=0 if model.no_embed_class else model.num_prefix_tokens,
            )
            table = nn.Parameter(resampled, requires_grad=table.requires_grad)
        model.pos_embed = table
        if self.rope is not None:
            model.rope, self.rope = self.rope, None
            like = self.patch_weight()
            model.rope.to(like.device if like.dtype == self.dtype else like)
            if grid != self.table_grid and hasattr(model.rope, "update_feat_shape"):
                model.rope.update_feat_shape(grid)

    def patch_weight(self) -> Tensor:
        weight: Tensor = self.model.patch_embed.proj.weight
        return weight

    # --- What the optimisers of timm ask a model ------------------------------------------------

    def _no_weight_decay(self) -> set[str]:
        names: set[str] = type(self.model).no_weight_decay(self.model)
        return names | {f"encoding.{name}" for name in self.encoding.no_weight_decay()}

    def _group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """The groups of layer-wise decay: an encoding belongs to the stem, as the table did."""
        groups: dict[str, Any] = type(self.model).group_matcher(self.model, coarse=coarse)
        return {**groups, "stem": rf"{groups['stem']}|^encoding\."}

    # --- Hooks ----------------------------------------------------------------------------------

    def _note_grid(self, module: Any, arguments: tuple[Any, ...]) -> None:
        images = arguments[0]
        if module.dynamic_img_pad and images.ndim == 4:
            grid: Grid = module.dynamic_feat_size(images.shape[-2:])
        else:
            grid = grid_of(images, module.patch_size[0])
        self.passes.now = ForwardPass(self.encoding, grid)

    def _add_position(self, module: nn.Module, arguments: tuple[Any, ...]) -> tuple[Tensor]:
        tokens, current = arguments[0], self.passes.current()
        n_prefix = self.model.num_prefix_tokens
        table = self.table_of_all_tokens(n_prefix, tokens, current.grid, current)
        tokens = tokens if table is None else tokens + table
        return (self.model.pos_drop(tokens) if self.architecture.drops_position else tokens,)

    def _enter_block(self, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        self.passes.enter(arguments[0], is_block=True)

    def _leave_block(self, module: nn.Module, arguments: object, output: Tensor) -> None:
        self.passes.leave(output)

    def _end_pass(self, *_: object) -> None:
        self.passes.now = None

    def _rotate(
        self, layer: int, is_query: bool, module: nn.Module, arguments: object, output: Tensor
    ) -> Tensor:
        # timm makes the two in separate calls, so each is rotated beside an empty batch.
        nobody = output[:0]
        q, k = (output, nobody) if is_query else (nobody, output)
        return self.rotated(q, k, layer, self.passes.current())[0 if is_query else 1]

    def _bias(
        self, layer: int, module: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        tokens, *others = arguments
        self.passes.enter(tokens)
        if others:  # by position
            names = [*inspect.signature(type(module).forward).parameters][2:]
            options = {**options, **dict(zip(names, others, strict=False))}
        given = options.get("attn_mask")
        mask = self.mask_with_bias(tokens, layer, given, self.passes.current())
        if mask is not None and options.get("is_causal"):
            raise InputError("a bias encoding does not go with causal attention")
        return (tokens,), {**options, "attn_mask": mask}


class PassesUnderWay(threading.local):
    """The forward pass that this thread is in, and the pass that tokens belong to.

    Blocks that are evaluated again in the backward pass run in whatever thread the gradient is
    computed, perhaps after passes of other sizes: there the tokens that enter decide. Copies and
    pickles have no pass under way.
    """

    now: ForwardPass | None = None

    def __init__(self, by_tokens: WeakTensorKeyDictionary) -> None:
        self._by_tokens = by_tokens  # one for all threads: each calls this with the same

    def __deepcopy__(self, memo: Any) -> PassesUnderWay:
        return _no_passes()

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        return _no_passes, ()

    def current(self) -> ForwardPass:
        if self.now is not None:
            return self.now
        if _in_backward():
            raise InputError(
                "a reentrant checkpoint does not say which images its tokens are of: "
                "use checkpointing with use_reentrant=False"
            )
        raise InputError("attention was called before any image was embedded")

    def enter(self, tokens: Tensor, *, is_block: bool = False) -> None:
        """Before a block or its attention: find the pass of the tokens, or note it."""
        if torch.compiler.is_compiling():  # one graph is one pass
            return
        known = self._by_tokens.get(tokens)
        if known is not None:
            self.now = known
        elif is_block and _in_backward():
            self.now = None
        elif self.now is not None and torch.is_grad_enabled():
            self._by_tokens[tokens] = self.now

    def leave(self, output: Tensor) -> None:
        """After a block: another one may follow before the next checkpoint."""
        if not torch.compiler.is_compiling() and self.now is not None and _in_backward():
            self._by_tokens[output] = self.now


def _no_passes() -> PassesUnderWay:
    return PassesUnderWay(WeakTensorKeyDictionary())


def _in_backward() -> bool:
    """Whether autograd is at work in this thread."""
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1
