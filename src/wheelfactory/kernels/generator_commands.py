"""Read the commands with which a release's setup.py runs upstream's generator of kernels.

setup.py is parsed, not run: it would import torch.
"""

from __future__ import annotations

import ast
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence

from wheelfactory.core.errors import SourceError

GENERATOR = "generate.py"


def parse_generator_commands(setup: str, version: str, archs: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Parse the commands of a setup.py, in order, with default environment variables, for a build for these archs.

    Raises `SourceError` if there is none, or if an argument is computed.
    """
    try:
        found = tuple(_commands(ast.parse(setup), ",".join(archs)))
        if not found:
            raise _NotPlainError(f"setup.py never runs {GENERATOR}")
    except (SyntaxError, _NotPlainError) as error:
        raise SourceError(
            "cannot list the kernel sources of flash-attn",
            f"{version}: {error}",
            "its setup.py calls the generator in an unknown way: extend kernels/generator_commands.py",
        ) from None
    return found


class _NotPlainError(Exception):
    """An argument is known only when setup.py runs."""


def _commands(tree: ast.Module, archs: str) -> Iterator[tuple[str, ...]]:
    """The arguments of each ``subprocess.run([...])`` or ``os.system("...")`` that names the generator."""
    names = {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for command, bound in _generator_calls(tree, {}):
        known = {**names, **bound}
        if isinstance(command, ast.List):
            yield tuple(_text(word, known, archs) for word in command.elts)
        else:
            yield tuple(shlex.split(_text(command, known, archs)))


def _generator_calls(node: ast.AST, bound: Mapping[str, ast.expr]) -> Iterator[tuple[ast.expr, Mapping[str, ast.expr]]]:
    """Yield the first argument of each call that runs the generator, with the variables of the loops round it."""
    if isinstance(node, ast.Call) and node.args and ast.unparse(node.func).startswith(("subprocess.", "os.system")):
        if GENERATOR in ast.unparse(node.args[0]):
            yield node.args[0], bound
        return
    rounds = [bound]
    if isinstance(node, ast.For) and isinstance(node.target, ast.Name) and isinstance(node.iter, (ast.List, ast.Tuple)):
        rounds = [{**bound, node.target.id: value} for value in node.iter.elts]
    for variables in rounds:
        for child in ast.iter_child_nodes(node):
            yield from _generator_calls(child, variables)


def _text(node: ast.expr, names: Mapping[str, ast.expr], archs: str) -> str:
    """Evaluate a literal, an f-string, an assigned name, or the default of an environment variable to text.

    The one list that setup.py joins with commas for the generator is that of the archs.
    """
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part, names, archs) for part in node.values)
    if isinstance(node, ast.FormattedValue) and node.conversion == -1 and node.format_spec is None:
        return _text(node.value, names, archs)
    if isinstance(node, ast.Name) and node.id in names:
        others = {
            name: value for name, value in names.items() if name != node.id
        }  # so that a name defined by itself does not recurse forever
        return _text(names[node.id], others, archs)
    if ast.unparse(node) == "sys.executable":
        return sys.executable
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "','.join" and isinstance(node.args[0], ast.Name):
        return archs
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("os.getenv", "os.environ.get") and len(node.args) == 2:
        return _text(node.args[1], names, archs)
    raise _NotPlainError(f"its setup.py computes an argument of {GENERATOR}: {ast.unparse(node)}")
