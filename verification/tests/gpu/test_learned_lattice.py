"""Encodings that learn a lattice, on the emulated device: few launches, no copy, no wait.

Their operators are kernels that Triton compiles; here their PTX runs on the host.
"""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the torch extra is not installed")
pytest.importorskip("triton", reason="Triton is not installed")

from backends import torch_runners
from backends.torch_operators import values_at_coordinates
from verification.bench.count_models import ceilings_of, encoding_step
from verification.gpu.emulated_cuda import count_launches, forbid_synchronisation
from verification.tests.encoding_cases import small
from wefpe_core import Lattice, get_backend

pytestmark = [pytest.mark.cuda, pytest.mark.usefixtures("on_emulated_device")]

BACKEND = get_backend("torch")
HEAT = pytest.param("weierstrass_heat", {"lattice": "general"}, marks=pytest.mark.slow)
LEARNED: list[Any] = [
    ("weierstrass", {}),
    ("weierstrass", {"learn_alpha": True}),
    ("weierstrass_relative", {}),
    ("weierstrass_green", {}),
    HEAT,  # its kernel takes some ten seconds to compile
]


@pytest.mark.parametrize(("name", "options"), LEARNED, ids=str)
def test_a_training_step_could_be_captured_in_a_cuda_graph(
    name: str, options: dict[str, Any]
) -> None:
    """Neither a copy nor a wait is a necessary condition of it."""
    encoding = small(name, grid=(8, 8), **options).train().to("cuda")
    step = encoding_step(encoding, 2, "cuda", layers=1)
    run_step(step)  # what is made once, such as the coordinates of the grid
    with forbid_synchronisation(), count_launches() as counts:
        run_step(step)
    assert counts.host_to_device == counts.device_to_host == counts.synchronisations == 0
    assert 0 < counts.total <= ceilings_of(encoding)["eager"]


def run_step(step: Any) -> None:
    gradients = step.forward()
    step.backward(gradients)


def values_and_gradients(device: str, batch: int | None) -> list[Any]:
    omegas = [
        torch.tensor(w if batch is None else [[w * (1 + 0.1 * k)] for k in range(batch)])
        .to(torch.complex128)
        .to(device)
        .requires_grad_()
        for w in (1.0 - 0.25j, 0.5 + 1.5j)
    ]
    z = torch.linspace(0.5, 1.2, 50, dtype=torch.float64) * (0.6 + 0.8j)  # away from the poles
    z = z.to(torch.complex128).to(device).requires_grad_()
    wp, wp_prime = BACKEND.wp_and_prime(z, Lattice(*omegas))
    gradients = torch.autograd.grad((wp * (1 + 2j)).real.sum() + wp_prime.imag.sum(), [z, *omegas])
    return [x.detach().cpu() for x in (wp, wp_prime, *gradients)]


@pytest.mark.parametrize("batch", [None, 3], ids=["one lattice", "a batch of lattices"])
def test_kernels_and_numpy_agree_in_values_and_gradients(batch: int | None) -> None:
    for got, want in zip(
        values_and_gradients("cuda", batch), values_and_gradients("cpu", batch), strict=True
    ):
        assert got.shape == want.shape
        scale = want.abs().max()
        assert (got - want).abs().max() <= 64 * torch.finfo(torch.float64).eps * scale


@pytest.mark.slow
def test_the_kernel_of_log_heat_and_numpy_agree_in_values_and_gradients() -> None:
    start = torch.tensor([[0.31, 0.22, 0.05], [1.4, -0.63, 0.4], [0.9, 2.2, 9.0]]).double()
    found = []
    for device in ("cpu", "cuda"):
        points = start.to(device).requires_grad_()
        omega = torch.tensor([1.0, -0.25, 0.5, 1.5]).double().to(device).requires_grad_()
        values = values_at_coordinates("log_heat", points, omega)
        gradients = torch.autograd.grad(values.sum(), [points, omega])
        found.append([x.detach().cpu() for x in (values, *gradients)])
    for want, got in zip(*found, strict=True):
        assert (got - want).abs().max() <= 64 * torch.finfo(torch.float64).eps * want.abs().max()


def test_a_function_on_a_learned_lattice_takes_two_launches() -> None:
    omegas = [torch.tensor(w, dtype=torch.complex128, device="cuda") for w in (1.0, 1.5j)]
    points = torch.rand(100, 2, dtype=torch.float64, device="cuda")
    omega = torch.view_as_real(torch.stack(omegas)).flatten()
    values_at_coordinates("green", points, omega)
    with count_launches() as counts:
        values_at_coordinates("green", points, omega)
    kernels = [name for name in counts.launches if name.startswith("triton::")]
    assert sum(counts.launches[name] for name in kernels) == 2
    assert counts.total <= 3  # torch makes room for the results


def test_without_triton_the_slower_path_works(monkeypatch: pytest.MonkeyPatch) -> None:
    want = values_and_gradients("cuda", None)
    monkeypatch.setattr(torch_runners, "_has_triton", lambda: False)
    got = values_and_gradients("cuda", None)
    with count_launches() as counts:
        values_and_gradients("cuda", None)
    assert counts.total > 500
    assert not any(name.startswith("triton::") for name in counts.launches)
    for x, y in zip(got, want, strict=True):
        assert (x - y).abs().max() <= 64 * torch.finfo(torch.float64).eps * y.abs().max()
