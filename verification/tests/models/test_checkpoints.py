"""Weights from files: every format gives the same model, and what does not fit is said."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the torch extra is not installed")
safetensors_torch = pytest.importorskip(
    "safetensors.torch", reason="the training extra is not installed"
)

from training.encodings import MissingTableError, build_encoding
from training.models import (
    CheckpointError,
    CheckpointNotFoundError,
    VisionTransformer,
    build_dhvt,
    hub_checkpoint,
    load_checkpoint,
    timm_state_dict,
)
from training.models.checkpoint_files import read_weights
from training.models.pretrained import split_positions
from verification.tests.model_doubles import MICRO, images
from wefpe_core import InputError, MissingDependencyError

SQUARE = (3, 3)


def model_with(name="learned", *, seed=1, grid=SQUARE, options=None, **changes):
    numbers = {**MICRO, **changes}
    torch.manual_seed(seed)
    size = {key: numbers[key] for key in ("dim", "depth", "num_heads")}
    encoding = build_encoding(name, **size, grid=grid, **(options or {}))
    return VisionTransformer(encoding, **numbers).eval()


@pytest.fixture(scope="module")
def source() -> VisionTransformer:
    """The model whose weights are written to files."""
    model = model_with(seed=0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model


@pytest.fixture(scope="module")
def weights(source) -> dict[str, Any]:
    """Its state dict, as timm would write it."""
    return timm_state_dict(source, SQUARE)


@pytest.fixture
def write(tmp_path):
    """Write tensors to a file of a given name."""

    def write(tensors, name="model.safetensors") -> Path:
        path = tmp_path / name
        if name.endswith(".safetensors"):
            safetensors_torch.save_file({k: v.contiguous() for k, v in tensors.items()}, path)
        elif name.endswith(".npz"):
            np.savez(path, **tensors)
        else:
            torch.save(tensors, path)
        return path

    return write


def google_arrays(weights, *, big_vision=False, stacked=False) -> dict[str, Any]:
    """The same weights under Google's names and in their layouts, from their description."""
    mha, mlp, norm2 = (0, 0, 1) if big_vision else (1, 3, 2)
    w = {name: tensor.numpy() for name, tensor in weights.items()}
    out = {
        "embedding/kernel": w["patch_embed.proj.weight"].transpose(2, 3, 1, 0),
        "embedding/bias": w["patch_embed.proj.bias"],
        "cls": w["cls_token"],
        "Transformer/encoder_norm/scale": w["norm.weight"],
        "Transformer/encoder_norm/bias": w["norm.bias"],
        "head/kernel": w["head.weight"].T,
        "head/bias": w["head.bias"],
    }
    place = "pos_embedding" if big_vision else "Transformer/posembed_input/pos_embedding"
    out[place] = w["pos_embed"]
    layers = []
    for layer in range(MICRO["depth"]):
        b = f"blocks.{layer}."
        part = {}
        for number, name in ((0, "norm1"), (norm2, "norm2")):
            part[f"LayerNorm_{number}/scale"] = w[f"{b}{name}.weight"]
            part[f"LayerNorm_{number}/bias"] = w[f"{b}{name}.bias"]
        for number in (0, 1):
            dense = f"MlpBlock_{mlp}/Dense_{number}"
            part[f"{dense}/kernel"] = w[f"{b}mlp.fc{number + 1}.weight"].T
            part[f"{dense}/bias"] = w[f"{b}mlp.fc{number + 1}.bias"]
        attention = f"MultiHeadDotProductAttention_{mha}"
        for index, role in enumerate(("query", "key", "value")):
            rows = slice(16 * index, 16 * (index + 1))
            kernel = w[f"{b}attn.qkv.weight"][rows].T.reshape(16, 2, 8)
            part[f"{attention}/{role}/kernel"] = kernel
            part[f"{attention}/{role}/bias"] = w[f"{b}attn.qkv.bias"][rows].reshape(2, 8)
        part[f"{attention}/out/kernel"] = w[f"{b}attn.proj.weight"].T.reshape(2, 8, 16)
        part[f"{attention}/out/bias"] = w[f"{b}attn.proj.bias"]
        layers.append(part)
    if stacked:
        for name in layers[0]:
            both = np.stack([part[name] for part in layers])
            out[f"Transformer/encoderblock/{name}"] = both
    else:
        for layer, part in enumerate(layers):
            out |= {f"Transformer/encoderblock_{layer}/{k}": v for k, v in part.items()}
    return {("params/" if big_vision else "") + name: array for name, array in out.items()}


# --- Formats -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "wrap"),
    [
        ("model.safetensors", lambda w: w),
        ("model.pth", lambda w: w),
        ("deit.pth", lambda w: {"model": w, "epoch": 299}),
        ("timm.tar", lambda w: {"state_dict": w, "arch": "vit"}),
        ("parallel.pt", lambda w: {f"module.{k}": v for k, v in w.items()}),
        ("compiled.bin", lambda w: {f"_orig_mod.{k}": v for k, v in w.items()}),
        ("first.npz", google_arrays),
        ("big_vision.npz", lambda w: google_arrays(w, big_vision=True)),
        ("stacked.npz", lambda w: google_arrays(w, big_vision=True, stacked=True)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_format_gives_the_model_that_was_written(source, weights, write, name, wrap):
    model = model_with()
    report = load_checkpoint(model, write(wrap(weights), name))
    assert report.missing == report.unexpected == ()
    assert report.source.name == name
    assert report.head == "from the file"
    assert "3 x 3" in report.positions
    assert torch.equal(model(images(SQUARE)), source(images(SQUARE)))


def test_sixteen_bit_arrays_of_jax_are_read(weights, write):
    arrays = google_arrays(weights, big_vision=True)
    half = weights["head.bias"].bfloat16()
    arrays["params/head/bias"] = half.view(torch.int16).numpy().view("V2")
    model = model_with()
    load_checkpoint(model, write(arrays, "half.npz"))
    assert torch.equal(model.head.bias, half.float())


def test_half_precision_weights_keep_the_dtype_of_the_model(weights, write):
    model = model_with()
    load_checkpoint(model, write({k: v.half() for k, v in weights.items()}))
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert torch.equal(model.head.weight, weights["head.weight"].half().float())


def test_a_string_is_a_path_too(weights, write):
    assert load_checkpoint(model_with(), str(write(weights))).loaded


@pytest.mark.parametrize("name", ["weierstrass", "rope_mixed", "weierstrass_hybrid"])
def test_our_own_state_dict_brings_its_encoding_along(write, name):
    options = {"table": "fresh"} if name == "weierstrass_hybrid" else {}
    source = model_with(name, seed=5, options=options)
    model = model_with(name)  # the hybrid waits for its table
    report = load_checkpoint(model, write(source.state_dict()))
    assert report.missing == report.unexpected == ()
    assert report.positions == "those of the encoding, from the file"
    assert torch.equal(model(images(SQUARE)), source(images(SQUARE)))


def test_our_own_encoding_can_be_replaced(write):
    source, model = model_with("learned", seed=5), model_with("learned")
    before = model.encoding.additive(SQUARE).clone()
    report = load_checkpoint(model, write(source.state_dict()), positions="replace")
    assert report.positions == "those of the encoding in the file are left out; learned stands"
    assert sorted(report.encoding) == [
        "positions.patches: left out",
        "positions.tokens: left out",
    ]
    assert torch.equal(model.encoding.additive(SQUARE), before)
    assert torch.equal(model.blocks[0].attn.qkv.weight, source.blocks[0].attn.qkv.weight)


def test_our_own_learned_table_is_resampled(write):
    source, model = model_with("learned", seed=5), model_with("learned", grid=(8, 8))
    report = load_checkpoint(model, write(source.state_dict()))
    assert "resample" in report.positions
    want = source.encoding.additive((8, 8))
    assert torch.equal(model.encoding.additive((8, 8)), want)
    assert torch.equal(model.encoding.prefix(1), source.encoding.prefix(1))


def test_dhvt_loads_its_own_weights(write):
    torch.manual_seed(0)
    source = build_dhvt(encoding="learned", dim=16, depth=2, num_heads=2, num_classes=3).eval()
    torch.manual_seed(1)
    model = build_dhvt(encoding="learned", dim=16, depth=2, num_heads=2, num_classes=3).eval()
    report = load_checkpoint(model, write(source.state_dict()))
    assert report.missing == report.unexpected == ()
    assert torch.equal(model(images((8, 8))), source(images((8, 8))))


# --- Positions -----------------------------------------------------------------------------


def test_the_learned_table_is_resampled_to_the_grid_of_the_model(source, weights, write):
    model = model_with(grid=(5, 4))
    load_checkpoint(model, write(weights))
    want = source.encoding.additive((5, 4))  # resampled at call time
    assert torch.equal(model.encoding.additive((5, 4)), want)
    assert torch.equal(model.encoding.prefix(1), source.encoding.prefix(1))


def test_a_table_for_patches_alone(source, weights, write):
    """DeiT-III and big_vision give class and register tokens no row."""
    tensors = {**weights, "pos_embed": weights["pos_embed"][:, 1:]}
    model = model_with(options={"prefix_tokens": 0})
    load_checkpoint(model, write(tensors))
    assert torch.equal(model.encoding.additive(SQUARE), source.encoding.additive(SQUARE))
    model = model_with()
    load_checkpoint(model, write(tensors))
    assert not model.encoding.prefix(1).any()


def test_a_class_row_nobody_takes_is_added_to_the_class_token(source, weights, write):
    model = model_with(options={"prefix_tokens": 0})
    report = load_checkpoint(model, write(weights))
    assert "added to that token" in report.positions
    assert torch.equal(model(images(SQUARE)), source(images(SQUARE)))


def test_registers_the_file_does_not_know_start_without_position(weights, write):
    model = model_with(register_tokens=2, options={"prefix_tokens": 3})
    report = load_checkpoint(model, write(weights))
    assert report.missing == ("reg_token",)
    assert torch.equal(model.encoding.prefix(3)[:1], weights["pos_embed"][0, :1])
    assert not model.encoding.prefix(3)[1:].any()


def test_a_distilled_deit_loads_only_if_its_distillation_may_be_left_out(source, weights, write):
    extra = torch.zeros(1, 1, 16)
    tensors = {
        **weights,
        "dist_token": extra,
        "head_dist.weight": weights["head.weight"],
        "head_dist.bias": weights["head.bias"],
        "pos_embed": torch.cat(
            [weights["pos_embed"][:, :1], extra, weights["pos_embed"][:, 1:]], 1
        ),
    }
    model, path = model_with(), write({"model": tensors}, "deit.pth")
    # Every token attended to the one for distillation: without it the logits are others.
    assert_refused(model, path, "the model has no dist_token")
    assert_refused(model, path, "the model has no dist_token", head="new")
    report = load_checkpoint(model, path, partial=True)
    assert report.unexpected == ("dist_token", "head_dist.weight", "head_dist.bias")
    assert torch.equal(model(images(SQUARE)), source(images(SQUARE)))


def test_weights_with_a_pooling_of_their_own_are_refused(weights, write):
    """SigLIP: no class token, and a learned query that attends to the patches."""
    tensors = {k: v for k, v in weights.items() if k != "cls_token" and not k.startswith("head.")}
    tensors["pos_embed"] = weights["pos_embed"][:, 1:]
    tensors |= {"attn_pool.latent": torch.zeros(1, 1, 16), "attn_pool.q.weight": torch.eye(16)}
    path = write(tensors)
    for head in ("keep", "new"):
        parts = ("it lacks cls_token", "the model has no attn_pool.latent, attn_pool.q.weight")
        assert_refused(model_with(), path, *parts, head=head)


def test_positions_are_replaced(weights, write):
    model = model_with("weierstrass")
    before = model.encoding.additive(SQUARE).clone()
    report = load_checkpoint(model, write(weights), positions="replace")
    assert report.positions == "replaced by weierstrass"
    assert torch.equal(model.encoding.additive(SQUARE), before)
    assert torch.equal(model.cls_token, weights["cls_token"])  # the encoding has a class row
    model = model_with("rope_axial", dim=16)
    report = load_checkpoint(model, write(weights), positions="replace")
    row = weights["pos_embed"][:, :1]
    assert torch.equal(model.cls_token, weights["cls_token"] + row)
    assert report.positions == (
        "replaced by rope_axial; the row of the class token is added to that token"
    )


def test_a_hybrid_takes_the_learned_table(source, weights, write):
    model = model_with("weierstrass_hybrid")
    with pytest.raises(MissingTableError):
        model(images(SQUARE))
    report = load_checkpoint(model, write(weights), positions="hybrid")
    assert report.positions == "the learned table of 3 x 3 patches, hybrid"
    gate = model.encoding.gate()
    wef = model.encoding.wef.additive(SQUARE)
    want = gate * wef + (1 - gate) * source.encoding.additive(SQUARE)
    assert torch.equal(model.encoding.additive(SQUARE), want)
    assert torch.equal(model.encoding.prefix(1), source.encoding.prefix(1))
    assert model(images((2, 5))).isfinite().all()


@pytest.mark.parametrize(
    ("name", "positions", "message"),
    [
        ("weierstrass", "hybrid", "needs an encoding with a learned part"),
        ("learned", "hybrid", "needs an encoding with a learned part"),
        ("weierstrass", "resample", "say positions='replace'"),
        ("weierstrass_hybrid", "resample", "say positions='hybrid'"),
        ("learned", "interpolate", "must be keep, resample, replace or hybrid"),
    ],
)
def test_positions_the_encoding_cannot_take_are_refused(weights, write, name, positions, message):
    with pytest.raises(InputError, match=message):
        load_checkpoint(model_with(name), write(weights), positions=positions)


def test_a_file_without_a_table_cannot_be_resampled(weights, write):
    path = write({k: v for k, v in weights.items() if k != "pos_embed"})
    with pytest.raises(CheckpointError, match="has no pos_embed"):
        load_checkpoint(model_with(), path)
    report = load_checkpoint(model_with("weierstrass"), path, positions="replace")
    assert report.positions == "none in the file; weierstrass stands"


def test_the_grid_of_a_table_that_is_not_square_must_be_given(weights, write):
    tensors = {**weights, "pos_embed": torch.randn(1, 1 + 8, 16)}
    path = write(tensors)
    model = model_with(grid=(4, 2))
    with pytest.raises(CheckpointError, match="checkpoint_grid"):
        load_checkpoint(model, path, checkpoint_grid=(2, 3))
    load_checkpoint(model, path, checkpoint_grid=(4, 2))
    assert torch.equal(model.encoding.additive((4, 2)), tensors["pos_embed"][0, 1:])


@pytest.mark.parametrize(
    ("rows", "tokens", "n_prefix", "side"),
    [
        (197, {"cls_token": 1}, 1, 14),
        (196, {"cls_token": 1}, 0, 14),
        (198, {"cls_token": 1, "dist_token": 1}, 2, 14),
        (201, {"cls_token": 1, "reg_token": 4}, 5, 14),
        (576, {}, 0, 24),
        (1, {}, 0, 1),
    ],
)
def test_rows_of_a_table_belong_to_tokens_or_patches(rows, tokens, n_prefix, side):
    tensors = {name: torch.zeros(1, count, 8) for name, count in tokens.items()}
    table = torch.arange(rows * 8.0).reshape(1, rows, 8)
    found = split_positions({**tensors, "pos_embed": table}, "file")
    assert found.grid == (side, side)
    assert torch.equal(torch.cat([found.prefix, found.patches]), table[0])
    assert len(found.prefix) == n_prefix


def test_rows_that_can_be_read_in_two_ways_need_the_grid():
    tensors = {"cls_token": torch.zeros(1, 1, 8), "reg_token": torch.zeros(1, 4, 8)}
    tensors["pos_embed"] = torch.zeros(1, 9, 8)  # 3 x 3, or 5 tokens and 2 x 2
    with pytest.raises(CheckpointError, match=r"may be a square grid.*checkpoint_grid"):
        split_positions(tensors, "file")
    assert len(split_positions(tensors, "file", (3, 3)).prefix) == 0
    assert len(split_positions(tensors, "file", (2, 2)).prefix) == 5


# --- Writing for timm ----------------------------------------------------------------------


def test_any_additive_encoding_can_be_written_as_a_table_for_timm(write):
    source = model_with("weierstrass")
    tensors = timm_state_dict(source, (4, 4))
    assert tensors["pos_embed"].shape == (1, 17, 16)
    model = model_with(grid=(4, 4))
    load_checkpoint(model, write(tensors))
    assert torch.equal(model(images((4, 4))), source(images((4, 4))))


def test_dropout_is_not_written_into_a_table_for_timm():
    source = model_with("weierstrass", options={"projection": "mlp"}).train()
    want = source.eval().encoding.additive(SQUARE)
    table = timm_state_dict(source.train(), SQUARE)["pos_embed"]
    assert torch.equal(table[0, -len(want) :], want)
    assert source.encoding.training


def test_no_encoding_is_no_table():
    assert "pos_embed" not in timm_state_dict(model_with("none"), SQUARE)


@pytest.mark.parametrize("name", ["rope_axial", "weierstrass_green"])
def test_rotary_and_bias_encodings_are_no_table(name):
    with pytest.raises(InputError, match=f"{name} is no table"):
        timm_state_dict(model_with(name), SQUARE)


# --- What does not fit ---------------------------------------------------------------------


def test_missing_and_unexpected_tensors_are_reported(weights, write):
    tensors = {k: v for k, v in weights.items() if k != "norm.bias"}
    tensors["pre_logits.fc.weight"] = torch.zeros(2, 2)
    model = model_with()
    before = model.norm.bias.clone()
    report = load_checkpoint(model, write(tensors))
    assert report.missing == ("norm.bias",)
    assert report.unexpected == ("pre_logits.fc.weight",)
    assert "norm.bias" not in report.loaded
    assert torch.equal(model.norm.bias, before)
    assert "missing: norm.bias" in str(report)
    assert "unexpected: pre_logits.fc.weight" in str(report)


def test_a_new_head_is_kept(weights, write):
    model = model_with(num_classes=7)
    before = model.head.weight.clone()
    report = load_checkpoint(model, write(weights), head="new")
    assert report.head == "as in the model"
    assert report.missing == report.unexpected == ()
    assert torch.equal(model.head.weight, before)


def assert_refused(model, path, *parts, **options):
    """The error names every part and the file, and the model is as it was."""
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(model, path, **options)
    for part in (*parts, str(path)):
        assert part in str(caught.value)
    after = model.state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())


def test_another_number_of_classes_names_key_shapes_file_and_the_way_out(weights, write):
    path = write(weights)
    parts = ("head.weight is (5, 16) in the file, (7, 16) in the model", "head='new'")
    assert_refused(model_with(num_classes=7), path, *parts)


def test_another_width_names_key_and_shapes(weights, write):
    parts = ("cls_token is (1, 1, 16) in the file, (1, 1, 32) in the model", "more")
    assert_refused(model_with(dim=32), write(weights), *parts)


def test_another_patch_size_names_key_and_shapes(weights, write):
    parts = ("patch_embed.proj.weight is (16, 3, 4, 4) in the file, (16, 3, 8, 8) in the model",)
    assert_refused(model_with(patch_size=8), write(weights), *parts)


def test_a_table_of_another_width(weights, write):
    tensors = {**weights, "pos_embed": torch.zeros(1, 10, 8)}
    assert_refused(model_with(), write(tensors), "pos_embed has 8 channels, the model 16")


def test_another_depth_is_another_architecture(weights, write):
    path = write(weights)
    assert_refused(model_with(depth=3), path, "it has 2 blocks, the model 3", "blocks.2.norm1")
    assert_refused(model_with(depth=1), path, "the model has no blocks.1.")
    report = load_checkpoint(model_with(depth=1), path, partial=True)
    assert len(report.unexpected) == 12


def test_layer_scale_is_another_architecture(weights, write):
    tensors = {**weights, "blocks.0.ls1.gamma": torch.ones(16)}
    assert_refused(model_with(), write(tensors), "the model has no blocks.0.ls1.gamma")


def test_something_else_entirely_is_another_architecture(write):
    path = write({"layer1.0.conv1.weight": torch.zeros(2, 2)})
    assert_refused(model_with("none"), path, "another architecture", positions="replace")


@pytest.mark.parametrize("name", ["a.safetensors", "a.pth", "a.npz"])
def test_a_missing_file_is_named(tmp_path, name):
    with pytest.raises(CheckpointNotFoundError, match=f"{name} does not exist"):
        load_checkpoint(model_with(), tmp_path / name)
    with pytest.raises(FileNotFoundError, match="is a directory"):
        load_checkpoint(model_with(), tmp_path)


@pytest.mark.parametrize("name", ["a.safetensors", "a.pth", "a.npz"])
@pytest.mark.parametrize("damage", ["empty", "noise", "cut"])
def test_a_damaged_file_is_named(weights, write, tmp_path, name, damage):
    tensors = google_arrays(weights) if name.endswith(".npz") else weights
    path = write(tensors, name)
    content = {"empty": b"", "noise": bytes(range(256)) * 9, "cut": path.read_bytes()[:-900]}
    path.write_bytes(content[damage])
    assert_refused(model_with(), path)


class Sneaky:
    """A pickle that would call a function when it is read."""

    def __reduce__(self):
        return print, ("code has run",)


def test_pickled_code_is_not_run(tmp_path, capsys):
    path = tmp_path / "model.pth"
    torch.save({"model": Sneaky()}, path)
    assert_refused(model_with(), path, "pickled code")
    array = np.empty(1, dtype=object)
    array[0] = Sneaky()
    arrays: dict[str, Any] = {"embedding/kernel": array}
    np.savez(tmp_path / "model.npz", **arrays)
    capsys.readouterr()  # writing the array may run it
    assert_refused(model_with(), tmp_path / "model.npz")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("content", [[1, 2], {}, {"model": {"epoch": 3}}, torch.zeros(2)], ids=str)
def test_a_pickle_without_weights_is_refused(write, content):
    assert_refused(model_with(), write(content, "model.pth"))


def test_an_archive_of_other_arrays_is_refused(write):
    path = write({"x": np.zeros(3)}, "data.npz")
    assert_refused(model_with(), path, "not one of Google's vision transformers")


def test_an_unknown_kind_of_file_lists_the_known_ones(tmp_path):
    path = tmp_path / "model.onnx"
    path.touch()
    assert_refused(model_with(), path, "'.onnx'", ".safetensors", ".npz", ".pth")


def test_the_choice_for_the_head_is_checked(weights, write):
    with pytest.raises(InputError, match="head must be"):
        load_checkpoint(model_with(), write(weights), head="drop")  # type: ignore[arg-type]


# --- The hub -------------------------------------------------------------------------------


@pytest.fixture
def hub(monkeypatch, weights, write):
    """A stand-in for huggingface_hub that has one file; its calls are kept."""
    calls = []
    path = write(weights)

    def download(repository, filename, *, revision):
        calls.append((repository, filename, revision))
        if repository != "owner/vit":
            raise OSError("no such repository")
        return str(path)

    module = types.SimpleNamespace(hf_hub_download=download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    return calls


def test_weights_come_from_the_hub(hub, source):
    model = model_with()
    load_checkpoint(model, "hf-hub:owner/vit")
    assert torch.equal(model(images(SQUARE)), source(images(SQUARE)))
    hub_checkpoint("owner/vit@v2", "other.safetensors")
    read_weights("hf-hub:owner/vit@main")
    assert hub == [
        ("owner/vit", "model.safetensors", None),
        ("owner/vit", "other.safetensors", "v2"),
        ("owner/vit", "model.safetensors", "main"),
    ]


def test_what_the_hub_does_not_have_is_named(hub):
    with pytest.raises(CheckpointError, match=r"model.safetensors of nobody/vit .*no such repo"):
        load_checkpoint(model_with(), "hf-hub:nobody/vit")


def test_without_the_library_of_the_hub_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingDependencyError, match=r"wefpe\[hub\]"):
        load_checkpoint(model_with(), "hf-hub:owner/vit")
