"""The effective config as TOML, a short name for what it says, and how two configs differ."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

from training.config.schema import SCHEMA_VERSION, UNSET, Experiment
from training.data.datasets import DATASETS

# Where and how a run is watched and checked, not what it computes.
WITHOUT_EFFECT = (
    ("verification",),
    ("logging",),
    ("checkpoint",),
    ("training", "threads"),
    ("training", "recompute"),
    ("data", "path"),
    ("data", "download"),
    ("data", "workers"),
    ("model", "checkpoint"),
    ("distillation", "teacher"),
)
# Data sets that are whatever lies at data.path.
CHOSEN_BY_PATH = {name for name, each in DATASETS.items() if each.needs == "folder"}
_HASH_DIGITS = 16


# --- TOML --------------------------------------------------------------------------------------


def dump_toml(config: Experiment) -> str:
    """Every key of the experiment with its value; `load_config` of it gives an equal one."""
    import tomli_w  # here: models and encodings do without it

    text = tomli_w.dumps(plain_table(config))
    # Every list is written in one line. No text has a line break in it, since TOML escapes them.
    for pattern, joined in ((r"\[\n +", "["), (r",\n *\]", "]"), (r",\n +", ", ")):
        text = re.sub(pattern, joined, text)
    return text


def plain_table(config: Experiment) -> dict[str, Any]:
    """The experiment as TOML would give it: tables, lists, and "unset" for None."""
    table = _plain(config.model_dump())
    assert isinstance(table, dict)
    return table


def flat_table(config: Experiment) -> dict[str, Any]:
    """The experiment by dotted keys, for programs that show one value each; lists are text."""
    return {
        key: str(value) if isinstance(value, list) else value
        for key, value in _flat(plain_table(config))
    }


def _plain(value: Any) -> Any:
    if value is None:
        return UNSET
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value


# --- Identity ----------------------------------------------------------------------------------


def config_hash(config: Experiment) -> str:
    """16 hexadecimal digits that are equal for configs of the same experiment.

    The hash is made of the version of the schema and of the keys that differ from their defaults,
    so a new key with a default changes no hash. Keys without an effect on the numbers are left
    out: verification, logging, checkpoint, training.threads, and where files are. Weights, a
    teacher and a folder of images count by the last two names of their path, which say which ones
    are meant wherever they are kept.
    """
    differing = _plain(config.model_dump(exclude_defaults=True))
    kept = with_effect(differing, plain_table(config))
    kept = {key: value for key, value in kept.items() if value not in ({}, "")}
    return digest({"schema": SCHEMA_VERSION, "differing": _same_numbers_alike(kept)})


def hash_without_seed(config: Experiment) -> str:
    """A hash that is equal for runs that differ in nothing but the seed."""
    return config_hash(config.model_copy(update={"seed": 0}))


def digest(table: Mapping[str, Any]) -> str:
    """The first digits of the SHA-256 of a table, whatever the order of its keys."""
    text = json.dumps(table, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_DIGITS]


def _same_numbers_alike(value: Any) -> Any:
    """1 for 1.0: options of encodings may be given as either."""
    if isinstance(value, Mapping):
        return {key: _same_numbers_alike(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_same_numbers_alike(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def with_effect(table: Mapping[str, Any], complete: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a table that have an effect on the numbers, and the names of files.

    `table` may lack keys; `complete` has at least those that name files.
    """
    kept = {key: value for key, value in table.items() if (key,) not in WITHOUT_EFFECT}
    for section, name in (keys for keys in WITHOUT_EFFECT if len(keys) == 2):
        if section in kept:
            kept[section] = {key: value for key, value in kept[section].items() if key != name}
    names = file_names(complete)
    kept["weights"] = names["model.checkpoint"]
    teacher = complete.get("distillation", {}).get("teacher", "")
    if teacher:  # tables of earlier schemas have none
        kept["teacher"] = "/".join(PurePath(teacher).parts[-2:])
    if complete["data"]["name"] in CHOSEN_BY_PATH:
        kept["images"] = names["data.path"]
    return kept


def file_names(table: Mapping[str, Any]) -> dict[str, str]:
    """The keys that hold paths, each with the last two names of its path."""
    data, weights = table["data"], table["model"]["checkpoint"]
    images = data["path"] if data["name"] in CHOSEN_BY_PATH else ""
    return {
        key: "/".join(PurePath(path).parts[-2:])
        for key, path in (("data.path", images), ("model.checkpoint", weights))
    }


# --- Differences -------------------------------------------------------------------------------


def differing_keys(one: Experiment, other: Experiment) -> list[str]:
    """The keys with an effect on the numbers in which two experiments differ."""
    first, second = (
        dict(_flat(with_effect(table, table))) for table in map(plain_table, (one, other))
    )
    return [key for key in first | second if first.get(key, UNSET) != second.get(key, UNSET)]


def differences(before: Experiment, after: Experiment) -> list[str]:
    """The keys in which two experiments differ, with both values."""
    old, new = (dict(_flat(plain_table(config))) for config in (before, after))
    return [
        f"{key} was {old.get(key, UNSET)!r}, is {new.get(key, UNSET)!r}"
        for key in (old | new)
        if old.get(key) != new.get(key)
    ]


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
