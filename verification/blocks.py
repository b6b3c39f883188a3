"""Put generated files into the pages that show them.

    python -m verification.blocks docs/results README.md docs/results/README.md

Between ``<!-- name -->`` and ``<!-- end of name -->`` of a page goes ``name.md`` of the folder, if
there is such a file; the rest of the page is left alone.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

_END = re.compile(r"<!-- end of (\S+) -->")


class BlockError(ValueError):
    """A marker is missing, or there are several."""


def replace_block(text: str, name: str, content: str) -> str:
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    if text.count(begin) != 1 or text.count(end) != 1:
        raise BlockError(f"expected one {begin} and one {end}")
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{content.strip()}\n{end}{after}"


def fill_page(text: str, folder: Path) -> str:
    """The page with every block for which the folder has a file."""
    for name in _END.findall(text):
        path = folder / f"{name}.md"
        if path.exists():
            text = replace_block(text, name, path.read_text("utf-8"))
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m verification.blocks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, help="where the generated files are")
    parser.add_argument("pages", type=Path, nargs="+", help="the pages to rewrite")
    options = parser.parse_args(arguments)
    try:
        for page in options.pages:
            page.write_text(fill_page(page.read_text("utf-8"), options.folder), encoding="utf-8")
    except (OSError, BlockError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
