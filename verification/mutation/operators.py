"""Small damages to Python source, one at a time, by rewriting its syntax tree.

A mutant is named by a text before and after the damage. The text occurs once in its function, so
an entry in a list of known mutants cannot come to mean another mutant when lines move.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

_BINARY: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_COMPARISON: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_COUNTERPARTS = (
    *(("re", "im"), ("sin", "cos"), ("m", "n"), ("row", "column"), ("head", "tail")),
    *(("upper", "lower"), ("high", "low"), ("total", "difference"), ("eta1", "eta3")),
    *(("sin_squared", "sin_cos"), ("decay", "one_minus_decay"), ("rows", "rows_slope")),
    *(("period1_re", "period3_re"), ("period1_im", "period3_im"), ("numerator", "denominator")),
    *(("pi_over_period", "period_over_pi"), ("nome_squared", "nome_fourth"), ("x", "y")),
    *(("wp_scale", "wp_prime_scale"), ("root", "root_product"), ("period1", "period3")),
    *(("exp", "expm1"), ("low", "lowest")),
)
# A name on both sides becomes its partner on the right: "low" becomes "lowest", not "high".
_ATTRIBUTES = {b: a for a, b in _COUNTERPARTS} | dict(_COUNTERPARTS)
_LOGICAL: dict[type[ast.boolop], type[ast.boolop]] = {ast.And: ast.Or, ast.Or: ast.And}
# In the text of an expression, such as "{0} + {1}".
_IN_TEXT = (
    *((" + ", " - "), (" - ", " + "), (" * ", " / "), (" / ", " * "), (" < ", " >= ")),
    *((" <= ", " > "), (" > ", " <= "), (" >= ", " < "), (" == ", " != "), (" != ", " == ")),
    *((" & ", " | "), (" | ", " & "), (" and ", " or "), (" or ", " and "), ("not ", "")),
    ("-{0}", "{0}"),
)
# A float constant is also moved by this factor: too little for a plot, too much for a contract.
_NUDGE = 1 + 2.0**-20


class Mutant(NamedTuple):
    """One damage: where it is, and the text around it before and after."""

    module: str
    function: str
    line: int
    operator: str
    original: str
    mutated: str
    site: int  # number of the place in the module, and of the damage at that place
    variant: int

    @property
    def key(self) -> tuple[str, str, str, str]:
        return (self.module, self.function, self.original, self.mutated)

    def __str__(self) -> str:
        path = self.module.replace(".", "/") + ".py"
        return f"{path}:{self.line} ({self.function}): {self.original}  ->  {self.mutated}"


def mutants_of(source: str, module: str) -> list[Mutant]:
    """All mutants of the functions and constants of a module, without duplicates."""
    sites = list(_sites(ast.parse(source)))
    texts: dict[int, dict[ast.AST, str]] = {}
    for site in sites:
        if id(site.scope) not in texts:
            texts[id(site.scope)] = _texts(site.scope)
    counts = {scope: Counter(found.values()) for scope, found in texts.items()}
    found: dict[tuple[str, str, str, str], Mutant] = {}
    for index, site in enumerate(sites):
        for number, (operator, replacement) in enumerate(_variants(site.node)):
            scope = id(site.scope)
            original, mutated = _described(site, replacement, texts[scope], counts[scope])
            mutant = Mutant(
                *(module, site.function, site.node.lineno, operator, original, mutated),
                *(index, number),
            )
            if original != mutated:
                found.setdefault(mutant.key, mutant)
    return list(found.values())


def damaged(source: str, mutant: Mutant) -> ast.Module:
    """The syntax tree of `source` with the damage of `mutant`, which was made of it."""
    tree = ast.parse(source)
    site = list(_sites(tree))[mutant.site]
    _, replacement = list(_variants(site.node))[mutant.variant]
    _replace(site, replacement)
    return ast.fix_missing_locations(tree)


class _Site(NamedTuple):
    node: ast.expr | ast.stmt
    parents: tuple[ast.AST, ...]  # from the outermost in the function to the innermost
    function: str
    scope: ast.AST  # the function, or the statement of the module


def _sites(tree: ast.Module) -> Iterator[_Site]:
    for statement in tree.body:
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            yield from _sites_in(statement, "")
        elif isinstance(statement, ast.Assign):
            # A constant of the module takes the place of a function, under its own name.
            name = ", ".join(map(ast.unparse, statement.targets))
            yield from _sites_below(statement.value, (statement,), name, statement)


def _sites_in(definition: ast.FunctionDef | ast.ClassDef, prefix: str) -> Iterator[_Site]:
    name = prefix + definition.name
    if isinstance(definition, ast.ClassDef):
        if any(isinstance(base, ast.Name) and base.id == "Protocol" for base in definition.bases):
            return
        for item in definition.body:
            if isinstance(item, ast.FunctionDef):
                yield from _sites_in(item, name + ".")
        return
    for statement in definition.body:  # without decorators, defaults and annotations
        yield from _sites_below(statement, (), name, definition)


def _sites_below(
    node: ast.AST, parents: tuple[ast.AST, ...], function: str, scope: ast.AST
) -> Iterator[_Site]:
    if isinstance(node, (ast.Raise, ast.JoinedStr)) or _is_docstring(node):
        return  # The wording of messages and docstrings is not mutated.
    if isinstance(node, (ast.expr, ast.stmt)):
        yield _Site(node, parents, function, scope)
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "args") and not isinstance(
            node, ast.Call
        ):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _sites_below(child, (*parents, node), function, scope)


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _variants(node: ast.expr | ast.stmt) -> Iterator[tuple[str, ast.AST | None]]:
    """The name of each damage to a node, and the node that replaces it; None deletes it."""
    match node:
        case ast.BinOp(left=left, op=op, right=right):
            if type(op) in _BINARY:
                yield "operator", ast.BinOp(left, _BINARY[type(op)](), right)
            yield "right operand dropped", left
            if isinstance(op, (ast.Add, ast.Sub)):
                yield "left operand dropped", right
        case ast.UnaryOp(op=ast.USub() | ast.Invert() | ast.Not(), operand=operand):
            yield "unary operator dropped", operand
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARISON:
            yield "comparison", ast.Compare(left, [_COMPARISON[type(op)]()], [right])
        case ast.BoolOp(op=op, values=values):
            yield "and/or", ast.BoolOp(_LOGICAL[type(op)](), values)
        case ast.Constant(value=bool(value)):
            yield "constant", ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield "constant", ast.Constant(value + 1)
        case ast.Constant(value=float(value)):
            yield "constant", ast.Constant(2.0 * value or 1.0)
            if value:
                yield "constant nudged", ast.Constant(value * _NUDGE)
        case ast.Constant(value=str(value)) if "{0}" in value:
            for old, new in _IN_TEXT:
                if old in value:
                    yield "operator in a text", ast.Constant(value.replace(old, new, 1))
            last = value.count("{2}") + value.count("{1}")  # the number of the last operand
            if last:
                a, b = f"{{{last - 1}}}", f"{{{last}}}"
                exchanged = value.replace(a, "{}").replace(b, a).replace("{}", b)
                yield "operands in a text swapped", ast.Constant(exchanged)
        case ast.Attribute(value=value, attr=attr, ctx=ast.Load()) if attr in _ATTRIBUTES:
            yield "attribute", ast.Attribute(value, _ATTRIBUTES[attr], ast.Load())
        case ast.Call(func=func, args=args, keywords=keywords):
            if any(isinstance(argument, ast.Starred) for argument in args):
                return
            if len(args) >= 2:
                swapped = [*args[:-2], args[-1], args[-2]]
                yield "arguments swapped", ast.Call(func, swapped, keywords)
            if isinstance(func, ast.Attribute) and len(args) <= 1 and not keywords:
                is_ops = isinstance(func.value, ast.Name) and func.value.id == "ops"
                if args and is_ops:
                    yield "call dropped", args[0]
                elif not is_ops:
                    yield "call dropped", func.value
            elif isinstance(func, ast.Name) and len(args) == 1 and not keywords:
                yield "call dropped", args[0]
        case ast.Tuple(elts=[*first, a, b], ctx=ast.Load()):
            yield "elements swapped", ast.Tuple([*first, b, a], ast.Load())
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yield "branches swapped", ast.IfExp(test, orelse, body)
        case ast.If(test=test, body=body, orelse=orelse):
            yield "condition negated", ast.If(ast.UnaryOp(ast.Not(), test), body, orelse)
        case ast.AugAssign(op=op):
            if type(op) in _BINARY:
                yield "operator", ast.AugAssign(node.target, _BINARY[type(op)](), node.value)
            yield "statement dropped", None
        case ast.Assign(targets=targets, value=value) if _names(targets) <= _names([value]):
            yield "statement dropped", None


def _names(nodes: Iterable[ast.AST]) -> set[str]:
    return {child.id for n in nodes for child in ast.walk(n) if isinstance(child, ast.Name)}


def _texts(scope: ast.AST) -> dict[ast.AST, str]:
    return {node: _text(node) for node in ast.walk(scope) if isinstance(node, (ast.expr, ast.stmt))}


def _text(node: ast.AST) -> str:
    if isinstance(node, (ast.If, ast.For)):  # the line that opens the block
        return ast.unparse(node).partition("\n")[0]
    return ast.unparse(node)


def _described(
    site: _Site,
    replacement: ast.AST | None,
    texts: dict[ast.AST, str],
    counts: Counter[str],
) -> tuple[str, str]:
    """The smallest text around the damage that occurs once in the function, before and after."""
    chain = [node for node in (*site.parents, site.node) if node in texts]
    named = next((node for node in reversed(chain) if counts[texts[node]] == 1), chain[0])
    if named is site.node:
        return texts[named], "(deleted)" if replacement is None else _text(replacement)
    restore = _replace(site, replacement)
    mutated = _text(named)
    restore()
    return texts[named], mutated


def _replace(site: _Site, replacement: ast.AST | None) -> Callable[[], None]:
    """Put the replacement in its place; the function returned restores the original."""
    parent = site.parents[-1] if site.parents else site.scope
    new = ast.Pass() if replacement is None else replacement
    for field, value in ast.iter_fields(parent):
        if value is site.node:
            setattr(parent, field, new)
            return lambda: setattr(parent, field, value)
        if isinstance(value, list) and any(item is site.node for item in value):
            setattr(parent, field, [new if item is site.node else item for item in value])
            return lambda: setattr(parent, field, value)
    raise AssertionError(f"{ast.dump(site.node)} is no child of its parent")
