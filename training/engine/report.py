"""A page about a finished run, for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from training.configuration import Experiment
from training.engine.run_folder import RunFolder, training_rows, write_whole

_SELECTION = {
    "validation": "The weights are those that did best on images held out of training.",
    "last": "The weights are those of the last epoch.",
}
_TEST = "The test set was opened once, after everything else."


def write_report(folder: RunFolder, experiment: Experiment, result: Mapping[str, Any]) -> None:
    """Write ``report.md``: result, circumstances, the last epochs, where everything lies."""
    accuracy = result["validation_accuracy"]
    found = "not used" if accuracy is None else f"{accuracy:.2%}, epoch {result['selected_epoch']}"
    where = result["circumstances"]
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
        f"{_SELECTION[experiment.selection.by]} {_TEST}",
        "",
        "![curves](curves.png)",
        "",
        "| epoch | training loss | training accuracy | validation accuracy |",
        "|---|---|---|---|",
    ]
    for row in training_rows(folder.log):
        if row["kind"] == "epoch":
            shown = f"{row['validation']['accuracy']:.2%}" if "validation" in row else ""
            lines.append(
                f"| {row['epoch']} | {row['loss']:.4f} | {row['accuracy']:.2%} | {shown} |"
            )
    lines += ["", f"Effective config: `{folder.config.name}`; every step: `{folder.log.name}`.", ""]
    write_whole(folder.report, "\n".join(lines))
