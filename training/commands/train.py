"""``wefpe train``: one config, one run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

RUNS = Path("runs")


def train(
    config: Annotated[
        str,
        typer.Argument(help="The name of a shipped config, or a path to one.", metavar="CONFIG"),
    ] = "",
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="Keys set otherwise, such as training.epochs=3.", metavar="KEY=VALUE"),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Where the run goes; runs/CONFIG-seedN if not given.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in the folder, if there is one.")
    ] = False,
    show: Annotated[
        bool, typer.Option("--show", help="Print the effective config and stop.")
    ] = False,
    configs: Annotated[
        bool, typer.Option("--list", help="List the shipped configs and stop.")
    ] = False,
) -> int:
    """Train a model, choose its weights without the test set, test once.

    The run's folder gets the effective config, checkpoints, a log, curves and a report. The same
    command runs on one CPU or GPU, and on many: accelerate launch -m training.cli train ...
    """
    from training.config import available_configs, dump_toml, load_config

    console = Console()
    if configs or not config:
        table = Table("config", "what it is", box=None)
        for name, summary in available_configs().items():
            table.add_row(name, summary)
        console.print(table)
        return 0 if configs else 2
    experiment = load_config(config, overrides or ())
    if show:
        print(dump_toml(experiment), end="")  # by rich long lines would be wrapped
        return 0
    from training.engine.run import run

    target = folder or RUNS / f"{Path(config).stem}-seed{experiment.seed}"
    run(experiment, target, resume=resume)
    return 0


if __name__ == "__main__":
    raise SystemExit("start it with python -m training.cli train, also under a launcher")
