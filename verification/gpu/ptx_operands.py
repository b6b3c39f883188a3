"""Operands of PTX instructions as C expressions: registers, constants, addresses of arrays."""

from __future__ import annotations

import re

from verification.gpu.ptx import Function, Instruction, Module, PtxError

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
FLOATS = ("f32", "f64")


def bits(kind: str) -> int:
    """The width of a PTX type."""
    return 8 if kind == "pred" else int(kind[1:])


def c_type(kind: str) -> str:
    if kind in FLOATS:
        return {"f32": "float", "f64": "double"}[kind]
    return f"{'s' if kind[0] == 's' else 'u'}{bits(kind)}"


def c_name(name: str) -> str:
    return name.replace("$", "_S_").replace("%", "V_")


def parameter_offsets(function: Function) -> dict[str, int]:
    """Where the parameters of a kernel lie in the block of bytes it is launched with."""
    offsets, end = {}, 0
    for kind, name in function.parameters:
        size = bits(kind) // 8
        offsets[name] = -(-end // size) * size
        end = offsets[name] + size
    return offsets


class AbstractOperands:
    """The operands of one function. In C, R holds its registers and T is the thread."""

    def __init__(self, module: Module, function: Function, may_fuse: bool) -> None:
        self._module, self._function, self._may_fuse = module, function, may_fuse
        self._stops = 0  # places where a thread waits for the others
        self._products: dict[str, tuple[str, str, str]] = {}  # register: type and two factors
        self._fusions = 0  # sums that may absorb a product
        if function.is_kernel:
            self._parameters = parameter_offsets(function)
        else:
            self._parameters = {name: 8 * i for i, (_, name) in enumerate(function.parameters)}

    def _local_offset(self, name: str | None) -> int:
        """Where a local array begins, or where the last one ends."""
        offset = 16  # no address is 0
        for array, size in self._function.local_arrays.items():
            if array == name:
                return offset
            offset += -(-size // 16) * 16
        return offset

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
            if kind in FLOATS or kind == "pred":
                return str(number)
            return f"(({c_type(kind)}){number & (2**64 - 1):#x}ull)"
        if operand in _SPECIAL_REGISTERS:
            return _SPECIAL_REGISTERS[operand]
        if operand in self._function.registers:
            register = self._register(operand)
            if kind in FLOATS:
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
        if kind in FLOATS:
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
