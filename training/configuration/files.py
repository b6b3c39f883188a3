"""The TOML files: found by shipped name or by path, and read with those they start from."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from training.configuration.errors import ConfigError, Problem
from wefpe_core.errors import did_you_mean

_SUFFIX = ".toml"
_BASE = "base"  # the only key that is not one of the experiment


class ConfigFile(NamedTuple):
    table: dict[str, Any]
    source: str  # as errors name it


def shipped_folder() -> Path:
    """Where the configs of this package are."""
    return Path(str(files("training") / "configs"))


def available_configs() -> dict[str, str]:
    """Names `load_config` knows, each with the first line of its file."""
    listing = {}
    for path in sorted(shipped_folder().glob(f"*{_SUFFIX}")):
        with path.open(encoding="utf-8") as file:
            listing[path.stem] = file.readline().lstrip("#").strip()
    return listing


def read_chain(name: str | Path) -> list[ConfigFile]:
    """The file and those it starts from by its key ``base``, the lowest first."""
    chain: list[ConfigFile] = []
    seen: list[Path] = []
    wanted: str | Path | None = name
    beside, asked_by = Path(), ""
    while wanted is not None:
        path = _find(wanted, beside, asked_by)
        if path in seen:
            circle = " -> ".join(each.name for each in [*seen, path])
            raise ConfigError([Problem(_BASE, f"the files go in a circle: {circle}", wanted)])
        seen.append(path)
        table = _read(path)
        source = path.name if path.parent == shipped_folder() else str(path)
        wanted = table.pop(_BASE, None)
        if wanted is not None and not isinstance(wanted, str):
            raise ConfigError(
                [Problem(_BASE, "must be the name or the path of a config", wanted, source)]
            )
        chain.append(ConfigFile(table, source))
        beside, asked_by = path.parent, source
    return chain[::-1]


def _find(name: str | Path, beside: Path, asked_by: str) -> Path:
    """A shipped config by its name, or a file; a base is looked for beside the file that names it.

    A word is a name, anything with a suffix or a folder in it a path. That way a file which
    happens to lie in the working directory never stands in for a shipped config.
    """
    text = str(name)
    key = _BASE if asked_by else ""
    if isinstance(name, str) and not name.endswith(_SUFFIX) and Path(name).name == name:
        path = shipped_folder() / f"{name}{_SUFFIX}"
        if path.is_file():
            return path
        known = available_configs()
        hint = did_you_mean(name, known, count=3)
        if not hint:
            hint = f"; there are {', '.join(known)}"
        problem = f"there is no config {name!r}{hint}"
        if Path(f"{name}{_SUFFIX}").is_file():
            problem += f" (for the file say ./{name}{_SUFFIX})"
        raise ConfigError([Problem(key, problem, source=asked_by)])
    path = beside / Path(text).expanduser()
    if path.is_file():
        return path.resolve()
    if path.is_dir():
        raise ConfigError([Problem(key, f"{path} is a directory, not a config", source=asked_by)])
    neighbours = [each.name for each in path.parent.glob(f"*{_SUFFIX}")]
    hint = did_you_mean(path.name, neighbours, count=3)
    raise ConfigError([Problem(key, f"there is no file {path}{hint}", source=asked_by)])


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([Problem("", f"cannot be read: {error}", source=str(path))]) from error
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:  # names the line and the column
        raise ConfigError([Problem("", f"is not valid TOML: {error}", source=str(path))]) from error
