"""``wefpe publish``: the rows and configs of a comparison, for a repository."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def publish(
    comparison: Annotated[
        Path, typer.Argument(metavar="COMPARISON", help="The folder of wefpe compare.")
    ],
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The folder that gets the rows and configs.")
    ],
) -> None:
    """Add the rows of a comparison and their configs to a folder.

    Rows that are in the folder already stay. A run that was made again must have the numbers of its
    row. Paths in configs keep their last two names.
    """
    from training.study.publish import publish

    rows, new = publish(comparison, folder)
    print(f"{rows} rows, {new} of them new, and their configs are in {folder}")
