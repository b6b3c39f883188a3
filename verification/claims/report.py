"""Claims that were checked, as a terminal table, JSON, Markdown and a self-contained page."""

from __future__ import annotations

import json
import platform
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import mpmath
import numpy as np
from rich.table import Table
from rich.text import Text

from verification.claims.claim import Claim, Finding, Verdict
from verification.page import Section, html_page, html_table, markdown_table

TITLE = "Claims of arXiv:2508.19167, computed"
_COLOURS = {
    Verdict.TRUE: "green",
    Verdict.FALSE: "red",
    Verdict.PARTLY: "yellow",
    Verdict.AMBIGUOUS: "magenta",
}
_MARKS = {Verdict.TRUE: "good", Verdict.FALSE: "warn"}  # "bad" is kept for crashes
_HEADINGS = ("claim", "place", "statement", "correction", "evidence", "verdict")


class Outcome(NamedTuple):
    """A claim with its finding, or with the error that its check raised."""

    claim: Claim
    finding: Finding | None
    error: str = ""

    @property
    def verdict(self) -> str:
        return self.finding.verdict.value if self.finding else "crashed"

    @property
    def evidence(self) -> str:
        return self.finding.evidence if self.finding else self.error


def run(claims: Iterable[Claim]) -> Iterator[Outcome]:
    """Check each claim; one that crashes does not keep the others from running."""
    for claim in claims:
        try:
            yield Outcome(claim, claim.check())
        except Exception as error:
            yield Outcome(claim, None, f"{type(error).__name__}: {error}")


def summary(outcomes: Sequence[Outcome]) -> str:
    counts = Counter(outcome.verdict for outcome in outcomes)
    order = [*(verdict.value for verdict in Verdict), "crashed"]
    parts = [f"{counts[name]} {name}" for name in order if counts[name]]
    return f"{len(outcomes)} claims: {', '.join(parts)}"


def surroundings() -> str:
    return (
        f"wefpe {version('wefpe')}, Python {platform.python_version()}, NumPy {np.__version__}, "
        f"mpmath {mpmath.__version__}, {platform.machine()} {platform.system()}"
    )


def terminal_table(outcomes: Sequence[Outcome]) -> Table:
    table = Table(title=TITLE, show_lines=True)
    table.add_column("claim", no_wrap=True)
    table.add_column("place", max_width=26, overflow="fold")
    table.add_column("verdict", no_wrap=True)
    table.add_column("evidence", ratio=1)
    for outcome in outcomes:
        colour = _COLOURS[outcome.finding.verdict] if outcome.finding else "bold red reverse"
        # Text, not markup: evidence is full of square brackets.
        table.add_row(
            outcome.claim.id,
            Text(outcome.claim.place),
            Text(outcome.verdict, style=colour),
            Text(outcome.evidence),
        )
    return table


def as_json(outcomes: Sequence[Outcome]) -> str:
    claims = [
        {
            "id": outcome.claim.id,
            "place": outcome.claim.place,
            "statement": outcome.claim.statement,
            "correction": outcome.claim.correction,
            "verdict": outcome.verdict,
            "evidence": outcome.evidence,
            "figures": outcome.finding.figures if outcome.finding else {},
        }
        for outcome in outcomes
    ]
    document = {"summary": summary(outcomes), "platform": surroundings(), "claims": claims}
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _rows(outcomes: Sequence[Outcome]) -> list[tuple[str, ...]]:
    return [
        (o.claim.id, o.claim.place, o.claim.statement, o.claim.correction, o.evidence, o.verdict)
        for o in outcomes
    ]


def as_markdown(outcomes: Sequence[Outcome]) -> str:
    table = markdown_table(_HEADINGS, _rows(outcomes))
    return f"# {TITLE}\n\n{summary(outcomes)}\n\n{surroundings()}\n\n{table}"


def as_html(outcomes: Sequence[Outcome]) -> str:
    marks = [_MARKS.get(o.finding.verdict, "") if o.finding else "bad" for o in outcomes]
    sections = [Section("Verdicts", html_table(_HEADINGS, _rows(outcomes), marks, prose=True))]
    sections += [
        Section(
            f"Figures of {o.claim.id}",
            html_table(
                ("figure", "value"), [(k, f"{v:.10g}") for k, v in o.finding.figures.items()]
            ),
        )
        for o in outcomes
        if o.finding
    ]
    return html_page(TITLE, sections, f"{summary(outcomes)}. {surroundings()}.")


def write(outcomes: Sequence[Outcome], directory: Path) -> None:
    """Write claims.json, claims.md and claims.html; OSError if that is not possible."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in (
        ("claims.json", as_json(outcomes)),
        ("claims.md", as_markdown(outcomes)),
        ("claims.html", as_html(outcomes)),
    ):
        (directory / name).write_text(text, encoding="utf-8")
