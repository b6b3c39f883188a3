"""``python -m verification.claims``: check the statements of the paper and print the verdicts.

The exit code is 0 when every check ran, whatever it found; 1 when one crashed; 2 for a
mistake on the command line.
"""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial
from pathlib import Path
from typing import NoReturn

from rich.console import Console
from rich.progress import track

from verification.claims import CLAIMS, Claim, table_one
from verification.claims.report import Outcome, run, summary, surroundings, terminal_table, write


class _Parser(argparse.ArgumentParser):
    """A parser whose complaint is one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = _Parser(prog="wefpe claims", description=__doc__)
    parser.add_argument(
        "--only", type=_ids, metavar="F1,F8", help="check these claims only (default: all)"
    )
    parser.add_argument(
        "--output", type=_directory, help="write claims.json, claims.md, claims.html to this folder"
    )
    parser.add_argument(
        "--seeds", type=_seeds, default=20, help="runs of table 1, F29 (default: 20)"
    )
    return parser.parse_args(arguments)


def _ids(text: str) -> list[str]:
    wanted = [part.strip().upper() for part in text.split(",") if part.strip()]
    known = [claim.id for claim in CLAIMS]
    unknown = [name for name in wanted if name not in known]
    if unknown or not wanted:
        raise argparse.ArgumentTypeError(
            f"no claim is called {', '.join(unknown) or repr(text)}; "
            f"there are {known[0]} to {known[-1]}"
        )
    return wanted


def _directory(text: str) -> Path:
    """A folder that can be written to, found out before the checks take their time."""
    path = Path(text)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"cannot create {text!r}: {error.strerror}") from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise argparse.ArgumentTypeError(f"cannot write to {text!r}: permission denied")
    return path


def _seeds(text: str) -> int:
    if not text.isdecimal() or int(text) < 2:
        raise argparse.ArgumentTypeError(f"must be an integer of at least 2, got {text!r}")
    return int(text)


def chosen_claims(only: list[str] | None, seeds: int) -> list[Claim]:
    checks = {"F29": partial(table_one.decay_table, seeds=seeds)}
    return [
        claim._replace(check=checks.get(claim.id, claim.check))
        for claim in CLAIMS
        if only is None or claim.id in only
    ]


def main(arguments: list[str] | None = None) -> int:
    try:
        options = parse_arguments(arguments)
    except SystemExit as stop:  # a mistake or --help, already printed
        return int(stop.code or 0)
    console = Console()
    console.print(surroundings())
    claims = chosen_claims(options.only, options.seeds)
    outcomes: list[Outcome] = list(
        track(run(claims), "checking", total=len(claims), console=console)
    )
    console.print(terminal_table(outcomes))
    console.print(summary(outcomes))
    if options.output:
        try:
            write(outcomes, options.output)
        except OSError as error:
            print(f"cannot write to {options.output}: {error.strerror}", file=sys.stderr)
            return 2
        console.print(f"written: {options.output}/claims.json, claims.md, claims.html")
    return 1 if any(outcome.finding is None for outcome in outcomes) else 0


if __name__ == "__main__":
    raise SystemExit(main())
