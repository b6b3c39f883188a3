"""Principal components and similarity matrices of encodings before training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from training.encodings.size import Grid
from training.figure_style import BLUE, ORANGE, PLAIN_MAP, figure_settings, new_figure
from training.plot.encodings import curves_agree
from training.study import structure_measures as measures
from training.study.analysis import (
    DASH,
    Analysis,
    AnalysisCommand,
    Options,
    Progress,
    silent,
)
from training.study.decay_measures import interaction_matrix, position_table
from training.study.encoding_choice import (
    GRID,
    NULLS,
    USUAL,
    EncodingChoice,
    choose_encodings,
    is_same_encoding,
    nulls_beside,
)
from training.study.pair_statistics import explained_by_distance, patch_pairs
from training.study.structure_measures import Array, Components
from wefpe_core.reporting import markdown_table

# The table compares every other encoding with these; "none" has no structure to show.
CONTROLS = tuple(label for label in NULLS if label != "none")
MOST_COLUMNS = 4  # of a figure


# --- Measuring -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Structure:
    """One encoding: the space in which it puts the patches, and what that keeps of the grid."""

    label: str
    kind: str
    space: str  # says what the components are components of
    similarity: Array
    components: Components
    numbers: dict[str, float]  # NaN where a number is not defined

    def plane(self) -> Array:
        """The first two components, (N, 2); zeros where there are fewer."""
        return first_components(self.components, 2)


def first_components(components: Components, count: int) -> Array:
    found = components.coordinates[:, :count]
    return np.pad(found, ((0, 0), (0, count - found.shape[1])))


def structure_of(choice: EncodingChoice, grid: Grid, seed: int = 0) -> Structure:
    """Measure one encoding as it starts."""
    encoding = choice.build(grid, seed)
    similarity, table = interaction_matrix(encoding, grid), position_table(encoding, grid)
    if table is None:
        space, products = "principal coordinates of the interaction", similarity
    else:
        space, products = "principal components of the table", table @ table.T
    components = measures.principal_components(products)
    numbers = measured_structure(components, similarity, grid)
    return Structure(choice.label, encoding.kind, space, similarity, components, numbers)


def measured_structure(components: Components, similarity: Array, grid: Grid) -> dict[str, float]:
    """All numbers that the table shows of one encoding."""
    names = ("explained_1", "explained_2", "explained_3")
    explained = np.pad(components.explained[:3], (0, max(0, 3 - components.explained.size)))
    plane = first_components(components, 2)
    numbers = dict(zip(names, explained.tolist(), strict=True)) | {
        "explained_by_two": float(explained[:2].sum()),
        "negative": components.negative,
        "position_from_two": measures.position_explained(plane, grid),
        "position_from_three": measures.position_explained(first_components(components, 3), grid),
        "neighbours_in_plane": measures.neighbours_kept(plane, grid),
        "neighbours_in_space": measures.neighbours_kept(components.coordinates, grid),
        "unfolded": measures.cells_unfolded(plane, grid),
        "turns": measures.turns_about_the_middle(plane, grid),
    }
    if not components.explained.size:  # all patches are in one place
        numbers = dict.fromkeys(numbers, math.nan)
    rows, columns = measures.offset_profiles(similarity, grid)
    return numbers | {
        "raster_period": measures.raster_period(similarity, grid),
        "rise_by_rows": measures.rise_after_the_minimum(rows),
        "rise_by_columns": measures.rise_after_the_minimum(columns),
        "explained_by_distance": explained_by_distance(similarity, patch_pairs(grid)),
    }


# --- Table ---------------------------------------------------------------------------------

_COLUMNS = {
    "explained_by_two": "variance in two components",
    "position_from_two": "R² of (u, v) from two",
    "position_from_three": "from three",
    "neighbours_in_plane": "neighbours kept in the plane",
    "neighbours_in_space": "in the space",
    "unfolded": "unfolded",
    "turns": "turns",
    "raster_period": "repeats by row",
    "rise_by_rows": "rise, rows",
    "rise_by_columns": "rise, columns",
    "explained_by_distance": "R² of distance",
}


def structure_markdown(found: Sequence[Structure], grid: Grid) -> str:
    """The table people read; a dash where a number is not defined."""
    rows = []
    for each in found:
        is_control = any(is_same_encoding(each.label, label) for label in CONTROLS)
        name = f"`{each.label}`{' (control)' if is_control else ''}"
        rows.append([name, *(_text(each.numbers[key]) for key in _COLUMNS)])
    by_chance = measures.neighbours_by_chance(grid)
    legend = (
        f"By chance {by_chance:.3f} of the neighbours are kept and half of the "
        f"cells unfolded. {DASH}: not defined."
    )
    return f"{markdown_table(['encoding', *_COLUMNS.values()], rows)}\n{legend}\n"


def _text(value: float) -> str:
    if not math.isfinite(value):
        return DASH
    text = f"{value:.2f}"
    return text.removeprefix("-") if not text.strip("-0.") else text


# --- Figures: a column for each encoding ---------------------------------------------------


def structure_figures(found: Sequence[Structure], grid: Grid) -> dict[str, Any]:
    """One figure, or several of about the same width: five encodings are three and two."""
    count = math.ceil(len(found) / MOST_COLUMNS)
    step = math.ceil(len(found) / count)
    parts = [found[start : start + step] for start in range(0, len(found), step)]
    names = ["structure"] if count == 1 else [f"structure_{n + 1}" for n in range(len(parts))]
    return {name: _figure(part, grid) for name, part in zip(names, parts, strict=True)}


def _figure(found: Sequence[Structure], grid: Grid) -> Any:
    with figure_settings():
        # One column alone still needs the width of its title and colour bar.
        figure = new_figure(max(2.7 * len(found), 3.6) + 0.4, 9.6)
        axes = figure.subplots(4, len(found), squeeze=False, height_ratios=[1, 1, 1, 0.7])
        for column, each in enumerate(found):
            _draw_plane(figure, axes[:2, column], each, grid, column == len(found) - 1)
            _draw_similarity(figure, axes[2, column], each, grid)
            _draw_offsets(axes[3, column], each.similarity, grid)
        axes[2, 0].set_ylabel("patch")
        axes[3, 0].set_ylabel("mean interaction")
    return figure


def _draw_plane(
    figure: Any, axes: Sequence[Any], each: Structure, grid: Grid, is_last: bool
) -> None:
    name, colon, options = each.label.partition(":")
    title = each.label if len(each.label) < 26 else f"{name}{colon}\n{options}"
    explained = each.components.explained[:2]
    if explained.size:
        neighbours, unfolded = each.numbers["neighbours_in_plane"], each.numbers["unfolded"]
        title += f"\nneighbours kept {_text(neighbours)}, unfolded {_text(unfolded)}"
    axes[0].set_title(title)
    plane = each.plane()
    for axis, place, place_name in zip(
        axes, measures.patch_places(grid), ("row", "column"), strict=True
    ):
        axis.set_xticks([])
        axis.set_yticks([])
        if not explained.size:
            axis.text(0.5, 0.5, "all patches in one place", ha="center", transform=axis.transAxes)
            continue
        sheet = plane.reshape(*grid, 2)
        for line in (*sheet, *sheet.transpose(1, 0, 2)):
            axis.plot(line[:, 0], line[:, 1], color="0.8", lw=0.4, zorder=1)
        image = axis.scatter(
            *plane.T, c=place, cmap=PLAIN_MAP, s=9, lw=0, zorder=2, vmin=0, vmax=place.max()
        )
        setters = (axis.set_xlabel, axis.set_ylabel)
        for number, (share, set_label) in enumerate(zip(explained, setters, strict=False), start=1):
            set_label(f"component {number} ({100 * share:.0f} %)")
        if is_last:
            figure.colorbar(image, ax=axis, label=place_name, shrink=0.85)


def _draw_similarity(figure: Any, axis: Any, each: Structure, grid: Grid) -> None:
    matrix = each.similarity
    others = matrix[~np.eye(len(matrix), dtype=bool)]
    defined = others[np.isfinite(others)]
    low, high = np.percentile(defined, [1, 99]) if defined.size else (0.0, 1.0)
    if high - low <= 1e-12 * max(abs(high), abs(low)):
        low, high = high - 0.5, high + 0.5
    image = axis.imshow(matrix, vmin=low, vmax=high)
    figure.colorbar(image, ax=axis, shrink=0.85)
    ticks = np.arange(0, len(matrix), grid[1] * max(1, grid[0] // 4))
    axis.set_xticks(ticks)
    axis.set_yticks(ticks)
    axis.set_xlabel("patch, row by row")
    distance, period = each.numbers["explained_by_distance"], each.numbers["raster_period"]
    axis.set_title(f"distance: R² = {_text(distance)}\nrepeats by row: {_text(period)}")


def _draw_offsets(axis: Any, matrix: Array, grid: Grid) -> None:
    from matplotlib.ticker import MaxNLocator

    rows, columns = measures.offset_profiles(matrix, grid)
    curves = [(rows, "o-", BLUE, "rows apart"), (columns, "s--", ORANGE, "columns apart")]
    if curves_agree(rows, columns):
        curves = [(rows, "o-", BLUE, "rows or columns apart")]
    for profile, style, colour, name in curves:
        if profile.size > 1:  # offset 0 is the patch itself
            offsets = np.arange(1, profile.size)
            axis.plot(offsets, profile[1:], style, color=colour, ms=3, label=name)
    axis.set_xlim(0.5, max(grid) - 0.5)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_xlabel("offset in patches")
    axis.grid()
    axis.legend(loc="best")


# --- The analysis --------------------------------------------------------------------------


def structure_analysis(
    encodings: Options.Encodings = None,
    grid: Options.GridShape = GRID,
    seed: Options.Seed = 0,
    *,
    progress: Progress = silent,
) -> Analysis:
    """Principal components and similarity matrices, before training.

    The encodings are drawn side by side; the table has controls besides.
    """
    patch_pairs(grid)  # refuses a grid without pairs before any work
    choices = choose_encodings(encodings or USUAL, grid)
    labels = [label for label in nulls_beside(choices) if label in CONTROLS]
    found = []
    for choice in [*choices, *map(EncodingChoice, labels)]:
        progress(choice.label)
        found.append(structure_of(choice, grid, seed))
    progress("drawing")
    rows = [
        {"encoding": each.label, "kind": each.kind, "space": each.space} | each.numbers
        for each in found
    ]
    return Analysis(
        name="structure",
        title="Structure of positional encodings before training",
        caption=_caption([each.label for each in found], len(choices), grid, seed),
        figures=structure_figures(found[: len(choices)], grid),
        numbers={
            "grid": list(grid),
            "seed": seed,
            "neighbours_by_chance": measures.neighbours_by_chance(grid),
            "rows": rows,
        },
        tables={"structure": rows},
        markdown=structure_markdown(found, grid),
    )


def _caption(labels: Sequence[str], drawn: int, grid: Grid, seed: int) -> str:
    by_chance, rows = measures.neighbours_by_chance(grid), measures.FEWEST_ROWS
    controls = f" In the table only: {', '.join(labels[drawn:])}." if labels[drawn:] else ""
    return (
        f"Encodings of a {grid[0]}x{grid[1]} grid as they start (seed {seed}): "
        f"{', '.join(labels[:drawn])}.{controls} First and second row: the first two principal "
        "components of the rows of an added table; for encodings without a table the principal "
        "coordinates of the matrix of interactions (kernel PCA), of which only the positive part "
        "is a space of vectors. Colour shows the row of the patch, in the second row its column; "
        "lines join neighbours. Neighbours kept: the share of the patches that touch a patch on "
        "the grid and are among its nearest here (eight inside the grid, fewer at its edge); "
        f"{by_chance:.3f} by chance. Unfolded: the share of triangles between "
        "neighbours that have the same orientation, where triangles without an area do not count; "
        "1 for a sheet without folds, 0.5 by chance. Third row: the interaction of all pairs, with "
        "patches numbered row by row; its colours span the middle 98 % of the pairs of different "
        "patches. R² of distance: the share of its variance that distance explains. Repeats by "
        "row: the correlation of the steps along the mean diagonal with those one row of patches "
        "later. It is near 1 for smooth functions of the place on grids of many rows and is not a "
        f"period of the function (it is not defined below {rows} rows). Fourth row: the "
        "mean interaction of patches some rows apart in one column, and some columns apart in one "
        "row; a period within the grid would make it rise again. Rise: how much of its fall it "
        "makes up for (it says nothing about noise)."
    )


COMMAND = AnalysisCommand(structure_analysis, docs_files={"structure.png": "structure.png"})
