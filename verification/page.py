"""Self-contained pages: tables and figures as HTML or Markdown, with no external request."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, NamedTuple

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --good: #1a7f37; --bad: #cf222e; --warn: #9a6700; }
@media (prefers-color-scheme: dark) { :root { --good: #3fb950; --bad: #ff7b72; --warn: #d29922; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.25rem; margin-top: 2.5rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.875rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.25rem 0.6rem; border-bottom: 1px solid var(--line); text-align: left;
         vertical-align: top; max-width: 36rem; min-width: 4rem; }
th { position: sticky; top: 0; background: Canvas; }
td.number { text-align: right; white-space: nowrap; }
td.code { font-family: ui-monospace, monospace; font-size: 0.8rem; white-space: nowrap; }
tr.good td:last-child { color: var(--good); } tr.warn td:last-child { color: var(--warn); }
tr.bad td { color: var(--bad); font-weight: 600; }
figure { margin: 1.5rem 0; } .panels { display: flex; flex-wrap: wrap; gap: 1rem; }
 figure svg { max-width: 100%; height: auto; background: #fff; }
figcaption, .note { font-size: 0.9rem; opacity: 0.85; max-width: 60rem; }
/* Sentences in cells: where the screen is narrow, each row becomes a card. */
@media (max-width: 50rem) {
  .prose thead { display: none; }
  .prose tr { display: block; padding: 0.75rem 0; border-bottom: 2px solid var(--line); }
  .prose td { display: block; border: 0; padding: 0.1rem 0; }
  .prose td::before { content: attr(data-heading) ": "; font-weight: 600; }
}
"""


class Section(NamedTuple):
    """A heading and what stands under it, as HTML."""

    heading: str
    body: str


def html_page(title: str, sections: Iterable[Section], note: str = "") -> str:
    """A whole document; `note` is plain text under the title."""
    body = "\n".join(f"<h2>{escape(s.heading)}</h2>\n{s.body}" for s in sections)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style></head>\n"
        f"<body><h1>{escape(title)}</h1>\n{html_paragraph(note)}\n{body}\n</body></html>\n"
    )


def html_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    marks: Sequence[str] | None = None,
    *,
    prose: bool = False,
) -> str:
    """Cells are plain text. `marks` holds a class for each row: good, bad, warn or nothing.

    A table of sentences (`prose`) becomes a list of cards on a narrow screen.
    """
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    lines = []
    for i, row in enumerate(rows):
        mark = f' class="{marks[i]}"' if marks and marks[i] else ""
        lines.append(f"<tr{mark}>{''.join(map(_cell, row, headings))}</tr>")
    return (
        f'<div class="wide{" prose" if prose else ""}"><table><thead><tr>{head}</tr></thead>\n'
        f"<tbody>{chr(10).join(lines)}</tbody></table></div>"
    )


def _cell(text: str, heading: str) -> str:
    kind = "number" if _is_number(text) else "code" if "fromhex" in text else "text"
    return f'<td class="{kind}" data-heading="{escape(heading)}">{escape(text)}</td>'


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", "").rstrip("%"))
    except ValueError:
        return False
    return True


def html_figure(pictures: Iterable[Any], caption: str) -> str:
    """matplotlib figures as inline SVG, side by side where there is room."""
    panels = "".join(map(_svg, pictures))
    return (
        f'<figure><div class="panels">{panels}</div>'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _svg(figure: Any) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", bbox_inches="tight", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def html_paragraph(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>'


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells are plain text; a number-like column is not aligned apart."""

    def line(cells: Iterable[str]) -> str:
        return (
            "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
        )

    rule = "|" + "---|" * len(headings)
    return "\n".join([line(headings), rule, *(line(row) for row in rows)]) + "\n"
