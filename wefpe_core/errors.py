"""Every error the project raises on purpose, named by what happened.

All derive from `WefpeError`, and each also from the built-in a caller would
expect to catch.
"""

from __future__ import annotations

from collections.abc import Iterable


class WefpeError(Exception):
    """Base of every error raised on purpose by this project."""


class LatticeError(WefpeError, ValueError):
    """The numbers given do not describe a lattice."""


class InputError(WefpeError, ValueError):
    """A value or option is of the right kind but outside its domain."""


class InputTypeError(WefpeError, TypeError):
    """A value is of a kind no evaluator can use (bool, object, string, ...)."""


class UnknownBackendError(WefpeError, LookupError):
    """No backend of that name is registered."""


class BackendUnavailableError(WefpeError, ImportError):
    """The backend exists, but what it stands on is not installed or is shadowed."""


class PrecisionError(WefpeError, ArithmeticError):
    """Two evaluations at different precision disagree, so neither is returned."""


def did_you_mean(word: str, known: Iterable[str], count: int = 1) -> str:
    """The end of a message, "; did you mean ...?", or nothing if no known word is near."""
    from difflib import get_close_matches

    near = get_close_matches(word, list(known), n=count, cutoff=0.6)
    return f"; did you mean {' or '.join(near)}?" if near else ""
