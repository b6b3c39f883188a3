"""Take from a comparison what is worth keeping in a repository: its rows and its configs.

    python -m training.comparison.publish comparisons/cifar100_cpu docs/results/scratch

The folder gets ``runs.csv``, and in ``configs`` the effective config of each encoding, that of its
first seed; the configs of the others differ from it in the seed alone. Of paths the last two
names are kept: they say which files, not where they are.

Rows that are in the folder already stay, so the runs of a study may come from several
comparisons and machines. A run that was made again must have the numbers of its row.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from training.comparison.arms import parse_arm
from training.comparison.tables import RUNS, rows_csv, rows_of_csv
from training.configuration import (
    Experiment,
    change_config,
    config_hash,
    dump_toml,
    file_names,
    load_config,
    plain_table,
    table_hash,
)
from training.engine.run_folder import RunFolder, write_whole
from wefpe_core.errors import InputError

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


def publish(comparison: Path, folder: Path) -> Published:
    """Add the rows of a comparison, with their configs, to those of a folder."""
    try:
        rows = rows_of_csv((comparison / RUNS).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{comparison} holds no comparison: {error}") from error
    known = rows_of_csv(_text_of(folder / RUNS))
    merged = merge_rows(known, rows)
    texts: dict[Path, str] = {}
    for row in rows:
        name = parse_arm(row["encoding"]).folder_name
        path = RunFolder(comparison / f"{name}-seed{row['seed']}").config
        config = without_places(load_config(str(path)))
        if config_hash(config) != row["config_hash"]:
            raise InputError(f"{path} is not the config of the row of {row['encoding']}")
        kept = folder / "configs" / f"{name}.toml"
        text = texts.setdefault(kept, _text_of(kept) or dump_toml(config))
        if table_hash(tomllib.loads(text) | {"seed": config.seed}) != row["config_hash"]:
            raise InputError(f"{path} differs from that of the first seed in more than the seed")
    for kept, text in texts.items():
        write_whole(kept, text)
    write_whole(folder / RUNS, rows_csv(merged))
    return Published(len(merged), len(merged) - len(known))


def merge_rows(known: Sequence[Row], rows: Sequence[Row]) -> list[Row]:
    """All rows, seed by seed, encodings in the order they first came in; those known stay."""
    merged = {_run_of(row): row for row in known}
    for row in rows:
        there = merged.setdefault(_run_of(row), row)
        for column in _REPEATED:
            if there[column] != row[column]:
                raise InputError(
                    f"{row['encoding']} with seed {row['seed']} is published with "
                    f"{column}={there[column]}, and this run has {row[column]}"
                )
    encodings = list(dict.fromkeys(row["encoding"] for row in merged.values()))
    return sorted(
        merged.values(), key=lambda row: (int(row["seed"]), encodings.index(row["encoding"]))
    )


def _run_of(row: Row) -> tuple[str, str]:
    return row["encoding"], row["seed"]


def _text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def without_places(config: Experiment) -> Experiment:
    """The config with the names of its files, but not where they are."""
    names = file_names(plain_table(config))
    return change_config(config, [f'{key}="{name}"' for key, name in names.items()])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m training.comparison.publish",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("comparison", type=Path, help="the folder of wefpe compare")
    parser.add_argument("folder", type=Path, help="where its rows and configs go")
    options = parser.parse_args(arguments)
    try:
        found = publish(options.comparison, options.folder)
    except InputError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    print(f"{found.rows} rows, {found.new} of them new, and their configs are in {options.folder}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
