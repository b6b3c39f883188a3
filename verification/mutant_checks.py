"""The verifier on few points, quick enough to be asked about two thousand mutants.

A check is given backends and yields a line for everything that is wrong with them; the caller
stops at the first. Ceilings are those of contracts.toml or of a documented promise; what has
none is exact. References are cached by the first run, which is one of the sound backends.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import numpy as np

from verification import cases, laws, oracle
from verification.functions import FUNCTIONS, FUNCTIONS_OF_Z, PARITY
from verification.judge import judge
from verification.measure import measure
from verification.mutant_checks_algebra import addition, carlson, inverse, lattice_sums
from verification.mutant_checks_derivatives import derivatives
from verification.mutant_checks_exact import (
    exact_box,
    exact_numbers,
    reduction_is_exact,
    reference_backends,
)
from verification.mutant_suspects import (
    CONTRACTS,
    COUNT,
    DTYPES,
    DYADIC,
    NEAR_POLE_PROMISE,
    OBLIQUE,
    OF_POINTS,
    Array,
    Backends,
    Check,
    is_pole,
    reduced_periods,
)
from verification.subjects import Subject
from wefpe_core import Lattice, LatticeError
from wefpe_core.accuracy import in_eps


def accuracy(b: Backends) -> Iterator[str]:
    """The rows of the report that are about functions of z; `inverse` looks at the inverse."""
    for region in cases.REGIONS:
        for family in cases.FAMILIES:
            for function in FUNCTIONS_OF_Z:
                if region not in FUNCTIONS[function].regions:
                    continue
                for dtype in DTYPES:
                    rows = measure(
                        b.subject,
                        dtype=dtype,
                        function=function,
                        family=family,
                        region=region,
                        count=COUNT,
                    )
                    for row in judge(rows, CONTRACTS):
                        if not row.passes:
                            yield f"{dtype} {row.function}, {region}, {family}"


def laws_hold(b: Backends) -> Iterator[str]:
    z, other = laws.dyadic_points(20, seed=cases.SEED)
    for law in laws.LAWS:
        for lattice in laws.DYADIC_LATTICES:
            residual = laws.residual_in_eps(law, b.subject, z, other, lattice)
            if not residual <= CONTRACTS["laws"]["residual"]["complex128"]["largest"]:
                yield law


def special_values(b: Backends) -> Iterator[str]:
    """Lattice points, half-periods, NaN, infinities, overflow: one documented value each."""
    for subject, lattices in zip(b.subjects, (DYADIC, (OBLIQUE,)), strict=True):
        for dtype in DTYPES:
            for lattice in lattices:
                yield from _values_at_poles(subject, dtype, lattice)
                yield from _values_far_away(subject, dtype, lattice)
            tiny = np.array([{"complex128": 1e-160, "complex64": 1e-20}[dtype]], dtype)
            if not np.all(is_pole(subject.evaluate("wp_and_prime", tiny, lattice=OBLIQUE))):
                yield f"{subject.label} {dtype} overflow next to the pole"
        for huge in (Lattice(1e39, 1e39j), Lattice(1.0, 1e39j)):
            try:
                subject.evaluate("wp", np.ones(1, np.complex64), lattice=huge)
            except LatticeError:
                continue
            yield f"{subject.label} a period beyond single precision is refused"


def _values_at_poles(subject: Subject, dtype: str, lattice: Lattice) -> Iterator[str]:
    inf, nan = math.inf, math.nan
    w1, w3 = complex(lattice.omega1), complex(lattice.omega3)
    poles = [0, 2 * w1, 2 * w3, -2 * w1 + 2 * w3, 6 * w1 - 4 * w3, 2000 * w1 - 154 * w3]
    numbers = np.array([0.5 + 0.25j, *poles, nan, complex(1, nan), inf, -1j * inf], dtype)
    for function in OF_POINTS:
        (value,) = subject.evaluate(function, numbers, lattice=lattice)
        at_poles, rest = value[1 : 1 + len(poles)], value[1 + len(poles) :]
        documented = {"sigma": at_poles == 0, "green": at_poles == inf}
        if not np.all(documented.get(function, is_pole(at_poles))):
            yield f"{subject.label} {dtype} {function} at lattice points"
        if not np.all(np.isnan(rest)) or np.any(np.isinf(np.real(rest))):
            yield f"{subject.label} {dtype} {function} of NaN and infinity"
        (alone,) = subject.evaluate(function, numbers[:1], lattice=lattice)
        if value[0] != alone[0]:
            yield f"{subject.label} {dtype} {function} next to NaN and infinity"
    a, c = reduced_periods(lattice)
    halves = np.array([c / 2, (a + c) / 2, c / 2 - a, 3 * (a + c) / 2], dtype)
    p, dp = subject.evaluate("wp_and_prime", halves, lattice=lattice)
    # Half of c or of a + c is the origin of its own surroundings; half of a is not.
    if np.any(dp != 0) or not np.all(np.isfinite(p)):
        yield f"{subject.label} {dtype} wp' vanishes at half-periods"


def _values_far_away(subject: Subject, dtype: str, lattice: Lattice) -> Iterator[str]:
    """Few-bit periods, so an argument moved by them is exact, and so are the values."""
    a, c = reduced_periods(lattice)
    limit = {"complex128": 2.0**26, "complex64": 2.0**17}[dtype]
    count = limit / 16
    beyond = np.array([1.25 * limit * a, 1.25 * limit * c, 64 * limit * (a + c)], dtype)
    for function in OF_POINTS:
        if not np.all(np.isnan(subject.evaluate(function, beyond, lattice=lattice)[0].real)):
            yield f"{subject.label} {dtype} {function} too far away"
    near = np.array([0.5 + 0.25j, -0.25 + 0.75j, 0.5j], dtype)
    here = subject.evaluate("wp_and_prime", near, lattice=lattice)
    for n in (1.0, count):
        for period in (a, c):
            moved = (near + n * period).astype(dtype)
            there = subject.evaluate("wp_and_prime", moved, lattice=lattice)
            if np.any(np.array(here) != np.array(there)):
                yield f"{subject.label} {dtype} wp {n:g} periods away"


def symmetries(b: Backends) -> Iterator[str]:
    """Parity bit for bit, and exactly real or imaginary on the lines of symmetry."""
    rng = np.random.default_rng(cases.SEED)
    z = rng.uniform(-3, 3, 40) + 1j * rng.uniform(-3, 3, 40)
    x = np.linspace(0.03, 2.4, 40)
    rectangular = Lattice.rectangular(1.25, 1.75)
    for dtype in DTYPES:
        for lattice in DYADIC:
            for function, sign in PARITY.items():
                there, here = (
                    getattr(b.numpy, function)(points.astype(dtype), lattice) for points in (-z, z)
                )
                if np.any(there != sign * here):
                    yield f"{dtype} {function} is even or odd"
        for line, part in ((x + 0j, "imag"), (1j * x, "real")):
            p, dp = b.numpy.wp_and_prime(line.astype(dtype), rectangular)
            if np.any(p.imag != 0) or np.any(getattr(dp, part) != 0):
                yield f"{dtype} wp on lines of symmetry"


def next_to_the_pole(b: Backends) -> Iterator[str]:
    """The plain relative error that the README promises, where a rounded pi/a shows most."""
    z, references = oracle.next_to_the_pole()
    values = b.numpy.wp_and_prime(z, cases.PI_BADLY_ROUNDED)
    for got, (name, (high, low)) in zip(values, references.items(), strict=True):
        if not np.max(abs((got - high) - low) / abs(high)) <= NEAR_POLE_PROMISE:
            yield f"{name} at 1e-6 from the pole"


@cache
def _accidental_references() -> list[tuple[Lattice, Array, Any]]:
    arguments: list[tuple[Lattice, Array]] = [
        *((Lattice(w1, w3), np.array([z], np.complex64)) for w1, w3, z in cases.ACCIDENTAL_POLES),
        *((lattice, np.array([z], np.complex128)) for lattice, z in cases.LONG_PERIODS),
    ]
    return [(lattice, z, oracle.wp_and_prime(complex(z[0]), lattice)) for lattice, z in arguments]


def accidental_poles(b: Backends) -> Iterator[str]:
    """Arguments that lie next to a lattice point by accident of rounding."""
    for lattice, argument, references in _accidental_references():
        dtype = argument.dtype.name
        for name, got, reference in zip(
            ("wp", "wp_prime"), b.numpy.wp_and_prime(argument, lattice), references, strict=True
        ):
            if abs(reference.value) >= np.finfo(dtype).max:
                holds = got[0].real == np.inf
            else:
                error = in_eps(reference.error_of(complex(got[0])), dtype)
                holds = error <= CONTRACTS["accuracy"][name][dtype]["largest"]
            if not holds:
                yield f"{dtype} {name} next to an accidental pole"


CHECKS: dict[str, Check] = {
    "accuracy": accuracy,
    "special values": special_values,
    "symmetries": symmetries,
    "laws": laws_hold,
    "accidental poles": accidental_poles,
    "next to the pole": next_to_the_pole,
    "addition": addition,
    "Carlson's integral": carlson,
    "truncated sums": lattice_sums,
    "inverse": inverse,
    "derivatives": derivatives,
    "exact numbers": exact_numbers,
    "exact reduction": reduction_is_exact,
    "exact box": exact_box,
    "reference backends": reference_backends,
}


def first_failure(names: Iterable[str], backends: Backends) -> str | None:
    """What the checks named find wrong first, or None."""
    for name in names:
        failure = next(CHECKS[name](backends), None)
        if failure is not None:
            return f"{name}: {failure}"
    return None
