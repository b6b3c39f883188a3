"""Kernels run once on symbols: a straight-line program that any compiler can be given.

The formulas of `backends.kernel` know only the operators of their numbers and an `ArrayOps`. Run
on symbols they write down what they do. Equal expressions become one statement, and statements
that no output needs are left out. `backends.emitters` writes a `Program` as source code.

An expression is simplified only where the result has the same bits for every argument, signed
zeros, infinities and NaN included: x*1, x/1, x-0 and x+(-0) are x, but x+0 is not (x may be -0),
nor is x*0 zero (x may be infinite).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from backends.constants import (
    Precision,
    SeriesConstants,
    map_reals,
    prepare_numbers,
    prepared_for,
)
from backends.pair import Pair
from backends.polynomials import exponentials, sine_and_cosine
from wefpe_core.errors import InputError, InputTypeError
from wefpe_core.lattice import Lattice

# An argument of a statement: the name of an input or of an earlier target, or a number.
Operand = str | float | bool

_BOOLEAN = {"lt", "le", "gt", "ge", "eq", "ne", "and", "or", "not", "isfinite", "isinf"}
_COMMUTATIVE = {"add", "mul", "and", "or", "eq", "ne"}


class Statement(NamedTuple):
    """``target = operator(*arguments)``."""

    target: str
    operator: str
    arguments: tuple[Operand, ...]


class Program(NamedTuple):
    """Straight-line code on real numbers: every statement uses inputs and earlier targets."""

    inputs: tuple[str, ...]
    statements: tuple[Statement, ...]
    outputs: tuple[Operand, ...]

    @property
    def used_inputs(self) -> tuple[str, ...]:
        """The inputs that reach an output, in order."""
        used = {operand for _, _, arguments in self.statements for operand in arguments}
        used.update(self.outputs)
        return tuple(name for name in self.inputs if name in used)


class Symbol:
    """A real or boolean value that is known by its name only."""

    __slots__ = ("_graph", "name")

    def __init__(self, graph: _Graph, name: str) -> None:
        self._graph = graph
        self.name = name

    def __add__(self, other: Any) -> Any:
        return self._graph.node("add", self, other)

    def __radd__(self, other: Any) -> Any:
        return self._graph.node("add", other, self)

    def __sub__(self, other: Any) -> Any:
        return self._graph.node("sub", self, other)

    def __rsub__(self, other: Any) -> Any:
        return self._graph.node("sub", other, self)

    def __mul__(self, other: Any) -> Any:
        return self._graph.node("mul", self, other)

    def __rmul__(self, other: Any) -> Any:
        return self._graph.node("mul", other, self)

    def __truediv__(self, other: Any) -> Any:
        return self._graph.node("div", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._graph.node("div", other, self)

    def __neg__(self) -> Any:
        return self._graph.node("neg", self)

    def __lt__(self, other: Any) -> Any:
        return self._graph.node("lt", self, other)

    def __le__(self, other: Any) -> Any:
        return self._graph.node("le", self, other)

    def __gt__(self, other: Any) -> Any:
        return self._graph.node("gt", self, other)

    def __ge__(self, other: Any) -> Any:
        return self._graph.node("ge", self, other)

    def __eq__(self, other: object) -> Any:
        return self._graph.node("eq", self, other)

    def __ne__(self, other: object) -> Any:
        return self._graph.node("ne", self, other)

    def __and__(self, other: Any) -> Any:
        return self._graph.node("and", self, other)

    def __or__(self, other: Any) -> Any:
        return self._graph.node("or", self, other)

    __rand__ = __and__
    __ror__ = __or__

    def __invert__(self) -> Any:
        return self._graph.node("not", self)

    def __bool__(self) -> bool:
        raise InputTypeError(f"the value of {self.name} is not known: a kernel cannot branch on it")

    __hash__ = None  # type: ignore[assignment]  # == makes a symbol, so it cannot find a key


class SymbolicOps:
    """`backends.pair.ArrayOps` on symbols; Python numbers may stand in place of any of them.

    If `polynomials` names a format, exponential, sine and cosine are written out as polynomials
    that are exact in it; `backends.polynomials` states their range.
    """

    def __init__(self, graph: _Graph, polynomials: Precision | None = None) -> None:
        self._node = graph.node
        self._polynomials = polynomials

    def exp(self, x: Any) -> Any:
        if self._polynomials:
            return exponentials(self, x, self._polynomials)[0]
        return self._node("exp", x)

    def expm1(self, x: Any) -> Any:
        if self._polynomials:
            return exponentials(self, x, self._polynomials)[1]
        return self._node("expm1", x)

    def sin(self, x: Any) -> Any:
        if self._polynomials:
            return sine_and_cosine(self, x, self._polynomials)[0]
        return self._node("sin", x)

    def cos(self, x: Any) -> Any:
        if self._polynomials:
            return sine_and_cosine(self, x, self._polynomials)[1]
        return self._node("cos", x)

    def log(self, x: Any) -> Any:
        return self._node("log", x)

    def log1p(self, x: Any) -> Any:
        return self._node("log1p", x)

    def sqrt(self, x: Any) -> Any:
        return self._node("sqrt", x)

    def hypot(self, x: Any, y: Any) -> Any:
        return self._node("hypot", x, y)

    def arctan2(self, y: Any, x: Any) -> Any:
        return self._node("arctan2", y, x)

    def rint(self, x: Any) -> Any:
        return self._node("rint", x)

    def sign_of(self, x: Any) -> Any:
        return self._node("sign_of", x)

    def isinf(self, x: Any) -> Any:
        return self._node("isinf", x)

    def as_weight(self, condition: Any) -> Any:
        return self.where(condition, 1.0, 0.0)

    def where(self, condition: Any, x: Any, y: Any) -> Any:
        return self._node("where", condition, x, y)

    # Here a guard against division by 0: Python would raise an error, whoever selects the result.
    where_needed = where

    def power_of_two(self, x: Any) -> Any:
        return self._node("power_of_two", x)

    def two_to(self, k: Any) -> Any:
        """2**k for a number k that is an integer, if 2**k is no subnormal number."""
        return self._node("two_to", k)

    def leading_bits(self, x: Any, bits: int) -> Any:
        return self._node("leading_bits", x, bits)

    def constant(self, x: Any) -> Any:
        return x

    def with_derivative_of(self, value: Any, model: Callable[[], Any]) -> Any:
        return value

    def all_hold(self, condition: Any) -> bool:
        return False

    def within(self, x: Any, limit: float) -> Any:
        return self.where((x >= -limit) & (x <= limit), x, math.nan)

    def with_infinities(self, value: Pair, offset: Pair, is_pole: Any = None) -> Pair:
        is_finite = self._is_finite(value)
        if is_pole is not None:
            is_finite = is_finite & ~is_pole
        return Pair(
            self.where(
                is_finite, value.re, self.where(self._is_finite(offset), math.inf, math.nan)
            ),
            self.where(is_finite, value.im, math.nan),
        )

    def _is_finite(self, x: Pair) -> Any:
        return self._node("isfinite", x.re) & self._node("isfinite", x.im)


class _Graph:
    """The statements made so far, each once."""

    def __init__(self) -> None:
        self.statements: dict[Operand, Statement] = {}
        self._names: dict[tuple[Any, ...], str] = {}
        self._booleans: set[str] = set()

    def node(self, operator: str, *values: Any) -> Any:
        """The symbol, or the number, that the operator makes of these values."""
        arguments = tuple(map(_operand, values))
        self._check(operator, arguments)
        known = _simplified(operator, arguments, self.statements)
        if known is not None:
            return Symbol(self, known) if isinstance(known, str) else known
        key = tuple(x if isinstance(x, str) else (type(x), repr(x)) for x in arguments)
        if operator in _COMMUTATIVE:
            key = tuple(sorted(key, key=str))
        name = self._names.setdefault((operator, *key), f"v{len(self.statements)}")
        if name not in self.statements:
            self.statements[name] = Statement(name, operator, arguments)
            chosen = arguments[-1] if operator == "where" else None
            if operator in _BOOLEAN or chosen in self._booleans or isinstance(chosen, bool):
                self._booleans.add(name)
        return Symbol(self, name)

    def _check(self, operator: str, arguments: tuple[Operand, ...]) -> None:
        """Refuse a condition in the place of a number and a number in that of a condition."""
        wants = [operator in ("and", "or", "not")] * len(arguments)
        if operator == "where":
            is_boolean = self._is_boolean(arguments[2])
            wants = [True, is_boolean, is_boolean]
        for argument, wanted in zip(arguments, wants, strict=True):
            if self._is_boolean(argument) != wanted:
                kind = "condition" if wanted else "number"
                raise InputTypeError(f"{operator} needs a {kind}, got {argument!r}")

    def _is_boolean(self, operand: Operand) -> bool:
        return operand in self._booleans if isinstance(operand, str) else isinstance(operand, bool)

    def needed_for(self, outputs: Sequence[Operand]) -> tuple[Statement, ...]:
        """The statements that the outputs depend on, in order."""
        needed = {name for name in outputs if isinstance(name, str)}
        kept = []
        for statement in reversed(self.statements.values()):
            if statement.target in needed:
                needed.update(name for name in statement.arguments if isinstance(name, str))
                kept.append(statement)
        return tuple(reversed(kept))


def _operand(value: Any) -> Operand:
    if isinstance(value, Symbol):
        return value.name
    if isinstance(value, bool):
        return value
    if isinstance(value, (int, float)):
        return float(value)
    raise InputTypeError(f"{value!r} is neither a symbol nor a real number")


def _simplified(
    operator: str, arguments: tuple[Operand, ...], statements: Mapping[Operand, Statement]
) -> Operand | None:
    """An operand with the same bits as the expression, if there is one."""
    first, last = arguments[0], arguments[-1]
    match operator:
        case "add" if _is(last, -0.0):
            return first
        case "add" if _is(first, -0.0):
            return last
        case "sub" if _is(last, 0.0):
            return first
        case "mul" | "div" if _is(last, 1.0):
            return first
        case "mul" if _is(first, 1.0):
            return last
        case "where" if isinstance(first, bool):
            return arguments[1] if first else arguments[2]
        case "where" if _is(arguments[1], last):
            return last
        # A symbol comes first in these. None of them becomes True or False: Python's ~True is -2.
        case "and" | "or" if last is (operator == "and"):
            return first
        case "neg" | "not" if first in statements and statements[first].operator == operator:
            return statements[first].arguments[0]
    return None


def _is(operand: Operand, other: Operand) -> bool:
    """Whether two operands are the same, bit for bit."""
    return (type(operand), repr(operand)) == (type(other), repr(other))


def trace(
    function: Callable[..., Any], inputs: Sequence[str], polynomials: Precision | None = None
) -> Program:
    """The program of ``function(ops, *symbols)``, one symbol for each of the inputs.

    The function may return symbols, numbers, `Pair`s (their real and imaginary part) and tuples
    of these, nested as it likes; the outputs are in that order. `polynomials` is explained at
    `SymbolicOps`.

    Raises
    ------
    InputError
        If an input has no name of its own: one that is an identifier and not ``v`` and digits,
        which is what targets are called.
    """
    for name in inputs:
        if not name.isidentifier() or (name[0] == "v" and name[1:].isdigit()):
            raise InputError(f"{name!r} cannot be the name of an input")
    if len(set(inputs)) < len(inputs):
        raise InputError(f"two inputs have the same name: {', '.join(inputs)}")
    graph = _Graph()
    values = function(SymbolicOps(graph, polynomials), *(Symbol(graph, name) for name in inputs))
    outputs: list[Operand] = []
    _collect(values, outputs)
    return Program(tuple(inputs), graph.needed_for(outputs), tuple(outputs))


def _collect(value: Any, outputs: list[Operand]) -> None:
    if isinstance(value, Pair):
        value = (value.re, value.im)
    if isinstance(value, tuple):
        for item in value:
            _collect(item, outputs)
    else:
        outputs.append(_operand(value))


# A function of `backends.kernel` or `backends.algebra`; the first argument is an `ArrayOps`.
KernelFunction = Callable[[Any, Pair, SeriesConstants, Precision], Any]


def trace_kernel(
    function: KernelFunction, precision: Precision, zeros: str = "", polynomials: bool = False
) -> Program:
    """The program of a kernel function: its inputs are x, y and constants t0, t1, ... of a table.

    The table holds the real numbers of `SeriesConstants`, or of what `prepared_for` says, in the
    order of `map_reals`; the numbers that the function does not use are no inputs. (The tables of
    `backends.evaluation` begin with the matrix of the reduction.) `zeros`, from `zeros_of`, says
    which constants of a lattice are 0: the program leaves products with them out, as the kernel
    does.
    """
    template = prepared_for(function, _SOME_LATTICE, precision)
    names: list[str] = []
    map_reals(template, lambda _: names.append(f"t{len(names)}"))
    known = {"+": 0.0, "-": -0.0}
    marks = zeros or "." * len(names)

    def run(ops: SymbolicOps, x: Symbol, y: Symbol, *table: Symbol) -> Any:
        constants = iter([known.get(mark, t) for mark, t in zip(marks, table, strict=True)])
        filled = map_reals(template, lambda _: next(constants))
        return function(ops, Pair(x, y), filled, precision)

    program = trace(run, ("x", "y", *names), precision if polynomials else None)
    used = set(program.used_inputs)
    return program._replace(inputs=("x", "y", *(name for name in names if name in used)))


# Any lattice shows how the numbers of a table are laid out.
_SOME_LATTICE = Lattice(1.0, 1.0j)


def template_of(precision: Precision) -> SeriesConstants:
    """Constants of some lattice."""
    return prepare_numbers(_SOME_LATTICE, precision)


def zeros_of(constants: Any) -> str:
    """One mark for each number of nested constants: + or - for a part of a `Pair` that is 0 or -0.

    (The kernel looks for zeros in pairs only.)
    """
    if isinstance(constants, Pair):
        return _zero_mark(constants.re) + _zero_mark(constants.im)
    if isinstance(constants, tuple):
        return "".join(map(zeros_of, constants))
    return "."


def _zero_mark(number: float) -> str:
    return "." if number != 0.0 else "-" if math.copysign(1.0, number) < 0.0 else "+"
