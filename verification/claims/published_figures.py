"""F39-F41: principal components, similarity matrices, and attention before any training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from training.study.pair_statistics import cosine_matrix, explained_by_distance, patch_pairs
from training.study.structure_measures import (
    cells_unfolded,
    neighbours_by_chance,
    neighbours_kept,
    offset_profiles,
    position_explained,
    principal_components,
    raster_period,
    rise_after_the_minimum,
    turns_about_the_middle,
)
from verification.claims.claim import Claim, Finding, judge_parts
from verification.claims.numpy_listing import GRID, WIDTH, Array, projected
from verification.claims.table_one import (
    STRENGTH,
    coordinate_features,
    patch_features,
)
from wefpe_core.errors import import_optional

# A table of positions (patches, width) for each draw of the weights.
Tables = Callable[[np.random.Generator], Array]


def published_tables(rng: np.random.Generator) -> Array:
    """The encoding as the published scripts start it."""
    return STRENGTH * projected(patch_features(), rng)


def coordinate_tables(rng: np.random.Generator) -> Array:
    """The same projection of the two coordinates: no elliptic function."""
    return STRENGTH * projected(coordinate_features(), rng)


def learned_tables(rng: np.random.Generator) -> Array:
    """Learned absolute positions at their start."""
    return 0.02 * rng.standard_normal((GRID[0] * GRID[1], WIDTH))


def sincos_tables(rng: np.random.Generator) -> Array:
    """Fixed sines and cosines of column and row."""
    quarter = WIDTH // 4
    frequencies = 10_000.0 ** (-np.arange(quarter) / quarter)
    row, column = np.divmod(np.arange(GRID[0] * GRID[1]), GRID[1])
    waves = [np.outer(place, frequencies) for place in (column, row)]
    return np.concatenate([wave(x) for x in waves for wave in (np.sin, np.cos)], axis=1)


def _mean_numbers(
    measures: Callable[[Array], dict[str, float]], tables: Tables, seeds: int
) -> dict[str, dict[str, float]]:
    """The means over the seeds, for the tables that are judged and for three others."""
    found = {}
    for name, each in (
        ("encoding", tables),
        ("coordinates", coordinate_tables),
        ("sin-cos", sincos_tables),
        ("learned", learned_tables),
    ):
        runs = [measures(each(np.random.default_rng(seed))) for seed in range(seeds)]
        found[name] = {key: float(np.mean([run[key] for run in runs])) for key in runs[0]}
    return found


# --- F39 ------------------------------------------------------------------------------------

# A sheet counts as faithful if it keeps three of four neighbours and has no fold.
FAITHFUL = 0.75


def plane_numbers(table: Array) -> dict[str, float]:
    """What the plane of the first two components keeps of the grid."""
    found = principal_components(table @ table.T)
    plane = found.coordinates[:, :2]
    return {
        "variance in two components": float(found.explained[:2].sum()),
        "neighbours kept": neighbours_kept(plane, GRID),
        "cells unfolded": cells_unfolded(plane, GRID),
        "R² of the position": position_explained(plane, GRID),
        "turns of a row or column": turns_about_the_middle(plane, GRID),
    }


def principal_plane(tables: Tables = published_tables, seeds: int = 5) -> Finding:
    """F39: the plane should keep the arrangement, and the plane of learned positions should not."""
    figures = {"neighbours kept by chance": neighbours_by_chance(GRID)}
    found = _mean_numbers(plane_numbers, tables, seeds)
    for name, numbers in found.items():
        figures |= {f"{name}: {key}": value for key, value in numbers.items()}
    ours, plain, waves = found["encoding"], found["coordinates"], found["sin-cos"]
    noise = found["learned"]
    chance = figures["neighbours kept by chance"]
    evidence = (
        f"in the plane of the first two components the encoding keeps "
        f"{100 * ours['neighbours kept']:.0f} % of the neighbours on the grid ({100 * chance:.0f} "
        f"% by chance), {100 * ours['cells unfolded']:.0f} % of its triangles lie the same way "
        f"round, a linear map recovers R² = {ours['R² of the position']:.2f} of the position, and "
        f"rows and columns go round the middle at most {ours['turns of a row or column']:.2f} "
        f"times (mean of {seeds} draws); plain coordinates through the same projection: "
        f"{100 * plain['neighbours kept']:.0f} %, {100 * plain['cells unfolded']:.0f} %, R² = "
        f"{plain['R² of the position']:.2f}; sin-cos: {100 * waves['neighbours kept']:.0f} %, "
        f"{100 * waves['cells unfolded']:.0f} %, R² = {waves['R² of the position']:.2f}; learned: "
        f"{100 * noise['neighbours kept']:.0f} % and {100 * noise['cells unfolded']:.0f} %"
    )
    # Chance varies from draw to draw, but by far less than a factor of two.
    is_cloud = noise["neighbours kept"] < 2 * chance and noise["R² of the position"] < 0.1
    is_kept = ours["neighbours kept"] >= FAITHFUL and ours["cells unfolded"] == 1
    return Finding(judge_parts(is_kept, is_cloud), evidence, figures)


# --- F40 ------------------------------------------------------------------------------------

GOVERNED = 0.9  # share of the variance that distance must explain to govern the similarities


def pattern_numbers(table: Array) -> dict[str, float]:
    """How the matrix of cosines repeats, whether it comes back, and what distance explains."""
    cosines = cosine_matrix(table)
    rises = [rise_after_the_minimum(profile) for profile in offset_profiles(cosines, GRID)]
    return {
        "repeats by row": raster_period(cosines, GRID),
        "rise after the minimum": max(rises),
        "R² of the distance": explained_by_distance(cosines, patch_pairs(GRID)),
    }


def similarity_pattern(tables: Tables = published_tables, seeds: int = 5) -> Finding:
    """F40: the pattern of the similarities, that of noise, and what governs it."""
    found = _mean_numbers(pattern_numbers, tables, seeds)
    figures = {f"{name}: {key}": value for name, n in found.items() for key, value in n.items()}
    # The profile of noise has no fall that a rise could make up for.
    del figures["learned: rise after the minimum"]
    ours, noise = found["encoding"], found["learned"]
    evidence = (
        f"the pattern repeats with every row of patches (correlation {ours['repeats by row']:.2f}; "
        f"learned {noise['repeats by row']:.2f}), as it does for plain coordinates "
        f"({found['coordinates']['repeats by row']:.2f}) and sin-cos "
        f"({found['sin-cos']['repeats by row']:.2f}), since patches are numbered row by row; mean "
        f"similarity by offset makes up for {100 * ours['rise after the minimum']:.0f} % of its "
        f"fall within the grid, so no period shows; distance explains R² = "
        f"{ours['R² of the distance']:.2f} of the similarities, for coordinates "
        f"{found['coordinates']['R² of the distance']:.2f}, for sin-cos "
        f"{found['sin-cos']['R² of the distance']:.2f}"
    )
    parts = (
        ours["repeats by row"] > 0.9,
        abs(noise["repeats by row"]) < 0.5,
        ours["R² of the distance"] > GOVERNED,
    )
    return Finding(judge_parts(*parts), evidence, figures)


# --- F41 ------------------------------------------------------------------------------------

# From a number of seeds, the statistics of the attention of the middle patch for each seed.
Statistics = Callable[[int], list[Any]]

LOCAL = -0.5  # Spearman of distance and attention; -1 is a strict fall with every step away
# 3.5 deviations of the rank correlation of noise over 196 patches, which one study of 20 seeds in
# a hundred exceeds.
CHANCE = 0.25


def attention_of(label: str) -> Statistics:
    """Attention with an encoding, the weights drawn as the published scripts draw them."""

    def measured(seeds: int) -> list[Any]:
        # Imported here because all other claims but F31 are checked without torch.
        import_optional("torch", purpose="the attention of a new model", extra="training")
        from training.study.encoding_choice import EncodingChoice
        from training.study.initial_attention import measure

        found = measure([EncodingChoice(label)], GRID, range(seeds), start="authors")
        return [each.locality for each in found]

    return measured


PUBLISHED, LEARNED = attention_of("weierstrass:fidelity=authors"), attention_of("learned")


def locality_before_training(
    encoding: Statistics = PUBLISHED,
    learned: Statistics = LEARNED,
    seeds: int = 20,
) -> Finding:
    """F41: is attention concentrated on the query and falling with distance?"""
    figures: dict[str, float] = {"seeds": float(seeds)}
    found = {"encoding": encoding(seeds), "learned": learned(seeds)}
    for name, each in found.items():
        spearman = np.array([one.spearman for one in each])
        ratio = np.array([one.max_over_min for one in each])
        figures[f"{name}: largest at the query"] = float(sum(one.query_rank == 1 for one in each))
        figures[f"{name}: median rank of the query"] = float(
            np.median([one.query_rank for one in each])
        )
        for what, values in (("Spearman", spearman), ("largest/smallest", ratio)):
            figures[f"{name}: {what}, lowest"] = float(values.min())
            figures[f"{name}: {what}, mean"] = float(values.mean())
            figures[f"{name}: {what}, highest"] = float(values.max())

    def shown(name: str) -> str:
        low, high = (figures[f"{name}: Spearman, {end}"] for end in ("lowest", "highest"))
        flat = figures[f"{name}: largest/smallest, mean"]
        return (
            f"is largest at the query in {figures[f'{name}: largest at the query']:.0f} of {seeds} "
            f"seeds, its rank correlation with distance lies between {low:+.2f} and {high:+.2f}, "
            f"largest over smallest is {flat:.1f}"
        )

    evidence = (
        f"zero image, first block, mean of the heads: with the encoding attention "
        f"{shown('encoding')}; with learned positions it {shown('learned')}"
    )
    parts = (
        figures["encoding: largest at the query"] == seeds,
        figures["encoding: Spearman, highest"] < LOCAL,
        max(abs(figures[f"learned: Spearman, {end}"]) for end in ("lowest", "highest")) < CHANCE,
    )
    return Finding(judge_parts(*parts), evidence, figures)


CLAIMS = (
    Claim(
        "F39",
        "L312, figure structural_analysis (a, b)",
        "In the plane of its principal components the encoding is a spiral-like manifold that "
        "preserves the arrangement of the patches faithfully, a topological isomorphism; learned "
        "positions are an unstructured cloud.",
        "Learned positions are a cloud. The sheet of the encoding is folded, crowds the patches "
        "far from the pole together and loses half of the neighbours. So does that of sin-cos, "
        "which needs more than two components; plain coordinates keep nearly all.",
        principal_plane,
    ),
    Claim(
        "F40",
        "L314, figure structural_analysis (c, d)",
        "The similarity matrix is periodic and grid-like, which shows that similarities are "
        "governed by relative distances; that of learned positions is noise.",
        "It repeats because patches are numbered row by row, as for any smooth encoding; distance "
        "explains an eighth of the similarities, and no period lies within the grid.",
        similarity_pattern,
    ),
    Claim(
        "F41",
        "L308, figure inductive_bias_comparison",
        "Before any training attention is concentrated on the query patch and falls smoothly and "
        "isotropically with distance, a prior for locality; with learned positions it is random.",
        "With learned positions it is random. With the encoding it is a smooth function of the "
        "place that rises or falls with distance, depending on the seed, is never largest at the "
        "query, and is flatter. A bias by the Green function of the torus is local from the start.",
        locality_before_training,
    ),
)
