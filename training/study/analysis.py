"""What an analysis gives: figures, tables, numbers, and a caption that says how they were made."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from training.figure_style import figure_settings
from wefpe_core.errors import InputError

Row = Mapping[str, Any]
PRINT_DPI = 200
DASH = "–"  # in tables, for what is not defined


@dataclass(frozen=True)
class Analysis:
    """One finished analysis."""

    name: str  # as on the command line
    title: str
    caption: str  # protocol, seeds, grid and encodings, in sentences
    figures: Mapping[str, Any]  # file name without suffix -> matplotlib figure
    numbers: Mapping[str, Any]  # all of JSON
    tables: Mapping[str, Sequence[Row]] = field(default_factory=dict)  # file name -> rows
    markdown: str = ""  # the table people read, where there is one


def write_analysis(analysis: Analysis, folder: Path) -> list[Path]:
    """Write PNG, SVG, JSON, CSV and the caption into a new folder, all or nothing.

    Raises
    ------
    InputError
        The folder exists: results are never overwritten.
    """
    with new_folder(folder) as unfinished:
        _write_files(analysis, unfinished)
    return sorted(folder.iterdir())


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A place to write to that becomes `folder` at the end, or nothing if that is not reached."""
    check_new(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(mkdtemp(prefix=f".unfinished-{folder.name}-", dir=folder.parent))
    try:
        yield unfinished
        unfinished.chmod(0o755)
        unfinished.rename(folder)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


def check_new(folder: Path) -> None:
    """Refuse a folder that exists or cannot be made, before any work."""
    if folder.exists():
        raise InputError(f"{folder} exists; give another --output, nothing is overwritten")
    above = next(path for path in folder.absolute().parents if path.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        raise InputError(f"{folder} cannot be made: {above} is no folder that can be written to")


def _write_files(analysis: Analysis, folder: Path) -> None:
    for name, figure in analysis.figures.items():
        # No dates or versions in the files: a picture changes when its numbers do.
        with figure_settings():
            figure.savefig(folder / f"{name}.png", dpi=PRINT_DPI, metadata={"Software": None})
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None, "Creator": None})
    for name, rows in analysis.tables.items():
        if rows:  # one run has no correlations with others, say
            (folder / f"{name}.csv").write_text(csv_text(rows), encoding="utf-8")
    numbers = {"title": analysis.title, "caption": analysis.caption} | dict(analysis.numbers)
    text = json.dumps(without_nan(numbers), indent=1, ensure_ascii=False) + "\n"
    (folder / f"{analysis.name}.json").write_text(text, encoding="utf-8")
    if analysis.markdown:
        page = f"# {analysis.title}\n\n{analysis.caption}\n\n{analysis.markdown.strip()}\n"
        (folder / f"{analysis.name}.md").write_text(page, encoding="utf-8")
    caption = f"{analysis.title}\n\n{analysis.caption}\n"
    (folder / "caption.txt").write_text(caption, encoding="utf-8")


def csv_text(rows: Sequence[Row]) -> str:
    """A line for each row; columns as they first appear, empty where a row has none."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def without_nan(value: Any) -> Any:
    """The same with null for what is not finite, which JSON cannot write."""
    if isinstance(value, Mapping):
        return {str(key): without_nan(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_nan(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
