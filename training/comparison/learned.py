"""The three numbers WEF-PE learns beside its layers: tau, the factor inside tanh, the strength.

``publish`` takes them from the weights of a run into ``learned.csv``, beside its row; tables set
them beside those the config starts with.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from training.configuration import Experiment
from training.configuration.encoding_rules import build_position_encoding
from training.encodings import AbstractEncoding
from training.encodings.weierstrass import WeierstrassEncoding
from training.markdown import markdown_table

LEARNED = "learned.csv"
_COLUMNS = ("encoding", "seed", "tau_real", "tau_imag", "scale", "strength")
_OF_THE_ENCODING = "encoding."  # what its weights begin with in those of a model


class Numbers(NamedTuple):
    """At the start or at the end of a training."""

    tau_real: float
    tau_imag: float
    scale: float
    strength: float


class Learned(NamedTuple):
    """One run, with the numbers of the weights that were kept."""

    label: str
    seed: int
    end: Numbers


def numbers_of(config: Experiment, weights: Mapping[str, Tensor] | None = None) -> Numbers | None:
    """The numbers of these weights, or of the start; None for what does not have all three."""
    encoding: AbstractEncoding = build_position_encoding(config).requires_grad_(False)
    if not isinstance(encoding, WeierstrassEncoding) or encoding.options.function != "wp":
        return None
    if weights is not None:
        own = {
            name.removeprefix(_OF_THE_ENCODING): tensor
            for name, tensor in weights.items()
            if name.startswith(_OF_THE_ENCODING)
        }
        encoding.load_state_dict(own)
    tau = encoding.lattice().tau
    scale, strength = float(encoding.compression_scale()), float(encoding.strength())
    return Numbers(tau.real, tau.imag, scale, strength)


def learned_csv(found: Iterable[Learned]) -> str:
    """A line for each run."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    writer.writerows((each.label, each.seed, *each.end) for each in found)
    return text.getvalue()


def read_learned(path: Path) -> list[Learned]:
    """The runs of a file that `learned_csv` wrote, none if there is no such file."""
    return learned_of_csv(path.read_text(encoding="utf-8")) if path.exists() else []


def learned_of_csv(text: str) -> list[Learned]:
    """What `learned_csv` wrote."""
    return [
        Learned(
            row["encoding"],
            int(row["seed"]),
            Numbers(*(float(row[name]) for name in Numbers._fields)),
        )
        for row in csv.DictReader(io.StringIO(text))
    ]


def learned_markdown(found: Sequence[Learned], configs: Mapping[str, Experiment]) -> str:
    """A row for each encoding: every number at the start, and its range at the end."""
    headings = ["encoding", "seeds", "Re τ", "Im τ", "factor inside tanh", "strength"]
    lines = []
    for label in dict.fromkeys(each.label for each in found):
        ends = [each.end for each in found if each.label == label]
        start = numbers_of(configs[label])
        assert start is not None  # or there were none at the end
        pairs = zip(start, zip(*ends, strict=True), strict=True)
        lines.append([f"`{label}`", str(len(ends)), *(_move(a, b) for a, b in pairs)])
    legend = "At the start → at the end, from the least to the largest of the seeds."
    return f"{markdown_table(headings, lines)}\n\n{legend}\n"


def _move(start: float, ends: Sequence[float]) -> str:
    low, high = f"{min(ends):.2f}", f"{max(ends):.2f}"
    if low == high == f"{start:.2f}":
        return low
    return f"{start:.2f} → {low if low == high else f'{low} to {high}'}"
