"""What an encoding keeps of the grid of patches and of their relative positions. NumPy only.

Principal components are taken of inner products, so that a table and a matrix of similarities
are treated alike: for a table they are the ordinary ones, for any other symmetric matrix its
principal coordinates.

The claims use this module where there is no torch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from training.encodings.size import Grid
from wefpe_core import Lattice, get_backend
from wefpe_core.errors import InputError

Array = npt.NDArray[Any]

_ROUNDING = 1e-12  # relative to the largest eigenvalue or distance
FEWEST_ROWS = 6  # of patches, for `raster_period`


class Components(NamedTuple):
    """Coordinates of the patches along the principal components, the widest first."""

    coordinates: Array  # (N, components), only those of positive variance
    explained: Array  # the share of each in the variance; the shares add up to 1
    negative: float  # the share of negative eigenvalues; 0 for a table


def principal_components(products: Array) -> Components:
    """Principal coordinates of a symmetric matrix of inner products or similarities."""
    centred = products - products.mean(axis=0) - products.mean(axis=1)[:, None] + products.mean()
    values, vectors = np.linalg.eigh((centred + centred.T) / 2)
    values, vectors = values[::-1], vectors[:, ::-1]
    size = np.abs(values).max(initial=0.0)
    # A constant matrix leaves only rounding, in proportion to what was subtracted.
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
    """The mean R² of row and column, predicted linearly from the coordinates.

    A grid of one row has no rows to predict: then it is the R² of the column alone.
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
    """The share of the neighbours of a patch on the grid that are its nearest in the space.

    Neighbours touch the patch, also at corners: eight inside the grid, fewer at its edge. For a
    patch with m neighbours the m nearest points are taken; where several are equally far, each
    has the same chance to be among them. The share is 1 for the grid itself, and
    `neighbours_by_chance` for noise.
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
    """The share of the cells between four patches that have the same orientation in the plane.

    Each cell is two triangles; those without an area have no orientation and do not count. The
    share is 1 if the sheet is not folded anywhere, 1/2 for noise, and NaN if no triangle has an
    area, as in a sheet that is a line.
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
    area = np.concatenate([_cross_product(*each).ravel() for each in sides])
    length = np.concatenate([np.linalg.norm(each, axis=-1).max(axis=0).ravel() for each in sides])
    # Coordinates are rounded in proportion to the sheet; an area below that times a side is none.
    has_area = np.abs(area) > _ROUNDING * np.ptp(plane, axis=0).max() * length
    if not has_area.any():
        return np.nan
    share = float((area[has_area] > 0).mean())
    return max(share, 1 - share)


def _cross_product(first: Array, second: Array) -> Array:
    return first[..., 0] * second[..., 1] - first[..., 1] * second[..., 0]


def turns_about_the_middle(plane: Array, grid: Grid) -> float:
    """How often a row or a column of patches goes round the mean of all: the largest number."""
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
    """The mean of each diagonal: the similarity of patches whose numbers differ by 0, 1, 2, ..."""
    return np.array([np.diagonal(matrix, k).mean() for k in range(len(matrix))])


def raster_period(matrix: Array, grid: Grid) -> float:
    """Whether the pattern of the matrix repeats with each row of patches: 1 if so, 0 for noise.

    It is the correlation of the steps along `diagonal_profile` with those one row later. Steps
    are taken so that a trend does not count, and only up to half the matrix, beyond which each
    mean has few pairs. A smooth function of the place gives about 1 on a grid of many rows, since
    patches are numbered row by row. On a grid of few rows it may give any value, so that the
    result is NaN.
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

    It is 0 if the profile only falls, and NaN if it does not fall.
    """
    beyond = profile[1:]
    if beyond.size < 2 or not np.isfinite(beyond).all():
        return np.nan
    lowest = int(beyond.argmin())
    fall = beyond[0] - beyond[lowest]
    if fall <= _ROUNDING * np.abs(profile).max():
        return np.nan
    return float((beyond[lowest:].max() - beyond[lowest]) / fall)


# --- Relative positions: wp(z_j - z_i) from values at z_i and z_j -------------------------------


def ordered_pairs(count: int) -> tuple[Array, Array]:
    """The indices i and j of all pairs with i != j."""
    i, j = np.divmod(np.arange(count * count), count)
    return i[i != j], j[i != j]


def textbook_difference(pi: Array, dpi: Array, pj: Array, dpj: Array) -> Array:
    """The addition formula as printed, with -z_i for z_1, where wp' changes its sign."""
    with np.errstate(all="ignore"):
        return -pi - pj + ((dpj + dpi) / (pj - pi)) ** 2 / 4


def safe_difference(pi: Array, dpi: Array, pj: Array, dpj: Array, lattice: Lattice) -> Array:
    """wp(z_j - z_i) from the better conditioned of two quotients."""
    found: Array = get_backend("numpy").add(pj, dpj, pi, -dpi, lattice)[0]
    return found


def scaled_error(got: Array, want: Array, pi: Array, pj: Array) -> Array:
    """|got - want| over the terms that cancel, which limit what the formula can give."""
    with np.errstate(all="ignore"):
        error = np.abs(got - want) / (np.abs(want) + np.abs(pi) + np.abs(pj))
    return np.where(np.isnan(error), np.inf, error)


def bilinear_fit(features: Array, pairs: tuple[Array, Array], target: Array) -> float:
    """Adjusted R² of a function of ordered pairs by products of two features and by their values.

    A logit q·k is bilinear in the features (biases add the linear terms and the constant), so this
    is the most that one attention head can make of these features. R² is adjusted for the number
    of coefficients, which on small grids would explain anything. It is NaN if there are as many
    coefficients as pairs, or if the function is constant.
    """
    i, j = pairs
    products = (features[i, :, None] * features[j, None, :]).reshape(i.size, -1)
    design = np.concatenate([products, features[i], features[j], np.ones((i.size, 1))], axis=1)
    free = i.size - design.shape[1]
    spread = np.var(target)
    if free <= 0 or not spread > 0:
        return np.nan
    # By the normal equations, which are a hundred times faster and lose digits only where the
    # features are nearly dependent.
    solution, *_ = np.linalg.lstsq(design.T @ design, design.T @ target, rcond=None)
    left = np.var(target - design @ solution) / spread
    return float(1 - left * (i.size - 1) / free)
