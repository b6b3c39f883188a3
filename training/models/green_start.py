"""A vision transformer that starts as the solver of Poisson's equation on a periodic box.

The solution of -laplacian(u) = f without mean on a box of side 2 pi is u(x) = 2 pi times the mean
over y of G(x - y) f(y), G the Green function of the torus. With silent queries and keys and the
bias log(1 + G - min G), the attention of a head is G but for a factor and a constant, and a right
side without mean does not see the constant. What is left is to bring the pixels into the head and
out of it.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from training.models.vit import VisionTransformer
from wefpe_core import InputError

# Two channels hold this number and its negative in every token. Beside it LayerNorm sees fields of
# variance 1 as small, and divides all tokens by nearly the same number: to 1 in 10,000.
_CARRIER = 100.0


@torch.no_grad()
def start_as_green(model: VisionTransformer) -> None:
    """Give a model weights with which it solves Poisson's equation for fields of variance 1.

    The patch projection copies the pixels of a patch and their negatives into channels. The first
    head of the first layer takes the mean of each patch through the kernel, and the model's head
    reads what that one head wrote. All other branches add nothing at the start. So the solution is
    known once per patch, and patches of one pixel serve best. All weights are learned from there.
    """
    encoding: Any = model.encoding
    pixels, width = model.patch_embed.patch_size**2, model.dim
    if getattr(getattr(encoding, "options", None), "form", "") != "log":
        raise InputError("a model starts as G with the encoding weierstrass_green, form='log' only")
    if model.pooling != "patches" or not isinstance(model.head, nn.Linear):
        raise InputError("a model starts as G with pooling='patches' and a linear head only")
    if width < 2 * pixels + 4:
        raise InputError(
            f"a model that starts as G needs {2 * pixels + 4} channels for patches of {pixels} "
            f"pixels, not {width}"
        )
    # Channels in pairs of opposite sign, which LayerNorm finds to have the mean 0.
    carrier, solution = 2 * pixels, 2 * pixels + 2
    shrinks = math.sqrt(width / 2.0) / _CARRIER  # LayerNorm, where the carrier is all there is

    embed = model.patch_embed.proj
    embed.weight.zero_()
    flat = embed.weight[:, 0].view(width, pixels)  # of several channels the first
    flat[:pixels], flat[pixels : 2 * pixels] = torch.eye(pixels), -torch.eye(pixels)
    assert embed.bias is not None
    embed.bias.zero_()
    embed.bias[carrier], embed.bias[carrier + 1] = _CARRIER, -_CARRIER

    blocks: Any = model.blocks
    for block in blocks:
        for layer in (block.attn.proj, block.mlp.fc2):
            layer.weight.zero_()
            layer.bias.zero_()
        # Queries stay as they were drawn, or no gradient would ever wake the keys.
        block.attn.qkv.weight[width : 2 * width].zero_()
        block.attn.qkv.bias.zero_()
    first = blocks[0].attn
    first.qkv.weight[2 * width].zero_()
    first.qkv.weight[2 * width, :pixels] = 1.0 / pixels
    # The rows of exp(bias) are 1 + G - min G, and the softmax divides by their common sum.
    row = encoding.bias(encoding.size.grid, 0)[0, 0]
    factor = 2.0 * math.pi * float(row.double().exp().mean())
    first.proj.weight[solution, 0] = factor / shrinks
    first.proj.weight[solution + 1, 0] = -factor / shrinks
    model.head.weight.zero_()
    model.head.bias.zero_()
    model.head.weight[:, solution] = 1.0 / shrinks
