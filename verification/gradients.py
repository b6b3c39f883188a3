"""Derivatives in z, omega1 and omega3: by torch, and by differences of mpmath's values.

The scale of an error is |f_x| + |f/x| + |z_r f_z/x|, the effect of a relative change of x, of f or
of the reduced argument. The last term matters where f and f_x vanish together, as wp' does at
half-periods.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING, Any

import mpmath
import numpy.typing as npt

from verification import oracle
from verification.oracle import SumReference
from wefpe_core import Lattice, get_backend

if TYPE_CHECKING:
    from verification.subjects import Subject

PARAMETERS = ("z", "omega1", "omega3")
_FUNCTIONS = {1: ("wp", "wp_prime"), 2: ("wp",)}
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
    subject: Subject, z: npt.NDArray[Any], lattice: Lattice, order: int
) -> tuple[npt.NDArray[Any], ...]:
    """Derivatives by autograd of torch; each point has its own copy of the half-periods."""
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

    values = subject.backend.wp_and_prime(leaves[0], Lattice(*leaves[1:]))
    found = []
    for value in values[: len(_FUNCTIONS[order])]:
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
        offset = oracle.reduced_argument(z, lattice)
        answers: list[Any] = []
        for k in range(len(_FUNCTIONS[order])):

            def f(*steps: int, k: int = k) -> Any:
                return wp_and_prime(*steps)[k]

            first = [_difference(f, i, (0, 0, 0)) / (2 * step) for i in range(3)]
            value = f(0, 0, 0)
            if order == 1:
                moved = offset * first[0]
                answers += [SumReference(first[i], (value / x[i], moved / x[i])) for i in range(3)]
                continue
            for i, j in _places(2):

                def slope(*steps: int, i: int = i) -> Any:
                    return _difference(f, i, steps)

                second = _difference(slope, j, (0, 0, 0)) / (2 * step) ** 2
                others = (first[i] / x[j], first[j] / x[i], value / (x[i] * x[j]))
                answers.append(SumReference(second, others))
    return tuple(answers)


def _difference(f: Callable[..., Any], i: int, at: tuple[int, ...]) -> Any:
    """f one step forward along x[i], minus f one step back."""

    def moved(by: int) -> list[int]:
        return [k + by if n == i else k for n, k in enumerate(at)]

    return f(*moved(1)) - f(*moved(-1))
