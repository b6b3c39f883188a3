"""The effective config as TOML, and a short name for what it says."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

from training.config.schema import UNSET, Experiment
from training.data.datasets import DATASETS

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
# Where and how a run is watched, not what it computes.
_WITHOUT_EFFECT = (
    ("logging",),
    ("checkpoint",),
    ("training", "threads"),
    ("data", "path"),
    ("data", "download"),
    ("model", "checkpoint"),
)
# Data sets that are whatever lies at data.path.
_CHOSEN_BY_PATH = {name for name, each in DATASETS.items() if each.needs == "folder"}
_HASH_DIGITS = 16


def dump_toml(config: Experiment) -> str:
    """Every key of the experiment with its value; `load_config` of it gives an equal one."""
    sections: dict[str, Any] = {}
    values: dict[str, Any] = {}
    for name, value in plain_table(config).items():
        (sections if isinstance(value, Mapping) else values)[name] = value
    parts = [_assignments(values)]
    parts += [f"[{name}]\n{_assignments(section)}" for name, section in sections.items()]
    return "\n".join(parts)


def config_hash(config: Experiment) -> str:
    """16 hexadecimal digits that are equal for configs of the same experiment.

    Left out is what has no effect on the numbers: logging, checkpoint, training.threads, and
    where files are. Of the weights and of a folder of images the last two names of the path
    count: they say which ones are meant, wherever they are kept.
    """
    return table_hash(plain_table(config))


def hash_without_seed(config: Experiment) -> str:
    """The same for runs that differ in nothing but the seed."""
    return config_hash(config.model_copy(update={"seed": 0}))


def table_hash(table: Mapping[str, Any]) -> str:
    """`config_hash` of a table as `dump_toml` writes it, also of one that is no longer valid."""
    text = json.dumps(_with_effect(table), sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_DIGITS]


def differing_keys(one: Experiment, other: Experiment) -> list[str]:
    """The keys with an effect on the numbers in which two experiments differ."""
    first, second = (dict(_flat(_with_effect(plain_table(config)))) for config in (one, other))
    return [key for key in first | second if first.get(key, UNSET) != second.get(key, UNSET)]


def _with_effect(table: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: table[key] for key in table if (key,) not in _WITHOUT_EFFECT}
    for section, name in (keys for keys in _WITHOUT_EFFECT if len(keys) == 2):
        kept[section] = {key: value for key, value in kept[section].items() if key != name}
    names = file_names(table)
    kept["weights"] = names["model.checkpoint"]
    if table["data"]["name"] in _CHOSEN_BY_PATH:
        kept["images"] = names["data.path"]
    return kept


def file_names(table: Mapping[str, Any]) -> dict[str, str]:
    """The keys that hold paths, with what of these says which files are meant: two names."""
    data, weights = table["data"], table["model"]["checkpoint"]
    images = data["path"] if data["name"] in _CHOSEN_BY_PATH else ""
    return {
        key: "/".join(PurePath(path).parts[-2:])
        for key, path in (("data.path", images), ("model.checkpoint", weights))
    }


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


def plain_table(config: Experiment) -> dict[str, Any]:
    """The experiment as TOML would give it: tables, lists, and "unset" for None."""
    table = _plain(config.model_dump())
    assert isinstance(table, dict)
    return table


def _plain(value: Any) -> Any:
    if value is None:
        return UNSET
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value


def _assignments(table: Mapping[str, Any]) -> str:
    """Lines key = value; tables within a section are written in one line."""
    return "".join(f"{_key(key)} = {_value(value)}\n" for key, value in table.items())


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        inside = ", ".join(f"{_key(key)} = {_value(each)}" for key, each in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return repr(value)  # of a float: the shortest text that gives the same float back


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _text(key)


def _text(text: str) -> str:
    def escaped(character: str) -> str:
        if character in _ESCAPES:
            return _ESCAPES[character]
        if character.isprintable():
            return character
        number = ord(character)
        return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"

    return '"' + "".join(map(escaped, text)) + '"'
