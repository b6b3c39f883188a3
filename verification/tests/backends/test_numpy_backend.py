"""Structure before numbers: dtypes, shapes, poles, NaN, independence of position, memory.

What holds for every array backend runs on `subject`; what is NumPy's own runs on NumPy alone.
"""

from __future__ import annotations

import math
import tracemalloc
import warnings
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

from backends import numpy_backend
from verification import cases, oracle
from verification.judge import load_contracts
from verification.subjects import Subject
from wefpe_core import InputError, InputTypeError, Lattice, LatticeError, bounds, get_backend
from wefpe_core.accuracy import extended_relative_error, in_eps

BACKEND = get_backend("numpy")
SQUARE = Lattice(1.0, 1.0j)
OBLIQUE = Lattice(1.25, 0.5 + 1.75j)  # few bits, so that multiples of its periods are exact
UNREDUCED = Lattice(4.5 + 2.25j, 2.75 + 1.625j)
DYADIC = {"square": SQUARE, "oblique": OBLIQUE, "unreduced": UNREDUCED}
every_lattice = pytest.mark.parametrize("lattice", DYADIC.values(), ids=list(DYADIC))

COMPLEX_VALUED = ("wp", "wp_prime", "zeta", "sigma", "inverse_wp")
FUNCTIONS = (*COMPLEX_VALUED, "green")
every_function = pytest.mark.parametrize("function", FUNCTIONS)
CEILINGS = load_contracts()["accuracy"]


def points(count: int, dtype: str = "complex128", seed: int = 7) -> np.ndarray:
    """Generic points around the origin, some periods wide."""
    rng = np.random.default_rng(seed)
    return (rng.uniform(-6, 6, count) + 1j * rng.uniform(-6, 6, count)).astype(dtype)


def evaluate(function: str, z: Any, lattice: Lattice = OBLIQUE) -> Any:
    return getattr(BACKEND, function)(z, lattice)


def bits(array: Any) -> np.ndarray:
    """The bytes of an array: NaN equals NaN, and 0.0 differs from -0.0."""
    return np.atleast_1d(np.asarray(array)).copy().view(np.uint8)


def assert_same_bits(first: Any, second: Any) -> None:
    assert np.asarray(first).dtype == np.asarray(second).dtype
    np.testing.assert_array_equal(bits(first), bits(second))


# --- Dtypes and shapes ---------------------------------------------------------------------

DOUBLE = [0.25, 0.25 + 0.5j, 3, np.float64(0.25), np.complex128(0.25 + 0.5j), np.int8(3)]
DOUBLE += [np.uint64(3), np.int64(-3)]
SINGLE = [np.float16(0.25), np.float32(0.25), np.complex64(0.25 + 0.5j)]


@every_function
@pytest.mark.parametrize("z", DOUBLE, ids=lambda z: type(z).__name__)
def test_double_precision_scalars_give_double_precision_scalars(function: str, z: Any) -> None:
    value = evaluate(function, z)
    assert type(value) is (np.float64 if function == "green" else np.complex128)


@every_function
@pytest.mark.parametrize("z", SINGLE, ids=lambda z: type(z).__name__)
def test_single_and_half_precision_scalars_give_single_precision(function: str, z: Any) -> None:
    value = evaluate(function, z)
    assert type(value) is (np.float32 if function == "green" else np.complex64)


@every_function
@pytest.mark.parametrize(
    ("dtype", "result"),
    [
        ("float16", "complex64"),
        ("float32", "complex64"),
        ("complex64", "complex64"),
        ("float64", "complex128"),
        ("complex128", "complex128"),
        ("int32", "complex128"),
        ("uint8", "complex128"),
        (">f8", "complex128"),
        (">c8", "complex64"),
    ],
)
def test_the_dtype_of_an_array_follows_its_argument(function: str, dtype: str, result: str) -> None:
    z = np.array([[1, 2, 3], [4, 5, 6]], dtype=dtype)
    value = evaluate(function, z)
    want = np.zeros(0, result)
    assert value.dtype == (want.real.dtype if function == "green" else want.dtype)
    assert value.shape == (2, 3)
    # Whatever the byte order or the kind, the numbers are the same numbers.
    np.testing.assert_array_equal(value, evaluate(function, z.astype(result)))


@every_function
def test_a_real_argument_is_a_complex_one_without_imaginary_part(function: str) -> None:
    x = points(50).real
    np.testing.assert_array_equal(evaluate(function, x), evaluate(function, x + 0j))


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        (np.longdouble(0.5), np.dtype(np.longdouble).name),
        (np.zeros(3, np.clongdouble), np.dtype(np.clongdouble).name),
        (True, "bool"),
        (np.zeros(3, bool), "bool"),
        (None, "object"),
        ([1.0, None], "object"),
        (10**400, "object"),
        (mpmath.mpf(1), "object"),
        ("0.5", "<U3"),
        (b"0.5", "S3"),
        (np.datetime64("2024-01-01"), "datetime64"),
        (np.timedelta64(3, "s"), "timedelta64"),
        (np.zeros(2, [("x", float)]), "x"),
    ],
    ids=lambda value: repr(value)[:30],
)
@every_function
def test_what_cannot_be_evaluated_is_refused_by_its_dtype(
    function: str, bad: Any, named: str
) -> None:
    with pytest.raises(InputTypeError, match="dtype") as caught:
        evaluate(function, bad)
    assert named in str(caught.value)


def test_rows_of_different_lengths_are_refused_as_any_other_input() -> None:
    with pytest.raises((InputError, InputTypeError)):
        evaluate("wp", [[1.0], [1.0, 2.0]])


@pytest.mark.parametrize("bad", [None, (1.0, 1.0j), 1.0, "square", np.array([1.0, 1.0j])])
def test_only_a_lattice_will_do(bad: Any) -> None:
    calls = [
        *(lambda name=name: getattr(BACKEND, name)(0.5, bad) for name in FUNCTIONS),
        *(
            lambda name=name: getattr(BACKEND, name)(bad)
            for name in ("invariants", "roots", "quasi_periods")
        ),
        lambda: BACKEND.lattice_sum(0.5, bad, 3, 3),
        lambda: BACKEND.add(1.0, 1.0, 2.0, 2.0, bad),
    ]
    for call in calls:
        with pytest.raises(InputError, match="Lattice") as caught:
            call()
        assert repr(bad)[:20] in str(caught.value)


def test_a_lattice_of_tensors_is_left_to_the_torch_backend() -> None:
    torch = pytest.importorskip("torch", reason="the torch extra is not installed")
    lattice = Lattice(torch.tensor(1.0), torch.tensor(1j))
    for call in (
        lambda: BACKEND.wp(0.5, lattice),
        lambda: BACKEND.invariants(lattice),
        lambda: BACKEND.lattice_sum(0.5, lattice, 2, 2),
    ):
        with pytest.raises(LatticeError, match="backend of their library"):
            call()


@every_function
@pytest.mark.parametrize("shape", [(), (1,), (5,), (3, 4), (2, 1, 3), (0,), (3, 0), (0, 2)])
def test_the_shape_is_that_of_the_argument(function: str, shape: tuple[int, ...]) -> None:
    z = np.full(shape, 0.3 + 0.4j)
    value = evaluate(function, z)
    assert np.shape(value) == shape
    assert np.asarray(value).size == z.size


def test_a_nested_list_counts_as_an_array() -> None:
    got = BACKEND.wp([[0.5, 1j], [0.25, 2]], OBLIQUE)
    assert_same_bits(got, BACKEND.wp(np.array([[0.5, 1j], [0.25, 2]]), OBLIQUE))


@every_function
def test_strides_and_order_make_no_difference(function: str) -> None:
    z = points(120).reshape(10, 12)
    want = evaluate(function, z)
    views = {
        "Fortran": (np.asfortranarray(z), want),
        "transposed": (z.T, want.T),
        "every other": (z[::2, 1::3], want[::2, 1::3]),
        "reversed": (z[::-1, ::-1], want[::-1, ::-1]),
        "broadcast": (np.broadcast_to(z[:1], z.shape), np.broadcast_to(want[:1], z.shape)),
        "field of a record": (z.astype([("z", z.dtype)])["z"], want),
    }
    for name, (view, expected) in views.items():
        np.testing.assert_array_equal(evaluate(function, view), expected, err_msg=name)


def test_values_to_add_broadcast_against_each_other() -> None:
    p, dp = BACKEND.wp_and_prime(points(3)[:, None], OBLIQUE)
    q, dq = BACKEND.wp_and_prime(points(4, seed=8), OBLIQUE)
    got, slope = BACKEND.add(p, dp, q, dq, OBLIQUE)
    assert got.shape == slope.shape == (3, 4)
    single: Any = BACKEND.add(p[1, 0], dp[1, 0], q[2], dq[2], OBLIQUE)
    assert type(single[0]) is np.complex128
    assert_same_bits(got[1, 2], single[0])
    assert_same_bits(slope[1, 2], single[1])


def test_shapes_that_do_not_broadcast_are_refused() -> None:
    with pytest.raises(ValueError, match=r"broadcast|shape"):
        BACKEND.add(np.ones(3), np.ones(3), np.ones(2), np.ones(2), OBLIQUE)


@every_function
def test_read_only_arguments_are_accepted_and_left_alone(function: str) -> None:
    z = points(40)
    before = z.copy()
    z.flags.writeable = False
    value = evaluate(function, z)
    assert_same_bits(z, before)
    assert value.flags.writeable
    assert not np.shares_memory(value, z)


def test_read_only_arguments_of_the_other_methods_are_left_alone() -> None:
    p, dp = BACKEND.wp_and_prime(points(20), OBLIQUE)
    arguments = (p, dp, p[::-1].copy(), dp[::-1].copy())
    before = [array.copy() for array in arguments]
    for array in arguments:
        array.flags.writeable = False
    BACKEND.add(*arguments, OBLIQUE)
    BACKEND.lattice_sum(p, OBLIQUE, 2, 2)
    for array, copy in zip(arguments, before, strict=True):
        assert_same_bits(array, copy)


# --- No warnings, no dependence on position ------------------------------------------------


def troublesome() -> np.ndarray:
    """Poles, zeros, overflow, underflow, NaN, infinities, points beyond every index."""
    special = [0, 2.5, 5 + 7j, 1.25, 1e-320, 1e-200, 1e-110, 1e17, 1e300, 1e300j, -0.0]
    special += [math.nan, math.inf, -math.inf, complex(0, math.inf), complex(math.nan, 1)]
    return np.concatenate([np.array(special, complex), points(30)])


@every_function
@pytest.mark.parametrize("dtype", ["complex128", "complex64"])
def test_poles_and_overflow_neither_warn_nor_raise(function: str, dtype: str) -> None:
    with np.errstate(all="ignore"):
        z = troublesome().astype(dtype)
    with np.errstate(all="raise"), warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluate(function, z)
        assert np.geterr()["divide"] == "raise"  # and the caller's setting is restored


def test_sums_and_the_addition_formula_neither_warn_nor_raise() -> None:
    z = troublesome()
    with np.errstate(all="raise"), warnings.catch_warnings():
        warnings.simplefilter("error")
        p, dp = BACKEND.wp_and_prime(z, OBLIQUE)
        BACKEND.add(p[:, None], dp[:, None], p, dp, OBLIQUE)
        BACKEND.lattice_sum(z, OBLIQUE, 2, 2)


@every_function
@pytest.mark.parametrize("dtype", ["complex128", "complex64"])
def test_a_value_does_not_depend_on_its_neighbours(function: str, dtype: str) -> None:
    """Scalar, short array, long array over several blocks: the same bits."""
    z = points(2 * numpy_backend.BLOCK + 37, dtype)
    value = evaluate(function, z)
    rng = np.random.default_rng(11)
    for start in (*rng.integers(0, z.size - 40, 10), 0, numpy_backend.BLOCK - 5):
        length = int(rng.integers(1, 40))
        part = slice(start, start + length)
        assert_same_bits(evaluate(function, z[part]), value[part])
        assert_same_bits(evaluate(function, z[start]), value[start])
    order = rng.permutation(z.size)
    assert_same_bits(evaluate(function, z[order]), value[order])


@every_function
def test_a_value_does_not_depend_on_the_block_size(
    function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    z = np.concatenate([points(60), troublesome()])
    want = evaluate(function, z)
    sums = BACKEND.lattice_sum(z, OBLIQUE, 3, 2)
    original = numpy_backend.BLOCK
    defaults = numpy_backend._evaluate.__defaults__ or ()
    for block in (1, 7, 64, 10**6):
        monkeypatch.setattr(numpy_backend, "BLOCK", block)
        # A default is bound when the function is defined: replace it as well.
        replaced = tuple(block if value == original else value for value in defaults)
        monkeypatch.setattr(numpy_backend._evaluate, "__defaults__", replaced)
        assert_same_bits(evaluate(function, z), want)
        for first, second in zip(BACKEND.lattice_sum(z, OBLIQUE, 3, 2), sums, strict=True):
            assert_same_bits(first, second)


# --- Poles ---------------------------------------------------------------------------------

INDICES = [(0, 0), (1, 0), (0, 1), (-1, 1), (3, -2), (1000, -77)]


@every_lattice
@pytest.mark.parametrize("dtype", ["complex128", "complex64"])
def test_at_a_lattice_point_the_values_are_the_documented_ones(
    subject: Subject, lattice: Lattice, dtype: str
) -> None:
    """Complex infinity is inf+nanj, part by part; sigma is 0 and the Green function +inf."""
    w1, w3 = complex(lattice.omega1), complex(lattice.omega3)
    z = np.array([2 * m * w1 + 2 * n * w3 for m, n in INDICES], dtype)
    for function in ("wp", "wp_prime", "zeta"):
        (value,) = subject.evaluate(function, z, lattice=lattice)
        np.testing.assert_array_equal(value.real, np.inf, err_msg=function)
        assert np.isnan(value.imag).all(), function
    np.testing.assert_array_equal(subject.evaluate("green", z, lattice=lattice)[0], np.inf)


@every_lattice
@pytest.mark.parametrize("dtype", ["complex128", "complex64"])
def test_sigma_vanishes_at_every_lattice_point(
    subject: Subject, lattice: Lattice, dtype: str
) -> None:
    """Also where the exponential before it overflows: zero times whatever is zero."""
    w1, w3 = complex(lattice.omega1), complex(lattice.omega3)
    z = np.array([2 * m * w1 + 2 * n * w3 for m, n in INDICES], dtype)
    np.testing.assert_array_equal(subject.evaluate("sigma", z, lattice=lattice)[0], 0)


@pytest.mark.parametrize(("dtype", "exponent"), [("complex64", 45), ("complex128", 345)])
def test_wp_prime_is_right_on_lattices_whose_cube_is_out_of_range(
    subject: Subject, dtype: str, exponent: int
) -> None:
    """Scaled by a power of two, all is exact; (pi/a)^3 alone would not be a normal number."""
    z = np.array([0.002, 0.001 + 0.003j, -0.004j], dtype)
    factor = np.dtype(dtype).type(2.0**exponent)
    (want,) = subject.evaluate("wp_prime", z, lattice=Lattice(1.0, 1.25j))
    scaled = Lattice(2.0**exponent, 1.25j * 2.0**exponent)
    (got,) = subject.evaluate("wp_prime", z * factor, lattice=scaled)
    np.testing.assert_array_equal(got * factor * factor * factor, want)


def test_sigma_far_away_where_the_quasi_periods_cancel(subject: Subject) -> None:
    """A thousand periods away it is as large as in the cell, and its exponent a small sum."""
    lattice = cases.FAMILIES["balanced"][0]
    w1, w3 = complex(lattice.omega1), complex(lattice.omega3)
    z = np.array([0.6 * w1 + 2 * k * (2 * w3 - w1) for k in (1, 10, 100, 1000)])
    (got,) = subject.evaluate("sigma", z, lattice=lattice)
    for value, point in zip(got, z, strict=True):
        (reference,) = oracle.sigma(complex(point), lattice)
        assert in_eps(reference.error_of(complex(value)), "complex128") <= 6


@every_lattice
def test_the_truncated_series_is_infinite_at_the_points_of_its_box(
    subject: Subject, lattice: Lattice
) -> None:
    """One documented value for a pole, in every method of every backend."""
    w1, w3 = complex(lattice.omega1), complex(lattice.omega3)
    z = np.array([0, 2 * w1, 2 * w3 - 4 * w1, 8 * w1])
    for value in subject.evaluate("lattice_sum", z, lattice=lattice, options=(3, 2)):
        np.testing.assert_array_equal(value.real[:3], np.inf)
        assert np.isnan(value.imag[:3]).all()
        assert np.isfinite(value[3])


@every_lattice
def test_the_inverse_of_infinity_is_zero(subject: Subject, lattice: Lattice) -> None:
    inf, nan = math.inf, math.nan
    w = np.array([complex(*parts) for parts in ((inf, nan), (inf, 0), (-inf, 1), (0, inf))])
    np.testing.assert_array_equal(subject.evaluate("inverse_wp", w, lattice=lattice)[0], 0)


@every_lattice
def test_the_inverse_of_the_largest_numbers_is_small_not_nan(
    subject: Subject, lattice: Lattice
) -> None:
    """Next to the pole wp(z) is 1/z^2 to every digit."""
    largest = np.finfo(float).max
    w = np.array([largest, -largest, largest * (1 + 1j), largest * 1j, 1e300])
    (z,) = subject.evaluate("inverse_wp", w, lattice=lattice)
    ceiling = CEILINGS["inverse_wp"]["complex128"]["largest"]
    for got, value in zip(z, w, strict=True):
        with mpmath.workdps(30):
            want = 1 / mpmath.sqrt(mpmath.mpc(complex(value)))
            error = min(abs(sign * want - mpmath.mpc(complex(got))) for sign in (1, -1))
            assert in_eps(float(error / abs(want)), "complex128") <= ceiling


@pytest.mark.parametrize(
    ("dtype", "z"), [("complex64", 1e-20), ("complex128", 1e-160), ("complex128", 5e-324)]
)
def test_beyond_the_largest_float_is_infinity(subject: Subject, dtype: str, z: float) -> None:
    for function in ("wp", "wp_prime"):
        (value,) = subject.evaluate(function, np.array([z], dtype), lattice=OBLIQUE)
        assert value.dtype == dtype
        assert value[0].real == np.inf
        assert np.isnan(value[0].imag)


@pytest.mark.parametrize(
    ("dtype", "omega", "z"),
    [
        ("complex64", 500.0, 1e-11),
        ("complex64", 5e9, 1e-10),
        ("complex64", 1e-3, 1e-15),
        ("complex128", 5e99, 1e-60),
        ("complex128", 1e20, 1e-90),
    ],
)
def test_next_to_a_pole_of_a_huge_lattice_values_are_right_or_infinite(
    subject: Subject, dtype: str, omega: float, z: float
) -> None:
    """1/z^2 and -2/z^3 are ordinary numbers here, but (z over the period)^-3 may overflow.

    Then the value counts as the pole, as documented; it must never be a wrong number.
    """
    lattice = Lattice(omega, omega * 1j)
    argument = np.array([z], dtype)
    with mpmath.workdps(30):
        exact = mpmath.mpf(float(argument.real[0]))
        wants = {"wp": exact**-2, "wp_prime": -2 * exact**-3}
    for function, want in wants.items():
        (value,) = subject.evaluate(function, argument, lattice=lattice)
        if np.isinf(value[0].real) and np.isnan(value[0].imag):
            limit = float(np.finfo(dtype).max) / 100
            assert max(abs(want), mpmath.mpf(z / omega) ** -3) > limit
        elif abs(want) < float(np.finfo(dtype).max):
            error = extended_relative_error(complex(value[0]), want)
            assert in_eps(error, dtype) <= CEILINGS[function][dtype]["largest"], function


def test_a_period_no_float_holds_is_refused_by_its_size(subject: Subject) -> None:
    z = np.array([0.5], np.complex64)
    with pytest.raises(LatticeError, match=r"2\.00000e\+39"):
        subject.evaluate("wp", z, lattice=Lattice(1e39, 1e39j))
    assert np.isfinite(subject.evaluate("wp", z.astype(complex), lattice=Lattice(1e39, 1e39j))[0])


# --- NaN, infinities, far away -------------------------------------------------------------


@every_function
@pytest.mark.parametrize("dtype", ["complex128", "complex64"])
def test_nan_and_infinite_arguments_spoil_their_own_place_only(
    subject: Subject, function: str, dtype: str
) -> None:
    z = points(20_000, dtype)
    (want,) = subject.evaluate(function, z, lattice=OBLIQUE)
    inf, nan = math.inf, math.nan
    bad = [nan, complex(nan, nan), complex(1, nan)]
    if function != "inverse_wp":  # whose value at infinity is 0
        bad += [inf, -inf, complex(0, inf), complex(inf, -inf), complex(nan, inf)]
    places = np.random.default_rng(3).choice(z.size, len(bad), replace=False)
    spoiled = z.copy()
    spoiled[places] = bad
    (got,) = subject.evaluate(function, spoiled, lattice=OBLIQUE)
    assert np.isnan(got[places].real).all()
    assert np.isnan(got[places].imag).all() or function == "green"
    untouched = np.ones(z.size, bool)
    untouched[places] = False
    np.testing.assert_array_equal(got[untouched], want[untouched])


@every_lattice
@pytest.mark.parametrize("dtype", ["complex128", "complex64"])
@pytest.mark.parametrize("function", ["wp", "wp_prime", "zeta", "sigma", "green"])
def test_too_many_periods_away_is_nan_and_not_garbage(
    subject: Subject, lattice: Lattice, dtype: str, function: str
) -> None:
    """Up to 2^26 (2^17) periods reduction is exact; from 2^30 (2^20) on nothing is claimed."""
    far = {"complex128": 2.0**30, "complex64": 2.0**20}[dtype]
    w1, w3 = (2 * complex(w) for w in (lattice.reduced()[0].omega1, lattice.reduced()[0].omega3))
    directions = np.array([w1, w3, w1 + w3, w1 - 2 * w3])
    z = (far * directions + 0.3 * w1).astype(dtype)
    largest = np.finfo(dtype).max / 64
    beyond = np.concatenate([z, 1e5 * z, (largest * directions).astype(dtype)])
    (value,) = subject.evaluate(function, beyond, lattice=lattice)
    assert np.isnan(value.real).all()


@every_lattice
@pytest.mark.parametrize("dtype", ["complex128", "complex64"])
def test_just_inside_the_index_limit_values_are_exact(
    subject: Subject, lattice: Lattice, dtype: str
) -> None:
    """Few-bit periods, so the far argument is the near one moved by an exact lattice point."""
    count = {"complex128": 2.0**25, "complex64": 2.0**14}[dtype]
    w1, w3 = (2 * complex(w) for w in (lattice.reduced()[0].omega1, lattice.reduced()[0].omega3))
    near = np.array([0.5 + 0.25j, -0.25 + 0.75j, 0.5j], dtype)
    for period in (w1, w3):
        far = (near + count * period).astype(dtype)
        np.testing.assert_array_equal(far - near, count * period)  # the sum was exact
        for first, second in zip(
            subject.evaluate("wp_and_prime", near, lattice=lattice),
            subject.evaluate("wp_and_prime", far, lattice=lattice),
            strict=True,
        ):
            np.testing.assert_array_equal(first, second)


# --- Accuracy that has no row --------------------------------------------------------------


@pytest.mark.parametrize(
    "lattice",
    [
        *(Lattice.lemniscatic(), Lattice.equianharmonic(), OBLIQUE, Lattice(1.0, 20.0j)),
        cases.PI_BADLY_ROUNDED,
    ],
    ids=["square", "hexagonal", "oblique", "tall", "pi/a badly rounded"],
)
def test_next_to_the_pole_at_0_the_plain_relative_error_is_below_2e_15(
    subject: Subject, lattice: Lattice
) -> None:
    """2e-15 is the promise to users; wp is z^-2 and wp' is -2 z^-3 to more digits than that.

    What the Laurent series (DLMF 23.9.2) has behind these terms is bounded here, and stays
    below 1e-20 of them.
    """
    z, references = oracle.next_to_the_pole()
    reduced = lattice.reduced()[0]
    neglected = bounds.laurent_bound(1e-6, reduced.omega1, reduced.omega3, terms=0)
    p, dp = subject.evaluate("wp_and_prime", z, lattice=lattice)
    got = {"wp": (p, neglected.wp), "wp_prime": (dp, neglected.wp_prime)}
    for name, (high, low) in references.items():
        value, rest = got[name]
        assert rest <= 1e-20 * abs(high).min()
        # The first difference is exact, being one of nearly equal doubles.
        error = abs((value - high) - low) / abs(high)
        assert error.max() <= 2e-15, name


@pytest.mark.parametrize(("omega1", "omega3", "z"), cases.ACCIDENTAL_POLES)
def test_a_single_precision_argument_may_lie_next_to_a_pole_by_accident(
    subject: Subject, omega1: complex, omega3: complex, z: complex
) -> None:
    """A multiple of a period rounds to the argument: their difference is all that counts."""
    lattice = Lattice(omega1, omega3)
    argument = np.array([z], np.complex64)
    p, dp = subject.evaluate("wp_and_prime", argument, lattice=lattice)
    references = oracle.wp_and_prime(complex(argument[0]), lattice)
    for name, got, reference in zip(("wp", "wp_prime"), (p, dp), references, strict=True):
        if abs(reference.value) < np.finfo(np.float32).max:
            error = in_eps(reference.error_of(complex(got[0])), "complex64")
            assert error <= CEILINGS[name]["complex64"]["largest"], name
        else:
            assert got[0].real == np.inf


@pytest.mark.parametrize("lattice", [m[0] for m in cases.FAMILIES.values()], ids=cases.FAMILIES)
@pytest.mark.parametrize("dtype", ["complex128", "complex64"])
def test_even_functions_are_even_and_odd_ones_odd_bit_for_bit(
    subject: Subject, lattice: Lattice, dtype: str
) -> None:
    period = 2 * abs(complex(lattice.reduced()[0].omega1))
    z = (points(300) * period).astype(dtype)
    for function in ("wp", "green"):
        (here,), (there,) = (subject.evaluate(function, x, lattice=lattice) for x in (z, -z))
        np.testing.assert_array_equal(there, here, err_msg=function)
    for function in ("wp_prime", "zeta", "sigma"):
        (here,), (there,) = (subject.evaluate(function, x, lattice=lattice) for x in (z, -z))
        np.testing.assert_array_equal(there, -here, err_msg=function)


@pytest.mark.parametrize("dtype", ["complex128", "complex64"])
def test_on_symmetry_lines_the_vanishing_part_is_exactly_zero_dlmf_23_5_i(
    subject: Subject, dtype: str
) -> None:
    """A rectangular lattice: wp is real on both axes, wp' real on one, imaginary on the other."""
    lattice = Lattice.rectangular(1.25, 1.75)
    x = np.linspace(0.03, 2.4, 80)
    for z, slope_part in ((x + 0j, "imag"), (1j * x, "real")):
        p, dp = subject.evaluate("wp_and_prime", z.astype(dtype), lattice=lattice)
        np.testing.assert_array_equal(p.imag, 0)
        np.testing.assert_array_equal(getattr(dp, slope_part), 0)


# --- Memory --------------------------------------------------------------------------------


def test_memory_beyond_input_and_output_is_bounded() -> None:
    """Two million points, 32 MB in and 64 MB out: temporaries are those of one block."""
    z = points(2_000_000)
    BACKEND.wp_and_prime(z[:10], OBLIQUE)  # prepares and caches the lattice
    tracemalloc.start()
    try:
        results = BACKEND.wp_and_prime(z, OBLIQUE)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    output = sum(array.nbytes for array in results)
    assert output == 2 * z.nbytes
    assert peak - output < 64 * 2**20


NOT_AS_IN_MEMORY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "transposed": lambda z: z.reshape(2000, -1).T,
    "every other column": lambda z: np.repeat(z.reshape(2000, -1), 2, axis=1)[:, ::2],
    "broadcast": lambda z: np.broadcast_to(z[:1000], (len(z) // 1000, 1000)),
    "integers": lambda z: (64 * z.real).astype(np.int16),
    "foreign byte order": lambda z: z.astype(z.dtype.newbyteorder()),
}


@pytest.mark.parametrize("kind", NOT_AS_IN_MEMORY)
def test_no_input_is_copied_as_a_whole(kind: str) -> None:
    """Two million points again: a copy would take 32 MB, and 16 MB of integers."""
    z = NOT_AS_IN_MEMORY[kind](points(2_000_000))
    want = BACKEND.green(np.ascontiguousarray(z[:3]), OBLIQUE)  # prepares and caches the lattice
    tracemalloc.start()
    try:
        result = BACKEND.green(z, OBLIQUE)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - result.nbytes < 8 * z.size
    assert_same_bits(result[:3], want)
