"""Compile C and C++ for the host with g++; what was compiled once is kept in a cache folder."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from wefpe_core import WefpeError


class HostCompilerError(WefpeError, RuntimeError):
    """g++ is missing, or it refuses the source; the message says which."""


def cache_folder() -> Path:
    """Where compiled libraries are kept: wefpe/gpu in the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "wefpe" / "gpu"


def build_library(
    name: str,
    source: str,
    language: str,
    options: Sequence[str],
    libraries: Sequence[str] = (),
    key: str = "",
) -> Path:
    """The shared library made of `source`, from the cache if it was made before.

    `key` names whatever else the library depends on, such as the version of torch.
    """
    text = "\0".join((source, language, *options, *libraries, key))
    folder = cache_folder()
    library = folder / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:20]}.so"
    if library.exists():
        return library
    compiler = shutil.which("g++")
    if compiler is None:
        raise HostCompilerError(f"{name} is compiled by g++, which is not installed")
    folder.mkdir(parents=True, exist_ok=True)
    # Several processes may build at the same time: each moves a finished file into place.
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        made = Path(scratch) / library.name
        command = [compiler, *options, "-shared", "-fPIC", "-o", str(made)]
        command += ["-x", language, "-", *libraries]
        done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
        if done.returncode:
            raise HostCompilerError(f"g++ refuses {name}:\n{done.stderr[:2000]}")
        made.replace(library)
    return library
