"""Encodings in timm's VisionTransformer, and its logits beside ours. `nox -s timm` runs this."""

from __future__ import annotations

import copy
from importlib.util import find_spec
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the torch extra is not installed")


def imported_timm():
    """timm, or a skip."""
    if find_spec("timm") is None:
        pytest.skip("timm is not installed; `nox -s timm` has it", allow_module_level=True)
    from training.models.timm_import import import_timm

    return import_timm()


timm = imported_timm()

from training.encodings import available_encodings, build_encoding
from training.models import (
    VisionTransformer,
    attach,
    build_vit,
    detach,
    load_checkpoint,
    timm_state_dict,
)
from verification.tests.model_doubles import (
    CEILINGS,
    MICRO,
    Double,
    error_in_eps,
    images,
)
from wefpe_core import InputError, InputTypeError

SQUARE = (3, 3)


def foreign(**options):
    """A small model of timm with weights large enough for every part to matter."""
    torch.manual_seed(4)
    defaults = {"img_size": 12, "patch_size": 4, "embed_dim": 16, "depth": 2, "num_heads": 2}
    model = timm.models.vision_transformer.VisionTransformer(
        **{**defaults, "num_classes": 5, **options}
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model.eval()


def encoding_by(name):
    extra: dict[str, Any] = {"table": "fresh"} if name == "weierstrass_hybrid" else {}
    torch.manual_seed(6)
    numbers = {key: MICRO[key] for key in ("dim", "depth", "num_heads")}
    return build_encoding(name, **numbers, grid=SQUARE, **extra)


def twin(model, encoding, **options) -> VisionTransformer:
    """Our model with the weights of an attached one."""
    ours = VisionTransformer(encoding, **{**MICRO, **options})
    ours.load_state_dict(model.state_dict())
    return ours.eval()


ALL_PLACES = ("additive", "prefix", "rotate", "bias")


@pytest.mark.parametrize("name", available_encodings())
def test_an_attached_model_computes_what_ours_does(name):
    model = attach(foreign(), encoding_by(name))
    ours = twin(model, encoding_by(name))
    x = images(SQUARE)
    assert error_in_eps(model(x), ours(x)) <= CEILINGS["logits"]


@pytest.mark.parametrize(
    ("options", "ours"),
    [
        ({"reg_tokens": 3}, {"register_tokens": 3}),
        ({"class_token": False, "global_pool": "avg"}, {"class_token": False, "pooling": "mean"}),
        ({"no_embed_class": True}, {}),
        ({"dynamic_img_size": True}, {}),
    ],
    ids=str,
)
def test_prefix_tokens_and_pooling_of_timm(options, ours):
    model = attach(foreign(**options), Double(*ALL_PLACES))
    assert (
        error_in_eps(
            model(images(SQUARE)), twin(model, Double(*ALL_PLACES), **ours)(images(SQUARE))
        )
        <= CEILINGS["logits"]
    )


@pytest.mark.parametrize("grid", [(2, 5), (6, 1)], ids=str)
def test_rectangular_images_of_any_size(grid):
    model = attach(foreign(dynamic_img_size=True), Double(*ALL_PLACES))
    x = images(grid)
    assert error_in_eps(model(x), twin(model, Double(*ALL_PLACES))(x)) <= CEILINGS["logits"]


def test_attention_written_out_gives_the_same(monkeypatch):
    model = attach(foreign(), Double(*ALL_PLACES))
    want = model(images(SQUARE))
    for block in model.blocks:
        block.attn.fused_attn = False
    assert error_in_eps(model(images(SQUARE)), want) <= CEILINGS["logits"]


def test_position_is_added_once():
    encoding = Double("additive")
    model = attach(foreign(), encoding)
    model(images(SQUARE))
    assert encoding.calls["additive"] == 1
    assert "pos_embed" not in model.state_dict()
    assert "encoding.weight" in dict(model.named_parameters())
    # With the table timm had, nothing changes: neither less nor more than once.
    plain = foreign()
    learned = encoding_by("learned")
    learned.load_table(plain.pos_embed[0, 1:], SQUARE, plain.pos_embed[0, :1])
    want = plain(images(SQUARE))
    assert torch.equal(attach(plain, learned)(images(SQUARE)), want)


def test_state_dicts_survive_the_round_trip():
    model = attach(foreign(), encoding_by("weierstrass"))
    fresh = timm.models.vision_transformer.VisionTransformer(
        img_size=12, patch_size=4, embed_dim=16, depth=2, num_heads=2, num_classes=5
    ).eval()
    attach(fresh, build_encoding("weierstrass", dim=16, depth=2, num_heads=2, grid=SQUARE))
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(fresh(images(SQUARE)), model(images(SQUARE)))


def test_detaching_gives_back_the_model_there_was():
    model = foreign()
    want, names = model(images(SQUARE)), list(model.state_dict())
    encoding = Double(*ALL_PLACES)
    attach(model, encoding)
    assert not torch.equal(model(images(SQUARE)), want)
    assert detach(model) is encoding
    assert torch.equal(model(images(SQUARE)), want)
    assert sorted(model.state_dict()) == sorted(names)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    attach(model, encoding)


def test_detaching_follows_the_model_to_another_dtype():
    model = attach(foreign(), Double(*ALL_PLACES)).double()
    detach(model)
    assert model.pos_embed.dtype == torch.float64


def test_a_copy_has_hooks_of_its_own():
    model = attach(foreign(), Double(*ALL_PLACES))
    want = model(images(SQUARE))
    copied = copy.deepcopy(model)
    with torch.no_grad():
        model.encoding.weight.zero_()
    assert torch.equal(copied(images(SQUARE)), want)
    detach(model)
    assert torch.equal(copied(images(SQUARE)), want)
    detach(copied)
    assert torch.equal(copied(images(SQUARE)), model(images(SQUARE)))


@pytest.mark.parametrize("name", ["weierstrass", "rope_mixed", "weierstrass_relative"])
def test_gradients_reach_the_encoding(name):
    model = attach(foreign(), encoding_by(name)).train()
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(images(SQUARE)).float().square().mean()
    loss.backward()
    gradients = [parameter.grad for parameter in model.encoding.parameters()]
    assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients)
    assert any(gradient.any() for gradient in gradients)


def test_a_mask_of_the_caller_is_kept():
    model = attach(foreign(), Double(*ALL_PLACES))
    x = images(SQUARE)
    allowed = torch.ones(1, 1, 10, 10, dtype=torch.bool)
    allowed[..., 4] = False
    additive = torch.zeros(1, 1, 10, 10).masked_fill(~allowed, -torch.inf)
    masked = model.forward_features(x, attn_mask=allowed)
    assert error_in_eps(masked, model.forward_features(x, attn_mask=additive)) <= 1.0
    assert not torch.equal(masked, model.forward_features(x))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["weierstrass", "rope_axial", "weierstrass_green", "weierstrass_relative"]
)
def test_an_attached_model_compiles_without_a_graph_break(name):
    model = attach(foreign(), encoding_by(name))
    got = torch.compile(model, fullgraph=True, backend="aot_eager")(images(SQUARE))
    assert error_in_eps(got, model(images(SQUARE))) <= CEILINGS["logits"]


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
        model(images(SQUARE)).square().sum().backward()
        return [p.grad for p in encoding.parameters()]

    shared = gradients()
    assert len(calls) == 1
    encoding.bias(SQUARE, 0)
    assert len(calls) == 2  # outside a pass nothing is kept
    # With checkpointing a layer must do alike in both of its evaluations: nothing is shared.
    model.set_grad_checkpointing()
    apart = gradients()
    assert len(calls) == 4
    for got, want in zip(apart, shared, strict=True):
        assert error_in_eps(got, want) <= CEILINGS["logits"]


# --- What is refused -----------------------------------------------------------------------


def test_a_second_encoding_is_refused():
    model = attach(foreign(), Double("additive"))
    with pytest.raises(InputError, match="attached to this model already"):
        attach(model, Double("additive"))
    detach(model)
    with pytest.raises(InputError, match="no encoding is attached"):
        detach(model)


def test_an_encoding_of_another_size_is_refused():
    with pytest.raises(InputError, match="built for depth=3, the model has 2"):
        attach(foreign(), Double(depth=3))


def test_other_things_are_refused():
    with pytest.raises(InputTypeError, match=r"got torch\.nn\.modules\.linear\.Linear"):
        attach(torch.nn.Linear(2, 2), Double())
    with pytest.raises(InputTypeError, match="AbstractEncoding"):
        attach(foreign(), torch.nn.Linear(2, 2))


def test_models_in_which_an_encoding_cannot_act_are_refused():
    model = foreign(patch_drop_rate=0.5)
    with pytest.raises(InputError, match="patch_drop_rate"):
        attach(model, Double())
    assert model.pos_embed is not None  # and left as they are
    block = timm.models.vision_transformer.ParallelScalingBlock
    with pytest.raises(InputError, match="ParallelScalingBlock"):
        attach(foreign(block_fn=block), Double(num_heads=1))


def test_causal_attention_does_not_go_with_a_bias():
    with pytest.raises(InputError, match="causal"):
        attach(foreign(), Double("bias")).forward_features(images(SQUARE), is_causal=True)


# --- Weights -------------------------------------------------------------------------------


@pytest.mark.parametrize("size", ["tiny", "small"])
def test_names_and_shapes_are_those_of_timm(size):
    with torch.device("meta"):
        theirs = timm.create_model(f"vit_{size}_patch16_224").state_dict()
        ours = timm_state_dict(build_vit(size, encoding="learned"), (14, 14))
    assert {k: v.shape for k, v in ours.items()} == {k: v.shape for k, v in theirs.items()}


@pytest.mark.parametrize(
    "options",
    [{}, {"reg_tokens": 4, "no_embed_class": True}, {"class_token": False, "global_pool": "avg"}],
    ids=str,
)
def test_weights_of_timm_give_the_logits_of_timm_and_go_back(options, tmp_path):
    theirs = foreign(**options)
    torch.save(theirs.state_dict(), tmp_path / "model.pth")
    n_prefix = theirs.num_prefix_tokens
    rows = 0 if theirs.no_embed_class else n_prefix
    ours = VisionTransformer(
        build_encoding("learned", dim=16, depth=2, num_heads=2, grid=SQUARE, prefix_tokens=rows),
        **MICRO,
        register_tokens=theirs.num_reg_tokens,
        class_token=theirs.has_class_token,
        pooling="mean" if theirs.global_pool == "avg" else "token",
    ).eval()
    report = load_checkpoint(ours, tmp_path / "model.pth", checkpoint_grid=SQUARE)
    assert report.missing == report.unexpected == ()
    x = images(SQUARE)
    assert error_in_eps(ours(x), theirs(x)) <= CEILINGS["attention"]
    if not theirs.no_embed_class:
        back = foreign(**options)
        back.load_state_dict(timm_state_dict(ours, SQUARE))
        assert torch.equal(back(x), theirs(x))
