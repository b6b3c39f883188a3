"""`ConfigError`: everything that is wrong with a config, each with its key, value and file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from wefpe_core import WefpeError

_LONGEST_VALUE = 80
NO_VALUE = object()  # the key was not given, so there is no value to show


class Problem(NamedTuple):
    """One thing that is wrong."""

    key: str  # dotted, as in an override; "" if it is about the file
    message: str
    value: Any = NO_VALUE
    source: str = ""  # the file or the override the value is from

    def __str__(self) -> str:
        what = self.key
        if self.value is not NO_VALUE:
            what += f" = {shown(self.value)}"
        if self.source:
            what += f" ({self.source})" if what else self.source
        return f"{what}: {self.message}" if what else self.message


def shown(value: Any) -> str:
    """A value as an error shows it, cut if it is long."""
    text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + "..."


class ConfigError(WefpeError, ValueError):
    """A config does not describe an experiment that can be run; nothing was started.

    Attributes
    ----------
    problems : tuple of Problem
        Everything that was found, in the order of the config.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        lines = [str(problem) for problem in self.problems]
        if len(lines) == 1:
            super().__init__(lines[0])
        else:
            listed = "\n".join(f"  - {line}" for line in lines)
            super().__init__(f"{len(lines)} things are wrong with the config:\n{listed}")


class RuleViolations(WefpeError, ValueError):  # noqa: N818 - the loader unpacks it
    """Keys that are each valid and do not go together; pydantic wraps it in its own error."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(map(str, self.problems)))
