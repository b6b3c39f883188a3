"""Backends by name: found lazily, built once per set of options, open to third parties.

Asking for a backend imports that backend's library and no other. Third parties add one
through the entry-point group ``wefpe.backends`` (the entry point is a class derived from
`AbstractBackend`, called with the options given to `get_backend`).
"""

from __future__ import annotations

import importlib
import inspect
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, overload

from wefpe_core.backend import AbstractBackend, BackendCapabilities
from wefpe_core.errors import (
    BackendUnavailableError,
    InputError,
    UnknownBackendError,
    WefpeError,
    did_you_mean,
    foreign_package,
    install_command,
    missing_dependency,
)

if TYPE_CHECKING:  # never imported: an editor reads from here what the values of a backend are
    from numpy.typing import NDArray
    from torch import Tensor

ENTRY_POINT_GROUP = "wefpe.backends"


class BackendDescription(NamedTuple):
    """What can be said of a backend without importing it."""

    name: str
    purpose: str
    location: str  # of its class, as ``module:class``
    package: str | None  # the distribution that it stands on or comes with
    library: str | None  # the module of that distribution, which is looked for and not imported
    extra: str | None  # what installs the distribution; None if it comes with the project


_BUILTIN = {
    row.name: row
    for row in (
        BackendDescription(
            name="numpy",
            purpose="arrays, complex64 and complex128",
            location="backends.numpy_backend:NumpyBackend",
            package="numpy",
            library="numpy",
            extra=None,
        ),
        BackendDescription(
            name="mpmath",
            purpose="ground truth: any number of digits, each value computed at two precisions",
            location="backends.mpmath_backend:MpmathBackend",
            package="mpmath",
            library="mpmath",
            extra=None,
        ),
        BackendDescription(
            name="torch",
            purpose="tensors on CPU and GPU, derivatives of any order, compilation",
            location="backends.torch_backend:TorchBackend",
            package="torch",
            library="torch",
            extra="torch",
        ),
        BackendDescription(
            name="jax",
            purpose="JAX's arrays on CPU, GPU and TPU, for jit, grad and vmap",
            location="backends.jax_backend:JaxBackend",
            package="jax",
            library="jax",
            extra="jax",
        ),
        BackendDescription(
            name="flint",
            purpose="certified balls: values with a proven radius",
            location="backends.flint_backend:FlintBackend",
            package="python-flint",
            library="flint",
            extra="flint",
        ),
    )
}


def _third_party() -> dict[str, EntryPoint]:
    points = entry_points(group=ENTRY_POINT_GROUP)
    return {point.name: point for point in points if point.name not in _BUILTIN}


def backend_descriptions() -> tuple[BackendDescription, ...]:
    """Every backend of the project, installed or not, then those added by entry points."""
    added = (
        BackendDescription(
            name=name,
            purpose="from an entry point",
            location=point.value,
            package=point.dist.name if point.dist else None,
            library=None,
            extra=None,
        )
        for name, point in _third_party().items()
    )
    return (*_BUILTIN.values(), *added)


def available_backends() -> tuple[str, ...]:
    """Names `get_backend` can serve on this machine, without importing any of them.

    >>> {"mpmath", "numpy"} <= set(available_backends())
    True
    """
    return tuple(row.name for row in backend_descriptions() if _is_installed(row))


def known_backends(asked_for: str) -> str:
    """The end of a message about a name that is unknown: which names there are, and which not."""
    available = available_backends()
    missing = [
        f"{row.name} ({install_command(str(row.package), row.extra)})"
        for row in backend_descriptions()
        if row.name not in available
    ]
    return (
        f"available: {', '.join(available)}"
        + (f"; not installed: {', '.join(missing)}" if missing else "")
        + did_you_mean(asked_for, available)
    )


def _is_installed(row: BackendDescription) -> bool:
    return row.library is None or find_spec(row.library) is not None


@overload
def get_backend(name: Literal["numpy"], **options: Any) -> AbstractBackend[NDArray[Any]]: ...
@overload
def get_backend(name: Literal["torch"], **options: Any) -> AbstractBackend[Tensor]: ...
@overload
def get_backend(name: str, **options: Any) -> AbstractBackend[Any]: ...
def get_backend(name: str, **options: Any) -> AbstractBackend[Any]:
    """Return the backend called `name`, built with `options` (the same object each time).

    Parameters
    ----------
    name
        ``"mpmath"`` (ground truth; ``dps``), ``"numpy"`` (``compile``, ``threads``), ``"torch"``
        (``compile``), ``"flint"`` (certified balls; ``digits``), or one added by an entry point.

    Raises
    ------
    UnknownBackendError
        No backend has that name; the message lists those that exist.
    BackendUnavailableError
        Its library is not installed; the message names the extra that installs it.
    InputError
        The backend does not take one of `options`, or an option cannot be hashed (a list).

    Examples
    --------
    >>> from wefpe_core import Lattice
    >>> get_backend("numpy").wp([0.25, 0.5], Lattice(1, 1j)).shape
    (2,)
    >>> get_backend("mpmath", dps=50)
    MpmathBackend(dps=50)
    """
    if not isinstance(name, str):
        raise InputError(f"the name of a backend must be a string, got {name!r}")
    if name not in _BUILTIN and name not in _third_party():
        raise UnknownBackendError(f"unknown backend {name!r}; {known_backends(name)}")
    for key, value in options.items():
        try:
            hash(value)
        except TypeError as error:
            raise InputError(
                f"{key}={value!r} cannot be an option of a backend: {error}"
            ) from error
    # The key contains the types: 1 equals True, but it is another option.
    return _build(name, tuple(sorted((key, type(value), value) for key, value in options.items())))


@cache
def _build(name: str, options: tuple[tuple[str, type, Any], ...]) -> AbstractBackend[Any]:
    backend_class = _load_builtin(name) if name in _BUILTIN else _load_third_party(name)
    _check_options(name, backend_class, [key for key, _, _ in options])
    try:
        backend = backend_class(**{key: value for key, _, value in options})
    except TypeError as error:
        given = ", ".join(f"{key}={value!r}" for key, _, value in options)
        how = f"built with {given}" if given else "built"
        raise InputError(f"backend {name!r} cannot be {how}: {error}") from error
    except WefpeError:
        raise
    except Exception as error:
        if name in _BUILTIN:
            raise
        raise _broken(name, "cannot be built", error) from error
    if name not in _BUILTIN:
        _check_foreign(name, backend)
    return backend


def _check_foreign(name: str, backend: Any) -> None:
    """Refuse what is no backend, or does not say what it can do."""
    if not isinstance(backend, AbstractBackend):
        raise InputError(f"entry point {name!r} does not make an AbstractBackend: {backend!r}")
    try:
        capabilities = backend.capabilities
    except Exception as error:  # it is not our code, and may raise anything
        raise _broken(name, "does not say what it can do", error) from error
    if not isinstance(capabilities, BackendCapabilities):
        raise InputError(
            f"the capabilities of the backend {name!r} must be BackendCapabilities, "
            f"got {capabilities!r:.80}"
        )


def _broken(name: str, problem: str, error: Exception) -> BackendUnavailableError:
    point = _third_party()[name]
    owner = f"the package {point.dist.name!r}" if point.dist else "an entry point"
    return BackendUnavailableError(
        f"the backend {name!r} of {owner} {problem}: {type(error).__name__}: {error}"
    )


def _check_options(name: str, backend_class: Any, given: list[str]) -> None:
    """Refuse an option that the backend does not have, and list those that it has."""
    try:
        parameters = inspect.signature(backend_class).parameters.values()
    except (TypeError, ValueError):  # not a callable, or one that does not say what it takes
        return
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return
    known = [each.name for each in parameters if each.kind not in (each.VAR_POSITIONAL,)]
    for key in given:
        if key not in known:
            listed = f"its options: {', '.join(known)}" if known else "it has no options"
            raise InputError(
                f"the backend {name!r} has no option {key!r}; {listed}{did_you_mean(key, known)}"
            )


def _load_third_party(name: str) -> Any:
    point = _third_party()[name]
    try:
        return point.load()
    except Exception as error:  # it is not our code, and may raise anything
        raise _broken(name, f"cannot be loaded from {point.value}", error) from error


def _load_builtin(name: str) -> Any:
    row = _BUILTIN[name]
    if not _is_installed(row):
        message = missing_dependency(f"the backend {name!r}", str(row.package), row.extra)
        raise BackendUnavailableError(message)
    module_name, _, class_name = row.location.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name in ("backends", module_name):
            raise BackendUnavailableError(foreign_package(module_name)) from error
        raise
    if not hasattr(module, class_name):
        raise BackendUnavailableError(foreign_package(module_name))
    return getattr(module, class_name)
