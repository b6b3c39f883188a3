"""No positional encoding: the control."""

from __future__ import annotations

from training.encodings.encoding import AbstractEncoding, EncodingSize
from training.encodings.options import NoOptions


class NoEncoding(AbstractEncoding):
    """Every answer is neutral: attention does not know where a patch is."""

    name = "none"
    kind = "none"
    summary = "no position at all: patches are a set"
    formula = "x_i"

    def __init__(self, size: EncodingSize, options: NoOptions) -> None:
        super().__init__(size)
