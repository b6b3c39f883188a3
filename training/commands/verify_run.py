"""How accurate the tables of a trained encoding are: its backend against mpmath."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import torch
from rich import box
from rich.console import Console
from rich.table import Table

from training.encodings import AbstractEncoding
from training.encodings.weierstrass_bias import GreenEncoding, RelativeEncoding
from training.encodings.weierstrass_heat import HeatEncoding
from training.engine.finished_run import open_trained_encoding
from verification import oracle
from verification.judge import load_contracts
from verification.tables import TableError, feature_errors, references, value_errors
from wefpe_core import Lattice, get_backend

_COMPRESSIONS: dict[str, Callable[[Any], Any]] = {
    "tanh": mpmath.tanh,
    "softsign": lambda x: x / (1 + abs(x)),
}


@dataclass(frozen=True)
class TableRow:
    """One line of the report on a trained encoding."""

    part: str  # the name of the encoding, with its place if there are several
    error: TableError
    ceiling: float
    place: str  # the patch or the displacement with the largest error

    @property
    def holds(self) -> bool:
        return self.error.largest <= self.ceiling


def verify_run(path: Path) -> int:
    """Print the largest errors of the tables of a finished run; 1 if one is above its ceiling."""
    encoding = open_trained_encoding(path)
    grid = encoding.size.grid
    console = Console(soft_wrap=True, highlight=False)
    parts = list(elliptic_parts(encoding))
    console.print(f"{path}: {encoding.name} as trained, grid {grid[0]} x {grid[1]}")
    if not parts:
        console.print("its encoding evaluates no elliptic function by a backend: nothing to verify")
        return 0
    rows: list[TableRow] = []
    for title, part in parts:
        lattice, use = part.lattice(), part.elliptic_use()
        learned = "learned" if use.is_learned else "fixed"
        console.print(f"{title}: backend {use.backend}, {learned} lattice {lattice!r}")
        if isinstance(part, HeatEncoding):
            count = part.times().numel() * len(part.offsets(grid).dx)
            compared = min(count, _MOST_OF_HEADS)
            console.print(f"{title}: {compared:,} of {count:,} values of its heads are compared")
        rows += table_rows(title, part)
    console.print(_table(rows))
    failed = [row for row in rows if not row.holds]
    verdict = f"{len(failed)} above the ceiling" if failed else "every table is within its ceiling"
    console.print(f"{'FAIL' if failed else 'PASS'} {verdict}")
    return 1 if failed else 0


def elliptic_parts(encoding: AbstractEncoding) -> Iterator[tuple[str, Any]]:
    """The encodings that ask a backend: the encoding itself, or its parts, each with a title."""
    for name, module in encoding.named_modules():
        if isinstance(module, AbstractEncoding) and module.elliptic_use() is not None:
            yield (f"{module.name} ({name})" if name else module.name), module


@torch.no_grad()
def table_rows(title: str, part: Any) -> list[TableRow]:
    """The errors of the values in double precision and of the table after the cast."""
    grid, contracts = part.size.grid, load_contracts()
    lattice: Lattice = part.lattice()
    is_learned = part.elliptic_use().is_learned
    accuracy = contracts["accuracy_of_tensor_lattices" if is_learned else "accuracy"]
    # A backend may have declared ceilings of its own, by which it was verified.
    declared = {} if is_learned else get_backend(part.elliptic_use().backend).contracts

    def ceiling_of(value: str) -> float:
        own = declared.get(value, {}).get("complex128")
        return float(accuracy[value]["complex128"]["largest"] if own is None else own)

    cast = contracts["encodings"]["features"]["float32"]["largest"]
    if isinstance(part, HeatEncoding):
        return _heat_rows(title, part, ceiling_of("log_heat"), cast)
    uncast = contracts["encodings"]["backends"]["float64"]["largest"]
    z = part.points(grid).numpy()
    places = _patches(grid)
    if isinstance(part, (RelativeEncoding, GreenEncoding)):
        places = _displacements(part, grid)
    kept = np.array([place is not None for place in places])
    shown = [place for place in places if place is not None]
    if isinstance(part, GreenEncoding):
        truth = references("green", z[kept], lattice)
        values = part.values(grid).numpy()[kept]
        found = value_errors(["green"], [values], truth)
        ceilings = [ceiling_of("green")]
        after = values.astype(str(part.dtype).removeprefix("torch."))
        found.append(_cast_error(after, truth))
        ceilings.append(cast)
    else:
        truth = references("wp_and_prime", z[kept], lattice)
        p_re, p_im, dp_re, dp_im = (value.numpy()[kept] for value in part.values(grid))
        found = value_errors(["wp", "wp_prime"], [p_re + 1j * p_im, dp_re + 1j * dp_im], truth)
        ceilings = [ceiling_of("wp"), ceiling_of("wp_prime")]
        if isinstance(part, RelativeEncoding) and not is_learned:  # by the addition formula
            ceilings = [contracts["encodings"]["differences"]["complex128"]["largest"]] * 2
        scale = float(part.compression_scale())
        compress = _COMPRESSIONS[getattr(part.options, "compression", "tanh")]
        # Without the cast: the same numbers in a module whose tables are of double precision.
        for module, ceiling in ((deepcopy(part).double(), uncast), (part, cast)):
            features = module.features(grid).numpy()[kept]
            found += feature_errors(features, truth, scale, compress)
            ceilings.append(ceiling)
    return [
        TableRow(title, error, ceiling, shown[error.at])
        for error, ceiling in zip(found, ceilings, strict=True)
    ]


# Every head of every layer has values of its own; so many of them are compared, evenly chosen.
_MOST_OF_HEADS = 100


def _heat_rows(title: str, part: HeatEncoding, ceiling: float, cast: float) -> list[TableRow]:
    """The errors of log K at displacements from the centres of heads, before and after the cast.

    The coordinates of a point are rounded before they are subtracted, so the scale also has what a
    relative change of each of them does to the leading term, |z|^2/2t.
    """
    (height, width), lattice = part.size.grid, part.lattice()
    values, offsets = part.values(part.size.grid).numpy(), part.offsets(part.size.grid)
    times, centres = part.times().tolist(), part.centre.tolist()
    w1, w3 = complex(lattice.omega1), complex(lattice.omega3)
    exact = get_backend("mpmath", dps=oracle.DIGITS)
    truth, found, places = [], [], []
    for k in np.linspace(0, values.size - 1, min(values.size, _MOST_OF_HEADS)).astype(int):
        layer, head, at = map(int, np.unravel_index(k, values.shape))
        t, (x, y) = times[layer][head], centres[layer][head]
        dx, dy = int(offsets.dx[at]), int(offsets.dy[at])
        with mpmath.workdps(oracle.DIGITS):
            along, down = 2 * part.alpha_u * mpmath.mpc(w1), 2 * part.alpha_v * mpmath.mpc(w3)
            parts = [along * dx / width, -along * x / width, down * dy / height, -down * y / height]
            z = mpmath.fsum(parts)
            log = exact.log_heat(z, t, lattice)
            nearest = abs(oracle.reduced_argument(complex(z), lattice))
            moved = mpmath.fsum(map(abs, parts)) * nearest / t
            area = 4 * (w1.conjugate() * w3).imag
            floor = 1 + abs(mpmath.log(t)) + abs(mpmath.log(area))
            truth.append((oracle.SumReference(log, (log, moved, floor)),))
        found.append(values[layer, head, at])
        places.append(f"layer {layer}, head {head}, {dy:+d} rows, {dx:+d} columns")
    got = np.array(found)
    errors = value_errors(["log_heat"], [got], truth)
    errors.append(_cast_error(got.astype(str(part.dtype).removeprefix("torch.")), truth))
    return [
        TableRow(title, error, limit, places[error.at])
        for error, limit in zip(errors, (ceiling, cast), strict=True)
    ]


def _cast_error(table: Any, truth: list[tuple[Any, ...]]) -> TableError:
    """The error of a table of real values relative to the largest of them."""
    wanted = [float(each[0].value) for each in truth]
    largest = max(map(abs, wanted))
    errors = [abs(got - want) / largest for got, want in zip(table.tolist(), wanted, strict=True)]
    return TableError.of("table", table.dtype.name, errors)


def _patches(grid: tuple[int, int]) -> list[str | None]:
    height, width = grid
    return [f"patch row {i}, column {j}" for i in range(height) for j in range(width)]


def _displacements(part: Any, grid: tuple[int, int]) -> list[str | None]:
    """The displacements of a grid; None for a period, where the encoding has a value of its own."""
    offsets, skip = part.offsets(grid), part.is_period(grid).tolist()
    return [
        None if is_period else f"{dy:+d} rows, {dx:+d} columns"
        for dx, dy, is_period in zip(offsets.dx.tolist(), offsets.dy.tolist(), skip, strict=True)
    ]


def _table(rows: list[TableRow]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("table")
    table.add_column("dtype")
    for heading in ("error", "ceiling"):
        table.add_column(f"{heading}, eps", justify="right")
    table.add_column("worst at")
    table.add_column("verdict")
    for row in rows:
        error = row.error
        name = f"{row.part}: {error.name}" if len({each.part for each in rows}) > 1 else error.name
        verdict = "[green]holds[/]" if row.holds else "[bold red]FAILS[/]"
        size = f"{error.largest:.3g}"
        table.add_row(name, error.dtype, size, f"{row.ceiling:g}", row.place, verdict)
    return table
