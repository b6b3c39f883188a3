"""Read PTX, the assembly language for GPUs, as far as Triton writes it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from wefpe_core import WefpeError


class PtxError(WefpeError, ValueError):
    """Something in the PTX is not understood; the message shows it."""


class Label(NamedTuple):
    name: str


class Instruction(NamedTuple):
    """For example ``@!%p1 fma.rn.f32 %r1, %r2, %r3, %r4;``."""

    name: str  # "fma"
    modifiers: tuple[str, ...]  # ("rn", "f32")
    operands: tuple[str, ...]
    guard: str = ""  # "!%p1"

    @property
    def type(self) -> str:
        return self.modifiers[-1] if self.modifiers else ""

    def __str__(self) -> str:
        return f"{'.'.join((self.name, *self.modifiers))} {', '.join(self.operands)}"


@dataclass
class Function:
    """A kernel, or a function that one calls."""

    name: str
    is_kernel: bool
    parameters: list[tuple[str, str]]  # type and name
    threads: int | None  # of a block, for a kernel
    registers: dict[str, str] = field(default_factory=dict)  # type by name
    local_arrays: dict[str, int] = field(default_factory=dict)  # size in bytes by name
    call_slots: set[str] = field(default_factory=set)  # arguments and results of calls
    body: list[Label | Instruction] = field(default_factory=list)


class Array(NamedTuple):
    """Constant data."""

    bits: int
    length: int
    values: tuple[int, ...]


class Module(NamedTuple):
    functions: list[Function]
    arrays: dict[str, Array]
    shared: frozenset[str]  # names of shared memory

    @property
    def kernel(self) -> Function:
        kernels = [function for function in self.functions if function.is_kernel]
        if len(kernels) != 1:
            raise PtxError(f"expected one kernel, found {[kernel.name for kernel in kernels]}")
        return kernels[0]


_ARRAY = re.compile(
    r"^\.(?:visible )?(?:global|const)\s+\.align \d+ \.b(\d+) ([\w$]+)\[(\d+)\]"
    r"\s*(?:=\s*\{([^}]*)\})?;",
    re.MULTILINE,
)
_SHARED = re.compile(r"\.extern \.shared \.align \d+ \.b8 ([\w$]+)\[\]")
_FUNCTION = re.compile(
    r"(?P<kind>\.visible\s+\.entry|\.func)\s*(?:\(\s*\.param[^)]*\))?\s*(?P<name>[\w$]+)\s*"
    r"\((?P<parameters>.*?)\)\s*(?P<directives>(?:\.\w+[^;{]*?)*)\s*(?P<end>;|\{)",
    re.DOTALL,
)
_PARAMETER = re.compile(
    r"\.param\s+(?:\.align \d+ )?\.(\w+)(?:\s+\.ptr[^,]*?)?\s+([\w$]+)\s*(?:,|$)"
)
_REGISTERS = re.compile(r"\.reg\s+\.(\w+)\s+([^;]+);")
_LOCAL = re.compile(r"\.local\s+\.align\s+\d+\s+\.b8\s+([\w$]+)\[(\d+)\];")
# A label, a statement with a list in braces, a statement, or a brace that opens or ends a scope.
_TOKEN = re.compile(r"[\w$]+:(?!:)|[^;{}]*\{[^;{}]*\}[^;{}]*;|[^;{}]+;|[{}]")


def parse(text: str) -> Module:
    """The functions and data of a PTX file."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    text = re.sub(r"//[^\n]*", "", text)
    text = re.sub(r"\.section\s+\S+\s*\{.*?\n\s*\}", "", text, flags=re.DOTALL)
    text = re.sub(r"\.(?:file|loc)\s[^\n]*\n", "\n", text)
    arrays = {
        name: Array(
            int(bits), int(length), tuple(int(x, 0) for x in data.split(",")) if data else ()
        )
        for bits, name, length, data in _ARRAY.findall(text)
    }
    functions = []
    position = 0
    while found := _FUNCTION.search(text, position):
        position = found.end()
        if found["end"] == ";":  # a declaration
            continue
        position = _closing_brace(text, position)
        functions.append(_function(found, text[found.end() : position - 1]))
    return Module(functions, arrays, frozenset(_SHARED.findall(text)))


def _closing_brace(text: str, position: int) -> int:
    depth = 1
    while depth:
        depth += (text[position] == "{") - (text[position] == "}")
        position += 1
    return position


def _function(found: re.Match[str], body: str) -> Function:
    threads = re.search(r"\.reqntid (\d+)", found["directives"])
    function = Function(
        name=found["name"],
        is_kernel="entry" in found["kind"],
        parameters=_PARAMETER.findall(found["parameters"].strip()),
        threads=int(threads[1]) if threads else None,
        local_arrays={name: int(size) for name, size in _LOCAL.findall(body)},
    )
    for kind, names in _REGISTERS.findall(body):
        for name in (part.strip() for part in names.split(",")):
            many = re.fullmatch(r"(%\w+)<(\d+)>", name)
            numbered = [f"{many[1]}{i}" for i in range(int(many[2]))] if many else [name]
            function.registers.update(dict.fromkeys(numbered, kind))
    body = re.sub(r"\.(?:reg|local|pragma)\s[^;]+;", "", body)
    if rest := _TOKEN.sub("", body).strip():
        raise PtxError(f"{function.name}: cannot read {rest[:80]!r}")
    for token in _TOKEN.findall(body):
        _read_token(function, token.strip())
    return function


def _read_token(function: Function, token: str) -> None:
    while label := re.match(r"([\w$]+):\s*", token):
        function.body.append(Label(label[1]))
        token = token[label.end() :]
    statement = " ".join(token.rstrip(";").split())
    if statement.startswith(".param"):
        function.call_slots.add(statement.split()[-1])
    elif statement and statement not in "{}" and not statement.startswith("."):
        function.body.append(_instruction(statement))


def _instruction(statement: str) -> Instruction:
    guard = ""
    if found := re.match(r"@(!?%\w+)\s+", statement):
        guard, statement = found[1], statement[found.end() :]
    opcode, _, rest = statement.partition(" ")
    # "ld.global.L1::evict_last.b32": hints for caches change no value.
    name, *modifiers = re.sub(r"\.\w+::\w+", "", opcode).split(".")
    return Instruction(name, tuple(modifiers), _operands(rest), guard)


def _operands(text: str) -> tuple[str, ...]:
    """Split at commas that are not within brackets of any kind."""
    found, depth = [""], 0
    for character in text:
        depth += (character in "{[(") - (character in "}])")
        if character == "," and not depth:
            found.append("")
        else:
            found[-1] += character
    return tuple(part.strip() for part in found if part.strip())
