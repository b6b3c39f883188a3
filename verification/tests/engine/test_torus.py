"""Data on a torus: rolled images, fields whose truth is a law, and models that predict them."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

pytest.importorskip("accelerate")

import torch

from training.augmentation.normalisation import unit_range
from training.config import ConfigError, change_config, load_config
from training.config.schema import Data
from training.data import DATASETS, open_data, torus
from training.engine.finished_run import evaluate_run, open_finished_run
from training.engine.losses import relative_errors
from training.engine.run import run
from training.errors import DataError
from training.metrics import ACCURACY, RELATIVE_ERROR, metric_of
from training.models import build_vit
from training.models.building import build_model
from training.models.green_start import start_as_green
from training.study.results import Contrast, contrasts_markdown
from training.study.statistics import (
    accuracies_of_csv,
    metric_of_csv,
    runs_csv,
    summarise,
    summary_markdown,
)
from verification.tests.data_archives import write_cifar100
from wefpe_core import InputError, Lattice, get_backend

FLOAT32 = 2.0**-23


def opened(name, size=None):
    return DATASETS[name].open(Data(name=name), size)


def fields_of(name, size=None, count=40):
    test = opened(name, size).open_test()
    some = torch.arange(count)
    return test.fetch(some)[:, 0].double().numpy(), test.labels[:count, 0].double().numpy()


def relative(got, want):
    return np.linalg.norm(got - want) / np.linalg.norm(want)


# --- Rolled images ---------------------------------------------------------------------------


def test_images_are_rolled_each_by_its_own_amount_and_always_alike(tmp_path):
    folder = write_cifar100(tmp_path)
    plain = DATASETS["cifar100"].open(Data(name="cifar100", path=str(folder)))
    rolled = DATASETS["cifar100_rolled"].open(Data(name="cifar100_rolled", path=str(folder)))
    again = DATASETS["cifar100_rolled"].open(Data(name="cifar100_rolled", path=str(folder)))
    for part in ("source", "open_test"):
        before, after, same = (
            each.source if part == "source" else each.open_test() for each in (plain, rolled, again)
        )
        every = torch.arange(len(before))
        assert torch.equal(after.fetch(every), same.fetch(every))
        assert torch.equal(after.labels, before.labels)
        amounts = set()
        for old, new in zip(before.fetch(every), after.fetch(every), strict=True):
            found = [
                (down, right)
                for down in range(32)
                for right in range(32)
                if torch.equal(old[:, 0].roll(right, 1).roll(0, 0)[0], new[:, down][0])
                and torch.equal(torch.roll(old, (down, right), (1, 2)), new)
            ]
            assert len(found) == 1
            amounts |= set(found)
        assert len(amounts) > len(before) // 2


# --- Fields ----------------------------------------------------------------------------------


def fourth_order_laplacian(fields, step):
    def second(axis):
        near = np.roll(fields, 1, axis) + np.roll(fields, -1, axis)
        far = np.roll(fields, 2, axis) + np.roll(fields, -2, axis)
        return (16.0 * near - far - 30.0 * fields) / (12.0 * step**2)

    return second(1) + second(2)


def test_the_solution_of_poisson_has_the_right_side_as_its_laplacian():
    errors = []
    for size in (48, 96):
        right, solution = fields_of("torus_poisson", size)
        errors.append(relative(-fourth_order_laplacian(solution, 2.0 * math.pi / size), right))
    # The differences are wrong by (k h)^4/90, k up to 6: a 300th and a 5000th at most.
    assert errors[0] < (6 * 2 * math.pi / 48) ** 4 / 90
    assert errors[1] < (6 * 2 * math.pi / 96) ** 4 / 90
    assert abs(solution.mean()) < FLOAT32 * 96


def test_a_step_of_heat_is_a_convolution_with_the_heat_kernel_of_the_torus():
    size = 32
    before, after = fields_of("torus_heat", size)
    step = 2.0 * math.pi / size
    x, y = np.meshgrid(np.arange(size) * step, np.arange(size) * step)
    lattice = Lattice.rectangular(math.pi, math.pi)
    kernel = get_backend("numpy").heat(x + 1j * y, torus.HEAT_TIME, lattice).real * step**2
    got = np.fft.ifft2(np.fft.fft2(before) * np.fft.fft2(kernel)).real
    assert relative(got, after) < 16 * FLOAT32  # the fields are stored in float32


@pytest.mark.parametrize("name", ["torus_poisson", "torus_heat", "torus_flow"])
def test_the_same_fields_are_sampled_at_every_size(name, monkeypatch):
    few_flows(monkeypatch)
    coarse, fine = (fields_of(name, size, count=2) for size in (20, 60))
    for few, many in zip(coarse, fine, strict=True):
        assert relative(many[:, 1::3, 1::3], few) < 16 * FLOAT32  # centres of pixels coincide


@pytest.mark.parametrize("name", ["torus_poisson", "torus_heat"])
def test_the_fields_of_the_test_are_others_and_always_the_same(name):
    data = opened(name)
    test = data.open_test()
    assert len(data.source) == DATASETS[name].training_images == torus.TRAINING_FIELDS
    assert torch.equal(test.labels, data.open_test().labels)
    gaps = torch.cdist(test.labels[:50].flatten(1), data.source.labels.flatten(1))
    assert gaps.min() > 0.1 * test.labels[:50].flatten(1).norm(dim=1).mean()


def test_a_size_that_cannot_hold_the_waves_is_refused():
    with pytest.raises(DataError, match=r"more than 12 pixels"):
        opened("torus_poisson", 12)


# --- The flow --------------------------------------------------------------------------------


def few_flows(monkeypatch):
    monkeypatch.setattr(torus, "_FLOWS", {"train": 2, "test": 1})
    monkeypatch.setattr(torus, "_PAIRS", 3)
    torus._flows.cache_clear()


def spectrum_of(seed):
    rng = np.random.default_rng(seed)
    down, across = torus.waves(25)
    kept = np.maximum(abs(down), across) <= torus.FLOW_WAVE
    noise = np.fft.rfft2(rng.standard_normal((25, 25))) / 25**2
    return np.where(kept & (down**2 + across**2 > 0), noise, 0.0), kept


def product(a, b):
    """The mean over space of the product of two fields."""
    together = (a * b.conj()).real
    return together[:, 0].sum() + 2.0 * together[:, 1:].sum()


def test_advection_keeps_energy_and_enstrophy():
    vorticity, kept = spectrum_of(0)
    down, across = torus.waves(25)
    moved = np.where(kept, torus.advection(vorticity[None], down, across)[0], 0.0)
    stream = vorticity / np.maximum(down**2 + across**2, 1.0)
    scale = math.sqrt(product(moved, moved))
    assert scale > 0.1 * product(vorticity, vorticity)
    for other in (vorticity, stream):
        assert abs(product(moved, other)) < 1e-14 * scale * math.sqrt(product(other, other))


def test_the_laminar_flow_stands_still():
    _, kept = spectrum_of(0)
    decay = torus._FORCING_WAVE**2 / torus._REYNOLDS + torus._FRICTION
    laminar = torus._forcing(kept.shape)[None] / decay
    after = laminar
    for _ in range(10):
        after = torus.flow_step(after, torus._DT, kept)
    # What falls off is exact and the force is not, so the balance is that of the method.
    assert np.linalg.norm(after - laminar) < 1e-6 * np.linalg.norm(laminar)


def test_a_step_of_the_flow_is_of_fourth_order():
    vorticity, kept = spectrum_of(1)
    start = 20.0 * vorticity[None]

    def after(steps):
        found = start
        for _ in range(steps):
            found = torus.flow_step(found, 0.2 / steps, kept)
        return found

    exact = after(64)
    ratio = np.linalg.norm(after(4) - exact) / np.linalg.norm(after(8) - exact)
    assert 12.0 < ratio < 20.0


def test_the_truth_of_the_flow_is_its_vorticity_one_unit_of_time_later(monkeypatch):
    few_flows(monkeypatch)
    now, later = torus.flow_pairs("test")
    scale = math.sqrt(torus._mean_square(torus._flows("train")))
    kept = spectrum_of(0)[1]
    moved = now * scale
    for _ in range(10):
        moved = torus.flow_step(moved, 0.1, kept)
    assert relative(moved, later * scale) < 100 * FLOAT32  # flows are computed in complex64
    assert relative(now, later) > 0.01
    torus._flows.cache_clear()


# --- Models that predict fields --------------------------------------------------------------


def test_patches_are_joined_where_they_were_cut():
    model = build_vit("micro", encoding="none", dim=16, pooling="patches", num_classes=3)
    assert model.head.out_features == 3 * 16
    images = torch.arange(2 * 3 * 8 * 12, dtype=torch.float32).reshape(2, 3, 8, 12)
    cut = images.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)
    assert torch.equal(model.patch_embed.joined(cut, images), images)
    assert model(images).shape == images.shape


def test_fields_pass_unchanged_and_are_not_written_to():
    fields = torch.randn(2, 1, 4, 4)
    before = fields.clone()
    unit_range(fields).add_(1.0)
    assert torch.equal(fields, before)


FEW = (
    "verification=off",
    "data.train_images=64",
    "data.validation=32",
    "model.dim=16",
    "model.depth=1",
    "training.epochs=2",
    "training.batch_size=16",
    "training.threads=1",
    "logging.tensorboard=false",
    "logging.every_steps=2",
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "poisson"
    result = run(load_config("torus_poisson_cpu", FEW), folder)
    return folder, result


def test_a_run_names_its_metric_in_result_report_and_log(finished):
    folder, result = finished
    assert result["metric"] == "relative_error"
    assert metric_of(result, "test_") is RELATIVE_ERROR
    assert "test_accuracy" not in result
    assert result["test_top5"] is None
    assert f"| test relative L2 error | {result['test_relative_error']:.2%} of 500" in (
        folder / "report.md"
    ).read_text("utf-8")
    epochs = [json.loads(line) for line in (folder / "log.jsonl").read_text("utf-8").splitlines()]
    found = [row["validation"]["relative_error"] for row in epochs if row["kind"] == "epoch"]
    assert result["validation_relative_error"] == min(found)  # the least is the best
    assert result["selected_epoch"] == 1 + found.index(min(found))


def test_the_error_of_a_run_is_that_of_its_predictions(finished):
    folder, result = finished
    opened_run = open_finished_run(folder)
    test = opened_run.splits.open_test()
    with torch.no_grad():
        predicted = opened_run.model(opened_run.splits.normalise(test.fetch(torch.arange(500))))
    apart = [
        float((p - t).square().sum().sqrt() / t.square().sum().sqrt())
        for p, t in zip(predicted.double(), test.labels.double(), strict=True)
    ]
    assert sum(apart) / 500 == pytest.approx(result["test_relative_error"])
    with pytest.raises(AttributeError, match="relative L2 error"):
        evaluate_run(folder, "test").accuracy  # noqa: B018 - it raises
    other = evaluate_run(folder, "test", image_size=24)
    assert other.value != result["test_relative_error"]
    row = json.loads((folder / "evaluations.jsonl").read_text("utf-8").splitlines()[-1])
    assert row["relative_error"] == other.value
    assert "accuracy" not in row


def test_validation_fields_are_drawn_by_the_seed():
    data = Data(name="torus_poisson", validation=500)
    splits = [open_data(data, seed).validation for seed in (0, 0, 1)]
    first, same, other = (part.labels for part in splits if part is not None)
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (["augmentation.flip=0.5"], "augmentation.flip"),
        (["augmentation.crop_padding=4"], "augmentation.crop_padding"),
        (["training.label_smoothing=0.1"], "training.label_smoothing"),
        (["training.loss=cross_entropy"], "training.loss"),
        (["model.pooling=mean"], "model.pooling"),
        (["distillation.teacher=x"], "distillation.teacher"),
        (["model.start=green"], "model.start"),
    ],
)
def test_what_does_not_go_with_fields_is_refused(overrides, key):
    with pytest.raises(ConfigError) as caught:
        load_config("torus_poisson_cpu", overrides)
    assert [problem.key for problem in caught.value.problems] == [key]


def test_classes_are_not_predicted_patch_by_patch():
    for override in ("model.pooling=patches", "training.loss=relative_l2"):
        with pytest.raises(ConfigError, match="has classes to predict"):
            load_config("digits", [override])


# --- A model that starts as G ------------------------------------------------------------------


def error_before_training(size):
    config = load_config("torus_poisson_green_cpu", [f"data.image_size={size}"])
    splits = open_data(config.data, config.seed)
    model = build_model(config, 1, 1).eval()
    test = splits.open_test()
    some = torch.arange(20)
    with torch.no_grad():
        predicted = model(splits.normalise(test.fetch(some)))
    return float(relative_errors(predicted, test.labels[some]).mean())


def test_a_model_that_starts_as_g_solves_poisson_before_training():
    coarse, fine = error_before_training(16), error_before_training(32)
    assert coarse < 0.0125
    # Only the patch on itself is approximate, by the mean over a disk: an error of second order.
    assert fine < coarse / 3.0


def test_everything_learns_from_there():
    config = load_config("torus_poisson_green_cpu")
    model = build_model(config, 1, 1)
    splits = open_data(config.data, 0)
    images = splits.normalise(splits.train.fetch(torch.arange(4)))
    relative_errors(model(images), splits.train.labels[:4]).mean().backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    assert gradients["blocks.0.attn.qkv.weight"][64:128].abs().max() > 0  # the keys
    for name in ("encoding.strength_raw", "patch_embed.proj.weight"):
        assert gradients[name].abs().max() > 0


def test_only_the_logarithm_of_green_can_be_a_green_operator():
    linear = build_vit(
        "micro",
        encoding="weierstrass_green",
        encoding_options={"alpha_u": 1.0},
        pooling="patches",
        num_classes=1,
        in_channels=1,
    )
    with pytest.raises(InputError, match="form='log'"):
        start_as_green(linear)


# --- Tables of errors --------------------------------------------------------------------------


def rows_of_errors():
    errors = {"none": (0.4, 0.42, 0.41), "weierstrass_heat": (0.2, 0.21, 0.19)}
    return [
        {"encoding": label, "seed": seed, "test_relative_error": value}
        for label, values in errors.items()
        for seed, value in enumerate(values)
    ]


def test_rows_and_tables_have_the_metric_of_the_runs():
    text = runs_csv(rows_of_errors())
    assert text.splitlines()[0].startswith(
        "encoding,seed,test_relative_error,validation_relative_error,"
    )
    assert metric_of_csv(text) is RELATIVE_ERROR
    accuracies = accuracies_of_csv(text)
    page = summary_markdown(summarise(accuracies, "none"), "none", RELATIVE_ERROR)
    assert "test relative L2 error %" in page
    assert "Below 0 is better" in page
    with pytest.raises(InputError, match="different metrics"):
        runs_csv([*rows_of_errors(), {"encoding": "x", "seed": 0, "test_accuracy": 0.5}])


def test_a_smaller_error_is_better_and_a_smaller_accuracy_worse():
    parts = {"torus": accuracies_of_csv(runs_csv(rows_of_errors()))}
    asked = Contrast(question="?", part="torus", of="weierstrass_heat", minus="none", is_test=True)
    for metric, answer in ((RELATIVE_ERROR, "better"), (ACCURACY, "worse")):
        assert f"| {answer} |" in contrasts_markdown([asked], parts, {"torus": metric})


def test_a_changed_config_keeps_what_it_predicts():
    config = change_config(load_config("torus_heat_cpu"), ["seed=3"])
    assert DATASETS[config.data.name].metric is RELATIVE_ERROR
