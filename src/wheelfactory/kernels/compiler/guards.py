"""For which archs a kernel source has device code: newer generators write one source for each GPU family.

setup.py compiles every source for every arch. For an arch that the guard of a source excludes, the device code is, byte
for byte, that of an empty file with the same name, which takes half a second (the samples verify that).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType

from wheelfactory.kernels.compiler.targets import HOST

Guards = Mapping[str, str]
"""By the name of a source, its condition on archs (`read_guard`); a source without one is not in it."""
NO_GUARDS: Guards = MappingProxyType({})

_GUARD = re.compile(r"if\s+!defined\(__HIP_DEVICE_COMPILE__\)\s*\|\|\s*\((.+)\)")
_HARMLESS = ("include", "define", "undef")
"""Directives before the guard that leave no device code."""
_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_OPERATORS = {"&&": "and", "||": "or", "!": "not", "(": "(", ")": ")"}
_TOKEN = re.compile(r"\s*(defined\(\w+\)|&&|\|\||[!()])\s*")

# what clang and CK define for archs; source: ck_tile/core/config.hpp of Composable Kernel, 2026
_FAMILIES = {"__gfx9__": "gfx9", "__gfx11__": "gfx11", "__gfx115__": "gfx115", "__gfx12__": "gfx12"}
_ARCH_MACRO = re.compile("__(gfx9[0-9a-f]{2}|gfx1[0-9a-f]{3})__")


@cache
def read_guard(source: str) -> str:
    """Return the preprocessor condition around the whole source (a path); empty if there is none.

    Without a condition, assume that the source has device code for every arch.
    """
    text = _COMMENTS.sub("", Path(source).read_text(encoding="utf-8", errors="replace"))
    lines = [line for line in map(str.strip, text.splitlines()) if line]
    directives = [line.removeprefix("#").lstrip() if line.startswith("#") else "" for line in lines]
    first = next((number for number, line in enumerate(directives) if not line.startswith(_HARMLESS)), None)
    if first is None:
        return ""
    found = _GUARD.fullmatch(directives[first])
    return found[1] if found and _encloses(directives[first:]) else ""


def _encloses(directives: list[str]) -> bool:
    """Whether the ``#if`` of the first line ends with the last one, and has no other branch."""
    depth = 0
    for number, line in enumerate(directives, 1):
        depth += line.startswith("if") - line.startswith("endif")
        is_end = depth == 0 and number < len(directives)
        if is_end or (depth == 1 and line.startswith(("else", "elif"))):
            return False
    return depth == 0


@cache
def has_code(guard: str, arch: str) -> bool:
    """Whether a source with this guard has device code for an arch; true if that cannot be said."""
    tokens = _TOKEN.findall(guard)
    if "".join(tokens) != re.sub(r"\s", "", guard):
        return True
    try:  # the operators of C and Python have the same precedence
        return _evaluate(ast.parse(" ".join(_to_python(token, arch) for token in tokens), mode="eval").body)
    except (SyntaxError, ValueError):
        return True


def is_empty(guard: str, targets: Sequence[str]) -> bool:
    """Whether a source with this guard has no device code for the one arch that it is compiled for."""
    return len(targets) == 1 and targets[0] != HOST and not has_code(guard, targets[0])


def _to_python(token: str, arch: str) -> str:
    """Translate a token, and a macro to whether it is defined. Raises `ValueError` for a macro that is not of archs."""
    if not token.startswith("defined"):
        return _OPERATORS[token]
    macro = token.removeprefix("defined(").removesuffix(")")
    if macro in _FAMILIES:
        return str(re.fullmatch(_FAMILIES[macro] + "[0-9a-f]{1,2}", arch) is not None)
    exact = _ARCH_MACRO.fullmatch(macro)
    if not exact:
        raise ValueError(f"not a macro of archs: {macro}")
    return str(exact[1] == arch)


def _evaluate(node: ast.expr) -> bool:
    if isinstance(node, ast.BoolOp):
        values = [_evaluate(value) for value in node.values]  # each, so that a malformed one is noticed
        return all(values) if isinstance(node.op, ast.And) else any(values)
    if isinstance(node, ast.UnaryOp):
        return not _evaluate(node.operand)
    if not isinstance(node, ast.Constant):
        raise ValueError("parentheses without an operator")
    return bool(node.value)
