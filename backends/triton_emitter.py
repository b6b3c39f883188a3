"""A traced `Program` as kernels of Triton, the target of `backends.emitters` for GPUs."""

from __future__ import annotations

import math

from backends.emitters import ARITHMETIC, Constants, statements
from backends.tracing import Program

# The unary minus of Triton is 0 - x, which makes 0 of 0 where -0 is meant. Its division and square
# root of float32 are approximate unless told to round, and so are its exponential and sine.
_TRITON = {
    **ARITHMETIC,
    "neg": "{0} * minus_one",
    "and": "{0} & {1}",
    "or": "{0} | {1}",
    "not": "~{0}",
    "where": "tl.where({0}, {1}, {2})",
    "isfinite": "({0} > minus_infinity) & ({0} < infinity)",
    "isinf": "({0} == infinity) | ({0} == minus_infinity)",
    "sign_of": "libdevice.copysign(one, {0})",
    "power_of_two": "power_of_two({0})",
    "two_to": "two_to({0})",
    "leading_bits": "leading_bits({0}, {1:.0f})",
    **{
        key: f"libdevice.{key}({{0}})"
        for key in ("exp", "expm1", "sin", "cos", "log", "log1p", "rint")
    },
    "sqrt": "tl.sqrt({0})",
    "hypot": "libdevice.hypot({0}, {1})",
    "arctan2": "libdevice.atan2({0}, {1})",
}
_TRITON_TARGETS = {
    "float64": _TRITON,
    "float32": {**_TRITON, "div": "tl.div_rn({0}, {1})", "sqrt": "tl.sqrt_rn({0})"},
}

# What a module of kernels begins with. Its helpers work on the binary representation. A subnormal
# number is scaled first, to have its leading bit where every other number has it.
TRITON_HEADER = """\
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def normal(x):
    if x.dtype == tl.float64:
        is_small = tl.abs(x) < tl.full([], 1e-280, tl.float64)
    else:
        is_small = tl.abs(x) < tl.full([], 1e-30, tl.float32)
    one = tl.full([], 1.0, x.dtype)
    scale = tl.where(is_small, tl.full([], 2.0**60, x.dtype), one)
    return x * scale, tl.where(is_small, tl.full([], 2.0**-60, x.dtype), one)


@triton.jit
def power_of_two(x):
    y, scale = normal(x)
    if x.dtype == tl.float64:
        power = (y.to(tl.int64, bitcast=True) >> 52 << 52).to(tl.float64, bitcast=True)
    else:
        power = (y.to(tl.int32, bitcast=True) >> 23 << 23).to(tl.float32, bitcast=True)
    is_positive = (x > 0.0) & (x < float("inf"))
    return tl.where(is_positive, power * scale, tl.full([], float("nan"), x.dtype))


@triton.jit
def two_to(k):
    if k.dtype == tl.float64:
        return ((k.to(tl.int64) + 1023) << 52).to(tl.float64, bitcast=True)
    else:
        return ((k.to(tl.int32) + 127) << 23).to(tl.float32, bitcast=True)


@triton.jit
def leading_bits(x, bits: tl.constexpr):
    y, scale = normal(x)
    if x.dtype == tl.float64:
        dropped: tl.constexpr = 53 - bits
        pattern = y.to(tl.int64, bitcast=True)
    else:
        dropped: tl.constexpr = 24 - bits
        pattern = y.to(tl.int32, bitcast=True)
    half_to_even = (1 << (dropped - 1)) - 1 + ((pattern >> dropped) & 1)
    rounded = ((pattern + half_to_even) >> dropped << dropped).to(x.dtype, bitcast=True) * scale
    return tl.where(x - x == 0.0, rounded, x)


"""


def triton_body(program: Program, dtype: str) -> tuple[list[str], list[str]]:
    """The statements of a program in Triton, and the names of its outputs.

    The inputs are names that the kernel has given values to. `dtype` is float64 or float32. The
    kernel belongs in a module that begins with `TRITON_HEADER`.
    """
    # A bare literal is float32 wherever Triton does not see what it is combined with.
    constants = Constants(f"tl.full([], {{}}, tl.{dtype})", 'float("inf")', 'float("nan")')
    named = {"one": 1.0, "minus_one": -1.0, "infinity": math.inf, "minus_infinity": -math.inf}
    for name, value in named.items():
        constants.define(name, value)
    body = statements(program, _TRITON_TARGETS[dtype], constants.name)
    outputs = [constants.name(output) for output in program.outputs]
    return [*constants.lines, *body], outputs


def triton_evaluate(program: Program, name: str, dtype: str, rows: int, length: int) -> str:
    """A kernel that evaluates a program at many points, one point a thread.

    Its arguments are pointers to numbers of `dtype`: `points`, for each point the inputs x and y,
    and x1 if the program has it; `tables`, `length` numbers of each lattice, the inputs t0, t1,
    ...; `values` for (rows, 2, n) numbers and `slopes` for all further outputs. Then the number of
    points, how many of them belong to one lattice, and the points of a block.
    """
    body, outputs = triton_body(program, dtype)
    point = [name for name in program.inputs if name[0] in "xy"]
    parts = [
        f"{part} = tl.load(points + {len(point)} * index + {k}, mask=inside, other=0.0)"
        for k, part in enumerate(point)
    ]
    loads = [f"tables += {length} * lattice"]
    loads += [f"{x} = tl.load(tables + {x[1:]})" for x in program.used_inputs if x[0] == "t"]
    stores = []
    for k, output in enumerate(outputs):
        target = f"values + {k} * n" if k < 2 * rows else f"slopes + {k - 2 * rows} * n"
        stores.append(f"tl.store({target} + index, {output}, mask=inside)")
    return _kernel(
        name,
        "points, tables, values, slopes, n, per_lattice, BLOCK: tl.constexpr",
        [
            "index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)",
            "inside = index < n",
            "lattice = tl.where(inside, index // per_lattice, 0)",
            *(*parts, *loads, *body, *stores),
        ],
    )


def triton_prepare(program: Program, name: str, dtype: str) -> str:
    """A kernel that runs a program once for each lattice, one lattice an instance of the kernel.

    Its arguments are pointers to numbers of `dtype`: `omega`, as many numbers for each lattice as
    the program has inputs; and `table`, as many for each lattice as it has outputs.
    """
    body, outputs = triton_body(program, dtype)
    used = set(program.used_inputs)
    loads = [
        f"{x} = tl.load(omega + {len(program.inputs)} * lattice + {k})"
        for k, x in enumerate(program.inputs)
        if x in used
    ]
    stores = [
        f"tl.store(table + {len(outputs)} * lattice + {k}, {output})"
        for k, output in enumerate(outputs)
    ]
    index = "lattice = tl.program_id(0).to(tl.int64)"
    return _kernel(name, "omega, table", [index, *loads, *body, *stores])


def _kernel(name: str, parameters: str, lines: list[str]) -> str:
    body = "".join(f"    {line}\n" for line in lines)
    return f"@triton.jit\ndef {name}({parameters}):\n{body}\n\n"
