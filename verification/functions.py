"""What is asked of a backend: at which arguments, how it is called, and who knows the answer.

`FUNCTIONS` is the only list of the functions. The rows of the report, the names in README.md, the
functions that are compiled or evaluated in single precision, and those that the checks of the
mutants evaluate are all taken from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from verification import cases, gradients, oracle
from wefpe_core import Lattice, get_backend

if TYPE_CHECKING:
    from verification.subjects import Subject

Array = npt.NDArray[Any]
# One row of arguments per point: most functions have one argument, addition has four.
Arguments = Callable[[str, Lattice, str, int], Array]

TRUNCATION = 3  # of the lattice sum, whose rounding is measured, not its convergence


@dataclass(frozen=True)
class Function:
    """One question, with a row of the report for each of its values."""

    values: tuple[str, ...]
    evaluate: Callable[[Subject, Array, Lattice], tuple[Array, ...]]
    # Takes the arguments of one point and the lattice.
    reference: Callable[..., tuple[oracle.Answer, ...]]
    regions: tuple[str, ...]
    arguments: Arguments
    share: float  # of the points that wp gets
    # The reference for a lattice of tensors, if its errors are measured in another way.
    reference_of_tensors: Callable[..., tuple[oracle.Answer, ...]] | None = None
    maps_arrays: bool = False  # to arrays of the same precision, as constants of a lattice do not
    # For each value +1 if it is even in z, -1 if it is odd; empty if z is not the argument.
    parity: tuple[int, ...] = ()
    # What README.md calls the values. A value without a name has rows in the report only.
    symbols: Mapping[str, str] = field(default_factory=dict)

    def reference_by(self, contract: str) -> Callable[..., tuple[oracle.Answer, ...]]:
        if contract == "accuracy_of_tensor_lattices" and self.reference_of_tensors is not None:
            return self.reference_of_tensors
        return self.reference


def points(region: str, lattice: Lattice, dtype: str, count: int) -> Array:
    return cases.points(region, lattice, dtype, count)[:, None]


def values_of_wp(region: str, lattice: Lattice, dtype: str, count: int) -> Array:
    """Values of wp at the points of the region, as arguments for the inverse."""
    return np.asarray(get_backend("numpy").wp(points(region, lattice, dtype, count), lattice))


def points_of_the_curve(region: str, lattice: Lattice, dtype: str, count: int) -> Array:
    """Two points (wp, wp') for the addition formula; their numbers are then taken as exact.

    The points come from a disk around the pole, because far up in a tall cell all values of wp are
    equal after rounding.
    """
    z = cases.points("around the pole", lattice, dtype, count)
    if region == "equal or opposite":
        other = np.where(np.arange(count) % 2, z, -z)
    else:
        other = np.roll(z, 1)
    backend = get_backend("numpy")
    pairs = (*backend.wp_and_prime(z, lattice), *backend.wp_and_prime(other, lattice))
    return np.stack(pairs, axis=1)


def no_points(region: str, lattice: Lattice, dtype: str, count: int) -> Array:
    """A function of the lattice alone has one row without arguments."""
    return np.empty((1, 0), dtype)


def of_points(name: str, *values: str, left_out: tuple[str, ...] = (), **changes: Any) -> Function:
    def evaluate(subject: Subject, arguments: Array, lattice: Lattice) -> tuple[Array, ...]:
        return subject.evaluate(name, *arguments.T, lattice=lattice)

    known: dict[str, Any] = {
        "values": values or (name,),
        "evaluate": evaluate,
        "reference": getattr(oracle, name),
        "regions": tuple(region for region in cases.REGIONS if region not in left_out),
        "arguments": points,
        "share": 0.25,
        "maps_arrays": True,
    }
    return Function(**(known | changes))


def of_the_lattice(name: str, *values: str) -> Function:
    def evaluate(subject: Subject, arguments: Array, lattice: Lattice) -> tuple[Array, ...]:
        return subject.evaluate_constants(name, lattice, arguments.dtype)

    reference = getattr(oracle, name)
    return Function(values, evaluate, reference, ("the lattice",), no_points, share=0.0)


def _truncated(subject: Subject, arguments: Array, lattice: Lattice) -> tuple[Array, ...]:
    sizes = (TRUNCATION, TRUNCATION)
    return subject.evaluate("lattice_sum", *arguments.T, lattice=lattice, options=sizes)


def _truncated_reference(z: complex, lattice: Lattice) -> tuple[oracle.Answer, ...]:
    return oracle.lattice_sum(z, lattice, TRUNCATION, TRUNCATION)


def _gradients(order: int) -> Function:
    return Function(
        values=gradients.names(order),
        evaluate=lambda subject, arguments, lattice: gradients.evaluate(
            subject, arguments[:, 0], lattice, order
        ),
        reference=lambda z, lattice: gradients.reference(z, lattice, order),
        # Second derivatives are nothing special next to a half-period or a zero.
        regions=("generic", "pole at 0", "half-periods") if order == 1 else ("generic",),
        arguments=points,
        share=0.04,
        symbols={"wp_z": "∂℘/∂z", "wp_omega1": "∂℘/∂ω₁", "wp_omega3": "∂℘/∂ω₃"}
        if order == 1
        else {},
    )


FUNCTIONS: dict[str, Function] = {
    "wp_and_prime": of_points(
        "wp_and_prime",
        *("wp", "wp_prime"),
        share=1.0,
        parity=(1, -1),
        symbols={"wp": "℘", "wp_prime": "℘′"},
    ),
    "zeta": of_points(
        "zeta",
        regions=(*cases.REGIONS, "quasi-periods cancel"),
        reference_of_tensors=oracle.zeta_of_tensors,
        parity=(-1,),
        symbols={"zeta": "ζ"},
    ),
    # sigma overflows far away, and a value of wp does not tell how far away its argument was.
    "sigma": of_points("sigma", left_out=("far away",), parity=(-1,), symbols={"sigma": "σ"}),
    "green": of_points("green", parity=(1,), symbols={"green": "Green function"}),
    "inverse_wp": of_points(
        "inverse_wp",
        left_out=("far away",),
        arguments=values_of_wp,
        symbols={"inverse_wp": "℘⁻¹"},
    ),
    "add": of_points(
        "add",
        *("add wp", "add wp_prime"),
        arguments=points_of_the_curve,
        regions=("generic", "equal or opposite"),
    ),
    "lattice_sum": of_points(
        "lattice_sum",
        *("sum wp", "sum wp_prime"),
        evaluate=_truncated,
        reference=_truncated_reference,
        regions=("generic", "pole at 0"),
        share=0.1,
    ),
    "invariants": of_the_lattice("invariants", "g2", "g3"),
    "roots": of_the_lattice("roots", "e1", "e2", "e3"),
    "quasi_periods": of_the_lattice("quasi_periods", "eta1", "eta3"),
    "gradient": _gradients(order=1),
    "second_gradient": _gradients(order=2),
}
ARRAY_FUNCTIONS = tuple(name for name, function in FUNCTIONS.items() if function.maps_arrays)
# Functions of z: their names, and the parity of each of their values.
FUNCTIONS_OF_Z = tuple(name for name, function in FUNCTIONS.items() if function.parity)
PARITY = {
    value: sign
    for name in FUNCTIONS_OF_Z
    for value, sign in zip(FUNCTIONS[name].values, FUNCTIONS[name].parity, strict=True)
}
SYMBOLS = {
    value: symbol for function in FUNCTIONS.values() for value, symbol in function.symbols.items()
}


def points_of(function: Function, points_of_wp: int) -> int:
    """The number of points that this function gets per lattice and region."""
    return max(1, round(function.share * points_of_wp))
