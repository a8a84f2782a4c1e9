"""Build tiny real wheels and releases of any cell, as `wheelfactory run` would, in milliseconds."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.version import Version
from pypi_simple import Link, RepositoryPage

from wheel_factory import make_wheel, metadata_text
from wheelfactory.core.cell import ANY_PYTHON, Cell
from wheelfactory.core.files import MATRIX
from wheelfactory.core.label import Label
from wheelfactory.matrix.facts import Matrix
from wheelfactory.matrix.load import load_matrix
from wheelfactory.release.additions import read_wheel_row
from wheelfactory.release.directory import DirectoryPublisher, write_pages
from wheelfactory.release.manifest import WheelRow
from wheelfactory.release.transaction import publish
from wheelfactory.site.index import render_index
from wheelfactory.verify.gates import GATES, required_gates
from wheelfactory.verify.result import GateResult, Status
from wheelfactory.wheel.read import BUILD_RECORD_NAME, BuildRecord
from wheelfactory.wheel.rewrite import label_version, protect_metadata

PYTHON_TAG = f"cp{sys.version_info[0]}{sys.version_info[1]}"
"""The python tag that the Python running the tests can install."""

PURE = "py3-none-any"

PUBLISHED = datetime(2026, 1, 1, tzinfo=timezone.utc)
"""The fixed publish time of every row, so that the same wheels give the same manifest."""


def plain_row(filename: str = "einops-0.8.2-py3-none-any.whl", **changed: Any) -> WheelRow:
    """A row of no real file with the least fields, of einops unless `changed`."""
    fields = {"project": "einops", "version": "0.8.2", "sha256": "a" * 64, "size": 12, "requires_python": ""}
    more = {"metadata_sha256": "b" * 64, "published": PUBLISHED}
    return WheelRow(**{"filename": filename, **fields, **more, **changed})


def flash_attn_wheel(folder: Path, cell_id: str, content: str = "", replacement: int = 0) -> Path:
    """Build the wheel of a cell into `folder`, or a replacement of it. `content` changes only its bytes."""
    cell = Cell.parse(cell_id)
    label = Label.from_cell(cell)
    version = label_version(Version(cell.public_version), label)
    tag = PURE if cell.python == ANY_PYTHON else f"{cell.python_tag}-{cell.python_tag}-manylinux_2_28_x86_64"
    if build := _shipped_matrix().build_tag(cell, replacement):
        tag = f"{build}-{tag}"
    record = BuildRecord(cell=cell.id, label=str(label), offload_archs=("gfx942",), source="sha256:" + "0" * 64)
    metadata = protect_metadata(metadata_text(cell.public_version, requires=("torch", "einops")), label)
    return make_wheel(
        folder,
        version=version,
        tags=tag,
        metadata=metadata,
        wheel=_wheel_text(tag),
        members={"flash_attn/__init__.py": content.encode()},
        dist_info_members={BUILD_RECORD_NAME: record.as_bytes()},
    )


@cache
def _shipped_matrix() -> Matrix:
    return load_matrix(MATRIX)


def stub_wheel(folder: Path, name: str, version: str) -> Path:
    """Build an importable pure wheel named torch or einops, without requirements."""
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    members = {f"{name}/__init__.py": b""}
    return make_wheel(folder, name=name, version=version, wheel=_wheel_text(PURE), metadata=metadata, members=members)


def _wheel_text(tag: str) -> str:
    *build, compatible = tag.split("-", 1) if tag[0].isdigit() else (tag,)
    builds = "".join(f"Build: {number}\n" for number in build)
    return f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\n{builds}Tag: {compatible}\n"


def passed_gates(cell_id: str | None) -> tuple[GateResult, ...]:
    """The gates of a verified wheel; empty for a dependency."""
    required = required_gates(Cell.parse(cell_id).backend) if cell_id else ()
    return tuple(GateResult(gate=name, status=Status.PASSED) for name in required)


def quick_gates(cell_id: str) -> tuple[GateResult, ...]:
    """The gates of a Triton wheel from ``run --quick``."""
    slow = [gate.name for gate in GATES if gate.slow]
    left_out = (GateResult.not_run(name, "left out by --quick") for name in slow)
    kept = (gate for gate in passed_gates(cell_id) if gate.gate not in slow)
    return (*kept, *(gate.model_copy(update={"required": False}) for gate in left_out))


def additions(wheels: Iterable[Path]) -> list[tuple[WheelRow, Path]]:
    """Each wheel with the row of a verified wheel, as `publish` expects."""
    rows = [(read_wheel_row(path), path) for path in wheels]
    changed = ({"published": PUBLISHED, "gates": passed_gates(row.cell)} for row, _ in rows)
    return [(row.model_copy(update=change), path) for (row, path), change in zip(rows, changed, strict=True)]


def make_release(folder: Path, wheels: Iterable[Path]) -> tuple[WheelRow, ...]:
    """Publish wheels into `folder` and write its index, as the command does; return all rows."""
    rows = publish(DirectoryPublisher(folder), additions(wheels))
    write_pages(folder, render_index(rows))
    return rows


def content_of(folder: Path) -> dict[str, bytes]:
    """The bytes of every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def links_on(page: Path) -> list[Link]:
    """The links of a page with absolute addresses, as a client reads them."""
    return RepositoryPage.from_html(page.read_bytes(), base_url=page.as_uri()).links


def path_of(url: str) -> Path:
    """The path of a ``file:`` address."""
    return Path(unquote(urlsplit(url).path))


def reachable(page: Path) -> Iterator[Link]:
    """The links to files on every index page reachable from `page`; fails at a broken link to a page."""
    for link in links_on(page):
        if link.url.endswith("/"):
            yield from reachable(path_of(link.url) / "index.html")
        elif link.text != "Find the wheel for your GPU":
            yield link
