"""The errors of the training package; each is a `wefpe_core.WefpeError` as well."""

from __future__ import annotations

from wefpe_core.errors import InputError, WefpeError

PREEMPTED = 75  # the exit code of `PreemptedError`: EX_TEMPFAIL of sysexits.h, try again


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


class PreemptedError(RunError):
    """A run was asked to stop. Its checkpoint is saved, and resuming goes on with it.

    `reason` is the name of the signal, or what else asked for it.
    """

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class NonFiniteError(RunError):
    """The loss or a weight became infinite or not a number."""


class CheckpointFormatError(RunError):
    """A newer version wrote a checkpoint in a format that this version does not know."""


class DamagedCheckpointError(RunError):
    """The files of a checkpoint are not those that were written."""
