"""DHVT: its published numbers and names, and the position slot it did not have."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the torch extra is not installed")

from training.models import HybridVisionTransformer, build_dhvt
from training.models.dhvt import HybridBlock
from verification.tests.model_doubles import (
    CEILINGS,
    GRID,
    MICRO,
    Double,
    error_in_eps,
    images,
)
from wefpe_core import InputError


def micro(encoding, **options) -> HybridVisionTransformer:
    torch.manual_seed(0)
    return HybridVisionTransformer(encoding, **{**MICRO, **options}).eval()


@pytest.mark.parametrize(
    ("patch_size", "heads", "classes", "millions"),
    [(4, 4, 100, 6.009), (2, 4, 100, 5.845), (16, 4, 100, 6.059), (16, 3, 1000, 6.267)],
)
def test_the_published_variants_have_their_number_of_parameters(
    patch_size, heads, classes, millions
):
    with torch.device("meta"):
        model = build_dhvt(
            encoding="none", patch_size=patch_size, num_heads=heads, num_classes=classes
        )
    assert round(sum(p.numel() for p in model.parameters()) / 1e6, 3) == millions


def test_the_published_script_with_wef_has_its_number_of_parameters():
    options = {"fidelity": "authors", "recipe": "dhvt"}
    model = build_dhvt(
        encoding="weierstrass", encoding_options=options, patch_size=16, dim=224, num_classes=100
    )
    assert round(sum(p.numel() for p in model.parameters()) / 1e6, 3) == 8.234


def test_parameter_names_of_a_block_are_the_published_ones():
    names = {k for k in micro(Double()).state_dict() if k.startswith("blocks.0.")}
    parts = "norm1 norm2 attn.qkv attn.proj attn.ht_proj attn.ht_norm mlp.conv1 mlp.conv2 mlp.conv3"
    parts += " mlp.bn1 mlp.bn2 mlp.bn3 mlp.compress mlp.excitation"
    expected = {f"blocks.0.{part}.{kind}" for part in parts.split() for kind in ("weight", "bias")}
    buffers = ("running_mean", "running_var", "num_batches_tracked")
    expected |= {f"blocks.0.mlp.bn{i}.{name}" for i in (1, 2, 3) for name in buffers}
    assert names == expected | {"blocks.0.attn.pos_embed"}


@pytest.mark.parametrize("patch_size", [2, 4, 16])
def test_rectangular_images_and_gradients(patch_size):
    model = micro(Double("additive", "rotate", "bias"), patch_size=patch_size).train()
    logits = model(images((3, 5), patch_size=patch_size))
    assert logits.shape == (2, 5)
    logits.square().sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


def test_position_is_added_once_and_asked_for_in_every_layer():
    encoding = Double("additive", "prefix")
    model = micro(encoding)
    seen = []
    model.blocks[0].register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    model(images())
    patches, _ = model.patch_embed(images())
    assert torch.equal(seen[0][:, 1:], patches + encoding.weight[:6])
    assert torch.equal(seen[0][:, :1], (model.cls_token + encoding.weight[-1:]).expand(2, -1, -1))
    assert encoding.calls == {"additive": 1, "prefix": 1, "rotate": 2, "bias": 2}


def test_head_tokens_and_the_class_token_are_neither_rotated_nor_biased(monkeypatch):
    """With a bias that forbids patches to look at patches, their attention goes to the prefix."""
    encoding = Double()
    monkeypatch.setattr(encoding, "bias", lambda grid, layer: torch.full((2, 6, 6), -torch.inf))
    _, maps = micro(encoding)(images(), return_attention=True)
    assert [tuple(each.shape) for each in maps] == [(2, 2, 9, 9)] * 2  # 2 head tokens, 1 class
    for each in maps:
        assert not each[..., 3:, 3:].any()
        assert (each[..., :3, :] > 0.0).all()
        assert (each[..., :, :3] > 0.0).all()


def test_asking_for_attention_maps_changes_no_bit_of_the_output():
    model = micro(Double("additive", "rotate", "bias"))
    logits, _ = model(images(), return_attention=True)
    assert torch.equal(logits, model(images()))


def test_attention_of_heads_by_the_formulas_of_the_paper():
    """Tokens, then one token for each head; their outputs are averaged into the class token."""
    block, encoding = micro(Double()).double().blocks[0], Double().double()
    assert isinstance(block, HybridBlock)
    attention = block.attn
    x = torch.randn(2, 7, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    pieces = torch.stack(x.mean(1).split(8, dim=-1), dim=1)
    pieces = attention.ht_proj(pieces).reshape(2, 2, 2, 8)
    pieces = torch.nn.functional.gelu(attention.ht_norm(pieces)).reshape(2, 2, 16)
    tokens = torch.cat([x, pieces + attention.pos_embed], dim=1)  # head tokens last: no difference
    q, k, v = attention.qkv(tokens).reshape(2, 9, 3, 2, 8).permute(2, 0, 3, 1, 4)
    mixed = (q @ k.transpose(-1, -2) / 8**0.5).softmax(-1) @ v
    out = attention.proj(mixed.transpose(1, 2).reshape(2, 9, 16))
    want = torch.cat([out[:, :1] + out[:, 7:].mean(1, keepdim=True), out[:, 1:7]], dim=1)
    assert error_in_eps(attention(x, encoding, GRID), want) <= CEILINGS["logits"]


def test_feed_forward_keeps_the_place_of_each_patch():
    """Row-major tokens must come back in the order they went in, also on a rectangle."""
    block = micro(Double()).blocks[0]
    assert isinstance(block, HybridBlock)
    x = torch.randn(1, 7, 16)
    changed = x.clone()
    changed[:, 1] += 1.0  # the patch in the upper left corner of 3 x 2
    moved = (block.mlp(changed, GRID) != block.mlp(x, GRID)).any(-1)[0, 1:].reshape(GRID)
    assert moved.tolist() == [[True, True], [True, True], [False, False]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"patch_size": 8}, "must be 2, 4 or 16, got 8"),
        ({"patch_size": 16, "dim": 12}, "dim=12 is not divisible by 8"),
        ({"num_classes": -1}, "must not be negative"),
    ],
    ids=str,
)
def test_a_model_that_cannot_be_built_says_why(options, message):
    with pytest.raises(InputError, match=message):
        micro(Double(), **options)
