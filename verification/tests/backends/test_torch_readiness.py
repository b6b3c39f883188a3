"""What a GPU will ask of every public method of the torch backend, asked without one.

One table of methods, on lattices of numbers and of tensors. Each must become a whole graph, be
exported, tell shapes on the meta device, meet no tensor of the host there, wait for nothing and
need no double. Values, gradients and dtypes are in test_torch_structure and test_torch_compile.
"""

import ast
import inspect
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("torch", reason="the torch extra is not installed")

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import backends
from verification.tests.backends.test_torch_structure import (
    NoDoubles,
    NothingWaits,
    careless_factories,
)
from wefpe_core import AbstractBackend, Lattice, get_backend

# Both come from inside torch's compiler.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning"),
]

BACKEND = get_backend("torch")
OMEGAS = (1.0 - 0.25j, 0.5 + 1.5j)
NUMBERS = Lattice(*OMEGAS)


class Method(NamedTuple):
    """How a public method is called, and what it depends on."""

    call: Callable[[Any, Any], Any]  # of points and a lattice (or points only)
    takes: str  # "points", "lattice" or "invariants"
    results: int
    is_real: bool = False


def of_points(name: str, *options: int, results: int = 1, is_real: bool = False) -> Method:
    return Method(
        lambda z, lattice: getattr(BACKEND, name)(z, lattice, *options), "points", results, is_real
    )


def at_a_time(name: str) -> Method:
    return Method(
        lambda z, lattice: getattr(BACKEND, name)(z, 0.5, lattice), "points", 1, is_real=True
    )


def of_the_lattice(name: str, results: int) -> Method:
    return Method(lambda _, lattice: getattr(BACKEND, name)(lattice), "lattice", results)


def half_periods_of(lattice: Lattice) -> tuple[Any, Any]:
    return lattice.omega1, lattice.omega3


METHODS: dict[str, Method] = {
    "wp": of_points("wp"),
    "wp_prime": of_points("wp_prime"),
    "wp_and_prime": of_points("wp_and_prime", results=2),
    "zeta": of_points("zeta"),
    "sigma": of_points("sigma"),
    "inverse_wp": of_points("inverse_wp"),
    "green": of_points("green", is_real=True),
    "wp_derivative": of_points("wp_derivative", 3),
    "log_sigma": of_points("log_sigma"),
    "modified_zeta": of_points("modified_zeta"),
    "modified_sigma": of_points("modified_sigma"),
    "heat": at_a_time("heat"),
    "log_heat": at_a_time("log_heat"),
    "lattice_sum": of_points("lattice_sum", 1, 2, results=2),
    "add": Method(
        lambda z, lattice: BACKEND.add(z, z + 1, z + 2, z - 3, lattice), "points", results=2
    ),
    "invariants": of_the_lattice("invariants", 2),
    "roots": of_the_lattice("roots", 3),
    "quasi_periods": of_the_lattice("quasi_periods", 2),
    "laurent_coefficients": Method(
        lambda _, lattice: BACKEND.laurent_coefficients(lattice, 3).unbind(-1), "lattice", 3
    ),
    "lattice_from_invariants": Method(
        lambda z, _: half_periods_of(BACKEND.lattice_from_invariants(z, 0.25)), "invariants", 2
    ),
}

# These take no lattice, or are made of functions that are asked. test_elliptic_family.py and
# test_jacobi_functions.py ask about their gradients and dtypes.
NOT_ASKED = {
    *("from_numpy", "to_numpy", "abel_jacobi", "inverse_wp_real", "eisenstein_series", "sigma_k"),
    *("jtheta", "log_jtheta", "ellipj", "jacobi", "jacobi_am"),
    *("klein_j", "inverse_klein_j", "dedekind_eta", "modular_lambda", "eisenstein"),
    *("ellipk", "ellipe", "ellipkinc", "ellipeinc", "ellippi", "ellippiinc"),
    *("elliprf", "elliprd", "elliprj", "elliprc"),
}


def public_methods(backend: type) -> set[str]:
    return {
        name for name, value in inspect.getmembers(backend, callable) if not name.startswith("_")
    }


def test_every_public_method_is_in_the_table() -> None:
    """A new method is asked the same questions, or this fails."""
    assert public_methods(type(BACKEND)) == set(METHODS) | NOT_ASKED
    assert public_methods(AbstractBackend) == set(METHODS) | NOT_ASKED


def test_a_method_that_is_not_in_the_table_is_noticed() -> None:
    class Longer(type(BACKEND)):  # type: ignore[misc]
        def wp_second(self, z: Any, lattice: Lattice) -> Any: ...

    assert public_methods(Longer) - set(METHODS) - NOT_ASKED == {"wp_second"}


# A lattice of numbers is nothing to the inversion of invariants, and a lattice of numbers has
# constants of numbers: double precision, on the host, as documented.
CASES = [
    (name, kind)
    for name, method in METHODS.items()
    for kind in ("numbers", "tensors", "mixed")
    if method.takes == "points" or kind == "tensors" or (method.takes, kind) == ("lattice", "mixed")
]
every_case = pytest.mark.parametrize(("name", "kind"), CASES)
every_precision = pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])


def points(dtype: torch.dtype, device: str = "cpu") -> torch.Tensor:
    numbers = [[0.5 + 0.25j, -0.75 + 1.25j], [2.5 - 3.0j, 0.125j], [0.0, 1.0]]
    return torch.tensor(numbers, dtype=dtype, device=device)


def half_periods(dtype: torch.dtype, device: str = "cpu") -> tuple[torch.Tensor, torch.Tensor]:
    omega1, omega3 = (torch.tensor(w, dtype=dtype, device=device) for w in OMEGAS)
    return omega1, omega3


def evaluated(name: str, kind: str, z: Any, omega1: Any, omega3: Any) -> tuple[Any, ...]:
    lattice = {
        "numbers": NUMBERS,
        "tensors": Lattice(omega1, omega3),
        "mixed": Lattice(OMEGAS[0], omega3),
    }[kind]
    value = METHODS[name].call(z, lattice)
    return value if isinstance(value, tuple) else (value,)


# --- Whole graphs --------------------------------------------------------------------------


class Evaluation(torch.nn.Module):
    def __init__(self, name: str, kind: str) -> None:
        super().__init__()
        self.name, self.kind = name, kind

    def forward(self, z: Any, omega1: Any, omega3: Any) -> tuple[Any, ...]:
        return evaluated(self.name, self.kind, z, omega1, omega3)


@pytest.fixture
def _empty_compilers() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def assert_same(got: tuple[Any, ...], want: tuple[Any, ...]) -> None:
    for g, w in zip(got, want, strict=True):
        assert g.dtype == w.dtype
        assert torch.equal(torch.view_as_real(g + 0j).isnan(), torch.view_as_real(w + 0j).isnan())
        assert torch.equal(g.nan_to_num(), w.nan_to_num())


# Tracing the constants of a lattice of tensors takes some seconds, and is the same for all; in
# single precision it takes least. Most of what is not traced in test_torch_compile runs always,
# the others are left to the night.
QUICK_GRAPHS = {("lattice_sum", "tensors"), ("lattice_sum", "mixed")}
QUICK_EXPORTS = QUICK_GRAPHS | {
    *(("lattice_sum", "numbers"), ("add", "numbers"), ("lattice_from_invariants", "tensors"))
}


AT_NIGHT = [pytest.mark.slow, pytest.mark.nightly]


def with_slow_ones(
    cases: list[tuple[str, str]], quick: set[tuple[str, str]]
) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        ("name", "kind"),
        [pytest.param(*case, marks=[] if case in quick else AT_NIGHT) for case in cases],
    )


@pytest.mark.usefixtures("_empty_compilers")
@with_slow_ones([case for case in CASES if "numbers" not in case], QUICK_GRAPHS)
def test_a_call_is_one_graph(name: str, kind: str) -> None:
    inputs = (points(torch.complex64), *half_periods(torch.complex64))
    module = Evaluation(name, kind)
    graph = torch.compile(module, backend="eager", fullgraph=True)
    assert_same(graph(*inputs), module(*inputs))


def test_every_public_method_is_traced_on_a_lattice_of_numbers() -> None:
    from verification.tests.backends import test_torch_compile

    by_itself = {"wp", "wp_prime", "lattice_from_invariants"}
    assert set(test_torch_compile.OF_POINTS) | by_itself == set(METHODS)


@with_slow_ones(CASES, QUICK_EXPORTS)
def test_a_call_can_be_exported(name: str, kind: str) -> None:
    inputs = (points(torch.complex64), *half_periods(torch.complex64))
    module = Evaluation(name, kind)
    program = torch.export.export(module, inputs)
    # On a lattice of numbers the graph has torch's own operators, in which forward mode runs too.
    with torch.autograd.forward_ad.dual_level() if kind == "numbers" else nullcontext():
        want = module(*inputs)
    assert_same(program.module()(*inputs), want)


# --- The meta device -----------------------------------------------------------------------


class NoHost(TorchDispatchMode):
    """Raises where an operation takes or makes a tensor on the host, unless it copies from there.

    Copying is how a number reaches a device; but numbers should travel as arguments.
    """

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for value in tree_leaves((args, kwargs, result)):
            if isinstance(value, torch.Tensor) and value.device.type == "cpu":
                raise AssertionError(f"{func} meets a tensor of the host")
        return result


@pytest.mark.parametrize(
    "meet",
    [
        lambda x: x * torch.tensor(2.0),
        lambda x: torch.zeros(3).to("meta") + x,
        lambda x: torch.where(x > 0, x, torch.ones((), device="cpu")),
    ],
    ids=["scalar", "moved", "where"],
)
def test_the_check_for_the_host_can_fail(meet) -> None:
    with pytest.raises(AssertionError, match="host"), NoHost():
        meet(torch.empty(3, device="meta"))


@every_precision
@every_case
def test_the_meta_device_is_never_left(name: str, kind: str, dtype: torch.dtype) -> None:
    """Shapes, dtypes and device of the results; and no tensor of the host on the way."""
    inputs = (points(dtype, "meta"), *half_periods(dtype, "meta"))
    method = METHODS[name]
    with NoHost():
        value = evaluated(name, kind, *inputs)
    assert len(value) == method.results
    for result in value:
        assert result.device.type == "meta"
        assert result.dtype is (dtype.to_real() if method.is_real else dtype)
        assert result.shape == (() if method.takes == "lattice" else (3, 2))


@every_precision
@pytest.mark.parametrize("name", [name for name, m in METHODS.items() if m.takes == "points"])
def test_a_lattice_on_the_host_follows_the_points(name: str, dtype: torch.dtype) -> None:
    for result in evaluated(name, "tensors", points(dtype, "meta"), *half_periods(dtype)):
        assert (result.device.type, result.shape) == ("meta", (3, 2))


@every_case
def test_batches_of_lattices_broadcast_on_the_meta_device(name: str, kind: str) -> None:
    dtype = torch.complex64
    omegas = (torch.empty((5, 1, 1), dtype=dtype, device="meta") for _ in "13")
    shape = {"points": (5, 3, 2), "lattice": (5, 1, 1), "invariants": (3, 2)}[METHODS[name].takes]
    if kind == "numbers":
        shape = (3, 2)
    for result in evaluated(name, kind, points(dtype, "meta"), *omegas):
        assert result.shape == shape


@pytest.mark.parametrize("name", [name for name, m in METHODS.items() if m.takes == "points"])
def test_a_batch_of_lattices_is_a_loop_over_them(name: str) -> None:
    """Three points, three lattices and three columns of a truncated sum: nothing is mixed up."""
    z = points(torch.complex128).reshape(-1)[:3]
    omega1, omega3 = half_periods(torch.complex128)
    scales = torch.tensor([1.0, 1.25, 2.0], dtype=torch.float64)
    together = evaluated(name, "tensors", z, scales * omega1, omega3)
    for k, scale in enumerate(scales):
        alone = evaluated(name, "tensors", z[k], scale * omega1, omega3)
        assert_same(tuple(value[k] for value in together), alone)


# --- Nothing waits, and single precision needs no double -----------------------------------


@every_case
def test_nothing_waits_forwards_or_backwards(name: str, kind: str) -> None:
    dtype = torch.complex64
    inputs = [x.requires_grad_() for x in (points(dtype)[:2], *half_periods(dtype))]
    with NothingWaits():
        value = evaluated(name, kind, *inputs)
        sum(result.abs().sum() for result in value).backward()


@every_case
def test_single_precision_needs_no_double(name: str, kind: str) -> None:
    inputs = [
        x.requires_grad_() for x in (points(torch.complex64)[:2], *half_periods(torch.complex64))
    ]
    with NoDoubles():
        value = evaluated(name, kind, *inputs)
        sum(result.abs().sum() for result in value).backward()
    for result in value:
        assert result.dtype in (torch.complex64, torch.float32)


@pytest.mark.parametrize("name", [name for name, m in METHODS.items() if m.takes == "points"])
def test_the_first_look_at_a_lattice_of_numbers_needs_no_double(name: str) -> None:
    """Its constants are made on the host, in Python's numbers."""
    fresh = Lattice(1.0, 0.0625 + (1.25 + sum(map(ord, name)) / 4096) * 1j)
    with NoDoubles():
        METHODS[name].call(points(torch.complex64), fresh)


# --- The source ----------------------------------------------------------------------------


def names_from_torch(source: str) -> set[str]:
    """What a module takes out of torch by name, where the scan of factories would not see it."""
    return {
        alias.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == "torch"
        for alias in node.names
    }


@pytest.mark.parametrize(
    "path", sorted(Path(backends.__file__).parent.glob("torch_*.py")), ids=lambda path: path.name
)
def test_factories_are_called_as_torch_dot_something(path: Path) -> None:
    assert names_from_torch(path.read_text(encoding="utf-8")) <= {"Tensor"}


def test_the_scans_of_the_source_can_fail() -> None:
    assert names_from_torch("from torch import Tensor, zeros") == {"Tensor", "zeros"}
    planted = ["torch.randn(3)", "torch.logspace(0, 1, 5, device=d)", "torch.scalar_tensor(1.0)"]
    for source in planted:
        assert careless_factories(source), source
