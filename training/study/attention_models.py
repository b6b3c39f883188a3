"""Models that give their attention, from finished runs and published weights, and photographs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from PIL import Image, ImageOps
from torch import Tensor, nn

from training.augmentation import Normalisation
from training.engine.finished_run import FinishedRun, config_of_finished_run, open_finished_run
from training.models import (
    VIT_SIZES,
    HybridVisionTransformer,
    VisionTransformer,
    build_vit,
    load_checkpoint,
)
from training.models.checkpoint_files import HUB_PREFIX, read_weights
from training.models.pretrained import split_positions
from training.parsing import ImageSize, height_and_width
from training.study.run_groups import label_runs
from wefpe_core.errors import InputError

Source = str | Path  # the folder of a run, a file of weights, or hf-hub:owner/name


@dataclass(frozen=True)
class AttentionModel:
    """A model, and how images are prepared for it as in training."""

    label: str
    model: VisionTransformer
    normalise: Normalisation  # with the mean, deviation and size of its training
    class_names: tuple[str, ...]  # empty if unknown
    run: FinishedRun | None = None  # None for published weights

    @property
    def patch_size(self) -> int:
        return self.model.patch_embed.patch_size


def open_models(
    sources: Sequence[Source],
    *,
    mean: Sequence[float] = (0.5,),
    std: Sequence[float] = (0.5,),
) -> list[AttentionModel]:
    """Models from run folders and files of weights, all checked before the first is opened.

    `mean` and `std` are for files of weights, which do not say how their images were normalised.
    """
    if not sources:
        raise InputError("no model is named")
    kinds = {str(source): _is_run(source) for source in sources}
    runs = {
        Path(name): config_of_finished_run(Path(name)) for name, is_run in kinds.items() if is_run
    }
    labels = label_runs(runs)
    if len(set(labels.values())) < len(labels):  # some differ only in the seed
        labels = {path: f"{label}, seed {runs[path].seed}" for path, label in labels.items()}
    models: list[AttentionModel] = []
    for name, is_run in kinds.items():
        if is_run:
            model = _model_of_run(Path(name), labels[Path(name)])
        else:
            model = _model_of_weights(name, tuple(mean), tuple(std))
        if any(model.label == other.label for other in models):
            model = replace(model, label=f"{model.label} ({len(models) + 1})")
        models.append(model)
    return models


def _is_run(source: Source) -> bool:
    if str(source).startswith(HUB_PREFIX):
        return False
    path = Path(source)
    if not path.exists():
        raise InputError(
            f"{path} does not exist; a model is a folder of a run or a file of weights"
        )
    return path.is_dir()


def _model_of_run(path: Path, label: str) -> AttentionModel:
    run = open_finished_run(path)
    model = checked_model(run.model, str(path))
    return AttentionModel(label, model, run.splits.normalise, run.splits.class_names, run)


def checked_model(model: nn.Module, name: str) -> VisionTransformer:
    """The model, or an error if its attention alone does not say how its tokens mix."""
    if getattr(model, "pooling", "") == "patches":
        raise InputError(f"{name} predicts fields patch by patch; there is no answer to explain")
    if isinstance(model, HybridVisionTransformer):
        raise InputError(
            f"{name} is a DHVT: its convolutions mix patches besides the attention, and its head "
            "tokens pass through no layer, so that a rollout of attention would not describe it"
        )
    if not isinstance(model, VisionTransformer):
        raise InputError(
            f"{name}: {type(model).__name__} gives no attention maps; a rollout needs a "
            "vision transformer of this package"
        )
    return model


def _model_of_weights(
    source: str, mean: tuple[float, ...], std: tuple[float, ...]
) -> AttentionModel:
    weights, path = read_weights(source)
    model, size = vit_of_weights(weights, path)
    load_checkpoint(model, source)
    normalise = Normalisation(mean, std, size=size, channels=3)
    # All files of the hub have the same name; the folder tells them apart.
    named = path.parent.name if path.stem in ("model", "pytorch_model") else path.stem
    label = source if source.startswith(HUB_PREFIX) else named
    return AttentionModel(label, model.eval(), normalise, ())


def vit_of_weights(
    weights: Mapping[str, Tensor], path: Path
) -> tuple[VisionTransformer, tuple[int, int]]:
    """A model with the shapes of these weights in timm's names, and the size of its images."""
    try:
        dim, _, patch, _ = weights["patch_embed.proj.weight"].shape
        table = split_positions(weights, path)
    except KeyError as error:
        raise InputError(
            f"{path} holds no vision transformer with learned positions: there is no {error}"
        ) from None
    depth = len({name.split(".")[1] for name in weights if name.startswith("blocks.")})
    names = [n for n, s in VIT_SIZES.items() if (s["dim"], s["depth"]) == (dim, depth)]
    if not names:
        raise InputError(
            f"{path}: {depth} layers of width {dim} are none of {', '.join(VIT_SIZES)}"
        )
    size = table.grid[0] * patch, table.grid[1] * patch
    options: dict[str, Any] = {
        "patch_size": patch,
        "num_classes": len(weights["head.weight"]) if "head.weight" in weights else 0,
        "class_token": "cls_token" in weights,
        "register_tokens": weights["reg_token"].shape[1] if "reg_token" in weights else 0,
        "pooling": "mean" if "fc_norm.weight" in weights else "token",
    }
    model = build_vit(names[0], encoding="learned", image_size=size, **options)
    return model, size


# --- Photographs ---------------------------------------------------------------------------

_WIDE_MODES = ("I", "F")  # more than 8 bits, which a conversion would clip
_TRANSPARENT_MODES = ("RGBA", "LA", "PA", "RGBa", "La")


@dataclass(frozen=True)
class Photograph:
    """A decoded image and its name."""

    name: str
    image: Image.Image  # RGB, turned as its EXIF data say, white where it is transparent

    def fitted(self, size: ImageSize, channels: int) -> Tensor:
        """uint8 (channels, height, width): scaled to cover that size, the middle cut out."""
        height, width = height_and_width(size)
        image = self.image if channels == 3 else self.image.convert("L")
        image = ImageOps.fit(image, (width, height), Image.Resampling.BICUBIC)
        flat = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
        return flat.view(height, width, channels).permute(2, 0, 1)


def read_photographs(paths: Sequence[Path]) -> list[Photograph]:
    """Decode every file, so that one that is missing or no image is named before any work."""
    photographs = []
    unique = list(dict.fromkeys(map(Path, paths)))
    stems = [path.stem for path in unique]
    for path in unique:
        if not path.is_file():
            what = "is a folder, not an image" if path.is_dir() else "does not exist"
            raise InputError(f"{path} {what}")
        try:
            with Image.open(path) as image:
                if image.mode.startswith(_WIDE_MODES):
                    raise InputError(f"{path} has more than 8 bits per channel; convert it")
                turned = _on_white(ImageOps.exif_transpose(image))
        except InputError:
            raise
        except Exception as error:  # OSError, SyntaxError, ValueError, DecompressionBombError, ...
            raise InputError(f"{path} cannot be decoded as an image: {error}") from error
        name = path.stem if stems.count(path.stem) == 1 else str(path)
        photographs.append(Photograph(name, turned))
    return photographs


def _on_white(image: Image.Image) -> Image.Image:
    """The image in RGB, with white in place of the arbitrary colours of transparent pixels."""
    if image.mode not in _TRANSPARENT_MODES and "transparency" not in image.info:
        return image.convert("RGB")
    above = image.convert("RGBA")
    white = Image.new("RGBA", above.size, "white")
    return Image.alpha_composite(white, above).convert("RGB")
