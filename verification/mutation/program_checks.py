"""Checks of traced programs: what they contain, and that every target computes the same.

The reference of a program is the function it was traced from, run on NumPy's numbers.
"""

from __future__ import annotations

import importlib
import inspect
import math
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import mpmath
import numpy as np

from verification.mutation import triton_stand_in
from verification.mutation.backends_under_test import DYADIC, OBLIQUE, SQUARE, TURNED, Backends
from wefpe_core import InputError, Lattice

NUMBERS = (0.0, -0.0, 1.0, -1.5, 0.25, 2.5, 3.7e5, -1e-310, 1e30, math.inf, -math.inf, math.nan)
NEGATIVE_ZEROS = (Lattice(complex(-0.0, -1.5), 1.0), Lattice(complex(-1.0, -0.0), -1.5j))
FORMATS = ("float64", "float32")
POINT_FUNCTIONS = ("wp", "wp_prime", "wp_and_prime", "zeta", "sigma", "green", "inverse_wp")


def _module(name: str) -> Any:
    """A module of `backends` as it is imported now, damaged or not."""
    return importlib.import_module(f"backends.{name}")


def _same(x: Any, y: Any) -> bool:
    """The same numbers bit for bit, all NaN being one."""
    x, y = np.asarray(x, float), np.asarray(y, float)
    equal = (x == y) & (np.signbit(x) == np.signbit(y)) | (np.isnan(x) & np.isnan(y))
    return x.shape == y.shape and bool(np.all(equal))


# --- Functions to trace --------------------------------------------------------------------


def _for_all_numbers(ops: Any, x: Any, y: Any) -> tuple[Any, ...]:
    pair = _module("pair").Pair
    condition = (x < y) | ~(x >= 0.5) & (x != y)
    infinite = ops.with_infinities(pair(x, y), pair(x, 1.0))
    other = ops.with_infinities(pair(y, x), pair(1.0, y))
    return (
        *(x + y, x - y, y - x, x * y, -x, x + 0.1, 1.0 / 3.0 - y, 2.0 * x, x + 0.0, x * 0.0),
        *(ops.where(c, 1.0, x) for c in (condition, x <= y, x > y, x == y, ops.isinf(y))),
        *(ops.rint(x), ops.rint(2.5 * y), ops.rint(x - 0.3), ops.sign_of(x), ops.sign_of(y)),
        *(ops.as_weight(x < y), ops.within(x, 100.0), ops.within(y, 2.5), ops.hypot(x, y)),
        *(infinite.re, infinite.im, other.re, other.im, ops.where(x < 1.0, -0.0, math.nan)),
        *(ops.exp(ops.within(x, 50.0)), ops.expm1(ops.within(y, 50.0))),
        *(ops.sin(ops.within(x, 50.0)), ops.cos(ops.within(y, 50.0))),
    )


def _for_positive_numbers(ops: Any, x: Any, y: Any) -> tuple[Any, ...]:
    positive = x * x + 0.25
    quotients = (x / (y * y + 1.0), 3.0 / positive, positive / 1.0, y / positive)
    return *quotients, ops.log(positive), ops.sqrt(positive), ops.power_of_two(positive)


def _of_bits(ops: Any, x: Any, y: Any) -> tuple[Any, ...]:
    bits = ops.leading_bits
    return bits(x, 5), bits(y, 12), bits(0.1 * x, 17), bits(1.0 / 3.0, 9)


def _expected(
    function: Callable[..., Any], dtype: str, numbers: tuple[float, ...]
) -> tuple[list[tuple[Any, Any]], list[list[float]]]:
    """Pairs of numbers of a format, and what the function makes of each on NumPy's scalars."""
    kind = np.dtype(dtype).type
    with np.errstate(all="ignore"):
        points = list(product(map(kind, numbers), repeat=2))
        ops = _module("numpy_ops").NumpyOps(np.dtype(dtype))
        return points, [[float(value) for value in function(ops, *xy)] for xy in points]


def _of_two_numbers(ops: Any, x: Any, y: Any) -> tuple[Any, ...]:
    return ops.arctan2(x, y), ops.arctan2(y, x + 2.0), ops.log1p(ops.within(x, 50.0) * x)


CASES = (
    (_for_all_numbers, NUMBERS),
    (_for_positive_numbers, NUMBERS[:7]),
    (_of_bits, NUMBERS),
)


# --- Checks --------------------------------------------------------------------------------


def contents(b: Backends) -> Iterator[str]:
    """Equal expressions once, unused ones never; simplified only where no bit changes."""
    trace, pair = _module("tracing").trace, _module("pair").Pair

    def repeated(ops: Any, x: Any, y: Any) -> Any:
        ops.exp(x + y)
        return (x * y + 1.0) / (y * x + 1.0), y * x, x - y, y - x, ~(~(x < y)) & (y > 2.0)

    program = trace(repeated, ["x", "y"])
    operators = [statement.operator for statement in program.statements]
    if operators != ["mul", "add", "div", "sub", "sub", "lt", "gt", "and"]:
        yield f"the statements are {operators}"
    program = trace(lambda ops, x, y, z: (pair(z, 2), ((x,), 0.5), -1.0), "xyz")
    if program != (("x", "y", "z"), (), ("z", 2.0, "x", 0.5, -1.0)):
        yield "inputs, outputs"
    if {type(operand) for operand in program.outputs} != {str, float}:
        yield "integers become floats"
    if program.used_inputs != ("x", "z"):
        yield "inputs that are used"
    unchanged = (
        *(lambda ops, x: x + -0.0, lambda ops, x: -0.0 + x, lambda ops, x: x - 0.0),
        *(lambda ops, x: x * 1.0, lambda ops, x: 1.0 * x, lambda ops, x: x / 1.0),
        *(lambda ops, x: -(-x + -0.0), lambda ops, x: ops.where(True, x, 2.0)),
        *(lambda ops, x: ops.where(False, 2.0, x), lambda ops, x: ops.where(x < 1.0, x, x)),
    )
    conditions = (
        *(lambda c: c & True, lambda c: True & c, lambda c: c | False, lambda c: False | c),
        lambda c: ~(~c),
    )
    for number, condition in enumerate(conditions):
        program = trace(lambda ops, x, f=condition: ops.where(f(x < 1.0), 2.0, 3.0), ["x"])
        if [statement.operator for statement in program.statements] != ["lt", "where"]:
            yield f"simplification of condition {number}"
    constant = (lambda c: ~(c & False), lambda c: c | True, lambda c: ~(False & c))
    for number, condition in enumerate(constant):
        program = trace(lambda ops, x, f=condition: ops.where(f(x < 1.0), x, 3.0), ["x"])
        if _module("emitters").python_function(program, "f")(0.5) != (0.5,):
            yield f"constant condition {number}"
    for number, function in enumerate(unchanged):
        if trace(function, ["x"]) != (("x",), (), ("x",)):
            yield f"simplification {number}"
    if len(trace(lambda ops, x: (x * 0.0, x * -0.0, x * 0.0, x * -0.0), ["x"]).statements) != 2:
        yield "0 and -0 are two numbers"
    yield from _refusals(trace)
    zeros = _module("tracing").zeros_of((pair(0.0, -0.0), 0.0, (pair(1.0, 0.0), 2.0)))
    if zeros != "+-..+.":
        yield "zeros of a lattice"
    tracing, double = _module("tracing"), _module("constants").DOUBLE
    count = len(tracing.zeros_of(tracing.template_of(double)))
    for mark, zero in (("-", "-0.0"), ("+", "0.0")):
        marked = tracing.trace_kernel(
            lambda ops, z, c, p: z.re + c.row.re + 1.0, double, mark * count
        )
        numbers = [repr(operand) for s in marked.statements for operand in s.arguments[1:]]
        if numbers != ["1.0"] if mark == "-" else numbers != [zero, "1.0"]:
            yield f"a constant that is {zero}"


def _refusals(trace: Any) -> Iterator[str]:
    confused = (
        *(lambda ops, x: (x < 1.0) + 1.0, lambda ops, x: x & (x < 1.0), lambda ops, x: ~x),
        *(lambda ops, x: ops.where(x, 1.0, 2.0), lambda ops, x: ops.where(x < 1.0, x < 2.0, 2.0)),
        *(lambda ops, x: x + "1", lambda ops, x: None, lambda ops, x: x if x > 0.0 else -x),
        lambda ops, x: ops.where(x < 1.0, x < 2.0, x < 3.0) + 1.0,
        lambda ops, x: ops.where(x < 1.0, x < 2.0, False) + 1.0,
        lambda ops, x: ops.isinf(x) * 2.0,
    )
    for number, function in enumerate(confused):
        try:
            trace(function, ["x"])
        except TypeError as error:
            wanted = "condition" if number in (1, 2, 3) else "number"
            if "needs a" not in str(error) or f"needs a {wanted}" in str(error):
                continue
        yield f"confusion {number} is not refused"
    for names in (["v3"], ["x", "x"], ["1x"], [""], ["v0", "y"]):
        try:
            trace(lambda ops, *symbols: 0.0, names)
        except InputError:
            continue
        yield f"inputs called {names}"
    trace(lambda ops, *symbols: 0.0, ["v", "vx", "x1"])


def python_text(b: Backends) -> Iterator[str]:
    """A program in Python has the bits of NumPy's scalars."""
    emitters, trace = _module("emitters"), _module("tracing").trace
    numpy_functions = {name: getattr(np, name) for name in emitters.ELEMENTARY}
    for function, numbers in (*CASES, (_of_two_numbers, NUMBERS[:8])):
        program = trace(function, ["x", "y"])
        run = emitters.python_function(program, function.__name__, numpy_functions)
        points, want = _expected(function, "float64", numbers)
        with np.errstate(all="ignore"):
            got = [run(float(x), float(y)) for x, y in points]
        if not all(map(_same, got, want)):
            yield function.__name__
        if any(type(value) is not float for values in got for value in values):
            yield f"types of {function.__name__}"
    if emitters.python_source(trace(_shared, ["x", "y"]), "f") != _SHARED:
        yield "expressions used once are written where they are used"
    deep = emitters.python_function(trace(_nested, ["x"]), "nested")
    if deep(0.5) != _nested(None, 0.5):
        yield "nested expressions"
    roots = emitters.python_function(trace(lambda ops, x: ops.exp(x), ["x"]), "f")(0.3)
    if roots != (math.exp(0.3),):
        yield "functions of the module math"


def _shared(ops: Any, x: Any, y: Any) -> Any:
    total = x + y
    product_ = x * y
    return total * total + ops.exp(x), ops.rint(x - y), product_, product_ - -0.5, 2.0


_SHARED = """\
def f(x, y):
    v0 = x + y
    v1 = x * y
    v5 = x - y
    return (((v0 * v0) + (float(exp(x)))), \
(copysign((v5 + 6755399441055744.0) - 6755399441055744.0, v5) if -1e15 < v5 < 1e15 else v5), \
v1, (v1 - -0.5), 2.0, )
"""


def _nested(ops: Any, x: Any) -> Any:
    for _ in range(300):
        x = (x + 0.25) * 0.5
    return (x,)


def numpy_text(b: Backends) -> Iterator[str]:
    """A program on arrays has the bits of NumPy's scalars, in numbers of the same format."""
    trace, numpy_function = _module("tracing").trace, _module("numpy_ops").numpy_function
    for dtype, (function, numbers) in product(FORMATS, (*CASES, (_of_two_numbers, NUMBERS))):
        points, want = _expected(function, dtype, numbers)
        run = numpy_function(trace(function, ["x", "y"]), "run", dtype)
        with np.errstate(all="ignore"):
            got = np.broadcast_arrays(*run(*np.array(points, dtype).T))
        if {values.dtype.name for values in got} != {dtype}:
            yield f"types of {function.__name__} in {dtype}"
        if not _same(np.transpose(got), want):
            yield f"{function.__name__} in {dtype}"
    if numpy_function(trace(_nested, ["x"]), "run", "float64").__code__.co_nlocals > 10:
        yield "values that nobody needs any more are kept"


def single_numbers(b: Backends) -> Iterator[str]:
    """One number has the values of arrays, bit for bit, poles and half-periods included."""
    scalar = _module("numpy_scalar")
    rng = np.random.default_rng(5)
    for lattice in (*DYADIC, *NEGATIVE_ZEROS):
        w1, w3 = complex(lattice.omega1), complex(lattice.omega3)
        z = rng.uniform(-4, 4, 12) + 1j * rng.uniform(-4, 4, 12)
        marked = [0, w1, w3, w1 + w3, 2 * w1, 3 * w1 + w3, 1e9, 1e-170, math.inf, math.nan]
        z = np.concatenate([z, z.real, marked])
        for name in POINT_FUNCTIONS:
            method = getattr(b.numpy, name)
            few, scalar.FEW = scalar.FEW, 0
            want = np.array(method(z, lattice))
            scalar.FEW = few
            got = np.array([method(number, lattice) for number in z.tolist()]).T
            if not (_same(got.real, want.real) and _same(got.imag, want.imag)):
                yield f"{name} on {lattice}"


def triton_text(b: Backends) -> Iterator[str]:
    """The text of kernels, run by stand-ins for Triton's language, has the values of NumPy."""
    emitter, trace = _module("triton_emitter"), _module("tracing").trace
    for dtype in FORMATS:
        for function, numbers in (*CASES, (_of_two_numbers, NUMBERS)):
            program = trace(function, ["x", "y"])
            points, want = _expected(function, dtype, numbers)
            table = np.zeros((len(points), len(program.outputs)), dtype)
            source = emitter.TRITON_HEADER + emitter.triton_prepare(program, "run", dtype)
            triton_stand_in.run(source, "run", len(points), np.array(points, dtype), table)
            if not _same(table, want):
                yield f"{function.__name__} in {dtype}"
    yield from _kernel_text(b, OBLIQUE, "zeta", 1)
    yield from _kernel_text(b, SQUARE, "wp_and_prime", 2)


def _kernel_text(b: Backends, lattice: Any, name: str, rows: int) -> Iterator[str]:
    emitter, tracing, constants = (_module(m) for m in ("triton_emitter", "tracing", "constants"))
    function = getattr(_module("kernel"), name)

    def doubled(ops: Any, x: Any, y: Any, *table: Any) -> Any:
        """The kernel at x + iy, its values once more as if they were slopes."""
        numbers = iter(table)
        filled = constants.map_reals(tracing.template_of(constants.DOUBLE), lambda _: next(numbers))
        values = function(ops, _module("pair").Pair(x, y), filled, constants.DOUBLE)
        values = values if isinstance(values, tuple) else (values,)
        return (*values, *values)

    known = []
    for each in (SQUARE, lattice):  # the second of two tables is the one that is used
        numbers: list[float] = []
        constants.map_reals(constants.prepare_numbers(each, constants.DOUBLE), numbers.append)
        known.append(numbers)
    names = [f"t{k}" for k in range(len(known[0]))]
    program = tracing.trace(doubled, ["x", "y", *names])
    rng = np.random.default_rng(3)
    z = rng.uniform(-4, 4, 21) + 1j * rng.uniform(-4, 4, 21)
    values, slopes = np.full((2, rows, 2, 42), np.nan)
    text = emitter.triton_evaluate(program, "run", "float64", rows, len(names))
    arrays = (np.tile(z, 2).view(float), np.array(known))
    triton_stand_in.run(
        emitter.TRITON_HEADER + text, "run", 6, *arrays, values, slopes, 42, 21, BLOCK=8
    )
    want = np.atleast_2d(getattr(b.numpy, name)(z, lattice))
    got = values[:, 0, 21:] + 1j * values[:, 1, 21:]
    if not (np.array_equal(got, want) and np.array_equal(values, slopes, equal_nan=True)):
        yield f"{name} as a kernel"


def numba_code(b: Backends) -> Iterator[str]:
    """Compiled programs have the values of NumPy but for the last bits of the C library."""
    emitters, trace = _module("emitters"), _module("tracing").trace
    head = "import math\nimport numpy as np\nfrom numba import njit\ncache = False\n"
    head += 'options = {"error_model": "numpy"}\n'
    for dtype, (function, numbers) in product(FORMATS, CASES[:2]):
        program = trace(lambda ops, x, y, t1, f=function: (*f(ops, x, y), t1), ["x", "y", "t1"])
        source = emitters.numba_source(program, dtype, 1)
        run = emitters.load_source(head + source, "at_number")
        points, want = _expected(function, dtype, numbers)
        table = np.array([7.0, 0.5], dtype)
        got = [run(x, y, table) for x, y in points]
        for values, right in zip(got, want, strict=True):
            if not _nearly(values, [*right, 0.5], dtype):
                yield f"{function.__name__} in {dtype}"
                break
    for dtype in FORMATS:
        program = trace(lambda ops, x, y: (x - y, y, x * 0.5, ops.two_to(ops.rint(x))), ["x", "y"])
        source = head + emitters.numba_source(program, dtype, 2)
        z = np.array([1.0, 2.0, -3.0, 4.0, 9.0, 8.0], dtype)
        out = np.zeros((2, 6), dtype)
        emitters.load_source(source, "at_points")(z, np.zeros(1, dtype), *out)
        if out.tolist() != [[-1, 2, -7, 4, 1, 8], [0.5, 2, -1.5, 0.125, 4.5, 512]]:
            yield f"many points in {dtype}"
        number = emitters.load_source(source, "at_number")(z[0], z[1], np.zeros(1, dtype))
        if number != (-1 + 2j, 0.5 + 2j):
            yield f"one complex number in {dtype}"


def loaded_source(b: Backends) -> Iterator[str]:
    text = "def f(x):\n    return x + 1\n"
    function = _module("emitters").load_source(text, "f")
    if function(1) != 2 or inspect.getsource(function) != text:
        yield "the source of a function that was loaded"


def _nearly(values: Any, right: list[float], dtype: str) -> bool:
    ulp = np.spacing(np.abs(np.array(right, dtype)))
    with np.errstate(all="ignore"):
        distance = np.abs(np.array(values, float) - np.array(right))
    return all(
        _same(value, want) or away <= 2 * unit
        for value, want, away, unit in zip(values, right, distance, ulp, strict=True)
    )


# Of sine and cosine, exp and expm1 as polynomials, in units in the last place.
LARGEST_ERRORS = ((0.8, 0.75), (0.7, 0.9))


def _normal_power_of_two(k: Any) -> Any:
    """2**k, which must be no subnormal number."""
    power = np.ldexp(type(k)(1.0), int(k)) if k == k else k
    if power < np.finfo(type(k)).tiny:
        raise ValueError(f"2**{k} is subnormal")
    return power


def polynomial_functions(b: Backends) -> Iterator[str]:
    """Sine, cosine and exponential are right to little more than half a unit in the last place."""
    polynomials, constants = _module("polynomials"), _module("constants")
    for precision in (constants.DOUBLE, constants.SINGLE):
        kind = np.dtype(precision.name).type
        ops = _module("numpy_ops").NumpyOps(np.dtype(precision.name))
        ops.two_to = _normal_power_of_two
        rng = np.random.default_rng(11)
        half_pi = kind(math.pi / 2)
        angles = [*rng.uniform(-1.58, 1.58, 400), *(10.0 ** rng.uniform(-8, 0, 20)), 0.0]
        angles += [half_pi, np.nextafter(half_pi, kind(0)), -np.nextafter(half_pi, kind(9))]
        least = math.log(float(np.finfo(kind).tiny))
        powers = [*rng.uniform(least, 0.0, 99), *(-(10.0 ** rng.uniform(-9, 1, 300))), 0.0, least]
        for function, numbers, references, limits in (
            (polynomials.sine_and_cosine, angles, (mpmath.sin, mpmath.cos), LARGEST_ERRORS[0]),
            (polynomials.exponentials, powers, (mpmath.exp, mpmath.expm1), LARGEST_ERRORS[1]),
        ):
            with mpmath.workprec(120), np.errstate(all="ignore"):
                for x in map(kind, numbers):
                    values = function(ops, x, precision)
                    for value, reference, limit in zip(values, references, limits, strict=True):
                        want = reference(mpmath.mpf(float(x)))
                        ulp = float(np.spacing(np.abs(kind(float(want)))))
                        if not abs(mpmath.mpf(float(value)) - want) <= limit * ulp:
                            yield f"function {limits.index(limit)} of {function.__name__} at {x!r}"
        with np.errstate(all="ignore"):
            far = polynomials.exponentials(ops, kind(-1e30), precision)
        if tuple(map(float, far)) != (0.0, -1.0):
            yield f"exponential of a very negative number in {precision.name}"


def polynomial_programs(b: Backends) -> Iterator[str]:
    """A program with polynomials instead of functions has nearly the same values."""
    tracing, emitters = _module("tracing"), _module("emitters")
    constants = _module("constants")
    program = tracing.trace_kernel(
        _module("kernel").wp_and_prime, constants.DOUBLE, polynomials=True
    )
    operators = {statement.operator for statement in program.statements}
    if operators & {"exp", "expm1", "sin", "cos"} or "two_to" not in operators:
        yield "functions are left"
    run = emitters.python_function(program, "run")
    numbers: list[float] = []
    constants.map_reals(constants.prepare_numbers(TURNED, constants.DOUBLE), numbers.append)
    table = [numbers[int(name[1:])] for name in program.inputs[2:]]
    got = run(0.3, 0.4, *table)
    p, dp = b.numpy.wp_and_prime(0.3 + 0.4j, TURNED)
    if not np.allclose(got, [p.real, p.imag, dp.real, dp.imag], rtol=2.0**-48, atol=0.0):
        yield "wp and wp'"
