"""Exact values for the checks: mpmath as ground truth, NumPy for grids."""

from __future__ import annotations

from typing import Any

import numpy as np

from verification.claims.numpy_listing import (
    Array,
    HalfPeriods,
    compressed,
    features,
    grid_points,
)
from wefpe_core import AbstractBackend, Lattice, get_backend

DIGITS = 40


def reference() -> AbstractBackend[Any]:
    """The ground truth at forty digits."""
    return get_backend("mpmath", dps=DIGITS)


def lattice_of(periods: HalfPeriods) -> Lattice:
    return Lattice(*periods)


def wp_and_prime(z: Array, periods: HalfPeriods) -> tuple[Array, Array]:
    """wp and wp' in double precision, correct to a few eps wherever z lies."""
    return get_backend("numpy").wp_and_prime(z, lattice_of(periods))


def box_sum(z: Array, periods: HalfPeriods, size: int = 12) -> tuple[Array, Array]:
    """The truncated series without clamps."""
    return get_backend("numpy").lattice_sum(z, lattice_of(periods), size, size)


def raw_features(size: int, periods: HalfPeriods, alpha: float) -> Array:
    """The four exact features of each patch of a square grid."""
    return features(*wp_and_prime(grid_points(size, periods, alpha), periods))


def compressed_features(size: int, periods: HalfPeriods, alpha: float, scale: float) -> Array:
    return compressed(raw_features(size, periods, alpha), scale)


def cell_area(periods: HalfPeriods) -> float:
    a, b = 2 * periods[0], 2 * periods[1]
    return abs((complex(a).conjugate() * b).imag)


def random_points(count: int, periods: HalfPeriods, seed: int) -> Array:
    """Points of the period cell, none within a twentieth of a period of its corners."""
    u, v = np.random.default_rng(seed).uniform(0.05, 0.95, (2, count))
    return 2 * (u * periods[0] + v * periods[1])
