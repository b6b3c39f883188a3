"""Check claims and report them: in the terminal, as JSON, Markdown and a self-contained page."""

from __future__ import annotations

import json
import platform
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import mpmath
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from rich.text import Text

import wefpe_core
from verification.claims import CLAIMS, table_one
from verification.claims.claim import Claim, Finding, Verdict
from verification.html_page import PageSection, PageTable, html_page, prepare_output
from wefpe_core import InputError, MissingDependencyError
from wefpe_core.reporting import markdown_table

TITLE = "Claims of arXiv:2508.19167, computed"
_COLOURS = {
    Verdict.TRUE: "green",
    Verdict.FALSE: "red",
    Verdict.PARTLY: "yellow",
    Verdict.AMBIGUOUS: "magenta",
}
_MARKS = {Verdict.TRUE: "good", Verdict.FALSE: "warn"}  # "bad" is kept for crashes
_HEADINGS = ("claim", "place", "statement", "correction", "evidence", "verdict")


class CheckedClaim(NamedTuple):
    """A claim with its finding, or why there is none."""

    claim: Claim
    finding: Finding | None
    error: str = ""  # what the check raised
    missing: str = ""  # the library that the check needs and that is not installed

    @property
    def verdict(self) -> str:
        if self.finding:
            return self.finding.verdict.value
        return "skipped" if self.missing else "crashed"

    @property
    def evidence(self) -> str:
        return self.finding.evidence if self.finding else self.missing or self.error


def check_claims(*, only: str | None = None, output: Path | None = None, seeds: int = 20) -> int:
    """Check, print, and write what is asked for; 1 if a check crashed, else 0."""
    claims = chosen_claims(only, seeds)
    if output:
        prepare_output(output)
    console = Console()
    console.print(versions_and_platform())
    checked = list(track(check_each(claims), "checking", total=len(claims), console=console))
    console.print(terminal_table(checked))
    console.print(summary(checked))
    if output:
        write_files(checked, output)
        console.print(f"written: {output}/claims.json, claims.md, claims.html")
    return 1 if any(each.error for each in checked) else 0


def chosen_claims(only: str | None, seeds: int) -> list[Claim]:
    """The claims named, as in "F1,F8", or all; `seeds` is the number of runs behind table 1."""
    known = [claim.id for claim in CLAIMS]
    wanted = known if only is None else [part.strip().upper() for part in only.split(",") if part]
    unknown = [name for name in wanted if name not in known]
    if unknown or not wanted:
        raise InputError(
            f"no claim is called {', '.join(unknown) or repr(only)}; "
            f"there are {known[0]} to {known[-1]}"
        )
    checks = {"F29": partial(table_one.decay_table, seeds=seeds)}
    return [
        claim._replace(check=checks.get(claim.id, claim.check))
        for claim in CLAIMS
        if claim.id in wanted
    ]


def check_each(claims: Iterable[Claim]) -> Iterator[CheckedClaim]:
    """Check each claim; one that crashes does not keep the others from running."""
    for claim in claims:
        try:
            yield CheckedClaim(claim, claim.check())
        except MissingDependencyError as error:
            yield CheckedClaim(claim, None, missing=str(error))
        except Exception as error:
            yield CheckedClaim(claim, None, f"{type(error).__name__}: {error}")


def summary(checked: Sequence[CheckedClaim]) -> str:
    counts = Counter(each.verdict for each in checked)
    order = [*(verdict.value for verdict in Verdict), "skipped", "crashed"]
    parts = [f"{counts[name]} {name}" for name in order if counts[name]]
    text = f"{len(checked)} claims: {', '.join(parts)}"
    skipped = ", ".join(each.claim.id for each in checked if each.missing)
    return f"{text}; skipped for want of a library: {skipped}" if skipped else text


def versions_and_platform() -> str:
    return (
        f"wefpe {wefpe_core.__version__}, Python {platform.python_version()}, "
        f"NumPy {np.__version__}, mpmath {mpmath.__version__}, "
        f"{platform.machine()} {platform.system()}"
    )


def terminal_table(checked: Sequence[CheckedClaim]) -> Table:
    table = Table(title=TITLE, show_lines=True)
    table.add_column("claim", no_wrap=True)
    table.add_column("place", max_width=26, overflow="fold")
    table.add_column("verdict", no_wrap=True)
    table.add_column("evidence", ratio=1)
    for each in checked:
        colour = "bold red reverse" if each.error else "bold"
        if each.finding:
            colour = _COLOURS[each.finding.verdict]
        # Text, not markup: evidence is full of square brackets.
        table.add_row(
            each.claim.id,
            Text(each.claim.place),
            Text(each.verdict, style=colour),
            Text(each.evidence),
        )
    return table


def as_json(checked: Sequence[CheckedClaim]) -> str:
    claims = [
        {
            "id": each.claim.id,
            "place": each.claim.place,
            "statement": each.claim.statement,
            "correction": each.claim.correction,
            "verdict": each.verdict,
            "evidence": each.evidence,
            "figures": each.finding.figures if each.finding else {},
        }
        for each in checked
    ]
    document = {"summary": summary(checked), "platform": versions_and_platform(), "claims": claims}
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _rows(checked: Sequence[CheckedClaim]) -> list[tuple[str, ...]]:
    return [
        (o.claim.id, o.claim.place, o.claim.statement, o.claim.correction, o.evidence, o.verdict)
        for o in checked
    ]


def as_markdown(checked: Sequence[CheckedClaim]) -> str:
    """The verdicts as a table that fits a page, and the evidence below it."""
    rows = [(c.claim.id, c.verdict, c.claim.statement, c.claim.correction) for c in checked]
    table = markdown_table(("claim", "verdict", "statement", "correction"), rows)
    evidence = "\n".join(f"- **{c.claim.id}** ({c.claim.place}): {c.evidence}" for c in checked)
    return (
        f"# {TITLE}\n\n{summary(checked)}\n\n{versions_and_platform()}\n\n{table}\n"
        f"## Evidence\n\nLines are those of the source of the paper.\n\n{evidence}\n"
    )


def as_html(checked: Sequence[CheckedClaim]) -> str:
    marks = [
        _MARKS.get(c.finding.verdict, "") if c.finding else "bad" * bool(c.error) for c in checked
    ]
    verdicts = PageTable(_HEADINGS, _rows(checked), marks, prose=True)
    sections = [PageSection("Verdicts", tables=[verdicts])]
    for each in checked:
        if each.finding:
            figures = [(name, f"{value:.10g}") for name, value in each.finding.figures.items()]
            table = PageTable(("figure", "value"), figures)
            sections.append(PageSection(f"Figures of {each.claim.id}", tables=[table]))
    return html_page(TITLE, sections, f"{summary(checked)}. {versions_and_platform()}.")


def write_files(checked: Sequence[CheckedClaim], folder: Path) -> None:
    for name, text in (
        ("claims.json", as_json(checked)),
        ("claims.md", as_markdown(checked)),
        ("claims.html", as_html(checked)),
    ):
        (folder / name).write_text(text, encoding="utf-8")
