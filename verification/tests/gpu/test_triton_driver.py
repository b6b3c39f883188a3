"""Kernels of Triton on the emulated device: launched, counted, measured, and sabotaged."""

from __future__ import annotations

import re
from itertools import chain

import pytest

torch = pytest.importorskip("torch", reason="the torch extra is not installed")
triton = pytest.importorskip("triton", reason="Triton is not installed; `nox -s gpu` has it")

import triton.language as tl

from verification import cases
from verification.gpu import emulated_cuda, kernel_ceilings, triton_driver
from verification.judge import JudgedRow, judge, load_contracts
from verification.measure import measure
from verification.subjects import torch_subject

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.usefixtures("on_emulated_device"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning"),
]


@triton.jit
def scaled_sum(x, y, out, factor, count, BLOCK: tl.constexpr):  # noqa: N803 - Triton's way
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < count
    value = tl.load(x + places, mask=inside) * factor + tl.load(y + places, mask=inside)
    tl.store(out + places, value, mask=inside)


@triton.jit
def block_sums(x, out, BLOCK: tl.constexpr):  # noqa: N803
    values = tl.load(x + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))
    tl.store(out + tl.program_id(0), tl.sum(values, axis=0))


def test_a_kernel_that_is_launched_directly_runs_and_is_counted():
    x, y = (torch.linspace(0, i, 1000, dtype=torch.float32, device="cuda") for i in (1, 2))
    out = torch.zeros(1000, device="cuda")
    with emulated_cuda.count_launches() as counts, emulated_cuda.forbid_synchronisation():
        scaled_sum[(8,)](x, y, out, 0.5, 1000, BLOCK=128)
    assert counts.launches == {"triton::scaled_sum": 1}
    assert torch.equal(out.cpu(), (x * 0.5 + y).cpu())


def test_a_kernel_whose_threads_work_together():
    x = torch.arange(1024, dtype=torch.float64, device="cuda")
    out = torch.zeros(4, dtype=torch.float64, device="cuda")
    block_sums[(4,)](x, out, BLOCK=256)
    assert torch.equal(out.cpu(), x.cpu().reshape(4, 256).sum(1))


def test_a_tensor_on_the_host_is_refused():
    x = torch.zeros(256, device="cuda")
    with pytest.raises(ValueError, match="cannot be accessed from Triton"):
        block_sums[(1,)](x, torch.zeros(1), BLOCK=256)


def test_the_code_is_compiled_for_both_devices():
    x, out = torch.zeros(256, device="cuda"), torch.zeros(1, device="cuda")
    block_sums[(1,)](x, out, BLOCK=256)
    kernel = [k for k in triton_driver.kernels.values() if k.name == "block_sums"][-1]
    for capability in (80, 90):
        assert re.search(rf"\.target sm_{capability}", kernel.compiled_again(capability))
        assert 0 < kernel_ceilings.usage(kernel, capability).registers < 64
    assert kernel_ceilings.usage(kernel, 80).spilled_bytes == 0


def test_every_call_has_ceilings():
    assert set(kernel_ceilings.load_ceilings()) == set(kernel_ceilings.cases())


@pytest.fixture(scope="module")
def compiled_wp():
    """wp in single precision, compiled, and the kernels made for it."""
    before = set(triton_driver.kernels)
    subject = torch_subject("cuda", compile=True)
    holds = rows_of(subject)
    found = [kernel for key, kernel in triton_driver.kernels.items() if key not in before]
    return subject, holds, [kernel for kernel in found if kernel.launches]


def rows_of(subject) -> list[JudgedRow]:
    found = [
        measure(
            subject,
            dtype="complex64",
            function="wp_and_prime",
            family=family,
            region="generic",
            count=8,
        )
        for family in cases.FAMILIES
    ]
    return judge(chain.from_iterable(found), load_contracts())


@pytest.mark.slow
def test_compiled_code_holds_its_contract_and_is_named_after_its_ptx(compiled_wp):
    subject, rows, kernels = compiled_wp
    assert subject.label == "torch cuda (emulated) compiled, PTX on the host"
    assert [row.passes for row in rows] == [True, True]
    assert kernels


SABOTAGE = {
    "log2(e) in the exponential": ("0f3FB8AA3B", "0f3FB8BB3B"),
    "-1/6 in the sine": ("0fBE2AAAA8", "0fBE2AABA8"),
    "a sum that becomes a difference": ("add.f32", "sub.f32"),
    "a quotient that becomes a product": ("div.full.f32", "mul.f32"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SABOTAGE)
def test_sabotage_of_the_ptx_is_noticed_by_the_verifier(compiled_wp, name, monkeypatch):
    subject, _, (kernel,) = compiled_wp
    right, wrong = SABOTAGE[name]
    before, found, after = kernel.ptx.rpartition(right)
    assert found
    monkeypatch.setattr(kernel, "ptx", before + wrong + after)
    assert not all(row.passes for row in rows_of(subject))
