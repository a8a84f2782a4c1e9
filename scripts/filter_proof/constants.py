"""Find the booleans that flash-attn's bindings pass to Composable Kernel with the same value in every call.

A binding fills a structure, such as ``fmha_fwd_traits``, by position. A value that is not a literal is followed through
one function parameter to a local variable. Whatever is not understood is no constant, so the proof keeps its kernels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from filter_proof.if_chain import Tokens, closing, split, tokenize

_LITERALS: Mapping[Tokens, bool] = {("true",): True, ("false",): False}
_SCALARS = frozenset({("bool",), ("int",), ("float",), ("std", "::", "string")})
"""Types of fields that take one value each; an aggregate could take several of a list without braces of its own."""
_ASSIGNMENTS = frozenset({"=", "&=", "|=", "^=", "+=", "-=", "*=", "/=", "%="})


@dataclass(frozen=True)
class _Function:
    """A function of a binding: its name, parameter names in order, and body."""

    name: str
    parameters: tuple[str, ...]
    body: Tokens


@dataclass(frozen=True)
class _Program:
    """The bindings: each file, and the functions that were found in all of them."""

    files: tuple[Tokens, ...]
    functions: tuple[_Function, ...]

    def only_fills(self, structure: str) -> bool:
        """Whether a structure is mentioned only as the type that a function returns, and to fill it in a function."""
        for tokens in self.files:
            for position in _positions(tokens, (structure,)):
                following = tokens[position + 1 : position + 3]
                if following[:1] != ("{",) and following[1:] != ("(",):
                    return False
        filled = sum(len(_positions(tokens, (structure, "{"))) for tokens in self.files)
        in_bodies = [len(_positions(function.body, (structure,))) for function in self.functions]
        return sum(in_bodies) == filled

    def calls(self, name: str) -> list[tuple[int, _Function]] | None:
        """Where functions mention the function of this name; None if it is not defined once, or mentioned elsewhere."""
        found = [(start, caller) for caller in self.functions for start in _positions(caller.body, (name,))]
        definitions = sum(function.name == name for function in self.functions)
        mentions = sum(len(_positions(tokens, (name,))) for tokens in self.files)
        return found if definitions == 1 and mentions == len(found) + definitions else None


def find_constants(structure: str, headers: Sequence[str], bindings: Sequence[str]) -> dict[str, bool]:
    """Return the struct fields that every C++ call sets to the same value, with that value.

    `headers` declare the structure. Empty if a binding uses the structure in a way that is not understood.
    """
    files = [tokenize(text) for text in bindings]
    program = _Program(tuple(files), tuple(function for tokens in files for function in _functions(tokens)))
    fields = next(filter(None, (_fields(structure, tokenize(text)) for text in headers)), None)
    if not fields or not program.only_fills(structure) or any(_takes_boolean_reference(tokens) for tokens in files):
        return {}
    filled: list[dict[str, bool | None]] = []
    for function in program.functions:
        for start in _positions(function.body, (structure, "{")):
            values = split(function.body[start + 2 : closing(function.body, start + 1)], ",")
            if len(values) > len(fields) or any("#" in value for value in values):
                return {}
            filled.append(
                {
                    name: _value(values[index], function, program) if index < len(values) else default
                    for index, (name, default) in enumerate(fields.items())
                }
            )
    constants: dict[str, bool] = {}
    for name in fields:
        found = {values[name] for values in filled}
        value = found.pop() if len(found) == 1 else None
        if value is not None and not any(assigns_field(tokens, name) for tokens in files):
            constants[name] = value
    return constants


def _fields(structure: str, tokens: Tokens) -> dict[str, bool | None] | None:
    """The fields of a structure in order, with their default if that is a boolean literal; None if undeclared.

    A declaration that is more than plain fields gives no fields.
    """
    starts = _positions(tokens, ("struct", structure, "{"))
    if len(starts) != 1:
        return None
    *statements, rest = split(tokens[starts[0] + 3 : closing(tokens, starts[0] + 2)], ";")
    fields: dict[str, bool | None] = {}
    for statement in statements:
        declared, *default = split(statement, "=")
        is_enum = len(declared) == 2 and declared[0].endswith("_enum")
        if rest or not (declared[:-1] in _SCALARS or is_enum) or not declared[-1].isidentifier():
            return {}
        fields[declared[-1]] = _LITERALS.get(default[0]) if default else None
    return fields


def _functions(tokens: Tokens) -> Iterator[_Function]:
    """The functions that a file defines outside of classes, also in namespaces."""
    position = 0
    while position < len(tokens):
        if tokens[position] != "{":
            position += 1
            continue
        end = closing(tokens, position)
        head = _head(tokens, position)
        if head is not None:
            name, parameters = head
            yield _Function(name, parameters, tokens[position + 1 : end])
        elif "namespace" in tokens[max(0, position - 2) : position]:
            end = position  # look into it
        position = end + 1


def _head(tokens: Tokens, brace: int) -> tuple[str, tuple[str, ...]] | None:
    """The name and parameters of the function whose body starts at `brace`; None if no function does."""
    if tokens[brace - 1] != ")":
        return None
    depth, position = 0, brace - 1
    while position >= 0:
        depth += (tokens[position] == ")") - (tokens[position] == "(")
        if not depth:
            break
        position -= 1
    if position < 1 or not tokens[position - 1].isidentifier():
        return None
    parameters = split(tokens[position + 1 : brace - 1], ",")
    return tokens[position - 1], tuple(parameter[-1] if parameter else "" for parameter in parameters)


def _value(value: Tokens, function: _Function, program: _Program) -> bool | None:
    """The boolean that an expression in a function always has; None if it has several, or that is unknown."""
    if value in _LITERALS:
        return _LITERALS[value]
    if len(value) != 1 or function.parameters.count(value[0]) != 1 or _assigns(function.body, value[0]):
        return None
    index = function.parameters.index(value[0])
    found = {_argument(start, index, caller) for start, caller in program.calls(function.name) or ()}
    return found.pop() if len(found) == 1 else None


def _argument(start: int, index: int, caller: _Function) -> bool | None:
    """The boolean that the call at `start` always passes as argument `index`; None if unknown."""
    body = caller.body
    if body[start + 1 : start + 2] != ("(",):
        return None
    arguments = split(body[start + 2 : closing(body, start + 1)], ",")
    if index >= len(arguments):
        return None
    argument = arguments[index]
    if argument in _LITERALS:
        return _LITERALS[argument]
    return _local(argument[0], caller) if len(argument) == 1 else None


def _local(name: str, function: _Function) -> bool | None:
    """The literal of a local ``bool name = true;`` that is never assigned again; None for anything else."""
    declared = _positions(function.body, ("bool", name, "="))
    if name in function.parameters or len(declared) != 1 or _assigns(function.body, name, declarations=1):
        return None
    value, end = declared[0] + 3, declared[0] + 4
    return _LITERALS.get(function.body[value:end]) if function.body[end : end + 1] == (";",) else None


def _assigns(body: Tokens, name: str, *, declarations: int = 0) -> bool:
    """Whether a function writes a variable more often than it declares it, hides it, or refers to it."""
    written = 0
    for position in _positions(body, (name,)):
        before, after = body[position - 1] if position else "", body[position + 1 : position + 2]
        written += bool(after) and after[0] in _ASSIGNMENTS
        if before == "&" or after in (("+",), ("-",), ("{",), ("(",)):  # ++ and -- are two tokens
            return True
        if before == "=" and body[position - 3] in ("&", "&&"):  # a reference to it
            return True
    return written > declarations


def assigns_field(tokens: Tokens, field: str) -> bool:
    """Whether a file writes a field of any structure."""
    return any(
        tokens[position - 1] in (".", "->") and not _ASSIGNMENTS.isdisjoint(tokens[position + 1 : position + 2])
        for position in _positions(tokens, (field,))
    )


def _positions(tokens: Tokens, wanted: Tokens) -> list[int]:
    first, length = wanted[0], len(wanted)
    return [
        position
        for position, token in enumerate(tokens)
        if token == first and tokens[position : position + length] == wanted
    ]


def _takes_boolean_reference(tokens: Tokens) -> bool:
    """Whether a function takes a boolean by reference, through which it could change a local one."""
    return bool(_positions(tokens, ("bool", "&")))
