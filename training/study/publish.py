"""Take from a comparison what is worth keeping in a repository: its rows and its configs.

    python -m training.study.publish comparisons/cifar100_cpu docs/results/scratch

The folder gets ``runs.csv``, and in ``configs`` the effective config of each encoding, that of the
seed it was first published with; the configs of other seeds differ from it in the seed alone, and
those of other encodings in the encoding. Of paths the last two names are kept: they say which
files, not where they are. Of WEF-PE ``learned.csv`` says what it learned beside its layers.

Rows that are in the folder already stay, so the runs of a study may come from several comparisons
and machines. A run that was made again, from whatever commit, must have the numbers of its row.
"""

from __future__ import annotations

import argparse
import csv
import io
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import torch

from training.config import (
    Experiment,
    change_config,
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
from training.errors import RunError
from training.markdown import markdown_table
from training.models.building import build_position_encoding
from training.study.compare import is_of_an_arm, parse_arm
from training.study.statistics import RUNS, rows_csv, rows_of_csv
from wefpe_core.errors import InputError

# What WEF-PE learns beside its layers: the lattice, the factor inside tanh, the strength.
#
# ``publish`` takes these numbers from the weights of a run into ``learned.csv``, beside its row;
# tables set them beside those the config starts with. An encoding that combines several has a line
# for each part that learns a lattice.

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


Row = dict[str, str]

# What a run made again has to repeat; the rest says when, where and how fast it ran.
_REPEATED = (
    "config_hash",
    "test_accuracy",
    "validation_accuracy",
    "selected_epoch",
    "epochs",
    "parameters",
)


class Published(NamedTuple):
    """How many rows a folder has, and how many of them are new."""

    rows: int
    new: int


class _Run(NamedTuple):
    """A row of a comparison, and the run it is of."""

    row: Row
    folder: RunFolder
    config: Experiment


def publish(comparison: Path, folder: Path) -> Published:
    """Add the rows of a comparison, with their configs, to those of a folder."""
    if not (comparison / RUNS).exists():
        raise InputError(f"{comparison} holds no comparison: there is no {RUNS} in it")
    known, rows = _read_rows(folder / RUNS), _read_rows(comparison / RUNS)
    merged = merge_rows(known, rows, read_hash_mapping(folder.parent))
    runs = [_open_run(comparison, row) for row in rows]
    configs = _merge_configs(folder / "configs", runs)
    learned = _merge_learned(read_learned(folder / LEARNED), runs)
    for path, config in configs.items():
        if not path.exists():
            write_whole(path, dump_toml(config))
    if learned:
        order = [row["encoding"] for row in merged]
        learned.sort(key=lambda each: (order.index(each.label), each.seed, each.part))
        write_whole(folder / LEARNED, learned_csv(learned))
    write_whole(folder / RUNS, rows_csv(merged))
    return Published(len(merged), len(merged) - len(known))


def _open_run(comparison: Path, row: Row) -> _Run:
    name = parse_arm(row["encoding"]).folder_name
    folder = RunFolder(comparison / f"{name}-seed{row['seed']}")
    config = without_places(load_config(str(folder.config)))
    if row["config_hash"] not in hashes_of_file(folder.config):
        raise InputError(f"{folder.config} is not the config of the row of {row['encoding']}")
    return _Run(row, folder, config)


def _merge_configs(folder: Path, runs: Sequence[_Run]) -> dict[Path, Experiment]:
    """One config for each encoding; those there stay, and all runs must have been trained alike."""
    configs = {path: load_config(str(path)) for path in sorted(folder.glob("*.toml"))}
    for run in runs:
        own = folder / f"{parse_arm(run.row['encoding']).folder_name}.toml"
        configs.setdefault(own, run.config)
        for path in (own, next(iter(configs))):  # all are like the first, but for the encoding
            keys = [
                key
                for key in differing_keys(configs[path], run.config)
                if key != "seed" and (path == own or not is_of_an_arm(key))
            ]
            if keys:
                raise InputError(f"{run.folder.config} and {path} differ in {', '.join(keys)}")
    return configs


def _merge_learned(known: Sequence[Learned], runs: Sequence[_Run]) -> list[Learned]:
    """What is known stays; the rest is read from the weights of the runs, where these are left."""
    learned = {each[:3]: each for each in known}
    for run in runs:
        label, seed, weights = run.row["encoding"], int(run.row["seed"]), run.folder.weights
        ends = numbers_of(run.config, weights) if weights.exists() else []
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
    """All rows, encodings in the order they first came in, each by seed; those known stay.

    `hashes` has the present hash of configs whose rows were published under an old one.
    """
    merged: dict[tuple[str, str], Row] = {}
    for row in (*known, *rows):
        there = merged.setdefault((row["encoding"], row["seed"]), row)
        for column in _REPEATED:
            if hashes.get(there[column], there[column]) != hashes.get(row[column], row[column]):
                raise InputError(
                    f"{row['encoding']} with seed {row['seed']} is published with "
                    f"{column}={there[column]}, and this run has {row[column]}"
                )
    encodings = list(dict.fromkeys(row["encoding"] for row in merged.values()))
    return sorted(
        merged.values(), key=lambda row: (encodings.index(row["encoding"]), int(row["seed"]))
    )


def _read_rows(path: Path) -> list[Row]:
    """The rows of a file, none if there is no such file."""
    rows = rows_of_csv(path.read_text(encoding="utf-8")) if path.exists() else []
    for row in rows:
        missing = [column for column in ("encoding", "seed", *_REPEATED) if row.get(column) is None]
        if missing:
            raise InputError(f"{path}: a row has no {missing[0]}")
    if len({(row["encoding"], row["seed"]) for row in rows}) < len(rows):
        raise InputError(f"{path} has two rows of one run")
    return rows


def without_places(config: Experiment) -> Experiment:
    """The config with the names of its files, but not where they are."""
    names = file_names(plain_table(config))
    return change_config(config, [f'{key}="{name}"' for key, name in names.items()])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m training.study.publish",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("comparison", type=Path, help="the folder of wefpe compare")
    parser.add_argument("folder", type=Path, help="where its rows and configs go")
    options = parser.parse_args(arguments)
    try:
        found = publish(options.comparison, options.folder)
    except (InputError, RunError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    print(f"{found.rows} rows, {found.new} of them new, and their configs are in {options.folder}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
