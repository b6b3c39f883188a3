"""``wefpe backends``: which evaluators of the functions work here, and why the others do not."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from wefpe_core import available_backends, get_backend
from wefpe_core.errors import WefpeError

_MEANT_FOR = {
    "mpmath": "ground truth: any number of digits, each value computed at two precisions",
    "numpy": "arrays, complex64 and complex128",
    "torch": "tensors on CPU and GPU, derivatives of any order, compilation",
    "flint": "certified balls: values with a proven radius",
}


def backends() -> None:
    """List the backends, what each is for, and whether it works here."""
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("backend", "what it is for", "here"):
        table.add_column(heading)
    for name in dict.fromkeys((*_MEANT_FOR, *available_backends())):
        try:
            get_backend(name)
            state = "works"
        except WefpeError as error:
            state = str(error)
        table.add_row(name, _MEANT_FOR.get(name, "from an entry point"), escape(state))
    Console().print(table)
