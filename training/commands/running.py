"""How every command runs: its help from typer, its errors one line each, no traceback."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import typer
from rich.console import Console

from wefpe_core.errors import WefpeError

INTERRUPTED = 130


def run_command(
    function: Callable[..., Any], name: str, arguments: Sequence[str] | None = None
) -> int:
    """Run a typer function as ``wefpe NAME``; 0, or 2 for what the user can put right.

    A function may return another exit code.
    """
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command()(function)
    return run_app(app, name, arguments)


def run_app(app: typer.Typer, name: str, arguments: Sequence[str] | None = None) -> int:
    """The same for an app of several commands, ``wefpe NAME COMMAND``."""
    errors = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    try:
        code = app(
            None if arguments is None else list(arguments),
            prog_name=f"wefpe {name}",
            standalone_mode=False,
        )
    except WefpeError as error:
        errors.print(f"wefpe {name}: {error}")
        return 2
    except OSError as error:  # a folder that cannot be written, a full disk
        errors.print(f"wefpe {name}: {error}")
        return 2
    except MemoryError as error:
        errors.print(f"wefpe {name}: not enough memory: {error}")
        return 2
    except Exception as error:
        # typer's own errors: of the command line, with their text and code.
        if not hasattr(error, "exit_code") or not hasattr(error, "format_message"):
            raise
        message = error.format_message()
        # Called without anything an app of several commands says its whole help.
        errors.print(message if message.startswith("Usage") else f"wefpe {name}: {message}")
        return int(error.exit_code)
    if code == INTERRUPTED:  # what typer makes of Ctrl-C
        errors.print(f"wefpe {name}: interrupted")
    return code if isinstance(code, int) else 0
