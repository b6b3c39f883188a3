"""Finished runs at other image sizes: what each encoding does beyond the grid of its training."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from training.config import Experiment
from training.encodings.learned import Resampling, resampling_of
from training.engine.evaluation import Scores
from training.engine.finished_run import (
    FinishedRun,
    Split,
    check_validation,
    evaluate_opened,
    open_finished_run,
)
from training.figure_style import curve_style, figure_settings, in_lines, new_figure
from training.parsing import ImageSize, grid_of_size, height_and_width, size_text
from training.study.analysis import Analysis, Row
from training.study.run_groups import check_runs, labels_of, runs_text
from wefpe_core.errors import InputError

# Of the size in training; the last is a rectangle.
_FACTORS: tuple[tuple[float, float], ...] = ((0.75, 0.75), (1, 1), (1, 1.5), (1.5, 1.5), (2, 2))

_MOST_IN_A_PANEL = 8  # curves that can be told apart in one
_COLUMNS = 4  # of panels
_X_LABEL, _Y_LABEL = "height × width of the images in pixels", "accuracy in %"

_RULES = (
    "Every encoding follows its own rule: a function of the place is evaluated at the new patch "
    "centres, a learned table is resampled (its own method first, the others named in brackets). "
)


@dataclass(frozen=True)
class SizeScore:
    """The scores of one run at one size."""

    label: str
    seed: int
    method: str  # of resampling a learned table; "" for encodings without one
    size: tuple[int, int]
    is_trained: bool  # the size of the training images
    scores: Scores

    @property
    def curve(self) -> str:
        return f"{self.label} [{self.method}]" if self.method else self.label


Size = tuple[int, int]
Curves = Mapping[str, Sequence[SizeScore]]


def resolution_analysis(
    runs: Sequence[Path],
    sizes: Sequence[ImageSize] | None = None,
    split: Split = "validation",
    *,
    methods: Sequence[Resampling] | None = None,
    batch_size: int = 256,
    progress: Callable[[str], None] | None = None,
) -> Analysis:
    """Accuracy and loss of runs over image sizes, squares and rectangles.

    Every evaluation is appended to the ``evaluations.jsonl`` of its run.

    Parameters
    ----------
    runs : sequence of Path
        Folders of finished runs; those that differ only in the seed become one curve.
    sizes : sequence of int or (int, int), optional
        In pixels; by default 3/4, 1, 3/2 and 2 times the size of the training images, and a
        rectangle of 1 by 3/2. The size of training is always among them.
    split : {"validation", "test"}
        Choose with the validation images. The test set is for a study in which nothing is left to
        choose.
    methods : sequence of str, optional
        How learned tables are resampled, besides as their config says; by default every method.
    batch_size : int
    progress : callable, optional
        Told which run is at work at which size.
    """
    configs = check_runs(runs, finished=True)
    if split not in get_args(Split):
        raise InputError(f"split must be one of {', '.join(get_args(Split))}, got {split!r}")
    labels = labels_of(configs)
    if split == "validation":
        for path, config in configs.items():
            check_validation(path, config)
    methods = get_args(Resampling) if methods is None else tuple(methods)
    unknown = [method for method in methods if method not in get_args(Resampling)]
    if unknown:
        raise InputError(f"no method {unknown[0]!r}; there are {', '.join(get_args(Resampling))}")
    opened = {path: open_finished_run(path) for path in labels}
    chosen = {path: sizes_of(run, sizes) for path, run in opened.items()}  # refuses misfits
    found = []
    for path, label in labels.items():
        for size in chosen[path]:
            if progress is not None:
                progress(f"{path.name} at {size_text(size)}")
            found += scores_at(opened[path], label, size, split, methods, batch_size)
    with figure_settings():
        figure = draw_scores(found)
    own = sorted({each.size for each in found if each.is_trained})
    images = sorted({each.scores.images for each in found})
    experiments: dict[str, list[Experiment]] = {}
    for path, label in labels.items():
        experiments.setdefault(label, []).append(configs[path])
    caption = (
        f"Accuracy on {' or '.join(map(str, images))} {split} images at other sizes than the "
        f"{' and '.join(size_text(size) for size in own)} pixels of training (marked by a line), "
        "normalised as in training. "
        f"{_RULES}Lines join squares, open marks are rectangles; where every curve has a panel of "
        "its own, the others are grey behind it. With several seeds there are means, and "
        "the range as a bar, otherwise plus and minus one standard error of a share of so many "
        f"images. {runs_text(experiments)}"
    )
    return Analysis(
        name="resolution",
        title="Other image sizes",
        caption=caption,
        figures={"resolution": figure},
        numbers={"split": split, "scores": table_rows(found), "retained": retained_rows(found)},
        tables={"scores": table_rows(found), "retained": retained_rows(found)},
    )


def sizes_of(run: FinishedRun, sizes: Sequence[ImageSize] | None) -> list[tuple[int, int]]:
    """The sizes a run is evaluated at, its own among them, the small ones first."""
    own, patch = run.splits.image_size, run.model.patch_embed.patch_size
    if sizes is None:
        chosen = [(_multiple(a * own[0], patch), _multiple(b * own[1], patch)) for a, b in _FACTORS]
    else:
        chosen = [height_and_width(size) for size in sizes]
    for size in chosen:
        grid_of_size(size, patch)
    return sorted({own, *chosen}, key=size_order)


def _multiple(pixels: float, patch: int) -> int:
    """The nearest size that patches fill, one of them at least."""
    return max(round(pixels / patch), 1) * patch


def size_order(size: tuple[int, int]) -> tuple[int, int]:
    return size[0] * size[1], size[1]


def scores_at(
    run: FinishedRun,
    label: str,
    size: tuple[int, int],
    split: Split,
    methods: Sequence[Resampling],
    batch_size: int,
) -> list[SizeScore]:
    """The scores of a run at one size, with a learned table by every method.

    At the size of training there is nothing to resample, and all methods are one.
    """
    is_trained = size == run.splits.image_size
    shown: ImageSize = size[0] if size[0] == size[1] else size
    own = resampling_of(run.model.encoding)
    tried = [own] if own is None else list(dict.fromkeys([own, *methods]))
    results: list[SizeScore] = []
    for method in tried:
        if is_trained and results:
            scores = results[0].scores
        else:
            scores = evaluate_opened(
                run, split, image_size=shown, resampling=method, batch_size=batch_size
            )
        seed = run.experiment.seed
        results.append(SizeScore(label, seed, method or "", size, is_trained, scores))
    return results


def table_rows(found: Sequence[SizeScore]) -> list[Row]:
    """A row for each run, size and method."""
    return [
        {
            "label": each.label,
            "seed": each.seed,
            "resampling": each.method,
            "height": each.size[0],
            "width": each.size[1],
            "is_trained_size": each.is_trained,
            "accuracy": each.scores.accuracy,
            "standard_error": standard_error(each.scores),
            "loss": each.scores.loss,
            "images": each.scores.images,
        }
        for each in found
    ]


def retained_rows(found: Sequence[SizeScore]) -> list[Row]:
    """For each curve and size the mean accuracy, and what it is minus that at the own size."""
    rows: list[Row] = []
    for curve, mine in _by_curve(found).items():
        own = {each.seed: each.scores.accuracy for each in mine if each.is_trained}
        for size in sorted({each.size for each in mine}, key=size_order):
            here = [each for each in mine if each.size == size]
            accuracies = [each.scores.accuracy for each in here]
            changes = [each.scores.accuracy - own[each.seed] for each in here]
            row: dict[str, Any] = {"label": curve, "size": size_text(size), "runs": len(here)}
            row["accuracy"] = sum(accuracies) / len(here)
            row["change"] = sum(changes) / len(here)
            rows.append(row)
    return rows


def standard_error(scores: Scores) -> float:
    """Of the accuracy as a share of so many images."""
    return math.sqrt(scores.accuracy * (1.0 - scores.accuracy) / scores.images)


def _by_curve(found: Sequence[SizeScore]) -> Curves:
    curves: dict[str, list[SizeScore]] = {}
    for each in found:
        curves.setdefault(each.curve, []).append(each)
    return curves


# --- On paper ------------------------------------------------------------------------------


def draw_scores(found: Sequence[SizeScore]) -> Any:
    """Accuracy over the sizes in order, a curve for each encoding and method.

    A few share a panel; of many each has its own, with the others in grey behind it.
    """
    sizes = sorted({each.size for each in found}, key=size_order)
    curves = _by_curve(found)
    figure = (_draw_apart if len(curves) > _MOST_IN_A_PANEL else _draw_together)(curves, sizes)
    for panel in figure.axes:
        for size in {each.size for each in found if each.is_trained}:
            panel.axvline(sizes.index(size), color="0.5", linewidth=0.8, linestyle="--", zorder=0)
        panel.set_xticks(range(len(sizes)), [f"{h} × {w}" for h, w in sizes])
        panel.grid(axis="y")
    return figure


def _draw_together(curves: Curves, sizes: Sequence[Size]) -> Any:
    figure = new_figure(max(4.6, 0.8 * len(sizes) + 1.6), 3.0 + 0.13 * len(curves))
    panel = figure.subplots()
    for number, (curve, mine) in enumerate(curves.items()):
        shift = 0.24 * ((number + 0.5) / len(curves) - 0.5)  # apart, or bars hide each other
        _draw_curve(panel, mine, sizes, curve_style(number), label=curve, shift=shift)
    panel.set(xlabel=_X_LABEL, ylabel=_Y_LABEL)
    figure.legend(loc="outside lower center", ncols=1 if max(map(len, curves)) > 32 else 2)
    return figure


def _draw_apart(curves: Curves, sizes: Sequence[Size]) -> Any:
    rows = math.ceil(len(curves) / _COLUMNS)
    figure = new_figure(2.2 * _COLUMNS, 0.6 + 1.7 * rows)
    panels = figure.subplots(rows, _COLUMNS, sharex=True, sharey=True).flat
    behind = {"color": "0.8", "linestyle": "-", "linewidth": 0.6, "marker": ""}
    for number, (curve, mine) in enumerate(curves.items()):
        panel = panels[number]
        for other in curves.values():
            _draw_curve(panel, other, sizes, behind)
        _draw_curve(panel, mine, sizes, curve_style(0))
        panel.set_title(in_lines(curve, 32), fontsize=7.5)
        is_lowest = number + _COLUMNS >= len(curves)
        panel.tick_params(axis="x", labelrotation=60, labelbottom=is_lowest)
    for panel in panels[len(curves) :]:
        panel.remove()
    figure.supxlabel(_X_LABEL, fontsize=8.0)
    figure.supylabel(_Y_LABEL, fontsize=8.0)
    return figure


def _draw_curve(
    panel: Any,
    mine: Sequence[SizeScore],
    sizes: Sequence[Size],
    style: Mapping[str, Any],
    *,
    label: str = "",
    shift: float = 0.0,
) -> None:
    colour, marker = style["color"], style["marker"]
    squares = []
    for place, size in enumerate(sizes):
        values = [100.0 * each.scores.accuracy for each in mine if each.size == size]
        if not values:
            continue
        mean = sum(values) / len(values)
        error = 100.0 * max(standard_error(each.scores) for each in mine if each.size == size)
        ends = (min(values), max(values)) if len(values) > 1 else (mean - error, mean + error)
        is_square = size[0] == size[1]
        if is_square:
            squares.append((place + shift, mean))
        if marker:  # what is behind another curve is a line alone
            panel.plot([place + shift] * 2, ends, color=colour, linewidth=0.7, alpha=0.7)
            face = colour if is_square else "white"
            panel.plot(place + shift, mean, marker, color=colour, markerfacecolor=face, zorder=3)
    panel.plot([x for x, _ in squares], [y for _, y in squares], label=label, **style)
