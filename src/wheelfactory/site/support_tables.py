"""Compute the support tables that the search page and doctor.py look answers up in, from the rules of a matrix."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product

from wheelfactory.core.cell import Backend
from wheelfactory.core.gpus import PRODUCTS, arch_sort_key
from wheelfactory.core.support import Finding, SupportTable, SupportTables
from wheelfactory.matrix.facts import Matrix
from wheelfactory.matrix.rules import GPU, Rule, cell_rules, gpu_rules

Axes = Mapping[str, tuple[str, ...]]


def support_tables(matrix: Matrix, archs: Iterable[str] = ()) -> SupportTables:
    """Return every rule of a matrix as a table, for all known GPUs and also for `archs`."""
    axes = support_axes(matrix, archs)
    findings: dict[Finding | None, int] = {None: 0}
    tables = tuple(_table(rule, axes, findings) for rule in (*cell_rules(matrix), *gpu_rules(matrix)))
    return SupportTables(axes, tuple(findings), tables)


def support_axes(matrix: Matrix, archs: Iterable[str] = ()) -> Axes:
    """Return the values of each axis in the order of matrix.yaml, and every known arch, older ones first."""
    built_for = {arch for rocm in matrix.rocm.values() for arch in rocm.archs}
    return {
        "flash-attn": tuple(matrix.flash_attn),
        "python": tuple(matrix.python),
        "torch": tuple(matrix.torch),
        "rocm": tuple(matrix.rocm),
        "backend": tuple(map(str, matrix.backend)),
        GPU: tuple(sorted({*built_for, *archs, *PRODUCTS}, key=arch_sort_key)),
    }


def _table(rule: Rule, axes: Axes, findings: dict[Finding | None, int]) -> SupportTable:
    """Judge each point of a rule's axes, the last axis fastest; add new findings to `findings`."""
    points = product(*(map(Backend, axes[axis]) if axis == "backend" else axes[axis] for axis in rule.axes))
    return SupportTable(rule.axes, tuple(findings.setdefault(rule.judge(*point), len(findings)) for point in points))
