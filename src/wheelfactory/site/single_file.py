"""Build doctor.py: one standalone file from the unchanged sources of the doctor's modules.

Each module comes after the modules it imports, without its imports of wheelfactory modules. Every name keeps its
meaning, because no two modules define the same one; the tests check that.
"""

from __future__ import annotations

import ast
import json
import re
import textwrap
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

from wheelfactory.core.errors import InputError
from wheelfactory.core.files import TOOLCHAIN_PROBE
from wheelfactory.core.gpus import gpu_products

_FUTURE = "from __future__ import annotations\n"
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


# first, as older Pythons end in a traceback. Before 3.8 they cannot even parse the file
_VERSION_CHECK = f"""
{_FUTURE}
import sys

if sys.version_info < {OLDEST_PYTHON}:
    sys.exit("error: Python is too old: doctor.py needs {".".join(map(str, OLDEST_PYTHON))} or newer")
"""


def build_single_file(facts: str, site: str = "") -> str:
    """Return the source of ``doctor.py``, which by default looks for wheels at the URL `site`.

    `facts` comes from `doctor_facts`. The same input gives the same text.
    Raises `InputError` for an invalid URL.
    """
    if re.search(r"[\s\"'\\]", site) or not site.isprintable():
        raise InputError("not a site address", repr(site), "remove blanks, quotes and backslashes")
    text = _HEADER.format(site=f" of\n{site}" if site else "") + _assemble_program()
    values = {
        'SITE = ""': f'SITE = "{site}"',
        'FACTS = ""': f'FACTS = r"""\n{_wrap_json(facts)}\n"""',
        'GPU_PRODUCTS = ""': f'GPU_PRODUCTS = r"""\n{_wrap_json(json.dumps(gpu_products()))}\n"""',
        'TORCH_PROBE = ""': f"TORCH_PROBE = r'''{TOOLCHAIN_PROBE.read_text(encoding='utf-8')}'''",
    }
    for line, value in values.items():
        assert text.count(f"\n{line}\n") == 1, line  # in one of the doctor's modules
        text = text.replace(f"\n{line}\n", f"\n{value}\n")
    return text


def _wrap_json(text: str) -> str:
    return textwrap.fill(text, 118, break_long_words=False, break_on_hyphens=False)


@cache  # the sources of a running program do not change
def _assemble_program() -> str:
    """Join the program and everything it imports. Raises `SyntaxError` for syntax newer than `OLDEST_PYTHON`."""
    sources: dict[str, str] = {}
    trees: dict[str, ast.Module] = {}
    needs: dict[str, list[str]] = {}
    waiting = [PROGRAM]
    while waiting:
        name = waiting.pop()
        if name not in sources:
            path = Path(__file__).parents[2].joinpath(*name.split(".")).with_suffix(".py")
            sources[name] = path.read_text(encoding="utf-8")
            trees[name] = ast.parse(sources[name])
            needs[name] = sorted(str(node.module) for node in _our_imports(trees[name]))
            waiting += needs[name]
    ordered = TopologicalSorter({name: needs[name] for name in sorted(needs)}).static_order()
    bodies = [_body(name, sources[name], trees[name]) for name in ordered]
    end = 'if __name__ == "__main__":\n    sys.exit(main())\n'
    text = "\n".join([_VERSION_CHECK, *bodies, "", end])
    ast.parse(text, feature_version=OLDEST_PYTHON)
    return text


def _our_imports(tree: ast.Module) -> list[ast.ImportFrom]:
    """The imports of wheelfactory modules at the top level of a module."""
    imports = (node for node in tree.body if isinstance(node, ast.ImportFrom))
    return [node for node in imports if str(node.module).startswith("wheelfactory.")]


def _body(name: str, source: str, tree: ast.Module) -> str:
    """Return a module's code without imports of our modules; its docstring becomes a comment above the code."""
    lines, docstring = source.splitlines(keepends=True), ast.get_docstring(tree)
    for node in (*([] if docstring is None else tree.body[:1]), *_our_imports(tree)):
        for number in range(node.lineno - 1, node.end_lineno or node.lineno):
            lines[number] = ""
    heading = "".join(f"# {line}".rstrip() + "\n" for line in [name, "", *(docstring or "").splitlines()])
    code = "".join(lines).replace(_FUTURE, "").strip("\n")
    return f"\n{heading}\n{code}\n"
