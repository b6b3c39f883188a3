"""What the torch backend promises besides digits.

Shapes, dtypes and devices follow z; nothing waits for the device; single precision needs no
double; autocast changes nothing; special values stay where they are.
"""

import ast
import math
import tracemalloc
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="the torch extra is not installed")

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import backends
from backends import torch_operators, torch_ops
from backends.torch_operators import values_at_coordinates
from verification.tests.torch_devices import every_device
from wefpe_core import InputError, InputTypeError, Lattice, get_backend

BACKEND = get_backend("torch")

# Each function of points gives tensors of the shape of z broadcast against the lattice.
OF_POINTS: dict[str, Callable[..., Any]] = {
    "wp": BACKEND.wp,
    "wp_prime": BACKEND.wp_prime,
    "wp_and_prime": BACKEND.wp_and_prime,
    "zeta": BACKEND.zeta,
    "sigma": BACKEND.sigma,
    "inverse_wp": BACKEND.inverse_wp,
    "green": BACKEND.green,
    "lattice_sum": lambda z, lattice: BACKEND.lattice_sum(z, lattice, 2, 3),
    "add": lambda z, lattice: BACKEND.add(z, z + 1, z + 2, z - 3, lattice),
}
OF_LATTICES: dict[str, Callable[[Lattice], Any]] = {
    "invariants": BACKEND.invariants,
    "roots": BACKEND.roots,
    "quasi_periods": BACKEND.quasi_periods,
}
OMEGAS = (1.0 - 0.25j, 0.5 + 1.5j)
NUMBERS = Lattice(*OMEGAS)
POINTS = [0.5 + 0.25j, -0.75 + 1.25j, 2.5 - 3.0j, 0.125j]

every_function_of_points = pytest.mark.parametrize("function", OF_POINTS)
every_function_of_lattices = pytest.mark.parametrize("function", OF_LATTICES)
every_kind_of_lattice = pytest.mark.parametrize("kind", ["numbers", "tensors"])


def make_lattice(kind: str, dtype: torch.dtype, device: str) -> Lattice:
    if kind == "numbers":
        return NUMBERS
    return Lattice(*(torch.tensor(omega, dtype=dtype, device=device) for omega in OMEGAS))


def results(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def bits(tensor: Any) -> torch.Tensor:
    """As integers, so that NaN equals NaN and 0 does not equal -0."""
    tensor = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    return tensor.view({4: torch.int32, 8: torch.int64}[tensor.dtype.itemsize])


def assert_identical(got: Any, want: Any) -> None:
    for g, w in zip(results(got), results(want), strict=True):
        assert g.dtype == w.dtype
        assert torch.equal(bits(g), bits(w))


# --- What follows z ------------------------------------------------------------------------


@every_device
@every_function_of_points
@every_kind_of_lattice
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (torch.complex64, torch.complex64),
        (torch.complex128, torch.complex128),
        (torch.float32, torch.complex64),
        (torch.float64, torch.complex128),
        (torch.float16, torch.complex64),
        (torch.bfloat16, torch.complex64),
        (torch.int64, torch.complex64),  # torch's default dtype is float32
        (torch.uint8, torch.complex64),
    ],
)
def test_dtype_and_device_follow_z(given, expected, kind, function, device):
    z = torch.tensor([1, 3, 5], device=device).to(given)
    # A lattice of another precision does not change the precision of z.
    value = OF_POINTS[function](z, make_lattice(kind, torch.complex128, device))
    for result in results(value):
        wanted = expected.to_real() if function == "green" else expected
        assert result.dtype == wanted
        assert result.device.type == device
        assert result.shape == z.shape


@every_device
def test_integers_follow_the_default_dtype(device):
    z = torch.tensor([1, 3], device=device)
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        assert BACKEND.wp(z, NUMBERS).dtype is torch.complex128
    finally:
        torch.set_default_dtype(before)


@every_device
@pytest.mark.parametrize("default", [torch.float16, torch.bfloat16])
def test_integers_are_computed_in_single_precision_if_the_default_is_half(default, device):
    z, before = torch.tensor([1, 2], device=device), torch.get_default_dtype()
    want = BACKEND.wp(z.to(torch.float32), NUMBERS)
    try:
        torch.set_default_dtype(default)
        got = BACKEND.wp(z, NUMBERS)
    finally:
        torch.set_default_dtype(before)
    assert got.dtype == torch.complex64
    assert torch.equal(got, want)


@every_function_of_points
@pytest.mark.parametrize("z", [1, 0.5, 0.5 + 0.25j, [0.5, 0.25j], [[1, 2], [3, 4]]])
def test_python_numbers_count_as_double_precision(z, function):
    if function == "add":
        z = torch.as_tensor(z, dtype=torch.complex128)  # the example adds to z before the call
    for result in results(OF_POINTS[function](z, NUMBERS)):
        assert result.dtype is (torch.float64 if function == "green" else torch.complex128)
        assert result.shape == np.shape(z)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_arrays_count_as_tensors_of_their_dtype(dtype):
    z = np.array([0.5, 0.25]).astype(dtype)
    assert_identical(BACKEND.wp(z, NUMBERS), BACKEND.wp(torch.from_numpy(z), NUMBERS))


def read_only(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


UNUSUAL_ARRAYS: dict[str, np.ndarray | np.generic] = {
    "read-only": read_only(np.array([0.5, 0.25])),
    "reversed": np.array([0.5, 0.25])[::-1],
    "foreign byte order": np.array([0.5, 0.25j]).astype(np.dtype(complex).newbyteorder()),
    "field of a record": np.array([(1, 0.5), (2, 0.25)], dtype="i4, f8")["f1"],
    "broadcast": np.broadcast_to(np.array([0.5, 0.25]), (3, 2)),
    "transposed": np.array([[0.5, 0.25, 0.125], [0.75, 0.375, 0.625]]).T,
    "scalar": np.float32(0.5),
}


@pytest.mark.parametrize("case", UNUSUAL_ARRAYS)
def test_arrays_may_lie_in_memory_as_they_like(case):
    """As for the NumPy backend: no refusal, and no warning, which would be an error here."""
    z = UNUSUAL_ARRAYS[case]
    plain = torch.tensor(z.tolist(), dtype=getattr(torch, z.dtype.newbyteorder("=").name))
    assert_identical(BACKEND.wp(z, NUMBERS), BACKEND.wp(plain, NUMBERS))


@pytest.mark.parametrize("z", [np.array([0.5, 0.25]), np.zeros((3, 2)).T, np.zeros(8)[::2]])
def test_ordinary_arrays_are_not_copied(z):
    assert torch_ops.as_tensor(z).data_ptr() == z.ctypes.data


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
def test_unsigned_integers_are_integers(dtype):
    want = BACKEND.wp(torch.tensor([1, 3]), NUMBERS)
    for z in (np.array([1, 3], dtype=dtype), torch.tensor([1, 3], dtype=getattr(torch, dtype))):
        assert_identical(BACKEND.wp(z, NUMBERS), want)


@pytest.mark.parametrize("nest", [lambda t: [t], lambda t: (0.25, t), lambda t: [[0.25], [t]]])
def test_a_sequence_of_tensors_is_refused_rather_than_cut_from_its_gradient(nest):
    with pytest.raises(InputError, match=r"torch\.stack"):
        BACKEND.wp(nest(torch.tensor(0.5, requires_grad=True)), NUMBERS)


@every_device
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_single(dtype, device):
    z = torch.tensor([0.5, 0.1], device=device).to(dtype)
    assert_identical(BACKEND.wp_and_prime(z, NUMBERS), BACKEND.wp_and_prime(z.float(), NUMBERS))


@every_device
@every_function_of_lattices
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_constants_of_a_lattice_of_tensors_follow_it(dtype, function, device):
    for result in OF_LATTICES[function](make_lattice("tensors", dtype, device)):
        assert (result.dtype, result.device.type, result.shape) == (dtype, device, ())


@every_function_of_lattices
def test_constants_of_a_lattice_of_numbers_are_double_precision(function):
    for result in OF_LATTICES[function](NUMBERS):
        assert (result.dtype, result.shape) == (torch.complex128, ())


@every_device
def test_the_lattice_of_given_invariants_follows_them(device):
    g2 = torch.tensor([1.0, 2.0], dtype=torch.float32, device=device)
    lattice = BACKEND.lattice_from_invariants(g2, 0.5)
    for omega in (lattice.omega1, lattice.omega3):
        assert (omega.dtype, omega.device.type, omega.shape) == (torch.complex64, device, (2,))


@every_device
@every_function_of_points
@every_kind_of_lattice
@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 0, 3), (2, 3), (1, 2, 1, 3)])
def test_shapes_are_kept(shape, kind, function, device):
    z = torch.full(shape, 0.5 + 0.25j, dtype=torch.complex128, device=device)
    for result in results(OF_POINTS[function](z, make_lattice(kind, z.dtype, device))):
        assert result.shape == shape


@every_device
@every_function_of_points
@every_kind_of_lattice
def test_meta_tensors_show_shape_and_dtype_without_computing(kind, function, device):
    z = torch.empty((2, 3), dtype=torch.complex64, device="meta")
    for result in results(OF_POINTS[function](z, make_lattice(kind, z.dtype, "meta"))):
        assert result.device.type == "meta"
        assert result.dtype is (torch.float32 if function == "green" else torch.complex64)
        assert result.shape == (2, 3)


@every_function_of_lattices
def test_meta_lattices_show_shape_and_dtype_without_computing(function):
    lattice = Lattice(*(torch.empty((4, 1), dtype=torch.complex64, device="meta") for _ in "13"))
    for result in OF_LATTICES[function](lattice):
        assert (result.device.type, result.dtype) == ("meta", torch.complex64)
        assert result.shape == (4, 1)


@every_device
@every_function_of_points
@every_kind_of_lattice
def test_strides_of_z_do_not_matter(kind, function, device):
    contiguous = torch.tensor(POINTS, dtype=torch.complex128, device=device).reshape(2, 2)
    lattice = make_lattice(kind, contiguous.dtype, device)
    want = OF_POINTS[function](contiguous, lattice)
    apart = torch.zeros((2, 2, 3), dtype=torch.complex128, device=device)
    apart[..., 1] = contiguous
    for z in (contiguous.t().contiguous().t(), apart[..., 1]):
        assert not z.is_contiguous()
        assert torch.equal(z, contiguous)
        assert_identical(OF_POINTS[function](z, lattice), want)
    # A view with the conjugate bit holds other numbers in memory than it means.
    conjugate = contiguous.conj()
    assert conjugate.is_conj()
    assert_identical(
        OF_POINTS[function](conjugate, lattice),
        OF_POINTS[function](conjugate.resolve_conj(), lattice),
    )


# --- What is refused -----------------------------------------------------------------------


@every_function_of_points
@pytest.mark.parametrize(
    "z",
    [
        pytest.param(torch.tensor([True]), id="tensor of bool"),
        pytest.param(True, id="bool"),
        pytest.param([True, False], id="list of bool"),
        pytest.param(np.array([True]), id="array of bool"),
        pytest.param(np.array(["0.5"]), id="array of strings"),
        pytest.param("0.5", id="string"),
        pytest.param([0.5, "0.25"], id="list with a string"),
        pytest.param(None, id="None"),
        pytest.param(object(), id="object"),
    ],
)
def test_what_is_no_number_is_refused(z, function):
    call = (
        (lambda: BACKEND.add(z, 1.0, 2.0, 3.0, NUMBERS))
        if function == "add"
        else (lambda: OF_POINTS[function](z, NUMBERS))
    )
    with pytest.raises(InputTypeError):
        call()


@every_function_of_points
def test_half_periods_in_place_of_a_lattice_are_refused(function):
    with pytest.raises(InputError, match="Lattice"):
        OF_POINTS[function](torch.tensor(0.5 + 0j), OMEGAS)


@pytest.mark.parametrize("compile", ["yes", 1, None])
def test_compile_is_a_truth_value(compile):  # noqa: A002 - the option's name
    with pytest.raises(InputError, match="compile"):
        get_backend("torch", compile=compile)


# --- Nothing waits for the device ----------------------------------------------------------

# Each of these hands a number to Python, or makes a shape depend on data.
WAITING = {
    "_local_scalar_dense",
    "item",
    "nonzero",
    "equal",
    "is_nonzero",
    "masked_select",
    "unique",
    "allclose",
}


class NothingWaits(TorchDispatchMode):
    """Raises where Python asks a tensor for its value, or moves a tensor to the host."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        selects_by_mask = name == "index" and any(t.dtype is torch.bool for t in tensors[1:])
        moves_to_host = any(
            leaf.device.type == "cpu" and tensor.device.type != "cpu"
            for leaf in tree_leaves(result)
            if isinstance(leaf, torch.Tensor)
            for tensor in tensors
        )
        if name in WAITING or selects_by_mask or moves_to_host:
            raise AssertionError(f"{func} waits for the device")
        return result


@pytest.mark.parametrize(
    "wait",
    [
        lambda x: x.sum().item(),
        lambda x: float(x[0]),
        lambda x: bool((x > 0).all()),
        lambda x: torch.nonzero(x),
        lambda x: torch.equal(x, x),
        lambda x: x[x > 0],
        lambda x: torch.masked_select(x, x > 0),
    ],
    ids=["item", "float", "bool", "nonzero", "equal", "mask", "masked_select"],
)
def test_the_check_for_waiting_can_fail(wait):
    with pytest.raises(AssertionError, match="waits"), NothingWaits():
        wait(torch.tensor([1.0, 2.0]))


@every_device
@every_function_of_points
@every_kind_of_lattice
def test_functions_of_points_do_not_wait(kind, function, device):
    z = torch.tensor(POINTS, dtype=torch.complex128, device=device, requires_grad=True)
    lattice = make_lattice(kind, z.dtype, device)
    with NothingWaits():
        value = OF_POINTS[function](z, lattice)
        sum(result.abs().sum() for result in results(value)).backward()


@every_device
@every_function_of_lattices
def test_functions_of_lattices_do_not_wait(function, device):
    with NothingWaits():
        OF_LATTICES[function](make_lattice("tensors", torch.complex128, device))


@every_device
def test_inverting_invariants_does_not_wait(device):
    g2, g3 = (torch.tensor(g, dtype=torch.complex128, device=device) for g in (1.0, 0.25))
    with NothingWaits():
        BACKEND.lattice_from_invariants(g2, g3)


# --- Single precision needs no double ------------------------------------------------------

DOUBLES = (torch.float64, torch.complex128)


class NoDoubles(TorchDispatchMode):
    """Raises where an operation takes or makes a double-precision tensor."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for value in tree_leaves((args, kwargs, result)):
            if isinstance(value, torch.Tensor) and value.dtype in DOUBLES:
                raise AssertionError(f"{func} touches {value.dtype}")
        return result


@pytest.mark.parametrize(
    "touch",
    [
        lambda x: x.double(),
        lambda x: x * torch.tensor([1.0], dtype=torch.float64),
        lambda x: torch.zeros(2, dtype=torch.complex128),
    ],
    ids=["cast", "promotion", "factory"],
)
def test_the_check_for_doubles_can_fail(touch):
    with pytest.raises(AssertionError, match="touches"), NoDoubles():
        touch(torch.tensor([1.0]))


@every_device
@every_function_of_points
@every_kind_of_lattice
@pytest.mark.parametrize("prepared", ["before", "inside"])
def test_single_precision_touches_no_double(prepared, kind, function, device):
    z = torch.tensor(POINTS, dtype=torch.complex64, device=device, requires_grad=True)
    if kind == "numbers":
        # A lattice of its own, so that nothing about it is known beforehand.
        lattice = Lattice(1.0, 1.25j + (0.125 if prepared == "before" else 0.0625))
    else:
        lattice = make_lattice(kind, torch.complex64, device)
    if prepared == "before":
        OF_POINTS[function](z, lattice)
    with NoDoubles():
        value = OF_POINTS[function](z, lattice)
        sum(result.abs().sum() for result in results(value)).backward()


@every_device
@every_function_of_lattices
def test_constants_of_a_single_precision_lattice_touch_no_double(function, device):
    lattice = make_lattice("tensors", torch.complex64, device)
    with NoDoubles():
        OF_LATTICES[function](lattice)


@every_device
def test_inverting_single_precision_invariants_touches_no_double(device):
    g2, g3 = (torch.tensor(g, dtype=torch.complex64, device=device) for g in (1.0, 0.25))
    with NoDoubles():
        BACKEND.lattice_from_invariants(g2, g3)


@every_device
@every_function_of_points
def test_a_default_dtype_of_double_does_not_leak_into_single_precision(function, device):
    z = torch.tensor(POINTS, dtype=torch.complex64, device=device)
    lattice = make_lattice("tensors", torch.complex64, device)
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        with NoDoubles():
            OF_POINTS[function](z, lattice)
    finally:
        torch.set_default_dtype(before)


# --- Autocast ------------------------------------------------------------------------------


@every_device
@every_function_of_points
@every_kind_of_lattice
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_autocast_changes_no_bit(dtype, kind, function, device):
    def value_and_gradient(context):
        z = torch.tensor(POINTS, dtype=dtype, device=device, requires_grad=True)
        with context:
            value = results(OF_POINTS[function](z, make_lattice(kind, dtype, device)))
        sum(result.abs().sum() for result in value).backward()
        return (*(result.detach() for result in value), z.grad)

    inside = value_and_gradient(torch.autocast(device, dtype=torch.bfloat16))
    assert_identical(inside, value_and_gradient(nullcontext()))


@every_device
@every_function_of_lattices
def test_autocast_changes_no_bit_of_the_constants(function, device):
    lattice = make_lattice("tensors", torch.complex64, device)
    with torch.autocast(device, dtype=torch.bfloat16):
        inside = OF_LATTICES[function](lattice)
    assert_identical(inside, OF_LATTICES[function](lattice))


# --- Factories say what they make ----------------------------------------------------------

# Not as_tensor and from_numpy, which take what they are given, nor the ..._like.
FACTORIES = {
    *("zeros", "ones", "arange", "tensor", "empty", "full", "linspace", "eye", "rand", "randn"),
    *("logspace", "scalar_tensor", "randint", "randperm", "range", "asarray", "empty_strided"),
    *("tril_indices", "triu_indices", "hann_window", "sparse_coo_tensor"),
}


def careless_factories(source: str) -> list[str]:
    """Calls of torch factories in `source` that leave dtype or device to a default."""
    careless = []
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == "torch"
            and node.func.attr in FACTORIES
        ):
            given = {keyword.arg for keyword in node.keywords}
            missing = {"dtype", "device"} - given
            if missing:
                careless.append(f"line {node.lineno}: {ast.unparse(node)}: no {sorted(missing)}")
    return careless


@pytest.mark.parametrize(
    "path", sorted(Path(backends.__file__).parent.glob("torch_*.py")), ids=lambda path: path.name
)
def test_tensors_are_made_with_dtype_and_device(path):
    assert careless_factories(path.read_text(encoding="utf-8")) == []


def test_the_check_of_factories_can_fail():
    source = "a = torch.zeros(3, dtype=d, device=e)\nb = torch.ones(3, device=e)\nc = torch.eye(2)"
    found = careless_factories(source)
    assert [line.partition(":")[0] for line in found] == ["line 2", "line 3"]
    assert "no ['dtype']" in found[0]
    assert "no ['device', 'dtype']" in found[1]


# --- Inputs are left alone -----------------------------------------------------------------


@every_device
@every_function_of_points
def test_inputs_are_neither_changed_nor_returned(function, device):
    z = torch.tensor(POINTS, dtype=torch.complex128, device=device, requires_grad=True)
    lattice = make_lattice("tensors", z.dtype, device)
    inputs = (z, lattice.omega1, lattice.omega3)
    copies = [tensor.detach().clone() for tensor in inputs]
    versions = [tensor._version for tensor in inputs]
    value = results(OF_POINTS[function](z, lattice))
    assert [tensor._version for tensor in inputs] == versions
    for tensor, copy in zip(inputs, copies, strict=True):
        assert torch.equal(tensor.detach(), copy)
        assert tensor.grad is None
    for result in value:
        result.detach().zero_()  # a view of an input would change it
    for tensor, copy in zip(inputs, copies, strict=True):
        assert torch.equal(tensor.detach(), copy)


@every_device
@every_function_of_points
def test_without_gradients_no_graph_is_kept(function, device):
    z = torch.tensor(POINTS, dtype=torch.complex128, device=device)
    for result in results(OF_POINTS[function](z, make_lattice("tensors", z.dtype, device))):
        assert not result.requires_grad


# --- Special values stay where they are ----------------------------------------------------

SPECIAL = {
    "lattice point": 0.0,
    "far lattice point": 4 * OMEGAS[0] - 6 * OMEGAS[1],
    "nan": complex(math.nan, 0.0),
    "nan in the imaginary part": complex(0.0, math.nan),
    "infinity": complex(math.inf, 1.0),
    "infinity downwards": complex(1.0, -math.inf),
}
POSITIONS = [n * 137 for n in range(1, 1 + len(SPECIAL))]


def many_points(device: str, dtype: torch.dtype) -> torch.Tensor:
    """A thousand points of the cell, some of which are replaced by special ones."""
    rng = np.random.default_rng(20240229)
    s, r = rng.uniform(-0.5, 0.5, (2, 1000))
    z = s * 2 * OMEGAS[0] + r * 2 * OMEGAS[1]
    z[POSITIONS] = list(SPECIAL.values())
    return torch.tensor(z, dtype=dtype, device=device)


def documented(function: str, name: str) -> str:
    """What `AbstractBackend` says of the value there."""
    if "lattice point" not in name:
        return "nan"
    return {"sigma": "zero", "green": "+inf"}.get(function, "inf+nanj")


def kind_of(value: torch.Tensor) -> str:
    number = value.item()
    if not isinstance(number, complex):
        return {math.inf: "+inf"}.get(number, "nan" if math.isnan(number) else "finite")
    if number == 0:
        return "zero"
    if number.real == math.inf and math.isnan(number.imag):
        return "inf+nanj"
    return "nan" if math.isnan(number.real) and math.isnan(number.imag) else "other"


@every_device
@every_kind_of_lattice
@pytest.mark.parametrize("function", ["wp", "wp_prime", "zeta", "sigma", "green"])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_special_points_have_the_documented_value_and_touch_no_other(dtype, function, kind, device):
    z = many_points(device, dtype)
    lattice = make_lattice(kind, dtype, device)
    value = OF_POINTS[function](z, lattice)
    for position, name in zip(POSITIONS, SPECIAL, strict=True):
        assert kind_of(value[position]) == documented(function, name), name
    ordinary = torch.ones(z.shape, dtype=torch.bool, device=device)
    ordinary[POSITIONS] = False
    clean = torch.where(ordinary, z, 0.5 + 0.25j)
    assert_identical(value[ordinary], OF_POINTS[function](clean, lattice)[ordinary])
    assert torch.isfinite(value[ordinary].abs()).all()


@every_device
def test_infinity_has_the_inverse_zero_and_nan_has_none(device):
    w = torch.tensor([complex("inf"), complex("inf+nanj"), complex("nan"), 1 + 1j], device=device)
    z = BACKEND.inverse_wp(w, NUMBERS)
    assert [kind_of(value) for value in z] == ["zero", "zero", "nan", "other"]


@every_device
@every_kind_of_lattice
@pytest.mark.parametrize("function", ["wp", "wp_prime", "zeta", "sigma", "green"])
def test_gradients_of_ordinary_points_do_not_see_special_ones(function, kind, device):
    z = many_points(device, torch.complex128)
    lattice = make_lattice(kind, z.dtype, device)

    def gradient(z: torch.Tensor) -> torch.Tensor:
        z = z.clone().requires_grad_()
        value = OF_POINTS[function](z, lattice)
        return torch.autograd.grad(value.abs().sum(), z)[0]

    ordinary = torch.ones(z.shape, dtype=torch.bool, device=device)
    ordinary[POSITIONS] = False
    got = gradient(z)[ordinary]
    assert_identical(got, gradient(torch.where(ordinary, z, 0.5 + 0.25j))[ordinary])
    assert torch.isfinite(got.abs()).all()


def opposite(z: torch.Tensor, lattice: Lattice) -> Any:
    """The sum of two points that are opposite where z is 0."""
    p, dp = BACKEND.wp_and_prime(z + 0.25, lattice)
    return BACKEND.add(p, dp, *(BACKEND.wp_and_prime(0.75 * z - 0.25, lattice)), lattice)


def adding_a_quarter(z: torch.Tensor, lattice: Lattice) -> Any:
    """z stands for a point of the curve, and may be the neutral element."""
    return BACKEND.add(z, z, *BACKEND.wp_and_prime(torch.full_like(z, 0.25), lattice), lattice)


INFINITY = complex("inf+nanj")
# A function, and where it is special: its value there, or the value next to it, has no derivative.
LEFT_OUT: dict[str, tuple[Callable[..., Any], complex]] = {
    **{
        f"{function} at a {name}": (OF_POINTS[function], SPECIAL[name])
        for function in ("wp", "wp_prime", "zeta", "sigma", "green", "lattice_sum")
        for name in SPECIAL
        if "lattice point" in name
    },
    "the sum of opposite points": (opposite, 0.0),
    "the sum with the neutral element": (
        adding_a_quarter,
        INFINITY,
    ),
    "the inverse of infinity": (BACKEND.inverse_wp, INFINITY),
}


@every_device
@pytest.mark.parametrize("what", LEFT_OUT)
def test_a_loss_that_leaves_a_pole_out_has_its_gradient_in_the_lattice(what, device):
    function, special = LEFT_OUT[what]

    def gradients(last: complex) -> tuple[torch.Tensor, ...]:
        z = torch.tensor([*POINTS, last], dtype=torch.complex128, device=device)
        omegas = [
            torch.tensor(omega, dtype=torch.complex128, device=device, requires_grad=True)
            for omega in OMEGAS
        ]
        kept = torch.arange(len(z), device=device) < len(POINTS)
        loss = sum(
            torch.where(kept, value, 0.0).abs().sum()
            for value in results(function(z, Lattice(*omegas)))
        )
        assert isinstance(loss, torch.Tensor)
        return torch.autograd.grad(loss, omegas)

    found = gradients(special)
    assert all(torch.isfinite(gradient.abs()) for gradient in found)
    assert_identical(found, gradients(0.5 + 0.75j))


# --- Lattices that are none ----------------------------------------------------------------

NO_LATTICES = {
    "negatively oriented": (1.0 - 0.25j, -0.5 - 1.5j),
    "negatively oriented, skew": (0.7 + 0.1j, 8.5 - 0.3j),
    "collinear": (1.0 + 0.5j, 2.0 + 1.0j),
    "collinear, opposite directions": (0.1875 + 0.5625j, -0.3125 - 0.9375j),
    "zero omega1": (0.0, 1j),
    "zero omega3": (1.0, 0.0),
    "no number": (complex("nan"), 1j),
    "infinite": (1.0, complex(0.0, float("inf"))),
}
every_precision = pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])


@every_device
@every_precision
@pytest.mark.parametrize("case", NO_LATTICES)
def test_half_periods_that_span_no_lattice_give_nan(case, dtype, device):
    """Nobody looks at tensors when the lattice is made, so the values have to tell."""
    lattice = Lattice(*(torch.tensor(w, dtype=dtype, device=device) for w in NO_LATTICES[case]))
    z = torch.tensor(POINTS, dtype=dtype, device=device)
    # (A sum of two points is theirs whatever the lattice; the truncated series has no basis.)
    for name in OF_POINTS.keys() - {"add", "lattice_sum"}:
        for value in results(OF_POINTS[name](z, lattice)):
            assert value.isnan().all(), name
    for name, function in OF_LATTICES.items():
        for value in function(lattice):
            assert value.isnan().all(), name


@every_device
@every_precision
@pytest.mark.parametrize("case", NO_LATTICES)
def test_a_lattice_that_is_none_changes_no_bit_of_the_others(case, dtype, device):
    """Neither of values nor of gradients, that of a half-period they share included."""
    bad1, bad3 = NO_LATTICES[case]
    # Where omega1 itself is to blame, no lattice can share it: the others share a good one.
    is_shared = case not in ("zero omega1", "no number")
    first, bad = ([bad1], bad3) if is_shared else ([OMEGAS[0]], complex("nan"))
    third = [1.5j * first[0], (0.5 + 0.75j) * first[0]]

    def values_and_gradients(third: list[complex]) -> tuple[Any, ...]:
        omega1, omega3 = (
            torch.tensor(w, dtype=dtype, device=device, requires_grad=True) for w in (first, third)
        )
        z = torch.tensor(0.25 + 0.125j, dtype=dtype, device=device)
        value = BACKEND.green(z, Lattice(omega1, omega3))
        gradients = torch.autograd.grad(value[:2].sum(), (omega1, omega3))
        return value[:2].detach(), gradients[0], gradients[1][:2]

    assert_identical(values_and_gradients([*third, bad]), values_and_gradients(third))


@every_device
@every_precision
@pytest.mark.parametrize("e", [1.0, -2.0, 0.375, 1 + 2j])
def test_invariants_without_discriminant_give_nan(e, dtype, device):
    """Roots e, e, -2e. Beside them, an invariant shared with a lattice keeps its gradient."""
    g2, g3 = (
        torch.tensor(g, dtype=dtype, device=device, requires_grad=True)
        for g in (12 * e**2, [-8 * e**3, -3 * e**3])
    )
    lattice = BACKEND.lattice_from_invariants(g2, g3)
    for omega in (lattice.omega1, lattice.omega3):
        assert omega[0].isnan()
        assert omega[1].isfinite()
    [gradient] = torch.autograd.grad(lattice.omega1[1].abs(), g2)
    alone = BACKEND.lattice_from_invariants(g2, g3[1])
    assert_identical(gradient, torch.autograd.grad(alone.omega1.abs(), g2)[0])


@every_device
@every_precision
def test_the_next_number_has_a_discriminant(dtype, device):
    """In working precision cube and square agree, but there is a tall lattice all the same."""
    part = torch.float32 if dtype is torch.complex64 else torch.float64
    g2, g3 = (torch.tensor(g, dtype=part, device=device) for g in (3.0, 1.0))
    for towards in (0.0, 2.0):
        neighbour = torch.nextafter(g3, torch.tensor(towards, dtype=part, device=device))
        lattice = BACKEND.lattice_from_invariants(g2, neighbour)
        assert lattice.omega1.isfinite()
        assert lattice.tau.imag > 2


# --- Calls that compute no numbers, and points there are none of ---------------------------------


def _in_fake_mode(z, lattice):
    with FakeTensorMode():
        return BACKEND.zeta(torch.empty(z.shape, dtype=z.dtype), lattice)


def _recorded(mode):
    return lambda z, lattice: make_fx(lambda x: BACKEND.zeta(x, lattice), tracing_mode=mode)(z)


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize(
    "record",
    [_in_fake_mode, _recorded("fake"), _recorded("symbolic")],
    ids=["fake mode", "make_fx fake", "make_fx symbolic"],
)
def test_a_call_without_data_works_and_leaves_the_next_one_alone(record, is_known):
    torch_operators.table_of_numbers.cache_clear()
    z = torch.tensor(POINTS, dtype=torch.complex128)
    expected = BACKEND.zeta(z, NUMBERS)
    if not is_known:
        torch_operators.table_of_numbers.cache_clear()
    record(z, NUMBERS)
    assert torch.equal(BACKEND.zeta(z, NUMBERS), expected)


@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 2), (0, 1)])
@pytest.mark.parametrize("kind", ["numbers", "tensors"])
def test_no_points_have_a_gradient_without_elements(kind, shape):
    omegas = [torch.tensor(w, dtype=torch.complex128, requires_grad=True) for w in OMEGAS]
    lattice = NUMBERS if kind == "numbers" else Lattice(*omegas)
    z = torch.zeros(shape, dtype=torch.complex128, requires_grad=True)
    BACKEND.zeta(z, lattice).real.sum().backward()
    assert z.grad is not None
    assert z.grad.shape == shape
    if kind == "tensors":
        assert [None if w.grad is None else w.grad.item() for w in omegas] == [0.0, 0.0]


# --- Points that move with the lattice -----------------------------------------------------------

COORDINATES = torch.tensor([[0.3, 0.2], [0.5, 0.7]], dtype=torch.float64)
PARTS = torch.tensor([1.0, -0.25, 0.5, 1.5], dtype=torch.float64)


def test_the_green_function_of_coordinates_is_real_and_so_is_its_gradient():
    omega = PARTS.clone().requires_grad_()
    values = values_at_coordinates("green", COORDINATES, omega)
    assert values.shape == (1, 2)
    (gradient,) = torch.autograd.grad(values.sum(), omega)
    plain = torch.func.grad(lambda w: values_at_coordinates("green", COORDINATES, w).sum())(PARTS)
    assert torch.allclose(gradient, plain, rtol=1e-13, atol=0.0)


@pytest.mark.parametrize(
    ("function", "coordinates", "omega", "error"),
    [
        ("inverse_wp", COORDINATES, PARTS, InputError),
        ("wp", COORDINATES, PARTS, InputError),
        ("zeta", COORDINATES.float(), PARTS, InputTypeError),
        ("zeta", COORDINATES.half(), PARTS.half(), InputTypeError),
        ("zeta", torch.tensor([[0, 1]]), PARTS, InputTypeError),
    ],
)
def test_coordinates_that_have_no_values_are_refused(function, coordinates, omega, error):
    with pytest.raises(error):
        values_at_coordinates(function, coordinates, omega)


def test_a_batch_of_lattices_is_evaluated_in_blocks():
    """The memory beyond the results is bounded, and blocks do not change a bit."""
    generator = torch.Generator().manual_seed(3)
    z = torch.complex(*torch.rand(2, 500, generator=generator, dtype=torch.float64))
    omega3 = 1j * (1.0 + torch.rand(900, 1, generator=generator, dtype=torch.float64))
    lattice = Lattice(torch.ones_like(omega3), omega3)
    one_by_one = Lattice(lattice.omega1[7:8], lattice.omega3[7:8])
    BACKEND.zeta(z, one_by_one)  # what is kept between calls is made here
    tracemalloc.start()
    values = BACKEND.zeta(z, lattice)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**25  # NumPy's arrays; one of the whole batch is 3.6 MB, and dozens are alive
    assert torch.equal(values[7:8], BACKEND.zeta(z, one_by_one))
