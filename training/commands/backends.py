"""``wefpe backends``: which evaluators of the functions work here, and why the others do not."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from wefpe_core import get_backend
from wefpe_core.errors import WefpeError
from wefpe_core.registry import backend_descriptions


def backends() -> None:
    """List the backends, what each is for, and whether it works here."""
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("backend", "what it is for", "here"):
        table.add_column(heading)
    for row in backend_descriptions():
        try:
            get_backend(row.name)
            state = "works"
        except WefpeError as error:
            state = str(error)
        table.add_row(row.name, row.purpose, escape(state))
    Console().print(table)
