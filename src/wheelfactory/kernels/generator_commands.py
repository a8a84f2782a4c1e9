"""Read from setup.py how it runs upstream's generator of kernels, add filters; digest what kernels are compiled from.

setup.py is parsed, not run: it would import torch. Equal digests make one kernel set.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from wheelfactory.core.errors import SourceError
from wheelfactory.core.files import files_sha256
from wheelfactory.kernels.compiler import generator_filter
from wheelfactory.kernels.compiler.key import list_source_files
from wheelfactory.matrix.facts import GeneratorFilter

GENERATOR = "generate.py"
GENERATED = "build"
"""The folder beside setup.py that the generator writes into."""


def parse_generator_commands(setup: str, version: str, archs: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Parse the commands of a setup.py, in order, with default environment variables, for a build for these archs.

    Raises `SourceError` if there is none, or if an argument is computed.
    """
    try:
        found = tuple(_commands(ast.parse(setup), ",".join(archs)))
        if not found:
            raise _NotPlainError(f"setup.py never runs {GENERATOR}")
    except (SyntaxError, _NotPlainError) as error:
        hint = "its setup.py calls the generator in an unknown way: extend kernels/generator_commands.py"
        raise SourceError("cannot list the kernel sources of flash-attn", f"{version}: {error}", hint) from None
    return found


class _NotPlainError(Exception):
    """An argument is known only when setup.py runs."""


def _commands(tree: ast.Module, archs: str) -> Iterator[tuple[str, ...]]:
    """The arguments of each ``subprocess.run([...])`` or ``os.system("...")`` that names the generator."""
    assigned = [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
    names = {name.id: node.value for node in assigned for name in node.targets if isinstance(name, ast.Name)}
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

    Only the list of archs is joined with commas for the generator.
    """
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part, names, archs) for part in node.values)
    if isinstance(node, ast.FormattedValue) and node.conversion == -1 and node.format_spec is None:
        return _text(node.value, names, archs)
    if isinstance(node, ast.Name) and node.id in names:
        # a name defined by itself must not recurse forever
        others = {name: value for name, value in names.items() if name != node.id}
        return _text(names[node.id], others, archs)
    if ast.unparse(node) == "sys.executable":
        return sys.executable
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "','.join" and isinstance(node.args[0], ast.Name):
        return archs
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("os.getenv", "os.environ.get") and len(node.args) == 2:
        return _text(node.args[1], names, archs)
    raise _NotPlainError(f"its setup.py computes an argument of {GENERATOR}: {ast.unparse(node)}")


_FILTER_OPTIONS = ("-f", "--filter")
_DIRECTION_OPTIONS = ("-d", "--direction", "-a", "--api")


@dataclass(frozen=True)
class FilteredCommand:
    """A generator command of setup.py, without its Python, and the filter to add to it."""

    arguments: tuple[str, ...]
    filter: str


def filter_commands(
    commands: Iterable[Sequence[str]], filters: Iterable[GeneratorFilter]
) -> tuple[FilteredCommand, ...]:
    """Find the generator command of each filter. Raises `SourceError` if setup.py has not exactly one."""
    all_arguments = [tuple(command[1:]) for command in commands]
    found = []
    for item in filters:
        named = [arguments for arguments in all_arguments if _directions(arguments) == [item.direction]]
        if len(named) != 1 or not {*_FILTER_OPTIONS}.isdisjoint(named[0]):
            which = f"setup.py does not run the generator once, without a filter, for {item.direction}"
            raise SourceError("cannot filter the kernel sources of flash-attn", which, "remove trim from matrix.yaml")
        found.append(FilteredCommand(named[0], item.filter))
    return tuple(found)


def _directions(arguments: Sequence[str]) -> list[str]:
    return [value for option, value in pairwise(arguments) if option in _DIRECTION_OPTIONS]


def filter_environ(folder: Path, commands: Iterable[FilteredCommand]) -> dict[str, str]:
    """Write a new folder for PYTHONPATH, and return the variables that make setup.py's generator use these filters."""
    folder.mkdir()
    shutil.copyfile(str(generator_filter.__file__), folder / "sitecustomize.py")
    pairs = [(command.arguments, command.filter) for command in commands]
    (folder / generator_filter.FILTERS_FILE).write_text(json.dumps(pairs), encoding="utf-8")
    return {"PYTHONPATH": str(folder)}


def digest_kernel_sources(tree: Path, generator: str) -> str:
    """Digest the sources in `tree`, after setup.py's calls of `generator` (a path in the tree): 64 hex digits.

    It covers everything of a release that can reach a kernel's object:

    - the folder below ``csrc`` that has the generator: every header folder that setup.py names for kernels is in it
    - every generated file, so also which files there are
    - the part of setup.py that calls the generator and sets the compile flags

    The compiler, ROCm, the archs and the C++ ABI are not of the release. A release that breaks one of these assumptions
    is still safe: the key of the store has the actual headers and flags, and decides what is linked.
    """
    library = tree.joinpath(*Path(generator).parts[:2])
    setup = (tree / "setup.py").read_text(encoding="utf-8")
    sources = [("setup.py", "\n".join(_generator_statements(setup, Path(generator).name)).encode())]
    for folder in (library, tree / GENERATED):
        names = sorted((path.relative_to(tree).as_posix(), path) for path in list_source_files([folder]))
        sources += [(name, path.read_bytes()) for name, path in names]
    return files_sha256(sources)


def _generator_statements(setup: str, generator: str) -> Iterator[str]:
    """The text of the top-level statements of setup.py that name the generator, without earlier branches of an if."""
    # the branch for CUDA changes between releases whose kernels for ROCm are the same
    statements: list[ast.stmt] = list(ast.parse(setup).body)
    for statement in statements:
        if not _mentions(statement, generator):
            continue
        if isinstance(statement, ast.If) and not any(_mentions(inner, generator) for inner in statement.body):
            statements += statement.orelse
        else:
            # not ast.unparse, whose text differs from Python to Python
            yield ast.get_source_segment(setup, statement) or ""


def _mentions(statement: ast.stmt, generator: str) -> bool:
    return generator in ast.unparse(statement)


_CPP_SUFFIXES = frozenset({".cpp", ".hpp", ".h", ".cu", ".cuh", ".hip"})
_CALLS_KERNELS = re.compile(rb"\bfmha_\w*_traits\b")
"""In a C++ file that fills the structures with which kernels are called."""


def list_bindings(tree: Path, generator: str) -> list[Path]:
    """List the C++ files of upstream's own folders from which kernels are called, sorted."""
    library = f"{tree.joinpath(*Path(generator).parts[:2])}/"
    files = [path for path in list_source_files([tree / "csrc"]) if path.suffix in _CPP_SUFFIXES]
    own = [path for path in files if not str(path).startswith(library)]
    # whole folders, because a function there may pass on a value that another one fills in
    folders = {path.parent for path in own if _CALLS_KERNELS.search(path.read_bytes())}
    return [path for path in own if path.parent in folders]


def digest_filter_proof(tree: Path, generator: str, kernel_sources: str, filters: Iterable[GeneratorFilter]) -> str:
    """Digest everything that the proof of filters depends on: 64 hex digits.

    That is what the kernels are compiled from (`digest_kernel_sources`), the bindings that call them, and the filters.
    """
    stated = {"kernel-sources": kernel_sources, "filters": json.dumps([item.model_dump() for item in filters])}
    bindings = [(path.relative_to(tree).as_posix(), path.read_bytes()) for path in list_bindings(tree, generator)]
    return files_sha256([*((name, text.encode()) for name, text in stated.items()), *bindings])
