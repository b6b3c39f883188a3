"""Check that every link inside the repository's Markdown files leads to a file or a heading.

    python docs/check_links.py

Addresses of other sites are not visited.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parents[1]


@cache
def tokens(path: Path) -> list[Token]:
    return MarkdownIt().enable("table").parse(path.read_text(encoding="utf-8"))


def targets(path: Path) -> Iterator[tuple[int, str]]:
    """The line of each link and picture of a file, and where it leads."""
    for token in tokens(path):
        for child in token.children or ():
            target = child.attrGet("href") or child.attrGet("src")
            if target is not None:
                yield (token.map or [0])[0] + 1, str(target)


@cache
def anchors(path: Path) -> set[str]:
    """The headings as GitHub names them: lower case, hyphens for spaces, no punctuation."""
    found: set[str] = set()
    for before, token in zip(tokens(path), tokens(path)[1:], strict=False):
        if before.type == "heading_open":
            text = "".join(child.content for child in token.children or ())
            name = re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")
            copies = sum(other == name or other.startswith(f"{name}-") for other in found)
            found.add(f"{name}-{copies}" if name in found else name)
    return found


def problems(path: Path) -> Iterator[str]:
    for line, target in targets(path):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = unquote(target).partition("#")
        file = (path.parent / name).resolve() if name else path
        if not file.exists():
            yield f"{path.relative_to(ROOT)}:{line}: there is no file {name}"
        elif anchor and file.suffix == ".md" and anchor not in anchors(file):
            yield f"{path.relative_to(ROOT)}:{line}: {name or 'this file'} has no heading #{anchor}"


def main() -> int:
    listed = subprocess.run(
        ["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    files = [ROOT / name for name in listed.stdout.split("\n") if name]
    found = [problem for file in files if file.exists() for problem in problems(file)]
    print(*found, f"{len(files)} Markdown files, {len(found)} broken links", sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
