"""The model of a config: every shipped one can be built, and is what the config says."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the torch extra is not installed")
pytest.importorskip("pydantic", reason="the training extra is not installed")

import torch
from torch import nn

from training.config import (
    ConfigError,
    available_configs,
    check_files,
    image_size,
    load_config,
    model_shape,
)
from training.encodings import (
    AbstractEncoding,
    EncodingOptionError,
    register_encoding,
    registry,
)
from training.encodings.weierstrass import WeierstrassEncoding
from training.encodings.weierstrass_hybrid import HybridEncoding
from training.models import HybridVisionTransformer, VisionTransformer
from training.models.building import build_model, check_before_run
from training.models.layers import Block
from training.models.pretrained import LoadReport
from verification.tests.encoding_cases import table_of

CLASSES = 10


def parameter_count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("name", available_configs())
def test_model_of_a_shipped_config_can_be_built(name):
    config = load_config(name)
    is_large = config.model.name in ("vit_base", "vit_large")
    with torch.device("meta" if is_large else "cpu"):  # large ones without numbers
        model = build_model(config, CLASSES, 3, pretrained=False)
    shape = model_shape(config)
    assert (model.dim, model.depth, model.num_heads) == shape[:3]
    assert model.patch_embed.patch_size == shape.patch_size
    size = image_size(config)
    assert size is not None
    side = size // shape.patch_size
    assert model.encoding.size.grid == (side, side)
    assert model.encoding.name == config.position_encoding.name
    is_hybrid = isinstance(model, HybridVisionTransformer)
    assert is_hybrid == config.model.name.startswith("dhvt")


@pytest.mark.parametrize(
    "name", ["digits", "cifar100_cpu", "cifar100_dhvt_cpu", "default", "finetune_cifar100_cpu"]
)
def test_small_models_compute(name):
    config = load_config(name)
    torch.manual_seed(0)
    model = build_model(config, CLASSES, 1, pretrained=False)
    side = image_size(config)
    assert side is not None
    logits = model(torch.rand(2, 1, side, side))
    assert logits.shape == (2, CLASSES)
    logits.sum().backward()
    without = [key for key, each in model.named_parameters() if each.grad is None]
    assert without == []


@pytest.mark.parametrize(
    ("name", "count"),
    [
        # experiments.md: the authors' models, counted in their scripts.
        ("cifar100_vit_tiny_weierstrass_authors", 5_507_815),
        ("cifar100_vit_tiny_learned", 5_544_100),
    ],
)
def test_parameters_are_as_many_as_in_the_published_scripts(name, count):
    with torch.device("meta"):
        assert parameter_count(build_model(load_config(name), 100, 3)) == count


def test_the_same_seed_builds_the_same_model():
    config = load_config("digits")

    def weights() -> list[torch.Tensor]:
        torch.manual_seed(3)
        return list(build_model(config, CLASSES, 1).state_dict().values())

    assert all(map(torch.equal, weights(), weights()))


def test_model_options_reach_the_model():
    config = load_config(
        "digits",
        [
            "model.dim=48",
            "model.depth=3",
            "model.num_heads=2",
            "model.register_tokens=2",
            "model.pooling=mean",
            "model.patch_norm=true",
            "model.dropout=0.1",
            "model.attention_dropout=0.2",
            "model.drop_path=0.3",
        ],
    )
    model = build_model(config, CLASSES, 1)
    assert isinstance(model, VisionTransformer)
    assert (model.dim, model.depth, model.num_heads, model.n_prefix) == (48, 3, 2, 3)
    assert model.pooling == "mean"
    assert isinstance(model.patch_embed.norm, nn.LayerNorm)
    assert model.pos_drop.p == 0.1
    first, last = model.blocks[0], model.blocks[-1]
    assert isinstance(first, Block)
    assert isinstance(last, Block)
    assert first.attn.attn_drop.p == 0.2
    assert last.drop_path.probability == 0.3


def test_weights_start_by_the_scheme_named():
    def spread(scheme: str) -> float:
        torch.manual_seed(0)
        model = build_model(load_config("digits", [f"model.weight_init={scheme}"]), CLASSES, 1)
        return float(model.get_parameter("blocks.0.mlp.fc1.weight").detach().std())

    assert spread("trunc_normal") < 0.025 < 0.05 < spread("xavier")


def test_encoding_options_and_backend_reach_the_encoding():
    learnable = "position_encoding.options.learnable=false"
    model = build_model(
        load_config("digits", [learnable, "position_encoding.backend=mpmath"]), CLASSES, 1
    )
    assert isinstance(model.encoding, WeierstrassEncoding)
    assert model.encoding.options.backend == "mpmath"
    assert table_of(model.encoding, (4, 4)).isfinite().all()
    default = build_model(load_config("digits"), CLASSES, 1).encoding
    assert isinstance(default, WeierstrassEncoding)
    assert default.options.backend == "torch"


def test_backend_of_a_hybrid_is_that_of_its_part():
    config = load_config(
        "digits",
        [
            "position_encoding.name=weierstrass_hybrid",
            "position_encoding.options.table=fresh",
            "position_encoding.options.wef=weierstrass",
            "position_encoding.options.wef_options.learnable=false",
            "position_encoding.backend=numpy",
        ],
    )
    hybrid = build_model(config, CLASSES, 1).encoding
    assert isinstance(hybrid, HybridEncoding)
    assert isinstance(hybrid.wef, WeierstrassEncoding)
    assert hybrid.wef.options.backend == "numpy"


def test_head_has_the_layers_and_dropouts_given():
    config = load_config(
        "digits", ["model.head_layers=[0.5, 0.25]", "model.head_dropouts=[0.5, 0.4, 0.3]"]
    )
    head = build_model(config, CLASSES, 1).head
    assert isinstance(head, nn.Sequential)
    linear = [(each.in_features, each.out_features) for each in head if isinstance(each, nn.Linear)]
    assert linear == [(64, 32), (32, 16), (16, CLASSES)]
    assert [each.p for each in head if isinstance(each, nn.Dropout)] == [0.5, 0.4, 0.3]
    assert sum(isinstance(each, nn.GELU) for each in head) == 2
    assert isinstance(head[0], nn.Dropout)
    assert isinstance(head[-1], nn.Linear)


def test_linear_head_may_have_a_dropout():
    head = build_model(load_config("digits", ["model.head_dropouts=[0.2]"]), CLASSES, 1).head
    assert isinstance(head, nn.Sequential)
    assert [type(each) for each in head] == [nn.Dropout, nn.Linear]
    assert isinstance(build_model(load_config("digits"), CLASSES, 1).head, nn.Linear)


@pytest.mark.parametrize("std", [0.02, 0.8])
@pytest.mark.parametrize("name", ["learned", "sincos2d", "weierstrass"])
def test_scale_match_sets_the_root_mean_square_of_the_table(name, std):
    given = [f"position_encoding.name={name}", f"position_encoding.scale_match={std}"]
    torch.manual_seed(1)
    matched = build_model(load_config("cifar100_cpu", given), CLASSES, 3).encoding
    table = table_of(matched, (8, 8)).double()
    assert float(table.square().mean().sqrt()) == pytest.approx(std)
    torch.manual_seed(1)
    plain = build_model(load_config("cifar100_cpu", given[:1]), CLASSES, 3).encoding
    other = table_of(plain, (8, 8)).double()
    assert float(other.square().mean().sqrt()) != pytest.approx(std, rel=0.05) or (
        (name, std) in {("learned", 0.02), ("weierstrass", 0.8)}
    )
    # The same table but for a factor.
    cosine = nn.functional.cosine_similarity(table.flatten(), other.flatten(), dim=0)
    assert float(cosine) == pytest.approx(1.0, abs=1e-3)
    names = [key for key, _ in plain.named_parameters()]
    assert [key for key, _ in matched.named_parameters()] == names


def test_weights_are_loaded_and_the_head_is_new(tmp_path):
    from safetensors.torch import save_file

    overrides = ["position_encoding.name=learned", "model.positions=resample"]
    torch.manual_seed(0)
    source = build_model(load_config("digits", overrides[:1]), 7, 1)
    weights = dict(source.state_dict())
    weights["pos_embed"] = torch.rand(1, 1 + 16, 64)
    path = tmp_path / "weights.safetensors"
    save_file({k: v for k, v in weights.items() if not k.startswith("encoding.")}, path)

    reports: list[LoadReport] = []
    config = load_config("digits", [*overrides, f"model.checkpoint={path}"])
    model = build_model(config, CLASSES, 1, on_load=reports.append)
    weight = "blocks.2.mlp.fc1.weight"
    assert torch.equal(model.get_parameter(weight), source.get_parameter(weight))
    assert torch.allclose(table_of(model.encoding, (4, 4)), weights["pos_embed"][0, 1:])
    assert model.head.out_features == CLASSES
    assert reports[0].source == path
    untouched = build_model(config, CLASSES, 1, pretrained=False, on_load=reports.append)
    assert not torch.equal(untouched.get_parameter(weight), source.get_parameter(weight))
    assert len(reports) == 1


def test_missing_weights_and_images_are_found_before_any_work(tmp_path):
    config = load_config(
        "vtab_svhn_cpu", ["model.checkpoint=nowhere/w.npz", f"data.path={tmp_path}/no"]
    )
    with pytest.raises(ConfigError) as caught:
        check_files(config)
    assert [problem.key for problem in caught.value.problems] == ["model.checkpoint", "data.path"]
    assert "nowhere" in str(caught.value)


def test_files_are_looked_for_from_the_working_directory(tmp_path, monkeypatch):
    config = load_config("vtab_svhn_cpu", ["model.checkpoint=w/model.npz", "data.path=images"])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "images").mkdir()
    (tmp_path / "w").mkdir()
    with pytest.raises(ConfigError, match="no such file"):
        check_files(config)
    (tmp_path / "w" / "modle.npz").touch()
    with pytest.raises(ConfigError, match=r"did you mean modle\.npz"):
        check_files(config)
    (tmp_path / "w" / "model.npz").touch()
    check_files(config)


def test_an_encoding_of_others_that_cannot_be_built_is_refused_before_a_run(monkeypatch):
    monkeypatch.setattr(registry, "_ENCODINGS", dict(registry._ENCODINGS))

    @register_encoding
    class Stubborn(AbstractEncoding):
        name, kind, summary, formula = "stubborn", "none", "refuses to be built", "x_i"

        def __init__(self, size, options):
            raise EncodingOptionError("only on Sundays")

    config = load_config("digits", ["position_encoding.name=stubborn"])
    torch.manual_seed(5)
    for call in (check_before_run, lambda config: build_model(config, CLASSES, 1)):
        with pytest.raises(ConfigError, match="only on Sundays") as caught:
            call(config)
        assert [problem.key for problem in caught.value.problems] == ["position_encoding.options"]
    check_before_run(load_config("digits"))
    after = torch.rand(3)
    torch.manual_seed(5)
    assert torch.equal(after, torch.rand(3))


def test_configs_without_files_need_none():
    check_files(load_config("digits"))


def test_weights_of_the_hub_need_its_library(monkeypatch):
    import training.config.rules as module

    config = load_config("finetune_cifar100_vit_base")
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="huggingface_hub"):
        check_files(config)
    monkeypatch.setattr(module, "find_spec", lambda name: object())
    check_files(config)
