"""The verifier itself: it judges as its contracts say, and notices a backend that is wrong.

Sabotage: a sign flipped, a term dropped, a constant rounded to single precision, one value in
many off. Each must fail, in the right row, with a point that shows it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from backends import kernel, numpy_backend
from backends.constants import Precision, SeriesConstants
from backends.numpy_backend import NumpyBackend
from backends.pair import Pair
from verification import __main__ as report
from verification import cases, laws, oracle
from verification.judge import Verdict, judge, load_contracts
from verification.measure import Row, measure
from verification.subjects import Subject, default_subjects, numpy_subject
from wefpe_core import Lattice

LATTICE = Lattice(1.0, 0.25 + 1.125j)
CONTRACTS = {
    "accuracy": {
        "wp": {"complex128": {"largest": 4.0, "p999": 2.0}, "complex64": {"largest": 6.0}},
        "zeta": {"complex128": {"largest": 5.0}},
    },
    "elsewhere": {"wp": {"complex128": {"largest": 100.0}}},
}


def row(errors: list[float], **changes: Any) -> Row:
    fields: dict[str, Any] = {
        "subject": "numpy",
        "dtype": "complex128",
        "function": "wp",
        "family": "square",
        "region": "generic",
        "errors": np.array(errors),
        "worst_point": 0.5 + 0.25j,
        "worst_lattice": LATTICE,
    }
    return Row(**(fields | changes))


def only(verdicts: list[Verdict]) -> Verdict:
    (verdict,) = verdicts
    return verdict


# --- Judging -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("errors", "passes"),
    [
        ([0.5, 1.0], True),
        ([0.0, 0.0], True),
        ([2.0], True),
        ([0.5, 4.5], False),
        ([0.5, math.inf], False),
        ([math.inf, math.inf], False),
        ([0.5, math.nan], False),
        ([math.nan], False),
    ],
)
def test_a_row_passes_only_below_its_ceiling(errors: list[float], passes: bool) -> None:
    verdict = only(judge([row(errors)], CONTRACTS))
    assert verdict.passes is passes
    assert verdict.count == len(errors)
    assert verdict.ceiling == 4.0


def test_exactly_the_ceiling_passes_and_the_next_double_does_not() -> None:
    at, above = (
        only(judge([row([error], function="zeta")], CONTRACTS))
        for error in (5.0, math.nextafter(5.0, 6.0))
    )
    assert at.passes
    assert not above.passes


def test_the_last_thousandth_is_judged_where_a_contract_says_so() -> None:
    """Three in two thousand above 2 eps break p999; one in two thousand does not."""
    quiet = [0.5] * 2000
    one, three = [*quiet[1:], 3.5], [*quiet[3:], 3.5, 3.5, 3.5]
    assert only(judge([row(one)], CONTRACTS)).passes
    verdict = only(judge([row(three)], CONTRACTS))
    assert verdict.largest <= verdict.ceiling
    assert verdict.p999 > 2.0
    assert not verdict.passes
    # Of fewer than a thousand points the percentile would be the largest.
    assert only(judge([row(three[-900:])], CONTRACTS)).passes
    # The same errors are within a contract that has no such line.
    assert only(judge([row(three, dtype="complex64")], CONTRACTS)).passes


def test_families_are_pooled_and_the_worst_is_named() -> None:
    rows = [
        row([0.1, 0.2], family="square"),
        row([0.3, 7.0, 0.1], family="thin", worst_point=1j),
        row([0.4], family="tall"),
    ]
    verdict = only(judge(rows, CONTRACTS))
    assert (verdict.count, verdict.largest) == (6, 7.0)
    assert (verdict.worst.family, verdict.worst.worst_point) == ("thin", 1j)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_the_family_with_the_value_that_is_no_number_is_the_worst(bad: float) -> None:
    rows = [row([3.0], family="square"), row([bad], family="thin"), row([1.0], family="tall")]
    for order in (rows, rows[::-1]):
        verdict = only(judge(order, CONTRACTS))
        assert not verdict.passes
        assert verdict.worst.family == "thin"


def test_subjects_dtypes_functions_and_regions_are_judged_apart() -> None:
    rows = [
        row([1.0]),
        row([9.0], subject="torch cpu"),
        row([5.5], dtype="complex64"),
        row([5.5], function="zeta"),
        row([1.5], region="zeros"),
    ]
    verdicts = judge(reversed(rows), CONTRACTS)
    assert len(verdicts) == len(rows)
    failed = {(v.subject, v.dtype, v.function, v.region) for v in verdicts if not v.passes}
    assert failed == {
        ("torch cpu", "complex128", "wp", "generic"),
        ("numpy", "complex128", "zeta", "generic"),
    }


def test_a_row_is_judged_by_the_contract_it_names() -> None:
    assert only(judge([row([50.0], contract="elsewhere")], CONTRACTS)).passes
    assert not only(judge([row([50.0])], CONTRACTS)).passes


def test_a_function_without_contract_is_an_error_not_a_pass() -> None:
    with pytest.raises(KeyError, match="sigma"):
        judge([row([0.0], function="sigma")], CONTRACTS)


# --- Contracts -----------------------------------------------------------------------------


def test_contracts_cover_every_function_and_dtype_measured() -> None:
    accuracy = load_contracts()["accuracy"]
    measured = {name for names in oracle.VALUE_NAMES.values() for name in names}
    assert set(oracle.VALUE_NAMES) == set(oracle.REFERENCES)
    assert set(accuracy) == measured
    for name in measured:
        assert set(accuracy[name]) == set(report.DTYPES)


def test_every_subject_has_contracts_for_every_function() -> None:
    contracts = load_contracts()
    subjects, _ = default_subjects()
    for subject in subjects:
        for names in oracle.VALUE_NAMES.values():
            for name in names:
                assert contracts[subject.contract][name], (subject.label, name)


def test_ceilings_are_finite_and_ordered() -> None:
    contracts = load_contracts()
    tables = [table for name, table in contracts.items() if name.startswith("accuracy")]
    assert tables
    for table in tables:
        for by_dtype in table.values():
            for ceilings in by_dtype.values():
                assert set(ceilings) <= {"largest", "p999"}
                assert 0 < ceilings.get("p999", ceilings["largest"]) <= ceilings["largest"]
                assert math.isfinite(ceilings["largest"])
    assert 0 < contracts["laws"]["complex128"] < math.inf


def test_wp_and_its_derivative_keep_the_promise_of_four_two_and_six_eps() -> None:
    """Ceilings may be tightened; these are the ones users were promised."""
    accuracy = load_contracts()["accuracy"]
    for name in ("wp", "wp_prime"):
        assert accuracy[name]["complex128"]["largest"] <= 4.0
        assert accuracy[name]["complex128"]["p999"] <= 2.0
        assert accuracy[name]["complex64"]["largest"] <= 6.0


# --- Cases and measurement -----------------------------------------------------------------


@pytest.mark.parametrize("region", cases.REGIONS)
@pytest.mark.parametrize("dtype", report.DTYPES)
def test_points_are_reproducible_and_of_the_dtype(region: str, dtype: str) -> None:
    first, second = (cases.points(region, LATTICE, dtype, 20) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert first.dtype == dtype
    assert np.isfinite(first).all()
    assert first.shape == (20,)


def test_an_infinite_or_nan_value_is_an_infinite_error() -> None:
    for bad in (math.nan, math.inf, complex("nan+infj")):
        subject = spoiled(lambda value, bad=bad: np.full_like(value, bad))
        for measured in measure(
            subject,
            dtype="complex128",
            function="wp_and_prime",
            family="square",
            region="generic",
            count=3,
        ):
            assert np.isinf(measured.errors).all()
            assert not only(judge([measured], load_contracts())).passes


def spoiled(change: Callable[[np.ndarray], np.ndarray]) -> Subject:
    """NumPy with every value changed on its way out."""

    class Spoiled(Subject):
        def evaluate(self, function: str, *arrays: Any, lattice: Lattice) -> Any:
            values = super().evaluate(function, *arrays, lattice=lattice)
            return tuple(change(value) for value in values)

    plain = numpy_subject()
    return Spoiled("spoiled", plain.backend, plain.to_backend)


# --- Sabotage ------------------------------------------------------------------------------

Sabotage = Callable[[pytest.MonkeyPatch], None]


def with_constants(
    change: Callable[[SeriesConstants, Precision], SeriesConstants],
) -> Sabotage:
    """Change what NumPy's kernel knows of a lattice, without touching any cache."""

    def apply(patch: pytest.MonkeyPatch) -> None:
        prepare = numpy_backend.prepare_numbers
        patch.setattr(
            numpy_backend,
            "prepare_numbers",
            lambda lattice, precision: change(prepare(lattice, precision), precision),
        )

    return apply


def single(x: Pair) -> Pair:
    return Pair(float(np.float32(x.re)), float(np.float32(x.im)))


def flip_a_sign_in_the_rows(patch: pytest.MonkeyPatch) -> None:
    nearest_rows = kernel._nearest_rows

    def flipped(total: Pair, c: SeriesConstants) -> tuple[Pair, Pair]:
        value, slope = nearest_rows(total, c)
        return -value, slope

    patch.setattr(kernel, "_nearest_rows", flipped)


SABOTAGES: dict[str, tuple[Sabotage, str, str, set[str]]] = {
    # what is done: how, the function and region measured, the values that must fail
    "the sign of wp' is flipped": (
        with_constants(lambda c, _: c._replace(wp_prime_scale=-c.wp_prime_scale)),
        *("wp_and_prime", "generic", {"wp_prime"}),
    ),
    "a sign in the rows is flipped": (
        flip_a_sign_in_the_rows,
        *("wp_and_prime", "generic", {"wp"}),
    ),
    "two terms of the series are dropped": (
        with_constants(lambda c, _: c._replace(rows=c.rows[:-2], rows_slope=c.rows_slope[:-2])),
        *("wp_and_prime", "zeros", {"wp", "wp_prime"}),
    ),
    "the constant term is rounded to single precision": (
        with_constants(lambda c, _: c._replace(rows=(single(c.rows[0]), *c.rows[1:]))),
        *("wp_and_prime", "zeros", {"wp"}),
    ),
    "a root is rounded to single precision": (
        with_constants(lambda c, _: c._replace(roots=tuple(map(single, c.roots)))),
        *("wp_and_prime", "half-periods", {"wp"}),
    ),
    "the period is known to working precision only": (
        with_constants(
            lambda c, _: c._replace(
                period1_re=c.period1_re._replace(low=0.0, lowest=0.0),
                period3_im=c.period3_im._replace(low=0.0, lowest=0.0),
            )
        ),
        *("wp_and_prime", "far away", {"wp", "wp_prime"}),
    ),
    "a quasi-period is rounded to single precision": (
        with_constants(lambda c, _: c._replace(eta1=single(c.eta1))),
        *("zeta", "far away", {"zeta"}),
    ),
    "a quasi-period has the wrong sign": (
        with_constants(lambda c, _: c._replace(eta3=-c.eta3)),
        *("sigma", "other poles", {"sigma"}),
    ),
    "a logarithm is rounded to single precision": (
        with_constants(
            lambda c, _: c._replace(log_period_over_pi=float(np.float32(c.log_period_over_pi)))
        ),
        *("green", "generic", {"green"}),
    ),
    "the gap of two roots is rounded to single precision": (
        with_constants(lambda c, _: c._replace(root_gap=single(c.root_gap))),
        *("inverse_wp", "half-periods", {"inverse_wp"}),
    ),
}


def verdicts_of(function: str, region: str) -> dict[str, Verdict]:
    rows = [
        measured
        for family in cases.FAMILIES
        for measured in measure(
            numpy_subject(),
            dtype="complex128",
            function=function,
            family=family,
            region=region,
            count=4,
        )
    ]
    return {verdict.function: verdict for verdict in judge(rows, load_contracts())}


@pytest.mark.parametrize("sabotage", SABOTAGES)
def test_a_sabotaged_kernel_fails_in_the_right_row(
    sabotage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply, function, region, damaged = SABOTAGES[sabotage]
    whole = verdicts_of(function, region)
    assert all(verdict.largest <= verdict.ceiling for verdict in whole.values())
    apply(monkeypatch)
    failed = {name for name, v in verdicts_of(function, region).items() if v.largest > v.ceiling}
    assert failed >= damaged


def test_one_bad_value_in_a_row_is_enough() -> None:
    def change(value: np.ndarray) -> np.ndarray:
        value = value.copy()
        value[-1] = np.nextafter(value[-1].real, np.inf) * (1 + 1e-14) + 1j * value[-1].imag
        return value

    (wp, _) = measure(
        spoiled(change),
        dtype="complex128",
        function="wp_and_prime",
        family="square",
        region="generic",
        count=50,
    )
    verdict = only(judge([wp], load_contracts()))
    assert not verdict.passes
    assert np.count_nonzero(wp.errors > verdict.ceiling) == len(cases.FAMILIES["square"])


# --- The command ---------------------------------------------------------------------------


def test_the_report_of_a_sound_backend_ends_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert report.main(["--points", "1", "--function", "green"]) == 0
    output = capsys.readouterr().out
    assert "Scaled error in eps" in output
    assert "Laws of DLMF 23" in output
    assert "FAILS" not in output
    subjects, skipped = default_subjects()
    rows = re.search(r"(\d+) of (\d+) rows hold, 0 fail", output)
    assert rows
    assert rows[1] == rows[2]
    promised = load_contracts()
    expected = sum(
        len(cases.REGIONS) * len(promised[subject.contract]["green"])
        + (len(laws.LAWS) if subject.contract == "accuracy" else 0)
        for subject in subjects
    )
    assert int(rows[1]) == expected
    for reason in skipped:
        assert reason.split(":")[0] in output


def test_the_report_names_the_row_and_the_point_of_a_sabotaged_backend(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """NumPy's Green function with its sign flipped, and nothing else."""
    green = NumpyBackend.green
    monkeypatch.setattr(NumpyBackend, "green", lambda self, z, lattice: -green(self, z, lattice))
    assert report.main(["--points", "1", "--function", "green"]) == 1
    lines = capsys.readouterr().out.splitlines()
    failures = [line for line in lines if line.startswith("FAILS ")]
    # Every region in both dtypes, of this backend and of no other.
    assert len(failures) == len(cases.REGIONS) * len(report.DTYPES)
    for line in failures:
        match = re.fullmatch(
            r"FAILS numpy (complex\d+) green, ([\w -]+): (\S+) eps \(99\.9 %: \S+\) at "
            r"z = (complex\(float\.fromhex\('\S+'\), float\.fromhex\('\S+'\)\)), (Lattice\(.*\))",
            line,
        )
        assert match, line
        dtype, region, size, point, lattice = match.groups()
        assert region in cases.REGIONS
        # What is printed pastes back: the same point of the same lattice has the same error.
        z = eval(point)
        made = eval(lattice, {"Lattice": Lattice})
        (reference,) = oracle.green(z, made)
        value = numpy_subject().evaluate("green", np.array([z], dtype), lattice=made)[0][0]
        error = reference.error_of(value.item()) / np.finfo(dtype).eps
        assert f"{error:.3g}" == size
    assert lines[-1].endswith(f"{len(failures)} fail")


def test_a_broken_law_fails_the_report_though_no_row_does(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """zeta is not measured here, but the laws use it."""
    zeta = NumpyBackend.zeta
    monkeypatch.setattr(NumpyBackend, "zeta", lambda self, z, lattice: zeta(self, z, lattice) + 1)
    assert report.main(["--points", "1", "--function", "green"]) == 1
    output = capsys.readouterr().out
    assert re.search(r"parity 23\.2\(ii\).*FAILS", output)
    assert "fail" in output.splitlines()[-1]
    assert not [line for line in output.splitlines() if line.startswith("FAILS ")]


@pytest.mark.parametrize("bad", ["0", "-3", "1.5", "many", ""])
def test_a_number_of_points_that_is_none_is_refused_by_name(
    bad: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        report.main([f"--points={bad}"])
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert "--points" in error
    assert "positive integer" in error
    assert repr(bad) in error


def test_an_unknown_function_is_refused_with_the_known_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as caught:
        report.main(["--function", "theta"])
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert "theta" in error
    for function in oracle.REFERENCES:
        assert function in error
