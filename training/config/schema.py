"""Every key of an experiment: its type, its range and its default.

The attribute path is the path in a TOML file: ``config.training.epochs`` is ``epochs`` in the table
``[training]``. ``experiments/default.toml`` holds the same values and says beside each key what it
does and why its default is what it is. TOML has no null: in files and overrides the word "unset"
stands for `None`.

Nothing is converted: a number in quotes is a mistake, and so is 3.0 epochs. Rules about several
keys are in `training.config.rules`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    model_validator,
)
from pydantic_core import PydanticCustomError

from training.data.datasets import DatasetName

# Part of the hash of a config. It is raised when a default changes or a key is renamed, since a
# hash is made of the keys that differ from their defaults; a new key leaves it as it is.
SCHEMA_VERSION = 1
UNSET = "unset"  # how a file says None
UNREADABLE = "unreadable"  # in the context of a validation: tables with values that are wrong
Labels = Literal["fine", "coarse"]
Pooling = Literal["token", "mean", "patches"]
WeightInit = Literal["trunc_normal", "xavier"]
Positions = Literal["keep", "resample", "replace", "hybrid"]
VerificationPolicy = Literal["require", "warn", "off"]
WEIGHTS = "weights.safetensors"  # of a finished run, in its folder beside its config
HUB_PREFIX = "hf-hub:"  # of weights that are kept on the hub of Hugging Face


def _none_if_unset(value: Any) -> Any:
    return None if value == UNSET else value


def _without_unset(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {key: each for key, each in value.items() if each != UNSET}


def _plain(options: dict[str, Any]) -> dict[str, Any]:
    """The options unchanged, if a TOML file can hold them."""

    def is_plain(value: Any) -> bool:
        if isinstance(value, list):
            return all(map(is_plain, value))
        if isinstance(value, dict):
            return all(isinstance(key, str) and is_plain(each) for key, each in value.items())
        return isinstance(value, (bool, int, float, str))

    for name, value in options.items():
        if not is_plain(value):
            raise PydanticCustomError(
                "not_plain",
                "{name} must be a number, text, true, false, a list or a table",
                {"name": name},
            )
    return options


def _tuple_if_list(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


_List = BeforeValidator(_tuple_if_list)  # TOML has lists; a config that cannot change has tuples
_Unset = BeforeValidator(_none_if_unset)

Count = Annotated[int, Field(ge=1)]
CountOrZero = Annotated[int, Field(ge=0)]
NotNegative = Annotated[float, Field(ge=0.0)]
Positive = Annotated[float, Field(gt=0.0)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
ShareBelowOne = Annotated[float, Field(ge=0.0, lt=1.0)]
OptionalCount = Annotated[Count | None, _Unset]
Interval = Annotated[tuple[Positive, Positive], _List]
PerChannel = Annotated[tuple[float, ...] | None, _List, _Unset]


class ConfigSection(BaseModel):
    """A table of the config: it takes no unknown key, converts nothing and cannot be changed."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Data(ConfigSection):
    name: DatasetName = "cifar100"
    path: str = ""  # relative to the working directory; "" where downloads are kept
    download: bool = False
    image_size: OptionalCount = None  # side of the squares the model sees; None: as stored
    labels: Labels = "fine"
    train_images: OptionalCount = None  # after the split
    validation: CountOrZero = 5000  # images held out of training
    mean: PerChannel = None  # of pixels from 0 to 1; None: that of the data set
    std: PerChannel = None
    resize: OptionalCount = None  # shorter side before the middle is cut out; None: squashed
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"
    damaged: Literal["stop", "blank"] = "stop"
    workers: OptionalCount = None  # threads that decode; None: one for each core


class Model(ConfigSection):
    name: Literal["vit_micro", "vit_tiny", "vit_small", "vit_base", "vit_large", "dhvt_tiny"] = (
        "vit_micro"
    )
    patch_size: OptionalCount = None  # None, here and in the next three: that of the name
    dim: OptionalCount = None
    depth: OptionalCount = None
    num_heads: OptionalCount = None
    class_token: bool = True
    register_tokens: CountOrZero = 0
    pooling: Pooling = "token"
    patch_norm: bool = False
    dropout: ShareBelowOne = 0.0
    attention_dropout: ShareBelowOne = 0.0
    drop_path: ShareBelowOne = 0.0
    weight_init: WeightInit = "xavier"
    checkpoint: str = ""  # "": from scratch
    positions: Positions = "resample"  # only with a checkpoint
    head: Literal["new", "keep"] = "new"  # likewise
    head_layers: Annotated[tuple[Positive, ...], _List] = ()  # widths as fractions of dim
    head_dropouts: Annotated[tuple[ShareBelowOne, ...], _List] = ()  # before each layer of the head
    layer_scale: NotNegative = 0.0  # 0: none
    start: Literal["random", "green"] = "random"  # green: the model is a Green operator


class PositionEncoding(ConfigSection):
    name: str = "weierstrass"
    backend: str = "torch"  # any name of available_backends()
    options: Annotated[dict[str, Any], BeforeValidator(_without_unset), AfterValidator(_plain)] = (
        Field(default_factory=dict)
    )
    scale_match: Annotated[Positive | None, _Unset] = None


class Training(ConfigSection):
    epochs: Count = 60
    batch_size: Count = 128  # of one step of the optimiser, over all processes
    accumulation: Count = 1
    precision: Literal["no", "bf16", "fp16"] = "no"
    compile: bool = False
    ema_decay: ShareBelowOne = 0.0  # 0: off
    label_smoothing: ShareBelowOne = 0.1
    clip_norm: NotNegative = 1.0  # 0: off
    threads: CountOrZero = 0  # 0: as many as torch chooses
    recompute: bool = False
    loss: Literal["cross_entropy", "bce", "relative_l2"] = "cross_entropy"
    bce_threshold: Annotated[ShareBelowOne | None, _Unset] = None


class Optimizer(ConfigSection):
    name: str = "adamw"  # of training.config.optimizers, or timm:NAME
    learning_rate: Positive = 1e-3
    weight_decay: NotNegative = 0.05
    betas: Annotated[tuple[ShareBelowOne, ShareBelowOne], _List] = (0.9, 0.999)
    decay: Literal["matrices", "all"] = "matrices"
    backbone_rate: NotNegative = 1.0  # factors of learning_rate
    encoding_rate: NotNegative = 1.0
    head_rate: NotNegative = 1.0
    layer_decay: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0  # 1: all layers learn alike
    options: Annotated[dict[str, Any], BeforeValidator(_without_unset), AfterValidator(_plain)] = (
        Field(default_factory=dict)
    )


class Schedule(ConfigSection):
    warmup_epochs: NotNegative = 5.0
    final_rate: Share = 0.0  # as a fraction of the highest
    restart_epochs: CountOrZero = 0  # 0: one cosine over the rest
    restart_factor: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    per: Literal["step", "epoch"] = "step"


class RandomResizedCrop(ConfigSection):
    scale: Interval = (0.08, 1.0)  # share of the area
    ratio: Interval = (0.75, 4.0 / 3.0)  # width over height


class Augmentation(ConfigSection):
    crop_padding: CountOrZero = 4  # pixels; 0: no shifts
    flip: Share = 0.5  # probabilities
    vertical_flip: Share = 0.0
    random_resized_crop: Annotated[RandomResizedCrop | None, _Unset] = None
    rotation: Annotated[float, Field(ge=0.0, le=180.0)] = 0.0  # degrees to either side
    brightness: NotNegative = 0.0
    contrast: NotNegative = 0.0
    saturation: NotNegative = 0.0
    hue: Annotated[float, Field(ge=0.0, le=0.5)] = 0.0
    grayscale: Share = 0.0
    erase_probability: Share = 0.0
    cutout: CountOrZero = 0  # side of the square in pixels; 0: off
    mixup_alpha: NotNegative = 0.0  # 0: off
    mixup_alpha_warmup: Annotated[NotNegative | None, _Unset] = None  # None: as mixup_alpha
    cutmix_alpha: NotNegative = 0.0  # 0: off
    mix_probability: Share = 1.0  # that a batch is mixed at all
    switch_probability: Share = 0.5  # of cutmix, if mixup is on too
    mix_from_epoch: CountOrZero = 0  # epochs before it are not mixed
    mix_until_epoch: OptionalCount = None  # nor is this one and those after it
    random_crop: bool = False  # with data.resize: a window at a random place, not the middle
    policy: Literal["none", "randaugment", "trivialaugment", "three_augment"] = "none"
    policy_operations: Count = 2  # these three of randaugment
    policy_magnitude: Annotated[float, Field(ge=0.0, le=10.0)] = 9.0
    policy_deviation: NotNegative = 0.5
    repeats: Count = 1  # how often a batch holds each of its images


class Distillation(ConfigSection):
    teacher: str = ""  # "": none
    kind: Literal["hard", "soft"] = "hard"
    share: Share = 0.5  # of the loss
    temperature: Positive = 1.0  # of soft


class Selection(ConfigSection):
    by: Literal["validation", "last"] = "validation"
    patience: CountOrZero = 0  # epochs; 0: off
    patience_from: CountOrZero = 0  # first epoch at which patience may end the run
    retrain_on_all: bool = False


class Checkpointing(ConfigSection):
    every_steps: CountOrZero = 0  # 0: only at the end of each epoch
    every_minutes: NotNegative = 0.0  # 0: not by the clock
    keep: Count = 2


class Logging(ConfigSection):
    tensorboard: bool = True
    trackers: Annotated[tuple[Literal["wandb", "mlflow"], ...], _List] = ()
    every_steps: Count = 10


class Experiment(ConfigSection):
    """One experiment; made by `training.config.load_config`."""

    seed: CountOrZero = 0
    verification: VerificationPolicy = "warn"  # whether the backend must have a receipt
    data: Data = Field(default_factory=Data)
    model: Model = Field(default_factory=Model)
    position_encoding: PositionEncoding = Field(default_factory=PositionEncoding)
    training: Training = Field(default_factory=Training)
    optimizer: Optimizer = Field(default_factory=Optimizer)
    schedule: Schedule = Field(default_factory=Schedule)
    augmentation: Augmentation = Field(default_factory=Augmentation)
    distillation: Distillation = Field(default_factory=Distillation)
    selection: Selection = Field(default_factory=Selection)
    checkpoint: Checkpointing = Field(default_factory=Checkpointing)
    logging: Logging = Field(default_factory=Logging)

    @model_validator(mode="after")
    def _follows_rules(self, info: ValidationInfo) -> Experiment:
        from training.config.rules import check  # which is written for this class

        check(self, (info.context or {}).get(UNREADABLE, ()))
        return self
