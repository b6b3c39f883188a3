"""``key=value`` on the command line: a value as TOML writes it, text also without quotes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from training.configuration.errors import Problem, shown
from training.configuration.schema import Experiment, Section
from training.toml_values import toml_value

_FIRST = ["position_encoding", "name"]  # decides whether the options below it still count


class Override(NamedTuple):
    table: dict[str, Any]  # of one value
    source: str


def parse_overrides(overrides: Sequence[str]) -> tuple[list[Override], list[Problem]]:
    """The overrides that can be read, in the order to apply them, and what is wrong with others."""
    read: list[tuple[list[str], Override]] = []
    problems = []
    for text in overrides:
        key, equals, written = text.partition("=")
        words = [word.strip() for word in key.split(".")]
        source = f"override {shown(text)}"
        if not equals or not all(words):
            message = "an override is key=value, as in training.epochs=3"
            problems.append(Problem("", message, source=source))
            continue
        value: Any = _value(written.strip(), is_text=_is_text(words))
        for word in reversed(words):
            value = {word: value}
        read.append((words, Override(value, source)))
    read.sort(key=lambda each: each[0] != _FIRST)
    return [override for _, override in read], problems


def _value(text: str, *, is_text: bool) -> Any:
    is_quoted = text[:1] in ('"', "'")
    return text if is_text and not is_quoted else toml_value(text)


def _is_text(words: list[str]) -> bool:
    """Whether the key holds text, so that path=2024 is not a number."""
    section: Any = Experiment
    for word in words:
        if not (isinstance(section, type) and issubclass(section, Section)):
            return False
        field = section.model_fields.get(word)
        if field is None:
            return False
        section = field.annotation
    return section is str
