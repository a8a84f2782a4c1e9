"""The data of the search page, as plain JSON values, from the matrix and the manifest rows.

It is small enough for a slow connection without compression: what several wheels share is stored once, in tables, and a
wheel is a short text. Every matrix rule is a table with its result for each point of its axes, so the page can explain
any choice without implementing the rules.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from typing import Any, TypeAlias
from urllib.parse import quote

from packaging.utils import parse_wheel_filename

from wheelfactory.core.cell import Cell, name_python
from wheelfactory.core.gpus import OVERRIDES, find_override_arch, gpu_products, read_gpu_names, without_features
from wheelfactory.core.label import index_path
from wheelfactory.core.published import wheel_url
from wheelfactory.core.support import OTHER_BUILD, other_ways
from wheelfactory.matrix.expand import Expansion, expand
from wheelfactory.matrix.facts import Matrix
from wheelfactory.matrix.rules import GPU
from wheelfactory.release.manifest import WheelRow, current_rows, verified_archs
from wheelfactory.site.coverage import NEEDS_RUNNER, RUNNER_HINT, CellState, Coverage, compute_coverage
from wheelfactory.site.doctor_file import support_tables
from wheelfactory.site.index import install_templates
from wheelfactory.site.markdown import size_text
from wheelfactory.site.wheel_text import evidence_lines, executed_lines, missing_checks, preferred_first_key
from wheelfactory.verify.result import GateResult, Status
from wheelfactory.wheel.corrections import refused_options

COLUMNS = (
    *("version", "flash-attn", "torch", "rocm", "backend", "archs", "glibc"),
    *("yanked", "unverified", "checks", "evidence", "base", "index", "refused", "others"),
)
"""What the wheels of a kind share, usually all Pythons of a build: positions in the tables of these names.

``unverified`` names the checks that are missing, and is empty for a verified wheel. ``evidence`` has the archs on which
the wheel computed correctly, a text for each run on a GPU, and for each arch whose kernels an emulator executed. The
address of a file is a base and the file name, or the whole address in a list. ``index`` is a folder below the site.
``refused`` are options that raise an error. ``others`` are other torches that define the symbols that the wheel needs.
"""

# the axes, the easiest for a user to change first. The GPU is last, because it has to be bought
CHANGE_ORDER = ("backend", "flash-attn", "python", "rocm", "torch", GPU)

_AFTER_VERSION = re.compile(r"(?:-(\d+[a-z]?))?(-[^-]+-[^-]+-[^-]+\.whl)")
_RELEASE = re.compile(r"https://github\.com/([\w.-]+/[\w.-]+)/releases/download/", re.ASCII)
# not quoted by JavaScript's encodeURIComponent, besides letters, digits and ``-_.``
_COMPONENT = "!'()*~"


Table: TypeAlias = dict[Hashable, int]
"""Distinct values with their positions."""


def search_data(matrix: Matrix, rows: Iterable[WheelRow], *, docs: bool) -> dict[str, Any]:
    """Return all data of the page."""
    # dependencies have no cell; they are omitted, because every index has them
    wheels = sorted((row for row in rows if row.cell and row.label), key=preferred_first_key)
    expansion = expand(matrix)
    coverage = compute_coverage(expansion, current_rows(wheels, matrix))
    texts: Table = {"": 0}
    tables = support_tables(matrix, (without_features(arch) for row in wheels for arch in row.offload_archs))
    return {
        "support": tables.as_json(),
        "changes": CHANGE_ORDER,
        "lines": install_templates(),
        "other build": OTHER_BUILD,
        "other ways": {arch: other_ways(arch) for arch in ("", *OVERRIDES)},
        "overrides": {arch: find_override_arch(version) for arch, version in OVERRIDES.items()},
        "products": {arch: gpu_products().get(arch, ()) for arch in tables.axes[GPU]},
        "gpus": [(row.archs, row.names) for row in read_gpu_names()],
        "torch": {version: facts.triton_package for version, facts in matrix.torch.items()},
        "rocm": {version: facts.index for version, facts in matrix.rocm.items()},
        "coverage": [square for square in _squares(coverage, texts) if square[2] in matrix.torch],
        "runner": _runner(coverage),
        "texts": list(texts),
        "docs": docs,
        "request": _request_form(wheels),
        **_wheels(matrix, expansion, wheels),
    }


def _position(table: Table, value: Hashable) -> int:
    """Return the position of a value; add a new value."""
    return table.setdefault(value, len(table))


def _squares(coverage: Coverage, texts: Table) -> Iterator[list[object]]:
    """Backend, ROCm, torch; cells published, unverified, yanked, missing, without runner; excluded ones by reason."""
    for key, counts in coverage.counts_by(lambda cell: (str(cell.backend), cell.rocm, cell.torch)).items():
        excluded = [[_position(texts, reason), number] for reason, number in counts.excluded]
        numbers = (counts.published, counts.unverified, counts.yanked, counts.missing, counts.needs_runner)
        yield [*key, *numbers, excluded]


def _runner(coverage: Coverage) -> dict[str, object]:
    """The backends whose wheels need a runner that this site lacks, and the texts that say so."""
    left_out = (covered.cell for covered in coverage.cells if covered.state is CellState.NEEDS_RUNNER)
    backends = list(dict.fromkeys(str(cell.backend) for cell in left_out))
    return {"backends": backends, "state": NEEDS_RUNNER, "hint": RUNNER_HINT}


def _request_form(wheels: Iterable[WheelRow]) -> str | None:
    """Return the wheel request form of the GitHub repository with the most wheels, or None."""
    found = Counter(match[1] for row in wheels if (match := _RELEASE.match(row.url or "")))
    for repository, _ in found.most_common(1):
        return f"https://github.com/{repository}/issues/new?template=wheel-request.yml"
    return None


def _wheels(matrix: Matrix, expansion: Expansion, wheels: Iterable[WheelRow]) -> dict[str, object]:
    """The wheels and their tables.

    A wheel is a line: the positions of its kind and tags, its build tag, the positions of its size and date, and its
    sha256 in base64. A file that is not named ``flash_attn-VERSION[-BUILD]-TAGS.whl`` has its whole name as tags.
    """
    served = {cell.id: pythons for cell, pythons in expansion.pythons.items()}
    shared: dict[str, Table] = {name: {} for name in COLUMNS}
    tables: dict[str, Table] = {name: {} for name in ("kinds", "tags", "sizes", "dates")}
    listed = []
    for row in wheels:
        cell = Cell.parse(str(row.cell))
        match = _AFTER_VERSION.fullmatch(row.filename.removeprefix(f"flash_attn-{row.version}"))
        build, suffix = match.groups(default="") if match else ("", row.filename)
        values = _shared_values(matrix, row, cell)
        kind = tuple(_position(shared[name], value) for name, value in zip(COLUMNS, values, strict=True))
        tags = (cell.python, tuple(served.get(cell.id) or _tagged(row)), suffix)
        own = (kind, tags, size_text(row.size), f"{row.published:%Y-%m-%d}")
        kind_at, tags_at, *others = (_position(table, value) for table, value in zip(tables.values(), own, strict=True))
        digest = b64encode(bytes.fromhex(row.sha256)).decode().rstrip("=")
        listed.append(" ".join(map(str, (kind_at, tags_at, build, *others, digest))))
    lists = {name: list(table) for name, table in tables.items()}
    return {"shared": {name: list(table) for name, table in shared.items()}, **lists, "wheels": "\n".join(listed)}


def _shared_values(matrix: Matrix, row: WheelRow, cell: Cell) -> tuple[Hashable, ...]:
    """The values of `COLUMNS`."""
    return (
        *(row.version, cell.flash_attn, cell.torch, cell.rocm, str(cell.backend)),
        *(tuple(map(without_features, row.offload_archs)), row.glibc, row.yanked, missing_checks(row, matrix)),
        tuple(map(_check, row.gates)),
        (verified_archs(row), tuple(evidence_lines(row)), tuple(executed_lines(row))),
        _base(row),
        index_path(row.index_key) if row.index_key else "",
        refused_options(cell),
        row.other_torches,
    )


def _tagged(row: WheelRow) -> list[str]:
    """Return the Pythons in the tags of a wheel whose cell left the matrix; empty if it supports every Python."""
    tags = (tag.interpreter for tag in parse_wheel_filename(row.filename)[3])
    return sorted({name_python(tag) for tag in tags if tag.startswith("cp3")})


def _check(gate: GateResult) -> tuple[str, ...]:
    """Name and status of a gate, and the reason if it did not pass."""
    return (gate.gate, str(gate.status), *([gate.detail] if gate.status is not Status.PASSED else []))


def _base(row: WheelRow) -> Hashable:
    name, url = quote(row.filename, safe=_COMPONENT), wheel_url(row.filename, row.url, "")
    return url.removesuffix(name) if url.endswith(name) else (url,)
