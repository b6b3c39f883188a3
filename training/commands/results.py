"""``wefpe results``: tables and pictures from published rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def results(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A folder with a folder for each part.")
    ],
) -> None:
    """Make the tables and pictures of a published study anew from its rows; train nothing."""
    from training.study.results import write_results

    for path in write_results(folder, folder):
        print(path)
