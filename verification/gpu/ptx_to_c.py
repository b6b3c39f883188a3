"""Translate PTX to C, one statement for each instruction.

The C compiler may neither contract nor reassociate, so a value is computed as the instructions
say. The threads of a block run in turn; at an instruction that synchronises them each returns and
is resumed there when all have arrived.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.resources import files

from verification.gpu.ptx import Function, Instruction, Label, Module, PtxError

_COMPARISONS = {
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "lo": "<",
    "ls": "<=",
    "hi": ">",
    "hs": ">=",
}
_LOGIC = {"and": "&", "or": "|", "xor": "^"}
_SPECIAL_REGISTERS = {
    **{
        f"%{kind}.{axis}": f"T->{kind}[{i}]"
        for kind in ("ctaid", "nctaid")
        for i, axis in enumerate("xyz")
    },
    "%tid.x": "T->tid",
    "%tid.y": "0",
    "%tid.z": "0",
    "%laneid": "(T->tid & 31)",
    "%ntid.x": "T->ntid",
    "%ntid.y": "1",
    "%ntid.z": "1",
}
_TO_INTEGER = {"rni": "rint", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
_FLOATS = ("f32", "f64")
# Not those with ftz: they belong to functions whose author chose every rounding.
_FUSIBLE = (("f32",), ("f64",), ("rn", "f32"), ("rn", "f64"))

# Errors of approximate instructions by the PTX ISA: C expression, kind of bound, bound.
_APPROXIMATE = {
    "div": ("{0} / {1}", "within_ulps", "2.0"),
    "rcp": ("1.0 / {0}", "within_ulps", "1.0"),
    "sqrt": ("sqrt({0})", "within_ulps", "2.0"),
    "rsqrt": ("1.0 / sqrt({0})", "within_ulps", "2.0"),
    "ex2": ("exp2({0})", "within_ulps", "2.0"),
    "lg2": ("log2({0})", "within", "0x1p-22"),
    "sin": ("sin({0})", "within", "0x1p-20"),
    "cos": ("cos({0})", "within", "0x1p-20"),
}


def bits(kind: str) -> int:
    """The width of a PTX type."""
    return 8 if kind == "pred" else int(kind[1:])


def c_type(kind: str) -> str:
    if kind in _FLOATS:
        return {"f32": "float", "f64": "double"}[kind]
    return f"{'s' if kind[0] == 's' else 'u'}{bits(kind)}"


def c_name(name: str) -> str:
    return name.replace("$", "_S_").replace("%", "V_")


def translate(module: Module, may_fuse: bool = False) -> str:
    """A C file with a function `launch` that runs the kernel of the module.

    With `may_fuse` a sum may absorb a product that is one of its terms; the variable `fusion` of
    the C file decides which do.
    """
    parts = [files("verification.gpu").joinpath("ptx_runtime.c").read_text("utf-8")]
    for name, (width, length, values) in module.arrays.items():
        data = ", ".join(map(str, values)) or "0"
        parts.append(
            f"static const u{width} {c_name(name)}[{length}] __attribute__((aligned(16)))"
            f" = {{{data}}};"
        )
    called = [function for function in module.functions if not function.is_kernel]
    parts += [f"static void {c_name(function.name)}(u64* result, u64* P);" for function in called]
    parts += [Translation(module, function, may_fuse).as_called() for function in called]
    parts.append(Translation(module, module.kernel, may_fuse).as_kernel())
    return "\n".join(parts)


def parameter_offsets(function: Function) -> dict[str, int]:
    """Where the parameters of a kernel lie in the block of bytes it is launched with."""
    offsets, end = {}, 0
    for kind, name in function.parameters:
        size = bits(kind) // 8
        offsets[name] = -(-end // size) * size
        end = offsets[name] + size
    return offsets


class Translation:
    """One function in C. R holds its registers, P its parameters, M the shared memory."""

    def __init__(self, module: Module, function: Function, may_fuse: bool) -> None:
        self._module, self._function, self._may_fuse = module, function, may_fuse
        self._stops = 0  # places where a thread waits for the others
        self._products: dict[str, tuple[str, str, str]] = {}  # register: type and two factors
        self._fusions = 0
        if function.is_kernel:
            self._parameters = parameter_offsets(function)
        else:
            self._parameters = {name: 8 * i for i, (_, name) in enumerate(function.parameters)}

    # --- The whole function ------------------------------------------------------------------

    def as_called(self) -> str:
        lines = self._lines()
        return "\n".join(
            [
                f"static void {c_name(self._function.name)}(u64* result, u64* P) {{",
                f"struct {{ u32 tid; {self._depot()} }} thread, *T = &thread;",
                f"struct {{ {self._registers()} }} R; u32 C = 0; {self._slots()}",
                *(*lines, "}"),
            ]
        )

    def as_kernel(self) -> str:
        lines = self._lines()
        # Registers outlive a stop; without one they are local, which is much faster.
        kept = f"struct {{ {self._registers()} }} R;"
        resumed = " ".join(f"case {stop}: goto Stop{stop};" for stop in range(1, self._stops + 1))
        if self._stops:
            lines = [re.sub(r"\bR\.", "T->R.", line) for line in lines]
        return "\n".join(
            [
                "typedef struct { int stop; u32 tid, ntid, ctaid[3], nctaid[3], offer, taken;",
                f"{kept if self._stops else ''} {self._depot()} }} Thread;",
                "static void step(Thread* T, const char* P, char* M) {",
                f"u32 C = 0; {self._slots()} {'' if self._stops else kept}",
                f"switch (T->stop) {{ case 0: break; {resumed} }}",
                *lines,
                "T->stop = -1; }",
                _LAUNCH,
            ]
        )

    def _registers(self) -> str:
        kinds = self._function.registers.items()
        return " ".join(f"u{bits(kind)} {c_name(name)};" for name, kind in kinds)

    def _slots(self) -> str:
        return " ".join(f"u64 slot_{slot} = 0;" for slot in sorted(self._function.call_slots))

    def _depot(self) -> str:
        size = self._local_offset(None)
        return f"char __attribute__((aligned(16))) depot[{size}];"

    def _local_offset(self, name: str | None) -> int:
        """Where a local array begins, or where the last one ends."""
        offset = 16  # no address is 0
        for array, size in self._function.local_arrays.items():
            if array == name:
                return offset
            offset += -(-size // 16) * 16
        return offset

    def _lines(self) -> list[str]:
        lines = []
        for item in self._function.body:
            if isinstance(item, Label):
                self._products.clear()
                lines.append(f"{c_name(item.name)}:;")
                continue
            code = self._code(item)
            if item.guard:
                negation = "!" if item.guard.startswith("!") else ""
                code = f"if ({negation}{self._register(item.guard.lstrip('!'))}) {{ {code} }}"
            lines.append(code)
            self._follow_products(item)
        return lines

    def _code(self, item: Instruction) -> str:
        method: Callable[[Instruction], str] | None = getattr(self, f"_do_{item.name}", None)
        if method is None:
            raise PtxError(f"{self._function.name}: the instruction {item} is not known")
        return method(item)

    def _follow_products(self, item: Instruction) -> None:
        """Remember products that a sum in the same block may absorb."""
        if not self._may_fuse or not item.operands:
            return
        changed = item.operands[0]
        self._products.pop(changed, None)
        for name in [name for name, (_, a, b) in self._products.items() if changed in (a, b)]:
            del self._products[name]
        if item.name == "mul" and item.modifiers in _FUSIBLE and not item.guard:
            self._products[changed] = (item.type, item.operands[1], item.operands[2])

    # --- Operands ----------------------------------------------------------------------------

    def _register(self, name: str) -> str:
        if name not in self._function.registers:
            raise PtxError(f"{self._function.name}: the register {name} is not declared")
        return f"R.{c_name(name)}"

    def _value(self, operand: str, kind: str) -> str:
        """The C expression of an operand of a type."""
        if found := re.fullmatch(r"0[fF]([0-9a-fA-F]{8})", operand):
            return f"as_f32(0x{found[1]}u)" if kind == "f32" else f"0x{found[1]}u"
        if found := re.fullmatch(r"0[dD]([0-9a-fA-F]{16})", operand):
            return f"as_f64(0x{found[1]}ull)" if kind == "f64" else f"0x{found[1]}ull"
        if re.fullmatch(r"-?(0x[0-9a-fA-F]+|\d+)U?", operand):
            number = int(operand.rstrip("U"), 0)
            if kind in _FLOATS or kind == "pred":
                return str(number)
            return f"(({c_type(kind)}){number & (2**64 - 1):#x}ull)"
        if operand in _SPECIAL_REGISTERS:
            return _SPECIAL_REGISTERS[operand]
        if operand in self._function.registers:
            register = self._register(operand)
            if kind in _FLOATS:
                return f"as_{kind}({register})"
            if "pred" in (kind, self._function.registers[operand]):
                return register
            return f"(({c_type(kind)}){register})"
        if operand.startswith("!"):
            return f"!{self._value(operand[1:], kind)}"
        if operand in self._module.arrays:
            return f"((u64)(uintptr_t){c_name(operand)})"
        if operand in self._function.local_arrays:
            return str(self._local_offset(operand))
        if operand in self._module.shared:
            return "0"
        raise PtxError(f"{self._function.name}: the operand {operand} is not known")

    def _float(self, item: Instruction, position: int) -> str:
        value = self._value(item.operands[position], item.type)
        return f"flushed({value})" if self._flushes(item) else value

    @staticmethod
    def _flushes(item: Instruction) -> bool:
        return "ftz" in item.modifiers and item.type == "f32"

    def _store(self, target: str, kind: str, value: str) -> str:
        if target == "_":
            return ";"
        register, width = self._register(target), self._function.registers[target]
        if kind in _FLOATS:
            return f"{register} = bits_{kind}({value});"
        if width == "pred":
            return f"{register} = ({value}) & 1;"
        if kind[0] == "s" and bits(kind) < bits(width):
            return f"{register} = (u{bits(width)})(s{bits(width)})({value});"
        return f"{register} = (u{bits(width)})({value});"

    def _store_float(self, item: Instruction, value: str) -> str:
        return self._store(
            item.operands[0], item.type, f"flushed({value})" if self._flushes(item) else value
        )

    def _store_integer(self, item: Instruction, value: str) -> str:
        return self._store(item.operands[0], item.type, value)

    # --- Floating-point arithmetic -----------------------------------------------------------

    def _arithmetic(self, item: Instruction, operator: str) -> str:
        if {"rm", "rp", "rz", "sat"} & set(item.modifiers):
            raise PtxError(f"{self._function.name}: {item} rounds in a way that is not known")
        plain = f"{self._float(item, 1)} {operator} {self._float(item, 2)}"
        fused = self._fused(item, operator) if operator in "+-" else None
        if fused is None:
            return self._store_float(item, plain)
        self._fusions += 1
        return self._store_float(item, f"(is_fused({self._fusions}) ? {fused} : {plain})")

    def _fused(self, item: Instruction, operator: str) -> str | None:
        """The same sum as a fused multiply-add, if one of its terms is a product."""
        if item.modifiers not in _FUSIBLE:
            return None
        function = "fmaf" if item.type == "f32" else "fma"
        for position, other in ((1, 2), (2, 1)):
            kind, a, b = self._products.get(item.operands[position], ("", "", ""))
            if kind != item.type:
                continue
            first, second = self._value(a, kind), self._value(b, kind)
            rest = self._value(item.operands[other], kind)
            if operator == "-":
                first, rest = (first, f"-{rest}") if position == 1 else (f"-{first}", rest)
            return f"{function}({first}, {second}, {rest})"
        return None

    def _do_fma(self, item: Instruction) -> str:
        values = ", ".join(self._float(item, position) for position in (1, 2, 3))
        if "rm" in item.modifiers and item.type == "f32":
            return self._store_float(item, f"fma_downward({values})")
        if "rn" not in item.modifiers:
            raise PtxError(f"{self._function.name}: {item} rounds in a way that is not known")
        return self._store_float(item, f"{'fmaf' if item.type == 'f32' else 'fma'}({values})")

    def _approximate(self, item: Instruction) -> str:
        expression, bound, error = _APPROXIMATE[item.name]
        values = [self._float(item, position) for position in range(1, len(item.operands))]
        if "rn" in item.modifiers and item.type == "f64":
            return self._store_float(item, expression.format(*values))
        if item.type == "f64":
            # rcp.approx.ftz.f64 and its like give the upper half of the bits.
            exact = expression.format(*values)
            return self._store_float(item, f"as_f64(bits_f64({exact}) & 0xffffffff00000000ull)")
        exact = expression.format(*(f"(double){value}" for value in values))
        if "rn" in item.modifiers:  # a double is wide enough to round the exact value once more
            return self._store_float(item, f"(float)({exact})")
        key = " ^ ".join(
            f"((u64){self._value(operand, 'b32')} << {32 * i})"
            for i, operand in enumerate(item.operands[1:])
        )
        return self._store_float(item, f"{bound}({exact}, {error}, {key})")

    _do_rcp = _do_sqrt = _do_rsqrt = _do_ex2 = _do_lg2 = _do_sin = _do_cos = _approximate

    def _do_div(self, item: Instruction) -> str:
        if item.type in _FLOATS:
            return self._approximate(item)
        return self._binary(item, "/")

    def _do_rem(self, item: Instruction) -> str:
        return self._binary(item, "%")

    def _do_copysign(self, item: Instruction) -> str:
        function = "copysignf" if item.type == "f32" else "copysign"
        sign, size = (self._value(operand, item.type) for operand in item.operands[1:])
        return self._store(item.operands[0], item.type, f"{function}({size}, {sign})")

    # --- Arithmetic of numbers of any kind ----------------------------------------------------

    def _binary(self, item: Instruction, operator: str) -> str:
        a, b = (self._value(operand, item.type) for operand in item.operands[1:3])
        return self._store_integer(item, f"{a} {operator} {b}")

    def _sum(self, item: Instruction, operator: str) -> str:
        if item.type in _FLOATS:
            return self._arithmetic(item, operator)
        if "cc" in item.modifiers:
            return self._with_carry(item, operator, "")
        return self._binary(item, operator)

    def _do_add(self, item: Instruction) -> str:
        return self._sum(item, "+")

    def _do_sub(self, item: Instruction) -> str:
        return self._sum(item, "-")

    def _do_addc(self, item: Instruction) -> str:
        return self._with_carry(item, "+", "+ C")

    def _do_subc(self, item: Instruction) -> str:
        return self._with_carry(item, "-", "- C")

    def _with_carry(self, item: Instruction, operator: str, carry: str) -> str:
        width = bits(item.type)
        a, b = (self._value(operand, f"u{width}") for operand in item.operands[1:3])
        return self._wide(item, f"(u{2 * width}){a} {operator} {b} {carry}")

    def _wide(self, item: Instruction, expression: str) -> str:
        """Store the lower half of a number of twice the width, and the carry if it is asked for."""
        width = bits(item.type)
        carry = f"C = (wide >> {width}) & 1;" if "cc" in item.modifiers else ""
        store = self._store(item.operands[0], f"b{width}", f"(u{width})wide")
        return f"{{ u{2 * width} wide = {expression}; {carry} {store} }}"

    def _product(self, item: Instruction) -> str:
        """The product of the first two operands: its lower or upper half, or all of it."""
        width, sign = bits(item.type), "s" if item.type[0] == "s" else "u"
        a, b = (self._value(operand, f"{sign}{width}") for operand in item.operands[1:3])
        whole = f"(({sign}{2 * width}){a} * ({sign}{2 * width}){b})"
        if "wide" in item.modifiers:
            return whole
        return f"(u{width})({whole} >> {width})" if "hi" in item.modifiers else f"(u{width}){whole}"

    def _do_mul(self, item: Instruction) -> str:
        if item.type in _FLOATS:
            return self._arithmetic(item, "*")
        kind = f"{item.type[0]}{2 * bits(item.type)}" if "wide" in item.modifiers else item.type
        return self._store(item.operands[0], kind, self._product(item))

    def _do_mad(self, item: Instruction, carry: str = "") -> str:
        width = bits(item.type)
        if "wide" in item.modifiers:
            kind = f"{item.type[0]}{2 * width}"
            value = f"{self._product(item)} + {self._value(item.operands[3], kind)}"
            return self._store(item.operands[0], kind, value)
        rest = self._value(item.operands[3], f"u{width}")
        return self._wide(item, f"(u{2 * width}){self._product(item)} + {rest} {carry}")

    def _do_madc(self, item: Instruction) -> str:
        return self._do_mad(item, "+ C")

    def _do_neg(self, item: Instruction) -> str:
        if item.type in _FLOATS:
            return self._store_float(item, f"-{self._float(item, 1)}")
        return self._store_integer(item, f"-{self._value(item.operands[1], item.type)}")

    def _do_abs(self, item: Instruction) -> str:
        if item.type in _FLOATS:
            function = "fabsf" if item.type == "f32" else "fabs"
            return self._store_float(item, f"{function}({self._float(item, 1)})")
        value = self._value(item.operands[1], item.type)
        return self._store_integer(item, f"({value} < 0 ? -{value} : {value})")

    def _do_min(self, item: Instruction) -> str:
        if item.type in _FLOATS:
            if "NaN" in item.modifiers:
                raise PtxError(f"{self._function.name}: the instruction {item} is not known")
            function = f"f{item.name}{'f' if item.type == 'f32' else ''}"
            return self._store_float(
                item, f"{function}({self._float(item, 1)}, {self._float(item, 2)})"
            )
        a, b = (self._value(operand, item.type) for operand in item.operands[1:])
        return self._store_integer(
            item, f"({a} {'<' if item.name == 'min' else '>'} {b} ? {a} : {b})"
        )

    _do_max = _do_min

    # --- Comparison, selection, bits ---------------------------------------------------------

    def _do_setp(self, item: Instruction) -> str:
        comparison = item.modifiers[0]
        if item.type in _FLOATS:
            a, b = self._float(item, 1), self._float(item, 2)
        else:
            a, b = (self._value(operand, item.type) for operand in item.operands[1:3])
        are_numbers = f"({a} == {a} && {b} == {b})"
        if comparison in ("num", "nan"):
            value = are_numbers if comparison == "num" else f"!{are_numbers}"
        elif comparison in _COMPARISONS:
            value = f"({a} {_COMPARISONS[comparison]} {b})"
            if item.type in _FLOATS and comparison == "ne":  # false for NaN, unlike C's
                value = f"({are_numbers} && {a} != {b})"
        else:  # "ltu": true for NaN as well
            value = f"(!{are_numbers} || {a} {_COMPARISONS[comparison[:-1]]} {b})"
        if item.modifiers[1] in _LOGIC:
            value += f" {_LOGIC[item.modifiers[1]]} {self._value(item.operands[3], 'pred')}"
        return self._store(item.operands[0], "pred", value)

    def _do_selp(self, item: Instruction) -> str:
        a, b = (self._value(operand, item.type) for operand in item.operands[1:3])
        return self._store(
            item.operands[0], item.type, f"{self._value(item.operands[3], 'pred')} ? {a} : {b}"
        )

    def _logic(self, item: Instruction) -> str:
        return self._binary(item, _LOGIC[item.name])

    _do_and = _do_or = _do_xor = _logic

    def _do_not(self, item: Instruction) -> str:
        operator = "!" if item.type == "pred" else "~"
        return self._store_integer(item, f"{operator}{self._value(item.operands[1], item.type)}")

    def _do_shl(self, item: Instruction) -> str:
        width, places = bits(item.type), self._value(item.operands[2], "b32")
        value = self._value(item.operands[1], f"u{width}")
        return self._store_integer(item, f"({places} >= {width} ? 0 : {value} << {places})")

    def _do_shr(self, item: Instruction) -> str:
        width, places = bits(item.type), self._value(item.operands[2], "b32")
        if item.type[0] == "s":
            value = self._value(item.operands[1], item.type)
            shift = f"{value} >> ({places} >= {width} ? {width - 1} : {places})"
        else:
            value = self._value(item.operands[1], f"u{width}")
            shift = f"({places} >= {width} ? 0 : {value} >> {places})"
        return self._store_integer(item, shift)

    def _do_shf(self, item: Instruction) -> str:
        low, high, places = (self._value(operand, "b32") for operand in item.operands[1:])
        places = (
            f"({places} & 31)" if "wrap" in item.modifiers else f"({places} > 32 ? 32 : {places})"
        )
        whole = f"(((u64){high} << 32) | {low})"
        left = f"(u32)(({whole} << {places}) >> 32)"
        return self._store(
            item.operands[0],
            "b32",
            left if "l" in item.modifiers else f"(u32)({whole} >> {places})",
        )

    def _do_bfe(self, item: Instruction) -> str:
        if item.type[0] != "u":
            raise PtxError(f"{self._function.name}: the instruction {item} is not known")
        width, value = bits(item.type), self._value(item.operands[1], item.type)
        start, length = (self._value(operand, "b32") for operand in item.operands[2:])
        mask = f"(({length} >= {width} ? 0 : (u{width})1 << {length}) - 1)"
        return self._store_integer(item, f"({start} >= {width} ? 0 : {value} >> {start}) & {mask}")

    def _do_clz(self, item: Instruction) -> str:
        value, suffix = (
            self._value(item.operands[1], item.type),
            "ll" if bits(item.type) == 64 else "",
        )
        return self._store(
            item.operands[0],
            "b32",
            f"({value} ? __builtin_clz{suffix}({value}) : {bits(item.type)})",
        )

    def _do_popc(self, item: Instruction) -> str:
        suffix = "ll" if bits(item.type) == 64 else ""
        value = self._value(item.operands[1], item.type)
        return self._store(item.operands[0], "b32", f"__builtin_popcount{suffix}({value})")

    def _do_prmt(self, item: Instruction) -> str:
        values = ", ".join(self._value(operand, "b32") for operand in item.operands[1:])
        return self._store(item.operands[0], "b32", f"permuted({values})")

    # --- Moving and converting ---------------------------------------------------------------

    def _do_mov(self, item: Instruction) -> str:
        target, source = item.operands
        if target.startswith("{"):
            pieces = _listed(target)
            width = bits(item.type) // len(pieces)
            stores = " ".join(
                self._store(piece, f"b{width}", f"whole >> {width * i}")
                for i, piece in enumerate(pieces)
            )
            return f"{{ u{bits(item.type)} whole = {self._value(source, item.type)}; {stores} }}"
        if source.startswith("{"):
            pieces = _listed(source)
            width = bits(item.type) // len(pieces)
            value = " | ".join(
                f"((u{bits(item.type)}){self._value(piece, f'b{width}')} << {width * i})"
                for i, piece in enumerate(pieces)
            )
            return self._store(target, item.type, value)
        return self._store(target, item.type, self._value(source, item.type))

    def _do_cvt(self, item: Instruction) -> str:
        to, source = [m for m in item.modifiers if re.fullmatch(r"[fsub]\d+", m)]
        value = self._value(item.operands[1], source)
        flushes = "ftz" in item.modifiers
        if flushes and source == "f32":
            value = f"flushed({value})"
        rounding = next((_TO_INTEGER[m] for m in item.modifiers if m in _TO_INTEGER), None)
        if to in _FLOATS:
            if {"rz", "rm", "rp"} & set(item.modifiers):
                raise PtxError(f"{self._function.name}: {item} rounds in a way that is not known")
            value = f"({c_type(to)}){f'{rounding}((double){value})' if rounding else value}"
            if "sat" in item.modifiers:  # NaN becomes 0
                value = f"fminf(fmaxf({value}, 0.0f), 1.0f)"
            return self._store(
                item.operands[0], to, f"flushed({value})" if flushes and to == "f32" else value
            )
        if source in _FLOATS:
            value = f"to_{c_type(to)}({rounding}((double){value}))"
        return self._store(item.operands[0], to, f"({c_type(to)}){value}")

    def _do_cvta(self, item: Instruction) -> str:
        value = self._value(item.operands[1], "b64")
        if "local" in item.modifiers:
            depot = "(u64)(uintptr_t)T->depot"
            value = f"{value} - {depot}" if "to" in item.modifiers else f"{depot} + {value}"
        elif "shared" in item.modifiers:
            raise PtxError(f"{self._function.name}: the instruction {item} is not known")
        return self._store(item.operands[0], "b64", value)

    def _address(self, item: Instruction, operand: str) -> str:
        found = re.fullmatch(r"\[\s*([%\w$.]+)\s*(?:\+\s*(-?\w+))?\s*\]", operand)
        if found is None:
            raise PtxError(f"{self._function.name}: the address {operand} is not known")
        base, offset = found[1], int(found[2] or "0", 0)
        if "param" in item.modifiers:
            if base in self._function.call_slots:
                return f"((char*)&slot_{base} + {offset})"
            if base in self._parameters:
                return f"((char*)P + {self._parameters[base] + offset})"
            return f"((char*)result + {offset})"  # func_retval0
        if "local" in item.modifiers:
            return f"(T->depot + (u32){self._value(base, 'b32')} + {offset})"
        if "shared" in item.modifiers:
            return f"(M + (u32){self._value(base, 'b32')} + {offset})"
        return f"((char*)(uintptr_t){self._value(base, 'b64')} + {offset})"

    def _do_ld(self, item: Instruction) -> str:
        kind = item.type if item.type[0] == "s" else f"b{bits(item.type)}"
        address, size = self._address(item, item.operands[1]), bits(item.type) // 8
        return " ".join(
            f"{{ {c_type(kind)} word; memcpy(&word, {address} + {size * i}, {size}); "
            f"{self._store(register, kind, 'word')} }}"
            for i, register in enumerate(_listed(item.operands[0]))
        )

    def _do_st(self, item: Instruction) -> str:
        kind, size = f"b{bits(item.type)}", bits(item.type) // 8
        address = self._address(item, item.operands[0])
        return " ".join(
            f"{{ {c_type(kind)} word = {self._value(value, kind)}; "
            f"memcpy({address} + {size * i}, &word, {size}); }}"
            for i, value in enumerate(_listed(item.operands[1]))
        )

    # --- Control -----------------------------------------------------------------------------

    def _do_bra(self, item: Instruction) -> str:
        return f"goto {c_name(item.operands[0])};"

    def _do_ret(self, item: Instruction) -> str:
        return "T->stop = -1; return;" if self._function.is_kernel else "return;"

    _do_exit = _do_ret

    def _do_call(self, item: Instruction) -> str:
        *results, name, arguments = item.operands
        result = f"&slot_{results[0].strip('()')}" if results else "0"
        slots = ", ".join(f"slot_{slot.strip()}" for slot in arguments.strip("()").split(","))
        return f"{{ u64 given[] = {{{slots}}}; {c_name(name)}({result}, given); }}"

    def _do_bar(self, item: Instruction) -> str:
        self._stops += 1
        return f"T->stop = {self._stops}; return; Stop{self._stops}:;"

    _do_barrier = _do_bar

    def _do_shfl(self, item: Instruction) -> str:
        """Offer a word, wait, take the word of another thread, and wait again."""
        own, distance = "(T->tid & 31)", self._value(item.operands[2], "b32")
        lanes = {
            "bfly": f"{own} ^ {distance}",
            "down": f"{own} + {distance}",
            "up": f"{own} - {distance}",
            "idx": f"{distance} & 31",
        }
        mode = next(mode for mode in lanes if mode in item.modifiers)
        first, second = self._stops + 1, self._stops + 2
        self._stops += 2
        target = item.operands[0].partition("|")[0]
        return (
            f"T->offer = {self._value(item.operands[1], 'b32')}; "
            f"T->stop = {first}; return; Stop{first}:; "
            f"{{ const u32 lane = {lanes[mode]}; "
            f"T->taken = lane < 32 ? T[(int)lane - (int){own}].offer : T->offer; }} "
            f"T->stop = {second}; return; Stop{second}:; {self._store(target, 'b32', 'T->taken')}"
        )

    def _do_createpolicy(self, item: Instruction) -> str:
        return self._store(item.operands[0], "b64", "0")  # a hint for caches

    def _do_membar(self, item: Instruction) -> str:
        return ";"

    _do_fence = _do_membar


def _listed(operand: str) -> list[str]:
    """The members of ``{a, b}``, or the operand alone."""
    return [part.strip() for part in operand.strip("{}").split(",")]


_LAUNCH = """
int launch(const char* parameters, u32 x, u32 y, u32 z, u32 threads, u32 shared_memory) {
  Thread* T = malloc(sizeof(Thread) * threads);
  char* M = calloc(1, shared_memory + 16);
  if (!T || !M) return 1;
  for (u32 block = 0; block < x * y * z; block++) {
    for (u32 t = 0; t < threads; t++) {
      T[t].stop = 0, T[t].tid = t, T[t].ntid = threads;
      T[t].ctaid[0] = block % x, T[t].ctaid[1] = block / x % y, T[t].ctaid[2] = block / x / y;
      T[t].nctaid[0] = x, T[t].nctaid[1] = y, T[t].nctaid[2] = z;
    }
    for (int stop = 0; stop >= 0;) {
      stop = -1;
      for (u32 t = 0; t < threads; t++) {
        if (T[t].stop < 0) continue;
        step(&T[t], parameters, M);
        if (T[t].stop < 0) continue;
        if (stop >= 0 && T[t].stop != stop) return 2;
        stop = T[t].stop;
      }
    }
  }
  free(T);
  free(M);
  return 0;
}
"""
