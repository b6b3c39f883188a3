"""F20-F22, F33-F34, F38: the map from patches to the plane, features, tanh, and resolution."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from verification.claims import ground_truth
from verification.claims.claim import Claim, Finding, Verdict, judge_parts, judge_readings
from verification.claims.numpy_listing import (
    ALPHA_SCALE,
    LEMNISCATIC,
    LISTING,
    PLACEHOLDER,
    PUBLISHED_RECTANGLE,
    Array,
    HalfPeriods,
    compressed,
    grid_points,
    patch_coordinates,
)

SAME = 1e-10  # a relative difference far above rounding errors and far below true differences


def coincident_pairs(values: Array, tolerance: float = SAME) -> int:
    """Pairs of rows that agree to `tolerance` of their size in every component."""
    difference = np.abs(values[:, None, :] - values[None, :, :]).max(axis=2)
    size = np.abs(values).max(axis=1)
    close = difference <= tolerance * np.maximum(size[:, None], size[None, :])
    return int(np.triu(close, 1).sum())


def scale_ratio(periods: HalfPeriods, height: int = 14, width: int = 14) -> float:
    """Length of a vertical step between patches over that of a horizontal one."""
    return (periods[1].imag / height) / (periods[0].real / width)


def coordinate_map(alpha: float = 1.0, rectangle: HalfPeriods = PUBLISHED_RECTANGLE) -> Finding:
    """F20: whether the map is linear, one to one and an isometry, and wp at its values."""
    u, _ = patch_coordinates(14, 14)
    z = grid_points(14, LISTING, alpha)
    p, dp = ground_truth.wp_and_prime(z, LISTING)
    square = p.reshape(14, 14), dp.reshape(14, 14)
    coincident = {
        n: coincident_pairs(ground_truth.raw_features(n, LISTING, alpha)[:, :2])
        for n in (8, 14, 16, 24)
    }
    determinant = (2 * alpha * LISTING[0].real) * (2 * alpha * LISTING[1].imag)
    columns = compressed(ground_truth.raw_features(14, LISTING, alpha)).reshape(14, 14, 4)[3:11]
    along = {
        j: float(np.linalg.norm(columns[:, j] - columns[:, 0], axis=1).mean()) for j in (1, 13)
    }
    centre = ground_truth.raw_features(15, LISTING, alpha)[15 * 7 + 7]
    figures = {
        "determinant of the map": determinant,
        "step ratio, square lattice": scale_ratio(LISTING),
        "step ratio, rectangle": scale_ratio(rectangle),
        "smallest u": float(u.min()),
        "point reflection of wp, error": float(np.abs(square[0] - square[0][::-1, ::-1]).max()),
        "point reflection of wp', error": float(np.abs(square[1] + square[1][::-1, ::-1]).max()),
        "features, distance of column 1 from column 0": along[1],
        "features, distance of column 13 from column 0": along[13],
        "centre patch of 15x15, largest feature": float(np.abs(centre).max()),
        **{f"pairs with equal wp, {n}x{n}": float(count) for n, count in coincident.items()},
    }
    parts = {
        "linear and one to one": determinant != 0,
        "one scale in both directions": abs(scale_ratio(rectangle) - 1) < SAME,
        "one wp for each patch": max(coincident.values()) == 0,
    }
    wrong = [name for name, holds in parts.items() if not holds]
    evidence = (
        f"the map is invertible (determinant {determinant:.4g}), but a vertical step is "
        f"{scale_ratio(rectangle):.4f} times a horizontal one on the published rectangle, and with "
        f"alpha={alpha:g} {coincident[8]}, {coincident[14]}, {coincident[16]}, {coincident[24]} "
        f"pairs share one wp on 8², 14², 16², 24²; column 13 is {along[13]:.3f} from column 0 in "
        f"the features, its neighbour {along[1]:.3f}; not holding: {', '.join(wrong) or 'nothing'}"
    )
    return Finding(judge_parts(*parts.values()), evidence, figures)


# One unit in the last place at 1, where saturated features crowd.
UNITS = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
DISTINCT_CASES = (
    ("2.622 square", LISTING, 14, 1.0),
    ("2.622 square", LISTING, 14, 0.5),
    ("2.622 square", LISTING, 24, 0.5),
    ("(1, i)", PLACEHOLDER, 24, 1.0),
    ("(1, i)", PLACEHOLDER, 24, 0.5),
)

Compression = Callable[[Array], Array]


def distinct_features(compress: Compression = compressed) -> Finding:
    """F21: which patches the four features tell apart, exactly and in each number format."""
    figures, lost = {}, dict.fromkeys(UNITS, 0)
    exact_pairs = 0
    for name, periods, size, alpha in DISTINCT_CASES:
        raw = ground_truth.raw_features(size, periods, alpha)
        exact_pairs += coincident_pairs(raw)
        values = compress(raw)
        distance = np.abs(values[:, None, :] - values[None, :, :]).max(axis=2)
        distance = distance[np.triu_indices(distance.shape[0], 1)]
        label = f"{name}, {size}x{size}, alpha={alpha:g}"
        figures[f"{label}: smallest distance"] = float(distance.min())
        for dtype, unit in UNITS.items():
            count = int(np.sum(distance < unit))
            lost[dtype] += count
            figures[f"{label}: pairs lost in {dtype}"] = float(count)
    figures["exact coincidences"] = float(exact_pairs)
    own = [v for k, v in figures.items() if k.startswith("2.622") and k.endswith("float32")]
    evidence = (
        f"{exact_pairs} pairs of (wp, wp') coincide exactly; after tanh the smallest distance is "
        f"{figures['2.622 square, 14x14, alpha=1: smallest distance']:.2g} on the listing's "
        f"lattice (14², alpha=1), {figures['(1, i), 24x24, alpha=0.5: smallest distance']:.1g} on "
        f"(1, i) (24², 0.5); pairs closer than a rounding unit over five grids: "
        + ", ".join(f"{count} in {dtype}" for dtype, count in lost.items())
    )
    parts = (exact_pairs == 0, sum(own) == 0, lost["float32"] == 0, lost["bfloat16"] == 0)
    return Finding(judge_parts(*parts), evidence, figures)


SATURATED, FLAT = 0.99, 0.01


def compression(scale: float = ALPHA_SCALE) -> Finding:
    """F22: how many patches tanh saturates, and how many components it leaves near zero."""
    figures: dict[str, float] = {}
    grids = ((8, 1.0), (14, 1.0), (16, 1.0), (24, 1.0), (14, 0.5), (24, 0.5))
    for name, periods in (("2.622", LISTING), ("1.854", LEMNISCATIC), ("(1, i)", PLACEHOLDER)):
        for size, alpha in grids:
            values = np.abs(compressed(ground_truth.raw_features(size, periods, alpha), scale))
            label = f"{name}, {size}x{size}, alpha={alpha:g}"
            figures[f"{label}: saturated patches, %"] = 100 * float(
                (values.max(axis=1) > SATURATED).mean()
            )
            figures[f"{label}: components at 1 in float32"] = float(
                np.sum(values.astype(np.float32) == 1)
            )
            if size == 14:
                figures[f"{label}: flat components, %"] = 100 * float((values < FLAT).mean())
            figures["largest feature"] = max(figures.get("largest feature", 0), values.max())
    flat = [v for k, v in figures.items() if k.startswith("2.622") and "flat" in k]
    stuck = [v for k, v in figures.items() if "at 1 in float32" in k]
    evidence = (
        "saturated patches on 14², alpha=1: "
        + ", ".join(
            f"{figures[f'{name}, 14x14, alpha=1: saturated patches, %']:.1f} % ({name})"
            for name in ("2.622", "1.854", "(1, i)")
        )
        + f"; components equal to ±1 in float32: up to {max(stuck):.0f}; on the listing's lattice "
        f"{min(flat):.0f} to {max(flat):.0f} % of the components are below {FLAT} in size"
    )
    # tanh promises bounded features; fidelity would also mean few saturated or flat components.
    parts = (figures["largest feature"] <= 1, max(stuck) == 0, max(flat) < 10)
    return Finding(judge_parts(*parts), evidence, figures)


# --- F33, F34, F38 --------------------------------------------------------------------------


def resolution(sizes: tuple[int, ...] = (14, 24, 56)) -> Finding:
    """F33: errors of the fixed 12x12 sum on growing grids, and the size of what it sums."""
    figures: dict[str, float] = {}
    absolute, relative, largest = [], [], []
    for size in sizes:
        z = grid_points(size, LISTING, 1.0)
        p, dp = ground_truth.wp_and_prime(z, LISTING)
        error = np.abs(ground_truth.box_sum(z, LISTING)[0] - p)
        absolute.append(float(error.max()))
        relative.append(float((error / np.abs(p)).max()))
        largest.append(float(np.abs(dp).max()))
        figures |= {
            f"{size}x{size}: absolute error": absolute[-1],
            f"{size}x{size}: relative error": relative[-1],
            f"{size}x{size}: largest wp'": largest[-1],
        }
    growth = math.log(largest[-1] / largest[0]) / math.log(sizes[-1] / sizes[0])
    figures["growth exponent of wp'"] = growth
    evidence = (
        f"absolute error {', '.join(f'{e:.3g}' for e in absolute)}, relative error "
        f"{', '.join(f'{e:.2g}' for e in relative)}, largest |wp'| "
        f"{', '.join(f'{x:.4g}' for x in largest)} on {', '.join(f'{n}²' for n in sizes)}: it "
        f"grows like the grid to the power {growth:.2f}"
    )
    parts = (
        max(absolute) < 1.25 * min(absolute),
        max(relative) < 1.25 * min(relative),
        max(largest) < 1.25 * min(largest),
    )
    return Finding(judge_parts(*parts), evidence, figures)


def normalised_range(pixels: int = 224, patch: int = 16) -> Finding:
    """F34: u = (j+1/2)/(W/P), with W the patches of L165 or the pixels."""
    patches = pixels // patch
    largest = {
        "W in pixels": (patches - 0.5) / (pixels / patch),
        "W in patches": (patches - 0.5) / (patches / patch),
    }
    figures = {f"largest u, {name}": value for name, value in largest.items()}
    evidence = "the largest u of a row is " + ", ".join(
        f"{value:.4f} with {name}" for name, value in largest.items()
    )
    return Finding(judge_readings(*(u <= 1 for u in largest.values())), evidence, figures)


def grid_arithmetic(fine: int = 384, coarse: int = 224, patch: int = 16) -> Finding:
    """F38: the ratio of resolutions behind the fine-tuning argument; accuracies are not checked."""
    ratio = (fine / coarse) ** 2
    figures = {
        "patches per side, fine": fine / patch,
        "patches per side, coarse": coarse / patch,
        "ratio of areas": ratio,
    }
    evidence = (
        f"{fine}/{patch} = {fine / patch:g} and {coarse}/{patch} = {coarse / patch:g} patches per "
        f"side, ratio of areas {ratio:.3f}; the accuracy tables need training runs"
    )
    holds = (fine / patch).is_integer() and (coarse / patch).is_integer() and ratio > 2
    return Finding(Verdict.TRUE if holds else Verdict.FALSE, evidence, figures)


CLAIMS = (
    Claim(
        "F20",
        "L166-L181 (eq:complex_mapping), L262-L276",
        "The map of patches to the plane is a linear isomorphism, so spatial relations and "
        "geometry are not compromised.",
        "It is linear and one to one, an isometry only if α_u Re ω1/W = α_v Im ω3/H; with α = 1 "
        "opposite edges become neighbours and wp is two to one. Oblique lattices need "
        "z = 2(α_u u ω1 + α_v v ω3).",
        coordinate_map,
    ),
    Claim(
        "F21",
        "L190-L195 (eq:features), L262-L276",
        "The four features identify every patch.",
        "(wp, wp') does, for α ≤ 1; after tanh neighbours of a pole can round to one value, and "
        "in bfloat16 ordinary patches do.",
        distinct_features,
    ),
    Claim(
        "F22",
        "L224",
        "tanh(α f) prevents explosion without loss of fidelity.",
        "It bounds the features; patches by the pole saturate, and on the listing's lattice a "
        "quarter or more of the components are nearly zero.",
        compression,
    ),
    Claim(
        "F33",
        "L298",
        "With M and N fixed the accuracy is consistent whatever the resolution.",
        "The absolute error is; the relative error is not, and the values themselves grow with "
        "the square (wp) and cube (wp') of the grid size.",
        resolution,
    ),
    Claim(
        "F34",
        "L294 against L165-L167",
        "u = (j+0.5)/(W/P) lies in [0, 1].",
        "It does if W counts pixels; L165 defines W as the number of patches.",
        normalised_range,
    ),
    Claim(
        "F38",
        "L298-L300",
        "Going from 224 to 384 pixels, 14 to 24 patches, exceeds an area ratio of 2.",
        "True: 2.94. The accuracy figures are not checkable by computation alone.",
        grid_arithmetic,
    ),
)
