"""A model that starts from a finished run: what becomes of the encoding, tensor by tensor."""

from __future__ import annotations

import shutil

import pytest

pytest.importorskip("accelerate")

import torch

from training.config import ConfigError, dump_toml, load_config
from training.engine import checkpoints
from training.engine.finished_run import open_finished_run
from training.engine.run import run
from training.engine.run_folder import RunFolder
from training.models import CheckpointError, LoadReport, load_checkpoint
from training.models.building import build_model
from verification.tests.training_runs import TINY
from wefpe_core import InputError

SMALL = (*TINY, "model.patch_size=2", "data.image_size=8")  # 4 x 4 patches


def config_of(encoding, size=8, *overrides):
    given = [f"position_encoding.name={encoding}", f"data.image_size={size}"]
    return load_config("digits", [*SMALL, *given, *overrides])


def held_by_a_run(folder, encoding, *overrides):
    """The folder of a run with this encoding, as training would have left it, and its model."""
    config = config_of(encoding, 8, "seed=5", *overrides)
    model = build_model(config, 10, 1)
    with torch.no_grad():
        generator = torch.Generator().manual_seed(1)
        for parameter in model.encoding.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    place = RunFolder(folder / "run")
    place.path.mkdir()
    place.config.write_text(dump_toml(config), encoding="utf-8")
    checkpoints.save_weights(model, place.weights)
    return place.path, model.eval()


def started_from(path, encoding, size, *overrides):
    """The model of a config that names the run, and the report of what was loaded."""
    reports: list[LoadReport] = []
    config = config_of(encoding, size, f"model.checkpoint={path}", *overrides)
    model = build_model(config, 10, 1, on_load=reports.append)
    return model.eval(), reports[0]


@pytest.mark.parametrize(
    "encoding", ["weierstrass", "weierstrass_green", "rope_mixed", "relative_table", "gaussian"]
)
def test_the_very_encoding_is_kept_by_default(tmp_path, encoding):
    path, source = held_by_a_run(tmp_path, encoding)
    for positions in ("resample", "keep"):
        model, report = started_from(path, encoding, 8, f"model.positions={positions}")
        kept = source.encoding.state_dict()
        assert all(f"{name}: kept" in report.encoding for name in kept)
        for name, tensor in model.encoding.state_dict().items():
            assert torch.equal(tensor, kept[name])


def test_the_report_has_the_lattice_before_and_after(tmp_path):
    path, source = held_by_a_run(tmp_path, "weierstrass")
    _, report = started_from(path, "weierstrass", 12)
    [line] = [line for line in report.encoding if line.startswith("lattice:")]
    before, after = line.split(" -> ")
    assert "omega3 0+1.8541j" in before
    assert f"{source.encoding.lattice().omega3.imag:.5g}j" in after
    assert before.removeprefix("lattice: ") != after


def test_a_bias_of_the_place_is_the_same_function_on_a_finer_grid(tmp_path):
    for encoding in ("relative_table", "gaussian", "weierstrass_heat", "alibi2d"):
        options = "position_encoding.options.learnable=true"
        extra = [options] if encoding == "alibi2d" else []
        (tmp_path / encoding).mkdir()
        path, source = held_by_a_run(tmp_path / encoding, encoding, *extra)
        model, report = started_from(path, encoding, 16, *extra)
        assert model.encoding.size.grid == (8, 8)
        assert any("brought from 4x4 to 8x8" in line for line in report.encoding)
        with torch.no_grad():
            want, got = (each.encoding.double().bias((8, 8), 1) for each in (source, model))
        scale = want.abs().max()
        # Parameters are in float32.
        assert (got - want).abs().max() < 8 * 2.0**-23 * scale, encoding


def test_a_learned_table_is_resampled_by_the_method_of_the_config(tmp_path):
    path, source = held_by_a_run(tmp_path, "learned")
    for method in ("bicubic_antialias", "bilinear"):
        option = f"position_encoding.options.resampling={method}"
        model, report = started_from(path, "learned", 16, option)
        assert "positions.patches: brought from 4x4 to 8x8 patches" in report.encoding
        assert "positions.tokens: kept" in report.encoding
        options = source.encoding.options.model_copy(update={"resampling": method})
        source.encoding.options = options
        assert torch.equal(model.encoding.additive((8, 8)), source.encoding.additive((8, 8)))


def test_parts_of_a_combined_encoding_are_brought_each_by_its_rule(tmp_path):
    parts = "position_encoding.options.parts=learned+relative_table"
    path, _ = held_by_a_run(tmp_path, "combined", parts)
    _, report = started_from(path, "combined", 16, parts)
    brought = sorted(line.split(":")[0] for line in report.encoding if "brought" in line)
    assert brought == ["parts.0.positions.patches", "parts.1.displacement_table"]


def test_an_encoding_without_parameters_stands_as_in_the_run(tmp_path):
    path, _ = held_by_a_run(tmp_path, "sincos2d")
    _, report = started_from(path, "sincos2d", 16)
    assert report.positions == "sincos2d, of which nothing is learned, as in the run"


def test_another_encoding_or_other_options_are_refused(tmp_path):
    path, _ = held_by_a_run(tmp_path, "weierstrass")
    with pytest.raises(InputError, match="has the encoding weierstrass, and the model has learned"):
        started_from(path, "learned", 8)
    with pytest.raises(InputError, match=r"alpha_u=None instead of 0\.25"):
        started_from(path, "weierstrass", 8, "position_encoding.options.alpha_u=0.25")
    (tmp_path / "other").mkdir()
    bias, _ = held_by_a_run(tmp_path / "other", "gaussian")
    with pytest.raises(InputError, match="coordinates='reference' instead of 'index'"):
        started_from(bias, "gaussian", 8, "position_encoding.options.coordinates=index")
    _, report = started_from(path, "learned", 8, "model.positions=replace")
    assert report.positions == "those of the encoding in the file are left out; learned stands"
    assert "beta_pos: left out" in report.encoding


def test_there_is_nothing_to_keep_in_weights_of_others(tmp_path):
    path, source = held_by_a_run(tmp_path, "none")
    bare = tmp_path / "bare.safetensors"
    shutil.copy(path / "weights.safetensors", bare)
    with pytest.raises(CheckpointError, match="none to keep"):
        load_checkpoint(source, bare, positions="keep")


def test_a_folder_without_weights_is_refused_before_the_run(tmp_path):
    config = config_of("weierstrass", 8, f"model.checkpoint={tmp_path}")
    with pytest.raises(ConfigError, match=r"no finished run: there is no weights\.safetensors"):
        run(config, tmp_path / "new")


def test_the_head_is_kept_if_asked_for(tmp_path):
    path, source = held_by_a_run(tmp_path, "weierstrass")
    model, report = started_from(path, "weierstrass", 8, "model.head=keep")
    assert report.head == "from the file"
    assert torch.equal(model.head.weight, source.head.weight)
    other, _ = started_from(path, "weierstrass", 8)
    assert not torch.equal(other.head.weight, source.head.weight)


@pytest.mark.slow
def test_two_commands_train_and_fine_tune_at_a_higher_resolution(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    run(config_of("weierstrass", 8), first)
    run(config_of("weierstrass", 12, f"model.checkpoint={first}"), second)
    text = (second / "pretrained.txt").read_text("utf-8")
    assert "lattice_parameter.alpha_learn: kept" in text
    assert "lattice: omega1 1.8541+0j, omega3 0+1.8541j, tau 0+1j -> " in text
    shutil.rmtree(first)  # what was fine-tuned needs it no longer
    assert open_finished_run(second).model.encoding.size.grid == (6, 6)
