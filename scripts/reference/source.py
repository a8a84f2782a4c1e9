"""The source of the factory, read and not run: its modules, and what an expression says in words.

What is known only when the program runs becomes a placeholder in italics, as in ``no such file: *path*``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

Function = ast.FunctionDef | ast.AsyncFunctionDef

_MARKDOWN = re.compile(r"[*<>|\[\]]|(?<!\w)_|_(?!\w)")
_SAME = ("name", "id", "text", "value", "path", "decode", "strip", "removeprefix", "removesuffix", "splitlines")
"""Attributes that say nothing beside what they are of."""
_WORDS = {"error": "reason", "strerror": "reason", "exc": "reason", "str": "text", "args": "reason"}
_MOST_DEPTH = 6

COMPUTED = {
    "error.strerror or type(error).__name__": "*what the system says*",
    "str(error.problem)": "*what the YAML reader says*",
    "ended.late.what": "the time is up",
    "managed_trouble(machine.python)": "the Python is managed by the system",
}
"""What expressions say of which the source does not show it."""


@dataclass(frozen=True)
class Module:
    """A module, by its path within the package."""

    path: str
    tree: ast.Module

    @cached_property
    def functions(self) -> tuple[Function, ...]:
        """All functions and methods."""
        return tuple(node for node in ast.walk(self.tree) if isinstance(node, Function))

    @cached_property
    def classes(self) -> Mapping[str, ast.ClassDef]:
        """Its classes, by name."""
        return {node.name: node for node in self.tree.body if isinstance(node, ast.ClassDef)}

    @cached_property
    def constants(self) -> Mapping[str, ast.expr]:
        """What is assigned at its top, by name."""
        return dict(_assigned(self.tree.body))

    def function_around(self, node: ast.AST) -> Function | None:
        """The innermost function that a node stands in."""
        return self._function_of.get(node)

    @cached_property
    def _function_of(self) -> Mapping[ast.AST, Function]:
        # ast.walk gives what is outside first, so that the innermost function is the last to be kept
        return {node: function for function in self.functions for node in ast.walk(function) if node is not function}

    def calls(self, name: str) -> Iterator[ast.Call]:
        """The calls of a function, method or class of this module."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call) and name_of(node.func) == name:
                yield node


@dataclass(frozen=True)
class Scope:
    """Where an expression stands: its module and function, and what the parameters of that are in one call."""

    module: Module
    function: Function | None = None
    at: ast.AST | None = None
    """The node from which is looked: only what is assigned before it counts."""
    given: Mapping[str, tuple[ast.expr, Scope]] = field(default_factory=dict)


def read_modules(package: Path) -> tuple[Module, ...]:
    """All modules of a package, sorted by path."""
    paths = sorted(package.rglob("*.py"))
    return tuple(Module(path.relative_to(package).as_posix(), ast.parse(path.read_text("utf-8"))) for path in paths)


def name_of(node: ast.expr) -> str:
    """The last part of a dotted name; empty if it is none."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def arguments_of(call: ast.Call, parameters: list[str]) -> dict[str, ast.expr]:
    """What is given for each parameter."""
    given = dict(zip(parameters, call.args, strict=False))
    return given | {word.arg: word.value for word in call.keywords if word.arg}


def parameters_of(function: Function) -> list[str]:
    """The names of the parameters, without self."""
    names = [item.arg for item in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    return [name for name in names if name not in ("self", "cls")]


def texts(node: ast.expr, scope: Scope, depth: int = 0) -> tuple[str, ...]:
    """What an expression may say, as Markdown: more than one text if it depends on a condition."""
    known = COMPUTED.get(ast.unparse(node).lstrip("*"))
    if known or depth > _MOST_DEPTH:
        return (known or _placeholder(node),)
    if isinstance(node, ast.Constant):
        return (escaped(str(node.value)),)
    if isinstance(node, ast.IfExp):
        return _several(texts(node.body, scope, depth + 1), texts(node.orelse, scope, depth + 1))
    if isinstance(node, ast.BoolOp):
        return _several(*(texts(value, scope, depth + 1) for value in node.values))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and not isinstance(node.right, ast.Constant):
        rights = texts(node.right, scope, depth + 1)
        return tuple(left + right for left in texts(node.left, scope, depth + 1) for right in rights)
    if isinstance(node, ast.JoinedStr):
        return ("".join(_piece(value, scope, depth) for value in node.values).replace("**", "* *"),)
    made = _made(node, scope)
    if made is not None:
        found = texts(*made, depth + 1)
        return found if any(map(says_something, found)) else (_placeholder(node),)
    if isinstance(node, ast.Name):
        values = _values(node.id, scope)
        return _several(*(texts(value, where, depth + 1) for value, where in values)) or (_placeholder(node),)
    return (_placeholder(node),)


def says_something(text: str) -> bool:
    """Whether there are words in it, and not a placeholder alone."""
    return re.search(r"\w", re.sub(r"(?<!\\)\*[^*]*\*", "", text)) is not None


def _made(node: ast.expr, scope: Scope) -> tuple[ast.expr, Scope] | None:
    """What a function of this module gives that does nothing but return, such as ``quote(number)``."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
        return None
    for function in scope.module.functions:
        end = function.body[-1]
        if function.name == node.func.id and isinstance(end, ast.Return) and end.value is not None:
            given = arguments_of(node, parameters_of(function))
            of_the_call = {name: (value, scope) for name, value in given.items()}
            return end.value, Scope(scope.module, function, end, of_the_call)
    return None


def _values(name: str, scope: Scope) -> list[tuple[ast.expr, Scope]]:
    """What a name stands for: an argument, what the function assigns to it, or a constant."""
    if name in scope.given:
        return [scope.given[name]]
    if scope.function is not None:
        if name in parameters_of(scope.function):
            return []
        local = _before(scope.function.body, name, scope.at)
        if local:
            return [(value, scope) for value in local]
    constant = scope.module.constants.get(name)
    return [] if constant is None else [(constant, Scope(scope.module))]


def _before(body: list[ast.stmt], name: str, at: ast.AST | None) -> list[ast.expr]:
    """What a name may be when the program comes to a node: what was assigned last, or in branches since then."""
    found: list[ast.expr] = []
    for statement in body:
        assigned = [value for other, value in _assigned([statement]) if other == name]
        if at is not None and any(inner is at for inner in ast.walk(statement)):
            blocks = [block for _, block in ast.iter_fields(statement) if isinstance(block, list)]
            within = [block for block in blocks if any(inner is at for item in block for inner in ast.walk(item))]
            head = [value for other, value in _assigned(_head(statement)) if other == name]
            inner = [value for block in within for value in _before(_statements(block), name, at)]
            return inner or head or found
        found = assigned if assigned and not hasattr(statement, "orelse") else [*found, *assigned]
    return found


def _head(statement: ast.stmt) -> list[ast.stmt]:
    """The condition of a statement, in which a name may be assigned."""
    test = getattr(statement, "test", None)
    return [ast.Expr(test)] if isinstance(test, ast.expr) else []


def _statements(block: list[ast.AST]) -> list[ast.stmt]:
    handlers = [statement for item in block if isinstance(item, ast.ExceptHandler) for statement in item.body]
    return [item for item in block if isinstance(item, ast.stmt)] or handlers


def _assigned(body: list[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    yield from _pairs(target, node.value)
            elif isinstance(node, ast.NamedExpr | ast.AnnAssign) and node.value is not None:
                yield from _pairs(node.target, node.value)


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for inner, part in zip(target.elts, value.elts, strict=True):
            yield from _pairs(inner, part)


def _piece(node: ast.expr, scope: Scope, depth: int) -> str:
    """A piece of an f-string."""
    if not isinstance(node, ast.FormattedValue):
        return texts(node, scope, depth + 1)[0]
    said = [text for text in texts(node.value, scope, depth + 1) if text]
    return said[0] if len(said) == 1 else _placeholder(node.value)


def _several(*alternatives: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for found in alternatives for text in found))


def escaped(text: str) -> str:
    """Plain text as Markdown within a table; code in backquotes stays code."""
    parts = text.replace("\n", " ").split("`")
    parts[::2] = [_MARKDOWN.sub(r"\\\g<0>", part) for part in parts[::2]]
    return "`".join(parts)


def _placeholder(node: ast.expr) -> str:
    return f"*{_word(node)}*"


def _word(node: ast.expr) -> str:
    """One or two words for what is known only when the program runs."""
    if isinstance(node, ast.Name):
        return _WORDS.get(node.id, node.id.strip("_").replace("_", " ").lower())
    if isinstance(node, ast.Attribute):
        attribute = node.attr.strip("_").replace("_", " ")
        says_nothing = node.attr in _SAME and not (isinstance(node.value, ast.Name) and node.value.id == "self")
        return _word(node.value) if says_nothing else _WORDS.get(node.attr, attribute)
    if isinstance(node, ast.Constant):
        return escaped(str(node.value))
    if isinstance(node, ast.Subscript):
        return _word(node.value)
    if isinstance(node, ast.Call):
        return _called(node)
    if isinstance(node, ast.BoolOp):
        return _word(node.values[0])
    if isinstance(node, ast.IfExp):
        return _word(node.body)
    if isinstance(node, ast.GeneratorExp | ast.ListComp | ast.SetComp):
        return _word(node.generators[0].iter)
    names = (inner for inner in ast.walk(node) if isinstance(inner, ast.Name | ast.Attribute) and inner is not node)
    return next(map(_word, names), "...")


def _called(node: ast.Call) -> str:
    name = name_of(node.func)
    if name == "len":
        return "number"
    if name in ("join", "str", "repr", "ascii", "sorted", "list", "next", "fromkeys", "basename") and node.args:
        return _word(node.args[0])
    if isinstance(node.func, ast.Attribute) and (name in _SAME or not node.args):
        return _word(node.func.value)
    return _word(node.args[0]) if node.args else name.strip("_").replace("_", " ")
