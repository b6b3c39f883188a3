"""Tables and pictures of published comparisons, from their rows alone.

    python -m training.comparison.results docs/results

Every folder in it that has a ``runs.csv``, as ``wefpe compare`` writes it, gets a table
``FOLDER.md`` and a picture ``FOLDER.png`` beside it. The first row's encoding is the reference.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from training.comparison.figure import draw_comparison
from training.comparison.statistics import summarise
from training.comparison.tables import accuracies_of_csv, summary_markdown
from training.engine.run_folder import write_whole
from wefpe_core.errors import InputError

ROWS = "runs.csv"


def results_of(folder: Path) -> str:
    """The table of one comparison; its picture is drawn beside the folder."""
    path = folder / ROWS
    try:
        accuracies = accuracies_of_csv(path.read_text(encoding="utf-8"))
    except (OSError, KeyError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {type(error).__name__}: {error}") from error
    if not accuracies:
        raise InputError(f"{path} has no rows")
    reference = next(iter(accuracies))
    summaries = summarise(accuracies, reference)
    text = summary_markdown(summaries, reference)
    write_whole(folder.with_suffix(".md"), text)
    draw_comparison(folder.with_suffix(".png"), summaries, accuracies, reference)
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m training.comparison.results",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, help="where the folders with rows are")
    options = parser.parse_args(arguments)
    found = sorted(path.parent for path in options.folder.glob(f"*/{ROWS}"))
    if not found:
        print(f"{parser.prog}: no folder with {ROWS} in {options.folder}", file=sys.stderr)
        return 2
    for folder in found:
        try:
            results_of(folder)
        except InputError as error:
            print(f"{parser.prog}: {error}", file=sys.stderr)
            return 2
        print(folder.with_suffix(".md"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
