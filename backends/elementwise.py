"""Functions of one number applied to scalars, nested sequences and NumPy arrays.

They serve the backends whose numbers no array holds natively. A scalar gives a scalar, a list or
tuple gives a list nested the same way, an array gives an object array of the same shape.
"""

from __future__ import annotations

import numbers
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from wefpe_core.backend import check_unmasked
from wefpe_core.errors import InputError

Assemble = Callable[[Sequence[Any]], Any]


def flatten(*arguments: Any) -> tuple[list[tuple[Any, ...]], Assemble]:
    """Pair up the elements of arguments that broadcast against each other.

    Returns the tuples of elements, and the function that gives a flat sequence of results
    (one per tuple) the shape of the arguments. Scalars broadcast against anything; arrays
    by NumPy's rules; sequences must have the same lengths.

    Raises
    ------
    InputError
        If the shapes do not fit.
    """
    for argument in arguments:
        check_unmasked(argument)
    if any(_is_array(argument) for argument in arguments):
        return _flatten_arrays(arguments)
    if not any(_is_sequence(argument) for argument in arguments):
        return [arguments], lambda results: results[0]
    elements: list[tuple[Any, ...]] = []
    skeleton = _collect(arguments, elements)
    return elements, lambda results: _fill(skeleton, iter(results))


def map_elements(function: Callable[..., Any], *arguments: Any) -> Any:
    """Apply a function of numbers to `arguments`, element by element, as `flatten` pairs them."""
    elements, assemble = flatten(*arguments)
    return assemble([function(*values) for values in elements])


def map_pairs(function: Callable[..., Sequence[Any]], *arguments: Any) -> tuple[Any, Any]:
    """Like `map_elements`, for a function that returns two values: two results."""
    elements, assemble = flatten(*arguments)
    pairs = [function(*values) for values in elements]
    return assemble([pair[0] for pair in pairs]), assemble([pair[1] for pair in pairs])


def _is_array(value: Any) -> bool:
    """Whether it is a NumPy array or holds one, as a series of pandas does; not a tensor."""
    # Looked up in sys.modules: an array exists only if someone has imported NumPy.
    numpy = sys.modules.get("numpy")
    if numpy is None or isinstance(value, numbers.Number) or hasattr(value, "requires_grad"):
        return False
    return hasattr(value, "__array__")


def _is_sequence(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def _flatten_arrays(arguments: Sequence[Any]) -> tuple[list[tuple[Any, ...]], Assemble]:
    import numpy

    def as_array(argument: Any) -> Any:
        if _is_array(argument):
            return numpy.asarray(argument)
        array = numpy.empty((), dtype=object)
        if not _is_sequence(argument):
            array[()] = argument
            return array
        return numpy.array(argument, dtype=object)

    try:
        arrays = numpy.broadcast_arrays(*(as_array(argument) for argument in arguments))
    except ValueError as error:
        raise InputError(f"shapes do not broadcast: {error}") from error
    # tolist() turns every native element into a Python number, without rounding.
    columns = [array.ravel().tolist() for array in arrays]
    shape = arrays[0].shape

    def assemble(results: Sequence[Any]) -> Any:
        array = numpy.empty(len(results), dtype=object)
        for index, result in enumerate(results):  # a bulk assignment would inspect the numbers
            array[index] = result
        return array.reshape(shape)

    return list(zip(*columns, strict=True)), assemble


def _collect(arguments: Sequence[Any], elements: list[tuple[Any, ...]]) -> Any:
    """Append the element tuples in order; return the nesting, a list per list."""
    lengths = {len(argument) for argument in arguments if _is_sequence(argument)}
    if not lengths:
        elements.append(tuple(arguments))
        return None
    if len(lengths) > 1:
        raise InputError(f"sequences of different lengths: {sorted(lengths)}")
    return [
        _collect(
            [argument[index] if _is_sequence(argument) else argument for argument in arguments],
            elements,
        )
        for index in range(lengths.pop())
    ]


def _fill(skeleton: Any, results: Iterator[Any]) -> Any:
    if skeleton is None:
        return next(results)
    return [_fill(part, results) for part in skeleton]
