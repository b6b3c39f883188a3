"""The pieces of the engine: schedule, parameter groups, checkpoints, logs, and what is refused."""

from __future__ import annotations

import json
import math
import os
import shutil
from pathlib import Path
from typing import get_args

import pytest
import torch

pytest.importorskip("accelerate")

from training.config import load_config
from training.config.schema import Optimizer, Schedule
from training.encodings import available_encodings
from training.engine import checkpoints
from training.engine.checkpoints import Checkpoint
from training.engine.optimization import build_optimizer, parameter_groups, rate_factor, set_rate
from training.engine.run_folder import append_line, read_lines, training_rows
from training.errors import CheckpointFormatError, DamagedCheckpointError, RunError
from training.models import HybridVisionTransformer, VisionTransformer
from training.models.building import build_model

# --- Schedule ------------------------------------------------------------------------------


def test_the_rate_grows_linearly_and_falls_along_a_cosine():
    schedule = Schedule(warmup_epochs=15, final_rate=0.1)
    rate = {epoch: rate_factor(schedule, 115, epoch) for epoch in (0, 7.5, 15, 65, 115)}
    assert rate[0] == 0.0
    assert rate[7.5] == 0.5
    assert rate[15] == 1.0
    assert rate[65] == pytest.approx(0.55)  # half way between 1 and 0.1
    assert rate[115] == pytest.approx(0.1)


def test_a_rate_per_epoch_is_constant_within_it():
    schedule = Schedule(warmup_epochs=2, per="epoch")
    assert rate_factor(schedule, 10, 0.9) == 0.0
    assert rate_factor(schedule, 10, 1.9) == 0.5
    assert rate_factor(schedule, 10, 5.0) == rate_factor(schedule, 10, 5.9)


def test_restarts_begin_lower_each_time():
    schedule = Schedule(warmup_epochs=8, restart_epochs=15, restart_factor=0.95)
    for number in range(3):
        start = rate_factor(schedule, 100, 8 + 15 * number)
        assert start == pytest.approx(0.95**number)
        assert rate_factor(schedule, 100, 8 + 15 * number + 7.5) == pytest.approx(start / 2)


def test_no_warm_up_starts_at_the_full_rate():
    assert rate_factor(Schedule(warmup_epochs=0), 10, 0.0) == 1.0


# --- Parameter groups ----------------------------------------------------------------------


def micro(encoding: str, *overrides: str) -> VisionTransformer | HybridVisionTransformer:
    config = load_config("digits", [f"position_encoding.name={encoding}", *overrides])
    return build_model(config, 10, 1)


TRAINED_FROM_SCRATCH = [name for name in available_encodings() if name != "weierstrass_hybrid"]


@pytest.mark.parametrize("encoding", TRAINED_FROM_SCRATCH)
def test_every_parameter_is_in_one_group(encoding):
    model = micro(encoding)
    names = [name for group in parameter_groups(model) for name in group.names]
    assert sorted(names) == sorted(name for name, _ in model.named_parameters())


@pytest.mark.parametrize("encoding", TRAINED_FROM_SCRATCH)
def test_only_matrices_decay(encoding):
    model = micro(encoding)
    decaying = {name for group in parameter_groups(model) if group.decays for name in group.names}
    exempt = {f"encoding.{name}" for name in model.encoding.no_weight_decay()}
    assert not decaying & exempt
    for name, parameter in model.named_parameters():
        if parameter.ndim < 2 or "token" in name or "norm" in name or name.endswith("bias"):
            assert name not in decaying
    assert "blocks.0.attn.qkv.weight" in decaying
    assert "head.weight" in decaying


def test_everything_decays_if_asked():
    assert all(group.decays for group in parameter_groups(micro("weierstrass"), "all"))


def test_the_three_tiers_have_their_rates():
    options = Optimizer(learning_rate=8e-4, backbone_rate=0.05, encoding_rate=0.8, head_rate=1.0)
    groups = parameter_groups(micro("weierstrass"))
    optimizer = build_optimizer(groups, options)
    set_rate(optimizer, 0.5)
    rates = {g.tier: p["lr"] for g, p in zip(groups, optimizer.param_groups, strict=True)}
    assert rates == pytest.approx({"backbone": 2e-5, "encoding": 3.2e-4, "head": 4e-4})


def test_every_optimiser_of_the_schema_can_be_built():
    groups = parameter_groups(micro("none"))
    for name in get_args(Optimizer.model_fields["name"].annotation):
        options = Optimizer(name=name, learning_rate=8e-4, weight_decay=0.25)
        optimizer = build_optimizer(groups, options)
        assert isinstance(optimizer, torch.optim.Optimizer)
        decays = [group["weight_decay"] for group in optimizer.param_groups]
        assert decays == [0.25 if group.decays else 0.0 for group in groups]


def test_models_with_one_seed_start_from_the_same_weights_whatever_their_encoding():
    reference = micro("none").state_dict()
    for encoding in TRAINED_FROM_SCRATCH:
        state = micro(encoding).state_dict()
        for name, tensor in reference.items():
            assert torch.equal(state[name], tensor), (encoding, name)
    assert not torch.equal(micro("none", "seed=1").state_dict()["head.weight"], tensor)


# --- Checkpoints ---------------------------------------------------------------------------


def some_checkpoint(step: int) -> Checkpoint:
    tensors = {"model": {"a.weight": torch.arange(6.0).reshape(2, 3) + step}}
    return Checkpoint(step, tensors, {"position": {"seconds": 0.1 + step}})


def test_a_checkpoint_comes_back_as_it_was(tmp_path):
    shared = torch.randn(4)
    tensors = {"model": {"a": shared, "b": shared, "t": torch.randn(3, 2).t()}, "empty": {}}
    checkpoints.save(tmp_path, Checkpoint(7, tensors, {"x": 0.1}), keep=2)
    found = checkpoints.load(tmp_path, 7)
    assert found.step == 7
    assert found.state == {"x": 0.1}
    assert found.tensors.keys() == tensors.keys()
    for name, tensor in tensors["model"].items():
        assert torch.equal(found.tensors["model"][name], tensor)


def test_the_last_ones_are_kept(tmp_path):
    for step in (5, 10, 15, 20):
        checkpoints.save(tmp_path, some_checkpoint(step), keep=2)
    assert checkpoints.saved_steps(tmp_path) == [15, 20]


def damage_cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def damage_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[data.index(b"2.1") if b"2.1" in data else -1] ^= 1  # the seconds in a state.json
    path.write_bytes(data)


def damage_lost(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("name", ["model.safetensors", "state.json"])
@pytest.mark.parametrize("damage", [damage_cut, damage_bit, damage_lost])
def test_a_damaged_checkpoint_is_named_and_the_one_before_used(tmp_path, damage, name):
    for step in (1, 2):
        checkpoints.save(tmp_path, some_checkpoint(step), keep=2)
    damaged = tmp_path / "step-00000002" / name
    damage(damaged)
    with pytest.raises(DamagedCheckpointError, match="step-00000002"):
        checkpoints.load(tmp_path, 2)
    found, problems = checkpoints.load_latest(tmp_path)
    assert found is not None
    assert found.step == 1
    assert len(problems) == 1
    assert "step-00000002" in problems[0]


def change_state(folder: Path, step: int, **changes: object) -> None:
    """Change keys of a state.json, as of a version without a digest of it; None removes one."""
    path = folder / checkpoints.folder_name(step) / "state.json"
    state = json.loads(path.read_text()) | changes | {"sha256": None}
    path.write_text(json.dumps({key: each for key, each in state.items() if each is not None}))


def test_the_state_says_its_format(tmp_path):
    path = checkpoints.save(tmp_path, some_checkpoint(1), keep=1) / "state.json"
    assert json.loads(path.read_text())["format"] == 1
    assert "format" not in checkpoints.load(tmp_path, 1).state


def test_a_checkpoint_without_a_format_is_read_as_before(tmp_path):
    checkpoints.save(tmp_path, some_checkpoint(3), keep=1)
    change_state(tmp_path, 3, format=None)
    found, problems = checkpoints.load_latest(tmp_path)
    assert found is not None
    assert problems == []
    assert found.state == some_checkpoint(3).state
    assert torch.equal(
        found.tensors["model"]["a.weight"], some_checkpoint(3).tensors["model"]["a.weight"]
    )


def test_a_newer_format_is_refused_by_name_and_not_passed_over(tmp_path):
    for step in (1, 2):
        checkpoints.save(tmp_path, some_checkpoint(step), keep=2)
    change_state(tmp_path, 2, format=2)
    message = (
        r"step-00000002.state\.json has format 2; this version of wefpe reads .* up to 1\. Resume"
    )
    with pytest.raises(CheckpointFormatError, match=message):
        checkpoints.load_latest(tmp_path)  # step 1 is whole, but would lose step 2


@pytest.mark.parametrize("found", ["one", 0, 1.5])
def test_a_format_that_is_no_number_is_damage(tmp_path, found):
    checkpoints.save(tmp_path, some_checkpoint(1), keep=1)
    change_state(tmp_path, 1, format=found)
    with pytest.raises(DamagedCheckpointError, match="format"):
        checkpoints.load(tmp_path, 1)


def test_nothing_to_resume_from(tmp_path):
    assert checkpoints.load_latest(tmp_path / "none") == (None, [])


def test_a_full_disk_leaves_the_earlier_checkpoint(tmp_path, monkeypatch):
    checkpoints.save(tmp_path, some_checkpoint(1), keep=1)

    def full(tensors, path):
        Path(path).write_bytes(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints, "save_file", full)
    with pytest.raises(RunError, match=r"step-00000002.*No space left"):
        checkpoints.save(tmp_path, some_checkpoint(2), keep=1)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]
    assert checkpoints.load(tmp_path, 1).state == {"position": {"seconds": 1.1}}


def test_what_a_killed_save_left_is_removed_by_the_next(tmp_path):
    left = tmp_path / ".unfinished-step-00000001"
    left.mkdir()
    (left / "model.safetensors").write_bytes(b"part")
    assert checkpoints.saved_steps(tmp_path) == []
    checkpoints.save(tmp_path, some_checkpoint(2), keep=2)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000002"]


# --- Logs ----------------------------------------------------------------------------------


def test_a_line_cut_short_costs_only_itself(tmp_path):
    path = tmp_path / "log.jsonl"
    append_line(path, {"kind": "step", "step": 1, "loss": 1.0})
    with path.open("a") as file:
        file.write('{"kind": "step", "st')
    append_line(path, {"kind": "step", "step": 3, "loss": 3.0})
    assert [row["step"] for row in read_lines(path)] == [1, 3]


def test_of_repeated_steps_the_later_line_counts(tmp_path):
    path = tmp_path / "log.jsonl"
    for step, loss in ((1, 1.0), (2, 2.0), (2, 2.5), (3, 3.0)):
        append_line(path, {"kind": "step", "step": step, "loss": loss})
    append_line(path, {"kind": "epoch", "step": 2, "loss": 9.0})
    assert [row["loss"] for row in training_rows(path)] == [1.0, 2.5, 9.0, 3.0]
    assert math.isclose(json.loads(path.read_text().splitlines()[1])["loss"], 2.0)  # kept
    shutil.rmtree(tmp_path)
    assert training_rows(path) == []


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such rights")
def test_weights_can_be_read_by_whoever_may_enter_the_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    path = tmp_path / "weights.safetensors"
    checkpoints.save_weights(torch.nn.Linear(2, 2), path)
    assert path.stat().st_mode & 0o777 == 0o644


# --- Compilation ---------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:Torchinductor does not support code generation for complex")
@pytest.mark.parametrize(
    ("encoding", "overrides"),
    [
        ("learned", ()),
        ("weierstrass", ("position_encoding.options.projection=linear",)),  # without dropout
        ("weierstrass_green", ()),
        ("weierstrass_heat", ()),
        ("weierstrass_relative", ()),
        ("weierstrass_fourier", ("position_encoding.options.projection=linear",)),
    ],
)
def test_a_compiled_model_takes_the_steps_of_an_eager_one(encoding, overrides):
    images, labels = torch.rand(8, 1, 16, 16), torch.arange(8)
    losses: dict[bool, list[float]] = {}
    for compiled in (False, True):
        torch.manual_seed(0)
        model = micro(encoding, *overrides)
        if compiled:
            model.compile(fullgraph=True)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        losses[compiled] = []
        for _ in range(3):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses[compiled].append(loss.item())
    assert losses[True] == pytest.approx(losses[False], rel=1e-4)
    assert losses[True][2] != losses[True][0]
