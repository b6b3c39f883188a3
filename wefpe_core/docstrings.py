"""What many functions have in common, said in the docstring of each of them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, TypeVar

Class = TypeVar("Class", bound=type)

_SECTION = re.compile(r"^(Parameters|Returns|Raises|Notes|Examples)\n-+$", re.MULTILINE)


def says_of_each_function(text: str) -> Callable[[Class], Class]:
    """Class decorator: the docstrings of the public functions get `text` as a paragraph too.

    It stands before the first section. Functions that describe their parameters themselves are
    left alone.
    """

    def decorate(cls: Class) -> Class:
        for name, function in vars(cls).items():
            if inspect.isfunction(function) and not name.startswith("_"):
                function.__doc__ = with_paragraph(function, inspect.cleandoc(text))
        return cls

    return decorate


def with_paragraph(function: Any, text: str) -> str | None:
    """The docstring of a function with `text` as a paragraph before its first section."""
    known = inspect.getdoc(function)
    if known is None or "Parameters\n---" in known:  # there are none in optimised Python
        return known
    section = _SECTION.search(known)
    place = len(known) if section is None else section.start()
    return "\n\n".join(filter(None, (known[:place].rstrip(), text, known[place:])))
