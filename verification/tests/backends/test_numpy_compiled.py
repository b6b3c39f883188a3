"""The NumPy backend compiled by numba: the same contract as without it, threads, cache, errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba", reason="the numba extra is not installed")

from backends import kernel, numpy_compiled
from backends.numpy_backend import NumpyBackend
from verification import cases
from verification.functions import FUNCTIONS as QUESTIONS
from verification.judge import judge, load_contracts
from verification.measure import measure
from verification.mutation import series_checks
from verification.mutation.backends_under_test import Backends
from verification.subjects import (
    DTYPES,
    POINT_FUNCTIONS,
    Subject,
    compiled_numpy_subject,
    subjects_here,
)
from wefpe_core import (
    BackendUnavailableError,
    InputError,
    InputTypeError,
    Lattice,
    LatticeError,
    MissingDependencyError,
    get_backend,
    registry,
)

PLAIN = get_backend("numpy")
OBLIQUE = Lattice(1.25, 0.5 + 1.75j)
FUNCTIONS = ("wp", "wp_prime", "zeta", "sigma", "green", "inverse_wp")
every_function = pytest.mark.parametrize("function", FUNCTIONS)
every_dtype = pytest.mark.parametrize("dtype", DTYPES)


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One backend for all tests of this file, with a cache of its own."""
    folder = tmp_path_factory.mktemp("numba")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NUMBA_CACHE_DIR", str(folder))
        numpy_compiled._cache_folder.cache_clear()
        numpy_compiled._compiled.cache_clear()
        yield NumpyBackend(compile=True)
        assert list(folder.glob("wefpe/*.py"))
    numpy_compiled._cache_folder.cache_clear()
    numpy_compiled._compiled.cache_clear()


def points(count: int, dtype: str = "complex128") -> np.ndarray:
    rng = np.random.default_rng(7)
    return (rng.uniform(-6, 6, count) + 1j * rng.uniform(-6, 6, count)).astype(dtype)


def assert_near(got: Any, want: Any, function: str, z: Any) -> None:
    """Both may be as far from the truth as the contract allows, so twice that from one another."""
    dtype = np.result_type(want, np.complex64)
    ceiling = load_contracts()["accuracy"][function][dtype.name]["largest"]
    step = 2.0**-12
    change = getattr(PLAIN, function)(z * (1 + step), OBLIQUE) - want
    scale = np.abs(want) + np.abs(change) / step  # about |f| + |z f'|, as in the contract
    assert np.all(np.abs(got - want) <= 2 * ceiling * np.finfo(dtype).eps * scale)


# --- Values --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "function",
    [
        # numba takes up to a minute for the others.
        name
        if name in ("wp_and_prime", "zeta", "green")
        else pytest.param(name, marks=[pytest.mark.slow, pytest.mark.nightly])
        for name in POINT_FUNCTIONS
    ],
)
@every_dtype
def test_errors_stay_below_the_ceilings_of_arrays(
    function: str, dtype: str, backend: NumpyBackend
) -> None:
    subject = Subject("numpy compiled", backend, lambda array: array)
    asked = QUESTIONS[function]
    # A point of each family where references take long.
    count, lattices = (12, None) if asked.share >= 0.1 else (1, 1)
    for region in asked.regions:
        rows = [
            row
            for family in cases.FAMILIES
            for row in measure(
                subject,
                dtype=dtype,
                function=function,
                family=family,
                region=region,
                count=count,
                lattices=lattices,
            )
        ]
        for verdict in judge(rows, load_contracts()):
            assert verdict.largest <= verdict.ceiling, verdict


def test_special_values_and_symmetries_are_those_of_arrays(backend: NumpyBackend) -> None:
    """Poles, half-periods, NaN, infinities, points too far away, and parity."""

    class Compiled(Backends):
        numpy = backend

        @property
        def subjects(self) -> Any:
            return (self.subject, self.subject)

    assert list(series_checks.special_values(Compiled())) == []
    assert list(series_checks.symmetries(Compiled())) == []


@every_function
@every_dtype
def test_values_do_not_depend_on_the_place_in_an_array(
    function: str, dtype: str, backend: NumpyBackend
) -> None:
    """A loop is vectorised and its last points are not, so some bits may differ."""
    z = points(37, dtype)
    method = getattr(backend, function)
    alone = [method(z[k : k + 1], OBLIQUE)[0] for k in range(z.size)]
    assert_near(method(z, OBLIQUE), np.array(alone), function, z)


@every_function
@pytest.mark.parametrize("z", [0.25 + 0.5j, 0.25, 3, np.float64(0.25), np.complex128(0.25 + 0.5j)])
def test_numbers_give_numbers(function: str, z: Any, backend: NumpyBackend) -> None:
    value = getattr(backend, function)(z, OBLIQUE)
    assert type(value) is (np.float64 if function == "green" else np.complex128)
    assert_near(value, getattr(PLAIN, function)(z, OBLIQUE), function, z)


@every_function
@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "complex64", "float64", "complex128", "int32", ">f8", ">c8"]
)
def test_dtypes_and_shapes_are_those_of_arrays(
    function: str, dtype: str, backend: NumpyBackend
) -> None:
    z = np.array([[1, 2, 3], [4, 5, 6]], dtype=dtype)
    value, want = (getattr(b, function)(z, OBLIQUE) for b in (backend, PLAIN))
    assert value.dtype == want.dtype
    assert value.shape == (2, 3)
    # Whatever the byte order or the kind, the numbers are the same numbers.
    working = np.result_type(want.dtype, np.complex64)
    np.testing.assert_array_equal(value, getattr(backend, function)(z.astype(working), OBLIQUE))
    assert getattr(backend, function)(z[:, :0], OBLIQUE).shape == (2, 0)
    assert type(getattr(backend, function)(z[0, 0], OBLIQUE)) is want.dtype.type


def test_memory_of_every_kind_is_read_and_never_written_nor_compiled_for(
    backend: NumpyBackend,
) -> None:
    z = points(64)
    want = backend.wp(z, OBLIQUE)
    at_points = numpy_compiled._compiled(kernel.wp, "float64", False).at_points
    signatures = len(at_points.signatures)
    read_only = z.copy()
    read_only.flags.writeable = False
    unaligned = np.frombuffer(b"x" + z.tobytes(), np.uint8)[1:].view(z.dtype)
    strided, reversed_ = np.repeat(z, 2)[::2], z[::-1].copy()[::-1]
    fortran = np.asfortranarray(z.reshape(8, 8))
    for array in (read_only, unaligned, strided, reversed_):
        np.testing.assert_array_equal(backend.wp(array, OBLIQUE), want)
    np.testing.assert_array_equal(backend.wp(fortran, OBLIQUE), want.reshape(8, 8))
    assert len(at_points.signatures) == signatures
    np.testing.assert_array_equal(z, points(64))


@pytest.mark.parametrize("bad", [True, "0.5", None, np.longdouble(1), [[1.0], [1.0, 2.0]]])
def test_what_cannot_be_evaluated_is_refused_as_without_compilation(
    bad: Any, backend: NumpyBackend
) -> None:
    with pytest.raises(InputTypeError):
        backend.wp(bad, OBLIQUE)


def test_only_a_lattice_of_numbers_will_do(backend: NumpyBackend) -> None:
    with pytest.raises(InputError, match="expected a Lattice"):
        backend.wp(0.5, (1.0, 1.0j))  # type: ignore[arg-type]
    with pytest.raises(LatticeError, match="overflows float32"):
        backend.wp(np.complex64(0.5), Lattice(1e39, 1e39j))


def test_sums_and_additions_are_those_of_arrays(backend: NumpyBackend) -> None:
    z = points(5)
    for name, arguments in (("lattice_sum", (z, OBLIQUE, 3, 3)), ("roots", (OBLIQUE,))):
        for got, want in zip(
            getattr(backend, name)(*arguments), getattr(PLAIN, name)(*arguments), strict=True
        ):
            np.testing.assert_array_equal(got, want)


# --- Threads -------------------------------------------------------------------------------


@every_dtype
@pytest.mark.parametrize("threads", [2, 3])
def test_threads_share_the_points_and_change_no_value(
    dtype: str, threads: int, backend: NumpyBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numpy_compiled, "POINTS_PER_THREAD", 100)
    monkeypatch.setattr(numpy_compiled, "BLOCK", 64)  # whole vectors, so that no value changes
    z = points(64 * 6 * threads, dtype)
    seen: set[int] = set()
    require = np.require

    def noting(*arguments: Any) -> Any:
        seen.add(threading.get_ident())
        started.wait(timeout=60)
        return require(*arguments)

    started = threading.Barrier(threads)
    monkeypatch.setattr(np, "require", noting)
    shared = NumpyBackend(compile=True, threads=threads).wp_and_prime(z, OBLIQUE)
    assert len(seen) == threads
    monkeypatch.setattr(np, "require", require)
    np.testing.assert_array_equal(shared, backend.wp_and_prime(z, OBLIQUE))


def test_few_points_start_no_thread(backend: NumpyBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*arguments: Any) -> None:
        raise AssertionError("threads are started")

    monkeypatch.setattr(numpy_compiled, "ThreadPoolExecutor", forbidden)
    z = points(2 * numpy_compiled.POINTS_PER_THREAD - 1)
    NumpyBackend(compile=True, threads=2).wp(z, OBLIQUE)
    with pytest.raises(AssertionError, match="started"):
        NumpyBackend(compile=True, threads=2).wp(np.append(z, z[0]), OBLIQUE)


def test_an_error_in_a_thread_reaches_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numpy_compiled, "POINTS_PER_THREAD", 10)

    def broken(*arguments: Any) -> None:
        raise MemoryError("no more")

    monkeypatch.setattr(np, "require", broken)
    with pytest.raises(MemoryError, match="no more"):
        NumpyBackend(compile=True, threads=2).wp(points(100), OBLIQUE)


# --- Options and errors --------------------------------------------------------------------


@pytest.mark.parametrize("threads", [0, -1, 1.0, "2", True, None])
def test_threads_are_a_positive_integer(threads: Any) -> None:
    with pytest.raises(InputError, match=f"threads must be a positive integer, got {threads!r}"):
        get_backend("numpy", compile=True, threads=threads)


@pytest.mark.parametrize("value", [1, 0, "yes", None])
def test_compile_is_true_or_false(value: Any) -> None:
    with pytest.raises(InputError, match="compile must be True or False"):
        get_backend("numpy", compile=value)


def test_threads_without_compilation_are_refused() -> None:
    with pytest.raises(InputError, match="threads=2 needs compile=True"):
        get_backend("numpy", threads=2)
    assert get_backend("numpy", threads=1).wp(0.5, OBLIQUE) == PLAIN.wp(0.5, OBLIQUE)


def test_a_missing_numba_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'wefpe\[numba\]'"):
        NumpyBackend(compile=True)
    registry._build.cache_clear()  # which has built it before
    _, (skip,) = subjects_here(["numpy"])
    assert skip.name == "numba"
    assert "wefpe[numba]" in skip.reason


def test_a_broken_numba_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> Any:
        raise ImportError("Numba needs NumPy 2.3 or less. Got NumPy 9.9.")

    monkeypatch.setattr("wefpe_core.errors.importlib.import_module", broken)
    with pytest.raises(BackendUnavailableError, match=r"does not load: .* Got NumPy 9\.9"):
        NumpyBackend(compile=True)


# --- The cache -----------------------------------------------------------------------------

SCRIPT = """
import json, sys, time, warnings
import numpy as np
from wefpe_core import Lattice, get_backend
backend, lattice = get_backend("numpy", compile=True), Lattice(1.25, 0.5 + 1.75j)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    value = backend.wp(0.3 + 0.4j, lattice)
    array = backend.wp(np.array([0.3 + 0.4j]), lattice)
    backend.green(0.3 + 0.4j, lattice)
from backends import numpy_compiled, kernel
code = numpy_compiled._compiled(kernel.wp, "float64", False)
hits = sum(code.at_number.stats.cache_hits.values()) + sum(code.at_points.stats.cache_hits.values())
print(json.dumps([[str(w.message) for w in caught], str(value), str(array[0]), hits]))
"""


def in_new_process(**environment: str) -> tuple[list[str], str, str, int]:
    kept = {k: v for k, v in os.environ.items() if k not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")}
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=kept | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    warned, value, array, hits = json.loads(result.stdout)
    return warned, value, array, hits


@pytest.mark.slow
@pytest.mark.parametrize("variable", ["NUMBA_CACHE_DIR", "XDG_CACHE_HOME"])
def test_a_later_process_finds_the_machine_code(tmp_path: Path, variable: str) -> None:
    first = in_new_process(**{variable: str(tmp_path)})
    second = in_new_process(**{variable: str(tmp_path)})
    assert first[0] == second[0] == []
    assert first[3] == 0
    assert second[3] == 2
    assert first[1:3] == second[1:3]
    assert len(list(tmp_path.glob("wefpe/wefpe_wp_float64_*.py"))) == 1
    # A damaged source is written anew.
    (source,) = tmp_path.glob("wefpe/wefpe_wp_float64_*.py")
    source.write_text("broken", "utf-8")
    assert in_new_process(**{variable: str(tmp_path)})[1:3] == first[1:3]


@pytest.mark.slow
def test_an_unwritable_cache_is_one_warning_and_no_crash(tmp_path: Path) -> None:
    occupied = tmp_path / "file"
    occupied.touch()
    warned, value, array, hits = in_new_process(NUMBA_CACHE_DIR=str(occupied / "below"))
    assert len(warned) == 1
    assert "cannot be kept in" in warned[0]
    assert str(occupied) in warned[0]
    assert "NUMBA_CACHE_DIR" in warned[0]
    assert hits == 0
    assert complex(value) == complex(array)
    assert_near(complex(value), PLAIN.wp(0.3 + 0.4j, OBLIQUE), "wp", 0.3 + 0.4j)


def test_a_cache_that_numba_cannot_use_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*arguments: Any) -> Any:
        raise RuntimeError("cannot cache function: no locator available")

    numpy_compiled._compiled.cache_clear()
    numpy_compiled._warn_once.cache_clear()
    monkeypatch.setattr(numpy_compiled, "_from_file", refused)
    try:
        backend = NumpyBackend(compile=True)
        with pytest.warns(RuntimeWarning, match="no locator available"):
            backend.wp(0.3 + 0.4j, OBLIQUE)
        backend.green(0.3 + 0.4j, OBLIQUE)  # a second warning would be an error
    finally:
        numpy_compiled._compiled.cache_clear()


# --- Sabotage ------------------------------------------------------------------------------


def test_the_rows_notice_a_polynomial_that_is_a_little_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from backends import polynomials

    series = polynomials._SERIES["float64"]
    wrong = (*series.sin[:2], series.sin[2] * (1 + 1e-8), *series.sin[3:])
    monkeypatch.setitem(polynomials._SERIES, "float64", series._replace(sin=wrong))
    numpy_compiled._compiled.cache_clear()
    try:
        rows = measure(
            compiled_numpy_subject(),
            dtype="complex128",
            function="wp_and_prime",
            family="oblique",
            region="generic",
            count=50,
        )
        assert not all(verdict.passes for verdict in judge(rows, load_contracts()))
    finally:
        numpy_compiled._compiled.cache_clear()
