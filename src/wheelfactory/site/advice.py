"""A published wheel -> the lines that install it, for pip on a ROCm machine and for a try on this one."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from wheelfactory.build.environments import cpu_torch, cpu_torch_options, cpu_torch_version
from wheelfactory.core.cell import Backend, Cell
from wheelfactory.matrix.facts import Matrix
from wheelfactory.release.manifest import WheelRow
from wheelfactory.site.index import IndexKey, index_path


def install_lines(rows: Sequence[WheelRow], folder: Path) -> list[str]:
    """A line for each index that lists one of the rows, for a machine with that torch for that ROCm.

    The index alone is named, so that nothing can be taken from elsewhere.
    """
    keys = dict.fromkeys(row.index_key for row in rows if row.index_key)
    root = site_of(folder)
    return [index_line(key, root) for key in keys]


def site_of(folder: Path) -> str:
    """The address of a release directory on this machine."""
    return f"file://{quote(str(folder.resolve()))}"


def pages_of(repository: str) -> str:
    """Where GitHub's Pages serve the site of ``OWNER/REPO``, if it has no domain of its own (GitHub's docs)."""
    owner, _, name = repository.partition("/")
    host = f"{owner.lower()}.github.io"
    return f"https://{host}/" if name.lower() == host else f"https://{host}/{name}/"


def index_line(key: IndexKey, site: str, requirement: str = "flash-attn") -> str:
    """The line that installs from an index of the release at the address `site`, and from nowhere else."""
    return shlex.join(["pip", "install", "--index-url", f"{site.rstrip('/')}/{index_path(key)}/", requirement])


def file_line(row: WheelRow, matrix: Matrix) -> str:
    """The line that installs one wheel by its address and digest; a wheel without an address must be there already.

    ``--no-deps`` keeps the torch that is installed; what else flash-attn needs is named, and needs nothing itself.
    """
    wheel = f"{row.url}#sha256={row.sha256}" if row.url else f"./{row.filename}"
    return shlex.join(["pip", "install", "--no-deps", *matrix.dependencies, wheel])


def trial_line(row: WheelRow, folder: Path, matrix: Matrix) -> str:
    """The line for a machine without ROCm: CPU torch and the Triton of the cell, pinned, beside the full label."""
    triton = matrix.torch[Cell.parse(str(row.cell)).torch].triton
    return shlex.join(
        [
            "pip",
            "install",
            *cpu_torch_options(),
            "--find-links",
            str(folder.resolve() / "wheels"),
            cpu_torch(),
            f"triton=={triton}",
            f"flash-attn=={row.version}",
        ]
    )


def pick_for_trial(rows: Sequence[WheelRow], matrix: Matrix) -> WheelRow | None:
    """The row that can be tried on a machine without ROCm: Triton, for the torch whose CPU build is used.

    Of several it is the one that the matrix lists first, which is the newest.
    """
    torch = cpu_torch_version()
    releases, rocms = list(matrix.flash_attn), list(matrix.rocm)
    fitting: list[tuple[int, int, WheelRow]] = []
    for row in rows:
        cell = Cell.parse(row.cell) if row.cell else None
        if cell is None or row.yanked or cell.torch != torch or cell.backend is not Backend.TRITON:
            continue
        if cell.flash_attn in releases and cell.rocm in rocms:
            fitting.append((releases.index(cell.flash_attn), rocms.index(cell.rocm), row))
    return min(fitting, key=lambda item: item[:2])[2] if fitting else None
