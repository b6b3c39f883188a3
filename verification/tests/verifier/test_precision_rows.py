"""The accuracy promised in contracts.toml, row by row, on few points; the report has many.

Rows of one function and dtype share their references, which are cached per process; xdist gives
all tests of a file to one process.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import mpmath
import numpy as np
import pytest

from backends.constants import DOUBLE, SINGLE, Precision
from verification import cases, oracle
from verification.functions import FUNCTIONS
from verification.judge import judge, load_contracts
from verification.measure import measure
from verification.subjects import DTYPES, Subject, numpy_subject, tensor_lattice_subject
from wefpe_core import Lattice, available_backends, bounds, get_backend
from wefpe_core.bounds import QSeriesTerms

CONTRACTS = load_contracts()
# Per lattice; the fifteen lattices of all families make 180 values of a row.
POINTS = 12

# The rest is in the report alone.
POINT_FUNCTIONS = ("wp_and_prime", "zeta", "sigma", "green", "inverse_wp")

ROWS = [
    pytest.param(
        *(function, dtype, region),
        id=f"{function}-{dtype}-{region}",
    )
    for function in POINT_FUNCTIONS
    for dtype in DTYPES
    for region in FUNCTIONS[function].regions
]
every_row = pytest.mark.parametrize(("function", "dtype", "region"), ROWS)
# For lattices of complex64 tensors a promise is made of wp and wp' alone.
_OF_TENSORS = CONTRACTS["accuracy_of_tensor_lattices"]
every_row_of_tensors = pytest.mark.parametrize(
    ("function", "dtype", "region"),
    [row for row in ROWS if row.values[1] in _OF_TENSORS[FUNCTIONS[str(row.values[0])].values[0]]],
)


def assert_row_holds(subject: Subject, function: str, dtype: str, region: str) -> None:
    """The largest error of all families is below the ceiling.

    The 99.9th percentile of 180 values would be their maximum; the report judges that one.
    """
    rows = [
        row
        for family in cases.FAMILIES
        for row in measure(
            subject, dtype=dtype, function=function, family=family, region=region, count=POINTS
        )
    ]
    verdicts = judge(rows, CONTRACTS)
    assert {verdict.function for verdict in verdicts} == set(FUNCTIONS[function].values)
    for verdict in verdicts:
        assert verdict.count == POINTS * sum(map(len, cases.FAMILIES.values()))
        assert verdict.largest <= verdict.ceiling, verdict


@every_row
def test_errors_stay_below_the_ceiling(
    subject: Subject, function: str, dtype: str, region: str
) -> None:
    assert_row_holds(subject, function, dtype, region)


@every_row_of_tensors
def test_errors_on_lattices_of_tensors_stay_below_theirs(
    function: str, dtype: str, region: str
) -> None:
    if "torch" not in available_backends():
        pytest.skip("the torch extra is not installed")
    assert_row_holds(tensor_lattice_subject("cpu"), function, dtype, region)


def test_a_row_measured_with_a_flaw_does_not_hold() -> None:
    """The check above can fail: one value in a thousand off by 1e-14 is enough."""
    plain = numpy_subject()

    class Flawed(Subject):
        def evaluate(self, *arguments: Any, **options: Any) -> tuple[np.ndarray, ...]:
            values = [value.copy() for value in super().evaluate(*arguments, **options)]
            values[0][-1] *= 1 + 1e-14
            return tuple(values)

    flawed = Flawed("flawed", plain.backend, plain.to_backend)
    with pytest.raises(AssertionError, match="ceiling"):
        assert_row_holds(flawed, "wp_and_prime", "complex128", "generic")


# --- A second opinion on the references ----------------------------------------------------

SAMPLE = [
    pytest.param(family, region, id=f"{family}-{region}")
    for family in cases.FAMILIES
    for region in cases.REGIONS
]


@pytest.mark.parametrize(("family", "region"), SAMPLE)
def test_references_and_values_agree_with_certified_balls(family: str, region: str) -> None:
    """Arb's balls contain the truth; the reference must be inside to its thirty digits.

    And what NumPy answers must be as near to the ball as its contract says.
    """
    flint = pytest.importorskip(
        "flint", reason="python-flint is not installed: pip install 'wefpe[flint]'"
    )
    balls = get_backend("flint", digits=40)
    lattice = cases.FAMILIES[family][-1]
    points = cases.points(region, lattice, "complex128", 3)
    values = get_backend("numpy").wp_and_prime(points, lattice)
    for k, z in enumerate(points):
        certified = balls.wp_and_prime(complex(z), lattice)
        references = oracle.wp_and_prime(complex(z), lattice)
        names = FUNCTIONS["wp_and_prime"].values
        for name, ball, reference, got in zip(names, certified, references, values, strict=True):
            with mpmath.workdps(50), flint.ctx.workdps(60):
                scale = (
                    abs(reference.value) + abs(reference.offset * reference.slope) + reference.floor
                )
                truth = flint.acb(reference.value)
                thirty_digits = flint.arb(scale) * flint.arb(10) ** -oracle.DIGITS
                assert abs(ball - truth) <= thirty_digits, (name, z)
                ceiling = CONTRACTS["accuracy"][name]["complex128"]["largest"] * 2.0**-52
                answer = flint.acb(complex(got[k]))
                assert abs(ball - answer) <= flint.arb(scale) * ceiling, (name, z)


# --- Truncation ----------------------------------------------------------------------------

WORST_TAUS = {
    "hexagonal corner": 0.5 + 0.75**0.5 * 1j,
    "the other corner": -0.5 + 0.75**0.5 * 1j,
    "square": 1j,
    "on the rim": complex(0.28, 0.96),
    "on the side": 0.5 + 1.0j,
}


@pytest.mark.parametrize("tau", WORST_TAUS)
@pytest.mark.parametrize("precision", [DOUBLE, SINGLE], ids=["double", "single"])
def test_truncation_stays_below_a_sixteenth_of_an_eps(tau: str, precision: Precision) -> None:
    """Rigorous bounds of the kernel's series, one row in closed form, over the whole cell.

    In units of what errors are measured by, |f| + |z f'| + period^-k. The kernel folds the
    cell to its upper half, so heights from 0 to half the cell are all there are.
    """
    ratio = WORST_TAUS[tau]
    omega1, omega3 = 0.5, 0.5 * ratio
    lattice = Lattice(omega1, omega3)
    backend = get_backend("numpy")
    g2 = complex(backend.invariants(lattice)[0])
    # Also what lies between the heights: the bound grows with the height, so take the next one.
    columns, heights = np.linspace(-0.5, 0.5, 21), np.linspace(0, 0.5, 26)
    terms = QSeriesTerms(
        a=precision.lambert_terms, b=precision.lambert_terms, constant=precision.terms_e2
    )
    for low, high in pairwise(heights):
        z = columns + low * ratio
        # Off the pole itself; the bound only knows heights.
        z = np.where(abs(z) < 1e-3, 1e-3, z)
        offset = np.min([abs(z - m - n * ratio) for m in (-1, 0, 1) for n in (0, 1)], axis=0)
        p, dp = backend.wp_and_prime(z, lattice)
        bound = bounds.q_series_bound(high * ratio, omega1, omega3, rows=1, terms=terms)
        scale = abs(p) + offset * abs(dp) + 1
        scale_prime = abs(dp) + offset * abs(6 * p * p - g2 / 2) + 1  # DLMF 23.3.12
        assert (bound.wp <= precision.eps / 16 * scale).all()
        assert (bound.wp_prime <= precision.eps / 16 * scale_prime).all()


@pytest.mark.parametrize("precision", [DOUBLE, SINGLE], ids=["double", "single"])
def test_the_constant_term_of_tensor_lattices_is_summed_far_enough(precision: Precision) -> None:
    """They sum E2 as it stands, without rows in closed form; numbers take it from fifty digits."""
    ratio = WORST_TAUS["hexagonal corner"]
    plenty = 40  # of the other two series, which are not asked about here
    bound = bounds.q_series_bound(
        0, 0.5, 0.5 * ratio, rows=0, terms=QSeriesTerms(plenty, plenty, precision.terms_e2)
    )
    # With periods 1 and tau the floor of the scale is 1.
    assert bound.wp <= precision.eps / 16


@pytest.mark.parametrize("precision", [DOUBLE, SINGLE], ids=["double", "single"])
def test_half_as_many_terms_would_not_do(precision: Precision) -> None:
    """So that the test above is one of the number of terms and not of something else."""
    ratio = WORST_TAUS["hexagonal corner"]
    few = precision.lambert_terms // 2
    bound = bounds.q_series_bound(0.5 * ratio, 0.5, 0.5 * ratio, rows=1, terms=few)
    lattice = Lattice(0.5, 0.5 * ratio)
    p, dp = get_backend("numpy").wp_and_prime(0.5 * ratio, lattice)
    assert bound.wp > precision.eps / 16 * (abs(p) + abs(0.5 * ratio * dp) + 1)
