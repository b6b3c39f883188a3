"""Put generated tables into README.md and other pages.

Between ``<!-- name -->`` and ``<!-- end of name -->`` of a page stands what was generated; the rest
of the page is left alone.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from verification.functions import SYMBOLS
from verification.judge import DamagedFileError
from verification.precision_report import summary_table
from verification.search import REGION
from wefpe_core import WefpeError
from wefpe_core.reporting import markdown_table

README = Path(__file__).parents[1] / "README.md"
_END = re.compile(r"<!-- end of (\S+) -->")


class MarkerError(WefpeError, ValueError):
    """A marker is missing from a page, or there are several."""


def replace_marked(text: str, name: str, content: str) -> str:
    """The page with `content` between the two markers of that name."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    if text.count(begin) != 1 or text.count(end) != 1:
        raise MarkerError(f"expected one {begin} and one {end}")
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{content.strip()}\n{end}{after}"


def fill_page(text: str, folder: Path) -> str:
    """The page with ``name.md`` of the folder between the markers of each name that has one."""
    for name in _END.findall(text):
        path = folder / f"{name}.md"
        if path.exists():
            text = replace_marked(text, name, path.read_text("utf-8"))
    return text


def fill_pages(folder: Path, pages: Iterable[Path]) -> None:
    for page in pages:
        page.write_text(fill_page(page.read_text("utf-8"), folder), encoding="utf-8")


def update_readme(report: Path, claims: Path, readme: Path = README) -> None:
    """Rewrite the tables of README.md from report.json and claims.json of the last run."""
    try:
        measured = json.loads(report.read_text("utf-8"))
        tables = {
            "precision": precision_table(measured),
            "search": search_line(measured),
            "claims": claims_table(json.loads(claims.read_text("utf-8"))["claims"]),
        }
    except (ValueError, KeyError) as error:
        raise DamagedFileError(f"{report}, {claims}: {type(error).__name__}: {error}") from error
    text = readme.read_text("utf-8")
    for name, table in tables.items():
        text = replace_marked(text, name, table)
    readme.write_text(text, encoding="utf-8")


def precision_table(report: Mapping[str, Any]) -> str:
    """Largest errors over all regions: a line per value and dtype, a column per backend.

    These are the rows most readers ask for; the report has the others.
    """
    headings, lines = summary_table([row for row in report["rows"] if row["function"] in SYMBOLS])
    table = markdown_table(
        ["largest error, eps", *headings[1:]], [[SYMBOLS[line[0]], *line[1:]] for line in lines]
    )
    where = report["circumstances"]
    return (
        f"{table}\n{report['summary']} (`nox -s verify`; {where['versions']}; {where['platform']}; "
        f"size {where['size']})."
    )


def search_line(report: Mapping[str, Any]) -> str:
    """The largest errors of wp and wp' in the report at the points that searches found."""
    largest: dict[tuple[str, bool], Mapping[str, Any]] = {}
    for row in report["rows"]:
        if row["region"] == REGION and row["function"] in ("wp", "wp_prime"):
            key = (row["dtype"], row["subject"].endswith(("tensors", "arrays")))
            largest[key] = max(largest.get(key, row), row, key=lambda row: row["largest"])
    if not largest:
        raise KeyError(f"no row of the region {REGION!r}")
    listed = "; ".join(
        f"{row['largest']:.2f} in {dtype}{' on lattices of tensors' if is_of_tensors else ''} "
        f"({SYMBOLS[row['function']]}, {row['subject']})"
        for (dtype, is_of_tensors), row in sorted(largest.items())
    )
    return (
        "Random points do not find the largest errors, so climbs look for them "
        "(`wefpe verify --search SECONDS`). At [the points found]"
        "(verification/hardest_points.json) the largest errors of ℘ and ℘′, in eps, are "
        f"{listed} (`wefpe verify`, size {report['circumstances']['size']})."
    )


def claims_table(claims: Sequence[Mapping[str, Any]]) -> str:
    counts = Counter(claim["verdict"] for claim in claims)
    listed = ", ".join(f"{number} {verdict}" for verdict, number in counts.items())
    return (
        "**The paper, checked.** Each of its statements runs as a check that computes its own "
        f"verdict: of {len(claims)}, {listed} (`wefpe claims`; "
        "[all of them, with evidence](docs/claims.md))."
    )
