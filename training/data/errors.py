"""Errors of the data sets; all are `wefpe_core.WefpeError` as well."""

from wefpe_core import WefpeError


class DataError(WefpeError, ValueError):
    """A data set is damaged, is not what its name says, or cannot be cut as asked."""


class DataNotFoundError(DataError, FileNotFoundError):
    """There is no such data set, or a file of it is missing."""
