"""What the space of an encoding keeps of the grid of patches. NumPy only.

Principal components are taken of inner products, so that a table and a matrix of similarities
are treated alike: for a table they are the ordinary ones, for any other symmetric matrix its
principal coordinates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wefpe_core.errors import InputError

if TYPE_CHECKING:  # importing it would import torch
    from training.encodings.grid import Grid

Array = npt.NDArray[Any]

_ROUNDING = 1e-12  # of the largest eigenvalue or distance
FEWEST_ROWS = 6  # for `raster_period`


class Components(NamedTuple):
    """Coordinates of the patches along the principal components, the widest first."""

    coordinates: Array  # (N, components), only those of positive variance
    explained: Array  # share of the variance of each; they add up to 1
    negative: float  # share of what the matrix has beyond a space of vectors; 0 for a table


def principal_components(products: Array) -> Components:
    """Principal coordinates of a symmetric matrix of inner products or similarities."""
    centred = products - products.mean(axis=0) - products.mean(axis=1)[:, None] + products.mean()
    values, vectors = np.linalg.eigh((centred + centred.T) / 2)
    values, vectors = values[::-1], vectors[:, ::-1]
    size = np.abs(values).max(initial=0.0)
    # A constant matrix leaves rounding only, in proportion to what was subtracted.
    if size <= _ROUNDING * len(products) * np.abs(products).max(initial=0.0):
        return Components(np.zeros((len(products), 0)), np.zeros(0), 0.0)
    kept = values > _ROUNDING * size
    coordinates = vectors[:, kept] * np.sqrt(values[kept])
    # Eigenvectors have no sign of their own: the largest entry of each is made positive.
    largest = coordinates[np.abs(coordinates).argmax(axis=0), np.arange(coordinates.shape[1])]
    below = np.abs(values[values < -_ROUNDING * size]).sum()
    return Components(
        coordinates * np.sign(largest),
        values[kept] / values[kept].sum(),
        float(below / np.abs(values).sum()),
    )


def patch_places(grid: Grid) -> tuple[Array, Array]:
    """Row and column of every patch."""
    row, column = np.divmod(np.arange(grid[0] * grid[1]), grid[1])
    return row, column


def position_explained(coordinates: Array, grid: Grid) -> float:
    """R² of row and column, predicted linearly from the coordinates; both weigh the same.

    A grid of one row has no rows to predict: then it is that of the column alone.
    """
    design = np.column_stack([np.ones(len(coordinates)), coordinates])
    shares = []
    for place in patch_places(grid):
        if np.ptp(place) > 0:
            solution, *_ = np.linalg.lstsq(design, place, rcond=None)
            shares.append(1 - np.var(place - design @ solution) / np.var(place))
    if not shares:
        raise InputError(f"a grid of {grid[0]}x{grid[1]} has no pair of patches")
    return float(np.mean(shares))


def neighbours_kept(coordinates: Array, grid: Grid) -> float:
    """The share of the neighbours of a patch that are its nearest in the space.

    Neighbours touch it, also at corners: eight inside the grid, fewer at its edge. Of a patch
    with m neighbours the m nearest points are taken; where several are equally far, each has the
    same chance to be among them. 1 for the grid itself, `neighbours_by_chance` for noise.
    """
    touching = _touching(grid)
    distance = np.linalg.norm(coordinates[:, None] - coordinates[None], axis=-1)
    np.fill_diagonal(distance, np.inf)
    kept = 0.0
    for near, far in zip(touching, distance, strict=True):
        count = int(near.sum())
        limit = np.partition(far, count - 1)[count - 1]
        slack = _ROUNDING * max(float(limit), 1e-300)
        inside, on_edge = far < limit - slack, np.abs(far - limit) <= slack
        left = count - int(inside.sum())
        kept += float((near & inside).sum() + (near & on_edge).sum() * left / on_edge.sum())
    return kept / float(touching.sum())


def neighbours_by_chance(grid: Grid) -> float:
    """What `neighbours_kept` is expected to be for points in no order."""
    counts = _touching(grid).sum(axis=1)
    return float((counts**2).sum() / (len(counts) - 1) / counts.sum())


def _touching(grid: Grid) -> npt.NDArray[np.bool_]:
    row, column = patch_places(grid)
    if row.size < 2:
        raise InputError(f"a grid of {grid[0]}x{grid[1]} has no pair of patches")
    apart = np.maximum(
        np.abs(np.subtract.outer(row, row)), np.abs(np.subtract.outer(column, column))
    )
    return apart == 1


def cells_unfolded(plane: Array, grid: Grid) -> float:
    """The share of the cells between four patches that lie the same way round in the plane.

    Each cell is two triangles; those without an area lie no way round and do not count. 1 if the
    sheet is not folded anywhere; 1/2 for noise; NaN if no triangle is left, as of a sheet that is
    a line.
    """
    if min(grid) < 2:
        return np.nan
    sheet = plane.reshape(*grid, 2)
    corner, right, below, opposite = (
        sheet[rows, columns]
        for rows in (slice(None, -1), slice(1, None))
        for columns in (slice(None, -1), slice(1, None))
    )
    sides = [(right - corner, below - corner), (below - opposite, right - opposite)]
    area = np.concatenate([_turn(*each).ravel() for each in sides])
    length = np.concatenate([np.linalg.norm(each, axis=-1).max(axis=0).ravel() for each in sides])
    # The places are rounded in proportion to the sheet: less than that times a side is no area.
    has_area = np.abs(area) > _ROUNDING * np.ptp(plane, axis=0).max() * length
    if not has_area.any():
        return np.nan
    share = float((area[has_area] > 0).mean())
    return max(share, 1 - share)


def _turn(first: Array, second: Array) -> Array:
    return first[..., 0] * second[..., 1] - first[..., 1] * second[..., 0]


def turns_about_the_middle(plane: Array, grid: Grid) -> float:
    """How often a row or a column of patches goes round the mean of all, at most; a spiral does."""
    sheet = (plane - plane.mean(axis=0)).reshape(*grid, 2)
    angle = np.arctan2(sheet[..., 1], sheet[..., 0])
    most = 0.0
    for axis in (0, 1):
        if grid[axis] > 1:
            swept = np.unwrap(angle, axis=axis)
            most = max(most, float(np.ptp(swept, axis=axis).max()))
    return most / (2 * np.pi)


# --- The pattern of the similarity matrix ---------------------------------------------------


def diagonal_profile(matrix: Array) -> Array:
    """The mean of each diagonal: similarity against how many patches later one is numbered."""
    return np.array([np.diagonal(matrix, k).mean() for k in range(len(matrix))])


def raster_period(matrix: Array, grid: Grid) -> float:
    """Whether the pattern of the matrix repeats with each row of patches: 1 yes, 0 as in noise.

    It is the correlation of the steps along `diagonal_profile` with those one row later; steps,
    so that a trend does not count; up to half the matrix, beyond which few pairs are averaged.
    A smooth function of the place is near 1 on a grid of many rows, since patches are numbered
    row by row; with few rows little is averaged and a smooth function may have any value: NaN.
    """
    if grid[0] < FEWEST_ROWS:
        return np.nan
    width, half = grid[1], (grid[0] // 2) * grid[1]
    steps = np.diff(diagonal_profile(matrix)[1 : half + width])
    first, later = steps[:-width], steps[width:]
    if first.size < 3 or not np.isfinite(steps).all():
        return np.nan
    if min(np.ptp(first), np.ptp(later)) <= _ROUNDING * np.abs(matrix).max():
        return np.nan
    return float(np.corrcoef(first, later)[0, 1])


def offset_profiles(matrix: Array, grid: Grid) -> tuple[Array, Array]:
    """Mean similarity of patches some rows apart in one column, and columns in one row."""
    four = matrix.reshape(*grid, *grid)
    rows, columns = np.arange(grid[0]), np.arange(grid[1])
    along = four[:, columns, :, columns].mean(axis=0)  # (row, row)
    across = four[rows, :, rows, :].mean(axis=0)  # (column, column)
    return diagonal_profile(along), diagonal_profile(across)


def rise_after_the_minimum(profile: Array) -> float:
    """How much of its fall from offset 1 a profile makes up for: about 1 after a whole period.

    0 if it only falls; NaN for a profile that does not fall.
    """
    beyond = profile[1:]
    if beyond.size < 2 or not np.isfinite(beyond).all():
        return np.nan
    lowest = int(beyond.argmin())
    fall = beyond[0] - beyond[lowest]
    if fall <= _ROUNDING * np.abs(profile).max():
        return np.nan
    return float((beyond[lowest:].max() - beyond[lowest]) / fall)
