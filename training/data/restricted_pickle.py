"""Reading the pickles of the CIFAR archives without running anything they name.

A pickle may name any function of any module and have it called. The files of CIFAR hold
dictionaries of lists, strings and one array of bytes, which is named by three functions of NumPy.
The reader knows only those names and replaces them by inert stand-ins, so not even the code of
NumPy sees the content before it is checked.
"""

from __future__ import annotations

import io
import math
import pickle
from typing import Any

import torch
from torch import Tensor

from training.errors import DataError


class _DtypeRecord:
    """Stands for ``numpy.dtype`` and keeps its code."""

    def __init__(self, code: Any = b"", *_: Any) -> None:
        self.code = code.decode("latin1") if isinstance(code, bytes) else code

    def __setstate__(self, state: Any) -> None:  # byte order and the like, of no use for bytes
        pass


class _ArrayRecord:
    """Stands for ``numpy.ndarray`` and keeps shape, type and bytes as they were stored."""

    shape: Any = ()
    dtype: Any = None
    data: Any = b""
    is_fortran: Any = False

    def __setstate__(self, state: Any) -> None:
        _, self.shape, self.dtype, self.is_fortran, self.data = state


def _empty_array(*_: Any) -> _ArrayRecord:
    return _ArrayRecord()


def _encoded(text: str, encoding: str) -> bytes:
    """Stands for ``_codecs.encode``, by which protocol 2 stores bytes."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"bytes written in {encoding!r}")
    return text.encode("latin1")


_KNOWN: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _ArrayRecord,
    ("numpy", "dtype"): _DtypeRecord,
    ("numpy.core.multiarray", "_reconstruct"): _empty_array,
    ("numpy._core.multiarray", "_reconstruct"): _empty_array,  # the same, in NumPy 2
    ("_codecs", "encode"): _encoded,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _KNOWN[module, name]
        except KeyError:
            raise pickle.UnpicklingError(
                f"it names {module}.{name}, which no CIFAR file holds; nothing of it was run"
            ) from None


def read_pickle(content: bytes, file: str) -> dict[str, Any]:
    """The dictionary in `content`, with keys as text and arrays as uint8 tensors.

    Raises
    ------
    DataError
        The content is truncated or damaged, is not a dictionary, or names a function. The
        message calls it `file`.
    """
    try:
        record = _Unpickler(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:  # EOFError, UnpicklingError, and what damaged opcodes lead to
        raise DataError(f"{file} cannot be read (truncated or damaged): {error}") from error
    if not isinstance(record, dict):
        raise DataError(f"{file} holds no dictionary, but {type(record).__name__}")
    return {_text(key): _plain(value, f"{_text(key)} in {file}") for key, value in record.items()}


def _text(value: Any) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else str(value)


def _plain(value: Any, where: str) -> Any:
    if not isinstance(value, _ArrayRecord):
        return value
    shape, data = value.shape, value.data
    is_bytes = isinstance(value.dtype, _DtypeRecord) and value.dtype.code in ("u1", "|u1")
    if not is_bytes or not isinstance(data, bytes) or value.is_fortran:
        raise DataError(f"{where} is not an array of unsigned bytes in rows")
    if not isinstance(shape, tuple) or not all(isinstance(n, int) and n >= 0 for n in shape):
        raise DataError(f"{where} has no shape, but {shape!r}")
    if math.prod(shape) != len(data):
        raise DataError(f"{where} has {len(data)} bytes for the shape {shape}")
    if not data:
        return torch.empty(shape, dtype=torch.uint8)
    return _tensor(data).view(shape)


def _tensor(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)
