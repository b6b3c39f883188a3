"""The error metrics: exact on values worked out by hand, and defined for every pair."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wefpe_core.accuracy import extended_relative_error, in_eps, scaled_error
from wefpe_core.errors import InputError

INF, NAN = math.inf, math.nan
SMALLEST = 5e-324
LARGEST = float(np.finfo(float).max)

any_double = st.floats(allow_nan=True, allow_infinity=True)
any_complex = st.builds(complex, any_double, any_double)

COMPLEX_INFINITIES = [
    complex(INF, NAN),
    complex(NAN, -INF),
    complex(-INF, 0),
    complex(INF, INF),
    INF,
    -INF,
    np.complex64(complex(INF, NAN)),
    mpmath.mpc("inf", "nan"),
    mpmath.mpf("-inf"),
]
NOT_A_NUMBERS = [NAN, complex(NAN, 0), complex(1, NAN), np.float32(NAN), mpmath.mpf("nan")]


def one_unit(got, want):
    """`scaled_error` with nothing but |want| in the scale: the relative error again."""
    return scaled_error(got, want, derivative=0, offset=0, floor=0)


both_metrics = pytest.mark.parametrize("metric", [extended_relative_error, one_unit])


@both_metrics
@pytest.mark.parametrize(
    ("got", "want", "error"),
    [
        (1.5, 1.0, 0.5),
        (3 + 4j, 0 + 5j, math.sqrt(10) / 5),
        (-1.0, 1.0, 2.0),
        (2, 2, 0.0),
        (np.complex64(1 + 0.5j), np.complex128(1), 0.5),
        (np.float32(0.1), 0.1, (float(np.float32(0.1)) - 0.1) / 0.1),
        (np.array(3.0), 2.0, 0.5),
        (2 * SMALLEST, SMALLEST, 1.0),
        (LARGEST * (1 + 1j), LARGEST * (1 + 1j), 0.0),
        (complex(LARGEST, LARGEST), complex(-LARGEST, -LARGEST), 2.0),
        (LARGEST, SMALLEST, INF),
        (SMALLEST, LARGEST, 1.0),
    ],
)
def test_finite_values(metric, got, want, error):
    assert metric(got, want) == error


@both_metrics
def test_difference_is_taken_in_the_wider_type(metric):
    with mpmath.workdps(50):
        want = mpmath.mpc(1, 1) / 3
        got = complex(want)
        expected = float(abs(mpmath.mpc(got) - want) / abs(want))
    assert 0 < expected < 2.0**-52
    # Both orders of the operands, at mpmath's default precision: the inputs keep their digits.
    assert metric(got, want) == pytest.approx(expected, rel=2.0**-50)
    assert metric(np.complex128(got), want) == pytest.approx(expected, rel=2.0**-50)
    assert metric(want, got) == pytest.approx(expected, rel=2.0**-50)


@both_metrics
def test_values_outside_the_double_range_have_errors_too(metric):
    tiny, huge = mpmath.mpf("1e-5000"), mpmath.mpf("1e5000")
    assert metric(2 * tiny, tiny) == 1.0
    assert metric(3 * huge, huge) == 2.0
    assert metric(huge, tiny) == INF
    assert metric(huge, 1.0) == INF
    assert metric(1.0, huge) == 1.0


@both_metrics
@pytest.mark.parametrize("got", COMPLEX_INFINITIES)
def test_there_is_one_complex_infinity(metric, got):
    for want in COMPLEX_INFINITIES:
        assert metric(got, want) == 0.0
    for other in (0.0, 1 + 1j, LARGEST, *NOT_A_NUMBERS):
        assert metric(got, other) == INF
        assert metric(other, got) == INF


@both_metrics
@pytest.mark.parametrize("got", NOT_A_NUMBERS)
def test_nan_equals_only_nan(metric, got):
    for want in NOT_A_NUMBERS:
        assert metric(got, want) == 0.0
    for other in (0.0, 1 + 1j, LARGEST):
        assert metric(got, other) == INF
        assert metric(other, got) == INF


@both_metrics
def test_a_wanted_zero_is_measured_in_smallest_doubles(metric):
    assert metric(0.0, 0.0) == 0.0
    assert metric(-0.0, 0j) == 0.0
    assert metric(3 * SMALLEST, 0.0) == 3.0
    assert metric(1.0, 0.0) == INF
    assert metric(mpmath.mpf("1e-400"), 0) > 0


@settings(deadline=None)  # a loaded machine is no failure
@given(any_complex, any_complex)
def test_metrics_are_total_and_zero_only_for_the_same_value(got, want):
    error = extended_relative_error(got, want)
    assert error >= 0
    assert extended_relative_error(want, want) == 0.0
    finite = math.isfinite(abs_or_inf(got)) and math.isfinite(abs_or_inf(want))
    if finite and error == 0:
        # A quotient may underflow; nothing else may lose a difference.
        assert got == want or abs_or_inf(got - want) < SMALLEST / 2.0**-52 * abs_or_inf(want)


def test_an_offset_whose_modulus_is_no_double_is_served():
    offset = complex(1.5e308, 1.5e308)
    assert scaled_error(2.0, 1.0, 0.0, offset, 0.0) == 1.0
    assert scaled_error(2.0, 1.0, 1e-310, offset, 0.0) == pytest.approx(1 / (1 + 0.0212), rel=1e-3)
    assert scaled_error(2.0, 1.0, 1.0, offset, 0.0) == INF


@settings(deadline=None)  # a loaded machine is no failure
@given(any_complex, any_complex, any_complex, any_complex, any_double.map(abs))
def test_scaled_error_is_total_and_never_above_the_relative_one(
    got, want, derivative, offset, floor
):
    error = scaled_error(got, want, derivative, offset, floor)
    assert error >= 0
    assert scaled_error(want, want, derivative, offset, floor) == 0.0
    parts = (derivative, offset, floor, abs_or_inf(derivative) * abs_or_inf(offset))
    if all(abs_or_inf(part) < LARGEST / 4 for part in parts):
        # Two roundings of the scale, and a wanted zero counting as the smallest double.
        relative = extended_relative_error(got, want)
        assert error <= relative * (1 + 2.0**-50) or error == pytest.approx(relative)


def abs_or_inf(value):
    return math.hypot(value.real, value.imag)


def test_scaled_error_adds_derivative_and_floor_to_the_scale():
    assert scaled_error(5.0, 1.0, derivative=2.0, offset=-1.5, floor=4.0) == 4 / (1 + 3 + 4)
    assert scaled_error(1j, 0, derivative=3 + 4j, offset=1, floor=0) == 1 / 5
    assert scaled_error(2.0, 0.0, derivative=0.0, offset=1.0, floor=8.0) == 1 / 4
    # Powers of two beyond the double range cancel: nothing overflows on the way.
    assert scaled_error(2.0**1023, 2.0**1022, derivative=2.0**1022, offset=1, floor=0) == 1 / 2


@pytest.mark.parametrize("broken", [{"derivative": NAN}, {"offset": INF}, {"floor": INF}])
def test_a_scale_that_cannot_be_formed_excuses_nothing(broken):
    parts = {"derivative": 1.0, "offset": 1.0, "floor": 1.0} | broken
    assert scaled_error(1.0, 2.0, **parts) == INF
    assert scaled_error(2.0, 2.0, **parts) == 0.0


def test_an_overflowing_scale_excuses_nothing():
    assert scaled_error(1.0, 2.0, derivative=1e200, offset=1e200, floor=0) == INF


def test_a_negative_floor_is_refused():
    with pytest.raises(InputError, match="floor"):
        scaled_error(1.0, 1.0, derivative=0, offset=0, floor=-1.0)


@pytest.mark.parametrize("name", ["float32", "complex64", "float64", "complex128"])
def test_eps_is_that_of_the_real_part(name):
    assert in_eps(float(np.finfo(name).eps), name) == 1.0
    assert in_eps(INF, name) == INF


def test_an_unknown_dtype_is_refused_with_the_known_ones():
    with pytest.raises(InputError, match="complex128"):
        in_eps(1.0, "bfloat16")
