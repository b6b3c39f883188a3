"""What is measured: a backend on a device, fed with NumPy arrays and answering with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from wefpe_core import AbstractBackend, Lattice, available_backends, get_backend


@dataclass(frozen=True)
class Subject:
    """A backend as the report sees it."""

    label: str  # for example "numpy" or "torch cpu"
    backend: AbstractBackend
    to_backend: Callable[[npt.NDArray[Any]], Any]

    def evaluate(
        self, function: str, *arrays: npt.NDArray[Any], lattice: Lattice
    ) -> tuple[npt.NDArray[Any], ...]:
        """Values of a method of the backend, always as a tuple of NumPy arrays."""
        arguments = [self.to_backend(array) for array in arrays]
        values = getattr(self.backend, function)(*arguments, lattice)
        values = values if isinstance(values, tuple) else (values,)
        return tuple(_to_numpy(value) for value in values)


def _to_numpy(value: Any) -> npt.NDArray[Any]:
    return value.detach().cpu().numpy() if hasattr(value, "detach") else np.asarray(value)


def numpy_subject() -> Subject:
    return Subject("numpy", get_backend("numpy"), lambda array: array)


def torch_subject(device: str, compile: bool = False) -> Subject:  # noqa: A002 - torch's word
    import torch

    label = f"torch {device}" + (" compiled" if compile else "")
    backend = get_backend("torch", compile=compile)
    return Subject(label, backend, lambda array: torch.from_numpy(array.copy()).to(device))


def cuda_is_available() -> bool:
    import torch

    return torch.cuda.is_available()


def default_subjects() -> tuple[list[Subject], list[str]]:
    """The array backends that can run here, and why the others cannot."""
    subjects, skipped = [numpy_subject()], []
    if "torch" not in available_backends():
        skipped.append("torch: not installed (pip install 'wefpe[torch]')")
        return subjects, skipped
    subjects.append(torch_subject("cpu"))
    if cuda_is_available():
        subjects.append(torch_subject("cuda"))
    else:
        skipped.append("torch cuda: no CUDA device on this machine")
    return subjects, skipped
