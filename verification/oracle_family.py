"""References for elliptic integrals and modular functions, and the arguments they are asked at.

The scale of an error is |f| + sum of |x f_x| over the arguments x: what a relative change of each
of them causes. Modular forms of weight k that vanish together with their derivative get the floor
|c tau + d|^-k, the size that the form has there but for its zero; tau is reduced by (c, d).
Derivatives are differences of the reference in steps of 1e-10 x: a scale needs few digits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import mpmath
import numpy as np
import numpy.typing as npt

from backends.exact_modular import reduction_steps
from backends.exact_reduction import exact_number
from verification import cases
from verification.oracle import DIGITS, SumReference
from wefpe_core import Lattice, PrecisionError, available_backends, get_backend

Array = npt.NDArray[Any]
_STEP = mpmath.mpf("1e-10")

# The weights whose series are measured; 14 has a double zero at exp(i pi/3).
WEIGHTS = (2, 4, 14)

MODULAR_REGIONS = ("tau of lattices", "next to i and rho", "next to a cusp")
INTEGRAL_REGIONS = ("real", "complex")


def reference(function: Callable[..., Any], *arguments: complex, floor: Any = 0) -> SumReference:
    """The value of a function of mpmath numbers, with what each argument contributes."""
    with mpmath.workdps(DIGITS):
        numbers = [mpmath.mpc(x) if x.imag else mpmath.mpf(x.real) for x in arguments]
        value = function(*numbers)
        parts = [abs(floor)]
        for k, x in enumerate(numbers):
            if not x:
                continue
            moved = function(*numbers[:k], x * (1 + _STEP), *numbers[k + 1 :])
            parts.append(abs(moved - value) / _STEP)
        return SumReference(value, tuple(parts))


def by_backend(name: str) -> Callable[..., tuple[SumReference, ...]]:
    """References of a function that takes no lattice."""

    def references(*arguments: Any) -> tuple[SumReference, ...]:
        *numbers, _ = arguments  # the last is the lattice
        return (reference(_evaluator(name), *numbers),)

    return references


# mpmath integrates these numerically where they are complex, which takes some tenths of a second
# or more. Where python-flint is installed, Arb answers instead.
_BY_ARB = ("ellippi", "ellippiinc", "elliprj")


def _evaluator(name: str) -> Callable[..., Any]:
    by_mpmath = cast(Callable[..., Any], getattr(get_backend("mpmath", dps=DIGITS), name))
    if name not in _BY_ARB or "flint" not in available_backends():
        return by_mpmath
    by_arb = getattr(get_backend("flint", digits=DIGITS), name)

    def evaluate(*numbers: Any) -> Any:
        try:
            ball = by_arb(*numbers)
        except PrecisionError:  # on a branch point a ball has both sides in it
            return by_mpmath(*numbers)
        return midpoints([ball])[0] if ball.is_finite() else mpmath.inf

    return evaluate


def midpoints(balls: Sequence[Any]) -> tuple[Any, ...]:
    """The middles of balls of Arb, as numbers of mpmath."""
    with mpmath.workdps(DIGITS):
        return tuple(mpmath.mpc(*map(_midpoint, (ball.real, ball.imag))) for ball in balls)


def _midpoint(ball: Any) -> Any:
    # Not through a fraction: far below 1 its denominator would have a million digits.
    mantissa, exponent = ball.mid().man_exp()
    return mpmath.ldexp(mpmath.mpf(int(mantissa)), int(exponent))


def eisenstein(tau: complex, lattice: Lattice) -> tuple[SumReference, ...]:
    """References of E_k for the `WEIGHTS`."""
    backend = get_backend("mpmath", dps=DIGITS)
    exact = exact_number(tau)
    assert exact is not None, "references are asked for at finite points only"
    growth = float(reduction_steps(exact)[-1].tau.im / exact.im)  # |c tau + d|^-2
    return tuple(
        reference(lambda t, k=k: backend.eisenstein(k, t), tau, floor=growth ** (k / 2))
        for k in WEIGHTS
    )


class InverseJReference(NamedTuple):
    """Measures how near j(got) is to the argument, over |j| + |tau j'|."""

    argument: complex
    value: int = 1  # any ordinary size, because no solution overflows

    def error_of(self, got: complex) -> float:
        if not got.imag > 0.5:
            return float("inf")
        found = reference(get_backend("mpmath", dps=DIGITS).klein_j, got)
        with mpmath.workdps(DIGITS):
            scale = abs(found.value) + sum(found.contributions) + abs(mpmath.mpc(self.argument))
            gap = abs(found.value - mpmath.mpc(self.argument))
            return float(gap / scale) if gap else 0.0


def inverse_klein_j(j: complex, lattice: Lattice) -> tuple[InverseJReference, ...]:
    return (InverseJReference(j),)


def _generator(region: str, lattice: Lattice) -> np.random.Generator:
    """A stream of its own for each lattice, the same in every run."""
    numbers = [family.index(lattice) for family in cases.FAMILIES.values() if lattice in family]
    places = [k for k, family in enumerate(cases.FAMILIES.values()) if lattice in family]
    return np.random.default_rng([cases.SEED, len(region), *numbers, *places])


def taus(region: str, lattice: Lattice, dtype: str, count: int) -> Array:
    rng = _generator(region, lattice)
    phase = np.exp(2j * np.pi * rng.random(count))
    if region == "tau of lattices":
        tau = complex(lattice.omega3) / complex(lattice.omega1)
        values = tau + 0.4 * tau.imag * rng.random(count) * phase
    elif region == "next to i and rho":
        centres = np.array([1j, np.exp(1j * np.pi / 3)])[rng.integers(0, 2, count)]
        values = centres + 10.0 ** rng.uniform(-16, -1, count) * phase
    else:
        numerators, denominators = rng.integers(-5, 6, count), rng.integers(1, 7, count)
        values = numerators / denominators + 1j * 10.0 ** rng.uniform(-2.5, -0.5, count)
    return np.asarray(values.astype(dtype)[:, None])


def values_of_j(region: str, lattice: Lattice, dtype: str, count: int) -> Array:
    """Values of every size; next to 0 and 1728; and real ones."""
    rng = _generator(region, lattice)
    size = 10.0 ** rng.uniform(-12, 12, count) * np.exp(2j * np.pi * rng.random(count))
    if region == "next to i and rho":
        near = 10.0 ** rng.uniform(-12, 2, count) * np.exp(2j * np.pi * rng.random(count))
        size = np.where(rng.random(count) < 0.5, 1728 + near, near)
    elif region == "next to a cusp":
        size = rng.uniform(-4000, 4000, count) + 0j
    return np.asarray(size.astype(dtype)[:, None])


def _parameters(region: str, lattice: Lattice, rng: np.random.Generator, count: int) -> Array:
    """Parameters m: real ones below 1, or complex ones to the left of 1 and next to lambda."""
    if region == "real":
        return 1.0 - 10.0 ** rng.uniform(-12, 4, count) + 0j
    around = 1.0 - 10.0 ** rng.uniform(-6, 3, count) * np.exp(
        0.98j * np.pi * (rng.random(count) - 0.5)
    )
    if region == "complex" and rng.random() < 0.5:
        return around
    tau = complex(lattice.omega3) / complex(lattice.omega1)
    shaken = tau + 0.4 * tau.imag * rng.random(count)
    found = np.asarray(get_backend("numpy").modular_lambda(shaken))
    return np.where(found.real < 1, found, around)


def _angles(rng: np.random.Generator, count: int, complex_ones: bool) -> Array:
    angles = rng.uniform(-7, 7, count) + 0j
    return angles + 1j * rng.uniform(-3, 3, count) if complex_ones else angles


def arguments_of(kinds: str) -> Callable[[str, Lattice, str, int], Array]:
    """Columns for a function: m or n a parameter, f an angle, r a real one, x one of Carlson's."""

    def arguments(region: str, lattice: Lattice, dtype: str, count: int) -> Array:
        rng = _generator(region + kinds, lattice)
        columns: list[Array] = []
        for kind in kinds:
            if kind in "mn":
                columns.append(_parameters(region, lattice, rng, count))
            elif kind in "fr":
                columns.append(_angles(rng, count, kind == "f" and region == "complex"))
            else:
                size = 10.0 ** rng.uniform(-6, 6, count)
                turn = rng.uniform(-np.pi, np.pi, count) if region == "complex" else 0.0
                columns.append(size * np.exp(1j * turn))
        if kinds.startswith("n"):
            # Where n or m is 1, or both are next to 1, the reference takes minutes for one
            # value. The tests compare such values with Arb.
            n, m = columns[0], columns[kinds.index("m")]
            is_one = (n.astype(dtype) == 1) | (m.astype(dtype) == 1)
            takes_long = is_one | ((abs(1 - n) < 1e-3) & (abs(1 - m) < 1e-3))
            columns[0] = np.where(takes_long, 0.5 * n, n)
            columns[kinds.index("m")] = np.where(takes_long, 0.5 * m, m)
        return np.stack(columns, axis=1).astype(dtype)

    return arguments
