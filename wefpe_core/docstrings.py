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


def complete_docstrings(cls: type, base: type) -> None:
    """Let ``help`` on a method of `cls` show what `base` says of it, below its own words."""
    for name, described in inspect.getmembers(base, inspect.isfunction):
        function = getattr(cls, name)
        if name.startswith("_") or function is described or not described.__doc__:
            continue
        said = inspect.cleandoc(described.__doc__)
        known = inspect.cleandoc(getattr(function, "__doc__", None) or "")
        if not known:
            function.__doc__ = said
        elif said not in known and ">>> " not in known:
            function.__doc__ = f"{known}\n\n`{base.__name__}.{name}` says, of arrays:\n\n{said}"
