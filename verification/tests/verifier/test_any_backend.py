"""The verifier measures any backend, and says in one line what is wrong with one."""

from __future__ import annotations

import contextlib
import re
from importlib.metadata import EntryPoint

import numpy as np
import pytest

from backends.numpy_backend import NumpyBackend
from verification import second_opinion, verifier
from verification.judge import judge, load_contracts
from verification.measure import measure
from verification.subjects import (
    MisbehavingBackendError,
    Skip,
    general_subjects,
    with_declared,
)
from wefpe_core import (
    BackendCapabilities,
    BackendUnavailableError,
    WefpeError,
    get_backend,
    registry,
)
from wefpe_core.errors import MissingDependencyError
from wefpe_core.jacobi_functions import not_offered
from wefpe_core.receipts import Need


class Sound(NumpyBackend):
    name = "plugin"


class ReturnsLists(Sound):
    def wp_and_prime(self, z, lattice):
        return tuple(value.tolist() for value in super().wp_and_prime(z, lattice))


class WrongShape(Sound):
    def wp_and_prime(self, z, lattice):
        return tuple(value[:1] for value in super().wp_and_prime(z, lattice))


class WrongDtype(Sound):
    def wp_and_prime(self, z, lattice):
        return tuple(value.astype(np.complex64) for value in super().wp_and_prime(z, lattice))


class OneValue(Sound):
    def wp_and_prime(self, z, lattice):
        return super().wp_and_prime(z, lattice)[0]


class Raises(Sound):
    def wp_and_prime(self, z, lattice):
        raise ZeroDivisionError("no luck")


class ClaimsGradients(Sound):
    capabilities = BackendCapabilities(
        differentiable_in_z=True, differentiable_in_lattice=True, gradients_by="torch"
    )


class ClaimsGradientsOfNobody(Sound):
    capabilities = BackendCapabilities(differentiable_in_lattice=True)


class NotANumber(Sound):
    def wp_and_prime(self, z, lattice):
        return tuple(value * np.nan for value in super().wp_and_prime(z, lattice))


class LacksHeat(Sound):
    def heat(self, z, t, lattice):
        not_offered(self, "heat")

    log_heat = heat


class OnlySingle(Sound):
    capabilities = BackendCapabilities(dtypes=("complex64",))

    def wp_and_prime(self, z, lattice):
        assert z.dtype == np.complex64
        return super().wp_and_prime(z, lattice)


class RaisesElsewhere(Sound):
    def ellipj(self, u, m):
        raise ZeroDivisionError("no luck")

    def invariants(self, lattice):
        raise ZeroDivisionError("no luck")


class SaysNothing(Sound):
    capabilities = {"dtypes": ["complex128"]}  # type: ignore[assignment]  # noqa: RUF012


class RaisesWhenAsked(Sound):
    @property
    def capabilities(self):  # type: ignore[override]
        raise ZeroDivisionError("no luck")


class RaisesWhenBuilt(Sound):
    def __init__(self):
        raise ZeroDivisionError("no luck")


class Declares(Sound):
    contracts = {"wp": {"complex128": 1e-3}}  # noqa: RUF012 - as a user would write it


class DeclaresNonsense(Sound):
    contracts = {"wq": {"complex128": 1.0}}  # noqa: RUF012


@pytest.fixture
def plugged_in(monkeypatch):
    """The subjects of a class that an entry point names "plugin"."""

    def subjects(backend_class):
        point = EntryPoint("plugin", f"{__name__}:{backend_class.__name__}", "wefpe.backends")
        monkeypatch.setattr(registry, "_third_party", lambda: {"plugin": point})
        monkeypatch.setattr(EntryPoint, "load", lambda self: backend_class)
        registry._build.cache_clear()
        return general_subjects("plugin")

    yield subjects
    registry._build.cache_clear()


def rows_of(subject, function="wp_and_prime"):
    return measure(
        subject,
        dtype="complex128",
        function=function,
        family="square",
        region="generic",
        count=4,
    )


def test_a_sound_backend_is_measured_by_the_general_contracts(plugged_in):
    (subject,) = plugged_in(Sound)
    assert subject.dtypes == ("complex128", "complex64")
    assert all(row.passes for row in judge(rows_of(subject), load_contracts()))


@pytest.mark.parametrize("name", ["mpmath", "flint"])
def test_the_reference_backends_can_be_measured_too(name):
    pytest.importorskip(name)
    (subject,) = general_subjects(name)
    assert subject.dtypes == ("complex128",)
    assert all(row.passes for row in judge(rows_of(subject), load_contracts()))


@pytest.mark.parametrize(
    ("backend_class", "message"),
    [
        (ReturnsLists, "a list"),
        (WrongShape, r"the shape \(1,\) for \(4,\)"),
        (WrongDtype, "complex64 for complex128"),
        (OneValue, "1 values, not 2"),
        (Raises, "ZeroDivisionError: no luck"),
    ],
)
def test_what_no_backend_may_return_is_named(plugged_in, backend_class, message):
    (subject,) = plugged_in(backend_class)
    with pytest.raises(MisbehavingBackendError, match=f"'plugin'.*{message}"):
        rows_of(subject)


def plan_of(*functions, dtype="complex128", size=verifier.QUICK):
    return verifier.Plan(size, "some", ["plugin"], ["cpu"], [dtype], functions)


def test_a_function_that_a_backend_lacks_is_skipped_by_name(plugged_in):
    plugged_in(LacksHeat)
    report, rows = verifier.run(plan_of("wp_and_prime", "heat"))
    assert {row.function for row in rows} == {"wp", "wp_prime"}
    assert report.verdict == "PASS"
    reason = "the backend 'plugin' does not offer heat"
    assert Skip("heat", reason) in report.skipped
    with pytest.raises(verifier.NothingToMeasureError, match=reason):
        verifier.run(plan_of("heat"))
    needs = [Need("wp_and_prime", "complex128"), Need("heat", "complex128")]
    with pytest.raises(verifier.NothingToMeasureError, match=f"cannot be verified .*: {reason}$"):
        verifier.verify_quickly("plugin", "cpu", needs)


def test_a_backend_of_single_precision_is_not_asked_for_laws_in_double(plugged_in, monkeypatch):
    monkeypatch.setattr(second_opinion, "agreements", lambda count: ([], []))
    plugged_in(OnlySingle)
    size = verifier.QUICK._replace(sample=1)  # not quick, so that there would be laws
    report, rows = verifier.run(plan_of("wp_and_prime", dtype="complex64", size=size))
    assert rows
    assert report.laws == []


@pytest.mark.parametrize("function", ["ellipj", "wp_and_prime"])
def test_whatever_a_backend_raises_is_named(plugged_in, function):
    """In functions that take no lattice, and in laws."""
    plugged_in(RaisesElsewhere)
    size = verifier.QUICK._replace(sample=1)
    with pytest.raises(MisbehavingBackendError, match="'plugin' raised ZeroDivisionError: no luck"):
        verifier.run(plan_of(function, size=size))


VERIFY = ("verify", "--backend", "plugin", "--dtype", "complex128", "--function", "wp_and_prime")


@pytest.mark.parametrize(
    "backend_class", [ReturnsLists, WrongShape, WrongDtype, Raises, ClaimsGradientsOfNobody]
)
def test_the_command_names_a_misbehaving_backend_in_one_line(plugged_in, backend_class, capsys):
    pytest.importorskip("typer", reason="the training extra is not installed")
    from training.cli import main

    with contextlib.suppress(MisbehavingBackendError):
        plugged_in(backend_class)
    assert main([*VERIFY, "--size", "small"]) == 2
    *_, line = capsys.readouterr().err.splitlines()  # after those of progress
    assert "'plugin'" in line


def test_the_command_names_a_backend_that_cannot_be_imported_in_one_line(
    plugged_in, monkeypatch, capsys
):
    pytest.importorskip("typer", reason="the training extra is not installed")
    from training.cli import main

    plugged_in(Sound)
    registry._build.cache_clear()

    def load(self):
        raise ImportError("libmine.so: cannot open")

    monkeypatch.setattr(EntryPoint, "load", load)
    assert main([*VERIFY, "--size", "small"]) == 2
    *_, line = capsys.readouterr().err.splitlines()  # after those of progress
    assert "'plugin'" in line
    assert "ImportError: libmine.so: cannot open" in line


@pytest.mark.parametrize(
    ("backend_class", "message"),
    [
        (SaysNothing, "capabilities of the backend 'plugin' must be BackendCapabilities, got {"),
        (RaisesWhenAsked, "'plugin' .* does not say what it can do: ZeroDivisionError: no luck"),
        (RaisesWhenBuilt, "'plugin' .* cannot be built: ZeroDivisionError: no luck"),
    ],
)
def test_a_backend_that_does_not_say_what_it_can_do_is_no_backend(
    plugged_in, backend_class, message, capsys
):
    with pytest.raises(WefpeError, match=message):
        plugged_in(backend_class)
    pytest.importorskip("typer", reason="the training extra is not installed")
    from training.cli import main

    assert main(["backends"]) == 0
    assert re.search(message, capsys.readouterr().out)


def test_nan_is_an_infinite_error(plugged_in):
    (subject,) = plugged_in(NotANumber)
    assert not any(row.passes for row in judge(rows_of(subject), load_contracts()))


def test_gradients_that_are_claimed_but_missing_are_named(plugged_in):
    pytest.importorskip("torch")
    _, tensors = plugged_in(ClaimsGradients)
    with pytest.raises(MisbehavingBackendError, match="says that it is differentiable"):
        rows_of(tensors, "gradient")
    with pytest.raises(MisbehavingBackendError, match="gradients_by is None"):
        plugged_in(ClaimsGradientsOfNobody)


def test_contracts_that_a_backend_declares_are_its_own(plugged_in):
    subjects = plugged_in(Declares)
    contracts = with_declared(load_contracts(), subjects)
    by_value = {row.function: row for row in judge(rows_of(subjects[0]), contracts)}
    assert not by_value["wp"].passes
    assert by_value["wp_prime"].passes
    with pytest.raises(MisbehavingBackendError, match="'wq'"):
        with_declared(load_contracts(), plugged_in(DeclaresNonsense))


def test_a_backend_that_fails_to_load_is_unavailable(plugged_in, monkeypatch):
    plugged_in(Sound)
    registry._build.cache_clear()

    def load(self):
        raise RuntimeError("broken module")

    monkeypatch.setattr(EntryPoint, "load", load)
    with pytest.raises(BackendUnavailableError, match=r"'plugin'.*RuntimeError: broken module"):
        get_backend("plugin")


def test_scipy_agrees_with_the_oracle():
    pytest.importorskip("scipy")
    assert all(agreement.holds for agreement in second_opinion.scipy_agreements(1))


def test_without_scipy_its_opinion_is_skipped_by_name(monkeypatch):
    def missing(count):
        raise MissingDependencyError("the second opinion of SciPy needs scipy")

    monkeypatch.setattr(second_opinion, "scipy_agreements", missing)
    monkeypatch.setattr(second_opinion, "bound_agreements", list)
    monkeypatch.setattr(second_opinion, "compare", lambda *_: None)
    _, skipped = second_opinion.agreements(1)
    assert "scipy" in {skip.name for skip in skipped}


def test_truncation_errors_stay_below_their_bounds_and_reach_them():
    found = {agreement.function: agreement for agreement in second_opinion.bound_agreements()}
    assert set(found) == set(second_opinion.TRUNCATIONS)
    assert all(0 < agreement.largest <= 1 for agreement in found.values())


def test_a_bound_that_is_too_small_fails(monkeypatch):
    theorem = second_opinion.TRUNCATIONS["q-series"]

    def halved(*arguments, **options):
        return tuple(0.5 * x for x in theorem.bound(*arguments, **options))

    damaged = {"q-series": theorem._replace(bound=halved)}
    monkeypatch.setattr(second_opinion, "TRUNCATIONS", damaged)
    found = second_opinion.bound_agreements()
    assert not any(agreement.holds for agreement in found)
    for agreement in found:
        assert agreement.problem.startswith(f"the error of the truncated {agreement.function} is ")
        assert agreement.problem.endswith(" x its bound")
