"""Decay of interaction with distance: the paper's table 1 and its figure, for any encoding."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from training.analyses.analysis import Analysis
from training.analyses.decay_figure import comparison_figure, detail_figure
from training.analyses.decay_protocols import PROTOCOLS, Protocol
from training.analyses.decay_statistics import patch_pairs
from training.analyses.decay_table import (
    NULLS,
    DecayRow,
    csv_rows,
    decay_markdown,
    decay_rows,
    null_meaning,
)
from training.analyses.interaction import interaction_matrix
from training.analyses.subjects import GRID, Subject
from training.encodings.grid import Grid
from wefpe_core.errors import InputError, did_you_mean

DRAWN_ALONE = "the encoding alone, nothing mapped"  # of the figures in detail
# What the interaction of each kind is, as the label of an axis.
QUANTITIES = {
    "additive": "cosine of two positions",
    "rotary": "cosine of two rotations",
    "bias": "attention bias, mean of the heads",
    "none": "interaction",
}


def decay_analysis(
    subjects: Sequence[Subject],
    grid: Grid = GRID,
    seeds: Sequence[int] = (0, 1, 2, 3, 4),
    *,
    protocols: Sequence[str] = tuple(PROTOCOLS),
    resamples: int = 200,
    details: Sequence[str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Analysis:
    """Every subject and the nulls under each protocol; `details` names those drawn in full.

    By default only the first subject is, as it starts from the first seed. `progress` is called
    with what is being done.
    """
    seeds, protocols = tuple(dict.fromkeys(seeds)), tuple(dict.fromkeys(protocols))
    if not seeds or resamples < 1:
        raise InputError(f"at least 1 seed and resample are needed, got {seeds} and {resamples}")
    if not protocols:
        raise InputError(f"no protocol is named; there are {', '.join(PROTOCOLS)}")
    for name in protocols:
        if name not in PROTOCOLS:
            raise InputError(
                f"unknown protocol {name!r}; there are {', '.join(PROTOCOLS)}"
                + did_you_mean(name, PROTOCOLS)
            )
    chosen = _chosen(subjects, details)
    rows = decay_rows(
        subjects, grid, seeds, protocols=protocols, resamples=resamples, progress=progress
    )
    if progress is not None:
        progress("drawing")
    figures = {"decay_compared": comparison_figure(_shown(rows), patch_pairs(grid))}
    for number, subject in enumerate(chosen, start=1):
        encoding = subject.build(grid, seeds[0])
        figures[f"decay_{number}_{_file_name(subject.label)}"] = detail_figure(
            interaction_matrix(encoding, grid),
            patch_pairs(grid),
            f"{subject.label}, seed {seeds[0]}: {DRAWN_ALONE}",
            QUANTITIES[encoding.kind],
        )
    return Analysis(
        name="decay",
        title="Interaction of patches and their distance",
        caption=_caption(rows, grid, seeds, resamples, [subject.label for subject in chosen]),
        figures=figures,
        numbers={
            "grid": list(grid),
            "seeds": list(seeds),
            "resamples": resamples,
            "pairs": int(patch_pairs(grid).first.size),
            "protocols": {name: PROTOCOLS[name].meaning for name in protocols},
            "nulls": dict(NULLS),
            "rows": csv_rows(rows),
            "curves": _curves(rows, grid),
        },
        tables={"decay": csv_rows(rows)},
        markdown=decay_markdown(rows),
    )


def _chosen(subjects: Sequence[Subject], details: Sequence[str] | None) -> list[Subject]:
    if details is None:
        return list(subjects[:1])
    known = {subject.label: subject for subject in subjects}
    for label in details:
        if label not in known:
            raise InputError(f"{label!r} is to be drawn, but is not among {', '.join(known)}")
    return [known[label] for label in details]


def _shown(rows: Sequence[DecayRow]) -> list[DecayRow]:
    """The rows of one protocol: ours if it was asked for."""
    names = list(dict.fromkeys(row.protocol for row in rows))
    shown = "ours" if "ours" in names else names[0]
    return [row for row in rows if row.protocol == shown]


def _curves(rows: Sequence[DecayRow], grid: Grid) -> dict[str, Any]:
    """S(d) in deviations of all pairs, which the first panel shows."""
    curves = {row.encoding: row.standardised.tolist() for row in _shown(rows)}
    return {"distances": patch_pairs(grid).distances.tolist(), "standardised": curves}


def _file_name(label: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "_", label).strip("_")


def _caption(
    rows: Sequence[DecayRow],
    grid: Grid,
    seeds: Sequence[int],
    resamples: int,
    details: Sequence[str],
) -> str:
    protocols = [PROTOCOLS[name] for name in dict.fromkeys(row.protocol for row in rows)]
    first = (
        f"Interaction of all pairs of patches of a {grid[0]}x{grid[1]} grid, for encodings as they "
        f"start (width 192, 3 heads). {_mean_of(seeds)}. Encodings: {_encodings(rows)}. "
        "Interaction is the cosine of two rows of an added table; the expected product of two "
        "turned random contents over their mean lengths, in the first layer, for rotary encodings; "
        "the bias of the first layer, averaged over heads and both directions, for biases."
    )
    parts = [first, _caption_of_comparison(PROTOCOLS[_shown(rows)[0].protocol], resamples)]
    if details:
        parts.append(_caption_of_details(details, seeds[0]))
    meanings = "; ".join(f"{protocol.name}: {protocol.meaning}" for protocol in protocols)
    parts.append(f"Protocols of the table: {meanings}.")
    return " ".join(parts)


def _mean_of(seeds: Sequence[int]) -> str:
    numbers = ", ".join(map(str, seeds))
    return f"Mean of the seeds {numbers}" if len(seeds) > 1 else f"Seed {numbers}"


def _encodings(rows: Sequence[DecayRow]) -> str:
    """Every label; nulls with what they stand for."""
    labels = list(dict.fromkeys(row.encoding for row in rows))
    nulls = [f"{label} ({null_meaning(label)})" for label in labels if null_meaning(label)]
    others = [label for label in labels if not null_meaning(label)]
    return "; ".join([*others, f"nulls, which make no claim to decay: {', '.join(nulls)}"])


def _caption_of_comparison(shown: Protocol, resamples: int) -> str:
    means = "the means at each distance" if shown.bins is None else "the means of the bins"
    steps = "one distance to the next" if shown.bins is None else "one bin to the next"
    what = "content plus the encoding" if shown.adds_content else "the encoding alone"
    return (
        f"The comparison shows the protocol {shown.name}, of {what}. (a) Mean at each distance, in "
        "deviations of all pairs from their mean; (b) Pearson's coefficient with the distance over "
        f"all pairs, with the middle 95 % of {resamples} resamplings of the patches for each seed, "
        f"and over {means}; (c) the share of the variance over pairs that distance explains; (d) "
        f"the share of steps from {steps} that go down (a curve without trend: 50 %). Bars of "
        "nulls are lighter."
    )


def _caption_of_details(labels: Sequence[str], seed: int) -> str:
    return (
        f"In detail, whatever the protocols: {', '.join(labels)}, {DRAWN_ALONE}, seed {seed}. (a) "
        "A sample of the pairs, and the mean at each distance; (b) all pairs, counted in cells, "
        "with that mean; (c) the mean minus its lowest value on a log scale, where an exponential "
        "decay to a limit would be a straight line; the limit, the lowest mean, is chosen by the "
        "data; (d) the change of the mean from each distance to the next, per patch."
    )
