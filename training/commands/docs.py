"""``wefpe docs``: write generated tables and figures into the pages of the checkout."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from training.cli import NamedCommands
from verification import readme as pages_with_tables

app = typer.Typer(
    cls=NamedCommands,
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Write generated tables and figures into README.md and other pages of the checkout.",
)


@app.command()
def readme(
    report: Annotated[
        Path, typer.Argument(metavar="REPORT", help="The report.json of wefpe verify.")
    ],
    claims: Annotated[
        Path, typer.Argument(metavar="CLAIMS", help="The claims.json of wefpe claims.")
    ],
    page: Annotated[
        Path,
        typer.Option(
            "--readme", metavar="FILE", help="The file to rewrite.", show_default="README.md"
        ),
    ] = pages_with_tables.README,
) -> None:
    """Rewrite the tables of precision and of claims in README.md."""
    pages_with_tables.update_readme(report, claims, page)


@app.command()
def fill(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The folder of the generated files.")
    ],
    pages: Annotated[list[Path], typer.Argument(metavar="PAGE", help="The pages to rewrite.")],
) -> None:
    """Put tables between the markers of pages.

    Each NAME.md of the folder goes between the markers of that name.
    """
    pages_with_tables.fill_pages(folder, pages)


@app.command()
def analyses(
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="The folder of the figures of docs/analyses.md."),
    ],
) -> None:
    """Make what docs/analyses.md shows anew, in minutes."""
    from training.study.gallery import analyse_for_docs

    with Console(stderr=True).status("working") as status:
        paths = analyse_for_docs(folder, progress=status.update)
    print(*paths, sep="\n")
