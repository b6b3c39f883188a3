"""Take from a comparison what is worth keeping in a repository: its rows and its configs.

    python -m training.comparison.publish comparisons/cifar100_cpu docs/results/scratch

The folder gets ``runs.csv``, and in ``configs`` the effective config of each encoding, that of its
first seed; the configs of the others differ from it in the seed alone. Of paths the last two
names are kept: they say which files, not where they are.
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Sequence
from pathlib import Path

from training.comparison.arms import parse_arm
from training.configuration import (
    Experiment,
    change_config,
    config_hash,
    dump_toml,
    file_names,
    load_config,
    plain_table,
)
from training.engine.run_folder import RunFolder, write_whole
from wefpe_core.errors import InputError


def publish(comparison: Path, folder: Path) -> int:
    """Copy rows and configs; returns the number of rows."""
    try:
        text = (comparison / "runs.csv").read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{comparison} holds no comparison: {error}") from error
    configs: dict[str, Experiment] = {}
    rows = list(csv.DictReader(io.StringIO(text)))
    for row in rows:
        name = parse_arm(row["encoding"]).folder_name
        path = RunFolder(comparison / f"{name}-seed{row['seed']}").config
        config = without_places(load_config(str(path)))
        if config_hash(config) != row["config_hash"]:
            raise InputError(f"{path} is not the config of the row of {row['encoding']}")
        first = configs.setdefault(name, config)
        if config_hash(change_config(first, [f"seed={row['seed']}"])) != row["config_hash"]:
            raise InputError(f"{path} differs from that of the first seed in more than the seed")
    for name, config in configs.items():
        write_whole(folder / "configs" / f"{name}.toml", dump_toml(config))
    write_whole(folder / "runs.csv", text)
    return len(rows)


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
        rows = publish(options.comparison, options.folder)
    except InputError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    print(f"{rows} rows and their configs are in {options.folder}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
