"""What the benchmarks share: clocks, promises, tables and files."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from wefpe_core import InputError
from wefpe_core.registry import backend_descriptions

Work = Callable[[], object]
Clock = Callable[[], float]
_EXTRAS = {row.library: f"wefpe[{row.extra}]" for row in backend_descriptions() if row.extra}
_EXTRAS["numba"] = "wefpe[numba]"


# --- Measure -------------------------------------------------------------------------------


def missing(library: str | None) -> str | None:
    """Why work that needs `library` cannot be timed, or None if it can."""
    if library is None or find_spec(library):
        return None
    return f"skipped: not installed (pip install '{_EXTRAS.get(library, library)}')"


def failure(error: Exception) -> str:
    """An error as the problem of one row: a broken peer must not cost the other rows."""
    return f"failed: {type(error).__name__}: {str(error).partition(chr(10))[0]:.200}"


def check_device(device: str) -> None:
    """Refuse a device of torch that is not here."""
    if device == "cpu":
        return
    if not missing("torch"):
        import torch

        if torch.cuda.is_available():
            return
    raise InputError(f"--device {device}: torch is not installed or sees no such device")


def clock_of(device: str) -> Clock:
    """On the CPU the processor time of this process, which a shared machine distorts little."""
    if device == "cpu":
        return time.process_time
    import torch

    def clock() -> float:
        torch.cuda.synchronize()
        return time.perf_counter()

    return clock


def describe_clock(device: str, repeat: int) -> str:
    clock = "processor time of this process" if device == "cpu" else "wall clock, synchronised"
    return f"{clock}; best of {repeat}"


def seconds_of(work: Work, clock: Clock, runs: int = 1) -> float:
    """Seconds per run."""
    start = clock()
    for _ in range(runs):
        work()
    return max(clock() - start, 1e-9) / runs


@contextmanager
def one_thread(*, torch_too: bool) -> Iterator[None]:
    """Compute on one thread; torch gets its threads back afterwards."""
    os.environ["OMP_NUM_THREADS"] = "1"
    if not torch_too or missing("torch"):
        yield
        return
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


# --- Promise -------------------------------------------------------------------------------


class Promised(Protocol):
    """A row of a benchmark."""

    @property
    def is_kept(self) -> bool | None: ...

    def as_json(self) -> dict[str, Any]: ...


def is_within(
    value: float | None,
    at_most: float | None = None,
    at_least: float | None = None,
    problem: str | None = None,
) -> bool | None:
    """Whether a promise is kept; None if there is none. What was skipped breaks no promise."""
    if value is None or problem:
        return False if (problem or "").startswith("failed") else None
    if at_most is not None:
        return value <= at_most
    return None if at_least is None else value >= at_least


@dataclass(frozen=True)
class Quantity:
    """A number that is no time, such as a quotient of two times."""

    name: str
    value: float
    unit: str
    at_most: float | None = None
    at_least: float | None = None

    @property
    def is_kept(self) -> bool | None:
        return is_within(self.value, self.at_most, self.at_least)

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"is_kept": self.is_kept}


def exit_code(check: bool, *tables: Iterable[Promised]) -> int:
    """1 if a promise is broken and `check` asks for all to be kept."""
    return 1 if check and any(row.is_kept is False for rows in tables for row in rows) else 0


# --- Show ----------------------------------------------------------------------------------


def three_digits(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def new_table(title: str, *headings: str) -> Table:
    table = Table(title=title, box=box.SIMPLE, padding=(0, 1, 0, 0), title_justify="left")
    table.add_column(headings[0], overflow="fold")
    for heading in (*headings[1:], "promised", "kept"):
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def add_row(
    table: Table, name: str, numbers: Sequence[str], promise: str, is_kept: bool | None
) -> None:
    mark = {None: "", True: "[green]yes[/]", False: "[bold red]NO[/]"}[is_kept]
    table.add_row(escape(name), *numbers, promise, mark)


def quantity_table(title: str, quantities: Iterable[Quantity]) -> Table:
    table = new_table(title, "", "value")
    for q in quantities:
        limit = f"<= {q.at_most:g}" if q.at_most else f">= {q.at_least:g}" if q.at_least else ""
        add_row(table, q.name, [f"{three_digits(q.value)} {q.unit}"], limit, q.is_kept)
    return table


def print_setting(setting: Mapping[str, str], console: Console) -> None:
    for key, value in setting.items():
        console.print(f"[bold]{key}[/]: {escape(value)}", highlight=False)


def write_json(path: Path, setting: Mapping[str, str], **tables: Iterable[Promised]) -> None:
    rows = {name: [row.as_json() for row in table] for name, table in tables.items()}
    text = json.dumps({"circumstances": dict(setting), **rows}, indent=2)
    path.write_text(text + "\n", encoding="utf-8")
