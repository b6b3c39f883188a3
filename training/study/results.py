"""Tables and pictures of a published study, from its rows alone: ``wefpe results``.

Every folder in the folder of the study is a part of it. A part with a ``runs.csv``, as
``wefpe compare`` writes it, gets a table ``PART.md`` and a picture ``PART.png`` beside it, and so
does a part with a ``scores.csv`` of ``wefpe analyse resolution``. The encoding of the first row is
the reference. Each table of ``contrasts.toml``, if there is one, goes to ``NAME.md``. If configs
lie beside the rows, ``starts.md`` says how strong their position tables are before training. If
there is a ``learned.csv``, ``learned.md`` has the numbers of WEF-PE before and after training.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import torch
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from training.config import Experiment, hash_without_seed, load_config
from training.engine.run_folder import write_whole
from training.figure_style import figure_settings
from training.metrics import ACCURACY, METRICS, Metric
from training.models.building import build_position_encoding
from training.study.analyse_resolution import SizeScore, draw_scores, scores_of_csv, size_order
from training.study.compare import parse_arm
from training.study.publish import LEARNED, Learned, learned_markdown, read_learned
from training.study.statistics import (
    RUNS,
    Accuracies,
    Interval,
    Summary,
    accuracies_of_csv,
    draw_comparison,
    interval_text,
    metric_of_csv,
    points,
    starred,
    summarise,
    summary_markdown,
    too_few_seeds,
)
from wefpe_core.errors import InputError
from wefpe_core.reporting import markdown_table

# --- Contrasts: the differences that a study asks about by name ----------------------------


class Contrast(BaseModel):
    """One encoding minus another, over the seeds both have.

    ``contrasts.toml`` beside the parts of a study lists them in tables, each as in::

        [[main]]
        question = "Does it beat learned positions?"
        part = "scratch"
        of = "weierstrass"
        minus = "learned"
        is_test = true      # planned as a test; the others describe
        paper = 7.32        # percentage points, if a paper prints a number for it
        without = [0]       # seeds that are left out, if any
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    question: str
    part: str
    of: str
    minus: str
    is_test: bool = False
    paper: float | None = None
    without: tuple[int, ...] = ()

    def summary(self, parts: Mapping[str, Accuracies]) -> Summary:
        if self.part not in parts:
            raise InputError(f"there is no part {self.part!r}; there are {', '.join(parts)}")
        if self.of == self.minus:
            raise InputError(f"{self.question!r} compares {self.of!r} with itself")
        accuracies = parts[self.part]
        for label in (self.of, self.minus):
            if label not in accuracies:
                raise InputError(
                    f"the part {self.part!r} has no rows of {label!r}; it has those of "
                    f"{', '.join(accuracies)}"
                )
        shared = accuracies[self.of].keys() & accuracies[self.minus].keys()
        if not set(self.without) <= shared:
            raise InputError(f"{self.question!r} leaves out {self.without}, of {sorted(shared)}")
        pair = {
            label: {seed: accuracies[label][seed] for seed in sorted(shared - set(self.without))}
            for label in (self.minus, self.of)
        }
        return summarise(pair, self.minus)[1]


_TABLES = TypeAdapter(dict[str, list[Contrast]])


def read_contrasts(path: Path) -> dict[str, list[Contrast]]:
    """The tables of contrasts by name."""
    try:
        return _TABLES.validate_python(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    except ValidationError as error:
        found = error.errors()[0]
        where = ".".join(map(str, found["loc"]))
        raise InputError(f"{path}: {where}: {found['msg']}") from error


def contrasts_markdown(
    contrasts: Sequence[Contrast],
    parts: Mapping[str, Accuracies],
    metrics: Mapping[str, Metric] = MappingProxyType({}),
) -> str:
    """A row for each contrast; there is a column for the paper if any has a number of it."""
    headings = ["question", "difference", "seeds", "points", "Student 95 %", "so"]
    has_paper = any(contrast.paper is not None for contrast in contrasts)
    headings += ["in the paper"] if has_paper else []
    lines = []
    for contrast in contrasts:
        found = contrast.summary(parts)
        cells = [contrast.question, f"`{contrast.of}` − `{contrast.minus}`", str(len(found.seeds))]
        cells += [points(found.difference, signed=True), interval_text(found.student)]
        metric = metrics.get(contrast.part, ACCURACY)
        cells.append(_conclusion(found.student, contrast.is_test, metric))
        if has_paper:
            cells.append("" if contrast.paper is None else f"{contrast.paper:+.2f}")
        lines.append(cells)
    return markdown_table(headings, lines)


def _conclusion(interval: Interval | None, is_test: bool, metric: Metric) -> str:
    """For a planned test, who won; otherwise only on which side of 0 the interval lies."""
    if interval is None:
        return "too few seeds"
    if not interval.excludes_zero:
        return "not shown" if is_test else "has 0 in it"
    is_above = interval.low > 0.0
    if is_test:
        return "better" if is_above != metric.is_error else "worse"
    return "above 0" if is_above else "below 0"


# --- Other image sizes ---------------------------------------------------------------------


def sizes_markdown(found: Sequence[SizeScore]) -> str:
    """A row for each encoding, a column for each size; the first encoding is the reference."""
    metric = METRICS[found[0].metric]
    sizes = sorted({each.size for each in found}, key=size_order)
    own = {each.size for each in found if each.is_trained_size}
    reference = found[0].curve
    summaries = {}
    for size in sizes:
        accuracies: dict[str, dict[int, float]] = {}
        for each in found:
            if each.size == size:
                accuracies.setdefault(each.curve, {})[each.seed] = each.value
        summaries[size] = {row.label: row for row in summarise(accuracies, reference)}
    headings = ["encoding", "seeds"]
    headings += [f"{h} × {w}{' (training)' if (h, w) in own else ''}" for h, w in sizes]
    lines = []
    for curve in dict.fromkeys(each.curve for each in found):
        here = [summaries[size].get(curve) for size in sizes]
        seeds = {len(row.seeds) for row in here if row is not None}
        cells = [f"`{curve}`", " to ".join(map(str, sorted(seeds)))]
        for row in here:
            difference = "" if row is None else starred(row)
            bracket = f" ({difference})" if difference else ""
            cells.append("" if row is None else points(row.mean) + bracket)
        lines.append(cells)
    legend = (
        f"Test {metric.title} in per cent, and in brackets minus `{reference}`, paired by seed, "
        "over the seeds both have; * where Student's 95 % interval leaves out 0."
    )
    legend += too_few_seeds(row for rows in summaries.values() for row in rows.values())
    return f"{markdown_table(headings, lines)}\n{legend}\n"


# --- Position tables before training -------------------------------------------------------

_SEEDS = range(5)


@dataclass(frozen=True)
class TableStart:
    """The root mean square of a table over patches and channels, as a mean over seeds 0 to 4.

    The part that is the same for all patches says nothing about their place; a model can use only
    the part that differs.
    """

    label: str
    whole: float
    differing: float  # after subtracting the mean over the patches from each channel


def start_of(label: str, config: Experiment) -> TableStart | None:
    """None for an encoding that adds nothing to the tokens or starts from a checkpoint."""
    if config.model.checkpoint:
        return None
    whole = differing = 0.0
    with torch.random.fork_rng(devices=()), torch.no_grad():
        for seed in _SEEDS:
            torch.manual_seed(seed)
            encoding = build_position_encoding(config)
            table = encoding.additive(encoding.size.grid)
            if table is None:
                return None
            whole += float(table.square().mean().sqrt())
            differing += float((table - table.mean(dim=0)).square().mean().sqrt())
    return TableStart(label, whole / len(_SEEDS), differing / len(_SEEDS))


def starts_markdown(starts: Sequence[TableStart]) -> str:
    """A row for each encoding."""
    headings = ["table at the start", "root mean square", "of what differs between patches"]
    rows = [(f"`{s.label}`", f"{s.whole:.2f}", f"{s.differing:.2f}") for s in starts]
    return markdown_table(headings, rows)


# --- All of a study ------------------------------------------------------------------------

Rows = TypeVar("Rows", bound=Sized)

PartAndLabel = tuple[str, str]  # a part of the study and an encoding in it

SIZES, CONTRASTS = "scores.csv", "contrasts.toml"


def write_results(folder: Path, output: Path) -> list[Path]:
    """Write tables and pictures of the rows in `folder` to `output`; it returns the tables."""
    tables: list[Path] = []

    def write(name: str, text: str) -> None:
        write_whole(output / f"{name}.md", text)
        tables.append(output / f"{name}.md")

    parts: dict[str, Accuracies] = {}
    metrics: dict[str, Metric] = {}
    configs: dict[PartAndLabel, Experiment] = {}
    for path in sorted(folder.glob(f"*/{RUNS}")):
        name = path.parent.name
        parts[name] = accuracies = _read(path, accuracies_of_csv)
        metric = metrics[name] = metric_of_csv(path.read_text(encoding="utf-8"))
        reference = next(iter(accuracies))
        summaries = summarise(accuracies, reference)
        write(name, summary_markdown(summaries, reference, metric))
        draw_comparison(output / f"{name}.png", summaries, accuracies, reference, metric)
        for label in accuracies:
            config = path.parent / "configs" / f"{parse_arm(label).folder_name}.toml"
            if config.exists():
                configs[name, label] = load_config(str(config))
    for path in sorted(folder.glob(f"*/{SIZES}")):
        found = _read(path, scores_of_csv)
        write(path.parent.name, sizes_markdown(found))
        with figure_settings():
            picture = output / f"{path.parent.name}.png"
            draw_scores(found).savefig(picture, dpi=130, metadata={"Software": None})
    if not tables:
        raise InputError(f"no folder with {RUNS} or {SIZES} in {folder}")
    if (folder / CONTRASTS).exists():
        for name, contrasts in read_contrasts(folder / CONTRASTS).items():
            write(name, contrasts_markdown(contrasts, parts, metrics))
    names = name_encodings(configs)
    named = {names[place]: config for place, config in configs.items()}
    starts = [start_of(name, config) for name, config in named.items()]
    if any(starts):
        write("starts", starts_markdown([start for start in starts if start is not None]))
    learned = _all_learned(folder, names)
    if learned:
        write("learned", learned_markdown(learned, named))
    return tables


def name_encodings(configs: Mapping[PartAndLabel, Experiment]) -> dict[PartAndLabel, str]:
    """The label of each encoding, with its part if the label is trained otherwise in another."""
    hashes: dict[str, set[str]] = {}
    for (_, label), config in configs.items():
        hashes.setdefault(label, set()).add(hash_without_seed(config))
    return {
        (part, label): label if len(hashes[label]) == 1 else f"{label} ({part})"
        for part, label in configs
    }


def _all_learned(folder: Path, names: Mapping[PartAndLabel, str]) -> list[Learned]:
    """The learned numbers of all parts under these names; a run in several parts counts once."""
    learned: dict[tuple[str, int, int], Learned] = {}
    for path in sorted(folder.glob(f"*/{LEARNED}")):
        for run in read_learned(path):
            place = (path.parent.name, run.label)
            if place not in names:
                raise InputError(
                    f"{path} has {run.label!r}, of which there is no row with a config"
                )
            run = run._replace(label=names[place])
            learned.setdefault((run.label, run.seed, run.part), run)
    return list(learned.values())


def _read(path: Path, read: Callable[[str], Rows]) -> Rows:
    try:
        rows = read(path.read_text(encoding="utf-8"))
    except (OSError, KeyError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {type(error).__name__}: {error}") from error
    if not rows:
        raise InputError(f"{path} has no rows")
    return rows
