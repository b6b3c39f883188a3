"""Configs: the default is complete, the shipped ones are valid, what is written reads back."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

pytest.importorskip("torch", reason="the torch extra is not installed")
pytest.importorskip("pydantic", reason="the training extra is not installed")

from training.config import (
    ConfigError,
    Experiment,
    all_keys,
    available_configs,
    change_config,
    config_hash,
    dump_toml,
    hashes_of_file,
    load_config,
    schema,
)
from training.config.load import shipped_folder
from training.encodings import available_encodings

DEFAULT = shipped_folder() / "default.toml"
EXPERIMENTS = sorted(set(available_configs()) - {"default"})


def leaves(table: dict[str, Any], keys: list[str], prefix: str = "") -> dict[str, Any]:
    """Values of a nested table by dotted key, down to the keys of the schema."""
    found: dict[str, Any] = {}
    for name, value in table.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict) and key not in keys:
            found |= leaves(value, keys, f"{key}.")
        else:
            found[key] = value
    return found


def test_default_file_names_every_key_of_the_schema_and_no_other():
    keys = list(all_keys())
    assert len(keys) > 60
    assert list(leaves(tomllib.loads(DEFAULT.read_text()), keys)) == keys


def test_default_file_has_the_defaults_of_the_schema():
    assert load_config("default") == Experiment()


def test_an_empty_file_is_the_default(tmp_path):
    path = tmp_path / "empty.toml"
    path.write_text("")
    assert load_config(path) == Experiment()


def test_every_key_of_the_default_is_explained():
    """Each assignment has a comment above it, or above the block of keys it belongs to."""
    lines = DEFAULT.read_text().splitlines()
    for number, line in enumerate(lines):
        if re.match(r"\w+ = ", line):
            above = number - 1
            while re.match(r"\w+ = ", lines[above]):
                above -= 1
            assert lines[above].startswith("# "), f"line {number + 1}: {line}"


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_shipped_config_is_valid_and_opens_with_purpose_and_command(name):
    config = load_config(name)
    lines = (shipped_folder() / f"{name}.toml").read_text().splitlines()
    assert lines[0] == f"# {available_configs()[name]}"
    assert lines[0].endswith((".", "more."))
    assert re.search(r"\d\d\.\d\d %|[Nn]ot in the paper|A control|no download", lines[0])
    assert any(line.startswith(f"#     wefpe train {name}") for line in lines[:4])
    assert max(map(len, lines)) <= 100
    assert config != Experiment()


def test_shipped_configs_differ_from_one_another():
    names: dict[str, list[str]] = {}
    for name in available_configs():
        names.setdefault(hash_of(name), []).append(name)
    assert [twins for twins in names.values() if len(twins) > 1] == []


def hash_of(name: str) -> str:
    return config_hash(load_config(name))


def test_every_encoding_that_needs_no_pretrained_table_has_a_config_from_scratch():
    prefix = "cifar100_vit_tiny_"
    shipped = {
        load_config(name).position_encoding.name
        for name in EXPERIMENTS
        if name.startswith(prefix) and "ablation" not in name
    }
    assert shipped == set(available_encodings()[:18]) - {"weierstrass_hybrid"}


def test_recipe_from_scratch_is_that_of_the_published_script():
    """experiments.md 1.1"""
    config = load_config("cifar100_vit_tiny_learned")
    assert (config.training.epochs, config.training.batch_size) == (120, 160)
    assert (config.training.label_smoothing, config.training.clip_norm) == (0.08, 0.8)
    assert (config.optimizer.learning_rate, config.optimizer.weight_decay) == (1.5e-3, 0.03)
    assert (config.schedule.warmup_epochs, config.schedule.per) == (15, "step")
    augmentation = config.augmentation
    assert (augmentation.crop_padding, augmentation.flip, augmentation.cutout) == (4, 0.5, 12)
    assert (augmentation.mixup_alpha, augmentation.mixup_alpha_warmup) == (0.3, 0.15)
    assert augmentation.mix_probability == 0.6
    model = config.model
    assert (model.dropout, model.attention_dropout, model.drop_path) == (0.05, 0.05, 0.05)


def test_three_rates_of_fine_tuning_are_those_of_the_paper():
    optimizer = load_config("finetune_cifar100_vit_base").optimizer
    assert optimizer.learning_rate == 8e-4
    assert (optimizer.backbone_rate, optimizer.encoding_rate, optimizer.head_rate) == (
        0.05,
        0.8,
        1.0,
    )


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_dump_reads_back_equal(name, tmp_path):
    config = load_config(name)
    path = tmp_path / "config.toml"
    path.write_text(dump_toml(config), encoding="utf-8")
    again = load_config(path)
    assert again == config
    assert dump_toml(again) == dump_toml(config)
    assert config_hash(again) == config_hash(config)


def test_dump_names_every_key():
    keys = list(all_keys())
    assert set(leaves(tomllib.loads(dump_toml(Experiment())), keys)) == set(keys)


@given(
    path=st.text(st.characters(exclude_categories=["Cs"])),
    rate=st.floats(min_value=5e-324, allow_infinity=False, allow_nan=False),
    betas=st.tuples(*[st.floats(0, 1, exclude_max=True)] * 2),
    option=st.floats(min_value=5e-324, max_value=1e300),
)
def test_dump_reads_back_any_text_and_number(path, rate, betas, option):
    config = Experiment.model_validate(
        {
            "data": {"path": path},
            "optimizer": {"learning_rate": rate, "betas": betas},
            "position_encoding": {"name": "learned", "options": {"initial_std": option}},
        }
    )
    assert Experiment.model_validate(tomllib.loads(dump_toml(config))) == config


def test_dump_writes_options_of_options(tmp_path):
    config = load_config(
        "vtab_svhn_cpu",
        [
            "position_encoding.options.fidelity=authors",
            "position_encoding.options.wef_options.recipe=svhn",
        ],
    )
    path = tmp_path / "config.toml"
    path.write_text(dump_toml(config))
    assert load_config(path).position_encoding.options["wef_options"] == {"recipe": "svhn"}
    assert load_config(path) == config


def test_hash_is_the_same_in_another_process_and_order():
    script = (
        "from training.config import config_hash, load_config;"
        "print(config_hash(load_config('vtab_svhn_cpu')))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "12345"}
    output = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert output.stdout.strip() == hash_of("vtab_svhn_cpu")


@pytest.mark.parametrize(
    "override",
    [
        "logging.every_steps=7",
        "logging.tensorboard=false",
        "checkpoint.every_steps=3",
        "checkpoint.keep=9",
        "training.threads=3",
        "data.path=/elsewhere",
        "data.download=true",
    ],
)
def test_hash_ignores_what_has_no_effect_on_the_numbers(override):
    assert config_hash(load_config("digits", [override])) == hash_of("digits")


@pytest.mark.parametrize(
    "override",
    [
        "seed=1",
        "training.epochs=19",
        "optimizer.betas=[0.9, 0.98]",
        "position_encoding.options.features=2",
        "augmentation.random_resized_crop.scale=[0.5, 1.0]",
        "data.validation=181",
    ],
)
def test_hash_notices_what_has_an_effect(override):
    assert config_hash(load_config("digits", [override])) != hash_of("digits")


class TrainingWithAnotherKey(schema.Training):
    another: int = 3


class CropWithAnotherKey(schema.RandomResizedCrop):
    another: float = 0.5


class AugmentationWithAnotherKey(schema.Augmentation):
    random_resized_crop: CropWithAnotherKey | None = None


class LaterExperiment(Experiment):
    """The schema with a new key in a section, one in an optional table, and a new section."""

    training: TrainingWithAnotherKey = Field(default_factory=TrainingWithAnotherKey)
    augmentation: AugmentationWithAnotherKey = Field(default_factory=AugmentationWithAnotherKey)
    another: TrainingWithAnotherKey = Field(default_factory=TrainingWithAnotherKey)


@pytest.mark.parametrize("name", available_configs())
def test_a_new_key_with_a_default_leaves_the_hash(name):
    config = load_config(name)
    table = config.model_dump(exclude={"augmentation": {"random_resized_crop"}})
    crop = config.augmentation.random_resized_crop
    if crop is not None:
        table["augmentation"]["random_resized_crop"] = crop.model_dump()
    later = LaterExperiment.model_validate(table)
    assert later.training.another == 3
    assert config_hash(later) == config_hash(config)
    table["training"]["another"] = 4
    assert config_hash(LaterExperiment.model_validate(table)) != config_hash(config)


def test_a_new_version_of_the_schema_changes_the_hash(monkeypatch):
    before = hash_of("digits")
    monkeypatch.setattr("training.config.dump.SCHEMA_VERSION", schema.SCHEMA_VERSION + 1)
    assert hash_of("digits") != before


def test_a_key_with_its_default_and_a_table_of_defaults_are_told_apart():
    crop = "augmentation.random_resized_crop"
    digits = load_config("digits", [f"{crop}=unset", "training.label_smoothing=0.1"])
    assert config_hash(digits) == config_hash(load_config("digits", [f"{crop}=unset"]))
    cropped = load_config("digits", [f"{crop}.scale=[0.08, 1.0]", f"{crop}.ratio=[0.75, {4 / 3}]"])
    assert cropped.augmentation.random_resized_crop == schema.RandomResizedCrop()
    assert config_hash(cropped) != config_hash(digits)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("position_encoding.options.g2=1", "position_encoding.options.g2=1.0"),
        ("schedule.warmup_epochs=3", "schedule.warmup_epochs=3.0"),
        ("optimizer.betas=[0, 0.5]", "optimizer.betas=[0.0, 0.5]"),
    ],
)
def test_hash_does_not_depend_on_how_a_number_is_given(one, other):
    first, second = (config_hash(load_config("digits", [each])) for each in (one, other))
    assert first == second
    assert first != hash_of("digits")


def test_hash_is_the_same_for_tuples_and_lists():
    table: dict[str, Any] = {"optimizer": {"betas": [0.8, 0.9]}}
    first = Experiment.model_validate(table)
    table["optimizer"]["betas"] = (0.8, 0.9)
    assert config_hash(first) == config_hash(Experiment.model_validate(table))


def test_a_run_is_known_by_the_hash_from_before_schema_versions_and_by_the_present_one():
    part = Path(__file__).parents[3] / "docs" / "results" / "scratch"
    path = part / "configs" / "none.toml"
    config = load_config(path)
    with (part / "runs.csv").open(encoding="utf-8") as file:
        rows = {(row["encoding"], row["seed"]): row["config_hash"] for row in csv.DictReader(file)}
    old = rows["none", str(config.seed)]
    assert hashes_of_file(path) == {old, config_hash(config)}
    assert old != config_hash(config)


def test_hash_knows_weights_and_folders_by_name_wherever_they_are():
    def of(weights: str, images: str) -> str:
        given = [f"model.checkpoint={weights}", f"data.path={images}"]
        return config_hash(load_config("vtab_svhn_cpu", given))

    assert of("a/w/m.npz", "x/v/svhn") == of("/b/w/m.npz", "/y/v/svhn")
    assert of("a/w/m.npz", "v/svhn") != of("a/other/m.npz", "v/svhn")
    assert of("a/w/m.npz", "v/svhn") != of("a/w/m.npz", "v/dmlab")


def test_base_is_a_shipped_name_or_a_file_beside(tmp_path):
    (tmp_path / "lower.toml").write_text(
        'base = "digits"\n[training]\nepochs = 7\nbatch_size = 32\n'
    )
    upper = tmp_path / "upper.toml"
    upper.write_text('base = "lower.toml"\n[training]\nepochs = 9\n')
    config = load_config(upper)
    assert (config.training.epochs, config.training.batch_size) == (9, 32)
    assert config.data.name == "digits"


def test_a_file_in_the_working_directory_does_not_stand_in_for_a_shipped_config(
    tmp_path, monkeypatch
):
    (tmp_path / "digits.toml").write_text("[training]\nepochs = 1\n")
    monkeypatch.chdir(tmp_path)
    assert load_config("digits").training.epochs == 30
    assert load_config("digits.toml").training.epochs == 1


def test_naming_another_encoding_starts_without_options():
    name = "cifar100_vit_tiny_ablation_invariants"
    assert load_config(name).position_encoding.options["g3"] == 0.2
    other = load_config(
        name, ["position_encoding.options.temperature=100", "position_encoding.name=sincos2d"]
    )
    assert other.position_encoding.options == {"temperature": 100}
    same = load_config(name, ["position_encoding.name=weierstrass"])
    assert same.position_encoding.options["g3"] == 0.2


def test_options_of_a_base_are_merged_and_can_be_unset():
    name = "cifar100_vit_tiny_ablation_features"
    assert load_config(name).position_encoding.options == {"fidelity": "corrected", "features": 2}
    bare = load_config(name, ["position_encoding.options.features=unset"])
    assert bare.position_encoding.options == {"fidelity": "corrected"}


def test_change_config_checks_again():
    config = change_config(load_config("digits"), ["seed=3", "position_encoding.name=rope_axial"])
    assert (config.seed, config.position_encoding.name, config.training.epochs) == (
        3,
        "rope_axial",
        30,
    )
    with pytest.raises(ConfigError, match=r"model\.patch_size = 3"):
        change_config(config, ["model.patch_size=3"])


def test_configs_cannot_be_changed_in_place():
    config = load_config("digits")
    with pytest.raises(ValueError, match="frozen"):
        config.training.epochs = 3


def test_validation_leaves_the_random_numbers_alone():
    import torch

    torch.manual_seed(5)
    load_config("cifar100_vit_tiny_weierstrass")
    load_config("cifar100_vit_tiny_learned_matched")
    after = torch.rand(3)
    torch.manual_seed(5)
    assert torch.equal(after, torch.rand(3))
