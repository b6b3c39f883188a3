"""``wefpe claims``: check the statements of the paper and print the verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verification.claims import claims_report


def claims(
    only: Annotated[
        str | None, typer.Option(metavar="F1,F8", help="Check these claims only (default: all).")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Write claims.json, claims.md and claims.html to this folder."
        ),
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=2, metavar="N", help="Number of runs behind table 1, claim F29.")
    ] = 20,
) -> int:
    """Check the statements of the paper and print the verdicts.

    A check whose library is not installed is skipped and named. The exit code is 1 when a check
    crashed, 2 for a mistake on the command line, and otherwise 0, whatever the checks found.
    """
    return claims_report.check_claims(only=only, output=output, seeds=seeds)
