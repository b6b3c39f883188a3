"""From files and overrides to an `Experiment`, or a `ConfigError` with all that is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from training.configuration.dump import plain_table
from training.configuration.errors import ConfigError, Problem, RuleViolations
from training.configuration.files import read_chain
from training.configuration.layers import Layers
from training.configuration.overrides import parse_overrides
from training.configuration.schema import UNSET, Experiment, Section
from wefpe_core.errors import did_you_mean

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
        There is no such file, or a key is unknown, a value of a wrong type or out of range, or
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
    if problems:
        raise ConfigError(problems)
    return config


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


def all_keys(section: type[Section] = Experiment, prefix: str = "") -> Iterator[str]:
    """Every dotted key of the schema that holds a value."""
    for name, field in section.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, Section):
            yield from all_keys(kind, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _is_optional(key: str) -> bool:
    section: Any = Experiment
    *tables, name = key.split(".")
    for table in tables:
        field = section.model_fields.get(table)
        section = None if field is None else field.annotation
        if not (isinstance(section, type) and issubclass(section, Section)):
            return False
    field = section.model_fields.get(name)
    return field is not None and field.default is None and field.default_factory is None


def _unknown(key: str) -> str:
    """Unknown: misspelt in its own table, or right in another one."""
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
