"""``wefpe backends``: which evaluators work here, which are verified, and why others are not."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from backends.hardware import hardware_of
from wefpe_core import get_backend
from wefpe_core.errors import WefpeError
from wefpe_core.receipts import REFERENCE, receipts_folder, standing
from wefpe_core.registry import backend_descriptions


def backends() -> None:
    """List the backends, what each is for, whether it works here, and whether it is verified."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("backend", "what it is for", "here", "verification"):
        table.add_column(heading, overflow="fold")
    damaged: dict[str, None] = {}
    missing: list[str] = []
    for row in backend_descriptions():
        try:
            devices = get_backend(row.name).capabilities.devices
        except WefpeError as error:
            table.add_row(row.name, row.purpose, "no", "")
            missing.append(str(error))
            continue
        for number, device in enumerate(devices):
            text, lines = _verification(row.name, device)
            damaged |= dict.fromkeys(lines)
            purpose = "" if number else row.purpose
            table.add_row(f"{row.name} {device}", purpose, "works", escape(text))
    console = Console()
    console.print(table)
    for line in missing:  # long commands, which no column could hold
        console.print(escape(line), soft_wrap=True, highlight=False)
    for line in damaged:
        console.print(f"passed over: {escape(line)}", soft_wrap=True, highlight=False)
    console.print(f"receipts are in {receipts_folder()}", soft_wrap=True, highlight=False)


def _verification(backend: str, device: str) -> tuple[str, tuple[str, ...]]:
    """How a backend stands, and lines about damaged receipts."""
    if backend == REFERENCE:
        return "the reference", ()
    found = standing(backend, device, hardware=hardware_of(backend, device))
    return str(found), found.damaged
