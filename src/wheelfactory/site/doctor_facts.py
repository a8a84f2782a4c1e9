"""The rules of a matrix as tables, and all facts that ``doctor.py`` contains, as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import astuple
from itertools import product

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from wheelfactory.build.products import read_fallback_project
from wheelfactory.core.cell import Backend, major_minor, public_version
from wheelfactory.core.gpus import arch_sort_key, gpu_products
from wheelfactory.core.support import Answer, Finding, SupportTable, SupportTables
from wheelfactory.doctor.facts import DoctorFacts, TorchFacts
from wheelfactory.matrix.expand import expand
from wheelfactory.matrix.facts import Matrix, Torch
from wheelfactory.matrix.rules import GPU, Rule, cell_rules, gpu_rules
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
