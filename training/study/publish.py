"""Copy the rows and configs of a comparison to the folder of a study: ``wefpe publish``.

The folder gets ``runs.csv``, and in ``configs`` the effective config of each encoding with the seed
that was published first. The configs of other seeds differ from it only in the seed, those of other
encodings only in the encoding. The last two names of each path in a config are kept: they say which
file it was, not where it was. ``learned.csv`` has the numbers that WEF-PE learned besides its
layers.

Rows that are in the folder already stay, so the runs of a study may come from several comparisons
and machines. A run that is made again, from whatever commit, must have the numbers of its row.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import pandas as pd
import torch

from training.config import (
    Experiment,
    change_config,
    config_hash,
    differing_keys,
    dump_toml,
    file_names,
    hashes_of_file,
    load_config,
    plain_table,
    read_hash_mapping,
)
from training.encodings.weierstrass import WeierstrassEncoding
from training.engine.finished_run import load_weights
from training.engine.run_folder import RunFolder, write_whole
from training.metrics import metric_of
from training.models.building import build_position_encoding
from training.study.compare import is_of_an_arm, parse_arm
from training.study.statistics import RUNS, columns_of, rows_of_csv, runs_csv
from wefpe_core.errors import InputError
from wefpe_core.reporting import markdown_table

LEARNED = "learned.csv"

# --- What WEF-PE learns besides its layers -------------------------------------------------


class LatticeNumbers(NamedTuple):
    """The lattice, the factor inside tanh and the strength, at the start or end of a training."""

    omega1: float
    tau_real: float
    tau_imag: float
    scale: float
    strength: float

    def is_close(self, other: LatticeNumbers) -> bool:
        """Whether the numbers are equal but for rounding."""
        pairs = zip(self, other, strict=True)
        return all(math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-6) for a, b in pairs)


class Learned(NamedTuple):
    """The numbers of one run, from the weights that it kept."""

    label: str
    seed: int
    part: int  # counts the parts of the encoding that learn a lattice, from 1
    end: LatticeNumbers


_COLUMNS = ("encoding", "seed", "part", *LatticeNumbers._fields)


def lattice_numbers(config: Experiment, weights: Path | None = None) -> list[LatticeNumbers]:
    """The numbers in a file of weights, or at the start, for each part that learns a lattice."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(config.seed)
        encoding = build_position_encoding(config).requires_grad_(False)
    parts = [
        module
        for module in encoding.modules()
        if isinstance(module, WeierstrassEncoding)
        and module.lattice_parameter is not None
        and module.lattice_parameter.learned != "nothing"
    ]
    if parts and weights is not None:
        load_weights(encoding, weights, within="encoding.")
    found = []
    for part in parts:
        lattice = part.lattice()
        scale, strength = float(part.compression_scale()), float(part.strength())
        periods = lattice.omega1.real, lattice.tau.real, lattice.tau.imag
        found.append(LatticeNumbers(*periods, scale, strength))
    return found


def learned_csv(found: Iterable[Learned]) -> str:
    """A line for each run and part."""
    rows = [(*each[:-1], *each.end) for each in found]
    return pd.DataFrame(rows, columns=list(_COLUMNS)).to_csv(index=False, lineterminator="\n")


def read_learned(path: Path) -> list[Learned]:
    """The rows of `learned_csv` in a file; none if there is no file."""
    found = []
    lines = csv.reader(io.StringIO(path.read_text(encoding="utf-8") if path.exists() else ""))
    for number, line in enumerate(lines, start=1):
        if number == 1:
            if tuple(line) != _COLUMNS:
                raise InputError(f"{path} does not begin with {','.join(_COLUMNS)}")
            continue
        try:
            label, seed, part, *numbers = line
            end = LatticeNumbers(*map(float, numbers))
            found.append(Learned(label, int(seed), int(part), end))
        except (TypeError, ValueError) as error:
            raise InputError(f"{path}, line {number} cannot be read: {error}") from error
        if not all(map(math.isfinite, end)):
            raise InputError(f"{path}, line {number}: numbers must be finite")
    return found


def learned_markdown(found: Sequence[Learned], configs: Mapping[str, Experiment]) -> str:
    """A row for each encoding: every number at the start, and its range at the end."""
    headings = ["encoding", "seeds", "ω1", "Re τ", "Im τ", "factor inside tanh", "strength"]
    groups: dict[tuple[str, int], list[LatticeNumbers]] = {}
    for each in found:
        groups.setdefault((each.label, each.part), []).append(each.end)
    starts = {label: lattice_numbers(configs[label]) for label, _ in groups}
    lines = []
    for (label, part), ends in groups.items():
        name = f"`{label}`" + (f", part {part}" if len(starts[label]) > 1 else "")
        pairs = zip(starts[label][part - 1], zip(*ends, strict=True), strict=True)
        lines.append([name, str(len(ends)), *(_change_text(start, end) for start, end in pairs)])
    legend = "At the start → at the end, from the least to the largest of the seeds."
    return f"{markdown_table(headings, lines)}\n{legend}\n"


def _change_text(start: float, ends: Sequence[float]) -> str:
    before, low, high = (f"{x:.2f}" for x in (start, min(ends), max(ends)))
    if before == low == high:
        return before
    return f"{before} → {low if low == high else f'{low} to {high}'}"


# --- Publishing ----------------------------------------------------------------------------

Row = dict[str, str]

# The columns that a run made again must repeat. The others say when, where and how fast it ran.
_REPEATED = (
    "config_hash",
    "test_accuracy",
    "validation_accuracy",
    "selected_epoch",
    "epochs",
    "parameters",
)


class _Run(NamedTuple):
    """A row of a comparison, and its run."""

    row: Row
    folder: RunFolder
    config: Experiment


def publish(comparison: Path, folder: Path) -> tuple[int, int]:
    """Add the rows of a comparison and their configs to a folder.

    It returns the number of rows in the folder, and how many of them are new.
    """
    if not (comparison / RUNS).exists():
        raise InputError(f"{comparison} holds no comparison: there is no {RUNS} in it")
    known, rows = _read_rows(folder / RUNS), _read_rows(comparison / RUNS)
    runs = [_open_run(comparison, row) for row in rows]
    merged = merge_rows(known, [run.row for run in runs], read_hash_mapping(folder.parent))
    configs = _merge_configs(folder / "configs", runs)
    learned = _merge_learned(read_learned(folder / LEARNED), runs)
    for path, config in configs.items():
        if not path.exists():
            write_whole(path, dump_toml(config))
    if learned:
        order = [row["encoding"] for row in merged]
        learned.sort(key=lambda each: (order.index(each.label), each.seed, each.part))
        write_whole(folder / LEARNED, learned_csv(learned))
    write_whole(folder / RUNS, runs_csv(merged))
    return len(merged), len(merged) - len(known)


def _open_run(comparison: Path, row: Row) -> _Run:
    name = parse_arm(row["encoding"]).folder_name
    folder = RunFolder(comparison / f"{name}-seed{row['seed']}")
    config = load_config(str(folder.config))
    if row["config_hash"] not in hashes_of_file(folder.config):
        raise InputError(f"{folder.config} is not the config of the row of {row['encoding']}")
    # A run made by an earlier version is published under its present hash.
    return _Run({**row, "config_hash": config_hash(config)}, folder, without_places(config))


def _merge_configs(folder: Path, runs: Sequence[_Run]) -> dict[Path, Experiment]:
    """One config for each encoding: those there stay, and runs that were trained otherwise fail."""
    configs = {path: load_config(str(path)) for path in sorted(folder.glob("*.toml"))}
    for run in runs:
        own = folder / f"{parse_arm(run.row['encoding']).folder_name}.toml"
        configs.setdefault(own, run.config)
        for path in (own, next(iter(configs))):  # all are like the first but for the encoding
            keys = [
                key
                for key in differing_keys(configs[path], run.config)
                if key != "seed" and (path == own or not is_of_an_arm(key))
            ]
            if keys:
                raise InputError(f"{run.folder.config} and {path} differ in {', '.join(keys)}")
    return configs


def _merge_learned(known: Sequence[Learned], runs: Sequence[_Run]) -> list[Learned]:
    """Known numbers stay; the others are read from the weights of the runs that still have them."""
    learned = {each[:3]: each for each in known}
    for run in runs:
        label, seed, weights = run.row["encoding"], int(run.row["seed"]), run.folder.weights
        ends = lattice_numbers(run.config, weights) if weights.exists() else []
        for part, end in enumerate(ends, start=1):
            there = learned.setdefault((label, seed, part), Learned(label, seed, part, end))
            if not there.end.is_close(end):
                raise InputError(
                    f"{label} with seed {seed} is published with {there.end}, and {weights} has "
                    f"{end}"
                )
    return list(learned.values())


def merge_rows(
    known: Sequence[Row], rows: Sequence[Row], hashes: Mapping[str, str] = MappingProxyType({})
) -> list[Row]:
    """All rows, in the order in which encodings first came in, then by seed; known rows stay.

    `hashes` has the present hash of configs whose rows were published under an old one.
    """
    merged: dict[tuple[str, str], Row] = {}
    for row in (*known, *rows):
        there = merged.setdefault((row["encoding"], row["seed"]), row)
        for column in columns_of(metric_of(row, "test_"), _REPEATED):
            before = there.get(column, "")
            if hashes.get(before, before) != hashes.get(row[column], row[column]):
                raise InputError(
                    f"{row['encoding']} with seed {row['seed']} is published with "
                    f"{column}={before}, and this run has {row[column]}"
                )
    encodings = list(dict.fromkeys(row["encoding"] for row in merged.values()))
    return sorted(
        merged.values(), key=lambda row: (encodings.index(row["encoding"]), int(row["seed"]))
    )


def _read_rows(path: Path) -> list[Row]:
    """The rows of a file; none if there is no file."""
    rows = rows_of_csv(path.read_text(encoding="utf-8")) if path.exists() else []
    for row in rows:
        repeated = columns_of(metric_of(row, "test_"), _REPEATED)
        missing = [column for column in ("encoding", "seed", *repeated) if row.get(column) is None]
        if missing:
            raise InputError(f"{path}: a row has no {missing[0]}")
    if len({(row["encoding"], row["seed"]) for row in rows}) < len(rows):
        raise InputError(f"{path} has two rows of one run")
    return rows


def without_places(config: Experiment) -> Experiment:
    """The config with the names of its files, but without their folders."""
    names = file_names(plain_table(config))
    return change_config(config, [f'{key}="{name}"' for key, name in names.items()])
