"""Hashes of configs as they were made before schema versions: of every key, default or not.

Rows that were published and runs that were finished then are recorded under such a hash. A file
of a config that was written then holds every key of its time, so its old hash can be computed.
``docs/results/hashes.json`` maps the old hash of every published row to the present one; it is
made by ``write_hash_mapping("docs/results")``.
"""

from __future__ import annotations

import csv
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from training.config.dump import config_hash, digest, with_effect
from training.config.load import load_config

MAPPING = "hashes.json"


def legacy_hash(table: Mapping[str, Any]) -> str:
    """The old hash of the table in a file of a config, also if it is no longer valid."""
    return digest(with_effect(table, table))


def hashes_of_file(path: str | Path) -> set[str]:
    """The hashes under which a run with this file of its config may be recorded: old and new."""
    table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    return {legacy_hash(table), config_hash(load_config(Path(path)))}


def read_hash_mapping(study: str | Path) -> dict[str, str]:
    """The present hash of every old one that is recorded beside published rows, if any is."""
    path = Path(study) / MAPPING
    mapping: dict[str, str] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    return mapping


def hash_mapping(study: str | Path) -> dict[str, str]:
    """The present hash of every published row with an old one, from the configs beside the rows."""
    mapping = {}
    for rows in sorted(Path(study).glob("*/runs.csv")):
        with rows.open(encoding="utf-8", newline="") as file:
            recorded = {(row["config_hash"], int(row["seed"])) for row in csv.DictReader(file)}
        for path in sorted((rows.parent / "configs").glob("*.toml")):
            table, config = tomllib.loads(path.read_text(encoding="utf-8")), load_config(path)
            for seed in {seed for _, seed in recorded}:
                old = legacy_hash(table | {"seed": seed})
                if (old, seed) in recorded:
                    mapping[old] = config_hash(config.model_copy(update={"seed": seed}))
    return dict(sorted(mapping.items()))


def write_hash_mapping(study: str | Path) -> None:
    """Write `hash_mapping` beside the published rows."""
    text = json.dumps(hash_mapping(study), indent=2) + "\n"
    (Path(study) / MAPPING).write_text(text, encoding="utf-8")
