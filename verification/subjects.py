"""What is measured: a backend on a device, which takes and returns NumPy arrays here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from verification.functions import ARRAY_FUNCTIONS
from verification.gpu import emulated_cuda
from wefpe_core import (
    AbstractBackend,
    Lattice,
    MissingDependencyError,
    WefpeError,
    available_backends,
    get_backend,
)
from wefpe_core.registry import backend_descriptions

DTYPES = ("complex128", "complex64")
BACKENDS = ("numpy", "torch")
DEVICES = ("cpu", "cuda")
# The functions of one point, which NumPy evaluates without arrays or compiled.
POINT_FUNCTIONS = ("wp_and_prime", "zeta", "sigma", "green", "inverse_wp")


@dataclass(frozen=True)
class Subject:
    """A backend as the report sees it."""

    label: str  # for example "numpy" or "torch cpu"
    backend: AbstractBackend[Any]
    to_backend: Callable[[npt.NDArray[Any]], Any]
    # What a lattice of numbers becomes before it is handed to the backend.
    to_lattice: Callable[[Lattice, np.dtype[Any]], Lattice] = lambda lattice, dtype: lattice
    contract: str = "accuracy"  # the table of contracts.toml it is judged by
    dtypes: tuple[str, ...] = DTYPES
    functions: tuple[str, ...] | None = None  # those that are measured; None means all
    within: Callable[[], AbstractContextManager[Any]] = nullcontext  # how it is run
    one_by_one: bool = False  # whether each point is a Python number and a call of its own
    stands_on: tuple[str, ...] = ()  # names of `--require` that are present if this is measured

    def evaluate(
        self,
        function: str,
        *arrays: npt.NDArray[Any],
        lattice: Lattice,
        options: tuple[Any, ...] = (),
    ) -> tuple[npt.NDArray[Any], ...]:
        """Values of a method of the backend, always as a tuple of NumPy arrays."""
        if self.one_by_one:
            method = getattr(self.backend, function)
            calls = [
                method(*point, lattice)
                for point in zip(*map(np.ndarray.tolist, arrays), strict=True)
            ]
            return tuple(np.atleast_2d(np.array(calls).T))
        arguments = [self.to_backend(array) for array in arrays]
        given = self.to_lattice(lattice, arrays[0].dtype)
        with self.within():
            values = getattr(self.backend, function)(*arguments, given, *options)
        values = values if isinstance(values, tuple) else (values,)
        return tuple(_to_numpy(value) for value in values)

    def evaluate_constants(
        self, function: str, lattice: Lattice, dtype: np.dtype[Any]
    ) -> tuple[npt.NDArray[Any], ...]:
        """Values of a method that takes the lattice alone, as arrays of one element."""
        values = getattr(self.backend, function)(self.to_lattice(lattice, dtype))
        return tuple(np.atleast_1d(_to_numpy(value)) for value in values)


def _to_numpy(value: Any) -> npt.NDArray[Any]:
    return value.detach().cpu().numpy() if hasattr(value, "detach") else np.asarray(value)


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


def compiled_numpy_subject() -> Subject:
    """NumPy compiled by numba. Raises MissingDependencyError without it."""
    return Subject(
        "numpy compiled",
        get_backend("numpy", compile=True),
        lambda array: array,
        functions=POINT_FUNCTIONS,
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
        contract="accuracy_of_tensor_lattices",
    )


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
    import torch

    return torch.cuda.is_available()


@dataclass(frozen=True)
class Skip:
    """What is not measured, and why."""

    name: str  # torch, cuda, flint or numba, as in --require
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

    `compiled` names the functions that are measured in the form torch compiles too.
    """
    subjects: list[Subject] = []
    skipped: list[Skip] = []
    if "numpy" in backends:
        subjects += [numpy_subject(), scalar_subject()]
        try:
            subjects.append(compiled_numpy_subject())
        except MissingDependencyError as error:
            skipped.append(Skip("numba", str(error)))
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
            dtypes = DTYPES if len(compiled) > 1 else DTYPES[:1]
            subject = torch_subject(device, compile=True)
            subjects.append(replace(subject, functions=tuple(compiled), dtypes=dtypes))
    return subjects, skipped
