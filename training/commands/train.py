"""``wefpe train``: one config, one run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from wefpe_core.errors import InputError

if TYPE_CHECKING:
    from training.config import Experiment
    from wefpe_core.receipts import Need

RUNS = Path("runs")

Slurm = Annotated[
    bool,
    typer.Option("--slurm", help="Submit a job for each run to Slurm; needs the extra slurm."),
]
SlurmOptions = Annotated[
    list[str] | None,
    typer.Option(
        help="Of the jobs, by submitit's names: partition=gpu, gpus_per_node=1, timeout_min=600. "
        "Repeat the option for each.",
        metavar="NAME=VALUE",
    ),
]


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
        Path | None,
        typer.Option(metavar="FOLDER", help="Where the run goes; runs/CONFIG-seedN if not given."),
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
    keys: Annotated[
        bool, typer.Option("--keys", help="Print every key of a config, explained, and stop.")
    ] = False,
    slurm: Slurm = False,
    slurm_option: SlurmOptions = None,
) -> int:
    """Train a model, choose its weights without the test set, test once.

    The run's folder gets the effective config, checkpoints, a log, curves and a report. The same
    command runs on one CPU or GPU, and on many: accelerate launch -m training.cli train ...

    SIGTERM, SIGUSR1 and SIGUSR2 save a checkpoint at the next step and end the run with exit code
    75; the same command with --resume goes on.
    """
    from training.config import available_configs, dump_toml, load_config, shipped_folder

    console = Console()
    if keys:
        print((shipped_folder() / "default.toml").read_text(encoding="utf-8"), end="")
        return 0
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
    target = folder or RUNS / f"{Path(config).stem}-seed{experiment.seed}"
    submission = submission_options(slurm, slurm_option)
    if slurm:
        console.print(_submit(experiment, target, resume, submission), highlight=False)
        return 0
    from training.engine.run import run

    run(experiment, target, resume=resume, verify=verify_now)
    return 0


def submission_options(slurm: bool, options: list[str] | None) -> dict[str, Any]:
    """The options of jobs; an error if there are some but no jobs, or if there is no cluster."""
    if not slurm:
        if options:
            raise InputError(f"--slurm-option {options[0]} needs --slurm")
        return {}
    from training.engine.submission import check_cluster, parse_options

    check_cluster("slurm")
    return parse_options(options or ())


def _submit(experiment: Experiment, folder: Path, resume: bool, options: dict[str, Any]) -> str:
    """Check a run and submit it as a job; returns what to tell the user."""
    from training.config import dump_toml
    from training.engine.run import check_folder
    from training.engine.run_folder import RunFolder, write_whole
    from training.engine.submission import TrainingJob, submit
    from training.models.building import check_before_run

    check_before_run(experiment)
    check_folder(RunFolder(folder), experiment, resume=resume)
    jobs = folder.absolute().parent / "jobs"
    config = jobs / f"{folder.name}.toml"
    write_whole(config, dump_toml(experiment))
    job = TrainingJob(str(config), str(folder.absolute()))
    submitted = submit({folder.name: job}, jobs, options)[folder.name]
    return f"job {submitted.job_id} will train in {folder}; it prints to {submitted.paths.stdout}"


def verify_now(backend: str, device: str, needs: Sequence[Need]) -> None:
    """Measure what a run needs and has no receipt for; the verifier is imported only then."""
    from verification.verifier import verify_quickly

    verify_quickly(backend, device, needs)


if __name__ == "__main__":
    raise SystemExit("start it with python -m training.cli train, also under a launcher")
