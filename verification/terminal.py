"""The report in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from verification.report import (
    AGREEMENT_HEADINGS,
    HEADINGS,
    YARDSTICK,
    Report,
    agreement_rows,
    cells,
    law_rows,
)


def print_report(report: Report, console: Console) -> None:
    for key, value in report.circumstances.items():
        console.print(f"[bold]{key}[/]: {escape(value)}", highlight=False, soft_wrap=True)
    for skip in report.skipped:
        console.print(f"[yellow]skipped[/] {skip.name}: {escape(skip.reason)}")
    rows = [cells(verdict) for verdict in report.verdicts]
    console.print(_table("Scaled error in eps", HEADINGS, rows, caption=YARDSTICK))
    headings, laws = law_rows(report.laws)
    console.print(_table("Laws of DLMF 23: residual over the absolute terms, eps", headings, laws))
    oracle = agreement_rows(report.agreements)
    console.print(_table("The oracle against other formulas", AGREEMENT_HEADINGS, oracle))
    for failure in report.failures:
        console.print(f"[bold red]FAILS[/] {escape(failure)}", soft_wrap=True, highlight=False)
    console.print(("[green]" if not report.failures else "[red]") + report.summary)


def _table(
    title: str, headings: Sequence[str], rows: Sequence[Sequence[str]], caption: str | None = None
) -> Table:
    table = Table(title=title, caption=caption, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in headings:
        is_number = heading in ("points", "p99.9", "largest", "baseline", "ceiling")
        table.add_column(heading, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        marks = {"holds": "[green]holds[/]", "FAILS": "[bold red]FAILS[/]"}
        table.add_row(*(marks.get(cell, escape(cell)) for cell in row))
    return table
