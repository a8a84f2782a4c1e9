"""Build doctor.py: the facts of a matrix as JSON, and one standalone file from the unchanged sources of the doctor.

In that file each module comes after the modules it imports, without its imports of wheelfactory modules. Every name
keeps its meaning, because no two modules define the same one; the tests check that.
"""

from __future__ import annotations

import ast
import json
import re
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import astuple
from functools import cache
from graphlib import TopologicalSorter
from itertools import product
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from wheelfactory.build.products import read_fallback_project
from wheelfactory.core.cell import Backend, major_minor, public_version
from wheelfactory.core.errors import InputError
from wheelfactory.core.files import TOOLCHAIN_PROBE
from wheelfactory.core.gpus import arch_sort_key, gpu_products
from wheelfactory.core.support import Answer, Finding, SupportTable, SupportTables
from wheelfactory.doctor.facts import DoctorFacts, TorchFacts
from wheelfactory.matrix.expand import expand
from wheelfactory.matrix.facts import Matrix, Torch
from wheelfactory.matrix.rules import GPU, Rule, cell_rules, gpu_rules
from wheelfactory.site.index import page_templates
from wheelfactory.verify.gates import required_gates
from wheelfactory.wheel.corrections import options_refused_by


def doctor_facts(matrix: Matrix) -> str:
    """Return the JSON for `DoctorFacts.parse`. Raises `InputError` if the fallback's project is missing."""
    # the one requirement of the fallback is ``torch>=2.5``
    ((fallback_torch,),) = (Requirement(line).specifier for line in read_fallback_project().requires)
    windows = {name: release.triton.window for name, release in matrix.flash_attn.items() if release.triton}
    facts = DoctorFacts(
        triton_windows={public_version(name): _bounds(window) for name, window in windows.items()},
        torches=tuple(_torch_facts(version, matrix.torch[version]) for version in _newest_first(matrix.torch)),
        fallback_torch=major_minor(fallback_torch.version),
        required_gates={str(backend): required_gates(backend) for backend in Backend},
        refused_options={public_version(name): _refused_options(name) for name in matrix.flash_attn},
        hips={rocm: hip.version for rocm, hip in matrix.hip.items()},
        indexes={rocm: facts.index for rocm, facts in matrix.rocm.items()},
        support=support_tables(matrix),
    )
    torches, support = [astuple(known) for known in facts.torches], facts.support.as_json()
    return json.dumps({**vars(facts), "torches": torches, "support": support})


def _torch_facts(version: str, torch: Torch) -> TorchFacts:
    pythons = sorted(map(major_minor, torch.python))
    return TorchFacts(major_minor(version), (pythons[0], pythons[-1]), torch.triton_package, torch.triton)


def _refused_options(release: str) -> dict[str, tuple[str, ...]]:
    return {str(backend): options_refused_by(release, backend) for backend in Backend}


def _bounds(window: str) -> tuple[tuple[int, int], tuple[int, int]]:
    """Both versions of ``>=3.2.0,<3.9``, the form of every window (`matrix.facts.TritonWindow`)."""
    first, end = sorted(major_minor(bound.version) for bound in SpecifierSet(window))
    return first, end


Axes = Mapping[str, tuple[str, ...]]


def support_tables(matrix: Matrix, archs: Iterable[str] = ()) -> SupportTables:
    """Return every rule of a matrix as a table, for all known GPUs and also for `archs`."""
    axes = support_axes(matrix, archs)
    findings: dict[Finding | None, int] = {None: 0}
    amd = _table(_amd_rule(matrix), axes, findings)  # first: its one finding is at most points, and gets one digit
    tables = tuple(_table(rule, axes, findings) for rule in (*cell_rules(matrix), *gpu_rules(matrix)))
    return SupportTables(axes, tuple(findings), tables, amd)


def _amd_rule(matrix: Matrix) -> Rule:
    """The rule that AMD's own torch is in an image of rocm/pytorch."""
    images = {(cell.torch, cell.rocm, cell.python) for cell in expand(matrix).cells if cell.amd_torch}

    missing = Finding(Answer.DOES_NOT_WORK, "no image of rocm/pytorch has this torch for that ROCm and Python")
    return Rule(("torch", "rocm", "python"), lambda *image: None if image in images else missing)


def support_axes(matrix: Matrix, archs: Iterable[str] = ()) -> Axes:
    """Return the values of each axis, versions of Python, torch and ROCm newest first, and every known arch."""
    built_for = {arch for rocm in matrix.rocm.values() for arch in rocm.archs}
    return {
        "flash-attn": tuple(matrix.flash_attn),
        "python": _newest_first(matrix.python),
        "torch": _newest_first(matrix.torch),
        "rocm": _newest_first(matrix.rocm),
        "backend": tuple(map(str, matrix.backend)),
        GPU: tuple(sorted({*built_for, *archs, *gpu_products()}, key=arch_sort_key)),
    }


def _newest_first(versions: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(versions, key=Version, reverse=True))


def _table(rule: Rule, axes: Axes, findings: dict[Finding | None, int]) -> SupportTable:
    """Judge each point of a rule's axes, the last axis fastest; add new findings to `findings`."""
    points = product(*(map(Backend, axes[axis]) if axis == "backend" else axes[axis] for axis in rule.axes))
    return SupportTable(rule.axes, tuple(findings.setdefault(rule.judge(*point), len(findings)) for point in points))


PROGRAM = "wheelfactory.doctor.program"
"""The module that the file runs. The file contains it and everything it imports."""
OLDEST_PYTHON = (3, 9)


def build_single_file(facts: str, site: str = "") -> str:
    """Return the source of ``doctor.py``, which by default looks for wheels at the URL `site`.

    `facts` comes from `doctor_facts`. The same input gives the same text.
    Raises `InputError` for an invalid URL.
    """
    if re.search(r"[\s\"'\\]", site) or not site.isprintable():
        raise InputError("not a site address", repr(site), "remove blanks, quotes and backslashes")
    template = page_templates().get_template("doctor.py.j2")
    text = template.render(site=site, oldest=OLDEST_PYTHON, modules=_join_modules())
    values = {
        'SITE = ""': f'SITE = "{site}"',
        'FACTS = ""': f'FACTS = r"""\n{_wrap_json(facts)}\n"""',
        'GPU_PRODUCTS = ""': f'GPU_PRODUCTS = r"""\n{_wrap_json(json.dumps(gpu_products()))}\n"""',
        'PROBE = ""': f"PROBE = r'''{TOOLCHAIN_PROBE.read_text(encoding='utf-8')}'''",
    }
    for line, value in values.items():
        assert text.count(f"\n{line}\n") == 1, line  # in one of the doctor's modules
        text = text.replace(f"\n{line}\n", f"\n{value}\n")
    return text


def _wrap_json(text: str) -> str:
    return textwrap.fill(text, 118, break_long_words=False, break_on_hyphens=False)


@cache  # the sources of a running program do not change
def _join_modules() -> str:
    """Join the program's modules, each after what it imports.

    Raises `SyntaxError` for syntax newer than `OLDEST_PYTHON`.
    """
    sources: dict[str, str] = {}
    needs: dict[str, list[str]] = {}
    waiting = [PROGRAM]
    while waiting:
        name = waiting.pop()
        if name not in sources:
            path = Path(__file__).parents[2].joinpath(*name.split(".")).with_suffix(".py")
            sources[name] = path.read_text(encoding="utf-8")
            needs[name] = sorted(str(node.module) for node in _our_imports(ast.parse(sources[name])))
            waiting += needs[name]
    ordered = TopologicalSorter({name: needs[name] for name in sorted(needs)}).static_order()
    text = "\n".join(_body(name, sources[name]) for name in ordered).strip("\n")
    ast.parse(text, feature_version=OLDEST_PYTHON)
    return text


def _our_imports(tree: ast.Module) -> list[ast.ImportFrom]:
    """The imports of wheelfactory modules at the top level of a module."""
    imports = (node for node in tree.body if isinstance(node, ast.ImportFrom))
    return [node for node in imports if str(node.module).startswith("wheelfactory.")]


def _body(name: str, source: str) -> str:
    """Return a module's code without imports of our modules; its docstring becomes a comment above the code."""
    lines, tree = source.splitlines(keepends=True), ast.parse(source)
    docstring = ast.get_docstring(tree)
    for node in (*([] if docstring is None else tree.body[:1]), *_our_imports(tree)):
        for number in range(node.lineno - 1, node.end_lineno or node.lineno):
            lines[number] = ""
    heading = "".join(f"# {line}".rstrip() + "\n" for line in [name, "", *(docstring or "").splitlines()])
    code = "".join(lines).replace("from __future__ import annotations\n", "").strip("\n")
    return f"\n{heading}\n{code}\n"
