"""Files and overrides become an `Experiment`, or a `ConfigError` that lists all mistakes."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from training.config.dump import plain_table
from training.config.errors import ConfigError, Problem, RuleViolations, shown
from training.config.schema import (
    UNREADABLE,
    UNSET,
    ConfigSection,
    Experiment,
    PositionEncoding,
)
from training.parsing import toml_value
from wefpe_core.errors import did_you_mean

KeyPath = tuple[str, ...]

_ENCODING, _NAME = "position_encoding", "name"
_DEFAULT_ENCODING = PositionEncoding().name
_SUFFIX = ".toml"
_BASE = "base"  # the only key of a file that is not one of the experiment

# What a value must be, by the kind of pydantic's error.
_MUST = {
    "int_type": "must be an integer",
    "int_from_float": "must be an integer",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "tuple_type": "must be a list",
    "finite_number": "must be finite",
    "model_type": "must be a table",
    "dict_type": "must be a table",
    "greater_than": "must be above {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than": "must be below {lt:g}",
    "less_than_equal": "must be at most {le:g}",
    "too_long": "must have {max_length} entries",
    "too_short": "must have {min_length} entries",
    "missing": "is missing",
    "literal_error": "must be {expected}",
}
_EXPLAINED = {
    ("selection.by", "test"): "the test set is read once, after training, and chooses nothing: "
    "a number selected on it is too high. Say 'validation' or 'last'",
}


def load_config(name: str | Path, overrides: Sequence[str] = ()) -> Experiment:
    """The experiment of a config file.

    Parameters
    ----------
    name : str or Path
        A shipped config (`available_configs`) by its name, or the path of a .toml file. It holds
        differences from ``default.toml``, or from the config its key ``base`` names: a shipped
        one, or a path beside it.
    overrides : sequence of str
        ``key=value`` each, as in ``training.epochs=3``, winning over the file.

    Raises
    ------
    ConfigError
        There is no such file, a key is unknown, a value is of a wrong type or out of range, or
        values do not go together. Everything found is listed with key, value and file.
    """
    layers = Layers()
    for file in read_chain(name):
        layers.add(file.table, file.source)
    return _checked(layers, overrides)


def change_config(config: Experiment, overrides: Sequence[str]) -> Experiment:
    """The experiment with ``key=value`` changes, checked again."""
    layers = Layers()
    layers.add(plain_table(config), "the config given")
    return _checked(layers, overrides)


def _checked(layers: Layers, overrides: Sequence[str]) -> Experiment:
    read, problems = parse_overrides(overrides)
    for override in read:
        layers.add(override.table, override.source)
    try:
        config = Experiment.model_validate(layers.table)
    except ValidationError as error:
        problems += _problems(error, layers)
        problems += _violations_beside(error, layers)
    if problems:
        raise ConfigError(problems)
    return config


# --- Layers: tables laid over one another ------------------------------------------------------


class Layers:
    """The table that results, and the file or override that each of its values is from."""

    def __init__(self) -> None:
        self.table: dict[str, Any] = {}
        self._sources: dict[KeyPath, str] = {}

    def add(self, layer: Mapping[str, Any], source: str) -> None:
        """Lay a table on top: its values win, its tables are merged key by key.

        A layer that names another position encoding starts from that one's defaults, since the
        layers below speak of the encoding that was there before.
        """
        place = layer.get(_ENCODING)
        if isinstance(place, Mapping) and _NAME in place:
            below = self.table.get(_ENCODING)
            if isinstance(below, dict) and place[_NAME] != below.get(_NAME, _DEFAULT_ENCODING):
                below.clear()
        self._lay(self.table, layer, source, ())

    def _lay(
        self, table: dict[str, Any], layer: Mapping[str, Any], source: str, at: KeyPath
    ) -> None:
        for key, value in layer.items():
            path = (*at, key)
            if not isinstance(value, Mapping):
                table[key] = deepcopy(value)
            else:
                if not isinstance(table.get(key), dict):
                    table[key] = {}
                self._lay(table[key], value, source, path)
            self._sources[path] = source

    def source(self, path: KeyPath) -> str:
        """Where the value at this path is from, or the nearest table around it; "" if it is not."""
        while path:
            if path in self._sources:
                return self._sources[path]
            path = path[:-1]
        return ""


# --- Files: found by shipped name or by path, and read with those they start from --------------


class ConfigFile(NamedTuple):
    """What a file holds, and how errors name it."""

    table: dict[str, Any]
    source: str


def shipped_folder() -> Path:
    """Where the configs of this package are."""
    return Path(str(files("training") / "config" / "experiments"))


def available_configs() -> dict[str, str]:
    """Names `load_config` knows, each with the first line of its file."""
    listing = {}
    for path in sorted(shipped_folder().glob(f"*{_SUFFIX}")):
        with path.open(encoding="utf-8") as file:
            listing[path.stem] = file.readline().lstrip("#").strip()
    return listing


def read_chain(name: str | Path) -> list[ConfigFile]:
    """The file and those it starts from by its key ``base``, the file itself last."""
    chain: list[ConfigFile] = []
    seen: list[Path] = []
    wanted: str | Path | None = name
    beside, asked_by = Path(), ""
    while wanted is not None:
        path = _find(wanted, beside, asked_by)
        if path in seen:
            circle = " -> ".join(each.name for each in [*seen, path])
            raise ConfigError([Problem(_BASE, f"the files go in a circle: {circle}", wanted)])
        seen.append(path)
        table = _read(path)
        source = path.name if path.parent == shipped_folder() else str(path)
        wanted = table.pop(_BASE, None)
        if wanted is not None and not isinstance(wanted, str):
            raise ConfigError(
                [Problem(_BASE, "must be the name or the path of a config", wanted, source)]
            )
        chain.append(ConfigFile(table, source))
        beside, asked_by = path.parent, source
    return chain[::-1]


def _find(name: str | Path, beside: Path, asked_by: str) -> Path:
    """A shipped config by its name, or a file; a base is looked for beside the file that names it.

    A word is a name; anything with a suffix or a folder in it is a path. That way a file in the
    working directory never stands in for a shipped config by chance.
    """
    text = str(name)
    key = _BASE if asked_by else ""
    if isinstance(name, str) and not name.endswith(_SUFFIX) and Path(name).name == name:
        path = shipped_folder() / f"{name}{_SUFFIX}"
        if path.is_file():
            return path
        known = available_configs()
        hint = did_you_mean(name, known, count=3)
        if not hint:
            hint = f"; there are {', '.join(known)}"
        problem = f"there is no config {name!r}{hint}"
        if Path(f"{name}{_SUFFIX}").is_file():
            problem += f" (for the file say ./{name}{_SUFFIX})"
        raise ConfigError([Problem(key, problem, source=asked_by)])
    path = beside / Path(text).expanduser()
    if path.is_file():
        return path.resolve()
    if path.is_dir():
        raise ConfigError([Problem(key, f"{path} is a directory, not a config", source=asked_by)])
    neighbours = [each.name for each in path.parent.glob(f"*{_SUFFIX}")]
    hint = did_you_mean(path.name, neighbours, count=3)
    raise ConfigError([Problem(key, f"there is no file {path}{hint}", source=asked_by)])


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([Problem("", f"cannot be read: {error}", source=str(path))]) from error
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:  # names the line and the column
        raise ConfigError([Problem("", f"is not valid TOML: {error}", source=str(path))]) from error


# --- Overrides: key=value, a value as in TOML, text also without quotes ------------------------


class Override(NamedTuple):
    """A table that holds one value, and how errors name the override."""

    table: dict[str, Any]
    source: str


def parse_overrides(overrides: Sequence[str]) -> tuple[list[Override], list[Problem]]:
    """The overrides that can be read, in the order to apply them, and what is wrong with others.

    The name of the encoding comes first, since another name drops the options given before it.
    """
    read: list[tuple[list[str], Override]] = []
    problems = []
    for text in overrides:
        key, equals, given = text.partition("=")
        words = [word.strip() for word in key.split(".")]
        source = f"override {shown(text)}"
        if not equals or not all(words):
            message = "an override is key=value, as in training.epochs=3"
            problems.append(Problem("", message, source=source))
            continue
        value: Any = _value(given.strip(), is_text=_is_text(words))
        for word in reversed(words):
            value = {word: value}
        read.append((words, Override(value, source)))
    read.sort(key=lambda each: each[0] != [_ENCODING, _NAME])
    return [override for _, override in read], problems


def _value(text: str, *, is_text: bool) -> Any:
    is_quoted = text[:1] in ('"', "'")
    return text if is_text and not is_quoted else toml_value(text)


def _is_text(words: list[str]) -> bool:
    """Whether the key holds text, so that path=2024 is not a number."""
    section: Any = Experiment
    for word in words:
        if not (isinstance(section, type) and issubclass(section, ConfigSection)):
            return False
        field = section.model_fields.get(word)
        if field is None:
            return False
        section = field.annotation
    return section is str


# --- Errors ------------------------------------------------------------------------------------


def _problems(error: ValidationError, layers: Layers) -> Iterator[Problem]:
    for each in error.errors():
        raised = each.get("ctx", {}).get("error")
        if isinstance(raised, RuleViolations):
            for problem in raised.problems:
                path = tuple(problem.key.split("."))
                yield problem._replace(source=layers.source(path) or "default.toml")
            continue
        path = tuple(word for word in each["loc"] if isinstance(word, str))
        places = "".join(f"[{place}]" for place in each["loc"] if isinstance(place, int))
        key = ".".join(path)
        yield Problem(key + places, _message(each, key), each["input"], layers.source(path))


def _violations_beside(error: ValidationError, layers: Layers) -> Iterator[Problem]:
    """What does not go together, beside values that are wrong by themselves.

    Rules are about an experiment whose values are all right. The wrong ones are left at their
    defaults, and rules that read their tables are left out.
    """
    wrong = [tuple(each["loc"]) for each in error.errors() if each["loc"]]
    if not wrong:  # the rules have spoken
        return
    rest = deepcopy(layers.table)
    for path in wrong:
        _remove(rest, path)
    try:
        unreadable = {path[0] for path in wrong}
        Experiment.model_validate(rest, context={UNREADABLE: unreadable})
    except ValidationError as other:
        if all(not each["loc"] for each in other.errors()):
            yield from _problems(other, layers)


def _remove(table: dict[str, Any], path: tuple[str | int, ...]) -> None:
    """Take out the value at a path, or the innermost table around it that is there."""
    for word in path[:-1]:
        inner = table.get(str(word))
        if not isinstance(inner, dict):
            table.pop(str(word), None)
            return
        table = inner
    table.pop(str(path[-1]), None)


def _message(error: Mapping[str, Any], key: str) -> str:
    value = error["input"]
    if error["type"] == "extra_forbidden":
        return _unknown(key)
    if isinstance(value, str) and (key, value) in _EXPLAINED:
        return _EXPLAINED[key, value]
    template = _MUST.get(error["type"])
    message = error["msg"] if template is None else template.format(**error.get("ctx", {}))
    if error["type"] == "literal_error" and isinstance(value, str):
        message += did_you_mean(value, (word.strip("'") for word in _choices(error)))
    elif _is_optional(key):
        message += f' or "{UNSET}"'
    return message


def _choices(error: Mapping[str, Any]) -> list[str]:
    return str(error["ctx"]["expected"]).replace(" or ", ", ").split(", ")


def all_keys(section: type[ConfigSection] = Experiment, prefix: str = "") -> Iterator[str]:
    """Every dotted key of the schema that holds a value."""
    for name, field in section.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, ConfigSection):
            yield from all_keys(kind, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _is_optional(key: str) -> bool:
    section: Any = Experiment
    *tables, name = key.split(".")
    for table in tables:
        field = section.model_fields.get(table)
        section = None if field is None else field.annotation
        if not (isinstance(section, type) and issubclass(section, ConfigSection)):
            return False
    field = section.model_fields.get(name)
    return field is not None and field.default is None and field.default_factory is None


def _unknown(key: str) -> str:
    """The message about an unknown key, which may be misspelt or belong to another table."""
    table, _, name = key.rpartition(".")
    keys = list(all_keys())
    elsewhere = [known for known in keys if known.rpartition(".")[2] == name]
    if elsewhere:
        return f"there is no such key here; did you mean {' or '.join(elsewhere)}?"
    prefix = f"{table}." if table else ""
    here = [known.removeprefix(prefix) for known in keys if known.rpartition(".")[0] == table]
    if not table:
        here = list(Experiment.model_fields)
    hint = did_you_mean(name, here)
    if not hint:
        hint = f"; there are {', '.join(here)}" if here else ""
    return f"there is no such key{hint}"
