"""A page about a finished run, for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from training.configuration import Experiment
from training.engine.run_folder import RunFolder, training_rows, write_whole


def write_report(folder: RunFolder, experiment: Experiment, result: Mapping[str, Any]) -> None:
    """Write ``report.md``: result, circumstances, the last epochs, where everything lies."""
    validation = result["validation_accuracy"]
    options = experiment.position_encoding.options
    lines = [
        f"# {experiment.model.name}, {experiment.position_encoding.name}, {experiment.data.name}",
        "",
        "| | |",
        "|---|---|",
        f"| test accuracy | {result['test_accuracy']:.2%} of {result['test_images']:,} images |",
        "| validation accuracy | "
        + ("not used" if validation is None else f"{validation:.2%}, epoch {result['best_epoch']}")
        + " |",
        f"| learned parameters | {result['parameters']:,} |",
        f"| training | {result['epochs']} epochs, {result['training_seconds']:.1f} s |",
        f"| peak memory | {result['peak_memory_mb']:,.0f} MB |",
        f"| seed | {result['seed']} |",
        f"| encoding options | {', '.join(f'{k}={v}' for k, v in options.items()) or 'defaults'} |",
        f"| device | {result['circumstances']['device']}, "
        f"{result['circumstances']['processes']} process(es), "
        f"{result['circumstances']['threads']} thread(s) |",
        "",
        "The weights were selected on images held out of training; the test set was opened once, "
        "at the end.",
        "",
        "![curves](curves.png)",
        "",
        "| epoch | training loss | training accuracy | validation accuracy |",
        "|---|---|---|---|",
    ]
    for row in training_rows(folder.log):
        if row["kind"] == "epoch":
            found = row.get("validation")
            shown = f"{found['accuracy']:.2%}" if found else ""
            lines.append(
                f"| {row['epoch']} | {row['loss']:.4f} | {row['accuracy']:.2%} | {shown} |"
            )
    lines += ["", f"Effective config: [{folder.config.name}]({folder.config.name}); every logged "]
    lines[-1] += f"step: [{folder.log.name}]({folder.log.name}).\n"
    write_whole(folder.report, "\n".join(lines))
