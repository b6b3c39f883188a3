"""One graph for every encoding: torch.compile(fullgraph=True), forward and backward.

Tracing the elliptic functions of a learned lattice takes a minute; those tests are slow ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the torch extra is not installed")

from verification.tests.encoding_cases import (
    CEILINGS,
    DIM,
    NAMES,
    error_in_eps,
    small,
    tokens,
)

# Both come from inside torch's compiler: see test_torch_compile.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning"),
]

QUICK = [
    ("weierstrass", {"learnable": False, "backend": "mpmath"}),
    ("weierstrass_green", {"learnable": False, "backend": "numpy"}),
]
SLOW = [
    *((name, {}) for name in NAMES),
    ("weierstrass", {"fidelity": "paper"}),
    ("weierstrass", {"fidelity": "authors"}),
    ("weierstrass_relative", {"learnable": False}),
    ("weierstrass_fourier", {"fidelity": "authors", "recipe": "svhn"}),
]


@pytest.fixture(autouse=True)
def _compilers_start_and_end_empty() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize(
    ("name", "options"),
    [*QUICK, *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW)],
)
def test_a_step_with_an_encoding_is_one_graph(name, options):
    grid = (3, 4)
    encoding = small(name, grid=grid, **options)
    for module in encoding.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    q, k = tokens(grid)
    patches = torch.ones(12, DIM, requires_grad=True)

    def step(patches):
        table = encoding.additive(grid)
        x = patches if table is None else patches + table
        rotated_q, rotated_k = encoding.rotate(q, k, grid, 1)
        logits = torch.einsum("bhid,bhjd->bhij", rotated_q, rotated_k)
        bias = encoding.bias(grid, 1)
        logits = logits if bias is None else logits + bias
        # Not the sum of squares: after LayerNorm it is constant, and its gradient rounding.
        weighted = x * torch.linspace(0.5, 1.5, x.numel()).view_as(x)
        return weighted.square().sum() + logits.softmax(dim=-1).square().sum()

    def gradients():
        found = [p.grad for p in encoding.parameters()]
        encoding.zero_grad()
        return found

    want = step(patches)
    want.backward()
    expected = gradients()
    got = torch.compile(step, backend="aot_eager", fullgraph=True)(patches)
    got.backward()
    ceiling = CEILINGS["single"]["float32"]
    assert error_in_eps(got, want, torch.float32) <= ceiling
    for a, b in zip(gradients(), expected, strict=True):
        assert (a is None) == (b is None)
        if a is not None and b.any():
            assert error_in_eps(a, b, torch.float32) <= ceiling


class WithPositions(torch.nn.Module):  # type: ignore[name-defined,misc]
    """Patch tokens plus the table of an encoding."""

    def __init__(self, encoding: Any) -> None:
        super().__init__()
        self.encoding = encoding

    def forward(self, patches: Any) -> Any:
        return patches + self.encoding.additive((8, 8))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning")  # from torch's own serialisation
def test_a_learned_lattice_can_be_exported_and_compiled_ahead_of_time(tmp_path):
    module = WithPositions(small("weierstrass", grid=(8, 8)).eval())
    patches = torch.randn(1, 64, module.encoding.size.dim)
    with torch.no_grad():
        want = module(patches)
        program = torch.export.export(module, (patches,))
        # Not to the bit: a graph sums the products of few features in an order of its own.
        exported = program.module()(patches)
        assert error_in_eps(exported, want, torch.float32) <= CEILINGS["features"]["float32"]
        path = torch._inductor.aoti_compile_and_package(
            program, package_path=str(tmp_path / "encoding.pt2")
        )
        got = torch._inductor.aoti_load_package(path)(patches)
    assert error_in_eps(got, want, torch.float32) <= CEILINGS["features"]["float32"]
