"""``wefpe compare``: several encodings and seeds on one config, with paired statistics."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from training.commands.train import Slurm, SlurmOptions, submission_options

if TYPE_CHECKING:
    from training.study.compare import Sweep

COMPARISONS = Path("comparisons")


def compare(
    config: Annotated[
        str,
        typer.Argument(help="The name of a shipped config, or a path to one.", metavar="CONFIG"),
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="Keys of the config to change in every run.", metavar="KEY=VALUE"),
    ] = None,
    encoding: Annotated[
        list[str] | None,
        typer.Option(
            "--encoding",
            "-e",
            metavar="NAME[:OPTIONS]",
            help="An encoding, with options as in weierstrass:fidelity=paper,alpha_u=0.4. Repeat "
            "the option for each; the default is learned, sincos2d and weierstrass.",
        ),
    ] = None,
    seeds: Annotated[str, typer.Option(metavar="SEEDS", help="Seeds, as in 0,1,2 or 0-4.")] = "0-2",
    reference: Annotated[
        str,
        typer.Option(
            metavar="NAME[:OPTIONS]",
            help="The encoding that others are compared with. The default is the first.",
        ),
    ] = "",
    controls: Annotated[
        bool,
        typer.Option(
            "--controls",
            help="Add the controls of WEF-PE: learned and sincos2d at its scale, and the same "
            "parameters on plain coordinates.",
        ),
    ] = False,
    folder: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Where to write. The default is comparisons/CONFIG."),
    ] = None,
    jobs: Annotated[
        int,
        typer.Option(
            min=1, metavar="N", help="How many runs train at a time, each on a GPU of its own."
        ),
    ] = 1,
    slurm: Slurm = False,
    slurm_option: SlurmOptions = None,
    table_only: Annotated[
        bool, typer.Option("--table-only", help="Train nothing; summarise the finished runs.")
    ] = False,
) -> int:
    """Train every encoding with every seed, and compare them seed by seed.

    Finished runs are kept, so the command can be stopped and repeated; a crash costs one run. What
    would end every run is said before the first begins. The folder gets runs.csv (a line for each
    run), comparison.md and comparison.png.
    """
    from training.config import load_config
    from training.parsing import parse_seeds
    from training.study.compare import Sweep, control_arms, parse_arms, visible_gpus
    from training.study.comparison_page import verification_text
    from training.study.statistics import summary_table

    submission = submission_options(slurm, slurm_option)
    base = load_config(config, overrides or ())
    arms = parse_arms(encoding or ["learned", "sincos2d", "weierstrass"])
    if controls:
        arms += [arm for arm in control_arms(base) if arm not in arms]
    sweep = Sweep(
        base, arms, parse_seeds(seeds), folder or COMPARISONS / Path(config).stem, reference
    )
    if not table_only:
        sweep.check(here=not slurm)
        console = Console(stderr=True, soft_wrap=True)
        if slurm:  # each machine has receipts of its own, so the jobs verify
            sweep.train_on_cluster(options=submission, console=console)
        else:
            _verify_once(sweep)
            sweep.train(jobs=jobs, console=console, devices=visible_gpus())
    Console().print(summary_table(sweep.write_tables(), sweep.reference, sweep.metric))
    Console(soft_wrap=True).print(
        verification_text(sweep.finished_rows()), highlight=False, markup=False
    )
    Console(soft_wrap=True).print(f"table, rows and picture are in {sweep.path}", highlight=False)
    return 0 if not sweep.unfinished() else 1


def _verify_once(sweep: Sweep) -> None:
    """Verify what the runs require before the first begins, so that each of them finds it done."""
    import torch

    from training.commands.train import verify_now
    from training.engine.verification import consult

    device = "cuda" if torch.cuda.is_available() else "cpu"
    console = Console(stderr=True)
    asked = {each.arm.label: each.experiment for each in sweep.unfinished()}
    for experiment in asked.values():
        if experiment.verification == "require":
            consult(experiment, device, verify=verify_now, say=console.out)
