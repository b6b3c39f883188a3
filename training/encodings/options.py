"""Options of encodings: declared once as a dataclass, checked and described from it.

The annotation is the type, `Literal` lists the choices, and the metadata hold the range and the
meaning; the error messages, ``wefpe encodings`` and the documentation are made from these.
"""

from __future__ import annotations

import math
import numbers
import types
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from training.errors import EncodingOptionError


@dataclass(frozen=True)
class NoOptions:
    """For encodings without any."""


@dataclass(frozen=True)
class OptionDescription:
    """One option as users see it."""

    name: str
    type: str
    default: Any
    meaning: str


def option(
    default: Any,
    meaning: str,
    *,
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
) -> Any:
    """A field of an options dataclass: its default, its meaning and the range of a number."""
    return field(
        default=default,
        metadata={"meaning": meaning, "above": above, "at_least": at_least, "below": below},
    )


def describe_options(options_class: type[Any]) -> tuple[OptionDescription, ...]:
    """The options of an encoding in the order of their declaration."""
    hints = get_type_hints(options_class)
    return tuple(
        OptionDescription(
            name=each.name,
            type=_type_text(hints[each.name]),
            default=each.default,
            meaning=each.metadata["meaning"],
        )
        for each in fields(options_class)
    )


def parse_options(options_class: type[Any], encoding: str, given: Mapping[str, Any]) -> Any:
    """An `options_class` from what a user gave.

    Raises
    ------
    EncodingOptionError
        An option is unknown (the message lists those that exist), of a wrong type or out of range.
    """
    hints = get_type_hints(options_class)
    known = {each.name: each for each in fields(options_class)}
    values = {}
    for name, value in given.items():
        if name not in known:
            takes = ", ".join(known) or "none"
            raise EncodingOptionError(
                f"encoding {encoding!r} has no option {name!r}; its options: {takes}"
            )
        where = f"option {name!r} of encoding {encoding!r}"
        values[name] = _checked(value, hints[name], where)
        _check_range(values[name], known[name].metadata, where)
    return options_class(**values)


def _checked(value: Any, hint: Any, where: str) -> Any:
    kinds = _alternatives(hint)
    if value is None and type(None) in kinds:
        return None
    for kind in kinds:
        if get_origin(kind) is Literal:
            for choice in get_args(kind):
                if value == choice and type(value) is type(choice):
                    return value
        elif kind is bool:
            if isinstance(value, bool):
                return value
        elif kind is int:
            if isinstance(value, numbers.Integral) and not isinstance(value, bool):
                return int(value)
        elif kind is float:
            is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
            if is_number and math.isfinite(value):
                return float(value)
        elif kind is str:
            if isinstance(value, str):
                return value
        elif get_origin(kind) is Mapping and isinstance(value, Mapping):
            return dict(value)
    raise EncodingOptionError(f"{where} must be {_type_text(hint)}, got {value!r}")


def _check_range(value: Any, metadata: Mapping[str, Any], where: str) -> None:
    if not isinstance(value, (int, float)):
        return
    above, at_least, below = (metadata[key] for key in ("above", "at_least", "below"))
    if above is not None and not value > above:
        raise EncodingOptionError(f"{where} must be above {above:g}, got {value!r}")
    if at_least is not None and not value >= at_least:
        raise EncodingOptionError(f"{where} must be at least {at_least:g}, got {value!r}")
    if below is not None and not value < below:
        raise EncodingOptionError(f"{where} must be below {below:g}, got {value!r}")


def _alternatives(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _type_text(hint: Any) -> str:
    names = {bool: "true or false", int: "an integer", float: "a number", str: "text"}
    names |= {type(None): "unset"}
    texts = []
    for kind in _alternatives(hint):
        if get_origin(kind) is Literal:
            texts += [repr(choice) for choice in get_args(kind)]
        else:
            texts.append(names.get(kind, "a table of options"))
    return " or ".join(texts)
