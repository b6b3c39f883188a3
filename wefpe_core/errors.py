"""Every error the project raises on purpose, named by what happened.

All derive from `WefpeError`, and each also from the built-in exception that a caller would
expect to catch.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from importlib.util import find_spec
from typing import Any


class WefpeError(Exception):
    """Base of every error raised on purpose by this project."""


class LatticeError(WefpeError, ValueError):
    """The numbers given do not describe a lattice."""


class DegenerateLatticeError(LatticeError):
    """The function has no limit, or none is offered, where the discriminant is zero."""


class ImmutableError(WefpeError, AttributeError):
    """An attribute of a value that never changes was to be set or deleted."""


class InputError(WefpeError, ValueError):
    """A value or option is of the right kind but outside its domain."""


class InputTypeError(WefpeError, TypeError):
    """A value is of a kind no evaluator can use (bool, object, string, ...)."""


class UnknownBackendError(WefpeError, LookupError):
    """No backend of that name is registered."""


class MissingDependencyError(WefpeError, ImportError):
    """An optional library is not installed. The message names it and what to install."""


class BackendUnavailableError(MissingDependencyError):
    """The backend exists, but its library is not installed or its module is shadowed."""


class UnsupportedFunctionError(WefpeError, NotImplementedError):
    """A backend does not offer a function that others do."""


class PrecisionError(WefpeError, ArithmeticError):
    """Two evaluations at different precision disagree, so neither is returned."""


def import_optional(
    module: str, *, purpose: str, extra: str | None, package: str | None = None
) -> Any:
    """Import an optional library at its first use.

    Parameters
    ----------
    module
        What to import, such as ``"sklearn.datasets"``.
    purpose
        What needs the library: the beginning of the message.
    extra
        The extra of this project that installs it; None if it has none.
    package
        The name of the library on PyPI, where that is not the name of the module.

    Raises
    ------
    MissingDependencyError
        The library is not installed. A library that is installed and fails to load raises its
        own error.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if not error.name or not f"{module}.".startswith(f"{error.name}."):
            raise
        needed = package or module.partition(".")[0]
        raise MissingDependencyError(missing_dependency(purpose, needed, extra)) from error


def import_own(module: str) -> Any:
    """Import a module of `backends`, `training` or `verification`, whose names others have too.

    Raises
    ------
    MissingDependencyError
        A foreign package of that name comes first on the path; the message says where it is.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if not error.name or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise MissingDependencyError(foreign_package(module)) from error


def foreign_package(module: str) -> str:
    """The message about a package found instead of ours: their names are common words."""
    package = module.partition(".")[0]
    spec = find_spec(package)
    places = [] if spec is None else [spec.origin or "", *(spec.submodule_search_locations or [])]
    where = next((place for place in places if place), "nowhere")
    return (
        f"the package {package!r} found at {where} is not wefpe's; remove it from the path or "
        "rename it"
    )


def missing_dependency(purpose: str, package: str, extra: str | None) -> str:
    """The message that `purpose` needs a library which is not installed."""
    install = install_command(package, extra)
    return f"{purpose} needs {package}, which is not installed; run: {install}"


# The address of that index is PyTorch's to change.
_TORCH_FOR_CPU = "pip install torch from the CPU index that pytorch.org/get-started names"


def install_command(package: str, extra: str | None) -> str:
    """What to type for a library that is missing.

    The newest torch on Linux comes with gigabytes of CUDA packages unless its build for CPUs is
    there before the extra is installed, so torch takes two commands.
    """
    command = f"pip install '{f'wefpe[{extra}]' if extra else package}'"
    if package != "torch":
        return command
    return f"{_TORCH_FOR_CPU} (with an NVIDIA GPU: pip install torch), then {command}"


def did_you_mean(word: str, known: Iterable[str], count: int = 1) -> str:
    """The end of a message, "; did you mean ...?", or nothing if no known word is near."""
    from difflib import get_close_matches

    near = get_close_matches(word, list(known), n=count, cutoff=0.7)
    return f"; did you mean {' or '.join(near)}?" if near else ""
