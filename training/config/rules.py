"""Rules about several keys at once: combinations that cannot work, and files that are missing.

Each rule names the key to change. The rules are checked on every `Experiment`, however it was
made; `check_files` looks for files at the start of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

from training.config.encoding_rules import encoding_problems, table_problems
from training.config.errors import ConfigError, Problem, RuleViolations
from training.config.model_sizes import DHVT, image_size, model_shape
from training.config.optimizers import name_problem
from training.config.schema import HUB_PREFIX, WEIGHTS, Experiment
from training.data.datasets import DATASETS
from wefpe_core.errors import did_you_mean

# DHVT has no choice about these.
_DHVT_FIXED = {
    "class_token": True,
    "register_tokens": 0,
    "pooling": "token",
    "patch_norm": False,
    "weight_init": "trunc_normal",
    "layer_scale": 0.0,
}
_DHVT_PATCHES = (2, 4, 16)


def check(config: Experiment, unreadable: Collection[str] = ()) -> None:
    """Raise `RuleViolations` with everything that does not go together.

    `unreadable` are tables with values that are wrong by themselves. Rules that read them are left
    out: with other values they might say something else.
    """

    def found(rule: Callable[[Experiment], Iterable[Problem]], *tables: str) -> list[Problem]:
        return [] if any(table in unreadable for table in tables) else list(rule(config))

    of_model = [*found(_model, "model", "data"), *found(_head, "model")]
    problems = [
        *found(_data, "data", "training"),
        *of_model,
        *found(_training, "training", "optimizer"),
        *found(_optimizer, "optimizer"),
        *found(_augmentation, "augmentation", "data"),
        *found(_reading, "augmentation", "data", "training"),
        *found(_loss, "training", "distillation"),
        *found(_fields, "data", "model", "training", "augmentation", "distillation"),
        *found(_start, "model", "position_encoding"),
        *found(_recompute, "training", "model"),
        *found(_selection, "selection", "data"),
        *found(_logging, "logging"),
    ]
    of_encoding = found(table_problems, "position_encoding")
    problems += of_encoding
    # An encoding is made for the model: with an impossible model its complaint would be noise.
    if not of_model and not of_encoding:
        problems += found(encoding_problems, "position_encoding", "model", "data")
    if problems:
        raise RuleViolations(problems)


def _data(config: Experiment) -> Iterator[Problem]:
    data, record = config.data, DATASETS[config.data.name]
    if record.needs == "folder":
        if not data.path:
            yield Problem("data.path", f"data.name = {data.name!r} needs the folder", data.path)
        if data.download:
            yield Problem(
                "data.download", f"there is nothing to download for {data.name!r}", data.download
            )
        if data.image_size is None:
            yield Problem(
                "data.image_size",
                f"must be given for {data.name!r}, whose images may have any size",
                data.image_size,
            )
    else:
        for key, default in (("resize", None), ("interpolation", "bilinear"), ("damaged", "stop")):
            if getattr(data, key) != default:
                message = f"is for images in files, and {data.name!r} is in memory"
                yield Problem(f"data.{key}", message, getattr(data, key))
    if data.resize is not None and data.image_size is not None and data.resize < data.image_size:
        yield Problem(
            "data.resize",
            f"data.image_size = {data.image_size} cannot be cut out of something smaller",
            data.resize,
        )
    if data.labels == "coarse" and record.coarse_classes is None:
        having = [name for name, each in DATASETS.items() if each.coarse_classes is not None]
        message = f"only {', '.join(having)} has coarse labels, not {data.name}"
        yield Problem("data.labels", message, "coarse")
    if (data.mean is None) != (data.std is None):
        key, value = ("mean", data.mean) if data.std is None else ("std", data.std)
        other = "std" if key == "mean" else "mean"
        yield Problem(f"data.{key}", f"give data.{other} as well, or neither", value)
    if data.mean and data.std and len(data.mean) != len(data.std):
        yield Problem(
            "data.std", f"data.mean has {len(data.mean)} channels, this {len(data.std)}", data.std
        )
    if data.std is not None and min(data.std, default=0.0) <= 0.0:
        yield Problem("data.std", "must be positive in every channel", data.std)
    own = record.validation_images
    if own is not None and data.validation not in (0, own):
        yield Problem(
            "data.validation",
            f"{data.name} has its own {own} validation images: say {own}, or 0 to train on them "
            "too",
            data.validation,
        )
    yield from _counts(config)


def _counts(config: Experiment) -> Iterator[Problem]:
    """There must be images to train on, at least one batch of them."""
    data, known = config.data, DATASETS[config.data.name].training_images
    left = None if known is None else known - data.validation
    if left is not None and left < 1:
        yield Problem(
            "data.validation", f"{data.name} has only {known} training images", data.validation
        )
        return
    images = data.train_images
    if images is not None and left is not None and images > left:
        yield Problem(
            "data.train_images",
            f"{data.name} has {known} training images and data.validation = {data.validation} "
            f"holds some of them out: at most {left}",
            images,
        )
        return
    images = left if images is None else images
    if images is not None and config.training.batch_size > images:
        yield Problem(
            "training.batch_size",
            f"there are only {images} images to train on, less than one batch",
            config.training.batch_size,
        )


def _model(config: Experiment) -> Iterator[Problem]:
    model, shape, size = config.model, model_shape(config), image_size(config)
    if shape.dim % shape.num_heads:
        key = "num_heads" if model.num_heads is not None else "dim"
        yield Problem(
            f"model.{key}",
            f"dim {shape.dim} is not divisible by {shape.num_heads} heads",
            getattr(shape, key),
        )
    if size is not None and size % shape.patch_size:
        from_patch = model.patch_size is not None or config.data.image_size is None
        key = "model.patch_size" if from_patch else "data.image_size"
        divisors = [n for n in range(1, size + 1) if size % n == 0]
        fitting = ", ".join(map(str, divisors))
        yield Problem(
            key,
            f"images of {size} x {size} are not divisible into patches of {shape.patch_size}; "
            f"patch sizes that divide {size}: {fitting}",
            shape.patch_size if from_patch else size,
        )
    if model.name == DHVT:
        for key, only in _DHVT_FIXED.items():
            if getattr(model, key) != only:
                yield Problem(f"model.{key}", f"{DHVT} has {only!r} only", getattr(model, key))
        if shape.patch_size not in _DHVT_PATCHES:
            yield Problem("model.patch_size", f"{DHVT} has patches of 2, 4 or 16", shape.patch_size)
    elif model.pooling == "token" and not model.class_token:
        yield Problem("model.pooling", "there is no class token (model.class_token)", "token")


def _head(config: Experiment) -> Iterator[Problem]:
    model, dim = config.model, model_shape(config).dim
    layers, dropouts = len(model.head_layers), len(model.head_dropouts)
    if layers and dropouts not in (0, layers + 1):
        yield Problem(
            "model.head_dropouts",
            f"a head with {layers} hidden layers has {layers + 1} dropouts, one before each layer "
            "and one before the last; or give none",
            model.head_dropouts,
        )
    elif not layers and dropouts > 1:
        yield Problem(
            "model.head_dropouts",
            "a linear head (model.head_layers = []) has one at most",
            model.head_dropouts,
        )
    if any(fraction * dim < 1.0 for fraction in model.head_layers):
        yield Problem(
            "model.head_layers",
            f"a layer would be narrower than 1 of {dim} channels",
            model.head_layers,
        )


def _training(config: Experiment) -> Iterator[Problem]:
    training = config.training
    if training.batch_size % training.accumulation:
        yield Problem(
            "training.accumulation",
            f"training.batch_size = {training.batch_size} is not divisible by this number of parts",
            training.accumulation,
        )
    if not any(
        (config.optimizer.backbone_rate, config.optimizer.encoding_rate, config.optimizer.head_rate)
    ):
        yield Problem("optimizer.backbone_rate", "with all three rates 0 nothing is trained", 0.0)


def _recompute(config: Experiment) -> Iterator[Problem]:
    if config.training.recompute and config.model.name == DHVT:
        yield Problem("training.recompute", f"{DHVT} has no such choice", True)


def _optimizer(config: Experiment) -> Iterator[Problem]:
    optimizer = config.optimizer
    message = name_problem(optimizer.name)
    if message is not None:
        yield Problem("optimizer.name", message, optimizer.name)
    for key in ("lr", "params", "weight_decay", "betas"):
        if key in optimizer.options:
            say = {"lr": "learning_rate"}.get(key, key)
            yield Problem(
                f"optimizer.options.{key}", f"say optimizer.{say}", optimizer.options[key]
            )


def _loss(config: Experiment) -> Iterator[Problem]:
    training, distillation = config.training, config.distillation
    if training.bce_threshold is not None and training.loss != "bce":
        message = "needs training.loss = 'bce'"
        yield Problem("training.bce_threshold", message, training.bce_threshold)
    if not distillation.teacher:
        for key, default in (("kind", "hard"), ("share", 0.5), ("temperature", 1.0)):
            value = getattr(distillation, key)
            if value != default:
                yield Problem(f"distillation.{key}", "there is no distillation.teacher", value)
    elif distillation.kind == "hard" and distillation.temperature != 1.0:
        message = "has an effect with distillation.kind = 'soft' only"
        yield Problem("distillation.temperature", message, distillation.temperature)


# What must be off where fields are predicted, and how one says so.
_NOT_FOR_FIELDS = {
    "augmentation.crop_padding": 0,
    "augmentation.flip": 0.0,
    "augmentation.vertical_flip": 0.0,
    "augmentation.random_resized_crop": None,
    "augmentation.rotation": 0.0,
    "augmentation.brightness": 0.0,
    "augmentation.contrast": 0.0,
    "augmentation.erase_probability": 0.0,
    "augmentation.cutout": 0,
    "augmentation.mixup_alpha": 0.0,
    "augmentation.cutmix_alpha": 0.0,
    "training.label_smoothing": 0.0,
    "distillation.teacher": "",
}


def _fields(config: Experiment) -> Iterator[Problem]:
    """Fields are predicted at every pixel, classes by the pooled tokens."""
    name, predicts = config.data.name, DATASETS[config.data.name].predicts
    for key, value, of_fields in (
        ("model.pooling", config.model.pooling, "patches"),
        ("training.loss", config.training.loss, "relative_l2"),
    ):
        if (value == of_fields) != (predicts == "fields"):
            wanted = f"{of_fields!r}" if predicts == "fields" else f"another than {of_fields!r}"
            yield Problem(key, f"{name} has {predicts} to predict: say {wanted}", value)
    if predicts != "fields":
        return
    for key, off in _NOT_FOR_FIELDS.items():
        table, _, word = key.partition(".")
        value = getattr(getattr(config, table), word)
        if value != off:
            shown = "unset" if off is None else off
            message = f"{name} has fields to predict, which would not follow: say {shown!r}"
            yield Problem(key, message, value)


def _start(config: Experiment) -> Iterator[Problem]:
    """A model that starts as a Green operator must have room for it."""
    model, place = config.model, config.position_encoding
    if model.start == "random":
        return
    needs = []
    if model.pooling != "patches" or model.patch_norm or model.layer_scale or model.head_layers:
        needs.append(
            "model.pooling = 'patches', and neither patch_norm nor layer_scale nor head_layers"
        )
    whole = place.options.get("alpha_u", 0.5) == place.options.get("alpha_v", 1.0) == 1.0
    is_green = place.name == "weierstrass_green" and place.options.get("form") == "log"
    if not (is_green and whole):
        needs.append("position_encoding weierstrass_green with form = 'log', alpha_u = alpha_v = 1")
    shape = model_shape(config)
    channels = 2 * shape.patch_size**2 + 4
    if shape.dim < channels:
        needs.append(f"model.dim of {channels} or more")
    if needs:
        yield Problem("model.start", f"needs {'; and '.join(needs)}", model.start)


def _reading(config: Experiment) -> Iterator[Problem]:
    """What images are taken and what is done to them one by one."""
    augmentation, training = config.augmentation, config.training
    if 1 < augmentation.repeats >= training.batch_size:
        message = f"a batch of {training.batch_size} would hold one image only"
        yield Problem("augmentation.repeats", message, augmentation.repeats)
    if augmentation.random_crop:
        if config.data.resize is None:
            message = "needs data.resize, out of which it cuts data.image_size"
            yield Problem("augmentation.random_crop", message, True)
        if augmentation.random_resized_crop is not None:
            message = "augmentation.random_resized_crop cuts windows already; leave one of them out"
            yield Problem("augmentation.random_crop", message, True)
    if augmentation.policy != "randaugment":
        for key, default in (("operations", 2), ("magnitude", 9.0), ("deviation", 0.5)):
            value = getattr(augmentation, f"policy_{key}")
            if value != default:
                message = "needs augmentation.policy = 'randaugment'"
                yield Problem(f"augmentation.policy_{key}", message, value)
    if augmentation.policy != "none" and DATASETS[config.data.name].channels == 1:
        message = f"{config.data.name} has no colours"
        yield Problem("augmentation.policy", message, augmentation.policy)
    until = augmentation.mix_until_epoch
    is_mixing = augmentation.mixup_alpha or augmentation.cutmix_alpha
    for key in ("mix_from_epoch", "mix_until_epoch"):
        if getattr(augmentation, key) and not is_mixing:
            message = "neither mixup nor cutmix is on"
            yield Problem(f"augmentation.{key}", message, getattr(augmentation, key))
    if until is not None and until <= augmentation.mix_from_epoch:
        yield Problem("augmentation.mix_until_epoch", "must be after mix_from_epoch", until)


def _augmentation(config: Experiment) -> Iterator[Problem]:
    augmentation, size = config.augmentation, image_size(config)
    crop = augmentation.random_resized_crop
    if crop is not None:
        for key in ("scale", "ratio"):
            low, high = getattr(crop, key)
            if low > high:
                yield Problem(
                    f"augmentation.random_resized_crop.{key}",
                    "the first number must not be above the second",
                    (low, high),
                )
        if crop.scale[1] > 1.0:
            yield Problem(
                "augmentation.random_resized_crop.scale",
                "a crop cannot cover more than the whole image, 1.0",
                crop.scale,
            )
    # Shifts act on the images as stored, which are never larger than the model's.
    stored = min(filter(None, (size, DATASETS[config.data.name].size)), default=None)
    for key, pixels, side in (
        ("crop_padding", augmentation.crop_padding, stored),
        ("cutout", augmentation.cutout, size),
    ):
        if side is not None and pixels > side:
            yield Problem(f"augmentation.{key}", f"the images have {side} pixels only", pixels)
    if augmentation.mixup_alpha_warmup and not augmentation.mixup_alpha:
        yield Problem(
            "augmentation.mixup_alpha_warmup",
            "mixup is off (augmentation.mixup_alpha = 0)",
            augmentation.mixup_alpha_warmup,
        )
    if DATASETS[config.data.name].channels == 1:
        for key in ("saturation", "hue", "grayscale"):
            if getattr(augmentation, key):
                yield Problem(
                    f"augmentation.{key}",
                    f"{config.data.name} has no colours",
                    getattr(augmentation, key),
                )


def _selection(config: Experiment) -> Iterator[Problem]:
    selection = config.selection
    if selection.by == "validation" and not config.data.validation:
        yield Problem(
            "selection.by",
            "there are no validation images: set data.validation, or say 'last'",
            selection.by,
        )
    if selection.by == "last":
        for key in ("patience", "retrain_on_all"):
            value = getattr(selection, key)
            if value:
                yield Problem(f"selection.{key}", "needs selection.by = 'validation'", value)


def _logging(config: Experiment) -> Iterator[Problem]:
    trackers = config.logging.trackers
    if len(set(trackers)) < len(trackers):
        yield Problem("logging.trackers", "a tracker is named twice", trackers)


def check_files(config: Experiment) -> None:
    """Raise `ConfigError` if a file or folder the config names is not there.

    It is called at the start of a run, before any work. What the files hold is judged when they
    are read.
    """
    problems = []
    images, teacher = config.data.path, config.distillation.teacher
    for key, weights in (
        ("model.checkpoint", config.model.checkpoint),
        ("distillation.teacher", teacher),
    ):
        path = Path(weights).expanduser()
        if weights.startswith(HUB_PREFIX):
            if find_spec("huggingface_hub") is None:
                message = "needs huggingface_hub: pip install 'wefpe[hub]', or give a path"
                problems.append(Problem(key, message, weights))
        elif weights and key == "model.checkpoint" and path.is_dir():
            if not (path / WEIGHTS).is_file():
                message = f"is no finished run: there is no {WEIGHTS} in it"
                problems.append(Problem(key, message, weights))
        elif weights and not path.is_file() and not (weights is teacher and path.is_dir()):
            problems.append(Problem(key, _missing(weights, "file"), weights))
    if images and not config.data.download and not Path(images).expanduser().exists():
        problems.append(Problem("data.path", _missing(images, "folder"), images))
    if problems:
        raise ConfigError(problems)


def _missing(name: str, kind: str) -> str:
    path = Path(name).expanduser()
    if path.is_dir():
        return f"is a directory, not a {kind} of weights"
    around = path.parent
    hint = ""
    if around.is_dir():
        hint = did_you_mean(path.name, (each.name for each in around.iterdir()), count=3)
    return f"there is no such {kind}; looked for {path.absolute()}{hint}"
