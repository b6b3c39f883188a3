"""HTML pages in one file, without any external request: page.html.j2 and what fills it."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple


class Bar(NamedTuple):
    """A cell with a bar behind its text."""

    text: str
    share: float  # of the cell that the bar fills, from 0 to 1
    is_good: bool = True


class PageTable(NamedTuple):
    """A table of plain text. A table of sentences (`prose`) becomes cards on a narrow screen."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str | Bar]]
    marks: Sequence[str] = ()  # for each row good, bad, warn or nothing
    prose: bool = False
    folded: str = ""  # what is shown in place of the table until a reader unfolds it


class PageSection(NamedTuple):
    """A heading with a note, tables, and matplotlib figures that share one caption."""

    heading: str
    note: str = ""
    tables: Sequence[PageTable] = ()
    pictures: Sequence[Any] = ()
    caption: str = ""


def html_page(title: str, sections: Iterable[PageSection], note: str) -> str:
    """The whole document; `note` stands under the title."""
    import jinja2  # here: most commands make no page

    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(kind=_kind, svg=_svg)
    source = files("verification").joinpath("page.html.j2").read_text("utf-8")
    return environment.from_string(source).render(title=title, sections=sections, note=note)


def _kind(cell: str) -> str:
    """The class of a cell: numbers are aligned to the right, points are set in a code font."""
    try:
        float(cell.replace(",", "").rstrip("%"))
    except ValueError:
        return "code" if "fromhex" in cell else "text"
    return "number"


def _svg(figure: Any) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", bbox_inches="tight", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def prepare_output(folder: Path) -> None:
    """Find out before the work that its results can be written, or raise OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    probe = folder / ".write-test"
    probe.touch()
    probe.unlink()
