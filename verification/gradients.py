"""Derivatives by torch or JAX, and by differences of mpmath's values.

Those of wp and wp' are in z, omega1 and omega3; those of Jacobi's functions, theta functions,
elliptic integrals and modular functions in all of their arguments (`OfNumbers`).

Of a function f = u + iv that is holomorphic in x, the derivative is u_x - i u_y, with x and y the
real and imaginary part of the parameter. For the real Green function u the same pair of slopes is
measured; in z it is -zeta~(z), where zeta~ is `modified_zeta`.

A first derivative is a function of z like any other, so the scale of its error is
|f_x| + |z_r f_xz| plus a floor, with the reduced argument z_r and the shortest period p. Near the
pole wp is nearly 1/z^2 whatever the lattice, so its derivative in a half-period is small there, of
the order of z^2, and that of wp' of the order of z. The floor is as small as they are: it is
|z_r|^(4-k) p^-4/|omega|, and p^-(k+1) for the derivative in z, with k = 2 for wp and 3 for wp'.
These matter on tall lattices, where a derivative may be exponentially small. The Green function is
a logarithm, measured against 1 at least, so the floor of its slope in z is 1/p, and in a
half-period the sum of |m|/|w| over the reduced half-periods w, of which it enters m times.

Second derivatives in plain torch operators do cancel there. Their scale is the sum of |f_xy|,
|f_x/y|, |f_y/x| and |f/xy|, the effect of a relative change of x, of y or of f.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING, Any, NamedTuple

import mpmath
import numpy as np
import numpy.typing as npt

from verification import oracle
from verification.oracle import SumReference
from wefpe_core import Lattice, get_backend

if TYPE_CHECKING:
    from verification.subjects import Subject

PARAMETERS = ("z", "omega1", "omega3")
_FUNCTIONS = {1: ("wp", "wp_prime"), 2: ("wp",)}
GREEN = tuple(f"green_{parameter}" for parameter in PARAMETERS)
# A central difference is wrong by (step/d)^2 at a distance d from the pole (1e-12 at least, so by
# 1e-24), and by 10^-DIGITS/step (twice divided in the second order, so 1e-46) for rounding.
DIGITS = 90
STEP = "1e-24"


def _places(order: int) -> list[tuple[int, ...]]:
    """The parameters of each derivative, as indices in ascending order."""
    return list(combinations_with_replacement(range(3), order))


def names(order: int) -> tuple[str, ...]:
    return tuple(
        f"{f}_" + "_".join(PARAMETERS[i] for i in place)
        for f in _FUNCTIONS[order]
        for place in _places(order)
    )


def evaluate(
    subject: Subject,
    z: npt.NDArray[Any],
    lattice: Lattice,
    order: int,
    method: str = "wp_and_prime",
) -> tuple[npt.NDArray[Any], ...]:
    """Derivatives by the backend's library; each point has its own copy of the half-periods."""
    evaluated = _by_jax if subject.backend.capabilities.gradients_by == "jax" else _by_torch
    if subject.is_ours:
        return evaluated(subject, z, lattice, order, method)
    from verification.subjects import MisbehavingBackendError

    try:
        return evaluated(subject, z, lattice, order, method)
    except Exception as error:
        raise MisbehavingBackendError(
            f"the backend {subject.label!r} says that it is differentiable in z and the lattice, "
            f"but differentiating {method} raised {type(error).__name__}: {error}"
        ) from error


def _count(method: str, order: int) -> int:
    """How many values of a method are differentiated."""
    return 1 if method == "green" else len(_FUNCTIONS[order])


def _by_jax(
    subject: Subject, z: npt.NDArray[Any], lattice: Lattice, order: int, method: str
) -> tuple[npt.NDArray[Any], ...]:
    given = subject.to_lattice(lattice, z.dtype)
    leaves = [subject.to_backend(z), *(w.repeat(len(z)) for w in (given.omega1, given.omega3))]
    found = []
    for k in range(_count(method, order)):
        found += _jax_derivatives(getattr(subject.backend, method), order, k)(*leaves)
    return tuple(np.asarray(subject.backend.to_numpy(value)) for value in found)


def _jax_derivatives(method: Callable[..., Any], order: int, k: int) -> Callable[..., Any]:
    """The derivatives of a value of a method as a function of z, omega1 and omega3."""
    import jax
    import jax.numpy as jnp

    def loss(*x: Any) -> Any:
        return _as_tuple(method(x[0], Lattice(*x[1:])))[k].real.sum()

    # JAX's gradient of a real L is L_x - i L_y: for L = Re f it is f'.
    first = jax.grad(loss, (0, 1, 2))
    if order == 1:
        return first

    def second(*x: Any) -> Any:
        def along(j: int) -> Any:
            """How the first derivatives change with x[j]."""
            changes = tuple(jnp.full_like(value, float(i == j)) for i, value in enumerate(x))
            return jax.jvp(first, x, changes)[1]

        columns = [along(j) for j in range(3)]
        return [columns[j][i] for i, j in _places(2)]

    return second


def _as_tuple(values: Any) -> tuple[Any, ...]:
    return values if isinstance(values, tuple) else (values,)


def _by_torch(
    subject: Subject, z: npt.NDArray[Any], lattice: Lattice, order: int, method: str
) -> tuple[npt.NDArray[Any], ...]:
    import torch

    given = subject.to_lattice(lattice, z.dtype)
    leaves = [
        subject.to_backend(z).requires_grad_(),
        *(omega.repeat(len(z)).requires_grad_() for omega in (given.omega1, given.omega3)),
    ]

    def derivatives(value: Any, again: bool = False) -> Sequence[Any]:
        # torch's gradient of a real L is L_x + i L_y: for L = Re f it is the conjugate of f'.
        # What is to be differentiated again is computed in another way, so nothing else is.
        loss = value.real.sum()
        gradients = torch.autograd.grad(loss, leaves, create_graph=again, retain_graph=True)
        return [gradient.conj() for gradient in gradients]

    values = _as_tuple(getattr(subject.backend, method)(leaves[0], Lattice(*leaves[1:])))
    found = []
    for value in values[: _count(method, order)]:
        slopes = derivatives(value, again=order > 1)
        if order == 1:
            found += list(slopes)
        else:
            found += [derivatives(slopes[i])[j] for i, j in _places(2)]
    return tuple(value.detach().resolve_conj().cpu().numpy() for value in found)


def reference(z: complex, lattice: Lattice, order: int) -> tuple[Any, ...]:
    backend = get_backend("mpmath", dps=DIGITS)

    @cache
    def wp_and_prime(*steps: int) -> tuple[Any, Any]:
        """Values at the point moved by these numbers of steps along z, omega1 and omega3."""
        moved = [start + k * step for start, k in zip(x, steps, strict=True)]
        p, dp = backend.wp_and_prime(moved[0], Lattice(*moved[1:]))
        return p, dp

    with mpmath.workdps(DIGITS):
        step = mpmath.mpf(STEP)
        x = [mpmath.mpc(value) for value in (z, lattice.omega1, lattice.omega3)]
        offset, period = oracle.reduced_argument(z, lattice), oracle.shortest_period(lattice)
        answers: list[Any] = []
        for k in range(len(_FUNCTIONS[order])):

            def f(*steps: int, k: int = k) -> Any:
                return wp_and_prime(*steps)[k]

            first = [_difference(f, i, (0, 0, 0)) / (2 * step) for i in range(3)]
            value = f(0, 0, 0)

            def second_derivative(i: int, j: int, f: Callable[..., Any] = f) -> Any:
                def slope(*steps: int) -> Any:
                    return _difference(f, i, steps)

                return _difference(slope, j, (0, 0, 0)) / (2 * step) ** 2

            if order == 1:
                floors = [period ** -(k + 3)]
                floors += [abs(offset) ** (2 - k) * period**-4 / abs(omega) for omega in x[1:]]
                moved = [offset * second_derivative(i, 0) for i in range(3)]
                answers += map(SumReference, first, zip(moved, floors, strict=True))
                continue
            for i, j in _places(2):
                second = second_derivative(i, j)
                others = (first[i] / x[j], first[j] / x[i], value / (x[i] * x[j]))
                answers.append(SumReference(second, others))
    return tuple(answers)


def green_reference(z: complex, lattice: Lattice) -> tuple[SumReference, ...]:
    """The slopes of the Green function in z, omega1 and omega3."""
    backend = get_backend("mpmath", dps=DIGITS)
    with mpmath.workdps(DIGITS):
        step = mpmath.mpf(STEP)
        x, *omegas = (mpmath.mpc(value) for value in (z, lattice.omega1, lattice.omega3))
        offset, period = oracle.reduced_argument(z, lattice), oracle.shortest_period(lattice)

        def change(method: Callable[..., Any], k: int, direction: complex) -> Any:
            """How a method changes with omegas[k]."""
            moved = [list(omegas), list(omegas)]
            moved[0][k] += direction * step
            moved[1][k] -= direction * step
            forward, back = (method(x, Lattice(*both)) for both in moved)
            return (forward - back) / (2 * step)

        in_z = -backend.modified_zeta(x, lattice)
        answers = [SumReference(in_z, (offset * backend.wp(x, lattice), 1 / period))]
        reduced, matrix = lattice.reduced()
        halves = [abs(complex(half)) for half in (reduced.omega1, reduced.omega3)]
        for k in range(2):
            floor = sum(abs(row[k]) / half for row, half in zip(matrix, halves, strict=True))
            slope = change(backend.green, k, 1) - 1j * change(backend.green, k, 1j)
            moved = [offset * change(backend.modified_zeta, k, way) for way in (1, 1j)]
            answers.append(SumReference(slope, (*moved, floor)))
    return tuple(answers)


def _difference(f: Callable[..., Any], i: int, at: tuple[int, ...]) -> Any:
    """f one step forward along x[i], minus f one step back."""

    def moved(by: int) -> list[int]:
        return [k + by if n == i else k for n, k in enumerate(at)]

    return f(*moved(1)) - f(*moved(-1))


# --- Functions of numbers alone -------------------------------------------------------------------


class OfNumbers(NamedTuple):
    """Values that are differentiated in their arguments, all of which are numbers."""

    values: tuple[str, ...]
    parameters: tuple[str, ...]
    # Takes a backend, the arguments and, for theta functions, n; returns the values.
    call: Callable[..., tuple[Any, ...]]
    # The floor of the scale of one derivative, from f, its derivatives and the arguments.
    floor: Callable[[int, Any, Sequence[Any], Sequence[Any]], Any] = lambda i, f, slopes, x: 0

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{value} by {x}" for value in self.values for x in self.parameters)

    def evaluate(
        self, subject: Subject, arguments: npt.NDArray[Any], lattice: Lattice
    ) -> tuple[npt.NDArray[Any], ...]:
        """Derivatives by the backend's library."""
        count = len(self.parameters)
        leaves = [subject.to_backend(column.copy()) for column in arguments.T[:count]]
        # Theta functions have an index for each point.
        groups: list[Any] = [np.arange(len(arguments))]
        options: list[tuple[int, ...]] = [()]
        if arguments.shape[1] > count:
            groups = [np.flatnonzero(arguments[:, count].real == n) for n in (1, 2, 3, 4)]
            options = [(n,) for n in (1, 2, 3, 4)]

        def loss(k: int, *leaves: Any) -> Any:
            total: Any = 0.0
            for group, option in zip(groups, options, strict=True):
                if len(group):
                    chosen = (leaf[group] for leaf in leaves)
                    total = total + self.call(subject.backend, *chosen, *option)[k].real.sum()
            return total

        found = []
        for k in range(len(self.values)):
            found += _gradients_of(subject, partial(loss, k), leaves)
        return tuple(found)

    def reference(self, *arguments: Any) -> tuple[SumReference, ...]:
        """Each derivative, relative to itself and to what a relative change of each argument does.

        That is |f_x| + the sum of |y f_xy| over the arguments y, and a floor for some functions.
        """
        *numbers, _ = arguments  # the last is the lattice
        count = len(self.parameters)
        options = [int(n.real) for n in numbers[count:]]
        backend = get_backend("mpmath", dps=DIGITS)
        with mpmath.workdps(DIGITS):
            x = [mpmath.mpc(number) for number in numbers[:count]]
            steps = [abs(number) * mpmath.mpf(STEP) for number in x]

            @cache
            def f(*moves: int) -> tuple[Any, ...]:
                moved = [a + k * h for a, k, h in zip(x, moves, steps, strict=True)]
                return self.call(backend, *moved, *options)

            def at(k: int, moves: dict[int, int]) -> Any:
                return f(*(moves.get(i, 0) for i in range(count)))[k]

            def mixed(k: int, i: int, j: int) -> Any:
                if i == j:
                    difference = at(k, {i: 1}) - 2 * at(k, {}) + at(k, {i: -1})
                else:
                    both = at(k, {i: 1, j: 1}) + at(k, {})
                    difference = both - at(k, {i: 1}) - at(k, {j: 1})
                return difference / (steps[i] * steps[j])

            found = []
            for k in range(len(self.values)):
                differences = [at(k, {i: 1}) - at(k, {i: -1}) for i in range(count)]
                slopes = [d / (2 * h) for d, h in zip(differences, steps, strict=True)]
                for i, slope in enumerate(slopes):
                    parts = [x[j] * mixed(k, i, j) for j in range(count)]
                    floor = self.floor(i, at(k, {}), slopes, x)
                    found.append(SumReference(slope, (*parts, floor)))
            return tuple(found)


def _floor_of_jacobi(i: int, f: Any, slopes: Sequence[Any], x: Sequence[Any]) -> Any:
    """The quotient of theta functions is differentiated in plain operators.

    So an error of f counts, in units of the length 1/sqrt(1 + |m|) and of the parameter 1 + |m|.
    """
    unit = 1 + abs(x[1])
    return abs(f) * mpmath.sqrt(unit) if i == 0 else (abs(f) + abs(x[0] * slopes[0])) / unit


def _floor_of_modular(i: int, f: Any, slopes: Sequence[Any], x: Sequence[Any]) -> Any:
    """An error of f counts, in units of the distance of tau from the real axis."""
    return abs(f) / x[0].imag


def _gradients_of(
    subject: Subject, loss: Callable[..., Any], leaves: Sequence[Any]
) -> list[npt.NDArray[Any]]:
    """The complex derivatives of f where `loss` is the sum of Re f."""
    if subject.backend.capabilities.gradients_by == "jax":
        import jax

        found = jax.grad(loss, tuple(range(len(leaves))))(*leaves)
        return [np.asarray(subject.backend.to_numpy(value)) for value in found]
    import torch

    leaves = [leaf.detach().requires_grad_() for leaf in leaves]
    gradients = torch.autograd.grad(loss(*leaves), leaves)
    return [value.conj().resolve_conj().cpu().numpy() for value in gradients]


OF_NUMBERS = {
    "ellipj": OfNumbers(
        ("sn", "cn", "dn", "am"),
        ("u", "m"),
        lambda backend, u, m: tuple(backend.ellipj(u, m)),
        _floor_of_jacobi,
    ),
    "jtheta": OfNumbers(
        ("theta",), ("z", "tau"), lambda backend, z, tau, n: (backend.jtheta(n, z, tau),)
    ),
    "integrals": OfNumbers(
        ("ellipk", "ellipe"), ("m",), lambda backend, m: (backend.ellipk(m), backend.ellipe(m))
    ),
    "modular": OfNumbers(
        ("dedekind_eta", "modular_lambda", "E4"),
        ("tau",),
        lambda backend, tau: (
            *(backend.dedekind_eta(tau), backend.modular_lambda(tau)),
            backend.eisenstein(4, tau),
        ),
        _floor_of_modular,
    ),
    "klein_j": OfNumbers(
        ("klein_j",), ("tau",), lambda backend, tau: (backend.klein_j(tau),), _floor_of_modular
    ),
}
