"""Matrix and rows -> what the search page looks things up in, as plain JSON values.

Texts and sets that many wheels share stand in tables once; a wheel is a list of values in the order of `COLUMNS`.
Every rule of the matrix is a table of what it says for each point of its axes, so that the page can tell the reason
against any choice and needs no rule of its own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import product
from typing import Any, TypeAlias
from urllib.parse import quote

from packaging.utils import parse_wheel_filename

from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.gpus import PRODUCTS, arch_sort_key
from wheelfactory.matrix.expand import Expansion, expand
from wheelfactory.matrix.facts import Matrix
from wheelfactory.matrix.rules import GPU, Rule, cell_rules, gpu_rules
from wheelfactory.release.manifest import WheelRow, verified_archs
from wheelfactory.release.verified import unverified_reason
from wheelfactory.site.coverage import compute_coverage
from wheelfactory.site.index import index_path
from wheelfactory.site.install_lines import install_templates
from wheelfactory.site.wheel_text import evidence_lines, newest_first_key
from wheelfactory.verify.result import GateResult, Status

COLUMNS = (
    *("file", "version", "flash-attn", "python", "torch", "rocm", "backend", "pythons", "archs"),
    *("glibc", "size", "sha256", "published", "yanked", "unverified", "checks", "evidence", "base", "index"),
)
"""What the values of a wheel are.

``pythons``, ``archs``, ``unverified``, ``checks``, ``evidence``, ``base`` and ``index`` are positions in the tables of
these names; the address of a file is its base and its name, or ``base`` itself where that is a text. ``unverified``
says what was not checked, empty for a verified wheel, ``index`` is a folder below the site, ``evidence`` the archs
whose GPUs computed with a wheel what they should, and a text for each time that a GPU did.
"""

CHANGE_ORDER = ("backend", "flash-attn", "python", "rocm", "torch", GPU)
"""The axes by what it costs a person to change one, the cheapest first; a GPU has to be bought."""

_BESIDE = "wheels/"
"""Where files are that have no address: below the release directory that the page is in."""
_RELEASE = re.compile(r"https://github\.com/([\w.-]+/[\w.-]+)/releases/download/", re.ASCII)
_COMPONENT = "!'()*~"
"""What JavaScript's encodeURIComponent leaves as it is, besides letters, digits and ``-_.``."""


Table: TypeAlias = dict[Hashable, int]
"""Values with the positions by which they are pointed to; equal ones stand once."""


def search_data(matrix: Matrix, rows: Iterable[WheelRow], *, docs: bool) -> dict[str, Any]:
    """Everything that the page knows.

    Rows without a cell are dependencies, which no page needs to find: every index has them.
    """
    wheels = sorted((row for row in rows if row.cell and row.label), key=newest_first_key)
    expansion = expand(matrix)
    texts: Table = {"": 0}
    axes = search_axes(matrix, wheels)
    return {
        "axes": axes,
        "changes": CHANGE_ORDER,
        "lines": install_templates(),
        "products": {arch: PRODUCTS.get(arch, ()) for arch in axes[GPU]},
        "torch": {version: facts.triton_package for version, facts in matrix.torch.items()},
        "rocm": {version: facts.index for version, facts in matrix.rocm.items()},
        "rules": [rule_table(rule, axes, texts) for rule in (*cell_rules(matrix), *gpu_rules(matrix))],
        "coverage": list(_coverage(expansion, wheels, texts)),
        "texts": list(texts),
        "docs": docs,
        "request": _request_form(wheels),
        **_wheels(expansion, wheels),
    }


def search_axes(matrix: Matrix, wheels: Iterable[WheelRow]) -> dict[str, list[str]]:
    """The values of each axis in the order of matrix.yaml, and the GPUs that are known, by arch."""
    archs = {arch for rocm in matrix.rocm.values() for arch in rocm.archs}
    archs |= {arch for row in wheels for arch in map(_plain, row.offload_archs)}
    return {
        "flash-attn": list(matrix.flash_attn),
        "python": list(matrix.python),
        "torch": list(matrix.torch),
        "rocm": list(matrix.rocm),
        "backend": list(map(str, matrix.backend)),
        GPU: sorted({*archs, *PRODUCTS}, key=arch_sort_key),
    }


def _plain(arch: str) -> str:
    """Without features such as ``:xnack-``."""
    return arch.partition(":")[0]


def rule_table(rule: Rule, axes: dict[str, list[str]], texts: Table) -> dict[str, object]:
    """What a rule says of each point of its axes, the last axis fastest, as positions in `texts`; 0 is nothing."""
    points = product(*(map(Backend, axes[axis]) if axis == "backend" else axes[axis] for axis in rule.axes))
    return {"axes": rule.axes, "reasons": [_at(texts, rule.reason_against(*point)) for point in points]}


def _at(table: Table, value: Hashable) -> int:
    """The position of a value, which is added if it is new."""
    return table.setdefault(value, len(table))


def _coverage(expansion: Expansion, wheels: Sequence[WheelRow], texts: Table) -> Iterator[list[object]]:
    """Backend, ROCm, torch, cells published, of these not verified, yanked, missing; the reasons and combinations."""
    squares = compute_coverage(expansion, wheels).counts_by(lambda cell: (str(cell.backend), cell.rocm, cell.torch))
    for key, tally in squares.items():
        excluded = [[_at(texts, reason), number] for reason, number in tally.excluded]
        yield [*key, tally.published, tally.unverified, tally.yanked, tally.missing, excluded]


def _request_form(wheels: Iterable[WheelRow]) -> str | None:
    """The form for a wheel that is not there yet, of the repository on GitHub that has most of the wheels."""
    found = Counter(match[1] for row in wheels if (match := _RELEASE.match(row.url or "")))
    for repository, _ in found.most_common(1):
        return f"https://github.com/{repository}/issues/new?template=wheel-request.yml"
    return None


def _wheels(expansion: Expansion, wheels: Iterable[WheelRow]) -> dict[str, object]:
    """The wheels, and the tables that they point into."""
    served = {cell.id: pythons for cell, pythons in expansion.pythons.items()}
    names = ("pythons", "archs", "unverified", "checks", "evidence", "base", "index")
    tables: dict[str, Table] = {name: {} for name in names}
    listed = []
    for row in wheels:
        cell = Cell.parse(str(row.cell))
        pythons = served.get(cell.id) or _tagged(row)
        listed.append(
            [
                *(row.filename, row.version, cell.flash_attn, cell.python, cell.torch, cell.rocm, str(cell.backend)),
                _at(tables["pythons"], tuple(pythons)),
                _at(tables["archs"], tuple(map(_plain, row.offload_archs))),
                *(row.glibc, row.size, row.sha256, f"{row.published:%Y-%m-%d}", row.yanked),
                _at(tables["unverified"], unverified_reason(row)),
                _at(tables["checks"], tuple(map(_check, row.gates))),
                _at(tables["evidence"], (verified_archs(row), tuple(evidence_lines(row)))),
                _base(row, tables["base"]),
                _at(tables["index"], index_path(row.index_key) if row.index_key else ""),
            ]
        )
    return {"columns": COLUMNS, **{name: list(table) for name, table in tables.items()}, "wheels": listed}


def _tagged(row: WheelRow) -> list[str]:
    """The Pythons of a wheel whose cell the matrix does not have (any more), by its tags; none if it takes any."""
    tags = (tag.interpreter for tag in parse_wheel_filename(row.filename)[3])
    return sorted({f"3.{tag.removeprefix('cp3')}" for tag in tags if tag.startswith("cp3")})


def _check(gate: GateResult) -> tuple[str, ...]:
    """Name and status, and for a gate that did not pass the detail, which says why."""
    return (gate.gate, str(gate.status), *([gate.detail] if gate.status is not Status.PASSED else []))


def _base(row: WheelRow, bases: Table) -> int | str:
    name = quote(row.filename, safe=_COMPONENT)
    url = row.url or _BESIDE + name
    return _at(bases, url.removesuffix(name)) if url.endswith(name) else url
