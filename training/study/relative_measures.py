"""wp(z_j - z_i) from values at z_i and z_j, and what products of features explain. NumPy only."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from wefpe_core import Lattice, get_backend

Array = npt.NDArray[Any]


def ordered_pairs(count: int) -> tuple[Array, Array]:
    """(i, j) of all i != j."""
    i, j = np.divmod(np.arange(count * count), count)
    return i[i != j], j[i != j]


def textbook_difference(pi: Array, dpi: Array, pj: Array, dpj: Array) -> Array:
    """The addition formula as printed, with -z_i for z_1: wp' changes its sign."""
    with np.errstate(all="ignore"):
        return -pi - pj + ((dpj + dpi) / (pj - pi)) ** 2 / 4


def safe_difference(pi: Array, dpi: Array, pj: Array, dpj: Array, lattice: Lattice) -> Array:
    """The same from the better conditioned of two quotients."""
    found: Array = get_backend("numpy").add(pj, dpj, pi, -dpi, lattice)[0]
    return found


def scaled_error(got: Array, want: Array, pi: Array, pj: Array) -> Array:
    """|got - want| over the terms that cancel: nothing finer can be asked of the formula."""
    with np.errstate(all="ignore"):
        error = np.abs(got - want) / (np.abs(want) + np.abs(pi) + np.abs(pj))
    return np.where(np.isnan(error), np.inf, error)


def bilinear_fit(features: Array, pairs: tuple[Array, Array], target: Array) -> float:
    """Adjusted R² of a function of ordered pairs by products of two features and by their values.

    A logit q·k is bilinear in the features (biases add the linear terms and the constant), so this
    is the most one attention head can make of these features. Adjusted for the number of
    coefficients, which on small grids would explain anything; NaN if there are as many as pairs,
    or nothing to explain.
    """
    i, j = pairs
    products = (features[i, :, None] * features[j, None, :]).reshape(i.size, -1)
    design = np.concatenate([products, features[i], features[j], np.ones((i.size, 1))], axis=1)
    free = i.size - design.shape[1]
    spread = np.var(target)
    if free <= 0 or not spread > 0:
        return np.nan
    # By the normal equations: the features are not nearly dependent, and a hundred times the speed
    # is worth the digits.
    solution, *_ = np.linalg.lstsq(design.T @ design, design.T @ target, rcond=None)
    left = np.var(target - design @ solution) / spread
    return float(1 - left * (i.size - 1) / free)
