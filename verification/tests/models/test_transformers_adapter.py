"""Encodings in the ViTModel of Hugging Face. `nox -s transformers` runs this."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the torch extra is not installed")
pytest.importorskip(
    "transformers", reason="transformers is not installed; `nox -s transformers` has it"
)

from transformers import ViTConfig, ViTForImageClassification, ViTModel

from training.encodings import available_encodings, build_encoding
from training.models import VisionTransformer, attach, detach
from verification.tests.model_doubles import (
    CEILINGS,
    MICRO,
    Double,
    error_in_eps,
    images,
)
from wefpe_core import InputError, InputTypeError

SQUARE = (3, 3)
ALL_PLACES = ("additive", "prefix", "rotate", "bias")


def config(**options) -> ViTConfig:
    defaults = {
        "image_size": 12,
        "patch_size": 4,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "layer_norm_eps": 1e-6,
    }
    return ViTConfig(**{**defaults, **options})


def foreign(model_class=ViTModel, **options):
    """A small model with weights large enough for every part to matter."""
    torch.manual_seed(4)
    model = model_class(config(**options))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model.eval()


def encoding_by(name):
    extra: dict[str, Any] = {"table": "fresh"} if name == "weierstrass_hybrid" else {}
    torch.manual_seed(6)
    numbers = {key: MICRO[key] for key in ("dim", "depth", "num_heads")}
    return build_encoding(name, **numbers, grid=SQUARE, **extra)


def twin(model, encoding) -> VisionTransformer:
    """Our model with the weights of an attached one."""
    state = model.state_dict()
    ours = {
        "cls_token": state["embeddings.cls_token"],
        "norm.weight": state["layernorm.weight"],
        "norm.bias": state["layernorm.bias"],
    }
    for kind in ("weight", "bias"):
        ours[f"patch_embed.proj.{kind}"] = state[f"embeddings.patch_embeddings.projection.{kind}"]
        for layer in range(2):
            theirs, mine = f"layers.{layer}.", f"blocks.{layer}."
            parts = [state[f"{theirs}attention.{name}_proj.{kind}"] for name in "qkv"]
            ours[f"{mine}attn.qkv.{kind}"] = torch.cat(parts)
            ours[f"{mine}attn.proj.{kind}"] = state[f"{theirs}attention.o_proj.{kind}"]
            ours[f"{mine}norm1.{kind}"] = state[f"{theirs}layernorm_before.{kind}"]
            ours[f"{mine}norm2.{kind}"] = state[f"{theirs}layernorm_after.{kind}"]
            for name in ("fc1", "fc2"):
                ours[f"{mine}mlp.{name}.{kind}"] = state[f"{theirs}mlp.{name}.{kind}"]
    ours |= {name: tensor for name, tensor in state.items() if name.startswith("encoding.")}
    model = VisionTransformer(encoding, **{**MICRO, "num_classes": 0})
    model.load_state_dict(ours)
    return model.eval()


def features(model, x):
    return model(x).last_hidden_state


@pytest.mark.parametrize("name", available_encodings())
def test_an_attached_model_computes_what_ours_does(name):
    model = attach(foreign(), encoding_by(name))
    want = twin(model, encoding_by(name)).forward_features(images(SQUARE))
    assert error_in_eps(features(model, images(SQUARE)), want) <= CEILINGS["logits"]


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("grid", [SQUARE, (2, 5), (6, 1)], ids=str)
def test_images_of_any_size_and_both_kinds_of_attention(attention, grid):
    model = attach(foreign(attn_implementation=attention), Double(*ALL_PLACES))
    want = twin(model, Double(*ALL_PLACES)).forward_features(images(grid))
    assert error_in_eps(features(model, images(grid)), want) <= CEILINGS["logits"]


def test_attention_maps_show_the_bias_on_patches_only(monkeypatch):
    encoding = Double()
    monkeypatch.setattr(encoding, "bias", lambda grid, layer: torch.full((2, 9, 9), -torch.inf))
    model = attach(foreign(attn_implementation="eager"), encoding)
    for each in model(images(SQUARE), output_attentions=True).attentions:
        assert not each[..., 1:, 1:].any()
        assert (each[..., 0, :] > 0.0).all()


def test_position_is_added_once():
    encoding = Double("additive")
    model = attach(foreign(), encoding)
    model(images(SQUARE))
    assert encoding.calls["additive"] == 1
    assert "embeddings.position_embeddings" not in model.state_dict()
    assert "encoding.weight" in dict(model.named_parameters())
    # With the table the model had, nothing changes: neither less nor more than once.
    plain = foreign()
    table = plain.embeddings.position_embeddings[0]
    learned = encoding_by("learned")
    learned.load_table(table[1:], SQUARE, table[:1])
    want = features(plain, images(SQUARE))
    assert torch.equal(features(attach(plain, learned), images(SQUARE)), want)


def test_a_model_with_a_head_is_changed_inside():
    model = foreign(ViTForImageClassification, num_labels=5)
    before = model(images(SQUARE)).logits
    attach(model, Double(*ALL_PLACES))
    assert "vit.encoding.weight" in model.state_dict()
    assert model(images(SQUARE)).logits.shape == (2, 5)
    assert not torch.equal(model(images(SQUARE)).logits, before)
    detach(model)
    assert torch.equal(model(images(SQUARE)).logits, before)


def test_asking_to_interpolate_changes_nothing():
    model = attach(foreign(), Double(*ALL_PLACES))
    asked = model(images(SQUARE), interpolate_pos_encoding=True).last_hidden_state
    assert torch.equal(asked, features(model, images(SQUARE)))


def test_state_dicts_survive_the_round_trip():
    model = attach(foreign(), encoding_by("weierstrass"))
    fresh = ViTModel(config()).eval()
    attach(fresh, build_encoding("weierstrass", dim=16, depth=2, num_heads=2, grid=SQUARE))
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(features(fresh, images(SQUARE)), features(model, images(SQUARE)))


def test_a_saved_model_comes_back_in_two_steps(tmp_path):
    """`save_pretrained` writes the names of older versions, so the encoding is loaded itself."""
    safetensors_torch = pytest.importorskip("safetensors.torch")
    model = attach(foreign(), encoding_by("weierstrass"))
    model.save_pretrained(tmp_path)
    fresh = ViTModel.from_pretrained(tmp_path)
    encoding = build_encoding("weierstrass", dim=16, depth=2, num_heads=2, grid=SQUARE)
    tensors = safetensors_torch.load_file(tmp_path / "model.safetensors")
    encoding.load_state_dict(
        {k.removeprefix("encoding."): v for k, v in tensors.items() if k.startswith("encoding.")}
    )
    attach(fresh, encoding)
    assert torch.equal(features(fresh, images(SQUARE)), features(model, images(SQUARE)))


def test_detaching_gives_back_the_model_there_was():
    model = foreign()
    want, names = features(model, images(SQUARE)), sorted(model.state_dict())
    encoding = Double(*ALL_PLACES)
    attach(model, encoding)
    assert not torch.equal(features(model, images(SQUARE)), want)
    assert detach(model) is encoding
    assert torch.equal(features(model, images(SQUARE)), want)
    assert sorted(model.state_dict()) == names
    with pytest.raises(ValueError, match="doesn't match model"):  # its own check is back
        model(images((2, 5)))


def test_a_copy_has_hooks_of_its_own():
    model = attach(foreign(), Double(*ALL_PLACES))
    want = features(model, images(SQUARE))
    copied = copy.deepcopy(model)
    with torch.no_grad():
        model.encoding.weight.zero_()
    assert torch.equal(features(copied, images(SQUARE)), want)
    detach(copied)
    assert not torch.equal(features(copied, images(SQUARE)), features(model, images(SQUARE)))


@pytest.mark.parametrize("name", ["weierstrass", "rope_mixed", "weierstrass_relative"])
def test_gradients_reach_the_encoding(name):
    model = attach(foreign(), encoding_by(name)).train()
    with torch.autocast("cpu", torch.bfloat16):
        loss = features(model, images(SQUARE)).float().square().mean()
    loss.backward()
    gradients = [parameter.grad for parameter in model.encoding.parameters()]
    assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients)
    assert any(gradient.any() for gradient in gradients)


def test_the_layers_of_a_pass_share_what_the_encoding_evaluates(monkeypatch):
    encoding = encoding_by("weierstrass_relative")
    model = attach(foreign(), encoding).train()
    calls = []
    real = encoding.values

    def counted(grid):
        calls.append(grid)
        return real(grid)

    monkeypatch.setattr(encoding, "values", counted)

    def gradients():
        calls.clear()
        model.zero_grad()
        features(model, images(SQUARE)).square().sum().backward()
        return [p.grad for p in encoding.parameters()]

    shared = gradients()
    assert len(calls) == 1
    encoding.bias(SQUARE, 0)
    assert len(calls) == 2  # outside a pass nothing is kept
    # With checkpointing a layer must do alike in both of its evaluations: nothing is shared.
    enable = "activation_checkpointing_enable"  # its name since transformers 5.23
    getattr(model, enable if hasattr(model, enable) else "gradient_checkpointing_enable")()
    apart = gradients()
    assert len(calls) == 4
    for got, want in zip(apart, shared, strict=True):
        assert error_in_eps(got, want) <= CEILINGS["logits"]


def test_masked_patches_keep_their_place():
    model = ViTModel(config(), use_mask_token=True).eval()
    attach(model, Double("additive"))
    masked = torch.zeros(2, 9, dtype=torch.bool)
    masked[:, 4] = True
    seen = []
    model.layers[0].register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    model(images(SQUARE), bool_masked_pos=masked)
    want = model.embeddings.mask_token[0, 0] + model.encoding.weight[4]
    assert torch.equal(seen[0][:, 5], want.expand(2, -1))


def test_what_does_not_fit_is_refused():
    model = attach(foreign(), Double("additive"))
    with pytest.raises(InputError, match="attached to this model already"):
        attach(model, Double("additive"))
    with pytest.raises(InputError, match="built for depth=3, the model has 2"):
        attach(foreign(), Double(depth=3))
    with pytest.raises(InputTypeError, match="timm VisionTransformer or a Hugging Face ViTModel"):
        attach(torch.nn.Linear(2, 2), Double())
    with pytest.raises(InputError, match="patch size 4, got 10 x 12"):
        model(torch.zeros(1, 3, 10, 12))
    with pytest.raises(InputError, match="no encoding is attached"):
        detach(foreign())
