"""A page about a finished run, for people."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from training.configuration import Experiment
from training.engine.run_folder import SEARCH, RunFolder, training_rows, write_whole

_SELECTION = {
    "validation": "The weights are those that did best on images held out of training.",
    "last": "The weights are those of the last epoch.",
}
_PARTS = (
    "The number of epochs was searched on images held out of training; the weights are those of "
    "the final training, on all images, after so many."
)
_TEST = "The test set was opened once, after everything else."


def write_report(folder: RunFolder, experiment: Experiment, result: Mapping[str, Any]) -> None:
    """Write ``report.md``: result, circumstances, curves and epochs, where everything lies."""
    accuracy = result["validation_accuracy"]
    found = "not used" if accuracy is None else f"{accuracy:.2%}, epoch {result['selected_epoch']}"
    where = result["circumstances"]
    trainings = folder.trainings()
    if SEARCH in trainings:
        found = f"in the search only, which found {result['epochs']} epochs"
    options = experiment.position_encoding.options
    lines = [
        f"# {experiment.model.name}, {experiment.position_encoding.name}, {experiment.data.name}",
        "",
        "| | |",
        "|---|---|",
        f"| test accuracy | {result['test_accuracy']:.2%} of {result['test_images']:,} images |",
        f"| validation accuracy | {found} |",
        f"| learned parameters | {result['parameters']:,} |",
        f"| training | {result['epochs']} epochs, {result['training_seconds']:.1f} s |",
        f"| peak memory | {result['peak_memory_mb']:,.0f} MB |",
        f"| seed | {result['seed']} |",
        f"| encoding options | {', '.join(f'{k}={v}' for k, v in options.items()) or 'defaults'} |",
        f"| device | {where['device']} |",
        f"| processes, threads | {where['processes']}, {where['threads']} |",
        "",
        f"{_PARTS if SEARCH in trainings else _SELECTION[experiment.selection.by]} {_TEST}",
        "",
    ]
    for name, part in trainings.items():
        lines += [f"## {name}", ""] if name else []
        lines += _training(part, folder)
    loaded = [part.pretrained for part in trainings.values() if part.pretrained.exists()]
    if loaded:
        text = loaded[-1].read_text(encoding="utf-8").rstrip()
        lines += ["## Pre-trained weights", "", "```", text, "```", ""]
    logs = ", ".join(f"`{_inside(part.log, folder)}`" for part in trainings.values())
    lines += [f"Effective config: `{folder.config.name}`; every step: {logs}.", ""]
    write_whole(folder.report, "\n".join(lines))


def _training(part: RunFolder, folder: RunFolder) -> list[str]:
    """The curves and the epochs of one training."""
    lines = [f"![curves]({_inside(part.curves, folder)})", ""] if part.curves.exists() else []
    lines += [
        "| epoch | training loss | training accuracy | validation accuracy |",
        "|---|---|---|---|",
    ]
    for row in training_rows(part.log):
        if row["kind"] == "epoch":
            shown = f"{row['validation']['accuracy']:.2%}" if "validation" in row else ""
            lines.append(
                f"| {row['epoch']} | {row['loss']:.4f} | {row['accuracy']:.2%} | {shown} |"
            )
    return [*lines, ""]


def _inside(path: Path, folder: RunFolder) -> str:
    """A path as links in the report have it."""
    return path.relative_to(folder.path).as_posix()
