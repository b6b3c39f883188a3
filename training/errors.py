"""The errors of the training package; each is a `wefpe_core.WefpeError` as well."""

from __future__ import annotations

from importlib.util import find_spec

from wefpe_core.errors import BackendUnavailableError, InputError, WefpeError


class DataError(WefpeError, ValueError):
    """A data set is damaged, is not what its name says, or cannot be split as asked."""


class DataNotFoundError(DataError, FileNotFoundError):
    """There is no such data set, or one of its files is missing."""


class UnknownEncodingError(WefpeError, LookupError):
    """No encoding of that name is registered."""


class EncodingOptionError(InputError):
    """An encoding does not take this option, or does not take it with this value or size."""


class MissingTableError(WefpeError, RuntimeError):
    """A hybrid encoding is used before a pre-trained table was loaded into it."""


class RunError(WefpeError, RuntimeError):
    """A run cannot be started, resumed or finished as asked."""


class NonFiniteError(RunError):
    """The loss or a weight became infinite or not a number."""


class CheckpointFormatError(RunError):
    """A newer version wrote a checkpoint in a format that this version does not know."""


class DamagedCheckpointError(RunError):
    """The files of a checkpoint are not those that were written."""


def require(library: str, needed_by: str, extra: str = "training") -> None:
    """Raise `BackendUnavailableError` naming the extra if a library is not installed."""
    if find_spec(library) is None:
        raise BackendUnavailableError(
            f"{needed_by} needs {library}, which is not installed; "
            f"run: pip install 'wefpe[{extra}]'"
        )
