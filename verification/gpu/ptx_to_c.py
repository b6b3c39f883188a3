"""Translate PTX to C, one statement for each instruction.

The C compiler may neither contract nor reassociate, so a value is computed as the instructions
say. The threads of a block run in turn; at an instruction that synchronises them each returns and
is resumed there when all have arrived.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.resources import files

from verification.gpu.ptx import Instruction, Label, Module, PtxError
from verification.gpu.ptx_arithmetic import AbstractArithmetic
from verification.gpu.ptx_operands import FLOATS, bits, c_name, c_type

_TO_INTEGER = {"rni": "rint", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}


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


class Translation(AbstractArithmetic):
    """One function in C. R holds its registers, P its parameters, M the shared memory."""

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
        if to in FLOATS:
            if {"rz", "rm", "rp"} & set(item.modifiers):
                raise PtxError(f"{self._function.name}: {item} rounds in a way that is not known")
            value = f"({c_type(to)}){f'{rounding}((double){value})' if rounding else value}"
            if "sat" in item.modifiers:  # NaN becomes 0
                value = f"fminf(fmaxf({value}, 0.0f), 1.0f)"
            return self._store(
                item.operands[0], to, f"flushed({value})" if flushes and to == "f32" else value
            )
        if source in FLOATS:
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
