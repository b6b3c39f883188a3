"""Derivatives by torch, judged by relations between the functions, for mutants."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from verification.mutant_suspects import (
    OBLIQUE,
    OF_POINTS,
    TALL,
    TURNED,
    Array,
    Backends,
)
from wefpe_core import Lattice, get_backend

_SLOPE = 1e-12  # the promise to users for derivatives in double precision
_POINTS = (0.5 + 0.25j, -0.75 + 1.25j, 2.5 - 3.0j, 0.125j, 0.8 + 0.9j, 1.1 - 0.3j)


def _leaves(*values: Any) -> list[Any]:
    """Tensors with gradients, each as long as the points: every point has its own lattice."""
    import torch

    arrays = (np.broadcast_to(np.asarray(value, complex), len(_POINTS)) for value in values)
    return [torch.tensor(array, requires_grad=True) for array in arrays]


def _derivatives(value: Any, leaves: list[Any]) -> list[Array]:
    """The derivatives of a holomorphic function, from the gradient of its real part."""
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
    yield from _values_from_tables(b)
    yield from _values_on_tall_lattices(b)
    yield from _derivatives_next_to_poles(b)
    yield from _derivatives_of_the_inverse(b)


def _values_from_tables(b: Backends) -> Iterator[str]:
    """What ``compile=True`` runs: the constants of a lattice of numbers out of one tensor."""
    import torch

    kernel = importlib.import_module("backends.kernel")
    backend = importlib.import_module("backends.torch_backend")
    for dtype, complex_dtype in (("float64", "complex128"), ("float32", "complex64")):
        z = torch.tensor(_POINTS, dtype=getattr(torch, complex_dtype))
        for lattice in (OBLIQUE, TURNED):
            table = backend._table_of_numbers(lattice, getattr(torch, dtype), z.device)
            for function in ("wp_and_prime", "zeta", "sigma"):
                got = backend._on_table(getattr(kernel, function), z.real, z.imag, table)
                want = getattr(b.torch, function)(z, lattice)
                for g, w in zip(got, want if isinstance(want, tuple) else (want,), strict=True):
                    if not (torch.equal(g.re, w.real) and torch.equal(g.im, w.imag)):
                        yield f"{function} from a table of constants"


def _values_on_tall_lattices(b: Backends) -> Iterator[str]:
    """Where powers of the nome underflow, tensors give what numbers give."""
    z, truth = np.array(_POINTS), get_backend("numpy")
    for height in (40.0, 300.0, 1000.0):
        leaves = _leaves(z, 1.0, 1j * height)
        for function in OF_POINTS:
            value = getattr(b.torch, function)(leaves[0], Lattice(*leaves[1:]))
            want = getattr(truth, function)(z, Lattice(1.0, 1j * height))
            if not np.all(abs(value.detach().numpy() - want) <= _SLOPE * (1 + abs(want))):
                yield f"{function} on a tall lattice of tensors"


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
