"""Interaction of patches against their distance, with nulls.

It is the paper's table 1 and its figure, for any encoding.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from training.encodings.size import Grid
from training.study.analysis import (
    DASH,
    Analysis,
    AnalysisCommand,
    Options,
    Progress,
    silent,
)
from training.study.decay_figures import comparison_figure, detail_figure
from training.study.decay_measures import (
    PROTOCOLS,
    DecayRow,
    Protocol,
    decay_rows,
    interaction_matrix,
)
from training.study.encoding_choice import (
    GRID,
    NULLS,
    EncodingChoice,
    choose_encodings,
    null_meaning,
)
from training.study.pair_statistics import patch_pairs
from wefpe_core.errors import InputError, did_you_mean
from wefpe_core.reporting import markdown_table

# --- Table ---------------------------------------------------------------------------------


def csv_rows(rows: Sequence[DecayRow]) -> list[dict[str, Any]]:
    """A row for each encoding and protocol; NaN where a statistic is not defined."""
    return [
        {
            "encoding": row.encoding,
            "kind": row.kind,
            "protocol": row.protocol,
            "null": row.null,
            "seeds": row.seeds,
            **row.mean._asdict(),
            **{f"{name}_sd": value for name, value in row.deviation._asdict().items()},
            "raw_low": row.low,
            "raw_high": row.high,
        }
        for row in rows
    ]


_COLUMNS = (  # heading, statistic, format
    ("Spearman", "spearman", "{:.2f}"),
    ("binned Pearson", "binned", "{:.3f}"),
    ("decreasing steps, %", "monotone", "{:.0f}"),
    ("R² of distance", "explained", "{:.2f}"),
    ("decay, %", "decay", "{:.1f}"),
)


def decay_markdown(rows: Sequence[DecayRow]) -> str:
    """The table people read, a part for each protocol; a dash where nothing is defined."""
    parts = []
    for name in dict.fromkeys(row.protocol for row in rows):
        headings = ["encoding", "raw Pearson", "95 %", *(title for title, _, _ in _COLUMNS)]
        lines = (_cells(row) for row in rows if row.protocol == name)
        table = markdown_table([*headings, "first → last mean", "range of the means"], lines)
        parts.append(f"**{name}**: {PROTOCOLS[name].meaning}.\n\n{table}")
    seeds = rows[0].seeds
    legend = (
        f"Mean ± deviation over {seeds} seeds. 95 %: of the raw Pearson coefficients of resampled "
        f"patches. (null): makes no claim to decay. {DASH}: not defined."
    )
    return "\n".join([*parts, legend]) + "\n"


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
    limits_of_means = [_number(value, "{:.3g}") for value in (row.mean.least, row.mean.most)]
    cells.append(DASH if DASH in limits_of_means else f"[{', '.join(limits_of_means)}]")
    return cells


def _number(value: float, form: str) -> str:
    if not math.isfinite(value):
        return DASH
    # A 0 that rounding changed is printed as 0, without a sign.
    text = form.format(round(value, 9))
    return text.removeprefix("-") if not text.strip("-0.") else text


def _with_deviation(row: DecayRow, name: str, form: str) -> str:
    value, deviation = getattr(row.mean, name), getattr(row.deviation, name)
    text = _number(value, form)
    # A deviation that is only rounding belongs to an encoding that no seed changes.
    if not math.isfinite(deviation) or deviation <= 1e-9 * max(abs(value), 1.0):
        return text
    return f"{text} ± {form.format(deviation)}"


# --- The analysis --------------------------------------------------------------------------

_DRAWN_ALONE = "the encoding alone, nothing mapped"  # in the figures of one encoding
# What the interaction of each kind is, as the label of an axis.
_QUANTITIES = {
    "additive": "cosine of two positions",
    "rotary": "cosine of two rotations",
    "bias": "attention bias, mean of the heads",
    "none": "interaction",
}


def decay_analysis(
    encodings: Options.Encodings = None,
    grid: Options.GridShape = GRID,
    seeds: Options.Seeds = range(5),
    *,
    protocols: Annotated[
        list[str] | None,
        typer.Option(
            "--protocol",
            metavar="PROTOCOL",
            help="ours, paper or authors. Repeat the option for each; the default is all three.",
        ),
    ] = None,
    details: Annotated[
        list[str] | None,
        typer.Option(
            "--detail",
            metavar="NAME[:OPTIONS]",
            help="An encoding to draw in four panels, as it starts from the first seed. Repeat "
            "the option for each; the default is the first encoding.",
        ),
    ] = None,
    resamples: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="How often the patches are resampled for each seed."),
    ] = 200,
    progress: Progress = silent,
) -> Analysis:
    """Interaction of patches against their distance, for encodings and for nulls."""
    pairs = patch_pairs(grid)  # refuses a grid without pairs before any work
    choices = choose_encodings(usual_encodings() if encodings is None else encodings, grid)
    seeds = tuple(dict.fromkeys(seeds))
    protocols = list(dict.fromkeys(PROTOCOLS if protocols is None else protocols))
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
    labels = [choice.label for choice in choices]
    details = labels[:1] if details is None else details
    for label in details:
        if label not in labels:
            raise InputError(f"{label!r} is to be drawn, but is not among {', '.join(labels)}")
    rows = decay_rows(
        choices, grid, seeds, protocols=protocols, resamples=resamples, progress=progress
    )
    progress("drawing")
    drawn = "ours" if "ours" in protocols else protocols[0]
    compared = [row for row in rows if row.protocol == drawn]
    figures = {"decay_compared": comparison_figure(compared, pairs)}
    for number, label in enumerate(details, start=1):
        encoding = EncodingChoice(label).build(grid, seeds[0])
        figures[f"decay_{number}_{_file_name(label)}"] = detail_figure(
            interaction_matrix(encoding, grid),
            pairs,
            f"{label}, seed {seeds[0]}: {_DRAWN_ALONE}",
            _QUANTITIES[encoding.kind],
        )
    return Analysis(
        name="decay",
        title="Interaction of patches and their distance",
        caption=_caption(rows, PROTOCOLS[drawn], grid, seeds, resamples, details),
        figures=figures,
        numbers={
            "grid": list(grid),
            "seeds": list(seeds),
            "resamples": resamples,
            "pairs": int(pairs.first.size),
            "protocols": {name: PROTOCOLS[name].meaning for name in protocols},
            "nulls": dict(NULLS),
            "rows": csv_rows(rows),
            "curves": {
                "distances": pairs.distances.tolist(),
                "standardised": {row.encoding: row.standardised.tolist() for row in compared},
            },
        },
        tables={"decay": csv_rows(rows)},
        markdown=decay_markdown(rows),
    )


def usual_encodings() -> list[str]:
    """Every encoding that has one interaction, and the readings of the paper."""
    from training.encodings import available_encodings

    readings = [f"weierstrass:fidelity={name}" for name in ("authors", "paper")]
    names = [name for name in available_encodings() if name not in ("none", "combined")]
    return ["weierstrass", *readings, *(name for name in names if name != "weierstrass")]


def _file_name(label: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "_", label).strip("_")


def _caption(
    rows: Sequence[DecayRow],
    drawn: Protocol,
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
    parts = [first, _caption_of_comparison(drawn, resamples)]
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


def _caption_of_comparison(drawn: Protocol, resamples: int) -> str:
    means = "the means at each distance" if drawn.bins is None else "the means of the bins"
    steps = "one distance to the next" if drawn.bins is None else "one bin to the next"
    what = "content plus the encoding" if drawn.adds_content else "the encoding alone"
    return (
        f"The comparison shows the protocol {drawn.name}, of {what}. (a) Mean at each distance, in "
        "deviations of all pairs from their mean; (b) Pearson's coefficient with the distance over "
        f"all pairs, with the middle 95 % of {resamples} resamplings of the patches for each seed, "
        f"and over {means}; (c) the share of the variance over pairs that distance explains; (d) "
        f"the share of steps from {steps} that go down (a curve without trend: 50 %). Bars of "
        "nulls are lighter."
    )


def _caption_of_details(labels: Sequence[str], seed: int) -> str:
    return (
        f"In detail, whatever the protocols: {', '.join(labels)}, {_DRAWN_ALONE}, seed {seed}. (a) "
        "A sample of the pairs, and the mean at each distance; (b) all pairs, counted in cells, "
        "with that mean; (c) the mean minus its lowest value on a log scale, where an exponential "
        "decay to a limit would be a straight line; the limit, the lowest mean, is chosen by the "
        "data; (d) the change of the mean from each distance to the next, per patch."
    )


COMMAND = AnalysisCommand(
    decay_analysis,
    on_page=lambda page, arguments: (
        {**arguments, "details": [choice.label for choice in page.encodings]}
    ),
    docs_files={
        "decay.md": "decay.md",
        "decay.png": "decay_compared.png",
        "decay-weierstrass.png": "decay_1_weierstrass.png",
    },
)
