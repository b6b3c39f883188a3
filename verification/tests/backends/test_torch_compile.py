"""torch.compile and torch.export: whole graphs, equal results, and few of them.

Most tests compile with ``backend="eager"``, which traces user code into one graph and runs the
operations as they are: it proves that nothing breaks the graph, and results are the same bits.
``"aot_eager"`` also traces the backward pass. Only the test of ``compile=True`` and those marked
slow generate machine code, which takes half a minute for each function.
"""

import io
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="the torch extra is not installed")

import torch
from torch._dynamo.testing import CompileCounter

from backends import torch_operators, torch_runners
from backends.torch_ops import as_parts, as_points
from verification.judge import load_contracts
from verification.tests.torch_devices import every_device
from wefpe_core import BackendUnavailableError, Lattice, get_backend

# Both come from inside torch's compiler: it reads .grad of inputs that are no leaves, and one of
# its modules still uses TorchScript.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning"),
]

BACKEND = get_backend("torch")
OMEGAS = (1.0 - 0.25j, 0.5 + 1.5j)
NUMBERS = Lattice(*OMEGAS)
ANOTHER_GENERIC = Lattice(0.75 + 0.125j, -2.0 + 1.25j)
# Those of these have real invariants.
OTHER_NUMBERS = [Lattice(0.75, 3.0 + 1.25j), Lattice(1j, -2.0 + 0.5j), Lattice.equianharmonic()]
KERNEL_FUNCTIONS = ["wp_and_prime", "zeta", "sigma", "green", "inverse_wp"]

OF_POINTS: dict[str, Callable[[Any, Lattice], Any]] = {
    **{name: getattr(BACKEND, name) for name in KERNEL_FUNCTIONS},
    **{name: getattr(BACKEND, name) for name in ("log_sigma", "modified_zeta", "modified_sigma")},
    "wp_derivative": lambda z, lattice: BACKEND.wp_derivative(z, lattice, 3),
    "laurent_coefficients": lambda z, lattice: (
        z[:3] * BACKEND.laurent_coefficients(lattice, 3).to(z.device)
    ),
    "heat": lambda z, lattice: BACKEND.heat(z, 0.5, lattice),
    "log_heat": lambda z, lattice: BACKEND.log_heat(z, 0.5, lattice),
    "lattice_sum": lambda z, lattice: BACKEND.lattice_sum(z, lattice, 1, 2),
    "add": lambda z, lattice: BACKEND.add(z, z + 1, z + 2, z - 3, lattice),
    # Multiplied by z, so that the traced function has an input even on a lattice of numbers.
    "invariants": lambda z, lattice: tuple(z * g for g in BACKEND.invariants(lattice)),
    "roots": lambda z, lattice: tuple(z * e for e in BACKEND.roots(lattice)),
    "quasi_periods": lambda z, lattice: tuple(z * eta for eta in BACKEND.quasi_periods(lattice)),
}


@pytest.fixture(autouse=True)
def _compilers_start_and_end_empty() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(function: Callable[..., Any], backend: str = "eager") -> Callable[..., Any]:
    return torch.compile(function, backend=backend, fullgraph=True)


def some_points(device: str, n: int = 5, dtype: torch.dtype = torch.complex128) -> torch.Tensor:
    """Points of the cell of NUMBERS, away from its lattice points and edges."""
    s = torch.linspace(0.1, 0.4, n, dtype=torch.float64, device=device)
    r = torch.linspace(0.35, -0.3, n, dtype=torch.float64, device=device)
    return (s * (2 * OMEGAS[0]) + r * (2 * OMEGAS[1])).to(dtype)


def half_periods(
    device: str, dtype: torch.dtype = torch.complex128, **options: Any
) -> list[torch.Tensor]:
    return [torch.tensor(w, dtype=dtype, device=device, **options) for w in OMEGAS]


def results(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def assert_identical(got: Any, want: Any) -> None:
    for g, w in zip(results(got), results(want), strict=True):
        assert g.dtype == w.dtype
        assert torch.equal(g, w)


@contextmanager
def plain_torch() -> Iterator[None]:
    """Within it the backend runs torch's own operators, as it does in a graph.

    Otherwise an eager call on a CPU runs NumPy, whose last bit may differ.
    """
    with torch.autograd.forward_ad.dual_level():
        yield


def in_plain_torch(function: Callable[..., Any], *arguments: Any) -> Any:
    with plain_torch():
        return function(*arguments)


def assert_few_eps_apart(got: torch.Tensor, want: torch.Tensor) -> None:
    """Both are the same formulas, computed by torch and by NumPy."""
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    assert ((got - want).abs() <= 64 * torch.finfo(want.dtype).eps * want.abs()).all()


def loss(value: Any) -> torch.Tensor:
    return sum(part.abs().sum() for part in results(value))


# --- User code becomes one graph -----------------------------------------------------------


@every_device
@pytest.mark.parametrize("function", [*OF_POINTS, "wp", "wp_prime"])
def test_user_code_with_a_lattice_of_numbers_is_one_graph(function, device):
    f = OF_POINTS.get(function) or getattr(BACKEND, function)
    z = some_points(device)
    assert_identical(compiled(lambda z: f(z, NUMBERS))(z), in_plain_torch(f, z, NUMBERS))


# Tracing the constants of a lattice of tensors takes most of the time, and is the same for all
# functions, which are traced above on numbers.
def most_at_night(functions: Iterable[str]) -> list[Any]:
    at_night = [pytest.mark.slow, pytest.mark.nightly]
    quick = ("wp_and_prime", "green")
    return [name if name in quick else pytest.param(name, marks=at_night) for name in functions]


@every_device
@pytest.mark.parametrize("function", most_at_night(OF_POINTS))
def test_user_code_with_a_lattice_of_tensors_is_one_graph_with_gradients(function, device):
    def f(z, omega1, omega3):
        return OF_POINTS[function](z, Lattice(omega1, omega3))

    inputs = [some_points(device).requires_grad_(), *half_periods(device, requires_grad=True)]
    want, got = f(*inputs), compiled(f)(*inputs)
    assert_identical(got, want)
    assert_identical(
        torch.autograd.grad(loss(got), inputs), torch.autograd.grad(loss(want), inputs)
    )


@every_device
def test_inverting_invariants_is_one_graph(device):
    def f(g2, g3):
        lattice = BACKEND.lattice_from_invariants(g2, g3)
        return lattice.omega1, lattice.omega3

    g2, g3 = (torch.tensor(g, dtype=torch.complex128, device=device) for g in (1.0, 0.25 + 0.5j))
    assert_identical(compiled(f)(g2, g3), f(g2, g3))


@every_device
@pytest.mark.parametrize(
    "make",
    [
        lambda t: Lattice(1.0, 1j * t),
        lambda t: Lattice.rectangular(1.0, t),
        lambda t: Lattice.from_tau(1j * t),
        lambda t: Lattice.from_periods(2.0, 2j * t),
    ],
    ids=["half-periods", "rectangular", "from_tau", "from_periods"],
)
def test_a_lattice_of_tensors_may_be_made_in_the_graph(make, device):
    def f(z, t):
        return BACKEND.lattice_sum(z, make(t), 1, 1)  # the cheapest function to trace

    z, t = some_points(device), torch.tensor(1.5, dtype=torch.float64, device=device)
    assert_identical(compiled(f)(z, t), f(z, t))


@pytest.mark.xfail(
    strict=True,
    raises=torch._dynamo.exc.InternalTorchDynamoError,
    reason="the tracer hands over an object made in the same graph without its attributes; "
    "make lattices of numbers outside compiled code",
)
@every_device
def test_a_lattice_of_numbers_may_be_made_in_compiled_code(device):
    def f(z):
        return BACKEND.green(z, Lattice(1.0, 1.5j)) + BACKEND.green(z, Lattice(1.0, 2.5j))

    z = some_points(device)
    # Exact arithmetic on the host is no part of a graph, so it may break; it may not fail.
    assert_identical(torch.compile(f, backend="eager")(z), f(z))


@pytest.mark.slow
@every_device
def test_the_joint_graph_of_a_module_that_learns_its_lattice_trains_like_eager(device):
    class Encoding(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.raw = torch.nn.Parameter(torch.tensor(0.75, dtype=torch.float64, device=device))

        def forward(self, z: torch.Tensor) -> torch.Tensor:
            height = torch.nn.functional.softplus(self.raw)
            return BACKEND.green(z, Lattice(1.0, 1j * height)).sum()

    module, z = Encoding(), some_points(device)
    gradients = []
    for forward in (module, compiled(module, "aot_eager")):
        value = forward(z)
        gradients.append((value.detach(), *torch.autograd.grad(value, list(module.parameters()))))
    # Decompositions of the joint graph reorder sums.
    for got, want in zip(*gradients, strict=True):
        assert abs(got - want) <= 16 * torch.finfo(torch.float64).eps * abs(want)


@every_device
def test_the_joint_graph_on_a_lattice_of_numbers_agrees_with_eager(device):
    def f(z):
        return BACKEND.wp_and_prime(z, NUMBERS)

    z = some_points(device).requires_grad_()
    got, want = compiled(f, "aot_eager")(z), f(z)
    assert_identical(got, in_plain_torch(f, z))
    [gradient], [wanted] = (torch.autograd.grad(loss(value), z) for value in (got, want))
    assert ((gradient - wanted).abs() <= 16 * torch.finfo(z.dtype).eps * wanted.abs()).all()


@pytest.mark.parametrize("z", [np.array([0.5, 0.25]), [0.5, 0.25j], 0.5])
def test_what_is_no_tensor_may_enter_compiled_code(z):
    function = compiled(lambda z: BACKEND.green(z, NUMBERS))
    assert_identical(function(z), in_plain_torch(BACKEND.green, z, NUMBERS))


# --- compile=True: one graph for all shapes and lattices -----------------------------------


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> Iterator[CompileCounter]:
    """Counts the graphs of ``compile=True``, and runs them without generating code."""
    count, original = CompileCounter(), torch.compile

    def traced(function: Callable[..., Any], *, options: Any, **rest: Any) -> Any:
        return original(function, backend=count, **rest)

    monkeypatch.setattr(torch, "compile", traced)
    torch_runners._compiler.cache_clear()
    yield count
    torch_runners._compiler.cache_clear()


@every_device
@pytest.mark.parametrize("function", KERNEL_FUNCTIONS)
def test_all_shapes_and_lattices_of_numbers_share_one_graph(function, counter, device):
    backend = get_backend("torch", compile=True)
    z = some_points(device, 24)
    for points in (z, z[:7], z.reshape(2, 3, 4), z.reshape(4, 6).t(), z.reshape(1, 24, 1)):
        for lattice in (NUMBERS, ANOTHER_GENERIC, *OTHER_NUMBERS):
            got = getattr(backend, function)(points, lattice)
            # Compiled code works on a contiguous copy. Without that, torch's loops over strided
            # memory are not vectorised, and on some processors round otherwise.
            want = in_plain_torch(getattr(BACKEND, function), points.contiguous(), lattice)
            assert_identical(got, want)
    # Lattices with real invariants have a graph of their own, but for the inverse.
    assert counter.frame_count == (1 if function == "inverse_wp" else 2)


@every_device
def test_a_single_point_and_no_point_are_served(counter, device):
    backend = get_backend("torch", compile=True)
    for shape in ((5,), (), (1,), (1, 1), (0,), (2, 0)):
        z = torch.full(shape, 0.5 + 0.25j, dtype=torch.complex128, device=device)
        assert_identical(backend.green(z, NUMBERS), in_plain_torch(BACKEND.green, z, NUMBERS))
    # torch makes graphs of their own for the sizes 0 and 1; no other shape may.
    assert counter.frame_count <= 3


@every_device
def test_lattices_of_tensors_share_one_graph_for_all_sizes(counter, device):
    backend = get_backend("torch", compile=True)
    for n, scale in ((5, 1.0), (9, 1.25), (3, 2.0)):
        z, (omega1, omega3) = some_points(device, n), half_periods(device)
        lattice = Lattice(scale * omega1, omega3)
        assert_agrees(backend.green(z, lattice), "green", z, lattice)
    assert counter.frame_count == 1


@pytest.mark.slow
@every_device
def test_functions_do_not_share_the_number_of_graphs_torch_allows(counter, device):
    # torch stops at some number of graphs for one code object, eight unless told otherwise, and
    # fails there. If all functions shared a code object, no process could use them all.
    backend = get_backend("torch", compile=True)
    with torch._dynamo.config.patch(recompile_limit=4):
        for dtype in (torch.complex64, torch.complex128):
            for needs_gradient in (False, True):
                z = some_points(device, dtype=dtype).requires_grad_(needs_gradient)
                assert_identical(
                    backend.green(z, NUMBERS), in_plain_torch(BACKEND.green, z, NUMBERS)
                )
        assert counter.frame_count == 4
        z = some_points(device)
        got = backend.sigma(z, NUMBERS)
        assert_identical(got, in_plain_torch(BACKEND.sigma, z, NUMBERS))


@every_device
def test_gradients_pass_through_compile_true(counter, device):
    backend = get_backend("torch", compile=True)
    z = some_points(device).requires_grad_()
    gradients = [
        torch.autograd.grad(each.green(z, NUMBERS).sum(), z)[0] for each in (backend, BACKEND)
    ]
    assert_few_eps_apart(*gradients)


@every_device
def test_a_lattice_first_met_in_inference_mode_can_be_trained_on(counter, device):
    backend, lattice = get_backend("torch", compile=True), Lattice(1.0, 0.375 + 1.0625j)
    with torch.inference_mode():
        backend.green(some_points(device), lattice)
    z = some_points(device).requires_grad_()
    [gradient] = torch.autograd.grad(backend.green(z, lattice).sum(), z)
    assert_few_eps_apart(gradient, torch.autograd.grad(BACKEND.green(z, lattice).sum(), z)[0])


@every_device
@pytest.mark.parametrize("shape", [(), (1,), (3, 1)], ids=["one lattice", "of one", "of three"])
def test_gradients_in_the_lattice_pass_through_compile_true(counter, device, shape):
    # One lattice is prepared outside the compiled graph, a batch of them within it.
    z = some_points(device)
    leaves = [torch.full(shape, 1.0, device=device) * w.detach() for w in half_periods(device)]
    leaves = [leaf.requires_grad_() for leaf in leaves]
    got, want = (
        each.green(z, Lattice(*leaves)) for each in (get_backend("torch", compile=True), BACKEND)
    )
    assert_few_eps_apart(got, want)
    gradients = [torch.autograd.grad(value.sum(), leaves) for value in (got, want)]
    for compiled, eager in zip(*gradients, strict=True):
        assert_few_eps_apart(compiled, eager)


# --- compile=True with generated code ------------------------------------------------------


def scales(function: str, z: torch.Tensor, lattice: Lattice) -> list[torch.Tensor]:
    """The denominators of contracts.toml, for points in the cell around 0."""
    wp, wp_prime = BACKEND.wp_and_prime(z, lattice)
    g2 = BACKEND.invariants(lattice)[0].to(z.device)
    wp_second = 6 * wp**2 - g2 / 2
    zeta, sigma = BACKEND.zeta(z, lattice), BACKEND.sigma(z, lattice)
    inverse = BACKEND.inverse_wp(z, lattice)
    slope = 1 / BACKEND.wp_prime(inverse, lattice)
    return {
        "wp_and_prime": [wp.abs() + (z * wp_prime).abs(), wp_prime.abs() + (z * wp_second).abs()],
        "zeta": [zeta.abs() + (z * wp).abs()],
        "sigma": [sigma.abs() + (z * sigma * zeta).abs()],
        "green": [BACKEND.green(z, lattice).abs() + 1],
        "inverse_wp": [inverse.abs() + (z * slope).abs()],
    }[function]


def assert_agrees(got: Any, function: str, z: torch.Tensor, lattice: Lattice) -> None:
    """Both keep the contract, so they are at most twice its ceiling apart."""
    contract = load_contracts()["accuracy"]["wp" if function == "wp_and_prime" else function]
    ceiling = contract[str(z.dtype).removeprefix("torch.")]["largest"]
    want = getattr(BACKEND, function)(z, lattice)
    for g, w, scale in zip(results(got), results(want), scales(function, z, lattice), strict=True):
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        error = (g - w).abs() / (scale * torch.finfo(w.dtype).eps)
        assert error.max() <= 2 * ceiling


def in_the_cell(device: str, dtype: torch.dtype, n: int = 1000) -> torch.Tensor:
    """Half of the points anywhere, half ever nearer to the pole, where rounding has no excuse."""
    generator = torch.Generator().manual_seed(20240229)
    s, r = torch.rand((2, n), generator=generator, dtype=torch.float64) - 0.5
    nearness = torch.ones(n, dtype=torch.float64)
    nearness[::2] = torch.logspace(-1, -9, n // 2, dtype=torch.float64)
    z = nearness * (s * (2 * OMEGAS[0]) + r * (2 * OMEGAS[1]))
    return z.to(device=device, dtype=dtype)


def test_a_cache_that_cannot_be_written_to_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "file" / "cache"))
    backend, z = get_backend("torch", compile=True), some_points("cpu")
    with pytest.raises(BackendUnavailableError, match="TORCHINDUCTOR_CACHE_DIR"):
        backend.wp(z, NUMBERS)


@pytest.mark.slow
@every_device
def test_generated_code_agrees_with_eager_and_is_not_generated_again(device):
    backend = get_backend("torch", compile=True)
    z = in_the_cell(device, torch.complex128)
    assert_agrees(backend.wp_and_prime(z, NUMBERS), "wp_and_prime", z, NUMBERS)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for points in (z[:17], z[:64].reshape(4, 2, 8), z[::3]):
            got = backend.wp_and_prime(points, NUMBERS)
            assert_agrees(got, "wp_and_prime", points, NUMBERS)
        for lattice in (ANOTHER_GENERIC, Lattice(0.5 - 0.75j, 1.0 + 1.0j)):
            backend.wp_and_prime(z, lattice)


@pytest.mark.slow
@pytest.mark.nightly  # half a minute each
@every_device
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("function", KERNEL_FUNCTIONS)
def test_generated_code_of_every_function_agrees_with_eager(function, dtype, device):
    z = in_the_cell(device, dtype)
    backend = get_backend("torch", compile=True)
    assert_agrees(getattr(backend, function)(z, NUMBERS), function, z, NUMBERS)


@pytest.mark.slow
@every_device
def test_generated_code_of_a_lattice_of_tensors_agrees_with_eager(device):
    z, lattice = in_the_cell(device, torch.complex128), Lattice(*half_periods(device))
    value = get_backend("torch", compile=True).wp_and_prime(z, lattice)
    assert_agrees(value, "wp_and_prime", z, NUMBERS)


@pytest.mark.slow
@pytest.mark.nightly
@every_device
def test_generated_backward_code_gives_wp_prime(device):
    z = in_the_cell(device, torch.complex128).requires_grad_()
    wp = get_backend("torch", compile=True).wp(z, NUMBERS)
    [gradient] = torch.autograd.grad(wp.real.sum(), z)
    want, scale = (
        BACKEND.wp_prime(z.detach(), NUMBERS),
        scales("wp_and_prime", z.detach(), NUMBERS)[1],
    )
    # Of the real part of a holomorphic function, torch's gradient is the conjugate derivative.
    error = (gradient.conj() - want).abs() / (scale * torch.finfo(torch.float64).eps)
    assert error.max() <= 2 * load_contracts()["accuracy"]["wp_prime"]["complex128"]["largest"]


@every_device
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_the_table_of_a_learned_lattice_is_arranged_as_that_of_numbers(dtype, device):
    """What is compiled takes the constants from a table; here without a compiler."""
    points = as_points(some_points(device, dtype=dtype))
    table = torch_operators.table_of_numbers(NUMBERS, points.dtype, points.device)
    omega = as_parts(Lattice(*half_periods(device, dtype)), points.dtype, points.device)
    for with_slopes in (False, True):
        prepared = torch.ops.wefpe.prepare(omega, with_slopes)
        got, want = (
            torch_runners.rows_on_table(points, t, "wp_and_prime", "z", 0)[0]
            for t in (prepared, table)
        )
        assert_few_eps_apart(*(torch.complex(v[:, 0], v[:, 1]) for v in (got, want)))


# --- torch.export --------------------------------------------------------------------------


class NamedFunction(torch.nn.Module):
    def __init__(self, function: str) -> None:
        super().__init__()
        self.function = function


class OnNumbers(NamedFunction):
    def forward(self, z: torch.Tensor) -> Any:
        return getattr(BACKEND, self.function)(z, NUMBERS)


class OnTensors(NamedFunction):
    def forward(self, z: torch.Tensor, omega1: torch.Tensor, omega3: torch.Tensor) -> Any:
        return getattr(BACKEND, self.function)(z, Lattice(omega1, omega3))


@every_device
@pytest.mark.parametrize("function", KERNEL_FUNCTIONS)
def test_an_exported_module_on_a_lattice_of_numbers_agrees(function, device):
    module, z = OnNumbers(function), some_points(device)
    program = torch.export.export(module, (z,))
    assert_identical(program.module()(z), in_plain_torch(module, z))
    assert_identical(program.module()(-z), in_plain_torch(module, -z))


@every_device
@pytest.mark.parametrize("function", most_at_night(KERNEL_FUNCTIONS))
def test_an_exported_module_on_a_lattice_of_tensors_agrees(function, device):
    # In single precision the series are shorter, and so is the time to trace them.
    z, omegas = some_points(device, dtype=torch.complex64), half_periods(device, torch.complex64)
    module = OnTensors(function)
    program = torch.export.export(module, (z, *omegas))
    assert_identical(program.module()(z, *omegas), module(z, *omegas))
    # Another lattice, and one that needs other steps of reduction.
    for other in OTHER_NUMBERS:
        inputs = (z, *(torch.full_like(omegas[0], w) for w in (other.omega1, other.omega3)))
        assert_identical(program.module()(*inputs), module(*inputs))


@every_device
def test_an_exported_module_takes_any_number_of_points_and_can_be_saved(device):
    module, z = OnNumbers("green"), some_points(device)
    program = torch.export.export(
        module, (z,), dynamic_shapes={"z": {0: torch.export.Dim("points", min=2)}}
    )
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    loaded = torch.export.load(file).module()
    for n in (2, 17):
        points = some_points(device, n)
        assert_identical(loaded(points), in_plain_torch(module, points))


@every_device
def test_strict_export_is_possible_too(device):
    module, z = OnNumbers("green"), some_points(device)
    program = torch.export.export(module, (z,), strict=True)
    assert_identical(program.module()(z), in_plain_torch(module, z))
