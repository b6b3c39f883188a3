"""Finished runs at other image sizes than that of training."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, get_args

import typer

from training.encodings.learned import Resampling, resampling_of
from training.engine.finished_run import (
    FinishedRun,
    Split,
    check_validation,
    evaluate_opened,
    open_finished_run,
)
from training.figure_style import curve_style, figure_settings, in_lines, new_figure
from training.metrics import ACCURACY, METRICS, metric_of
from training.parsing import (
    ImageSize,
    grid_of_size,
    height_and_width,
    read_image_size,
    size_text,
)
from training.study.analysis import (
    Analysis,
    AnalysisCommand,
    Options,
    Progress,
    ReadBy,
    Row,
    silent,
)
from training.study.run_groups import check_runs, label_runs, runs_text
from training.study.statistics import rows_of_csv
from wefpe_core.errors import InputError

# Height and width relative to the size in training.
_FACTORS: tuple[tuple[float, float], ...] = ((0.75, 0.75), (1, 1), (1, 1.5), (1.5, 1.5), (2, 2))

_MOST_IN_A_PANEL = 8  # more curves cannot be told apart in one panel
_PANELS_IN_A_ROW = 4
_X_LABEL = "height × width of the images in pixels"

_RULES = (
    "Every encoding follows its own rule: a function of the place is evaluated at the new patch "
    "centres, a learned table is resampled (its own method first, the others named in brackets). "
)

Size = tuple[int, int]


@dataclass(frozen=True)
class SizeScore:
    """The scores of one run at one size."""

    label: str
    seed: int
    resampling: str  # the method for a learned table; "" for encodings without one
    height: int
    width: int
    is_trained_size: bool  # whether it is the size of the training images
    value: float  # of the metric
    loss: float
    images: int
    metric: str = ACCURACY.name

    @property
    def size(self) -> Size:
        return self.height, self.width

    @property
    def curve(self) -> str:
        return f"{self.label} [{self.resampling}]" if self.resampling else self.label

    @property
    def standard_error(self) -> float:
        """The standard error of an accuracy as a share of so many images; 0 of an error."""
        if self.metric != ACCURACY.name:
            return 0.0
        return math.sqrt(self.value * (1.0 - self.value) / self.images)


Curves = Mapping[str, Sequence[SizeScore]]

# --- Measuring -----------------------------------------------------------------------------


def sizes_of(run: FinishedRun, sizes: Sequence[ImageSize] | None) -> list[Size]:
    """The sizes at which a run is evaluated, its own among them, from small to large."""
    own, patch = run.splits.image_size, run.model.patch_embed.patch_size
    if sizes is None:
        chosen = [(_multiple(a * own[0], patch), _multiple(b * own[1], patch)) for a, b in _FACTORS]
    else:
        chosen = [height_and_width(size) for size in sizes]
    for size in chosen:
        grid_of_size(size, patch)
    return sorted({own, *chosen}, key=size_order)


def _multiple(pixels: float, patch: int) -> int:
    """The nearest multiple of the patch size, at least one patch."""
    return max(round(pixels / patch), 1) * patch


def size_order(size: Size) -> Size:
    return size[0] * size[1], size[1]


def scores_at(
    run: FinishedRun,
    label: str,
    size: Size,
    split: Split,
    methods: Sequence[Resampling],
    batch_size: int,
) -> list[SizeScore]:
    """The scores of a run at one size, with a learned table resampled by every method.

    At the size of training there is nothing to resample, so all methods give the same.
    """
    is_trained_size = size == run.splits.image_size
    shown: ImageSize = size[0] if size[0] == size[1] else size
    own = resampling_of(run.model.encoding)
    tried = [own] if own is None else list(dict.fromkeys([own, *methods]))
    results: list[SizeScore] = []
    for method in tried:
        if not (is_trained_size and results):
            scores = evaluate_opened(
                run, split, image_size=shown, resampling=method, batch_size=batch_size
            )
        results.append(
            SizeScore(
                label,
                run.experiment.seed,
                method or "",
                *size,
                is_trained_size,
                scores.value,
                scores.loss,
                scores.images,
                scores.metric.name,
            )
        )
    return results


# --- Tables --------------------------------------------------------------------------------

# The columns of ``scores.csv``, and how their text is read.
_SCORE_COLUMNS: Mapping[str, Callable[[str], Any]] = {
    "label": str,
    "seed": int,
    "resampling": str,
    "height": int,
    "width": int,
    "is_trained_size": "True".__eq__,
    "value": float,  # the column has the name of the metric
    "standard_error": float,
    "loss": float,
    "images": int,
}


def score_rows(found: Sequence[SizeScore]) -> list[Row]:
    """A row for each run, size and method."""
    return [
        {each.metric if name == "value" else name: getattr(each, name) for name in _SCORE_COLUMNS}
        for each in found
    ]


def scores_of_csv(text: str) -> list[SizeScore]:
    """The scores from the text of ``scores.csv``, which holds `score_rows`."""
    names = [field.name for field in fields(SizeScore) if field.name != "metric"]
    found = []
    for row in rows_of_csv(text):
        metric = metric_of(row).name
        row["value"] = row[metric]
        read = {name: _SCORE_COLUMNS[name](row[name]) for name in names}
        found.append(SizeScore(**read, metric=metric))
    return found


def retained_rows(found: Sequence[SizeScore]) -> list[Row]:
    """For each curve and size the mean of the metric, and its change from the size of training."""
    rows: list[Row] = []
    for curve, scores in curves_of(found).items():
        own = {each.seed: each.value for each in scores if each.is_trained_size}
        for size in sorted({each.size for each in scores}, key=size_order):
            here = [each for each in scores if each.size == size]
            row: dict[str, Any] = {"label": curve, "size": size_text(size), "runs": len(here)}
            row[here[0].metric] = sum(each.value for each in here) / len(here)
            row["change"] = sum(each.value - own[each.seed] for each in here) / len(here)
            rows.append(row)
    return rows


def curves_of(found: Sequence[SizeScore]) -> Curves:
    curves: dict[str, list[SizeScore]] = {}
    for each in found:
        curves.setdefault(each.curve, []).append(each)
    return curves


# --- Figure --------------------------------------------------------------------------------


def draw_scores(found: Sequence[SizeScore]) -> Any:
    """Accuracy over the sizes in order, a curve for each encoding and method.

    A few curves share a panel. Of many, each has its own panel, with the others in grey behind it.
    """
    sizes = sorted({each.size for each in found}, key=size_order)
    curves = curves_of(found)
    figure = (_draw_apart if len(curves) > _MOST_IN_A_PANEL else _draw_together)(curves, sizes)
    for panel in figure.axes:
        for size in {each.size for each in found if each.is_trained_size}:
            panel.axvline(sizes.index(size), color="0.5", linewidth=0.8, linestyle="--", zorder=0)
        panel.set_xticks(range(len(sizes)), [f"{h} × {w}" for h, w in sizes])
        panel.grid(axis="y")
    return figure


def _y_label(curves: Curves) -> str:
    return f"{METRICS[next(iter(curves.values()))[0].metric].title} in %"


def _draw_together(curves: Curves, sizes: Sequence[Size]) -> Any:
    figure = new_figure(max(4.6, 0.8 * len(sizes) + 1.6), 3.0 + 0.13 * len(curves))
    panel = figure.subplots()
    for number, (curve, scores) in enumerate(curves.items()):
        shift = 0.24 * ((number + 0.5) / len(curves) - 0.5)  # or bars would hide each other
        _draw_curve(panel, scores, sizes, curve_style(number), label=curve, shift=shift)
    panel.set(xlabel=_X_LABEL, ylabel=_y_label(curves))
    figure.legend(loc="outside lower center", ncols=1 if max(map(len, curves)) > 32 else 2)
    return figure


def _draw_apart(curves: Curves, sizes: Sequence[Size]) -> Any:
    rows = math.ceil(len(curves) / _PANELS_IN_A_ROW)
    figure = new_figure(2.2 * _PANELS_IN_A_ROW, 0.6 + 1.7 * rows)
    panels = figure.subplots(rows, _PANELS_IN_A_ROW, sharex=True, sharey=True).flat
    behind = {"color": "0.8", "linestyle": "-", "linewidth": 0.6, "marker": ""}
    for number, (curve, scores) in enumerate(curves.items()):
        panel = panels[number]
        for other in curves.values():
            _draw_curve(panel, other, sizes, behind)
        _draw_curve(panel, scores, sizes, curve_style(0))
        panel.set_title(in_lines(curve, 32), fontsize=7.5)
        is_lowest = number + _PANELS_IN_A_ROW >= len(curves)
        panel.tick_params(axis="x", labelrotation=60, labelbottom=is_lowest)
    for panel in panels[len(curves) :]:
        panel.remove()
    figure.supxlabel(_X_LABEL, fontsize=8.0)
    figure.supylabel(_y_label(curves), fontsize=8.0)
    return figure


def _draw_curve(
    panel: Any,
    scores: Sequence[SizeScore],
    sizes: Sequence[Size],
    style: Mapping[str, Any],
    *,
    label: str = "",
    shift: float = 0.0,
) -> None:
    colour, marker = style["color"], style["marker"]
    squares = []
    for place, size in enumerate(sizes):
        values = [100.0 * each.value for each in scores if each.size == size]
        if not values:
            continue
        mean = sum(values) / len(values)
        error = 100.0 * max(each.standard_error for each in scores if each.size == size)
        ends = (min(values), max(values)) if len(values) > 1 else (mean - error, mean + error)
        is_square = size[0] == size[1]
        if is_square:
            squares.append((place + shift, mean))
        if marker:  # a curve in the background is only a line
            panel.plot([place + shift] * 2, ends, color=colour, linewidth=0.7, alpha=0.7)
            face = colour if is_square else "white"
            panel.plot(place + shift, mean, marker, color=colour, markerfacecolor=face, zorder=3)
    panel.plot([x for x, _ in squares], [y for _, y in squares], label=label, **style)


# --- The analysis --------------------------------------------------------------------------


def resolution_analysis(
    runs: Options.Runs,
    sizes: Annotated[
        Sequence[ImageSize] | None,
        ReadBy(read_image_size, is_repeated=True),
        typer.Option(
            "--size",
            metavar="PIXELS|HEIGHTxWIDTH",
            help="Evaluate at this size. Repeat the option for each; the default is from 3/4 to 2 "
            "times the size of training, and a rectangle. The size of training is always added.",
        ),
    ] = None,
    split: Annotated[
        Split,
        typer.Option(
            help="Which images. The test set is for a study in which nothing is left to choose."
        ),
    ] = "validation",
    *,
    methods: Annotated[
        Sequence[Resampling] | None,
        ReadBy(str, is_repeated=True),
        typer.Option(
            "--method",
            metavar="METHOD",
            help="Resample learned tables by this method as well as by that of their config. "
            "Repeat the option for each; the default is every method.",
        ),
    ] = None,
    own_rule: Annotated[
        bool,
        typer.Option("--own-rule", help="Resample learned tables only as their config says."),
    ] = False,
    batch_size: Annotated[int, typer.Option(min=1, metavar="N", help="Images at a time.")] = 256,
    progress: Progress = silent,
) -> Analysis:
    """Accuracy of finished runs at other image sizes than that of training.

    Runs that differ only in the seed become one curve. Every evaluation is recorded in
    evaluations.jsonl of its run.
    """
    configs = check_runs(runs, finished=True)
    if split not in get_args(Split):
        raise InputError(f"split must be one of {', '.join(get_args(Split))}, got {split!r}")
    labels = label_runs(configs)
    if split == "validation":
        for path, config in configs.items():
            check_validation(path, config)
    known = get_args(Resampling)
    methods = () if own_rule else known if methods is None else methods
    unknown = [method for method in methods if method not in known]
    if unknown:
        raise InputError(f"no method {unknown[0]!r}; there are {', '.join(known)}")
    opened = {path: open_finished_run(path) for path in labels}
    chosen = {path: sizes_of(run, sizes) for path, run in opened.items()}  # refuses misfits
    found = []
    for path, label in labels.items():
        for size in chosen[path]:
            progress(f"{path.name} at {size_text(size)}")
            found += scores_at(opened[path], label, size, split, methods, batch_size)
    if len({each.metric for each in found}) > 1:
        raise InputError("runs with different metrics cannot be in one figure")
    with figure_settings():
        figure = draw_scores(found)
    own = sorted({each.size for each in found if each.is_trained_size})
    images = sorted({each.images for each in found})
    title = METRICS[found[0].metric].title
    caption = (
        f"{title[:1].upper()}{title[1:]} on {' or '.join(map(str, images))} {split} images at "
        f"other sizes than the {' and '.join(size_text(size) for size in own)} pixels of training "
        f"(marked by a line), normalised as in training. {_RULES}Lines join squares; open marks "
        "are rectangles. Where every curve has its own panel, the others are grey behind it. With "
        "several seeds, marks are means and bars the range; with one seed, bars are plus and minus "
        "one standard error of a share of so many images. "
        f"{runs_text((labels[p], configs[p]) for p in labels)}"
    )
    tables = {"scores": score_rows(found), "retained": retained_rows(found)}
    return Analysis(
        name="resolution",
        title="Other image sizes",
        caption=caption,
        figures={"resolution": figure},
        numbers={"split": split} | tables,
        tables=tables,
    )


COMMAND = AnalysisCommand(resolution_analysis)
