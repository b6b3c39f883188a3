"""The parts of a vision transformer, and how its tokens receive a position encoding.

Position may enter a transformer in three places, and an encoding may use any of them: a table
added to the tokens, a rotation of queries and keys, a bias on the attention logits. Prefix tokens
(class and register tokens, head tokens of DHVT) have no place in the image: they are neither
rotated nor biased, and get what the method `prefix` of the encoding says or nothing. They always
come before the patches.

Parameter names are timm's.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.encodings import AbstractEncoding
from training.encodings.grid import Grid
from wefpe_core import InputError, InputTypeError

NORM_EPS = 1e-6  # of every LayerNorm in timm's, DeiT's and Google's vision transformers


def grid_of(images: Tensor, patch_size: int) -> Grid:
    """The grid of patches of images (batch, channels, height, width), which must fit exactly."""
    if images.ndim != 4:
        raise InputError(
            f"images must be (batch, channels, height, width), got {tuple(images.shape)}"
        )
    height, width = images.shape[-2:]
    if isinstance(height, Tensor):  # in torch.jit.trace, which is for one size, as its table is
        height, width = int(height), int(width)
    if height % patch_size or width % patch_size or not height or not width:
        raise InputError(
            f"height and width must be positive multiples of the patch size {patch_size}, "
            f"got {height} x {width}"
        )
    return height // patch_size, width // patch_size


def check_images(images: Tensor, channels: int) -> None:
    """Refuse images of integers, and images with other channels than the model was made for."""
    if not images.is_floating_point():
        raise InputTypeError(
            f"images must be floating-point and normalised, got {images.dtype}; "
            "for bytes: (images / 255 - mean) / std"
        )
    if images.shape[1] != channels:
        hint = "; for grey images: images.expand(-1, 3, -1, -1)" if channels == 3 else ""
        raise InputError(
            f"the model takes images of {channels} channels, got {images.shape[1]}"
            + (hint if images.shape[1] == 1 else "")
        )


def checked_encoding(
    encoding: AbstractEncoding, dim: int, depth: int, num_heads: int
) -> AbstractEncoding:
    """`encoding`, after checking that it is one and was built for this model."""
    if not isinstance(encoding, AbstractEncoding):
        raise InputTypeError(
            f"the encoding must be made by training.encodings.build_encoding or derive from its "
            f"AbstractEncoding, got {type(encoding).__name__}"
        )
    for name, mine in (("dim", dim), ("depth", depth), ("num_heads", num_heads)):
        theirs = getattr(encoding.size, name)
        if theirs != mine:
            raise InputError(f"the encoding was built for {name}={theirs}, the model has {mine}")
    return encoding


def add_position(
    patches: Tensor, prefix: Tensor | None, encoding: AbstractEncoding, grid: Grid
) -> Tensor:
    """Tokens of the first layer: prefix tokens (n, dim), then patches (batch, H*W, dim).

    This is the only place where a model of this package adds a position table.
    """
    encoding.check_ready()
    encoding.draw_places(grid)
    table = encoding.additive(grid)
    if table is not None:
        patches = patches + table
    if prefix is None:
        return patches
    offset = encoding.prefix(len(prefix))
    if offset is not None:
        prefix = prefix + offset
    # Not len(patches), which would fix the size of the batch in an exported graph.
    return torch.cat([prefix.expand(patches.shape[0], -1, -1), patches], dim=1)


def rotate_patches(
    q: Tensor, k: Tensor, encoding: AbstractEncoding, grid: Grid, layer: int
) -> tuple[Tensor, Tensor]:
    """Queries and keys (batch, heads, tokens, head_dim) with those of the patches rotated."""
    n_prefix = q.shape[-2] - grid[0] * grid[1]
    q_patches, k_patches = q[..., n_prefix:, :], k[..., n_prefix:, :]
    q_rotated, k_rotated = encoding.rotate(q_patches, k_patches, grid, layer)
    if q_rotated is q_patches and k_rotated is k_patches:  # not a rotary encoding: copy nothing
        return q, k
    if not n_prefix:
        return q_rotated.to(q.dtype), k_rotated.to(k.dtype)
    return (
        torch.cat([q[..., :n_prefix, :], q_rotated.to(q.dtype)], dim=-2),
        torch.cat([k[..., :n_prefix, :], k_rotated.to(k.dtype)], dim=-2),
    )


def bias_of_tokens(q: Tensor, encoding: AbstractEncoding, grid: Grid, layer: int) -> Tensor | None:
    """Attention bias for all tokens, (heads, tokens, tokens) in the dtype of `q`, or None.

    Zero in the rows and columns of prefix tokens.
    """
    bias = encoding.bias(grid, layer)
    if bias is None:
        return None
    n_prefix = q.shape[-2] - grid[0] * grid[1]
    return F.pad(bias, (n_prefix, 0, n_prefix, 0)).to(q.dtype)


def attention_weights(q: Tensor, k: Tensor, bias: Tensor | None) -> Tensor:
    """softmax(q k^T / sqrt(head_dim) + bias), computed in float32 at least."""
    with torch.autocast(q.device.type, enabled=False):
        dtype = torch.promote_types(q.dtype, torch.float32)
        logits = q.to(dtype) @ k.to(dtype).transpose(-2, -1) * q.shape[-1] ** -0.5
        return (logits if bias is None else logits + bias.to(dtype)).softmax(dim=-1)


class DropPath(nn.Module):
    """Leave out the branch for a random share of the samples (stochastic depth)."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, branch: Tensor) -> Tensor:
        if not self.training or self.probability == 0.0:
            return branch
        keep = 1.0 - self.probability
        mask = branch.new_empty((len(branch),) + (1,) * (branch.ndim - 1)).bernoulli_(keep)
        return branch * (mask / keep)

    def extra_repr(self) -> str:
        return f"{self.probability:g}"


class LayerScale(nn.Module):
    """A learned factor for each channel of a branch, as in DeiT-III and DINOv2."""

    def __init__(self, dim: int, initial: float) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.full((dim,), initial))

    def forward(self, branch: Tensor) -> Tensor:
        return branch * self.gamma


class PatchEmbed(nn.Module):
    """Project non-overlapping patches to tokens (batch, H*W, dim), row by row."""

    def __init__(
        self, patch_size: int, in_channels: int, dim: int, *, patch_norm: bool = False
    ) -> None:
        super().__init__()
        self.patch_size, self.in_channels = patch_size, in_channels
        self.proj = nn.Conv2d(in_channels, dim, kernel_size=patch_size, stride=patch_size)
        self.norm: nn.Module = nn.LayerNorm(dim, eps=NORM_EPS) if patch_norm else nn.Identity()

    def forward(self, images: Tensor) -> tuple[Tensor, Grid]:
        grid = grid_of(images, self.patch_size)
        check_images(images, self.in_channels)
        return self.norm(self.proj(images).flatten(2).transpose(1, 2)), grid

    def joined(self, patches: Tensor, images: Tensor) -> Tensor:
        """Fields of the size of `images` from the pixels of their patches.

        `patches` are (batch, H*W, channels times pixels); the pixels of a channel are together.
        """
        height, width = grid_of(images, self.patch_size)
        shape = (height, width, -1, self.patch_size, self.patch_size)
        apart = patches.unflatten(-1, shape[2:]).unflatten(1, shape[:2])
        return apart.permute(0, 3, 1, 4, 2, 5).flatten(4, 5).flatten(2, 3)


def attend(
    qkv: Tensor,
    num_heads: int,
    encoding: AbstractEncoding,
    grid: Grid,
    layer: int,
    *,
    dropout: float = 0.0,
    maps: list[Tensor] | None = None,
    n_outputs: int | None = None,
) -> Tensor:
    """Fused attention with rotation and bias of a layer: (batch, tokens, 3 dim) to (.., dim).

    The attention weights are appended to `maps` if a list is given. With `n_outputs` only the
    first tokens attend to the others, and only they are returned.
    """
    # Chunks of channels, because the gradients of the three are then joined by one copy, not two.
    q, k, v = (each.unflatten(-1, (num_heads, -1)).transpose(1, 2) for each in qkv.chunk(3, -1))
    q, k = rotate_patches(q, k, encoding, grid, layer)
    bias = bias_of_tokens(q, encoding, grid, layer)
    if n_outputs is not None:
        q, bias = q[:, :, :n_outputs], None if bias is None else bias[:, :n_outputs]
    if maps is not None:  # computed beside the fused path, whose result does not change
        maps.append(attention_weights(q, k, bias))
    mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=dropout)
    return mixed.transpose(1, 2).flatten(2)


class Attention(nn.Module):
    """Multi-head self-attention of one layer."""

    def __init__(
        self,
        dim: int,
        num_heads: int,
        layer: int,
        *,
        attention_dropout: float = 0.0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.num_heads, self.layer = num_heads, layer
        self.qkv = nn.Linear(dim, 3 * dim)
        self.attn_drop = nn.Dropout(attention_dropout)  # holds the rate for the fused attention
        self.proj = nn.Linear(dim, dim)
        self.proj_drop = nn.Dropout(dropout)

    def forward(
        self,
        tokens: Tensor,
        encoding: AbstractEncoding,
        grid: Grid,
        maps: list[Tensor] | None = None,
        n_outputs: int | None = None,
    ) -> Tensor:
        mixed = attend(
            self.qkv(tokens),
            self.num_heads,
            encoding,
            grid,
            self.layer,
            dropout=self.attn_drop.p if self.training else 0.0,
            maps=maps,
            n_outputs=n_outputs,
        )
        return self.proj_drop(self.proj(mixed))


class Mlp(nn.Module):
    """Two linear layers with a GELU between them."""

    def __init__(self, dim: int, hidden: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.fc2 = nn.Linear(hidden, dim)
        self.drop = nn.Dropout(dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.drop(self.fc2(self.drop(F.gelu(self.fc1(tokens)))))


class Block(nn.Module):
    """Attention and MLP, each after a LayerNorm and beside a residual path.

    With `n_outputs` only the first tokens are computed, by attention to all of them.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        layer: int,
        *,
        mlp_ratio: float = 4.0,
        attention_dropout: float = 0.0,
        dropout: float = 0.0,
        drop_path: float = 0.0,
        layer_scale: float = 0.0,
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=NORM_EPS)
        self.attn = Attention(
            dim, num_heads, layer, attention_dropout=attention_dropout, dropout=dropout
        )
        self.norm2 = nn.LayerNorm(dim, eps=NORM_EPS)
        self.mlp = Mlp(dim, int(dim * mlp_ratio), dropout=dropout)
        self.drop_path = DropPath(drop_path)
        self.ls1, self.ls2 = (
            LayerScale(dim, layer_scale) if layer_scale else nn.Identity() for _ in range(2)
        )

    def forward(
        self,
        tokens: Tensor,
        encoding: AbstractEncoding,
        grid: Grid,
        maps: list[Tensor] | None = None,
        n_outputs: int | None = None,
    ) -> Tensor:
        mixed = self.attn(self.norm1(tokens), encoding, grid, maps, n_outputs)
        if n_outputs is not None:
            tokens = tokens[:, :n_outputs]
        tokens = tokens + self.drop_path(self.ls1(mixed))
        return tokens + self.drop_path(self.ls2(self.mlp(self.norm2(tokens))))


def initialise(module: nn.Module, *, scheme: str = "trunc_normal") -> None:
    """Draw the weights of one module by a named scheme; an argument of `nn.Module.apply`.

    trunc_normal: linear weights have standard deviation 0.02, as in timm, DeiT and the paper's
    scripts; convolutions stay as torch made them. xavier: linear weights and convolutions are
    Xavier uniform, without which narrow models (64 channels) do not learn. Biases are zero in
    both.
    """
    if isinstance(module, nn.Linear):
        if scheme == "xavier":
            nn.init.xavier_uniform_(module.weight)
        else:
            nn.init.trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Conv2d) and scheme == "xavier":
        nn.init.xavier_uniform_(module.weight.view(len(module.weight), -1))
        if module.bias is not None:
            nn.init.zeros_(module.bias)
