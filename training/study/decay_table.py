"""Decay of interaction with distance for many encodings: measured over seeds, shown as a table."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from training.encodings import AbstractEncoding
from training.encodings.grid import Grid
from training.encodings.registry import parse_encoding_label
from training.markdown import markdown_table
from training.study.analysis import DASH
from training.study.decay_measures import (
    PROTOCOLS,
    Array,
    Decay,
    Protocol,
    content_fused,
    cosine_matrix,
    interaction_matrix,
    interval,
    measure,
    patch_pairs,
    position_table,
    resampled_raw,
    standardised_curve,
)
from training.study.encoding_choice import DIM, Subject

# Encodings without a claim to decay; a protocol that cannot tell a subject from them says nothing.
NULLS: Mapping[str, str] = {
    "none": "no position",
    "learned": "a random table",
    "weierstrass:function=powers,features=2": (
        "LayerNorm of a random linear map of tanh of the centred (u, v), in place of ℘"
    ),
    "sincos2d": "fixed sines and cosines",
}


def is_same_encoding(one: str, other: str) -> bool:
    """Whether two labels name one encoding, in whatever order their options are typed."""
    first, second = parse_encoding_label(one), parse_encoding_label(other)
    return (first.name, first.options) == (second.name, second.options)


def nulls_beside(labels: Sequence[str]) -> list[str]:
    """The nulls that are not among some labels."""
    return [null for null in NULLS if not any(is_same_encoding(null, label) for label in labels)]


def null_meaning(label: str) -> str:
    """What an encoding stands for as a null; empty for the others."""
    meanings = (meaning for null, meaning in NULLS.items() if is_same_encoding(null, label))
    return next(meanings, "")


@dataclass(frozen=True)
class DecayRow:
    """One encoding under one protocol, over seeds."""

    encoding: str
    kind: str
    protocol: str
    null: str  # what a null stands for; empty for the others
    seeds: int
    mean: Decay
    deviation: Decay  # of the sample of seeds; NaN for one seed
    low: float  # 95 % of the raw Pearson coefficients of resampled patches, all seeds together
    high: float
    standardised: Array  # S(d) in deviations of all pairs, mean over the seeds


class _Result(NamedTuple):
    """One seed."""

    decay: Decay
    resampled: Array
    standardised: Array


def measured_rows(
    subject: Subject,
    grid: Grid,
    seeds: Sequence[int],
    protocols: Sequence[str] = tuple(PROTOCOLS),
    resamples: int = 200,
) -> list[DecayRow]:
    """The subject under each protocol."""
    pairs = patch_pairs(grid)
    seeds = tuple(dict.fromkeys(seeds))  # the same twice would be one draw counted as two
    protocols = tuple(dict.fromkeys(protocols))
    found: dict[str, list[_Result]] = {name: [] for name in protocols}
    for seed in seeds:
        encoding = subject.build(grid, seed)
        alone = interaction_matrix(encoding, grid)
        for name in protocols:
            protocol = PROTOCOLS[name]
            matrix = fused_cosines(encoding, grid, seed) if protocol.adds_content else alone
            found[name].append(
                _Result(
                    measure(matrix, pairs, protocol),
                    resampled_raw(matrix, pairs, resamples, seed),
                    standardised_curve(matrix, pairs),
                )
            )
    return [
        _row(subject, encoding.kind, PROTOCOLS[name], results) for name, results in found.items()
    ]


def fused_cosines(encoding: AbstractEncoding, grid: Grid, seed: int) -> Array:
    """Cosines of content plus position.

    The script adds a table. Without any position it compares content with content; what a
    rotation or a bias would be in it is not defined.
    """
    patches = grid[0] * grid[1]
    if encoding.kind in ("rotary", "bias"):
        return np.full((patches, patches), np.nan)
    table = position_table(encoding, grid)
    if table is None:
        table = np.zeros((patches, DIM))
    # Another stream than that of the weights, so that the two are independent.
    return cosine_matrix(content_fused(table, np.random.default_rng([seed, 1])))


def _row(subject: Subject, kind: str, protocol: Protocol, results: Sequence[_Result]) -> DecayRow:
    values = np.array([result.decay for result in results])
    low, high = interval(np.concatenate([result.resampled for result in results]))
    return DecayRow(
        encoding=subject.label,
        kind=kind,
        protocol=protocol.name,
        null=null_meaning(subject.label),
        seeds=len(results),
        mean=Decay(*values.mean(axis=0).tolist()),
        deviation=Decay(*_deviation(values).tolist()),
        low=low,
        high=high,
        standardised=np.mean([result.standardised for result in results], axis=0),
    )


def _deviation(values: Array) -> Array:
    if len(values) < 2:
        return np.full(values.shape[1:], np.nan)
    return values.std(axis=0, ddof=1)


def decay_rows(
    subjects: Sequence[Subject],
    grid: Grid,
    seeds: Sequence[int],
    *,
    protocols: Sequence[str] = tuple(PROTOCOLS),
    resamples: int = 200,
    progress: Callable[[str], None] | None = None,
) -> list[DecayRow]:
    """All subjects, and after them the nulls that are not among them."""
    patch_pairs(grid)  # refuses a grid without pairs before any work
    missing = map(Subject, nulls_beside([subject.label for subject in subjects]))
    rows = []
    for subject in [*subjects, *missing]:
        if progress is not None:
            progress(subject.label)
        rows += measured_rows(subject, grid, seeds, protocols, resamples)
    return rows


# --- As text ---------------------------------------------------------------------------------


def csv_rows(rows: Sequence[DecayRow]) -> list[dict[str, Any]]:
    """A row for each encoding and protocol; None where a statistic is not defined."""
    return [
        {
            "encoding": row.encoding,
            "kind": row.kind,
            "protocol": row.protocol,
            "null": row.null,
            "seeds": row.seeds,
            **{name: _or_none(value) for name, value in row.mean._asdict().items()},
            **{f"{name}_sd": _or_none(value) for name, value in row.deviation._asdict().items()},
            "raw_low": _or_none(row.low),
            "raw_high": _or_none(row.high),
        }
        for row in rows
    ]


def _or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None


# Heading, statistic, format.
_COLUMNS = (
    ("Spearman", "spearman", "{:.2f}"),
    ("binned Pearson", "binned", "{:.3f}"),
    ("decreasing steps, %", "monotone", "{:.0f}"),
    ("R² of distance", "explained", "{:.2f}"),
)
_RANGE_COLUMN = "first → last mean"


def decay_markdown(rows: Sequence[DecayRow]) -> str:
    """The table people read, a part for each protocol; a dash where nothing is defined."""
    parts = []
    for name in dict.fromkeys(row.protocol for row in rows):
        headings = ["encoding", "raw Pearson", "95 %", *(title for title, _, _ in _COLUMNS)]
        headings.append(_RANGE_COLUMN)
        mine = (_cells(row) for row in rows if row.protocol == name)
        parts.append(f"**{name}**: {PROTOCOLS[name].meaning}.\n\n{markdown_table(headings, mine)}")
    seeds = rows[0].seeds
    legend = (
        f"Mean ± deviation over {seeds} seeds. 95 %: of the raw Pearson coefficients of resampled "
        f"patches. (null): makes no claim to decay. {DASH}: not defined."
    )
    return "\n\n".join([*parts, legend]) + "\n"


def _cells(row: DecayRow) -> list[str]:
    null = " (null)" if row.null else ""
    limits = (
        f"[{row.low:.2f}, {row.high:.2f}]"
        if math.isfinite(row.low) and math.isfinite(row.high)
        else DASH
    )
    cells = [f"`{row.encoding}`{null}", _with_deviation(row, "raw", "{:.3f}"), limits]
    cells += [_with_deviation(row, name, form) for _, name, form in _COLUMNS]
    ends = [_number(value, "{:.3g}") for value in (row.mean.initial, row.mean.final)]
    cells.append(DASH if DASH in ends else " → ".join(ends))
    return cells


def _number(value: float, form: str) -> str:
    if not math.isfinite(value):
        return DASH
    # What is left of a 0 by rounding is printed as 0, and without a sign.
    text = form.format(round(value, 9))
    return text.removeprefix("-") if not text.strip("-0.") else text


def _with_deviation(row: DecayRow, name: str, form: str) -> str:
    value, deviation = getattr(row.mean, name), getattr(row.deviation, name)
    text = _number(value, form)
    # A deviation that is rounding only belongs to an encoding that no seed changes.
    if not math.isfinite(deviation) or deviation <= 1e-9 * max(abs(value), 1.0):
        return text
    return f"{text} ± {form.format(deviation)}"
