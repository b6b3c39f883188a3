"""``wefpe analyse``: figures and numbers about encodings and about finished runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from rich.console import Console

from training.cli import LazyGroup
from training.study.analysis import (
    Analysis,
    Options,
    ReadBy,
    analysis_names,
    analysis_summary,
    check_new,
    load_analysis,
    write_analysis,
)


@cache
def summaries() -> dict[str, str]:
    """Every command and its help; this imports no analysis, so neither torch nor matplotlib."""
    analyses = {name: analysis_summary(name) for name in analysis_names()}
    return analyses | {"all": "All analyses for some encodings, as one page to look at."}


class LazyAnalyses(LazyGroup):
    """The analyses, each imported when it is called."""

    def summaries(self) -> dict[str, str]:
        return summaries()

    def load(self, name: str) -> Any:
        return as_command(name)


app = typer.Typer(
    cls=LazyAnalyses,
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Figures and numbers about encodings, and about finished runs. Each analysis writes PNG, "
    "SVG, JSON, CSV and a caption into a new folder.",
)


@app.callback()
def analyse() -> None:
    """Without a callback typer would take an application without commands for a mistake."""


def as_command(name: str) -> Callable[..., None]:
    """The function of that name for typer: parameters to be read are text, progress is shown.

    What an analysis gives is written to the folder of the option that it gets here.
    """
    function: Callable[..., Any]
    if name == "all":
        from training.study.gallery import analyse_all as function
    else:
        function = load_analysis(name).analyse
    hints = get_type_hints(function, include_extras=True)
    given = inspect.signature(function).parameters
    parameters = [each for each in given.values() if each.name != "progress"]
    is_analysis = hints["return"] is Analysis
    if is_analysis:
        hints["output"] = Options.Output
        parameters.append(inspect.Parameter("output", inspect.Parameter.KEYWORD_ONLY, default=None))
    readers: dict[str, ReadBy] = {}
    for place, each in enumerate(parameters):
        details = getattr(hints[each.name], "__metadata__", ())
        if details and isinstance(details[0], ReadBy):
            readers[each.name] = details[0]
            text = list[str] if details[0].is_repeated else str
            hints[each.name] = Annotated[text | None, details[1]]
            if each.default is not each.empty:
                each = each.replace(default=None)
        parameters[place] = each.replace(kind=each.KEYWORD_ONLY, annotation=hints[each.name])

    def command(**values: Any) -> None:
        # What is not given is not passed, so that the defaults of the function hold.
        values = {option: value for option, value in values.items() if value not in (None, [])}
        for option in values.keys() & readers.keys():
            read, is_repeated = readers[option]
            text = values[option]
            values[option] = [read(part) for part in text] if is_repeated else read(text)
        if is_analysis:
            folder = values.pop("output", Path("analyses") / name)
            check_new(folder)
        with Console(stderr=True).status("working") as status:
            if "progress" in given:
                values["progress"] = status.update
            found = function(**values)
        paths = write_analysis(found, folder) if is_analysis else found
        for path in paths:
            Console(soft_wrap=True).print(str(path), highlight=False, markup=False)

    command.__doc__ = function.__doc__
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command
