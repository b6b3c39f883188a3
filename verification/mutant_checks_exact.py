"""The exact reduction and the reference backends that start from it, for mutants."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from typing import Any

import mpmath
import numpy as np

from verification import cases, oracle
from verification.functions import FUNCTIONS
from verification.mutant_suspects import (
    OBLIQUE,
    TURNED,
    Backends,
)
from wefpe_core import InputError, Lattice
from wefpe_core.accuracy import scaled_error

EXACT_LATTICES = (
    *(family[-1] for family in cases.FAMILIES.values()),
    *(OBLIQUE, TURNED, Lattice(2.0**-60, 2.0**-60 * (0.25 + 1.5j)), Lattice(2.0**70, 2.0**71 * 1j)),
)


def reduction_is_exact(b: Backends) -> Iterator[str]:
    """z = z_r + m a + n b in fractions, z_r is in its rectangle, and its properties are right."""
    reduction = importlib.import_module("backends.exact_reduction")
    for lattice in EXACT_LATTICES:
        (a, c) = lattice.reduced()[0].exact
        frame = reduction.reduced_frame(lattice)
        if frame is not reduction.reduced_frame(lattice):
            yield "the frame of a lattice is made once"
        unit = abs(complex(a))
        fractions = [Fraction(n, 8) for n in (-9, -4, -3, 0, 1, 4, 5, 16)]
        for s in fractions:
            for r in fractions:
                exact = type(a)(2 * s * a.re + 2 * r * c.re, 2 * s * a.im + 2 * r * c.im)
                z, m, n = reduction.reduce_exactly(exact, lattice)
                back = [part + 2 * m * x + 2 * n * y for part, x, y in zip(z, a, c, strict=True)]
                if list(exact) != back:
                    yield "z = z_r + m a + n b"
                # The parts of z_r/a, and the imaginary part of tau, with |a|^2 as denominator.
                norm = 4 * (a.re**2 + a.im**2)
                x = (z.re * 2 * a.re + z.im * 2 * a.im) / norm
                y = (z.im * 2 * a.re - z.re * 2 * a.im) / norm
                height = 4 * (c.im * a.re - c.re * a.im) / norm
                half = Fraction(1, 2)
                if not (-half < x <= half and -half < y / height <= half):
                    yield "z_r lies in its rectangle"
                point = frame.reduce(exact)
                if (
                    Fraction(point.re, point.denominator),
                    Fraction(point.im, point.denominator),
                ) != (*(x, y),):
                    yield "the point is z_r/a"
                twice_integer = (2 * s).denominator == 1 and (2 * r).denominator == 1
                is_lattice_point = s.denominator == 1 and r.denominator == 1
                if point.is_lattice_point != is_lattice_point:
                    yield "lattice points are known"
                if point.is_half_period != (twice_integer and not is_lattice_point):
                    yield "half-periods are known"
                if not is_lattice_point:
                    size = math.log2(math.hypot(float(x), float(y)))
                    if not -1.5 <= point.magnitude - size <= 1:
                        yield "the magnitude of a point"
        if not -2.5 <= frame.period_magnitude - math.log2(2 * unit) <= 1.5:
            yield "the magnitude of the period"
        if (frame.tau[0] * norm, frame.tau[1] * norm) != tuple(
            4 * part * frame.norm for part in (c.re * a.re + c.im * a.im, c.im * a.re - c.re * a.im)
        ):
            yield "tau is b/a"


def exact_numbers(b: Backends) -> Iterator[str]:
    reduction = importlib.import_module("backends.exact_reduction")
    inf, nan = math.inf, math.nan
    for bad in (True, "1", None, [1.0]):
        try:
            reduction.exact_number(bad)
        except Exception as error:
            if type(error).__name__ != "InputTypeError":
                yield "what is no number is refused by type"
        else:
            yield "what is no number is refused"
    try:
        reduction.reduced_frame((1.0, 1.0j))
    except InputError:
        pass
    else:
        yield "half-periods are no lattice"
    for number in (1, 0.1, 2.5 - 1j, np.float32(0.3), mpmath.mpf("0.7")):
        exact = reduction.exact_number(number)
        if exact is None or complex(exact) != complex(number):
            yield "numbers are exact"
    if any(reduction.exact_number(x) is not None for x in (nan, inf, complex(0, inf))):
        yield "infinities have no exact value"
    infinite = [complex(inf, nan), complex(nan, -inf), -inf]
    if not all(map(reduction.is_infinite, infinite)) or reduction.is_infinite(complex(nan, 1)):
        yield "infinities are known from NaN"


@cache
def _exact_cases() -> list[tuple[str, complex, Lattice, Any]]:
    lattices = [family[-1] for family in cases.FAMILIES.values()]
    places = [
        (complex(cases.points(region, lattice, "complex128", 1)[0]), lattice)
        for region in cases.REGIONS
        for lattice in lattices
    ]
    return [
        (function, z, lattice, FUNCTIONS[function].reference(z, lattice))
        for z, lattice in places
        for function in ("wp_and_prime", "zeta", "green")
    ]


def reference_backends(b: Backends) -> Iterator[str]:
    """mpmath and FLINT, which start from the exact reduction, still agree with the references."""
    for function, z, lattice, references in _exact_cases():
        for backend in (b.mpmath, b.flint):
            values = getattr(backend, function)(z, lattice)
            for value, reference in zip(
                values if isinstance(values, tuple) else (values,), references, strict=True
            ):
                if backend is b.flint:  # a ball, of which the nearest double is compared
                    digits, value = 15, complex(value)
                else:
                    digits = oracle.DIGITS
                with mpmath.workdps(oracle.DIGITS):
                    error = scaled_error(value, *reference)
                if not error <= 10.0 ** (2 - digits):
                    yield f"{backend.name} {function}"


def exact_box(b: Backends) -> Iterator[str]:
    """The points of the truncated sum, and their exact differences from z."""
    reduction = importlib.import_module("backends.exact_reduction")
    for lattice in (OBLIQUE, TURNED, Lattice.lemniscatic()):
        w1, w3 = lattice.exact
        for m_max, n_max in ((1, 2), (3, 1)):
            box = reduction.LatticeBox(lattice, m_max, n_max)
            want = [
                (2 * m * w1.re + 2 * n * w3.re, 2 * m * w1.im + 2 * n * w3.im)
                for m in range(-m_max, m_max + 1)
                for n in range(-n_max, n_max + 1)
            ]
            for number in (0.3 - 0.75j, 0.5 + 0.7j, 0.1, 0.125 - 3j):
                z = reduction.exact_number(number)
                got, unit = box.differences(z)
                found = sorted((z.re - Fraction(x, unit), z.im - Fraction(y, unit)) for x, y in got)
                if found != sorted(want):
                    yield "the box of the truncated sum"
                if not all(type(part) is int for pair in (*got, *box.points) for part in pair):
                    yield "numerators are integers"
