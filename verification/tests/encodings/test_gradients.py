"""Gradients of every learned parameter stay finite, whatever lattice, grid and image of it.

A thousand draws of each encoding take a minute: that is a slow test. The quick one takes the first
of them.
"""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch", reason="the torch extra is not installed")

from verification.tests.encoding_cases import DEPTH, small

VARIANTS = [
    ("weierstrass", {"lattice": "general"}),
    ("weierstrass", {"fidelity": "paper"}),
    ("weierstrass", {"fidelity": "authors"}),
    ("weierstrass_fourier", {}),
    ("weierstrass_hybrid", {"wef": "weierstrass"}),
    ("weierstrass_relative", {"lattice": "general"}),
    ("weierstrass_green", {"lattice": "general"}),
]
QUICK, ALL = 20, 1000
WEIGHTS = torch.randn(10**5, generator=torch.Generator().manual_seed(0))
FIXED_ALPHA = {"weierstrass_hybrid"}  # takes it in wef_options


def draw(name, options, number):
    """Encoding `number` of this kind with random coverage and parameters, and a random grid."""
    chance = random.Random(f"{name} {options} {number}")
    grid = (chance.randint(1, 9), chance.randint(1, 9))
    if name not in FIXED_ALPHA:
        options = options | {"alpha_u": chance.uniform(0.05, 1.0)}
    encoding = small(name, grid=grid, seed=number, **options)
    with torch.no_grad():
        for key, parameter in encoding.named_parameters():
            if parameter.ndim == 0 or "raw" in key:  # lattice, scales, gates: far from the start
                parameter.add_(chance.gauss(0.0, 3.0))
    return encoding, grid


@pytest.mark.parametrize(
    "count", [QUICK, pytest.param(ALL, marks=[pytest.mark.slow, pytest.mark.nightly])]
)
@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=str)
def test_gradients_are_finite_over_random_lattices_and_grids(name, options, count):
    for number in range(count):
        encoding, grid = draw(name, options, number)
        said = [encoding.additive(grid), encoding.prefix(1)]
        with encoding.shared_pass():
            said += [encoding.bias(grid, layer) for layer in range(DEPTH)]
        said = [each for each in said if each is not None]
        total = sum((each.flatten() * WEIGHTS[: each.numel()]).sum() for each in said)
        assert torch.isfinite(total), number
        total.backward()
        for key, parameter in encoding.named_parameters():
            assert parameter.grad is not None, (number, key)
            assert torch.isfinite(parameter.grad).all(), (number, key)
