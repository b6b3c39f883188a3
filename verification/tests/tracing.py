"""Which files and functions of the project a command enters.

    python -m verification.tests.tracing train digits training.epochs=1 --folder FOLDER

prints how many files of each package the command enters, and how many functions. Only
functions that are called count: a module that is merely imported does not.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import FrameType
from typing import Any

import wefpe_core

ROOT = Path(wefpe_core.__file__).parents[1]
PACKAGES = ("wefpe", "wefpe_core", "backends", "training", "verification")


def functions_entered(call: Callable[[], Any]) -> set[tuple[str, str]]:
    """The (file, function) pairs of the project that `call` enters, in all its threads."""
    prefixes = tuple(f"{ROOT / package}/" for package in PACKAGES)
    entered: set[tuple[str, str]] = set()

    def note(frame: FrameType, event: str, _argument: Any) -> None:
        code = frame.f_code
        # The bodies of modules and classes are no functions, and an import runs them.
        is_function = code.co_flags & CO_OPTIMIZED and not code.co_name.startswith("<")
        if event == "call" and is_function and code.co_filename.startswith(prefixes):
            place = str(Path(code.co_filename).relative_to(ROOT))
            entered.add((place, code.co_qualname))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return entered


def main() -> None:
    from training.cli import main as wefpe

    entered = functions_entered(lambda: wefpe(sys.argv[1:]))
    files = {place for place, _ in entered}
    by_package = Counter(place.partition("/")[0] for place in files)
    counts = ", ".join(f"{package} {count}" for package, count in by_package.most_common())
    print(f"{len(files)} files ({counts}), {len(entered)} functions", file=sys.stderr)


if __name__ == "__main__":
    main()
