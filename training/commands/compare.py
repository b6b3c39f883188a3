"""``wefpe compare``: several encodings and seeds on one config, with paired statistics."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

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
            help="An encoding, with options as in weierstrass:fidelity=paper,alpha_u=0.4. Repeat "
            "the option for each; the default is learned, sincos2d and weierstrass.",
        ),
    ] = None,
    seeds: Annotated[str, typer.Option(help="Seeds, as in 0,1,2 or 0-4.")] = "0-2",
    reference: Annotated[
        str,
        typer.Option(help="The encoding that others are compared with. The default is the first."),
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
        Path | None, typer.Option(help="Where to write. The default is comparisons/CONFIG.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="How many runs train at a time.")] = 1,
    table_only: Annotated[
        bool, typer.Option("--table-only", help="Train nothing; summarise the finished runs.")
    ] = False,
) -> int:
    """Train every encoding with every seed, and compare them seed by seed.

    Finished runs are kept, so the command can be stopped and repeated; a crash costs one run. The
    folder gets runs.csv (a line for each run), comparison.md and comparison.png.
    """
    from training.config import load_config
    from training.parsing import parse_seeds
    from training.study.compare import Sweep, control_arms, parse_arms
    from training.study.statistics import summary_table

    base = load_config(config, overrides or ())
    arms = parse_arms(encoding or ["learned", "sincos2d", "weierstrass"])
    if controls:
        arms += [arm for arm in control_arms(base) if arm not in arms]
    sweep = Sweep(
        base, arms, parse_seeds(seeds), folder or COMPARISONS / Path(config).stem, reference
    )
    if not table_only:
        sweep.train(jobs=jobs, console=Console(stderr=True))
    Console().print(summary_table(sweep.write_tables(), sweep.reference))
    Console(soft_wrap=True).print(f"table, rows and picture are in {sweep.path}", highlight=False)
    return 0 if not sweep.unfinished() else 1
