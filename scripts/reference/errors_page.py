"""docs/reference/errors.md: every error that the source raises, with its cure."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from source import (
    Function,
    Module,
    Scope,
    arguments_of,
    name_of,
    parameters_of,
    read_modules,
    says_something,
    texts,
)

from wheelfactory.core import errors

PARAMETERS = ["what", "which", "hint"]
"""Of `FactoryError`."""
IN_THE_FILE = "*file, line and column*"
"""Which, of what is wrong in matrix.yaml."""
OTHER_ERRORS = {
    "release/github/answers.py": ("RefusedError", ["status", *PARAMETERS], errors.FAILED),
    "kernels/archive.py": ("NotWholeError", PARAMETERS, errors.BUILD_FAILED),
}
"""Errors that are made in one room only: their module, class, parameters and exit code."""

ROOMS = {
    "": "Any command",
    "commands": "Arguments",
    "matrix": "matrix.yaml and selections",
    "wheel": "Wheel files",
    "build": "Building",
    "kernels": "Kernels",
    "verify": "Gates",
    "doctor": "Doctor",
    "explain": "Explain",
    "gpu": "Validation and benchmarks",
    "release": "Publishing",
    "pipeline": "Jobs of a workflow",
}
"""The headings, by the folder of the source; what has none of its own comes first."""

SAID_ELSEWHERE = {
    ("core/process.py", "failed_build"): "its log tells the cause",
    ("core/process.py", "starved_build"): "`ended_build` has the same",
    ("kernels/handover.py", "heard"): "what ran beside the compiler raised it",
    ("matrix/load.py", "_as_error"): "it puts together what is wrong in the file",
    ("matrix/load.py", "_explain_references"): "its helpers say what and which",
    ("site/single_file.py", ""): "only whoever changes the doctor meets it",
}
"""By module and function; all functions of a module if none is named."""

TABLES = {("matrix/load.py", "_WORDS"): "*key* "}
"""Constants that hold what and hint for each kind of mistake, and what stands before them."""

WITHOUT_CURE = {
    "cannot install": "the rest of the line says with what to do it",
    "no cell is left of the selection": "the hint is the reason that the matrix gives",
    "this combination cannot work": "the hint is the reason that the matrix gives",
}
"""Errors that need no cure, and why."""

HEAD = """\
# Every error with its cure

<!-- Generated from the source by `.venv/bin/python scripts/reference`; edits here are lost. -->

An error is one line on stderr, and a second one says what to do:

```text
error: no cell matches: fa9*
hint: globs match cell ids such as fa2.8.3-rocm6.4-torch2.9.1-cp311-ck; `wheelfactory matrix` lists them
```

Here are all of them, by the part of the program that raises them. Words in *italics* stand for what is known only then.
What a failed build printed is explained by [`wheelfactory explain`](explain.md), what a gate refuses by
[the gates](gates.md), a flash-attn that does not import by [the doctor](doctor.md).

| exit code | meaning |
|---|---|
| 1 | failed, or something is missing |
| 2 | bad matrix or arguments |
| 3 | a gate refused a wheel |
| 4 | a build failed, or a cell cannot be built on this machine |
| 6 | the time is up: run the same command again |

0 is done, 5 is nothing to do.
"""


class MissingCureError(Exception):
    """An error in the source that does not say what to do."""


@dataclass(frozen=True, order=True)
class Row:
    """An error: where it is raised, what it says, and what it ends with."""

    room: str
    what: str
    which: str
    cure: str
    exit_code: int


def errors_page(package: Path) -> str:
    """The page. Raises `MissingCureError` for errors without a hint that are not in `WITHOUT_CURE`."""
    modules = read_modules(package)
    rows = sorted({row for module in modules for row in _rows(module)}, key=_order)
    missing = [f"{row.room or '.'}: {row.what}: {row.which}" for row in rows if not row.cure]
    if missing:
        raise MissingCureError("\n".join(missing))
    parts = [HEAD]
    for room, found in groupby(rows, key=lambda row: row.room):
        lines = [f"| {row.what}: {row.which} | {row.cure} | {row.exit_code} |" for row in found]
        parts.append("\n".join([f"## {ROOMS[room]}", "", "| error | cure | exit |", "|---|---|---|", *lines, ""]))
    return "\n".join(parts)


def _order(row: Row) -> tuple[int, Row]:
    return list(ROOMS).index(row.room), row


def _rows(module: Module) -> Iterator[Row]:
    yield from _rows_of_tables(module)
    for function in module.functions:
        if function.returns is not None and ast.unparse(function.returns) == "Iterator[tuple[Place, str, str]]":
            yield from _rows_of_yields(module, function)
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call):
            yield from _rows_of_call(module, node)


def _rows_of_tables(module: Module) -> Iterator[Row]:
    for (path, name), before in TABLES.items():
        if path == module.path:
            for pair in _values_of(module.constants[name]):
                for what, which, cure in _said(dict(zip(("what", "hint"), pair, strict=True)), Scope(module)):
                    yield Row(_room(module), f"{before}{what}", which, cure, errors.BAD_INPUT)


def _values_of(node: ast.expr) -> Iterator[list[ast.expr]]:
    """The items of each tuple that a dictionary has as a value."""
    for value in node.values if isinstance(node, ast.Dict) else ():
        if isinstance(value, ast.Tuple):
            yield value.elts


def _rows_of_yields(module: Module, function: Function) -> Iterator[Row]:
    """Of a function that yields place, what and hint."""
    for node in ast.walk(function):
        if isinstance(node, ast.Yield) and isinstance(node.value, ast.Tuple):
            _, what, hint = node.value.elts
            for row in _said({"what": what, "hint": hint}, Scope(module, function, node)):
                yield Row(_room(module), *row, errors.BAD_INPUT)


def _rows_of_call(module: Module, node: ast.Call) -> Iterator[Row]:
    raised = _raised(module, node)
    function = module.function_around(node)
    place = (module.path, function.name if function else "")
    if raised is None or place in SAID_ELSEWHERE or (module.path, "") in SAID_ELSEWHERE:
        return
    parameters, exit_code = raised
    given = arguments_of(node, parameters)
    if isinstance(given["what"], ast.Starred):  # what a table or a helper says
        return
    for scope in _scopes(module, node):
        for row in _said(given, scope):
            yield Row(_room(module), *row, exit_code)


def _raised(module: Module, call: ast.Call) -> tuple[list[str], int] | None:
    """The parameters and the exit code of the error that a call makes; None if it makes none."""
    name = name_of(call.func)
    if name == "Problem" or ast.unparse(call.func) == "Problem.at":
        return (["mark", "what", "hint"] if name == "at" else ["line", "column", "what", "hint"]), errors.BAD_INPUT
    for path, (own, parameters, exit_code) in OTHER_ERRORS.items():
        if name == own and Path(path).parent == Path(module.path).parent:
            return parameters, exit_code
    found = getattr(errors, name, None)
    if isinstance(found, type) and issubclass(found, errors.FactoryError) and module.path != "core/errors.py":
        return PARAMETERS, found.exit_code
    return None


def _scopes(module: Module, call: ast.Call) -> Sequence[Scope]:
    """Where to read what is said: in each call of the private function that makes the error of what it is given."""
    function = module.function_around(call)
    if function is None or not function.name.startswith("_"):
        return [Scope(module, function, call)]
    used = {node.id for node in ast.walk(call) if isinstance(node, ast.Name)} & set(parameters_of(function))
    callers = list(module.calls(function.name)) if used else []
    return [
        Scope(
            module,
            function,
            call,
            {
                name: (value, Scope(module, module.function_around(caller), caller))
                for name, value in arguments_of(caller, parameters_of(function)).items()
            },
        )
        for caller in callers
    ] or [Scope(module, function, call)]


def _said(given: dict[str, ast.expr], scope: Scope) -> Iterator[tuple[str, str, str]]:
    table = _table(given, scope)
    if table:
        for row in table:
            yield from _said({**given, **row}, scope)
        return
    cure = "; or: ".join(text for text in _text(given.get("hint"), scope) if says_something(text))
    whats = _text(given["what"], scope)
    for what in [text for text in whats if says_something(text)] or whats:
        which = next(iter(_text(given.get("which"), scope)), "")
        yield what, which or IN_THE_FILE, cure or WITHOUT_CURE.get(what, "")


def _text(node: ast.expr | None, scope: Scope) -> tuple[str, ...]:
    return () if node is None else tuple(text for text in texts(node, scope) if text)


def _table(given: dict[str, ast.expr], scope: Scope) -> list[dict[str, ast.expr]]:
    """What and hint of each row, if they are fields of a row of a table in the module, such as ``known.what``."""
    what = given["what"]
    if not (isinstance(what, ast.Attribute) and isinstance(given.get("hint"), ast.Attribute)):
        return []
    rows = []
    for name, node in scope.module.classes.items():
        fields = [
            item.target.id
            for item in node.body
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
        ]
        if {"what", "hint"} <= set(fields):
            made = (arguments_of(call, fields) for call in scope.module.calls(name))
            rows += [{"what": row["what"], "hint": row["hint"]} for row in made]
    return rows


def _room(module: Module) -> str:
    folder = module.path.split("/")[0]
    return folder if folder in ROOMS else ""
