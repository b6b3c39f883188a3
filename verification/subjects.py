"""What is measured: a backend on a device, which takes and returns NumPy arrays here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from verification.functions import ARRAY_FUNCTIONS
from verification.gpu import emulated_cuda
from wefpe_core import (
    AbstractBackend,
    Lattice,
    MissingDependencyError,
    UnsupportedFunctionError,
    WefpeError,
    available_backends,
    get_backend,
)
from wefpe_core.registry import backend_descriptions

DTYPES = ("complex128", "complex64")
# Those that are measured unless one is named. JAX is not: compiling it takes very long.
BACKENDS = ("numpy", "torch")
DEVICES = ("cpu", "cuda")
# The functions of one point, which NumPy evaluates without arrays or compiled.
POINT_FUNCTIONS = (
    *("wp_and_prime", "zeta", "sigma", "green", "inverse_wp"),
    *("ellipj", "jacobi", "jtheta", "jtheta derivatives", "sigma_k"),
)
# Those that are measured compiled by numba whatever the size. The others have a program for each
# kind, index or order, which take minutes to compile.
QUICKLY_COMPILED = (*POINT_FUNCTIONS[:6], "ellipk")


# The number of results, where it is not 1.
RESULTS = {
    **dict.fromkeys(("wp_and_prime", "lattice_sum", "add", "invariants", "quasi_periods"), "12"),
    "roots": "123",
}
# A real value, such as that of the Green function, has the precision of a complex argument.
_SAME_PRECISION: dict[str, tuple[type, ...]] = {
    "complex128": (np.complex128, np.float64),
    "complex64": (np.complex64, np.float32),
}


def _same_precision(array: npt.NDArray[Any]) -> tuple[type, ...]:
    return _SAME_PRECISION[np.result_type(array.dtype, np.complex64).name]


class MisbehavingBackendError(WefpeError, RuntimeError):
    """A backend of somebody else raised an error, or returned what no backend may return."""


@dataclass(frozen=True)
class Subject:
    """A backend as the report sees it."""

    label: str  # for example "numpy" or "torch cpu"
    backend: AbstractBackend[Any]
    to_backend: Callable[[npt.NDArray[Any]], Any]
    # What a lattice of numbers becomes before it is handed to the backend.
    to_lattice: Callable[[Lattice, np.dtype[Any]], Lattice] = lambda lattice, dtype: lattice
    rounds_lattices: bool = False  # whether half-periods are arrays, in the precision of the points
    contract: str = "accuracy"  # the table of contracts.toml it is judged by
    dtypes: tuple[str, ...] = DTYPES
    functions: tuple[str, ...] | None = None  # those that are measured; None means all
    within: Callable[[], AbstractContextManager[Any]] = nullcontext  # how it is run
    one_by_one: bool = False  # whether each point is a Python number and a call of its own
    stands_on: tuple[str, ...] = ()  # names of `--require` that are present if this is measured
    is_ours: bool = True  # whether the backend comes with the project, or must be distrusted

    def lattice_measured(self, lattice: Lattice, dtype: str) -> Lattice:
        """The lattice whose values are computed, as numbers: half-periods may be rounded first."""
        if not self.rounds_lattices:
            return lattice
        omega1, omega3 = np.array([lattice.omega1, lattice.omega3], dtype).tolist()
        return Lattice(omega1, omega3)

    @contextmanager
    def blamed_for(self, function: str) -> Iterator[None]:
        """Whatever is raised within is named as an error of the backend, unless it is ours."""
        try:
            yield
        except (MisbehavingBackendError, UnsupportedFunctionError):
            raise
        except Exception as error:
            if self.is_ours:
                raise
            raise MisbehavingBackendError(
                f"{function} of the backend {self.label!r} raised {type(error).__name__}: {error}"
            ) from error

    def evaluate(
        self,
        function: str,
        *arrays: npt.NDArray[Any],
        lattice: Lattice | None,
        options: tuple[Any, ...] = (),
    ) -> tuple[npt.NDArray[Any], ...]:
        """Values of a method of the backend, always as a tuple of NumPy arrays.

        With None for the lattice the method is one that takes none.
        """
        given = () if lattice is None else (self.to_lattice(lattice, arrays[0].dtype),)
        if not self.is_ours:
            return self._evaluate_foreign(function, arrays, given, options)
        if self.one_by_one:
            method = getattr(self.backend, function)
            calls = [
                method(*point, *given)
                for point in zip(*map(np.ndarray.tolist, arrays), strict=True)
            ]
            return tuple(np.atleast_2d(np.array(calls).T))
        arguments = [self.to_backend(array) for array in arrays]
        with self.within():
            values = getattr(self.backend, function)(*arguments, *given, *options)
        values = values if isinstance(values, tuple) else (values,)
        return tuple(np.asarray(self.backend.to_numpy(value)) for value in values)

    def _evaluate_foreign(
        self,
        function: str,
        arrays: Sequence[npt.NDArray[Any]],
        given: tuple[Any, ...],
        options: tuple[Any, ...],
    ) -> tuple[npt.NDArray[Any], ...]:
        """What code that is not ours returns, with one clear error for what it must not."""
        what = f"{function} of the backend {self.label!r}"
        with self.blamed_for(function):
            arguments = [self.to_backend(array) for array in arrays]
            values = getattr(self.backend, function)(*arguments, *given, *options)
            values = values if isinstance(values, tuple) else (values,)
            found = [np.asarray(self.backend.to_numpy(value)) for value in values]
        count = len(RESULTS.get(function, "1"))
        if len(found) != count:
            raise MisbehavingBackendError(f"{what} returned {len(found)} values, not {count}")
        for value, array in zip(values, found, strict=True):
            if isinstance(value, list):
                raise MisbehavingBackendError(f"{what} returned a list where an array is due")
            if arrays and array.shape != arrays[0].shape:
                raise MisbehavingBackendError(
                    f"{what} returned the shape {array.shape} for {arrays[0].shape}"
                )
            if arrays and array.dtype.type not in _same_precision(arrays[0]):
                raise MisbehavingBackendError(
                    f"{what} returned {array.dtype} for {arrays[0].dtype}"
                )
        return tuple(found)

    def evaluate_constants(
        self, function: str, lattice: Lattice, dtype: np.dtype[Any]
    ) -> tuple[npt.NDArray[Any], ...]:
        """Values of a method that takes the lattice alone, as arrays of one element."""
        given = (self.to_lattice(lattice, dtype),)
        if not self.is_ours:
            return tuple(map(np.atleast_1d, self._evaluate_foreign(function, (), given, ())))
        values = getattr(self.backend, function)(*given)
        return tuple(np.atleast_1d(self.backend.to_numpy(value)) for value in values)


def numpy_subject() -> Subject:
    return Subject("numpy", get_backend("numpy"), lambda array: array)


def scalar_subject() -> Subject:
    """NumPy on one Python number at a time, which runs no arrays."""
    return replace(
        numpy_subject(),
        label="numpy scalar",
        dtypes=("complex128",),
        functions=POINT_FUNCTIONS,
        one_by_one=True,
    )


def compiled_numpy_subject(functions: tuple[str, ...] = QUICKLY_COMPILED) -> Subject:
    """NumPy compiled by numba. Raises MissingDependencyError without it."""
    return Subject(
        "numpy compiled",
        get_backend("numpy", compile=True),
        lambda array: array,
        functions=functions,
        stands_on=("numba",),
    )


def torch_subject(device: str, compile: bool = False) -> Subject:  # noqa: A002 - torch's word
    import torch

    label = f"torch {emulated_cuda.device_label(device)}"
    label += f" {emulated_cuda.compiled_label(device)}" if compile else ""
    # `--require cuda` asks for a real device.
    is_real_gpu = device != "cpu" and not emulated_cuda.is_installed()
    return Subject(
        label,
        get_backend("torch", compile=compile),
        lambda array: torch.from_numpy(array.copy()).to(device),
        stands_on=("torch", device) if is_real_gpu else ("torch",),
    )


def tensor_lattice_subject(device: str) -> Subject:
    """torch with half-periods as tensors, which are reduced on the device, as in training."""
    import torch

    def to_lattice(lattice: Lattice, dtype: np.dtype[Any]) -> Lattice:
        kind = getattr(torch, np.result_type(dtype, np.complex64).name)
        omegas = (complex(lattice.omega1), complex(lattice.omega3))
        return Lattice(*(torch.tensor(w, dtype=kind, device=device) for w in omegas))

    plain = torch_subject(device)
    return replace(
        plain,
        label=f"{plain.label} tensors",
        to_lattice=to_lattice,
        rounds_lattices=True,
        contract="accuracy_of_tensor_lattices",
    )


def jax_subjects() -> list[Subject]:
    """JAX on its default device, on lattices of numbers and of arrays; it gets double precision."""
    import jax

    jax.config.update("jax_enable_x64", True)
    return [replace(subject, stands_on=("jax",)) for subject in general_subjects("jax")]


# The precision in which a backend is measured that has any.
_LOWEST = {"mpmath": {"dps": 15}, "flint": {"digits": 17}}


def general_subjects(name: str, devices: Sequence[str] = ()) -> list[Subject]:
    """Any backend, as its capabilities describe it, on its devices or on those named."""
    backend = get_backend(name, **_LOWEST.get(name, {}))
    can = backend.capabilities
    dtypes = tuple(dtype for dtype in DTYPES if dtype in can.dtypes)
    found = []
    for device in can.devices if not devices else [d for d in can.devices if d in devices]:
        plain = Subject(
            name if can.devices == ("cpu",) and name != "jax" else f"{name} {device}",
            backend,
            partial(backend.from_numpy, device=device),
            contract=declared_table(backend),
            dtypes=dtypes,
            stands_on=(name,),
            is_ours=name in _OURS,
        )
        found.append(plain)
        if not can.differentiable_in_lattice:
            continue
        if can.gradients_by not in ("torch", "jax"):
            raise MisbehavingBackendError(
                f"the backend {name!r} says that it is differentiable in the lattice, but its "
                f"gradients_by is {can.gradients_by!r}, not 'torch' or 'jax'"
            )
        found.append(
            replace(
                plain,
                label=f"{plain.label} {'tensors' if can.gradients_by == 'torch' else 'arrays'}",
                to_lattice=partial(_array_lattice, backend, device),
                rounds_lattices=True,
                contract="accuracy_of_tensor_lattices",
            )
        )
    return found


_OURS = frozenset(
    row.name for row in backend_descriptions() if row.location.startswith("backends.")
)


def _array_lattice(
    backend: AbstractBackend[Any], device: str, lattice: Lattice, dtype: np.dtype[Any]
) -> Lattice:
    """The lattice with half-periods as arrays of the backend, zero-dimensional."""
    kind = np.result_type(dtype, np.complex64)
    omegas = (complex(lattice.omega1), complex(lattice.omega3))
    return Lattice(*(backend.from_numpy(np.array(w, kind), device) for w in omegas))


def declared_table(backend: AbstractBackend[Any]) -> str:
    """The table of ceilings a backend is judged by: the general one, or one of its own."""
    return f"accuracy of {backend.name}" if backend.contracts else "accuracy"


def with_declared(contracts: dict[str, Any], subjects: Sequence[Subject]) -> dict[str, Any]:
    """The contracts, and those that backends declare themselves; the rest stays as it is."""
    merged = dict(contracts)
    for subject in subjects:
        if not subject.backend.contracts or subject.contract != declared_table(subject.backend):
            continue
        table = dict(contracts["accuracy"])
        for value, ceilings in subject.backend.contracts.items():
            if value not in table:
                raise MisbehavingBackendError(
                    f"the backend {subject.label!r} declares a contract for {value!r}; "
                    f"there are {', '.join(table)}"
                )
            table[value] = {dtype: {"largest": float(c)} for dtype, c in ceilings.items()}
        merged[subject.contract] = table
    return merged


class DoublePrecisionError(WefpeError, TypeError):
    """A tensor of double precision appeared where the device would have none."""


def forbid_double_precision() -> AbstractContextManager[Any]:
    """A mode that raises as soon as an operation gives a tensor of float64 or complex128."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    class ForbidDoublePrecision(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = func(*args, **(kwargs or {}))
            for leaf in tree_leaves(result):
                if getattr(leaf, "dtype", None) in (torch.float64, torch.complex128):
                    raise DoublePrecisionError(f"{func} gives {leaf.dtype}")
            return result

    mode: Callable[[], AbstractContextManager[Any]] = ForbidDoublePrecision
    return mode()


def single_precision_subject(device: str) -> Subject:
    """torch as on a device without float64: a tensor of double precision is an error."""
    plain = torch_subject(device)
    return replace(
        plain,
        label=f"{plain.label} float32 only",
        dtypes=("complex64",),
        functions=ARRAY_FUNCTIONS,
        within=forbid_double_precision,
    )


def cuda_is_available() -> bool:
    if "torch" not in available_backends():
        return False
    import torch

    return torch.cuda.is_available()


@dataclass(frozen=True)
class Skip:
    """What is not measured, and why."""

    name: str  # torch, jax, cuda, flint, numba or scipy, as in --require
    reason: str

    @classmethod
    def not_installed(cls, backend: str) -> Skip:
        (extra,) = (row.extra for row in backend_descriptions() if row.name == backend)
        return cls(backend, f"not installed (pip install 'wefpe[{extra}]')")


def subjects_here(
    backends: Sequence[str] = BACKENDS,
    devices: Sequence[str] = DEVICES,
    compiled: Sequence[str] = (),
) -> tuple[list[Subject], list[Skip]]:
    """The chosen backends on the chosen devices, and why some of them cannot run here.

    `compiled` names the functions that are measured in the form torch compiles too. If they are
    many, so are those that numba compiles.
    """
    is_thorough = len(compiled) > 1
    subjects: list[Subject] = []
    skipped: list[Skip] = []
    if "numpy" in backends:
        subjects += [numpy_subject(), scalar_subject()]
        try:
            functions = (*POINT_FUNCTIONS, "ellipk") if is_thorough else QUICKLY_COMPILED
            subjects.append(compiled_numpy_subject(functions))
        except MissingDependencyError as error:
            skipped.append(Skip("numba", str(error)))
    if "jax" in backends:
        if "jax" in available_backends():
            subjects += jax_subjects()
        else:
            skipped.append(Skip.not_installed("jax"))
    for name in backends:
        if name not in (*BACKENDS, "jax"):
            subjects += general_subjects(name, devices if "cpu" not in devices else ())
    if "torch" not in backends:
        return subjects, skipped
    if "torch" not in available_backends():
        return subjects, [*skipped, Skip.not_installed("torch")]
    for device in devices:
        if device == "cuda" and not cuda_is_available():
            skipped.append(Skip("cuda", "torch sees no CUDA device on this machine"))
            continue
        if device == "cuda" and emulated_cuda.is_installed():
            skipped.append(Skip("cuda", f"the device here is {emulated_cuda.LABEL}"))
        subjects += [
            torch_subject(device),
            tensor_lattice_subject(device),
            single_precision_subject(device),
        ]
        if compiled:
            dtypes = DTYPES if is_thorough else DTYPES[:1]
            subject = torch_subject(device, compile=True)
            subjects.append(replace(subject, functions=tuple(compiled), dtypes=dtypes))
    return subjects, skipped
