"""``wefpe encodings``: what there is, of which kind, with which options and parameters."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from training.encodings import available_encodings, describe_encoding
from training.encodings.registry import EncodingDescription
from wefpe_core.errors import did_you_mean


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


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="wefpe encodings", description=__doc__)
    add = parser.add_argument
    add("name", nargs="*", help="show this one with its options (default: all)")
    add("--draw", type=Path, metavar="FOLDER", help="write a picture of each there, as NAME.png")
    add("--resolution", action="store_true", help="measure what another grid does to the tables")
    options = parser.parse_args(arguments)
    wanted, names = options.name, available_encodings()
    unknown = [name for name in wanted if name not in names]
    if unknown:
        end = did_you_mean(unknown[0], names) or f"; there are {', '.join(names)}"
        print(f"wefpe encodings: no {unknown[0]!r}{end}", file=sys.stderr)
        return 2
    console = Console(width=None if sys.stdout.isatty() else 120)
    if options.draw:
        from training.study.draw_encodings import draw_encodings

        for path in draw_encodings(options.draw, wanted):
            print(path)
        return 0
    if options.resolution:
        from training.study.draw_encodings import resolution_table

        console.print(resolution_table())
        return 0
    if not wanted:
        console.print(overview([describe_encoding(name) for name in names]))
        console.print("wefpe encodings NAME shows formula, options and parameters.")
    for name in wanted:
        for part in details(describe_encoding(name)):
            console.print(part)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
