"""Build doctor.py: one standalone file from the unchanged sources of the doctor's modules.

Each module comes after the modules it imports. Imports of wheelfactory modules are removed, and imports of the standard
library move to the top. No two modules may define the same name, so every name keeps its meaning.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from graphlib import TopologicalSorter
from pathlib import Path
from typing import TypeAlias

from wheelfactory.core.errors import FactoryError, InputError
from wheelfactory.core.files import TOOLCHAIN_PROBE

Import: TypeAlias = ast.Import | ast.ImportFrom

PROGRAM = "wheelfactory.doctor.program"
"""The module that the file runs. The file contains it and everything it imports."""
OLDEST_PYTHON = (3, 9)

_HEADER = '''\
#!/usr/bin/env python3
"""Find the flash-attn wheel that fits this machine and its AMD GPUs, or diagnose an install that does not work.

    python3 doctor.py              examine this Python, and print the install command of the matching wheel
    python3 doctor.py --install    also install the wheel, after asking
    python3 doctor.py --help       everything else

It needs only Python 3.9 or newer and no special permissions. It changes nothing without --install and sends no data:
it only reads the manifest of the wheels{site}.

This file is generated from the modules of wheelfactory's doctor, under the MIT licence.
"""
'''


@dataclass(frozen=True)
class SourceModule:
    """A module that goes into the file."""

    name: str
    source: str

    @cached_property
    def tree(self) -> ast.Module:
        """The parsed source."""
        return ast.parse(self.source)

    @property
    def imports(self) -> list[Import]:
        """The imports at the top level."""
        return [node for node in self.tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]

    @property
    def imported_modules(self) -> list[str]:
        """The wheelfactory modules that it imports."""
        return [_module_name(node) for node in self.imports if _is_ours(node)]

    @property
    def defined_names(self) -> Iterator[str]:
        """The names that the top level defines, without imports."""
        for node in self.tree.body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                yield node.name
            elif isinstance(node, (ast.Assign, ast.AnnAssign)):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                yield from (name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))


def _module_name(node: Import) -> str:
    return node.names[0].name if isinstance(node, ast.Import) else str(node.module)


def _is_ours(node: Import) -> bool:
    return _module_name(node).partition(".")[0] == "wheelfactory"


# without this, older Pythons end in a traceback. Before 3.8 they cannot even parse the file
_VERSION_CHECK = f"""
if sys.version_info < {OLDEST_PYTHON}:
    sys.exit("error: Python is too old: doctor.py needs {".".join(map(str, OLDEST_PYTHON))} or newer")
"""


def build_single_file(facts: str, site: str = "") -> str:
    """Return the source of ``doctor.py``, which by default looks for wheels at the URL `site`.

    `facts` comes from `doctor_facts`. The same input gives the same text.
    Raises `InputError` for an invalid URL, and `FactoryError` if the modules cannot be combined into one file.
    """
    if re.search(r"[\s\"'\\]", site) or not site.isprintable():
        raise InputError("not a site address", repr(site), "remove blanks, quotes and backslashes")
    text = _HEADER.format(site=f" of\n{site}" if site else "") + _assemble_program()
    lines = textwrap.fill(facts, 118, break_long_words=False, break_on_hyphens=False)
    values = {
        'SITE = ""': f'SITE = "{site}"',
        'FACTS = ""': f'FACTS = r"""\n{lines}\n"""',
        'TORCH_PROBE = ""': f"TORCH_PROBE = r'''{TOOLCHAIN_PROBE.read_text(encoding='utf-8')}'''",
    }
    for line, value in values.items():
        if text.count(f"\n{line}\n") != 1:
            raise FactoryError(
                "a placeholder is missing or repeated", line, "the doctor's modules must have it exactly once"
            )
        text = text.replace(f"\n{line}\n", f"\n{value}\n")
    return text


@cache  # the sources of a running program do not change
def _assemble_program() -> str:
    return assemble(_read_modules(), "")


def _read_modules() -> list[SourceModule]:
    """Read the program and everything it imports."""
    found: dict[str, SourceModule] = {}
    waiting = [PROGRAM]
    while waiting:
        name = waiting.pop()
        if name not in found:
            path = Path(__file__).parents[2].joinpath(*name.split(".")).with_suffix(".py")
            found[name] = SourceModule(name, path.read_text(encoding="utf-8"))
            waiting += found[name].imported_modules
    return sort_by_imports(found)


def sort_by_imports(modules: Mapping[str, SourceModule]) -> list[SourceModule]:
    """Return the modules in an order in which each comes after the modules it imports."""
    needs = {name: sorted(modules[name].imported_modules) for name in sorted(modules)}
    return [modules[name] for name in TopologicalSorter(needs).static_order()]


def assemble(modules: Sequence[SourceModule], header: str) -> str:
    """Join ordered modules into one source that runs ``main``.

    Raises `FactoryError` if a name would change its meaning, and `SyntaxError` for syntax newer than `OLDEST_PYTHON`.
    """
    _reject_duplicate_names(modules)
    future = "from __future__ import annotations\n"
    end = 'if __name__ == "__main__":\n    sys.exit(main())\n'
    text = "\n".join([header, future, _hoist_imports(modules), _VERSION_CHECK, *map(_body, modules), "", end])
    ast.parse(text, feature_version=OLDEST_PYTHON)
    return text


def _reject_duplicate_names(modules: Sequence[SourceModule]) -> None:
    """Raise `FactoryError` if two modules define the same name, or an import would change its meaning."""
    sources = {name: f"the standard library's {source}" for name, source in _standard_names(modules)}
    for module in modules:
        for name in dict.fromkeys(module.defined_names):
            if name in sources:
                raise FactoryError(
                    "two modules define the same name", f"{name}: {sources[name]}, {module.name}", "rename one"
                )
            sources[name] = module.name
        for node in ast.walk(module.tree):
            if isinstance(node, (ast.Import, ast.ImportFrom)) and not _can_hoist(node, module):
                raise FactoryError(
                    "this import cannot be moved into the single file",
                    f"{module.name}: {ast.unparse(node)}",
                    "use: from x import y",
                )


def _can_hoist(node: Import, module: SourceModule) -> bool:
    """Whether an import can move to the top of the file without a change in its meaning."""
    # an import of a wheelfactory module within a function would stay in the file, where it fails
    if any(alias.asname not in (None, alias.name) for alias in node.names):
        return False
    return not _is_ours(node) or (isinstance(node, ast.ImportFrom) and node in module.imports)


def _standard_imports(modules: Iterable[SourceModule]) -> Iterator[Import]:
    for module in modules:
        yield from (node for node in module.imports if not _is_ours(node) and _module_name(node) != "__future__")


def _standard_names(modules: Sequence[SourceModule]) -> Iterator[tuple[str, str]]:
    """Yield each name imported from the standard library, with its module.

    Raises `FactoryError` if two modules provide the same name.
    """
    found: dict[str, str] = {}
    for node in _standard_imports(modules):
        for alias in node.names:
            name, source = (
                (alias.name, alias.name) if isinstance(node, ast.Import) else (alias.name, _module_name(node))
            )
            if found.setdefault(name.partition(".")[0], source) != source:
                raise FactoryError("two modules define the same name", f"{name}: {found[name]}, {source}", "rename one")
    yield from found.items()


def _hoist_imports(modules: Sequence[SourceModule]) -> str:
    """Return the source of all standard library imports, without duplicates."""
    whole: set[str] = set()
    names: dict[str, set[str]] = {}
    for node in _standard_imports(modules):
        given = {alias.name for alias in node.names}
        if isinstance(node, ast.Import):
            whole |= given
        else:
            names.setdefault(_module_name(node), set()).update(given)
    lines = [f"import {name}\n" for name in sorted(whole)]
    for source in sorted(names):
        line = f"from {source} import {', '.join(sorted(names[source]))}"
        wrapped = textwrap.fill(", ".join(sorted(names[source])), 116, initial_indent="    ", subsequent_indent="    ")
        lines.append(f"{line}\n" if len(line) <= 120 else f"from {source} import (\n{wrapped},\n)\n")
    return "".join(lines)


def _body(module: SourceModule) -> str:
    """Return a module's code without imports; its docstring becomes a comment above the code."""
    lines = module.source.splitlines(keepends=True)
    first = module.tree.body[0]
    docstring = [first] if ast.get_docstring(module.tree) is not None else []
    for node in (*docstring, *module.imports):
        for number in range(node.lineno - 1, node.end_lineno or node.lineno):
            lines[number] = ""
    description = (ast.get_docstring(module.tree) or "").splitlines()
    heading = "".join(f"# {line}".rstrip() + "\n" for line in [module.name, "", *description])
    code = "".join(lines).strip("\n")
    return f"\n{heading}\n{code}\n"
