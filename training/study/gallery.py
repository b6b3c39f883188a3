"""Every analysis for chosen encodings, on one page: ``wefpe analyse all``."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from training.config import Experiment, change_config, load_config
from training.encodings.grid import Grid
from training.engine.finished_run import check_validation
from training.engine.run import run
from training.engine.run_folder import write_whole
from training.figure_style import figure_settings
from training.study.analysis import DASH, Analysis, check_new, new_folder, write_analysis
from training.study.attention_models import read_photographs
from training.study.compare import parse_arm
from training.study.curves import curves_analysis
from training.study.decay import decay_analysis
from training.study.decay_measures import interaction_matrix
from training.study.encoding_choice import Subject
from training.study.initial_attention import initial_attention_analysis
from training.study.learned_lattice import lattice_analysis, learns_a_lattice
from training.study.relative_recovery import relative_analysis
from training.study.resolution import resolution_analysis
from training.study.rollout import rollout_analysis
from training.study.run_groups import check_runs, refuse_repeated
from training.study.structure import structure_analysis
from training.study.surface import surface_analysis
from wefpe_core.errors import InputError

# All analyses on one page that needs no other file.

_SCREEN_DPI = 130


def gallery_html(analyses: Sequence[Analysis], introduction: str) -> str:
    """The page: a list of contents, then figures, captions and tables."""
    contents = "".join(
        f'<li><a href="#{html.escape(each.name)}">{html.escape(each.title)}</a></li>'
        for each in analyses
    )
    sections = "".join(_section(each) for each in analyses)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Positional encodings, analysed</title><style>{_STYLE}</style></head><body>"
        f"<h1>Positional encodings, analysed</h1><p>{html.escape(introduction)}</p>"
        f"<nav><ul>{contents}</ul></nav>{sections}</body></html>\n"
    )


def _section(analysis: Analysis) -> str:
    pictures = "".join(
        f'<div class="wide"><img alt="{html.escape(analysis.title)}: {html.escape(name)}" '
        f'src="{_png(figure)}"></div>'
        for name, figure in analysis.figures.items()
    )
    tables = "".join(_table(name, rows) for name, rows in analysis.tables.items() if rows)
    return (
        f'<section id="{html.escape(analysis.name)}"><h2>{html.escape(analysis.title)}</h2>'
        f"<figure>{pictures}<figcaption>{html.escape(analysis.caption)}</figcaption></figure>"
        f"{tables}</section>"
    )


def _png(figure: Any) -> str:
    picture = io.BytesIO()
    with figure_settings():
        figure.savefig(picture, format="png", dpi=_SCREEN_DPI, metadata={"Software": None})
    return "data:image/png;base64," + base64.b64encode(picture.getvalue()).decode("ascii")


def _table(name: str, rows: Sequence[Mapping[str, Any]]) -> str:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    head = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
    body = "".join(
        "<tr>"
        + "".join(f"<td>{html.escape(_shown(row.get(key)))}</td>" for key in columns)
        + "</tr>"
        for row in rows
    )
    return (
        f"<details><summary>{html.escape(name)} ({len(rows)} rows)</summary>"
        f'<div class="wide"><table><tr>{head}</tr>{body}</table></div></details>'
    )


def _shown(value: Any) -> str:
    if value is None:
        return DASH
    if isinstance(value, float):
        return DASH if value != value else f"{value:.4g}"
    return str(value)


_STYLE = """
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
"""

SHORT_RUN = ("training.epochs=6", "schedule.warmup_epochs=1", "logging.tensorboard=false")
_PAGE = "index.html"


@dataclass(frozen=True)
class Step:
    """One thing to do, and what to call it meanwhile."""

    title: str
    work: Callable[[], Analysis | None]


def analyse_all(
    subjects: Sequence[Subject],
    output: Path,
    *,
    grid: Grid,
    seeds: Sequence[int],
    runs: Sequence[Path] = (),
    photographs: Sequence[Path] = (),
    doing: Callable[[str, int, int], None] | None = None,
) -> Path:
    """Write every analysis and the page into a new folder, all or nothing; returns the page.

    Parameters
    ----------
    runs
        Finished runs to look at, which get a line in their ``evaluations.jsonl`` for each size
        tried. Without any, each encoding is trained on digits for a few epochs first; those runs
        stay in the folder.
    photographs
        For the rollout, instead of the first test images.
    doing
        Told what is being done, the number of the step and how many there are.
    """
    check_new(output)
    for subject in subjects:
        interaction_matrix(subject.build(grid, seeds[0]), grid)  # refuses what has none
    if photographs:
        read_photographs(photographs)
    experiments = () if runs else short_experiments(subjects)
    refuse_repeated({Path(s.label): e for s, e in zip(subjects, experiments, strict=False)})
    checked = check_runs(runs, finished=True) if runs else {}
    for path, experiment in checked.items():
        _check_run(path, experiment)
    with new_folder(output) as unfinished:
        shown = tuple(checked) or tuple(
            unfinished / "runs" / f"digits-{number}" for number in range(len(experiments))
        )
        steps = [
            *_trainings(experiments, shown),
            *_of_encodings(subjects, grid, seeds),
            *_of_runs(shown, [*checked.values(), *experiments], photographs),
        ]
        found = []
        for number, step in enumerate(steps):
            if doing is not None:
                doing(step.title, number, len(steps))
            analysis = step.work()
            if analysis is not None:
                write_analysis(analysis, unfinished / analysis.name)
                found.append(analysis)
        page = gallery_html(found, _introduction(subjects, grid, seeds, experiments))
        write_whole(unfinished / _PAGE, page)
    return output / _PAGE


def _check_run(path: Path, experiment: Experiment) -> None:
    """Refuse now what some analysis would refuse at the end."""
    if experiment.model.name.startswith("dhvt"):
        raise InputError(f"{path} is a DHVT, whose attention cannot be rolled out; leave it out")
    check_validation(path, experiment)  # other sizes are tried on those images


def short_experiments(subjects: Sequence[Subject]) -> list[Experiment]:
    """A run on digits for each encoding, too short for a result, long enough for a picture."""
    base = load_config("digits", SHORT_RUN)
    return [change_config(base, parse_arm(subject.label).overrides) for subject in subjects]


def _trainings(experiments: Sequence[Experiment], folders: Sequence[Path]) -> Iterator[Step]:
    for experiment, folder in zip(experiments, folders, strict=False):

        def work(experiment: Experiment = experiment, folder: Path = folder) -> None:
            run(experiment, folder, console=Console(quiet=True))

        yield Step(f"training {experiment.position_encoding.name} on digits", work)


def _of_encodings(subjects: Sequence[Subject], grid: Grid, seeds: Sequence[int]) -> Iterator[Step]:
    labels = [subject.label for subject in subjects]
    seed = seeds[0]
    yield Step("surface", lambda: surface_analysis(grid=grid, seed=seed))
    yield Step("structure", lambda: structure_analysis(subjects, grid, seed))
    yield Step("decay", lambda: decay_analysis(subjects, grid, seeds, details=labels))
    yield Step(
        "attention before training", lambda: initial_attention_analysis(subjects, grid, seeds)
    )
    if any(subject.build(grid, seed).additive(grid) is not None for subject in subjects):
        yield Step("relative", lambda: relative_analysis(subjects, grid=grid, seed=seed))


def _of_runs(
    runs: Sequence[Path], experiments: Sequence[Experiment], photographs: Sequence[Path]
) -> Iterator[Step]:
    yield Step("curves", lambda: curves_analysis(runs))
    learned = [p for p, each in zip(runs, experiments, strict=True) if learns_a_lattice(each)]
    if learned:
        yield Step("learned lattices", lambda: lattice_analysis(learned))
    yield Step("other image sizes", lambda: resolution_analysis(runs))
    yield Step("rollout", lambda: rollout_analysis(runs, photographs or None))


def _introduction(
    subjects: Sequence[Subject], grid: Grid, seeds: Sequence[int], experiments: Sequence[Experiment]
) -> str:
    names = ", ".join(subject.label for subject in subjects)
    text = (
        f"Encodings: {names}; {grid[0]} x {grid[1]} patches; seeds "
        f"{', '.join(map(str, seeds))}. Pictures for print, numbers and tables lie beside this "
        "page."
    )
    if experiments:
        text += (
            " The trained models were trained on 8 x 8 digits for "
            f"{experiments[0].training.epochs} epochs, which shows how these figures look and is "
            "no result."
        )
    return text
