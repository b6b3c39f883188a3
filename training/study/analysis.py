"""What an analysis gives, how that is written to a folder, and how it becomes a command.

A new analysis is one module ``training/study/analyse_NAME.py``. The first line of its docstring is
the help of ``wefpe analyse NAME``. Its ``COMMAND`` names the function that makes it, whose
annotated parameters are the options, and says what that function is given on the page of
``wefpe analyse all`` and which of its files docs/analyses shows.
"""

from __future__ import annotations

import ast
import json
import math
import os
import pkgutil
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from training import study
from training.encodings.size import Grid
from training.figure_style import figure_settings
from training.parsing import parse_seeds
from training.study.encoding_choice import EncodingChoice, read_grid, read_patch
from wefpe_core.errors import InputError

if TYPE_CHECKING:
    from training.config import Experiment

Row = Mapping[str, Any]
Progress = Callable[[str], None]  # it is told what is being done
PRINT_DPI = 200
DASH = "–"  # in tables, for a value that is not defined


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


# --- Registration --------------------------------------------------------------------------


@dataclass(frozen=True)
class PageInputs:
    """What ``wefpe analyse all`` looks at."""

    encodings: Sequence[EncodingChoice]
    grid: Grid
    seeds: Sequence[int]
    runs: Mapping[Path, Experiment]
    images: Sequence[Path] | None = None  # None: the test images of the first run


Arguments = Mapping[str, Any]


def _unchanged(page: PageInputs, arguments: Arguments) -> Arguments | None:
    return arguments


@dataclass(frozen=True)
class AnalysisCommand:
    """How one analysis is called."""

    analyse: Callable[..., Analysis]
    # Changes its arguments on the page of all analyses; None leaves the analysis out.
    on_page: Callable[[PageInputs, Arguments], Arguments | None] = _unchanged
    docs_arguments: Arguments = field(default_factory=dict)
    docs_files: Mapping[str, str] = field(default_factory=dict)  # in docs -> of the analysis

    @property
    def is_of_runs(self) -> bool:
        """Whether it looks at finished runs."""
        return bool({"runs", "models"} & signature(self.analyse).parameters.keys())

    def page_arguments(self, page: PageInputs) -> Arguments | None:
        """Its arguments on the page of all analyses, by the names of its parameters."""
        runs = list(page.runs)
        known = vars(page) | {"seed": page.seeds[0], "runs": runs, "models": runs}
        names = signature(self.analyse).parameters
        return self.on_page(page, {name: known[name] for name in names if name in known})


_PREFIX = "analyse_"


def analysis_names() -> list[str]:
    """The names of all analyses, as on the command line."""
    modules = (module.name for module in pkgutil.iter_modules(study.__path__))
    names = (name.removeprefix(_PREFIX) for name in modules if name.startswith(_PREFIX))
    return sorted(name.replace("_", "-") for name in names)


def analysis_summary(name: str) -> str:
    """The first line of its docstring, read without importing the module."""
    module = _module_of(name)
    spec = find_spec(module)
    assert spec is not None
    source = spec.loader.get_source(module)  # type: ignore[union-attr]
    return (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]


def load_analysis(name: str) -> AnalysisCommand:
    """The analysis of that name; this imports torch."""
    command: AnalysisCommand = import_module(_module_of(name)).COMMAND
    return command


def _module_of(name: str) -> str:
    return f"{study.__name__}.{_PREFIX}{name.replace('-', '_')}"


# --- Options that several analyses have ----------------------------------------------------


class ReadBy(NamedTuple):
    """Marks a parameter that is text on the command line, and the function that reads the text.

    An option that is not given is not passed, so that the default of the parameter holds.
    """

    read: Callable[[str], Any]
    is_repeated: bool = False


class Options:
    """Annotations of parameters that several analyses have."""

    Encodings = Annotated[
        Sequence[EncodingChoice] | None,
        ReadBy(EncodingChoice, is_repeated=True),
        typer.Option(
            "--encoding",
            "-e",
            metavar="NAME[:OPTIONS]",
            help="An encoding, with options as in weierstrass:fidelity=paper,alpha_u=0.4. "
            "Repeat the option for each.",
        ),
    ]
    GridShape = Annotated[
        Grid,
        ReadBy(read_grid),
        typer.Option(
            "--grid", metavar="HEIGHTxWIDTH", help="The grid in patches. The default is 14x14."
        ),
    ]
    Query = Annotated[
        tuple[int, int] | None,
        ReadBy(read_patch),
        typer.Option(
            metavar="ROWxCOLUMN",
            help="The patch that is shown, counted from 0. The default is the middle.",
        ),
    ]
    Seed = Annotated[
        int,
        typer.Option(
            min=0, max=2**63 - 1, metavar="SEED", help="The seed of the encodings' random weights."
        ),
    ]
    Seeds = Annotated[
        Sequence[int],
        ReadBy(parse_seeds),
        typer.Option(metavar="SEEDS", help="Seeds, as in 0,1,2 or 0-4. The default is 0-4."),
    ]
    Runs = Annotated[
        Sequence[Path],
        ReadBy(Path, is_repeated=True),
        typer.Argument(help="Folders of runs.", metavar="RUN"),
    ]
    Images = Annotated[
        Sequence[Path] | None,
        ReadBy(Path, is_repeated=True),
        typer.Option(
            "--image",
            "-i",
            metavar="PHOTO",
            help="A photograph. Repeat the option for each; the default is the first test images "
            "of the first run.",
        ),
    ]
    Output = Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FOLDER", help="A new folder. The default is analyses/NAME."
        ),
    ]


def silent(text: str) -> None:
    """Progress that nobody watches."""


# --- Writing -------------------------------------------------------------------------------


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
    """A folder to write to. It becomes `folder` at the end, and vanishes if there is an error."""
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
    import pandas as pd

    for name, figure in analysis.figures.items():
        # The files hold no dates and no versions: a picture changes when its numbers do.
        with figure_settings():
            figure.savefig(folder / f"{name}.png", dpi=PRINT_DPI, metadata={"Software": None})
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None, "Creator": None})
    for name, rows in analysis.tables.items():
        if rows:  # a single run, for example, has no correlations with others
            # Objects, or pandas would make floats of integers in columns with gaps.
            table = pd.DataFrame(list(rows), dtype=object)
            table.to_csv(folder / f"{name}.csv", index=False, lineterminator="\n")
    numbers = {"title": analysis.title, "caption": analysis.caption} | dict(analysis.numbers)
    text = json.dumps(_without_nan(numbers), indent=1, ensure_ascii=False) + "\n"
    (folder / f"{analysis.name}.json").write_text(text, encoding="utf-8")
    if analysis.markdown:
        page = f"# {analysis.title}\n\n{analysis.caption}\n\n{analysis.markdown.strip()}\n"
        (folder / f"{analysis.name}.md").write_text(page, encoding="utf-8")
    caption = f"{analysis.title}\n\n{analysis.caption}\n"
    (folder / "caption.txt").write_text(caption, encoding="utf-8")


def _without_nan(value: Any) -> Any:
    """The value with null in place of NaN and infinities, which JSON cannot hold."""
    if isinstance(value, Mapping):
        return {str(key): _without_nan(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
