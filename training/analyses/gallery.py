"""All analyses on one page that needs no other file."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Mapping, Sequence
from typing import Any

from training.analyses.analysis import DASH, Analysis
from training.figure_style import figure_settings

_SCREEN_DPI = 130


def gallery_html(analyses: Sequence[Analysis], introduction: str) -> str:
    """The page: a list of contents, then figures, captions and tables."""
    contents = "".join(
        f'<li><a href="#{html.escape(each.name)}">{html.escape(each.title)}</a></li>'
        for each in analyses
    )
    sections = "".join(_section(each) for each in analyses)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Positional encodings, analysed</title><style>{_STYLE}</style></head><body>"
        f"<h1>Positional encodings, analysed</h1><p>{html.escape(introduction)}</p>"
        f"<nav><ul>{contents}</ul></nav>{sections}</body></html>\n"
    )


def _section(analysis: Analysis) -> str:
    pictures = "".join(
        f'<div class="wide"><img alt="{html.escape(analysis.title)}: {html.escape(name)}" '
        f'src="{_png(figure)}"></div>'
        for name, figure in analysis.figures.items()
    )
    tables = "".join(_table(name, rows) for name, rows in analysis.tables.items() if rows)
    return (
        f'<section id="{html.escape(analysis.name)}"><h2>{html.escape(analysis.title)}</h2>'
        f"<figure>{pictures}<figcaption>{html.escape(analysis.caption)}</figcaption></figure>"
        f"{tables}</section>"
    )


def _png(figure: Any) -> str:
    picture = io.BytesIO()
    with figure_settings():
        figure.savefig(picture, format="png", dpi=_SCREEN_DPI, metadata={"Software": None})
    return "data:image/png;base64," + base64.b64encode(picture.getvalue()).decode("ascii")


def _table(name: str, rows: Sequence[Mapping[str, Any]]) -> str:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    head = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
    body = "".join(
        "<tr>"
        + "".join(f"<td>{html.escape(_shown(row.get(key)))}</td>" for key in columns)
        + "</tr>"
        for row in rows
    )
    return (
        f"<details><summary>{html.escape(name)} ({len(rows)} rows)</summary>"
        f'<div class="wide"><table><tr>{head}</tr>{body}</table></div></details>'
    )


def _shown(value: Any) -> str:
    if value is None:
        return DASH
    if isinstance(value, float):
        return DASH if value != value else f"{value:.4g}"
    return str(value)


_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:64rem;margin:0 auto;padding:1rem;color:#111}
h1{font-size:1.6rem}
h2{font-size:1.25rem;margin-top:2.5rem;border-top:1px solid #ccc;padding-top:1rem}
nav ul{columns:2;padding-left:1.2rem}figure{margin:0}
img{max-width:100%;height:auto;display:block;margin:0 auto}
figcaption{color:#444;font-size:.9rem;margin:.5rem 0}
summary{cursor:pointer;color:#0072b2}.wide{overflow-x:auto}
table{border-collapse:collapse;font-size:.85rem}
th,td{padding:.2rem .6rem;text-align:right;white-space:nowrap}
th:first-child,td:first-child{text-align:left}tr:nth-child(even){background:#f4f4f4}
@media(max-width:40rem){nav ul{columns:1}img{max-width:none;width:40rem}}
"""
