"""Run upstream's generator with filters, as setup.py then does, and compare its output with that of the full run."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from wheelfactory.kernels.compiler import generator_filter
from wheelfactory.kernels.trim.proof import find_differences
from wheelfactory.matrix.facts import GeneratorFilter

_FILTER_OPTIONS = ("-f", "--filter")
_DIRECTION_OPTIONS = ("-d", "--direction", "-a", "--api")
_CPP_SUFFIXES = frozenset({".cpp", ".hpp", ".h", ".cu", ".cuh", ".hip"})
_CALLS_KERNELS = re.compile(rb"\bfmha_\w*_traits\b")
"""In a C++ file that fills the structures with which kernels are called."""


class UnprovedError(Exception):
    """Why a release is compiled without its filters, in one line."""


@dataclass(frozen=True)
class FilteredCommand:
    """A generator command of setup.py, without its Python, and the filter to add to it."""

    arguments: tuple[str, ...]
    filter: str


def filter_commands(
    commands: Iterable[Sequence[str]], filters: Iterable[GeneratorFilter]
) -> tuple[FilteredCommand, ...]:
    """Find the generator command of each filter. Raises `UnprovedError` if setup.py has not exactly one."""
    all_arguments = [tuple(command[1:]) for command in commands]
    found = []
    for item in filters:
        named = [arguments for arguments in all_arguments if _directions(arguments) == [item.direction]]
        if len(named) != 1 or not {*_FILTER_OPTIONS}.isdisjoint(named[0]):
            raise UnprovedError(f"setup.py does not run the generator once, without a filter, for {item.direction}")
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


def require_proof(full: Mapping[str, Path], trimmed: Mapping[str, Path], tree: Path, generator: Path) -> None:
    """Raise `UnprovedError` unless these sources of a filtered run serve every call of the bindings in `tree`.

    `full` and `trimmed` are the generated files by name without extension; `generator` is the path of the program in
    `tree`.
    """
    if len(trimmed) >= len(full):
        raise UnprovedError("the filters leave nothing out")
    bindings = list(_bindings(tree, tree.joinpath(*generator.parts[:2])))
    headers = [_read(path) for path in sorted((tree / generator).parent.glob("*.hpp"))]
    texts = [{name: _read(path) for name, path in files.items()} for files in (full, trimmed)]
    differences = find_differences(texts[0], texts[1], bindings, headers)
    if differences:
        more = f"; and {len(differences) - 1} more differences" if len(differences) > 1 else ""
        raise UnprovedError(differences[0] + more)


def _bindings(tree: Path, kernels: Path) -> Iterator[str]:
    """The C++ files of upstream's own folders from which kernels are called; `kernels` is Composable Kernel's."""
    files = [path for path in sorted((tree / "csrc").rglob("*")) if path.suffix in _CPP_SUFFIXES and path.is_file()]
    own = [path for path in files if kernels not in path.parents]
    # whole folders, because a function there may pass on a value that another one fills in
    folders = {path.parent for path in own if _CALLS_KERNELS.search(path.read_bytes())}
    yield from (_read(path) for path in own if path.parent in folders)


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")
