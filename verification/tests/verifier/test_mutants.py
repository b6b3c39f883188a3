"""The mutation tool: it makes what it says, notices damage where it is, and hides nothing."""

from __future__ import annotations

import ast
import inspect
import os
from collections import Counter
from functools import cache
from textwrap import dedent

import numpy as np
import pytest

pytest.importorskip("torch", reason="the torch extra is not installed")
pytest.importorskip("flint", reason="the flint extra is not installed")
if not hasattr(os, "fork"):
    pytest.skip("mutants run in forked processes", allow_module_level=True)

import typer
from typer.testing import CliRunner

from verification.mutation import algebra_checks, mutants, program_checks, series_checks
from verification.mutation.backends_under_test import Check
from verification.mutation.operators import Mutant, damaged, mutants_of

SOURCE = dedent(
    '''
    """A module."""
    LIMIT = 0.5

    def f(x: int, y) -> float:
        """Not mutated."""
        if x < 0:
            raise ValueError(f"negative: {-x}")
        z = x.re * y + 2
        z = abs(z)
        return -g(z, y), (y - 1) * LIMIT

    class Shape:
        side = 3

        @property
        def area(self):
            return self.side ** 2
    '''
)


def changes(source: str) -> set[tuple[str, str, str]]:
    return {(m.function, m.original, m.mutated) for m in mutants_of(source, "m")}


# --- Making mutants ------------------------------------------------------------------------


def test_the_damages_of_a_small_module() -> None:
    assert changes(SOURCE) == {
        ("LIMIT", "0.5", "1.0"),
        ("LIMIT", "0.5", repr(0.5 * (1 + 2.0**-20))),
        ("f", "if x < 0:", "if not x < 0:"),
        ("f", "x < 0", "x >= 0"),
        ("f", "0", "1"),
        ("f", "x.re * y + 2", "x.re * y - 2"),
        ("f", "x.re * y + 2", "x.re * y"),
        ("f", "x.re * y + 2", "2"),
        ("f", "x.re * y", "x.re / y"),
        ("f", "x.re * y", "x.re"),
        ("f", "x.re", "x.im"),
        ("f", "2", "3"),
        ("f", "z = abs(z)", "(deleted)"),
        ("f", "abs(z)", "z"),
        ("f", "(-g(z, y), (y - 1) * LIMIT)", "((y - 1) * LIMIT, -g(z, y))"),
        ("f", "-g(z, y)", "g(z, y)"),
        ("f", "g(z, y)", "g(y, z)"),
        ("f", "(y - 1) * LIMIT", "(y - 1) / LIMIT"),
        ("f", "(y - 1) * LIMIT", "y - 1"),
        ("f", "y - 1", "y + 1"),
        ("f", "y - 1", "y"),
        ("f", "y - 1", "1"),
        ("f", "1", "2"),
        ("Shape.area", "self.side ** 2", "self.side * 2"),
        ("Shape.area", "self.side ** 2", "self.side"),
        ("Shape.area", "2", "3"),
    }


def test_a_mutant_is_the_module_with_that_one_change() -> None:
    lines = ast.unparse(ast.parse(SOURCE)).splitlines()
    for mutant in mutants_of(SOURCE, "m"):
        changed = ast.unparse(damaged(SOURCE, mutant)).splitlines()
        assert len(changed) == len(lines), mutant
        differing = [(a, b) for a, b in zip(lines, changed, strict=True) if a != b]
        assert len(differing) == 1, mutant
        before, after = differing[0]
        assert mutant.original.strip("()") in before
        assert mutant.mutated == "(deleted)" or mutant.mutated.strip("()") in after


def test_text_that_occurs_twice_is_named_by_what_encloses_it() -> None:
    """Or an excuse for the first would excuse the second."""
    source = "def f(x):\n    a = x + 0.5\n    b = x * 0.5\n    return a, b\n"
    assert ("f", "0.5", "1.0") not in changes(source)
    assert {("f", "x + 0.5", "x + 1.0"), ("f", "x * 0.5", "x * 1.0")} <= changes(source)


def test_constants_of_a_module_are_told_apart() -> None:
    assert {("A", "1.0", "2.0"), ("B", "1.0", "2.0")} <= changes("A = 1.0\nB = 1.0\n")


@cache
def mutants_by_module() -> dict[str, list[Mutant]]:
    return {module: mutants.all_mutants(module) for module in mutants.MODULES}


def test_no_two_mutants_have_the_same_name() -> None:
    names = Counter(mutant.key for group in mutants_by_module().values() for mutant in group)
    assert max(names.values()) == 1


def checks_by_name() -> dict[str, Check]:
    return {
        name: value
        for module in (series_checks, algebra_checks, program_checks)
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and name[0] != "_"
    }


def test_every_module_has_checks_and_many_mutants() -> None:
    for module, group in mutants_by_module().items():
        assert len(group) > 40, module
        assert set(mutants.MODULES[module]) <= set(checks_by_name().values())


def test_every_check_is_used() -> None:
    assert set().union(*mutants.MODULES.values()) == set(checks_by_name().values())


# --- Known survivors -----------------------------------------------------------------------


def test_every_excuse_is_for_a_mutant_that_exists() -> None:
    existing = {mutant.key for group in mutants_by_module().values() for mutant in group}
    assert set(mutants.equivalents()) - existing == set()


def test_every_excuse_has_a_reason() -> None:
    assert all(len(reason.split()) >= 3 for reason in mutants.equivalents().values())


def test_an_excuse_does_not_count_for_a_mutant_that_is_noticed() -> None:
    (mutant, *_) = mutants_by_module()["pair"]
    assert mutants.Outcome(mutant, "accuracy", "some reason").verdict == "killed"
    assert mutants.Outcome(mutant, None, "some reason").verdict == "equivalent"
    assert mutants.Outcome(mutant, None, None).verdict == "survived"


# --- Judging -------------------------------------------------------------------------------


def judged_by(mutant: Mutant, *checks: str) -> str | None:
    """What a few checks say in a forked process."""
    with np.errstate(all="ignore"):
        return mutants.noticed(
            mutant, [checks_by_name()[check.replace(" ", "_")] for check in checks]
        )


def the(module: str, function: str, original: str, mutated: str) -> Mutant:
    (mutant,) = (
        mutant
        for mutant in mutants_by_module()[module]
        if mutant.key == (f"backends.{module}", function, original, mutated)
    )
    return mutant


QUICK: tuple[Check, ...] = (
    series_checks.symmetries,
    algebra_checks.addition,
    algebra_checks.truncated_sums,
    algebra_checks.exact_box,
)


def test_undamaged_code_survives() -> None:
    for module in mutants.MODULES:
        name = f"backends.{module}"

        def look(name: str = name, module: str = module) -> str | None:
            mutants.install(name, ast.parse(mutants.source_of(module)))
            return mutants.first_failure(QUICK)

        assert mutants.in_child_process(look) is None, module


@pytest.mark.parametrize(
    ("mutant", "check", "where"),
    [
        (
            (
                "kernel",
                "wp_terms",
                "cosecant_squared + above_root",
                "cosecant_squared - above_root",
            ),
            *("laws", "differential equation 23.3.10"),
        ),
        (
            ("algebra", "_chord", "slope * (p1 - p) - dp1", "slope * (p1 - p) + dp1"),
            *("addition", "the sum of two points"),
        ),
        (
            ("algebra", "lattice_sum", "square.re - counter.re", "square.re + counter.re"),
            *("truncated sums", "truncated sum"),
        ),
        (
            ("exact_reduction", "LatticeBox.__init__", "m * x1 + n * x3", "m * x1 - n * x3"),
            *("exact box", "the box of the truncated sum"),
        ),
    ],
)
def test_an_obvious_damage_is_noticed_in_the_right_place(
    mutant: tuple[str, str, str, str], check: str, where: str
) -> None:
    noticed = judged_by(the(*mutant), check)
    assert noticed is not None
    assert noticed.startswith(f"{check}: ")
    assert where in noticed


def test_a_damage_out_of_reach_of_the_checks_survives() -> None:
    mutant = the("algebra", "_chord", "slope * (p1 - p) - dp1", "slope * (p1 - p)")
    assert judged_by(mutant, "truncated sums") is None


def test_an_exception_and_an_endless_loop_count_as_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails() -> None:
        raise ZeroDivisionError("nothing")

    def hangs() -> None:
        while True:
            pass

    assert mutants.in_child_process(fails) == "raises ZeroDivisionError: nothing"
    monkeypatch.setattr(mutants, "SECONDS_PER_MUTANT", 1)
    assert "signal" in str(mutants.in_child_process(hangs))


def test_the_parent_keeps_its_own_modules() -> None:
    from backends import kernel

    mutant = the("kernel", "zeta_in_cell", "rows + rest", "rows - rest")
    assert judged_by(mutant, "accuracy") is not None
    import backends.kernel as again

    assert again is kernel
    assert again.__spec__ is not None


# --- Reporting -----------------------------------------------------------------------------


def command(*words: str) -> int:
    """The exit code of the command with these words."""
    app = typer.Typer()
    app.command()(mutants.mutants)
    return CliRunner().invoke(app, words).exit_code


def outcomes(killed: int, survived: int, equivalent: int) -> list[mutants.Outcome]:
    group = mutants_by_module()["pair"]
    kinds = [("wrong", None)] * killed + [(None, None)] * survived + [(None, "same")] * equivalent
    return [mutants.Outcome(m, *kind) for m, kind in zip(group, kinds, strict=False)]


def test_the_rate_leaves_equivalent_mutants_out() -> None:
    tally = mutants.Tally.of(outcomes(9, 1, 5))
    assert tally == (9, 1, 5)
    assert tally.rate == 0.9
    assert tally.cells() == ["15", "9", "1", "5", "90.0 %"]


def test_the_file_names_command_counts_and_survivors() -> None:
    text = mutants.markdown(outcomes(3, 1, 2), "nox -s mutants -- --module pair")
    assert "nox -s mutants -- --module pair" in text
    assert "| backends.pair | 6 | 3 | 1 | 2 | 75.0 % |" in text
    survivor = outcomes(3, 1, 2)[3].mutant
    assert f"- `{survivor}`" in text
    assert f"backends/pair.py:{survivor.line} ({survivor.function})" in text


@pytest.mark.parametrize(("survivors", "code"), [(0, 0), (1, 0), (2, 1)])
def test_the_exit_code_asks_for_nine_in_ten(
    survivors: int, code: int, monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    made = outcomes(10 - survivors, survivors, 0)
    monkeypatch.setattr(mutants, "prepare", lambda modules: None)
    monkeypatch.setattr(mutants, "judge_all", lambda chosen, console: made)
    target = tmp_path / "mutation.md"
    assert command("--module", "pair", "--output", str(target)) == code
    text = target.read_text(encoding="utf-8")
    assert "kill rate" in text
    assert "nox -s mutants -- --module pair --output FILE" in text


def test_unknown_names_are_refused() -> None:
    assert command("--module", "kernels") == 2
    assert command("--module", "pair", "--function", "pair_square_root") == 2


def test_a_sample_is_drawn_by_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []

    def record(chosen: list[Mutant], console: object) -> list[mutants.Outcome]:
        drawn.append([mutant.key for mutant in chosen])
        return outcomes(1, 0, 0)

    monkeypatch.setattr(mutants, "prepare", lambda modules: None)
    monkeypatch.setattr(mutants, "judge_all", record)
    for seed in ("1", "1", "2"):
        assert command("--module", "pair", "--sample", "5", "--seed", seed) == 0
    assert drawn[0] == drawn[1] != drawn[2]
    assert all(len(keys) == 5 for keys in drawn)
