"""How options of encodings are declared, checked and described: by pydantic, without torch."""

from __future__ import annotations

import numbers
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from training.encodings.size import EncodingSize
from training.errors import EncodingOptionError
from wefpe_core.errors import did_you_mean

_RANGES = {
    "greater_than": "above {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "less_than": "below {lt:g}",
}
_TYPE_NAMES = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "text",
    type(None): "unset",
}


class EncodingOptions(BaseModel):
    """The options of an encoding: one field for each, declared by `option`.

    The annotation is the type, `Literal` lists the choices, and `option` holds the default, the
    range and the meaning. The error messages, ``wefpe encodings`` and the documentation are made
    from these. Nothing is converted: text is no number, and 1 is not true.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _exact(cls, value: Any, info: ValidationInfo) -> Any:
        """NumPy's numbers as Python's own; and 4.0 is not the choice 4, though they are equal."""
        value = _number_of_python(value)
        if not isinstance(value, (bool, int, float, str, Mapping, tuple, list, type(None))):
            # To pydantic all that has a __float__ is a float; a tensor would lose its gradient.
            raise ValueError("neither a number of Python or NumPy, nor text, nor a table")
        choices = choices_of(cls.model_fields[str(info.field_name)].annotation)
        equal = [type(choice) for choice in choices if choice == value]
        if equal and type(value) not in equal:
            raise ValueError("equal to a choice, but of another type")
        return value

    def check(self, size: EncodingSize) -> None:
        """Raise a `WefpeError` if the options contradict each other or do not suit the size.

        Whoever builds an encoding calls this before the constructor, which need not check again;
        a config is judged by it without torch.
        """


class NoOptions(EncodingOptions):
    """For encodings without any."""


def _number_of_python(value: Any) -> Any:
    if isinstance(value, (bool, int, float)) or not isinstance(value, numbers.Real):
        return value
    return int(value) if isinstance(value, numbers.Integral) else float(value)


def option(
    default: Any,
    meaning: str,
    *,
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
) -> Any:
    """A field of an options class: its default, its meaning and the range of a number."""
    return Field(default=default, description=meaning, gt=above, ge=at_least, lt=below)


class OptionProblem(NamedTuple):
    """An option that is unknown, of a wrong type or out of range."""

    name: str  # "" if several options do not go together
    value: Any
    message: str  # "must be above 0": what is wrong, without name and value
    is_unknown: bool = False


def validate_options(
    options_class: type[EncodingOptions], given: Mapping[str, Any]
) -> tuple[Any, list[OptionProblem]]:
    """An instance of the options class and no problem, or None and everything that is wrong."""
    try:
        return options_class.model_validate(dict(given)), []
    except ValidationError as error:
        return None, [_problem(options_class, each) for each in error.errors()]


def _problem(model: type[EncodingOptions], error: Mapping[str, Any]) -> OptionProblem:
    name = str(error["loc"][0]) if error["loc"] else ""
    if error["type"] == "extra_forbidden":
        known = list(model.model_fields)
        message = f"its options: {', '.join(known) or 'none'}{did_you_mean(name, known, count=2)}"
        return OptionProblem(name, error["input"], message, is_unknown=True)
    if error["type"] in _RANGES:
        allowed = _RANGES[error["type"]].format(**error["ctx"])
    elif name in model.model_fields:
        allowed = _type_text(model.model_fields[name].annotation)
    else:
        return OptionProblem(name, error["input"], str(error["msg"]))
    return OptionProblem(name, error["input"], f"must be {allowed}")


def parse_options(
    options_class: type[EncodingOptions], encoding: str, given: Mapping[str, Any]
) -> Any:
    """An instance of the options class from what a user gave.

    Raises
    ------
    EncodingOptionError
        An option is unknown (the message lists those that exist), of a wrong type or out of range.
    """
    parsed, problems = validate_options(options_class, given)
    if problems:
        raise EncodingOptionError("; ".join(_sentence(encoding, each) for each in problems))
    return parsed


def _sentence(encoding: str, problem: OptionProblem) -> str:
    if problem.is_unknown:
        return f"encoding {encoding!r} has no option {problem.name!r}; {problem.message}"
    if not problem.name:
        return f"encoding {encoding!r}: {problem.message}"
    where = f"option {problem.name!r} of encoding {encoding!r}"
    return f"{where} {problem.message}, got {problem.value!r}"


@dataclass(frozen=True)
class OptionDescription:
    """One option as users see it."""

    name: str
    type: str
    default: Any
    meaning: str


def describe_options(options_class: type[EncodingOptions]) -> tuple[OptionDescription, ...]:
    """The options of an encoding in the order of their declaration."""
    return tuple(
        OptionDescription(
            name=name,
            type=_type_text(field.annotation),
            default=field.get_default(call_default_factory=True, validated_data={}),
            meaning=field.description or "",
        )
        for name, field in options_class.model_fields.items()
    )


def choices_of(hint: Any) -> list[Any]:
    """What a literal type, alone or in a union, allows."""
    if get_origin(hint) is Literal:
        return list(get_args(hint))
    return [choice for part in get_args(hint) for choice in choices_of(part)]


def _type_text(hint: Any) -> str:
    is_union = get_origin(hint) in (Union, types.UnionType)
    texts = []
    for kind in get_args(hint) if is_union else (hint,):
        if get_origin(kind) is Literal:
            texts += [repr(choice) for choice in get_args(kind)]
        else:
            texts.append(_TYPE_NAMES.get(kind, "a table of options"))
    return " or ".join(texts)
