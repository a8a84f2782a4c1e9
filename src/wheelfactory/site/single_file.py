"""The doctor -> one file that runs by itself, made of the sources of its modules as they are.

Each module follows those that it needs. Its imports of the others go, those of the standard library go to the top, and
names keep their meaning, as no two modules may give the same one.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import TopologicalSorter
from pathlib import Path
from typing import TypeAlias

from wheelfactory.core.checkout import TOOLCHAIN_PROBE
from wheelfactory.core.errors import FactoryError, InputError

Import: TypeAlias = ast.Import | ast.ImportFrom

PROGRAM = "wheelfactory.doctor.program"
"""What the file runs; it holds what this module imports, and what that imports in turn."""
OLDEST_PYTHON = (3, 9)

_HEADER = '''\
#!/usr/bin/env python3
"""Find the flash-attn wheel that fits this machine and its AMD GPUs, and say what is wrong with one that does not work.

    python3 doctor.py              examine this Python, and print the line that installs the wheel that fits
    python3 doctor.py --install    the same, and install it after asking
    python3 doctor.py --help       everything else

It needs Python 3.9 or newer and no package, asks for no rights, changes nothing unless told to install, and sends
nothing anywhere: it reads one file, the manifest of the wheels{site}.

This file is generated: the modules of wheelfactory's doctor one after the other, under the MIT licence.
"""
'''


@dataclass(frozen=True)
class SourceModule:
    """One module of the file."""

    name: str
    source: str

    @cached_property
    def tree(self) -> ast.Module:
        """Its source as Python reads it."""
        return ast.parse(self.source)

    @property
    def imports(self) -> list[Import]:
        """The imports at its top."""
        return [node for node in self.tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]

    @property
    def imported_modules(self) -> list[str]:
        """The modules of ours that it imports."""
        return [_source_of(node) for node in self.imports if _is_ours(node)]

    @property
    def defined_names(self) -> Iterator[str]:
        """The names that its top level makes, without those that it imports."""
        for node in self.tree.body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                yield node.name
            elif isinstance(node, (ast.Assign, ast.AnnAssign)):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                yield from (name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))


def _source_of(node: Import) -> str:
    return node.names[0].name if isinstance(node, ast.Import) else str(node.module)


def _is_ours(node: Import) -> bool:
    return _source_of(node).partition(".")[0] == "wheelfactory"


_TOO_OLD = f"""
if sys.version_info < {OLDEST_PYTHON}:
    sys.exit("error: Python is too old: doctor.py needs {".".join(map(str, OLDEST_PYTHON))} or newer")
"""
"""Where older Pythons would end in a traceback; those before 3.8 cannot even read the file."""


def build_single_file(facts: str, site: str = "") -> str:
    """The source of ``doctor.py``, which looks for wheels at the address `site` unless it is told another place.

    `facts` is what `doctor_facts` writes. The same modules, facts and site give the same text. Raises `InputError` for
    what is no address, and `FactoryError` for modules that cannot stand in one file.
    """
    if re.search(r"[\s\"'\\]", site) or not site.isprintable():
        raise InputError("not the address of a site", repr(site), "give it without blanks and quotes")
    text = assemble(_read_modules(), _HEADER.format(site=f" of\n{site}" if site else ""))
    lines = textwrap.fill(facts, 118, break_long_words=False, break_on_hyphens=False)
    values = {
        'SITE = ""': f'SITE = "{site}"',
        'FACTS = ""': f'FACTS = """\n{lines}\n"""',
        'TORCH_PROBE = ""': f"TORCH_PROBE = r'''{TOOLCHAIN_PROBE.read_text(encoding='utf-8')}'''",
    }
    for line, value in values.items():
        if text.count(f"\n{line}\n") != 1:
            raise FactoryError("no one place for a value", line, "the modules of the doctor have it once")
        text = text.replace(f"\n{line}\n", f"\n{value}\n")
    return text


def _read_modules() -> list[SourceModule]:
    """The program and all that it needs."""
    found: dict[str, SourceModule] = {}
    waiting = [PROGRAM]
    while waiting:
        name = waiting.pop()
        if name not in found:
            path = Path(__file__).parents[2].joinpath(*name.split(".")).with_suffix(".py")
            found[name] = SourceModule(name, path.read_text(encoding="utf-8"))
            waiting += found[name].imported_modules
    return in_order(found)


def in_order(modules: Mapping[str, SourceModule]) -> list[SourceModule]:
    """Modules by name, each after those that it needs."""
    needs = {name: sorted(modules[name].imported_modules) for name in sorted(modules)}
    return [modules[name] for name in TopologicalSorter(needs).static_order()]


def assemble(modules: Sequence[SourceModule], header: str) -> str:
    """One source of several that are in order, which runs the ``main`` of one of them.

    Raises `FactoryError` if names would lose their meaning, and `SyntaxError` for what `OLDEST_PYTHON` cannot read.
    """
    _refuse_same_names(modules)
    future = "from __future__ import annotations\n"
    end = 'if __name__ == "__main__":\n    sys.exit(main())\n'
    text = "\n".join([header, future, _hoisted(modules), _TOO_OLD, *map(_body, modules), "", end])
    ast.parse(text, feature_version=OLDEST_PYTHON)
    return text


def _refuse_same_names(modules: Sequence[SourceModule]) -> None:
    """Raise `FactoryError` for a name that two modules give, or an import that means something else in one file."""
    givers = {name: f"the standard library's {source}" for name, source in _standard_names(modules)}
    for module in modules:
        for name in dict.fromkeys(module.defined_names):
            if name in givers:
                raise FactoryError("two modules give one name", f"{name}: {givers[name]}, {module.name}", "rename one")
            givers[name] = module.name
        for node in ast.walk(module.tree):
            if isinstance(node, (ast.Import, ast.ImportFrom)) and not _can_be_hoisted(node, module):
                raise FactoryError("cannot stand in one file", f"{module.name}: {ast.unparse(node)}", "from x import y")


def _can_be_hoisted(node: Import, module: SourceModule) -> bool:
    """Whether what an import gives keeps its name; those of ours must be at the top, where they are taken out."""
    if any(alias.asname not in (None, alias.name) for alias in node.names):
        return False
    return not _is_ours(node) or (isinstance(node, ast.ImportFrom) and node in module.imports)


def _standard_imports(modules: Iterable[SourceModule]) -> Iterator[Import]:
    for module in modules:
        yield from (node for node in module.imports if not _is_ours(node) and _source_of(node) != "__future__")


def _standard_names(modules: Sequence[SourceModule]) -> Iterator[tuple[str, str]]:
    """The names that the standard library's modules give, and which does. Raises `FactoryError` if two give one."""
    found: dict[str, str] = {}
    for node in _standard_imports(modules):
        for alias in node.names:
            name, source = (alias.name, alias.name) if isinstance(node, ast.Import) else (alias.name, _source_of(node))
            if found.setdefault(name.partition(".")[0], source) != source:
                raise FactoryError("two modules give one name", f"{name}: {found[name]}, {source}", "rename one")
    yield from found.items()


def _hoisted(modules: Sequence[SourceModule]) -> str:
    """The imports of the standard library, each once."""
    whole: set[str] = set()
    names: dict[str, set[str]] = {}
    for node in _standard_imports(modules):
        given = {alias.name for alias in node.names}
        if isinstance(node, ast.Import):
            whole |= given
        else:
            names.setdefault(_source_of(node), set()).update(given)
    lines = [f"import {name}\n" for name in sorted(whole)]
    for source in sorted(names):
        line = f"from {source} import {', '.join(sorted(names[source]))}"
        wrapped = textwrap.fill(", ".join(sorted(names[source])), 116, initial_indent="    ", subsequent_indent="    ")
        lines.append(f"{line}\n" if len(line) <= 120 else f"from {source} import (\n{wrapped},\n)\n")
    return "".join(lines)


def _body(module: SourceModule) -> str:
    """A module without docstring and imports, under a comment that says what it is."""
    lines = module.source.splitlines(keepends=True)
    first = module.tree.body[0]
    docstring = [first] if ast.get_docstring(module.tree) is not None else []
    for node in (*docstring, *module.imports):
        for number in range(node.lineno - 1, node.end_lineno or node.lineno):
            lines[number] = ""
    said = (ast.get_docstring(module.tree) or "").splitlines()
    heading = "".join(f"# {line}".rstrip() + "\n" for line in [module.name, "", *said])
    code = "".join(lines).strip("\n")
    return f"\n{heading}\n{code}\n"
