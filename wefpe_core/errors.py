"""Every error the project raises on purpose, named by what happened.

All derive from `WefpeError`, and each also from the built-in exception that a caller would
expect to catch.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any


class WefpeError(Exception):
    """Base of every error raised on purpose by this project."""


class LatticeError(WefpeError, ValueError):
    """The numbers given do not describe a lattice."""


class ImmutableError(WefpeError, AttributeError):
    """An attribute of a value that never changes was to be set or deleted."""


class InputError(WefpeError, ValueError):
    """A value or option is of the right kind but outside its domain."""


class InputTypeError(WefpeError, TypeError):
    """A value is of a kind no evaluator can use (bool, object, string, ...)."""


class UnknownBackendError(WefpeError, LookupError):
    """No backend of that name is registered."""


class MissingDependencyError(WefpeError, ImportError):
    """An optional library is not installed. The message names it and what to install."""


class BackendUnavailableError(MissingDependencyError):
    """The backend exists, but its library is not installed or its module is shadowed."""


class PrecisionError(WefpeError, ArithmeticError):
    """Two evaluations at different precision disagree, so neither is returned."""


def import_optional(
    module: str, *, purpose: str, extra: str | None, package: str | None = None
) -> Any:
    """Import an optional library at its first use.

    Parameters
    ----------
    module
        What to import, such as ``"sklearn.datasets"``.
    purpose
        What needs the library: the beginning of the message.
    extra
        The extra of this project that installs it; None if it has none.
    package
        The name of the library on PyPI, where that is not the name of the module.

    Raises
    ------
    MissingDependencyError
        The library is not installed. A library that is installed and fails to load raises its
        own error.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if not error.name or not f"{module}.".startswith(f"{error.name}."):
            raise
        needed = package or module.partition(".")[0]
        raise MissingDependencyError(missing_dependency(purpose, needed, extra)) from error


def missing_dependency(purpose: str, package: str, extra: str | None) -> str:
    """The message that `purpose` needs a library which is not installed."""
    install = f"wefpe[{extra}]" if extra else package
    return f"{purpose} needs {package}, which is not installed; run: pip install '{install}'"


def did_you_mean(word: str, known: Iterable[str], count: int = 1) -> str:
    """The end of a message, "; did you mean ...?", or nothing if no known word is near."""
    from difflib import get_close_matches

    near = get_close_matches(word, list(known), n=count, cutoff=0.6)
    return f"; did you mean {' or '.join(near)}?" if near else ""
