"""``wefpe encodings``: what there is, of which kind, with which options and parameters."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from wefpe_core.errors import InputError

if TYPE_CHECKING:
    from training.encodings.registry import EncodingDescription


def overview(descriptions: Sequence[EncodingDescription]) -> Table:
    caption = "parameters for ViT-Ti/16 at 224: width 192, 12 layers, 3 heads, 14 x 14 patches"
    table = Table(title="Positional encodings", caption=caption, box=box.SIMPLE_HEAD)
    for heading in ("name", "kind", "what it is"):
        table.add_column(heading)
    table.add_column("learned", justify="right")
    for known in descriptions:
        count = f"{known.parameter_count:,}"
        table.add_row(known.name, known.kind or "", escape(known.summary), count)
    return table


def details(known: EncodingDescription) -> list[str | Table]:
    options = Table(title="options", box=box.SIMPLE_HEAD, title_justify="left")
    for heading in ("name", "type", "default", "meaning"):
        options.add_column(heading)
    for item in known.options:
        options.add_row(item.name, escape(item.type), escape(repr(item.default)), item.meaning)
    parameters = Table(title="learned parameters", box=box.SIMPLE_HEAD, title_justify="left")
    for heading in ("name", "shape"):
        parameters.add_column(heading)
    for name, shape in known.parameters:
        parameters.add_row(name, " x ".join(map(str, shape)) or "number")
    return [
        f"[bold]{known.name}[/] ({known.kind or 'control'}): {known.summary}",
        *([f"  {escape(known.formula)}"] if known.formula else []),
        options,
        parameters,
    ]


def encodings(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME", help="Show these with all their options; all in short if none is given."
        ),
    ] = None,
    draw: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write a picture of each there, as NAME.png."),
    ] = None,
    resolution: Annotated[
        bool, typer.Option("--resolution", help="Measure what another grid does to the tables.")
    ] = False,
) -> None:
    """List the positional encodings, or show some with formula, options and parameters."""
    from training.encodings import available_encodings, describe_encoding
    from training.encodings.registry import nearest_encoding

    known = available_encodings()
    for name in names or ():
        if name not in known:
            end = nearest_encoding(name) or f"; there are {', '.join(known)}"
            raise InputError(f"there is no encoding {name!r}{end}")
    console = Console(width=None if sys.stdout.isatty() else 120)
    if draw:
        from training.study.draw_encodings import draw_encodings

        for path in draw_encodings(draw, names or []):
            print(path)
    elif resolution:
        from training.study.draw_encodings import resolution_table

        console.print(resolution_table())
    elif names:
        for name in names:
            for part in details(describe_encoding(name)):
                console.print(part)
    else:
        console.print(overview([describe_encoding(name) for name in known]))
        console.print("wefpe encodings NAME shows formula, options and parameters.")
