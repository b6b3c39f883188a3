"""Arithmetic instructions of PTX in C: floating-point numbers, integers, and their bits."""

from __future__ import annotations

from verification.gpu.ptx import Instruction, PtxError
from verification.gpu.ptx_operands import FLOATS, AbstractOperands, bits

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
# Not those with ftz: they belong to functions whose author chose every rounding.
_FUSIBLE = (("f32",), ("f64",), ("rn", "f32"), ("rn", "f64"))

# Errors of approximate instructions: C expression, kind of bound, bound. They are those of the PTX
# ISA, chapter "Floating Point Instructions", under the name of each: div.full 2 ulp, rcp.approx
# 1 ulp, ex2.approx 2 ulp; relatively, sqrt.approx 2^-23 and rsqrt.approx 2^-22.9; absolutely,
# lg2.approx 2^-22 between 1/2 and 2 (elsewhere relatively, and there |lg2| is at least 1), and
# sin.approx and cos.approx 2^-20.5 up to 2 pi and 2^-14.7 up to 100 pi.
_OF_ANGLE = "(fabs({0}) <= 0x1.921fb54442d18p+2 ? 0x1.6a09e667f3bcdp-21 : 0x1.3b2c47bff832cp-15)"
_APPROXIMATE = {
    "div": ("{0} / {1}", "within_ulps", "2.0"),
    "rcp": ("1.0 / {0}", "within_ulps", "1.0"),
    "sqrt": ("sqrt({0})", "within_share", "0x1p-23"),
    "rsqrt": ("1.0 / sqrt({0})", "within_share", "0x1.125fbee250669p-23"),
    "ex2": ("exp2({0})", "within_ulps", "2.0"),
    "lg2": ("log2({0})", "within", "0x1p-22 * fmax(1.0, fabs(log2({0})))"),
    "sin": ("sin({0})", "within", _OF_ANGLE),
    "cos": ("cos({0})", "within", _OF_ANGLE),
}


class AbstractArithmetic(AbstractOperands):
    """Instructions that compute. The method `_do_fma` translates ``fma``, and so on."""

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

    # --- Floating-point arithmetic -----------------------------------------------------------

    def _arithmetic(self, item: Instruction, operator: str) -> str:
        unusual = {"rm", "rp", "rz", "sat"} & set(item.modifiers)
        if unusual == {"rz"} and (item.name, item.type) == ("add", "f32"):
            a, b = self._float(item, 1), self._float(item, 2)
            return self._store_float(item, f"add_toward_zero({a}, {b})")
        if unusual:
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
        wide = [f"(double){value}" for value in values]
        exact = expression.format(*wide)
        if "rn" in item.modifiers:  # a double is wide enough to round the exact value once more
            return self._store_float(item, f"(float)({exact})")
        key = " ^ ".join(
            f"((u64){self._value(operand, 'b32')} << {32 * i})"
            for i, operand in enumerate(item.operands[1:])
        )
        return self._store_float(item, f"{bound}({exact}, {error.format(*wide)}, {key})")

    _do_rcp = _do_sqrt = _do_rsqrt = _do_ex2 = _do_lg2 = _do_sin = _do_cos = _approximate

    def _do_div(self, item: Instruction) -> str:
        if item.type in FLOATS:
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
        if item.type in FLOATS:
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
        if item.type in FLOATS:
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
        if item.type in FLOATS:
            return self._store_float(item, f"-{self._float(item, 1)}")
        return self._store_integer(item, f"-{self._value(item.operands[1], item.type)}")

    def _do_abs(self, item: Instruction) -> str:
        if item.type in FLOATS:
            function = "fabsf" if item.type == "f32" else "fabs"
            return self._store_float(item, f"{function}({self._float(item, 1)})")
        value = self._value(item.operands[1], item.type)
        return self._store_integer(item, f"({value} < 0 ? -{value} : {value})")

    def _do_min(self, item: Instruction) -> str:
        if item.type in FLOATS:
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
        if item.type in FLOATS:
            a, b = self._float(item, 1), self._float(item, 2)
        else:
            a, b = (self._value(operand, item.type) for operand in item.operands[1:3])
        are_numbers = f"({a} == {a} && {b} == {b})"
        if comparison in ("num", "nan"):
            value = are_numbers if comparison == "num" else f"!{are_numbers}"
        elif comparison in _COMPARISONS:
            value = f"({a} {_COMPARISONS[comparison]} {b})"
            if item.type in FLOATS and comparison == "ne":  # false for NaN, unlike C's
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
        width, value = bits(item.type), self._value(item.operands[1], item.type)
        start, length = (self._value(operand, "b32") for operand in item.operands[2:])
        if item.type[0] != "u":
            return self._signed_field(item, width, value)
        mask = f"(({length} >= {width} ? 0 : (u{width})1 << {length}) - 1)"
        return self._store_integer(item, f"({start} >= {width} ? 0 : {value} >> {start}) & {mask}")

    def _signed_field(self, item: Instruction, width: int, value: str) -> str:
        """Bits of a number, the first of which is the sign; only where they are in the number."""
        try:
            start, length = (int(operand) for operand in item.operands[2:])
        except ValueError:
            start, length = width, 0
        if not (start >= 0 and 0 < length <= width - start):
            raise PtxError(f"{self._function.name}: the instruction {item} is not known")
        raised = f"(s{width})((u{width}){value} << {width - start - length})"
        return self._store_integer(item, f"{raised} >> {width - length}")

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
