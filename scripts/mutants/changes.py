"""Every small defect that can be planted in a Python source: a changed operator or number, a statement left out, ...

Texts of messages, annotations and decorators are left as they are, and so are places in shapes: any test would see that.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

PAIRS = [
    *((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.In, ast.NotIn), (ast.Is, ast.IsNot)),
    *((ast.And, ast.Or), (ast.Add, ast.Sub), (ast.Mult, ast.Div)),
]
SWAPPED: dict[Any, Any] = {
    **dict(PAIRS),
    **{second: first for first, second in PAIRS},
    ast.FloorDiv: ast.Mult,
    ast.Pow: ast.Mult,
}
# Comparisons that a swap negates already
TWO_SIDED = (ast.Eq, ast.NotEq, ast.In, ast.NotIn, ast.Is, ast.IsNot)
LEFT_ALONE = ("annotation", "returns", "decorator_list")


@dataclass(frozen=True)
class Mutant:
    """A source with one defect in it."""

    name: str  # stays the same while the function and the changed piece do
    file: str
    line: int  # where the statement begins
    source: bytes


def mutants_of(source: bytes, file: str) -> list[Mutant]:
    """All mutants of a source, in the order of their places."""
    starts = [0]
    for text in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(text))
    mutants: dict[str, Mutant] = {}
    for scope, line, piece, new in _changes(ast.parse(source), "", 0, Counter()):
        first, last = starts[piece.lineno - 1] + piece.col_offset, starts[piece.end_lineno - 1] + piece.end_col_offset
        old = " ".join(source[first:last].decode().split())
        stem = f"{file.removeprefix('src/lengthwise/')} {scope or 'module'}: {old} -> {new}"
        name = next(name for n in range(1, 99) if (name := f"{stem} ({n})" if n > 1 else stem) not in mutants)
        mutants[name] = Mutant(name, file, line, source[:first] + new.encode() + source[last:])
    return list(mutants.values())


def _changes(node: ast.AST, scope: str, line: int, bound: Counter[str]) -> Iterator[tuple[str, int, Any, str]]:
    """The name of a function, where a statement begins, a piece of it and what to write in its place.

    `bound` counts how often the function binds each name.
    """
    if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.keyword) and node.arg == "stacklevel"):
        return
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
        return
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        scope = f"{scope}.{node.name}".lstrip(".")
        stored = (name.id for name in ast.walk(node) if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store))
        bound = Counter([*stored, *(argument.arg for argument in ast.walk(node) if isinstance(argument, ast.arg))])
    line = node.lineno if isinstance(node, ast.stmt) else line
    for new in _replacements(node, bound):
        yield scope, line, node, new
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        yield from ((scope, line, node.test, new) for new in _negated(node.test))
    if isinstance(node, ast.comprehension):
        yield from ((scope, line, test, new) for test in node.ifs for new in _negated(test))
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and field not in LEFT_ALONE:
                yield from _changes(child, scope, line, bound)


def noting(source: bytes, file: str) -> str:
    """The source with a call before every statement of a function: `noted.note(place)`, see __main__.py."""

    class Noting(ast.NodeTransformer):
        def visit_FunctionDef(self, function: ast.FunctionDef) -> ast.FunctionDef:
            for node in list(ast.walk(function)):
                for field in ("body", "orelse", "finalbody"):
                    statements = getattr(node, field, [])
                    if isinstance(statements, list):
                        calls = ([_call(f"{file}:{statement.lineno}"), statement] for statement in statements)
                        setattr(node, field, [piece for pair in calls for piece in pair])
            return function

    return ast.unparse(ast.fix_missing_locations(Noting().visit(ast.parse(source))))


def _call(place: str) -> ast.stmt:
    return ast.parse(f"__import__('noted').note({place!r})").body[0]


def _negated(test: ast.expr) -> Iterator[str]:
    swapped = isinstance(test, ast.Compare) and isinstance(test.ops[0], TWO_SIDED)
    if not swapped and not isinstance(test, ast.UnaryOp):
        yield f"(not ({ast.unparse(test)}))"


def _replacements(node: ast.AST, bound: Counter[str]) -> Iterator[str]:
    match node:
        case ast.Compare(left=left, ops=[op, *ops], comparators=right):
            yield f"({ast.unparse(ast.Compare(left, [SWAPPED[type(op)](), *ops], right))})"
        case ast.BoolOp(op=op, values=values):
            yield f"({ast.unparse(ast.BoolOp(SWAPPED[type(op)](), values))})"
        case ast.BinOp(left=left, op=op, right=right) if type(op) in SWAPPED and not _is_text(left) and not _is_text(right):
            yield f"({ast.unparse(ast.BinOp(left, SWAPPED[type(op)](), right))})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield f"({ast.unparse(operand)})"
        case ast.Constant(value=bool(value)):
            yield str(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield str(value + 1)
        case ast.Break():
            yield "continue"
        case ast.Continue():
            yield "break"
        case ast.Return(value=ast.expr() as value) if ast.unparse(value) not in ("None", "False"):
            yield "return None"
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Raise() | ast.Delete():
            yield "pass"
        # Without the only binding of a name any test fails
        case ast.Assign(targets=[target]) if not isinstance(target, ast.Name) or bound[target.id] > 1:
            if not isinstance(target, ast.Tuple) or all(bound[ast.unparse(name)] != 1 for name in target.elts):
                yield "pass"


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
