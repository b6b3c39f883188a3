"""Why the oracle can be trusted: its values against other formulas and certified balls.

The oracle sums rows of the lattice in closed form. Here theta functions (DLMF 23.6.5, 23.6.9,
23.6.13) of mpmath and, where python-flint is installed, balls of Arb answer the same questions.
SciPy, where it is installed, answers in double precision by code that shares nothing with this
project: wp by Jacobi functions and its inverse by Carlson's integral on rectangular lattices, and
Jacobi functions and elliptic integrals themselves of real arguments. The truncation bounds of
`wefpe_core.bounds` are compared with the errors of truncated series that the oracle finds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import mpmath

from verification import cases, oracle
from verification.functions import FUNCTIONS
from verification.judge import load_contracts
from verification.measure import arguments_at, references_at
from verification.oracle_family import midpoints
from verification.subjects import Skip
from wefpe_core import (
    Lattice,
    MissingDependencyError,
    available_backends,
    bounds,
    get_backend,
)
from wefpe_core.errors import import_optional

DIGITS = oracle.DIGITS + 10
EPS = 2.0**-52  # of the doubles of SciPy
# The oracle promises thirty digits. A little is lost where the scale is a sum of parts.
ALLOWED = 10.0 ** (2 - oracle.DIGITS)

BOUND = "its bound"  # what an error of truncation is compared with

# Values of a function at one point of a lattice, computed in another way than by the oracle.
Opinion = Callable[[str, complex, Lattice], tuple[Any, ...]]


@dataclass(frozen=True)
class Agreement:
    """How far apart the oracle and another source are, over a sample of points.

    Or, if the source is `BOUND`, how much of its bound the error of a truncated series reaches.
    """

    function: str
    source: str
    points: int
    largest: float  # in units of the scale of errors, or of the bound
    allowed: float = ALLOWED

    @property
    def holds(self) -> bool:
        return self.largest <= self.allowed

    @property
    def problem(self) -> str:
        """What is wrong, if it does not hold."""
        if self.source == BOUND:
            return f"the error of the truncated {self.function} is {self.largest:.3g} x {BOUND}"
        return f"the oracle and {self.source} differ on {self.function} by {self.largest:.2g}"


def theta_functions(function: str, z: complex, lattice: Lattice) -> tuple[Any, ...]:
    """wp, wp', zeta and sigma of a point of the cell around 0, in the reduced basis."""
    reduced, _ = lattice.reduced()
    with mpmath.workdps(DIGITS):
        a, b = (
            2 * mpmath.mpc(*(mpmath.mpf(x.numerator) / x.denominator for x in half))
            for half in reduced.exact
        )
        nome, scale = mpmath.expjpi(b / a), mpmath.pi / a
        v = scale * mpmath.mpc(z)
        theta = [mpmath.jtheta(1, v, nome, k) for k in range(2)]
        slope, third = (mpmath.jtheta(1, 0, nome, k) for k in (1, 3))
        if function == "wp_and_prime":
            c2, c3, c4 = (mpmath.jtheta(k, 0, nome) for k in (2, 3, 4))
            t2, t3, t4 = (mpmath.jtheta(k, v, nome) for k in (2, 3, 4))
            wp = scale**2 * ((c3**4 + c4**4) / 3 + (c3 * c4 * t2 / theta[0]) ** 2)
            # 23.6.9 with 23.6.5: the three square roots of wp - e_j, multiplied.
            product = c2 * c3 * c4
            return wp, -2 * scale**3 * product**2 * t2 * t3 * t4 / theta[0] ** 3
        eta = -(scale**2) * third / (3 * slope)  # eta1/omega1, DLMF 23.6.8
        if function == "zeta":
            return (eta * z + scale * theta[1] / theta[0],)
        return (mpmath.exp(eta * mpmath.mpc(z) ** 2 / 2) * theta[0] / (scale * slope),)


def arb_balls(function: str, z: complex, lattice: Lattice) -> tuple[Any, ...]:
    """Midpoints of balls with ten digits more than are compared, so their radii do not matter."""
    values = getattr(get_backend("flint", digits=DIGITS), function)(z, lattice)
    return midpoints(values if isinstance(values, tuple) else (values,))


# Plain theta functions are accurate neither at far points nor on thin lattices.
_THETA_REGIONS = ("generic", "pole at 0", "half-periods", "zeros")


def sample(count: int, regions: tuple[str, ...]) -> Iterator[tuple[complex, Lattice]]:
    for lattices in cases.FAMILIES.values():
        for lattice in lattices:
            for region in regions:
                for z in cases.points(region, lattice, "complex128", count):
                    yield complex(z), lattice


def compare(function: str, source: str, opinion: Opinion, count: int) -> Agreement:
    regions = FUNCTIONS[function].regions
    if opinion is theta_functions:
        regions = tuple(region for region in regions if region in _THETA_REGIONS)
    worst, points = 0.0, 0
    for z, lattice in sample(count, regions):
        references = FUNCTIONS[function].reference(z, lattice)
        for value, reference in zip(opinion(function, z, lattice), references, strict=True):
            error = reference.error_of(value)
            worst = error if not error <= worst else worst
        points += 1
    return Agreement(function, source, points, worst)


# Functions of numbers, with the methods of the flint backend that give their values.
_OF_NUMBERS: dict[str, Callable[..., tuple[Any, ...]]] = {
    "klein_j": lambda backend, tau: (backend.klein_j(tau),),
    "dedekind_eta": lambda backend, tau: (backend.dedekind_eta(tau),),
    "modular_lambda": lambda backend, tau: (backend.modular_lambda(tau),),
    "jtheta of arrays": lambda backend, z, tau, n: (backend.jtheta(int(n.real), z, tau),),
    "ellipj": lambda backend, u, m: tuple(backend.ellipj(u, m)),
}
_FIRST_OF_FAMILIES = tuple(lattices[0] for lattices in cases.FAMILIES.values())


def compare_numbers(
    function: str,
    source: str,
    opinion: Callable[..., tuple[Any, ...]],
    regions: Sequence[str],
    allowed: float = ALLOWED,
) -> Agreement:
    """The oracle and another source at one point of each region for a lattice of each family."""
    worst, points = 0.0, 0
    for region in regions:
        for lattice in _FIRST_OF_FAMILIES:
            place = (function, region, lattice, "complex128", 1)
            (arguments,) = arguments_at(*place)
            (references,) = references_at(function, "accuracy", *place[1:])
            values = opinion(*map(complex, arguments))
            for value, reference in zip(values, references, strict=True):
                error = reference.error_of(value)
                worst = error if not error <= worst else worst
            points += 1
    return Agreement(function, source, points, worst, allowed)


def arb_agreements() -> list[Agreement]:
    """Theta functions, modular functions and Jacobi functions beside certified balls."""
    backend = get_backend("flint", digits=DIGITS)

    def opinion_of(call: Callable[..., tuple[Any, ...]]) -> Callable[..., tuple[Any, ...]]:
        return lambda *arguments: midpoints(call(backend, *arguments))

    return [
        compare_numbers(name, "Arb balls", opinion_of(call), FUNCTIONS[name].regions)
        for name, call in _OF_NUMBERS.items()
    ]


# --- SciPy, in double precision -------------------------------------------------------------------

# The integrals that SciPy has, too.
_OF_SCIPY = (
    *("ellipk", "ellipe", "ellipkinc", "ellipeinc"),
    *("elliprf", "elliprd", "elliprj", "elliprc"),
)
# tau = i times the quotient of sides; on a taller rectangle 1 - m is lost to rounding.
_SIDES = (0.5, 0.75, 1.0, 1.25, 2.0)


def _rectangle(side: float) -> tuple[Lattice, float, float]:
    """The lattice with half-periods 1 and `side` i, its parameter m, and sqrt(e1 - e3).

    K and K' are those of SciPy; theta constants of mpmath, rounded, give m.
    """
    with mpmath.workdps(DIGITS):
        nome = mpmath.exp(-mpmath.pi * side)
        t2, t3 = (mpmath.jtheta(k, 0, nome) for k in (2, 3))
        return Lattice(1.0, 1j * side), float((t2 / t3) ** 4), float(mpmath.pi / 2 * t3**2)


def scipy_agreements(count: int) -> list[Agreement]:
    """The oracle's values beside SciPy's, on rectangles.

    On the real axis wp = e3 + (e1 - e3)/sn^2 (DLMF 23.6.21), the inverse of wp is Carlson's
    R_F(w - e1, w - e2, w - e3) (23.6.34), and the half-period is K(m)/sqrt(e1 - e3) (23.6.1).
    """
    special = import_optional("scipy.special", purpose="the second opinion of SciPy", extra=None)
    worst = {"wp": 0.0, "inverse_wp": 0.0, "half-period": 0.0}
    points = 0
    for side in _SIDES:
        lattice, m, root = _rectangle(side)
        e1, e2, e3 = (float(answer.value.real) for answer in oracle.roots(lattice))
        for k in range(1, 4 * count + 1):
            x = k / (4 * count + 1)
            sn = float(special.ellipj(root * x, m)[0])
            w = e3 + (root / sn) ** 2
            (wp, _) = FUNCTIONS["wp_and_prime"].reference(complex(x), lattice)
            worst["wp"] = max(worst["wp"], wp.error_of(w))
            (inverse,) = FUNCTIONS["inverse_wp"].reference(complex(w), lattice)
            integral = special.elliprf(complex(w - e1), complex(w - e2), complex(w - e3))
            worst["inverse_wp"] = max(worst["inverse_wp"], inverse.error_of(complex(integral)))
            points += 1
        half_period = float(special.ellipkm1(1.0 - m)) / root
        worst["half-period"] = max(worst["half-period"], abs(half_period - 1.0))
    routines = {"wp": "ellipj", "inverse_wp": "elliprf", "half-period": "ellipk"}
    allowed = load_contracts()["second_opinion"]["scipy"]["float64"]["largest"] * EPS
    found = [
        Agreement(
            name,
            f"SciPy's {routine}",
            points if name != "half-period" else len(_SIDES),
            worst[name],
            allowed,
        )
        for name, routine in routines.items()
    ]

    def opinion_of(name: str) -> Callable[..., tuple[Any, ...]]:
        return lambda *arguments: (getattr(special, name)(*(x.real for x in arguments)),)

    found += [
        compare_numbers(name, f"SciPy's {name}", opinion_of(name), ("real",), allowed)
        for name in _OF_SCIPY
    ]
    return [*found, _scipy_ellipj(special, count, allowed)]


def _scipy_ellipj(special: Any, count: int, allowed: float) -> Agreement:
    """sn, cn, dn and am of real u and m between 0 and 1."""
    worst, points = 0.0, 0
    for m in (0.0, 0.125, 0.5, 0.875, 1.0):
        for k in range(-2 * count, 2 * count + 1):
            u = complex(1.375 * k + 0.25)
            references = FUNCTIONS["ellipj"].reference(u, complex(m), _FIRST_OF_FAMILIES[0])
            for value, reference in zip(special.ellipj(u.real, m), references, strict=True):
                worst = max(worst, reference.error_of(complex(value)))
            points += 1
    return Agreement("ellipj", "SciPy's ellipj", points, worst, allowed)


# --- Truncation bounds ----------------------------------------------------------------------------


class _Truncation(NamedTuple):
    """A theorem of `wefpe_core.bounds`, and the truncated series that it bounds."""

    bound: Callable[..., bounds.TruncationBound]
    options: dict[str, Any]
    kept: Callable[[Any, Any, Any], tuple[Any, Any]]  # of z, omega1 and omega3, in mpmath


def _box_sum(m_max: int, n_max: int) -> Callable[[Any, Any, Any], tuple[Any, Any]]:
    def kept(z: Any, omega1: Any, omega3: Any) -> tuple[Any, Any]:
        wp, wp_prime = z**-2, -2 * z**-3
        for i in range(-m_max, m_max + 1):
            for j in range(-n_max, n_max + 1):
                if (i, j) != (0, 0):
                    w = 2 * i * omega1 + 2 * j * omega3
                    wp += (z - w) ** -2 - w**-2
                    wp_prime -= 2 * (z - w) ** -3
        return wp, wp_prime

    return kept


def _fourier_sum(terms: int) -> Callable[[Any, Any, Any], tuple[Any, Any]]:
    """The rows of the lattice beside 0, as power series of `terms` terms (DLMF 23.8.1)."""

    def kept(z: Any, omega1: Any, omega3: Any) -> tuple[Any, Any]:
        scale = mpmath.pi / (2 * omega1)
        q, v = mpmath.expjpi(2 * omega3 / omega1), scale * z
        a, b = q * mpmath.expj(2 * v), q * mpmath.expj(-2 * v)
        weights = [q**0 / (1 - q**k) for k in range(1, terms + 1)]
        wp = mpmath.csc(v) ** 2 - mpmath.mpf(1) / 3
        wp_prime = -2 * mpmath.cot(v) * mpmath.csc(v) ** 2
        for k, weight in enumerate(weights, 1):
            wp += weight * k * (8 * q**k - 4 * (a**k + b**k))
            wp_prime -= 8j * weight * k * k * (a**k - b**k)
        return scale**2 * wp, scale**3 * wp_prime

    return kept


def _laurent_sum(terms: int) -> Callable[[Any, Any, Any], tuple[Any, Any]]:
    def kept(z: Any, omega1: Any, omega3: Any) -> tuple[Any, Any]:
        g2, g3 = get_backend("mpmath", dps=_BOUND_DIGITS).invariants(Lattice(omega1, omega3))
        c = {2: g2 / 20, 3: g3 / 28}
        for k in range(4, terms + 2):
            c[k] = 3 * sum(c[m] * c[k - m] for m in range(2, k - 1)) / ((2 * k + 1) * (k - 3))
        wp, wp_prime = z**-2, -2 * z**-3
        for k in range(2, terms + 2):
            wp += c[k] * z ** (2 * k - 2)
            wp_prime += (2 * k - 2) * c[k] * z ** (2 * k - 3)
        return wp, wp_prime

    return kept


_BOX = {"m_max": 3, "n_max": 3}
TRUNCATIONS = {
    "lattice sum, paired": _Truncation(bounds.paired_sum_bound, _BOX, _box_sum(3, 3)),
    "lattice sum, unpaired": _Truncation(bounds.unpaired_sum_bound, _BOX, _box_sum(3, 3)),
    "lattice sum, signed": _Truncation(bounds.signed_sum_bound, _BOX, _box_sum(3, 3)),
    "q-series": _Truncation(bounds.q_series_bound, {"rows": 0, "terms": 3}, _fourier_sum(3)),
    "Laurent series": _Truncation(bounds.laurent_bound, {"terms": 6}, _laurent_sum(6)),
}
# Reduced lattices, and points of the cell in coordinates along the full periods.
_BOUND_DIGITS = 70  # errors of the q-series on the tallest of these lattices are 1e-33
_TAUS = (1j, complex(0.5, 0.875), 0.25 + 1.5j, 3j)
_PLACES = ((0.25, 0.125), (-0.375, 0.25), (0.125, -0.375), (0.0625, 0.0), (0.0, 0.4375))


def bound_agreements() -> list[Agreement]:
    """The largest quotient of a truncation error and its bound, which may not exceed 1."""
    exact = get_backend("mpmath", dps=_BOUND_DIGITS)
    found = []
    for theorem, (bound, options, kept) in TRUNCATIONS.items():
        worst, points = 0.0, 0
        for tau in _TAUS:
            for s, t in _PLACES:
                omega1, omega3 = 0.5 + 0j, tau / 2
                z = s + t * tau
                values = exact.wp_and_prime(z, Lattice(omega1, omega3))
                with mpmath.workdps(_BOUND_DIGITS):
                    truncated = kept(*(mpmath.mpc(x) for x in (z, omega1, omega3)))
                    errors = [abs(x - y) for x, y in zip(truncated, values, strict=True)]
                for error, limit in zip(errors, bound(z, omega1, omega3, **options), strict=True):
                    worst = max(worst, float(error) / limit)
                points += 1
        found.append(Agreement(theorem, BOUND, points, worst, allowed=1.0))
    return found


def agreements(count: int) -> tuple[list[Agreement], list[Skip]]:
    """The oracle against every other source that is installed, and why one is missing."""
    found = [
        compare(function, "theta functions", theta_functions, count)
        for function in ("wp_and_prime", "zeta", "sigma")
    ]
    skipped = []
    if "flint" in available_backends():
        found += [
            compare(function, "Arb balls", arb_balls, count)
            for function in ("wp_and_prime", "zeta", "sigma")
        ]
        found += arb_agreements()
    else:
        skipped.append(Skip.not_installed("flint"))
    try:
        found += scipy_agreements(count)
    except MissingDependencyError as error:
        skipped.append(Skip("scipy", str(error)))
    return found + bound_agreements(), skipped
