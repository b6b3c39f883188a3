"""The vision transformer: timm's names and numbers, and position in its places only."""

from __future__ import annotations

import copy
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the torch extra is not installed")

from training.encodings import (
    AbstractEncoding,
    EncodingSize,
    available_encodings,
    build_encoding,
)
from training.models import VIT_SIZES, VisionTransformer, build_vit, fold_positions
from training.models.layers import (
    Block,
    DropPath,
    attend,
    attention_weights,
    bias_of_tokens,
    rotate_patches,
)
from verification.tests.model_doubles import (
    CEILINGS,
    GRID,
    MICRO,
    Double,
    error_in_eps,
    images,
)
from wefpe_core import InputError, InputTypeError


def micro(encoding, **options) -> VisionTransformer:
    torch.manual_seed(0)
    return VisionTransformer(encoding, **{**MICRO, **options}).eval()


def micro_with(name, encoding_options=None, **options) -> VisionTransformer:
    """A model with a built-in encoding; a hybrid starts with a table of its own."""
    torch.manual_seed(0)
    extra = {"table": "fresh"} if name == "weierstrass_hybrid" else {}
    extra |= encoding_options or {}
    return build_vit(
        "micro", encoding=name, encoding_options=extra, depth=2, num_classes=5, **options
    ).eval()


def count_of(model) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


# --- Names and numbers ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ("tiny", 5_717_416),
        ("small", 22_050_664),
        ("base", 86_567_656),
        ("large", 304_326_632),
    ],
)
def test_the_sizes_have_as_many_parameters_as_those_of_timm(size, expected):
    with torch.device("meta"):
        assert count_of(build_vit(size, encoding="learned")) == expected


def test_the_layout_of_the_authors_has_their_number_of_parameters():
    model = build_vit(
        "tiny",
        encoding="weierstrass",
        encoding_options={"fidelity": "authors"},
        num_classes=100,
        patch_norm=True,
    )
    assert count_of(model) == 5_507_815


def test_the_learned_table_of_the_authors_has_their_number_of_parameters():
    with torch.device("meta"):
        model = build_vit("tiny", encoding="learned", num_classes=100, patch_norm=True)
    assert count_of(model) == 5_544_100


def test_parameter_names_are_those_of_timm():
    block = [
        f"{part}.{kind}"
        for part in ("norm1", "attn.qkv", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2")
        for kind in ("weight", "bias")
    ]
    expected = {"cls_token", "reg_token", "norm.weight", "norm.bias", "head.weight", "head.bias"}
    expected |= {"patch_embed.proj.weight", "patch_embed.proj.bias"}
    expected |= {f"blocks.{layer}.{name}" for layer in range(2) for name in block}
    assert set(micro_with("none", register_tokens=3).state_dict()) == expected
    pooled = set(micro_with("none", pooling="mean", class_token=False).state_dict())
    assert {name for name in pooled if "norm" in name and "blocks" not in name} == {
        "fc_norm.weight",
        "fc_norm.bias",
    }


# --- Shapes --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", available_encodings())
@pytest.mark.parametrize("grid", [(8, 8), (3, 7), (1, 1)], ids=str)
def test_every_encoding_takes_any_grid_and_learns(name, grid):
    model = micro_with(name).train()
    logits = model(images(grid))
    assert logits.shape == (2, 5)
    logits.square().sum().backward()
    gradients = {key: p.grad for key, p in model.named_parameters() if p.grad is not None}
    assert all(torch.isfinite(gradient).all() for gradient in gradients.values())
    assert gradients.keys() >= {"cls_token", "patch_embed.proj.weight", "head.weight"}


@pytest.mark.parametrize("name", available_encodings())
def test_every_encoding_is_finite_in_bfloat16_autocast(name):
    model = micro_with(name).train()
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(images((4, 6))).float().square().mean()
    loss.backward()
    assert torch.isfinite(loss)


@pytest.mark.parametrize(
    ("options", "n_prefix"),
    [
        ({}, 1),
        ({"register_tokens": 4}, 5),
        ({"pooling": "mean"}, 1),
        ({"pooling": "mean", "class_token": False}, 0),
        ({"pooling": "mean", "class_token": False, "register_tokens": 2}, 2),
    ],
    ids=str,
)
def test_prefix_tokens_and_pooling(options, n_prefix):
    model = micro(Double("additive", "rotate", "bias"), **options)
    assert model.n_prefix == n_prefix
    assert model.forward_features(images()).shape == (2, n_prefix + 6, 16)
    assert model(images()).shape == (2, 5)


@pytest.mark.parametrize("name", ["learned", "weierstrass", "weierstrass_fourier"])
def test_a_model_without_prefix_tokens_has_no_parameter_that_nobody_uses(name):
    model = micro_with(name, class_token=False, pooling="mean").train()
    model(images((8, 8))).sum().backward()
    assert [key for key, p in model.named_parameters() if p.grad is None] == []


def test_pooled_features_without_a_head():
    assert micro(Double(), num_classes=0)(images()).shape == (2, 16)


def test_token_pooling_normalises_after_pooling_what_timm_normalises_before():
    model = micro(Double("additive"))
    want = model.head(model.forward_features(images())[:, 0])
    assert error_in_eps(model(images()), want) <= CEILINGS["attention"]


# --- Position ------------------------------------------------------------------------------


def test_position_is_added_once():
    encoding = Double("additive", "prefix")
    model = micro(encoding, register_tokens=2)
    tokens, grid = model.embed(images())
    patches, _ = model.patch_embed(images())
    assert grid == GRID
    assert torch.equal(tokens[:, 3:], patches + encoding.weight[:6])
    prefix = torch.cat([model.cls_token, model.reg_token], dim=1) + encoding.weight[-3:]
    assert torch.equal(tokens[:, :3], prefix.expand(2, -1, -1))
    encoding.calls = dict.fromkeys(encoding.calls, 0)
    model(images())
    assert encoding.calls == {"additive": 1, "prefix": 1, "rotate": 2, "bias": 2}


@pytest.mark.parametrize("pooling", ["token", "mean"])
def test_without_an_encoding_patches_are_a_set(pooling):
    model = micro_with("none", pooling=pooling)
    x = images((4, 4))
    turned = x.reshape(2, 3, 4, 4, 16).flip(2).reshape(2, 3, 16, 16)  # rows of patches reversed
    assert error_in_eps(model(turned), model(x)) <= CEILINGS["logits"]
    placed = micro_with("sincos2d", pooling=pooling)
    assert error_in_eps(placed(turned), placed(x)) > CEILINGS["logits"]


@pytest.mark.parametrize("n_prefix", [0, 1, 5])
def test_rotation_and_bias_leave_prefix_tokens_alone(n_prefix):
    encoding = Double("rotate", "bias")
    q, k = torch.randn(2, 2, 2, n_prefix + 6, 8)
    q_rotated, k_rotated = rotate_patches(q, k, encoding, GRID, 1)
    assert torch.equal(q_rotated[..., :n_prefix, :], q[..., :n_prefix, :])
    assert torch.equal(k_rotated[..., :n_prefix, :], k[..., :n_prefix, :])
    want = encoding.rotate(q[..., n_prefix:, :], k[..., n_prefix:, :], GRID, 1)
    assert torch.equal(q_rotated[..., n_prefix:, :], want[0])
    assert torch.equal(k_rotated[..., n_prefix:, :], want[1])
    bias = bias_of_tokens(q, encoding, GRID, 1)
    assert bias is not None
    assert torch.equal(bias[:, n_prefix:, n_prefix:], encoding.bias(GRID, 1))
    assert not bias[:, :n_prefix].any()
    assert not bias[:, :, :n_prefix].any()


def test_an_encoding_that_does_not_rotate_costs_no_copy():
    q, k = torch.randn(2, 1, 2, 7, 8)
    assert rotate_patches(q, k, Double(), GRID, 0) == (q, k)


@pytest.mark.parametrize("uses", [(), ("rotate",), ("bias",), ("rotate", "bias")], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_fused_attention_equals_attention_written_out(uses, dtype):
    encoding = Double(*uses).to(dtype)
    qkv = torch.randn(2, 7, 48, dtype=dtype, generator=torch.Generator().manual_seed(1))
    maps: list[Any] = []
    got = attend(qkv, 2, encoding, GRID, 1, maps=maps)
    q, k, v = qkv.double().reshape(2, 7, 3, 2, 8).permute(2, 0, 3, 1, 4)
    encoding = encoding.double()
    if "rotate" in uses:
        scale = torch.ones(7, 1, dtype=torch.float64)
        scale[1:] = encoding.weight[:6, :1] + 1
        q, k = q * scale, k * torch.cat([scale[:1], scale[1:] + 1.0])
    logits = q @ k.transpose(-1, -2) / 8**0.5
    if "bias" in uses:
        logits[..., 1:, 1:] += encoding.bias(GRID, 1)
    weights = logits.exp() / logits.exp().sum(-1, keepdim=True)
    want = (weights @ v).transpose(1, 2).reshape(2, 7, 16)
    assert error_in_eps(got, want.to(dtype)) <= CEILINGS["attention"]
    assert error_in_eps(maps[0], weights.to(dtype)) <= CEILINGS["attention"]


@pytest.mark.parametrize("options", [{}, {"register_tokens": 2}], ids=str)
def test_the_spared_work_of_training_changes_neither_logits_nor_gradients(options):
    """In training the last block computes the class token alone."""
    results = []
    for mode in (True, False):
        model = micro(Double("additive", "prefix", "rotate", "bias"), **options).double()
        logits = model.train(mode)(images().double())
        logits.square().sum().backward()
        gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
        assert None not in gradients.values()  # distributed training would wait for it
        results.append({"logits": logits, **gradients})
    for name, got in results[0].items():
        assert error_in_eps(got, results[1][name]) <= CEILINGS["logits"], name


# --- Attention maps ------------------------------------------------------------------------


@pytest.mark.parametrize("training", [False, True])
def test_asking_for_attention_maps_changes_no_bit_of_the_output(training):
    model = micro(Double("additive", "rotate", "bias"), attention_dropout=0.3, dropout=0.2)
    model.train(training)
    torch.manual_seed(3)
    plain = model.head(model.norm(model.forward_tokens(images())[:, 0]))
    torch.manual_seed(3)
    logits, maps = model(images(), return_attention=True)
    assert torch.equal(logits, plain)
    assert training or torch.equal(logits, model(images()))
    assert [tuple(each.shape) for each in maps] == [(2, 2, 7, 7)] * 2
    for each in maps:
        assert error_in_eps(each.sum(-1), torch.ones(2, 2, 7)) <= CEILINGS["attention"]


def test_attention_maps_under_autocast_are_of_single_precision():
    q, k = torch.randn(2, 1, 2, 7, 8).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        assert attention_weights(q, k, None).dtype == torch.float32


# --- Parts ---------------------------------------------------------------------------------


def test_drop_path_leaves_out_whole_samples_and_keeps_the_mean():
    torch.manual_seed(0)
    drop = DropPath(0.25)
    dropped = drop(torch.ones(4000, 3, 2))
    assert set(dropped.unique().tolist()) == {0.0, float(torch.tensor(1.0) / 0.75)}
    assert torch.equal(dropped[:, :1, :1].expand(-1, 3, 2), dropped)
    assert 0.22 < (dropped[:, 0, 0] == 0.0).float().mean() < 0.28  # four standard deviations
    branch = torch.ones(3, 2)
    assert drop.eval()(branch) is branch


def test_drop_path_grows_with_depth():
    model = micro(Double(depth=5), depth=5, drop_path=0.2)
    blocks = [block for block in model.blocks if isinstance(block, Block)]
    assert [block.drop_path.probability for block in blocks] == pytest.approx(
        [0.0, 0.05, 0.1, 0.15, 0.2]
    )


@pytest.mark.parametrize("scheme", ["trunc_normal", "xavier"])
def test_weights_start_by_the_named_scheme(scheme):
    model = micro_with("weierstrass", weight_init=scheme)
    reference = build_encoding("weierstrass", dim=64, depth=2, num_heads=4, grid=(8, 8))
    assert set(model.encoding.state_dict()) == set(reference.state_dict())
    weight = model.get_parameter("blocks.0.mlp.fc1.weight")
    largest = {"trunc_normal": 2.0, "xavier": (6.0 / (64 + 256)) ** 0.5}[scheme]
    assert weight.abs().max() <= largest
    assert (weight.std() < 0.025) == (scheme == "trunc_normal")
    assert not model.get_parameter("blocks.0.mlp.fc1.bias").any()


@pytest.mark.parametrize("name", available_encodings())
def test_state_dicts_and_copies_give_the_same_model(name):
    model = micro_with(name)
    twin = micro_with(name)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.add_(1.0)
    twin.load_state_dict(model.state_dict())
    want = model(images((8, 8)))
    assert torch.equal(twin(images((8, 8))), want)
    assert torch.equal(copy.deepcopy(model)(images((8, 8))), want)


@pytest.mark.slow
@pytest.mark.parametrize("name", available_encodings())
def test_a_step_compiles_without_a_graph_break(name):
    model = micro_with(name)  # in eval mode: dropout would differ
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    got = compiled(images((4, 4)))
    got.sum().backward()
    assert error_in_eps(got, model(images((4, 4)))) <= CEILINGS["logits"]


class Waves(AbstractEncoding):
    """A bias of one table that all layers share and that depends on what is learned."""

    name, kind, summary, formula = "waves", "bias", "a test", "sin(p)"

    def __init__(self, depth):
        super().__init__(EncodingSize.checked(MICRO["dim"], depth, MICRO["num_heads"], (4, 4)))
        self.p = torch.nn.Parameter(torch.tensor(0.3))

    def bias(self, grid, layer):
        n = grid[0] * grid[1]
        return self.table(("waves", grid), lambda: torch.sin(self.p)).expand(2, n, n)


def test_a_traced_pass_makes_what_the_layers_share_once_and_keeps_sizes_open():
    encoding = Waves(depth=3)
    model = VisionTransformer(encoding, **{**MICRO, "depth": 3})
    graphs = []

    def backend(graph, inputs):
        graphs.append(sum(node.target is torch.sin for node in graph.graph.nodes))
        return graph.forward

    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    for grid in ((4, 4), (5, 6), (6, 7), (7, 9), (9, 5)):
        got, want = compiled(images(grid)), model(images(grid))
        assert error_in_eps(got, want) <= CEILINGS["logits"]
    assert set(graphs) == {1}
    assert len(graphs) <= 3  # from the third size on, one graph for all
    assert encoding._pass.tables is None


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("name", available_encodings())
def test_a_trace_holds_the_table_of_its_size(name):
    model = micro_with(name)
    traced = torch.jit.trace(model, (images((5, 7)),), check_trace=False)
    x = images((5, 7), batch=3) + 1.0
    assert torch.equal(traced(x), model(x))


# A learned table is taken as it is on its own grid and resampled on all others: two graphs.
WITH_A_TABLE = ("learned", "weierstrass_hybrid", "relative_table")
# Values on a lattice that is not learned come from any backend, when the size is known.
ON_A_FIXED_LATTICE = [
    ("weierstrass", {"learnable": False}),
    ("weierstrass_relative", {"learnable": False}),
    ("weierstrass_green", {"learnable": False, "backend": "numpy"}),
    ("weierstrass", {"learnable": False, "backend": "mpmath"}),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {}) for name in available_encodings() if name not in WITH_A_TABLE),
        *ON_A_FIXED_LATTICE,
    ],
)
def test_one_exported_graph_serves_all_sizes(name, options):
    model = micro_with(name, options)
    patch = model.patch_embed.patch_size
    height, width = (patch * torch.export.Dim(side, min=2, max=32) for side in ("h", "w"))
    shapes = {"images": {0: torch.export.Dim("batch", min=2), 2: height, 3: width}}
    program = torch.export.export(model, (images((5, 7)),), dynamic_shapes=shapes)
    for grid in ((5, 7), (3, 9), (8, 8)):
        x = images(grid, batch=3)
        assert error_in_eps(program.module()(x), model(x)) <= CEILINGS["logits"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {}) for name in ("weierstrass", "weierstrass_relative", "weierstrass_green")),
        *ON_A_FIXED_LATTICE,
    ],
)
def test_two_compiled_graphs_serve_all_sizes(name, options):
    model = micro_with(name, options)
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    with torch.no_grad():
        for grid in (
            (4, 4),
            (5, 6),
            (6, 7),
            (7, 9),
            (9, 5),
            (3, 8),
            (8, 3),
            (10, 4),
            (2, 9),
            (9, 3),
        ):
            assert error_in_eps(compiled(images(grid)), model(images(grid))) <= CEILINGS["logits"]
    assert len(graphs) <= 2


@pytest.mark.parametrize("name", available_encodings())
def test_folded_positions_are_those_of_the_model(name):
    model = micro_with(name)
    folded = fold_positions(model, (20, 28))
    x = images((5, 7), batch=3)
    assert torch.equal(folded(x), model(x))
    with pytest.raises(InputError, match=r"folded for 5 x 7 patches, got 7 x 5"):
        folded(images((7, 5)))
    with torch.no_grad():  # it is a copy
        for parameter in model.encoding.parameters():
            parameter.add_(1.0)
    assert torch.equal(fold_positions(folded, (20, 28))(x), folded(x))


def test_what_has_no_positions_is_not_folded():
    with pytest.raises(InputError, match="Linear has no position encoding"):
        fold_positions(torch.nn.Linear(2, 2), 8)
    with pytest.raises(InputError, match="9 x 9 pixels cannot be cut into patches of 4"):
        fold_positions(micro_with("none"), 9)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # from the exporter itself
@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {}) for name in available_encodings()),
        ("liere", {"block": 4, "commuting": True, "per_layer": False}),
        ("combined", {"parts": "weierstrass+liere+weierstrass_heat"}),
    ],
)
def test_onnx_has_the_positions_of_a_size(name, options, tmp_path):
    for library in ("onnx", "onnxscript"):
        pytest.importorskip(library)
    onnxruntime = pytest.importorskip("onnxruntime")
    model = micro_with(name, options)
    x = images((5, 7))
    path = str(tmp_path / "model.onnx")
    folded = fold_positions(model, (20, 28))
    torch.onnx.export(folded, (x,), dynamo=True, verbose=False).save(path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    [given] = session.get_inputs()
    [got] = session.run(None, {given.name: x.numpy()})
    assert error_in_eps(torch.from_numpy(got), model(x)) <= CEILINGS["logits"]


@pytest.mark.parametrize("name", ["weierstrass", "rope_mixed", "weierstrass_relative"])
def test_threads_that_train_one_model_do_not_meet(name):
    model = micro_with(name)
    grids = [(2, 6), (4, 3)]

    def gradients(grid):
        loss = model(images(grid)).square().sum()
        return torch.autograd.grad(loss, list(model.encoding.parameters()))

    want = [gradients(grid) for grid in grids]
    meet = threading.Barrier(2)

    def wrong(index):
        meet.wait()
        found = [gradients(grids[index]) for _ in range(30)]
        same = (all(map(torch.equal, got, want[index])) for got in found)
        return sum(not each for each in same)

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(wrong, range(2))) == [0, 0]


# --- Errors --------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(13, 8), (12, 9), (3, 3), (0, 8)], ids=str)
def test_an_image_the_patches_do_not_fit_is_refused(size):
    with pytest.raises(InputError, match=rf"patch size 4, got {size[0]} x {size[1]}"):
        micro(Double())(torch.zeros(1, 3, *size))


def test_a_single_image_without_a_batch_is_refused():
    with pytest.raises(InputError, match=r"batch, channels, height, width"):
        micro(Double())(torch.zeros(3, 12, 8))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_heads": 3}, "dim=16 is not divisible by num_heads=3"),
        ({"depth": 0}, "depth must be positive"),
        ({"patch_size": -4}, "patch_size must be positive"),
        ({"class_token": False}, "needs class_token=True"),
        ({"pooling": "max"}, "pooling must be"),
        ({"weight_init": "zeros"}, "weight_init must be"),
        ({"register_tokens": -1}, "must not be negative"),
        ({"depth": 3}, "built for depth=2, the model has 3"),
        ({"dim": 32}, "built for dim=16, the model has 32"),
        ({"num_heads": 4}, "built for num_heads=2, the model has 4"),
    ],
    ids=str,
)
def test_a_model_that_cannot_be_built_says_why(options, message):
    with pytest.raises(InputError, match=message):
        micro(Double(), **options)


def test_an_encoding_must_be_one():
    with pytest.raises(InputTypeError, match="got Linear"):
        micro(torch.nn.Linear(2, 2))


def test_building_by_name_says_what_is_wrong():
    with pytest.raises(InputError, match=f"there are {', '.join(VIT_SIZES)}"):
        build_vit("huge", encoding="none")
    with pytest.raises(InputError, match="30 x 32 pixels cannot be cut into patches of 4"):
        build_vit("micro", encoding="learned", image_size=(30, 32))
    with pytest.raises(InputError, match="go with the name of an encoding"):
        build_vit("micro", encoding=Double(), image_size=32)
