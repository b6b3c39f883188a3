"""What WEF-PE learns beside its layers: the lattice, the factor inside tanh, the strength.

``publish`` takes these numbers from the weights of a run into ``learned.csv``, beside its row;
tables set them beside those the config starts with. An encoding that combines several has a line
for each part that learns a lattice.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from training.configuration import Experiment
from training.configuration.encoding_rules import build_position_encoding
from training.encodings.weierstrass import WeierstrassEncoding
from training.engine.finished_run import load_weights
from training.markdown import markdown_table
from wefpe_core.errors import InputError

LEARNED = "learned.csv"


class Numbers(NamedTuple):
    """At the start or at the end of a training."""

    omega1: float
    tau_real: float
    tau_imag: float
    scale: float
    strength: float

    def is_close(self, other: Numbers) -> bool:
        """Whether they are the same but for rounding."""
        pairs = zip(self, other, strict=True)
        return all(math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-6) for a, b in pairs)


class Learned(NamedTuple):
    """One run, with the numbers of the weights that were kept."""

    label: str
    seed: int
    part: int  # which of the parts of the encoding that learn a lattice, from 1
    end: Numbers


_COLUMNS = ("encoding", "seed", "part", *Numbers._fields)


def numbers_of(config: Experiment, weights: Path | None = None) -> list[Numbers]:
    """Those of a file of weights, or of the start, for each part that learns a lattice."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(config.seed)
        encoding = build_position_encoding(config).requires_grad_(False)
    parts = [m for m in encoding.modules() if isinstance(m, WeierstrassEncoding) and _learns(m)]
    if parts and weights is not None:
        load_weights(encoding, weights, within="encoding.")
    return [_numbers(part) for part in parts]


def _learns(encoding: WeierstrassEncoding) -> bool:
    parameter = encoding.lattice_parameter
    return parameter is not None and parameter.learned != "nothing"


def _numbers(encoding: WeierstrassEncoding) -> Numbers:
    lattice = encoding.lattice()
    scale, strength = float(encoding.compression_scale()), float(encoding.strength())
    return Numbers(lattice.omega1.real, lattice.tau.real, lattice.tau.imag, scale, strength)


def learned_csv(found: Iterable[Learned]) -> str:
    """A line for each run and part."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    writer.writerows((*each[:-1], *each.end) for each in found)
    return text.getvalue()


def read_learned(path: Path) -> list[Learned]:
    """What `learned_csv` wrote to a file, nothing if there is no such file."""
    found = []
    lines = csv.reader(io.StringIO(path.read_text(encoding="utf-8") if path.exists() else ""))
    for number, line in enumerate(lines, start=1):
        if number == 1:
            if tuple(line) != _COLUMNS:
                raise InputError(f"{path} does not begin with {','.join(_COLUMNS)}")
            continue
        try:
            label, seed, part, *numbers = line
            end = Numbers(*map(float, numbers))
            found.append(Learned(label, int(seed), int(part), end))
        except (TypeError, ValueError) as error:
            raise InputError(f"{path}, line {number} cannot be read: {error}") from error
        if not all(map(math.isfinite, end)):
            raise InputError(f"{path}, line {number}: numbers must be finite")
    return found


def learned_markdown(found: Sequence[Learned], configs: Mapping[str, Experiment]) -> str:
    """A row for each encoding: every number at the start, and its range at the end."""
    headings = ["encoding", "seeds", "ω1", "Re τ", "Im τ", "factor inside tanh", "strength"]
    groups: dict[tuple[str, int], list[Numbers]] = {}
    for each in found:
        groups.setdefault((each.label, each.part), []).append(each.end)
    starts = {label: numbers_of(configs[label]) for label, _ in groups}
    lines = []
    for (label, part), ends in groups.items():
        name = f"`{label}`" + (f", part {part}" if len(starts[label]) > 1 else "")
        pairs = zip(starts[label][part - 1], zip(*ends, strict=True), strict=True)
        lines.append([name, str(len(ends)), *(_move(start, values) for start, values in pairs)])
    legend = "At the start → at the end, from the least to the largest of the seeds."
    return f"{markdown_table(headings, lines)}\n\n{legend}\n"


def _move(start: float, ends: Sequence[float]) -> str:
    before, low, high = (f"{x:.2f}" for x in (start, min(ends), max(ends)))
    if before == low == high:
        return before
    return f"{before} → {low if low == high else f'{low} to {high}'}"
