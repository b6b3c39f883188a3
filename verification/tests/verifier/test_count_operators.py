"""The counter of operators counts known sequences exactly, and nothing can be hidden from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the torch extra is not installed")

from torch import Tensor

from verification.bench.count_operators import (
    CompiledCalls,
    CountError,
    Step,
    calls_in,
    count_compiled,
    count_operators,
    count_step,
)

NAMESPACE = "wefpe_counted"


@pytest.fixture
def hiding_operator() -> Iterator[Any]:
    """An operator of our own that calls four of torch."""

    def hiding(x: Tensor) -> Tensor:
        return ((x.sin() + 1.0) * 2.0).exp()

    operator = torch.library.custom_op(f"{NAMESPACE}::hiding", hiding, mutates_args=())
    operator.register_fake(torch.empty_like)
    yield operator
    operator._lib._destroy()


def two_by_three() -> Tensor:
    return torch.arange(6.0).reshape(2, 3)


# --- Eager ---------------------------------------------------------------------------------


def test_operators_are_counted_by_what_they_launch():
    x, total = two_by_three(), torch.zeros(2, 3)

    def work():
        y = x + 1.0  # 24 bytes
        z = y.t()  # a view
        y.mul_(2.0)  # in place: no new memory, but a launch
        torch.empty(5)  # 20 bytes that nobody writes
        total.copy_(z.t())  # a view and a launch
        return torch.mm(y, z)  # 16 bytes

    counts = count_operators(work)
    assert counts.names == Counter(
        {"aten::add": 1, "aten::t": 2, "aten::mul_": 1, "aten::empty": 1, "aten::copy_": 1}
        | {"aten::mm": 1}
    )
    assert (counts.launching, counts.free, counts.total) == (4, 3, 7)
    assert counts.new_bytes == 24 + 20 + 16


@pytest.mark.parametrize(
    ("work", "launching", "free"),
    [
        (lambda x: x.reshape(3, 2), 0, 1),
        (lambda x: x.t().reshape(6), 1, 2),  # a copy, and views of it
        (lambda x: x.t().contiguous(), 1, 1),
        (lambda x: x.expand(4, 2, 3), 0, 1),
        (lambda x: x.to(torch.float64), 1, 0),
        (lambda x: x.to(torch.float32), 0, 0),  # x itself: nothing is dispatched
        (lambda x: torch.where(x > 1.0, x, 0.0), 3, 0),  # the number becomes a tensor
        (lambda x: x.detach().requires_grad_(), 0, 1),
        (lambda x: torch.full((), 2.0), 1, 0),
        (lambda x: x.sum().item(), 2, 0),
    ],
    ids=lambda value: str(value) if isinstance(value, int) else None,
)
def test_views_and_copies_are_told_apart(work, launching, free):
    x = two_by_three()
    counts = count_operators(lambda: work(x))
    assert (counts.launching, counts.free) == (launching, free)


def test_forward_and_backward_are_counted_apart():
    x = two_by_three().requires_grad_()
    upstream = torch.ones(2, 3)

    def backward(answers):
        x.grad = None
        torch.autograd.backward(answers, [upstream])

    forward_counts, backward_counts = count_step(Step(lambda: [x.sin()], backward))
    assert forward_counts.names == {"aten::sin": 1}
    assert backward_counts.names == {"aten::cos": 1, "aten::mul": 1, "aten::detach": 1}


def test_a_step_is_counted_after_a_first_run():
    kept: list[Tensor] = []

    def forward():
        if not kept:
            kept.append(torch.ones(3).cumsum(0))
        return [kept[0] + 1.0]

    forward_counts, backward_counts = count_step(Step(forward, lambda answers: None))
    assert forward_counts.names == {"aten::add": 1}
    assert backward_counts.total == 0


def test_an_operator_of_ones_own_hides_nothing(hiding_operator):
    x = two_by_three()
    counts = count_operators(lambda: hiding_operator(x))
    inside = {"aten::sin": 1, "aten::add": 1, "aten::mul": 1, "aten::exp": 1}
    assert counts.names == {f"{NAMESPACE}::hiding": 1, **inside}
    assert (counts.launching, counts.free) == (5, 0)
    assert counts.new_bytes == 4 * 24  # the result is the memory of the last one
    assert torch.equal(hiding_operator(x), ((x.sin() + 1.0) * 2.0).exp())


def test_one_operator_more_is_seen():
    x = two_by_three()
    honest = count_operators(lambda: x.sin().cos())
    wasteful = count_operators(lambda: x.sin().clone().cos())
    assert wasteful.total == honest.total + 1
    assert wasteful.new_bytes == honest.new_bytes + 24


# --- Compiled ------------------------------------------------------------------------------

SOURCE = """
cpp_fused_0 = async_compile.cpp_pybinding(['float*'], r'''
extern "C" void kernel() { not_python(); }
''')
triton_poi_fused_1 = async_compile.triton('triton_poi_fused_1', '''text''')
async_compile.wait(globals())

class Runner:
    def recursively_apply_fns(self, fns):
        unrelated()

    def call(self, args):
        primals_1, = args
        args.clear()
        assert_size_stride(primals_1, (2, 3), (3, 1), 'input')
        with torch.cuda._DeviceGuard(0):
            stream0 = get_raw_stream(0)
            buf0 = empty_strided_cpu((2, 3), (3, 1), torch.float32)
            cpp_fused_0(primals_1, buf0)
            cpp_fused_0(primals_1, buf0)
            triton_poi_fused_1.run(buf0, 6, stream=stream0)
            extern_kernels.mm(reinterpret_tensor(buf0, (3, 2), (1, 3), 0), buf0, out=buf0)
            buf1 = torch.ops.aten.view_as_real.default(buf0)
            buf2 = torch.ops.aten.complex.default(buf0, buf0)
        return (buf2, )

def benchmark_compiled_module(args):
    cpp_fused_0(args)
"""


def test_calls_in_generated_code_are_counted_by_kind():
    assert calls_in(SOURCE) == CompiledCalls(generated=3, extern=1, fallback=1)
    assert calls_in(SOURCE).total == 5


def test_a_call_that_nobody_knows_is_no_zero():
    with pytest.raises(CountError, match="launch_secretly"):
        calls_in(SOURCE.replace("cpp_fused_0(primals_1, buf0)", "launch_secretly(buf0)"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")
def test_compiled_steps_are_counted(hiding_operator):
    x, matrix = two_by_three().requires_grad_(), torch.ones(3, 3)
    upstream = torch.ones(2, 3)

    def step_of(function):
        def backward(answers):
            x.grad = None
            for answer in answers:
                if answer.requires_grad:
                    answer.backward(upstream)

        return Step(lambda: [function(x)], backward)

    # sin and cos and their derivatives are one kernel each way.
    assert count_compiled(step_of(lambda x: x.sin().cos())) == CompiledCalls(generated=2)
    # A product of matrices between them divides each: two kernels and a routine, twice.
    product = count_compiled(step_of(lambda x: (x.sin() @ matrix).cos()))
    assert product == CompiledCalls(generated=4, extern=2)
    hidden = count_compiled(step_of(lambda x: hiding_operator(x.detach())))
    assert hidden == CompiledCalls(fallback=1)
    # Counting twice gives the same, although a cache could serve the second time.
    assert count_compiled(step_of(lambda x: x.sin().cos())) == CompiledCalls(generated=2)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")
def test_a_broken_graph_is_refused():
    def forward():
        torch._dynamo.graph_break()
        return [torch.ones(3)]

    with pytest.raises(torch._dynamo.exc.Unsupported):
        count_compiled(Step(forward, lambda answers: None))
