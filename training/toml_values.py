"""A value typed on the command line, read as TOML writes it."""

from __future__ import annotations

import tomllib
from typing import Any


def toml_value(text: str) -> Any:
    """What the text is in TOML; if it is nothing there, the text itself."""
    is_quoted = text[:1] in ('"', "'")
    # TOML would drop what follows a #, and read further keys after a line break.
    if "\n" in text or ("#" in text and not is_quoted):
        return text
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    # Dates are of no use to any key, but a path may look like one.
    return value if isinstance(value, (bool, int, float, str, list, dict)) else text
