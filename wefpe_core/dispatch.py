"""Which backend serves an argument: the one of the library that its numbers come from."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

from wefpe_core.backend import AbstractBackend
from wefpe_core.errors import InputTypeError
from wefpe_core.lattice import Lattice
from wefpe_core.registry import get_backend

# The package that defines a type of numbers, and the backend for them. All else is NumPy's.
_BACKENDS = {
    "torch": "torch",
    "jax": "jax",
    "jaxlib": "jax",
    "mpmath": "mpmath",
    "flint": "flint",
}
_PLAIN = frozenset({int, float, complex})


def backend_for(*values: Any) -> AbstractBackend[Any]:
    """Return the backend for these numbers, arrays and lattices.

    Tensors of torch, arrays of JAX, numbers of mpmath and of python-flint go to the backends of
    those libraries; Python's numbers and NumPy's arrays go to NumPy's, unless they stand beside
    one of these. A list or tuple counts as what is in it, and a lattice as its half-periods if it
    holds tensors. The backends of mpmath and flint work at the precision that their library is set
    to (``mpmath.mp.dps``, ``flint.ctx.dps``).

    Raises
    ------
    InputTypeError
        The values belong to two of these libraries.

    Examples
    --------
    >>> backend_for(0.5, Lattice(1.0, 1.0j)).name
    'numpy'
    """
    found = {
        name: part
        for value in values
        if type(value) not in _PLAIN  # most calls have nothing else, and take microseconds
        for name, part in _named(value)
    }
    if not found:
        return get_backend("numpy")
    if len(found) > 1:
        raise InputTypeError(
            f"the arguments belong to different libraries: {', '.join(sorted(found))}; "
            "convert them to one kind, or choose a backend with get_backend"
        )
    ((name, value),) = found.items()
    if name == "mpmath":
        return get_backend("mpmath", dps=value.context.dps)
    if name == "flint":
        return get_backend("flint", digits=sys.modules["flint"].ctx.dps)
    return get_backend(name)


def _named(value: Any) -> Iterator[tuple[str, Any]]:
    """The backends that the parts of a value ask for, each with such a part."""
    if isinstance(value, Lattice):
        if value.holds_tensors:
            yield from _named((value.omega1, value.omega3))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _named(item)
    elif getattr(getattr(value, "dtype", None), "kind", "") == "O":
        yield from _named(value.ravel().tolist())
    else:
        name = _backend_of_type(type(value))  # type: ignore[arg-type]  # every type has a hash
        if name is not None:
            yield name, value


@cache
def _backend_of_type(kind: type) -> str | None:
    for base in kind.__mro__:  # a subclass may be defined anywhere
        name = _BACKENDS.get(base.__module__.partition(".")[0])
        if name is not None:
            return name
    return None
