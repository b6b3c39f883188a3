"""Recipes: optimisers, layer-wise rates, losses, teachers, policies, repeats, shipped configs."""

from __future__ import annotations

import json
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the torch extra is not installed")
pytest.importorskip("PIL", reason="the training extra is not installed")
pytest.importorskip("accelerate", reason="the training extra is not installed")

import numpy as np
import torch.nn.functional as F
from PIL import Image, ImageOps

from training.augmentation.geometry import random_places
from training.augmentation.mixing import mixed
from training.augmentation.policies import _RAND, _THREE, _TRIVIAL, by_policy
from training.config import ConfigError, config_hash, load_config
from training.config.optimizers import TORCH_OPTIMIZERS
from training.config.schema import Augmentation, Distillation, Optimizer, Training
from training.data import BatchPlan
from training.engine.losses import target_loss, teacher_loss
from training.engine.optimization import (
    build_optimizer,
    check_optimizer,
    optimizer_state,
    parameter_groups,
    restore_optimizer,
)
from training.engine.run import run
from training.models import build_vit
from training.models.timm_import import import_timm
from training.randomness import Draws
from verification.tests.engine.test_photographs import CLASSES, SIDE, write_imagenet
from verification.tests.training_runs import TINY, assert_same_bits, weights
from wefpe_core import InputError

# --- Optimisers ----------------------------------------------------------------------------------

SETTINGS: dict[str, dict[str, object]] = {"sgd": {"momentum": 0.9}, "rmsprop": {"momentum": 0.5}}


def has_timm() -> bool:
    try:
        import_timm()
    except ImportError:
        return False
    return True


NAMES = [*TORCH_OPTIMIZERS, *(["timm:lamb", "timm:lion", "timm:muon"] if has_timm() else [])]


def small_model() -> Any:
    torch.manual_seed(0)
    return build_vit(
        "micro", encoding="learned", dim=16, num_heads=2, depth=3, image_size=16, num_classes=3
    )


class Steps:
    """A model and its optimiser, trained on a loss that differs from step to step."""

    def __init__(self, name: str) -> None:
        self.model = small_model()
        groups = parameter_groups(self.model)
        self.names = [each for group in groups for each in group.names]
        options = Optimizer(name=name, learning_rate=0.01, options=SETTINGS.get(name, {}))
        check_optimizer(options)
        self.optimizer = build_optimizer(groups, options)
        self.first_keys = {key for group in self.optimizer.param_groups for key in group}

    def take(self, *numbers: int) -> None:
        for number in numbers:
            images = torch.rand(4, 3, 16, 16, generator=torch.Generator().manual_seed(number))
            self.model(images).square().mean().backward()
            self.optimizer.step()
            self.optimizer.zero_grad()


@pytest.mark.parametrize("name", NAMES)
def test_every_optimiser_goes_on_from_a_checkpoint_as_if_nothing_had_happened(name):
    whole, first, second = Steps(name), Steps(name), Steps(name)
    whole.take(0, 1, 2, 3)
    first.take(0, 1)
    saved = optimizer_state(first.optimizer, first.names, first.first_keys)
    numbers, groups = json.loads(json.dumps([saved.numbers, saved.groups]))  # as state.json does
    second.model.load_state_dict(first.model.state_dict())
    restore_optimizer(second.optimizer, second.names, type(saved)(saved.tensors, numbers, groups))
    second.take(2, 3)
    assert_same_bits(second.model.state_dict(), whole.model.state_dict())
    assert not torch.equal(whole.model.head.weight, small_model().head.weight)


@pytest.mark.slow
def test_a_run_with_another_optimiser_is_resumed_to_the_bit(tmp_path):
    overrides = [*TINY, "optimizer.name=sgd", "optimizer.options.momentum=0.9"]
    overrides += ["training.loss=bce", "training.epochs=2"]
    config = load_config("digits", overrides)
    run(config, tmp_path / "whole")
    run(config, tmp_path / "killed")
    for name in ("result.json", "report.md", "weights.safetensors"):
        (tmp_path / "killed" / name).unlink()
    steps = sorted((tmp_path / "killed" / "checkpoints").glob("step-*"))
    for file in steps[-1].iterdir():
        file.unlink()
    steps[-1].rmdir()
    run(config, tmp_path / "killed", resume=True)
    assert_same_bits(weights(tmp_path / "killed"), weights(tmp_path / "whole"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "sgd", "options": {"momentun": 0.9}}, "sgd has no such option; it has"),
        ({"name": "sgd", "options": {"momentum": -1.0}}, "refuses its options"),
        ({"name": "sgd", "betas": (0.9, 0.95)}, "sgd has no betas"),
        ({"name": "adamw", "options": {"eps": "small"}}, "refuses its options"),
    ],
)
def test_options_that_an_optimiser_does_not_take_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        check_optimizer(Optimizer(**options))


@pytest.mark.skipif(has_timm(), reason="timm is installed")
def test_an_optimiser_of_timm_needs_timm(tmp_path):
    config = load_config("digits", [*TINY, "optimizer.name=timm:lamb"])
    with pytest.raises(ConfigError, match="needs timm"):
        run(config, tmp_path / "run")


@pytest.mark.skipif(not has_timm(), reason="timm is not installed")
def test_an_optimiser_that_timm_does_not_have_is_refused():
    with pytest.raises(ConfigError, match="timm has no such optimiser; it has"):
        check_optimizer(Optimizer(name="timm:lamp"))


def test_layers_near_the_image_learn_more_slowly():
    model = small_model()
    options = Optimizer(learning_rate=1.0, layer_decay=0.5, encoding_rate=3.0, head_rate=2.0)
    groups = parameter_groups(model, "matrices", options.layer_decay)
    optimizer = build_optimizer(groups, options)
    rates: dict[str, float] = {}
    for group, table in zip(groups, optimizer.param_groups, strict=True):
        rates |= dict.fromkeys(group.names, table["full_rate"])
    assert rates.keys() == dict(model.named_parameters()).keys()
    expected = {"patch_embed.proj.weight": 1 / 16, "cls_token": 1 / 16}
    expected |= {f"blocks.{i}.attn.qkv.weight": 0.5 ** (3 - i) for i in range(3)}
    expected |= {"norm.weight": 1.0, "head.weight": 2.0, "encoding.positions.patches": 3.0}
    assert {name: rates[name] for name in expected} == expected


# --- Losses --------------------------------------------------------------------------------------


def test_binary_cross_entropy_by_hand():
    logits = torch.randn(4, 3, dtype=torch.float64)
    labels = torch.tensor([0, 2, 1, 1])
    options = Training(loss="bce", label_smoothing=0.3)
    shares = F.one_hot(labels, 3) * 0.7 + 0.1
    p = logits.sigmoid()
    expected = -(shares * p.log() + (1 - shares) * (1 - p).log()).mean()
    assert torch.allclose(target_loss(logits, labels, options), expected)
    thresholded = Training(loss="bce", label_smoothing=0.0, bce_threshold=0.0)
    soft = torch.tensor([[0.7, 0.3, 0.0]] * 4, dtype=torch.float64)
    both = torch.tensor([[1.0, 1.0, 0.0]] * 4, dtype=torch.float64)
    expected = F.binary_cross_entropy(p, both)
    assert torch.allclose(target_loss(logits, soft, thresholded), expected)


def test_distillation_by_hand():
    own, other = torch.randn(2, 5, 3, dtype=torch.float64)
    hard = teacher_loss(own, other, Distillation(teacher="x"))
    assert torch.allclose(hard, F.cross_entropy(own, other.argmax(1)))
    soft = teacher_loss(own, other, Distillation(teacher="x", kind="soft", temperature=2.0))
    q = (other / 2).softmax(1)
    expected = 4 * (q * (q.log() - (own / 2).softmax(1).log())).sum(1).mean()
    assert torch.allclose(soft, expected)
    assert float(teacher_loss(own, own, Distillation(teacher="x", kind="soft"))) < 1e-12


@pytest.mark.slow
def test_a_finished_run_is_a_teacher(tmp_path):
    short = [*TINY, "training.epochs=1", "data.train_images=64"]
    run(load_config("digits", short), tmp_path / "teacher")
    taught = [*short, f"distillation.teacher={tmp_path / 'teacher'}", "distillation.share=1.0"]
    run(load_config("digits", taught), tmp_path / "taught")
    run(load_config("digits", [*taught, "seed=0"]), tmp_path / "again")
    assert_same_bits(weights(tmp_path / "taught"), weights(tmp_path / "again"))
    name = "head.weight"
    assert not torch.equal(weights(tmp_path / "taught")[name], weights(tmp_path / "teacher")[name])
    with pytest.raises(ConfigError, match=r"distillation\.teacher.*there is no such file"):
        run(load_config("digits", [*short, "distillation.teacher=gone"]), tmp_path / "none")


def test_a_teacher_counts_in_the_hash_by_its_name():
    without = config_hash(load_config("digits"))
    here = config_hash(load_config("digits", ["distillation.teacher=/here/runs/a"]))
    there = config_hash(load_config("digits", ["distillation.teacher=/there/runs/a"]))
    other = config_hash(load_config("digits", ["distillation.teacher=/here/runs/b"]))
    assert here == there
    assert len({without, here, other}) == 3


# --- The model -----------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["weierstrass", "rope_mixed", "weierstrass_relative"])
def test_recomputing_blocks_gives_the_same_gradients(encoding):
    gradients: list[dict[str, Any]] = []
    for recompute in (False, True):
        torch.manual_seed(1)
        model = build_vit(
            "micro",
            encoding=encoding,
            depth=3,
            num_classes=4,
            dropout=0.2,
            drop_path=0.2,
            layer_scale=0.1,
            recompute=recompute,
        )
        calls: list[int] = []
        model.blocks[0].register_forward_pre_hook(lambda *_, calls=calls: calls.append(1))
        torch.manual_seed(2)
        model(torch.rand(3, 3, 32, 32)).square().sum().backward()
        assert len(calls) == (2 if recompute else 1)
        gradients.append({name: p.grad for name, p in model.named_parameters()})
    assert_same_bits(*gradients)


def test_layer_scale_has_timms_names_and_does_not_decay():
    model: Any = build_vit("micro", encoding="learned", depth=1, layer_scale=1e-4)
    assert torch.equal(model.blocks[0].ls2.gamma, torch.full((64,), 1e-4))
    undecayed = {n for group in parameter_groups(model) if not group.decays for n in group.names}
    assert {"blocks.0.ls1.gamma", "blocks.0.ls2.gamma"} <= undecayed
    plain = build_vit("micro", encoding="learned", depth=1)
    assert not [name for name in plain.state_dict() if "ls1" in name]


# --- Augmentation --------------------------------------------------------------------------------


def draws(size: int = 40, epoch: int = 0, places: slice | None = None) -> Draws:
    return Draws(0, epoch, 0, size=size, places=places or slice(0, size))


def photos(count: int = 40):
    drawn = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (count, 3, 24, 30), generator=drawn).to(torch.uint8)


@pytest.mark.parametrize("policy", ["randaugment", "trivialaugment", "three_augment"])
def test_policies_are_functions_of_seed_epoch_and_place(policy):
    options, images = Augmentation(policy=policy), photos()
    found = by_policy(images, options, draws())
    assert (found.dtype, found.shape) == (torch.uint8, images.shape)
    assert torch.equal(found, by_policy(images, options, draws()))
    part = by_policy(images[10:25], options, draws(places=slice(10, 25)))
    assert torch.equal(part, found[10:25])
    assert not torch.equal(found, by_policy(images, options, draws(epoch=1)))
    changed = (found != images).flatten(1).any(1).float().mean()
    # RandAugment leaves each of two operations out half of the time.
    assert {"randaugment": 0.5, "trivialaugment": 0.6, "three_augment": 0.99}[policy] < changed


def test_randaugment_leaves_a_quarter_alone_and_follows_its_magnitude():
    options, images = Augmentation(policy="randaugment"), photos(400)
    alone = (by_policy(images, options, draws(400)) == images).flatten(1).all(1).float().mean()
    assert 0.19 < alone < 0.35  # a quarter, and weak operations that change nothing
    grey = torch.full((400, 3, 8, 8), 90, dtype=torch.uint8)
    weak = Augmentation(policy="randaugment", policy_magnitude=0.0, policy_deviation=0.0)
    strong = Augmentation(policy="randaugment", policy_magnitude=10.0, policy_deviation=0.0)
    far = [(by_policy(grey, each, draws(400)).float() - 90).abs().mean() for each in (weak, strong)]
    assert far[0] < far[1]


def same_pixels(one: Any, other: Any) -> bool:
    return np.array_equal(np.asarray(one), np.asarray(other))


def test_operations_are_those_of_their_names():
    image = Image.fromarray(photos(1)[0].permute(1, 2, 0).numpy())
    for operations, count in ((_RAND, 15), (_TRIVIAL, 14), (_THREE, 3)):
        assert len(operations) == count
    assert same_pixels(_RAND[2](image, 0.3, 1.0), ImageOps.invert(image))
    assert same_pixels(_RAND[4](image, 0.5, 1.0), ImageOps.posterize(image, 2))
    assert same_pixels(_RAND[5](image, 0.5, 1.0), ImageOps.solarize(image, 128))
    for place in (3, 7, 8, 9, 10, 11, 12, 13, 14):  # those with a sign do nothing at strength 0
        assert same_pixels(_RAND[place](image, 0.0, -1.0), image), place
    turned = np.asarray(_RAND[13](image, 1.0, 1.0))  # by 0.45 of 30 columns, 13.5, to the left
    assert (turned[:, 18:] == 128).all()
    assert same_pixels(_TRIVIAL[4](image, 0.5, 1.0), _affine_down(image, 16))


def _affine_down(image: Image.Image, pixels: int):
    moved = np.full_like(np.asarray(image), 128)
    moved[:-pixels] = np.asarray(image)[pixels:]
    return moved


def test_a_batch_holds_each_image_as_often_as_asked_for():
    plan = BatchPlan(60, 12, seed=0, repeats=3)
    assert plan.batches_per_epoch == 5
    seen: list[int] = []
    for number in range(5):
        indices = plan.indices(0, number)
        ids, counts = indices.unique(return_counts=True)
        assert (len(ids), counts.tolist()) == (4, [3] * 4)
        assert (indices[0::2] != indices[1::2]).all()  # pairs of mixup
        seen += ids.tolist()
        halves = [
            BatchPlan(60, 12, 0, repeats=3, rank=r, processes=2).indices(0, number) for r in (0, 1)
        ]
        assert torch.equal(torch.cat(halves), indices)
    assert len(set(seen)) == len(seen) == 20
    assert len(BatchPlan(60, 11, 0, repeats=3).indices(0, 0).unique()) == 4
    with pytest.raises(InputError, match="3 times each"):
        BatchPlan(60, 3, 0, repeats=3)


@pytest.mark.parametrize(("epoch", "is_mixed"), [(0, False), (4, False), (5, True), (8, False)])
def test_mixup_begins_and_ends_with_an_epoch(epoch, is_mixed):
    options = Augmentation(mixup_alpha=0.8, mix_from_epoch=5, mix_until_epoch=8)
    images = torch.rand(8, 3, 4, 4)
    found, targets = mixed(images.clone(), torch.arange(8), 8, options, draws(8, epoch))
    assert torch.equal(found, images) != is_mixed
    assert bool((targets.amax(1) == 1).all()) != is_mixed


def test_a_random_crop_has_the_size_of_the_model_in_the_resized_image():
    aspect = torch.tensor([0.5, 1.0, 2.0] * 20, dtype=torch.float64)
    top, left, tall, wide = random_places(aspect, 384 / 416, draws(60))
    # In an image whose shorter side is 416.
    height = torch.where(aspect < 1, 416 / aspect, 416.0)
    width = torch.where(aspect < 1, 416.0, 416 * aspect)
    assert torch.allclose(tall * height, torch.full_like(tall, 384.0))
    assert torch.allclose(wide * width, torch.full_like(tall, 384.0))
    for first, extent in ((top, tall), (left, wide)):
        assert (first >= 0).all()
        assert (first + extent <= 1 + 1e-12).all()
        assert first.std() > 0.01


# --- Configs -------------------------------------------------------------------------------------


def test_mistakes_in_a_recipe_are_reported_together():
    wrong = {
        "optimizer.name=adamv": "did you mean adam",
        "optimizer.options.lr=1.0": "say optimizer.learning_rate",
        "optimizer.layer_decay=0.0": "must be above 0",
    }
    rules = {
        "training.bce_threshold=0.2": "needs training.loss = 'bce'",
        "distillation.kind=soft": "there is no distillation.teacher",
        "augmentation.random_crop=true": "needs data.resize",
        "augmentation.policy_magnitude=5.0": "needs augmentation.policy = 'randaugment'",
        "augmentation.mix_from_epoch=3": "neither mixup nor cutmix is on",
        "augmentation.repeats=5000": "one image only",
    }
    for group in (rules | dict(list(wrong.items())[:2]), wrong):
        with pytest.raises(ConfigError) as raised:
            load_config("digits", [*group, "augmentation.mixup_alpha=0.0"])
        text = str(raised.value)
        expected = [wrong["optimizer.layer_decay=0.0"]] if group is wrong else group.values()
        assert [each for each in expected if each not in text] == []
    with pytest.raises(ConfigError, match="has no colours"):
        load_config("digits", ["augmentation.policy=randaugment"])
    with pytest.raises(ConfigError, match="say timm:muon"):
        load_config("digits", ["optimizer.name=muon"])


SHIPPED = [
    f"imagenet_{model}_{name}"
    for model in ("vit_small", "deit3_base")
    for name in ("weierstrass", "rope")
]
DRY_RUN = (
    "verification=off",
    f"data.image_size={SIDE}",
    f"data.resize={SIDE + 4}",
    "model.dim=24",
    "model.depth=2",
    "model.num_heads=2",
    "model.patch_size=8",
    "training.epochs=1",
    "training.batch_size=22",  # repeats do not divide it, as in the configs
    "training.precision=no",
    "training.threads=1",
    "logging.tensorboard=false",
    "logging.every_steps=1",
)


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_recipes_run_on_generated_photographs(tmp_path, name):
    images = write_imagenet(tmp_path / "images")
    overrides = [*DRY_RUN, f"data.path={images}"]
    config = load_config(name, overrides)
    if config.optimizer.name.startswith("timm:") and not has_timm():
        config = load_config(name, [*overrides, "optimizer.name=adamw"])
    result = run(config, tmp_path / "run")
    assert result["test_images"] == 48
    assert result["encoding"] == config.position_encoding.name
    assert 0.0 <= result["test_accuracy"] <= result["test_top5"] <= 1.0
    rows = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    losses = [row["loss"] for row in rows if row["kind"] == "step"]
    expected = np.log(2) if config.training.loss == "bce" else np.log(CLASSES)
    assert len(losses) == 2
    assert losses[0] == pytest.approx(expected, rel=0.3)


def test_shipped_recipes_are_what_they_are_named_after():
    deit, deit3 = (
        load_config(f"imagenet_{name}_weierstrass") for name in ("vit_small", "deit3_base")
    )
    assert deit.augmentation.policy == "randaugment"
    assert deit.augmentation.repeats == deit3.augmentation.repeats == 3
    assert deit3.optimizer.name == "timm:lamb"
    assert (deit3.training.loss, deit3.training.bce_threshold) == ("bce", 0.0)
    assert deit3.model.layer_scale > 0
    for name in SHIPPED:
        assert load_config(name).selection.by == "last"
