"""The NumPy backend compiled by numba: the traced kernel as machine code, vectorised, in threads.

A function is compiled when it is first called, which takes a second or two. Its source is kept in
a file and its machine code, by numba, beside it, so that later processes need not compile.
"""

from __future__ import annotations

import hashlib
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from backends import algebra, derived, kernel
from backends.constants import prepared_for, reals_of
from backends.emitters import numba_source
from backends.mirrors import mirrored
from backends.numpy_backend import PRECISIONS
from backends.pair import Pair
from backends.tracing import KernelFunction, trace, trace_kernel
from wefpe_core.errors import BackendUnavailableError, MissingDependencyError, import_optional
from wefpe_core.lattice import Lattice

# Points that are converted at a time, if they have to be converted.
BLOCK = 50_000
# A thread gets at least this many: starting it takes as long as evaluating some thousand points.
POINTS_PER_THREAD = 50_000

# These take the sine of numbers beyond the range of `backends.polynomials`, or call the C library
# for another function anyway.
_WITH_LIBRARY = frozenset(
    {
        *(kernel.sigma, kernel.green, algebra.inverse_wp),
        *(derived.log_sigma, derived.modified_sigma),
        *map(mirrored, (kernel.sigma, kernel.green, derived.modified_sigma, derived.modified_zeta)),
    }
)

# Fused multiply-adds are allowed, as on a GPU: the reduction is correct with and without them.
_HEADER = """\
import math

import numpy as np
from numba import njit

cache = {cache}
options = dict(fastmath={{"contract"}}, error_model="numpy", nogil=True)


"""


class CompiledEvaluator:
    """Kernel functions as machine code.

    Raises
    ------
    MissingDependencyError
        If numba is not installed.
    BackendUnavailableError
        If it is installed and does not load.
    """

    def __init__(self, threads: int) -> None:
        purpose = "get_backend('numpy', compile=True)"
        try:
            import_optional("numba", purpose=purpose, extra="numba")
        except MissingDependencyError:
            raise
        except Exception as error:
            message = f"{purpose} needs numba, which is installed but does not load: {error}"
            raise BackendUnavailableError(message) from error
        self._threads = threads

    def value_at(
        self, z: complex, function: KernelFunction, lattice: Lattice, real: bool
    ) -> tuple[complex, ...]:
        """The values of a kernel function at one number, in double precision."""
        at_number = _compiled(function, "float64", real).at_number
        values: tuple[complex, ...] = at_number(
            z.real, z.imag, _table(function, lattice, "float64")
        )
        return values

    def fill(
        self,
        results: Sequence[npt.NDArray[Any]],
        flat: Any,
        function: KernelFunction,
        lattice: Lattice,
    ) -> None:
        """Write the values at the points of `flat`, a flat view of an array, into `results`."""
        dtype = results[0].real.dtype
        real = results[0].dtype == dtype
        run = _compiled(function, dtype.name, real).at_points
        table = _table(function, lattice, dtype.name)
        self._run(run, table, results, flat, np.result_type(dtype, np.complex64))

    def fill_by_rows(
        self,
        result: npt.NDArray[Any],
        rows: npt.NDArray[Any],
        function: Callable[..., Pair],
        table: Sequence[float] = (),
    ) -> None:
        """Write the values of ``function(ops, *row, *table, precision)``, numbers that are real."""
        dtype, numbers = result.real.dtype, rows.shape[-1]
        run = _compiled_by_rows(function, dtype.name, numbers, len(table)).at_points
        self._run(run, np.array(table, dtype), (result,), rows.reshape(-1, numbers), dtype)

    def _run(
        self,
        run: Callable[..., None],
        table: npt.NDArray[Any],
        results: Sequence[npt.NDArray[Any]],
        flat: Any,
        kind: np.dtype[Any],
    ) -> None:
        """Call `run` with parts of the points, of that `kind`, in threads."""
        dtype = results[0].real.dtype
        parts = 1 if results[0].dtype == dtype else 2
        targets = [result.reshape(-1).view(dtype) for result in results]
        count = targets[0].size // parts

        def evaluate(start: int, stop: int) -> None:
            for first in range(start, stop, BLOCK):
                last = min(first + BLOCK, stop)
                # numba would compile anew for memory that is read-only or not aligned.
                points = np.require(flat[first:last], kind, ["C", "A", "W"])
                run(
                    points.view(dtype).reshape(-1),
                    table,
                    *(t[parts * first : parts * last] for t in targets),
                )

        threads = min(self._threads, count // POINTS_PER_THREAD)
        if threads < 2:
            evaluate(0, count)
            return
        bounds = [count * k // threads for k in range(threads + 1)]
        # Threads that outlived the call would be missing in a forked process.
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(evaluate, bounds[:-1], bounds[1:]))


@lru_cache(maxsize=512)
def _table(function: KernelFunction, lattice: Lattice, dtype: str) -> npt.NDArray[Any]:
    return np.array(reals_of(prepared_for(function, lattice, PRECISIONS[dtype])), dtype)


@cache
def _compiled(function: KernelFunction, dtype: str, real: bool) -> ModuleType:
    """The module of `numba_source` for a kernel function; it compiles when it is called."""
    polynomials = function not in _WITH_LIBRARY and not hasattr(function, "needs_library")
    program = trace_kernel(function, PRECISIONS[dtype], polynomials=polynomials)
    source = numba_source(program, dtype, parts=1 if real else 2)
    return _loaded(f"wefpe_{function.__name__}_{dtype}", source)


@cache
def _compiled_by_rows(
    function: Callable[..., Pair], dtype: str, numbers: int, entries: int
) -> ModuleType:
    names = (*(f"x{k}" for k in range(numbers)), *(f"t{k}" for k in range(entries)))
    program = trace(lambda ops, *x: function(ops, *x, PRECISIONS[dtype]), names)
    return _loaded(f"wefpe_{function.__name__}_{dtype}", numba_source(program, dtype, parts=2))


def _loaded(name: str, source: str) -> ModuleType:
    """The module with this source, from the folder of compiled functions if there is one."""
    folder = _cache_folder()
    if folder is not None:
        try:
            return _from_file(folder, name, _HEADER.format(cache=True) + source)
        except (OSError, RuntimeError) as error:  # numba raises the latter
            _warn_without_cache(folder, error)
    return _executed(name, _HEADER.format(cache=False) + source, f"<{name}>")


@cache
def _cache_folder() -> Path | None:
    """Where compiled functions are kept; None, with a warning, if that cannot be written to."""
    places = (os.environ.get(name) for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME"))
    folder = Path(next(filter(None, places), "~/.cache"), "wefpe")
    try:
        folder = folder.expanduser()
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f"probe-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except (OSError, RuntimeError) as error:  # the latter if there is no home
        _warn_without_cache(folder, error)
        return None
    return folder


@cache
def _warn_once(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=2)


def _warn_without_cache(folder: Path, error: Exception) -> None:
    _warn_once(
        f"compiled functions cannot be kept in {folder} ({error}), so every process compiles them "
        "anew; set NUMBA_CACHE_DIR to a folder that can be written to"
    )


def _from_file(folder: Path, name: str, source: str) -> ModuleType:
    """The module in a file of its own: numba keeps machine code beside the file of a function."""
    # The name changes with the source, so that no process finds the code of another version.
    name = f"{name}_{hashlib.sha256(source.encode()).hexdigest()[:16]}"
    path = folder / f"{name}.py"
    if not path.is_file() or path.read_text("utf-8") != source:
        written = folder / f"{name}.{os.getpid()}.tmp"
        written.write_text(source, "utf-8")
        written.replace(path)  # at once: another process may be reading
    return _executed(name, source, str(path))


def _executed(name: str, source: str, path: str) -> ModuleType:
    module = sys.modules[name] = ModuleType(name)  # numba looks there for functions from its cache
    module.__file__ = path
    exec(compile(source, path, "exec"), module.__dict__)
    return module
