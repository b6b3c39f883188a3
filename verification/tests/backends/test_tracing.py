"""The tracer and the emitters: what a program contains, and that every target computes the same.

The reference of a program is the function itself, run on NumPy scalars.
"""

from __future__ import annotations

import inspect
import math
import operator
import random
from collections.abc import Callable
from itertools import product
from typing import Any

import mpmath
import numpy as np
import pytest

from backends import algebra, kernel
from backends.constants import DOUBLE, SINGLE, map_reals, prepare_numbers
from backends.emitters import ELEMENTARY, load_source, numba_source, python_function, python_source
from backends.evaluation import LENGTHS, Evaluation, evaluation_program
from backends.numpy_ops import NumpyOps
from backends.pair import Pair, pair_sqrt
from backends.polynomials import exponentials, sine_and_cosine
from backends.tracing import Program, trace, trace_kernel, zeros_of
from backends.triton_emitter import TRITON_HEADER, triton_evaluate, triton_prepare
from verification.mutation import program_checks
from verification.mutation.backends_under_test import Backends
from wefpe_core import InputError, Lattice

FUNCTIONS = (
    *(kernel.wp_and_prime, kernel.zeta, kernel.sigma, kernel.green),
    algebra.inverse_wp,
)
every_kernel = pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
every_precision = pytest.mark.parametrize("precision", [DOUBLE, SINGLE], ids=lambda p: p.name)

NUMBERS = (0.0, -0.0, 1.0, -1.5, 0.25, 2.5, 3.7e5, -1e-310, 1e300, math.inf, -math.inf, math.nan)
NUMPY = {name: getattr(np, name) for name in ELEMENTARY}


def operators(program: Program) -> list[str]:
    return [statement.operator for statement in program.statements]


def same(x: float, y: float) -> bool:
    """The same bits, but any NaN equals any other."""
    return (x != x and y != y) or (x == y and math.copysign(1, x) == math.copysign(1, y))


# --- What a program contains ---------------------------------------------------------------


def test_equal_expressions_are_computed_once_and_unused_ones_not_at_all() -> None:
    def function(ops: Any, x: Any, y: Any) -> Any:
        ops.exp(x + y)  # nobody uses it
        return (x * y + 1.0) / (y * x + 1.0), y * x

    program = trace(function, ["x", "y"])
    assert operators(program) == ["mul", "add", "div"]
    assert program.outputs == (program.statements[-1].target, program.statements[0].target)


def test_outputs_are_flattened_in_order_and_may_be_inputs_and_numbers() -> None:
    program = trace(lambda ops, x, y: (Pair(y, 2), ((x,), 0.5)), ["x", "y"])
    assert program == Program(("x", "y"), (), ("y", 2.0, "x", 0.5))
    assert python_function(program, "f")(3.0, 4.0) == (4.0, 2.0, 3.0, 0.5)


def test_inputs_that_reach_no_output_are_not_used() -> None:
    program = trace(lambda ops, x, y, z: (x * y, z * 2.0)[1], "xyz")
    assert program.used_inputs == ("z",)
    assert program.inputs == ("x", "y", "z")


KEPT = {
    "x + 0": lambda ops, x: x + 0.0,
    "0 + x": lambda ops, x: 0.0 + x,
    "x - (-0)": lambda ops, x: x - -0.0,
    "0 - x": lambda ops, x: 0.0 - x,
    "x * 0": lambda ops, x: x * 0.0,
    "x - x": lambda ops, x: x - x,
    "x / x": lambda ops, x: x / (x + 1e-9),
    "where": lambda ops, x: ops.where(x < 1.0, 0.0, -0.0),
}
SIMPLIFIED = {
    "x + (-0)": lambda ops, x: x + -0.0,
    "-0 + x": lambda ops, x: -0.0 + x,
    "x - 0": lambda ops, x: x - 0.0,
    "x * 1": lambda ops, x: x * 1.0,
    "1 * x": lambda ops, x: 1.0 * x,
    "x / 1": lambda ops, x: x / 1.0,
    "-(-x)": lambda ops, x: operator.neg(-x),
    "where True": lambda ops, x: ops.where(True, x, 2.0),
    "where False": lambda ops, x: ops.where(False, 2.0, x),
    "where same": lambda ops, x: ops.where(x < 1.0, x, x),
}


@pytest.mark.parametrize("name", [*KEPT, *SIMPLIFIED])
def test_simplified_expressions_have_the_same_bits_for_every_number(name: str) -> None:
    function = {**KEPT, **SIMPLIFIED}[name]
    program = trace(function, ["x"])
    assert bool(program.statements) == (name in KEPT)
    traced = python_function(program, "f")
    for x in NUMBERS:
        with np.errstate(all="ignore"):
            want = float(function(NumpyOps(np.dtype(np.float64)), np.float64(x)))
        assert same(traced(x)[0], want), x


def test_conditions_are_simplified_but_never_to_a_python_bool() -> None:
    """Python's ~True is -2, so a constant condition stays a statement."""
    kept = [lambda c: c & True, lambda c: True & c, lambda c: c | False, lambda c: ~(~c)]
    for function in kept:
        program = trace(lambda ops, x, f=function: ops.where(f(x < 1.0), 2.0, 3.0), ["x"])
        assert operators(program) == ["lt", "where"]
    program = trace(lambda ops, x: ops.where(~((x < 1.0) & False), x, 3.0), ["x"])
    assert python_function(program, "f")(0.5) == (0.5,)
    with pytest.raises(InputError, match="constant condition"):
        triton_prepare(program, "run", "float64")


def test_signed_zeros_infinities_and_nan_are_constants_of_their_own() -> None:
    def function(ops: Any, x: Any) -> Any:
        return x * 0.0, x * -0.0, ops.where(x > 0.0, math.nan, math.inf), x + math.nan, x * 0.0

    program = trace(function, ["x"])
    assert operators(program) == ["mul", "mul", "gt", "where", "add"]
    got = python_function(program, "f")(2.0)
    assert [same(a, b) for a, b in zip(got, (0.0, -0.0, math.nan, math.nan, 0.0), strict=True)]
    assert math.copysign(1.0, got[1]) == -1.0
    assert math.isnan(got[2])


def test_a_kernel_cannot_branch_on_a_symbol() -> None:
    with pytest.raises(TypeError, match="not known: a kernel cannot branch"):
        trace(lambda ops, x: x if x > 0.0 else -x, ["x"])


@pytest.mark.parametrize(
    "function",
    [
        lambda ops, x: (x < 1.0) + 1.0,
        lambda ops, x: x & (x < 1.0),
        lambda ops, x: ~x,
        lambda ops, x: ops.where(x, 1.0, 2.0),
        lambda ops, x: ops.where(x < 1.0, x < 2.0, 2.0),
        lambda ops, x: x + "1",
        lambda ops, x: None,
    ],
)
def test_conditions_and_numbers_are_not_confused(function: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=r"needs a|neither a symbol"):
        trace(function, ["x"])


@pytest.mark.parametrize("names", [["v3"], ["x", "x"], ["1x"], [""]])
def test_inputs_need_names_of_their_own(names: list[str]) -> None:
    with pytest.raises(InputError, match="name"):
        trace(lambda ops, *symbols: 0.0, names)


def test_zeros_of_a_lattice_are_marked_with_their_sign_in_pairs_only() -> None:
    assert zeros_of((Pair(0.0, -0.0), 0.0, (Pair(1.0, 0.0),))) == "+-..+"
    oblique, real = (
        prepare_numbers(lattice, DOUBLE) for lattice in (Lattice(1.1, 0.3 + 1j), Lattice(1, 2j))
    )
    numbers: list[float] = []
    map_reals(real, numbers.append)
    assert len(zeros_of(real)) == len(numbers)
    assert zeros_of(real).count("+") + zeros_of(real).count("-") > 20
    with_zeros = trace_kernel(kernel.wp_and_prime, DOUBLE, zeros_of(real))
    without = trace_kernel(kernel.wp_and_prime, DOUBLE, zeros_of(oblique))
    assert len(with_zeros.statements) < len(without.statements)


# --- Every operator, on every target --------------------------------------------------------


def parts(pair: Pair) -> tuple[Any, Any]:
    return pair.re, pair.im


def every_operator(ops: Any, x: Any, y: Any) -> Any:
    """What every target has, for all numbers."""
    condition = (x < y) | ~(x >= 0.5) & (x != y)
    return (
        *(x + y, x - y, x * y, -x, x + 0.1, 1.0 / 3.0 - y),
        *(ops.where(c, 1.0, x) for c in (condition, x <= y, x > y, x == y, ops.isinf(y))),
        *(ops.rint(x), ops.rint(2.5 * y), ops.sign_of(x), ops.as_weight(x < y)),
        *(ops.within(x, 100.0), ops.within(y, 2.5)),
        *parts(ops.with_infinities(Pair(x, y), Pair(x, 1.0))),
        *parts(ops.with_infinities(Pair(x, y), Pair(1.0, y))),
        *(ops.exp(ops.within(x, 100.0)), ops.expm1(ops.within(y, 100.0))),
        *(ops.sin(ops.within(x, 100.0)), ops.cos(ops.within(y, 100.0)), ops.hypot(x, y)),
    )


def safe_operators(ops: Any, x: Any, y: Any) -> Any:
    """Those that Python refuses outside their domain."""
    positive = x * x + 0.25
    root = pair_sqrt(ops, Pair(x, y))
    return (
        *(x / (y * y + 1.0), ops.log(positive), ops.sqrt(positive), ops.power_of_two(positive)),
        *(root.re, root.im),
    )


def split_operators(ops: Any, x: Any, y: Any) -> Any:
    """What prepares a lattice and no function of points needs; numba does not have it."""
    return ops.leading_bits(x, 5), ops.leading_bits(y, 12), ops.leading_bits(0.1 * x, 26)


@pytest.mark.parametrize("function", [every_operator, safe_operators, split_operators])
def test_python_computes_what_numpy_does_bit_for_bit(function: Callable[..., Any]) -> None:
    traced = python_function(trace(function, ["x", "y"]), "traced", NUMPY)
    ops = NumpyOps(np.dtype(np.float64))
    numbers = NUMBERS[:7] if function is safe_operators else NUMBERS
    for x, y in product(numbers, repeat=2):
        with np.errstate(all="ignore"):
            want = function(ops, np.float64(x), np.float64(y))
            got = traced(x, y)
        assert len(got) == len(want)
        for k, (a, b) in enumerate(zip(got, want, strict=True)):
            assert type(a) is float
            assert same(a, float(b)), (x, y, k)


def test_a_pole_is_infinite_though_its_guarded_value_is_finite() -> None:
    def function(ops: Any, x: Any, y: Any) -> Any:
        return ops.with_infinities(Pair(x, 1.0), Pair(y, 1.0), x == 2.5)

    traced = python_function(trace(function, ["x", "y"]), "f")
    assert traced(2.0, 3.0) == (2.0, 1.0)
    assert [str(part) for part in traced(2.5, 3.0)] == ["inf", "nan"]
    assert [str(part) for part in traced(2.5, math.inf)] == ["nan", "nan"]


def in_numba(program: Program, dtype: str, **options: Any) -> Any:
    """The function at_number of a program, compiled."""
    pytest.importorskip("numba", reason="the numba extra is not installed")
    head = "import math\nimport numpy as np\nfrom numba import njit\ncache = False\n"
    head += f"options = {dict(error_model='numpy', **options)!r}\n"
    return load_source(head + numba_source(program, dtype, 1), "at_number")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("function", [every_operator, safe_operators])
def test_numba_computes_what_numpy_does(function: Callable[..., Any], dtype: str) -> None:
    """Without fused operations bit for bit, but for the C library's functions: 2 ulp."""

    def run(ops: Any, x: Any, y: Any, t0: Any) -> Any:
        return *function(ops, x, y), t0

    at_number = in_numba(trace(run, ["x", "y", "t0"]), dtype)
    kind, ops = np.dtype(dtype).type, NumpyOps(np.dtype(dtype))
    numbers = [x for x in NUMBERS if abs(x) != 1e300] if function is every_operator else NUMBERS[:7]
    table = np.array([0.5], dtype)
    for x, y in product(map(kind, numbers), repeat=2):
        with np.errstate(all="ignore"):
            want = run(ops, x, y, kind(0.5))
            got = at_number(x, y, table)
        for k, (a, b) in enumerate(zip(got, want, strict=True)):
            ulp = np.spacing(np.abs(kind(b)))
            near = np.isfinite(b) and abs(float(a) - float(b)) <= 2 * ulp
            assert same(float(a), float(b)) or near, (x, y, k, a, b)


@every_kernel
def test_source_is_one_function_of_floats(function: Any) -> None:
    source = python_source(trace_kernel(function, DOUBLE), "f")
    assert source.startswith("def f(x, y, t")
    assert source.count("\n    return (") == 1
    assert max(line.count("(") for line in source.splitlines()) < 200


# --- Polynomials ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def in_both_formats() -> dict[str, tuple[Callable[..., Any], Callable[..., Any]]]:
    functions = {}
    for precision in (DOUBLE, SINGLE):
        pair = []
        for function in (sine_and_cosine, exponentials):
            program = trace(
                lambda ops, x, y, t0, f=function, p=precision: (*f(ops, x, p), y, t0),
                ["x", "y", "t0"],
            )
            pair.append(in_numba(program, precision.name, fastmath={"contract"}))
        functions[precision.name] = (pair[0], pair[1])
    return functions


@every_precision
def test_polynomials_are_right_to_one_unit_in_the_last_place(
    in_both_formats: Any, precision: Any
) -> None:
    kind = np.dtype(precision.name).type
    trigonometric, exponential = in_both_formats[precision.name]
    rng = random.Random(7)
    table = np.zeros(1, kind)
    half_pi = kind(math.pi / 2)
    angles = [rng.uniform(-1.58, 1.58) * 10 ** -rng.choice([0, 0, 1, 3, 8]) for _ in range(2000)]
    angles += [half_pi, -half_pi, np.nextafter(half_pi, kind(0)), np.nextafter(half_pi, kind(9))]
    angles += [math.pi / 4, -math.pi / 4, 0.0, -0.0]
    smallest = math.log(float(np.finfo(kind).tiny))
    powers = [-(10 ** rng.uniform(-9, math.log10(-smallest))) for _ in range(2000)]
    powers += [0.0, -0.34657, -0.34658, smallest]
    with mpmath.workprec(120):
        for function, numbers, references in (
            (trigonometric, angles, (mpmath.sin, mpmath.cos)),
            (exponential, powers, (mpmath.exp, mpmath.expm1)),
        ):
            for x in map(kind, numbers):
                got = function(x, kind(0), table)[:2]
                for value, reference in zip(got, references, strict=True):
                    want = reference(mpmath.mpf(float(x)))
                    ulp = float(np.spacing(np.abs(kind(float(want)))))
                    assert abs(mpmath.mpf(float(value)) - want) <= ulp, (reference.__name__, x)


@every_precision
def test_polynomials_of_nan_and_of_very_negative_numbers(
    in_both_formats: Any, precision: Any
) -> None:
    kind = np.dtype(precision.name).type
    trigonometric, exponential = in_both_formats[precision.name]
    table = np.zeros(1, kind)
    for function in (trigonometric, exponential):
        assert np.isnan(function(kind(math.nan), kind(0), table)[:2]).all()
    for x in (-1e3, -1e30, -math.inf):
        assert exponential(kind(x), kind(0), table)[:2] == (0.0, -1.0)


# --- Triton ---------------------------------------------------------------------------------

POINTERS = {"float64": "*fp64", "float32": "*fp32"}


def compiled_for_gpu(source: str, signature: dict[str, str], **constants: int) -> Any:
    """The kernel compiled for sm_80 by the ptxas that comes with Triton; no GPU is needed."""
    triton = pytest.importorskip(
        "triton", reason="triton is not installed: no GPU code is compiled"
    )
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    function = load_source(TRITON_HEADER + source, "run")
    types = signature | dict.fromkeys(constants, "constexpr")
    compiled = triton.compile(
        ASTSource(fn=function, signature=types, constexprs=constants),
        target=GPUTarget("cuda", 80, 32),
    )
    assert compiled.asm["cubin"]
    return compiled.asm


@pytest.fixture(autouse=True)
def _triton_keeps_nothing(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


@every_precision
@pytest.mark.parametrize(
    ("function", "points_are", "variables"),
    [("wp_and_prime", "z", 0), ("zeta", "z", 1), ("green", "coordinates", 2)],
)
def test_evaluation_compiles_for_a_gpu_in_one_format(
    function: Any, precision: Any, points_are: Any, variables: int
) -> None:
    which = Evaluation(precision, function, points_are, variables, table_has_slopes=variables > 1)
    program = evaluation_program(which)
    length = LENGTHS[precision.name, which.table_has_slopes]
    pointers = ("points", "tables", "values", "slopes")
    asm = compiled_for_gpu(
        triton_evaluate(program, "run", precision.name, which.rows, length),
        dict.fromkeys(pointers, POINTERS[precision.name]) | {"n": "i64", "per_lattice": "i64"},
        BLOCK=128,
    )
    wrong = {"float64": "f32", "float32": "f64"}[precision.name]
    assert wrong not in asm["ttir"]
    kind = precision.name.replace("loat", "")
    assert f"div.rn.{kind}" in asm["ptx"]
    assert "div.full" not in asm["ptx"]
    assert "div.approx" not in asm["ptx"]
    assert asm["ttir"].count("tt.store") == len(program.outputs)


@every_precision
def test_preparation_compiles_for_a_gpu_with_constants_of_all_digits(precision: Any) -> None:
    def prepare(ops: Any, a: Any, b: Any) -> Any:
        parts = ops.leading_bits(a, precision.part_bits), ops.power_of_two(b)
        special = ops.where(a < b, math.inf, math.nan), ops.where(ops.isinf(a), 1.0 / 3.0, b)
        return Pair(*parts), special, -a, 0.1, ops.sqrt(a) / b, ops.as_weight(a < b)

    program = trace(prepare, ["a", "b"])
    pointer = POINTERS[precision.name]
    source = triton_prepare(program, "run", precision.name)
    asm = compiled_for_gpu(source, {"omega": pointer, "table": pointer})
    third, tenth = {
        "float64": ("0.33333333333333331", "1.000000e-01 : f64"),
        "float32": ("0.333333343", "1.000000e-01 : f32"),
    }[precision.name]
    assert third in asm["ttir"]
    assert tenth in asm["ttir"]
    assert "sqrt.rn" in asm["ptx"]
    assert asm["ttir"].count("tt.store") == len(program.outputs) == 8


def test_the_text_of_kernels_says_what_numpy_computes() -> None:
    """Run by stand-ins for Triton's language, not on a GPU: the statements are checked."""
    assert list(program_checks.triton_text(Backends())) == []


def test_source_that_was_loaded_can_be_inspected() -> None:
    function = load_source("def f(x):\n    return x + 1\n", "f")
    assert function(1) == 2
    assert inspect.getsource(function) == "def f(x):\n    return x + 1\n"
