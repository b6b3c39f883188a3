"""The verifier on few points, quick enough to be asked about two thousand mutants.

A check is given backends and yields a line for everything that is wrong with them; the caller
stops at the first. Ceilings are those of contracts.toml or of a documented promise; what has
none is exact. References are cached by the first run, which is one of the sound backends.
"""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple

import mpmath
import numpy as np
import numpy.typing as npt

from verification import cases, laws, oracle
from verification.judge import judge, load_contracts
from verification.measure import measure
from verification.subjects import Subject
from wefpe_core import Lattice, get_backend
from wefpe_core.accuracy import in_eps, scaled_error

Array = npt.NDArray[Any]

DTYPES = ("complex128", "complex64")
OF_POINTS = ("wp", "wp_prime", "zeta", "sigma", "green")
COUNT = 3  # points per lattice and region
CONTRACTS = load_contracts()
INVERSE_CEILING = CONTRACTS["accuracy"]["inverse_wp"]["complex128"]["largest"]
# What the sum of two points is promised to keep, over the sizes of the three values of wp.
ADDITION_PROMISE = 1e-13

SQUARE, OBLIQUE = Lattice(1.0, 1.0j), Lattice(1.25, 0.5 + 1.75j)
TURNED, TALL = Lattice(1.5 - 0.25j, 0.75 + 1.125j), Lattice(0.75, 3.0j)
DYADIC = (SQUARE, OBLIQUE, TURNED, TALL, Lattice(4.5 + 2.25j, 2.75 + 1.625j))


class Backends(NamedTuple):
    """Those built on the modules that are imported at this moment, sound or not."""

    numpy: Any
    torch: Any
    mpmath: Any
    flint: Any

    @property
    def subject(self) -> Subject:
        return Subject("numpy", self.numpy, lambda array: array)


def load_backends() -> Backends:
    """Build the backends anew; `get_backend` would return those it has built before."""

    def build(name: str, class_name: str, **options: Any) -> Any:
        return getattr(importlib.import_module(f"backends.{name}"), class_name)(**options)

    return Backends(
        build("numpy_backend", "NumpyBackend"),
        build("torch_backend", "TorchBackend"),
        build("mpmath_backend", "MpmathBackend", dps=oracle.DIGITS),
        build("flint_backend", "FlintBackend", digits=oracle.DIGITS - 5),
    )


Check = Callable[[Backends], Iterator[str]]


def _reduced_periods(lattice: Lattice) -> tuple[complex, complex]:
    reduced = lattice.reduced()[0]
    return 2 * complex(reduced.omega1), 2 * complex(reduced.omega3)


def is_pole(value: Any) -> Any:
    """The documented value, part by part: inf+nanj."""
    return (np.real(value) == np.inf) & np.isnan(np.imag(value))


# --- The array backends --------------------------------------------------------------------


def accuracy(b: Backends) -> Iterator[str]:
    """The rows of the report; of the inverse see `inverse`."""
    for region in cases.REGIONS:
        for family in cases.FAMILIES:
            for function in ("wp_and_prime", "zeta", "sigma", "green"):
                if region in oracle.REGIONS_LEFT_OUT.get(function, ()):
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
                    for verdict in judge(rows, CONTRACTS):
                        if not verdict.passes:
                            yield f"{dtype} {verdict.function}, {region}, {family}"


def laws_hold(b: Backends) -> Iterator[str]:
    z, other = laws.dyadic_points(20, seed=cases.SEED)
    for law in laws.LAWS:
        for lattice in laws.DYADIC_LATTICES:
            residual = laws.residual_in_eps(law, b.subject, z, other, lattice)
            if not residual <= CONTRACTS["laws"]["complex128"]:
                yield law


def special_values(b: Backends) -> Iterator[str]:
    """Lattice points, NaN, infinities, overflow, too far away: one documented value each."""
    inf, nan = math.inf, math.nan
    for dtype in DTYPES:
        for lattice in DYADIC:
            w1, w3 = complex(lattice.omega1), complex(lattice.omega3)
            poles = [0, 2 * w1, 2 * w3, -2 * w1 + 2 * w3, 6 * w1 - 4 * w3, 2000 * w1 - 154 * w3]
            numbers = np.array([0.5 + 0.25j, *poles, nan, complex(1, nan), inf, -1j * inf], dtype)
            a, c = _reduced_periods(lattice)
            far = {"complex128": 2.0**50, "complex64": 2.0**22}[dtype] * np.array([a, c, a + c])
            limit = {"complex128": 2.0**44, "complex64": 2.0**18}[dtype]
            for function in OF_POINTS:
                evaluate = getattr(b.numpy, function)
                value = evaluate(numbers, lattice)
                at_poles = value[1 : 1 + len(poles)]
                documented = {"sigma": at_poles == 0, "green": at_poles == inf}
                if not np.all(documented.get(function, is_pole(at_poles))):
                    yield f"{dtype} {function} at lattice points"
                rest = value[1 + len(poles) :]
                if not np.all(np.isnan(rest)) or np.any(np.isinf(np.real(rest))):
                    yield f"{dtype} {function} of NaN and infinity"
                if value[0] != evaluate(numbers[:1], lattice)[0]:
                    yield f"{dtype} {function} next to NaN and infinity"
                beyond = (far + 0.3 * a).astype(dtype)
                if not np.all(np.isnan(evaluate(beyond, lattice).real)):
                    yield f"{dtype} {function} too far away"
            near = np.array([0.5 + 0.25j, -0.25 + 0.75j, 0.5j], dtype)
            for period in (a, c):
                # The last one just inside the limit; beyond it NaN is the documented value.
                for n in (1.0, 2.0**-4 * limit):
                    moved = (near + n * period).astype(dtype)
                    for f, g in zip(
                        b.numpy.wp_and_prime(near, lattice),
                        b.numpy.wp_and_prime(moved, lattice),
                        strict=True,
                    ):
                        if np.any(f != g):
                            yield f"{dtype} wp {n:g} periods away"
        tiny = {"complex128": 1e-160, "complex64": 1e-20}[dtype]
        if not all(is_pole(v[0]) for v in b.numpy.wp_and_prime(np.array([tiny], dtype), OBLIQUE)):
            yield f"{dtype} overflow next to the pole"


def symmetries(b: Backends) -> Iterator[str]:
    """Parity bit for bit, and exactly real or imaginary on the lines of symmetry."""
    rng = np.random.default_rng(cases.SEED)
    z = rng.uniform(-3, 3, 40) + 1j * rng.uniform(-3, 3, 40)
    x = np.linspace(0.03, 2.4, 40)
    rectangular = Lattice.rectangular(1.25, 1.75)
    for dtype in DTYPES:
        for lattice in DYADIC:
            for function, sign in zip(OF_POINTS, (1, -1, -1, -1, 1), strict=True):
                there, here = (
                    getattr(b.numpy, function)(points.astype(dtype), lattice) for points in (-z, z)
                )
                if np.any(there != sign * here):
                    yield f"{dtype} {function} is even or odd"
        for line, part in ((x + 0j, "imag"), (1j * x, "real")):
            p, dp = b.numpy.wp_and_prime(line.astype(dtype), rectangular)
            if np.any(p.imag != 0) or np.any(getattr(dp, part) != 0):
                yield f"{dtype} wp on lines of symmetry"
        halves = np.array([1.75j, 1.25 + 1.75j, -3.75 + 5.25j], dtype)
        if np.any(b.numpy.wp_prime(halves, rectangular) != 0):
            yield f"{dtype} wp' at half-periods"


@cache
def _accidental_references() -> list[tuple[Lattice, Array, Any]]:
    found = []
    for omega1, omega3, z in cases.ACCIDENTAL_POLES:
        lattice, argument = Lattice(omega1, omega3), np.array([z], np.complex64)
        found.append((lattice, argument, oracle.wp_and_prime(complex(argument[0]), lattice)))
    return found


def accidental_poles(b: Backends) -> Iterator[str]:
    """Single-precision arguments that lie next to a lattice point by accident of rounding."""
    for lattice, argument, references in _accidental_references():
        for name, got, reference in zip(
            ("wp", "wp_prime"), b.numpy.wp_and_prime(argument, lattice), references, strict=True
        ):
            if abs(reference.value) >= np.finfo(np.float32).max:
                holds = got[0].real == np.inf
            else:
                error = in_eps(reference.error_of(complex(got[0])), "complex64")
                holds = error <= CONTRACTS["accuracy"][name]["complex64"]["largest"]
            if not holds:
                yield f"{name} next to an accidental pole"


# --- Algebra -------------------------------------------------------------------------------


def addition(b: Backends) -> Iterator[str]:
    """All pairs of a grid, where z1 = z2 and z1 = -z2 occur; infinity is the neutral element."""
    truth = get_backend("numpy")
    inf, nan = math.inf, math.nan
    for lattice in (Lattice.lemniscatic(), OBLIQUE, TURNED):
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
        near = z[0] + 10.0 ** np.linspace(-9, -2, 15)
        q, dq = b.numpy.add(p[:1], dp[:1], *truth.wp_and_prime(near, lattice), lattice)
        want, slope = truth.wp_and_prime(z[0] + near, lattice)
        scale = abs(want) + 2 * abs(p[0]) + abs(2 * w1) ** -2
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


def lattice_sums(b: Backends) -> Iterator[str]:
    """Against the sum written as loops, in double precision and with a bound on its rounding."""
    points = np.array([0.37 + 0.21j, -0.8 + 0.11j, 0.05 - 1.3j])
    for lattice in (SQUARE, OBLIQUE, TURNED):
        w1, w3 = complex(lattice.omega1), complex(lattice.omega3)
        for (m_max, n_max), dtype in (((1, 1), DTYPES[0]), ((2, 3), DTYPES[0]), ((3, 2), DTYPES[1])):
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
        values = b.numpy.lattice_sum(np.array([0, 2 * w1, 2 * w3, np.nan, 1j]), lattice, 1, 1)
        for value in values:
            if not np.all(is_pole(value[:3])) or not np.isnan(value[3].real):
                yield "truncated sum at its poles"
            if not np.isfinite(value[4]):
                yield "truncated sum next to its poles"


@cache
def _inverse_references(lattice: Lattice) -> tuple[Array, Array, Any]:
    """Values of wp inside the region, and the solutions there as mpmath has them."""
    a, c = _reduced_periods(lattice)
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


def _inverse_on_edges(b: Backends) -> Iterator[str]:
    """On r = 0 and r = 1/2 two solutions qualify; the one farther right is documented."""
    eps = np.finfo(float).eps
    for lattice in (SQUARE, TALL, Lattice.lemniscatic(), OBLIQUE, TURNED, Lattice(1.0, 0.5 + 1.5j)):
        a, c = _reduced_periods(lattice)
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


# --- Derivatives ---------------------------------------------------------------------------


_SLOPE = 1e-12  # the promise to users for derivatives in double precision
_POINTS = (0.5 + 0.25j, -0.75 + 1.25j, 2.5 - 3.0j, 0.125j, 0.8 + 0.9j, 1.1 - 0.3j)


def _leaves(*values: Any) -> list[Any]:
    """Tensors with gradients, each as long as the points: every point has its own lattice."""
    import torch

    arrays = (np.broadcast_to(np.asarray(value, complex), len(_POINTS)) for value in values)
    return [torch.tensor(array, requires_grad=True) for array in arrays]


def _derivatives(value: Any, leaves: list[Any]) -> list[Array]:
    """Of holomorphic functions, from the gradient of the real part."""
    import torch

    parts = torch.autograd.grad(value.real.sum(), leaves)
    return [part.conj().resolve_conj().numpy() for part in parts]


def derivatives(b: Backends) -> Iterator[str]:
    """wp' and its kin are derivatives in z; in the lattice, Euler's and Frobenius' relations."""
    truth, z = get_backend("numpy"), np.array(_POINTS)
    for lattice in (OBLIQUE, TURNED, Lattice(1.5, 3.5 + 1.25j), TALL):
        p, dp = truth.wp_and_prime(z, lattice)
        zeta, sigma = truth.zeta(z, lattice), truth.sigma(z, lattice)
        g2 = complex(truth.invariants(lattice)[0])
        eta1, eta3 = (complex(eta) for eta in truth.quasi_periods(lattice))
        w1, w3 = complex(lattice.omega1), complex(lattice.omega3)
        area = 4 * (w1.conjugate() * w3).imag
        periodic = (eta1 - np.pi / area * w1.conjugate()) / w1
        green = -(zeta - periodic * z - np.pi / area * z.conj())
        # function: its derivative in z, and what scaling z and the lattice together gives
        known = {
            "wp": (dp, -2 * p),
            "wp_prime": (6 * p * p - g2 / 2, -3 * dp),
            "zeta": (-p, -zeta),
            "sigma": (sigma * zeta, sigma),
            "green": (green, np.full(z.shape, -1.0)),
        }
        shape = {"wp": -2 * p * p + g2 / 3, "wp_prime": -3 * p * dp}
        for function, (slope, scaling) in known.items():
            (x,) = _leaves(z)
            (in_z,) = _derivatives(getattr(b.torch, function)(x, lattice), [x])
            if not np.all(abs(in_z - slope) <= _SLOPE * (1 + abs(slope))):
                yield f"the derivative of {function} in z"
            leaves = _leaves(z, w1, w3)
            value = getattr(b.torch, function)(leaves[0], Lattice(*leaves[1:]))
            in_z, in_1, in_3 = _derivatives(value, leaves)
            if not np.all(abs(in_z - slope) <= _SLOPE * (1 + abs(slope))):
                yield f"the derivative of {function} in z on a lattice of tensors"
            terms = np.array([z * in_z, w1 * in_1, w3 * in_3])
            total = terms.sum(0).real if function == "green" else terms.sum(0)
            if not np.all(abs(total - scaling) <= _SLOPE * (1 + abs(terms).sum(0))):
                yield f"{function} is homogeneous"
            if function in shape:
                terms = np.array([zeta * in_z, eta1 * in_1, eta3 * in_3])
                if not np.all(
                    abs(terms.sum(0) - shape[function]) <= _SLOPE * (1 + abs(terms).sum(0))
                ):
                    yield f"the derivative of {function} in the shape of the lattice"
    yield from _derivatives_next_to_poles(b)
    yield from _derivatives_of_the_inverse(b)


def _derivatives_next_to_poles(b: Backends) -> Iterator[str]:
    """A lattice point that the loss leaves out must not spoil the derivative in the lattice."""
    import torch

    points = torch.tensor([*_POINTS, 0.0, 3.5 + 1.75j, 0.5 + 1.75j], dtype=torch.complex128)
    kept = torch.arange(len(points)) < len(_POINTS)
    for function in OF_POINTS:
        gradients = []
        for z in (points, points[: len(_POINTS)]):
            omegas = [
                torch.tensor(w, dtype=torch.complex128, requires_grad=True)
                for w in (complex(OBLIQUE.omega1), complex(OBLIQUE.omega3))
            ]
            value = getattr(b.torch, function)(z, Lattice(*omegas)).real
            loss = torch.where(kept[: len(z)], value, 0.0).sum()
            gradients.append(torch.stack(torch.autograd.grad(loss, omegas)))
        if not bool((abs(gradients[0] - gradients[1]) <= _SLOPE * abs(gradients[1])).all()):
            yield f"a pole spoils the derivative of {function} in the lattice"


def _derivatives_of_the_inverse(b: Backends) -> Iterator[str]:
    w = (0.5 + 0.75j, -2.0 + 0.5j, 30.0 - 4.0j, 0.25, 1.5j, -0.5 - 1.0j)
    for lattice in (OBLIQUE, TURNED):
        w1, w3 = complex(lattice.omega1), complex(lattice.omega3)
        leaves = _leaves(w, w1, w3)
        for given in (lattice, Lattice(*leaves[1:])):
            z = b.torch.inverse_wp(leaves[0], given)
            (slope,) = _derivatives(z, leaves[:1])
            want = 1 / get_backend("numpy").wp_prime(z.detach().numpy(), lattice)
            if not np.all(abs(slope - want) <= _SLOPE * abs(want)):
                yield "the derivative of the inverse"
        in_w, in_1, in_3 = _derivatives(b.torch.inverse_wp(leaves[0], given), leaves)
        terms = np.array([-2 * np.array(w) * in_w, w1 * in_1, w3 * in_3])
        if not np.all(abs(terms.sum(0) - z.detach().numpy()) <= _SLOPE * (1 + abs(terms).sum(0))):
            yield "the inverse is homogeneous"


# --- Exact reduction -----------------------------------------------------------------------

EXACT_LATTICES = (
    *(family[-1] for family in cases.FAMILIES.values()),
    *(OBLIQUE, TURNED, Lattice(2.0**-60, 2.0**-60 * (0.25 + 1.5j)), Lattice(2.0**70, 2.0**71 * 1j)),
)


def reduction_is_exact(b: Backends) -> Iterator[str]:
    """z = z_r + m a + n b in fractions, z_r in its rectangle, and what is said of it is so."""
    reduction = sys.modules["backends.exact_reduction"]
    from fractions import Fraction

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
                # z_r/a = x + iy over |a|^2; tau likewise.
                norm = 4 * (a.re**2 + a.im**2)
                x = (z.re * 2 * a.re + z.im * 2 * a.im) / norm
                y = (z.im * 2 * a.re - z.re * 2 * a.im) / norm
                height = 4 * (c.im * a.re - c.re * a.im) / norm
                half = Fraction(1, 2)
                if not (-half < x <= half and -half < y / height <= half):
                    yield "z_r lies in its rectangle"
                point = frame.reduce(exact)
                if (Fraction(point.re, point.denominator), Fraction(point.im, point.denominator)) != (
                    *(x, y),
                ):
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
            4 * part * frame.norm
            for part in (c.re * a.re + c.im * a.im, c.im * a.re - c.re * a.im)
        ):
            yield "tau is b/a"


def exact_numbers(b: Backends) -> Iterator[str]:
    reduction = sys.modules["backends.exact_reduction"]
    inf, nan = math.inf, math.nan
    for bad in (True, "1", None, [1.0]):
        try:
            reduction.exact_number(bad)
        except Exception as error:
            if type(error).__name__ != "InputTypeError":
                yield "what is no number is refused by type"
        else:
            yield "what is no number is refused"
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
    found = []
    for region in cases.REGIONS:
        for family in cases.FAMILIES.values():
            lattice = family[-1]
            z = complex(cases.points(region, lattice, "complex128", 1)[0])
            for function in ("wp_and_prime", "zeta", "green"):
                found.append((function, z, lattice, oracle.REFERENCES[function](z, lattice)))
    return found


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
    reduction = sys.modules["backends.exact_reduction"]
    from fractions import Fraction

    for lattice in (OBLIQUE, TURNED, Lattice.lemniscatic()):
        w1, w3 = lattice.exact
        for m_max, n_max in ((1, 2), (3, 1)):
            box = reduction.LatticeBox(lattice, m_max, n_max)
            want = [
                (2 * m * w1.re + 2 * n * w3.re, 2 * m * w1.im + 2 * n * w3.im)
                for m in range(-m_max, m_max + 1)
                for n in range(-n_max, n_max + 1)
            ]
            z = reduction.exact_number(0.3 - 0.7j)
            got, unit = box.differences(z)
            found = sorted((z.re - Fraction(x, unit), z.im - Fraction(y, unit)) for x, y in got)
            if found != sorted(want):
                yield "the box of the truncated sum"


CHECKS: dict[str, Check] = {
    "accuracy": accuracy,
    "special values": special_values,
    "symmetries": symmetries,
    "laws": laws_hold,
    "accidental poles": accidental_poles,
    "addition": addition,
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
