"""Encodings side by side: components by row and by column, similarity matrix, offsets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from training.analyses.structure_measures import Array, offset_profiles, patch_places
from training.figure_style import BLUE, ORANGE, PLAIN_MAP, figure_settings, new_figure

if TYPE_CHECKING:
    from training.encodings.grid import Grid


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
