"""``wefpe explore``: a page in which a lattice is dragged, and what follows from it is seen."""

from __future__ import annotations

import re
import webbrowser
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from wefpe_core import Lattice
from wefpe_core.errors import InputError

# Every page that this command writes has this line, and only such a page is overwritten.
_MARK = '<meta name="generator" content="wefpe explore">'


def explore(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Where the page is written.")
    ] = Path("explore.html"),
    tau: Annotated[
        str, typer.Option(metavar="TAU", help="The ratio to begin with, as in 0.3+0.9i.")
    ] = "",
    show: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in the browser.")
    ] = True,
) -> None:
    """Write a page to play with: drag tau and a point, and see wp, its lattice and an encoding.

    The page is one file. It needs no server and asks nothing of the network.
    """
    start = address(tau)
    if output.exists() and _MARK not in output.read_text(encoding="utf-8", errors="replace"):
        raise InputError(f"{output} exists and is no page of this command; give another --output")
    output.write_text(page(), encoding="utf-8")
    print(output)
    if show:
        webbrowser.open(output.absolute().as_uri() + start)


def page() -> str:
    """The page, complete."""
    return (files("training") / "commands" / "explore.html").read_text(encoding="utf-8")


def address(tau: str) -> str:
    """The end of an address that says where the page begins; nothing for its own beginning."""
    if not tau:
        return ""
    try:
        number = complex(re.sub(r"\s|\*", "", tau).replace("i", "j"))
    except ValueError:
        raise InputError(f"--tau is a complex number, as in 0.3+0.9i, got {tau!r}") from None
    Lattice.from_tau(number)  # says what is wrong with it
    return f"#tau={number.real},{number.imag}"
