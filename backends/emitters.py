"""A traced `Program` as source code: Python, NumPy or numba.

For each target a table says what its operators look like. Python's source puts an expression that
is used once where it is used: this saves a local variable, and the branch of a choice that is not
taken is not computed. The other targets get one short statement after the other, and constants that
have the type of the program: a literal of double precision would make the whole of a float32
program double. `backends.triton_emitter` writes for Triton with the same tools.
"""

from __future__ import annotations

import linecache
import math
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

from backends.constants import leading_bits
from backends.tracing import Operand, Program, Statement
from wefpe_core.errors import InputError

ARITHMETIC = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "neg": "-{0}",
    "lt": "{0} < {1}",
    "le": "{0} <= {1}",
    "gt": "{0} > {1}",
    "ge": "{0} >= {1}",
    "eq": "{0} == {1}",
    "ne": "{0} != {1}",
}

# Adding and subtracting 1.5 * 2**52 rounds to an integer, halves to even, below 2**51 in modulus.
_RINT = "copysign(({0} + 6755399441055744.0) - 6755399441055744.0, {0})"
# NumPy's functions return its own scalars, whose arithmetic is slow: hence float.
_PYTHON = {
    **ARITHMETIC,
    "and": "{0} and {1}",
    "or": "{0} or {1}",
    "not": "not {0}",
    "where": "{1} if {0} else {2}",
    "isfinite": "-inf < {0} < inf",
    "isinf": "{0} == inf or {0} == -inf",
    "sign_of": "copysign(1.0, {0})",
    "rint": f"{_RINT} if -1e15 < {{0}} < 1e15 else {{0}}",
    "power_of_two": "0.5 * {0} / frexp({0})[0]",
    "leading_bits": "leading_bits({0}, {1:.0f})",
    "two_to": "ldexp(1.0, int({0}))",
    "sqrt": "sqrt({0})",
    "hypot": "float(hypot({0}, {1}))",
    "arctan2": "float(arctan2({0}, {1}))",
    **{name: f"float({name}({{0}}))" for name in ("exp", "expm1", "sin", "cos", "log", "log1p")},
}

# The elementary functions that an array library may bring its own versions of.
_IN_MATH = ("exp", "expm1", "sin", "cos", "log", "log1p", "hypot")
ELEMENTARY = (*_IN_MATH, "arctan2")

# Brackets that may enclose one another; Python's parser takes 200.
_DEEPEST = 40


def python_source(program: Program, name: str) -> str:
    """A function of as many floats as the program has inputs, which returns a tuple of floats.

    It finds the functions it calls in its globals, as `python_function` fills them. Unlike
    arrays, Python raises errors: ZeroDivisionError for x/0, OverflowError and ValueError from
    functions outside their domain.
    """
    uses = Counter(
        operand
        for _, _, arguments in program.statements
        for operand in arguments
        if isinstance(operand, str)
    )
    uses.update(operand for operand in program.outputs if isinstance(operand, str))
    repeated = {  # arguments that the text of an operator names more than once
        arguments[index]
        for _, operator, arguments in program.statements
        for index in range(len(arguments))
        if _PYTHON[operator].count(f"{{{index}}}") > 1
    }
    lines = [f"def {name}({', '.join(program.inputs)}):"]
    inlined: dict[str, tuple[str, int]] = {}

    def text(operand: Operand) -> str:
        if isinstance(operand, str):
            return inlined[operand][0] if operand in inlined else operand
        return repr(operand)

    for target, operator, arguments in program.statements:
        depth = 1 + max(inlined[x][1] if x in inlined else 0 for x in arguments)
        if operator == "leading_bits":
            expression = _PYTHON[operator].format(text(arguments[0]), arguments[1])
        else:
            expression = _PYTHON[operator].format(*map(text, arguments))
        if uses[target] == 1 and target not in repeated and depth < _DEEPEST:
            inlined[target] = f"({expression})", depth
        else:
            lines.append(f"    {target} = {expression}")
    lines.append(f"    return ({''.join(f'{text(output)}, ' for output in program.outputs)})")
    return "\n".join(lines) + "\n"


def python_function(
    program: Program, name: str, elementary: Mapping[str, Callable[..., Any]] | None = None
) -> FunctionType:
    """The function of `python_source`; `elementary` replaces functions of the module math."""
    namespace: dict[str, Any] = {
        **{key: getattr(math, key) for key in (*_IN_MATH, "sqrt", "copysign", "frexp", "ldexp")},
        "arctan2": math.atan2,
        "inf": math.inf,
        "nan": math.nan,
        "leading_bits": leading_bits,
        **(elementary or {}),
    }
    exec(compile(python_source(program, name), f"<program {name}>", "exec"), namespace)
    function: FunctionType = namespace[name]
    return function


_NUMPY = {
    **ARITHMETIC,
    "and": "{0} & {1}",
    "or": "{0} | {1}",
    "not": "~{0}",
    "where": "np.where({0}, {1}, {2})",
    "isfinite": "np.isfinite({0})",
    "isinf": "np.isinf({0})",
    "sign_of": "np.copysign(one, {0})",
    "power_of_two": "half * {0} / np.frexp({0})[0]",
    **{name: f"np.{name}({{0}})" for name in (*_IN_MATH[:-1], "sqrt", "rint")},
    "hypot": "np.hypot({0}, {1})",
    "arctan2": "np.arctan2({0}, {1})",
    "leading_bits": "leading_bits({0}, {1:.0f})",
}


def numpy_source(program: Program, name: str, dtype: str) -> str:
    """A function of as many arrays or numbers as the program has inputs, which broadcast.

    It returns a tuple, and finds NumPy as np and `leading_bits` in its globals. A variable whose
    value nobody needs any more is taken for the next one, so that only so many arrays exist as the
    program needs at one time.
    """
    constants = Constants(f"np.{dtype}({{}})", "np.inf", "np.nan")
    constants.define("one", 1.0)
    constants.define("half", 0.5)
    program = with_few_names(program)
    body = statements(program, _NUMPY, constants.name)
    outputs = "".join(f"{constants.name(output)}, " for output in program.outputs)
    lines = [f"def {name}({', '.join(program.inputs)}):"]
    lines += [f"    {line}" for line in (*constants.lines, *body)]
    return "\n".join([*lines, f"    return ({outputs})"]) + "\n"


def with_few_names(program: Program) -> Program:
    """The same program, in which a target takes the name of a value that is no longer needed."""
    last_use = {
        operand: index
        for index, (_, _, arguments) in enumerate(program.statements)
        for operand in arguments
        if isinstance(operand, str)
    }
    kept = set(program.inputs) | {x for x in program.outputs if isinstance(x, str)}
    names: dict[str, str] = {}
    free: list[str] = []
    statements = []
    for index, (target, operator, arguments) in enumerate(program.statements):
        renamed = tuple(names.get(x, x) if isinstance(x, str) else x for x in arguments)
        free += [
            names[x]
            for x in dict.fromkeys(arguments)
            if x in names and x not in kept and last_use[x] == index
        ]
        names[target] = free.pop() if free else f"v{len(names)}"
        statements.append(Statement(names[target], operator, renamed))
    outputs = tuple(names.get(x, x) if isinstance(x, str) else x for x in program.outputs)
    return Program(program.inputs, tuple(statements), outputs)


_NUMBA = {
    **ARITHMETIC,
    "and": "{0} & {1}",
    "or": "{0} | {1}",
    "not": "not {0}",
    "where": "{1} if {0} else {2}",
    "isfinite": "math.isfinite({0})",
    "isinf": "math.isinf({0})",
    "sign_of": "math.copysign(one, {0})",
    "rint": "np.rint({0})",
    "power_of_two": "half * {0} / math.frexp({0})[0]",
    **{name: f"math.{name}({{0}})" for name in (*_IN_MATH[:-1], "sqrt")},
    "hypot": "math.hypot({0}, {1})",
    "arctan2": "math.atan2({0}, {1})",
}
# Adding 1.5 * 2**52 puts the bits of an integer at the end of a number, as in rint. From there
# they are moved to its exponent.
_NUMBA_TARGETS = {
    dtype: {
        **_NUMBA,
        "two_to": f"np.{integer}((np.{dtype}({{0}} + shift).view(np.{integer}) + {bias}) << {bits})"
        f".view(np.{dtype})",
    }
    for dtype, integer, bias, bits in (
        ("float64", "int64", 1023, 52),
        ("float32", "int32", 127, 23),
    )
}
_SHIFT = {"float64": 1.5 * 2.0**52, "float32": 1.5 * 2.0**23}


def numba_source(program: Program, dtype: str, parts: int) -> str:
    """A module for numba with the functions at_number and at_points.

    ``at_number(x, y, table)`` returns the values at one point, ``at_points(z, table, *out)`` writes
    those at many. Their numbers are of `dtype`, float64 or float32. The inputs of the program after
    x and y, t0, t1, ..., are read from the table. (Instead of x and y there may be any number of
    names with x.) `parts` is 2 if every two outputs of the program are a complex number, and 1 if
    each is a real one. `z` and each of `out` are flat: a complex number is two numbers in a row.
    The module takes the options of numba from its globals.
    """
    constants = Constants(f"np.{dtype}({{}})", "np.inf", "np.nan")
    for name, value in {"one": 1.0, "half": 0.5, "shift": _SHIFT[dtype]}.items():
        constants.define(name, value)
    body = statements(program, _NUMBA_TARGETS[dtype], constants.name)
    outputs = [constants.name(output) for output in program.outputs]
    point = [name for name in program.inputs if name[0] in "xy"]
    inputs = program.inputs[len(point) :]
    arguments, at = ", ".join(program.inputs), ", ".join(point)
    steps = [f"z[{len(point)} * i + {k}]" for k in range(len(point))]
    table = [f"    {t} = table[{t[1:]}]" for t in inputs]
    names = [f"out{k}" for k in range(len(outputs) // parts)]
    results = [f"r{k}" for k in range(len(outputs))]
    values = (
        results if parts == 1 else [f"complex(r{k}, r{k + 1})" for k in range(0, len(results), 2)]
    )
    stores = [
        f"        {name}[{parts} * i + {j}] = r{parts * k + j}"
        for k, name in enumerate(names)
        for j in range(parts)
    ]
    return "\n".join(
        [
            "@njit(forceinline=True, **options)",
            f"def point({arguments}):",
            *(f"    {line}" for line in (*constants.lines, *body)),
            f"    return ({', '.join(outputs)},)",
            "",
            "",
            "@njit(cache=cache, **options)",
            f"def at_number({at}, table):",
            *table,
            f"    ({', '.join(results)},) = point({arguments})",
            f"    return ({', '.join(values)},)",
            "",
            "",
            "@njit(cache=cache, **options)",
            f"def at_points(z, table, {', '.join(names)}):",
            *table,
            f"    for i in range(z.size // {len(point)}):",
            f"        ({', '.join(results)},) = point({', '.join((*steps, *inputs))})",
            *(*stores, ""),
        ]
    )


class Constants:
    """The constants of a program as local variables of the right type."""

    def __init__(self, template: str, inf: str, nan: str) -> None:
        self._template = template
        self._literals = {"inf": inf, "-inf": f"-{inf}", "nan": nan}
        self._names: dict[str, str] = {}
        self.lines: list[str] = []

    def define(self, name: str, value: float) -> None:
        key = repr(value)
        self._names[key] = name
        self.lines.append(f"{name} = {self._template.format(self._literals.get(key, key))}")

    def name(self, operand: Operand) -> str:
        """What an operand is called, be it a constant or not."""
        if isinstance(operand, str):
            return operand
        if isinstance(operand, bool):
            raise InputError(f"{operand} is no number: the program has a constant condition")
        if repr(operand) not in self._names:
            self.define(f"constant{len(self._names)}", operand)
        return self._names[repr(operand)]


def statements(
    program: Program, templates: Mapping[str, str], name: Callable[[Operand], str]
) -> list[str]:
    lines = []
    for target, operator, arguments in program.statements:
        if operator == "leading_bits":  # its second argument is a number of bits
            expression = templates[operator].format(name(arguments[0]), arguments[1])
        else:
            expression = templates[operator].format(*map(name, arguments))
        lines.append(f"{target} = {expression}")
    return lines


def load_source(source: str, name: str, **known: Any) -> Any:
    """The object called `name` of a module with this source; `known` are names that it uses.

    `inspect` can show the source: Triton reads that of its kernels.
    """
    path = f"<{name} {zlib.crc32(source.encode()):08x}>"
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
    namespace: dict[str, Any] = {"__name__": f"backends.emitted.{name}", **known}
    exec(compile(source, path, "exec"), namespace)
    return namespace[name]
