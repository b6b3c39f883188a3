"""Encodings in timm's VisionTransformer, and its logits beside ours. `nox -s timm` runs this."""

from __future__ import annotations

import copy
import importlib
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
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
    real = encoding._features

    def counted(grid):
        calls.append(grid)
        return real(grid)

    monkeypatch.setattr(encoding, "_features", counted)

    def gradients():
        calls.clear()
        model.zero_grad()
        model(images(SQUARE)).square().sum().backward()
        return [p.grad for p in encoding.parameters()]

    shared = gradients()
    assert len(calls) == 1
    encoding.bias(SQUARE, 0)
    assert len(calls) == 2  # outside a pass nothing is kept
    # With checkpointing a layer finds what was made before the first of them, both times.
    model.set_grad_checkpointing()
    again = gradients()
    assert len(calls) == 1
    for got, want in zip(again, shared, strict=True):
        assert error_in_eps(got, want) <= CEILINGS["logits"]


# --- Threads, checkpoints, other sizes and dtypes, optimisers ------------------------------


@pytest.mark.parametrize("name", ["rope_mixed", "weierstrass_relative"])
def test_threads_do_not_meet(name):
    model = attach(foreign(dynamic_img_size=True), encoding_by(name))
    grids = [(2, 6), (4, 3)]
    want = [model(images(grid)) for grid in grids]
    meet = threading.Barrier(2)

    def wrong(index):
        meet.wait()
        got = [model(images(grids[index])) for _ in range(50)]
        return sum(not torch.equal(each, want[index]) for each in got)

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(wrong, range(2))) == [0, 0]


def wrapped(module):
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    return checkpoint_wrapper(module)


@pytest.mark.parametrize("how", ["timm", "wrapper", "wrapper before", "wrapped attention"])
@pytest.mark.parametrize("name", ["rope_mixed", "weierstrass_relative"])
def test_blocks_evaluated_again_belong_to_their_own_pass(name, how):
    """Two passes with different grids of as many patches, then one backward pass for both."""

    def gradients(model):
        model.zero_grad()
        sum(model(images(grid)).square().sum() for grid in ((2, 6), (4, 3))).backward()
        return [p.grad for p in model.encoding.parameters()]

    def wrap_blocks(model):
        for number, block in enumerate(model.blocks):
            model.blocks[number] = wrapped(block)

    model = foreign(dynamic_img_size=True).train()
    want = gradients(attach(copy.deepcopy(model), encoding_by(name)))
    if how == "wrapper before":
        wrap_blocks(model)
    attach(model, encoding_by(name))
    if how == "timm":
        model.set_grad_checkpointing()
    elif how == "wrapper":
        wrap_blocks(model)
    elif how == "wrapped attention":
        for block in model.blocks:
            block.attn = wrapped(block.attn)
    for got, wanted in zip(gradients(model), want, strict=True):
        assert error_in_eps(got, wanted) <= CEILINGS["logits"]


def test_several_blocks_in_one_checkpoint():
    model = attach(foreign(), encoding_by("rope_mixed")).train()
    checkpointed = timm.models.checkpoint_seq

    def gradients(run):
        model.zero_grad()
        tokens = model.patch_drop(model._pos_embed(model.patch_embed(images(SQUARE))))
        run(tokens).square().sum().backward()
        return model.encoding.freqs.grad.clone()

    want = gradients(model.blocks)
    got = gradients(lambda tokens: checkpointed(model.blocks, tokens, every=2))
    assert error_in_eps(got, want) <= CEILINGS["logits"]


def test_a_reentrant_checkpoint_is_refused():
    model = attach(foreign(), encoding_by("rope_mixed")).train()
    tokens = model.patch_drop(model._pos_embed(model.patch_embed(images(SQUARE))))
    out = timm.models.checkpoint_seq(model.blocks, tokens, use_reentrant=True)
    with pytest.raises(InputError, match="use_reentrant=False"):
        out.sum().backward()


def test_a_pass_that_stops_early_leaves_nothing_that_copies_mind():
    model = attach(foreign(), encoding_by("weierstrass_relative"))
    features = model.forward_intermediates(
        images(SQUARE), indices=[0], stop_early=True, intermediates_only=True
    )
    want = model(images(SQUARE))
    model.forward_intermediates(images(SQUARE), indices=[0], stop_early=True)
    assert torch.equal(copy.deepcopy(model)(images(SQUARE)), want)
    assert torch.equal(pickle.loads(pickle.dumps(model))(images(SQUARE)), want)
    assert not vars(features[0])  # nothing of ours goes with what a user saves


def test_detaching_after_another_input_size_gives_the_table_for_that():
    model, plain = attach(foreign(), Double(*ALL_PLACES)), foreign()
    for each in (model, plain):
        each.set_input_size(img_size=(20, 12))
    detach(model)
    assert torch.equal(model.pos_embed, plain.pos_embed)
    assert torch.equal(model(images((5, 3))), plain(images((5, 3))))


@pytest.mark.parametrize("name", available_encodings())
def test_a_fresh_encoding_takes_the_dtype_of_the_model(name):
    model = attach(foreign().to(torch.bfloat16), encoding_by(name))
    out = model(images(SQUARE).to(torch.bfloat16))
    assert out.dtype == torch.bfloat16
    assert out.isfinite().all()


def test_images_that_timm_pads_have_the_grid_of_the_padded_image():
    model = attach(
        foreign(dynamic_img_size=True, dynamic_img_pad=True), Double("additive", "rotate")
    )
    padded = torch.nn.functional.pad(images((2, 5))[..., :7, :18], (0, 2, 0, 1))
    assert torch.equal(model(images((2, 5))[..., :7, :18]), model(padded))


def test_the_optimisers_of_timm_know_the_encoding():
    model = attach(foreign(), encoding_by("weierstrass"))
    exempt = {f"encoding.{name}" for name in model.encoding.no_weight_decay()}
    assert exempt
    assert exempt < model.no_weight_decay()
    assert {"cls_token", "pos_embed"} < model.no_weight_decay()
    grouped = importlib.import_module("timm.optim").param_groups_layer_decay
    groups = grouped(model, weight_decay=0.1, layer_decay=0.5)
    scales = {id(p): group["lr_scale"] for group in groups for p in group["params"]}
    mine = {scales[id(p)] for p in model.encoding.parameters()}
    assert mine == {scales[id(model.cls_token)]}
    detach(model)
    assert model.no_weight_decay() == type(model).no_weight_decay(model)
    assert "encoding" not in model.group_matcher()["stem"]


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


@pytest.mark.parametrize(
    ("name", "culprit"),
    [
        ("deit_tiny_distilled_patch16_224", "VisionTransformerDistilled has its own _pos_embed"),
        ("vit_tiny_r_s16_p8_224", "HybridEmbed"),
        ("vitamin_small_224", "HybridEmbed"),
        ("vit_dlittle_patch16_reg1_gap_256", "DiffAttention"),
    ],
)
def test_models_of_timm_that_are_built_otherwise_are_refused(name, culprit):
    model = timm.create_model(name, num_classes=2)
    names = sorted(model.state_dict())
    heads = getattr(getattr(model.blocks[0], "attn", None), "num_heads", 1)
    size = {"dim": model.embed_dim, "depth": len(model.blocks), "num_heads": heads}
    with pytest.raises(InputError, match=culprit):
        attach(model, Double(**size))
    assert sorted(model.state_dict()) == names
    with pytest.raises(InputError, match="no encoding is attached"):
        detach(model)


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
