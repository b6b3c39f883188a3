"""``python -m verification.mutants``: would the verifier notice if the code were wrong?

Damages the kernel and reduction modules in some two thousand small ways, one at a time, and asks
the checks of `verification.mutant_checks` about each. A mutant that no check notices has
survived: it is a hole in the verifier, or equivalent to the original for a reason written in
``equivalent_mutants.toml``, and then not counted. The exit code is 1 if fewer than
90 % of the others are noticed.

Every mutant runs in a forked process of its own, on references computed once. (Forking is
why this command needs Linux or macOS.)
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import random
import signal
import sys
import tomllib
import types
from collections.abc import Callable, Iterable
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from verification.mutant_checks import first_failure
from verification.mutant_suspects import Backends
from verification.mutation_operators import Mutant, damaged, mutants_of

REQUIRED_RATE = 0.9
SECONDS_PER_MUTANT = 60

_OF_SERIES = (
    *("accuracy", "special values", "symmetries", "laws", "accidental poles"),
    "next to the pole",
)
_OF_ALGEBRA = ("addition", "truncated sums", "Carlson's integral", "inverse")
# The modules, and the checks that reach them, those that notice most first.
MODULES: dict[str, tuple[str, ...]] = {
    "kernel": (*_OF_SERIES, "derivatives"),
    "argument": (*_OF_SERIES, "inverse", "derivatives"),
    "algebra": (*_OF_ALGEBRA, "derivatives"),
    "exact_reduction": ("exact numbers", "exact reduction", "exact box", "reference backends"),
    "pair": (*_OF_SERIES, *_OF_ALGEBRA, "derivatives"),
    "constants": (*_OF_SERIES, *_OF_ALGEBRA, "derivatives"),
}


class Outcome(NamedTuple):
    mutant: Mutant
    noticed: str | None  # what was wrong, or None for a survivor
    excuse: str | None  # why a survivor is equivalent, from the list

    @property
    def verdict(self) -> str:
        if self.noticed is not None:
            return "killed"
        return "survived" if self.excuse is None else "equivalent"


def source_of(module: str) -> str:
    return files("backends").joinpath(f"{module}.py").read_text("utf-8")


def all_mutants(module: str) -> list[Mutant]:
    return mutants_of(source_of(module), f"backends.{module}")


def equivalents() -> dict[tuple[str, str, str, str], str]:
    """The reviewed survivors: by module, function, original and mutated text, the reason."""
    text = files("verification").joinpath("equivalent_mutants.toml").read_text("utf-8")
    return {
        (entry["module"], entry["function"], original, mutated): entry["reason"]
        for entry in tomllib.loads(text)["equivalent"]
        for original, mutated in entry["mutants"]
    }


# --- Running -------------------------------------------------------------------------------


def install(module: str, tree: Any) -> None:
    """Make the damaged tree the module of that name, for everything imported from now on."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "backends"]:
        del sys.modules[name]
    package = importlib.import_module("backends")
    fresh = types.ModuleType(module)
    sys.modules[module] = fresh
    exec(compile(tree, f"<mutant of {module}>", "exec"), fresh.__dict__)
    setattr(package, module.partition(".")[2], fresh)


def in_a_child(function: Callable[[], str | None]) -> str | None:
    """The function's answer in a forked process; an error or a time-out is an answer too."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:  # from here on nothing may return
        try:
            signal.alarm(SECONDS_PER_MUTANT)
            try:
                answer = function()
            except BaseException as error:
                answer = f"raises {type(error).__name__}: {error}"
            with os.fdopen(writer, "wb") as stream:
                stream.write((answer or "").encode("utf-8", "replace")[:1000])
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        answer = stream.read().decode("utf-8")
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return f"stopped by signal {os.WTERMSIG(status)}"
    return answer or None


def judged(mutant: Mutant) -> str | None:
    """What is noticed of a mutant; None if nothing is."""
    module = mutant.module.rpartition(".")[2]
    tree = damaged(source_of(module), mutant)

    def look() -> str | None:
        install(mutant.module, tree)
        return first_failure(MODULES[module], Backends())

    return in_a_child(look)


def prepare(modules: Iterable[str]) -> None:
    """Fill the caches of references, and see that the undamaged code passes."""
    import torch

    torch.set_num_threads(1)  # a pool of threads would not survive the fork
    names = dict.fromkeys(name for module in modules for name in MODULES[module])
    failure = first_failure(names, Backends())
    if failure is not None:
        raise SystemExit(f"the undamaged code fails: {failure}")


def run(mutants: list[Mutant], console: Console) -> list[Outcome]:
    """Judge every mutant; survivors are printed as they are found."""
    known = equivalents()
    outcomes = []
    for mutant in track(mutants, "mutants", console=console):
        noticed = judged(mutant)
        outcome = Outcome(mutant, noticed, None if noticed else known.get(mutant.key))
        if outcome.verdict == "survived":
            console.print(f"survived {mutant}", soft_wrap=True, markup=False, highlight=False)
        outcomes.append(outcome)
    return outcomes


# --- Reporting -----------------------------------------------------------------------------


class Tally(NamedTuple):
    """Counts of one module, or of all."""

    killed: int
    survived: int
    equivalent: int

    @classmethod
    def of(cls, outcomes: Iterable[Outcome]) -> Tally:
        verdicts = [outcome.verdict for outcome in outcomes]
        return cls(*(verdicts.count(name) for name in cls._fields))

    @property
    def rate(self) -> float:
        counted = self.killed + self.survived
        return self.killed / counted if counted else 1.0

    def cells(self) -> list[str]:
        counts = (self.killed, self.survived, self.equivalent)
        return [str(sum(counts)), *map(str, counts), f"{100 * self.rate:.1f} %"]


HEADINGS = ("module", "mutants", "killed", "survived", "equivalent", "kill rate")


def tallies(outcomes: list[Outcome]) -> dict[str, Tally]:
    modules = dict.fromkeys(outcome.mutant.module for outcome in outcomes)
    rows = {
        name: Tally.of(outcome for outcome in outcomes if outcome.mutant.module == name)
        for name in modules
    }
    return rows | {"all": Tally.of(outcomes)}


def markdown(outcomes: list[Outcome], command: str) -> str:
    rows = {name: tally.cells() for name, tally in tallies(outcomes).items()}
    versions = ", ".join(f"{name} {version(name)}" for name in ("numpy", "torch", "mpmath"))
    survivors = [outcome.mutant for outcome in outcomes if outcome.verdict == "survived"]
    lines = [
        "# Mutation testing of the kernel and reduction modules",
        "",
        f"Written by `{command}`; wefpe {version('wefpe')}, Python {platform.python_version()},",
        f"{versions}, {platform.machine()} {platform.system()}.",
        "",
        "A mutant is the module with one small damage: an operator, a constant, a sign, a dropped",
        "term or call, swapped arguments. It is killed if the verifier, on few points, notices.",
        "Equivalent are those listed with a reason in `verification/equivalent_mutants.toml`;",
        "the kill rate is of the others.",
        "",
        "| " + " | ".join(HEADINGS) + " |",
        "|---" + "|---:" * (len(HEADINGS) - 1) + "|",
        *(f"| {name} | " + " | ".join(cells) + " |" for name, cells in rows.items()),
        "",
        "## Survivors",
        "",
        *([f"- `{mutant}`" for mutant in survivors] or ["None."]),
        "",
    ]
    return "\n".join(lines)


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m verification.mutants", description=__doc__)
    parser.add_argument(
        "--module", action="append", choices=list(MODULES), help="only this one (may be repeated)"
    )
    parser.add_argument("--function", help="only mutants of this function")
    parser.add_argument("--sample", type=int, help="only so many mutants, drawn at random")
    parser.add_argument("--seed", type=int, default=0, help="of the sample (default: 0)")
    parser.add_argument("--output", type=Path, help="write the result to this Markdown file")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    options = parse_arguments(arguments)
    modules = options.module or list(MODULES)
    mutants = [mutant for module in modules for mutant in all_mutants(module)]
    if options.function:
        mutants = [mutant for mutant in mutants if mutant.function == options.function]
    if options.sample is not None and options.sample < len(mutants):
        chosen = random.Random(options.seed).sample(range(len(mutants)), options.sample)
        mutants = [mutants[index] for index in sorted(chosen)]
    np.seterr(all="ignore")  # damaged code may divide by anything
    prepare(modules)
    console = Console()
    outcomes = run(mutants, console)
    table = Table(title="Mutants of the kernel and reduction modules")
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading == "module" else "right")
    for name, tally in tallies(outcomes).items():
        table.add_row(name, *tally.cells())
    console.print(table)
    if options.output:
        given = sys.argv[1:] if arguments is None else arguments
        command = " ".join(["python -m verification.mutants", *given])
        options.output.write_text(markdown(outcomes, command), encoding="utf-8")
    return 0 if Tally.of(outcomes).rate >= REQUIRED_RATE else 1


if __name__ == "__main__":
    raise SystemExit(main())
