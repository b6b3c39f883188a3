"""The structure of an encoding before training: principal components and similarity matrix."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from training.encodings.grid import Grid
from training.figure_style import BLUE, ORANGE, PLAIN_MAP, figure_settings, new_figure
from training.markdown import markdown_table
from training.study.analysis import DASH, Analysis
from training.study.decay_measures import (
    explained_by_distance,
    interaction_matrix,
    patch_pairs,
    position_table,
)
from training.study.decay_table import NULLS, is_same_encoding, nulls_beside
from training.study.encoding_choice import GRID, Subject
from training.study.structure_measures import (
    FEWEST_ROWS,
    Array,
    Components,
    cells_unfolded,
    neighbours_by_chance,
    neighbours_kept,
    offset_profiles,
    patch_places,
    position_explained,
    principal_components,
    raster_period,
    rise_after_the_minimum,
    turns_about_the_middle,
)

if TYPE_CHECKING:
    from training.encodings.grid import Grid


# Encodings side by side: components by row and by column, similarity matrix, offsets.


@dataclass(frozen=True)
class Drawn:
    """What is drawn of one encoding."""

    label: str
    plane: Array | None  # None: all patches are in one place
    axes: tuple[str, ...]  # of the components there are
    similarity: Array
    notes: tuple[str, str, str, str]  # neighbours, folds, distance, repetition


def structure_figure(drawn: Sequence[Drawn], grid: Grid) -> Any:
    """A column for each encoding."""
    with figure_settings():
        # One column alone still needs the width of its title and colour bar.
        figure = new_figure(max(2.7 * len(drawn), 3.6) + 0.4, 9.6)
        axes = figure.subplots(4, len(drawn), squeeze=False, height_ratios=[1, 1, 1, 0.7])
        for column, each in enumerate(drawn):
            _draw_plane(figure, axes[:2, column], each, grid, column == len(drawn) - 1)
            _draw_similarity(figure, axes[2, column], each, grid)
            _draw_offsets(axes[3, column], each.similarity, grid)
        axes[2, 0].set_ylabel("patch")
        axes[3, 0].set_ylabel("mean interaction")
        axes[3, 0].legend(loc="best")
    return figure


def _draw_plane(figure: Any, axes: Sequence[Any], each: Drawn, grid: Grid, is_last: bool) -> None:
    neighbours, folds, *_ = each.notes
    title = _broken(each.label)
    for axis, place, name in zip(axes, patch_places(grid), ("row", "column"), strict=True):
        axis.set_xticks([])
        axis.set_yticks([])
        if each.plane is None:
            axis.text(0.5, 0.5, "all patches in one place", ha="center", transform=axis.transAxes)
            continue
        sheet = each.plane.reshape(*grid, 2)
        for line in (*sheet, *sheet.transpose(1, 0, 2)):
            axis.plot(line[:, 0], line[:, 1], color="0.8", lw=0.4, zorder=1)
        image = axis.scatter(
            *each.plane.T, c=place, cmap=PLAIN_MAP, s=9, lw=0, zorder=2, vmin=0, vmax=place.max()
        )
        for label, set_label in zip(each.axes, (axis.set_xlabel, axis.set_ylabel), strict=False):
            set_label(label)
        if is_last:
            figure.colorbar(image, ax=axis, label=name, shrink=0.85)
    axes[0].set_title(f"{title}\n{neighbours}, {folds}" if each.plane is not None else title)


def _broken(label: str) -> str:
    """A long label on two lines, parted after the name."""
    name, colon, options = label.partition(":")
    return label if len(label) < 26 else f"{name}{colon}\n{options}"


def _draw_similarity(figure: Any, axis: Any, each: Drawn, grid: Grid) -> None:
    matrix = each.similarity
    others = matrix[~np.eye(len(matrix), dtype=bool)]
    finite = others[np.isfinite(others)]
    low, high = np.percentile(finite, [1, 99]) if finite.size else (0.0, 1.0)
    if high - low <= 1e-12 * max(abs(high), abs(low)):
        low, high = high - 0.5, high + 0.5
    image = axis.imshow(matrix, vmin=low, vmax=high)
    figure.colorbar(image, ax=axis, shrink=0.85)
    ticks = np.arange(0, len(matrix), grid[1] * max(1, grid[0] // 4))
    axis.set_xticks(ticks)
    axis.set_yticks(ticks)
    axis.set_xlabel("patch, row by row")
    axis.set_title("\n".join(each.notes[2:]))


def _draw_offsets(axis: Any, matrix: Array, grid: Grid) -> None:
    from matplotlib.ticker import MaxNLocator

    rows, columns = offset_profiles(matrix, grid)
    for profile, style, colour, name in (
        (rows, "o-", BLUE, "rows apart"),
        (columns, "s--", ORANGE, "columns apart"),
    ):
        if profile.size > 1:  # offset 0 is the patch itself
            axis.plot(
                np.arange(1, profile.size), profile[1:], style, color=colour, ms=3, label=name
            )
    axis.set_xlim(0.5, max(grid) - 0.5)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_xlabel("offset in patches")
    axis.grid()


# Encodings every other one is compared with in the table; none has no structure to show.
CONTROLS = tuple(label for label in NULLS if label != "none")
MOST_COLUMNS = 4  # of a figure


@dataclass(frozen=True)
class Structure:
    """One encoding: the space it puts the patches in, and what that keeps of the grid."""

    label: str
    kind: str
    space: str  # what the components are of
    similarity: Array
    components: Components
    numbers: dict[str, float]  # NaN where something is not defined

    def plane(self) -> Array:
        """The first two components, (N, 2); zeros where there are fewer."""
        return first_components(self.components, 2)


def first_components(components: Components, count: int) -> Array:
    found = components.coordinates[:, :count]
    return np.pad(found, ((0, 0), (0, count - found.shape[1])))


def structure_of(subject: Subject, grid: Grid, seed: int = 0) -> Structure:
    """Measure one encoding as it starts."""
    encoding = subject.build(grid, seed)
    similarity, table = interaction_matrix(encoding, grid), position_table(encoding, grid)
    if table is None:
        space, products = "principal coordinates of the interaction", similarity
    else:
        space, products = "principal components of the table", table @ table.T
    components = principal_components(products)
    numbers = measured_structure(components, similarity, grid)
    return Structure(subject.label, encoding.kind, space, similarity, components, numbers)


def measured_structure(components: Components, similarity: Array, grid: Grid) -> dict[str, float]:
    """Everything the table shows of one encoding."""
    pairs = patch_pairs(grid)
    names = ("explained_1", "explained_2", "explained_3")
    explained = np.pad(components.explained[:3], (0, max(0, 3 - components.explained.size)))
    numbers = dict(zip(names, explained.tolist(), strict=True))
    is_point = not components.explained.size  # all patches in one place
    plane = first_components(components, 2)
    numbers |= {
        "explained_by_two": float(explained[:2].sum()),
        "negative": components.negative,
        "position_from_two": position_explained(plane, grid),
        "position_from_three": position_explained(first_components(components, 3), grid),
        "neighbours_in_plane": neighbours_kept(plane, grid),
        "neighbours_in_space": neighbours_kept(components.coordinates, grid),
        "unfolded": cells_unfolded(plane, grid),
        "turns": turns_about_the_middle(plane, grid),
    }
    if is_point:
        numbers = dict.fromkeys(numbers, math.nan)
    rows, columns = offset_profiles(similarity, grid)
    return numbers | {
        "raster_period": raster_period(similarity, grid),
        "rise_by_rows": rise_after_the_minimum(rows),
        "rise_by_columns": rise_after_the_minimum(columns),
        "explained_by_distance": explained_by_distance(similarity, pairs),
    }


def structure_analysis(
    subjects: Sequence[Subject],
    grid: Grid = GRID,
    seed: int = 0,
    *,
    progress: Callable[[str], None] | None = None,
) -> Analysis:
    """The subjects drawn side by side, and in the table beside the controls."""
    patch_pairs(grid)  # refuses a grid without pairs before any work
    beside = nulls_beside([subject.label for subject in subjects])
    controls = [Subject(label) for label in beside if label in CONTROLS]
    found = []
    for subject in [*subjects, *controls]:
        if progress is not None:
            progress(subject.label)
        found.append(structure_of(subject, grid, seed))
    if progress is not None:
        progress("drawing")
    rows = [_row(each) for each in found]
    return Analysis(
        name="structure",
        title="Structure of positional encodings before training",
        caption=_caption([each.label for each in found], grid, seed),
        figures=_figures(found[: len(subjects)], grid),
        numbers={
            "grid": list(grid),
            "seed": seed,
            "neighbours_by_chance": neighbours_by_chance(grid),
            "rows": rows,
        },
        tables={"structure": rows},
        markdown=structure_markdown(found, grid),
    )


def _figures(found: Sequence[Structure], grid: Grid) -> dict[str, Any]:
    count = math.ceil(len(found) / MOST_COLUMNS)
    step, figures = math.ceil(len(found) / count), {}  # five are three and two
    for number, start in enumerate(range(0, len(found), step), start=1):
        name = "structure" if count == 1 else f"structure_{number}"
        figures[name] = structure_figure(
            [_drawn(each) for each in found[start : start + step]], grid
        )
    return figures


def _drawn(found: Structure) -> Drawn:
    numbers = found.numbers
    explained = found.components.explained[:2]
    return Drawn(
        label=found.label,
        plane=found.plane() if explained.size else None,
        axes=tuple(
            f"component {k} ({100 * share:.0f} %)" for k, share in enumerate(explained, start=1)
        ),
        similarity=found.similarity,
        notes=(
            f"neighbours kept {_text(numbers['neighbours_in_plane'])}",
            f"unfolded {_text(numbers['unfolded'])}",
            f"distance: R² = {_text(numbers['explained_by_distance'])}",
            f"repeats by row: {_text(numbers['raster_period'])}",
        ),
    )


def _row(found: Structure) -> dict[str, Any]:
    values = {k: v if math.isfinite(v) else None for k, v in found.numbers.items()}
    return {"encoding": found.label, "kind": found.kind, "space": found.space, **values}


# --- As text ---------------------------------------------------------------------------------

_COLUMNS = (
    ("variance in two components", "explained_by_two"),
    ("R² of (u, v) from two", "position_from_two"),
    ("from three", "position_from_three"),
    ("neighbours kept in the plane", "neighbours_in_plane"),
    ("in the space", "neighbours_in_space"),
    ("unfolded", "unfolded"),
    ("turns", "turns"),
    ("repeats by row", "raster_period"),
    ("rise, rows", "rise_by_rows"),
    ("rise, columns", "rise_by_columns"),
    ("R² of distance", "explained_by_distance"),
)


def structure_markdown(found: Sequence[Structure], grid: Grid) -> str:
    """The table people read; a dash where something is not defined."""
    headings = ["encoding", *(title for title, _ in _COLUMNS)]
    rows = []
    for each in found:
        is_control = any(is_same_encoding(each.label, label) for label in CONTROLS)
        control = " (control)" if is_control else ""
        numbers = (_text(each.numbers[key]) for _, key in _COLUMNS)
        rows.append([f"`{each.label}`{control}", *numbers])
    legend = (
        f"By chance {neighbours_by_chance(grid):.3f} of the neighbours are kept and half of the "
        f"cells unfolded. {DASH}: not defined."
    )
    return f"{markdown_table(headings, rows)}\n\n{legend}\n"


def _text(value: float) -> str:
    if not math.isfinite(value):
        return DASH
    text = f"{value:.2f}"
    return text.removeprefix("-") if not text.strip("-0.") else text


def _caption(labels: Sequence[str], grid: Grid, seed: int) -> str:
    return (
        f"Encodings of a {grid[0]}x{grid[1]} grid as they start (seed {seed}): "
        f"{', '.join(labels)}. First and second row: the first two principal components of the "
        "rows of an added table; for encodings without a table the principal coordinates of the "
        "matrix of interactions (kernel PCA), of which only the positive part is a space of "
        "vectors. Colour is the row, below it the column of the patch; lines join neighbours. "
        "Neighbours kept: the share of the patches that touch one on the grid which are among its "
        "nearest here (eight inside the grid, fewer at its edge); "
        f"{neighbours_by_chance(grid):.3f} by chance. Unfolded: the share of triangles between "
        "neighbours that lie the same way round, those without an area left out; 1 for a sheet "
        "without folds, 0.5 by chance. Third row: the interaction of all pairs, patches numbered "
        "row by row; its colours span the middle 98 % of the pairs of different patches. R² of "
        "distance: what the distance explains of it. Repeats by row: the correlation of the steps "
        "along the mean diagonal with those one row of patches later, which is near 1 for smooth "
        "functions of the place on grids of many rows, and not a period of the function (not "
        f"defined below {FEWEST_ROWS} rows). Fourth row: mean interaction of patches some rows "
        "apart in one column, and columns in one row: a period within the grid would bring it up "
        "again. Rise: how much of its fall it makes up for (says nothing of noise)."
    )
