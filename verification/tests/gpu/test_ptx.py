"""PTX translated to C: each instruction computes on the host what the PTX ISA says."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from verification.gpu.ptx import PtxError, parse
from verification.gpu.ptx_host import Arithmetic, PtxOnTheHost
from verification.gpu.ptx_to_c import translate
from verification.gpu.triton_driver import Kernel, Launch

REGISTERS = """
    .reg .pred %p<9>; .reg .b32 %r<20>; .reg .b64 %rd<20>; .reg .f32 %f<20>; .reg .f64 %d<20>;
"""


def ptx(body: str, threads: int = 1) -> str:
    """A kernel of two pointers, %rd1 to the input and %rd2 to the output, and of one number."""
    return f"""
.version 8.7
.target sm_80
.address_size 64
.extern .shared .align 16 .b8 global_smem[];
.visible .entry kernel(
    .param .u64 .ptr .global .align 1 kernel_param_0,
    .param .u64 .ptr .global .align 1 kernel_param_1,
    .param .f32 kernel_param_2
)
.reqntid {threads}
{{
    {REGISTERS}
    ld.param.b64 %rd1, [kernel_param_0];
    ld.param.b64 %rd2, [kernel_param_1];
    {body}
    ret;
}}
"""


def run(
    text: str,
    given: Any,
    result: Any,
    grid: tuple[int, int, int] = (1, 1, 1),
    arithmetic: Arithmetic | None = None,
) -> Any:
    """Launch a kernel on the memory of two arrays; the second, when it is written."""
    given, result = np.array(given), np.array(result)
    kernel = Kernel("kernel", None, {"num_warps": 1, "shared": 4096}, text)
    addresses = (given.ctypes.data, result.ctypes.data, 0.0)
    PtxOnTheHost(arithmetic or Arithmetic())(kernel, Launch(grid, addresses))
    return result


def bits(value: float) -> int:
    return int(np.float32(value).view(np.uint32))


INTEGERS = {
    "add.s32 %r3, %r1, %r2;": lambda a, b: a + b,
    "sub.s32 %r3, %r1, %r2;": lambda a, b: a - b,
    "mul.lo.s32 %r3, %r1, %r2;": lambda a, b: a * b,
    "mul.hi.u32 %r3, %r1, %r2;": lambda a, b: (a * b) >> 32,
    "mul.hi.s32 %r3, %r1, %r2;": lambda a, b: (signed(a) * signed(b)) >> 32,
    "mad.lo.s32 %r3, %r1, %r2, 7;": lambda a, b: a * b + 7,
    "shl.b32 %r3, %r1, 5;": lambda a, b: a << 5,
    "shl.b32 %r3, %r1, 40;": lambda a, b: 0,
    "shr.u32 %r3, %r1, 5;": lambda a, b: a >> 5,
    "shr.s32 %r3, %r1, 5;": lambda a, b: signed(a) >> 5,
    "shr.s32 %r3, %r1, 99;": lambda a, b: signed(a) >> 31,
    "shf.l.wrap.b32 %r3, %r1, %r2, 9;": lambda a, b: (b << 9) | (a >> 23),
    "bfe.u32 %r3, %r1, 20, 11;": lambda a, b: (a >> 20) & 0x7FF,
    "and.b32 %r3, %r1, %r2;": lambda a, b: a & b,
    "xor.b32 %r3, %r1, -1;": lambda a, b: ~a,
    "not.b32 %r3, %r1;": lambda a, b: ~a,
    "neg.s32 %r3, %r1;": lambda a, b: -a,
    "min.s32 %r3, %r1, %r2;": lambda a, b: min(signed(a), signed(b)),
    "max.u32 %r3, %r1, %r2;": lambda a, b: max(a, b),
    "clz.b32 %r3, %r1;": lambda a, b: 32 - a.bit_length(),
    "popc.b32 %r3, %r1;": lambda a, b: a.bit_count(),
    "prmt.b32 %r3, %r1, %r2, 0x5410;": lambda a, b: (b << 16) | (a & 0xFFFF),
    "mov.b64 %rd3, {%r1, %r2}; mov.b64 {%r4, %r3}, %rd3;": lambda a, b: b,
    "add.cc.u32 %r4, %r1, %r2; addc.u32 %r3, 0, 0;": lambda a, b: (a + b) >> 32,
    "sub.cc.u32 %r4, %r1, %r2; subc.u32 %r3, 9, 0;": lambda a, b: 9 - (a < b),
    "mad.lo.cc.u32 %r4, %r1, %r2, %r1; madc.hi.u32 %r3, %r1, %r2, 0;": (
        lambda a, b: (a * b + a) >> 32
    ),
    "mul.wide.u32 %rd3, %r1, %r2; shr.u64 %rd3, %rd3, 32; cvt.u32.u64 %r3, %rd3;": (
        lambda a, b: (a * b) >> 32
    ),
    "setp.lt.s32 %p1, %r1, %r2; selp.b32 %r3, 1, 2, %p1;": (
        lambda a, b: 1 if signed(a) < signed(b) else 2
    ),
    "setp.lo.u32 %p1, %r1, %r2; mov.b32 %r3, 4; @!%p1 mov.b32 %r3, 5;": (
        lambda a, b: 4 if a < b else 5
    ),
}


def signed(word: int) -> int:
    return word - (1 << 32) if word >> 31 else word


@pytest.mark.parametrize("code", INTEGERS)
@pytest.mark.parametrize(
    "words", [(3, 5), (0x80000001, 7), (7, 0xFFFFFFF0), (0xDEADBEEF, 0xCAFEBABE)]
)
def test_integers(code, words):
    body = f"ld.global.v2.b32 {{%r1, %r2}}, [%rd1]; {code} st.global.b32 [%rd2], %r3;"
    (got,) = run(ptx(body), np.array(words, dtype=np.uint32), np.zeros(1, np.uint32))
    assert int(got) == INTEGERS[code](*words) % 2**32


NAN, INF = math.nan, math.inf
FLOATS = {
    ("add.f32 %f3, %f1, %f2;", 1.5, 2.25): 3.75,
    ("sub.rn.f32 %f3, %f1, %f2;", 1.0, 2.0**-30): 1.0,
    ("mul.f32 %f3, %f1, %f2;", 2.0**-100, 2.0**-40): 2.0**-140,
    ("mul.ftz.f32 %f3, %f1, %f2;", 2.0**-100, 2.0**-40): 0.0,
    ("add.ftz.f32 %f3, %f1, %f2;", 2.0**-140, 0.0): 0.0,
    ("add.rz.f32 %f3, %f1, %f2;", 1.0, 0.75 * 2.0**-23): 1.0,
    ("add.rz.ftz.f32 %f3, %f1, %f2;", -1.0, 2.0**-30): -1.0 + 2.0**-24,
    ("div.rn.f32 %f3, %f1, %f2;", 1.0, 3.0): float(np.float32(1) / np.float32(3)),
    ("div.full.f32 %f3, %f1, %f2;", 1.0, 3.0): float(np.float32(1) / np.float32(3)),
    ("sqrt.rn.f32 %f3, %f1;", 2.0, 0.0): float(np.sqrt(np.float32(2))),
    ("ex2.approx.ftz.f32 %f3, %f1;", 3.0, 0.0): 8.0,
    ("lg2.approx.ftz.f32 %f3, %f1;", 8.0, 0.0): 3.0,
    ("neg.f32 %f3, %f1;", 1.0, 0.0): -1.0,
    ("abs.f32 %f3, %f1;", -1.0, 0.0): 1.0,
    ("copysign.f32 %f3, %f1, %f2;", -0.0, 3.0): -3.0,
    ("min.f32 %f3, %f1, %f2;", NAN, 3.0): 3.0,
    ("max.f32 %f3, %f1, %f2;", 2.0, 3.0): 3.0,
    ("cvt.rni.f32.f32 %f3, %f1;", 2.5, 0.0): 2.0,
    ("cvt.rzi.f32.f32 %f3, %f1;", -2.5, 0.0): -2.0,
    ("cvt.sat.f32.f32 %f3, %f1;", NAN, 0.0): 0.0,
    ("cvt.rni.s32.f32 %r3, %f1; cvt.rn.f32.s32 %f3, %r3;", 1e20, 0.0): 2.0**31,
    ("cvt.rzi.u32.f32 %r3, %f1; cvt.rn.f32.u32 %f3, %r3;", -5.0, 0.0): 0.0,
    ("cvt.f64.f32 %d3, %f1; cvt.rn.f32.f64 %f3, %d3;", 0.1, 0.0): float(np.float32(0.1)),
    ("setp.ne.f32 %p1, %f1, %f2; selp.f32 %f3, 0f3F800000, 0f00000000, %p1;", NAN, 1.0): 0.0,
    ("setp.neu.f32 %p1, %f1, %f2; selp.f32 %f3, 0f3F800000, 0f00000000, %p1;", NAN, 1.0): 1.0,
    ("setp.ltu.f32 %p1, %f1, %f2; selp.f32 %f3, 0f3F800000, 0f00000000, %p1;", 2.0, 1.0): 0.0,
    ("setp.nan.f32 %p1, %f1, %f2; selp.f32 %f3, 0f3F800000, 0f00000000, %p1;", NAN, 1.0): 1.0,
    ("setp.num.f32 %p1, %f1, %f2; selp.f32 %f3, 0f3F800000, 0f00000000, %p1;", NAN, 1.0): 0.0,
}


@pytest.mark.parametrize(("code", "a", "b"), FLOATS)
def test_floats(code, a, b):
    body = f"ld.global.v2.b32 {{%f1, %f2}}, [%rd1]; {code} st.global.b32 [%rd2], %f3;"
    (got,) = run(ptx(body), np.array([a, b], dtype=np.float32), np.zeros(1, np.float32))
    assert bits(float(got)) == bits(FLOATS[code, a, b])


@pytest.mark.parametrize(("rounding", "expected"), [("rn", 1.0), ("rm", 1.0 - 2.0**-24)])
def test_a_fused_multiply_add_rounds_once(rounding, expected):
    body = f"""
    ld.global.v2.b32 {{%f1, %f2}}, [%rd1]; ld.global.b32 %f3, [%rd1+8];
    fma.{rounding}.ftz.f32 %f4, %f1, %f2, %f3; st.global.b32 [%rd2], %f4;"""
    given = np.array([-(2.0**-13), 2.0**-13, 1.0], dtype=np.float32)
    (got,) = run(ptx(body), given, np.zeros(1, np.float32))
    assert float(got) == expected


def test_double_precision_and_local_memory():
    body = """
    .local .align 8 .b8 depot[32];
    mov.b64 %rd3, depot; cvta.local.u64 %rd4, %rd3;
    ld.global.v2.b64 {%d1, %d2}, [%rd1];
    st.local.b64 [%rd3+8], %d2; ld.b64 %d4, [%rd4+8];
    fma.rn.f64 %d3, %d1, %d4, 0d3FF0000000000000; st.global.b64 [%rd2], %d3;"""
    (got,) = run(ptx(body), np.array([0.1, 0.7]), np.zeros(1))
    exact = Fraction(0.1) * Fraction(0.7) + 1
    assert float(got) == float(exact)


CALL = """
.func (.param .b64 func_retval0) twice(.param .b64 twice_param_0)
{
    .reg .f64 %d<3>;
    ld.param.b64 %d1, [twice_param_0];
    add.f64 %d2, %d1, %d1;
    st.param.b64 [func_retval0], %d2;
    ret;
}
"""


def test_calls():
    body = """
    ld.global.b64 %d1, [%rd1];
    { .param .b64 param0; .param .b64 retval0; st.param.b64 [param0], %d1;
      call.uni (retval0), twice, (param0); ld.param.b64 %d2, [retval0]; }
    st.global.b64 [%rd2], %d2;"""
    assert run(ptx(body) + CALL, np.array([0.3]), np.zeros(1)) == 0.6


def test_the_threads_of_a_warp_exchange_words_and_the_blocks_of_a_grid_are_told_apart():
    """Each block adds its threads' numbers, first within warps and then through shared memory."""
    steps = "\n".join(
        f"shfl.sync.bfly.b32 %r5, %r4, {distance}, 31, -1; add.s32 %r4, %r4, %r5;"
        for distance in (16, 8, 4, 2, 1)
    )
    body = f"""
    mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x;
    mad.lo.s32 %r6, %r2, %r3, %r1; mul.wide.s32 %rd3, %r6, 4; add.s64 %rd4, %rd1, %rd3;
    ld.global.b32 %r4, [%rd4];
    {steps}
    shr.u32 %r7, %r1, 5; shl.b32 %r7, %r7, 2; mov.b32 %r8, global_smem; add.s32 %r8, %r8, %r7;
    st.shared.b32 [%r8], %r4;
    bar.sync 0;
    setp.ne.s32 %p1, %r1, 0; @%p1 bra $L__done;
    mov.b32 %r9, global_smem; ld.shared.v2.b32 {{%r10, %r11}}, [%r9]; add.s32 %r12, %r10, %r11;
    mul.wide.s32 %rd5, %r2, 4; add.s64 %rd6, %rd2, %rd5; st.global.b32 [%rd6], %r12;
$L__done:"""
    given = np.arange(3 * 64, dtype=np.int32) ** 2
    got = run(ptx(body, threads=64), given, np.zeros(3, np.int32), grid=(3, 1, 1))
    np.testing.assert_array_equal(got, given.reshape(3, 64).sum(axis=1))


def test_perturbed_instructions_stay_within_their_bound_and_reach_it():
    body = """
    ld.global.v2.b32 {%f1, %f2}, [%rd1]; div.full.f32 %f3, %f1, %f2; st.global.b32 [%rd2], %f3;"""
    errors = []
    for seed in range(1, 20):
        given = np.array([1.0 + seed / 7, 3.0], dtype=np.float32)
        (got,) = run(ptx(body), given, np.zeros(1, np.float32), arithmetic=Arithmetic(seed))
        exact = Fraction(float(given[0])) / 3
        errors.append(float((Fraction(float(got)) - exact) / Fraction(float(np.spacing(got)))))
    assert max(map(abs, errors)) <= 2
    assert max(errors) > 1
    assert min(errors) < -1
    exact_instruction = body.replace("div.full", "div.rn")
    given = np.array([2.0, 3.0], dtype=np.float32)
    (got,) = run(ptx(exact_instruction), given, np.zeros(1, np.float32), arithmetic=Arithmetic(1))
    assert got == given[0] / given[1]


def test_fusion_changes_a_sum_of_a_product_for_some_seeds():
    text = translate(parse(ptx("mul.rn.f32 %f3, %f1, %f2; sub.rn.f32 %f4, %f1, %f3;")), True)
    assert "is_fused(1) ? fmaf(-as_f32(R.V_f1), as_f32(R.V_f2), as_f32(R.V_f1))" in text
    for unrelated in (
        "mul.rn.ftz.f32 %f3, %f1, %f2; add.rn.f32 %f4, %f3, %f1;",
        "mul.f32 %f3, %f1, %f2; mov.b32 %f1, %f2; add.f32 %f4, %f3, %f2;",
        "mul.f32 %f3, %f1, %f2; $L__1: add.f32 %f4, %f3, %f2;",
    ):
        assert "is_fused(1)" not in translate(parse(ptx(unrelated)), True)
    assert "is_fused(1)" not in translate(
        parse(ptx("mul.f32 %f3, %f1, %f2; add.f32 %f4, %f3, %f1;"))
    )


@pytest.mark.parametrize(
    ("code", "named"),
    [
        ("tanh.approx.f32 %f1, %f2;", "tanh"),
        ("mul.rz.f32 %f1, %f2, %f3;", "mul.rz.f32"),
        ("add.rz.sat.f32 %f1, %f2, %f3;", "add.rz.sat.f32"),
        ("add.f32 %f1, %f2, %unknown;", "%unknown"),
        ("min.NaN.f32 %f1, %f2, %f3;", "min.NaN.f32"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(code, named):
    with pytest.raises(PtxError, match=named):
        translate(parse(ptx(code)))
