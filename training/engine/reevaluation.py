"""The weights of a finished run, loaded again and evaluated."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from safetensors.torch import load_file

from training.configuration import build_model, load_config
from training.data import open_data
from training.engine.errors import RunError
from training.engine.evaluation import evaluate
from training.engine.metrics import Scores
from training.engine.run_folder import RunFolder, append_line
from training.engine.runs import build_accelerator


def evaluate_run(
    path: Path,
    split: Literal["validation", "test"],
    *,
    image_size: int | None = None,
    batch_size: int = 256,
) -> Scores:
    """Scores of a finished run on a split, appended to its ``evaluations.jsonl``."""
    folder = RunFolder(path)
    if not folder.config.exists():
        raise RunError(f"{path} holds no run: there is no {folder.config.name}")
    if not folder.weights.exists():
        raise RunError(f"{path} is not finished: there is no {folder.weights.name}; --resume it")
    experiment = load_config(folder.config)
    data = experiment.data
    if image_size is not None:
        data = data.model_copy(update={"image_size": image_size})
    splits = open_data(data, experiment.seed)
    source = splits.open_test() if split == "test" else splits.validation
    if source is None:
        raise RunError(f"{path} held out no validation images (data.validation=0)")
    model = build_model(experiment, len(splits.class_names), splits.channels, pretrained=False)
    model.load_state_dict(load_file(folder.weights))
    accelerator = build_accelerator(experiment)
    scores = evaluate(
        model.to(accelerator.device), source, splits.normalise, batch_size, accelerator
    )
    row: dict[str, Any] = {"when": datetime.now(UTC).isoformat(timespec="seconds"), "split": split}
    row |= {"image_size": image_size, "accuracy": scores.accuracy, "loss": scores.loss}
    append_line(folder.evaluations, row | {"images": scores.images})
    return scores
