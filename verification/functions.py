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

from verification import cases, gradients, oracle, oracle_family, oracle_heat, oracle_jacobi
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
    # Whether one call takes the arguments of all lattices, which only say where it is asked.
    at_once: bool = False
    # For each value +1 if it is even in z, -1 if it is odd; empty if z is not the argument.
    parity: tuple[int, ...] = ()
    # What README.md calls the values. A value without a name has rows in the report only.
    symbols: Mapping[str, str] = field(default_factory=dict)

    @property
    def families(self) -> tuple[str, ...]:
        """Those of the lattices that have rows of their own."""
        return (cases.ALL,) if self.at_once else tuple(cases.FAMILIES)

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


def invariants_to_invert(region: str, lattice: Lattice, dtype: str, count: int) -> Array:
    """Pairs (g2, g3): those of the lattice, or of roots that nearly coincide, turned and scaled."""
    if region == "the lattice":
        return np.array([get_backend("numpy").invariants(lattice)]).astype(dtype)
    rng = np.random.default_rng([cases.SEED, count])
    # Roots 1 + d, 1 - d and -2; with a smaller d the invariants round to those of a double root.
    smallest = 8.0 * float(np.finfo(dtype).eps) ** 0.5
    d = np.exp(rng.uniform(np.log(smallest), 0.0, count))
    factor = np.exp(rng.uniform(-3.0, 3.0, count) + 2j * np.pi * rng.random(count))
    return np.stack([4 * (3 + d * d) * factor**2, -8 * (1 - d * d) * factor**3], 1).astype(dtype)


def _inverted(subject: Subject, arguments: Array, lattice: Lattice) -> tuple[Array, ...]:
    """The invariants of the lattices that tensors of invariants give, by mpmath."""
    found = subject.backend.lattice_from_invariants(*map(subject.to_backend, arguments.T.copy()))
    omegas = zip(found.omega1.tolist(), found.omega3.tolist(), strict=True)
    exact = get_backend("mpmath", dps=oracle.DIGITS)
    nothing = (complex("nan"), complex("nan"))
    again = [exact.invariants(Lattice(*w)) if w[0] == w[0] else nothing for w in omegas]
    g2, g3 = np.array(again).astype(np.complex128).T
    return g2, g3


# Orders of derivatives that have rows in the report.
ORDERS = (2, 3, 6)
COEFFICIENTS = ("c2", "c3", "c4", "c5")


def _derivative(n: int) -> Function:
    def evaluate(subject: Subject, arguments: Array, lattice: Lattice) -> tuple[Array, ...]:
        return subject.evaluate("wp_derivative", *arguments.T, lattice=lattice, options=(n,))

    return of_points(
        "wp_derivative",
        f"wp_derivative_{n}",
        evaluate=evaluate,
        reference=lambda z, lattice: oracle.wp_derivative(z, lattice, n),
        regions=("generic", "pole at 0", "half-periods", "far away"),
        share=0.04,
        maps_arrays=False,
    )


def _laurent(subject: Subject, arguments: Array, lattice: Lattice) -> tuple[Array, ...]:
    given = subject.to_lattice(lattice, arguments.dtype)
    values = subject.backend.laurent_coefficients(given, len(COEFFICIENTS))
    return tuple(np.atleast_1d(value) for value in np.asarray(subject.backend.to_numpy(values)))


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


def _without_lattice(name: str, regions: tuple[str, ...], **changes: Any) -> Function:
    """A function of numbers alone; the lattice only says where it is asked."""

    def evaluate(subject: Subject, arguments: Array, lattice: Lattice) -> tuple[Array, ...]:
        return subject.evaluate(name, *arguments.T, lattice=None)

    known: dict[str, Any] = {
        "values": (name,),
        "evaluate": evaluate,
        "reference": oracle_family.by_backend(name),
        "regions": regions,
        "arguments": oracle_family.taus,
        "share": 0.03,
        "maps_arrays": True,
        "at_once": True,
    }
    return Function(**(known | changes))


def _integral(name: str, kinds: str, *left_out: str, **changes: Any) -> Function:
    regions = tuple(r for r in oracle_family.INTEGRAL_REGIONS if r not in left_out)
    arguments = oracle_family.arguments_of(kinds)

    def evaluate(subject: Subject, arguments: Array, lattice: Lattice) -> tuple[Array, ...]:
        # Real arguments as real arrays, for which a backend may have code of its own.
        columns = arguments.T if arguments.imag.any() else arguments.T.real.copy()
        return subject.evaluate(name, *columns, lattice=None)

    return _without_lattice(name, regions, arguments=arguments, evaluate=evaluate, **changes)


def _of_numbers(
    values: tuple[str, ...],
    evaluate: Callable[..., tuple[Array, ...]],
    reference: Callable[..., tuple[oracle.Answer, ...]],
    regions: tuple[str, ...],
    arguments: Arguments,
    **changes: Any,
) -> Function:
    """Functions whose references take long: at the default size, one point for each lattice."""
    return Function(values, evaluate, reference, regions, arguments, share=0.005, **changes)


def _eisenstein(subject: Subject, arguments: Array, lattice: Lattice) -> tuple[Array, ...]:
    with subject.within():
        tau = subject.to_backend(arguments[:, 0])
        values = [subject.backend.eisenstein(k, tau) for k in oracle_family.WEIGHTS]
    return tuple(np.asarray(subject.backend.to_numpy(value)) for value in values)


def _gradients_of_numbers(name: str, regions: tuple[str, ...], arguments: Arguments) -> Function:
    asked = gradients.OF_NUMBERS[name]
    return _of_numbers(
        asked.names, asked.evaluate, asked.reference, regions, arguments, at_once=True
    )


_MODULAR = oracle_family.MODULAR_REGIONS
# The defining series, which is the reference, has too many terms far away.
_THETA_REGIONS = ("generic", "pole at 0", "half-periods")
_JACOBI_REGIONS = (*_THETA_REGIONS, "other poles", "symmetry lines", "far away")

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
    "lattice_from_invariants": Function(
        ("g2 again", "g3 again"),
        _inverted,
        oracle.invariants_again,
        ("the lattice", "roots nearly coincide"),
        invariants_to_invert,
        share=0.25,
    ),
    "log_sigma": of_points("log_sigma", share=0.1, maps_arrays=False),
    "modified_zeta": of_points("modified_zeta", share=0.1, maps_arrays=False),
    "modified_sigma": of_points(
        "modified_sigma", left_out=("far away",), share=0.1, maps_arrays=False
    ),
    **{f"wp_derivative_{n}": _derivative(n) for n in ORDERS},
    "laurent_coefficients": Function(
        COEFFICIENTS,
        _laurent,
        lambda lattice: oracle.laurent_coefficients(lattice, len(COEFFICIENTS)),
        ("the lattice",),
        no_points,
        share=0.0,
    ),
    "gradient": _gradients(order=1),
    "second_gradient": _gradients(order=2),
    "green_gradient": Function(
        gradients.GREEN,
        lambda subject, arguments, lattice: gradients.evaluate(
            subject, arguments[:, 0], lattice, order=1, method="green"
        ),
        gradients.green_reference,
        ("generic", "pole at 0", "half-periods"),
        points,
        share=0.04,
    ),
    "klein_j": _without_lattice("klein_j", _MODULAR),
    "inverse_klein_j": _without_lattice(
        "inverse_klein_j",
        _MODULAR,
        reference=oracle_family.inverse_klein_j,
        arguments=oracle_family.values_of_j,
    ),
    "dedekind_eta": _without_lattice("dedekind_eta", _MODULAR),
    "modular_lambda": _without_lattice("modular_lambda", _MODULAR),
    "eisenstein": _without_lattice(
        "eisenstein",
        _MODULAR,
        values=tuple(f"E{k}" for k in oracle_family.WEIGHTS),
        evaluate=_eisenstein,
        reference=oracle_family.eisenstein,
    ),
    "ellipk": _integral("ellipk", "m"),
    "ellipe": _integral("ellipe", "m"),
    # mpmath takes a tenth of a second for one of these. Complex ones of the third kind take it more
    # than a second; the tests compare them with Arb.
    "ellipkinc": _integral("ellipkinc", "fm", share=0.01),
    "ellipeinc": _integral("ellipeinc", "fm", share=0.01),
    "ellippi": _integral("ellippi", "nm", "complex", share=0.01),
    "ellippiinc": _integral("ellippiinc", "nrm", "complex", share=0.01),
    "elliprf": _integral("elliprf", "xxx", share=0.015),
    "elliprd": _integral("elliprd", "xxx", share=0.015),
    "elliprj": _integral("elliprj", "xxxx", "complex", share=0.015),
    "elliprc": _integral("elliprc", "xx"),
    "ellipj": _of_numbers(
        ("sn", "cn", "dn", "am"),
        oracle_jacobi.evaluate_ellipj,
        oracle_jacobi.ellipj,
        _JACOBI_REGIONS,
        oracle_jacobi.u_and_m,
    ),
    "ellipj of arrays": _of_numbers(
        ("sn of arrays", "cn of arrays", "dn of arrays", "am of arrays"),
        oracle_jacobi.evaluate_ellipj_of_arrays,
        oracle_jacobi.ellipj,
        _JACOBI_REGIONS,
        oracle_jacobi.u_and_m,
        at_once=True,
    ),
    "jacobi": _of_numbers(
        oracle_jacobi.OTHERS,
        oracle_jacobi.evaluate_others,
        oracle_jacobi.others,
        _THETA_REGIONS,
        oracle_jacobi.u_and_m,
    ),
    "jtheta": _of_numbers(
        ("theta", "log_theta"),
        oracle_jacobi.evaluate_theta,
        oracle_jacobi.theta,
        _THETA_REGIONS,
        oracle_jacobi.z_tau_and_n,
    ),
    "jtheta of arrays": _of_numbers(
        ("theta of arrays",),
        oracle_jacobi.evaluate_theta_of_arrays,
        oracle_jacobi.theta_alone,
        _THETA_REGIONS,
        oracle_jacobi.z_tau_and_n,
        at_once=True,
    ),
    "jtheta derivatives": _of_numbers(
        ("theta_z", "theta_zz", "theta_zzz", "theta_zzzz"),
        oracle_jacobi.evaluate_derivatives,
        oracle_jacobi.theta_derivatives,
        ("generic", "pole at 0"),
        oracle_jacobi.z_tau_and_n,
    ),
    "sigma_k": _of_numbers(
        ("sigma1", "sigma2", "sigma3"),
        oracle_jacobi.evaluate_sigmas,
        oracle_jacobi.sigmas,
        ("generic", "half-periods", "other poles"),
        points,
    ),
    "heat": Function(
        values=("heat", "log_heat"),
        evaluate=oracle_heat.evaluate,
        reference=oracle_heat.reference,
        regions=("generic", "half-periods", "far away"),
        arguments=oracle_heat.points_and_times,
        share=0.005,
    ),
    "gradient of ellipj": _gradients_of_numbers(
        "ellipj", ("generic",), oracle_jacobi.u_and_m_to_differentiate
    ),
    "gradient of jtheta": _gradients_of_numbers("jtheta", ("generic",), oracle_jacobi.z_tau_and_n),
    "gradient of integrals": _gradients_of_numbers(
        "integrals", oracle_family.INTEGRAL_REGIONS, oracle_family.arguments_of("m")
    ),
    "gradient of modular": _gradients_of_numbers("modular", _MODULAR[:2], oracle_family.taus),
    # j overflows in the other regions.
    "gradient of klein_j": _gradients_of_numbers("klein_j", _MODULAR[1:2], oracle_family.taus),
}
ARRAY_FUNCTIONS = tuple(name for name, function in FUNCTIONS.items() if function.maps_arrays)
# Functions that share a line of the summary. Those of the second list take no lattice.
_GROUPS = {
    "constants of a lattice": (
        *("invariants", "roots", "quasi_periods", "lattice_from_invariants"),
        "laurent_coefficients",
    ),
    "from wp and sigma": (
        *("log_sigma", "modified_zeta", "modified_sigma", "sigma_k"),
        *(f"wp_derivative_{n}" for n in ORDERS),
    ),
}
_GROUPS_WITHOUT_LATTICE = {
    "modular functions": (
        *("klein_j", "inverse_klein_j", "dedekind_eta", "modular_lambda", "eisenstein"),
    ),
    "elliptic integrals": (
        *("ellipk", "ellipe", "ellipkinc", "ellipeinc", "ellippi", "ellippiinc"),
        *("elliprf", "elliprd", "elliprj", "elliprc"),
    ),
    "Jacobi functions": ("ellipj", "ellipj of arrays", "jacobi"),
    "theta functions": ("jtheta", "jtheta of arrays", "jtheta derivatives"),
    "their gradients": (
        *("gradient of ellipj", "gradient of jtheta", "gradient of integrals"),
        *("gradient of modular", "gradient of klein_j"),
    ),
}
WITHOUT_LATTICE = {name for names in _GROUPS_WITHOUT_LATTICE.values() for name in names}
# The line of the summary that each function is in: its own, or that of its group.
LINES = {name: name for name in FUNCTIONS} | {
    name: group for group, names in (_GROUPS | _GROUPS_WITHOUT_LATTICE).items() for name in names
}
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


def lattices_of(function: Function, points_of_wp: int) -> int | None:
    """On how many lattices of a family it is measured; None means on all.

    Where its share is a fraction of a point, it is the first of the family alone.
    """
    return 1 if 0 < function.share * points_of_wp < 1 and not function.at_once else None
