"""Encodings in the ViTModel of Hugging Face. `nox -s transformers` runs this."""

from __future__ import annotations

import copy
import threading
from concurrent.futures import ThreadPoolExecutor
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
# PEFT 0.21 asks for a name that transformers 5.23 has changed.
PEFT_WARNS = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is dep:FutureWarning")
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
    """Without `load_attached`: who names an attention takes the weights apart themselves."""
    safetensors_torch = pytest.importorskip("safetensors.torch")
    model = attach(foreign(), encoding_by("weierstrass"))
    model.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="load_attached"):
        ViTModel.from_pretrained(tmp_path)
    fresh = ViTModel.from_pretrained(tmp_path, attn_implementation="sdpa")
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
    real = encoding._features

    def counted(grid):
        calls.append(grid)
        return real(grid)

    monkeypatch.setattr(encoding, "_features", counted)

    def gradients():
        calls.clear()
        model.zero_grad()
        features(model, images(SQUARE)).square().sum().backward()
        return [p.grad for p in encoding.parameters()]

    shared = gradients()
    assert len(calls) == 1
    encoding.bias(SQUARE, 0)
    assert len(calls) == 2  # outside a pass nothing is kept
    # With checkpointing a layer finds what was made before the first of them, both times.
    enable = "activation_checkpointing_enable"  # its name since transformers 5.23
    getattr(model, enable if hasattr(model, enable) else "gradient_checkpointing_enable")()
    again = gradients()
    assert len(calls) == 1
    for got, want in zip(again, shared, strict=True):
        assert error_in_eps(got, want) <= CEILINGS["logits"]


# --- Adapters, threads, checkpoints, dtypes ------------------------------------------------


def with_lora(model, *, modules_to_save=None):
    """The model in PEFT, with adapters of the queries and keys large enough to matter."""
    peft = pytest.importorskip("peft", reason="PEFT is not installed; `nox -s transformers` has it")
    config = peft.LoraConfig(
        r=2, target_modules=["q_proj", "k_proj"], modules_to_save=modules_to_save
    )
    wrapped = peft.get_peft_model(model, config)
    torch.manual_seed(5)
    with torch.no_grad():
        for name, parameter in wrapped.named_parameters():
            if "lora_" in name:
                parameter.normal_(std=0.3)
    return wrapped.eval()


@PEFT_WARNS
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("name", ["rope_axial", "rope_mixed", "weierstrass_relative"])
def test_adapters_of_the_projections_are_rotated_too(name, attention):
    model = foreign(attn_implementation=attention)
    lora = with_lora(attach(model, encoding_by(name)))
    got = features(lora, images(SQUARE))
    merged = lora.merge_and_unload()
    assert merged.layers[0].attention.q_proj.__class__ is torch.nn.Linear
    want = twin(merged, encoding_by(name)).forward_features(images(SQUARE))
    assert error_in_eps(features(merged, images(SQUARE)), want) <= CEILINGS["logits"]
    assert error_in_eps(got, want) <= CEILINGS["logits"]
    plain = features(attach(foreign(), encoding_by(name)), images(SQUARE))
    assert error_in_eps(got, plain) > 1e4  # the adapters do something


@PEFT_WARNS
def test_an_encoding_that_an_adapter_saves_is_the_one_that_acts():
    lora = with_lora(attach(foreign(), encoding_by("rope_mixed")), modules_to_save=["encoding"])
    before = features(lora, images(SQUARE))
    trained = [
        parameter
        for name, parameter in lora.named_parameters()
        if "encoding" in name and parameter.requires_grad
    ]
    assert trained
    features(lora, images(SQUARE)).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in trained)
    with torch.no_grad():
        for parameter in trained:
            parameter.add_(0.5)
    after = features(lora, images(SQUARE))
    assert not torch.equal(after, before)
    with pytest.raises(InputError, match="ModulesToSaveWrapper: merge or unload"):
        detach(lora.get_base_model())
    merged = lora.merge_and_unload()
    assert error_in_eps(features(merged, images(SQUARE)), after) <= CEILINGS["logits"]
    assert any(torch.equal(p, q) for p in merged.encoding.parameters() for q in trained)


def test_the_config_of_the_model_is_left_alone():
    shared = config(attn_implementation="eager")
    model = attach(ViTModel(shared).eval(), encoding_by("rope_axial"))
    other = ViTModel(shared).eval()
    assert model.config is other.config is shared
    assert shared._attn_implementation == "eager"
    assert "wefpe" not in shared.to_json_string()
    want = features(model, images(SQUARE))
    model.set_attn_implementation("sdpa")
    assert error_in_eps(features(model, images(SQUARE)), want) <= CEILINGS["logits"]
    detach(model)
    assert all(layer.attention.config is shared for layer in model.layers)


def in_two_threads(model, grids, n_times=50):
    """Whether two threads with images of different grids get what one thread gets."""
    want = [features(model, images(grid)) for grid in grids]
    meet = threading.Barrier(2)

    def wrong(index):
        meet.wait()
        got = [features(model, images(grids[index])) for _ in range(n_times)]
        return sum(not torch.equal(each, want[index]) for each in got)

    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(wrong, range(2)))


@pytest.mark.parametrize("name", ["rope_mixed", "weierstrass_relative"])
def test_threads_do_not_meet(name):
    model = attach(foreign(), encoding_by(name))
    assert in_two_threads(model, [(2, 6), (4, 3)]) == [0, 0]


@pytest.mark.parametrize("how", ["reentrant", "not reentrant", "wrapper"])
@pytest.mark.parametrize("name", ["rope_mixed", "weierstrass_relative"])
def test_layers_evaluated_again_belong_to_their_own_pass(name, how):
    """Two passes with different grids of as many patches, then one backward pass for both."""

    def gradients(model):
        model.zero_grad()
        x = [images(grid).requires_grad_() for grid in ((2, 6), (4, 3))]
        sum(features(model, each).square().sum() for each in x).backward()
        return [p.grad for p in model.encoding.parameters()]

    model = attach(foreign(), encoding_by(name)).train()
    want = gradients(model)
    if how == "wrapper":
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

        for number, layer in enumerate(model.layers):
            model.layers[number] = checkpoint_wrapper(layer)
    else:
        enable = "activation_checkpointing_enable"  # its name since transformers 5.23
        getattr(model, enable if hasattr(model, enable) else "gradient_checkpointing_enable")(
            {"use_reentrant": how == "reentrant"}
        )
    for got, wanted in zip(gradients(model), want, strict=True):
        assert error_in_eps(got, wanted) <= CEILINGS["logits"]


@pytest.mark.parametrize("name", available_encodings())
def test_a_fresh_encoding_takes_the_dtype_of_the_model(name):
    model = attach(foreign().to(torch.bfloat16), encoding_by(name))
    out = features(model, images(SQUARE).to(torch.bfloat16))
    assert out.dtype == torch.bfloat16
    assert out.isfinite().all()


def test_a_bias_is_refused_where_no_mask_is_added():
    """At `attach`, and also if the attention is changed after it."""
    model = foreign(attn_implementation="flex_attention")
    with pytest.raises(InputError, match="eager or sdpa, not flex_attention"):
        attach(model, encoding_by("weierstrass_green"))
    assert model.embeddings.position_embeddings is not None
    assert not hasattr(model, "encoding")
    model = attach(foreign(), encoding_by("weierstrass_green"))
    model.set_attn_implementation("flex_attention")
    with pytest.raises(InputError, match="eager or sdpa, not flex_attention"):
        model(images(SQUARE))


def test_layers_called_on_their_own_are_refused():
    model = attach(foreign(), Double("rotate"))
    with pytest.raises(InputError, match="outside a forward pass"):
        model.layers[0](torch.zeros(1, 10, 16))


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
    with pytest.raises(InputTypeError, match="Hugging Face model with one of ViTModel, DeiTModel"):
        attach(torch.nn.Linear(2, 2), Double())
    with pytest.raises(InputError, match="patch size 4, got 10 x 12"):
        model(torch.zeros(1, 3, 10, 12))
    with pytest.raises(InputError, match="no encoding is attached"):
        detach(foreign())
