"""What every report is made of: tables in Markdown, and facts about the machine and the code.

The functions use the standard library alone. A report picks the facts it prints and names them
itself, because the keys of recorded files must not change.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown: headings, a rule and one line for each row, each ending in a newline.

    Cells are plain text: a vertical bar is escaped, and a line break becomes a space.
    """
    rule = "|" + "---|" * len(headings)
    lines = [_markdown_line(headings), rule, *map(_markdown_line, rows)]
    return "\n".join(lines) + "\n"


def _markdown_line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def package_versions(names: Iterable[str]) -> dict[str, str | None]:
    """The installed version of each distribution, None for one that is not installed."""
    return {name: _version_of(name) for name in names}


def _version_of(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def describe_versions(names: Iterable[str]) -> str:
    """The versions of Python and of each distribution in one line.

    Examples
    --------
    >>> describe_versions(["no-such-package"]).partition(", ")[2]
    'no-such-package not installed'
    """
    versions = package_versions(names)
    packages = [f"{name} {version or 'not installed'}" for name, version in versions.items()]
    return ", ".join([f"Python {platform.python_version()}", *packages])


def processor_name() -> str:
    """The model of the processor. The last bits of a result can differ between models."""
    description = Path("/proc/cpuinfo")
    if description.exists():
        for line in description.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def cores_and_load() -> str:
    """The number of cores and, where the system tells it, the load average of the last minute."""
    load = f", load average {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return f"{os.cpu_count()} cores{load}"


def git_commit(folder: Path) -> str | None:
    """The commit that is checked out at `folder`, with ``-dirty`` if files differ from it.

    None if `folder` does not exist or is not part of a git repository, or git is not installed.
    """
    if not folder.is_dir():
        return None
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def peak_memory_mb() -> float | None:
    """The largest resident memory of this process so far; None where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows has no such module
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e3)  # macOS counts bytes, Linux kilobytes
