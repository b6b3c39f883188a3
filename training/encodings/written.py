"""Encodings as users type them: ``weierstrass:fidelity=authors,alpha_u=0.4``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from training.encodings.registry import available_encodings
from training.toml_values import toml_value
from wefpe_core.errors import InputError, did_you_mean


@dataclass(frozen=True)
class WrittenEncoding:
    """An encoding by name with options, not built yet."""

    label: str  # as typed
    name: str
    assignments: Mapping[str, str]  # option -> value as typed

    @property
    def options(self) -> dict[str, Any]:
        return {key: toml_value(value) for key, value in self.assignments.items()}


def read_encoding(text: str) -> WrittenEncoding:
    """An encoding from ``name`` or ``name:option=value,option=value``.

    Only the name is checked here: which options there are, the encoding itself says.
    """
    label = text.strip()
    name, _, rest = label.partition(":")
    known = available_encodings()
    if name not in known:
        end = did_you_mean(name, known) or f"; there are {', '.join(known)}"
        raise InputError(
            f"unknown encoding {name!r}{'' if name == label else f' in {label!r}'}{end}"
        )
    assignments = {}
    for assignment in filter(None, rest.split(",")):
        key, equals, value = (part.strip() for part in assignment.partition("="))
        if not (key and equals and value):
            raise InputError(f"{assignment!r} in {label!r} is not of the form option=value")
        assignments[key] = value
    return WrittenEncoding(label, name, assignments)
