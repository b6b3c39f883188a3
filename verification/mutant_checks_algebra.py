"""Addition, truncated sums and the inverse, on few points, for mutants."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator
from functools import cache
from typing import Any

import mpmath
import numpy as np

from verification import cases, oracle
from verification.judge import judge
from verification.measure import measure
from verification.mutant_suspects import (
    ADDITION_PROMISE,
    CONTRACTS,
    DTYPES,
    INVERSE_CEILING,
    OBLIQUE,
    SQUARE,
    TALL,
    TURNED,
    Array,
    Backends,
    is_pole,
    reduced_periods,
)
from wefpe_core import Lattice, get_backend


def addition(b: Backends) -> Iterator[str]:
    """All pairs of a grid, where z1 = z2 and z1 = -z2 occur; infinity is the neutral element."""
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
        error = max(np.max(abs(q - want) / scale), np.max(abs(dq - slope) / scale**1.5))
        if not error <= ADDITION_PROMISE:
            yield "the sum of two points"
        # Nearly equal points: the chord is still better where they are somewhat apart.
        # On a real lattice real points have real values, and so has half of a period.
        for place in (z[0], 0.37 * w1):
            near = place + 2 * w1 * np.append(0.0, 10.0 ** np.linspace(-15, -2, 27))
            at_place = truth.wp_and_prime(np.array([place]), lattice)
            q, dq = b.numpy.add(*at_place, *truth.wp_and_prime(near, lattice), lattice)
            want, slope = truth.wp_and_prime(place + near, lattice)
            scale = abs(want) + 2 * abs(at_place[0]) + abs(2 * w1) ** -2
            error = max(np.max(abs(q - want) / scale), np.max(abs(dq - slope) / scale**1.5))
            if not error <= ADDITION_PROMISE:
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


_CARLSON = (
    # Within 2 % of each other no duplication is needed, and every term of the series counts.
    (0, (1.0, 1.02, 0.985)),
    (0, (2.0 + 1.0j, 2.03 + 0.98j, 1.98 + 1.03j)),
    (0, (3.0, 3.0 + 0.06j, 3.05 - 0.02j)),
    # The three arguments in every direction; the last ones are far apart.
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
    # Where another choice of the half-axis that is turned onto the cut gives another branch.
    (12, (6.364e-12 - 2.343e-12j, -1.631e-12 - 1.723e-12j, -15.84317 + 10.867j)),
    (12, (-0.28133 + 0.28058j, -0.22451 - 0.97447j, 1.9664 + 4.562j)),
    (12, (0.52204 - 0.85292j, -0.43432 + 0.90076j, 2.79793e-6 + 9.21442e-6j)),
    (12, (1.81464e-3 + 5.79088e-4j, -0.7316 + 0.68173j, -1.54003e-5 - 6.05288e-6j)),
)


def carlson(b: Backends) -> Iterator[str]:
    """R_F against mpmath, up to sign; with few steps, so that the series after them counts."""
    algebra, pair = (importlib.import_module(f"backends.{name}") for name in ("algebra", "pair"))
    ops = importlib.import_module("backends.numpy_backend").NumpyOps(np.dtype(float))
    for steps, numbers in _CARLSON:
        pairs = [pair.Pair(np.array([x.real]), np.array([x.imag])) for x in map(complex, numbers)]
        with np.errstate(all="ignore"):
            value = algebra.carlson_rf(ops, *pairs, steps)
        got = complex(value.re[0], value.im[0])
        want = _carlson_reference(numbers)
        if not min(abs(got - want), abs(got + want)) <= 16 * np.finfo(float).eps * abs(want):
            yield f"R_F of {numbers} after {steps} steps"


@cache
def _carlson_reference(numbers: tuple[complex, ...]) -> complex:
    """After turning all three away from the cut, where their square roots belong together."""
    turns = np.exp(2j * np.pi * np.arange(24) / 24)
    clearances = [np.min(np.pi - abs(np.angle(turn * np.array(numbers)))) for turn in turns]
    turn = complex(turns[int(np.argmax(clearances))])
    with mpmath.workdps(oracle.DIGITS):
        turned = (mpmath.mpc(turn) * mpmath.mpc(x) for x in numbers)
        return complex(mpmath.elliprf(*turned) * mpmath.sqrt(turn))


def lattice_sums(b: Backends) -> Iterator[str]:
    """Against the sum written as loops, in double precision and with a bound on its rounding."""
    import torch

    points = np.array([0.37 + 0.21j, -0.8 + 0.11j, 0.05 - 1.3j])
    for lattice in (SQUARE, OBLIQUE, TURNED):
        w1, w3 = complex(lattice.omega1), complex(lattice.omega3)
        for (m_max, n_max), dtype in (
            ((1, 1), DTYPES[0]),
            ((2, 3), DTYPES[0]),
            ((3, 2), DTYPES[1]),
        ):
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
    """Values of wp inside the region, and the solutions there as mpmath has them."""
    a, c = reduced_periods(lattice)
    rng = np.random.default_rng(cases.SEED)
    r, column = rng.uniform(0.05, 0.45, 8), rng.uniform(-0.45, 0.45, 8)
    z = (column - r * (c / a).real) * a + r * c
    p, dp = get_backend("numpy").wp_and_prime(z, lattice)
    with np.errstate(divide="ignore"):  # in the middle of a tall cell wp' underflows: any z will do
        scale = abs(z) + (abs(p) + abs(a) ** -2) / abs(dp)
    truth = get_backend("mpmath", dps=oracle.DIGITS).inverse_wp([complex(w) for w in p], lattice)
    return p, scale, truth


def inverse(b: Backends) -> Iterator[str]:
    inf, nan = math.inf, math.nan
    eps = np.finfo(float).eps
    for family in cases.FAMILIES.values():
        for lattice in (*family, TURNED):
            w, scale, truth = _inverse_references(lattice)
            got = b.numpy.inverse_wp(w, lattice)
            for value, want, size in zip(got, truth, scale, strict=True):
                error = abs(mpmath.mpc(complex(value)) - want) if np.isfinite(value) else inf
                if not error <= INVERSE_CEILING * eps * size:
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
        if not error <= INVERSE_CEILING * eps:
            yield "inverse of the largest numbers"
    for region in ("half-periods", "pole at 0", "zeros", "generic"):
        for family_name in cases.FAMILIES:
            for dtype in DTYPES:
                rows = measure(
                    b.subject,
                    dtype=dtype,
                    function="inverse_wp",
                    family=family_name,
                    region=region,
                    count=1,
                )
                if not judge(rows, CONTRACTS)[0].passes:
                    yield f"{dtype} inverse_wp, {region}, {family_name}"


def _inverse_next_to_edges(b: Backends) -> Iterator[str]:
    """Just inside the region there is one solution only, on whichever side of the middle."""
    eps = np.finfo(float).eps
    s, r = np.meshgrid([-0.4, -0.2, 0.2, 0.4], [1e-11, 1e-9, 1e-6, 0.5 - 1e-9, 0.5 - 1e-6])
    for lattice in (SQUARE, OBLIQUE, TALL):
        a, c = reduced_periods(lattice)
        z = ((s - r * (c / a).real) * a + r * c).ravel()
        p, dp = get_backend("numpy").wp_and_prime(z, lattice)
        scale = abs(z) + (abs(p) + abs(a) ** -2) / abs(dp)
        got = b.numpy.inverse_wp(p, lattice)
        if not np.all(abs(got - z) <= 2 * INVERSE_CEILING * eps * scale):
            yield "the inverse next to an edge"


def _inverse_on_edges(b: Backends) -> Iterator[str]:
    """On r = 0 and r = 1/2 two solutions qualify; the one farther right is documented."""
    eps = np.finfo(float).eps
    for lattice in (SQUARE, TALL, Lattice.lemniscatic(), OBLIQUE, TURNED, Lattice(1.0, 0.5 + 1.5j)):
        a, c = reduced_periods(lattice)
        for edge in (0.0, 0.5):
            z = np.linspace(0.04, 0.46, 12) * a + edge * c
            ratio = z / a
            # The mirror image is -z, or c - z: to the right of half of c lies the larger one.
            z = z - np.where(ratio.real > 0.5, a, 0)
            mirror = 2 * edge * c - z
            mirror = mirror - np.rint((mirror / a).real) * a
            right = np.where((z / a).real > (mirror / a).real, z, mirror)
            p, dp = get_backend("numpy").wp_and_prime(right, lattice)
            got = b.numpy.inverse_wp(p, lattice)
            scale = abs(right) + (abs(p) + abs(a) ** -2) / abs(dp)
            if not np.all(abs(got - right) <= 2 * INVERSE_CEILING * eps * scale):
                yield f"the inverse on the edge r = {edge}"
