"""Checks of the series: values, laws, special values, symmetries and derivatives on few points.

Ceilings are those of contracts.toml or of a documented promise; everything else must be exact.
The references are cached when the undamaged backends are checked.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from verification import cases, oracle
from verification.functions import FUNCTIONS_OF_Z, PARITY
from verification.laws import DYADIC_LATTICES, LAWS, dyadic_points, residual_in_eps
from verification.mutation.backends_under_test import (
    CONTRACTS,
    DTYPES,
    DYADIC,
    OBLIQUE,
    TALL,
    TURNED,
    VALUES_AT_Z,
    Array,
    Backends,
    broken_contracts,
    is_pole,
    reduced_periods,
)
from verification.subjects import Subject
from wefpe_core import Lattice, LatticeError, get_backend
from wefpe_core.accuracy import in_eps

# The plain relative error of wp and wp' that users are promised next to the pole at 0.
NEAR_POLE_PROMISE = 2e-15
DERIVATIVE_PROMISE = 1e-12  # in double precision


def accuracy(b: Backends) -> Iterator[str]:
    """The rows of the report about functions of z, with three points per lattice."""
    yield from broken_contracts(b, FUNCTIONS_OF_Z, cases.REGIONS, count=3)


def laws(b: Backends) -> Iterator[str]:
    z, other = dyadic_points(20, seed=cases.SEED)
    for law in LAWS:
        for lattice in DYADIC_LATTICES:
            residual = residual_in_eps(law, b.subject, z, other, lattice)
            if not residual <= CONTRACTS["laws"]["residual"]["complex128"]["largest"]:
                yield law


def special_values(b: Backends) -> Iterator[str]:
    """Lattice points, half-periods, NaN, infinities and overflow have documented values."""
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
    for function in VALUES_AT_Z:
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
    # The kernel expands around c/2 and (a + c)/2, so that wp' is exactly 0 there; not around a/2.
    if np.any(dp != 0) or not np.all(np.isfinite(p)):
        yield f"{subject.label} {dtype} wp' vanishes at half-periods"


def _values_far_away(subject: Subject, dtype: str, lattice: Lattice) -> Iterator[str]:
    """The periods have few bits, so moving an argument by them is exact and keeps the values."""
    a, c = reduced_periods(lattice)
    limit = {"complex128": 2.0**26, "complex64": 2.0**17}[dtype]
    count = limit / 16
    beyond = np.array([1.25 * limit * a, 1.25 * limit * c, 64 * limit * (a + c)], dtype)
    for function in VALUES_AT_Z:
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
    """Parity holds bit for bit, and values on lines of symmetry are exactly real or imaginary."""
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
    """The relative error that the README promises, on a lattice whose pi/a is badly rounded."""
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


# --- Derivatives by torch --------------------------------------------------------------------

_POINTS = (0.5 + 0.25j, -0.75 + 1.25j, 2.5 - 3.0j, 0.125j, 0.8 + 0.9j, 1.1 - 0.3j)


def _leaves(*values: Any) -> list[Any]:
    """Tensors that require gradients, as long as the points: every point has its own lattice."""
    import torch

    arrays = (np.broadcast_to(np.asarray(value, complex), len(_POINTS)) for value in values)
    return [torch.tensor(array, requires_grad=True) for array in arrays]


def _derivatives(value: Any, leaves: list[Any]) -> list[Array]:
    """The derivatives of a holomorphic function, from the gradient of its real part."""
    import torch

    parts = torch.autograd.grad(value.real.sum(), leaves)
    return [part.conj().resolve_conj().numpy() for part in parts]


def _agree(got: Array, want: Array, size: Array) -> bool:
    """Whether all errors, relative to `size`, are within the promise."""
    return bool(np.all(abs(got - want) <= DERIVATIVE_PROMISE * size))


def derivatives(b: Backends) -> Iterator[str]:
    """Derivatives in z are known; those in the lattice obey relations of Euler and Frobenius."""
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
            if not _agree(in_z, slope, 1 + abs(slope)):
                yield f"the derivative of {function} in z"
            leaves = _leaves(z, w1, w3)
            value = getattr(b.torch, function)(leaves[0], Lattice(*leaves[1:]))
            in_z, in_1, in_3 = _derivatives(value, leaves)
            if not _agree(in_z, slope, 1 + abs(slope)):
                yield f"the derivative of {function} in z on a lattice of tensors"
            terms = np.array([z * in_z, w1 * in_1, w3 * in_3])
            total = terms.sum(0).real if function == "green" else terms.sum(0)
            if not _agree(total, scaling, 1 + abs(terms).sum(0)):
                yield f"{function} is homogeneous"
            if function in shape:
                terms = np.array([zeta * in_z, eta1 * in_1, eta3 * in_3])
                if not _agree(terms.sum(0), shape[function], 1 + abs(terms).sum(0)):
                    yield f"the derivative of {function} in the shape of the lattice"
    yield from _values_from_tables(b)
    yield from _slopes_by_theorem(b)
    yield from _values_on_tall_lattices(b)
    yield from _derivatives_next_to_poles(b)
    yield from _derivatives_of_the_inverse(b)


def _values_from_tables(b: Backends) -> Iterator[str]:
    """``compile=True`` takes the constants of a lattice from a tensor; the values are the same."""
    import torch

    operators = importlib.import_module("backends.torch_operators")
    runners = importlib.import_module("backends.torch_runners")
    for dtype, complex_dtype in (("float64", "complex128"), ("float32", "complex64")):
        z = torch.tensor(_POINTS, dtype=getattr(torch, complex_dtype))
        points = torch.view_as_real(z)
        for lattice in (OBLIQUE, TURNED):
            table = operators.table_of_numbers(lattice, getattr(torch, dtype), z.device)
            for function in ("wp_and_prime", "zeta", "sigma"):
                got = runners.rows_on_table(points, table, function, "z", 0)[0]
                with torch.autograd.forward_ad.dual_level():  # by torch's own operators
                    want = getattr(b.torch, function)(z, lattice)
                want = torch.stack(want if isinstance(want, tuple) else (want,))
                if not torch.equal(got, torch.stack((want.real, want.imag), 1)):
                    yield f"{function} from a table of constants"


def _slopes_by_theorem(b: Backends) -> Iterator[str]:
    """First derivatives are those that autograd finds, which differentiates them again."""
    import torch

    for lattice in (OBLIQUE, Lattice(1.5, 3.5 + 1.25j)):
        for function in ("wp", "wp_prime", "zeta", "sigma", "green", "inverse_wp"):
            leaves = _leaves(np.array(_POINTS), complex(lattice.omega1), complex(lattice.omega3))
            value = getattr(b.torch, function)(leaves[0], Lattice(*leaves[1:]))
            weights = torch.linspace(1.0, 2.0, len(_POINTS), dtype=torch.float64)
            loss = (weights * value.abs()).sum() if value.is_complex() else (weights * value).sum()
            by_theorem = torch.autograd.grad(loss, leaves, retain_graph=True)
            by_autograd = torch.autograd.grad(loss, leaves, create_graph=True)
            for got, want in zip(by_theorem, by_autograd, strict=True):
                size = abs(want.detach().numpy())
                if not _agree(got.numpy(), want.detach().numpy(), 1 + 1e3 * size):
                    yield f"the slopes of {function} by theorem"


def _values_on_tall_lattices(b: Backends) -> Iterator[str]:
    """Where powers of the nome underflow, a lattice of tensors gives the same values."""
    z, truth = np.array(_POINTS), get_backend("numpy")
    for height in (40.0, 300.0, 1000.0):
        leaves = _leaves(z, 1.0, 1j * height)
        for function in VALUES_AT_Z:
            value = getattr(b.torch, function)(leaves[0], Lattice(*leaves[1:]))
            want = getattr(truth, function)(z, Lattice(1.0, 1j * height))
            if not _agree(value.detach().numpy(), want, 1 + abs(want)):
                yield f"{function} on a tall lattice of tensors"


def _derivatives_next_to_poles(b: Backends) -> Iterator[str]:
    """A pole that the loss leaves out must not spoil the derivative in the lattice."""
    import torch

    points = torch.tensor([*_POINTS, 0.0, 3.5 + 1.75j, 0.5 + 1.75j], dtype=torch.complex128)
    kept = torch.arange(len(points)) < len(_POINTS)
    for function in VALUES_AT_Z:
        gradients = []
        for z in (points, points[: len(_POINTS)]):
            omegas = [
                torch.tensor(w, dtype=torch.complex128, requires_grad=True)
                for w in (complex(OBLIQUE.omega1), complex(OBLIQUE.omega3))
            ]
            value = getattr(b.torch, function)(z, Lattice(*omegas)).real
            loss = torch.where(kept[: len(z)], value, 0.0)
            gradients.append(np.array(_derivatives(loss, omegas)))
        if not _agree(gradients[0], gradients[1], abs(gradients[1])):
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
            if not _agree(slope, want, abs(want)):
                yield "the derivative of the inverse"
        in_w, in_1, in_3 = _derivatives(b.torch.inverse_wp(leaves[0], given), leaves)
        terms = np.array([-2 * np.array(w) * in_w, w1 * in_1, w3 * in_3])
        if not _agree(terms.sum(0), z.detach().numpy(), 1 + abs(terms).sum(0)):
            yield "the inverse is homogeneous"
