"""The layers of the package: imports go down one list without cycles, some modules import only the standard library."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src"
CLIENT = Path(__file__).parents[1] / "packages/remote_execution/src"

LAYERS = (
    *("core", "matrix", "wheel", "emulator", "build", "kernels", "verify", "doctor", "explain", "gpu", "release"),
    *("site", "pipeline", "commands", "cli"),
)
"""The folders of the package in the order of docs/architecture.md: a folder imports only those before it."""

APART = frozenset({"doctor", "explain", "gpu"})
"""A machine, a log, a GPU: three answers that do not need each other."""

BY_ITSELF = ("doctor", "kernels.compiler")
"""Modules that run in other Pythons: a user's, or that of an image."""

NUMPY_ALONE = "emulator"
"""The folder that runs in the Python of a cell: it has torch, Triton and numpy, but not what the factory depends on."""

OLDEST = (3, 9)


def modules() -> dict[str, Path]:
    """Every module of the package by its name, without ``wheelfactory.``."""
    root = SRC / "wheelfactory"
    return {".".join(path.relative_to(root).with_suffix("").parts): path for path in sorted(root.rglob("*.py"))}


@cache
def imported(path: Path) -> set[str]:
    """Return all imports of a file at any level; for ``from a import b`` both ``a`` and ``a.b``."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


@cache
def imports() -> dict[str, set[str]]:
    """The modules of the package that each imports."""
    known = modules()
    return {
        name: {own for target in imported(path) if (own := target.removeprefix("wheelfactory.")) in known}
        for name, path in known.items()
    }


def layer_of(module: str) -> str:
    return module.partition(".")[0]


def closure(name: str, of: Mapping[str, set[str]]) -> set[str]:
    found: set[str] = set()
    waiting = [name]
    while waiting:
        module = waiting.pop()
        if module not in found:
            found.add(module)
            waiting += of[module]
    return found


def test_every_folder_and_file_of_the_package_is_a_room_of_the_list() -> None:
    assert {layer_of(name) for name in modules()} - {"__init__", "__main__"} == set(LAYERS)


def test_imports_go_down_the_list() -> None:
    wrong = [
        f"{module} -> {target}"
        for module, targets in imports().items()
        for target in targets
        if module != "__main__" and LAYERS.index(layer_of(target)) > LAYERS.index(layer_of(module))
    ]
    assert wrong == []


def test_the_three_that_answer_do_not_import_each_other() -> None:
    wrong = [
        f"{module} -> {target}"
        for module, targets in imports().items()
        for target in targets
        if {layer_of(module), layer_of(target)} <= APART and layer_of(module) != layer_of(target)
    ]
    assert wrong == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    try:
        TopologicalSorter(imports()).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_a_package_is_a_docstring() -> None:
    packages = [path for name, path in modules().items() if name.endswith("__init__")]
    assert packages
    for path in packages:
        body = ast.parse(path.read_text()).body
        assert all(isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) for node in body), path


def test_the_client_of_clusters_stands_beside_kernels_and_is_imported_where_its_options_are_read_alone() -> None:
    importing = [
        name for name, path in modules().items() if any("wheelfactory_remote" in one for one in imported(path))
    ]
    assert importing == ["commands.executor_options"]
    needed = {
        target for path in CLIENT.rglob("*.py") for target in imported(path) if target.startswith("wheelfactory.")
    }
    assert {target.split(".")[1] for target in needed} == {"core", "wheel", "kernels"}


def alone() -> Iterator[str]:
    """The modules that `BY_ITSELF` needs."""
    of = imports()
    for name in of:
        if name.startswith(BY_ITSELF):
            yield from closure(name, of)


def test_what_runs_in_other_pythons_needs_their_standard_library_alone() -> None:
    names = sorted(set(alone()))
    assert len(names) > 20
    for name in names:
        path = modules()[name]
        third_party = {target.partition(".")[0] for target in imported(path)} - {
            "wheelfactory",
            *sys.stdlib_module_names,
        }
        assert third_party == set(), name
        ast.parse(path.read_text(), str(path), feature_version=OLDEST)


def test_the_emulator_needs_numpy_and_the_standard_library_alone() -> None:
    names = {name for module in imports() if layer_of(module) == NUMPY_ALONE for name in closure(module, imports())}
    own = {"numpy", "triton"}  # Triton only for its driver
    for name in sorted(names):
        needed = {target.partition(".")[0] for target in imported(modules()[name])}
        assert needed - {"wheelfactory", *own, *sys.stdlib_module_names} == set(), name
