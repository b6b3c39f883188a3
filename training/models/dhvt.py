"""DHVT, the hybrid of convolutions and attention the paper compares with.

Lu et al., "Bridging the Gap Between Vision Transformers and Convolutional Neural Networks on
Small Datasets", NeurIPS 2022. As published it has no position encoding: ``encoding="none"``.
Parameter names are those of the published model. There are two deviations: BatchNorm instead of
SyncBatchNorm, which needs CUDA (`torch.nn.SyncBatchNorm.convert_sync_batchnorm` restores it), and
rectangular grids.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.config.model_sizes import DHVT_SHAPE
from training.encodings import AbstractEncoding
from training.encodings.grid import Grid
from training.models.layers import (
    NORM_EPS,
    DropPath,
    add_position,
    attend,
    check_images,
    checked_encoding,
    grid_of,
    initialise,
)
from training.models.vit import check_shape, encoding_by_name
from training.parsing import ImageSize
from wefpe_core import InputError

# For each patch size, the convolutions of stride 2: each has dim / divisor output channels.
_STEMS = {2: (1,), 4: (2, 1), 16: (8, 4, 2, 1)}


class ChannelAffine(nn.Module):
    """A learned scale and shift of each channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(1, channels, 1, 1))
        self.beta = nn.Parameter(torch.zeros(1, channels, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        return images * self.alpha + self.beta


class OverlappingPatchEmbed(nn.Module):
    """Patches made by overlapping convolutions of stride 2 (SOPE)."""

    def __init__(self, patch_size: int, in_channels: int, dim: int) -> None:
        super().__init__()
        if patch_size not in _STEMS:
            raise InputError(f"the patch size of DHVT must be 2, 4 or 16, got {patch_size}")
        if dim % _STEMS[patch_size][0]:
            raise InputError(f"dim={dim} is not divisible by {_STEMS[patch_size][0]}")
        self.patch_size, self.in_channels = patch_size, in_channels
        self.pre_affine = ChannelAffine(in_channels)
        stages: list[nn.Module] = []
        channels = in_channels
        for divisor in _STEMS[patch_size]:
            convolution = nn.Conv2d(channels, dim // divisor, 3, stride=2, padding=1, bias=False)
            channels = dim // divisor
            stages += [nn.Sequential(convolution, nn.BatchNorm2d(channels)), nn.GELU()]
        if patch_size != 2:  # only the stem of a single convolution ends with its GELU
            stages.pop()
        self.proj = nn.Sequential(*stages)
        self.post_affine = ChannelAffine(dim)

    def forward(self, images: Tensor) -> tuple[Tensor, Grid]:
        grid = grid_of(images, self.patch_size)
        check_images(images, self.in_channels)
        features = self.post_affine(self.proj(self.pre_affine(images)))
        return features.flatten(2).transpose(1, 2), grid


class HeadInteractedAttention(nn.Module):
    """Self-attention among the tokens and one additional token for each head (HI-MHSA).

    Head tokens come before the class token, so they count as prefix tokens; their order has no
    effect on attention. The mean of their outputs is added to the class token.
    """

    def __init__(
        self, dim: int, num_heads: int, layer: int, *, attention_dropout: float, dropout: float
    ) -> None:
        super().__init__()
        self.num_heads, self.layer = num_heads, layer
        self.qkv = nn.Linear(dim, 3 * dim)
        self.attn_drop = nn.Dropout(attention_dropout)  # holds the rate for the fused attention
        self.proj = nn.Linear(dim, dim)
        self.proj_drop = nn.Dropout(dropout)
        self.ht_proj = nn.Linear(dim // num_heads, dim)
        self.ht_norm = nn.LayerNorm(dim // num_heads)
        self.pos_embed = nn.Parameter(torch.zeros(1, num_heads, dim))
        nn.init.trunc_normal_(self.pos_embed, std=0.02)

    def _head_tokens(self, tokens: Tensor) -> Tensor:
        batch, _, dim = tokens.shape
        slices = tokens.mean(dim=1).reshape(batch, self.num_heads, dim // self.num_heads)
        mixed = self.ht_proj(slices).reshape(batch, self.num_heads, self.num_heads, -1)
        return F.gelu(self.ht_norm(mixed)).flatten(2) + self.pos_embed

    def forward(
        self,
        tokens: Tensor,
        encoding: AbstractEncoding,
        grid: Grid,
        maps: list[Tensor] | None = None,
    ) -> Tensor:
        tokens = torch.cat([self._head_tokens(tokens), tokens], dim=1)
        mixed = attend(
            self.qkv(tokens),
            self.num_heads,
            encoding,
            grid,
            self.layer,
            dropout=self.attn_drop.p if self.training else 0.0,
            maps=maps,
        )
        tokens = self.proj(mixed)
        heads, class_token, patches = tokens.tensor_split(
            [self.num_heads, self.num_heads + 1], dim=1
        )
        class_token = class_token + heads.mean(dim=1, keepdim=True)
        return self.proj_drop(torch.cat([class_token, patches], dim=1))


class ConvolutionalFeedForward(nn.Module):
    """Feed-forward by convolutions, whose mean output scales the class token (DAFF)."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(dim, hidden, 1)
        self.bn1 = nn.BatchNorm2d(hidden)
        self.conv2 = nn.Conv2d(hidden, hidden, 3, padding=1, groups=hidden)
        self.bn2 = nn.BatchNorm2d(hidden)
        self.conv3 = nn.Conv2d(hidden, dim, 1)
        self.bn3 = nn.BatchNorm2d(dim)
        self.compress = nn.Linear(dim, dim // 4)
        self.excitation = nn.Linear(dim // 4, dim)

    def forward(self, tokens: Tensor, grid: Grid) -> Tensor:
        class_token, patches = tokens[:, :1], tokens[:, 1:]
        image = patches.transpose(1, 2).unflatten(2, grid)
        image = F.gelu(self.bn1(self.conv1(image)))
        image = image + F.gelu(self.bn2(self.conv2(image)))
        patches = self.bn3(self.conv3(image)).flatten(2).transpose(1, 2)
        pooled = patches.mean(dim=1, keepdim=True)
        scale = self.excitation(F.gelu(self.compress(pooled)))
        return torch.cat([class_token * scale, patches], dim=1)


class HybridBlock(nn.Module):
    """Head-interacted attention and convolutional feed-forward, each after a LayerNorm."""

    def __init__(
        self,
        dim: int,
        num_heads: int,
        layer: int,
        *,
        mlp_ratio: float,
        dropout: float,
        attention_dropout: float,
        drop_path: float,
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=NORM_EPS)
        self.attn = HeadInteractedAttention(
            dim, num_heads, layer, dropout=dropout, attention_dropout=attention_dropout
        )
        self.norm2 = nn.LayerNorm(dim, eps=NORM_EPS)
        self.mlp = ConvolutionalFeedForward(dim, int(dim * mlp_ratio))
        self.drop_path = DropPath(drop_path)

    def forward(
        self,
        tokens: Tensor,
        encoding: AbstractEncoding,
        grid: Grid,
        maps: list[Tensor] | None = None,
    ) -> Tensor:
        tokens = tokens + self.drop_path(self.attn(self.norm1(tokens), encoding, grid, maps))
        return tokens + self.drop_path(self.mlp(self.norm2(tokens), grid))


class HybridVisionTransformer(nn.Module):
    """DHVT with patches of 2, 4 or 16 pixels, for rectangular images, with an encoding object.

    The parameters are those of `training.models.vit.VisionTransformer`. There is always one class
    token, which the head sees. The attention maps have the head tokens first, then the class
    token, then the patches.
    """

    def __init__(
        self,
        encoding: AbstractEncoding,
        *,
        dim: int,
        depth: int,
        num_heads: int,
        patch_size: int,
        num_classes: int = 100,
        in_channels: int = 3,
        mlp_ratio: float = 4.0,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        drop_path: float = 0.1,
    ) -> None:
        super().__init__()
        check_shape(dim=dim, depth=depth, num_heads=num_heads, patch_size=patch_size)
        if num_classes < 0:
            raise InputError("num_classes must not be negative")
        self.dim, self.depth, self.num_heads = dim, depth, num_heads
        self.patch_embed = OverlappingPatchEmbed(patch_size, in_channels, dim)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_drop = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(
            HybridBlock(
                dim,
                num_heads,
                layer,
                mlp_ratio=mlp_ratio,
                dropout=dropout,
                attention_dropout=attention_dropout,
                drop_path=drop_path * layer / max(depth - 1, 1),
            )
            for layer in range(depth)
        )
        self.norm = nn.LayerNorm(dim, eps=NORM_EPS)
        self.head: nn.Module = nn.Linear(dim, num_classes) if num_classes else nn.Identity()
        self.apply(initialise)
        nn.init.trunc_normal_(self.cls_token, std=0.02)
        self.encoding = checked_encoding(encoding, dim, depth, num_heads)

    def forward(self, images: Tensor, *, return_attention: bool = False) -> Any:
        """Logits (batch, num_classes), or with `return_attention` the pair (logits, maps)."""
        maps: list[Tensor] | None = [] if return_attention else None
        patches, grid = self.patch_embed(images)
        with self.encoding.shared_pass():
            tokens = self.pos_drop(add_position(patches, self.cls_token[0], self.encoding, grid))
            for block in self.blocks:
                tokens = block(tokens, self.encoding, grid, maps)
        logits = self.head(self.norm(tokens[:, 0]))
        return logits if maps is None else (logits, tuple(maps))


def build_dhvt(
    *,
    encoding: AbstractEncoding | str,
    encoding_options: Mapping[str, Any] | None = None,
    patch_size: int = 4,
    num_heads: int = 4,
    image_size: ImageSize | None = None,
    **options: Any,
) -> HybridVisionTransformer:
    """DHVT-Ti with 192 channels and 12 layers; it has 4 heads for CIFAR, 3 for ImageNet.

    `encoding`, `encoding_options` and `image_size` are those of `training.models.vit.build_vit`.
    By default the encoding is built for images of 32 pixels, with patches of 16 for 224 pixels.
    `options` go to `HybridVisionTransformer`.

    Examples
    --------
    >>> import torch
    >>> model = build_dhvt(encoding="weierstrass", num_classes=10).eval()
    >>> model(torch.zeros(1, 3, 32, 32)).shape
    torch.Size([1, 10])
    """
    numbers: dict[str, Any] = DHVT_SHAPE._asdict()
    numbers |= {"num_heads": num_heads, "patch_size": patch_size, **options}
    if isinstance(encoding, str):
        default_image = 224 if patch_size == 16 else 32
        encoding = encoding_by_name(
            encoding,
            image_size=default_image if image_size is None else image_size,
            n_prefix=1,
            options=encoding_options,
            **{name: numbers[name] for name in ("dim", "depth", "num_heads", "patch_size")},
        )
    elif encoding_options is not None or image_size is not None:
        raise InputError("encoding_options and image_size go with the name of an encoding")
    return HybridVisionTransformer(encoding, **numbers)
