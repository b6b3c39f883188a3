"""All analyses on one page (``wefpe analyse all``), and those of docs (``wefpe docs analyses``)."""

from __future__ import annotations

import base64
import io
import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import pandas as pd
import typer
from jinja2 import Environment
from PIL import Image
from rich.console import Console

from training.config import Experiment, change_config, load_config
from training.engine.finished_run import check_validation
from training.engine.run import run
from training.engine.run_folder import write_whole
from training.figure_style import figure_settings
from training.study.analysis import (
    DASH,
    Analysis,
    AnalysisCommand,
    Options,
    PageInputs,
    Progress,
    ReadBy,
    analysis_names,
    check_new,
    load_analysis,
    new_folder,
    silent,
    write_analysis,
)
from training.study.attention_models import read_photographs
from training.study.compare import parse_arm
from training.study.decay_measures import interaction_matrix
from training.study.encoding_choice import GRID, USUAL, EncodingChoice, choose_encodings
from training.study.run_groups import check_runs, refuse_repeated
from wefpe_core.errors import InputError

# Pictures of short runs need no receipt.
SHORT_RUN = (
    *("training.epochs=6", "schedule.warmup_epochs=1", "logging.tensorboard=false"),
    "verification=off",
)
_USUAL = (*USUAL, "rope_axial", "weierstrass_green")
_SCREEN_DPI = 130
_DOCS_WIDTH, _DOCS_COLOURS = 1000, 255  # few colours make a picture a tenth of the size

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Positional encodings, analysed</title>
<style>
body{font:16px/1.5 system-ui,sans-serif;max-width:64rem;margin:0 auto;padding:1rem;color:#111}
h1{font-size:1.6rem}
h2{font-size:1.25rem;margin-top:2.5rem;border-top:1px solid #ccc;padding-top:1rem}
nav ul{columns:2;padding-left:1.2rem}figure{margin:0}
img{max-width:100%;height:auto;display:block;margin:0 auto}
figcaption{color:#444;font-size:.9rem;margin:.5rem 0}
summary{cursor:pointer;color:#0072b2}.wide{overflow-x:auto}
table{border-collapse:collapse;font-size:.85rem}
th,td{padding:.2rem .6rem;text-align:right;white-space:nowrap}
th:first-child,td:first-child{text-align:left}tr:nth-child(even){background:#f4f4f4}
@media(max-width:40rem){nav ul{columns:1}img{max-width:none;width:40rem}}
</style>
</head>
<body>
<h1>Positional encodings, analysed</h1>
<p>{{ introduction }}</p>
<nav><ul>
{% for each in analyses %}<li><a href="#{{ each.name }}">{{ each.title }}</a></li>
{% endfor %}</ul></nav>
{% for each in analyses %}
<section id="{{ each.name }}"><h2>{{ each.title }}</h2>
<figure>
{% for name, figure in each.figures.items() %}
<div class="wide"><img alt="{{ each.title }}: {{ name }}" src="{{ figure | png }}"></div>
{% endfor %}
<figcaption>{{ each.caption }}</figcaption>
</figure>
{% for name, rows in each.tables.items() if rows %}
<details><summary>{{ name }} ({{ rows | length }} rows)</summary>
<div class="wide">{{ rows | table | safe }}</div></details>
{% endfor %}
</section>
{% endfor %}
</body>
</html>
"""


def gallery_html(analyses: Sequence[Analysis], introduction: str) -> str:
    """The page: a list of contents, then figures, captions and tables. It needs no other file."""
    environment = Environment(autoescape=True)
    environment.filters |= {"png": _png_address, "table": _html_table}
    page = environment.from_string(_PAGE)
    return page.render(analyses=analyses, introduction=introduction) + "\n"


def _png_address(figure: Any) -> str:
    picture = io.BytesIO()
    with figure_settings():
        figure.savefig(picture, format="png", dpi=_SCREEN_DPI, metadata={"Software": None})
    return "data:image/png;base64," + base64.b64encode(picture.getvalue()).decode("ascii")


def _html_table(rows: Sequence[dict[str, Any]]) -> str:
    table = pd.DataFrame(list(rows), dtype=object).astype(object)
    texts = table.map(lambda value: f"{value:.4g}" if isinstance(value, float) else str(value))
    return texts.where(table.notna(), DASH).to_html(index=False, border=0)


# --- One page ------------------------------------------------------------------------------


def analyse_all(
    encodings: Options.Encodings = None,
    grid: Options.GridShape = GRID,
    seeds: Annotated[
        Sequence[int],
        *Options.Seeds.__metadata__[:1],
        typer.Option(metavar="SEEDS", help="Seeds, as in 0,1,2 or 0-4. The default is 0-2."),
    ] = range(3),
    *,
    runs: Annotated[
        Sequence[Path],
        ReadBy(Path, is_repeated=True),
        typer.Option(
            "--run",
            metavar="RUN",
            help="A finished run to look at. Repeat the option for each; by default each encoding "
            "is trained on digits for a few epochs.",
        ),
    ] = (),
    images: Options.Images = None,
    output: Options.Output = None,
    progress: Progress = silent,
) -> list[Path]:
    """All analyses for some encodings, as one page to look at.

    Everything is written into a new folder. Runs that are named get their evaluations at other
    sizes recorded in evaluations.jsonl.
    """
    output = output or Path("analyses/all")
    check_new(output)
    choices = choose_encodings(encodings or _USUAL, grid)
    for choice in choices:
        interaction_matrix(choice.build(grid, seeds[0]), grid)  # refuses encodings without one
    read_photographs(images or ())
    finished = check_runs(runs, finished=True) if runs else {}
    for path, experiment in finished.items():
        _check_run(path, experiment)
    short = [] if runs else short_experiments(choices)
    refuse_repeated({Path(c.label): each for c, each in zip(choices, short, strict=False)})
    with new_folder(output) as unfinished:
        for number, experiment in enumerate(short):
            progress(f"training {experiment.position_encoding.name} on digits")
            folder = unfinished / "runs" / f"digits-{number}"
            finished[folder] = experiment
            run(experiment, folder, console=Console(quiet=True))
        inputs = PageInputs(choices, grid, seeds, finished, images)
        found = []
        for name, command in _in_order():
            arguments = command.page_arguments(inputs)
            if arguments is not None:
                progress(name)
                found.append(command.analyse(**arguments))
                write_analysis(found[-1], unfinished / name)
        write_whole(unfinished / "index.html", gallery_html(found, _introduction(inputs, short)))
    return [output / "index.html"]


def _in_order() -> list[tuple[str, AnalysisCommand]]:
    """Every analysis: those of encodings first, those of runs last."""
    commands = [(name, load_analysis(name)) for name in analysis_names()]
    return sorted(commands, key=lambda each: each[1].is_of_runs)


def _check_run(path: Path, experiment: Experiment) -> None:
    """Refuse at once a run that some analysis would refuse at the end."""
    if experiment.model.name.startswith("dhvt"):
        raise InputError(f"{path} is a DHVT, whose attention cannot be rolled out; leave it out")
    check_validation(path, experiment)  # other sizes are tried on those images


def short_experiments(choices: Sequence[EncodingChoice]) -> list[Experiment]:
    """A run on digits for each encoding, too short for a result, long enough for a picture."""
    base = load_config("digits", SHORT_RUN)
    return [change_config(base, parse_arm(choice.label).overrides) for choice in choices]


def _introduction(inputs: PageInputs, short: Sequence[Experiment]) -> str:
    names = ", ".join(choice.label for choice in inputs.encodings)
    text = (
        f"Encodings: {names}; {inputs.grid[0]} x {inputs.grid[1]} patches; seeds "
        f"{', '.join(map(str, inputs.seeds))}. Pictures for print, numbers and tables lie beside "
        "this page."
    )
    if short:
        text += (
            f" The trained models were trained on 8 x 8 digits for {short[0].training.epochs} "
            "epochs, which shows how these figures look and is no result."
        )
    return text


# --- The documentation ---------------------------------------------------------------------


def analyse_for_docs(folder: Path, *, progress: Progress = silent) -> list[Path]:
    """Make the figures and tables of docs/analyses anew, with pictures in the size of a screen."""
    paths = []
    folder.mkdir(parents=True, exist_ok=True)
    for name, command in _in_order():
        if not command.docs_files:
            continue
        progress(name)
        with TemporaryDirectory() as temporary:
            made = Path(temporary) / name
            write_analysis(command.analyse(**command.docs_arguments), made)
            for target, source in command.docs_files.items():
                copy = _copy_picture if target.endswith(".png") else shutil.copyfile
                copy(made / source, folder / target)
                paths.append(folder / target)
    return paths


def _copy_picture(source: Path, target: Path) -> None:
    with Image.open(source) as picture:
        height = round(picture.height * _DOCS_WIDTH / picture.width)
        small = picture.convert("RGB").resize((_DOCS_WIDTH, height), Image.Resampling.LANCZOS)
    small.quantize(_DOCS_COLOURS).save(target, optimize=True)
