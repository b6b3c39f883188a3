"""The verifier itself: what it measures, and that it judges as contracts and baselines say."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from verification import cases
from verification.functions import ARRAY_FUNCTIONS, FUNCTIONS, PARITY, SYMBOLS, WITHOUT_LATTICE
from verification.judge import (
    DamagedFileError,
    JudgedRow,
    judge,
    load_baselines,
    load_contracts,
    loose_contracts,
    record,
)
from verification.measure import Row, measure
from verification.search import REGION
from verification.subjects import DTYPES, Subject, numpy_subject, subjects_here
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
        "points": [((0.5 + 0.25j * k,), LATTICE) for k in range(len(errors))],
    }
    return Row(**(fields | changes))


def only(verdicts: list[JudgedRow]) -> JudgedRow:
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
        row([0.3, 7.0, 0.1], family="thin"),
        row([0.4], family="tall"),
    ]
    verdict = only(judge(rows, CONTRACTS))
    assert (verdict.count, verdict.largest) == (6, 7.0)
    assert verdict.worst.family == "thin"
    assert verdict.worst.worst_place == ((0.5 + 0.25j,), LATTICE)


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


# --- Functions -----------------------------------------------------------------------------


def test_every_list_of_functions_is_taken_from_one() -> None:
    values = {value for function in FUNCTIONS.values() for value in function.values}
    assert set(SYMBOLS) <= values
    assert set(PARITY) == {"wp", "wp_prime", "zeta", "sigma", "green"}
    assert {value for value, sign in PARITY.items() if sign == 1} == {"wp", "green"}
    backend = numpy_subject().backend
    for name in (*ARRAY_FUNCTIONS, *PARITY):
        assert callable(getattr(backend, name))
    assert not {"invariants", "gradient"} & set(ARRAY_FUNCTIONS)


# --- Contracts -----------------------------------------------------------------------------


def test_contracts_cover_every_function_and_dtype_measured() -> None:
    """Gradients are promised where a lattice of tensors has them, constants in one precision."""
    contracts = load_contracts()
    every = {name for f in FUNCTIONS.values() for name in f.values}
    derivatives = {n for name, f in FUNCTIONS.items() if "gradient" in name for n in f.values}
    without = {n for name in WITHOUT_LATTICE for n in FUNCTIONS[name].values}
    of_tensors = every - (without - derivatives)
    # Periods are computed in working precision where the invariants are tensors.
    inverted = set(FUNCTIONS["lattice_from_invariants"].values)
    constants = {
        n
        for name in ("invariants", "roots", "quasi_periods", "laurent_coefficients")
        for n in FUNCTIONS[name].values
    }
    assert set(contracts["accuracy_of_tensor_lattices"]) == of_tensors
    assert set(contracts["accuracy"]) == every - derivatives - inverted
    for name in every - derivatives - inverted - constants:
        assert set(contracts["accuracy"][name]) == set(DTYPES)


def test_every_subject_has_contracts_for_every_function() -> None:
    contracts = load_contracts()
    subjects, _ = subjects_here(compiled=("wp_and_prime",))
    for subject in subjects:
        for function in subject.functions or ("wp_and_prime", "zeta", "invariants", "add"):
            for name in FUNCTIONS[function].values:
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
    assert 0 < contracts["laws"]["residual"]["complex128"]["largest"] < math.inf


def test_wp_and_its_derivative_keep_the_promise_of_four_two_and_six_eps() -> None:
    """Ceilings may be tightened; these are the ones users were promised."""
    accuracy = load_contracts()["accuracy"]
    for name in ("wp", "wp_prime"):
        assert accuracy[name]["complex128"]["largest"] <= 4.0
        assert accuracy[name]["complex128"]["p999"] <= 2.0
        assert accuracy[name]["complex64"]["largest"] <= 6.0


def test_a_damaged_contracts_file_is_named_with_its_key(tmp_path: Path) -> None:
    bad = {
        "[accuracy\n": "contracts.toml",
        "accuracy = 3": "accuracy",
        "[accuracy]\nwp = 4": "accuracy.wp",
        "[accuracy.wp]\ncomplex128 = 4": "accuracy.wp.complex128",
        "[accuracy.wp]\ncomplex128 = { p999 = 2.0 }": "accuracy.wp.complex128",
        "[accuracy.wp]\ncomplex128 = { largest = -4.0 }": "accuracy.wp.complex128.largest",
        '[accuracy.wp]\ncomplex128 = { largest = "4" }': "accuracy.wp.complex128.largest",
        "[accuracy.wp]\ncomplex128 = { largest = 4, p99 = 2 }": "accuracy.wp.complex128.p99",
    }
    path = tmp_path / "contracts.toml"
    for text, key in bad.items():
        path.write_text(text, encoding="utf-8")
        with pytest.raises(DamagedFileError) as caught:
            load_contracts(path)
        assert str(path) in str(caught.value)
        assert key in str(caught.value)


# --- Baselines -----------------------------------------------------------------------------


def test_errors_may_not_creep_up_under_a_generous_contract() -> None:
    key = "numpy / complex128 / wp / generic"
    assert only(judge([row([3.9])], CONTRACTS, {key: 1.0})).passes
    verdict = only(judge([row([3.9])], CONTRACTS, {key: 0.9}))
    assert verdict.problems == ["more than 4 times the baseline of 0.9"]
    # An error of half an eps is as good as none: a better baseline asks for no more.
    assert only(judge([row([1.9])], CONTRACTS, {key: 0.0})).passes
    assert not only(judge([row([2.1])], CONTRACTS, {key: 0.0})).passes
    assert only(judge([row([3.9])], CONTRACTS, {"another row": 0.1})).passes


def test_a_contract_far_above_every_baseline_is_too_loose() -> None:
    def loose(ceiling: float, *baselines: float) -> list[str]:
        contracts = {"accuracy": {"wp": {"complex128": {"largest": ceiling}}}}
        regions = ("generic", "zeros")[: len(baselines)]
        keys = {
            f"numpy / complex128 / wp / {region}": baseline
            for region, baseline in zip(regions, baselines, strict=True)
        }
        return loose_contracts(
            judge([row([0.1], region=region) for region in regions], contracts, keys)
        )

    assert loose(16.0, 1.0) == []
    (text,) = loose(16.1, 1.0)
    assert text.startswith("accuracy.wp.complex128: the ceiling of 16.1")
    assert loose(30.0, 1.0, 2.0) == []  # the largest of the rows it covers counts
    assert loose(8.0, 0.0) == []
    assert loose(1e9) == []  # nothing recorded, nothing to compare with


def test_recorded_baselines_are_read_back_and_others_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "baselines.json"
    record(judge([row([1.25])], CONTRACTS), {"platform": "here"}, path)
    record(judge([row([2.5], region="zeros")], CONTRACTS), {"platform": "there"}, path)
    assert load_baselines(path) == {
        "numpy / complex128 / wp / generic": 1.25,
        "numpy / complex128 / wp / zeros": 2.5,
    }
    assert json.loads(path.read_text("utf-8"))["recorded"] == {"platform": "there"}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("{", "baselines.json"),
        ("[]", "largest"),
        ('{"largest": 3}', "largest"),
        ('{"largest": {"numpy / wp": "small"}}', "numpy / wp"),
        ('{"largest": {"numpy / wp": NaN}}', "numpy / wp"),
        ('{"largest": {"numpy / wp": -1}}', "numpy / wp"),
    ],
)
def test_a_damaged_baselines_file_is_named_with_its_row(
    text: str, named: str, tmp_path: Path
) -> None:
    path = tmp_path / "baselines.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DamagedFileError) as caught:
        load_baselines(path)
    assert str(path) in str(caught.value)
    assert named in str(caught.value)


def test_the_recorded_baselines_belong_to_rows_that_exist() -> None:
    values = {name for f in FUNCTIONS.values() for name in f.values}
    regions = {region for f in FUNCTIONS.values() for region in f.regions} | {REGION}
    rows = load_baselines()
    assert rows
    for key in rows:
        subject, dtype, value, region = key.split(" / ")
        assert subject.startswith(("numpy", "torch"))
        assert (dtype in DTYPES, value in values, region in regions) == (True, True, True), key


# --- Cases and measurement -----------------------------------------------------------------


@pytest.mark.parametrize("region", [*cases.REGIONS, *cases.OTHER_REGIONS])
@pytest.mark.parametrize("dtype", DTYPES)
def test_points_are_reproducible_and_of_the_dtype(region: str, dtype: str) -> None:
    first, second = (cases.points(region, LATTICE, dtype, 20) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert first.dtype == dtype
    assert np.isfinite(first).all()
    assert first.shape == (20,)


def test_an_infinite_or_nan_value_is_an_infinite_error() -> None:
    for bad in (math.nan, math.inf, complex("nan+infj")):
        subject = spoiled(partial(np.full_like, fill_value=bad))
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
        def evaluate(self, *arguments: Any, **options: Any) -> Any:
            values = super().evaluate(*arguments, **options)
            return tuple(change(value) for value in values)

    plain = numpy_subject()
    return Spoiled("spoiled", plain.backend, plain.to_backend)
