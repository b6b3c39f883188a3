"""The paper's listing taken literally, in NumPy: half-periods, sorted sum, clamps, features.

It follows appendix A of the paper (L560-L708) and the equations behind it. Nothing is repaired: the
checks compare it with the exact functions. It is written apart from the encoding that offers the
same sum for training, because it counts the clips, needs no torch, and each checks the other.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wefpe_core import WefpeError

Array = npt.NDArray[Any]
HalfPeriods = tuple[complex, complex]

PRINTED_HALF_PERIOD = 2.62205755429212
TRUE_HALF_PERIOD = 1.8540746773013719  # for g2 = 1; check F1 computes it, and a test compares
LISTING: HalfPeriods = (PRINTED_HALF_PERIOD, PRINTED_HALF_PERIOD * 1j)
LEMNISCATIC: HalfPeriods = (TRUE_HALF_PERIOD, TRUE_HALF_PERIOD * 1j)
PLACEHOLDER: HalfPeriods = (1.0, 1.0j)
# The authors' scripts stretch only z by softplus(0.12); as a lattice that is this rectangle.
PUBLISHED_RECTANGLE: HalfPeriods = (PRINTED_HALF_PERIOD, float(np.log1p(np.exp(0.12))) * 1j)

SIZE, WIDTH = 14, 192  # patches per side and model dimension of ViT-Ti/16 at 224
GRID = (SIZE, SIZE)

EPSILON = 1e-8  # the listing's `eps`
NEAR_POLE = 15 * EPSILON
NEAR_POLE_VALUE = 5e2
TERM_LIMIT = 5e3
OUTPUT_LIMIT = 1e4
ALPHA_SCALE = 0.15


class RefusedInvariantsError(WefpeError, ValueError):
    """The listing asserts that the discriminant is not near zero, and it is."""


def half_periods(g2: float, g3: float) -> HalfPeriods:
    """What the constructor of the listing sets for these invariants."""
    if not abs(g2**3 - 27 * g3**2) > EPSILON:
        raise RefusedInvariantsError(f"discriminant too close to zero for g2={g2}, g3={g3}")
    return LISTING if abs(g3) < EPSILON else PLACEHOLDER


def box_points(periods: HalfPeriods, m_max: int = 12, n_max: int = 12) -> Array:
    """Non-zero lattice points of the box, in the order of the listing's loops."""
    m, n = np.mgrid[-m_max : m_max + 1, -n_max : n_max + 1].reshape(2, -1)
    points = 2 * m * periods[0] + 2 * n * periods[1]
    return points[(m != 0) | (n != 0)]


class ListingValues(NamedTuple):
    """Values of the listing, and how often its clamps and thresholds changed them."""

    wp: Array
    wp_prime: Array
    term_clips: int
    output_clips: int
    skipped_terms: int  # points so near a lattice point that its term is left out


def wp_and_prime(z: Array, periods: HalfPeriods, m_max: int = 12, n_max: int = 12) -> ListingValues:
    """`wp_and_wp_prime` of the listing, with its clamps."""
    z = np.atleast_1d(np.asarray(z, dtype=np.complex128))
    near_origin = np.abs(z) < NEAR_POLE
    safe = np.where(near_origin, 1.0, z)
    wp, wp_prime = 1 / safe**2, -2 / safe**3
    sum_wp, sum_prime = np.zeros_like(z), np.zeros_like(z)
    term_clips = skipped = 0
    points = box_points(periods, m_max, n_max)
    for w in points[np.argsort(np.abs(points), kind="stable")]:
        difference = safe - w
        used = np.abs(difference) > NEAR_POLE
        skipped += int(np.sum(~used & ~near_origin))
        difference = np.where(used, difference, 1.0)
        for total, term in (
            (sum_wp, 1 / difference**2 - 1 / w**2),
            (sum_prime, -2 / difference**3),
        ):
            clipped = _clamped(term, TERM_LIMIT)
            term_clips += int(np.sum((clipped != term) & used & ~near_origin))
            total += np.where(used, clipped, 0)
    wp = np.where(near_origin, NEAR_POLE_VALUE, wp + sum_wp)
    wp_prime = np.where(near_origin, NEAR_POLE_VALUE, wp_prime + sum_prime)
    limited, limited_prime = _clamped(wp, OUTPUT_LIMIT), _clamped(wp_prime, OUTPUT_LIMIT)
    output_clips = int(np.sum(limited != wp) + np.sum(limited_prime != wp_prime))
    return ListingValues(limited, limited_prime, term_clips, output_clips, skipped)


def _clamped(values: Array, limit: float) -> Array:
    return np.clip(values.real, -limit, limit) + 1j * np.clip(values.imag, -limit, limit)


def patch_coordinates(height: int, width: int) -> tuple[Array, Array]:
    """(u, v) of eq:uv_norm, row-major over the patches."""
    v, u = np.meshgrid(
        (np.arange(height) + 0.5) / height, (np.arange(width) + 0.5) / width, indexing="ij"
    )
    return u.ravel(), v.ravel()


def grid_points(size: int, periods: HalfPeriods, alpha: float) -> Array:
    """z of eq:complex_mapping for a square grid of patches, row-major."""
    u, v = patch_coordinates(size, size)
    return 2 * alpha * (u * periods[0].real + 1j * v * periods[1].imag)


def features(wp: Array, wp_prime: Array) -> Array:
    """eq:features: the four real numbers of each patch, uncompressed."""
    return np.stack([wp.real, wp.imag, wp_prime.real, wp_prime.imag], axis=-1)


def compressed(raw: Array, scale: float = ALPHA_SCALE) -> Array:
    """The tanh compression of L224."""
    return np.tanh(scale * raw)


def projected(inputs: Array, rng: np.random.Generator) -> Array:
    """LayerNorm(W f + b) of each patch, with weights drawn as torch's Linear draws them."""
    limit = inputs.shape[1] ** -0.5
    values = inputs @ rng.uniform(-limit, limit, (inputs.shape[1], WIDTH))
    values += rng.uniform(-limit, limit, WIDTH)
    values -= values.mean(axis=1, keepdims=True)
    return values / np.sqrt(values.var(axis=1, keepdims=True) + 1e-5)
