"""NumPy on one number or a few: the values of arrays bit for bit, without arrays."""

from __future__ import annotations

import math
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest

from backends import numpy_backend, numpy_scalar
from verification import cases
from wefpe_core import InputTypeError, Lattice, LatticeError, get_backend

BACKEND = get_backend("numpy")
FUNCTIONS = ("wp", "wp_prime", "wp_and_prime", "zeta", "sigma", "green", "inverse_wp")
every_function = pytest.mark.parametrize("function", FUNCTIONS)
LATTICES = {
    **{f"{name} {k}": x for name, family in cases.FAMILIES.items() for k, x in enumerate(family)},
    "of negative zeros": Lattice(complex(-0.0, -1.5), complex(1.0, -0.0)),
    "tiny": Lattice(1e-150, 1e-150j),
    "huge": Lattice(1e150, 1e150j),
    "at the end of the range": Lattice(8e307, 8e307j),
    "at the beginning of the range": Lattice(1e-307, 1e-307j),
}
every_lattice = pytest.mark.parametrize("lattice", LATTICES.values(), ids=list(LATTICES))


@np.errstate(all="ignore")  # beyond the range there are no points
def points_of(lattice: Lattice) -> np.ndarray:
    """Points of every region, and all that is special."""
    count = 30
    regions = [cases.points(name, lattice, "complex128", count) for name in cases.REGIONS]
    w1, w3 = complex(lattice.omega1), complex(lattice.omega3)
    marked = [
        m * w1 + n * w3 for m in (-3, -2, -1, 0, 1, 2, 5) for n in (-2, -1, 0, 1, 4, 100, 1e9)
    ]
    parts = (0.0, -0.0, 1.0, 1e-310, 1e300, math.inf, -math.inf, math.nan)
    special = [complex(x, y) for x in parts for y in parts]
    scaled = [w1 * number for number in special]
    return np.concatenate([*regions, marked, special, scaled])


def bits(values: Any) -> np.ndarray:
    """The bytes of numbers; all NaN are the same, and 0.0 differs from -0.0."""
    array = np.ascontiguousarray(np.atleast_1d(values))
    parts = array.view(array.real.dtype) if array.dtype.kind == "c" else array
    parts = np.where(np.isnan(parts), np.nan, parts)
    return parts.view(np.uint64)


@pytest.fixture
def with_arrays_only(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Evaluation as it is for arrays of many points."""

    def evaluate(function: str, z: np.ndarray, lattice: Lattice) -> np.ndarray:
        with monkeypatch.context() as patch:
            patch.setattr(numpy_scalar, "FEW", 0)
            return np.array(getattr(BACKEND, function)(z, lattice))

    return evaluate


@every_lattice
@every_function
def test_numbers_have_the_values_of_arrays_bit_for_bit(
    function: str, lattice: Lattice, with_arrays_only: Any
) -> None:
    z = points_of(lattice)
    method = getattr(BACKEND, function)
    want = with_arrays_only(function, z, lattice)
    got = np.array([method(number, lattice) for number in z.tolist()]).T
    np.testing.assert_array_equal(bits(got), bits(want))


def test_the_comparison_of_bits_can_fail() -> None:
    assert (bits([0.0, 1.0]) != bits([-0.0, 1.0])).tolist() == [True, False]
    assert (bits([1.0]) != bits([np.nextafter(1.0, 2.0)])).all()


@every_function
@pytest.mark.parametrize("z", [0.25 + 0.5j, 0.25, np.float64(0.25), np.complex128(0.25 + 0.5j)])
def test_a_number_is_evaluated_without_arrays(
    function: str, z: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lattice = Lattice(1.25, 0.5 + 1.75j)
    want = np.array(getattr(BACKEND, function)(np.array(z), lattice))

    def forbidden(*arguments: Any) -> None:
        raise AssertionError("an array is evaluated")

    monkeypatch.setattr(numpy_backend, "_evaluate_blocks", forbidden)
    monkeypatch.setattr(numpy_backend, "_as_array", forbidden)
    got = getattr(BACKEND, function)(z, lattice)
    kind = np.float64 if function == "green" else np.complex128
    for value in got if isinstance(got, tuple) else (got,):
        assert type(value) is kind
    np.testing.assert_array_equal(bits(got), bits(want))


@every_function
@pytest.mark.parametrize("size", [1, 2, numpy_scalar.FEW, numpy_scalar.FEW + 1])
@pytest.mark.parametrize("dtype", ["complex128", "float64", "int32", ">c16", "complex64"])
def test_few_points_have_the_shapes_dtypes_and_values_of_many(
    function: str, size: int, dtype: str, with_arrays_only: Any
) -> None:
    z = np.linspace(1.0, 9.0, size).astype(dtype).reshape(1, size)
    lattice = Lattice(1.25, 0.5 + 1.75j)
    want = with_arrays_only(function, z, lattice)
    got = getattr(BACKEND, function)(z, lattice)
    for value in got if isinstance(got, tuple) else (got,):
        assert value.shape == (1, size)
        assert value.flags.c_contiguous
        assert value.flags.writeable
    assert np.array(got).dtype == want.dtype
    np.testing.assert_array_equal(got, want)


def test_few_points_are_evaluated_without_arrays_and_many_with_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes = []
    blocks = numpy_backend._evaluate_blocks

    def noting(function: Any, array: np.ndarray, *rest: Any) -> Any:
        sizes.append(array.size)
        return blocks(function, array, *rest)

    monkeypatch.setattr(numpy_backend, "_evaluate_blocks", noting)
    for size in (0, 1, numpy_scalar.FEW, numpy_scalar.FEW + 1):
        BACKEND.wp(np.full(size, 0.3 + 0.4j), Lattice(1.0, 1.5j))
    BACKEND.wp(np.full(2, 0.3 + 0.4j, np.complex64), Lattice(1.0, 1.5j))
    assert sizes == [0, numpy_scalar.FEW + 1, 2]


def test_where_python_raises_an_error_arrays_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    lattice = Lattice(1.0, 1.0j)
    want = BACKEND.wp(0.3 + 0.4j, lattice)
    for error in (ZeroDivisionError, OverflowError, ValueError, FloatingPointError):

        def broken(x: float, y: float, error: type[Exception] = error) -> Any:
            raise error

        monkeypatch.setattr(numpy_scalar, "_on_lattice", lambda *_, broken=broken: broken)
        assert BACKEND.wp(0.3 + 0.4j, lattice) == want
        assert BACKEND.wp([0.3 + 0.4j], lattice).tolist() == [want]


def test_other_errors_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(x: float, y: float) -> Any:
        raise NameError("a function the emitter forgot")

    monkeypatch.setattr(numpy_scalar, "_on_lattice", lambda *_: broken)
    with pytest.raises(NameError):
        BACKEND.wp(0.3, Lattice(1.0, 1.0j))


@pytest.mark.parametrize("how", ["raise", "warn"])
def test_no_floating_point_warning_or_error_whatever_the_caller_set(how: Any) -> None:
    lattice = Lattice(1.0, 400j)  # its exponentials underflow
    points = [0.1 + 390j, 0.5, 0.0, math.inf, math.nan, 1e-200, 1e300]
    with np.errstate(all=how), warnings.catch_warnings():
        warnings.simplefilter("error")
        for z in points:
            for function in FUNCTIONS:
                getattr(BACKEND, function)(z, lattice)


@pytest.mark.parametrize("bad", [True, "0.5", None, 10**400, b"1", object()])
def test_what_is_no_number_is_refused_as_before(bad: Any) -> None:
    with pytest.raises(InputTypeError, match="dtype"):
        BACKEND.wp(bad, Lattice(1.0, 1.0j))


def test_a_lattice_of_tensors_is_refused_as_before() -> None:
    torch = pytest.importorskip("torch", reason="the torch extra is not installed")
    lattice = Lattice(torch.tensor(1.0), 1.0j)
    with pytest.raises(LatticeError, match="backend of their library"):
        BACKEND.wp(0.5, lattice)


def test_the_hash_of_a_lattice_is_remembered_and_right() -> None:
    first, second = Lattice(1.0, 1.5j), Lattice(1.0, 1.5j)
    assert hash(first) == hash(first) == hash(second) == hash(first.exact)
    assert {first: "value"}[second] == "value"
    with pytest.raises(AttributeError):
        first._hash = 3


def test_importing_the_backend_traces_nothing() -> None:
    code = (
        "from backends import numpy_backend, numpy_scalar\n"
        "assert numpy_scalar._compiled.cache_info().misses == 0\n"
        "numpy_backend.NumpyBackend().wp(0.3, numpy_backend.Lattice(1.0, 1.0j))\n"
        "assert numpy_scalar._compiled.cache_info().misses == 1\n"
        "numpy_backend.NumpyBackend().wp(0.3, numpy_backend.Lattice(2.0, 3.0j))\n"
        "assert numpy_scalar._compiled.cache_info().misses == 1\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
