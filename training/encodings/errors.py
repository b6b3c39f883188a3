"""Errors of the encodings; all are `wefpe_core.WefpeError` as well."""

from wefpe_core.errors import InputError, WefpeError


class UnknownEncodingError(WefpeError, LookupError):
    """No encoding of that name is registered."""


class EncodingOptionError(InputError):
    """An encoding does not take this option, or not with this value or size."""


class MissingTableError(WefpeError, RuntimeError):
    """A hybrid encoding is used before a pre-trained table was loaded into it."""
