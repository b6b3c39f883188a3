"""A plain vision transformer whose position encoding is an object of its own.

Parameter names are timm's, so that published weights load (`training.models.pretrained`). The
parameters of the encoding are beside them under ``encoding.``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from training.config.model_sizes import VIT_SIZES as VIT_SIZES
from training.config.schema import Pooling, WeightInit
from training.encodings import AbstractEncoding, build_encoding
from training.encodings.grid import Grid
from training.encodings.registry import token_options
from training.models.attachment import ForwardPass
from training.models.layers import (
    NORM_EPS,
    Block,
    PatchEmbed,
    add_position,
    checked_encoding,
    initialise,
)
from training.parsing import ImageSize, grid_of_size
from wefpe_core import InputError


class VisionTransformer(nn.Module):
    """Vision transformer for rectangular images of any size the patch size divides.

    Parameters
    ----------
    encoding : AbstractEncoding
        Made by `training.encodings.build_encoding` for this width, depth and number of heads.
    dim, depth, num_heads, patch_size : int
        Shape of the model; `VIT_SIZES` has the published ones.
    num_classes : int
        Width of the head; with 0 there is no head, and the model returns the pooled features.
    class_token, register_tokens : bool, int
        Prefix tokens, class token first.
    pooling : {"token", "mean", "patches"}
        What the head sees: the class token, or the mean of the patch tokens. As in timm the last
        LayerNorm is called ``norm`` with the first and ``fc_norm`` with the second. Both act after
        pooling, which for a token makes no difference. With "patches" the head sees each patch by
        itself and predicts its pixels: `num_classes` channels at the size of the images.
    patch_norm : bool
        LayerNorm after the patch projection, as in the paper's scripts.
    dropout, attention_dropout, drop_path : float
        `drop_path` grows linearly from 0 to the value given over the layers.
    weight_init : {"trunc_normal", "xavier"}
        The scheme of `training.models.layers.initialise`. The encoding keeps its own weights.
    layer_scale : float
        What the factors of the branches (`LayerScale`) start with; 0 for a model without them.
    recompute : bool
        Keep only what enters each block in a training pass, and compute the rest again for the
        gradient (activation checkpointing): less memory for a third more time, the same numbers.
    """

    def __init__(
        self,
        encoding: AbstractEncoding,
        *,
        dim: int,
        depth: int,
        num_heads: int,
        patch_size: int,
        num_classes: int = 1000,
        in_channels: int = 3,
        class_token: bool = True,
        register_tokens: int = 0,
        pooling: Pooling = "token",
        mlp_ratio: float = 4.0,
        patch_norm: bool = False,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        drop_path: float = 0.0,
        weight_init: WeightInit = "trunc_normal",
        layer_scale: float = 0.0,
        recompute: bool = False,
    ) -> None:
        super().__init__()
        check_shape(dim=dim, depth=depth, num_heads=num_heads, patch_size=patch_size)
        if num_classes < 0 or register_tokens < 0:
            raise InputError("num_classes and register_tokens must not be negative")
        if pooling not in get_args(Pooling):
            raise InputError(f"pooling must be 'token', 'mean' or 'patches', got {pooling!r}")
        if pooling == "token" and not class_token:
            raise InputError("pooling='token' needs class_token=True")
        if weight_init not in get_args(WeightInit):
            raise InputError(f"weight_init must be 'trunc_normal' or 'xavier', got {weight_init!r}")
        self.dim, self.depth, self.num_heads = dim, depth, num_heads
        self.pooling = pooling
        self.recompute = recompute
        self.patch_embed = PatchEmbed(patch_size, in_channels, dim, patch_norm=patch_norm)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim)) if class_token else None
        self.reg_token = (
            nn.Parameter(torch.zeros(1, register_tokens, dim)) if register_tokens else None
        )
        self.pos_drop = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(
            Block(
                dim,
                num_heads,
                layer,
                mlp_ratio=mlp_ratio,
                dropout=dropout,
                attention_dropout=attention_dropout,
                drop_path=drop_path * layer / max(depth - 1, 1),
                layer_scale=layer_scale,
            )
            for layer in range(depth)
        )
        last_norm = nn.LayerNorm(dim, eps=NORM_EPS)
        self.norm: nn.Module = last_norm if pooling != "mean" else nn.Identity()
        self.fc_norm: nn.Module = last_norm if pooling == "mean" else nn.Identity()
        self.num_outputs = num_classes * (patch_size**2 if pooling == "patches" else 1)
        self.head: nn.Module = nn.Linear(dim, self.num_outputs) if num_classes else nn.Identity()
        self.apply(lambda module: initialise(module, scheme=weight_init))
        for token in (self.cls_token, self.reg_token):
            if token is not None:
                nn.init.trunc_normal_(token, std=0.02)
        self.encoding = checked_encoding(encoding, dim, depth, num_heads)

    @property
    def n_prefix(self) -> int:
        """Number of tokens before the patches."""
        return sum(t.shape[1] for t in (self.cls_token, self.reg_token) if t is not None)

    def _prefix_tokens(self) -> Tensor | None:
        tokens = [t[0] for t in (self.cls_token, self.reg_token) if t is not None]
        return torch.cat(tokens) if tokens else None

    def embed(self, images: Tensor) -> tuple[Tensor, Grid]:
        """Tokens of the first layer with their position, and the grid of the patches."""
        patches, grid = self.patch_embed(images)
        return self._positioned(patches, grid), grid

    def _positioned(self, patches: Tensor, grid: Grid) -> Tensor:
        tokens: Tensor = self.pos_drop(
            add_position(patches, self._prefix_tokens(), self.encoding, grid)
        )
        return tokens

    def forward_tokens(
        self, images: Tensor, maps: list[Tensor] | None = None, n_outputs: int | None = None
    ) -> Tensor:
        """Tokens after the last block, before the last LayerNorm: (batch, prefix + H*W, dim).

        With `n_outputs` only the first tokens are returned, and the last block computes no
        others.
        """
        if self.recompute and self.training and torch.is_grad_enabled() and maps is None:
            return self._recomputed(images, n_outputs)
        with self.encoding.shared_pass():
            tokens, grid = self.embed(images)
            for block in self.blocks[:-1]:
                tokens = block(tokens, self.encoding, grid, maps)
            return self.blocks[-1](tokens, self.encoding, grid, maps, n_outputs)

    def _recomputed(self, images: Tensor, n_outputs: int | None) -> Tensor:
        """The same tokens, with what is inside the blocks computed again in the backward pass."""
        patches, grid = self.patch_embed(images)
        this_pass = ForwardPass(self.encoding, grid)
        with this_pass.shared(self.encoding):
            tokens = self._positioned(patches, grid)

        def run(block: nn.Module, tokens: Tensor, n_outputs: int | None) -> Tensor:
            with this_pass.shared(self.encoding):
                found: Tensor = block(tokens, self.encoding, grid, None, n_outputs)
                return found

        for block in self.blocks[:-1]:
            tokens = checkpoint(run, block, tokens, None, use_reentrant=False)
        last: Tensor = checkpoint(run, self.blocks[-1], tokens, n_outputs, use_reentrant=False)
        return last

    def forward_features(self, images: Tensor) -> Tensor:
        """All tokens, as from timm's method of this name: normalised if a token is pooled."""
        return self.norm(self.forward_tokens(images))

    def forward(self, images: Tensor, *, return_attention: bool = False) -> Any:
        """Logits (batch, num_classes), or with `return_attention` the pair (logits, maps).

        With ``pooling="patches"`` the logits are fields (batch, num_classes, height, width).
        `maps` has the attention (batch, heads, tokens, tokens) of each layer before dropout, with
        prefix tokens first and rows that sum to 1. Asking for maps does not change the logits: in
        eval mode not by a bit, in training by rounding, because the shortcut below is not taken.
        """
        maps: list[Tensor] | None = [] if return_attention else None
        # In training only the class token of the last block is used, by the head. Leaving out
        # the patches there saves a sixteenth of the whole step for a depth of 12.
        is_token_enough = self.training and self.pooling == "token" and maps is None
        tokens = self.forward_tokens(images, maps, n_outputs=1 if is_token_enough else None)
        if self.pooling == "token":
            pooled = self.norm(tokens[:, 0])
        elif self.pooling == "patches":
            pooled = self.norm(tokens[:, self.n_prefix :])
        else:
            pooled = self.fc_norm(tokens[:, self.n_prefix :].mean(dim=1))
        logits = self.head(pooled)
        if self.pooling == "patches" and self.num_outputs:
            logits = self.patch_embed.joined(logits, images)
        return logits if maps is None else (logits, tuple(maps))


def check_shape(*, dim: int, depth: int, num_heads: int, patch_size: int) -> None:
    """Raise `InputError` if no transformer can have these numbers."""
    for name, value in (
        ("dim", dim),
        ("depth", depth),
        ("num_heads", num_heads),
        ("patch_size", patch_size),
    ):
        if value < 1:
            raise InputError(f"{name} must be positive, got {value}")
    if dim % num_heads:
        raise InputError(f"dim={dim} is not divisible by num_heads={num_heads}")


def build_vit(
    size: str,
    *,
    encoding: AbstractEncoding | str,
    encoding_options: Mapping[str, Any] | None = None,
    image_size: ImageSize | None = None,
    **options: Any,
) -> VisionTransformer:
    """Vision transformer of a published size: micro, tiny, small, base or large.

    Parameters
    ----------
    size : str
        A name of `VIT_SIZES`.
    encoding : AbstractEncoding or str
        An encoding built for this size, or the name of one, which is then built with
        `encoding_options` for the grid of `image_size`.
    image_size : int or (int, int), optional
        (height, width) in pixels the encoding is built for; the model itself takes any.
    **options
        Passed to `VisionTransformer`; they win over the numbers of the size.

    Examples
    --------
    >>> import torch
    >>> model = build_vit("micro", encoding="weierstrass", num_classes=10).eval()
    >>> model(torch.zeros(1, 3, 32, 48)).shape  # any rectangle of patches
    torch.Size([1, 10])
    """
    if size not in VIT_SIZES:
        raise InputError(f"unknown size {size!r}; there are {', '.join(VIT_SIZES)}")
    numbers: dict[str, Any] = dict(VIT_SIZES[size])
    default_image = numbers.pop("image_size")
    numbers |= options
    if isinstance(encoding, str):
        encoding = encoding_by_name(
            encoding,
            image_size=default_image if image_size is None else image_size,
            n_prefix=numbers.get("class_token", True) + numbers.get("register_tokens", 0),
            options=encoding_options,
            **{name: numbers[name] for name in ("dim", "depth", "num_heads", "patch_size")},
        )
    elif encoding_options is not None or image_size is not None:
        raise InputError("encoding_options and image_size go with the name of an encoding")
    return VisionTransformer(encoding, **numbers)


def encoding_by_name(
    name: str,
    *,
    dim: int,
    depth: int,
    num_heads: int,
    patch_size: int,
    image_size: ImageSize,
    n_prefix: int,
    options: Mapping[str, Any] | None = None,
) -> AbstractEncoding:
    """The encoding of that name for a model with these numbers.

    Unless the options say otherwise, an encoding with learned rows gets one for each prefix token.
    """
    check_shape(dim=dim, depth=depth, num_heads=num_heads, patch_size=patch_size)
    rows = token_options(name, n_prefix)
    grid = grid_of_size(image_size, patch_size)
    return build_encoding(
        name, dim=dim, depth=depth, num_heads=num_heads, grid=grid, **(rows | dict(options or {}))
    )
