"""F41: attention from the middle patch before any training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from verification.claims.claim import Claim, Finding, judge_parts
from verification.claims.decay import GRID

# Statistics of the attention of the middle patch, one for each seed; see
# training.study.initial_attention.
Statistics = Callable[[int], list[Any]]

LOCAL = -0.5  # Spearman of distance and attention; -1 is a strict fall with every step away
# 3.5 deviations of the rank correlation of noise over 196 patches: one study of 20 seeds in a
# hundred goes beyond.
CHANCE = 0.25


def attention_of(label: str) -> Statistics:
    """Attention with an encoding, the weights drawn as the published scripts draw them."""

    def measured(seeds: int) -> list[Any]:
        # Here because everything else in the claims does without torch.
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
