"""References for theta functions and Jacobi's functions: values of the mpmath backend and scales.

Errors of Jacobi's functions are divided by |f| + |u f_u|, what a relative change of u causes; a
change of m by eps is not excused. Those of theta functions are divided by |f| + |z f_z| +
|tau f_tau|, where f_tau is pi/4 times f_zz in modulus (the heat equation, DLMF 20.13): functions
with factors exponential in z^2 and in tau. The logarithm has the quotients of these by f, and 1.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import mpmath
import numpy as np
import numpy.typing as npt

from verification import cases
from verification.oracle import DIGITS, Answer, Reference, SumReference
from wefpe_core import Lattice, get_backend
from wefpe_core.jacobi_functions import JACOBI_KINDS, MAX_DERIVATIVE

if TYPE_CHECKING:
    from verification.subjects import Subject

Array = npt.NDArray[Any]

OTHERS = tuple(kind for kind in JACOBI_KINDS if kind not in ("sn", "cn", "dn"))
ORDERS = tuple(range(1, MAX_DERIVATIVE + 1))


# --- Arguments ------------------------------------------------------------------------------------


def u_and_m(region: str, lattice: Lattice, dtype: str, count: int) -> Array:
    """Points of the lattice in units in which it has the half-periods K and iK', and its m."""
    scale, m = _scale_and_m(lattice, dtype)
    z = _points(region, lattice, dtype, count).astype(complex)
    return np.stack([(scale * z).astype(dtype), np.full(count, m, dtype)], axis=1)


def u_and_m_to_differentiate(region: str, lattice: Lattice, dtype: str, count: int) -> Array:
    """The same, but next to 0 where m is 0 or 1: far out the derivative in m grows like e^(2u)."""
    arguments = u_and_m(region, lattice, dtype, count)
    u, m = arguments.T
    is_limit = (m == 0) | (m == 1)
    return np.stack([np.where(is_limit, u / np.maximum(np.abs(u), 1), u), m], axis=1)


def z_tau_and_n(region: str, lattice: Lattice, dtype: str, count: int) -> Array:
    """Points of the lattice in units in which it has the periods pi and pi tau, tau, and n."""
    z = _points(region, lattice, dtype, count) * (np.pi / 2 / complex(lattice.omega1))
    tau = np.array(complex(lattice.tau)).astype(dtype)
    n = 1 + (_place(lattice) + np.arange(count)) % 4
    return np.stack([z, np.full(count, tau), n], axis=1).astype(dtype)


def _place(lattice: Lattice) -> int:
    """The number of a lattice of the families; others have none."""
    return cases.lattices_of(cases.ALL).index(lattice)


def _points(region: str, lattice: Lattice, dtype: str, count: int) -> Array:
    """Few points for each lattice, so they begin elsewhere in the region for each of them."""
    start = _place(lattice)
    return cases.points(region, lattice, dtype, start + count)[start:]


@cache
def _scale_and_m(lattice: Lattice, dtype: str) -> tuple[complex, complex]:
    tau = complex(lattice.tau)
    with mpmath.workdps(DIGITS):
        t2, t3 = (get_backend("mpmath", dps=DIGITS).jtheta(n, 0, tau) for n in (2, 3))
        m = complex(np.array(complex((t2 / t3) ** 4)).astype(dtype))
        periods = (mpmath.ellipk(m), mpmath.ellipk(1 - m))
    # The lattice of the rounded m may be degenerate; one of its half-periods is finite.
    halves = zip((1, 1j), periods, (lattice.omega1, lattice.omega3), strict=True)
    return min((complex(f * k) / complex(w) for f, k, w in halves), key=abs), m


# --- Evaluation -----------------------------------------------------------------------------------


def _call(subject: Subject, method: str, *arguments: Any) -> tuple[Array, ...]:
    with subject.within():
        values = getattr(subject.backend, method)(*arguments)
    values = values if isinstance(values, tuple) else (values,)
    return tuple(
        value.detach().cpu().numpy() if hasattr(value, "detach") else np.asarray(value)
        for value in values
    )


def _of_number(subject: Subject, u: Array, method: str, *before: Any, m: Any) -> tuple[Array, ...]:
    """Values at an array u, or at each of its numbers, with a number m."""
    if subject.one_by_one:
        calls = [_call(subject, method, *before, point, m) for point in u.tolist()]
        return tuple(np.array(column) for column in zip(*calls, strict=True))
    return _call(subject, method, *before, subject.to_backend(u), m)


def evaluate_ellipj(subject: Subject, arguments: Array, lattice: Lattice) -> tuple[Array, ...]:
    return _of_number(subject, arguments[:, 0].copy(), "ellipj", m=complex(arguments[0, 1]))


def evaluate_ellipj_of_arrays(
    subject: Subject, arguments: Array, lattice: Lattice
) -> tuple[Array, ...]:
    u, m = (subject.to_backend(column.copy()) for column in arguments.T)
    return _call(subject, "ellipj", u, m)


def evaluate_others(subject: Subject, arguments: Array, lattice: Lattice) -> tuple[Array, ...]:
    u, m = arguments[:, 0].copy(), complex(arguments[0, 1])
    return tuple(_of_number(subject, u, "jacobi", kind, m=m)[0] for kind in OTHERS)


def _by_index(subject: Subject, arguments: Array, method: str, *options: int) -> Array:
    """theta_n at each point, where n is a column of the arguments and tau a number."""
    results = np.empty(len(arguments), arguments.dtype)
    for n in (1, 2, 3, 4):
        chosen = arguments[:, 2].real == n
        z, tau = arguments[chosen, 0].copy(), complex(arguments[0, 1])
        if not len(z):
            continue
        if subject.one_by_one:
            values = [_call(subject, method, n, point, tau, *options)[0] for point in z.tolist()]
            results[chosen] = values
        else:
            results[chosen] = _call(subject, method, n, subject.to_backend(z), tau, *options)[0]
    return results


def evaluate_theta(subject: Subject, arguments: Array, lattice: Lattice) -> tuple[Array, ...]:
    return _by_index(subject, arguments, "jtheta"), _by_index(subject, arguments, "log_jtheta")


def evaluate_theta_of_arrays(
    subject: Subject, arguments: Array, lattice: Lattice
) -> tuple[Array, ...]:
    z, tau = (subject.to_backend(column.copy()) for column in arguments.T[:2])
    values = np.stack([_call(subject, "jtheta", n, z, tau)[0] for n in (1, 2, 3, 4)])
    return (values[arguments[:, 2].real.astype(int) - 1, np.arange(len(arguments))],)


def evaluate_derivatives(subject: Subject, arguments: Array, lattice: Lattice) -> tuple[Array, ...]:
    return tuple(_by_index(subject, arguments, "jtheta", order) for order in ORDERS)


def evaluate_sigmas(subject: Subject, arguments: Array, lattice: Lattice) -> tuple[Array, ...]:
    given = subject.to_lattice(lattice, arguments.dtype)
    z = arguments[:, 0].copy()
    return tuple(_of_number(subject, z, "sigma_k", k, m=given)[0] for k in (1, 2, 3))


# --- References -----------------------------------------------------------------------------------


class TurnReference(NamedTuple):
    """A value with a branch: half a turn away from the middle two values are right.

    A turn is 2 pi times `unit`, and `middle` is what the part along the unit has to be near to.
    """

    value: Any
    contributions: tuple[Any, ...]
    unit: complex
    middle: float

    def error_of(self, got: complex) -> float:
        plain = SumReference(self.value, self.contributions)
        away = (got / self.unit).real - self.middle
        if not abs(abs(away) - np.pi) < 1e-3:
            return plain.error_of(got)
        with mpmath.workdps(DIGITS):
            turns = mpmath.nint(((got - self.value) / self.unit).real / (2 * mpmath.pi))
            return plain._replace(value=self.value + 2 * mpmath.pi * turns * self.unit).error_of(
                got
            )


@cache  # arrays of m are measured at the same points as numbers
def ellipj(u: complex, m: complex, lattice: Lattice) -> tuple[Answer, ...]:
    sn, cn, dn, am = get_backend("mpmath", dps=DIGITS).ellipj(u, m)
    with mpmath.workdps(DIGITS):
        slopes = (cn * dn, -sn * dn, -m * sn * cn)
        middle = 0.0
        if not (m.imag == 0 and m.real >= 1):
            middle = float(mpmath.re(mpmath.pi * u / (2 * mpmath.ellipk(m))))
        return (
            *(
                SumReference(value, (u * slope,))
                for value, slope in zip((sn, cn, dn), slopes, strict=True)
            ),
            TurnReference(am, (u * dn,), 1.0, middle),
        )


def others(u: complex, m: complex, lattice: Lattice) -> tuple[SumReference, ...]:
    """The quotients of sn, cn and dn, which have digits to spare next to a zero or a pole."""
    digits = DIGITS + 20
    sn, cn, dn, _ = get_backend("mpmath", dps=digits).ellipj(u, m)
    with mpmath.workdps(digits):
        values = {"s": sn, "c": cn, "d": dn, "n": mpmath.mpc(1)}
        slopes = {"s": cn * dn, "c": -sn * dn, "d": -m * sn * cn, "n": mpmath.mpc(0)}
        found = []
        for kind in OTHERS:
            p, q = tuple(kind)
            slope = (slopes[p] * values[q] - values[p] * slopes[q]) / values[q] ** 2
            found.append(SumReference(values[p] / values[q], (u * slope,)))
        return tuple(found)


@cache
def _theta(z: complex, tau: complex, n: int, order: int) -> Any:
    """A derivative of theta of any order; beyond those that backends offer, for scales only.

    Such a one is a difference of the last that they offer, in steps that are small beside the
    strip in which theta changes, and has some ten digits.
    """
    backend = get_backend("mpmath", dps=DIGITS)
    if order <= MAX_DERIVATIVE:
        return backend.jtheta(n, z, tau, order)
    with mpmath.workdps(DIGITS):
        step = mpmath.mpf("1e-8") * min(tau.imag, 1.0)
        above, below = (
            backend.jtheta(n, mpmath.mpc(z) + sign * step, tau, MAX_DERIVATIVE) for sign in (1, -1)
        )
        if order == MAX_DERIVATIVE + 1:
            return (above - below) / (2 * step)
        return (above - 2 * _theta(z, tau, n, MAX_DERIVATIVE) + below) / step**2


def _theta_reference(z: complex, tau: complex, n: complex, order: int) -> SumReference:
    value, slope, bend = (_theta(z, tau, int(n.real), order + k) for k in range(3))
    with mpmath.workdps(DIGITS):
        return SumReference(value, (z * slope, mpmath.pi / 4 * tau * bend))


def theta(z: complex, tau: complex, n: complex, lattice: Lattice) -> tuple[Answer, ...]:
    plain = _theta_reference(z, tau, n, 0)
    log = get_backend("mpmath", dps=DIGITS).log_jtheta(int(n.real), z, tau)
    with mpmath.workdps(DIGITS):
        shares = tuple(part / plain.value for part in plain.contributions) if plain.value else ()
        return plain, TurnReference(log, (*shares, 1), 1j, 0.0)


def theta_alone(z: complex, tau: complex, n: complex, lattice: Lattice) -> tuple[Answer, ...]:
    return (_theta_reference(z, tau, n, 0),)


def theta_derivatives(
    z: complex, tau: complex, n: complex, lattice: Lattice
) -> tuple[SumReference, ...]:
    return tuple(_theta_reference(z, tau, n, order) for order in ORDERS)


def sigmas(z: complex, lattice: Lattice) -> tuple[Reference, ...]:
    """Like sigma, they have a factor exponential in z^2, so |z| itself enters the scale."""
    backend = get_backend("mpmath", dps=DIGITS)
    eta1, eta3 = backend.quasi_periods(lattice)
    w1, w3 = (
        mpmath.mpc(*(mpmath.mpf(x.numerator) / x.denominator for x in half))
        for half in lattice.exact
    )
    with mpmath.workdps(DIGITS):
        halves = ((w1, eta1), (w1 + w3, eta1 + eta3), (w3, eta3))
        return tuple(
            Reference(
                value := backend.sigma_k(k, z, lattice),
                value * (backend.zeta(mpmath.mpc(z) + half, lattice) - eta),
                mpmath.mpc(z),
                0,
            )
            for k, (half, eta) in enumerate(halves, 1)
        )
