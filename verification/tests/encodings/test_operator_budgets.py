"""A learned lattice costs few operators: the budgets of contracts.toml, counted and not timed."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the torch extra is not installed")

from training.models import build_vit
from verification.bench.count_models import (
    StepCounts,
    budget,
    ceilings_of,
    counts_of,
    encoding_step,
    learned_lattices,
    model_step,
)
from verification.bench.count_operators import count_compiled
from verification.tests.encoding_cases import NAMES, small

GRIDS = [(8, 8), (14, 14), (5, 8), (1, 7)]
LEARNED: list[tuple[str, dict[str, Any]]] = [
    ("weierstrass", {}),
    ("weierstrass", {"lattice": "general"}),
    ("weierstrass", {"origin": "half_period"}),
    ("weierstrass", {"learn_alpha": True}),
    ("weierstrass", {"projection": "mlp"}),
    ("weierstrass_fourier", {}),
    ("weierstrass_hybrid", {}),
    ("weierstrass_hybrid", {"wef": "weierstrass"}),
    ("weierstrass_relative", {}),
    ("weierstrass_relative", {"lattice": "general", "diagonal": "zero"}),
    ("weierstrass_green", {}),
    ("weierstrass_green", {"lattice": "general", "diagonal": "nearest"}),
    ("weierstrass_heat", {}),
    ("weierstrass_heat", {"lattice": "general"}),
    ("weierstrass_heat", {"centres": "zero", "per_layer": False}),
    ("combined", {}),
]

every_learned = pytest.mark.parametrize(("name", "options"), LEARNED, ids=str)


def counted(name: str, grid: tuple[int, int], layers: int = 1, **options: Any) -> StepCounts:
    encoding = small(name, grid=grid, **options).train()
    step = encoding_step(encoding, 2, "cpu", layers=layers)
    return counts_of(step, compiled=False)


def test_every_encoding_that_learns_a_lattice_is_here():
    learning = {name for name in NAMES if learned_lattices(small(name))}
    assert learning == {name for name, _ in LEARNED}
    assert all(learned_lattices(small(name, **options)) for name, options in LEARNED)


@every_learned
def test_operators_of_a_learned_lattice_keep_to_their_budget_on_every_grid(name, options):
    counts = {grid: counted(name, grid, **options).both for grid in GRIDS}
    totals = {grid: found.total for grid, found in counts.items()}
    most = counts[GRIDS[0]].names.most_common(5)
    assert min(totals.values()) > 0
    assert max(totals.values()) <= ceilings_of(small(name, **options))["eager"], (totals, most)


@every_learned
def test_a_further_layer_adds_few_operators(name, options):
    one, three = (counted(name, (5, 8), layers, **options).both.total for layers in (1, 3))
    allowed = learned_lattices(small(name, **options)) * budget("further layer", "eager")
    assert (three - one) / 2 <= allowed


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.filterwarnings("ignore:Torchinductor does not support code generation for complex")
@every_learned
def test_compiled_kernels_of_a_learned_lattice_keep_to_their_budget(name, options):
    encoding = small(name, grid=(8, 8), **options).train()
    step = encoding_step(encoding, 2, "cpu", layers=1)
    assert step is not None
    calls = count_compiled(step)
    assert 0 < calls.total <= ceilings_of(encoding)["compiled"], calls


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_a_compiled_model_gains_few_calls_from_its_encoding():
    calls = {}
    for name in ("none", "weierstrass"):
        model = build_vit("micro", encoding=name, depth=1, num_classes=10).train()
        images, labels = torch.randn(2, 3, 32, 32), torch.tensor([3, 7])
        calls[name] = count_compiled(model_step(model, images, labels)).total
    assert calls["none"] > 0
    assert calls["weierstrass"] - calls["none"] <= budget("whole model", "compiled"), calls
