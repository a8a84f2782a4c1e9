"""A release to check as a site: tiny wheels that import, and an index of a stand-in for torch."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from doctor.sites import IMPORTABLE
from release_factory import PUBLISHED, flash_attn_wheel, passed_gates, stub_wheel
from wheel_factory import make_wheel, metadata_text
from wheelfactory.core.cell import FALLBACK_NAME, Cell
from wheelfactory.core.files import MATRIX
from wheelfactory.release.additions import read_wheel_row
from wheelfactory.release.directory import DirectoryPublisher, write_pages
from wheelfactory.release.manifest import WheelRow
from wheelfactory.release.transaction import publish
from wheelfactory.site.index import render_index
from wheelfactory.verify.gates import required_gates
from wheelfactory.verify.result import GateResult, Status

THIS_PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
FALLBACK_FILE = "flash_attention_amd-0.1.0-py3-none-any.whl"

_FALLBACK = """\
FlashAttention = flash_attn_func = flash_attn_qkvpacked_func = print
flash_attn_varlen_func = flash_attn_with_kvcache = print
"""


def publish_cells(folder: Path, contents: Mapping[str, str], *, fallback: bool = False) -> None:
    """Publish a wheel for each cell into `folder`; `contents` maps a cell to the source that runs when it is imported.

    `fallback` publishes a stand-in for flash-attention-amd too.
    """
    made = folder.with_name(f"{folder.name}-made")
    wheels = [flash_attn_wheel(made, cell, content or IMPORTABLE) for cell, content in contents.items()]
    wheels.append(stub_wheel(made, "einops", "0.8.2"))
    if fallback:
        metadata = metadata_text("0.1.0", name=FALLBACK_NAME, requires=["torch>=2.5"])
        members = {"flash_attention_amd/__init__.py": _FALLBACK.encode()}
        wheels.append(make_wheel(made, name="flash_attention_amd", version="0.1.0", metadata=metadata, members=members))
    rows = publish(DirectoryPublisher(folder), [(_verified_row(path), path) for path in wheels])
    write_pages(folder, render_index(rows))


def _verified_row(path: Path) -> WheelRow:
    row = read_wheel_row(path)
    fallback = [GateResult(gate=name, status=Status.PASSED) for name in required_gates(FALLBACK_NAME)]
    gates = tuple(fallback) if row.project == FALLBACK_NAME else passed_gates(row.cell)
    return row.model_copy(update={"published": PUBLISHED, "gates": gates})


def make_torch_index(folder: Path, cells: Sequence[str]) -> str:
    """Make an index with an empty stand-in for the torch of each cell; return its address."""
    project = folder / "torch"
    project.mkdir(parents=True)
    for cell in map(Cell.parse, cells):
        stub_wheel(project, "torch", f"{cell.torch}+rocm{cell.rocm}")
    links = (f'<a href="{quote(path.name)}">{path.name}</a>' for path in sorted(project.glob("*.whl")))
    (project / "index.html").write_text("\n".join(links))
    return folder.as_uri()


def write_matrix_of_this_python(path: Path) -> Path:
    """Write the matrix of the checkout with the running Python alone, so that none has to be downloaded."""
    text, axis = MATRIX.read_text(), "\npython: ['3.14', '3.13', '3.12', '3.11', '3.10']\n"
    assert text.count(axis) == 1
    path.write_text(text.replace(axis, f"\npython: ['{THIS_PYTHON}']\n"))
    return path
