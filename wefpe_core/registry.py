"""Backends by name: found lazily, built once per set of options, open to third parties.

Asking for a backend imports that backend's library and no other. Third parties add one
through the entry-point group ``wefpe.backends`` (the entry point is a class derived from
`AbstractBackend`, called with the options given to `get_backend`).
"""

from __future__ import annotations

import importlib
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Any, NamedTuple

from wefpe_core.backend import AbstractBackend
from wefpe_core.errors import (
    BackendUnavailableError,
    InputError,
    UnknownBackendError,
    did_you_mean,
)

ENTRY_POINT_GROUP = "wefpe.backends"


class _Builtin(NamedTuple):
    module: str
    class_name: str
    library: str  # looked for, never imported here
    extra: str | None  # what to install; None if it comes with the project


_BUILTIN = {
    "mpmath": _Builtin("backends.mpmath_backend", "MpmathBackend", "mpmath", None),
    "numpy": _Builtin("backends.numpy_backend", "NumpyBackend", "numpy", None),
    "torch": _Builtin("backends.torch_backend", "TorchBackend", "torch", "torch"),
    "flint": _Builtin("backends.flint_backend", "FlintBackend", "flint", "flint"),
}


def _third_party() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}


def available_backends() -> tuple[str, ...]:
    """Names `get_backend` can serve on this machine, without importing any of them."""
    installed = [name for name, builtin in _BUILTIN.items() if find_spec(builtin.library)]
    return (*installed, *(name for name in _third_party() if name not in _BUILTIN))


def get_backend(name: str, **options: Any) -> AbstractBackend:
    """Return the backend called `name`, built with `options` (the same object each time).

    Parameters
    ----------
    name
        ``"mpmath"`` (ground truth; ``dps``), ``"numpy"``, ``"torch"`` (``compile``),
        ``"flint"`` (certified balls; ``digits``), or one added by an entry point.

    Raises
    ------
    UnknownBackendError
        No backend has that name; the message lists those that exist.
    BackendUnavailableError
        Its library is not installed; the message names the extra that brings it.
    InputError
        The backend does not take one of `options`, or it cannot be told from others (a list).
    """
    if not isinstance(name, str):
        raise InputError(f"a backend is asked for by its name, a string, not {name!r}")
    if name not in _BUILTIN and name not in _third_party():
        missing = [known for known in _BUILTIN if known not in available_backends()]
        raise UnknownBackendError(
            f"unknown backend {name!r}; available: {', '.join(available_backends())}"
            + (f"; not installed: {', '.join(missing)}" if missing else "")
            + did_you_mean(name, available_backends())
        )
    for key, value in options.items():
        try:
            hash(value)
        except TypeError as error:
            raise InputError(f"{key}={value!r} is no option of a backend: {error}") from error
    # With their types: 1 equals True, but is not the same option.
    return _build(name, tuple(sorted((key, type(value), value) for key, value in options.items())))


@cache
def _build(name: str, options: tuple[tuple[str, type, Any], ...]) -> AbstractBackend:
    backend_class = _load_builtin(name) if name in _BUILTIN else _third_party()[name].load()
    try:
        backend = backend_class(**{key: value for key, _, value in options})
    except TypeError as error:
        given = ", ".join(f"{key}={value!r}" for key, _, value in options)
        raise InputError(f"backend {name!r} cannot be built with {given}: {error}") from error
    if not isinstance(backend, AbstractBackend):
        raise InputError(f"entry point {name!r} does not make an AbstractBackend: {backend!r}")
    return backend


def _load_builtin(name: str) -> Any:
    builtin = _BUILTIN[name]
    if find_spec(builtin.library) is None:
        install = f"wefpe[{builtin.extra}]" if builtin.extra else builtin.library
        raise BackendUnavailableError(
            f"backend {name!r} needs the library {builtin.library!r}, which is not installed; "
            f"run: pip install '{install}'"
        )
    try:
        module = importlib.import_module(builtin.module)
    except ModuleNotFoundError as error:
        if error.name in ("backends", builtin.module):
            raise _shadowed() from error
        raise
    if not hasattr(module, builtin.class_name):
        raise _shadowed()
    return getattr(module, builtin.class_name)


def _shadowed() -> BackendUnavailableError:
    """`backends` is a common name; say whose package was found instead of ours."""
    spec = find_spec("backends")
    places = [] if spec is None else [spec.origin or "", *(spec.submodule_search_locations or [])]
    where = next((place for place in places if place), "nowhere")
    return BackendUnavailableError(
        f"the package 'backends' found at {where} is not wefpe's; remove it from the path "
        "or rename it"
    )
