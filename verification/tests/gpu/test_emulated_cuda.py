"""The emulated CUDA device: what it refuses, what it counts, and how it is named.

``pytest -p verification.gpu.plugin`` installs the device.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch", reason="the torch extra is not installed")

from verification.gpu import emulated_cuda
from verification.gpu.emulated_cuda import (
    Counts,
    SynchronisationError,
    count_launches,
    forbid_synchronisation,
)
from verification.gpu.torch_cuda import MODELS
from wefpe_core import Lattice, get_backend

BACKEND = get_backend("torch")


def counted(run: Callable[[], object]) -> Counts:
    with count_launches() as counts:
        run()
    return counts


pytestmark = [pytest.mark.cuda, pytest.mark.usefixtures("on_emulated_device")]


# --- What it computes and refuses ------------------------------------------------------------


def test_values_are_those_of_the_cpu_kernels():
    x = torch.linspace(-2, 2, 101, dtype=torch.float64)
    y = (x.cuda().exp() * 3).sin().reshape(-1, 1) @ x.cuda().reshape(1, -1)
    assert y.device == torch.device("cuda", 0)
    assert torch.equal(y.cpu(), (x.exp() * 3).sin().reshape(-1, 1) @ x.reshape(1, -1))


MIXTURES = {
    "sum": lambda a, b: a + b,
    "product of matrices": lambda a, b: a[None] @ b[:, None],
    "stack": lambda a, b: torch.stack([a, b]),
    "out": lambda a, b: torch.add(b, b, out=a),
    "in place": lambda a, b: a.mul_(b),
    "scalar in a stack": lambda a, b: torch.stack([a[0], b[0]]),
    "scalar in complex": lambda a, b: torch.complex(a, b[0]),
}


@pytest.mark.parametrize("mixture", MIXTURES)
def test_operands_on_different_devices_are_refused(mixture):
    device, host = torch.ones(3, device="cuda"), torch.ones(3)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        MIXTURES[mixture](device, host)
    assert MIXTURES[mixture](host.clone(), host) is not None


def test_a_generator_of_the_host_is_refused():
    with pytest.raises(RuntimeError, match="Expected a 'cuda' device type for generator"):
        torch.rand(3, device="cuda", generator=torch.Generator())


def test_numpy_does_not_see_the_memory_of_the_device():
    with pytest.raises(TypeError, match="can't convert cuda:0"):
        torch.ones(3, device="cuda").numpy()


# --- What it counts --------------------------------------------------------------------------


def test_launches_are_counted_by_operator():
    x = torch.ones(4, device="cuda")
    counts = counted(lambda: ((x * 2).sin() + x.reshape(2, 2)[0, 0]).sin().sum())
    expected = {"aten::mul": 1, "aten::sin": 2, "aten::add": 1, "aten::sum": 1}
    assert counts == Counts(launches=expected)
    assert counts.total == 5


def test_the_backward_pass_is_counted_too():
    x = torch.ones(4, device="cuda", requires_grad=True)
    y = x.sin()
    counts = counted(lambda: torch.autograd.grad(y, x, torch.ones_like(y)))
    assert counts.launches == {"aten::fill_": 1, "aten::cos": 1, "aten::mul": 1}


TRAFFIC = {
    "to the device": (lambda x: torch.ones(2).cuda(), Counts(host_to_device=1)),
    "tensor of numbers": (lambda x: torch.tensor([1.0], device="cuda"), Counts(host_to_device=1)),
    "to the host": (lambda x: x.cpu(), Counts(device_to_host=1)),
    "indices on the host": (
        lambda x: x[torch.tensor([0])],
        Counts({"aten::index": 1}, host_to_device=1),
    ),
    "scalar on the host in where": (
        lambda x: torch.where(x > 0, x, torch.tensor(0.0)),
        Counts({"aten::gt": 1, "aten::where": 1}, host_to_device=1),
    ),
    "scalar on the host in a sum": (lambda x: x + torch.tensor(1.0), Counts({"aten::add": 1})),
    "item": (lambda x: x[0].item(), Counts(synchronisations=1)),
    "branch": (lambda x: 1 if x[0] else 0, Counts(synchronisations=1)),
    "nonzero": (lambda x: x.nonzero(), Counts({"aten::nonzero": 1}, synchronisations=1)),
    "equal": (lambda x: torch.equal(x, x), Counts({"aten::equal": 1}, synchronisations=1)),
    "synchronize": (lambda x: torch.cuda.synchronize(), Counts(synchronisations=1)),
    "stream": (lambda x: torch.cuda.current_stream().synchronize(), Counts(synchronisations=1)),
}


@pytest.mark.parametrize("traffic", TRAFFIC)
def test_copies_and_synchronisations_are_counted(traffic):
    run, expected = TRAFFIC[traffic]
    x = torch.ones(2, device="cuda")
    assert counted(lambda: run(x)) == expected


@pytest.mark.parametrize("traffic", [name for name in TRAFFIC if "in a sum" not in name])
def test_copies_and_synchronisations_can_be_forbidden(traffic):
    run, _ = TRAFFIC[traffic]
    x = torch.ones(2, device="cuda")
    message = r"forbidden on the emulated device: (aten::\w+|cuda\w+Synchronize) \(\w+\)"
    with pytest.raises(SynchronisationError, match=message), forbid_synchronisation():
        run(x)
    run(x)  # allowed again


def test_launches_are_not_forbidden_and_other_errors_pass():
    x = torch.ones(3, device="cuda", requires_grad=True)
    with forbid_synchronisation():
        (x * torch.full((), 2.0, device="cuda")).sum().backward()
    with pytest.raises(RuntimeError, match="same device"), forbid_synchronisation():
        x + torch.ones(3)


def test_blocks_of_counting_may_be_nested():
    x = torch.ones(3, device="cuda")
    with count_launches() as outer:
        x.sin()
        inner = counted(x.cos)
    assert inner.launches == {"aten::cos": 1}
    assert outer.launches == {"aten::sin": 1, "aten::cos": 1}


# --- What it found in the library ------------------------------------------------------------


LATTICE = Lattice(1.0, 0.25 + 1.5j)
NUMBERS = {
    "number and tensor": lambda z: BACKEND.wp(z, Lattice(1.0, z[2])),
    "add": lambda z: BACKEND.add(z, z, z, z + 1, LATTICE),
    "lattice_sum": lambda z: BACKEND.lattice_sum(z, LATTICE, 3, 2),
    "lattice_from_invariants": lambda z: BACKEND.lattice_from_invariants(z[0], 1.5),
}


@pytest.mark.parametrize("case", NUMBERS)
def test_numbers_reach_the_device_without_a_copy(case):
    z = torch.tensor([0.3 + 0.2j, 0.7 - 0.1j, 0.25 + 1.5j], dtype=torch.complex128, device="cuda")
    with forbid_synchronisation():
        NUMBERS[case](z)


# --- How it is named -------------------------------------------------------------------------


def test_the_device_says_that_it_is_emulated():
    assert torch.cuda.get_device_name() == "cuda (emulated)"
    assert torch.cuda.get_device_properties(0).name == "cuda (emulated)"
    assert emulated_cuda.device_label("cuda:0") == "cuda (emulated)"
    assert emulated_cuda.device_label("cpu") == "cpu"
    assert torch.cuda.get_device_capability() in [divmod(known, 10) for known in MODELS]


def test_tests_for_cuda_are_named_after_the_emulated_device(request, subject):
    assert subject.label in ("numpy", "torch cpu", "torch cuda (emulated)")
    assert ("cuda (emulated)" in request.node.name) == ("cuda" in subject.label)
