"""Checks of addition, truncated sums, the inverse and the exact reduction, on few points."""

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
from verification.functions import FUNCTIONS, FUNCTIONS_OF_Z
from verification.mutation.backends_under_test import (
    CONTRACTS,
    DTYPES,
    OBLIQUE,
    SHIFTED,
    SQUARE,
    TALL,
    TURNED,
    Array,
    Backends,
    broken_contracts,
    is_pole,
    reduced_periods,
)
from wefpe_core import InputError, InputTypeError, Lattice, get_backend
from wefpe_core.accuracy import scaled_error

EPS = np.finfo(float).eps
INVERSE_CEILING = CONTRACTS["accuracy"]["inverse_wp"]["complex128"]["largest"]
# The error of the sum of two points that users are promised, relative to the three values of wp.
ADDITION_PROMISE = 1e-13


def addition(b: Backends) -> Iterator[str]:
    """All pairs of points of a grid, equal and opposite ones included; infinity is neutral."""
    truth = get_backend("numpy")
    inf, nan = math.inf, math.nan
    small, large = (Lattice(2.0**k * 1.25, 2.0**k * (0.5 + 1.75j)) for k in (-20, 20))
    for lattice in (Lattice.lemniscatic(), OBLIQUE, TURNED, small, large):
        centres = (np.arange(6) + 0.5) / 6
        w1, w3 = complex(lattice.omega1), complex(lattice.omega3)
        z = (2 * w1 * centres[None, :] + 2 * w3 * centres[:, None]).ravel()
        p, dp = truth.wp_and_prime(z, lattice)
        i, j = (index.ravel() for index in np.indices((z.size, z.size)))
        got = b.numpy.add(p[i], dp[i], p[j], -dp[j], lattice)
        if not np.all(is_pole(np.array(got)[:, i == j])):
            yield "a point minus itself is the lattice point"
        apart = i != j
        i, j, (q, dq) = i[apart], j[apart], (value[apart] for value in got)
        want, slope = truth.wp_and_prime(z[i] - z[j], lattice)
        scale = abs(want) + abs(p[i]) + abs(p[j]) + abs(2 * w1) ** -2
        if not _addition_error(q - want, dq - slope, scale) <= ADDITION_PROMISE:
            yield "the sum of two points"
        # Points from equal to 1 % of a period apart: there addition turns from tangent to chord.
        # At the second place, on a real lattice, the points and their values are real.
        for place in (z[0], 0.37 * w1):
            near = place + 2 * w1 * np.append(0.0, 10.0 ** np.linspace(-15, -2, 27))
            at_place = truth.wp_and_prime(np.array([place]), lattice)
            q, dq = b.numpy.add(*at_place, *truth.wp_and_prime(near, lattice), lattice)
            want, slope = truth.wp_and_prime(place + near, lattice)
            scale = abs(want) + 2 * abs(at_place[0]) + abs(2 * w1) ** -2
            if not _addition_error(q - want, dq - slope, scale) <= ADDITION_PROMISE:
                yield "the sum of nearly equal points"
        for infinity in (complex(inf, nan), complex(-inf, 2), complex(nan, inf)):
            pole = np.full(z.shape, infinity)
            for values in (
                b.numpy.add(p, dp, pole, pole, lattice),
                b.numpy.add(pole, pole, p, dp, lattice),
            ):
                if np.any(values[0] != p) or np.any(values[1] != dp):
                    yield "infinity is neutral"
        for place in range(4):
            numbers = [p[:2].copy(), dp[:2].copy(), p[2:4].copy(), dp[2:4].copy()]
            numbers[place][0] = nan
            for value in b.numpy.add(*numbers, lattice):
                if np.isinf(value[0].real) or not np.isnan(value[0]) or np.isnan(value[1]):
                    yield "NaN stays NaN in a sum"


def _addition_error(error_of_wp: Array, error_of_slope: Array, scale: Array) -> float:
    return max(np.max(abs(error_of_wp) / scale), np.max(abs(error_of_slope) / scale**1.5))


# Numbers of duplication steps, and the arguments of R_F.
_CARLSON = (
    # Arguments within 2 % of each other need no duplication, so every term of the series counts.
    (0, (1.0, 1.02, 0.985)),
    (0, (2.0 + 1.0j, 2.03 + 0.98j, 1.98 + 1.03j)),
    (0, (3.0, 3.0 + 0.06j, 3.05 - 0.02j)),
    # Arguments in every direction; the last ones are far apart.
    *((3, tuple(1j**k * x for x in (1.0, 1.5, 0.75 + 0.25j))) for k in range(4)),
    *((3, tuple((1 + 1j) * 1j**k * x for x in (1.0, 1.25, 0.75))) for k in range(4)),
    (8, (1.0, 2.0j, -2.0j)),
    (8, (1.0, -0.2 + 1.0j, -0.2 - 1.0j)),
    (8, (-1.0, -1.0 + 0.5j, -1.0 - 0.5j)),
    (8, (-1.0j, 0.5 - 1.0j, -0.5 - 1.0j)),
    (8, (-1.0, 2.0 + 1.0j, 1e-3j)),
    (12, (-1.0, 1e-10, 1e-12j)),
    (12, (-5.0, -4.0 + 1e-3j, 1.0)),
    (12, (1e-9j, 1e3, -1e-3)),
    # Here turning another half-axis onto the cut would give another branch.
    (12, (6.364e-12 - 2.343e-12j, -1.631e-12 - 1.723e-12j, -15.84317 + 10.867j)),
    (12, (-0.28133 + 0.28058j, -0.22451 - 0.97447j, 1.9664 + 4.562j)),
    (12, (0.52204 - 0.85292j, -0.43432 + 0.90076j, 2.79793e-6 + 9.21442e-6j)),
    (12, (1.81464e-3 + 5.79088e-4j, -0.7316 + 0.68173j, -1.54003e-5 - 6.05288e-6j)),
)


def carlson_integral(b: Backends) -> Iterator[str]:
    """R_F is that of mpmath up to sign, after so few steps that the series after them counts."""
    algebra, pair = (importlib.import_module(f"backends.{name}") for name in ("algebra", "pair"))
    ops = importlib.import_module("backends.numpy_ops").NumpyOps(np.dtype(float))
    for steps, numbers in _CARLSON:
        pairs = [pair.Pair(np.array([x.real]), np.array([x.imag])) for x in map(complex, numbers)]
        with np.errstate(all="ignore"):
            value = algebra.carlson_rf(ops, *pairs, steps)
        got = complex(value.re[0], value.im[0])
        want = _carlson_reference(numbers)
        if not min(abs(got - want), abs(got + want)) <= 16 * EPS * abs(want):
            yield f"R_F of {numbers} after {steps} steps"


@cache
def _carlson_reference(numbers: tuple[complex, ...]) -> complex:
    """R_F of the arguments turned away from the cut, so that their square roots are continuous."""
    turns = np.exp(2j * np.pi * np.arange(24) / 24)
    clearances = [np.min(np.pi - abs(np.angle(turn * np.array(numbers)))) for turn in turns]
    turn = complex(turns[int(np.argmax(clearances))])
    with mpmath.workdps(oracle.DIGITS):
        turned = (mpmath.mpc(turn) * mpmath.mpc(x) for x in numbers)
        return complex(mpmath.elliprf(*turned) * mpmath.sqrt(turn))


def truncated_sums(b: Backends) -> Iterator[str]:
    """The sum agrees with a direct one in double precision, within a bound on its rounding."""
    import torch

    points = np.array([0.37 + 0.21j, -0.8 + 0.11j, 0.05 - 1.3j])
    for lattice in (SQUARE, OBLIQUE, TURNED):
        w1, w3 = complex(lattice.omega1), complex(lattice.omega3)
        for m_max, n_max, dtype in ((1, 1, DTYPES[0]), (2, 3, DTYPES[0]), (3, 2, DTYPES[1])):
            m, n = np.mgrid[-m_max : m_max + 1, -n_max : n_max + 1]
            w = (2 * m * w1 + 2 * n * w3).ravel()
            counter = np.where(w == 0, 0, 1 / np.where(w == 0, 1, w) ** 2)
            z = points.astype(dtype)
            terms = 1 / (z.astype(complex)[:, None] - w) ** 2
            slopes = -2 / (z.astype(complex)[:, None] - w) ** 3
            roundings = (2 * m_max + 1) + (2 * n_max + 1) + 10
            for got, want, size in zip(
                b.numpy.lattice_sum(z, lattice, m_max, n_max),
                ((terms - counter).sum(-1), slopes.sum(-1)),
                ((abs(terms) + abs(counter)).sum(-1), abs(slopes).sum(-1)),
                strict=True,
            ):
                if not np.all(abs(got - want) <= roundings * np.finfo(dtype).eps * size):
                    yield f"{dtype} truncated sum"
            grid = torch.from_numpy(np.array([[*z], [*z[::-1]]]))
            for got, want in zip(
                b.torch.lattice_sum(grid, lattice, m_max, n_max),
                b.numpy.lattice_sum(grid.numpy(), lattice, m_max, n_max),
                strict=True,
            ):
                if got.shape != grid.shape or not np.all(
                    abs(got.numpy() - want) <= 64 * np.finfo(dtype).eps * abs(want).max()
                ):
                    yield f"{dtype} truncated sum of a grid"
        values = b.numpy.lattice_sum(np.array([0, 2 * w1, 2 * w3, np.nan, 1j]), lattice, 1, 1)
        for value in values:
            if not np.all(is_pole(value[:3])) or not np.isnan(value[3].real):
                yield "truncated sum at its poles"
            if not np.isfinite(value[4]):
                yield "truncated sum next to its poles"


@cache
def _inverse_references(lattice: Lattice) -> tuple[Array, Array, Any]:
    """Values of wp inside the region of the inverse, error scales, and the solutions by mpmath."""
    a, c = reduced_periods(lattice)
    rng = np.random.default_rng(cases.SEED)
    r, column = rng.uniform(0.05, 0.45, 8), rng.uniform(-0.45, 0.45, 8)
    z = (column - r * (c / a).real) * a + r * c
    p, scale = _wp_and_inverse_scale(z, lattice)
    truth = get_backend("mpmath", dps=oracle.DIGITS).inverse_wp([complex(w) for w in p], lattice)
    return p, scale, truth


def _wp_and_inverse_scale(z: Array, lattice: Lattice) -> tuple[Array, Array]:
    """wp(z), and the size that an error of its inverse is relative to."""
    a, _ = reduced_periods(lattice)
    p, dp = get_backend("numpy").wp_and_prime(z, lattice)
    # In the middle of a tall cell wp' underflows, and any z will do.
    with np.errstate(divide="ignore"):
        return p, abs(z) + (abs(p) + abs(a) ** -2) / abs(dp)


def inverse(b: Backends) -> Iterator[str]:
    inf, nan = math.inf, math.nan
    for family in cases.FAMILIES.values():
        for lattice in (*family, TURNED):
            w, scale, truth = _inverse_references(lattice)
            got = b.numpy.inverse_wp(w, lattice)
            for value, want, size in zip(got, truth, scale, strict=True):
                error = abs(mpmath.mpc(complex(value)) - want) if np.isfinite(value) else inf
                if not error <= INVERSE_CEILING * EPS * size:
                    yield "the solution of wp(z) = w that is documented"
    yield from _inverse_on_edges(b)
    yield from _inverse_next_to_edges(b)
    infinite = np.array([complex(inf, nan), complex(-inf, 1), complex(0, inf), nan, 1.0])
    value = b.numpy.inverse_wp(infinite, OBLIQUE)
    if np.any(value[:3] != 0) or not np.isnan(value[3]) or not np.isfinite(value[4]):
        yield "inverse of infinity and NaN"
    largest = np.finfo(float).max
    w = np.array([largest, -largest, largest * (1 + 1j), largest * 1j, 1e300])
    for value, number in zip(b.numpy.inverse_wp(w, OBLIQUE), w, strict=True):
        with mpmath.workdps(oracle.DIGITS):
            want = 1 / mpmath.sqrt(mpmath.mpc(complex(number)))
            got = mpmath.mpc(complex(value))
            error = min(abs(want - got), abs(want + got)) / abs(want)
        if not error <= INVERSE_CEILING * EPS:
            yield "inverse of the largest numbers"
    regions = ("half-periods", "pole at 0", "zeros", "generic")
    yield from broken_contracts(b, ["inverse_wp"], regions, count=1)


def _inverse_next_to_edges(b: Backends) -> Iterator[str]:
    """Just inside the region only one solution qualifies, on either side of the middle."""
    s, r = np.meshgrid([-0.4, -0.2, 0.2, 0.4], [1e-11, 1e-9, 1e-6, 0.5 - 1e-9, 0.5 - 1e-6])
    for lattice in (SQUARE, OBLIQUE, TALL):
        a, c = reduced_periods(lattice)
        z = ((s - r * (c / a).real) * a + r * c).ravel()
        p, scale = _wp_and_inverse_scale(z, lattice)
        if not np.all(abs(b.numpy.inverse_wp(p, lattice) - z) <= 2 * INVERSE_CEILING * EPS * scale):
            yield "the inverse next to an edge"


def _inverse_on_edges(b: Backends) -> Iterator[str]:
    """On r = 0 and r = 1/2 two solutions qualify; the documented one is farther right."""
    for lattice in (SQUARE, TALL, Lattice.lemniscatic(), OBLIQUE, TURNED, SHIFTED):
        a, c = reduced_periods(lattice)
        for edge in (0.0, 0.5):
            z = np.linspace(0.04, 0.46, 12) * a + edge * c
            ratio = z / a
            z = z - np.where(ratio.real > 0.5, a, 0)
            mirror = 2 * edge * c - z  # -z on the lower edge, c - z on the upper
            mirror = mirror - np.rint((mirror / a).real) * a
            right = np.where((z / a).real > (mirror / a).real, z, mirror)
            p, scale = _wp_and_inverse_scale(right, lattice)
            got = b.numpy.inverse_wp(p, lattice)
            if not np.all(abs(got - right) <= 2 * INVERSE_CEILING * EPS * scale):
                yield f"the inverse on the edge r = {edge}"


# --- Exact reduction, and the reference backends ------------------------------------------------

LAST_OF_FAMILIES = tuple(family[-1] for family in cases.FAMILIES.values())
EXACT_LATTICES = (
    *LAST_OF_FAMILIES,
    *(OBLIQUE, TURNED, Lattice(2.0**-60, 2.0**-60 * (0.25 + 1.5j)), Lattice(2.0**70, 2.0**71 * 1j)),
)


def exact_reduction(b: Backends) -> Iterator[str]:
    """In fractions: z = z_r + m a + n b, z_r is in its rectangle, and its properties are right."""
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
                # z_r/a = x + iy, and the imaginary part of tau.
                norm = 4 * (a.re**2 + a.im**2)
                x = (z.re * 2 * a.re + z.im * 2 * a.im) / norm
                y = (z.im * 2 * a.re - z.re * 2 * a.im) / norm
                height = 4 * (c.im * a.re - c.re * a.im) / norm
                half = Fraction(1, 2)
                if not (-half < x <= half and -half < y / height <= half):
                    yield "z_r lies in its rectangle"
                point = frame.reduce(exact)
                if [Fraction(part, point.denominator) for part in (point.re, point.im)] != [x, y]:
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
        except InputTypeError:
            pass
        except Exception:
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
    places = [
        (complex(cases.points(region, lattice, "complex128", 1)[0]), lattice)
        for region in cases.REGIONS
        for lattice in LAST_OF_FAMILIES
    ]
    return [
        (function, z, lattice, FUNCTIONS[function].reference(z, lattice))
        for z, lattice in places
        for function in FUNCTIONS_OF_Z
        if function != "sigma"  # which exceeds the range of doubles at some of these places
    ]


def reference_backends(b: Backends) -> Iterator[str]:
    """mpmath and FLINT, which start from the exact reduction, agree with the references."""
    for function, z, lattice, references in _exact_cases():
        for backend in (b.mpmath, b.flint):
            values = getattr(backend, function)(z, lattice)
            for value, reference in zip(
                values if isinstance(values, tuple) else (values,), references, strict=True
            ):
                digits = oracle.DIGITS
                if backend is b.flint:  # its ball is compared as the nearest double
                    digits, value = 15, complex(value)
                with mpmath.workdps(oracle.DIGITS):
                    error = scaled_error(value, *reference)
                if not error <= 10.0 ** (2 - digits):
                    yield f"{backend.name} {function}"


def exact_box(b: Backends) -> Iterator[str]:
    """The half-periods are exact, and so are differences of z and points of the lattice."""
    reduction = importlib.import_module("backends.exact_reduction")
    for lattice in (OBLIQUE, TURNED, Lattice.lemniscatic()):
        w1, w3 = lattice.exact
        middle = (w1.re + w3.re, w1.im + w3.im)
        if list(map(tuple, reduction.exact_half_periods(lattice))) != [w1, middle, w3]:
            yield "the half-periods"
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
