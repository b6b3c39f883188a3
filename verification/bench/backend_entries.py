"""What the benchmark of the backends times: entries, comparisons, and how each work is prepared.

Importing this module imports no backend; an entry imports its own when it is prepared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from verification.bench.benchmark import Work
from wefpe_core import Lattice, get_backend

SEED = 20250826
LATTICE = Lattice(1.0, 0.3 + 0.9j)
GRID_POINTS = 14 * 14  # the patches of a 224 x 224 image
TRUNCATION = 12

Points = npt.NDArray[Any]


@dataclass(frozen=True)
class BackendEntry:
    """One row: `prepare` gets the points and the device of torch, and returns what is timed."""

    name: str
    prepare: Callable[[Points, str], Work]
    needs: str | None = None  # a library that may be absent
    dtype: str = "complex128"
    max_points: int = 10**9  # slow work gets fewer points; all figures are per point
    at_most: float | None = None  # promised multiple of the time of numpy.exp
    compiles: bool = False


class Comparison(NamedTuple):
    """The time per point of one entry as a multiple of that of another."""

    slower: str
    faster: str
    at_most: float | None = None
    at_least: float | None = None


def uniform_points(count: int, dtype: str = "complex128") -> Points:
    """`count` points uniform in the period parallelogram, the same ones in every run."""
    s, r = np.random.default_rng(SEED).random((2, count))
    points: Points = 2.0 * (s * LATTICE.omega1 + r * LATTICE.omega3)
    return points.astype(dtype)


PARAMETER = 0.3  # m of Jacobi's functions
ELLIPJ, ELLIPJ_SCIPY = "numpy compiled: ellipj of real u", "scipy: ellipj of real u"


def ellipj_of(backend: str, **options: Any) -> Callable[[Points, str], Work]:
    """sn, cn, dn and am of real arguments, all of them, as SciPy computes them."""

    def prepare(z: Points, device: str) -> Work:
        function, u = get_backend(backend, **options).ellipj, np.ascontiguousarray(z.real)
        return lambda: function(u, PARAMETER)

    return prepare


def ellipj_of_scipy(z: Points, device: str) -> Work:
    from scipy.special import ellipj

    u = np.ascontiguousarray(z.real)
    return lambda: ellipj(u, PARAMETER)


def numpy_function(name: str) -> Callable[[Points, str], Work]:
    def prepare(z: Points, device: str) -> Work:
        function = getattr(get_backend("numpy"), name)
        return lambda: function(z, LATTICE)

    return prepare


def numpy_compiled(name: str, threads: int = 1) -> Callable[[Points, str], Work]:
    def prepare(z: Points, device: str) -> Work:
        function = getattr(get_backend("numpy", compile=True, threads=threads), name)
        return lambda: function(z, LATTICE)

    return prepare


def numpy_loop(name: str, **options: bool) -> Callable[[Points, str], Work]:
    """One Python number in each call."""

    def prepare(z: Points, device: str) -> Work:
        function, numbers = getattr(get_backend("numpy", **options), name), z.tolist()
        return lambda: [function(number, LATTICE) for number in numbers]

    return prepare


def torch_function(name: str, **options: bool) -> Callable[[Points, str], Work]:
    def prepare(z: Points, device: str) -> Work:
        import torch

        function = getattr(get_backend("torch", **options), name)
        tensor = torch.from_numpy(z).to(device)
        return lambda: function(tensor, LATTICE)

    return prepare


def torch_step(*, lattice: bool, **options: bool) -> Callable[[Points, str], Work]:
    """Forward and backward of wp and wp', in z or in z, omega1 and omega3.

    The gradients that arrive are given, so that no loss is timed.
    """

    def prepare(z: Points, device: str) -> Work:
        import torch

        backend = get_backend("torch", **options)
        leaves = [torch.from_numpy(z).to(device).requires_grad_()]
        where = LATTICE
        if lattice:
            leaves += [
                torch.tensor(omega, dtype=torch.complex128, device=device, requires_grad=True)
                for omega in (LATTICE.omega1, LATTICE.omega3)
            ]
            where = Lattice(*leaves[1:])

        given = [torch.full_like(leaves[0], 1 + 1j, requires_grad=False) for _ in range(2)]

        def step() -> object:
            return torch.autograd.grad(backend.wp_and_prime(leaves[0], where), leaves, given)

        return step

    return prepare


def jax_function(name: str) -> Callable[[Points, str], Work]:
    """What JAX compiles at the first call; it gets double precision."""

    def prepare(z: Points, device: str) -> Work:
        import jax

        jax.config.update("jax_enable_x64", True)
        backend = get_backend("jax")
        array, function = backend.from_numpy(z), getattr(backend, name)
        return lambda: jax.block_until_ready(function(array, LATTICE))

    return prepare


def jax_compilation(z: Points, device: str) -> Work:
    """Tracing and compiling wp and wp' anew; divided by the points like all figures."""
    import jax

    jax.config.update("jax_enable_x64", True)
    backend = get_backend("jax")
    array = backend.from_numpy(z)
    return lambda: jax.jit(lambda z: backend.wp_and_prime(z, LATTICE)).lower(array).compile()


def numpy_lattice_sum(z: Points, device: str) -> Work:
    backend = get_backend("numpy")
    return lambda: backend.lattice_sum(z, LATTICE, TRUNCATION, TRUNCATION)


def torch_lattice_sum(z: Points, device: str) -> Work:
    import torch

    backend, tensor = get_backend("torch"), torch.from_numpy(z).to(device)
    return lambda: backend.lattice_sum(tensor, LATTICE, TRUNCATION, TRUNCATION)


def published_lattice_sum(z: Points, device: str) -> Work:
    """The sum as the scripts published with the paper organise it: one lattice point a step.

    Each step masks what is close to the lattice point and clips both parts of its terms. It is
    here to be timed; the claims compute its values by the listing in NumPy, which counts the clips.
    """
    import torch

    from verification.claims.numpy_listing import NEAR_POLE, OUTPUT_LIMIT, TERM_LIMIT, box_points

    tensor = torch.from_numpy(z).to(device)
    box = box_points((LATTICE.omega1, LATTICE.omega3), TRUNCATION, TRUNCATION)
    periods = sorted(box.tolist(), key=abs)

    def clipped(term: Any, limit: float) -> Any:
        return torch.complex(term.real.clamp(-limit, limit), term.imag.clamp(-limit, limit))

    def work() -> object:
        wp, wp_prime = tensor**-2, -2.0 * tensor**-3
        for period in periods:
            difference = tensor - period
            is_far = difference.abs() > NEAR_POLE
            if is_far.any():
                far = difference[is_far]
                wp[is_far] += clipped(1.0 / far**2 - 1.0 / period**2, TERM_LIMIT)
                wp_prime[is_far] += clipped(-2.0 / far**3, TERM_LIMIT)
        return clipped(wp, OUTPUT_LIMIT), clipped(wp_prime, OUTPUT_LIMIT)

    return work


def flint_loop(z: Points, device: str) -> Work:
    """wp alone, because python-flint has no derivative; its periods are 1 and tau."""
    from flint import acb, ctx

    with ctx.workprec(128):
        tau = acb(LATTICE.omega3) / acb(LATTICE.omega1)
        arguments = [acb(value) / acb(2.0 * LATTICE.omega1) for value in z.tolist()]

    def work() -> object:
        with ctx.workprec(128):
            return [argument.elliptic_p(tau) for argument in arguments]

    return work


def backend_loop(name: str, **options: int) -> Callable[[Points, str], Work]:
    def prepare(z: Points, device: str) -> Work:
        backend, numbers = get_backend(name, **options), z.tolist()
        return lambda: backend.wp_and_prime(numbers, LATTICE)

    return prepare


def pari_loop(z: Points, device: str) -> Work:
    from cypari import pari

    periods = pari([2.0 * LATTICE.omega1, 2.0 * LATTICE.omega3])
    arguments = [pari(value) for value in z.tolist()]
    return lambda: [pari.ellwp(periods, argument, 1) for argument in arguments]


def elliptix_loop(z: Points, device: str) -> Work:
    from elliptix import weierstrass_p, weierstrass_p_prime

    g2, g3 = (complex(g) for g in get_backend("numpy").invariants(LATTICE))
    numbers = z.tolist()
    return lambda: [
        (weierstrass_p(value, g2, g3), weierstrass_p_prime(value, g2, g3)) for value in numbers
    ]


def real_parameters(z: Points) -> npt.NDArray[np.float64]:
    """Parameters m in [0, 1), one for each point."""
    return np.random.default_rng(SEED).random(len(z))


def ellipk_of(backend: str, **options: Any) -> Callable[[Points, str], Work]:
    def prepare(z: Points, device: str) -> Work:
        function, m = get_backend(backend, **options).ellipk, real_parameters(z)
        return lambda: function(m)

    return prepare


def scipy_ellipk(z: Points, device: str) -> Work:
    from scipy.special import ellipk

    m = real_parameters(z)
    return lambda: ellipk(m)


NUMPY_NUMBER = "numpy: wp alone, one number in a call"
NUMPY_NUMBER_BOTH = "numpy: wp, wp', one number in a call"
NUMBA_NUMBER = "numpy compiled: wp, wp', one number in a call"
NUMBA = "numpy compiled: wp, wp'"
NUMBA_THREADS = "numpy compiled: wp, wp', 2 threads"
COMPILED = "torch compiled: wp, wp'"
COMPILED_GRID = "torch compiled: wp, wp', 14 x 14 grid"
COMPILED_STEP = "torch compiled: forward + backward in z"
COMPILED_LATTICE_STEP = "torch compiled: forward + backward in z and lattice"
JAX = "jax: wp, wp'"
JAX_COMPILATION = "jax: compiling wp, wp' for 20 000 points"
EAGER = "torch eager: wp, wp'"
EAGER_STEP = "torch eager: forward + backward in z"
EAGER_LATTICE_STEP = "torch eager: forward + backward in z and lattice"
SUM_NUMPY = "12 x 12 sum, numpy, vectorised"
SUM_TORCH = "12 x 12 sum, torch eager, vectorised"
SUM_PUBLISHED = "12 x 12 sum, term by term as published"
SUM_PUBLISHED_GRID = "12 x 12 sum, term by term as published, 14 x 14 grid"
FLINT = "python-flint at 128 bit: wp alone, in a loop"
FLINT_BACKEND = "flint backend, 30 certified digits: wp, wp'"
MPMATH_BACKEND = "mpmath backend, 15 digits: wp, wp'"
PARI = "cypari: wp, wp', in a loop"
ELLIPTIX = "elliptix: wp, wp', in a loop"

ELLIPK, ELLIPK_SCIPY = "numpy compiled: ellipk of real m", "scipy: ellipk of real m"

_WP = "wp_and_prime"
_COMPILED = torch_function(_WP, compile=True)

ENTRIES = (
    BackendEntry("numpy: wp, wp'", numpy_function(_WP), at_most=10.0),
    BackendEntry("numpy: wp, wp', complex64", numpy_function(_WP), dtype="complex64"),
    BackendEntry("numpy: zeta", numpy_function("zeta")),
    BackendEntry("numpy: sigma", numpy_function("sigma")),
    BackendEntry("numpy: green", numpy_function("green")),
    BackendEntry("numpy: inverse_wp", numpy_function("inverse_wp"), max_points=200_000),
    BackendEntry("numpy: ellipj", ellipj_of("numpy")),
    BackendEntry(ELLIPJ, ellipj_of("numpy", compile=True), "numba"),
    BackendEntry(ELLIPJ_SCIPY, ellipj_of_scipy, "scipy"),
    BackendEntry(NUMPY_NUMBER, numpy_loop("wp"), max_points=5_000),
    BackendEntry(NUMPY_NUMBER_BOTH, numpy_loop(_WP), max_points=5_000),
    BackendEntry(NUMBA_NUMBER, numpy_loop(_WP, compile=True), "numba", max_points=5_000),
    BackendEntry(NUMBA, numpy_compiled(_WP), "numba", at_most=5.0),
    BackendEntry(f"{NUMBA}, complex64", numpy_compiled(_WP), "numba", "complex64"),
    BackendEntry(NUMBA_THREADS, numpy_compiled(_WP, 2), "numba"),
    BackendEntry(COMPILED, _COMPILED, "torch", at_most=2.0, compiles=True),
    BackendEntry(COMPILED_GRID, _COMPILED, "torch", max_points=GRID_POINTS),
    BackendEntry(f"{COMPILED}, complex64", _COMPILED, "torch", "complex64", compiles=True),
    BackendEntry(COMPILED_STEP, torch_step(lattice=False, compile=True), "torch", compiles=True),
    BackendEntry(
        COMPILED_LATTICE_STEP, torch_step(lattice=True, compile=True), "torch", compiles=True
    ),
    BackendEntry(JAX, jax_function(_WP), "jax"),
    BackendEntry(f"{JAX}, complex64", jax_function(_WP), "jax", "complex64"),
    BackendEntry(JAX_COMPILATION, jax_compilation, "jax", max_points=20_000, compiles=True),
    BackendEntry(EAGER, torch_function(_WP), "torch", max_points=20_000),
    BackendEntry(EAGER_STEP, torch_step(lattice=False), "torch", max_points=20_000),
    BackendEntry(EAGER_LATTICE_STEP, torch_step(lattice=True), "torch", max_points=20_000),
    BackendEntry(SUM_NUMPY, numpy_lattice_sum, max_points=20_000),
    BackendEntry(SUM_TORCH, torch_lattice_sum, "torch", max_points=20_000),
    BackendEntry(SUM_PUBLISHED, published_lattice_sum, "torch", max_points=10_000),
    BackendEntry(SUM_PUBLISHED_GRID, published_lattice_sum, "torch", max_points=GRID_POINTS),
    BackendEntry(FLINT, flint_loop, "flint", max_points=5_000),
    BackendEntry(FLINT_BACKEND, backend_loop("flint", digits=30), "flint", max_points=1_000),
    BackendEntry(MPMATH_BACKEND, backend_loop("mpmath", dps=15), max_points=200),
    BackendEntry(PARI, pari_loop, "cypari", max_points=5_000),
    BackendEntry(ELLIPTIX, elliptix_loop, "elliptix", max_points=1_000),
    BackendEntry("numpy: ellipk of real m", ellipk_of("numpy")),
    BackendEntry(ELLIPK, ellipk_of("numpy", compile=True), "numba"),
    BackendEntry(ELLIPK_SCIPY, scipy_ellipk, "scipy"),
)

COMPARISONS = (
    # The published module evaluates one grid per call, so that is the cost of its points.
    Comparison(SUM_PUBLISHED_GRID, COMPILED, at_least=5000.0),
    Comparison(SUM_PUBLISHED_GRID, COMPILED_GRID),
    Comparison(SUM_PUBLISHED, COMPILED),
    Comparison(SUM_NUMPY, COMPILED),
    Comparison(SUM_TORCH, COMPILED),
    Comparison(FLINT, COMPILED, at_least=500.0),
    Comparison(FLINT, NUMPY_NUMBER, at_least=1.0),
    Comparison(NUMBA, NUMBA_THREADS),
    Comparison(ELLIPJ_SCIPY, ELLIPJ, at_least=1.0),
    Comparison(ELLIPK_SCIPY, ELLIPK, at_least=1.0),
    Comparison(FLINT_BACKEND, COMPILED),
    Comparison(MPMATH_BACKEND, COMPILED),
    Comparison(JAX, COMPILED),
    Comparison(PARI, COMPILED),
    Comparison(ELLIPTIX, COMPILED),
    Comparison(EAGER, COMPILED),
    Comparison(COMPILED_STEP, COMPILED, at_most=1.6),
    Comparison(COMPILED_LATTICE_STEP, COMPILED, at_most=2.5),
    Comparison(EAGER_STEP, EAGER),
    Comparison(EAGER_LATTICE_STEP, EAGER),
)
