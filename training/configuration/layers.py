"""Tables laid over one another, remembering which file said what."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from training.configuration.schema import PositionEncoding

Path = tuple[str, ...]

_ENCODING, _NAME = "position_encoding", "name"


class Layers:
    """The table that results, and the source of each of its values."""

    def __init__(self) -> None:
        self.table: dict[str, Any] = {}
        self._sources: dict[Path, str] = {}

    def add(self, layer: Mapping[str, Any], source: str) -> None:
        """Lay a table on top: its values win, its tables are merged key by key.

        A layer that names another position encoding starts from that one's defaults: all that was
        said below about an encoding belongs to the one that was there before.
        """
        place = layer.get(_ENCODING)
        if isinstance(place, Mapping) and _NAME in place:
            below = self.table.get(_ENCODING)
            if isinstance(below, dict) and place[_NAME] != below.get(_NAME, _DEFAULT_ENCODING):
                below.clear()
        self._lay(self.table, layer, source, ())

    def _lay(self, table: dict[str, Any], layer: Mapping[str, Any], source: str, at: Path) -> None:
        for key, value in layer.items():
            path = (*at, key)
            if not isinstance(value, Mapping):
                table[key] = deepcopy(value)
            else:
                if not isinstance(table.get(key), dict):
                    table[key] = {}
                self._lay(table[key], value, source, path)
            self._sources[path] = source

    def source(self, path: Path) -> str:
        """Who said the value at this path, or the nearest table around it; "" if nobody did."""
        while path:
            if path in self._sources:
                return self._sources[path]
            path = path[:-1]
        return ""


_DEFAULT_ENCODING = PositionEncoding().name
