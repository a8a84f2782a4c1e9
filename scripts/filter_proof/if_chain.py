"""Parse the C++ of a generated dispatch function into its if-chains, and drop branches that constants rule out.

Only what the generator writes is understood: blocks, ``if``, ``else`` and statements. The text of everything else is
kept as tokens, so two chains are equal only if their files are equal but for comments, spaces and dropped branches.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Tokens: TypeAlias = tuple[str, ...]

_TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|\w+|::|->|&&|\|\||[=!<>]=|[-+*/%&|^]=|\S', re.DOTALL
)
# code after these is not always, or not only once, reached from the line before
_UNSUPPORTED = frozenset({"for", "while", "do", "switch", "case", "goto", "?"})
_DIRECTIVES = frozenset({"if", "ifdef", "ifndef", "elif", "else", "endif", "define", "undef"})
_CLOSED_BY = {"(": ")", "{": "}", "[": "]"}


class UnknownCodeError(Exception):
    """C++ that this parser does not understand."""


@dataclass(frozen=True)
class If:
    """One ``if`` with its branches. The condition includes ``constexpr``."""

    condition: Tokens
    then: Block
    otherwise: Block


@dataclass(frozen=True)
class Braces:
    """Code in braces: a function, a namespace, a lambda, an initializer."""

    code: Block


Block: TypeAlias = "tuple[str | If | Braces, ...]"
"""Code in order: tokens, ifs and braces."""


@dataclass(frozen=True)
class Leaf:
    """The code of an innermost branch, and the conditions that lead to it."""

    conditions: tuple[Tokens, ...]
    code: Tokens


def tokenize(text: str) -> Tokens:
    """Split C++ into tokens, without comments. A string is one token."""
    return tuple(token for token in _TOKEN.findall(text) if not token.startswith(("//", "/*")))


def closing(tokens: Sequence[str], start: int) -> int:
    """The position of the bracket that closes the one at `start`. Raises `UnknownCodeError` if there is none."""
    opened, closed, depth = tokens[start], _CLOSED_BY[tokens[start]], 0
    for position in range(start, len(tokens)):
        depth += (tokens[position] == opened) - (tokens[position] == closed)
        if not depth:
            return position
    raise UnknownCodeError(f"{opened} is never closed")


def split(tokens: Sequence[str], separator: str) -> list[Tokens]:
    """Split at a separator outside of brackets; angle brackets do not count."""
    parts: list[list[str]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token in _CLOSED_BY) - (token in _CLOSED_BY.values())
        if token == separator and not depth:
            parts.append([])
        else:
            parts[-1].append(token)
    return [tuple(part) for part in parts]


def parse_block(tokens: Tokens) -> Block:
    """Parse code into its if-chains. Raises `UnknownCodeError`."""
    found: list[str | If | Braces] = []
    position = 0
    while position < len(tokens):
        if tokens[position] == "if":
            branch, position = _parse_if(tokens, position)
            found.append(branch)
        elif tokens[position] == "{":
            end = closing(tokens, position)
            found.append(Braces(parse_block(tokens[position + 1 : end])))
            position = end + 1
        elif tokens[position] in _UNSUPPORTED or (
            tokens[position] == "#" and not _DIRECTIVES.isdisjoint(tokens[position + 1 : position + 2])
        ):
            raise UnknownCodeError(f"{tokens[position]} in a dispatch function")
        else:
            found.append(tokens[position])
            position += 1
    return tuple(found)


def _parse_if(tokens: Tokens, position: int) -> tuple[If, int]:
    """Parse the ``if`` at a position; also return the position after it."""
    start = position + 1
    opened = start + (tokens[start : start + 1] == ("constexpr",))
    if tokens[opened : opened + 1] != ("(",):
        raise UnknownCodeError(f"if without a condition: {' '.join(tokens[position : position + 5])}")
    closed = closing(tokens, opened)
    then, position = _parse_branch(tokens, closed + 1)
    otherwise: Block = ()
    if tokens[position : position + 1] == ("else",):
        otherwise, position = _parse_branch(tokens, position + 1)
    return If((*tokens[start:closed], ")"), then, otherwise), position


def _parse_branch(tokens: Tokens, position: int) -> tuple[Block, int]:
    if position >= len(tokens):
        raise UnknownCodeError("the code ends after a condition")
    if tokens[position] == "{":
        end = closing(tokens, position)
        return parse_block(tokens[position + 1 : end]), end + 1
    if tokens[position] == "if":
        branch, position = _parse_if(tokens, position)
        return (branch,), position
    if ";" not in tokens[position:]:
        raise UnknownCodeError("a statement never ends")
    end = tokens.index(";", position)
    return tokens[position : end + 1], end + 1


def restrict(block: Block, constants: Mapping[Tokens, bool]) -> Block:
    """Drop the branches that are never taken if these expressions, such as ``t.has_lse``, have these values."""
    found: list[str | If | Braces] = []
    for item in block:
        if isinstance(item, Braces):
            found.append(Braces(restrict(item.code, constants)))
        elif isinstance(item, If):
            found += _restrict_if(item, constants)
        else:
            found.append(item)
    return tuple(found)


def _restrict_if(branch: If, constants: Mapping[Tokens, bool]) -> Block:
    otherwise = restrict(branch.otherwise, constants)
    if is_false(branch.condition, constants):
        return otherwise
    then = restrict(branch.then, constants)
    # the conditions of a dispatch function only compare, so an if without code does nothing
    return (If(branch.condition, then, otherwise),) if then or otherwise else ()


def is_false(condition: Tokens, constants: Mapping[Tokens, bool]) -> bool:
    """Whether a condition is false for these constants; False if that is unknown."""
    if condition[:1] == ("constexpr",):
        return False
    inner = _without_parentheses(condition)
    if len(split(inner, "||")) > 1:
        return False
    return any(_conjunct_is_false(part, constants) for part in split(inner, "&&"))


def _conjunct_is_false(part: Tokens, constants: Mapping[Tokens, bool]) -> bool:
    inner = _without_parentheses(part)
    if inner != part:
        return is_false(inner, constants)
    expected = True
    if inner[-2:] in (("==", "true"), ("==", "false")):
        inner, expected = inner[:-2], inner[-1] == "true"
    elif inner[:1] == ("!",):
        inner, expected = inner[1:], False
    return inner in constants and constants[inner] is not expected


def _without_parentheses(tokens: Tokens) -> Tokens:
    while tokens[:1] == ("(",) and closing(tokens, 0) == len(tokens) - 1:
        tokens = tokens[1:-1]
    return tokens


def leaves(block: Block, conditions: tuple[Tokens, ...] = ()) -> Iterator[Leaf]:
    """Yield the innermost branches of a chain in order. An ``else`` has the conditions around its ``if``."""
    branches = [item for item in block if not isinstance(item, str)]
    for item in branches:
        if isinstance(item, Braces):
            yield from leaves(item.code, conditions)
        else:
            yield from leaves(item.then, (*conditions, item.condition))
            yield from leaves(item.otherwise, conditions)
    if conditions and block and not branches:
        yield Leaf(conditions, tuple(item for item in block if isinstance(item, str)))
