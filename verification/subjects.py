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
    # What a lattice of numbers becomes before it is handed to the backend.
    to_lattice: Callable[[Lattice, np.dtype[Any]], Lattice] = lambda lattice, dtype: lattice
    contract: str = "accuracy"  # the table of contracts.toml it is judged by

    def evaluate(
        self, function: str, *arrays: npt.NDArray[Any], lattice: Lattice
    ) -> tuple[npt.NDArray[Any], ...]:
        """Values of a method of the backend, always as a tuple of NumPy arrays."""
        arguments = [self.to_backend(array) for array in arrays]
        given = self.to_lattice(lattice, arrays[0].dtype)
        values = getattr(self.backend, function)(*arguments, given)
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


def tensor_lattice_subject(device: str) -> Subject:
    """Half-periods as tensors, as a training run has them; reduced on the device."""
    import torch

    def to_lattice(lattice: Lattice, dtype: np.dtype[Any]) -> Lattice:
        kind = getattr(torch, np.result_type(dtype, np.complex64).name)
        omegas = (complex(lattice.omega1), complex(lattice.omega3))
        return Lattice(*(torch.tensor(w, dtype=kind, device=device) for w in omegas))

    plain = torch_subject(device)
    return Subject(
        f"{plain.label} tensors",
        plain.backend,
        plain.to_backend,
        to_lattice,
        contract="accuracy_of_tensor_lattices",
    )


def cuda_is_available() -> bool:
    import torch

    return torch.cuda.is_available()


def default_subjects() -> tuple[list[Subject], list[str]]:
    """The array backends that can run here, and why the others cannot."""
    subjects, skipped = [numpy_subject()], []
    if "torch" not in available_backends():
        skipped.append("torch: not installed (pip install 'wefpe[torch]')")
        return subjects, skipped
    devices = ["cpu", "cuda"] if cuda_is_available() else ["cpu"]
    for device in devices:
        subjects += [torch_subject(device), tensor_lattice_subject(device)]
    if "cuda" not in devices:
        skipped.append("torch cuda: no CUDA device on this machine")
    return subjects, skipped
