"""Bad configs: refused before anything starts, by key, value and file, all at once."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the torch extra is not installed")
pytest.importorskip("pydantic", reason="the training extra is not installed")

from pydantic import ValidationError

from training.config import ConfigError, Experiment, available_configs, load_config
from wefpe_core import registry


def refusal(*overrides: str, of: str = "digits") -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load_config(of, overrides)
    return caught.value


def only_problem(*overrides: str, of: str = "digits"):
    (problem,) = refusal(*overrides, of=of).problems
    return problem


@pytest.mark.parametrize(
    ("override", "key", "suggestion"),
    [
        ("training.epoch=3", "training.epoch", "did you mean epochs?"),
        ("optimizer.learningrate=1", "optimizer.learningrate", "did you mean learning_rate?"),
        ("trainign.epochs=3", "trainign", "did you mean training?"),
        ("epochs=3", "epochs", "did you mean training.epochs?"),
        ("training.learning_rate=1", "training.learning_rate", "optimizer.learning_rate?"),
        ("optimizer.lr=1", "optimizer.lr", "there are name, learning_rate, weight_decay"),
        (
            "augmentation.random_resized_crop.scales=[0.5,1]",
            "augmentation.random_resized_crop.scales",
            "no such key",
        ),
    ],
)
def test_unknown_key_is_named_and_the_nearest_suggested(override, key, suggestion):
    problem = only_problem(override)
    assert problem.key == key
    assert suggestion in problem.message
    assert override in problem.source


def test_values_that_are_wrong_hide_nothing_that_does_not_go_together():
    problems = refusal(
        "optimizer.learning_rate=fast",
        "model.num_heads=5",
        "training.epoch=3",
        "selection.by=last",
        "selection.patience=3",
        "augmentation.cutout=1000",
        "position_encoding.options.features=3",
    ).problems
    assert [problem.key for problem in problems] == [
        "training.epoch",
        "optimizer.learning_rate",
        "model.num_heads",
        "augmentation.cutout",
        "selection.patience",
        "position_encoding.options.features",
    ]
    keys = [p.key for p in refusal("optimizer.betas=0", "position_encoding.options.k=1").problems]
    assert keys == ["optimizer.betas", "position_encoding.options.k"]


def test_a_wrong_model_hides_nothing_that_is_wrong_with_the_encoding_itself():
    error = refusal("model.name=vit_foo", "position_encoding.name=wef-pe")
    assert [each.key for each in error.problems] == ["model.name", "position_encoding.name"]
    assert "did you mean weierstrass?" in str(error)
    options = [f"position_encoding.options.{each}" for each in ("featurs=2", "alpha_u=text")]
    error = refusal("training.epochs=-1", "position_encoding.backend=sympy", *options)
    assert [each.key for each in error.problems] == [
        "training.epochs",
        "position_encoding.backend",
        "position_encoding.options.alpha_u",
        "position_encoding.options.featurs",
    ]


def test_nothing_is_said_about_values_that_could_not_be_read():
    assert only_problem("model.dim=wide", "model.num_heads=5").key == "model.dim"
    assert only_problem("data.validation=few", "selection.by=validation").key == "data.validation"
    # Whether an encoding suits the model is judged once there is a model.
    assert only_problem("model=3", "position_encoding.name=weierstrass_hybrid").key == "model"


@pytest.mark.parametrize(
    ("override", "must"),
    [
        ("training.epochs=3.0", "an integer"),
        ("training.epochs=true", "an integer"),
        ("training.epochs=three", "an integer"),
        ('optimizer.learning_rate="1e-3"', "a number"),
        ("training.compile=1", "true or false"),
        ("model.patch_size=large", 'an integer or "unset"'),
        ("optimizer.betas=0.9", "a list"),
        ("optimizer.betas=[0.9]", "missing"),
        ("optimizer.betas=[0.9, 0.9, 0.9]", "2 entries"),
        ("optimizer.betas=[0.9, x]", "a list"),
        ("training=3", "a table"),
        ("training.epochs.x=3", "an integer"),
        ("data.image_size={a = 1}", "an integer"),
        ("position_encoding.options=3", "a table"),
        ("position_encoding.options.alpha_u=1979-05-27", "must be a number"),
    ],
)
def test_wrong_type_is_refused(override, must):
    problem = only_problem(override)
    assert must in problem.message
    assert problem.key.startswith(override.partition("=")[0].removesuffix(".x"))


@pytest.mark.parametrize(
    ("override", "must"),
    [
        ("training.epochs=0", "at least 1"),
        ("seed=-1", "at least 0"),
        ("model.dropout=1.0", "below 1"),
        ("model.dropout=-0.1", "at least 0"),
        ("optimizer.learning_rate=0", "above 0"),
        ("optimizer.learning_rate=inf", "finite"),
        ("optimizer.learning_rate=nan", "finite"),
        ("augmentation.flip=1.5", "at most 1"),
        ("augmentation.hue=0.6", "at most 0.5"),
        ("optimizer.betas=[0.9, 1.0]", "below 1"),
        ("position_encoding.scale_match=0", "above 0"),
        ("position_encoding.options.alpha_u=-1.0", "above 0"),
    ],
)
def test_out_of_range_is_refused(override, must):
    assert must in only_problem(override).message


@pytest.mark.parametrize(
    ("override", "hint"),
    [
        ("model.name=vit_tinny", "did you mean vit_tiny?"),
        ("model.positions=hybird", "did you mean hybrid?"),
        ("position_encoding.name=weierstras", "did you mean weierstrass?"),
        ("position_encoding.options.alpha=0.4", "alpha_u"),
        ("position_encoding.options.featurs=2", "did you mean features?"),
    ],
)
def test_unknown_choice_is_refused_and_the_nearest_suggested(override, hint):
    assert hint in only_problem(override).message


COMBINATIONS = [
    (["model.patch_size=3"], "model.patch_size", "8 x 8"),
    (["data.image_size=33", "model.patch_size=unset"], "data.image_size", "33 x 33"),
    (["model.num_heads=5"], "model.num_heads", "64 is not divisible by 5"),
    (["model.dim=66"], "model.dim", "not divisible by 4 heads"),
    (["position_encoding.backend=numpy"], "position_encoding.backend", "learnable=false"),
    (["position_encoding.backend=mpmath"], "position_encoding.backend", "learnable=false"),
    (
        ["position_encoding.name=learned", "position_encoding.backend=numpy"],
        "position_encoding.backend",
        "no elliptic function",
    ),
    (
        ["position_encoding.name=combined", "position_encoding.backend=numpy"],
        "position_encoding.backend",
        "names its own backend, as in 'weierstrass:learnable=false;backend=numpy'",
    ),
    (
        ["position_encoding.options.backend=numpy"],
        "position_encoding.options.backend",
        "position_encoding.backend",
    ),
    (
        ["position_encoding.options.fidelity=paper", "position_encoding.options.lattice=general"],
        "position_encoding.options",
        "fidelity='corrected'",
    ),
    (["position_encoding.name=weierstrass_hybrid"], "position_encoding.name", "model.checkpoint"),
    (
        ["position_encoding.name=rope_axial", "position_encoding.scale_match=0.8"],
        "position_encoding.scale_match",
        "no one strength",
    ),
    (
        ["position_encoding.options.strength=0.5", "position_encoding.scale_match=0.8"],
        "position_encoding.scale_match",
        "strength already",
    ),
    (["model.checkpoint=x.npz"], "model.positions", "'replace'"),
    (
        ["model.dim=6", "model.num_heads=1", "position_encoding.name=sincos2d"],
        "position_encoding.name",
        "divisible by 4",
    ),
    (["selection.by=test"], "selection.by", "read once"),
    (["data.validation=0", "selection.by=validation"], "selection.by", "no validation images"),
    (["selection.by=last", "selection.patience=3"], "selection.patience", "validation"),
    (["selection.by=last", "selection.retrain_on_all=true"], "selection.retrain_on_all", "needs"),
    (["data.labels=coarse"], "data.labels", "only cifar100"),
    (["data.mean=[0.5]"], "data.mean", "data.std"),
    (["data.mean=[0.5]", "data.std=[0.5, 0.5]"], "data.std", "channels"),
    (["data.mean=[0.5]", "data.std=[0.0]"], "data.std", "positive"),
    (["data.validation=1437"], "data.validation", "only 1437"),
    (["data.train_images=1400"], "data.train_images", "at most 1317"),
    (["training.batch_size=2000"], "training.batch_size", "less than one batch"),
    (["training.accumulation=3"], "training.accumulation", "not divisible"),
    (["model.class_token=false"], "model.pooling", "class token"),
    (["model.head_layers=[0.5]", "model.head_dropouts=[0.1]"], "model.head_dropouts", "2 dropouts"),
    (["model.head_dropouts=[0.1, 0.1]"], "model.head_dropouts", "one at most"),
    (["model.head_layers=[0.001]"], "model.head_layers", "narrower"),
    (["model.name=dhvt_tiny", "model.patch_norm=false"], "model.weight_init", "trunc_normal"),
    (["model.name=dhvt_tiny", "model.weight_init=trunc_normal"], "model.patch_norm", "False only"),
    (
        [
            "model.name=dhvt_tiny",
            "model.weight_init=trunc_normal",
            "model.patch_norm=false",
            "model.patch_size=8",
        ],
        "model.patch_size",
        "2, 4 or 16",
    ),
    (
        ["optimizer.backbone_rate=0", "optimizer.encoding_rate=0", "optimizer.head_rate=0"],
        "optimizer.backbone_rate",
        "nothing is trained",
    ),
    (["augmentation.crop_padding=9"], "augmentation.crop_padding", "8 pixels"),
    (["augmentation.cutout=9"], "augmentation.cutout", "8 pixels"),
    (
        ["augmentation.mixup_alpha=0", "augmentation.mixup_alpha_warmup=0.1"],
        "augmentation.mixup_alpha_warmup",
        "off",
    ),
    (["augmentation.hue=0.1"], "augmentation.hue", "no colours"),
    (
        ["augmentation.random_resized_crop.scale=[0.9, 0.5]"],
        "augmentation.random_resized_crop.scale",
        "above the second",
    ),
    (
        ["augmentation.random_resized_crop.scale=[0.5, 1.5]"],
        "augmentation.random_resized_crop.scale",
        "whole image",
    ),
]


@pytest.mark.parametrize(
    ("overrides", "key", "reason"), COMBINATIONS, ids=[" ".join(row[0]) for row in COMBINATIONS]
)
def test_impossible_combination_is_refused(overrides, key, reason):
    problem = only_problem(*overrides)
    assert problem.key == key
    assert reason in problem.message
    assert any(override in problem.source for override in overrides) or (
        problem.source in ("digits.toml", "default.toml")
    )


def test_unknown_backend_lists_those_that_exist_and_how_to_install_others(monkeypatch):
    monkeypatch.setattr(registry, "_is_installed", lambda row: row.name in ("numpy", "torch"))
    problem = only_problem("position_encoding.backend=nunpy")
    assert problem.key == "position_encoding.backend"
    assert "available: numpy, torch" in problem.message
    assert "flint (pip install 'wefpe[flint]')" in problem.message
    assert problem.message.endswith("did you mean numpy?")


def test_backend_that_is_not_installed_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(registry, "_is_installed", lambda row: row.name != "jax")
    registry._build.cache_clear()
    problem = only_problem("position_encoding.backend=jax")
    assert problem.key == "position_encoding.backend"
    assert "pip install 'wefpe[jax]'" in problem.message


def test_folders_need_a_path_and_a_size():
    keys = [problem.key for problem in refusal("data.name=folder", "data.validation=5").problems]
    assert keys == ["data.path", "data.image_size"]


def test_vtab_has_its_own_validation_images():
    problem = only_problem("data.validation=100", of="vtab_svhn_cpu")
    assert problem.key == "data.validation"
    assert "200" in problem.message


@pytest.mark.parametrize("positions", ["resample", "replace"])
def test_hybrid_takes_the_pretrained_table(positions):
    problem = only_problem(f"model.positions={positions}", of="vtab_svhn_cpu")
    assert problem.key == "model.positions"
    assert "'hybrid'" in problem.message


def test_rules_hold_for_experiments_made_in_python():
    with pytest.raises(ValidationError, match="not divisible"):
        Experiment.model_validate({"model": {"num_heads": 5}})


def test_everything_that_is_wrong_is_listed(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        "[training]\nepoch = 3\nbatch_size = 0\n"
        "[optimizer]\nlearning_rate = 'fast'\n"
        "[modle]\nx = 1\n"
    )
    error = refusal("selection.by=test", "nonsense", of=path)
    assert {problem.key for problem in error.problems} == {
        "",
        "training.epoch",
        "training.batch_size",
        "optimizer.learning_rate",
        "modle",
        "selection.by",
    }
    text = str(error)
    assert "6 things are wrong" in text
    for problem in error.problems:
        assert problem.source == str(path) or problem.source.startswith("override '")
        assert str(problem) in text


def test_the_file_that_said_it_is_named(tmp_path):
    lower, upper = tmp_path / "lower.toml", tmp_path / "upper.toml"
    lower.write_text("[training]\nepochs = 0\n")
    upper.write_text('base = "lower.toml"\n[training]\nbatch_size = 0\n')
    sources = {problem.key: problem.source for problem in refusal(of=upper).problems}
    assert sources == {"training.epochs": str(lower), "training.batch_size": str(upper)}


@pytest.mark.parametrize("text", ["training.epochs", "=3", "training..epochs=3", ".=1", ""])
def test_override_that_is_none_is_named(text):
    problem = only_problem(text)
    assert repr(text) in problem.source
    assert "key=value" in problem.message


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("training.epochs=3", 3),
        ("training.epochs = 3", 3),
        ("optimizer.learning_rate=1e-4", 1e-4),
        ("optimizer.learning_rate=1", 1.0),
        ("training.compile=true", True),
        ("training.precision=bf16", "bf16"),
        ('training.precision="bf16"', "bf16"),
        ("data.path=/some/where else", "/some/where else"),
        ("data.path=2024", "2024"),
        ("data.path=true", "true"),
        ("data.path=a#b=c", "a#b=c"),
        ("data.path='a#b'", "a#b"),
        ("data.path=", ""),
        ("optimizer.betas=[0.8, 0.9]", (0.8, 0.9)),
        ("model.head_layers=[0.5]", (0.5,)),
        ("model.head_layers=[]", ()),
        ("data.image_size=unset", None),
        ("data.image_size=16", 16),
    ],
)
def test_override_is_read_as_toml_or_text(override, value):
    config = load_config("digits", [override])
    section, key = override.partition("=")[0].strip().split(".")
    assert getattr(getattr(config, section), key) == value


def test_the_last_override_wins():
    assert load_config("digits", ["seed=1", "seed=2"]).seed == 2


@pytest.mark.parametrize("override", ["training.epochs=3#4", "training.epochs=3\nseed=1"])
def test_override_cannot_hide_a_second_value(override):
    assert "an integer" in only_problem(override).message


def test_unknown_config_lists_near_misses():
    assert "did you mean digits?" in str(refusal(of="digitz"))
    assert "cifar100_vit_tiny_learned" in str(refusal(of="cifar100_vit_tiny_lerned"))


def test_unknown_config_without_a_near_miss_lists_all():
    text = str(refusal(of="q"))
    assert all(name in text for name in available_configs())


def test_missing_file_names_the_path_and_a_near_miss(tmp_path):
    (tmp_path / "mine.toml").write_text("")
    text = str(refusal(of=str(tmp_path / "mien.toml")))
    assert str(tmp_path / "mien.toml") in text
    assert "did you mean mine.toml?" in text
    assert "is a directory" in str(refusal(of=tmp_path))


def test_missing_base_names_the_file_that_asked(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('base = "digitz"\n')
    text = str(refusal(of=path))
    assert str(path) in text
    assert "digits?" in text
    path.write_text("base = 3\n")
    assert "base = 3" in str(refusal(of=path))


def test_bases_in_a_circle_are_refused(tmp_path):
    (tmp_path / "a.toml").write_text('base = "b.toml"\n')
    (tmp_path / "b.toml").write_text('base = "a.toml"\n')
    assert "a.toml -> b.toml -> a.toml" in str(refusal(of=tmp_path / "a.toml"))


def test_broken_toml_names_file_and_line(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("seed = 1\nseed = 2\n")
    text = str(refusal(of=path))
    assert str(path) in text
    assert "line 2" in text


def test_a_file_that_is_no_text_is_refused(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_bytes(b"\xff\xfe\x00")
    assert str(path) in str(refusal(of=path))


def test_long_values_are_cut():
    text = str(refusal(f"model.name={'x' * 500}"))
    assert len(text) < 400
